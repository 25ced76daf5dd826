// Package stored says in which types the weights of a set are kept.
package stored

import (
	"maps"
	"slices"
	"strings"

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

// Name names the type of packed weights, of which some are kept, in the identity of a function. Q4 keeps Q6_K, too: "q4" alone is
// what earlier releases called files whose Q6_K they rounded to Q8.
func Name(as compute.DType, kept map[string]compute.Kept) string {
	if as == compute.Q4 && slices.Contains(slices.Collect(maps.Values(kept)), compute.SixBit) {
		return "q4 with Q6_K"
	}
	return strings.ToLower(as.String())
}
