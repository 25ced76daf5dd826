package gg

import (
	"math"
	"testing"

	"talf/compute"
)

// crossEntropy is the cross-entropy of labels as a Judge: the loss of row r of level 0 is that of row r
// of every level.
func crossEntropy(labels []*compute.SoftLabels) Judge {
	return func(q []*compute.SoftLabels, loss, scale []float32) {
		level := func(p, q []float32, k int) {
			for i, x := range p {
				r := i / k
				loss[r] -= x * float32(math.Log(float64(q[i])))
				q[i] = scale[r] * x // −q·∂(−p·log q)/∂q
			}
		}
		for l, lab := range labels {
			if lab.Full != nil {
				level(lab.Full, q[l].Full, len(lab.Full)/len(loss))
				continue
			}
			level(lab.Prob, q[l].Prob, lab.K)
			level(lab.Tail, q[l].Tail, 1)
		}
	}
}

// Joint's gradients are those of SoftCE for the same loss, by the rows and by an LM head that is
// trained with other losses before and after.
func TestJointAgreesWithSoftCE(t *testing.T) {
	const n, h, v, k = 5, 4, 9, 3
	run := func(joint, frozen bool) (float32, [][]float32) {
		m := newMaker(t)
		lm := m.param(1, v, h)
		if frozen {
			m.p, m.v = m.p[:0], m.v[:0]
			lm = m.g.Frozen(m.tensor("lm", 1, v, h))
		}
		scale := []float32{0.5, 0, 0.25, 1, 0.125}
		var rows []*Node
		var labels []*compute.SoftLabels
		for l := range 4 {
			one := m.g.Input("one", &Rows{Max: n + l, N: n}, n)
			for i := range n {
				one.Data()[i*n+i] = 1
			}
			rows = append(rows, m.g.Linear(one, m.param(1, h, n), nil))
			lab := &compute.SoftLabels{K: k}
			for range n {
				if l == 2 {
					for range v {
						lab.Full = append(lab.Full, m.r.Float32())
					}
					continue
				}
				for i, id := range m.r.Perm(v)[:k] {
					lab.IDs, lab.Prob = append(lab.IDs, int32(id)), append(lab.Prob, []float32{0.5, 0.2, 0.1}[i])
				}
				lab.Tail = append(lab.Tail, 0.2)
			}
			labels = append(labels, lab)
		}
		terms := []*Loss{m.g.SoftCE(rows[0], lm, labels[0], &scale)}
		if joint {
			terms = append(terms, m.g.Joint(rows[1:3], lm, labels[1:3], &scale, crossEntropy(labels[1:3])))
		} else {
			terms = append(terms, m.g.SoftCE(rows[1], lm, labels[1], &scale), m.g.SoftCE(rows[2], lm, labels[2], &scale))
		}
		terms = append(terms, m.g.SoftCE(rows[3], lm, labels[3], &scale))
		total := m.g.Total(terms...)
		m.compile(total)
		var grads [][]float32
		for range 2 { // a second run starts anew
			m.run()
			grads = grads[:0]
			for _, p := range m.p {
				grads = append(grads, append([]float32(nil), p.Grad()...))
			}
		}
		return total.Scalar(), grads
	}
	for _, frozen := range []bool{false, true} {
		want, wants := run(false, frozen)
		got, gots := run(true, frozen)
		if math.Abs(float64(got-want)) > 1e-5 {
			t.Errorf("frozen %v: loss %v, want %v", frozen, got, want)
		}
		for i, g := range gots {
			for j, x := range g {
				if math.Abs(float64(x-wants[i][j])) > 1e-6 {
					t.Fatalf("frozen %v: parameter %d: gradient %v at %d, want %v", frozen, i, x, j, wants[i][j])
				}
			}
		}
	}
}
