package gg

import (
	"talf/compute"
	"talf/internal/slab"
)

// A Judge computes a loss of probabilities. q are those of the live rows of every level, in the form
// of its labels: of the K tokens and, as tail, of all others, or of all tokens. It sets the losses of
// the rows of level 0, and replaces every probability q(x) of every level by
//
//	−q(x)·∂(Σ_r scale[r]·loss[r])/∂q(x)
//
// where q is taken as free, not as summing to 1. For a tail, the loss is a function of its
// sum.
type Judge func(q []*compute.SoftLabels, loss, scale []float32)

// Joint is a loss of the distributions q = softmax(h·wᵀ) of several levels together, h[l] [n_l][H],
// w [V][H]. scale weighs the rows of level 0. The labels are read for their form: which tokens judge is
// given the probabilities of.
//
// With g_x = ∂loss/∂q(x), the gradient by the logits is q(x)·(g_x − Σ_y q(y)·g_y). That is the
// gradient q(x)·Σp − p(x) of the cross-entropy of labels p(x) = −q(x)·g_x, which may be negative and
// have any sum; for a bucket of tokens that share one g, it is that of a tail −q(bucket)·g. So SoftCE
// computes it, and logits are never kept.
func (g *Graph) Joint(h []*Node, w *Node, labels []*compute.SoftLabels, scale *[]float32, judge Judge) *Loss {
	rows := matrix(h[0].val.rows, 1)
	f := &forward{}
	dh, row := make([]*value, len(h)), make([]*value, len(h))
	for l, x := range h {
		dh[l], row[l] = matrix(x.val.rows, x.Width()), matrix(x.val.rows, 1)
		f.x, f.extra, f.pieces = append(f.x, x), append(f.extra, dh[l], row[l]), append(f.pieces, g.left(l, dh[l]))
	}
	f.x = append(f.x, w)
	dw := g.headGrad(f, len(h))
	q := make([]*compute.SoftLabels, len(h))
	for l := range q {
		q[l] = new(compute.SoftLabels)
	}
	var losses, ones []float32
	return g.loss(f, rows, scale, "joint", func() {
		for l, x := range h {
			g.probs(q[l], x, w, labels[l])
		}
		losses = slab.Zeros(losses, rows.n())
		judge(q, losses, (*scale)[:rows.n()])
		if len(losses) > 0 {
			g.q.Write(rows.buf, losses)
		}
		dwb := dw()
		for l, x := range h {
			n := x.val.n()
			for len(ones) < n {
				ones = append(ones, 1)
			}
			g.ops.SoftCE(row[l].buf, dh[l].buf, dwb, x.val.buf, w.val.buf, q[l], ones[:n], n)
		}
	})
}

// probs sets q to the probabilities that softmax(h·wᵀ) gives to what the labels are of.
func (g *Graph) probs(q *compute.SoftLabels, h, w *Node, labels *compute.SoftLabels) {
	n, v := h.val.n(), w.val.shape[0]
	if labels.Full != nil {
		*q = compute.SoftLabels{Prob: q.Prob, Tail: q.Tail, Full: slab.Resize(q.Full, n*v)}
		g.ops.Probs(q.Full, h.val.buf, w.val.buf, n)
		return
	}
	k := labels.K
	*q = compute.SoftLabels{K: k, IDs: labels.IDs, Prob: slab.Resize(q.Prob, n*k), Tail: slab.Resize(q.Tail, n)}
	g.ops.LabelProbs(q.Prob, q.Tail, h.val.buf, w.val.buf, labels.IDs, k, n)
}
