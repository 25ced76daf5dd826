package kern

import (
	"encoding/binary"
	"math"
)

// The q6k format keeps the integers and scales of GGUF's Q6_K (ggml-common.h of
// https://github.com/ggml-org/ggml): a weight is (d·sc)·(q−32), where q is from 0 to 63, d is a
// float16 of Q6KBlock consecutive k of one output, and sc an int8 of 16 of them.
//
// A panel holds its 32 outputs' blocks in ascending k. A block is 32 float16 d, and eight parts of
// Q8Block k: two times 32 bytes sc, of the part's first 16 k and of the others, and four groups of
// integers: those of the first 16 k, of outputs 0 to 15 and of 16 to 31, and those of the others.
//
// A group is 192 bytes [3][16 outputs][4 k]. The high six bits of byte (i, j, t) are the integer
// of output j and k = 4i+t. Two bits each of the integer of k = 12+t are the low bits of bytes
// (0, j, t), (1, j, t) and (2, j, t), the highest first. Bit 5 of every integer is flipped, so that
// six bits at the top of a byte are 4·(q−32) as an int8: this is what kernels multiply, after one
// AND, or for the last four k a few shifts.
//
// Products take the activations of q8 (see there). With s their scale, the 16 k that share sc give
//
//	t = Σ a·(q−32); c = fma(float32(t)·(d·sc), s, c)
//
// t and d·sc are exact as float32, and so are 4·t and (d·sc)/4.
const (
	// Q6KBlock is the consecutive k that share d.
	Q6KBlock = 8 * Q8Block
	// Q6KBlockLen is the bytes of Q6KBlock k of a panel's 32 outputs.
	Q6KBlockLen = 2*Panel + Q6KBlock/Q8Block*q6kPart
	// Q6KScales is the bytes of the scales of Q6KBlock elements in a row: d, sc [16].
	Q6KScales = 2 + Q6KBlock/q6kShare

	q6kShare = 16                   // consecutive k that share sc
	q6kGroup = 3 * 16 * 4           // bytes of them of 16 outputs
	q6kPart  = 2*Panel + 4*q6kGroup // of Q8Block k
)

// PackQ6KRow writes a row of integers q [len(q)], a multiple of Q6KBlock, and their scales
// s [len(q)/Q6KBlock][Q6KScales] as output j of the panel u of the q6k format.
func PackQ6KRow(u []byte, j int, q, s []byte) {
	const flip = 0x2020202020202020
	for ; len(q) > 0; u, q, s = u[Q6KBlockLen:], q[Q6KBlock:], s[Q6KScales:] {
		u[2*j], u[2*j+1] = s[0], s[1]
		for i, sc := range s[2:Q6KScales] {
			p := q6kPartOf(u, i/2)
			p[i%2*Panel+j] = sc
			from, to := (*[q6kShare]byte)(q[i*q6kShare:]), q6kGroupOf(p, i%2, j)[:2*64+4]
			a, b := binary.LittleEndian.Uint64(from[:])^flip, binary.LittleEndian.Uint64(from[8:])^flip
			last := uint32(b >> 32)
			binary.LittleEndian.PutUint32(to, uint32(a)<<2|last>>4&0x03030303)
			binary.LittleEndian.PutUint32(to[64:], uint32(a>>32)<<2|last>>2&0x03030303)
			binary.LittleEndian.PutUint32(to[128:], uint32(b)<<2|last&0x03030303)
		}
	}
}

// q6kPartOf returns part i of a block.
func q6kPartOf(u []byte, i int) []byte { return u[2*Panel+i*q6kPart:][:q6kPart] }

// q6kGroupOf returns the integers of a half of a part from those of output j on.
func q6kGroupOf(p []byte, half, j int) []byte {
	g := p[2*Panel+(2*half+j/16)*q6kGroup:][:q6kGroup]
	return g[j%16*4:]
}

// q6kWords returns four times q−32 of the 16 k of an output of a group, an int8 each.
func q6kWords(g []byte) (w [4]uint32) {
	for i := range 3 {
		b := binary.LittleEndian.Uint32(g[64*i:])
		w[i] = b & 0xfcfcfcfc
		w[3] |= b & 0x03030303 << (6 - 2*i)
	}
	return w
}

// UnpackQ6K gives output j of a panel of the q6k format of depth len(dst): each element is its
// exact value rounded once.
func UnpackQ6K(dst []float32, u []byte, j int) {
	for ; len(dst) > 0; dst, u = dst[Q6KBlock:], u[Q6KBlockLen:] {
		d := fromF16(binary.LittleEndian.Uint16(u[2*j:]))
		for i := range Q6KBlock / q6kShare {
			p := q6kPartOf(u, i/2)
			by := d * float32(int8(p[i%2*Panel+j]))
			for k, w := range q6kWords(q6kGroupOf(p, i%2, j)) {
				for t := range 4 {
					dst[i*q6kShare+4*k+t] = by * float32(int8(w>>(8*t))>>2)
				}
			}
		}
	}
}

func gemmQ6K(c []float32, ldc int, a []uint32, ars int, b []byte, rows, blocks, _ int, acc bool) {
	for r := range rows {
		cr, ar := (*[Panel]float32)(c[r*ldc:]), a[r*ars:]
		if !acc {
			*cr = [Panel]float32{}
		}
		for n := range blocks * (Q6KBlock / Q8Block) {
			x, u := (*[Q8ABlockLen]uint32)(ar[n*Q8ABlockLen:]), b[n/8*Q6KBlockLen:][:Q6KBlockLen]
			p, s := q6kPartOf(u, n%8), math.Float32frombits(x[q8AScale])
			for half := range 2 {
				for j := range cr {
					sum := int32(0)
					for k, w := range q6kWords(q6kGroupOf(p, half, j)) {
						e, o := x[8*half+2*k], x[8*half+2*k+1]
						sum += int32(int16(e))*int32(int8(w)) + int32(int16(o))*int32(int8(w>>8)) +
							int32(e)>>16*int32(int8(w>>16)) + int32(o)>>16*int32(int8(w>>24))
					}
					by := fromF16(binary.LittleEndian.Uint16(u[2*j:])) * float32(int8(p[half*Panel+j]))
					cr[j] = fma32(float32(float32(sum>>2)*by), s, cr[j])
				}
			}
		}
	}
}
