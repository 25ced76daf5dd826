package ptxtest

import (
	"math"
	"math/bits"
)

// A lane's value that comes from uninitialised memory is poison, and so is all that is calculated from
// it. Registers have a bit for each lane.

type execute = func(w *warp, in *instruction, mask uint32)

const all = ^uint32(0)

func (w *warp) poison32(in *instruction, mask uint32) {
	p := uint32(0)
	for _, a := range in.args[1:] {
		p |= w.bad32[a.reg]
	}
	d := &w.bad32[in.args[0].reg]
	*d = *d&^mask | p&mask
}

func (w *warp) poison64(in *instruction, mask uint32) {
	p := uint32(0)
	for _, a := range in.args[1:] {
		p |= w.bad64[a.reg]
	}
	d := &w.bad64[in.args[0].reg]
	*d = *d&^mask | p&mask
}

// unary32, binary32 and ternary32 make operations of registers of 32 bits, and so on: f has one lane's.
func unary32(f func(a uint32) uint32) execute {
	return func(w *warp, in *instruction, mask uint32) {
		d, a := &w.r32[in.args[0].reg], &w.r32[in.args[1].reg]
		for m := mask; m != 0; m &= m - 1 {
			l := bits.TrailingZeros32(m) & 31
			d[l] = f(a[l])
		}
		w.poison32(in, mask)
	}
}

func binary32(f func(a, b uint32) uint32) execute {
	return func(w *warp, in *instruction, mask uint32) {
		d, a, b := &w.r32[in.args[0].reg], &w.r32[in.args[1].reg], &w.r32[in.args[2].reg]
		for m := mask; m != 0; m &= m - 1 {
			l := bits.TrailingZeros32(m) & 31
			d[l] = f(a[l], b[l])
		}
		w.poison32(in, mask)
	}
}

func ternary32(f func(a, b, c uint32) uint32) execute {
	return func(w *warp, in *instruction, mask uint32) {
		d, a, b, c := &w.r32[in.args[0].reg], &w.r32[in.args[1].reg], &w.r32[in.args[2].reg], &w.r32[in.args[3].reg]
		for m := mask; m != 0; m &= m - 1 {
			l := bits.TrailingZeros32(m) & 31
			d[l] = f(a[l], b[l], c[l])
		}
		w.poison32(in, mask)
	}
}

func unary64(f func(a uint64) uint64) execute {
	return func(w *warp, in *instruction, mask uint32) {
		d, a := &w.r64[in.args[0].reg], &w.r64[in.args[1].reg]
		for m := mask; m != 0; m &= m - 1 {
			l := bits.TrailingZeros32(m) & 31
			d[l] = f(a[l])
		}
		w.poison64(in, mask)
	}
}

func binary64(f func(a, b uint64) uint64) execute {
	return func(w *warp, in *instruction, mask uint32) {
		d, a, b := &w.r64[in.args[0].reg], &w.r64[in.args[1].reg], &w.r64[in.args[2].reg]
		for m := mask; m != 0; m &= m - 1 {
			l := bits.TrailingZeros32(m) & 31
			d[l] = f(a[l], b[l])
		}
		w.poison64(in, mask)
	}
}

func ternary64(f func(a, b, c uint64) uint64) execute {
	return func(w *warp, in *instruction, mask uint32) {
		d, a, b, c := &w.r64[in.args[0].reg], &w.r64[in.args[1].reg], &w.r64[in.args[2].reg], &w.r64[in.args[3].reg]
		for m := mask; m != 0; m &= m - 1 {
			l := bits.TrailingZeros32(m) & 31
			d[l] = f(a[l], b[l], c[l])
		}
		w.poison64(in, mask)
	}
}

// shift64 has a count of 32 bits.
func shift64(f func(a uint64, n uint32) uint64) execute {
	return func(w *warp, in *instruction, mask uint32) {
		d, a, b := &w.r64[in.args[0].reg], &w.r64[in.args[1].reg], &w.r32[in.args[2].reg]
		for m := mask; m != 0; m &= m - 1 {
			l := bits.TrailingZeros32(m) & 31
			d[l] = f(a[l], b[l])
		}
		p := w.bad64[in.args[1].reg] | w.bad32[in.args[2].reg]
		w.set64(in.args[0].reg, p, mask)
	}
}

func (w *warp) set32(reg int, poison, mask uint32) { w.bad32[reg] = w.bad32[reg]&^mask | poison&mask }

