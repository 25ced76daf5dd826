package model

import (
	"math"

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

// spread maps logits over the draft vocabulary [n][Outputs] to the target's vocabulary
// [n][Vocab]. Tokens outside the draft vocabulary get −Inf.
func (m *Model) spread(dst, src []float32) {
	v, w := m.spec.Vocab, len(m.ids)
	for i := range dst {
		dst[i] = float32(math.Inf(-1))
	}
	for r := range (len(dst) + v - 1) / v {
		row := dst[r*v:]
		for i, id := range m.ids {
			if int(id) < len(row) {
				row[id] = src[r*w+i]
			}
		}
	}
}
