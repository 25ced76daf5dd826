package main

import (
	"fmt"

	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// q8VNNI emits the kernel of n rows of one or two planes of bytes. An instruction
// multiplies the four k of a word of weights by as many activations, if one side
// is unsigned: for the first plane the weights plus 128, for which the sums start
// from −128·Σ a; for the second, the low bytes, the activations themselves. The
// second plane's products are added to 256 times the first one's sums.
func (g *gen) q8VNNI(n, planes int) {
	g.text(fmt.Sprintf("gemmQ8Planes%dx%d", planes, n),
		"func(c *float32, ldc uintptr, a *uint32, ars uintptr, b *byte, blocks int, acc bool, ahead, pace uintptr)",
		fmt.Sprintf("computes %d rows of 32 outputs; strides are in bytes.", n))
	c, ldc := g.ptr("c"), g.ptr("ldc")
	a, ars := g.ptr("a"), g.ptr("ars")
	b, blocks := g.ptr("b"), g.ptr("blocks")
	pre := g.prefetcher(b, q8Block/64)
	arow, bases := g.rowsAt(a, ars, n)
	crow, _ := g.rowsAt(c, ldc, n)

	// The outputs stay in registers if there are enough.
	const cols, registers = 2, 32
	keep := 2*cols*n+cols+2 <= registers
	outputs := make([][cols]reg.VecVirtual, n)
	bias := g.vec()
	t := g.GP32()
	g.MOVL(operand.U32(0x80808080), t)
	g.VPBROADCASTD(t, bias)
	if keep {
		for r := range outputs {
			outputs[r] = [cols]reg.VecVirtual{g.vec(), g.vec()}
			g.zero(outputs[r][:]...)
		}
	}
	g.CMPB(g.addr(g.Param("acc")), operand.Imm(0))
	if keep {
		g.JE(operand.LabelRef("start"))
	} else {
		g.JNE(operand.LabelRef("start"))
	}
	zero := g.vec()
	if !keep {
		g.zero(zero)
	}
	for r := range outputs {
		for j, v := range outputs[r] {
			if keep {
				g.VMOVUPS(crow(r, 64*j), v)
			} else {
				g.VMOVUPS(zero, crow(r, 64*j))
			}
		}
	}
	g.Label("start")
	g.TESTQ(blocks, blocks)
	g.JZ(operand.LabelRef("done"))
	g.Label("blocks")
	pre.lines(q8Scales / 64)
	sum := make([][cols]reg.VecVirtual, n)
	for r := range sum {
		for j := range cols {
			sum[r][j] = g.vec()
			g.VPBROADCASTD(arow(r, q8AStart), sum[r][j])
		}
	}
	for p := range planes {
		for line := range q8Lines {
			at := func(j int) operand.Mem {
				return operand.Mem{Base: b, Disp: q8Scales + q8Line*line + 64*j}
			}
			pre.lines(cols / planes)
			var w [cols]reg.VecVirtual
			for j := range cols {
				w[j] = g.vec()
				if p == 0 {
					g.VPXORD(at(j), bias, w[j])
				} else {
					g.VMOVDQU32(at(j), w[j])
				}
			}
			for r := range sum {
				x := g.vec()
				g.VPBROADCASTD(arow(r, q8Plane*p+4*line), x)
				for j, v := range sum[r] {
					if p == 0 {
						g.VPDPBUSD(x, w[j], v)
					} else {
						g.VPDPBUSD(w[j], x, v)
					}
				}
			}
		}
		if p == planes-1 {
			break
		}
		for r := range sum {
			for _, v := range sum[r] {
				g.VPSLLD(operand.Imm(8), v, v)
			}
		}
	}
	for j := range cols {
		d := g.vec()
		g.VCVTPH2PS(operand.Mem{Base: b, Disp: 32 * j}, d)
		for r := range sum {
			v := sum[r][j]
			g.VCVTDQ2PS(v, v)
			g.VMULPS(d, v, v)
			if keep {
				g.VFMADD231PS_BCST(arow(r, q8AScale), v, outputs[r][j])
				continue
			}
			s, o := g.vec(), crow(r, 64*j)
			g.VBROADCASTSS(arow(r, q8AScale), s)
			g.VFMADD213PS(o, s, v)
			g.VMOVUPS(v, o)
		}
	}
	pre.next()
	for _, p := range bases {
		g.ADDQ(operand.I32(q8ABlock), p)
	}
	g.ADDQ(operand.I32(q8Block), b)
	g.DECQ(blocks)
	g.JNZ(operand.LabelRef("blocks"))
	g.Label("done")
	for r := range outputs {
		for j, v := range outputs[r] {
			if keep {
				g.VMOVUPS(v, crow(r, 64*j))
			}
		}
	}
	g.ret()
}