func (w *warp) set64(reg int, poison, mask uint32) { w.bad64[reg] = w.bad64[reg]&^mask | poison&mask }
func (w *warp) set1(reg int, poison, mask uint32)  { w.bad1[reg] = w.bad1[reg]&^mask | poison&mask }

// The commonest operations have loops of their own: a call for each lane costs more than what it does.

func mov32(w *warp, in *instruction, mask uint32) {
	d, a := &w.r32[in.args[0].reg], &w.r32[in.args[1].reg]
	if mask == all {
		*d = *a
	} else {
		for m := mask; m != 0; m &= m - 1 {
			l := bits.TrailingZeros32(m) & 31
			d[l] = a[l]
		}
	}
	w.poison32(in, mask)
}

func mov64(w *warp, in *instruction, mask uint32) {
	d, a := &w.r64[in.args[0].reg], &w.r64[in.args[1].reg]
	if mask == all {
		*d = *a
	} else {
		for m := mask; m != 0; m &= m - 1 {
			l := bits.TrailingZeros32(m) & 31
			d[l] = a[l]
		}
	}
	w.poison64(in, mask)
}

func add64(w *warp, in *instruction, mask uint32) {
	d, a, b := &w.r64[in.args[0].reg], &w.r64[in.args[1].reg], &w.r64[in.args[2].reg]
	if mask == all {
		for l := range d {
			d[l] = a[l] + b[l]
		}
	} else {
		for m := mask; m != 0; m &= m - 1 {
			l := bits.TrailingZeros32(m) & 31
			d[l] = a[l] + b[l]
		}
	}
	w.poison64(in, mask)
}

func add32(w *warp, in *instruction, mask uint32) {
	d, a, b := &w.r32[in.args[0].reg], &w.r32[in.args[1].reg], &w.r32[in.args[2].reg]
	if mask == all {
		for l := range d {
			d[l] = a[l] + b[l]
		}
	} else {
		for m := mask; m != 0; m &= m - 1 {
			l := bits.TrailingZeros32(m) & 31
			d[l] = a[l] + b[l]
		}
	}
	w.poison32(in, mask)
}

func fma32(w *warp, in *instruction, mask uint32) {
	d, a, b, c := &w.r32[in.args[0].reg], &w.r32[in.args[1].reg], &w.r32[in.args[2].reg], &w.r32[in.args[3].reg]
	for m := mask; m != 0; m &= m - 1 {
		l := bits.TrailingZeros32(m) & 31
		d[l] = fma(a[l], b[l], c[l])
	}
	w.poison32(in, mask)
}

// lop3 is any function of three bits: of a, b and c it gives bit 4a+2b+c of the last operand.
func lop3(w *warp, in *instruction, mask uint32) {
	d, a, b, c, f := &w.r32[in.args[0].reg], &w.r32[in.args[1].reg], &w.r32[in.args[2].reg], &w.r32[in.args[3].reg], &w.r32[in.args[4].reg]
	for m := mask; m != 0; m &= m - 1 {
		l := bits.TrailingZeros32(m) & 31
		var v uint32
		for i := range uint32(8) {
			if f[l]>>i&1 == 1 {
				v |= (a[l] ^ (i>>2 - 1)) & (b[l] ^ (i>>1&1 - 1)) & (c[l] ^ (i&1 - 1))
			}
		}
		d[l] = v
	}
	w.poison32(in, mask)
}

// fmaBF16 is fma of the bfloat16 in the low halves of a, b and c.
func fmaBF16(a, b, c uint32) uint32 {
	p, z := float64(f32(a<<16))*float64(f32(b<<16)), float64(f32(c<<16))
	s := odd(p, z, p+z) // the product is exact
	if s != s || math.IsInf(s, 0) {
		return bits32(float32(s)) >> 16
	}
	// Eight bits, or as many as numbers below the normal ones have.
	last := math.Ldexp(1, max(math.Ilogb(s), -126)-7)
	return bits32(float32(math.RoundToEven(s/last)*last)) >> 16
}

// permute is prmt: byte i is the one of a's and b's that digit i of sel names, or the sign of it, eight times.
func permute(a, b, sel uint32) (v uint32) {
	both := uint64(b)<<32 | uint64(a)
	for i := 0; i < 32; i += 8 {
		digit := sel >> (i / 2) & 15
		by := uint32(both>>(digit&7*8)) & 0xff
		if digit > 7 {
			by = by >> 7 * 0xff
		}
		v |= by << i
	}
	return v
}

