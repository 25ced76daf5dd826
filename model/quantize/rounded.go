package quantize

import (
	"talf/compute"
	"talf/model/ggml"
	"talf/model/safetensors"
)

// Rounded returns the matrices whose values Q8 rounds: those that are not Q8 already,
// and not in blocks whose integers and scales it keeps. It reads the blocks of types
// for which that depends on the scales.
func Rounded(set *safetensors.Set) []string {
	var names []string
	for _, name := range set.Names() {
		t, _ := set.Describe(name)
		b := ggml.Blocks(t.DType)
		switch {
		case len(t.Shape) != 2 || b == nil && t.DType != "F32" && t.DType != "F16" && t.DType != "BF16":
		case b == nil || !b.Exact():
			names = append(names, name)
		case b.Varies():
			if t, _ = set.Tensor(name); !exact(b, &t) {
				names = append(names, name)
			}
			set.Release(name, 0, t.Size())
		}
	}
	return names
}

// exact reports whether Q8 has the values of all blocks of a matrix.
func exact(b *ggml.Type, t *safetensors.Tensor) bool {
	cols := t.Shape[1]
	q, d := make([]byte, cols), make([]byte, 2*((cols+compute.Q8Block-1)/compute.Q8Block))
	for r := range t.Shape[0] {
		row := t.Rows(r, r+1)
		if !b.Q8(q, d, row.Data) {
			return false
		}
	}
	return true
}
