package main

import (
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// peaks emits max of the 32 elements of each of some rows.
func (g *gen) peaks() {
	g.text("peaks", "func(dst *float32, ldd uintptr, x *float32, ldx uintptr, rows int)",
		"sets dst to the largest of the 32 elements of each row of x; strides are in bytes.")
	dst, ldd, x, ldx, rows := g.ptr("dst"), g.ptr("ldd"), g.ptr("x"), g.ptr("ldx"), g.ptr("rows")
	least := g.lanesOf("-inf")
	g.Label("rows")
	most := g.block()
	for i, v := range most {
		for b := range 2 {
			u := g.vec()
			g.VMOVUPS(operand.Mem{Base: x, Disp: 64*b + 4*g.width*i}, u)
			// As in max: the second source wins ties and NaNs.
			if b == 0 {
				g.VMAXPS(least[i], u, v)
			} else {
				g.VMAXPS(v, u, v)
			}
		}
	}
	s := g.fold(most, func(u, l, d reg.Register) { g.VMAXPS(l, u, d) })
	g.VMOVSS(s.AsX(), operand.Mem{Base: dst})
	g.ADDQ(ldx, x)
	g.ADDQ(ldd, dst)
	g.DECQ(rows)
	g.JNZ(operand.LabelRef("rows"))
	g.ret()
}
