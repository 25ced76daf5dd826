// Package ggml knows the types of tensor elements in GGUF files: their names, their sizes, and
// what their blocks mean.
//
// A block is a number of consecutive elements of a row with scales of their own. Sources are the
// structures of ggml-common.h and the kernels of ggml-quants.c
// (https://github.com/ggml-org/ggml). Every product below is exact in float32, so that each
// element is its exact value rounded once: all decoders that are right have the same bits.
package ggml

import (
	"encoding/binary"
	"fmt"
	"math"

	"talf/compute"
)

// A Type is a type of elements. Types are compared by address.
type Type struct {
	Name  string // as ggml spells it, such as "Q4_K"
	ID    uint32 // in files
	Elems int    // in a block; 1 for plain numbers
	Size  int    // of a block in bytes

	decode func(dst []float32, src []byte) // one block
	bound  bound
	ints   func(q, src []byte) (scale uint16, exact bool) // 32 elements as scale·q with a float16 scale and int8s; nil: cannot

	kept     compute.Kept
	integers func(q, scales, src []byte) (n int) // of a block that is kept; n bytes of scales
}

// types lists the types that are read.
var types = []*Type{
	{Name: "F32", ID: 0, Elems: 1, Size: 4, decode: f32, bound: of(f32)},
	{Name: "F16", ID: 1, Elems: 1, Size: 2, decode: f16, bound: of(f16)},
	{Name: "BF16", ID: 30, Elems: 1, Size: 2, decode: bf16, bound: of(bf16)},
	{Name: "Q4_0", ID: 2, Elems: 32, Size: 18, decode: q4_0, bound: scales(0, 8, 0, 0), ints: intsQ4_0, kept: compute.KeptQ4_0, integers: keepQ4_0},
	{Name: "Q4_1", ID: 3, Elems: 32, Size: 20, decode: q4_1, bound: scales(0, 15, 2, 1), kept: compute.KeptQ4_1, integers: keepQ4_1},
	{Name: "Q5_0", ID: 6, Elems: 32, Size: 22, decode: q5_0, bound: scales(0, 16, 0, 0), ints: intsQ5_0, kept: compute.KeptQ5_0, integers: keepQ5_0},
	{Name: "Q5_1", ID: 7, Elems: 32, Size: 24, decode: q5_1, bound: scales(0, 31, 2, 1), kept: compute.KeptQ5_1, integers: keepQ5_1},
	{Name: "Q8_0", ID: 8, Elems: 32, Size: 34, decode: q8_0, bound: scales(0, 128, 0, 0), ints: intsQ8_0},
	{Name: "IQ4_NL", ID: 20, Elems: 32, Size: 18, decode: iq4nl, bound: scales(0, 127, 0, 0), ints: intsIQ4NL, kept: compute.KeptIQ4_NL, integers: keepQ4_0},
	{Name: "MXFP4", ID: 39, Elems: 32, Size: 17, decode: mxfp4, bound: of(mxfp4), ints: intsMXFP4, kept: compute.KeptMXFP4, integers: keepMXFP4},
	{Name: "IQ4_XS", ID: 23, Elems: 256, Size: 136, decode: iq4xs, bound: scales(0, 32*127, 0, 0), kept: compute.KeptIQ4_XS, integers: keepIQ4_XS},
	{Name: "Q2_K", ID: 10, Elems: 256, Size: 84, decode: q2k, bound: scales(80, 15*3, 82, 15)},
	{Name: "Q3_K", ID: 11, Elems: 256, Size: 110, decode: q3k, bound: scales(108, 32*4, 0, 0)},
	{Name: "Q4_K", ID: 12, Elems: 256, Size: 144, decode: q4k, bound: scales(0, 63*15, 2, 63), kept: compute.KeptQ4_K, integers: keepQ4_K},
	{Name: "Q5_K", ID: 13, Elems: 256, Size: 176, decode: q5k, bound: scales(0, 63*31, 2, 63), kept: compute.KeptQ5_K, integers: keepQ5_K},
	{Name: "Q6_K", ID: 14, Elems: 256, Size: 210, decode: q6k, bound: scales(208, 128*32, 0, 0), kept: compute.KeptQ6_K, integers: keepQ6_K},
}

