package model

// Needs returns the blocks that a pass takes.
func (m *Model) Needs(batch []Segment) int { return m.needs(batch) }

// Bound changes the capacity of the KV pool.
func (m *Model) Bound(blocks int) { m.blocks.Bound(blocks) }

// ReadAhead makes o that of a device which has read the most likely token of each row, with these
// log probabilities, and has not checked the logits.
func (o *Output) ReadAhead(logp []float32) {
	o.ok = o.ok[:0]
	o.best = likely{k: 1, ids: make([]int32, len(logp)), logp: logp}
}
