package model

import (
	"encoding/binary"
	"fmt"
	"math"

	"talf/compute"
	"talf/model/arch"
	"talf/model/safetensors"
)

// The tensors of a draft vocabulary; EAGLE-3 heads use the same ones.
const (
	DraftToTarget = "d2t" // I64 [draft tokens]: target id minus draft id
	TargetToDraft = "t2d" // BOOL [Vocab]: whether it contains the target's token
)

// ReadDraftVocab reads a draft vocabulary from a head's tensors. It returns the
// target's id of every draft token, in ascending order, or nil if the head predicts all
// vocab tokens of the target. size is the configuration's draft_vocab_size, 0 if
// missing.
func ReadDraftVocab(set *safetensors.Set, size, vocab int) ([]int32, error) {
	fail := func(format string, args ...any) ([]int32, error) {
		return nil, fmt.Errorf("%s: %w", set.Name, fmt.Errorf(format, args...))
	}
	t, ok := set.Tensor(DraftToTarget)
	if !ok {
		if size != 0 && size != vocab {
			return fail("no tensor %q, want the offsets of draft_vocab_size = %d tokens", DraftToTarget, size)
		}
		return nil, nil
	}
	ids, err := t.Int32s()
	if err != nil {
		return fail("%w", err)
	}
	if size == 0 {
		size = len(ids)
	}
	if len(t.Shape) != 1 || len(ids) != size || size < 1 {
		return fail("tensor %q has shape %v, want [%d] as draft_vocab_size says", DraftToTarget, t.Shape, max(size, 1))
	}
	for i, off := range ids {
		id := int64(i) + int64(off)
		if id < 0 || id >= int64(vocab) {
			return fail("tensor %q: draft token %d is token %d of the target, want 0 to %d", DraftToTarget, i, id, vocab-1)
		}
		if ids[i] = int32(id); i > 0 && ids[i] <= ids[i-1] {
			return fail("tensor %q: draft tokens %d and %d are tokens %d and %d of the target, want ascending order", DraftToTarget, i-1, i, ids[i-1], id)
		}
	}
	if t, ok := set.Tensor(TargetToDraft); ok {
		if t.DType != "BOOL" || len(t.Data) != vocab {
			return fail("tensor %q is %s %v, want BOOL [%d]", TargetToDraft, t.DType, t.Shape, vocab)
		}
		next := 0
		for id, b := range t.Data {
			in := next < len(ids) && int(ids[next]) == id
			if in {
				next++
			}
			if (b != 0) != in {
				return fail("tensor %q does not mark the tokens of %q: they differ at token %d", TargetToDraft, DraftToTarget, id)
			}
		}
	}
	return ids, nil
}

// DraftVocabTensors returns the tensors of the draft vocabulary with the given
// target ids, which are ascending.
func DraftVocabTensors(ids []int32, vocab int) []safetensors.Tensor {
	d2t := safetensors.Tensor{Name: DraftToTarget, DType: "I64", Shape: []int{len(ids)}}
	t2d := safetensors.Tensor{Name: TargetToDraft, DType: "BOOL", Shape: []int{vocab}, Data: make([]byte, vocab)}
	for i, id := range ids {
		d2t.Data = binary.LittleEndian.AppendUint64(d2t.Data, uint64(int64(id)-int64(i)))
		t2d.Data[id] = 1
	}
	return []safetensors.Tensor{d2t, t2d}
}

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
	m := compute.Matrix{Rows: len(ids), Cols: cols, Type: dt}
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