// nan is what operations on floats of 32 bits return for every NaN.
const (
	nan   = 0x7fffffff
	nan64 = 0x7fffffffffffffff
)

func f32(b uint32) float32 { return math.Float32frombits(b) }

func bits32(f float32) uint32 {
	if f != f {
		return nan
	}
	return math.Float32bits(f)
}

func bits64(f float64) uint64 {
	if f != f {
		return nan64
	}
	return math.Float64bits(f)
}

// fma returns a·b+c, rounded once. The product is exact in float64. Their sum, rounded to float64, lies on
// the same side as the exact one of every number halfway between two floats, unless it is one itself.
func fma(a, b, c uint32) uint32 {
	p, z := float64(f32(a))*float64(f32(b)), float64(f32(c))
	s := p + z
	u := math.Float64bits(s)
	if e := u >> 52 & 0x7ff; u&0x1fffffff == 0x10000000 || e-897 >= 2046-897 {
		s = odd(p, z, s)
	}
	return bits32(float32(s))
}

// odd returns s, the rounded sum of p and z, so that its last bit is 1 if it is not exact: rounded to float32,
// also to one that is not normal, it is the exact sum rounded.
func odd(p, z, s float64) float64 {
	if math.IsInf(s, 0) || s != s {
		return s
	}
	t := s - p
	e := (p - (s - t)) + (z - t)
	u := math.Float64bits(s)
	if e == 0 || u&1 == 1 {
		return s
	}
	if (e > 0) == (s > 0) {
		return math.Float64frombits(u + 1)
	}
	return math.Float64frombits(u - 1)
}

// An operation is one of registers of the same instruction's types.
type operation struct {
	run   execute
	banks []bank
}

var (
	rr   = []bank{narrow, narrow}
	rrr  = []bank{narrow, narrow, narrow}
	rrrr = []bank{narrow, narrow, narrow, narrow}
	dd   = []bank{wide, wide}
	ddd  = []bank{wide, wide, wide}
	dddd = []bank{wide, wide, wide, wide}
	ddr  = []bank{wide, wide, narrow}
)

func float2(f func(a, b float32) float32) operation {
	return operation{binary32(func(a, b uint32) uint32 { return bits32(f(f32(a), f32(b))) }), rrr}
}

func double2(f func(a, b float64) float64) operation {
	return operation{binary64(func(a, b uint64) uint64 {
		return bits64(f(math.Float64frombits(a), math.Float64frombits(b)))
	}), ddd}
}

