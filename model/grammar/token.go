package grammar

import (
	"bytes"
	"slices"
	"strings"
)

// marked begins the bytes that stand for a token that is no text. No UTF-8 text has it, so that a
// token of text never reads like one of these.
const marked = 0xFF

// maxTokenID bounds the ids for which bytes can stand.
const maxTokenID = 1<<24 - 1

// Token matches an added token, such as a mark of a chat template. A Speller with Added has them.
func (b *Builder) Token(id int32) Expr { return b.Text(string(tokenText(id))) }

// OtherTokens matches any one token that is no text, but for those given.
func (b *Builder) OtherTokens(except []int32) (Expr, error) {
	var set ByteSet
	set.AddRange(0, 0xFF)
	c := b.Bytes(set)
	d, err := b.DFA(b.Seq(b.Text(string([]byte{marked})), c, c, c))
	if err != nil {
		return 0, err
	}
	var texts []string
	for _, id := range except {
		texts = append(texts, string(tokenText(id)))
	}
	not, err := b.Words(texts)
	if err != nil {
		return 0, err
	}
	if d, err = b.Without(d, not); err != nil {
		return 0, err
	}
	return b.Automaton(d), nil
}

// Run matches texts of any bytes, in which none of some words occurs and which begin with none of
// others. Tokens that are no text are no part of it.
func (b *Builder) Run(without, start []string) (Expr, error) {
	type state struct {
		inner string // the longest end of what was read that begins a word (Aho and Corasick 1975)
		head  string // what was read, as long as it begins one of start
		free  bool   // it begins none
	}
	begins := func(words []string, s string) bool {
		return slices.ContainsFunc(words, func(w string) bool { return strings.HasPrefix(w, s) })
	}
	d, err := Explore(b, state{free: len(start) == 0}, func(s state, c byte) (state, bool) {
		if c == marked {
			return s, false
		}
		s.inner += string([]byte{c})
		if slices.ContainsFunc(without, func(w string) bool { return strings.HasSuffix(s.inner, w) }) {
			return s, false
		}
		for !begins(without, s.inner) && s.inner != "" {
			s.inner = s.inner[1:]
		}
		if s.free {
			return s, true
		}
		s.head += string([]byte{c})
		if slices.Contains(start, s.head) {
			return s, false
		}
		if s.free = !begins(start, s.head); s.free {
			s.head = ""
		}
		return s, true
	}, func(state) bool { return true })
	if err != nil {
		return 0, err
	}
	return b.Automaton(d), nil
}

func tokenText(id int32) []byte { return []byte{marked, byte(id >> 16), byte(id >> 8), byte(id)} }

// spelled is a Speller's function for the bytes of all tokens, added ones included.
func (s *Speller) spelled(text func(id int32) ([]byte, bool)) func(id int32) ([]byte, bool) {
	if s.Added == nil {
		return text
	}
	return func(id int32) ([]byte, bool) {
		b, ok := text(id)
		switch {
		case ok && bytes.IndexByte(b, marked) < 0:
			return b, true
		case id <= maxTokenID && (ok || s.Added(id)):
			return tokenText(id), true
		}
		return nil, false
	}
}

// Tokens divides bytes of which some stand for added tokens: text and token are called in turn.
func Tokens(b []byte, text func(s []byte) error, token func(id int32) error) error {
	for len(b) > 0 {
		at := bytes.IndexByte(b, marked)
		if at < 0 || len(b)-at < 4 {
			return text(b)
		}
		if at > 0 {
			if err := text(b[:at]); err != nil {
				return err
			}
		}
		if err := token(int32(b[at+1])<<16 | int32(b[at+2])<<8 | int32(b[at+3])); err != nil {
			return err
		}
		b = b[at+4:]
	}
	return nil
}
