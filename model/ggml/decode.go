package ggml

import (
	"encoding/binary"
	"math"
)

func f32(dst []float32, src []byte) {
	dst[0] = math.Float32frombits(binary.LittleEndian.Uint32(src))
}

func f16(dst []float32, src []byte) { dst[0] = at16(src, 0) }

func bf16(dst []float32, src []byte) {
	dst[0] = math.Float32frombits(uint32(binary.LittleEndian.Uint16(src)) << 16)
}

// Types of 32 elements. Nibbles: the low ones are elements 0 to 15, the high ones 16 to 31.

// q4_0 is d, 16 bytes of nibbles: d·(q−8).
func q4_0(dst []float32, src []byte) {
	d := at16(src, 0)
	for i, b := range src[2:18] {
		dst[i] = d * float32(int(b&15)-8)
		dst[16+i] = d * float32(int(b>>4)-8)
	}
}

// q4_1 is d, m, 16 bytes of nibbles: d·q + m.
func q4_1(dst []float32, src []byte) {
	d, m := at16(src, 0), at16(src, 2)
	for i, b := range src[4:20] {
		dst[i] = d*float32(b&15) + m
		dst[16+i] = d*float32(b>>4) + m
	}
}

// fifth returns the integers of elements i and 16+i of a type of five bits: nibbles in b, fifth
// bits of all elements in h.
func fifth(b byte, h uint32, i int) (lo, hi int) {
	return int(b&15) | int(h>>i&1)<<4, int(b>>4) | int(h>>(16+i)&1)<<4
}

// q5_0 is d, 4 bytes of fifth bits, 16 bytes of nibbles: d·(q−16).
func q5_0(dst []float32, src []byte) {
	d, h := at16(src, 0), binary.LittleEndian.Uint32(src[2:])
	for i, b := range src[6:22] {
		lo, hi := fifth(b, h, i)
		dst[i], dst[16+i] = d*float32(lo-16), d*float32(hi-16)
	}
}

// q5_1 is d, m, 4 bytes of fifth bits, 16 bytes of nibbles: d·q + m.
func q5_1(dst []float32, src []byte) {
	d, m, h := at16(src, 0), at16(src, 2), binary.LittleEndian.Uint32(src[4:])
	for i, b := range src[8:24] {
		lo, hi := fifth(b, h, i)
		dst[i], dst[16+i] = d*float32(lo)+m, d*float32(hi)+m
	}
}

// q8_0 is d, 32 int8s: d·q.
func q8_0(dst []float32, src []byte) {
	d := at16(src, 0)
	for i, b := range src[2:34] {
		dst[i] = d * float32(int8(b))
	}
}

// levels are the sixteen values of IQ4_NL.
var levels = [16]int8{-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113}

// iq4nl is d, 16 bytes of nibbles: d·levels[q].
func iq4nl(dst []float32, src []byte) {
	d := at16(src, 0)
	for i, b := range src[2:18] {
		dst[i], dst[16+i] = d*float32(levels[b&15]), d*float32(levels[b>>4])
	}
}

// fp4 are twice the values of the 4-bit floating-point numbers E2M1 of the OCP Microscaling
// Formats specification 1.0.
var fp4 = [16]int8{0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12}

// mxfp4 is a byte e, 16 bytes of nibbles: 2^(e−128)·fp4[q]. All e are powers of two: 255 is not
// NaN as it is in the specification.
func mxfp4(dst []float32, src []byte) {
	d := float32(math.Ldexp(1, int(src[0])-128))
	for i, b := range src[1:17] {
		dst[i], dst[16+i] = d*float32(fp4[b&15]), d*float32(fp4[b>>4])
	}
}

// Types of 256 elements. Element i of the sixteen or eight groups has a scale of its own.

// q2k is 16 bytes s, 64 bytes of two bits, d, dm: d·(s&15)·q − dm·(s>>4), where s is that of 16
// elements. The two bits of element 128h + 32k + l are bits 2k of byte 32h + l.
func q2k(dst []float32, src []byte) {
	s, q, d, dm := src[:16], src[16:80], at16(src, 80), at16(src, 82)
	for i := 0; i < 256; i += 16 {
		h, k, l := i/128, i%128/32, i%32
		D, M := d*float32(s[i/16]&15), dm*float32(s[i/16]>>4)
		for j, b := range q[32*h+l:][:16] {
			dst[i+j] = D*float32(b>>(2*k)&3) - M
		}
	}
}

// q3k is 32 bytes h, 64 bytes of two bits as in q2k, 12 bytes of scales, d: d·(sc−32)·(q − 4
// unless the element's bit in h is set).
func q3k(dst []float32, src []byte) {
	h, q, s, d := src[:32], src[32:96], src[96:108], at16(src, 108)
	for i := 0; i < 256; i += 16 {
		g, half, k, l := i/16, i/128, i%128/32, i%32
		sc := int(s[g%8]>>(g/8*4)&15) | int(s[8+g%4]>>(g/4*2)&3)<<4
		D := d * float32(sc-32)
		for j := range 16 {
			v := int(q[32*half+l+j] >> (2 * k) & 3)
			if h[l+j]>>(4*half+k)&1 == 0 {
				v -= 4
			}
			dst[i+j] = D * float32(v)
		}
	}
}

