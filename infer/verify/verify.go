// Package verify holds the rules that choose which drafted path to keep, one
// file each. An implementation must pass verifytest.Lossless.
package verify

import (
	"fmt"
	"strings"

	"talf/infer"
)

// A Method is a line of the table.
type Method struct {
	Name string
	Doc  string
	// Greedy rules reproduce decoding at temperature 0, the others sampling.
	Greedy bool
	// Drawn says that children may be drawn at random from Proposal.Q.
	Drawn bool
	New   func() infer.Verifier
}

// Methods lists every verifier.
func Methods() []Method {
	return []Method{
		{
			Name: "greedy", Doc: "walk along the target's argmax (temperature 0)", Greedy: true, Drawn: true,
			New: func() infer.Verifier { return new(Greedy) },
		},
		{
			Name: "target", Doc: "sample from the target, follow the child that carries the sample", Drawn: true,
			New: func() infer.Verifier { return new(Target) },
		},
	}
}

// New returns the verifier name for decoding at a temperature; "" chooses the
// one that is lossless with every tree: greedy at 0, target above.
func New(name string, temperature float64) (infer.Verifier, error) {
	if name == "" {
		name = "target"
		if temperature == 0 {
			name = "greedy"
		}
	}
	var names []string
	for _, m := range Methods() {
		if m.Name != name {
			names = append(names, m.Name)
			continue
		}
		if m.Greedy != (temperature == 0) {
			return nil, fmt.Errorf("verify: %s is not lossless at temperature %v: greedy is for 0, the others for sampling", name, temperature)
		}
		return m.New(), nil
	}
	return nil, fmt.Errorf("verify: unknown verifier %q, want one of %s", name, strings.Join(names, ", "))
}

// child returns n's live child that carries token, or -1.
func child(p *infer.Proposal, n int, token int32) int {
	if c := p.Tree.Child(n, token); c >= 0 && c < p.LiveNodes() {
		return c
	}
	return -1
}
