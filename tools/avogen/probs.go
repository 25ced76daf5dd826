package main

import (
	"math"

	"github.com/mmcloughlin/avo/attr"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// probs emits the functions of package probs over whole steps of 8 elements, or
// of whole bins. Their arithmetic is that of the function of the same name in
// probs/portable.go, operation by operation. An octet is 8 float64 in one ZMM
// register, or in two YMM registers.
func (g *gen) probs() {
	g.probConstants()
	g.probMax()
	g.softExp()
	g.softBins()
	g.probSum()
	g.residual()
	g.probScale()
	g.probWiden()
}

// binSize is probs.Bin.
const binSize = 128

type octet []reg.VecVirtual

func (g *gen) octet() octet { return octet(g.block()) }

// octetWidth is how many elements of an octet are in a register.
func (g *gen) octetWidth() int { return g.width / 2 }

// probConstants are those of probs/portable.go: float64, then float32, each
// repeated to fill a YMM register.
func (g *gen) probConstants() {
	g.consts = map[string]operand.Mem{}
	wide := g.StaticGlobal("doubles" + g.suffix)
	g.DataAttributes(attr.RODATA | attr.NOPTR)
	off := 0
	for _, c := range []struct {
		name  string
		value float64
	}{
		{"lowest", -707},
		{"log2e", math.Log2E},
		{"magic", 1.5 * (1 << 52)},
		{"ln2hi", 0x1.62e42fefa39efp-1},
		{"ln2lo", 0x1.abc9e3b39803fp-56},
		{"one", 1},
		{"c0", 0.5},
		{"c1", 0.1666666666666667},
		{"c2", 0.04166666666666667},
		{"c3", 0.008333333333326141},
		{"c4", 0.0013888888888883752},
		{"c5", 0.00019841269874800493},
		{"c6", 2.4801587325533363e-05},
		{"c7", 2.7557255425746435e-06},
		{"c8", 2.7557273661348637e-07},
		{"c9", 2.510520637395701e-08},
		{"c10", 2.0914679376583935e-09},
	} {
		g.consts[c.name] = wide.Offset(off)
		for range 4 {
			g.AddDatum(off, operand.U64(math.Float64bits(c.value)))
			off += 8
		}
	}
	narrow := g.StaticGlobal("singles" + g.suffix)
	g.DataAttributes(attr.RODATA | attr.NOPTR)
	off = 0
	for _, c := range []struct {
		name  string
		value float64
	}{
		{"s lowest", -87.33654},
		{"s log2e", math.Log2E},
		{"s magic", 1.5 * (1 << 23)},
		{"s ln2hi", 0.693145751953125},
		{"s ln2lo", 1.42860676533018e-6},
		{"s one", 1},
		{"s c0", 0.5},
		{"s c1", 0.16666576845993972},
		{"s c2", 0.041666554437687707},
		{"s c3", 0.0083632029715759344},
		{"s c4", 0.0013926213466153748},
		{"-inf", math.Inf(-1)},
	} {
		g.consts[c.name] = narrow.Offset(off)
		for range 8 {
			g.AddDatum(off, operand.U32(f32(c.value)))
			off += 4
		}
	}
}

// double broadcasts a float64 argument.
func (g *gen) double(name string) reg.VecVirtual {
	v := g.vec()
	g.VBROADCASTSD(g.addr(g.Param(name)), v)
	return v
}

// doubleConst returns a register that holds a float64 constant.
func (g *gen) doubleConst(name string) reg.VecVirtual {
	v := g.vec()
	g.VBROADCASTSD(g.consts[name], v)
	return v
}

func (g *gen) zeros() octet { return octet(g.lanesOf("")) }

// steps emits body for every step of size elements of n, which is a multiple of
// it. The index that body gets counts elements.
func (g *gen) steps(n reg.GPVirtual, size int, body func(idx reg.Register)) {
	idx := g.GP64()
	g.XORQ(idx, idx)
	g.TESTQ(n, n)
	g.JZ(operand.LabelRef("done"))
	g.Label("steps")
	body(idx)
	g.ADDQ(operand.U32(uint32(size)), idx)
	g.CMPQ(idx, n)
	g.JB(operand.LabelRef("steps"))
	g.Label("done")
}

// at is part i of the octet of float64 that begins at base+8·idx.
func (g *gen) at(base, idx reg.Register, i int) operand.Mem {
	return operand.Mem{Base: base, Index: idx, Scale: 8, Disp: 8 * g.octetWidth() * i}
}

// floatsAt is part i of the octet of float32 that begins at base+4·idx.
func (g *gen) floatsAt(base, idx reg.Register, i int) operand.Mem {
	return operand.Mem{Base: base, Index: idx, Scale: 4, Disp: 4 * g.octetWidth() * i}
}

// lanesIn reads the lane sums so far, lanesOut writes them.
func (g *gen) lanesIn(p reg.Register) octet {
	o := g.octet()
	for i, v := range o {
		g.VMOVUPD(operand.Mem{Base: p, Disp: 8 * g.octetWidth() * i}, v)
	}
	return o
}

func (g *gen) lanesOut(o octet, p reg.Register) {
	for i, v := range o {
		g.VMOVUPD(v, operand.Mem{Base: p, Disp: 8 * g.octetWidth() * i})
	}
}

func (g *gen) probMax() {
	g.text("maxOf", "func(x *float32, n int) float32", "returns the largest of n elements, a multiple of 16.")
	x, n := g.ptr("x"), g.ptr("n")
	most := g.lanesOf("-inf")
	g.steps(n, 16, func(idx reg.Register) {
		for i, v := range most {
			u := g.vec()
			g.VMOVUPS(operand.Mem{Base: x, Index: idx, Scale: 4, Disp: 4 * g.width * i}, u)
			g.VMAXPS(v, u, v) // the second source, Go's first operand, wins ties and NaNs
		}
		g.PREFETCHT0(operand.Mem{Base: x, Index: idx, Scale: 4, Disp: rowAhead})
	})
	s := g.fold(most, func(u, l, d reg.Register) { g.VMAXPS(l, u, d) })
	g.VMOVSS(s.AsX(), g.addr(g.ReturnIndex(0)))
	g.ret()
}

// exp64 sets x to e^x, as probs' exp does.
func (g *gen) exp64(x reg.VecVirtual, magic, last reg.Register) {
	t, f, q, r := g.vec(), g.vec(), g.vec(), g.vec()
	g.VMOVAPD(x, t)
	g.op3(g.VFMADD132PD, g.VFMADD132PD_BCST, g.consts["log2e"], magic, t)
	g.VSUBPD(magic, t, f)
	g.VMOVAPD(x, r)
	g.op3(g.VFNMADD231PD, g.VFNMADD231PD_BCST, g.consts["ln2hi"], f, r)
	g.op3(g.VFNMADD231PD, g.VFNMADD231PD_BCST, g.consts["ln2lo"], f, r)
	g.VMOVAPD(last, q)
	for _, c := range []string{"c9", "c8", "c7", "c6", "c5", "c4", "c3", "c2", "c1", "c0", "one", "one"} {
		g.op3(g.VFMADD213PD, g.VFMADD213PD_BCST, g.consts[c], r, q)
	}
	g.VPSLLQ(operand.Imm(52), t, t)
	const ge = 13
	if g.wide() {
		in := g.K()
		g.VCMPPD_BCST(operand.Imm(ge), g.consts["lowest"], x, in)
		g.VPADDQ_Z(t, q, in, x)
		return
	}
	g.VPADDQ(t, q, q)
	g.VCMPPD(operand.Imm(ge), g.consts["lowest"], x, x)
	g.VANDPD(q, x, x)
}

func (g *gen) softExp() {
	g.text("softExp", "func(dst *float64, x *float32, n int, top, by float64, lanes *float64)",
		"sets dst to exp((x−top)·by) and adds it to 8 lane sums.")
	dst, x, n, lanes := g.ptr("dst"), g.ptr("x"), g.ptr("n"), g.ptr("lanes")
	top, by, magic, last := g.double("top"), g.double("by"), g.doubleConst("magic"), g.doubleConst("c10")
	sum := g.lanesIn(lanes)
	g.steps(n, 8, func(idx reg.Register) {
		for i, s := range sum {
			v := g.vec()
			g.VCVTPS2PD(g.floatsAt(x, idx, i), v)
			g.VSUBPD(top, v, v)
			g.VMULPD(by, v, v)
			g.exp64(v, magic, last)
			g.VMOVUPD(v, g.at(dst, idx, i))
			g.VADDPD(v, s, s)
		}
	})
	g.lanesOut(sum, lanes)
	g.ret()
}

// expSingle sets x to e^x, as probs' exp32 does, without fused steps.
func (g *gen) expSingle(x reg.VecVirtual, magic, last reg.Register) {
	t, n, q, r, u := g.vec(), g.vec(), g.vec(), g.vec(), g.vec()
	mul := func(c string, a, dst reg.Register) { g.op3(g.VMULPS, g.VMULPS_BCST, g.consts[c], a, dst) }
	mul("s log2e", x, t)
	g.VADDPS(magic, t, t)
	g.VSUBPS(magic, t, n)
	mul("s ln2hi", n, u)
	g.VSUBPS(u, x, r)
	mul("s ln2lo", n, u)
	g.VSUBPS(u, r, r)
	g.VMOVAPS(last, q)
	for _, c := range []string{"s c3", "s c2", "s c1", "s c0", "s one", "s one"} {
		g.VMULPS(r, q, q)
		g.op3(g.VADDPS, g.VADDPS_BCST, g.consts[c], q, q)
	}
	g.VPSLLD(operand.Imm(23), t, t)
	const ge = 13
	if g.wide() {
		in := g.K()
		g.VCMPPS_BCST(operand.Imm(ge), g.consts["s lowest"], x, in)
		g.VPADDD_Z(t, q, in, x)
		return
	}
	g.VPADDD(t, q, q)
	g.VCMPPS(operand.Imm(ge), g.consts["s lowest"], x, x)
	g.VANDPS(q, x, x)
}

func (g *gen) softBins() {
	g.text("softBins", "func(dst, x *float32, bins *float64, n int, top, by float32)",
		"sets dst to exp((x−top)·by), n bins of it, and bins to their sums.")
	dst, x, bins, n := g.ptr("dst"), g.ptr("x"), g.ptr("bins"), g.ptr("n")
	top, by, magic, last := g.scalar("top"), g.scalar("by"), g.vec(), g.vec()
	g.VBROADCASTSS(g.consts["s magic"], magic)
	g.VBROADCASTSS(g.consts["s c4"], last)
	end := g.GP64()
	g.TESTQ(n, n)
	g.JZ(operand.LabelRef("done"))
	g.Label("bins")
	sum := g.octet()
	for _, s := range sum {
		if g.wide() {
			g.VPXORQ(s, s, s)
		} else {
			g.VXORPD(s, s, s)
		}
	}
	g.LEAQ(operand.Mem{Base: x, Disp: 4 * binSize}, end)
	g.Label("steps")
	// One register of float32 at a time: an octet has as many lanes as half of
	// a ZMM register, or as a YMM one.
	v := g.vec()
	g.VMOVUPS(operand.Mem{Base: x}, v)
	g.VSUBPS(top, v, v)
	g.VMULPS(by, v, v)
	g.expSingle(v, magic, last)
	g.VMOVUPS(v, operand.Mem{Base: dst})
	lo, hi := g.vec(), g.vec()
	if g.wide() {
		h := g.YMM()
		g.VCVTPS2PD(v.AsY(), lo)
		g.VEXTRACTF32X8(operand.Imm(1), v, h)
		g.VCVTPS2PD(h, hi)
		g.VADDPD(lo, sum[0], sum[0])
		g.VADDPD(hi, sum[0], sum[0])
	} else {
		h := g.XMM()
		g.VCVTPS2PD(v.AsX(), lo)
		g.VEXTRACTF128(operand.Imm(1), v, h)
		g.VCVTPS2PD(h, hi)
		g.VADDPD(lo, sum[0], sum[0])
		g.VADDPD(hi, sum[1], sum[1])
	}
	g.ADDQ(operand.Imm(uint64(4*g.width)), x)
	g.ADDQ(operand.Imm(uint64(4*g.width)), dst)
	g.CMPQ(x, end)
	g.JB(operand.LabelRef("steps"))
	g.VMOVSD(g.foldOctet(sum), operand.Mem{Base: bins})
	g.ADDQ(operand.Imm(8), bins)
	g.DECQ(n)
	g.JNZ(operand.LabelRef("bins"))
	g.Label("done")
	g.ret()
}

// foldOctet adds lane i+half to lane i, 8→4→2→1.
func (g *gen) foldOctet(o octet) reg.Register {
	y := o[0]
	if g.wide() {
		h := g.YMM()
		g.VEXTRACTF64X4(operand.Imm(1), y, h)
		g.VADDPD(h, y.AsY(), y.AsY())
	} else {
		g.VADDPD(o[1], y, y)
	}
	h := g.XMM()
	g.VEXTRACTF128(operand.Imm(1), y.AsY(), h)
	g.VADDPD(h, y.AsX(), y.AsX())
	g.VPERMILPD(operand.Imm(1), y.AsX(), h)
	g.VADDPD(h, y.AsX(), y.AsX())
	return y.AsX()
}

func (g *gen) probSum() {
	g.text("sum", "func(x *float64, n int, lanes *float64)", "adds x to 8 lane sums.")
	x, n, lanes := g.ptr("x"), g.ptr("n"), g.ptr("lanes")
	sum := g.lanesIn(lanes)
	g.steps(n, 8, func(idx reg.Register) {
		for i, s := range sum {
			g.VADDPD(g.at(x, idx, i), s, s)
		}
	})
	g.lanesOut(sum, lanes)
	g.ret()
}

func (g *gen) residual() {
	g.text("residual", "func(dst, p, q *float64, n int, a, b float64, lanes *float64)",
		"sets dst to max(a·p−b·q, 0) and adds it to 8 lane sums.")
	dst, p, q, n, lanes := g.ptr("dst"), g.ptr("p"), g.ptr("q"), g.ptr("n"), g.ptr("lanes")
	a, b := g.double("a"), g.double("b")
	sum, zero := g.lanesIn(lanes), g.zeros()[0]
	g.steps(n, 8, func(idx reg.Register) {
		for i, s := range sum {
			v, w := g.vec(), g.vec()
			g.VMULPD(g.at(p, idx, i), a, v)
			g.VMULPD(g.at(q, idx, i), b, w)
			g.VSUBPD(w, v, v)
			g.VMAXPD(zero, v, v) // the second source, Go's first operand, wins ties and NaNs
			g.VMOVUPD(v, g.at(dst, idx, i))
			g.VADDPD(v, s, s)
		}
	})
	g.lanesOut(sum, lanes)
	g.ret()
}

func (g *gen) probScale() {
	g.text("scale", "func(x *float64, n int, by float64)", "multiplies x by a number.")
	x, n := g.ptr("x"), g.ptr("n")
	by := g.double("by")
	g.steps(n, 8, func(idx reg.Register) {
		for i := range g.parts() {
			v := g.vec()
			g.VMULPD(g.at(x, idx, i), by, v)
			g.VMOVUPD(v, g.at(x, idx, i))
		}
	})
	g.ret()
}

func (g *gen) probWiden() {
	g.text("widen", "func(dst *float64, x *float32, n int, by float64)", "sets dst to x·by.")
	dst, x, n := g.ptr("dst"), g.ptr("x"), g.ptr("n")
	by := g.double("by")
	g.steps(n, 8, func(idx reg.Register) {
		for i := range g.parts() {
			v := g.vec()
			g.VCVTPS2PD(g.floatsAt(x, idx, i), v)
			g.VMULPD(by, v, v)
			g.VMOVUPD(v, g.at(dst, idx, i))
		}
	})
	g.ret()
}
