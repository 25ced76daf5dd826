// Package verify holds the rules that choose which drafted path to keep, one per file. An
// implementation must pass verifytest.Lossless.
package verify

import (
	"fmt"
	"slices"
	"strings"

	"talf/infer"
	"talf/internal/spec"
)

// A Method is a line of the table.
type Method struct {
	spec.Line
	// Greedy rules reproduce decoding at temperature 0, the others sampling.
	Greedy bool
	// Draws are the ways to choose children for which the rule is lossless. In a chain, where a
	// node has one child, drawing with and without replacement are the same.
	Draws []infer.Choice
	// Chain rules look only at chains: in a tree, at the first child of each node.
	Chain bool
	// Exact rules reproduce plain decoding with the same seed token for token; the others have
	// its distribution.
	Exact bool
	New   func() infer.Verifier
}

// Names lists the names of all verifiers.
func Names() (out []string) {
	for _, m := range Methods() {
		out = append(out, m.Name)
	}
	return out
}

// Methods lists every verifier.
func Methods() []Method {
	const chosen, distinct, repeated = infer.Chosen, infer.Distinct, infer.Repeated
	return []Method{
		{
			Line:   spec.Line{Name: "greedy", Doc: "walk along the target's argmax (temperature 0)"},
			Greedy: true, Draws: []infer.Choice{chosen, distinct, repeated}, Exact: true,
			New: func() infer.Verifier { return new(Greedy) },
		},
		{
			Line:  spec.Line{Name: "target", Doc: "sample from the target, follow the child that carries the sample"},
			Draws: []infer.Choice{chosen, distinct, repeated}, Exact: true,
			New: func() infer.Verifier { return new(Target) },
		},
		{
			Line:  spec.Line{Name: "rrs", Doc: "SpecInfer's recursive rejection sampling"},
			Draws: []infer.Choice{repeated},
			New:   func() infer.Verifier { return NewRRS() },
		},
		{
			Line:  spec.Line{Name: "rrsw", Doc: "recursive rejection sampling without replacement"},
			Draws: []infer.Choice{distinct},
			New:   func() infer.Verifier { return NewRRSW() },
		},
		{
			Line:  spec.Line{Name: "block", Doc: "Block Verification: a chain is accepted as a whole, from its end"},
			Draws: []infer.Choice{distinct, repeated}, Chain: true,
			New: func() infer.Verifier { return new(Block) },
		},
		{
			Line:  spec.Line{Name: "traversal", Doc: "Traversal Verification: paths are accepted as a whole, from the leaves up"},
			Draws: []infer.Choice{distinct},
			New:   func() infer.Verifier { return new(Traversal) },
		},
	}
}

// Find returns the line of the verifier called name.
func Find(name string) (Method, error) {
	m, _, err := spec.Table[Method]{Kind: "verifier", Lines: Methods()}.Parse(name)
	if err != nil {
		err = fmt.Errorf("verify: %w", err)
	}
	return m, err
}

// Fits reports whether m is lossless with children chosen by d; chain says that no node has two.
func (m *Method) Fits(d infer.Choice, chain bool) bool {
	if m.Chain && !chain {
		return false
	}
	return slices.Contains(m.Draws, d) ||
		chain && d != infer.Chosen && (slices.Contains(m.Draws, infer.Distinct) || slices.Contains(m.Draws, infer.Repeated))
}

// Check returns an error unless the verifier called name is lossless with children chosen by d;
// the error says what would work. chain says that no node has two children. The name "" stands
// for a verifier that suits every tree.
func Check(name string, d infer.Choice, chain bool) error {
	if name == "" {
		return nil
	}
	m, err := Find(name)
	if err != nil || m.Fits(d, chain) {
		return err
	}
	var others []string
	for _, o := range Methods() {
		if o.Greedy == m.Greedy && o.Fits(d, chain) {
			others = append(others, o.Name)
		}
	}
	fit := strings.Join(others, " or ")
	if m.Chain && d != infer.Chosen {
		return fmt.Errorf("%s is for chains, and of these trees would see the first child of each node alone: use %s for children %s", name, fit, d)
	}
	var ways []string
	for _, w := range m.Draws {
		ways = append(ways, w.String())
	}
	return fmt.Errorf("%s is not lossless with children %s: use %s, or a method with children %s",
		name, d, fit, strings.Join(ways, " or "))
}

// Cut splits METHOD@VERIFIER; named reports whether text names a verifier.
func Cut(text string) (method, verifier string, named bool) {
	if i := strings.LastIndexByte(text, '@'); i >= 0 {
		return text[:i], text[i+1:], true
	}
	return text, "", false
}

// Default returns the verifier that is lossless with every tree: greedy at
// temperature 0, target above.
func Default(temperature float64) string {
	if temperature == 0 {
		return "greedy"
	}
	return "target"
}

// New returns the verifier called name for decoding at a temperature; "" is Default.
func New(name string, temperature float64) (infer.Verifier, error) {
	if name == "" {
		name = Default(temperature)
	}
	m, err := Find(name)
	if err != nil {
		return nil, err
	}
	if m.Greedy != (temperature == 0) {
		return nil, fmt.Errorf("verify: %s is not lossless at temperature %v: greedy is for 0, the others for sampling", name, temperature)
	}
	return m.New(), nil
}

// child returns n's live child that carries token, or -1.
func child(p *infer.Proposal, n int, token int32) int {
	if c := p.Tree.Child(n, token); c >= 0 && c < p.LiveNodes() {
		return c
	}
	return -1
}
