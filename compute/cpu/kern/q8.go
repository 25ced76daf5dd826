package kern

import (
	"encoding/binary"
	"math"
)

// The q8 format keeps a weight as an int8 times a scale that Q8Block consecutive
// k of one output share. For a block of weights w with amax = max |w|:
//
//	d  = the float16 nearest to float32(amax/127), ties to even, or the next one
//	     above it if amax > 127.5·d, as among the subnormals; at most 65504
//	q  = float32(w·float32(1/d)) rounded to the nearest integer, ties to even,
//	     and clamped to ±127; 0 if d is 0
//
// so that |w − q·d| ≤ d/2 but for rounding, unless amax > 127·65504, where
// weights saturate. A block with an infinity or a NaN has d = NaN and q = 0: all
// products with it are NaN.
//
// A panel holds its 32 outputs' blocks in ascending k, each as Q8BlockLen bytes,
// little endian: 32 float16 scales, then the int8 q [8][32 outputs][4 k]. The
// last block of k is padded with zeros.
//
// Products take activations in integers too: QuantA gives a row's blocks of
// Q8Block elements x with amax = max |x|, and m = 32767 (two planes: the bytes of
// a 16-bit integer) or m = 127 (one plane):
//
//	s  = float32(amax/m)
//	q  = float32(x·float32(m/amax)) rounded to the nearest integer, ties to even
//
// |q| ≤ m follows. If amax < 2⁻¹⁰⁰, s and q are 0; if it is not finite or an
// element is a NaN, s is NaN and q is 0, so that all products are NaN.
const (
	// Q8Block is the consecutive k that share a scale.
	Q8Block = 32
	// Q8BlockLen is the bytes of a block of a panel's 32 outputs.
	Q8BlockLen = 2*Panel + Q8Block*Panel
	// Q8ABlockLen is the elements of a block of a quantised row of activations.
	Q8ABlockLen = 20
)

const (
	q8Tiny   = 0x1p-100 // largest |x| below which a block of activations is zero
	q8MaxF16 = 65504

	// Of a block of activations: 16 words of integers, of which those of the second plane are
	// the kernels' own if there is one; the scale's float32; a word for the kernels' own use;
	// −8 times the integers' sum; and this sum's float32.
	q8AScale  = 16
	q8ATimes8 = 18
	q8ASum    = 19
)

// Q8Len returns the bytes of a matrix of outs outputs and depth k in q8 panels
// [⌈outs/Panel⌉][⌈k/Q8Block⌉][Q8BlockLen].
func Q8Len(outs, k int) int { return (outs + Panel - 1) / Panel * Q8PanelLen(k) }

// Q8PanelLen returns the bytes of one panel of depth k.
func Q8PanelLen(k int) int { return Q8Blocks(k) * Q8BlockLen }

// Q8Blocks returns the blocks of depth k.
func Q8Blocks(k int) int { return (k + Q8Block - 1) / Q8Block }

// Q8ALen returns the elements of a quantised row of k activations.
func Q8ALen(k int) int { return Q8Blocks(k) * Q8ABlockLen }

// PackQ8 quantises the first k columns of src [rows][ldsrc] and packs them into dst as panels of
// the q8 format. Outputs beyond rows are zero. It writes Q8Len(rows, k) bytes.
func PackQ8(dst []byte, src []float32, rows, k, ldsrc int) {
	for o := 0; o < rows; o += Panel {
		n := min(Panel, rows-o)
		for i := 0; i < k; i += Q8Block {
			u := (*[Q8BlockLen]byte)(dst)
			dst = dst[Q8BlockLen:]
			if n < Panel || i+Q8Block > k {
				clear(u[:])
			} else if packQ8Block(u, src[o*ldsrc+i:], ldsrc) {
				continue
			}
			for j := range n {
				packQ8(u, j, src[(o+j)*ldsrc+i:][:min(Q8Block, k-i)])
			}
		}
	}
}

// packQ8 quantises w, at most a block, as output j of a panel's block.
func packQ8(u *[Q8BlockLen]byte, j int, w []float32) {
	var q [Q8Block]byte
	var d [2]byte
	QuantQ8(q[:len(w)], d[:], w)
	PackQ8Row(u[:], j, q[:len(w)], d[:])
}

// absMax returns the largest |x|, NaN if there is one.
func absMax(x []float32) float32 {
	var m uint32
	for _, v := range x {
		m = max(m, math.Float32bits(v)&0x7fffffff)
	}
	return math.Float32frombits(m)
}

