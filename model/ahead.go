package model

import (
	"talf/compute"
	"talf/model/internal/ahead"
)

// An Ahead is levels of a draft tree that one pass runs; see package ahead.
type Ahead = ahead.Plan

// Chains reports whether passes of so many rows may be an Ahead with k likely tokens of a node.
func (m *Model) Chains(rows, k int) bool {
	return m.can.Choose != nil && m.can.Replay != nil && m.spec.Draft && m.ids == nil && m.logitScale == 1 && m.logitCap == 0 &&
		rows <= min(m.opt.MaxRows, mostAheadRows) && k <= min(mostAhead, m.Outputs())
}

// level reads the likely tokens of rows [r,r+n), a level of p, and chooses the next one's. It reports whether
// there is one. Logits of a level are overwritten by the next one's.
func (m *Model) level(o *Output, p *Ahead, r, n int) bool {
	a, b := &m.act, &o.best
	m.q.Gather(a.norm, 0, 0, o.Hidden, a.iota[r:r+n])
	m.q.Linear(a.logits, a.norm, &m.lmHead, compute.Store, n)
	if r == 0 {
		b.Room(p.K, o.rows)
		b.Used = true
	}
	return p.Next(&m.can, a.logits, b.IDs, b.LogProb)
}
