package ggml

import (
	"encoding/binary"
	"math"
)

// Integers and scales of the blocks that weights in memory keep, as compute.Kept has them.

// nibbles sets q to 32 integers of four bits.
func nibbles(q, src []byte) {
	const low = 0x0f0f0f0f0f0f0f0f
	q, src = q[:32], src[:16]
	for i := 0; i < 16; i += 8 {
		v := binary.LittleEndian.Uint64(src[i:])
		binary.LittleEndian.PutUint64(q[i:], v&low)
		binary.LittleEndian.PutUint64(q[16+i:], v>>4&low)
	}
}

// fifths is nibbles of integers of five bits, of which h are the fifth ones.
func fifths(q, src []byte, h uint32) {
	const low = 0x0f0f0f0f0f0f0f0f
	q, src = q[:32], src[:16]
	for i := 0; i < 16; i += 8 {
		v := binary.LittleEndian.Uint64(src[i:])
		binary.LittleEndian.PutUint64(q[i:], v&low|spread(h>>i))
		binary.LittleEndian.PutUint64(q[16+i:], v>>4&low|spread(h>>(16+i)))
	}
}

// spread returns the fifth bits of eight integers, the lowest eight of h, where they belong.
func spread(h uint32) uint64 {
	const ones, own = 0x0101010101010101, 0x8040201008040201
	bits := uint64(byte(h)) * ones & own // in byte k bit k alone, or none
	return (bits + 127*ones) >> 7 & ones << 4
}

func keepQ4_0(q, scales, src []byte) int {
	nibbles(q, src[2:])
	scales[0], scales[1] = src[0], src[1]
	return 2
}

func keepQ4_1(q, scales, src []byte) int {
	nibbles(q, src[4:])
	binary.LittleEndian.PutUint32(scales, binary.LittleEndian.Uint32(src))
	return 4
}

func keepQ5_0(q, scales, src []byte) int {
	fifths(q, src[6:], binary.LittleEndian.Uint32(src[2:]))
	scales[0], scales[1] = src[0], src[1]
	return 2
}

func keepQ5_1(q, scales, src []byte) int {
	fifths(q, src[8:], binary.LittleEndian.Uint32(src[4:]))
	binary.LittleEndian.PutUint32(scales, binary.LittleEndian.Uint32(src))
	return 4
}

func keepMXFP4(q, scales, src []byte) int {
	nibbles(q, src[1:])
	d := math.Float32bits(float32(math.Ldexp(1, int(src[0])-128)))
	binary.LittleEndian.PutUint16(scales, uint16(d>>16)) // no power of two has more bits
	return 2
}

// sharedK sets scales to those of q4k and q5k.
func sharedK(scales, src []byte) int {
	copy(scales[:4], src)
	for g := range 8 {
		scales[4+g], scales[12+g] = sixes(src[4:16], g)
	}
	return 20
}

// pairsK sets q to the low four bits of q4k's or q5k's integers.
func pairsK(q, src []byte) {
	const low = 0x0f0f0f0f0f0f0f0f
	for g := 0; g < 8; g += 2 {
		lo, hi, b := q[32*g:][:32], q[32*g+32:][:32], src[16*g:][:32]
		for i := 0; i < 32; i += 8 {
			v := binary.LittleEndian.Uint64(b[i:])
			binary.LittleEndian.PutUint64(lo[i:], v&low)
			binary.LittleEndian.PutUint64(hi[i:], v>>4&low)
		}
	}
}

func keepQ4_K(q, scales, src []byte) int {
	pairsK(q, src[16:])
	return sharedK(scales, src)
}

func keepQ5_K(q, scales, src []byte) int {
	const ones = 0x0101010101010101
	pairsK(q, src[48:])
	for i := 0; i < 32; i += 8 {
		h := binary.LittleEndian.Uint64(src[16+i:])
		for g := range 8 {
			to := q[32*g+i:][:8]
			binary.LittleEndian.PutUint64(to, binary.LittleEndian.Uint64(to)|h>>g&ones<<4)
		}
	}
	return sharedK(scales, src)
}

func keepIQ4_XS(q, scales, src []byte) int {
	copy(scales[:2], src)
	for g := range 8 {
		scales[2+g] = byte(scaleXS(src, g))
		nibbles(q[32*g:], src[8+16*g:])
	}
	return 10
}

// keepQ6_K: a byte of two bits belongs to four elements, 32 apart.
func keepQ6_K(q, scales, src []byte) int {
	const low, two = 0x0f0f0f0f0f0f0f0f, 0x0303030303030303
	for half := range 2 {
		q, l, h := q[128*half:][:128], src[64*half:][:64], src[128+32*half:][:32]
		for i := 0; i < 32; i += 8 {
			a, b, h := binary.LittleEndian.Uint64(l[i:]), binary.LittleEndian.Uint64(l[32+i:]), binary.LittleEndian.Uint64(h[i:])
			binary.LittleEndian.PutUint64(q[i:], a&low|h&two<<4)
			binary.LittleEndian.PutUint64(q[32+i:], b&low|h>>2&two<<4)
			binary.LittleEndian.PutUint64(q[64+i:], a>>4&low|h>>4&two<<4)
			binary.LittleEndian.PutUint64(q[96+i:], b>>4&low|h>>6&two<<4)
		}
	}
	copy(scales[:2], src[208:210])
	copy(scales[2:18], src[192:208])
	return 18
}
