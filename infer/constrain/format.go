// Package constrain decodes answers that match a grammar. Its Processor takes every token that
// the grammar does not allow out of the distribution, before penalties, temperature and
// truncation, and does so at every node of a draft tree with the node's own path: verifiers see the
// distribution of constrained plain decoding and need to know nothing of it.
package constrain

import (
	"errors"
	"fmt"

	"talf/text/grammar"
	"talf/text/grammar/gbnf"
	"talf/text/grammar/regex"
	"talf/text/grammar/schema"
	"talf/text/tokenizer"
)

// A Kind is a language that formats are written in.
type Kind string

// The kinds.
const (
	Free Kind = ""     // no format
	JSON Kind = "json" // any JSON object; no text
	// Schema is a JSON Schema, of draft 2020-12 unless it names another.
	Schema Kind = "json-schema"
	Regex  Kind = "regex" // a regular expression of ECMA-262, for the whole answer
	GBNF   Kind = "gbnf"  // rules in the format of llama.cpp
)

// A Format is what an answer has to match. The zero value is any text.
type Format struct {
	Kind Kind
	Text string `json:",omitzero"`
	// JSON widens JSON and Schema.
	JSON schema.Config `json:",omitzero"`
}

// Compile returns the grammar of a format; nil if it is any text.
func (f Format) Compile() (*grammar.Grammar, error) {
	if f.Kind == Free {
		return nil, nil
	}
	b := grammar.NewBuilder()
	e, err := f.Add(b)
	if err != nil {
		return nil, err
	}
	g, err := b.Compile(e)
	if f.Kind == Schema && errors.Is(err, grammar.ErrNothing) {
		err = fmt.Errorf("JSON schema: no value is valid: %w", err)
	}
	return g, err
}

// Check reports what is wrong with a format.
func (f Format) Check() error {
	_, err := f.Compile()
	return err
}

// Add adds what matches a format, which is not Free, to b.
func (f Format) Add(b *grammar.Builder) (grammar.Expr, error) {
	switch f.Kind {
	case JSON:
		return f.JSON.Object(b), nil
	case Schema:
		return f.JSON.Compile(b, []byte(f.Text))
	case Regex:
		return regex.Compile(b, f.Text, regex.Config{})
	case GBNF:
		return gbnf.Compile(b, f.Text)
	}
	return 0, fmt.Errorf("format %q, want %s, %s, %s or %s", f.Kind, JSON, Schema, Regex, GBNF)
}

// A Constraint is a format for the answers of one target. It is safe for concurrent use, and the
// longer it is used the more it remembers.
type Constraint struct {
	Automaton *grammar.Automaton
	Ends      []int32 // tokens that end an answer
	// Encode, if not nil, turns text into tokens as the model has learnt it, so that what has to come
	// can be drafted.
	Encode func(text string) ([]int32, error)
}

// New compiles a format.
func New(f Format, v *grammar.Vocabulary, ends []int32) (*Constraint, error) {
	g, err := f.Compile()
	if err != nil || g == nil {
		return nil, err
	}
	return NewGrammar(g, v, ends)
}

// NewGrammar is New for a grammar.
func NewGrammar(g *grammar.Grammar, v *grammar.Vocabulary, ends []int32) (*Constraint, error) {
	a, err := grammar.NewAutomaton(g, v)
	if err != nil {
		return nil, err
	}
	if a.Start().Complete() {
		return nil, errors.New("grammar: it allows no text but the empty one")
	}
	return &Constraint{Automaton: a, Ends: ends}, nil
}

// NewFor is New for a tokenizer, whose vocabulary v is.
func NewFor(f Format, t *tokenizer.Tokenizer, v *grammar.Vocabulary, ends []int32) (*Constraint, error) {
	c, err := New(f, v, ends)
	if c != nil {
		c.Encode = Encoder(t)
	}
	return c, err
}

// Encoder returns what turns the text of a grammar into tokens of t, which may be among it
// (grammar.Builder.Token).
func Encoder(t *tokenizer.Tokenizer) func(text string) ([]int32, error) {
	return func(text string) (ids []int32, err error) {
		err = grammar.Tokens([]byte(text), func(s []byte) error {
			more, err := t.Encode(string(s), false)
			ids = append(ids, more...)
			return err
		}, func(id int32) error {
			ids = append(ids, id)
			return nil
		})
		return ids, err
	}
}

// Vocabulary returns the tokens of a tokenizer as bytes, for a model with size rows of logits.
func Vocabulary(t *tokenizer.Tokenizer, size int) (*grammar.Vocabulary, error) {
	return grammar.NewVocabulary(grammar.Speller{
		Size:  size,
		Bytes: t.Text,
		First: t.FirstText,
		Added: t.Known,
	})
}
