package infer_test

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"runtime"
	"testing"

	"talf/compute"
	"talf/compute/cpu"
	"talf/infer"
	"talf/infer/draft"
	"talf/infer/source"
	"talf/internal/await"
	"talf/model"
	"talf/model/modeltest"
)

// TestThousandsOfRequestsLeaveNothing runs 10,000 requests, drafted, plain and
// cancelled ones among them, and compares goroutines, the heap and KV blocks
// after the first thousand with those at the end.
func TestThousandsOfRequestsLeaveNothing(t *testing.T) {
	requests := 10_000
	if testing.Short() {
		requests = 2000
	}
	n := newNets(t, 2, 3)
	e := &infer.Engine{Target: infer.NewTarget(n.target, 0), Config: infer.Default()}
	src := source.NewHead(n.head, 0)
	rng := rand.New(rand.NewPCG(1, 1))
	one := func(i int) {
		req := plainRequest(t, 1, 2)
		req.Prompt = req.Prompt[:1]
		for range rng.IntN(6) {
			req.Prompt = append(req.Prompt, rng.Int32N(int32(n.target.Spec().Vocab)))
		}
		req.MaxTokens = 1 + rng.IntN(4)
		if i%2 == 0 {
			d, _, err := draft.New("salf:paper,N=4,B=2")
			if err != nil {
				t.Fatal(err)
			}
			req.Drafter, req.Source = d, src
		}
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		var emit func(infer.Delta) error
		if i%5 == 0 {
			emit = func(infer.Delta) error { cancel(); return nil }
		}
		if _, err := e.Stream(ctx, req, emit); err != nil && !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
	}
	g0, h0, b0 := math.MaxInt, uint64(0), 0
	state := func() (goroutines int, heap uint64, blocks int) {
		await.Until(t, "goroutines to end", func() bool { return runtime.NumGoroutine() <= g0 })
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		total := n.target.KV().Held
		return runtime.NumGoroutine(), m.HeapAlloc, total
	}
	for i := range 1000 {
		one(i)
	}
	g0, h0, b0 = state()
	for i := 1000; i < requests; i++ {
		one(i)
	}
	g1, h1, b1 := state()
	t.Logf("%d requests: goroutines %d, then %d; heap %d, then %d bytes; KV blocks %d, then %d", requests, g0, g1, h0, h1, b0, b1)
	if used := n.target.KV().Used; used != 0 {
		t.Errorf("%d KV blocks are in use at the end", used)
	}
	// A leak of one byte per request would show; what the runtime itself keeps varies.
	const noise = 256 << 10
	if g1 > g0 || h1 > h0+noise || b1 != b0 {
		t.Errorf("what is held has grown: goroutines %d to %d, heap %d to %d, KV blocks %d to %d", g0, g1, h0, h1, b0, b1)
	}
}

// A breaker is a device that cancels in the middle of a pass: at its nth product.
type breaker struct {
	compute.Device
	cancel func()
	left   int // products until then
	after  int // products since
}

func (b *breaker) Queue() compute.Queue { return &breakerQueue{b.Device.Queue(), b} }

type breakerQueue struct {
	compute.Queue
	b *breaker
}

func (q *breakerQueue) Linear(dst, x compute.Buffer, l *compute.Linear, epi compute.Epilogue, n int) {
	if q.b.left--; q.b.left == 0 {
		q.b.cancel()
	}
	if q.b.left < 0 {
		q.b.after++
	}
	q.Queue.Linear(dst, x, l, epi, n)
}

func TestACancelledPassIsTheLast(t *testing.T) {
	dev, err := cpu.New(cpu.Default())
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	b := &breaker{Device: dev}
	m, err := model.Load(modeltest.Random(t, modeltest.Default(), 3), b, model.Default())
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	products := 4*m.Spec().Layers + 1
	e := &infer.Engine{Target: infer.NewTarget(m, 0), Config: infer.Config{PrefillChunk: 8, MaxNodes: 64}}
	for at := 1; at < 8*products; at += 3 { // in the prompt's three chunks, and after it
		ctx, cancel := context.WithCancel(t.Context())
		b.cancel, b.left, b.after = cancel, at, 0
		req := plainRequest(t, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19)
		req.MaxTokens, req.NoEOS = 50, true
		_, err := e.Generate(ctx, req)
		if !errors.Is(err, context.Canceled) {
			t.Fatalf("cancelled at product %d: error %v", at, err)
		}
		if b.after > products {
			t.Errorf("cancelled at product %d: %d more were run, a pass has %d", at, b.after, products)
		}
	}
}
