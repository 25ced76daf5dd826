package model

import (
	"fmt"

	"talf/compute"
	"talf/model/arch"
)

// NewSeqOf returns an empty sequence for a text that will have n tokens, drafts included, in which positions turn as in
// texts of that length. With longrope that differs beyond Spec.Rope.Switch, and nothing computed for a short text is of
// use to a longer one.
func (m *Model) NewSeqOf(n int) *Seq {
	s := m.NewSeq()
	s.turn = firstTurn(m.spec, n)
	return s
}

// Long reports whether the sequence is for texts beyond Spec.Rope.Switch.
func (s *Seq) Long() bool { return s.turn > 0 }

// growRope makes the rotary tables cover n rows.
func (m *Model) growRope(n int) error {
	all, windows, err := m.rope.grow(m.dev, m.q, m.spec, n)
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

// With longrope, texts of more than Spec.Rope.Switch tokens turn all of their positions otherwise: in the rotary tables
// the rows of such texts come after those of all positions of shorter ones.

// firstTurn returns the row of position 0 of a text of n tokens.
func firstTurn(s *arch.Spec, n int) int {
	if s.Long(n) {
		return s.Rope.Switch()
	}
	return 0
}

// turnRow returns the row of a position of a text whose position 0 has the row first.
func turnRow(s *arch.Spec, first, position int) (int, error) {
	if position >= s.MaxPos {
		return 0, fmt.Errorf("at position %d: %w, %d (max_position_embeddings)", position, ErrContext, s.MaxPos-1)
	}
	if n := s.Rope.Switch(); first == 0 && n > 0 && position >= n {
		return 0, fmt.Errorf("at position %d: %w, %d, in a text of at most %d tokens (original_max_position_embeddings); longer ones rotate otherwise", position, ErrContext, n-1, n)
	}
	return first + position, nil
}

// turns are the rotary tables of a model, so far.
type turns struct{ rows int }

// grow makes tables of at least n rows and returns that of most layers and that of layers with windows,
// [rows][spec.Rotated()], or nothing if they have as many.
func (t *turns) grow(dev compute.Device, q compute.Queue, s *arch.Spec, n int) (all, windows compute.Buffer, err error) {
	if n <= t.rows {
		return nil, nil, nil
	}
	short, most := s.MaxPos, s.MaxPos
	if at := s.Rope.Switch(); at > 0 {
		short, most = at, at+most
	}
	n = min(max(n, 2*t.rows, 512), most)
	dim := s.Rotated()
	table := func(rows []float32) (compute.Buffer, error) {
		b, err := dev.Alloc(compute.F32, n, dim)
		if err != nil {
			return nil, fmt.Errorf("rotary table of %d positions: %w", n, err)
		}
		q.Write(b, rows)
		return b, nil
	}
	rows := s.Rope.Table(dim, 0, min(n, short))
	if n > short {
		rows = append(rows, s.Rope.Beyond().Table(dim, 0, n-short)...)
	}
	if all, err = table(rows); err != nil {
		return nil, nil, err
	}
	windows = all
	if s.LocalRope.Theta != 0 {
		if windows, err = table(s.LocalRope.Table(dim, 0, n)); err != nil {
			return nil, nil, err
		}
	}
	t.rows = n
	return all, windows, nil
}
