package train

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math"
	"slices"

	"talf/data"
)

// CountVocab returns the size tokens that are to be learnt most often in the part
// of the data that sp names, ascending, and what share of the tokens to be learnt
// they are. Of equal ones the lower come first: vocabularies list their tokens by
// falling frequency. Sets count as much as they weigh.
func CountVocab(shares []Share, sp data.Split, size int) (ids []int32, share float64, err error) {
	if len(shares) == 0 {
		return nil, 0, fmt.Errorf("draft vocabulary: no data")
	}
	vocab := shares[0].Set.Meta().Vocab
	if size < 1 || size > vocab {
		return nil, 0, fmt.Errorf("draft vocabulary of %d tokens, want 1 to the target's %d", size, vocab)
	}
	often, err := frequencies(shares, sp, vocab)
	if err != nil {
		return nil, 0, err
	}
	for id := range int32(vocab) {
		ids = append(ids, id)
	}
	slices.SortStableFunc(ids, func(a, b int32) int { return cmp.Compare(often[b], often[a]) })
	ids = ids[:size:size]
	slices.Sort(ids)
	for _, id := range ids {
		share += often[id]
	}
	return ids, share, nil
}

// VocabShare returns what share of the tokens to be learnt ids are.
func VocabShare(shares []Share, sp data.Split, ids []int32) (share float64, err error) {
	if len(shares) == 0 {
		return 0, fmt.Errorf("draft vocabulary: no data")
	}
	often, err := frequencies(shares, sp, shares[0].Set.Meta().Vocab)
	if err != nil {
		return 0, err
	}
	for _, id := range ids {
		if id < 0 || int(id) >= len(often) {
			return 0, fmt.Errorf("draft vocabulary: token %d, want 0 to %d as the target has", id, len(often)-1)
		}
		share += often[id]
	}
	return share, nil
}

// frequencies returns what share of the tokens to be learnt each token of a
// vocabulary is, sets counting as much as they weigh.
func frequencies(shares []Share, sp data.Split, vocab int) ([]float64, error) {
	often := make([]float64, vocab)
	all := 0.0
	for _, s := range shares {
		if v := s.Set.Meta().Vocab; v != vocab {
			return nil, fmt.Errorf("draft vocabulary: the data are of vocabularies of %d and %d tokens", vocab, v)
		}
		counts, err := s.Set.Counts(sp)
		if err != nil {
			return nil, fmt.Errorf("draft vocabulary: %w", err)
		}
		var n int64
		for _, c := range counts {
			n += c
		}
		weight := s.Weight
		if len(shares) == 1 {
			weight = 1
		}
		if n == 0 {
			continue
		}
		all += weight
		for id, c := range counts {
			often[id] += float64(weight * (float64(c) / float64(n)))
		}
	}
	for id := range often {
		often[id] /= max(all, math.SmallestNonzeroFloat64)
	}
	return often, nil
}

// A vocabulary maps between the target's tokens and those of a draft vocabulary.
// nil is the target's own.
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

// target makes draft ids the target's.
func (v *vocabulary) target(ids []int32) {
	if v == nil {
		return
	}
	for i, d := range ids {
		ids[i] = v.ids[d]
	}
}

// rows returns the rows of a matrix [V][width] that are the vocabulary's.
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
