package main

import (
	"fmt"

	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// The q6k format, as kern/q6.go has it.
const (
	q6kLine  = 64           // bytes of a byte of a group's outputs
	q6kGroup = 3 * q6kLine  // of 16 k of 16 outputs
	q6kHalf  = 2 * q6kGroup // of 16 k of a panel
	q6kShare = 32           // bytes of the scales of a half
	q6Rows   = 8            // of the largest kernel of VNNI: 16 sums beside eight registers of weights
	q6kPart  = 2*q6kShare + 2*q6kHalf
)

// q6Line returns the place of byte at of the i-th line of a group.
func (f *frame) q6Line(half, group, at, i int) operand.Mem {
	return operand.Mem{Base: f.b, Disp: 2*q6kShare + half*q6kHalf + group*q6kGroup + i*q6kLine + at}
}

// q6Weights returns four times the weights of k = 4i to 4i+3, i < 4, of a half of a part, an int8 each, of the
// outputs of the register at byte at of a line of a group. With bias they are 128 more, and unsigned.
func (f *frame) q6Weights(half, group, at, i int, high, bias reg.VecVirtual) reg.VecVirtual {
	line := func(i int) operand.Mem { return f.q6Line(half, group, at, i) }
	const choose, andXor = 0xe4, 0x6a // where the last operand has ones the third, else the second; third & second ^ last
	w := f.vec()
	switch {
	case i < 3 && f.wide() && bias == nil:
		f.VPANDD(line(i), high, w)
	case f.wide():
		if i < 3 {
			f.VMOVDQU32(line(i), w)
		} else {
			u, v := f.vec(), f.vec()
			f.VPSLLD(operand.Imm(6), line(0), w)
			f.VPSLLD(operand.Imm(4), line(1), u)
			f.VPSLLD(operand.Imm(2), line(2), v)
			f.VPTERNLOGD_BCST(operand.Imm(choose), f.consts["quant two"], u, w)
			f.VPTERNLOGD_BCST(operand.Imm(choose), f.consts["quant four"], v, w)
		}
		if bias == nil {
			f.VPANDD(high, w, w)
		} else {
			f.VPTERNLOGD(operand.Imm(andXor), bias, high, w)
		}
	case i < 3:
		f.VMOVDQU(line(i), w)
		f.VPAND(f.constant("quant six"), w, w)
	default:
		u := f.vec()
		for j, name := range []string{"quant two", "quant next", "quant last"} {
			to := w
			if j > 0 {
				to = u
			}
			f.VMOVDQU(line(j), to)
			f.VPSLLD(operand.Imm(uint64(6-2*j)), to, to)
			f.VPAND(f.constant(name), to, to)
			if j > 0 {
				f.VPOR(u, w, w)
			}
		}
	}
	return w
}

// q6 turns the sums of a half into outputs, of the registers from the at-th on, and adds these.
func (f *frame) q6(sums [][]reg.VecVirtual, half, at int) {
	cols := make([]column, len(sums[0]))
	for j := range cols {
		at := at + j
		cols[j].at, cols[j].scales = at, func() (d, m reg.VecVirtual) {
			d = f.sharedScales(f.width*at, func(s reg.VecVirtual) {
				f.VPMOVSXBD(operand.Mem{Base: f.b, Disp: q6kShare*half + f.width*at}, s)
			})
			return d, nil
		}
	}
	f.scale(sums, false, false, cols...)
}

// q6Frame starts a kernel of q6k, as q4Frame does.
func (g *gen) q6Frame(planes string, n int, keep bool, by string, consts func(f *frame)) (f *frame, end func()) {
	return g.superFrame("gemmQ6K"+planes, n, q8Scales, q6kPart, keep, by, consts)
}

// q6VNNI emits the kernel of n rows of one or two planes of bytes. Of one plane, the activations are signed
// and the weights have 128 added, which the sums' starts make up for. Of two, the activations are without
// sign, those of the first plane plus 128, and the sums start from −128 times the sum of the weights.
func (g *gen) q6VNNI(n, planes int) {
	const cols = 2
	needs := 8 // registers beside sums and outputs
	if planes == 2 {
		needs = 14
	}
	var high, bias, zero reg.VecVirtual
	f, end := g.q6Frame(fmt.Sprintf("Planes%d", planes), n, 4*n+needs <= 32, "quant quarter", func(*frame) {
		high, bias, zero = g.word(0xfcfcfcfc), g.word(0x80808080), g.vec()
		if planes == 2 {
			g.zero(zero)
		}
	})
	for half := range 2 {
		var w [cols][4]reg.VecVirtual
		sums := f.sums(n, cols)
		if planes == 1 {
			f.starts(sums, q6AStart+4*half)
			for i := range 4 {
				for j := range cols {
					f.pre.lines(min(1, 3-i))
					w[j][i] = f.q6Weights(half, j, 0, i, high, bias)
				}
				for r := range sums {
					x := g.vec()
					g.VPBROADCASTD(f.arow(r, q6kLine/4*half+4*i), x)
					for j, v := range sums[r] {
						g.VPDPBUSD(x, w[j][i], v)
					}
				}
			}
			f.q6(sums, half, 0)
			continue
		}
		for j := range cols {
			sum, start := g.vec(), g.vec()
			g.VMOVDQA32(zero, sum)
			for i := range w[j] {
				f.pre.lines(min(1, 3-i))
				w[j][i] = f.q6Weights(half, j, 0, i, high, nil)
				g.VPDPBUSD(w[j][i], bias, sum)
			}
			g.VPSUBD(sum, zero, start)
			for r := range sums {
				g.VMOVDQA32(start, sums[r][j])
			}
		}
		for p := range planes {
			for i := range 4 {
				for r := range sums {
					x, at := g.vec(), f.arow(r, q8Plane*p+q6kLine/4*half+4*i)
					if p == 0 {
						g.VPXORD_BCST(at, bias, x)
					} else {
						g.VPBROADCASTD(at, x)
					}
					for j, v := range sums[r] {
						g.VPDPBUSD(w[j][i], x, v)
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
		f.q6(sums, half, 0)
	}
	end()
}

// q6Pairs emits the kernel of n rows for activations in pairs, as q8 does. Two columns share what is read of the
// activations; the largest kernel without AVX-512 has no registers to keep two columns of weights for their other half,
// and takes most of them apart once more.
func (g *gen) q6Pairs(n int) {
	var high reg.VecVirtual
	again := !g.wide() && n == 6
	group := 2 // registers of a row at once
	if !g.wide() && n < 3 {
		group = 4
	}
	f, end := g.q6Frame("", n, false, "quant quarter", func(f *frame) {
		if g.wide() {
			high = g.word(0xfcfcfcfc)
			return
		}
		busy := n*group + 5
		if again {
			busy -= 2
		}
		if !g.dots {
			busy++
		}
		f.hold(busy, "quant six", "quant two", "quant next", "quant last")
	})
	sum := f.sums(n, group)
	for half := range 2 {
		for col := 0; col < 32/g.width; col += group {
			for i := range 4 {
				f.pre.lines(min(1, 3-i) * group * g.width / 16)
				at, twice := 2, again && i < 3
				if again && i == 3 {
					at = 1
				}
				w := make([]reg.VecVirtual, group)
				g.pairs(sum, at, func(j, odd int) reg.VecVirtual {
					to := w[j]
					if odd == 0 || twice {
						o := (col + j) * g.width // output
						w[j] = f.q6Weights(half, o/16, o%16*4, i, high, nil)
						to = w[j]
					}
					if odd == 0 {
						if !twice {
							to = g.vec()
						}
						g.VPSLLW(operand.Imm(8), w[j], to)
					}
					g.VPSRAW(operand.Imm(8), to, to)
					return to
				}, f.arow, 4*half+i, i == 0)
			}
			f.q6(sum, half, col)
		}
	}
	end()
}
