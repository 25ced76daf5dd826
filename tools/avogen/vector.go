package main

import (
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// vectors emits the functions over slices. Their arithmetic is that of the
// function of the same name in kern/portable.go, operation by operation.
func (g *gen) vectors() {
	g.expFunc()
	g.expSum()
	g.expTotal()
	g.max()
	g.index()
	g.peaks()
	g.scale()
	g.binary("add", "sets dst to a+b.", g.VADDPS)
	g.binary("mul", "sets dst to a·b.", g.VMULPS)
	g.axpy()
	g.dot()
	g.silu()
	g.siluGrad()
	g.gelu()
	g.rope()
	g.adamW()
	if !g.wide() {
		g.packs()
		g.unpacks()
	}
}

// each emits body for every part of every block.
func (g *gen) each(n reg.GPVirtual, body func(idx reg.Register, i int, m mask)) {
	g.blocks(n, func(idx reg.Register, m mask) {
		for i := range g.parts() {
			body(idx, i, m)
		}
	})
}

// read returns part i of a block in a new register.
func (g *gen) read(base, idx reg.Register, i int, m mask) reg.VecVirtual {
	v := g.vec()
	g.load(base, idx, i, m, v)
	return v
}

func (g *gen) expFunc() {
	g.text("exp", "func(dst, x *float32, n int)", "sets dst to exp(x).")
	dst, x, n := g.ptr("dst"), g.ptr("x"), g.ptr("n")
	magic, c4 := g.constant("magic"), g.constant("c4")
	g.each(n, func(idx reg.Register, i int, m mask) {
		v := g.read(x, idx, i, m)
		g.exp(v, magic, c4)
		g.store(v, dst, idx, i, m)
	})
	g.ret()
}

// lanesOf returns a block filled with a constant, or zeros if name is empty.
func (g *gen) lanesOf(name string) block {
	b := g.block()
	for _, v := range b {
		switch {
		case name != "":
			g.VBROADCASTSS(g.consts[name], v)
		case g.wide():
			g.VPXORD(v, v, v)
		default:
			g.VXORPS(v, v, v)
		}
	}
	return b
}

func (g *gen) addFold(b block) {
	s := g.fold(b, func(u, l, d reg.Register) { g.VADDPS(u, l, d) })
	g.VMOVSS(s.AsX(), g.addr(g.ReturnIndex(0)))
}

func (g *gen) expSum() {
	g.text("expSum", "func(dst, x *float32, n int, max float32) float32", "sets dst to exp(x−max) and returns the lane sum.")
	dst, x, n := g.ptr("dst"), g.ptr("x"), g.ptr("n")
	most, magic, c4 := g.scalar("max"), g.constant("magic"), g.constant("c4")
	sum := g.lanesOf("")
	g.each(n, func(idx reg.Register, i int, m mask) {
		v := g.read(x, idx, i, m)
		g.VSUBPS(most, v, v)
		g.exp(v, magic, c4)
		g.store(v, dst, idx, i, m)
		g.accumulate(sum[i], i, m, func(into reg.Register) { g.VADDPS(v, sum[i], into) })
	})
	g.addFold(sum)
	g.ret()
}

// rowAhead is how many bytes ahead a row of the vocabulary is asked for.
const rowAhead = 1 << 12

// expTotal is expSum for rows that come from far off: the processor's own prefetching
// ends with every page.
func (g *gen) expTotal() {
	g.text("expTotal", "func(x *float32, n int, max float32) float32", "returns the lane sum of exp(x−max).")
	x, n := g.ptr("x"), g.ptr("n")
	most, magic, c4 := g.scalar("max"), g.constant("magic"), g.constant("c4")
	sum := g.lanesOf("")
	g.each(n, func(idx reg.Register, i int, m mask) {
		if i == 0 && m.all() {
			g.PREFETCHT0(operand.Mem{Base: x, Index: idx, Scale: 4, Disp: rowAhead})
		}
		v := g.read(x, idx, i, m)
		g.VSUBPS(most, v, v)
		g.exp(v, magic, c4)
		g.accumulate(sum[i], i, m, func(into reg.Register) { g.VADDPS(v, sum[i], into) })
	})
	g.addFold(sum)
	g.ret()
}

// accumulate lets op compute the next value of acc and keeps it where the mask
// is set: a lane beyond the end stays as it is.
func (g *gen) accumulate(acc reg.Register, i int, m mask, op func(into reg.Register)) {
	if m.all() {
		op(acc)
		return
	}
	t := g.vec()
	op(t)
	g.keep(t, acc, i, m)
}

func (g *gen) max() {
	g.text("max", "func(x *float32, n int) float32", "returns the largest element.")
	x, n := g.ptr("x"), g.ptr("n")
	most := g.lanesOf("-inf")
	g.each(n, func(idx reg.Register, i int, m mask) {
		v := g.read(x, idx, i, m)
		// the second source, Go's first operand, wins ties and NaNs
		g.accumulate(most[i], i, m, func(into reg.Register) { g.VMAXPS(most[i], v, into) })
	})
	s := g.fold(most, func(u, l, d reg.Register) { g.VMAXPS(l, u, d) })
	g.VMOVSS(s.AsX(), g.addr(g.ReturnIndex(0)))
	g.ret()
}

func (g *gen) index() {
	g.text("index", "func(x *float32, n int, v float32) int", "returns the lowest index of v, −1 if there is none.")
	x, n := g.ptr("x"), g.ptr("n")
	v := g.scalar("v")
	pos, found := g.GP64(), g.GP64()
	const eq = 0
	g.each(n, func(idx reg.Register, i int, m mask) {
		g.MOVQ(idx, pos)
		if i > 0 {
			g.ADDQ(operand.Imm(uint64(g.width*i)), pos)
		}
		if g.wide() {
			k := g.K()
			p := operand.Mem{Base: x, Index: idx, Scale: 4}
			if m.all() {
				g.VCMPPS(operand.Imm(eq), p, v, k)
			} else {
				g.VCMPPS(operand.Imm(eq), p, v, m.k, k)
			}
			g.KMOVW(k, found.As32())
		} else {
			t := g.read(x, idx, i, m)
			g.VCMPPS(operand.Imm(eq), t, v, t)
			if !m.all() {
				g.VANDPS(m.v[i], t, t)
			}
			g.VMOVMSKPS(t, found.As32())
		}
		g.TESTL(found.As32(), found.As32())
		g.JNZ(operand.LabelRef("found"))
	})
	g.MOVQ(operand.I32(-1), pos)
	g.JMP(operand.LabelRef("return"))
	g.Label("found")
	g.BSFL(found.As32(), found.As32())
	g.ADDQ(found, pos)
	g.Label("return")
	g.Store(pos, g.ReturnIndex(0))
	g.ret()
}

func (g *gen) scale() {
	g.text("scale", "func(x *float32, n int, s float32)", "multiplies x by s.")
	x, n := g.ptr("x"), g.ptr("n")
	s := g.scalar("s")
	g.each(n, func(idx reg.Register, i int, m mask) {
		v := g.read(x, idx, i, m)
		g.VMULPS(s, v, v)
		g.store(v, x, idx, i, m)
	})
	g.ret()
}

func (g *gen) binary(name, doc string, op func(...operand.Op)) {
	g.text(name, "func(dst, a, b *float32, n int)", doc)
	dst, a, b, n := g.ptr("dst"), g.ptr("a"), g.ptr("b"), g.ptr("n")
	g.each(n, func(idx reg.Register, i int, m mask) {
		v, w := g.read(a, idx, i, m), g.read(b, idx, i, m)
		op(w, v, v)
		g.store(v, dst, idx, i, m)
	})
	g.ret()
}

func (g *gen) axpy() {
	g.text("axpy", "func(y, x *float32, n int, a float32)", "adds a·x to y.")
	y, x, n := g.ptr("y"), g.ptr("x"), g.ptr("n")
	a := g.scalar("a")
	g.each(n, func(idx reg.Register, i int, m mask) {
		v, w := g.read(x, idx, i, m), g.read(y, idx, i, m)
		g.VFMADD231PS(v, a, w)
		g.store(w, y, idx, i, m)
	})
	g.ret()
}

func (g *gen) dot() {
	g.text("dot", "func(a, b *float32, n int) float32", "returns the lane sum of a·b.")
	a, b, n := g.ptr("a"), g.ptr("b"), g.ptr("n")
	sum := g.lanesOf("")
	g.each(n, func(idx reg.Register, i int, m mask) {
		v, w := g.read(a, idx, i, m), g.read(b, idx, i, m)
		if m.all() {
			g.VFMADD231PS(v, w, sum[i])
			return
		}
		g.VFMADD213PS(sum[i], v, w)
		g.keep(w, sum[i], i, m)
	})
	g.addFold(sum)
	g.ret()
}

// logistic sets e to 1 + exp(−x).
func (g *gen) logistic(x reg.Register, magic, c4 reg.Register) reg.VecVirtual {
	e := g.vec()
	g.op3(g.VXORPS, g.VXORPS_BCST, g.consts["sign"], x, e)
	g.exp(e, magic, c4)
	g.op3(g.VADDPS, g.VADDPS_BCST, g.consts["one"], e, e)
	return e
}

func (g *gen) silu() {
	g.text("siluMul", "func(dst, x, u *float32, n int)", "sets dst to x/(1+exp(−x))·u.")
	dst, x, u, n := g.ptr("dst"), g.ptr("x"), g.ptr("u"), g.ptr("n")
	magic, c4 := g.constant("magic"), g.constant("c4")
	g.each(n, func(idx reg.Register, i int, m mask) {
		v := g.read(x, idx, i, m)
		e := g.logistic(v, magic, c4)
		g.VDIVPS(e, v, v)
		w := g.read(u, idx, i, m)
		g.VMULPS(w, v, v)
		g.store(v, dst, idx, i, m)
	})
	g.ret()
}

func (g *gen) siluGrad() {
	g.text("siluMulGrad", "func(dg, du, dy, x, u *float32, n int)", "gives the gradients of siluMul for dy.")
	dg, du, dy, x, u, n := g.ptr("dg"), g.ptr("du"), g.ptr("dy"), g.ptr("x"), g.ptr("u"), g.ptr("n")
	magic, c4 := g.constant("magic"), g.constant("c4")
	g.each(n, func(idx reg.Register, i int, m mask) {
		v := g.read(x, idx, i, m)
		e := g.logistic(v, magic, c4)
		one, s, t := g.constant("one"), g.vec(), g.vec()
		g.VDIVPS(e, one, s)    // s = 1/(1+exp(−x))
		g.VMULPS(s, v, v)      // y = x·s
		g.VSUBPS(s, one, t)    // t = 1−s
		g.VFMADD213PS(s, v, t) // t = y·(1−s) + s
		d, w := g.read(dy, idx, i, m), g.read(u, idx, i, m)
		g.VMULPS(v, d, v)
		g.VMULPS(w, d, w)
		g.VMULPS(t, w, w)
		g.store(w, dg, idx, i, m)
		g.store(v, du, idx, i, m)
	})
	g.ret()
}

func (g *gen) rope() {
	g.text("rope", "func(lo, hi, cos, sin *float32, n int)", "rotates the pairs (lo, hi).")
	lo, hi, cos, sin, n := g.ptr("lo"), g.ptr("hi"), g.ptr("cos"), g.ptr("sin"), g.ptr("n")
	g.each(n, func(idx reg.Register, i int, m mask) {
		a, b := g.read(lo, idx, i, m), g.read(hi, idx, i, m)
		c, s := g.read(cos, idx, i, m), g.read(sin, idx, i, m)
		t := g.vec()
		g.VMULPS(s, b, t)
		g.VMULPS(s, a, s)
		g.VFMSUB213PS(t, c, a)
		g.VFMADD213PS(s, c, b)
		g.store(a, lo, idx, i, m)
		g.store(b, hi, idx, i, m)
	})
	g.ret()
}

func (g *gen) adamW() {
	g.text("adamW", "func(p, d, m, v *float32, n int, h *float32)",
		"updates p, m and v by gradient d; h is an adamRow.")
	p, gr, m1, m2, n, h := g.ptr("p"), g.ptr("d"), g.ptr("m"), g.ptr("v"), g.ptr("n"), g.ptr("h")
	at := func(i int) operand.Mem { return operand.Mem{Base: h, Disp: 32 * i} }
	const lr, b1, d1, b2, d2, eps, decay, scale, c1, c2 = 0, 1, 2, 3, 4, 5, 6, 7, 8, 9
	g.each(n, func(idx reg.Register, i int, m mask) {
		x := g.read(gr, idx, i, m)
		g.op3(g.VMULPS, g.VMULPS_BCST, at(scale), x, x)
		y := g.vec()
		g.VMULPS(x, x, y)
		g.op3(g.VMULPS, g.VMULPS_BCST, at(d1), x, x)
		g.op3(g.VMULPS, g.VMULPS_BCST, at(d2), y, y)
		a := g.read(m1, idx, i, m)
		g.op3(g.VFMADD132PS, g.VFMADD132PS_BCST, at(b1), x, a)
		g.store(a, m1, idx, i, m)
		b := g.read(m2, idx, i, m)
		g.op3(g.VFMADD132PS, g.VFMADD132PS_BCST, at(b2), y, b)
		g.store(b, m2, idx, i, m)
		g.op3(g.VMULPS, g.VMULPS_BCST, at(c2), b, b)
		g.VSQRTPS(b, b)
		g.op3(g.VADDPS, g.VADDPS_BCST, at(eps), b, b)
		g.op3(g.VMULPS, g.VMULPS_BCST, at(c1), a, a)
		g.VDIVPS(b, a, a)
		w := g.read(p, idx, i, m)
		q := g.vec()
		g.VMOVAPS(w, q)
		g.op3(g.VFNMADD132PS, g.VFNMADD132PS_BCST, at(decay), w, q)
		g.op3(g.VFNMADD231PS, g.VFNMADD231PS_BCST, at(lr), a, q)
		g.store(q, p, idx, i, m)
	})
	g.ret()
}

// transpose moves 32 rows of 16·n columns to 16·n rows of 32: a panel. Eight rows
// at a time are read a cache line each; row r+4 is loaded above row r, so that
// transposing 4×4 within the halves of four registers gives whole columns.
func (g *gen) transpose() {
	g.text("transpose", "func(dst, src *float32, ld uintptr, n int)", "packs 16·n columns of 32 rows, ld bytes apart, into a panel.")
	dst, src, ld, n := g.ptr("dst"), g.ptr("src"), g.ptr("ld"), g.ptr("n")
	ld3, p, p4 := g.GP64(), g.GP64(), g.GP64()
	g.LEAQ(operand.Mem{Base: ld, Index: ld, Scale: 2}, ld3)
	row := func(p reg.Register, r, disp int) operand.Mem {
		m := operand.Mem{Base: p, Disp: disp}
		switch r {
		case 1, 2:
			m.Index, m.Scale = ld, uint8(r)
		case 3:
			m.Index, m.Scale = ld3, 1
		}
		return m
	}
	g.Label("columns")
	g.MOVQ(src, p)
	for rows := 0; rows < 32; rows += 8 {
		g.LEAQ(operand.Mem{Base: p, Index: ld, Scale: 4}, p4)
		for col := 0; col < 16; col += 4 {
			var v [4]reg.VecVirtual
			for r := range v {
				v[r] = g.YMM()
				g.VBROADCASTF128(row(p, r, 4*col), v[r])
				g.VINSERTF128(operand.Imm(1), row(p4, r, 4*col), v[r], v[r])
			}
			lo01, hi01, lo23, hi23 := g.YMM(), g.YMM(), g.YMM(), g.YMM()
			g.VUNPCKLPS(v[1], v[0], lo01)
			g.VUNPCKHPS(v[1], v[0], hi01)
			g.VUNPCKLPS(v[3], v[2], lo23)
			g.VUNPCKHPS(v[3], v[2], hi23)
			g.VUNPCKLPD(lo23, lo01, v[0])
			g.VUNPCKHPD(lo23, lo01, v[1])
			g.VUNPCKLPD(hi23, hi01, v[2])
			g.VUNPCKHPD(hi23, hi01, v[3])
			for c := range v {
				g.VMOVUPS(v[c], operand.Mem{Base: dst, Disp: 128*(col+c) + 4*rows})
			}
		}
		if rows < 24 {
			g.LEAQ(operand.Mem{Base: p4, Index: ld, Scale: 4}, p)
		}
	}
	g.ADDQ(operand.Imm(64), src)
	g.ADDQ(operand.I32(16*128), dst)
	g.DECQ(n)
	g.JNZ(operand.LabelRef("columns"))
	g.ret()
}
