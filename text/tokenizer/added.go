package tokenizer

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	sugar "github.com/sugarme/tokenizer"

	"talf/internal/limits"
	"talf/internal/texts"
)

// addedToken is a token found in the text before the model sees it.
type addedToken struct {
	sugar.AddedToken
	id      int32
	special bool
}

// matcher finds added tokens: the leftmost match, and the longest of several there.
type matcher struct {
	nodes  []trieNode
	roots  [256]int32 // by first byte; 0: no token starts with it
	only   int        // the only first byte, or -1
	tokens []addedToken
	size   int // bytes of the tokens
}

// trieNode lists its children by their bytes.
type trieNode struct {
	token    int32 // index into tokens, or -1
	children []trieEdge
}

// fewEdges is how many children are searched one by one.
const fewEdges = 8

// child returns the node that b leads to, or 0.
func (n *trieNode) child(b byte) int32 {
	if len(n.children) > fewEdges {
		i, ok := slices.BinarySearchFunc(n.children, b, func(e trieEdge, b byte) int { return int(e.b) - int(b) })
		if !ok {
			return 0
		}
		return n.children[i].to
	}
	for _, e := range n.children {
		if e.b == b {
			return e.to
		}
	}
	return 0
}

type trieEdge struct {
	b  byte
	to int32
}

// add registers a token under the text that finds it, which is not empty. If two tokens
// have the same text, the first one wins.
func (m *matcher) add(text string, tok addedToken) error {
	if len(text) > maxAdded {
		return fmt.Errorf("added token %.100q: found by a text of %d bytes, expected at most %d", tok.Content, len(text), maxAdded)
	}
	if m.size += len(text); m.size > maxTrie {
		return fmt.Errorf("added tokens of more than %d bytes together", maxTrie)
	}
	if len(m.nodes) == 0 {
		m.nodes = append(m.nodes, trieNode{token: -1})
		m.only = -1
	}
	step := func(at int32, b byte) int32 {
		if to := m.nodes[at].child(b); to > 0 {
			return to
		}
		to := int32(len(m.nodes))
		m.nodes = append(m.nodes, trieNode{token: -1})
		n := &m.nodes[at]
		i, _ := slices.BinarySearchFunc(n.children, b, func(e trieEdge, b byte) int { return int(e.b) - int(b) })
		n.children = slices.Insert(n.children, i, trieEdge{b, to})
		return to
	}
	at := int32(0)
	for i := range len(text) {
		at = step(at, text[i])
		if i == 0 {
			m.roots[text[0]] = at
		}
	}
	if m.nodes[at].token < 0 {
		m.nodes[at].token = int32(len(m.tokens))
		m.tokens = append(m.tokens, tok)
	}
	m.only = -1
	if len(m.nodes[0].children) == 1 {
		m.only = int(m.nodes[0].children[0].b)
	}
	return nil
}

// find returns the next match at or after i: its start, end and token index, or -1. veto, if not
// nil, says which matches do not count.
func (m *matcher) find(s string, i int, veto func(i, j int, token int32) bool) (start, end int, token int32) {
	for ; i < len(s); i++ {
		if m.only >= 0 {
			n := strings.IndexByte(s[i:], byte(m.only))
			if n < 0 {
				break
			}
			i += n
		}
		at := m.roots[s[i]]
		if at == 0 {
			continue
		}
		token, end = -1, 0
		for j := i + 1; ; j++ {
			if t := m.nodes[at].token; t >= 0 && (veto == nil || !veto(i, j, t)) {
				token, end = t, j
			}
			if j == len(s) {
				break
			}
			next := m.nodes[at].child(s[j])
			if next == 0 {
				break
			}
			at = next
		}
		if token >= 0 {
			return i, end, token
		}
	}
	return len(s), len(s), -1
}

// segment is a part of the text: plain, or an added token (id >= 0).
type segment struct {
	start, end int
	id         int32
}

// segments cuts s at the added tokens. Segments of plain text are not empty. Where
// rstrip swallows the start of the next match, both are reported, as in the reference,
// unless nothing is left of the second. veto is find's.
func (m *matcher) segments(dst []segment, s string, veto func(i, j int, token int32) bool) []segment {
	if len(m.tokens) == 0 {
		if s == "" {
			return dst
		}
		return append(dst, segment{0, len(s), -1})
	}
	done := 0
	blank := segment{} // the white space that was stripped last
	for at := 0; ; {
		start, end, t := m.find(s, at, veto)
		if t < 0 {
			break
		}
		at = end
		tok := &m.tokens[t]
		if tok.SingleWord && (endsWithWord(s[:start]) || startsWithWord(s[end:])) {
			continue
		}
		// Each piece of white space is looked at once, however many tokens strip it.
		if tok.LStrip {
			start = max(start, done)
			start = done + len(strings.TrimRightFunc(s[done:start], unicode.IsSpace))
		}
		if tok.RStrip {
			if end < blank.start || end > blank.end {
				blank = segment{start: end, end: len(s) - len(strings.TrimLeftFunc(s[end:], unicode.IsSpace))}
			}
			end = blank.end
		}
		if done < start {
			dst = append(dst, segment{done, start, -1})
		}
		if start < end {
			dst = append(dst, segment{start, end, tok.id})
		}
		done = end
	}
	if done < len(s) {
		dst = append(dst, segment{done, len(s), -1})
	}
	return dst
}

