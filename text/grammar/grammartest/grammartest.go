// Package grammartest enumerates what grammars allow, for comparison with other ways to say it.
package grammartest

import (
	"fmt"

	"talf/text/grammar"
)

// Bytes is a vocabulary whose token c is the byte c.
func Bytes() *grammar.Vocabulary {
	v, err := grammar.NewVocabulary(grammar.Speller{Size: 256, Bytes: func(id int32) ([]byte, bool) { return []byte{byte(id)}, true }})
	if err != nil {
		panic(err)
	}
	return v
}

// Words is a vocabulary of the given tokens.
func Words(tokens ...string) *grammar.Vocabulary {
	v, err := grammar.NewVocabulary(grammar.Speller{Size: len(tokens), Bytes: func(id int32) ([]byte, bool) { return []byte(tokens[id]), true }})
	if err != nil {
		panic(err)
	}
	return v
}

// Texts returns all texts of g with at most most bytes, in order. It fails if a beginning of one is
// reached after which no byte is allowed, although the text may not end there: an answer would
// get stuck in it.
func Texts(g *grammar.Grammar, most int) ([]string, error) {
	a, err := grammar.NewAutomaton(g, Bytes())
	if err != nil {
		return nil, err
	}
	var out []string
	text := make([]byte, 0, most)
	var walk func(s *grammar.State) error
	walk = func(s *grammar.State) error {
		if s.Accepting() {
			out = append(out, string(text))
		}
		mask, err := a.Mask(s)
		if err != nil {
			return err
		}
		if !mask.Any() && !s.Accepting() {
			return fmt.Errorf("nothing may follow %q, which may not end there", text)
		}
		if s.Complete() != (s.Accepting() && !mask.Any()) {
			return fmt.Errorf("after %q: complete is %v with %d bytes to follow", text, s.Complete(), mask.Count())
		}
		if len(text) == most {
			return nil
		}
		for c := range int32(256) {
			if mask.Has(c) {
				text = append(text, byte(c))
				if err := walk(a.Next(s, c)); err != nil {
					return err
				}
				text = text[:len(text)-1]
			}
		}
		return nil
	}
	return out, walk(a.Start())
}
