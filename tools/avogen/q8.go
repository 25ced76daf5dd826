package main

import (
	"fmt"
	"math"

	"github.com/mmcloughlin/avo/attr"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// The q8 format, as kern/q8.go has it.
const (
	q8Scales  = 2 * 32 // bytes of a block's scales
	q8Line    = 4 * 32 // bytes of four k of a panel
	q8Lines   = 8      // of them in a block
	q8Block   = q8Scales + q8Lines*q8Line
	q8mMins   = 4 * 32 // q8m: bytes of a block's scales, and of its minima
	q8mBlock  = 2*q8mMins + q8Lines*q8Line
	q8ABlock  = 4 * 20      // bytes of a block of activations
	q8AScale  = 4 * 16      // its scale
	q8AStart  = 4 * 17      // planes of bytes: what the sums of the first start from; pairs: as q4AStart
	q8ATimes8 = 4 * 18      // −8 times the sum of its integers
	q8ASum    = 4 * 19      // that sum as a float32
	q8Plane   = 32          // bytes of a block's plane
	q4AStart  = q8Plane     // one plane: −136 times the sum
	q6AStart  = q8Plane + 4 // one plane: −128 times the sums of the first 16 integers and of the others
)

// q8s emits products of integers for rows×32 outputs, gemmQ8x<rows> of activations
// in pairs or, for VNNI, gemmQ8Planes<planes>x<rows> of planes of bytes, and what
// quantises activations so.
func (g *gen) q8s() {
	g.quantConstants()
	if g.vnni {
		for planes := 1; planes <= 2; planes++ {
			g.quant(fmt.Sprintf("quantAPlanes%d", planes), planes)
			for n := 1; n <= 12; n++ {
				g.q8VNNI(n, planes, false)
				g.q8VNNI(n, planes, true)
				for _, q := range nibbleFormats {
					g.q4VNNI(q, n, planes)
				}
				if n <= q6Rows {
					g.q6VNNI(n, planes)
				}
				if n <= q50Rows {
					g.q50VNNI(n, planes)
				}
			}
		}
		return
	}
	most := 6
	if g.wide() {
		most = 8
	}
	for n := 1; n <= most; n++ {
		g.q8(n, false, false)
		g.q8(n, true, false)
		for _, q := range nibbleFormats {
			g.q4Pairs(q, n)
		}
		g.q6Pairs(n)
	}
	g.quant("quantA", 0)
	if g.wide() {
		return
	}
	for n := 1; n <= most; n++ {
		g.bytesKernels(n)
	}
	g.quant("quantAPlanes1", 1)
}

// A frame is what kernels for rows of integers have in common: n rows of 32 outputs, which stay in
// registers if outputs is set, and a loop over blocks of weights.
type frame struct {
	*gen
	n          int
	b, blocks  reg.GPVirtual
	pre        *prefetcher
	arow, crow func(r, disp int) operand.Mem
	bases      []reg.GPVirtual
	outputs    [][2]reg.VecVirtual
	shared     operand.Mem // scales that the parts of a block share, as float32
	held       map[string]reg.VecVirtual
}

// frame starts the kernel of n rows for blocks of so many lines.
func (g *gen) frame(name string, n, lines int, keep bool) *frame {
	g.text(fmt.Sprintf("%sx%d", name, n),
		"func(c *float32, ldc uintptr, a *uint32, ars uintptr, b *byte, blocks int, acc bool, ahead, pace uintptr)",
		fmt.Sprintf("computes %d rows of 32 outputs; strides are in bytes.", n))
	f := &frame{gen: g, n: n}
	c, ldc := g.ptr("c"), g.ptr("ldc")
	a, ars := g.ptr("a"), g.ptr("ars")
	f.b, f.blocks = g.ptr("b"), g.ptr("blocks")
	f.pre = g.prefetcher(f.b, lines)
	f.arow, f.bases = g.rowsAt(a, ars, n)
	f.crow, _ = g.rowsAt(c, ldc, n)
	if keep {
		f.outputs = make([][2]reg.VecVirtual, n)
		for r := range f.outputs {
			f.outputs[r] = [2]reg.VecVirtual{g.vec(), g.vec()}
			g.zero(f.outputs[r][:]...)
		}
	}
	g.CMPB(g.addr(g.Param("acc")), operand.Imm(0))
	g.JE(operand.LabelRef("fresh"))
	f.each(func(m operand.Mem, v reg.VecVirtual) { g.VMOVUPS(m, v) })
	g.JMP(operand.LabelRef("start"))
	g.Label("fresh")
	f.outputsAhead()
	if !keep {
		z := g.vec()
		g.zero(z)
		for r := range n {
			for j := range 32 / g.width {
				g.VMOVUPS(z, f.crow(r, 4*g.width*j))
			}
		}
	}
	g.Label("start")
	g.TESTQ(f.blocks, f.blocks)
	g.JZ(operand.LabelRef("done"))
	return f
}

// outputsAhead asks for the outputs after those of the kernel, which are usually those of the next
// panel: rows lie far apart, and stores that wait for memory fill the store buffer, so that the
// kernel after them waits too.
func (f *frame) outputsAhead() {
	for r := range f.n {
		for line := range 2 {
			f.PREFETCHT0(f.crow(r, 4*32+64*line))
		}
	}
}

// each calls do for the outputs in registers.
func (f *frame) each(do func(m operand.Mem, v reg.VecVirtual)) {
	for r := range f.outputs {
		for j, v := range f.outputs[r] {
			do(f.crow(r, 64*j), v)
		}
	}
}

// next moves to the next block.
func (f *frame) next(step int) {
	f.pre.next()
	for _, p := range f.bases {
		f.ADDQ(operand.I32(q8ABlock), p)
	}
	f.ADDQ(operand.I32(uint64(step)), f.b)
}

// end ends the loop and the kernel.
func (f *frame) end() {
	f.DECQ(f.blocks)
	f.JNZ(operand.LabelRef("blocks"))
	f.Label("done")
	f.each(func(m operand.Mem, v reg.VecVirtual) { f.VMOVUPS(v, m) })
	f.ret()
}

// word broadcasts a constant.
func (g *gen) word(bits uint32) reg.VecVirtual {
	v, t := g.vec(), g.GP32()
	g.MOVL(operand.U32(bits), t)
	g.VPBROADCASTD(t, v)
	return v
}

// q8 emits the kernel of n rows. A block's integer sums lie in one register a row
// and 16 (AVX2: 8) outputs. A line of weights holds four k of an output in each of
// its words of 32 bits. It is taken apart into the even and the odd bytes, widened
// in place, so that an instruction multiplies and adds the pairs (k, k+2) or
// (k+1, k+3), which lie so in the activations too. Of activations of bytes, a block is
// laid out so first.
func (g *gen) q8(n int, minima, bytes bool) {
	planes := ""
	if bytes {
		planes = bytesPlanes
	}
	f, first, block := g.q8Frame(planes, n, minima, false, func(*frame) {})
	acts := f.arow
	if bytes {
		acts = f.bytesInPairs()
	}
	cols := 32 / g.width // registers of a row
	group := cols        // of them at once
	if !g.wide() && n > 3 {
		group = 2
	}
	for col := 0; col < cols; col += group {
		sum := f.sums(n, group)
		for line := range q8Lines {
			f.pre.lines(group * 4 * g.width / 64)
			g.pairs(sum, min(group, 2), func(j, half int) reg.VecVirtual {
				at := operand.Mem{Base: f.b, Disp: first + line*q8Line + 4*g.width*(col+j)}
				w := g.vec()
				switch {
				case g.wide() && half == 0:
					g.VPSLLW(operand.Imm(8), at, w)
				case g.wide():
					g.VPSRAW(operand.Imm(8), at, w)
					return w
				default:
					g.VMOVDQU(at, w)
					if half == 0 {
						g.VPSLLW(operand.Imm(8), w, w)
					}
				}
				g.VPSRAW(operand.Imm(8), w, w)
				return w
			}, acts, line, line == 0)
		}
		f.q8(sum, col, 1, minima)
	}
	f.next(block)
	f.end()
}

// q8Frame starts a kernel of q8, or of q8m if minima is set, up to the first line of a block; consts loads constants. It
// returns the bytes of a block before its integers, and all of its bytes.
func (g *gen) q8Frame(planes string, n int, minima, keep bool, consts func(f *frame)) (f *frame, first, block int) {
	name := "gemmQ8"
	if minima {
		name = "gemmQ8M"
	}
	return g.q8FrameOf(name, planes, n, minima, keep, consts)
}

// q8FrameOf is q8Frame for kernels of another name.
func (g *gen) q8FrameOf(name, planes string, n int, minima, keep bool, consts func(f *frame)) (f *frame, first, block int) {
	first, block = q8Scales, q8Block
	if minima {
		first, block = 2*q8mMins, q8mBlock
	}
	f = g.frame(name+planes, n, block/64, keep)
	consts(f)
	g.Label("blocks")
	f.pre.lines(first / 64)
	return f, first, block
}

// q8 turns the integers' sums of each row into outputs and adds these, to every step-th register of outputs from the
// at-th on.
func (f *frame) q8(sums [][]reg.VecVirtual, at, step int, minima bool) {
	cols := make([]column, len(sums[0]))
	for j := range cols {
		at := at + step*j
		cols[j].at, cols[j].scales = at, func() (d, m reg.VecVirtual) {
			d = f.vec()
			if !minima {
				f.VCVTPH2PS(operand.Mem{Base: f.b, Disp: 2 * f.width * at}, d)
				return d, nil
			}
			m = f.vec()
			f.VMOVUPS(operand.Mem{Base: f.b, Disp: 4 * f.width * at}, d)
			f.VMOVUPS(operand.Mem{Base: f.b, Disp: q8mMins + 4*f.width*at}, m)
			return d, m
		}
	}
	f.scale(sums, minima, false, cols...)
}

// sums returns registers [n][group].
func (f *frame) sums(n, group int) [][]reg.VecVirtual {
	sum := make([][]reg.VecVirtual, n)
	for r := range sum {
		for range group {
			sum[r] = append(sum[r], f.vec())
		}
	}
	return sum
}

// pairs adds a line's products to the registers of each row, or sets them if first is set. split gives the even (half
// 0) and then the odd bytes of the weights of the j-th of them, in 16 bits, of at of them at once.
func (g *gen) pairs(sum [][]reg.VecVirtual, at int, split func(j, half int) reg.VecVirtual, arow func(r, disp int) operand.Mem, line int, first bool) {
	for from := 0; from < len(sum[0]); from += at {
		for half := range 2 {
			w := make([]reg.VecVirtual, at)
			for j := range w {
				w[j] = split(from+j, half)
			}
			for r := range sum {
				x := g.vec()
				g.VPBROADCASTD(arow(r, 8*line+4*half), x)
				for j := range w {
					v := sum[r][from+j]
					if first && half == 0 {
						g.VPMADDWD(x, w[j], v)
						continue
					}
					t := x
					if j < at-1 && !g.dots {
						t = g.vec()
					}
					g.addDots(x, w[j], t, v)
				}
			}
		}
	}
}

// addDots adds the products of pairs to sums; t may be x.
func (g *gen) addDots(x, w, t, sum reg.VecVirtual) {
	if g.dots {
		g.VPDPWSSD(x, w, sum)
		return
	}
	g.VPMADDWD(x, w, t)
	g.VPADDD(t, sum, sum)
}

// quantConstants are laid out as constants does.
func (g *gen) quantConstants() {
	if g.consts == nil {
		g.consts = map[string]operand.Mem{}
	}
	table := g.StaticGlobal("quant" + g.suffix)
	g.DataAttributes(attr.RODATA | attr.NOPTR)
	off := 0
	for _, c := range []struct {
		name string
		bits [4]uint32
	}{
		{"quant abs", [4]uint32{math.MaxInt32, math.MaxInt32, math.MaxInt32, math.MaxInt32}},
		{"quant tiny", [4]uint32{f32(0x1p-100), f32(0x1p-100), f32(0x1p-100), f32(0x1p-100)}},
		{"quant most", [4]uint32{f32(math.MaxFloat32), f32(math.MaxFloat32), f32(math.MaxFloat32), f32(math.MaxFloat32)}},
		{"quant even", [4]uint32{0x00ff00ff, 0x00ff00ff, 0x00ff00ff, 0x00ff00ff}},
		{"quant low", [4]uint32{0x000f000f, 0x000f000f, 0x000f000f, 0x000f000f}},
		// words 0, 2, 1, 3 of every eight bytes
		{"quant pairs", [4]uint32{0x05040100, 0x07060302, 0x0d0c0908, 0x0f0e0b0a}},
		{"quant words", [4]uint32{0x05010400, 0x07030602, 0, 0}}, // 0, 4, 1, 5, 2, 6, 3, 7 in bytes
		{"quant six", [4]uint32{0xfcfcfcfc, 0xfcfcfcfc, 0xfcfcfcfc, 0xfcfcfcfc}},
		{"quant two", [4]uint32{0xc0c0c0c0, 0xc0c0c0c0, 0xc0c0c0c0, 0xc0c0c0c0}},
		{"quant four", [4]uint32{0xf0f0f0f0, 0xf0f0f0f0, 0xf0f0f0f0, 0xf0f0f0f0}},
		{"quant next", [4]uint32{0x30303030, 0x30303030, 0x30303030, 0x30303030}},
		{"quant last", [4]uint32{0x0c0c0c0c, 0x0c0c0c0c, 0x0c0c0c0c, 0x0c0c0c0c}},
		{"quant three", [4]uint32{0x03030303, 0x03030303, 0x03030303, 0x03030303}},
		{"quant low six", [4]uint32{0x3f3f3f3f, 0x3f3f3f3f, 0x3f3f3f3f, 0x3f3f3f3f}},
		{"quant nibble", [4]uint32{0x0f0f0f0f, 0x0f0f0f0f, 0x0f0f0f0f, 0x0f0f0f0f}},
		{"quant sixteen", [4]uint32{0x10101010, 0x10101010, 0x10101010, 0x10101010}},
		{"quant flip", [4]uint32{0x20202020, 0x20202020, 0x20202020, 0x20202020}},
		{"quant one", [4]uint32{0x01010101, 0x01010101, 0x01010101, 0x01010101}},
		{"quant top", [4]uint32{0x80808080, 0x80808080, 0x80808080, 0x80808080}},
		{"quant ones", [4]uint32{0x00010001, 0x00010001, 0x00010001, 0x00010001}},
		{"quant quarter", [4]uint32{f32(0.25), f32(0.25), f32(0.25), f32(0.25)}},
	} {
		g.consts[c.name] = table.Offset(off)
		for range 2 {
			for _, v := range c.bits {
				g.AddDatum(off, operand.U32(v))
				off += 4
			}
		}
	}
}

// quant emits the quantisation of whole blocks of a row of activations: without
// planes to integers of 16 bits in the order of pairs, else to one plane of bytes
// or to two of the high and the low bytes.
func (g *gen) quant(name string, planes int) {
	g.text(name, "func(dst *uint32, x *float32, n int, most float32)",
		"quantises n elements in blocks of 32, the last padded with zeros, to integers of at most most.")
	dst, x, n := g.ptr("dst"), g.ptr("x"), g.ptr("n")
	last := g.AllocLocal(128)
	abs := g.vec()
	g.VBROADCASTSS(g.consts["quant abs"], abs)
	most := g.XMM()
	g.VBROADCASTSS(g.addr(g.Param("most")), most)
	var pairs reg.VecVirtual
	if planes == 0 {
		pairs = g.YMM()
		g.VMOVDQU(g.consts["quant pairs"], pairs)
	}
	var order reg.VecVirtual // of words of four bytes
	if planes == 1 && !g.vnni {
		order = g.YMM()
		g.VPMOVZXBD(g.consts["quant words"], order)
	}
	// halve folds v to a register in which every word is op of all words.
	halve := func(v reg.VecVirtual, op func(...operand.Op)) reg.VecVirtual {
		if g.wide() {
			h := g.YMM()
			g.VEXTRACTI64X4(operand.Imm(1), v, h)
			op(h, v.AsY(), v.AsY())
		}
		h := g.XMM()
		g.VEXTRACTI128(operand.Imm(1), v.AsY(), h)
		u := g.XMM()
		op(h, v.AsX(), u)
		for _, order := range []uint64{0x4e, 0xb1} {
			t := g.XMM()
			g.VPSHUFD(operand.Imm(order), u, t)
			op(t, u, u)
		}
		return u
	}

	g.SUBQ(operand.Imm(32), n)
	g.JL(operand.LabelRef("rest"))
	g.Label("blocks")
	v := make([]reg.VecVirtual, 32/g.width)
	for i := range v {
		v[i] = g.vec()
		g.VMOVUPS(operand.Mem{Base: x, Disp: 4 * g.width * i}, v[i])
	}
	// Without their signs, floats are ordered as integers are, and NaNs are largest.
	var top reg.VecVirtual
	for i := range v {
		t := g.vec()
		if g.wide() {
			g.VPANDD(abs, v[i], t)
		} else {
			g.VPAND(abs, v[i], t)
		}
		if i > 0 {
			g.VPMAXUD(t, top, t)
		}
		top = t
	}
	amax := halve(top, g.VPMAXUD)
	inv, s, ok, few := g.XMM(), g.XMM(), g.XMM(), g.XMM()
	g.VDIVPS(amax, most, inv)
	g.VDIVPS(most, amax, s)
	const le, nlt = 2, 5
	g.VCMPPS(operand.Imm(nlt), g.consts["quant tiny"], amax, few)
	g.VCMPPS(operand.Imm(le), g.consts["quant most"], amax, ok)
	g.VANDPS(few, ok, ok)
	g.VSUBPS(amax, amax, amax) // NaN unless amax is finite
	g.VADDPS(amax, s, s)
	g.VANDPS(few, s, s)
	g.VMOVSS(s, operand.Mem{Base: dst, Disp: q8AScale})
	by, valid := g.vec(), g.vec()
	g.VBROADCASTSS(inv, by)
	g.VPBROADCASTD(ok, valid)
	for i := range v {
		g.VMULPS(by, v[i], v[i])
		g.VCVTPS2DQ(v[i], v[i])
		if g.wide() {
			g.VPANDD(valid, v[i], v[i])
		} else {
			g.VPAND(valid, v[i], v[i])
		}
	}
	all := g.vec()
	g.VPADDD(v[0], v[1], all)
	for i := 2; i < len(v); i++ {
		g.VPADDD(v[i], all, all)
	}
	// store writes the sum, negated, times the sum of the powers of two.
	zero := g.XMM()
	g.VPXOR(zero, zero, zero)
	store := func(sum reg.VecVirtual, shifts []uint64, at int) {
		neg := g.XMM()
		g.VMOVDQA(zero, neg)
		for _, by := range shifts {
			t := g.XMM()
			g.VPSLLD(operand.Imm(by), sum, t)
			g.VPSUBD(t, neg, neg)
		}
		g.VMOVD(neg, operand.Mem{Base: dst, Disp: at})
	}
	sum := halve(all, g.VPADDD)
	store(sum, []uint64{3}, q8ATimes8)
	asFloat := g.XMM()
	g.VCVTDQ2PS(sum, asFloat)
	g.VMOVSS(asFloat, operand.Mem{Base: dst, Disp: q8ASum})
	switch {
	case g.vnni:
		for i := range v {
			t := g.XMM()
			if planes == 2 {
				g.VPMOVDB(v[i], t)
				g.VMOVDQU(t, operand.Mem{Base: dst, Disp: q8Plane + 16*i})
				g.VPSRAD(operand.Imm(8), v[i], v[i])
			}
			g.VPMOVDB(v[i], t)
			g.VMOVDQU(t, operand.Mem{Base: dst, Disp: 16 * i})
		}
		if planes == 2 {
			g.VPADDD(v[0], v[1], v[1])
			sum = halve(v[1], g.VPADDD)
		} else {
			store(sum, []uint64{7, 3}, q4AStart)
			first := halve(v[0], g.VPADDD)
			store(first, []uint64{7}, q6AStart)
			rest := g.XMM()
			g.VPSUBD(first, sum, rest)
			store(rest, []uint64{7}, q6AStart+4)
		}
		store(sum, []uint64{7}, q8AStart)
	case planes == 1:
		g.quantBytes(dst, v, sum, order, zero)
	case g.wide():
		for i := range v {
			t := g.YMM()
			g.VPMOVDW(v[i], t)
			g.VPSHUFB(pairs, t, t)
			g.VMOVDQU(t, operand.Mem{Base: dst, Disp: 32 * i})
		}
	default:
		for i := 0; i < len(v); i += 2 {
			g.VPACKSSDW(v[i+1], v[i], v[i])
			g.VPERMQ(operand.Imm(0xd8), v[i], v[i])
			g.VPSHUFB(pairs, v[i], v[i])
			g.VMOVDQU(v[i], operand.Mem{Base: dst, Disp: 16 * i})
		}
	}
	if planes == 0 {
		store(sum, []uint64{7, 3}, q8AStart)
	}
	g.ADDQ(operand.I32(128), x)
	g.ADDQ(operand.I32(q8ABlock), dst)
	g.SUBQ(operand.Imm(32), n)
	g.JGE(operand.LabelRef("blocks"))
	g.Label("rest")
	g.ADDQ(operand.Imm(32), n)
	g.JZ(operand.LabelRef("done"))
	g.zero(v[0])
	for i := 0; i < 128; i += 4 * g.width {
		g.VMOVUPS(v[0], last.Offset(i))
	}
	e := g.GP32()
	g.Label("copy")
	g.MOVL(operand.Mem{Base: x, Index: n, Scale: 4, Disp: -4}, e)
	g.MOVL(e, last.Idx(n, 4).Offset(-4))
	g.DECQ(n)
	g.JNZ(operand.LabelRef("copy"))
	g.LEAQ(last, x)
	g.JMP(operand.LabelRef("blocks"))
	g.Label("done")
	g.ret()
}
