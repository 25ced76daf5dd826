// Package draft holds the ways to propose a tree, one file each. An
// implementation must pass drafttest.Run.
package draft

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"talf/infer"
)

// A Method is a line of the table.
type Method struct {
	Name   string
	Doc    string
	Source bool // needs a draft model to ask
	May    bool // asks a draft model where Env says that there is one
	Params []Param
	// Main names the parameter that may be given first and without its key, such
	// as the shape in "static:chain-5"; empty where there is none.
	Main string
	// Open checks the values of p and returns what makes drafters. It reads them
	// all before it opens anything.
	Open func(p *Params, e Env) (Maker, error)
}

// An Env is what a method may need to know beside its parameters.
type Env struct {
	Vocab       int     // of the target; 0 where it is not known
	Temperature float64 // that children are drawn at where they are drawn at random
	Tokenizer   string  // hash that a file of token ids must carry; empty accepts any
	Source      bool    // there is a draft model to ask
}

// A Maker makes the drafters of one specification. What they share, such as a
// file, is opened once.
type Maker struct {
	// New returns a drafter, for one sequence at a time.
	New func() infer.Drafter
	// Draw says how its drafters choose children: a verifier must be lossless
	// with that. Chain: none of their nodes has two children.
	Draw  infer.Draw
	Chain bool
	// Close gives back what drafters share, once none is in use; nil where there
	// is nothing.
	Close func() error
}

func (m *Maker) close() {
	if m.Close != nil {
		_ = m.Close()
	}
}

// A FileError is a file that a specification names and that cannot be used.
// Open's other errors are mistakes in the specification itself.
type FileError struct{ Err error }

func (e FileError) Error() string { return e.Err.Error() }
func (e FileError) Unwrap() error { return e.Err }

// A Param is a key of a method's specification.
type Param struct {
	Name, Default, Doc string
}

// Methods lists every drafter.
func Methods() []Method {
	return []Method{
		ar(), linear(), fixed(), dynatree(), static(), sequoia(), beam(), optimal(), salf(),
		pld(), recycle(), isotropic(), goose(), rest(), lookahead(), fuse(), auto(),
	}
}

// Params are the values of one specification, defaults filled in. The first bad
// value is kept and returned by Open.
type Params struct {
	values map[string]string
	err    error
}

// String returns key's value.
func (p *Params) String(key string) string {
	v, ok := p.values[key]
	if !ok {
		panic("draft: the table has no parameter " + key)
	}
	return v
}

// Int returns key's value as a whole number.
func (p *Params) Int(key string) int {
	n, err := strconv.Atoi(p.String(key))
	if err != nil && p.err == nil {
		p.err = fmt.Errorf("%s is %q, want a whole number", key, p.String(key))
	}
	return n
}

// Float returns key's value as a number.
func (p *Params) Float(key string) float64 {
	x, err := strconv.ParseFloat(p.String(key), 64)
	if err != nil && p.err == nil {
		p.err = fmt.Errorf("%s is %q, want a number", key, p.String(key))
	}
	return x
}

// FloatOrAuto returns key's value as a number, or that it is "auto".
func (p *Params) FloatOrAuto(key string) (x float64, auto bool) {
	if p.String(key) == "auto" {
		return 0, true
	}
	x, err := strconv.ParseFloat(p.String(key), 64)
	if err != nil && p.err == nil {
		p.err = fmt.Errorf("%s is %q, want auto or a number", key, p.String(key))
	}
	return x, false
}

// Choice returns which of some words key's value is.
func (p *Params) Choice(key string, words ...string) int {
	i := slices.Index(words, p.String(key))
	if i < 0 && p.err == nil {
		p.err = fmt.Errorf("%s is %q, want %s or %s", key, p.String(key), strings.Join(words[:len(words)-1], ", "), words[len(words)-1])
	}
	return max(i, 0)
}

// On returns whether key's value is "on" and not "off".
func (p *Params) On(key string) bool { return p.Choice(key, "on", "off") == 0 }

// Find reads a specification such as "salf:th=0.4,N=60" and returns its method
// and values. Unknown names and keys are refused with what is known.
func Find(spec string) (Method, *Params, error) {
	name, rest, _ := strings.Cut(spec, ":")
	var names []string
	for _, m := range Methods() {
		if m.Name != name {
			names = append(names, m.Name)
			continue
		}
		p, err := m.Read(rest)
		if err != nil {
			return Method{}, nil, fmt.Errorf("draft: method %q: %w", spec, err)
		}
		return m, p, nil
	}
	return Method{}, nil, fmt.Errorf("draft: unknown method %q, want one of %s", name, strings.Join(names, ", "))
}

// Read reads the parameters of a specification, what follows the name and its
// colon. Unknown keys are refused with those that are known.
func (m Method) Read(rest string) (*Params, error) {
	p := &Params{values: map[string]string{}}
	var keys []string
	for _, q := range m.Params {
		p.values[q.Name] = q.Default
		keys = append(keys, q.Name)
	}
	known := "it has no parameters"
	if len(keys) > 0 {
		known = "known are " + strings.Join(keys, ", ")
	}
	if rest == "" {
		return p, nil
	}
	var seen []string
	for i, item := range strings.Split(rest, ",") {
		key, value, ok := strings.Cut(item, "=")
		// Methods within a value bring their own colons and equals signs.
		bare := !ok && !slices.Contains(keys, item) || strings.ContainsAny(key, ":+")
		if i == 0 && m.Main != "" && bare {
			key, value, ok = m.Main, item, true
		}
		switch {
		case !slices.Contains(keys, key):
			return nil, fmt.Errorf("unknown parameter %q: %s", key, known)
		case !ok:
			return nil, fmt.Errorf("parameter %q has no value, want %s=…", key, key)
		case slices.Contains(seen, key):
			return nil, fmt.Errorf("parameter %q is given twice", key)
		}
		seen = append(seen, key)
		p.values[key] = value
	}
	return p, nil
}

// Open returns what makes drafters for a specification, and its line of the
// table. The caller closes the maker.
func Open(spec string, e Env) (*Maker, Method, error) {
	m, p, err := Find(spec)
	if err != nil {
		return nil, Method{}, err
	}
	mk, err := m.Open(p, e)
	if p.err != nil {
		err = p.err // what is made of a bad value says less than the value
		mk.close()
	}
	if err != nil {
		return nil, Method{}, fmt.Errorf("draft: method %q: %w", spec, err)
	}
	if mk.Close == nil {
		mk.Close = func() error { return nil }
	}
	return &mk, m, nil
}

// New returns one drafter for a specification of a method whose drafters share
// nothing, and its line of the table.
func New(spec string) (infer.Drafter, Method, error) {
	mk, m, err := Open(spec, Env{})
	if err != nil {
		return nil, Method{}, err
	}
	return mk.New(), m, nil
}
