package moe

import (
	"math"
	"slices"
	"testing"

	"talf/model/arch"
)

func TestRoutersChooseAndWeigh(t *testing.T) {
	nan := float32(math.NaN())
	e := func(x float64) float64 { return math.Exp(x) }
	s := func(x float64) float64 { return 1 / (1 + e(-x)) }
	all := e(1) + e(3) + e(-2) + e(3) + e(0) + e(2)
	z := []float32{1, 3, -2, 3, 0, 2}
	for _, c := range []struct {
		name    string
		mix     arch.Mixture
		z       []float32
		offset  []float32
		ids     []int32
		weights []float64
	}{
		{"of equal scores the first", arch.Mixture{Experts: 6, Top: 1}, z, nil, []int32{1}, []float64{e(3) / all}},
		{"softmax over all", arch.Mixture{Experts: 6, Top: 3}, z, nil, []int32{1, 3, 5}, []float64{e(3) / all, e(3) / all, e(2) / all}},
		{"softmax of the chosen", arch.Mixture{Experts: 6, Top: 2, Renorm: true}, z, nil, []int32{1, 3}, []float64{0.5, 0.5}},
		{
			"sigmoids, chosen with an offset that does not weigh",
			arch.Mixture{Experts: 6, Top: 2, Sigmoid: true, Factor: 2.5},
			z,
			[]float32{0, 0, 1, 0, 0, 0},
			[]int32{2, 1},
			[]float64{2.5 * s(-2), 2.5 * s(3)},
		},
		{
			"the best of groups by the sum of two", // 1+3, −2+3, 0+2 before the sigmoid
			arch.Mixture{Experts: 6, Top: 2, Sigmoid: true, Renorm: true, Groups: 3, TopGroups: 1},
			[]float32{-9, 3, 1, 1.5, 0, 2},
			nil,
			[]int32{3, 2},
			[]float64{s(1.5) / (s(1.5) + s(1)), s(1) / (s(1.5) + s(1))},
		},
		{
			"two of three groups",
			arch.Mixture{Experts: 6, Top: 3, Sigmoid: true, Groups: 3, TopGroups: 2},
			[]float32{-9, 3, 1, 1.5, 0, 2},
			nil,
			[]int32{5, 3, 2},
			[]float64{s(2), s(1.5), s(1)},
		},
		{"NaN last", arch.Mixture{Experts: 3, Top: 2, Sigmoid: true}, []float32{nan, -5, 1}, nil, []int32{2, 1}, []float64{s(1), s(-5)}},
	} {
		var r router
		ids, weights := make([]int32, c.mix.Top), make([]float32, c.mix.Top)
		for range 2 { // with the memory of an earlier choice
			r.choose(&c.mix, c.z, c.offset, ids, weights)
			if !slices.Equal(ids, c.ids) {
				t.Errorf("%s: experts %v, want %v", c.name, ids, c.ids)
				break
			}
			for i, w := range c.weights {
				if math.Abs(float64(weights[i])-w) > 1e-6 {
					t.Errorf("%s: factor %d is %v, want %v", c.name, i, weights[i], w)
				}
			}
		}
	}
}
