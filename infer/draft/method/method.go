// Package method has what methods of drafting have in common: what the table says about
// each, how its drafters are made, and parts that several of them are made of.
package method

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
	Paper  bool // replicates a publication: others are better for whoever has a choice
	// Open returns the maker of drafters with parameters v. It checks all of them before it
	// opens anything.
	Open func(v spec.Values, e Env) (Maker, error)
}

// An Env is what a method may need to know beyond its parameters.
type Env struct {
	Vocab       int           // of the target; 0 if it is not known
	Temperature float64       // at which children are drawn, if they are drawn at random
	Tokenizer   func() string // hash that a file of token ids must carry, asked for where one is opened; nil accepts any
	Source      bool          // there is a draft model to ask
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

// Nodes is the parameter N, which bounds the tree.
func Nodes(preset int) spec.Param {
	return spec.Int("N", preset, 1, tree.MaxNodes, "nodes of the tree, root counted")
}

// Must returns a part that is made from a configuration that was accepted before.
func Must[T any](x T, err error) T {
	if err != nil {
		panic(fmt.Sprintf("draft: a configuration that was accepted is refused: %v", err))
	}
	return x
}
