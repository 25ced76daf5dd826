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

// PackQ8Row writes one block of a stored row, q and its scale d, as output j of
// a panel's block u [Q8BlockLen].
func PackQ8Row(u []byte, j int, q, d []byte) {
	b := (*[Q8BlockLen]byte)(u)
	b[2*j], b[2*j+1] = d[0], d[1]
	to := b[2*Panel+4*j:]
	if len(q) == Q8Block {
		from := (*[Q8Block]byte)(q)
		for g := range Q8Block / 4 {
			binary.LittleEndian.PutUint32(to[g*4*Panel:], binary.LittleEndian.Uint32(from[4*g:]))
		}
		return
	}
	for i, x := range q {
		to[i/4*4*Panel+i%4] = x
	}
}
