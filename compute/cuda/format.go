//go:build gpu && linux && cgo

package cuda

import (
	"encoding/binary"
	"math"

	"talf/compute"
)

// decode widens a row of a host matrix.
func decode(dst []float32, m *compute.Matrix, row int) {
	if m.Type == compute.Q8 {
		q, d := m.Data[row*m.Cols:][:m.Cols], m.Scales[row*blocksOf(m.Cols)*2:]
		for i := range dst {
			dst[i] = fromHalf(binary.LittleEndian.Uint16(d[i/compute.Q8Block*2:])) * float32(int8(q[i]))
		}
		return
	}
	if m.Type == compute.Blocks {
		m.Block.Float32s(dst, m.Row(row, 0, len(dst)))
		return
	}
	src := m.Data[row*m.Cols*m.Type.Size():]
	for i := range dst {
		switch m.Type {
		case compute.F16:
			dst[i] = fromHalf(binary.LittleEndian.Uint16(src[2*i:]))
		case compute.BF16:
			dst[i] = math.Float32frombits(uint32(binary.LittleEndian.Uint16(src[2*i:])) << 16)
		default:
			dst[i] = math.Float32frombits(binary.LittleEndian.Uint32(src[4*i:]))
		}
	}
}

// blocksOf returns the blocks of Q8 in n columns.
func blocksOf(n int) int { return (n + compute.Q8Block - 1) / compute.Q8Block }

// bfloat returns the bfloat16 nearest to x, ties to even.
func bfloat(x float32) uint16 {
	u := math.Float32bits(x)
	if x != x {
		return uint16(u>>16) | 1<<6 // stays a NaN whatever bits are cut off
	}
	return uint16((u + 0x7fff + u>>16&1) >> 16)
}

// fromHalf widens a float16.
func fromHalf(h uint16) float32 {
	// Exponent and fraction in their float32 places are the value times 2⁻¹¹²,
	// subnormals included; Inf and NaN need the largest exponent.
	v := math.Float32frombits(uint32(h&0x7fff)<<13) * (1 << 112)
	u := math.Float32bits(v) | uint32(h&0x8000)<<16
	if h&0x7c00 == 0x7c00 {
		u = uint32(h&0x8000)<<16 | 0x7f800000 | uint32(h&0x3ff)<<13
	}
	return math.Float32frombits(u)
}

// toHalf narrows a non-negative number of at most 65504, ties to even.
func toHalf(x float32) uint16 {
	if x < 0x1p-14 {
		return uint16(math.RoundToEven(float64(x * (1 << 24)))) // multiples of 2⁻²⁴
	}
	u := math.Float32bits(x)
	return uint16((u + 0xfff + u>>13&1 - 112<<23) >> 13)
}

// quantise sets q to the integers of a block of weights and returns its scale, as
// docs/formats.md specifies: the scale is the float16 nearest to 1/127 of the largest
// weight, or the next larger one if that would cut the largest weight by more than
// half an integer.
func quantise(q []int8, w []float32) uint16 {
	const most = 65504
	var top uint32
	for _, x := range w {
		top = max(top, math.Float32bits(x)&0x7fffffff)
	}
	amax := math.Float32frombits(top)
	if !(amax <= math.MaxFloat32) {
		clear(q)
		return 0x7e00
	}
	h := toHalf(min(amax/127, most))
	if amax > 127.5*fromHalf(h) && h < toHalf(most) {
		h++
	}
	d := fromHalf(h)
	if !(d > 0) {
		clear(q)
		return h
	}
	inv := 1 / d
	for i, x := range w {
		q[i] = int8(min(max(math.RoundToEven(float64(x*inv)), -127), 127))
	}
	return h
}
