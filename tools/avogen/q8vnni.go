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
func (g *gen) q8VNNI(n, planes int, minima bool) {
	const cols = 2
	var bias reg.VecVirtual
	f, first, block := g.q8Frame(fmt.Sprintf("Planes%d", planes), n, minima, 2*cols*n+cols+2 <= 32, func(*frame) { bias = g.word(0x80808080) })
	sum := f.sums(n, cols)
	f.starts(sum, q8AStart)
	for p := range planes {
		for line := range q8Lines {
			at := func(j int) operand.Mem {
				return operand.Mem{Base: f.b, Disp: first + q8Line*line + 64*j}
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
	f.q8(sum, 0, 1, minima)
	f.next(block)
	f.end()
}
