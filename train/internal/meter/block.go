package meter

import (
	"time"

	"talf/compute"
)

// A blockOps counts under its queue.
type blockOps struct {
	compute.BlockOps
	q *Queue
}

// Mul counts as compute.BlockOps.
func (b *blockOps) Mul(dst, x, y compute.Buffer, n int) {
	t := time.Now()
	b.BlockOps.Mul(dst, x, y, n)
	b.q.done("mul", t, float64(n), 12*float64(n))
}

// Gate counts as compute.BlockOps.
func (b *blockOps) Gate(dst, gate, x compute.Buffer, n int) {
	t := time.Now()
	b.BlockOps.Gate(dst, gate, x, n)
	b.q.done("gate", t, 5*float64(n), 12*float64(n))
}

// GateGrad counts as compute.BlockOps: the gate again, and its derivative.
func (b *blockOps) GateGrad(dgate, dx, dy, gate, x compute.Buffer, n int) {
	t := time.Now()
	b.BlockOps.GateGrad(dgate, dx, dy, gate, x, n)
	b.q.done("gate_grad", t, 9*float64(n), 20*float64(n))
}

// Logistic counts as compute.BlockOps.
func (b *blockOps) Logistic(loss, dx, x compute.Buffer, label, scale []float32, n int) {
	t := time.Now()
	b.BlockOps.Logistic(loss, dx, x, label, scale, n)
	b.q.done("logistic", t, 12*float64(n), 20*float64(n))
}

// taps returns the elements of n rows of x, those of them that have a row before them, and the coefficients of all rows.
func taps(x compute.Buffer, c compute.Taps, n int) (all, after, coef float64) {
	w := width(x)
	return float64(n) * w, float64(n-n/c.Block) * w, float64(n) * 2 * w / float64(c.Group)
}

// Convolve counts as compute.BlockOps.
func (b *blockOps) Convolve(y, x, coef, base compute.Buffer, c compute.Taps, n int) {
	t := time.Now()
	b.BlockOps.Convolve(y, x, coef, base, c, n)
	all, after, k := taps(x, c, n)
	b.q.done("convolve", t, 2*all+3*after, 4*(2*all+k+2*width(x)))
}

// ConvolveGrad counts as compute.BlockOps.
func (b *blockOps) ConvolveGrad(dx, dcoef, dbase, dy, x, coef, base compute.Buffer, c compute.Taps, n int) {
	t := time.Now()
	b.BlockOps.ConvolveGrad(dx, dcoef, dbase, dy, x, coef, base, c, n)
	all, after, k := taps(x, c, n)
	b.q.done("convolve_grad", t, 5*all+6*after, 4*(3*all+2*k+6*width(x)))
}

// Candidates counts as compute.BlockOps: logits, and a comparison of each.
func (b *blockOps) Candidates(ids []int32, h, w compute.Buffer, k, n int) {
	t := time.Now()
	b.BlockOps.Candidates(ids, h, w, k, n)
	rows, hidden, v := float64(n), width(h), float64(w.Shape()[0])
	b.q.done("candidates", t, rows*v*(2*hidden+1), 4*(rows*hidden+v*hidden+rows*float64(k)))
}

// CandidateCE counts as compute.BlockOps: logits, five operations on each, and the gradients of rows and, if wanted, of
// weights.
func (b *blockOps) CandidateCE(loss, dh, dw, h, w compute.Buffer, ids []int32, p, scale []float32, k, n int) {
	t := time.Now()
	b.BlockOps.CandidateCE(loss, dh, dw, h, w, ids, p, scale, k, n)
	each, hidden := float64(n*k), width(h)
	flop, bytes := each*(4*hidden+5), 4*(2*float64(n)*hidden+each*(hidden+2))
	if dw != nil {
		flop, bytes = flop+2*each*hidden, bytes+8*each*hidden
	}
	b.q.done("candidate_ce", t, flop, bytes)
}
