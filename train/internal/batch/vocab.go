package batch

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
)

// A Vocabulary maps between the target's tokens and those of a draft vocabulary. A nil
// vocabulary is the target's own.
type Vocabulary struct {
	IDs []int32 // the target's, ascending
	of  []int32 // [V] draft ids, −1 outside
}

func NewVocabulary(ids []int32, vocab int) (*Vocabulary, error) {
	if ids == nil {
		return nil, nil
	}
	v := &Vocabulary{IDs: ids, of: make([]int32, vocab)}
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

// Draft returns the draft id of a target's token, −1 if it has none.
func (v *Vocabulary) Draft(id int32) int32 {
	if v == nil {
		return id
	}
	return v.of[id]
}

// Target replaces draft ids by the target's, in place.
func (v *Vocabulary) Target(ids []int32) {
	if v == nil {
		return
	}
	for i, d := range ids {
		ids[i] = v.IDs[d]
	}
}

// Rows returns the vocabulary's rows of a matrix [V][width].
func (v *Vocabulary) Rows(x []float32) []float32 {
	if v == nil {
		return x
	}
	width := len(x) / len(v.of)
	out := make([]float32, 0, len(v.IDs)*width)
	for _, id := range v.IDs {
		out = append(out, x[int(id)*width:][:width]...)
	}
	return out
}

// String identifies the vocabulary.
func (v *Vocabulary) String() string {
	h := sha256.New()
	_ = binary.Write(h, binary.LittleEndian, v.IDs) // a hash takes everything
	return fmt.Sprintf("%d tokens, %s", len(v.IDs), hex.EncodeToString(h.Sum(nil))[:12])
}
