package synth

import (
	"cmp"
	"encoding/binary"
	"math"
	"math/rand/v2"
	"slices"

	"talf/model/arch"
	"talf/model/safetensors"
)

// RandomWeights returns bfloat16 weights, scaled so that hidden states
// neither vanish nor explode.
func RandomWeights(s *arch.Spec, seed uint64) *safetensors.Set {
	var out []safetensors.Tensor
	add := func(name string, mean, std float64, shape ...int) {
		r := rand.New(rand.NewPCG(seed, uint64(len(out))))
		t := safetensors.Tensor{Name: name, DType: "BF16", Shape: shape}
		n := t.Len()
		t.Data = make([]byte, 0, 2*n)
		for range n {
			x := float32(mean + std*math.Sqrt(12)*(r.Float64()-0.5))
			t.Data = binary.LittleEndian.AppendUint16(t.Data, uint16(math.Float32bits(x)>>16))
		}
		out = append(out, t)
	}
	// The random streams are numbered in this order, which determines the weights'
	// bits: tensors outside layers first, and norms first in each layer.
	ts := s.Tensors()
	slices.SortStableFunc(ts, func(a, b arch.Tensor) int {
		if d := cmp.Compare(a.Layer, b.Layer); d != 0 || a.Layer < 0 {
			return d
		}
		return cmp.Compare(min(a.Cols, 1), min(b.Cols, 1))
	})
	for _, t := range ts {
		if t.Cols == 0 {
			add(t.Name, 1, 0.1, t.Rows)
		} else {
			add(t.Name, 0, 1/math.Sqrt(float64(t.Cols)), t.Rows, t.Cols)
		}
	}
	return safetensors.Of("random weights", out...)
}
