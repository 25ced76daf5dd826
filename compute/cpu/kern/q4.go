package kern

import (
	"encoding/binary"
	"math"
)

// The 4-bit formats keep a weight as an integer q from 0 to 15. Blocks of 32
// consecutive k of one output share scales, as those of GGUF files do
// (ggml-common.h of https://github.com/ggml-org/ggml), whose integers and scales
// they keep:
//
//	q4   d·(q−8), d a float16: Q4_0
//	q4k  (d·sc)·q − (dm·mn), where d and dm are float16 of Q4KBlock k and sc and
//	     mn are integers from 0 to 63 of 32 of them: Q4_K
//
// A panel holds its 32 outputs' blocks in ascending k. The integers of a block are
// 512 bytes [8][16 outputs][4 k]: byte (g, j, t) has the integer of output j and
// k = 4g+t in its low four bits, and that of output j+16 in its high ones. A block
// of q4 is 32 float16 d and the integers. A block of q4k, Q4KBlock k, is 32 float16
// d, 32 float16 dm and eight times 32 bytes sc, 32 bytes mn and integers.
//
// Products take the activations of q8 (see there), and the integers' sum of a block
// is exact:
//
//	q4   t = Σ a·(q−8); c = fma(float32(t)·d, s, c): the bits of the same weights in q8
//	q4k  t = Σ a·q; y = fma(−(dm·mn), float32(Σ a), (d·sc)·float32(t)); c = fma(y, s, c)
//
// d·sc, dm·mn and t are exact as float32.
//
// With v a byte, Σ a·(v&15) is the sum of output j, and (Σ a·v − Σ a·(v&15))/16 is
// that of output j+16: kernels multiply two registers of weights after one AND.
const (
	// Q4BlockLen is the bytes of a block of a panel's 32 outputs.
	Q4BlockLen = 2*Panel + q4Ints
	// Q4KBlock is the consecutive k that share d and dm.
	Q4KBlock = 8 * Q8Block
	// Q4KBlockLen is the bytes of Q4KBlock k of a panel's 32 outputs.
	Q4KBlockLen = 4*Panel + Q4KBlock/Q8Block*q4kPart
	// Q4KScales is the bytes of the scales of Q4KBlock elements in a row: d, dm, sc [8], mn [8].
	Q4KScales = 4 + 2*Q4KBlock/Q8Block

	q4Ints  = Q8Block * Panel / 2
	q4kPart = 2*Panel + q4Ints // of Q8Block k
)

// PackQ4Rows is Compact.PackRows for the q4 format: k is a multiple of Q8Block, and s [Panel][k/Q8Block] are float16 d.
func PackQ4Rows(u []byte, k int, q, s []byte) { q4Layout.PackRows(u, k, q, s) }

// PackQ4KRows is PackQ4Rows for the q4k format: k is a multiple of Q4KBlock, and s [Panel][k/Q4KBlock][Q4KScales].
func PackQ4KRows(u []byte, k int, q, s []byte) { q4kLayout.PackRows(u, k, q, s) }

// q4At returns the integer of output j and element i of a block.
func q4At(u []byte, j, i int) byte { return u[i/4*4*16+j%16*4+i%4] >> (j / 16 * 4) & 15 }

// UnpackQ4 gives output j of a panel of the q4 format of depth len(dst): d·(q−8), exactly.
func UnpackQ4(dst []float32, u []byte, j int) {
	for ; len(dst) > 0; dst, u = dst[Q8Block:], u[Q4BlockLen:] {
		d := fromF16(binary.LittleEndian.Uint16(u[2*j:]))
		for i := range Q8Block {
			dst[i] = d * float32(int(q4At(u[2*Panel:], j, i))-8)
		}
	}
}

// UnpackQ4K gives output j of a panel of the q4k format of depth len(dst): each element is its
// exact value rounded once.
func UnpackQ4K(dst []float32, u []byte, j int) {
	for ; len(dst) > 0; dst, u = dst[Q4KBlock:], u[Q4KBlockLen:] {
		d, dm := fromF16(binary.LittleEndian.Uint16(u[2*j:])), fromF16(binary.LittleEndian.Uint16(u[2*(Panel+j):]))
		for b := range Q4KBlock / Q8Block {
			p := u[4*Panel+b*q4kPart:][:q4kPart]
			D, M := d*float32(p[j]), dm*float32(p[Panel+j])
			for i := range Q8Block {
				dst[b*Q8Block+i] = D*float32(q4At(p[2*Panel:], j, i)) - M
			}
		}
	}
}

// q4Sums sets sum to the sums of products of a block's integers and activations x, as quantA
// writes them.
func q4Sums(sum *[Panel]int32, x *[Q8ABlockLen]uint32, ints []byte) {
	*sum = [Panel]int32{}
	for g := range Q8Block / 4 {
		e, o := x[2*g], x[2*g+1]
		x0, x1, x2, x3 := int32(int16(e)), int32(int16(o)), int32(e)>>16, int32(o)>>16
		w := (*[4 * 16]byte)(ints[g*4*16:])
		for j := range 16 {
			v0, v1, v2, v3 := int32(w[4*j]), int32(w[4*j+1]), int32(w[4*j+2]), int32(w[4*j+3])
			sum[j] += x0*(v0&15) + x1*(v1&15) + x2*(v2&15) + x3*(v3&15)
			sum[16+j] += x0*(v0>>4) + x1*(v1>>4) + x2*(v2>>4) + x3*(v3>>4)
		}
	}
}

func gemmQ4(c []float32, ldc int, a []uint32, ars int, b []byte, rows, blocks, _ int, acc bool) {
	var sum [Panel]int32
	for r := range rows {
		cr, ar := (*[Panel]float32)(c[r*ldc:]), a[r*ars:]
		if !acc {
			*cr = [Panel]float32{}
		}
		for n := range blocks {
			x, u := (*[Q8ABlockLen]uint32)(ar[n*Q8ABlockLen:]), (*[Q4BlockLen]byte)(b[n*Q4BlockLen:])
			q4Sums(&sum, x, u[2*Panel:])
			s := math.Float32frombits(x[q8AScale])
			for j, v := range sum {
				d := fromF16(binary.LittleEndian.Uint16(u[2*j:]))
				cr[j] = fma32(float32(float32(v+int32(x[q8ATimes8]))*d), s, cr[j])
			}
		}
	}
}

func gemmQ4K(c []float32, ldc int, a []uint32, ars int, b []byte, rows, blocks, _ int, acc bool) {
	var sum [Panel]int32
	for r := range rows {
		cr, ar := (*[Panel]float32)(c[r*ldc:]), a[r*ars:]
		if !acc {
			*cr = [Panel]float32{}
		}
		for n := range blocks * (Q4KBlock / Q8Block) {
			x, u := (*[Q8ABlockLen]uint32)(ar[n*Q8ABlockLen:]), (*[Q4KBlockLen]byte)(b[n/8*Q4KBlockLen:])
			p := (*[q4kPart]byte)(u[4*Panel+n%8*q4kPart:])
			q4Sums(&sum, x, p[2*Panel:])
			s, all := math.Float32frombits(x[q8AScale]), math.Float32frombits(x[q8ASum])
			for j, v := range sum {
				d, dm := fromF16(binary.LittleEndian.Uint16(u[2*j:])), fromF16(binary.LittleEndian.Uint16(u[2*(Panel+j):]))
				y := fma32(-float32(dm*float32(p[Panel+j])), all, float32(float32(d*float32(p[j]))*float32(v)))
				cr[j] = fma32(y, s, cr[j])
			}
		}
	}
}
