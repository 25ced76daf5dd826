package serve_test

import (
	"context"
	"errors"
	"flag"
	"math/rand/v2"
	"net/http"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"talf/internal/e2e/servetest"
)

var trialTime = flag.Duration("trial-time", 0, "time of the mixed load, with the demo's model (0: a few hundred requests)")

// Many more requests than the server has room for come at once: each is answered as it should be, or
// told to come again later, and the next wave finds the server as the first did.
func TestTrialOverload(t *testing.T) {
	dir, head := subject(t)
	o := servetest.NewOracle(t, dir)
	atOnce := few(200)
	if *trials > 0 {
		atOnce = 1000
	}
	rng := rand.New(rand.NewPCG(7, 7))
	methods := servetest.Methods(t, true)
	all := drawTrials(t, o, rng, 40, 24, methods, nil)
	setup := servetest.Setup{Dir: dir, Head: head, Parts: servetest.Default()}
	setup.Parts.Methods, setup.Parts.Loop.MaxRunning, setup.Parts.Loop.MaxQueue = methods, 4, 8
	setup.Parts.MaxWait = 2 * time.Second // some that are taken are given up again
	s := servetest.Start(t, setup)
	client := servetest.NewClient(t, atOnce)
	wave := func() (whole, busy, unavailable int) {
		var mu sync.Mutex
		var took []time.Duration
		var wg sync.WaitGroup
		for i := range atOnce {
			wg.Go(func() {
				x := *all[i%len(all)]
				x.w.Quit = 0
				began := time.Now()
				got, err := servetest.Ask(context.Background(), client, s.URL, &x.q, x.w)
				mu.Lock()
				defer mu.Unlock()
				var late *servetest.StreamError
				switch r := refused(err); {
				case r != nil && r.Status == http.StatusTooManyRequests && r.Shape() == "":
					busy++
				case r != nil && r.Status == http.StatusServiceUnavailable && r.Shape() == "":
					unavailable++
				case errors.As(err, &late):
					unavailable++ // it waited too long after its stream had begun
				case err != nil:
					t.Errorf("%v", err)
				default:
					whole++
					took = append(took, time.Since(began))
					if d := servetest.Differ(got, x.want, &x.w); d != "" {
						t.Error(d)
					}
				}
			})
		}
		wg.Wait()
		slices.Sort(took)
		if len(took) > 0 {
			t.Logf("%d at once on 4 places: %d answered (p50 %v, p99 %v), %d with status 429, %d given up; %.1f MiB",
				atOnce, whole, took[len(took)/2], took[len(took)*99/100], busy, unavailable, float64(servetest.Resident())/(1<<20))
		}
		return whole, busy, unavailable
	}
	wave()
	before := servetest.Resident()
	for range 3 {
		whole, busy, _ := wave()
		if whole == 0 || busy == 0 {
			t.Errorf("%d requests are answered and %d refused: the server was not overloaded", whole, busy)
		}
	}
	if after := servetest.Resident(); after > before+32<<20 {
		t.Errorf("memory has grown from %d to %d bytes", before, after)
	}
}

// A load of everything at once, with clients that come and go, leaves nothing behind: no goroutine,
// no connection, no block of keys and values, no memory.
func TestTrialNothingIsLeft(t *testing.T) {
	dir, head := subject(t)
	o := servetest.NewOracle(t, dir)
	rng := rand.New(rand.NewPCG(8, 8))
	methods := servetest.Methods(t, true)
	all := drawTrials(t, o, rng, 80, 24, methods, nil)
	for i, x := range all {
		if x.w.Quit = 0; i%2 == 0 {
			x.w.Quit = 1 + rng.IntN(20)
		}
	}
	coda := drawTrials(t, o, rng, 12, 24, methods, nil)
	// used returns the blocks that a server keeps in the end, after a load and a coda.
	used := func(load func(ask func(i int))) int {
		base := runtime.NumGoroutine()
		setup := servetest.Setup{Dir: dir, Head: head, Blocks: 90, Parts: servetest.Default()}
		setup.Parts.Methods, setup.Parts.Cached = methods, 4
		s := servetest.Start(t, setup)
		var sum tally
		one := func(client *http.Client, x *trial) { x.ask(t, client, s.URL, &sum) }
		final := func() {
			client := servetest.NewClient(t, 1)
			for _, x := range coda {
				y := *x
				y.w.Quit, y.w.Method, y.w.Off = 0, "beam", false
				one(client, &y)
			}
			client.CloseIdleConnections()
		}
		final()
		held := servetest.Settle(base + 4)
		files, memory := servetest.Files(), servetest.Resident()
		if load != nil {
			client := servetest.NewClient(t, 32)
			load(func(i int) { one(client, all[i%len(all)]) })
			client.CloseIdleConnections()
			final()
			t.Log(&sum)
			if n := servetest.Settle(held); n > held {
				t.Errorf("%d goroutines, %d before", n, held)
			}
			after := servetest.Resident()
			t.Logf("files %d, then %d; memory %.1f MiB, then %.1f MiB", files, servetest.Files(), float64(memory)/(1<<20), float64(after)/(1<<20))
			if n := servetest.Files(); n > files {
				t.Errorf("%d files and connections, %d before", n, files)
			}
			if memory > 0 && after > memory+32<<20 {
				t.Errorf("memory has grown from %d to %d bytes", memory, after)
			}
		}
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
		return s.Model.KV().Used
	}
	want := used(nil)
	got := used(func(ask func(i int)) {
		end, n := time.Now().Add(*trialTime), int64(few(240))
		var next atomic.Int64
		var wg sync.WaitGroup
		for range 32 {
			wg.Go(func() {
				for {
					i := next.Add(1) - 1
					if i >= n && time.Now().After(end) {
						return
					}
					ask(int(i))
				}
			})
		}
		wg.Wait()
		t.Logf("%d requests", next.Load()-32)
	})
	if got != want {
		t.Errorf("%d blocks are in use after the load, %d without", got, want)
	}
}

// refused returns the refusal that an error is, nil if it is none.
func refused(err error) *servetest.Refusal {
	var r *servetest.Refusal
	if errors.As(err, &r) {
		return r
	}
	return nil
}
