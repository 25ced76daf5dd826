package batch

import (
	"math"
	"slices"
	"testing"

	"talf/compute"
	"talf/data"
	"talf/train/loss"
)

// The treatment of labels outside the vocabulary, counted by hand: tokens 1, 3 and 5 of 8 are
// the vocabulary.
func TestLabelsOutsideADraftVocabulary(t *testing.T) {
	v, err := NewVocabulary([]int32{1, 3, 5}, 8)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		outside loss.Outside
		ids     []int32
		p       []float32
		tail    []float32
		times   float32
		want    []float32
		rest    []float32
		lost    float64
	}{
		{loss.Drop, []int32{3, 2, 5}, []float32{0.5, 0.25, 0.125}, []float32{0.125}, 1, []float32{0.5, 0, 0.125}, []float32{0.125}, 0.25},
		{loss.Renorm, []int32{3, 2, 5}, []float32{0.5, 0.25, 0.125}, []float32{0.125}, 1, []float32{0.5 * 4 / 3., 0, 0.125 * 4 / 3.}, []float32{0.125 * 4 / 3.}, 0.25},
		{loss.Renorm, []int32{3, 2, 5}, []float32{0.5, 0.25, 0.125}, nil, 1, []float32{0.5 * 7 / 5., 0, 0.125 * 7 / 5.}, nil, 0.25},
		{loss.Renorm, []int32{0, 2, 4}, []float32{0.5, 0.25, 0.25}, []float32{0}, 1, []float32{0, 0, 0}, []float32{0}, 1},
		{loss.Mask, []int32{2, 3, 5}, []float32{0.5, 0.25, 0.25}, nil, 0, []float32{0, 0.25, 0.25}, nil, 0.5},
		{loss.Mask, []int32{3, 2, 5}, []float32{0.5, 0.25, 0.25}, nil, 1, []float32{0.5 * 4 / 3., 0, 0.25 * 4 / 3.}, nil, 0.25},
		{loss.Renorm, nil, []float32{0.25, 0.125, 0, 0.25, 0, 0.125, 0.125, 0.125}, nil, 1, []float32{0.25, 0.5, 0.25}, nil, 0.5},
	} {
		b := &Batch{vocab: v, plan: loss.Plan{Outside: c.outside}, Labels: []*compute.SoftLabels{{K: 3}}, Mass: make([]float64, 1), Lost: make([]float64, 1)}
		top := int32(0)
		if c.ids != nil {
			top = c.ids[0]
		}
		times := b.inside(0, c.ids, c.p, c.tail, top, 1)
		s := b.Labels[0]
		got := s.Prob
		if c.ids == nil {
			got = s.Full
		}
		near := func(a, b []float32) bool {
			return slices.EqualFunc(a, b, func(x, y float32) bool { return math.Abs(float64(x-y)) < 1e-6 })
		}
		if times != c.times || !near(got, c.want) || !near(s.Tail, c.rest) || math.Abs(b.Lost[0]-c.lost) > 1e-9 {
			t.Errorf("%s of %v %v: %v and %v, %v times, %v lost; want %v and %v, %v times, %v lost", c.outside, c.ids, c.p, got, s.Tail, times, b.Lost[0], c.want, c.rest, c.times, c.lost)
		}
		for i, id := range c.ids {
			if want := v.Draft(id); s.IDs[i] != want {
				t.Errorf("label %d of token %d has draft id %d, want %d", i, id, s.IDs[i], want)
			}
		}
	}
}

// Figures of labels that are over a draft vocabulary are asked for by the target's ids.
func TestProbabilitiesAreOfTheTargetsTokens(t *testing.T) {
	v, err := NewVocabulary([]int32{1, 3, 5, 7}, 9)
	if err != nil {
		t.Fatal(err)
	}
	b := &Batch{vocab: v, meta: data.Meta{Labels: data.TopK}, Labels: []*compute.SoftLabels{{K: 2, IDs: []int32{3, -1}, Prob: []float32{0.5, 0}}}}
	for id, want := range map[int32]float64{7: 0.5, 3: 0, 8: 0} {
		if got := b.Prob(0, 0, id); got != want {
			t.Errorf("token %d has probability %v, want %v", id, got, want)
		}
	}
}
