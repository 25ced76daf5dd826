package heads_test

import (
	"slices"
	"testing"

	"talf/infer/bench/benchtest"
	"talf/infer/bench/heads"
	"talf/model"
	"talf/model/head"
	"talf/model/modeltest"
)

// An EAGLE-3 head reads the target's taps, whose last hidden state would be taken for the head's own.
func TestRanksOfAnEAGLE3HeadAreOfTheStatesThatItReads(t *testing.T) {
	c := modeltest.Default()
	c.Layers = 3
	m, err := model.Load(modeltest.Random(t, c, 1), benchtest.CPU(t), model.Default())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.Close() }) // only read
	spec := m.Spec().Eagle3For([]int{0, 1, 2}, 0)
	h, err := head.FromTensors(spec, m, head.Default(), modeltest.Tensors(spec, false, 2)[1:]...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = h.Close() }) // only read
	tokens := []int32{3, 9, 4, 7, 11, 2, 8}
	seq, hs := m.NewSeq(), h.NewSeq()
	o, err := seq.Append(t.Context(), tokens, nil, model.WantNone)
	if err != nil {
		t.Fatal(err)
	}
	var in []model.Feature
	for i := range len(tokens) - 1 {
		in = append(in, o.Feature(0, i))
	}
	n := len(in)
	if o, err = hs.Append(t.Context(), tokens[1:], in, model.WantAll); err != nil {
		t.Fatal(err)
	}
	ids, logp := make([]int32, n), make([]float32, n)
	o.TopK(ids, logp, 0, n, 1)
	ranks, err := heads.ByRank(t.Context(), m, h, []heads.Text{{Tokens: tokens}}, 1)
	if err != nil {
		t.Fatal(err)
	}
	var got []int32
	for _, it := range ranks[0] {
		got = append(got, it.Token)
	}
	if !slices.Equal(got, ids) {
		t.Errorf("the head's first choices are %d, want %d", got, ids)
	}
}
