package mix

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"talf/checkpoints"
	"talf/data"
)

// Vocab returns the draft vocabulary that text describes, ascending, and its share of the tokens to be learned. text is
// the number of tokens to choose by counting the part of the data that is not held out, or mass: and this number, to
// choose by the mass of its labels, or names a file or a head as for checkpoints.ReadDraftVocab. If text is empty there
// is none: ids is nil.
func Vocab(text string, shares Shares, held float64) (ids []int32, share float64, err error) {
	if text == "" {
		return nil, 0, nil
	}
	sp := data.Split{Part: data.Train, Fraction: held}
	if n, err := strconv.Atoi(text); err == nil {
		return CountVocab(shares, sp, n)
	}
	if word, ok := strings.CutPrefix(text, "mass:"); ok {
		n, err := strconv.Atoi(word)
		if err != nil {
			return nil, 0, fmt.Errorf("draft vocabulary: %s, want mass: and a number", text)
		}
		if ids, err = massVocab(shares, sp, n); err != nil {
			return nil, 0, err
		}
		share, err = VocabShare(shares, sp, ids)
		return ids, share, err
	}
	meta := shares[0].Set.Meta()
	ids, tok, err := checkpoints.ReadDraftVocab(text, meta.Vocab)
	if err != nil {
		return nil, 0, err
	}
	if tok != "" && tok != meta.Tokenizer {
		return nil, 0, fmt.Errorf("draft vocabulary: %s is of the tokenizer %.12s, the data of %.12s: its ids mean other tokens", text, tok, meta.Tokenizer)
	}
	share, err = VocabShare(shares, sp, ids)
	return ids, share, err
}

// A Coverage tells what a draft vocabulary covers of a set.
type Coverage struct {
	Size  int           `json:"size"`
	Train data.Coverage `json:"train"`
	Held  data.Coverage `json:"held"`
	Share float64       `json:"held_out"` // of the sequences
}

// Cover measures the vocabulary that Vocab returns for a set of which the share held is held
// out.
func Cover(set *data.Set, text string, held float64) (*Coverage, error) {
	ids, _, err := Vocab(text, Only(set), held)
	if err != nil {
		return nil, err
	}
	c := &Coverage{Size: len(ids), Share: held}
	if c.Train, err = set.Cover(data.Split{Part: data.Train, Fraction: held}, ids); err != nil {
		return nil, err
	}
	c.Held, err = set.Cover(data.Split{Part: data.Held, Fraction: held}, ids)
	return c, err
}

// CountVocab returns the size tokens that are to be learned most often in the part of the data
// that sp names, ascending, and their share of the tokens to be learned. Among equally frequent
// tokens the lower ids are chosen, since tokenizers number tokens by falling frequency. Sets
// count by their weights.
func CountVocab(shares Shares, sp data.Split, size int) (ids []int32, share float64, err error) {
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
	ids = most(often, size)
	for _, id := range ids {
		share += often[id]
	}
	return ids, share, nil
}

// most returns the size tokens that score highest, ascending; among equal ones the lower ids.
func most(score []float64, size int) (ids []int32) {
	for id := range int32(len(score)) {
		ids = append(ids, id)
	}
	slices.SortStableFunc(ids, func(a, b int32) int { return cmp.Compare(score[b], score[a]) })
	ids = ids[:size:size]
	slices.Sort(ids)
	return ids
}

// VocabShare returns ids' share of the tokens to be learned.
func VocabShare(shares Shares, sp data.Split, ids []int32) (share float64, err error) {
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

// frequencies returns, for each token of a vocabulary, its share of the tokens to be learned.
// Sets count by their weights.
func frequencies(shares Shares, sp data.Split, vocab int) ([]float64, error) {
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
