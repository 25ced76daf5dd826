package model_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync/atomic"
	"testing"

	"talf/compute"
	"talf/compute/cpu/kern"
	"talf/model"
	"talf/model/head"
	"talf/model/modeltest"
	"talf/tree"
)

// late is cancelled after n calls of Err, which is in the middle of a pass.
type late struct {
	context.Context
	n atomic.Int64 // several workers ask
}

func endLate(ctx context.Context, n int) *late {
	c := &late{Context: ctx}
	c.n.Store(int64(n))
	return c
}

func (c *late) Err() error {
	if c.n.Add(-1) < 0 {
		return context.Canceled
	}
	return nil
}

// A pass that fails, wherever it is, must leave the hidden states of the pass before it
// untouched: when it is run again, it takes them as input features once more.
func TestAPassRunAgainFindsItsFeatures(t *testing.T) {
	target := load(t, modeltest.Random(t, modeltest.Default(), 1), device(t, kern.Best(), 2), model.Default())
	spec := target.Spec().DraftFor(true)
	opt := head.Default()
	opt.Model.MaxRows = 4 // several steps: the first writes results before the second reads features
	h, err := head.FromTensors(spec, target, opt, modeltest.Tensors(spec, false, 1)...)
	if err != nil {
		t.Fatal(err)
	}
	const n = 12
	st := must[*model.Store](t)(h.NewStore(n))
	x := make([]float32, n*spec.Hidden)
	r := rand.New(rand.NewPCG(3, 3))
	for i := range x {
		x[i] = float32(r.NormFloat64())
	}
	if err := st.Load(0, x); err != nil {
		t.Fatal(err)
	}
	var rows [][]float32
	for failures := range 2 {
		s := h.NewSeq()
		b := s.Branch(0)
		tr := tree.New(1, 2*n)
		feat := []model.Feature{st.At(0)}
		for i := 1; i < n; i++ {
			tr.Add(0, int32(i))
			feat = append(feat, st.At(i))
		}
		o := must[*model.Output](t)(h.Forward(context.Background(), []model.Segment{{Rows: b, Tree: tr, Feat: feat}}))
		feat = nil
		for i := range n { // not in the order of the rows
			tr.Add(n-1-i, int32(50+i))
			feat = append(feat, o.Feature(0, n-1-i))
		}
		again := []model.Segment{{Rows: b, Tree: tr, From: n, Feat: feat}}
		looks, ctx := 0, context.Background()
		for err := error(nil); ; looks++ {
			if failures > 0 {
				ctx = endLate(context.Background(), looks)
			}
			if o, err = h.Forward(ctx, again); err == nil {
				break
			}
			if !errors.Is(err, context.Canceled) {
				t.Fatalf("error %v, want a cancelled pass", err)
			}
		}
		if failures > 0 && looks < 3*3 { // three steps look at least three times each
			t.Errorf("a pass looked only %d times whether it is cancelled", looks)
		}
		x := make([]float32, n*spec.Hidden)
		o.ReadHidden(x, 0)
		rows = append(rows, x)
		s.Close()
	}
	if err := sameBits(rows[1], rows[0]); err != nil {
		t.Errorf("after failed passes: %v", err)
	}
}

// A counted device counts the products that begin, and cancels a context in one of them.
type counted struct {
	compute.Device
	products, at int
	cancel       context.CancelFunc
}

type countedQueue struct {
	compute.Queue
	d *counted
}

func (d *counted) Queue() compute.Queue { return countedQueue{d.Device.Queue(), d} }

func (q countedQueue) Linear(dst, x compute.Buffer, l *compute.Linear, epi compute.Epilogue, n int) {
	if q.d.products++; q.d.products == q.d.at {
		q.d.cancel()
	}
	q.Queue.Linear(dst, x, l, epi, n)
}

func (q countedQueue) Abilities() compute.Abilities { return compute.Abilities{} }

// A pass that is cancelled in any of its products stops before the next one that is large, leaves
// the sequence as it was, and gives the same bits when it is run again.
func TestAPassStopsBetweenItsProducts(t *testing.T) {
	dev := &counted{Device: device(t, kern.Best(), 1)}
	m := must[*model.Model](t)(model.Load(modeltest.Random(t, modeltest.Default(), 1), dev, model.Default()))
	t.Cleanup(func() { m.Close() })
	s := m.NewSeq()
	ids := []int32{4, 8, 15, 16, 23, 42}
	must[*model.Output](t)(s.Append(context.Background(), ids, nil, model.WantNone))
	tr := chainOf([]int32{7, 9, 11})
	score := func(ctx context.Context) ([]float32, error) {
		b := s.Branch(len(ids))
		defer b.Drop()
		dev.products = 0
		o, err := m.Forward(ctx, []model.Segment{{Rows: b, Tree: tr, Want: model.WantAll}})
		if err != nil {
			return nil, err
		}
		x := make([]float32, 3*m.Spec().Vocab)
		o.ReadLogits(x, 0)
		return x, nil
	}
	want := must[[]float32](t)(score(context.Background()))
	all, used := dev.products, m.KV().Used
	for at := 1; at <= all; at++ {
		ctx, cancel := context.WithCancel(context.Background())
		dev.at, dev.cancel = at, cancel
		if _, err := score(ctx); !errors.Is(err, context.Canceled) {
			t.Fatalf("cancelled in product %d of %d: error %v", at, all, err)
		}
		// The keys and values of one product go straight to the attention's own.
		if dev.products > at+1 {
			t.Errorf("cancelled in product %d: %d began", at, dev.products)
		}
		dev.at = 0
		if m.KV().Used != used || s.Len() != len(ids) {
			t.Fatalf("cancelled in product %d: %d blocks in use, %d positions, want %d and %d", at, m.KV().Used, s.Len(), used, len(ids))
		}
		if err := sameBits(must[[]float32](t)(score(context.Background())), want); err != nil {
			t.Fatalf("after it was cancelled in product %d: %v", at, err)
		}
		cancel()
	}
}

// BranchPast's root is a row of the sequence. It must stay the root's row when the
// sequence moves to a copy of a block that it shared.
func TestBranchPastFollowsTheSequencesBlocks(t *testing.T) {
	ctx := context.Background()
	m := small(t)
	v := m.Spec().Vocab
	ids := []int32{4, 8, 15, 16, 23, 42}
	tr := tree.New(ids[5], 3)
	tr.Add(0, 7)
	score := func(disturb func(s *model.Seq)) []float32 {
		s := m.NewSeq()
		defer s.Close()
		must[*model.Output](t)(s.Append(ctx, ids, nil, model.WantNone))
		b := s.BranchPast(5)
		defer b.Drop()
		disturb(s)
		o := must[*model.Output](t)(m.Forward(ctx, []model.Segment{{Rows: b, Tree: tr, From: 1, Want: model.WantAll}}))
		row := make([]float32, v)
		o.ReadLogits(row, 0)
		return row
	}
	want := score(func(*model.Seq) {})
	got := score(func(s *model.Seq) {
		f := s.Fork()
		must[*model.Output](t)(s.Append(ctx, []int32{1}, nil, model.WantNone)) // copies the tail
		f.Close()
		other := m.NewSeq() // takes the block that was freed
		must[*model.Output](t)(other.Append(ctx, []int32{90, 80, 70, 60, 50, 40, 30}, nil, model.WantNone))
		t.Cleanup(other.Close)
	})
	if err := sameBits(got, want); err != nil {
		t.Errorf("after the block was copied: %v", err)
	}
}
