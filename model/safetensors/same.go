package safetensors

import (
	"bytes"
	"math"
)

// SameValues reports whether two floating-point tensors of any storage type
// hold equal values. It compares piece by piece because embeddings are large.
func SameValues(a, b *Tensor) bool {
	if a.Len() != b.Len() {
		return false
	}
	if a.DType == b.DType {
		return bytes.Equal(a.Data, b.Data)
	}
	const piece = 1 << 16
	n := a.Len()
	for i := 0; i < n; i += piece {
		x, err1 := part(a, i, min(n, i+piece)).Float32s()
		y, err2 := part(b, i, min(n, i+piece)).Float32s()
		if err1 != nil || err2 != nil {
			return false
		}
		for j := range x {
			if math.Float32bits(x[j]) != math.Float32bits(y[j]) {
				return false
			}
		}
	}
	return true
}

// part returns elements [from, to) of t as a vector. Both are multiples of 256, the largest block, or
// the end of t.
func part(t *Tensor, from, to int) *Tensor {
	x := &Tensor{Name: t.Name, DType: t.DType, Shape: []int{from}}
	at := x.Size()
	x.Shape[0] = to - from
	x.Data = t.Data[at:][:x.Size()]
	return x
}