// operations are those whose operands are registers or constants.
var operations = map[string]operation{
	"add.s32":      {add32, rrr},
	"add.s64":      {add64, ddd},
	"add.s16":      {binary32(func(a, b uint32) uint32 { return (a + b) & 0xffff }), rrr},
	"sub.s32":      {binary32(func(a, b uint32) uint32 { return a - b }), rrr},
	"sub.s64":      {binary64(func(a, b uint64) uint64 { return a - b }), ddd},
	"mul.lo.s32":   {binary32(func(a, b uint32) uint32 { return a * b }), rrr},
	"mul.lo.s64":   {binary64(func(a, b uint64) uint64 { return a * b }), ddd},
	"mad.lo.s32":   {ternary32(func(a, b, c uint32) uint32 { return a*b + c }), rrrr},
	"mul.wide.u32": {widen(func(a, b uint32) uint64 { return uint64(a) * uint64(b) }), []bank{wide, narrow, narrow}},
	"mul.wide.u16": {binary32(func(a, b uint32) uint32 { return (a & 0xffff) * (b & 0xffff) }), rrr},
	"mul.wide.s32": {widen(func(a, b uint32) uint64 { return uint64(int64(int32(a)) * int64(int32(b))) }), []bank{wide, narrow, narrow}},
	"div.s32":      {binary32(quotient32), rrr},
	"div.u32":      {binary32(func(a, b uint32) uint32 { return uint32(unsigned(uint64(a), uint64(b))) }), rrr},
	"div.s64":      {binary64(quotient64), ddd},
	"rem.s32":      {binary32(func(a, b uint32) uint32 { return a - b*quotient32(a, b) }), rrr},
	"rem.u32":      {binary32(func(a, b uint32) uint32 { return a - b*uint32(unsigned(uint64(a), uint64(b))) }), rrr},
	"rem.s64":      {binary64(func(a, b uint64) uint64 { return a - b*quotient64(a, b) }), ddd},
	"min.s32":      {binary32(func(a, b uint32) uint32 { return uint32(min(int32(a), int32(b))) }), rrr},
	"min.u32":      {binary32(func(a, b uint32) uint32 { return min(a, b) }), rrr},
	"max.s32":      {binary32(func(a, b uint32) uint32 { return uint32(max(int32(a), int32(b))) }), rrr},
	"min.s64":      {binary64(func(a, b uint64) uint64 { return uint64(min(int64(a), int64(b))) }), ddd},
	"max.s64":      {binary64(func(a, b uint64) uint64 { return uint64(max(int64(a), int64(b))) }), ddd},
	"neg.s32":      {unary32(func(a uint32) uint32 { return -a }), rr},
	"neg.s64":      {unary64(func(a uint64) uint64 { return -a }), dd},
	"not.b64":      {unary64(func(a uint64) uint64 { return ^a }), dd},
	"and.b16":      {binary32(func(a, b uint32) uint32 { return a & b }), rrr},
	"and.b32":      {binary32(func(a, b uint32) uint32 { return a & b }), rrr},
	"and.b64":      {binary64(func(a, b uint64) uint64 { return a & b }), ddd},
	"or.b32":       {binary32(func(a, b uint32) uint32 { return a | b }), rrr},
	"or.b64":       {binary64(func(a, b uint64) uint64 { return a | b }), ddd},
	"xor.b32":      {binary32(func(a, b uint32) uint32 { return a ^ b }), rrr},
	// Counts of shifts beyond a register's width shift everything out.
	"shl.b32": {binary32(func(a, n uint32) uint32 { return a << n }), rrr},
	"shl.b64": {shift64(func(a uint64, n uint32) uint64 { return a << n }), ddr},
	"shr.u16": {binary32(func(a, n uint32) uint32 { return a & 0xffff >> n }), rrr},
	"shr.s16": {binary32(func(a, n uint32) uint32 { return uint32(int16(a)>>n) & 0xffff }), rrr},
	"shr.u32": {binary32(func(a, n uint32) uint32 { return a >> n }), rrr},
	"shr.s32": {binary32(func(a, n uint32) uint32 { return uint32(int32(a) >> n) }), rrr},
	"shr.u64": {shift64(func(a uint64, n uint32) uint64 { return a >> n }), ddr},
	"shr.s64": {shift64(func(a uint64, n uint32) uint64 { return uint64(int64(a) >> n) }), ddr},
	"shf.l.wrap.b32": {ternary32(func(lo, hi, n uint32) uint32 {
		return uint32((uint64(hi)<<32 | uint64(lo)) << (n & 31) >> 32)
	}), rrrr},
	"bfe.u32":  {ternary32(func(a, at, n uint32) uint32 { return uint32(field(uint64(a), at, n)) }), rrrr},
	"bfe.s32":  {ternary32(func(a, at, n uint32) uint32 { return uint32(signedField(uint64(int64(int32(a))), at, n)) }), rrrr},
	"bfe.u64":  {extract(func(a uint64, at, n uint32) uint64 { return field(a, at, n) }), []bank{wide, wide, narrow, narrow}},
	"bfe.s64":  {extract(signedField), []bank{wide, wide, narrow, narrow}},
	"popc.b64": {narrowed(func(a uint64) uint32 { return uint32(bits.OnesCount64(a)) }), []bank{narrow, wide}},

	"fma.rn.f32": {fma32, rrrr},
	"fma.rn.bf16x2": {ternary32(func(a, b, c uint32) uint32 {
		return fmaBF16(a, b, c)&0xffff | fmaBF16(a>>16, b>>16, c>>16)<<16
	}), rrrr},
	"prmt.b32":   {ternary32(permute), rrrr},
	"lop3.b32":   {lop3, []bank{narrow, narrow, narrow, narrow, narrow}},
	"add.rn.f32": float2(func(a, b float32) float32 { return a + b }),
	"sub.rn.f32": float2(func(a, b float32) float32 { return a - b }),
	"mul.rn.f32": float2(func(a, b float32) float32 { return a * b }),
	"div.rn.f32": float2(func(a, b float32) float32 { return a / b }),
	// Of two numbers the smaller or larger one, -0 being below 0. If one is none, the other.
	"min.f32": float2(func(a, b float32) float32 {
		switch {
		case a != a:
			return b
		case b != b:
			return a
		}
		return min(a, b)
	}),
	"max.f32": float2(func(a, b float32) float32 {
		switch {
		case a != a:
			return b
		case b != b:
			return a
		}
		return max(a, b)
	}),
	"sqrt.rn.f32": {unary32(func(a uint32) uint32 { return bits32(float32(math.Sqrt(float64(f32(a))))) }), rr},
	"neg.f32":     {unary32(func(a uint32) uint32 { return a ^ 1<<31 }), rr},
	"fma.rn.f64": {ternary64(func(a, b, c uint64) uint64 {
		return bits64(math.FMA(math.Float64frombits(a), math.Float64frombits(b), math.Float64frombits(c)))
	}), dddd},
	"add.rn.f64": double2(func(a, b float64) float64 { return a + b }),
	"sub.rn.f64": double2(func(a, b float64) float64 { return a - b }),
	"mul.rn.f64": double2(func(a, b float64) float64 { return a * b }),
	"div.rn.f64": double2(func(a, b float64) float64 { return a / b }),
}

