package grammar

import (
	"bytes"
	"fmt"
	"slices"
)

// A Vocabulary is what the tokens of a model are as bytes. It is immutable, but for what the
// grammars that are crossed with it remember in it.
type Vocabulary struct {
	size         int
	inner, first trie
	heads        heads
}

// A Speller says what tokens are. Both functions return false for tokens that are never text: those
// that are not known, and added ones.
type Speller struct {
	Size  int // of the model's rows; more than there are tokens is fine
	Bytes func(id int32) ([]byte, bool)
	// First is Bytes for the first token of a text, of which some decoders drop a space; nil
	// means that there is no difference.
	First func(id int32) ([]byte, bool)
	// Added says which of the tokens that are never text a grammar can name with Builder.Token; nil:
	// none. Tokens of bytes that no UTF-8 text has are among them then.
	Added func(id int32) bool
}

// NewVocabulary puts the tokens in order.
func NewVocabulary(s Speller) (*Vocabulary, error) {
	if s.Size < 1 {
		return nil, fmt.Errorf("grammar: a vocabulary of %d tokens, want at least 1", s.Size)
	}
	v := &Vocabulary{size: s.Size, inner: newTrie(s.Size, s.spelled(s.Bytes))}
	v.first = v.inner
	if s.First != nil {
		v.first = newTrie(s.Size, s.spelled(s.First))
	}
	return v, nil
}

// Size returns the number of tokens, whether they are text or not.
func (v *Vocabulary) Size() int { return v.size }

// A trie holds the tokens by their bytes. Nodes stand in the order of a walk, so that what is below
// node i are the nodes from i+1 to skip[i].
type trie struct {
	text  [][]byte // [id]; nil: never text
	chars []byte   // [node] the byte that leads to it
	skip  []int32  // [node]
	depth []uint16 // [node] bytes before chars
	from  []int32  // [node+1] the tokens that end there are ids[from[i]:from[i+1]]
	ids   []int32
	deep  int        // bytes of the longest token
	made  []alphabet // [node] of all tokens that end there or below
	nodes [256]int32 // below the root, by the byte that leads there
	all   Mask       // the tokens
	// [kind of characters, or of lengths] the tokens that have it
	planes [kinds]Mask
}

// maxToken bounds the bytes of a token that is text. The longest of published vocabularies have
// some hundred; longer ones are not used.
const maxToken = 4096

func newTrie(size int, text func(id int32) ([]byte, bool)) trie {
	t := trie{text: make([][]byte, size), all: make(Mask, (size+63)/64)}
	for i := range t.planes {
		t.planes[i] = make(Mask, len(t.all))
	}
	for id := range int32(size) {
		// A token without bytes would let an answer go on for ever.
		if b, ok := text(id); ok && len(b) > 0 && len(b) <= maxToken {
			t.text[id] = b
			t.ids = append(t.ids, id)
		}
	}
	slices.SortStableFunc(t.ids, func(a, b int32) int { return bytes.Compare(t.text[a], t.text[b]) })
	var open []int32 // the nodes of the last token, one for each of its bytes
	var last []byte
	for i, id := range t.ids {
		b := t.text[id]
		common := 0
		for common < min(len(last), len(b)) && last[common] == b[common] {
			common++
		}
		for _, n := range open[common:] {
			t.skip[n] = int32(len(t.chars))
		}
		open = open[:common]
		for d := common; d < len(b); d++ {
			open = append(open, int32(len(t.chars)))
			t.chars = append(t.chars, b[d])
			t.skip = append(t.skip, 0)
			t.depth = append(t.depth, uint16(d))
			t.from = append(t.from, int32(i))
			t.made = append(t.made, 0)
		}
		made := alphabetOf(b)
		t.all[id>>6] |= 1 << (uint(id) & 63)
		for k := range t.planes {
			t.planes[k][id>>6] |= uint64(made>>k&1) << (uint(id) & 63)
		}
		for _, n := range open {
			t.made[n] |= made
		}
		last = b
		t.deep = max(t.deep, len(b))
	}
	for _, n := range open {
		t.skip[n] = int32(len(t.chars))
	}
	t.from = append(t.from, int32(len(t.ids)))
	for n := int32(0); n < int32(len(t.chars)); n = t.skip[n] {
		t.nodes[t.chars[n]] = t.skip[n] - n
	}
	return t
}
