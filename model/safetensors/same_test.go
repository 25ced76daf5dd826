package safetensors_test

import (
	"encoding/binary"
	"math"
	"testing"

	"talf/model/safetensors"
)

// A head's embedding is its target's if the values are equal, whatever type either is
// stored as. Values are compared in pieces, and a difference counts in any of them.
func TestEqualEmbeddingsAreFoundInAnyType(t *testing.T) {
	const rows, cols = 70, 1000 // more than one piece of 65,536
	x := make([]float32, rows*cols)
	for i := range x {
		x[i] = float32(i%251-125) / 8 // exact in bfloat16 and in float16
	}
	f16 := safetensors.Tensor{Name: "f16", DType: "F16", Shape: []int{rows, cols}}
	f64 := safetensors.Tensor{Name: "f64", DType: "F64", Shape: []int{rows, cols}}
	for _, v := range x {
		f64.Data = binary.LittleEndian.AppendUint64(f64.Data, math.Float64bits(float64(v)))
		f16.Data = binary.LittleEndian.AppendUint16(f16.Data, half(v))
	}
	f32, bf16 := safetensors.F32("f32", x, rows, cols), safetensors.BF16("bf16", x, rows, cols)
	all := []safetensors.Tensor{f32, bf16, f16, f64}
	for i := range all {
		for j := range all {
			if !safetensors.SameValues(&all[i], &all[j]) {
				t.Errorf("%s and %s differ", all[i].DType, all[j].DType)
			}
		}
	}
	for _, at := range []int{0, 65535, 65536, len(x) - 1} {
		old := x[at]
		x[at] += 0.125
		other := safetensors.F32("other", x, rows, cols)
		for i := range all {
			if safetensors.SameValues(&all[i], &other) {
				t.Errorf("%s: a difference at element %d is not seen", all[i].DType, at)
			}
		}
		x[at] = old
	}
	less, ints := safetensors.F32("less", x[:cols], 1, cols), safetensors.Tensor{Name: "ints", DType: "I32", Shape: []int{rows, cols}, Data: make([]byte, 4*rows*cols)}
	if safetensors.SameValues(&f32, &less) || safetensors.SameValues(&f32, &ints) {
		t.Error("part of the values, or integers, compare as equal")
	}
}

// half returns x as float16, which must represent x exactly as a normal number.
func half(x float32) uint16 {
	b := math.Float32bits(x)
	if x == 0 {
		return uint16(b >> 16)
	}
	return uint16(b>>16&0x8000) | uint16((b>>23&255)-112)<<10 | uint16(b>>13&1023)
}
