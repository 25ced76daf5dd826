package moe

import (
	"math"
	"slices"

	"talf/internal/detmath"
	"talf/model/arch"
)

// A router keeps the memory of its choices.
type router struct {
	scores []float32 // [experts]: what the factors are made of
	rank   []float32 // [experts]: what experts are chosen by
	groups []float32 // [groups]
	best   []int32
}

// choose sets ids to the experts with the largest of the logits z, best first, equal ones by their
// index, and weights to the factors of their outputs.
func (r *router) choose(m *arch.Mixture, z, offset []float32, ids []int32, weights []float32) {
	n := len(z)
	r.scores, r.rank = slices.Grow(r.scores[:0], n)[:n], slices.Grow(r.rank[:0], n)[:n]
	if m.Sigmoid {
		for i, x := range z {
			r.scores[i] = sigmoid(x)
		}
		copy(r.rank, r.scores)
	} else {
		softmax(r.scores, z)
		copy(r.rank, z)
	}
	for i := range offset {
		r.rank[i] += offset[i]
	}
	if m.Groups > 0 {
		r.keepGroups(m)
	}
	largest(r.rank, ids)
	sum := 0.0
	for i, id := range ids {
		weights[i] = r.scores[id]
		sum += float64(weights[i])
	}
	if m.Sigmoid {
		sum += 1e-20
	}
	factor := 1.0
	if m.Factor != 0 {
		factor = float64(m.Factor)
	}
	if m.Renorm {
		factor /= sum
	}
	for i, w := range weights {
		weights[i] = float32(float64(w) * factor)
	}
}

// keepGroups excludes the experts outside the best groups: those with the largest sums of their
// two best ranks (DeepSeek-AI 2024, DeepSeek-V3, §2.1.2).
func (r *router) keepGroups(m *arch.Mixture) {
	per := len(r.rank) / m.Groups
	r.groups, r.best = slices.Grow(r.groups[:0], m.Groups)[:m.Groups], slices.Grow(r.best[:0], m.Groups)[:m.TopGroups]
	none := float32(math.Inf(-1))
	for g := range r.groups {
		first, second := none, none
		for _, x := range r.rank[g*per:][:per] {
			if x > first {
				first, second = x, first
			} else if x > second {
				second = x
			}
		}
		r.groups[g] = first + second
	}
	largest(r.groups, r.best)
	for g := range r.groups {
		if !slices.Contains(r.best, int32(g)) {
			for i := range per {
				r.rank[g*per+i] = none
			}
		}
	}
}

// largest sets ids to the indices of the largest elements of x, best first, equal ones in order.
// NaNs come last.
func largest(x []float32, ids []int32) {
	n := 0
	for i, v := range x {
		at := n
		for at > 0 && after(x[ids[at-1]], v) {
			at--
		}
		if at == len(ids) {
			continue
		}
		n = min(n+1, len(ids))
		copy(ids[at+1:n], ids[at:])
		ids[at] = int32(i)
	}
}

// after reports whether a, which comes first, is less than b.
func after(a, b float32) bool { return a < b || a != a && b == b }

// softmax sets p to the softmax of z.
func softmax(p, z []float32) {
	top := slices.Max(z)
	sum := 0.0
	for _, x := range z {
		sum += detmath.Exp(float64(x) - float64(top))
	}
	for i, x := range z {
		p[i] = float32(detmath.Exp(float64(x)-float64(top)) / sum)
	}
}

func sigmoid(x float32) float32 { return float32(1 / (1 + detmath.Exp(-float64(x)))) }
