package model

import (
	"fmt"

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

// Stored returns the type to load a set's weights as onto dev so that nothing is rounded, or as little as dev can.
func Stored(set *safetensors.Set, dev compute.Device) compute.DType {
	return stored.Type(set, ScaleSuffix, dev.Abilities())
}

// Kept returns the matrices of a set that weights as Q4 and Stored keep as they are stored on dev, with the kind of their blocks.
func Kept(set *safetensors.Set, dev compute.Device) map[string]compute.Kept {
	return stored.Kept(set, dev.Abilities())
}

// scales returns the scales of a quantised matrix [rows][cols].
func (l *loader) scales(name string, rows, cols int) []byte {
	data, err := stored.Scales(l.m.set, name+ScaleSuffix, rows, cols)
	if err != nil {
		l.fail("%v", err)
	}
	return data
}

// Held says what the packed weights of a model take.
type Held struct {
	File   int64 // bytes of the matrices in the file
	Memory int64 // bytes that they are packed in
}

// Held returns what the packed weights take so far: nothing before a lazy model runs.
func (m *Model) Held() Held { return m.held }

// Rounded says which blocks of the file are rounded to 8 bits because the device does not keep them, although the type of the weights
// is Stored or Q4, such as "12 matrices in Q3_K". It is "" if there are none.
func (m *Model) Rounded() string {
	if m.opt.DType != compute.Stored && m.opt.DType != compute.Q4 {
		return ""
	}
	return stored.Rounded(m.set, m.dev.Abilities())
}

// Plain returns a tensor of a model for a file of floats: as float32 if it is a matrix that quantize made of integers, or
// in blocks of a GGUF file, and otherwise as it is. It is valid as long as the set.
func Plain(set *safetensors.Set, name string) (safetensors.Tensor, error) {
	t, err := set.Get(name)
	if err != nil {
		return t, err
	}
	if t.DType != "I8" || len(t.Shape) != 2 {
		return t.Plain()
	}
	m := compute.Matrix{Rows: t.Shape[0], Cols: t.Shape[1], Type: compute.Q8, Data: t.Data}
	if m.Scales, err = stored.Scales(set, name+ScaleSuffix, m.Rows, m.Cols); err != nil {
		return t, fmt.Errorf("%s: %w", set.Name, err)
	}
	x, err := stored.Float32s(&m)
	if err != nil {
		return t, fmt.Errorf("%s: %w", set.Name, err)
	}
	return safetensors.F32(name, x, t.Shape...), nil
}
