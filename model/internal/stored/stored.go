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

// Kept returns the matrices of a set that weights as Q4 keep as they are stored, each with the kind of its
// blocks.
func Kept(set *safetensors.Set) map[string]compute.Kept {
	kept := make(map[string]compute.Kept)
	for _, name := range set.Names() {
		t, _ := set.Describe(name)
		if b := ggml.Blocks(t.DType); b != nil && b.Kept() != compute.NotKept {
			kept[name] = b.Kept()
		}
	}
	return kept
}
