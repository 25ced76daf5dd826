package net

import (
	"fmt"

	"talf/compute"
	"talf/model/arch"
)

// Fits refuses a head for which there is no memory, before any of it is taken: in float32 its weights, their gradients
// and two moments. What else a step needs depends on its batch and comes on top.
func Fits(spec *arch.Spec, dev compute.Device) error {
	p := dev.Abilities().Plan
	if p == nil {
		p = dev.Abilities().Account
	}
	if p == nil {
		return nil
	}
	free, err := p.Free()
	if err != nil {
		return fmt.Errorf("train: %w", err)
	}
	weights := int64(0)
	for _, t := range spec.Tensors() {
		if !t.Optional { // the target's
			weights += int64(t.Rows) * int64(max(1, t.Cols))
		}
	}
	if need := 16 * weights; need > free {
		const gib = 1 << 30
		return fmt.Errorf("train: a head of %d weights takes %.1f GiB with gradients and moments, but %s has %.1f GiB free: want fewer layers, a smaller draft vocabulary or more memory",
			weights, float64(need)/gib, dev.Name(), float64(free)/gib)
	}
	return nil
}

// Trains refuses a head whose training takes operations that a device with such abilities lacks.
func Trains(spec *arch.Spec, device string, can compute.Abilities) error {
	b := &spec.Block
	if !b.On || can.Block != nil || b.Linear && b.Markov != arch.GatedMarkov && !b.Confidence {
		return nil
	}
	return fmt.Errorf("train: block heads are trained on the CPU, not on %s, but for linear ones without a gate or a confidence head", device)
}
