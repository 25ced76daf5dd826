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
	long  []uint8    // [node] characters of the longest of these, as far as they are not other
	nodes [256]int32 // below the root, by the byte that leads there

	planes [kinds]Mask    // [kind] the tokens that have such characters
	upto   [most + 1]Mask // [n] those of up to n characters
	rest   *trie          // of the tokens that are other; nil of itself
	tails  *trie          // of rest: what follows the plain characters that its tokens begin with, by number in rest.ids
	begun  []bool         // [node] of rest: nothing but whole plain characters leads to it
}

// maxToken bounds the bytes of a token that is text. The longest of published vocabularies have
// some hundred; longer ones are not used.
const maxToken = 4096

func newTrie(size int, text func(id int32) ([]byte, bool)) trie {
	t := trie{text: make([][]byte, size)}
	for id := range int32(size) {
		// A token without bytes would let an answer go on for ever.
		if b, ok := text(id); ok && len(b) > 0 && len(b) <= maxToken {
			t.text[id] = b
			t.ids = append(t.ids, id)
		}
	}
	slices.SortStableFunc(t.ids, func(a, b int32) int { return bytes.Compare(t.text[a], t.text[b]) })
	t.grow()
	for i := range t.planes {
		t.planes[i] = make(Mask, (size+63)/64)
	}
	for i := range t.upto {
		t.upto[i] = make(Mask, (size+63)/64)
	}
	t.rest = &trie{text: t.text}
	for _, id := range t.ids {
		w, bit := id>>6, uint64(1)<<(uint(id)&63)
		made, long := alphabetOf(t.text[id])
		for k := range t.planes {
			if made>>k&1 != 0 {
				t.planes[k][w] |= bit
			}
		}
		for n := long; n <= most; n++ {
			t.upto[n][w] |= bit
		}
		if made&other != 0 {
			t.rest.ids = append(t.rest.ids, id)
		}
	}
	t.rest.grow()
	t.rest.cut()
	return t
}

// cut makes the trie of the tails of t's tokens, and notes the nodes before them.
func (t *trie) cut() {
	t.tails = &trie{text: make([][]byte, len(t.ids))}
	t.begun = make([]bool, len(t.chars))
	for i, id := range t.ids {
		n := plainStart(t.text[id])
		t.tails.text[i] = t.text[id][n:]
		if n < len(t.text[id]) {
			t.tails.ids = append(t.tails.ids, int32(i))
		}
	}
	slices.SortStableFunc(t.tails.ids, func(a, b int32) int { return bytes.Compare(t.tails.text[a], t.tails.text[b]) })
	t.tails.grow()
	for n := range t.chars { // by the first token below each
		b := t.text[t.ids[t.from[n]]][:t.depth[n]+1]
		t.begun[n] = plainStart(b) == len(b)
	}
}

// grow makes the nodes of a trie of t.ids, which are in the order of their bytes.
func (t *trie) grow() {
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
			t.long = append(t.long, 0)
		}
		made, long := alphabetOf(b)
		for _, n := range open {
			t.made[n] |= made
			t.long[n] = max(t.long[n], uint8(long))
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
}
