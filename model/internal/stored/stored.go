// Package stored says in which types the weights of a set are kept.
package stored

import (
	"talf/compute"
	"talf/model/ggml"
	"talf/model/safetensors"
)

// Type returns the type to load a set's weights as: Q8 if they are stored that way or
// in the blocks of a GGUF file, otherwise F32. Q8 does not have the values of all
// blocks: see package quantize. The scales of a matrix have its name and the suffix scales.
func Type(set *safetensors.Set, scales string) compute.DType {
	for _, name := range set.Names() {
		t, _ := set.Describe(name)
		if ggml.Blocks(t.DType) != nil {
			return compute.Q8
		}
		if t.DType == "I8" {
			if _, ok := set.Describe(name + scales); ok {
				return compute.Q8
			}
		}
	}
	return compute.F32
}

// FourBit returns the matrices of a set that weights as Q4 keep as they are stored: in blocks of
// 4-bit integers.
func FourBit(set *safetensors.Set) map[string]bool {
	four := make(map[string]bool)
	for _, name := range set.Names() {
		t, _ := set.Describe(name)
		if b := ggml.Blocks(t.DType); b != nil && b.FourBit() != compute.NotFourBit {
			four[name] = true
		}
	}
	return four
}
