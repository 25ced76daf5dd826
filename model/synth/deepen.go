// Package synth makes models whose cost is of interest rather than their output: random
// weights of a given shape, and existing models deepened by layers that change nothing.
package synth

import (
	"fmt"
	"strings"

	"talf/model/arch"
	"talf/model/safetensors"
)

// Deepen returns a model with the given number of layers that computes what the model of
// spec and set computes but costs what a deeper one does. The layers it adds are copies of
// the model's own whose output projections are zero, so they add nothing to the residual
// stream. The result is a cost model of a larger target: as with a large target, a draft
// head takes a smaller share of a pass, while acceptance lengths stay what they were. The
// new set shares set's data.
func Deepen(spec *arch.Spec, set *safetensors.Set, layers int) (*arch.Spec, *safetensors.Set, error) {
	if layers < spec.Layers {
		return nil, nil, fmt.Errorf("deepen to %d layers: the model has %d already", layers, spec.Layers)
	}
	deep, n := *spec, &spec.Names
	deep.Layers = layers
	var out []safetensors.Tensor
	byLayer := make([][]safetensors.Tensor, spec.Layers) // names without the layer's prefix
	for _, name := range set.Names() {
		t, _ := set.Tensor(name)
		out = append(out, t)
		for l := range byLayer {
			if rest, ok := strings.CutPrefix(name, n.In(l, "")); ok {
				t.Name = rest
				byLayer[l] = append(byLayer[l], t)
			}
		}
	}
	zeros := map[int][]byte{} // by size in bytes
	for l := spec.Layers; l < layers; l++ {
		for _, t := range byLayer[l%spec.Layers] {
			if strings.HasPrefix(t.Name, n.O+".") || strings.HasPrefix(t.Name, n.Down+".") {
				if zeros[len(t.Data)] == nil {
					zeros[len(t.Data)] = make([]byte, len(t.Data))
				}
				t.Data = zeros[len(t.Data)]
			}
			t.Name = n.In(l, t.Name)
			out = append(out, t)
		}
	}
	return &deep, safetensors.Of(fmt.Sprintf("%s deepened to %d layers", set.Name, layers), out...), nil
}
