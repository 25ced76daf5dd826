package main

import (
	"math"

	"github.com/mmcloughlin/avo/attr"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// geluConstants are those of kern/gelu.go, laid out as constants does.
func (g *gen) geluConstants() {
	table := g.StaticGlobal("gelu" + g.suffix)
	g.DataAttributes(attr.RODATA | attr.NOPTR)
	off := 0
	for _, c := range []struct {
		name string
		bits uint32
	}{
		{"gelu p", f32(0.3)},
		{"gelu 0", f32(6.68615576e-06)},
		{"gelu 1", f32(0.119495891)},
		{"gelu 2", f32(0.121862024)},
		{"gelu 3", f32(0.0949109271)},
		{"gelu 4", f32(0.142002776)},
		{"gelu 5", f32(-0.0757365525)},
		{"gelu 6", f32(0.22798796)},
		{"gelu 7", f32(-0.168841228)},
		{"gelu 8", f32(0.0383115448)},
		{"gelu max", f32(32)},
		{"-half", f32(-0.5)},
		{"magnitude", math.MaxInt32},
	} {
		g.consts[c.name] = table.Offset(off)
		for range 8 {
			g.AddDatum(off, operand.U32(c.bits))
			off += 4
		}
	}
}

// gelu emits kern's gelu32 over slices.
func (g *gen) gelu() {
	g.geluConstants()
	g.text("gelu", "func(dst, x *float32, n int)", "sets dst to x·Φ(x).")
	dst, x, n := g.ptr("dst"), g.ptr("x"), g.ptr("n")
	magic, c4 := g.constant("magic"), g.constant("c4")
	one, most, top := g.constant("one"), g.constant("gelu max"), g.constant("gelu 8")
	g.each(n, func(idx reg.Register, i int, m mask) {
		v := g.read(x, idx, i, m)
		a, zero, t, r := g.vec(), g.vec(), g.vec(), g.vec()
		g.op3(g.VANDPS, g.VANDPS_BCST, g.consts["magnitude"], v, a)
		if g.wide() {
			g.VPXORD(zero, zero, zero)
		} else {
			g.VXORPS(zero, zero, zero)
		}
		// The second source, Go's first operand, wins ties and NaNs.
		g.VMAXPS(v, zero, v)
		g.VMINPS(a, most, a)
		g.VMOVAPS(a, t)
		g.op3(g.VFMADD132PS, g.VFMADD132PS_BCST, g.consts["gelu p"], one, t)
		g.VDIVPS(t, one, t)
		g.VMOVAPS(top, r)
		for _, c := range []string{"gelu 7", "gelu 6", "gelu 5", "gelu 4", "gelu 3", "gelu 2", "gelu 1", "gelu 0"} {
			g.fmaConst(c, t, r)
		}
		e := g.vec()
		g.op3(g.VMULPS, g.VMULPS_BCST, g.consts["-half"], a, e)
		g.VMULPS(a, e, e)
		g.exp(e, magic, c4)
		g.VMULPS(r, e, e)
		g.VFNMADD231PS(e, a, v)
		g.store(v, dst, idx, i, m)
	})
	g.ret()
}
