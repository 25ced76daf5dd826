// Package draftvocab reads and writes the tensors that say which tokens a draft head predicts.
package draftvocab

import (
	"encoding/binary"
	"fmt"
	"math"

	"talf/model/safetensors"
)

// The tensors of a draft vocabulary; EAGLE-3 heads use the same ones.
const (
	ToTarget = "d2t" // I64 [draft tokens]: target id minus draft id
	ToDraft  = "t2d" // BOOL [Vocab]: whether it contains the target's token
)

// Read reads a draft vocabulary from a head's tensors. It returns the
// target's id of every draft token, in ascending order, or nil if the head predicts all
// vocab tokens of the target. size is the configuration's draft_vocab_size, 0 if
// missing.
func Read(set *safetensors.Set, size, vocab int) ([]int32, error) {
	fail := func(format string, args ...any) ([]int32, error) {
		return nil, fmt.Errorf("%s: %w", set.Name, fmt.Errorf(format, args...))
	}
	t, ok := set.Tensor(ToTarget)
	if !ok {
		if size != 0 && size != vocab {
			return fail("no tensor %q, want the offsets of draft_vocab_size = %d tokens", ToTarget, size)
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
		return fail("tensor %q has shape %v, want [%d] as draft_vocab_size says", ToTarget, t.Shape, max(size, 1))
	}
	for i, off := range ids {
		id := int64(i) + int64(off)
		if id < 0 || id >= int64(vocab) {
			return fail("tensor %q: draft token %d is token %d of the target, want 0 to %d", ToTarget, i, id, vocab-1)
		}
		if ids[i] = int32(id); i > 0 && ids[i] <= ids[i-1] {
			return fail("tensor %q: draft tokens %d and %d are tokens %d and %d of the target, want ascending order", ToTarget, i-1, i, ids[i-1], id)
		}
	}
	if t, ok := set.Tensor(ToDraft); ok {
		if t.DType != "BOOL" || len(t.Data) != vocab {
			return fail("tensor %q is %s %v, want BOOL [%d]", ToDraft, t.DType, t.Shape, vocab)
		}
		next := 0
		for id, b := range t.Data {
			in := next < len(ids) && int(ids[next]) == id
			if in {
				next++
			}
			if (b != 0) != in {
				return fail("tensor %q does not mark the tokens of %q: they differ at token %d", ToDraft, ToTarget, id)
			}
		}
	}
	return ids, nil
}

// Tensors returns the tensors of the draft vocabulary with the given
// target ids, which are ascending; nil has none.
func Tensors(ids []int32, vocab int) []safetensors.Tensor {
	if ids == nil {
		return nil
	}
	d2t := safetensors.Tensor{Name: ToTarget, DType: "I64", Shape: []int{len(ids)}}
	t2d := safetensors.Tensor{Name: ToDraft, DType: "BOOL", Shape: []int{vocab}, Data: make([]byte, vocab)}
	for i, id := range ids {
		d2t.Data = binary.LittleEndian.AppendUint64(d2t.Data, uint64(int64(id)-int64(i)))
		t2d.Data[id] = 1
	}
	return []safetensors.Tensor{d2t, t2d}
}

// Spread maps logits over a draft vocabulary ids, rows of len(ids) in src, to rows of the target's vocabulary
// in dst. The last of them may be cut off. Tokens outside the draft vocabulary get −Inf.
func Spread(dst, src []float32, ids []int32, vocab int) {
	for i := range dst {
		dst[i] = float32(math.Inf(-1))
	}
	for r := range (len(dst) + vocab - 1) / vocab {
		row := dst[r*vocab:]
		for i, id := range ids {
			if int(id) < len(row) {
				row[id] = src[r*len(ids)+i]
			}
		}
	}
}
