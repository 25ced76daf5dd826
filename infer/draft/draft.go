// Package draft holds the ways to propose a tree, one per file, and their table. Those that only
// replicate a publication are in package papers. An implementation must pass drafttest.Run.
package draft

import (
	"fmt"

	"talf/infer"
	"talf/infer/draft/method"
	"talf/infer/draft/papers"
	"talf/internal/spec"
)

// What the table consists of. Package method describes it, so that methods in folders of their own
// need not import the table.
type (
	Method    = method.Method
	Env       = method.Env
	Maker     = method.Maker
	FileError = method.FileError
)

// Methods lists every drafter: first those to choose from, by what they need, then those that
// replicate publications.
func Methods() []Method {
	return append([]Method{
		autoMethod(),
		salfMethod(), optimalMethod(), beamMethod(), dynatreeMethod(), staticMethod(), // these ask a draft model
		suffixMethod(), gooseMethod(), pldMethod(), arMethod(), // these need none
	}, papers.Methods()...)
}

// Find parses a specification such as "salf:th=0.4,N=60" and returns its method and values.
// Errors about unknown names and keys list the known ones.
func Find(text string) (Method, spec.Values, error) {
	m, v, err := spec.Table[Method]{Kind: "method", Lines: Methods()}.Parse(text)
	if err != nil {
		err = fmt.Errorf("draft: %w", err)
	}
	return m, v, err
}

// Open returns the maker of a specification's drafters, and the method's line of the table. The
// caller closes the maker.
func Open(text string, e Env) (*Maker, Method, error) {
	m, v, err := Find(text)
	if err != nil {
		return nil, Method{}, err
	}
	mk, err := m.Open(v, e)
	if err != nil {
		return nil, Method{}, fmt.Errorf("draft: method %q: %w", text, err)
	}
	if mk.Close == nil {
		mk.Close = func() error { return nil }
	}
	return &mk, m, nil
}

// New returns one drafter for a specification of a method whose drafters share nothing, and the
// method's line of the table.
func New(text string) (infer.Drafter, Method, error) {
	mk, m, err := Open(text, Env{})
	if err != nil {
		return nil, Method{}, err
	}
	return mk.New(), m, nil
}
