package model

import (
	"talf/compute"
	"talf/model/arch"
)

// some returns the given rows of a matrix, or all rows if the list is nil.
func (l *loader) some(want arch.Tensor, ids []int32) compute.Matrix {
	rows, cols := want.Rows, want.Cols
	t, dt := l.get(want)
	if l.err != nil {
		return compute.Matrix{}
	}
	all := l.rows(&t, dt, 0, rows)
	if l.err != nil || ids == nil {
		return all
	}
	m := compute.Matrix{Rows: len(ids), Cols: cols, Type: dt, Block: all.Block}
	cut := func(of []byte) []byte {
		size := len(of) / rows
		out := make([]byte, 0, len(ids)*size)
		for _, id := range ids {
			out = append(out, of[int(id)*size:][:size]...)
		}
		return out
	}
	m.Data = cut(all.Data)
	if all.Scales != nil {
		m.Scales = cut(all.Scales)
	}
	l.release(t.Name)
	return m
}

// DraftVocab returns the target's id of every token that a draft head predicts, in
// ascending order, or nil if it predicts all of them. The slice belongs to the model.
func (m *Model) DraftVocab() []int32 { return m.ids }

// Outputs returns the number of tokens in a row of logits: the size of the draft
// vocabulary for a head that has one.
func (m *Model) Outputs() int { return m.lmHead.W.Out() }
