// Package draft holds the ways to propose a tree, one per file. An implementation
// must pass drafttest.Run.
package draft

import (
	"fmt"

	"talf/infer"
	"talf/internal/spec"
	"talf/tree"
)

// A Method is a line of the table.
type Method struct {
	spec.Line
	Source bool // needs a draft model to ask
	May    bool // asks a draft model if Env says that there is one
	// Open returns the maker of drafters with parameters v. It checks all of them before it
	// opens anything.
	Open func(v spec.Values, e Env) (Maker, error)
}

// An Env is what a method may need to know beyond its parameters.
type Env struct {
	Vocab       int     // of the target; 0 if it is not known
	Temperature float64 // at which children are drawn, if they are drawn at random
	Tokenizer   string  // hash that a file of token ids must carry; empty accepts any
	Source      bool    // there is a draft model to ask
}

// A Maker makes the drafters of one specification. What they share, such as a file, is opened
// once.
type Maker struct {
	// New returns a drafter for one sequence at a time.
	New func() infer.Drafter
	// Draw says how its drafters choose children, for which a verifier must be lossless. Chain:
	// none of their nodes has two children.
	Draw  infer.Choice
	Chain bool
	// At returns the maker for a temperature above 0, which shares everything with this one; nil
	// if drafts are the same at all of them.
	At func(temperature float64) Maker
	// Learns: its drafters share what they learn, so a request drafts differently after others.
	Learns bool
	// Files lists the files that were read: other contents mean other drafts.
	Files []string
	// Close releases what the drafters share, once none is in use; nil if there is
	// nothing.
	Close func() error
}

// A FileError says that a file named in a specification cannot be used. Open's other
// errors are mistakes in the specification itself.
type FileError struct{ Err error }

func (e FileError) Error() string { return e.Err.Error() }
func (e FileError) Unwrap() error { return e.Err }

// Methods lists every drafter.
func Methods() []Method {
	return []Method{
		arMethod(), linearMethod(), fixedMethod(), dynatreeMethod(), staticMethod(), sequoiaMethod(), beamMethod(), optimalMethod(), salfMethod(),
		pldMethod(), suffixMethod(), recycleMethod(), isotropicMethod(), gooseMethod(), restMethod(), lookaheadMethod(), fuseMethod(), autoMethod(),
	}
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

// nodesParam is the parameter N, which bounds the tree.
func nodesParam(preset int) spec.Param {
	return spec.Int("N", preset, 1, tree.MaxNodes, "nodes of the tree, root counted")
}