// sixes returns scale and minimum g of the eight that q4k and q5k keep in six bits each.
func sixes(s []byte, g int) (sc, mn byte) {
	if g < 4 {
		return s[g] & 63, s[g+4] & 63
	}
	return s[g+4]&15 | s[g-4]>>6<<4, s[g+4]>>4 | s[g]>>6<<4
}

// q4k is d, dm, 12 bytes of scales, 128 bytes of nibbles: d·sc·q − dm·mn, where sc and mn are those
// of 32 elements. Of 32 bytes the low nibbles are 32 elements, the high ones the next 32.
func q4k(dst []float32, src []byte) {
	d, dm, s, q := at16(src, 0), at16(src, 2), src[4:16], src[16:144]
	for g := 0; g < 8; g += 2 {
		sc, mn := sixes(s, g)
		D0, M0 := d*float32(sc), dm*float32(mn)
		sc, mn = sixes(s, g+1)
		D1, M1 := d*float32(sc), dm*float32(mn)
		lo, hi := dst[32*g:][:32], dst[32*g+32:][:32]
		for j, b := range q[16*g:][:32] {
			lo[j], hi[j] = D0*float32(b&15)-M0, D1*float32(b>>4)-M1
		}
	}
}

// q5k is d, dm, 12 bytes of scales, 32 bytes h, 128 bytes of nibbles: as q4k, with bit g of h as
// the fifth bit of the elements of group g.
func q5k(dst []float32, src []byte) {
	d, dm, s, h, q := at16(src, 0), at16(src, 2), src[4:16], src[16:48], src[48:176]
	for g := range 8 {
		sc, mn := sixes(s, g)
		D, M := d*float32(sc), dm*float32(mn)
		for j := range 32 {
			v := q[g/2*32+j]>>(g%2*4)&15 | h[j]>>g&1<<4
			dst[32*g+j] = D*float32(v) - M
		}
	}
}

// iq4xs is d, 16 high bits of scales, 4 bytes of their low ones, 128 bytes of nibbles: d·(sc−32)·levels[q], where sc is
// that of 32 elements, whose nibbles lie as in iq4nl.
func iq4xs(dst []float32, src []byte) {
	d := at16(src, 0)
	for g := range 8 {
		D := d * float32(scaleXS(src, g))
		for i, b := range src[8+16*g:][:16] {
			dst[32*g+i], dst[32*g+16+i] = D*float32(levels[b&15]), D*float32(levels[b>>4])
		}
	}
}

// scaleXS returns the scale of elements 32g to 32g+31 of a block of iq4xs.
func scaleXS(src []byte, g int) int8 {
	h, l := binary.LittleEndian.Uint16(src[2:]), src[4+g/2]
	return int8(l>>(g%2*4)&15|byte(h>>(2*g)&3)<<4) - 32
}

// q6k is 128 bytes of low nibbles, 64 bytes of high pairs of bits, 16 int8 scales, d:
// d·sc·(q−32), where sc is that of 16 elements.
func q6k(dst []float32, src []byte) {
	l, h, s, d := src[:128], src[128:192], src[192:208], at16(src, 208)
	for i := 0; i < 256; i += 16 {
		half, k, at := i/128, i%128/32, i%32
		D := d * float32(int8(s[i/16]))
		lo, hi := l[64*half+32*(k%2)+at:][:16], h[32*half+at:][:16]
		for j := range 16 {
			v := int(lo[j]>>(k/2*4)&15) | int(hi[j]>>(2*k)&3)<<4
			dst[i+j] = D * float32(v-32)
		}
	}
}

func intsQ4_0(q, src []byte) (uint16, bool) {
	for i, b := range src[2:18] {
		q[i], q[16+i] = b&15-8, b>>4-8
	}
	return binary.LittleEndian.Uint16(src), true
}

func intsQ5_0(q, src []byte) (uint16, bool) {
	h := binary.LittleEndian.Uint32(src[2:])
	for i, b := range src[6:22] {
		lo, hi := fifth(b, h, i)
		q[i], q[16+i] = byte(lo-16), byte(hi-16)
	}
	return binary.LittleEndian.Uint16(src), true
}

func intsQ8_0(q, src []byte) (uint16, bool) {
	copy(q, src[2:34])
	return binary.LittleEndian.Uint16(src), true
}

func intsIQ4NL(q, src []byte) (uint16, bool) {
	for i, b := range src[2:18] {
		q[i], q[16+i] = byte(levels[b&15]), byte(levels[b>>4])
	}
	return binary.LittleEndian.Uint16(src), true
}

// intsMXFP4 succeeds if 2^(e−128) is a float16: from 2^−24 to 2^15.
func intsMXFP4(q, src []byte) (uint16, bool) {
	e := int(src[0]) - 128
	if e < -24 || e > 15 {
		return 0, false
	}
	for i, b := range src[1:17] {
		q[i], q[16+i] = byte(fp4[b&15]), byte(fp4[b>>4])
	}
	if e < -14 { // subnormal
		return 1 << (e + 24), true
	}
	return uint16(e+15) << 10, true
}
