package tokenizer

import (
	"fmt"
	"slices"
	"sort"
	"strings"
)

// Controls returns the places in a text, in order, that could begin a special token if the text
// stood in a larger one: where it holds all of one, where its end may be the first part of one,
// and 0 if it may be another part of one. A part of letters, digits and underscores alone does
// not count, because nearly every text would be one. A template that puts a word of a message
// between marks of its own means to write that token, as with roles.
//
// EncodeLiteral reads such places as text. Tokens that are found after normalization are found
// here after that of the text alone.
func (t *Tokenizer) Controls(text string) ([]int, error) {
	m := &t.control
	if len(m.tokens) == 0 || text == "" {
		return nil, nil
	}
	var at []int
	for i := range len(text) {
		if m.begins(text[i:]) {
			at = append(at, i)
		}
	}
	if m.continues(text) {
		at = append(at, 0)
	}
	if t.controlNorm {
		more, err := t.normalizedControls(text)
		if err != nil {
			return nil, err
		}
		at = append(at, more...)
	}
	slices.Sort(at)
	return slices.Compact(at), nil
}

// begins reports whether s begins with a token, or is the first part of one.
func (m *matcher) begins(s string) bool {
	at := m.roots[s[0]]
	for j := 1; at != 0; j++ {
		if m.nodes[at].token >= 0 {
			return true
		}
		if j == len(s) {
			return !word(s)
		}
		at = m.nodes[at].child(s[j])
	}
	return false
}

// continues reports whether a later part of a token begins s, or is all of s.
func (m *matcher) continues(s string) bool {
	for i := range m.tokens {
		c := m.tokens[i].Content
		if len(s) < len(c) && strings.Contains(c[1:], s) && !word(s) {
			return true
		}
		for k := 1; k < len(c); k++ {
			if c[k] == s[0] && strings.HasPrefix(s, c[k:]) && !word(c[k:]) {
				return true
			}
		}
	}
	return false
}

// word reports whether s is letters, digits and underscores of ASCII alone.
func word(s string) bool {
	for i := range len(s) {
		c := s[i] | 0x20
		if (c < 'a' || c > 'z') && (s[i] < '0' || s[i] > '9') && s[i] != '_' {
			return false
		}
	}
	return true
}

// normalizedControls returns where special tokens begin that are found after normalization.
func (t *Tokenizer) normalizedControls(text string) ([]int, error) {
	meter := encodeMeter(len(text))
	a := alignedTo(text, 0)
	for _, n := range t.norms {
		var err error
		if a, err = n.part.align(a, meter); err != nil {
			return nil, t.fault(n.path, err)
		}
	}
	var at []int
	m := &t.normalized
	for i := range len(a.s) {
		node := m.roots[a.s[i]]
		for j := i + 1; node != 0; j++ {
			if k := m.nodes[node].token; k >= 0 && m.tokens[k].special {
				at = append(at, a.span(i, j).Start)
				break
			}
			if j == len(a.s) {
				break
			}
			node = m.nodes[node].child(a.s[j])
		}
	}
	return at, nil
}

// EncodeLiteral is Encode without the special tokens that begin at, or reach over, the places in
// literal, which are in order: there the text is encoded as text. Everything else is as in Encode.
func (t *Tokenizer) EncodeLiteral(text string, literal []int, addSpecial bool) ([]int32, error) {
	if len(literal) == 0 {
		return t.Encode(text, addSpecial)
	}
	ids, _, err := t.EncodeLiteralOffsets(text, literal, addSpecial)
	return ids, err
}

// EncodeLiteralOffsets is EncodeOffsets with the rule of EncodeLiteral.
func (t *Tokenizer) EncodeLiteralOffsets(text string, literal []int, addSpecial bool) ([]int32, []Span, error) {
	ids, spans, err := t.encodeOffsets(text, literals(literal), addSpecial)
	if err != nil {
		return nil, nil, err
	}
	// The vocabulary of the model may hold special tokens, too, and make them of text.
	for i, id := range ids {
		if s := spans[i]; t.Special(id) && id != t.model.unk && literals(literal).touch(s) {
			return nil, nil, fmt.Errorf("%s: the model makes the special token %q of plain text at byte %d", t.file, t.tokens.At(id), s.Start)
		}
	}
	return ids, spans, nil
}

// literals are places in a text, in order, that are no special token's.
type literals []int

// veto returns what keeps a matcher from finding special tokens there. span says which part of
// the text a match is.
func (l literals) veto(m *matcher, span func(i, j int) Span) func(i, j int, token int32) bool {
	if len(l) == 0 {
		return nil
	}
	return func(i, j int, token int32) bool {
		if !m.tokens[token].special {
			return false
		}
		return l.touch(span(i, j))
	}
}

// touch reports whether one of the places is within a part of the text.
func (l literals) touch(s Span) bool {
	k := sort.SearchInts(l, s.Start)
	return k < len(l) && l[k] < s.End
}