func endsWithWord(s string) bool {
	r, _ := utf8.DecodeLastRuneInString(s)
	return s != "" && isWord(r)
}

func startsWithWord(s string) bool {
	r, _ := utf8.DecodeRuneInString(s)
	return s != "" && isWord(r)
}

// isWord is \w of Unicode's regular expressions (UTS #18, Annex C): alphabetic,
// marks, decimal digits, connectors and joiners.
func isWord(r rune) bool {
	return unicode.In(r, unicode.L, unicode.M, unicode.Nd, unicode.Nl, unicode.Pc, unicode.Other_Alphabetic, unicode.Join_Control,
		letters16, numbers16, marks16)
}

// parseAdded reads added_tokens. Their ids must be those that the reference assigns: a
// token of the vocabulary keeps its id, the others follow in order. What the normalizer makes of
// them is charged to m.
func (t *Tokenizer) parseAdded(root object, m *limits.Meter) error {
	var list []json.RawMessage
	if err := root.get("added_tokens", &list); err != nil {
		return err
	}
	var tokens []string // set with the first that is not in the vocabulary
	t.tokens = t.model.tokens
	t.known = slices.Clone(t.model.known)
	highest := int64(-1)
	seen := map[string]bool{}
	for i, raw := range list {
		path := fmt.Sprintf("added_tokens[%d]", i)
		o, err := newObject(raw, path)
		if err != nil {
			return err
		}
		var tok addedToken
		id := int64(-1)
		tok.AddedToken = sugar.DefaultAddedToken()
		if err := errors.Join(o.need("content", &tok.Content), o.need("id", &id), o.get("special", &tok.special),
			o.get("single_word", &tok.SingleWord), o.get("lstrip", &tok.LStrip), o.get("rstrip", &tok.RStrip),
			o.get("normalized", &tok.Normalized),
			o.only("id", "content", "special", "single_word", "lstrip", "rstrip", "normalized")); err != nil {
			return err
		}
		if tok.Content == "" {
			continue
		}
		if seen[tok.Content] {
			return fmt.Errorf("%s: %q is listed twice", path, tok.Content)
		}
		seen[tok.Content] = true
		want, ok := t.model.find(tok.Content)
		if !ok && tokens == nil {
			tokens = t.model.tokens.List()
		}
		if !ok {
			want = int32(max(int64(t.model.vocab.Len()), highest+1))
		}
		if id != int64(want) {
			return fmt.Errorf("%s: %q has id %d, but its place in the list gives it %d", path, tok.Content, id, want)
		}
		if id >= maxID {
			return fmt.Errorf("%s: id %d, expected less than %d", path, id, maxID)
		}
		highest = max(highest, id)
		tok.id = want
		for int64(len(t.known)) <= id {
			tokens = append(tokens, "")
			t.known = append(t.known, false)
		}
		if !ok {
			if t.known[id] {
				return fmt.Errorf("%s: %q has id %d, which also belongs to %q", path, tok.Content, id, tokens[id])
			}
			tokens[id], t.known[id] = tok.Content, true
		}
		t.added[tok.Content] = tok.id
		t.order = append(t.order, tok)
	}
	if tokens != nil {
		t.tokens = texts.Pack(tokens)
		// Where the model has tokens, these are the same.
		t.model.tokens = t.tokens
		t.model.vocab.Share(t.tokens)
	}
	t.special = make([]bool, t.tokens.Len())
	// If two tokens have the same text, the reference finds the special one.
	for _, special := range []bool{true, false} {
		for _, tok := range t.order {
			if tok.special != special {
				continue
			}
			t.special[tok.id] = tok.special
			if tok.special {
				if err := t.control.add(tok.Content, tok); err != nil {
					return err
				}
				t.controlNorm = t.controlNorm || tok.Normalized
			}
			if !tok.Normalized {
				if err := t.raw.add(tok.Content, tok); err != nil {
					return err
				}
				continue
			}
			text, err := t.normalize(tok.Content, m)
			if err != nil {
				return fmt.Errorf("added token %q: %w", tok.Content, err)
			}
			if text == "" {
				return fmt.Errorf("added token %q: nothing is left of it after normalization, which is not supported", tok.Content)
			}
			if err := t.normalized.add(text, tok); err != nil {
				return err
			}
		}
	}
	return nil
}
