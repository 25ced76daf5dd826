package loop_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"talf/compute/cpu"
	"talf/infer"
	"talf/infer/loop"
	"talf/model"
	"talf/model/modeltest"
)

// large returns a model of ten million parameters with a long context.
func large(b *testing.B) *model.Model {
	b.Helper()
	dev, err := cpu.New(cpu.Default())
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { dev.Close() })
	c := modeltest.Default()
	c.Vocab, c.Hidden, c.Layers, c.Heads, c.KVHeads, c.HeadDim, c.FFN = 4096, 256, 12, 4, 2, 64, 704
	c.MaxPos, c.Tied, c.EOS = 8192, true, -1
	m, err := model.Load(modeltest.Random(b, c, 1), dev, model.Default())
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { m.Close() })
	return m
}

// What a request that is being answered waits for its next token while 48 prompts of 1,000 tokens
// arrive, and what the bound on that costs them, over the same rounds of its answer, because a longer
// context takes longer in any case: once with nobody else, once with the default
// bound, once without one. Run it with -benchtime 1x.
func BenchmarkDelay(b *testing.B) {
	const prompts, length, rounds = 48, 1000, 1500
	m := large(b)
	// gaps measures a running request while others come.
	gaps := func(b *testing.B, stretch float64, others int) (between []time.Duration, reading time.Duration, rows int) {
		l := start(b, infer.NewTarget(m, 0), loop.Config{MaxRunning: 64, MaxQueue: 64, Stretch: stretch})
		done := make(chan error)
		go func() { done <- l.Run(context.Background()) }()
		ctx, cancel := context.WithCancel(b.Context())
		defer cancel()
		var mu sync.Mutex
		var last time.Time
		count := false
		req := request(b, 7000, make([]int32, 200)...)
		req.Trace = func(infer.Round) error {
			mu.Lock()
			defer mu.Unlock()
			now := time.Now()
			if count && !last.IsZero() && len(between) < rounds {
				between = append(between, now.Sub(last))
			}
			last = now
			return nil
		}
		running, err := l.Submit(ctx, req, loop.Options{Priority: 1})
		if err != nil {
			b.Fatal(err)
		}
		for n := 0; n < 100; {
			d, err := running.Next(ctx)
			if err != nil {
				b.Fatal(err)
			}
			n += len(d.Tokens)
		}
		begin := time.Now()
		mu.Lock()
		count = true
		mu.Unlock()
		var wg sync.WaitGroup
		for i := range others {
			prompt := make([]int32, length)
			for k := range prompt {
				prompt[k] = int32((i*31 + k*7) % 4096)
			}
			h, err := l.Submit(ctx, request(b, 1, prompt...), loop.Options{})
			if err != nil {
				b.Fatal(err)
			}
			wg.Go(func() {
				if _, err := h.Result(); err != nil {
					b.Error(err)
				}
			})
		}
		if others == 0 {
			for seen := 0; seen < rounds; {
				d, err := running.Next(ctx)
				if err != nil {
					b.Fatal(err)
				}
				seen += len(d.Tokens)
			}
		}
		wg.Wait()
		reading = time.Since(begin)
		rows = l.Stats().Budget
		cancel()
		_, _ = running.Result() // which was cancelled
		if err := l.Close(); err != nil {
			b.Error(err)
		}
		<-done
		return between, reading, rows
	}
	for _, x := range []struct {
		name    string
		stretch float64
		others  int
	}{{"alone", loop.Default().Stretch, 0}, {"bounded", loop.Default().Stretch, prompts}, {"unbounded", 0, prompts}} {
		b.Run(fmt.Sprint(x.name), func(b *testing.B) {
			var all []time.Duration
			var took time.Duration
			rows := 0
			for b.Loop() {
				g, t, r := gaps(b, x.stretch, x.others)
				all, took, rows = append(all, g...), took+t, r
			}
			slices.Sort(all)
			at := func(q float64) float64 { return float64(all[int(q*float64(len(all)-1))].Microseconds()) / 1000 }
			b.ReportMetric(at(0.5), "p50-ms")
			b.ReportMetric(at(0.99), "p99-ms")
			b.ReportMetric(float64(rows), "rows/pass")
			if x.others > 0 {
				b.ReportMetric(float64(b.N*x.others*length)/took.Seconds(), "prompt-tok/s")
			}
		})
	}
}

// What a loop costs a single request whose rounds take some ten microseconds, against an engine
// without one.
func BenchmarkOneRequest(b *testing.B) {
	m, _ := nets(b, 0)
	const tokens = 80
	req := request(b, tokens, 1, 2, 3)
	e := &infer.Engine{Target: infer.NewTarget(m, 0), Config: infer.Default()}
	l := start(b, infer.NewTarget(m, 0), loop.Offline())
	for name, answer := range map[string]func() (*infer.Sequence, error){
		"engine": func() (*infer.Sequence, error) {
			return e.Stream(b.Context(), req, func(infer.Delta) error { return nil })
		},
		"loop": func() (*infer.Sequence, error) {
			return l.Answer(b.Context(), req, func(infer.Delta) error { return nil })
		},
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if s, err := answer(); err != nil || len(s.Tokens()) != tokens {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*tokens), "ns/round")
		})
	}
}