// Division by zero returns all ones, as devices do.
func quotient32(a, b uint32) uint32 {
	if b == 0 {
		return all
	}
	return uint32(int64(int32(a)) / int64(int32(b)))
}

func quotient64(a, b uint64) uint64 {
	switch b {
	case 0:
		return ^uint64(0)
	case ^uint64(0):
		return -a
	}
	return uint64(int64(a) / int64(b))
}

func unsigned(a, b uint64) uint64 {
	if b == 0 {
		return ^uint64(0)
	}
	return a / b
}

// field returns n bits from bit at on. Both count from 0 to 255.
func field(a uint64, at, n uint32) uint64 {
	return a >> (at & 255) & (1<<(n&255) - 1)
}

func signedField(a uint64, at, n uint32) uint64 {
	at, n = at&255, n&255
	if n == 0 {
		return 0
	}
	if at+n > 64 {
		return uint64(int64(a) >> at)
	}
	return uint64(int64(a<<(64-at-n)) >> (64 - n))
}

func widen(f func(a, b uint32) uint64) execute {
	return func(w *warp, in *instruction, mask uint32) {
		d, a, b := &w.r64[in.args[0].reg], &w.r32[in.args[1].reg], &w.r32[in.args[2].reg]
		for m := mask; m != 0; m &= m - 1 {
			l := bits.TrailingZeros32(m) & 31
			d[l] = f(a[l], b[l])
		}
		w.set64(in.args[0].reg, w.bad32[in.args[1].reg]|w.bad32[in.args[2].reg], mask)
	}
}

func extract(f func(a uint64, at, n uint32) uint64) execute {
	return func(w *warp, in *instruction, mask uint32) {
		d, a, b, c := &w.r64[in.args[0].reg], &w.r64[in.args[1].reg], &w.r32[in.args[2].reg], &w.r32[in.args[3].reg]
		for m := mask; m != 0; m &= m - 1 {
			l := bits.TrailingZeros32(m) & 31
			d[l] = f(a[l], b[l], c[l])
		}
		w.set64(in.args[0].reg, w.bad64[in.args[1].reg]|w.bad32[in.args[2].reg]|w.bad32[in.args[3].reg], mask)
	}
}

func narrowed(f func(a uint64) uint32) execute {
	return func(w *warp, in *instruction, mask uint32) {
		d, a := &w.r32[in.args[0].reg], &w.r64[in.args[1].reg]
		for m := mask; m != 0; m &= m - 1 {
			l := bits.TrailingZeros32(m) & 31
			d[l] = f(a[l])
		}
		w.set32(in.args[0].reg, w.bad64[in.args[1].reg], mask)
	}
}

func widened(f func(a uint32) uint64) execute {
	return func(w *warp, in *instruction, mask uint32) {
		d, a := &w.r64[in.args[0].reg], &w.r32[in.args[1].reg]
		for m := mask; m != 0; m &= m - 1 {
			l := bits.TrailingZeros32(m) & 31
			d[l] = f(a[l])
		}
		w.set64(in.args[0].reg, w.bad32[in.args[1].reg], mask)
	}
}

