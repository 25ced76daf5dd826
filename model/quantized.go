package model

import (
	"talf/compute"
	"talf/model/ggml"
	"talf/model/safetensors"
)

// A quantised matrix X is stored as two tensors: X.weight, I8 [rows][cols], and
// X.weight_scale, F16 [rows][⌈cols/compute.Q8Block⌉].
const ScaleSuffix = "_scale"

// MetaSource is the metadata key for the hash of the tensors that a quantised model was
// made from. It is a claim, which says what the model derives from, never what it is: a
// head trained for the original weights also runs with the quantised ones.
const MetaSource = "talf.source_sha256"

// Stored returns the type to load a set's weights as: Q8 if they are stored that way or
// in the blocks of a GGUF file, otherwise F32. Q8 does not have the values of all
// blocks: see package quantize.
func Stored(set *safetensors.Set) compute.DType {
	for _, name := range set.Names() {
		t, _ := set.Describe(name)
		if ggml.Blocks(t.DType) != nil {
			return compute.Q8
		}
		if t.DType == "I8" {
			if _, ok := set.Describe(name + ScaleSuffix); ok {
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

// scales returns the scales of a quantised matrix [rows][cols].
func (l *loader) scales(name string, rows, cols int) []byte {
	name += ScaleSuffix
	t, ok := l.m.set.Tensor(name)
	blocks := (cols + compute.Q8Block - 1) / compute.Q8Block
	switch {
	case !ok:
		l.fail("no tensor %q, want F16 scales of shape [%d %d] for an I8 matrix", name, rows, blocks)
	case t.DType != "F16" || len(t.Shape) != 2 || t.Shape[0] != rows || t.Shape[1] != blocks:
		l.fail("tensor %q is %s of shape %v, want F16 of shape [%d %d]", name, t.DType, t.Shape, rows, blocks)
	}
	return t.Data
}