// others names the types that are not read, for errors.
var others = map[uint32]string{
	4: "Q4_2, which ggml removed", 5: "Q4_3, which ggml removed", 9: "Q8_1", 15: "Q8_K",
	16: "IQ2_XXS", 17: "IQ2_XS", 18: "IQ3_XXS", 19: "IQ1_S", 21: "IQ3_S", 22: "IQ2_S",
	24: "I8", 25: "I16", 26: "I32", 27: "I64", 28: "F64", 29: "IQ1_M",
	31: "Q4_0_4_4, which ggml removed", 32: "Q4_0_4_8, which ggml removed", 33: "Q4_0_8_8, which ggml removed",
	34: "TQ1_0", 35: "TQ2_0",
	36: "IQ4_NL_4_4, which ggml removed", 37: "IQ4_NL_4_8, which ggml removed", 38: "IQ4_NL_8_8, which ggml removed",
	40: "NVFP4", 41: "Q1_0", 42: "Q2_0",
}

// ByID returns the type with a number in a file. The error names a type that is not read.
func ByID(id uint32) (*Type, error) {
	for _, t := range types {
		if t.ID == id {
			return t, nil
		}
	}
	if name, ok := others[id]; ok {
		return nil, fmt.Errorf("type %s is not supported; supported: %s", name, names())
	}
	return nil, fmt.Errorf("type %d is unknown; supported: %s", id, names())
}

func names() string {
	s := ""
	for i, t := range types {
		if i > 0 {
			s += ", "
		}
		s += t.Name
	}
	return s
}

// Blocks returns the type with a name if its elements share blocks, otherwise nil: F32, F16 and
// BF16 are plain numbers.
func Blocks(name string) *Type {
	for _, t := range types {
		if t.Name == name && t.Elems > 1 {
			return t
		}
	}
	return nil
}

// Kept returns the types whose blocks weights in memory keep.
func Kept() []*Type {
	var kept []*Type
	for _, t := range types {
		if t.kept != compute.NotKept {
			kept = append(kept, t)
		}
	}
	return kept
}

// Elements returns the number of elements in a block.
func (t *Type) Elements() int { return t.Elems }

// Bytes returns the size of a block.
func (t *Type) Bytes() int { return t.Size }

// Float32s decodes the blocks in src to dst, which has room for all their elements.
func (t *Type) Float32s(dst []float32, src []byte) {
	for len(src) > 0 {
		t.decode(dst[:t.Elems], src[:t.Size])
		dst, src = dst[t.Elems:], src[t.Size:]
	}
}

// Q8 sets q to int8s and d to float16s, one for every 32 of them, whose products are exactly the
// elements of the blocks in src. It reports false, with q and d in no particular state, if that
// cannot be: for types with finer scales or with minima, and for scales that float16 does not have.
func (t *Type) Q8(q, d, src []byte) bool {
	if t.ints == nil {
		return false
	}
	for i := 0; i*t.Size < len(src); i++ {
		scale, ok := t.ints(q[32*i:][:32], src[i*t.Size:][:t.Size])
		if !ok {
			return false
		}
		binary.LittleEndian.PutUint16(d[2*i:], scale)
	}
	return true
}

// Kept returns the kind of the type's blocks that weights in memory keep, if they do.
func (t *Type) Kept() compute.Kept { return t.kept }

// Integers sets q and scales to the integers and scales of the blocks in src, as compute.Kept has them.
func (t *Type) Integers(q, scales, src []byte) {
	for ; len(src) > 0; q, src = q[t.Elems:], src[t.Size:] {
		scales = scales[t.integers(q[:t.Elems], scales, src[:t.Size]):]
	}
}

