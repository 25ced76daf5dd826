package train

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
)

// A vocabulary maps between the target's tokens and those of a draft vocabulary. A nil
// vocabulary is the target's own.
type vocabulary struct {
	ids []int32 // the target's, ascending
	of  []int32 // [V] draft ids, −1 outside
}

func newVocabulary(ids []int32, vocab int) (*vocabulary, error) {
	if ids == nil {
		return nil, nil
	}
	v := &vocabulary{ids: ids, of: make([]int32, vocab)}
	for i := range v.of {
		v.of[i] = -1
	}
	for i, id := range ids {
		switch {
		case id < 0 || int(id) >= vocab:
			return nil, fmt.Errorf("draft vocabulary: token %d, want 0 to %d as the target has", id, vocab-1)
		case i > 0 && id <= ids[i-1]:
			return nil, fmt.Errorf("draft vocabulary: token %d follows %d, want ascending ones", id, ids[i-1])
		}
		v.of[id] = int32(i)
	}
	if len(ids) == 0 {
		return nil, fmt.Errorf("draft vocabulary: no tokens")
	}
	return v, nil
}

// draft returns the draft id of a target's token, −1 if it has none.
func (v *vocabulary) draft(id int32) int32 {
	if v == nil {
		return id
	}
	return v.of[id]
}

// target replaces draft ids by the target's, in place.
func (v *vocabulary) target(ids []int32) {
	if v == nil {
		return
	}
	for i, d := range ids {
		ids[i] = v.ids[d]
	}
}

// rows returns the vocabulary's rows of a matrix [V][width].
func (v *vocabulary) rows(x []float32) []float32 {
	if v == nil {
		return x
	}
	width := len(x) / len(v.of)
	out := make([]float32, 0, len(v.ids)*width)
	for _, id := range v.ids {
		out = append(out, x[int(id)*width:][:width]...)
	}
	return out
}

// String identifies the vocabulary.
func (v *vocabulary) String() string {
	h := sha256.New()
	_ = binary.Write(h, binary.LittleEndian, v.ids) // a hash takes everything
	return fmt.Sprintf("%d tokens, %s", len(v.ids), hex.EncodeToString(h.Sum(nil))[:12])
}