// q8Scale returns the scale of a block of weights as float16 bits and its value.
func q8Scale(amax float32) (uint16, float32) {
	if !(amax <= math.MaxFloat32) {
		return 0x7e00, float32(math.NaN())
	}
	h := f16(min(amax/127, q8MaxF16))
	d := fromF16(h)
	if amax > 127.5*d && h < f16(q8MaxF16) {
		h++
		d = fromF16(h)
	}
	return h, d
}

// f16 narrows a non-negative number of at most 65504 to float16, to the nearest,
// ties to even.
func f16(x float32) uint16 {
	if x < 0x1p-14 {
		return uint16(math.RoundToEven(float64(x * (1 << 24)))) // multiples of 2⁻²⁴
	}
	u := math.Float32bits(x)
	return uint16((u + 0xfff + u>>13&1 - 112<<23) >> 13)
}

func fromF16(h uint16) float32 {
	var x [1]float32
	FromF16(x[:], []byte{byte(h), byte(h >> 8)})
	return x[0]
}

// UnpackQ8 gives output o of packed panels of depth len(dst): q·d, exactly.
func UnpackQ8(dst []float32, b []byte, o int) {
	b = b[o/Panel*Q8PanelLen(len(dst)):][:Q8PanelLen(len(dst))]
	j := o % Panel
	for i := 0; i < len(dst); i, b = i+Q8Block, b[Q8BlockLen:] {
		d := fromF16(binary.LittleEndian.Uint16(b[2*j:]))
		for t := range min(Q8Block, len(dst)-i) {
			dst[i+t] = d * float32(int8(b[2*Panel+t/4*4*Panel+4*j+t%4]))
		}
	}
}

// q8Max returns the largest integer of activations.
func q8Max(planes int) float32 {
	if planes == 1 {
		return 127
	}
	return 32767
}

// quantA lays the integers out in pairs for kernels that take apart a word of
// four weights into its even and odd bytes: elements 4g and 4g+2 of a block are
// the halves of word 2g, elements 4g+1 and 4g+3 those of word 2g+1.
func quantA(dst []uint32, x []float32, planes int) {
	m := q8Max(planes)
	for ; len(x) > 0; dst = dst[Q8ABlockLen:] {
		d := (*[Q8ABlockLen]uint32)(dst)
		*d = [Q8ABlockLen]uint32{}
		w := x[:min(Q8Block, len(x))]
		x = x[len(w):]
		amax := absMax(w)
		switch {
		case !(amax <= math.MaxFloat32):
			d[q8AScale] = math.Float32bits(float32(math.NaN()))
		case amax >= q8Tiny:
			d[q8AScale] = math.Float32bits(amax / m)
			inv, sum := m/amax, int32(0)
			for i, v := range w {
				q := int32(math.RoundToEven(float64(float32(v * inv))))
				d[i/4*2+i%2] |= uint32(uint16(q)) << (i % 4 / 2 * 16)
				sum += q
			}
			d[q8ATimes8], d[q8ASum] = uint32(-8*sum), math.Float32bits(float32(sum))
		}
	}
}

func gemmQ8(c []float32, ldc int, a []uint32, ars int, b []byte, rows, blocks, _ int, acc bool) {
	for r := range rows {
		cr, ar := (*[Panel]float32)(c[r*ldc:]), a[r*ars:]
		if !acc {
			*cr = [Panel]float32{}
		}
		for n := range blocks {
			x, u := (*[Q8ABlockLen]uint32)(ar[n*Q8ABlockLen:]), (*[Q8BlockLen]byte)(b[n*Q8BlockLen:])
			var sum [Panel]int32
			q8Sums(&sum, x, u[2*Panel:])
			s := math.Float32frombits(x[q8AScale])
			for j, v := range sum {
				d := fromF16(binary.LittleEndian.Uint16(u[2*j:]))
				cr[j] = fma32(float32(float32(v)*d), s, cr[j])
			}
		}
	}
}

// q8Sums adds to sum the sums of products of a block's integers and activations x, as quantA writes them.
func q8Sums(sum *[Panel]int32, x *[Q8ABlockLen]uint32, ints []byte) {
	for g := range Q8Block / 4 {
		e, o := x[2*g], x[2*g+1]
		x0, x1, x2, x3 := int32(int16(e)), int32(int16(o)), int32(e)>>16, int32(o)>>16
		w := (*[4 * Panel]byte)(ints[g*4*Panel:])
		for j := range sum {
			sum[j] += x0*int32(int8(w[4*j])) + x1*int32(int8(w[4*j+1])) +
				x2*int32(int8(w[4*j+2])) + x3*int32(int8(w[4*j+3]))
		}
	}
}
