package model_test

import (
	"errors"
	"math/rand/v2"
	"testing"

	"talf/compute"
	"talf/compute/cpu/kern"
	"talf/model"
	"talf/model/modeltest"
	"talf/tree"
)

// longrope is a model that turns all positions of texts of more than n tokens by other angles.
func longrope(n int) modeltest.Config {
	c := modeltest.Of("phi3")
	c.Window, c.Original = 0, n
	return c
}

// Texts below and beyond the length at which longrope switches share passes, and each has the bits that it has
// alone, token by token, with the rotary table growing in another order.
func TestShortAndLongTextsShareAPass(t *testing.T) {
	conf := longrope(40)
	dir := modeltest.Random(t, conf, 1)
	for _, opt := range []model.Options{{MaxRows: 512}, {MaxRows: 7}, {MaxRows: 512, DType: compute.BF16, KV: compute.BF16}} {
		m := load(t, dir, device(t, kern.Best(), 2), opt)
		alone := load(t, dir, device(t, kern.Best(), 1), model.Options{MaxRows: 1, DType: opt.DType, KV: opt.KV})
		rng := rand.New(rand.NewPCG(7, uint64(opt.MaxRows)))
		var batch []model.Segment
		var texts [][]int32
		var long []bool
		for i := range 6 {
			ids := make([]int32, 1+rng.IntN(39))
			for k := range ids {
				ids[k] = rng.Int32N(int32(conf.Vocab))
			}
			n := len(ids)
			if i%2 == 1 {
				n += 40
			}
			s := m.NewSeqOf(n)
			defer s.Close()
			if s.Long() != m.Spec().Long(n) || s.Fork().Long() != s.Long() {
				t.Fatalf("a text of %d tokens: long is %v, of its fork %v", n, s.Long(), s.Fork().Long())
			}
			if len(ids) > 1 {
				must[*model.Output](t)(s.Append(t.Context(), ids[:len(ids)-1], nil, model.WantNone))
			}
			tr := tree.New(ids[len(ids)-1], 4)
			tr.Add(0, 5)
			tr.Add(0, 6)
			if s.Long() || len(ids) < 39 {
				tr.Add(1, 7)
			}
			if s.Long() || len(ids) < 40 {
				batch, texts, long = append(batch, model.Segment{Rows: s.Branch(s.Len()), Tree: tr, Want: model.WantAll}), append(texts, ids[:len(ids)-1]), append(long, s.Long())
			}
		}
		out := must[*model.Output](t)(m.Forward(t.Context(), batch))
		row, want := make([]float32, conf.Vocab), make([]float32, conf.Vocab)
		for i, g := range batch {
			for n := range g.Tree.Len() {
				s := alone.NewSeq()
				if long[i] {
					s.Close()
					s = alone.NewSeqOf(conf.MaxPos)
				}
				text := texts[i]
				for _, at := range g.Tree.AppendPath(nil, n) {
					text = append(text[:len(text):len(text)], g.Tree.Token(at))
				}
				for _, id := range text {
					must[*model.Output](t)(s.Append(t.Context(), []int32{id}, nil, model.WantLast)).ReadLogits(want, 0)
				}
				out.ReadLogits(row, out.LogitsRow(i, n))
				if err := sameBits(row, want); err != nil {
					t.Errorf("MaxRows %d, text %d of %d tokens, long %v, node %d: %v", opt.MaxRows, i, len(texts[i]), long[i], n, err)
				}
				s.Close()
			}
		}
	}
}

// A sequence of a short text ends at its length: a text that is longer is to be read in another one. Both kinds
// differ from the first layer on.
func TestAShortTextEndsWhereLongropeSwitches(t *testing.T) {
	m := load(t, modeltest.Random(t, longrope(10), 1), device(t, kern.Best(), 1), model.Default())
	ids := []int32{3, 1, 4, 1, 5, 9, 2, 6, 5, 3}
	s, long := m.NewSeq(), m.NewSeqOf(len(ids)+1)
	defer s.Close()
	defer long.Close()
	row := func(s *model.Seq) []float32 {
		l := make([]float32, m.Spec().Vocab)
		must[*model.Output](t)(s.Append(t.Context(), ids, nil, model.WantLast)).ReadLogits(l, 0)
		return l
	}
	if sameBits(row(s), row(long)) == nil {
		t.Error("a text has the same logits whichever way its positions turn")
	}
	if _, err := s.Append(t.Context(), []int32{8}, nil, model.WantLast); !errors.Is(err, model.ErrContext) || s.Len() != 10 {
		t.Errorf("token 10 of a short text: %v, %d tokens, want ErrContext and 10", err, s.Len())
	}
	must[*model.Output](t)(long.Append(t.Context(), []int32{8}, nil, model.WantLast))
	if m.NewSeqOf(10).Long() || !m.NewSeqOf(11).Long() {
		t.Error("texts of 10 tokens are short, those of 11 long")
	}
}
