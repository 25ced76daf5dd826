package model_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"testing"

	"talf/compute/cpu/kern"
	"talf/model"
	"talf/model/head"
	"talf/model/modeltest"
	"talf/tree"
)

// late is cancelled after n calls of Err, which is in the middle of a pass.
type late struct {
	context.Context
	n int
}

func (c *late) Err() error {
	if c.n--; c.n < 0 {
		return context.Canceled
	}
	return nil
}

// A pass that fails near its end must leave the hidden states of the pass before it
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
	var rows [2][]float32
	for failures := range rows {
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
		for range failures {
			if _, err := h.Forward(&late{context.Background(), 1}, again); !errors.Is(err, context.Canceled) {
				t.Fatalf("error %v, want a cancelled pass", err)
			}
		}
		o = must[*model.Output](t)(h.Forward(context.Background(), again))
		rows[failures] = make([]float32, n*spec.Hidden)
		o.ReadHidden(rows[failures], 0)
		s.Close()
	}
	if err := sameBits(rows[1], rows[0]); err != nil {
		t.Errorf("after a failed pass: %v", err)
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
