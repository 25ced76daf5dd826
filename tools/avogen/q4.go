package main

import (
	"fmt"

	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// The 4-bit formats, as kern/q4.go has them.
const (
	q4Line  = 64 // bytes of four k of a panel
	q4Ints  = q8Lines * q4Line
	q4Block = q8Scales + q4Ints
	q4kMins = 32 // bytes from the integers of scales to those of minima
	q4kPart = 2*q4kMins + q4Ints
	q41Own  = 2 * q8Scales // bytes of a block's scales, and of its minima
)

// A nibbles is a format of integers of 4 bits that products read as they lie.
type nibbles struct {
	name   string
	minima bool // a weight is D·q − M, or D·q + M if plus is set, else D·(q−8)
	plus   bool
	shared bool // eight blocks share scales, of which each has parts
}

// The formats. Q41 is kern's Q4_1.
var (
	nibbleFormats = []*nibbles{q4Format, q4kFormat, q41Format}
	q4Format      = &nibbles{name: "Q4"}
	q4kFormat     = &nibbles{name: "Q4K", minima: true, shared: true}
	q41Format     = &nibbles{name: "Q41", minima: true, plus: true}
)

// ints returns the bytes of a block before its integers.
func (q *nibbles) ints() int {
	if q.plus {
		return q41Own
	}
	return q8Scales // as q4k's integers of scales and minima
}

// A line of weights holds four k of output j in the low four bits of a word's bytes, and those of
// output j+16 in the high ones. Sums of products with the low ones, and with whole bytes, give those
// of both outputs: sums [n][2] hold the former, t, and the latter, v. q4 emits what turns them into
// the outputs' own and adds these, for the outputs of register j of the low ones, and of the high
// ones. It is the rest of a block. If centred, t is Σ a·(v&15) and v 128·Σ a too small; else both are as q4Starts begins
// them.
func (f *frame) q4(q *nibbles, sums [][]reg.VecVirtual, j int, centred bool) {
	cols := f.q4Columns(q, j)
	cols[0].sum = func(r int) {
		t, v := sums[r][0], sums[r][1]
		f.VPSUBD(t, v, v)
		f.VPSRAD(operand.Imm(4), v, v)
		if centred && !q.minima {
			f.words(f.VPADDD, f.VPADDD_BCST, f.arow(r, q8ATimes8), t)
		}
	}
	if centred && q.minima {
		cols[1].sum = func(r int) { f.words(f.VPSUBD, f.VPSUBD_BCST, f.arow(r, q8ATimes8), sums[r][1]) }
	}
	f.scale(sums, q.minima, q.plus, cols...)
}

// q4Columns returns the columns of the outputs of register j of the low bits, and of those of the high ones.
func (f *frame) q4Columns(q *nibbles, j int) []column {
	cols := make([]column, 2)
	for i := range cols {
		at := j + 16/f.width*i
		cols[i].at, cols[i].scales = at, func() (d, m reg.VecVirtual) { return f.q4Scales(q, at) }
	}
	return cols
}

// q4Scales returns the scales and, if there are some, the minima of the outputs from the at-th register on.
func (f *frame) q4Scales(q *nibbles, at int) (d, m reg.VecVirtual) {
	if q.shared {
		at *= f.width
		own := func(disp int) func(s reg.VecVirtual) {
			return func(s reg.VecVirtual) { f.VPMOVZXBD(operand.Mem{Base: f.b, Disp: disp}, s) }
		}
		return f.sharedScales(at, own(at)), f.sharedScales(32+at, own(q4kMins+at))
	}
	d = f.vec()
	f.VCVTPH2PS(operand.Mem{Base: f.b, Disp: 2 * f.width * at}, d)
	if q.minima {
		m = f.vec()
		f.VCVTPH2PS(operand.Mem{Base: f.b, Disp: q8Scales + 2*f.width*at}, m)
	}
	return d, m
}

// sharedScales returns the scales of a part of a block, which load gives as integers, times those that the block's parts
// share, from the at-th on.
func (f *frame) sharedScales(at int, load func(s reg.VecVirtual)) reg.VecVirtual {
	s := f.vec()
	load(s)
	f.VCVTDQ2PS(s, s)
	f.VMULPS(f.shared.Offset(4*at), s, s)
	return s
}

// q4Starts returns what sums start from: zero if minima is set, and else what makes them those of
// products with q−8, for whole bytes −136·Σ a at a place of a block of activations.
func (f *frame) q4Starts(at int, minima bool) [][]reg.VecVirtual {
	sums := f.sums(f.n, 2)
	for r := range sums {
		if minima {
			f.zero(sums[r]...)
			continue
		}
		f.VPBROADCASTD(f.arow(r, q8ATimes8), sums[r][0])
		f.VPBROADCASTD(f.arow(r, at), sums[r][1])
	}
	return sums
}

// words emits an instruction whose first operand is a word in memory, broadcast.
func (g *gen) words(full, bcst func(...operand.Op), m operand.Mem, ops ...operand.Op) {
	if len(ops) == 1 {
		ops = append(ops, ops[0])
	}
	if g.wide() {
		bcst(append([]operand.Op{m}, ops...)...)
		return
	}
	t := g.vec()
	g.VBROADCASTSS(m, t)
	full(append([]operand.Op{t}, ops...)...)
}

// q4Frame starts a kernel of a format up to the first line of a block. It returns what ends the block.
func (g *gen) q4Frame(q *nibbles, planes string, n int, keep bool, consts func(f *frame)) (f *frame, end func()) {
	name := "gemm" + q.name + planes
	if q.shared {
		return g.superFrame(name, n, 2*q8Scales, q4kPart, keep, "", consts)
	}
	block := q.ints() + q4Ints
	f = g.frame(name, n, block/64, keep)
	consts(f)
	g.Label("blocks")
	f.pre.lines(q.ints() / 64)
	return f, func() {
		f.next(block)
		f.end()
	}
}

// superFrame starts a kernel for blocks of first bytes and eight parts of 32 k, of part bytes each. The scales that the
// parts share are widened once, times the constant called by unless that is empty, and lie in whole cache lines: loads
// that wait for a store across two take longer.
func (g *gen) superFrame(name string, n, first, part int, keep bool, by string, consts func(f *frame)) (f *frame, end func()) {
	f = g.frame(name, n, part/64, keep)
	consts(f)
	parts, lines := g.GP64(), g.GP64()
	g.LEAQ(g.AllocLocal(2*first+64), lines)
	g.ADDQ(operand.Imm(63), lines)
	g.ANDQ(operand.I32(-64), lines)
	f.shared = operand.Mem{Base: lines}
	g.Label("blocks")
	for i := range first / 64 {
		g.PREFETCHT1(operand.Mem{Base: f.pre.ahead, Disp: 64 * i})
	}
	g.ADDQ(operand.I32(uint64(first)), f.pre.ahead)
	for i := 0; i < first; i += 2 * g.width {
		v := g.vec()
		g.VCVTPH2PS(operand.Mem{Base: f.b, Disp: i}, v)
		if by != "" {
			g.op3(g.VMULPS, g.VMULPS_BCST, g.consts[by], v, v)
		}
		g.VMOVUPS(v, f.shared.Offset(2*i))
	}
	g.ADDQ(operand.I32(uint64(first)), f.b)
	g.MOVQ(operand.U32(8), parts)
	g.Label("parts")
	f.pre.lines(1) // a part's scales
	return f, func() {
		f.next(part)
		g.DECQ(parts)
		g.JNZ(operand.LabelRef("parts"))
		f.end()
	}
}

// q4VNNI emits the kernel of n rows of one or two planes of bytes. Weights are unsigned: for the
// second plane, whose activations are, whole bytes minus 128 are multiplied, which the first
// plane's sums make up for as they do for q8.
func (g *gen) q4VNNI(q *nibbles, n, planes int) {
	var mask, bias reg.VecVirtual
	f, end := g.q4Frame(q, fmt.Sprintf("Planes%d", planes), n, 4*n+7 <= 32, func(*frame) {
		mask, bias = g.word(0x0f0f0f0f), g.word(0x80808080)
	})
	var sums [][]reg.VecVirtual
	if planes == 1 {
		sums = f.q4Starts(q4AStart, q.minima)
	} else {
		sums = f.q4Starts(q8AStart, true)
		for r := range sums {
			g.VPBROADCASTD(f.arow(r, q8AStart), sums[r][1])
		}
	}
	for p := range planes {
		for line := range q8Lines {
			if p == 0 {
				f.pre.lines(1)
			}
			all, low := g.vec(), g.vec()
			g.VMOVDQU32(operand.Mem{Base: f.b, Disp: q.ints() + q4Line*line}, all)
			g.VPANDD(mask, all, low)
			if p == 1 {
				g.VPXORD(bias, all, all)
			}
			for r := range sums {
				x := g.vec()
				g.VPBROADCASTD(f.arow(r, q8Plane*p+4*line), x)
				if p == 0 {
					g.VPDPBUSD(x, low, sums[r][0])
					g.VPDPBUSD(x, all, sums[r][1])
				} else {
					g.VPDPBUSD(low, x, sums[r][0])
					g.VPDPBUSD(all, x, sums[r][1])
				}
			}
		}
		for r := range sums {
			for _, v := range sums[r] {
				if p < planes-1 {
					g.VPSLLD(operand.Imm(8), v, v)
				}
			}
		}
	}
	f.q4(q, sums, 0, planes == 2)
	end()
}

// q4Pairs emits the kernel of n rows for activations in pairs, as q8 does.
func (g *gen) q4Pairs(q *nibbles, n int) {
	var even, low reg.VecVirtual
	f, end := g.q4Frame(q, "", n, false, func(f *frame) {
		if g.wide() {
			even, low = g.word(0x00ff00ff), g.word(0x000f000f)
		} else {
			f.hold(2*n+4, "quant low", "quant even")
		}
	})
	and := func(name string, mask, v, to reg.VecVirtual) {
		if g.wide() {
			g.VPANDD(mask, v, to)
		} else {
			g.VPAND(f.constant(name), v, to)
		}
	}
	for j := range 16 / g.width {
		sums := f.q4Starts(q8AStart, q.minima)
		for line := range q8Lines {
			if j == 0 {
				f.pre.lines(1)
			}
			for half := range 2 {
				all, part := g.vec(), g.vec()
				g.VMOVUPS(operand.Mem{Base: f.b, Disp: q.ints() + q4Line*line + 4*g.width*j}, all)
				if half == 0 {
					and("quant even", even, all, all)
				} else {
					g.VPSRLW(operand.Imm(8), all, all)
				}
				and("quant low", low, all, part)
				for r := range sums {
					x := g.vec()
					g.VPBROADCASTD(f.arow(r, 8*line+4*half), x)
					t := x
					if !g.dots {
						t = g.vec()
					}
					g.addDots(x, part, t, sums[r][0])
					g.addDots(x, all, x, sums[r][1])
				}
			}
		}
		f.q4(q, sums, j, false)
	}
	end()
}
