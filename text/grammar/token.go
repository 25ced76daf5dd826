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

// Run matches texts of any bytes, in which none of some words occurs and which begin with none of
// others. Tokens that are no text may stand anywhere, but for those of except. Most add nothing to what
// a reader sees, so a word may not occur around them either.
func (b *Builder) Run(without, start []string, except []int32) (Expr, error) {
	type state struct {
		inner string // the longest end of what was read that begins a word (Aho and Corasick 1975)
		head  string // what was read, as long as it begins one of start
		free  bool   // it begins none
		// Within a token that is no text: how many of its bytes are left, and those that were read
		// as long as they begin one of except.
		left  int
		token string
	}
	begins := func(words []string, s string) bool {
		return slices.ContainsFunc(words, func(w string) bool { return strings.HasPrefix(w, s) })
	}
	var not []string
	for _, id := range except {
		not = append(not, string(tokenText(id)))
	}
	d, err := Explore(b, state{free: len(start) == 0}, func(s state, c byte) (state, bool) {
		if s.left > 0 || c == marked {
			if s.left == 0 {
				s.left, s.token = len(tokenText(0)), string([]byte{c})
			} else if s.token != "" {
				s.token += string([]byte{c})
			}
			if s.left--; slices.Contains(not, s.token) {
				return s, false
			}
			if s.left == 0 || !begins(not, s.token) {
				s.token = ""
			}
			return s, true
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
	}, func(s state) bool { return s.left == 0 })
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
