package kern

import (
	"encoding/binary"
	"math"
)

// FromF32 decodes len(dst) little-endian float32.
func FromF32(dst []float32, src []byte) {
	src = src[:4*len(dst)]
	for i := range dst {
		dst[i] = math.Float32frombits(binary.LittleEndian.Uint32(src[4*i:]))
	}
}

// FromBF16 widens len(dst) little-endian bfloat16, exactly.
func FromBF16(dst []float32, src []byte) {
	src = src[:2*len(dst)]
	for i := widenBF16Words(dst, src); i < len(dst); i++ {
		dst[i] = math.Float32frombits(uint32(binary.LittleEndian.Uint16(src[2*i:])) << 16)
	}
}

// FromF16 widens len(dst) little-endian IEEE binary16, exactly.
func FromF16(dst []float32, src []byte) {
	src = src[:2*len(dst)]
	for i := widenF16Words(dst, src); i < len(dst); i++ {
		h := uint32(binary.LittleEndian.Uint16(src[2*i:]))
		// Exponent and fraction in their float32 places are the value times 2⁻¹¹²,
		// subnormals included; Inf and NaN need the largest exponent.
		v := math.Float32frombits(h&0x7fff<<13) * (1 << 112)
		u := math.Float32bits(v) | h&0x8000<<16
		if h&0x7c00 == 0x7c00 {
			u = h&0x8000<<16 | 0x7f800000 | h&0x3ff<<13
		}
		dst[i] = math.Float32frombits(u)
	}
}
