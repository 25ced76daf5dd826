package stored

import (
	"encoding/binary"
	"fmt"
	"math"

	"talf/compute"
	"talf/model/safetensors"
)

// Rows returns a copy of the given rows of a matrix.
func Rows(all *compute.Matrix, ids []int32) compute.Matrix {
	m := compute.Matrix{Rows: len(ids), Cols: all.Cols, Type: all.Type, Block: all.Block}
	cut := func(of []byte) []byte {
		size := len(of) / all.Rows
		out := make([]byte, 0, len(ids)*size)
		for _, id := range ids {
			out = append(out, of[int(id)*size:][:size]...)
		}
		return out
	}
	m.Data = cut(all.Data)
	if all.Scales != nil {
		m.Scales = cut(all.Scales)
	}
	return m
}

// Scales returns the scales of a quantised matrix [rows][cols], which the named tensor has.
func Scales(set *safetensors.Set, name string, rows, cols int) ([]byte, error) {
	t, ok := set.Tensor(name)
	blocks := (cols + compute.Q8Block - 1) / compute.Q8Block
	switch {
	case !ok:
		return nil, fmt.Errorf("no tensor %q, want F16 scales of shape [%d %d] for an I8 matrix", name, rows, blocks)
	case t.DType != "F16" || len(t.Shape) != 2 || t.Shape[0] != rows || t.Shape[1] != blocks:
		return nil, fmt.Errorf("tensor %q is %s of shape %v, want F16 of shape [%d %d]", name, t.DType, t.Shape, rows, blocks)
	}
	return t.Data, nil
}

// Float32s returns the values of a quantised matrix: each integer times the scale of its block.
func Float32s(m *compute.Matrix) ([]float32, error) {
	d, err := (&safetensors.Tensor{DType: "F16", Shape: []int{len(m.Scales) / 2}, Data: m.Scales}).Float32s()
	if err != nil {
		return nil, err
	}
	x := make([]float32, m.Rows*m.Cols)
	blocks := len(d) / m.Rows
	for i := range x {
		x[i] = d[i/m.Cols*blocks+i%m.Cols/compute.Q8Block] * float32(int8(m.Data[i]))
	}
	return x, nil
}

// Ones returns a row of n ones.
func Ones(n int) compute.Matrix {
	b := make([]byte, 0, 4*n)
	for range n {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(1))
	}
	return compute.Matrix{Rows: 1, Cols: n, Type: compute.F32, Data: b}
}
