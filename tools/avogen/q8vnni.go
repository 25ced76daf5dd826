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
	const cols = 2
	f := g.frame(fmt.Sprintf("gemmQ8Planes%d", planes), n, q8Block/64, 2*cols*n+cols+2 <= 32)
	bias := g.word(0x80808080)
	g.Label("blocks")
	f.pre.lines(q8Scales / 64)
	sum := make([][cols]reg.VecVirtual, n)
	for r := range sum {
		for j := range cols {
			sum[r][j] = g.vec()
			g.VPBROADCASTD(f.arow(r, q8AStart), sum[r][j])
		}
	}
	for p := range planes {
		for line := range q8Lines {
			at := func(j int) operand.Mem {
				return operand.Mem{Base: f.b, Disp: q8Scales + q8Line*line + 64*j}
			}
			f.pre.lines(cols / planes)
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
				g.VPBROADCASTD(f.arow(r, q8Plane*p+4*line), x)
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
		g.VCVTPH2PS(operand.Mem{Base: f.b, Disp: 32 * j}, d)
		for r := range sum {
			v := sum[r][j]
			g.VCVTDQ2PS(v, v)
			g.VMULPS(d, v, v)
			f.add(r, j, v)
		}
	}
	f.next(q8Block)
	f.end()
}
