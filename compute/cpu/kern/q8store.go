package kern

import (
	"encoding/binary"
	"math"
)

// QuantQ8 quantises the row w to the integers and scales of the q8 format, row by row as in a
// file: q [len(w)] and d [Q8Blocks(len(w))] float16, both little endian.
func QuantQ8(q, d []byte, w []float32) {
	for i := 0; i < len(w); i += Q8Block {
		b := w[i:min(i+Q8Block, len(w))]
		h, s := q8Scale(absMax(b))
		binary.LittleEndian.PutUint16(d[i/Q8Block*2:], h)
		to := q[i:][:len(b)]
		if !(s > 0) {
			clear(to)
			continue
		}
		is := 1 / s
		for j, x := range b {
			to[j] = byte(q8Round(x * is))
		}
	}
}

// q8Round returns the nearest of the format's integers, ties to even.
func q8Round(x float32) int8 {
	return int8(min(max(math.RoundToEven(float64(x)), -127), 127))
}

// DequantQ8 sets dst to elements [at, at+len(dst)) of a row that QuantQ8 wrote. at is a multiple
// of Q8Block.
func DequantQ8(dst []float32, q, d []byte, at int) {
	for i := 0; i < len(dst); {
		b := (at + i) / Q8Block
		s := fromF16(binary.LittleEndian.Uint16(d[2*b:]))
		for end := min(len(dst), (b+1)*Q8Block-at); i < end; i++ {
			dst[i] = s * float32(int8(q[at+i]))
		}
	}
}

// PackQ8Row writes a stored row q and its scales d [Q8Blocks(len(q))] float16 as output j of a panel u. A last block that
// is not whole must be zero there.
func PackQ8Row(u []byte, j int, q, d []byte) {
	for ; len(q) >= Q8Block; u, q, d = u[Q8BlockLen:], q[Q8Block:], d[2:] {
		u[2*j], u[2*j+1] = d[0], d[1]
		from, to := q[:Q8Block], u[2*Panel+4*j:][:7*4*Panel+4]
		for g := 0; g < Q8Block/4; g += 2 {
			w := binary.LittleEndian.Uint64(from[4*g:])
			binary.LittleEndian.PutUint32(to[g*4*Panel:], uint32(w))
			binary.LittleEndian.PutUint32(to[(g+1)*4*Panel:], uint32(w>>32))
		}
	}
	if len(q) == 0 {
		return
	}
	u[2*j], u[2*j+1] = d[0], d[1]
	to := u[2*Panel+4*j:]
	for i, x := range q {
		to[i/4*4*Panel+i%4] = x
	}
}
