package model

import (
	"talf/compute"
	"talf/model/internal/stored"
	"talf/model/safetensors"
)

// A quantised matrix X is stored as two tensors: X.weight, I8 [rows][cols], and
// X.weight_scale, F16 [rows][⌈cols/compute.Q8Block⌉].
const ScaleSuffix = "_scale"

// MetaSource is the metadata key for the hash of the tensors that a quantised model was
// made from. It is a claim, which says what the model derives from, never what it is: a
// head trained for the original weights also runs with the quantised ones.
const MetaSource = "talf.source_sha256"

// Stored returns the type to load a set's weights as; see package stored.
func Stored(set *safetensors.Set) compute.DType { return stored.Type(set, ScaleSuffix) }

// FourBit returns the matrices of a set that weights as Q4 keep as they are stored.
func FourBit(set *safetensors.Set) map[string]bool { return stored.FourBit(set) }

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
