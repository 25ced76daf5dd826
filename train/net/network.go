package net

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"talf/internal/spec"
	"talf/model/arch"
)

// A Network is a kind of draft head, as a user asks for it.
type Network struct {
	spec.Line
	eagle3 arch.Eagle3
	block  arch.Block // Mask is −1 for the last of the target's tokens
}

// networks returns the kinds of draft heads, in the order of help and errors.
func networks() []Network {
	return []Network{
		{Line: spec.Line{Name: "eagle", Doc: "EAGLE-1 and 2: fc over embedding and hidden state, the target's LM head"}},
		{eagle3: arch.Eagle3{On: true}, Line: spec.Line{
			Name: "eagle3", Doc: "EAGLE-3: fc over the target's states at three layers, an LM head of its own",
			Params: []spec.Param{
				spec.Text("taps", "", "the layers before which the target's states are read, such as 2+8+13 (left out: those of the data, or 2, half of the layers, and 3 less than all)"),
				spec.Switch("norm_before_fc", false, "one norm over all that fc reads"),
				spec.Switch("fc_norm", false, "a norm of each state before fc (EAGLE 3.1)"),
				spec.Switch("norm_before_residual", false, "the residual stream begins after the norm of the fused state"),
				spec.Switch("norm_output", false, "what is fed back is normed (EAGLE 3.1)"),
			},
		}},
		{block: arch.Block{On: true}, Line: spec.Line{
			Name: "block", Doc: "block drafters: several tokens in one pass, with the target's embedding and LM head (DFlash, DFlash 2, DSpark, JetSpec)",
			Params: blockParams(),
		}},
	}
}

// ParseNetwork parses a specification such as "eagle" or "eagle3:taps=2+8+13". "" is "eagle".
func ParseNetwork(text string) (Network, error) {
	if text == "" {
		text = "eagle"
	}
	n, v, err := spec.Table[Network]{Kind: "network", Lines: networks()}.Parse(text)
	if err != nil {
		return n, err
	}
	fail := func(format string, args ...any) (Network, error) {
		return Network{}, fmt.Errorf("network %q: %w", text, fmt.Errorf(format, args...))
	}
	switch {
	case n.block.On:
		if err := readBlock(&n.block, v); err != nil {
			return fail("%w", err)
		}
		return n, nil
	case !n.eagle3.On:
		return n, nil
	}
	e := &n.eagle3
	e.NormBeforeFC, e.FCNorm = v.On("norm_before_fc"), v.On("fc_norm")
	e.NormBeforeResidual, e.NormOutput = v.On("norm_before_residual"), v.On("norm_output")
	if e.NormBeforeFC && e.FCNorm {
		return fail("norm_before_fc and fc_norm are both on, want one of them")
	}
	if text := v.Text("taps"); text != "" {
		var err error
		if e.Taps, err = arch.ParseTaps(text); err == nil {
			err = arch.CheckEagle3Taps(e.Taps)
		}
		if err != nil {
			return fail("taps is %q: %w", text, err)
		}
	}
	return n, nil
}

// Eagle3 reports whether it is an EAGLE-3 head.
func (n *Network) Eagle3() bool { return n.eagle3.On }

// Tapped reports whether it reads the target's states at some layers, as EAGLE-3 and block heads do.
func (n *Network) Tapped() bool { return n.eagle3.On || n.block.On }

// Linear reports whether a head can start as the best linear prediction of the target's next hidden states.
func (n *Network) Linear() bool { return !n.Tapped() || n.block.Linear }

// Spec returns the specification of a head of so many layers for a target. stored are the taps of the data,
// nil if they have none.
func (n *Network) Spec(target *arch.Spec, layers, draftVocab int, fcBias bool, stored []int) (*arch.Spec, error) {
	if n.block.On {
		return n.blockSpec(target, layers, draftVocab, fcBias, stored)
	}
	s, err := n.eagle(target, draftVocab, fcBias, stored)
	if err == nil {
		s.Layers = layers
	}
	return s, err
}

// eagle is Spec of a head of EAGLE's kind, with one layer.
func (n *Network) eagle(target *arch.Spec, draftVocab int, fcBias bool, stored []int) (*arch.Spec, error) {
	if !n.eagle3.On {
		s := target.DraftFor(fcBias)
		s.DraftVocab = draftVocab
		return s, nil
	}
	s := target.Eagle3For(nil, draftVocab)
	s.Eagle3, s.FCBias = n.eagle3, fcBias
	if s.Eagle3.Taps == nil {
		s.Eagle3.Taps = stored
	}
	at, err := s.TapsOf(target)
	if err != nil {
		return nil, fmt.Errorf("network eagle3: %w", err)
	}
	if preset, err := arch.DefaultTaps(target.Layers); err == nil && slices.Equal(at, preset) {
		s.Eagle3.Taps = nil // what all readers assume
	}
	return s, nil
}

// NetworkOf returns a specification that ParseNetwork reads as the network of a head: of an EAGLE-3 or
// block head with the taps at.
func NetworkOf(s *arch.Spec, at []int) string {
	var words []string
	for _, b := range at {
		words = append(words, strconv.Itoa(b))
	}
	taps := "taps=" + strings.Join(words, "+")
	switch {
	case s.Block.On:
		return blockNetwork(&s.Block, taps)
	case !s.Eagle3.On:
		return ""
	}
	text := "eagle3:" + taps
	for _, f := range []struct {
		name string
		on   bool
	}{
		{"norm_before_fc", s.Eagle3.NormBeforeFC},
		{"fc_norm", s.Eagle3.FCNorm},
		{"norm_before_residual", s.Eagle3.NormBeforeResidual},
		{"norm_output", s.Eagle3.NormOutput},
	} {
		if f.on {
			text += "," + f.name + "=on"
		}
	}
	return text
}
