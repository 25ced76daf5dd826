package source

import (
	"fmt"
	"math"
	"strings"

	"talf/text/tokenizer"
)

// minCover is the smallest share of a target's text that a draft model with another vocabulary
// must be able to write.
const minCover = 0.5

// A Vocab translates between the tokens of a target and those of a draft model.
//
// A draft token is drafted as the target's token with the same bytes, or not at all if
// there is none. A target token without a counterpart is fed to the draft model as the
// longest of its tokens that spell it.
type Vocab struct {
	same            bool    // a token has one id in both
	target          int     // ids of the target
	toTarget        []int32 // by draft id, -1 for none
	spelled         [][]int32
	before          []int32 // what the draft model expects before a text
	known           map[string]int32
	longest         int // of known, in bytes
	targetTok       *tokenizer.Tokenizer
	draft           string // hash of the draft model's tokenizer
	shared, targets int
	cover           float64
}

// NewVocab compares the vocabularies of two models with targetVocab and draftVocab ids, more
// than their tokenizers have if embeddings are padded. It refuses a pair that covers less than
// half of the target's text.
func NewVocab(target, draft *tokenizer.Tokenizer, targetVocab, draftVocab int) (*Vocab, error) {
	v := &Vocab{
		target: targetVocab, targetTok: target, draft: draft.Hash(),
		toTarget: make([]int32, draftVocab), spelled: make([][]int32, targetVocab),
		known: map[string]int32{},
	}
	for i := range v.toTarget {
		v.toTarget[i] = -1
	}
	v.before, _ = draft.Added()
	for id := range int32(min(draft.VocabSize(), draftVocab)) {
		b, ok := draft.Bytes(id)
		if !ok || len(b) == 0 {
			continue
		}
		if first, ok := v.known[string(b)]; ok && !isByteToken(draft, first) {
			continue
		}
		v.known[string(b)] = id
		v.longest = max(v.longest, len(b))
	}
	v.pairAll(target, draft)
	v.cover = v.zipf(target)

	v.same = targetVocab == draftVocab
	for t, s := range v.spelled {
		if target.Known(int32(t)) && (len(s) != 1 || s[0] != int32(t)) {
			v.same = false
			break
		}
	}
	if !v.same && v.cover < minCover {
		return nil, fmt.Errorf("the draft model's vocabulary writes about %.0f%% of the target's text (%d of its %d tokens), want at least %.0f%%: a draft model needs the target's tokenizer or one much like it",
			100*v.cover, v.shared, v.targets, 100*minCover)
	}
	return v, nil
}

// pairAll notes the pairs of tokens with equal bytes, and of special tokens that are spelled
// alike or begin and end texts. If several tokens of the target have the same bytes, the
// draft's token is drafted as the usual one.
func (v *Vocab) pairAll(target, draft *tokenizer.Tokenizer) {
	identical := target.Hash() == draft.Hash()
	for t := range int32(min(target.VocabSize(), v.target)) {
		d := int32(-1)
		b, ok := target.Bytes(t)
		switch {
		case identical && int(t) < len(v.toTarget):
			if draft.Known(t) {
				d = t
			}
		case ok:
			if x, found := v.known[string(b)]; found {
				d = x
			}
		case target.Known(t):
			d = specialPair(target, draft, t)
		}
		if ok {
			v.targets++
		}
		if d < 0 || int(d) >= len(v.toTarget) {
			continue
		}
		if ok {
			v.shared++
		}
		v.spelled[t] = []int32{d}
		if old := v.toTarget[d]; old < 0 || isByteToken(target, old) {
			v.toTarget[d] = t
		}
	}
}

// specialPair returns the draft's special token for the target's t, -1 if it has none.
func specialPair(target, draft *tokenizer.Tokenizer, t int32) int32 {
	name, _ := target.Token(t)
	if d, ok := draft.TokenID(name); ok && draft.Special(d) {
		return d
	}
	for _, role := range []func(*tokenizer.Tokenizer) (int32, bool){(*tokenizer.Tokenizer).BOS, (*tokenizer.Tokenizer).EOS} {
		if x, ok := role(target); ok && x == t {
			if d, ok := role(draft); ok {
				return d
			}
		}
	}
	return -1
}

// isByteToken reports whether id is a byte token such as <0x0A>. If another token has the
// same byte, texts contain the other one.
func isByteToken(t *tokenizer.Tokenizer, id int32) bool {
	name, ok := t.Token(id)
	return ok && len(name) == len("<0x00>") && strings.HasPrefix(name, "<0x")
}

// zipf estimates the share of the target's text that the draft model has tokens for:
// frequencies fall as 1/(rank+2.7) (Mandelbrot's form of Zipf's law), and a vocabulary built by
// merging lists its tokens by falling frequency. Single bytes are left out: they come first
// whatever their frequency.
func (v *Vocab) zipf(target *tokenizer.Tokenizer) float64 {
	var have, all float64
	rank := 0
	for t := range v.spelled {
		if b, ok := target.Bytes(int32(t)); !ok || len(b) < 2 {
			continue
		}
		rank++
		f := 1 / (float64(rank) + 2.7)
		all += f
		if v.spelled[t] != nil {
			have += f
		}
	}
	if all == 0 {
		return 0
	}
	return have / all
}

// Same reports whether every token of the target has the same id in both vocabularies.
func (v *Vocab) Same() bool { return v.same }

// Cover returns how many of the target's ordinary tokens can be drafted, how
// many there are, and the share of its text that they make up, estimated by
// Zipf's law over the order of the ids.
func (v *Vocab) Cover() (shared, tokens int, text float64) { return v.shared, v.targets, v.cover }

// spell returns the draft tokens that stand for the target's t, none if no draft token has one
// of its bytes.
func (v *Vocab) spell(t int32) []int32 {
	if s := v.spelled[t]; s != nil {
		return s
	}
	s := []int32{}
	text, ok := v.targetTok.Bytes(t)
	if !ok {
		name, _ := v.targetTok.Token(t)
		text = []byte(name)
	}
	for len(text) > 0 {
		n := min(len(text), v.longest)
		for ; n > 0; n-- {
			if d, ok := v.known[string(text[:n])]; ok {
				s = append(s, d)
				break
			}
		}
		text = text[max(n, 1):]
	}
	v.spelled[t] = s
	return s
}

// translate appends to dst the first width tokens of a draft row that the target has, best
// first. Probabilities are not renormalised: the mass of tokens that the target lacks is lost
// to drafting.
func (v *Vocab) translate(tokens []int32, logp []float32, ids []int32, lps []float32, width int) ([]int32, []float32) {
	for i, d := range ids {
		if len(tokens) == width {
			break
		}
		if t := v.toTarget[d]; t >= 0 {
			tokens, logp = append(tokens, t), append(logp, lps[i])
		}
	}
	return tokens, logp
}

// logits writes a draft row [draft ids] as one of the target's [target ids]; tokens that the
// draft model cannot write get −∞.
func (v *Vocab) logits(dst, row []float32) {
	for i := range dst {
		dst[i] = float32(math.Inf(-1))
	}
	for d, t := range v.toTarget {
		if t >= 0 {
			dst[t] = row[d]
		}
	}
}
