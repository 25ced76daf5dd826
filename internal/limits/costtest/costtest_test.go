package costtest_test

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"talf/internal/limits/costtest"
)

// A recorder is a test that collects its failures.
type recorder struct {
	testing.TB
	failures []string
}

func (r *recorder) Helper()                   {}
func (r *recorder) Errorf(f string, a ...any) { r.failures = append(r.failures, fmt.Sprintf(f, a...)) }
func (r *recorder) Fatalf(f string, a ...any) { r.Errorf(f, a...); panic(r) }
func (r *recorder) check(b costtest.Bound, f func(context.Context)) string {
	defer func() { _ = recover() }() // Fatalf
	costtest.Check(r, "input", b, f)
	return ""
}

// spin works until a clock has gone on by d. It is one of processor time: on a busy machine, time
// passes without work.
func spin(clock func() time.Duration, d time.Duration) {
	for end := clock() + d; clock() < end; {
	}
}

// yards does the work of n yards.
func yards(n int) {
	for range n {
		costtest.Work()
	}
}

func TestCostsBeyondTheBoundFail(t *testing.T) {
	b := costtest.Bound{Yards: 8, Look: 2, Bytes: 64 << 20}
	var sink [][]byte
	runs := 0
	gaveUp, ended := make(chan struct{}), make(chan struct{})
	for name, c := range map[string]struct {
		want string
		runs int
		f    func(context.Context)
	}{
		"cheap": {"", 1, func(context.Context) {}},
		"slow": {"processor time, want", costtest.Tries, func(ctx context.Context) {
			for range 24 {
				yards(1)
				_ = ctx.Err()
			}
		}},
		"slow once":        {"", 2, func(context.Context) { yards(24 * (2 - runs)) }},
		"looks too seldom": {"without a look", costtest.Tries, func(context.Context) { yards(7) }},
		"large":            {"MB of memory", costtest.Tries, func(context.Context) { sink = append(sink, make([]byte, 80<<20)) }},
		"panics":           {"panic: oh", 1, func(context.Context) { panic("oh") }},
		"runs on": {"not back", 1, func(context.Context) {
			defer close(ended)
			for {
				select {
				case <-gaveUp:
					return
				default:
					runtime.Gosched()
				}
			}
		}},
	} {
		runtime.GC() // what is freed while the input is read would be taken off
		runs = 0
		r := &recorder{TB: t}
		r.check(b, func(ctx context.Context) { runs++; c.f(ctx) })
		if name == "runs on" {
			close(gaveUp)
			<-ended
		}
		got := strings.Join(r.failures, "; ")
		if (c.want == "") != (got == "") || !strings.Contains(got, c.want) || runs != c.runs {
			t.Errorf("%s: failed with %q after %d runs, want %q after %d", name, got, runs, c.want, c.runs)
		}
	}
	_ = sink
}

// What waits for ever is given up, and what a busy machine keeps waiting is not.
func TestHangsFail(t *testing.T) {
	for name, wait := range map[string]time.Duration{"": costtest.Hang - time.Minute, "not back": costtest.Hang + time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			r := &recorder{TB: t}
			r.check(costtest.Bound{Yards: 1000, Bytes: 1 << 30}, func(context.Context) { time.Sleep(wait) })
			time.Sleep(2 * time.Minute) // until that has ended
			if got := strings.Join(r.failures, "; "); (name == "") != (got == "") || !strings.Contains(got, name) {
				t.Errorf("after %v: failed with %q, want %q", wait, got, name)
			}
		})
	}
}

func TestAWatchMeasuresTheTimeBetweenLooks(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	ctx, cancel := context.WithCancel(t.Context())
	w := costtest.NewWatch(ctx)
	spin(costtest.ThreadTime, 30*time.Millisecond)
	if err := w.Err(); err != nil {
		t.Error(err)
	}
	cancel()
	spin(costtest.ThreadTime, 60*time.Millisecond)
	if all, longest := w.Times(); longest < 60*time.Millisecond || all < longest+30*time.Millisecond {
		t.Errorf("%v, the longest %v, want at least 90 ms and 60 ms: the end counts", all, longest)
	}
	if w.Err() == nil {
		t.Error("no error after the end of the context")
	}
}

func TestMutationsAreReproducible(t *testing.T) {
	corpus := [][]byte{[]byte(`{"a": [1, 2, 30]}`), []byte("text")}
	a := slices.Collect(costtest.Mutations(1, corpus, 200))
	if !slices.EqualFunc(a, slices.Collect(costtest.Mutations(1, corpus, 200)), slices.Equal) {
		t.Error("the same seed gives other inputs")
	}
	changed := 0
	for _, in := range a {
		if !slices.ContainsFunc(corpus, func(c []byte) bool { return slices.Equal(c, in) }) {
			changed++
		}
	}
	if changed < 180 {
		t.Errorf("%d of 200 inputs were changed", changed)
	}
}
