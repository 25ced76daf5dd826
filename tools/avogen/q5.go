package main

import (
	"fmt"

	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// The format Q5_0, as kern/compact.go has it, for products that read it as it lies.
const (
	q50Fifth = q8Scales + q4Ints // where the fifth bits are, flipped: 32 bytes of two lines
	q50Block = q50Fifth + q4Ints/4
	q50Rows  = 8 // of the largest kernel of AVX-512
)

// A fifths is what kernels hold of the fifth bits.
type fifths struct {
	*frame
	upper    reg.OpmaskVirtual // AVX-512: the upper half of a register's words
	low, bit reg.VecVirtual    // AVX-512: masks of the low four bits, and of the fifth
	pair     reg.VecVirtual    // AVX-512: the fifth bits of two lines; those of the upper half lie where the lower half's do
}

// q50 starts a kernel of n rows of Q5_0, up to the first line of a block.
func (g *gen) q50(planes string, n int, keep bool) *fifths {
	f := &fifths{frame: g.frame("gemmQ50"+planes, n, q50Block/64, keep)}
	if g.wide() {
		f.low, f.bit = g.word(0x0f0f0f0f), g.word(0x10101010)
		f.upper = g.K()
		t := g.GP32()
		g.MOVL(operand.U32(0xffff0000), t)
		g.KMOVD(t, f.upper)
	} else {
		f.hold(2*n+6, "quant nibble", "quant sixteen")
	}
	g.Label("blocks")
	f.pre.lines(q8Scales / 64)
	return f
}

// ahead asks for a line, and for what it needs of the fifth bits.
func (f *fifths) ahead(line int) {
	f.pre.lines(1)
	if line%4 == 0 {
		f.pre.lines(1)
	}
}

// weights returns the integers, plus 16, of a line: of the outputs of register j of the low bits, and of those of the
// high ones.
func (f *fifths) weights(line, j int) [2]reg.VecVirtual {
	at := operand.Mem{Base: f.b, Disp: q8Scales + q4Line*line + 4*f.width*j}
	fifth := operand.Mem{Base: f.b, Disp: q50Fifth + 32*(line/2)}
	w := [2]reg.VecVirtual{f.vec(), f.vec()}
	// shifted returns the fifth bits of a side where a byte has its fifth one.
	shifted := func(v reg.VecVirtual, side int) reg.VecVirtual {
		t := f.vec()
		switch at := line%2*4 + j + 2*side; {
		case at < 4:
			f.VPSLLW(operand.Imm(uint64(4-at)), v, t)
		case at > 4:
			f.VPSRLW(operand.Imm(uint64(at-4)), v, t)
		default:
			return v
		}
		return t
	}
	if f.wide() {
		if line%2 == 0 {
			f.pair = f.vec()
			f.VBROADCASTI64X4(fifth, f.pair)
			f.VPSRLW(operand.Imm(1), f.pair, f.upper, f.pair)
		}
		f.VMOVDQU32(at, w[0])
		f.VPSRLW(operand.Imm(4), w[0], w[1])
		const orAndNot = 0xf2 // third | ^second & last
		for side, v := range w {
			f.VPANDD(f.low, v, v)
			f.VPTERNLOGD(operand.Imm(orAndNot), f.bit, shifted(f.pair, side), v)
		}
		return w
	}
	f.VMOVDQU(at, w[0])
	f.VPSRLW(operand.Imm(4), w[0], w[1])
	for side, v := range w {
		f.VPAND(f.constant("quant nibble"), v, v)
		t := f.vec()
		f.VMOVDQU(fifth, t)
		u := shifted(t, side)
		f.VPANDN(f.constant("quant sixteen"), u, u)
		f.VPOR(u, v, v)
	}
	return w
}

// finish turns the sums of products with the integers plus 16 of register j of the low bits, and of that of the high
// ones, into outputs and adds these. If centred is set, they are those of the integers already.
func (f *fifths) finish(sums [][]reg.VecVirtual, j int, centred bool) {
	if !centred {
		for r := range sums {
			all := f.vec()
			f.VPBROADCASTD(f.arow(r, q8ATimes8), all)
			f.VPADDD(all, all, all)
			for _, v := range sums[r] {
				f.VPADDD(all, v, v)
			}
		}
	}
	f.q8(sums, j, 16/f.width, false)
}

// q50Bytes emits the kernel of n rows for activations of one plane of bytes without VNNI.
func (g *gen) q50Bytes(n int) {
	f := g.q50(bytesPlanes, n, false)
	for j := range 16 / g.width {
		sums := f.sums(n, 2)
		f.starts(sums, bytesStart5)
		for line := range q8Lines {
			if j == 0 {
				f.ahead(line)
			}
			w := f.weights(line, j)
			f.octets(sums, w[:], line, false)
		}
		f.widened(sums)
		f.finish(sums, j, true)
	}
	f.next(q50Block)
	f.end()
}

// q50VNNI emits the kernel of n rows of one or two planes of bytes.
func (g *gen) q50VNNI(n, planes int) {
	f := g.q50(fmt.Sprintf("Planes%d", planes), n, 4*n+10 <= 32)
	sums := f.sums(n, 2)
	for r := range sums {
		g.zero(sums[r]...)
	}
	for p := range planes {
		for line := range q8Lines {
			if p == 0 {
				f.ahead(line)
			}
			w := f.weights(line, 0)
			for r := range sums {
				x := g.vec()
				g.VPBROADCASTD(f.arow(r, q8Plane*p+4*line), x)
				for i, v := range sums[r] {
					if p == 0 {
						g.VPDPBUSD(x, w[i], v)
					} else {
						g.VPDPBUSD(w[i], x, v)
					}
				}
			}
		}
		if p == planes-1 {
			break
		}
		for r := range sums {
			for _, v := range sums[r] {
				g.VPSLLD(operand.Imm(8), v, v)
			}
		}
	}
	f.finish(sums, 0, false)
	f.next(q50Block)
	f.end()
}