// conversion returns cvt of "rounding.to.from", nil if it is not known.
func conversion(name string) execute {
	switch name {
	case "u64.u32":
		return widened(func(a uint32) uint64 { return uint64(a) })
	case "s64.s32":
		return widened(func(a uint32) uint64 { return uint64(int32(a)) })
	case "u32.u64":
		return narrowed(func(a uint64) uint32 { return uint32(a) })
	case "u16.u32":
		return unary32(func(a uint32) uint32 { return a & 0xffff })
	case "s8.s32", "s16.s8": // in a register of 16 bits
		return unary32(func(a uint32) uint32 { return uint32(int8(a)) & 0xffff })
	case "s32.s16":
		return unary32(func(a uint32) uint32 { return uint32(int16(a)) })
	case "rzi.s32.f32":
		return unary32(func(a uint32) uint32 { return toInt(f32(a)) })
	case "rn.f32.s32":
		return unary32(func(a uint32) uint32 { return bits32(float32(int32(a))) })
	case "rn.f32.u32":
		return unary32(func(a uint32) uint32 { return bits32(float32(a)) })
	case "rn.f32.s64":
		return narrowed(func(a uint64) uint32 { return bits32(float32(int64(a))) })
	case "rn.f64.s32":
		return widened(func(a uint32) uint64 { return bits64(float64(int32(a))) })
	case "rn.f64.u32":
		return widened(func(a uint32) uint64 { return bits64(float64(a)) })
	case "f64.f32":
		return widened(func(a uint32) uint64 { return bits64(float64(f32(a))) })
	case "rn.f32.f64":
		return narrowed(func(a uint64) uint32 { return bits32(float32(math.Float64frombits(a))) })
	case "f32.f16":
		return unary32(func(a uint32) uint32 { return bits32(half(uint16(a))) })
	}
	return nil
}

var signExtend = unary64(func(a uint64) uint64 { return uint64(int32(a)) })

// toInt rounds toward zero; what is beyond the range becomes its end, NaN 0.
func toInt(f float32) uint32 {
	switch {
	case f != f:
		return 0
	case f >= 1<<31:
		return math.MaxInt32
	case f < -1<<31:
		return 1 << 31
	}
	return uint32(int32(f))
}

// half returns the value of a float16.
func half(h uint16) float32 {
	e, f := uint32(h>>10&31), uint32(h&0x3ff)
	sign := uint32(h&0x8000) << 16
	switch e {
	case 31:
		return f32(sign | 0x7f800000 | f<<13)
	case 0:
		v := float32(f) * 0x1p-24
		return f32(math.Float32bits(v) | sign)
	}
	return f32(sign | (e+112)<<23 | f<<13)
}

// bfloat rounds to bfloat16, to even.
func bfloat(b uint32) uint32 {
	if f := f32(b); f != f {
		return 0x7fff
	}
	return (b + 0x7fff + b>>16&1) >> 16
}

// roundPair has its first source in the upper half.
func roundPair(w *warp, in *instruction, mask uint32) {
	d, hi, lo := &w.r32[in.args[0].reg], &w.r32[in.args[1].reg], &w.r32[in.args[2].reg]
	for m := mask; m != 0; m &= m - 1 {
		l := bits.TrailingZeros32(m) & 31
		d[l] = bfloat(hi[l])<<16 | bfloat(lo[l])
	}
	w.poison32(in, mask)
}

func unpackHalves(w *warp, in *instruction, mask uint32) {
	lo, hi, a := &w.r32[in.args[0].reg], &w.r32[in.args[1].reg], w.r32[in.args[2].reg]
	for m := mask; m != 0; m &= m - 1 {
		l := bits.TrailingZeros32(m) & 31
		lo[l], hi[l] = a[l]&0xffff, a[l]>>16
	}
	p := w.bad32[in.args[2].reg]
	w.set32(in.args[0].reg, p, mask)
	w.set32(in.args[1].reg, p, mask)
}

func unpackWords(w *warp, in *instruction, mask uint32) {
	lo, hi, a := &w.r32[in.args[0].reg], &w.r32[in.args[1].reg], &w.r64[in.args[2].reg]
	for m := mask; m != 0; m &= m - 1 {
		l := bits.TrailingZeros32(m) & 31
		lo[l], hi[l] = uint32(a[l]), uint32(a[l]>>32)
	}
	p := w.bad64[in.args[2].reg]
	w.set32(in.args[0].reg, p, mask)
	w.set32(in.args[1].reg, p, mask)
}
