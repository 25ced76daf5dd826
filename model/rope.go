package model

import "talf/model/internal/turns"

// NewSeqOf returns an empty sequence for a text that will have n tokens, drafts included, in which positions turn as in texts of that
// length. With longrope that differs beyond Spec.Rope.Switch, and nothing computed for a short text is of use to a longer one.
func (m *Model) NewSeqOf(n int) *Seq {
	s := m.NewSeq()
	s.turn = turns.First(m.spec, n)
	return s
}

// Long reports whether the sequence is for texts beyond Spec.Rope.Switch.
func (s *Seq) Long() bool { return s.turn > 0 }

// growRope makes the rotary tables cover n rows.
func (m *Model) growRope(n int) error {
	all, windows, err := m.rope.Grow(m.dev, m.q, m.spec, n)
	if err != nil || all == nil {
		return err
	}
	for i := range m.layers {
		if m.layers[i].attn.Rope = all; m.spec.RopeOf(i) != &m.spec.Rope {
			m.layers[i].attn.Rope = windows
		}
	}
	return nil
}