// Exact reports whether Q8 may succeed: for MXFP4 that depends on the scales.
func (t *Type) Exact() bool { return t.ints != nil }

// Varies reports whether it depends on a block's scale if Q8 succeeds.
func (t *Type) Varies() bool { return t.Name == "MXFP4" }

// Find returns the index of the first element in src that is not a finite number or whose
// magnitude is limit or more, and its value; −1 if there is none. limit is +Inf if every finite
// number is allowed. It looks at scales, and at elements only where scales are large.
func (t *Type) Find(src []byte, limit float32) (int, float32) {
	x := make([]float32, t.Elems)
	safe := t.bound.safe(float64(limit))
	for i := 0; i*t.Size < len(src); i++ {
		b := src[i*t.Size:][:t.Size]
		if safe > 0 && t.bound.scalesBelow(b, safe) || t.bound.of(b) < float64(limit) {
			continue
		}
		t.decode(x, b)
		for j, v := range x {
			if !(float32(math.Abs(float64(v))) < limit) {
				return i*t.Elems + j, v
			}
		}
	}
	return -1, 0
}

// A bound is at least the largest magnitude in a block: of the float16s at bytes i and j, their magnitudes times a and b,
// or, of types without such scales, what decoding finds.
type bound struct {
	i, j   int
	a, b   float64
	decode func([]float32, []byte) // of up to 32 elements; nil: i to b say it
}

// scales returns the bound from one float16, where b is 0, or two.
func scales(i int, a float64, j int, b float64) bound {
	if b == 0 {
		j = i
	}
	return bound{i: i, j: j, a: a, b: b}
}

func of(decode func([]float32, []byte)) bound { return bound{decode: decode} }

// of returns the bound of a block; NaN if a scale is.
func (w *bound) of(src []byte) float64 {
	if w.decode == nil {
		x := math.Abs(float64(at16(src, w.i))) * w.a
		if w.b != 0 {
			x += math.Abs(float64(at16(src, w.j))) * w.b
		}
		return x
	}
	var x [32]float32
	w.decode(x[:], src)
	most := 0.0
	for _, v := range x {
		if a := math.Abs(float64(v)); !(a <= most) { // NaN as well
			most = a
		}
		if most != most {
			break
		}
	}
	return most
}

// safe returns the bits of a power of two below which no magnitudes of both scales give limit, or 0. Nearly all blocks
// are below it, and comparing bits takes a fraction of computing bounds.
func (w *bound) safe(limit float64) uint16 {
	if w.decode != nil {
		return 0
	}
	for e := 31; e > 0; e-- {
		if math.Ldexp(w.a+w.b, e-15) <= limit {
			return uint16(e) << 10
		}
	}
	return 0
}

// scalesBelow reports whether the magnitudes of a block's scales have bits below safe.
func (w *bound) scalesBelow(src []byte, safe uint16) bool {
	const magnitude = 0x7fff
	return binary.LittleEndian.Uint16(src[w.i:])&magnitude < safe && binary.LittleEndian.Uint16(src[w.j:])&magnitude < safe
}

// at16 reads a float16 at byte i.
func at16(b []byte, i int) float32 { return half(binary.LittleEndian.Uint16(b[i:])) }

// half widens an IEEE 754 binary16 number.
func half(h uint16) float32 {
	sign := uint32(h>>15) << 31
	exp, frac := uint32(h>>10)&31, uint32(h)&1023
	switch {
	case exp == 31:
		return math.Float32frombits(sign | 0xff<<23 | frac<<13)
	case exp == 0: // zero or subnormal: frac · 2^-24, exact
		return math.Float32frombits(sign | math.Float32bits(float32(frac)*0x1p-24))
	}
	return math.Float32frombits(sign | (exp+112)<<23 | frac<<13)
}
