// Package stored says in which types the weights of a set are kept.
package stored

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"talf/compute"
	"talf/model/ggml"
	"talf/model/safetensors"
)

// Type returns the type to load a set's weights as onto a device with abilities a, which rounds nothing, or as little
// as the device can: Stored, or Q4 where a device has only that, for blocks; Q8 if the set has integers of that type,
// and no blocks; Stored for other floating-point numbers of 16 bits; and otherwise F32. The scales of a matrix in Q8 have
// its name and the suffix scales.
func Type(set *safetensors.Set, scales string, a compute.DeviceAbilities) compute.DType {
	as := compute.F32
	for _, name := range set.Names() {
		t, _ := set.Describe(name)
		switch b := ggml.Blocks(t.DType); {
		case b != nil && a.Stored:
			return compute.Stored
		case b != nil:
			if len(Kept(set, a)) > 0 {
				return compute.Q4
			}
			return compute.Q8
		case t.DType == "I8":
			if _, ok := set.Describe(name + scales); ok {
				as = compute.Q8
			}
		case as == compute.F32 && a.Stored && len(t.Shape) == 2 && (t.DType == "F16" || t.DType == "BF16"):
			as = compute.Stored
		}
	}
	return as
}

// Kept returns the matrices of a set that weights as Q4 and Stored keep as they are stored on a device with abilities a,
// each with the kind of its blocks.
func Kept(set *safetensors.Set, a compute.DeviceAbilities) map[string]compute.Kept {
	kept := make(map[string]compute.Kept)
	for _, name := range set.Names() {
		t, _ := set.Describe(name)
		if b := ggml.Blocks(t.DType); b != nil && b.Kept() != compute.NotKept && a.Keeps != nil && a.Keeps(b.Kept()) {
			kept[name] = b.Kept()
		}
	}
	return kept
}

// Floats returns the types of the matrices of a set that are floating-point numbers.
func Floats(set *safetensors.Set) map[string]compute.DType {
	floats := make(map[string]compute.DType)
	for _, name := range set.Names() {
		t, _ := set.Describe(name)
		if as, ok := map[string]compute.DType{"F32": compute.F32, "F16": compute.F16, "BF16": compute.BF16}[t.DType]; ok && len(t.Shape) == 2 {
			floats[name] = as
		}
	}
	return floats
}

// Function names what the packed weights of a set are in the identity of a function, and returns the type that says
// what activations are rounded to. Floating-point numbers as Stored have the products of F32. Q4 names the kinds of
// blocks that earlier releases rounded to Q8.
func Function(as compute.DType, set *safetensors.Set, kept map[string]compute.Kept) (string, compute.DType) {
	switch as {
	case compute.Stored:
		if !integers(set) {
			as = compute.F32
		}
	case compute.Q4:
		var names []string
		for _, k := range slices.Sorted(maps.Values(kept)) {
			switch k {
			case compute.KeptQ4_0, compute.KeptQ4_K, compute.KeptQ5_0, compute.KeptIQ4_NL: // these were kept, or are exact in Q8
			default:
				names = append(names, k.String())
			}
		}
		if names = slices.Compact(names); len(names) > 0 {
			return "q4 with " + strings.Join(names, ", "), as
		}
	}
	return strings.ToLower(as.String()), as
}

// integers reports whether some matrix of a set is not in floating-point numbers.
func integers(set *safetensors.Set) bool {
	return slices.ContainsFunc(set.Names(), func(name string) bool {
		t, _ := set.Describe(name)
		return t.DType == "I8" || ggml.Blocks(t.DType) != nil
	})
}

// Kinds lists the types of blocks that weights as Q4 and Stored keep on a device with abilities a.
func Kinds(a compute.DeviceAbilities) string {
	var names []string
	for k := compute.KeptQ4_0; k <= compute.KeptMXFP4; k++ {
		if a.Keeps != nil && a.Keeps(k) {
			names = append(names, k.String())
		}
	}
	return strings.Join(names, ", ")
}

// Rounded says which blocks weights as Stored or Q4 do not keep on a device with abilities a, and round to Q8, such as "12
// matrices in Q3_K"; it is "" if there are none. Of MXFP4, which Q8 has but for scales that float16 lacks, it counts all.
func Rounded(set *safetensors.Set, a compute.DeviceAbilities) string {
	count, kept := make(map[string]int), Kept(set, a)
	for _, name := range set.Names() {
		t, _ := set.Describe(name)
		if b := ggml.Blocks(t.DType); b != nil && len(t.Shape) == 2 && kept[name] == compute.NotKept && (!b.Exact() || b.Varies()) {
			count[t.DType]++
		}
	}
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(count)) {
		parts = append(parts, fmt.Sprintf("%d matrices in %s", count[name], name))
	}
	return strings.Join(parts, ", ")
}
