// Package synth makes models for measuring cost rather than for their output: random
// weights of a given shape, and existing models deepened by layers that change nothing.
package synth

import (
	"fmt"

	"talf/model"
	"talf/model/arch"
	"talf/model/safetensors"
)

// Deepen returns a model with the given number of layers that computes the same as the
// model of spec and set but costs as much as a deeper one. The added layers are copies
// of the model's own, the first one after the last, whose output projections are zero, so they add
// nothing to the residual stream. The result is a cost model of a larger target: as with a large
// target, a draft head takes a smaller share of a pass, while acceptance lengths stay
// the same. The new set shares set's data.
func Deepen(spec *arch.Spec, set *safetensors.Set, layers int) (*arch.Spec, *safetensors.Set, error) {
	if layers < spec.Layers {
		return nil, nil, fmt.Errorf("deepen to %d layers: the model already has %d", layers, spec.Layers)
	}
	deep := *spec
	deep.Layers = layers
	deep.Windows, deep.Unrotated = again(spec.Windows, layers), again(spec.Unrotated, layers)
	deep.Mixture.Dense, deep.Delta.Layers = again(spec.Mixture.Dense, layers), again(spec.Delta.Layers, layers)
	var out []safetensors.Tensor
	for _, name := range set.Names() {
		t, _ := set.Tensor(name)
		out = append(out, t)
	}
	names := make(map[arch.Tensor]string) // of spec's tensors
	for _, t := range spec.Tensors() {
		key := t
		key.Name = ""
		names[key] = t.Name
	}
	zeros := map[int][]byte{} // by size in bytes
	for _, t := range deep.Tensors() {
		if t.Layer < spec.Layers {
			continue
		}
		key := t
		key.Name, key.Layer = "", t.Layer%spec.Layers
		for _, suffix := range []string{"", model.ScaleSuffix} {
			x, ok := set.Tensor(names[key] + suffix)
			if !ok {
				continue // no scales, or a tensor whose absence loading will report
			}
			if toResidual(t.Role) {
				if zeros[len(x.Data)] == nil {
					zeros[len(x.Data)] = make([]byte, len(x.Data))
				}
				x.Data = zeros[len(x.Data)]
			}
			x.Name = t.Name + suffix
			out = append(out, x)
		}
	}
	return &deep, safetensors.Of(fmt.Sprintf("%s deepened to %d layers", set.Name, layers), out...), nil
}

// again returns one entry for each of n layers, where there are entries: those of the first layers
// follow those of the last.
func again[T any](of []T, n int) []T {
	if of == nil {
		return nil
	}
	out := make([]T, n)
	for i := range out {
		out[i] = of[i%len(of)]
	}
	return out
}

// toResidual reports whether the outputs of a tensor are added to the residual stream.
func toResidual(r arch.Role) bool {
	switch r {
	case arch.O, arch.DeltaOut, arch.Down, arch.ExpertDown, arch.SharedDown:
		return true
	}
	return false
}
