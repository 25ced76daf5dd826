package computetest

import (
	"fmt"
	"math"

	"talf/compute"
)

func probsAgree(b *bench) {
	const hidden, k = 11, 5
	for _, s := range []struct{ n, v int }{{7, 97}, {1, 32}, {600, 45}} {
		h, w := b.random(s.n*hidden), b.random(s.v*hidden)
		var ids []int32
		for r := range s.n {
			for i, id := range b.r.Perm(s.v)[:k] {
				if r%3 == 1 && i == 2 {
					id = -1
				}
				ids = append(ids, int32(id))
			}
		}
		var want, some []float64
		rest := make([]float64, s.n)
		for r := range s.n {
			z, sum := make([]float64, s.v), 0.0
			for o := range z {
				for i := range hidden {
					z[o] += float64(h[r*hidden+i]) * float64(w[o*hidden+i])
				}
				z[o] = math.Exp(z[o])
				sum += z[o]
			}
			for o := range z {
				z[o] /= sum
				rest[r] += z[o]
			}
			want = append(want, z...)
			for _, id := range ids[r*k:][:k] {
				p := 0.0
				if id >= 0 {
					p = z[id]
				}
				some, rest[r] = append(some, p), rest[r]-p
			}
		}
		what := fmt.Sprintf("%d rows of %d", s.n, s.v)
		hb := b.buffer(h, s.n, hidden)
		ws := []compute.Buffer{b.buffer(w, s.v, hidden)}
		if pw, ok := b.weight(w, s.v, hidden).(compute.Buffer); ok {
			ws = append(ws, pw)
		} else {
			b.Fatal("a weight is not a buffer")
		}
		var first []float32
		for _, wb := range ws {
			got := make([]float32, s.n*s.v)
			b.train().Probs(got, hb, wb, s.n)
			b.near(what, got, want, 1e-5)
			labels, others := make([]float32, s.n*k), make([]float32, s.n)
			b.train().LabelProbs(labels, others, hb, wb, ids, k, s.n)
			b.near(what+": labels", labels, some, 1e-5)
			b.near(what+": the rest", others, rest, 1e-5)
			if first != nil {
				b.same(what+": with a packed weight", got, first)
			}
			first = got
		}
	}
	// What is left outside the labels of a model that is sure of them is small, and not 0.
	got, rest := make([]float32, 1), make([]float32, 1)
	b.train().LabelProbs(got, rest, b.buffer([]float32{1}, 1, 1), b.buffer([]float32{30, -10, -10}, 3, 1), []int32{0}, 1, 1)
	if want := 2 * math.Exp(-40); got[0] != 1 || math.Abs(float64(rest[0])/want-1) > 1e-4 {
		b.Errorf("a sure model: %v and %v for the rest, want 1 and %v", got[0], rest[0], want)
	}
	// A model that is sure: what is left for the others is small, and not 0, whichever they are.
	for sure := range 3 {
		w, got := []float32{-10, -10, -10}, make([]float32, 3)
		w[sure] = 30
		b.train().Probs(got, b.buffer([]float32{1}, 1, 1), b.buffer(w, 3, 1), 1)
		for i, p := range got {
			want := 1.0
			if i != sure {
				want = math.Exp(-40)
			}
			if math.Abs(float64(p)/want-1) > 1e-4 {
				b.Errorf("a model sure of %d gives %d %v, want %v", sure, i, p, want)
			}
		}
	}
}
