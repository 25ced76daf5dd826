package model

// Needs returns the blocks that a pass takes.
func (m *Model) Needs(batch []Segment) int { return m.needs(batch) }

// Bound changes the capacity of the KV pool.
func (m *Model) Bound(blocks int) { m.blocks.most = blocks }
