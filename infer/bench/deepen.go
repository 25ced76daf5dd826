package bench

import (
	"fmt"
	"strings"

	"talf/model/arch"
	"talf/model/safetensors"
)

// Deepen returns a model of the given number of layers that computes what the
// one of spec and set computes, and costs what a larger one does: the layers that
// it adds copy others, but their output projections are zero, so they add nothing
// to the residual stream. It is a cost model of larger targets: a draft head
// takes a smaller share of a pass, as it does with a large target, while the
// lengths that are accepted stay what they were. The new set shares set's data.
func Deepen(spec *arch.Spec, set *safetensors.Set, layers int) (*arch.Spec, *safetensors.Set, error) {
	if layers < spec.Layers {
		return nil, nil, fmt.Errorf("deepen to %d layers: the model has %d", layers, spec.Layers)
	}
	deep, n := *spec, &spec.Names
	deep.Layers = layers
	var out []safetensors.Tensor
	of := make([][]safetensors.Tensor, spec.Layers)
	for _, name := range set.Names() {
		t, _ := set.Tensor(name)
		out = append(out, t)
		for l := range of {
			if rest, ok := strings.CutPrefix(name, n.In(l, "")); ok {
				t.Name = rest
				of[l] = append(of[l], t)
			}
		}
	}
	zeros := map[int][]byte{}
	for l := spec.Layers; l < layers; l++ {
		for _, t := range of[l%spec.Layers] {
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
