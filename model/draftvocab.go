package model

import (
	"talf/compute"
	"talf/model/arch"
	"talf/model/internal/stored"
)

// some returns the given rows of a matrix, or all rows if the list is nil.
func (l *loader) some(want arch.Tensor, ids []int32) compute.Matrix {
	t, dt := l.get(want)
	if l.err != nil {
		return compute.Matrix{}
	}
	all := l.rows(&t, dt, 0, want.Rows)
	if l.err != nil || ids == nil {
		return all
	}
	defer l.release(t.Name)
	return stored.Rows(&all, ids)
}

// DraftVocab returns the target's id of every token that a draft head predicts, in
// ascending order, or nil if it predicts all of them. The slice belongs to the model.
func (m *Model) DraftVocab() []int32 { return m.ids }

// Outputs returns the number of tokens in a row of logits: the size of the draft
// vocabulary for a head that has one.
func (m *Model) Outputs() int { return m.lmHead.W.Out() }
