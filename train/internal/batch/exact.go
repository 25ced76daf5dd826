package batch

import (
	"fmt"

	"talf/compute"
	"talf/data"
)

// exact computes labels from the target's features.
type exact struct {
	ops  compute.TrainOps
	lm   compute.Buffer // the target's LM head [V][H]
	last []float32      // f [T][H] of the sequence that is added
}

// Exact makes Add compute the labels of rows of the text, as Plan.Exact asks: the distribution after
// x_{i+1} is softmax(lm·f_{i+1}). lm is the whole LM head [V][H], times the factor of the target's
// logits.
func (b *Batch) Exact(ops compute.TrainOps, lm compute.Buffer) {
	if len(b.Head.Levels) > 1 && !b.plan.Text {
		panic("batch: exact labels of nodes that are not of the text")
	}
	b.exact = &exact{ops: ops, lm: lm}
}

// Final sets the target's features f [T][H] of the sequence that is added next, for Exact.
func (b *Batch) Final(f []float32) {
	if b.exact != nil {
		b.exact.last = f
	}
}

// teach computes the labels of the first n rows of a sequence.
func (b *Batch) teach(r *data.Record, n int) error {
	h, v := b.hidden, b.meta.Vocab
	if len(b.exact.last) < (n+1)*h {
		return fmt.Errorf("labels from features: %d values of the target's hidden states, want %d tokens of %d", len(b.exact.last), n+1, h)
	}
	if cap(b.taught) < n*v {
		b.taught = make([]float32, n*v)
	}
	b.taught = b.taught[:n*v]
	f := b.exact.ops.Host(b.exact.last[h:(n+1)*h], n, h)
	b.exact.ops.Probs(b.taught, f, b.exact.lm, n)
	return nil
}
