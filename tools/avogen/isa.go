package main

import (
	"math"

	"github.com/mmcloughlin/avo/attr"
	"github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/gotypes"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// A gen builds one class. Vector functions are written once over blocks of 16
// elements: one ZMM register, or two YMM registers.
type gen struct {
	*build.Context
	*class
	vnni  bool // AVX-512 VNNI
	dots  bool // AVX-VNNI
	evex  bool // encoded as AVX-512 VNNI
	bf16  bool // AVX-512 BF16
	tiles bool // AMX

	consts map[string]operand.Mem
	masks  operand.Mem // AVX2: 16 words of ones, then 16 of zeros
}

// A block is 16 elements in 16/width registers.
type block []reg.VecVirtual

// A mask selects elements of a block: an opmask, or a register of all-ones and
// all-zeros words for each register of a block. The zero mask selects all.
type mask struct {
	k reg.OpmaskVirtual
	v block
}

func (m mask) all() bool { return m.k == nil && m.v == nil }

func (g *gen) wide() bool { return g.width == 16 }
func (g *gen) parts() int { return 16 / g.width }

func (g *gen) vec() reg.VecVirtual {
	if g.wide() {
		return g.ZMM()
	}
	return g.YMM()
}

func (g *gen) block() block {
	b := make(block, g.parts())
	for i := range b {
		b[i] = g.vec()
	}
	return b
}

// text starts a function name+class.
func (g *gen) text(name, signature, doc string) {
	g.Function(name + g.suffix)
	g.Attributes(attr.NOSPLIT)
	g.SignatureExpr(signature)
	g.Pragma("noescape")
	g.Doc(name + g.suffix + " " + doc)
}

func (g *gen) ptr(name string) reg.GPVirtual {
	r := g.GP64()
	g.Load(g.Param(name), r)
	return r
}

func (g *gen) addr(c gotypes.Component) operand.Mem {
	b, err := c.Resolve()
	if err != nil {
		panic(err)
	}
	return b.Addr
}

// scalar broadcasts a float32 argument.
func (g *gen) scalar(name string) reg.VecVirtual {
	v := g.vec()
	g.VBROADCASTSS(g.addr(g.Param(name)), v)
	return v
}

func (g *gen) ret() {
	g.VZEROUPPER()
	g.RET()
}

// constants are the float32 that instructions read from memory, each repeated
// to fill a YMM register. Those of exp are the ones in kern/exp.go.
func (g *gen) constants() {
	g.consts = map[string]operand.Mem{}
	table := g.StaticGlobal("consts" + g.suffix)
	g.DataAttributes(attr.RODATA | attr.NOPTR)
	off := 0
	for _, c := range []struct {
		name string
		bits uint32
	}{
		{"lo", f32(-87.33654)},
		{"hi", f32(88.72283)},
		{"log2e", f32(math.Log2E)},
		{"magic", f32(1.5 * (1 << 23))},
		{"ln2hi", f32(0.693145751953125)},
		{"ln2lo", f32(1.42860676533018e-6)},
		{"half", f32(0.5)},
		{"c1", f32(0.16666576845993972)},
		{"c2", f32(0.041666554437687707)},
		{"c3", f32(0.0083632029715759344)},
		{"c4", f32(0.0013926213466153748)},
		{"big", f32(1 << 127)},
		{"one", f32(1)},
		{"sign", 1 << 31},
		{"upper", 0xffff << 16},
		{"-inf", f32(math.Inf(-1))},
	} {
		g.consts[c.name] = table.Offset(off)
		for range 8 {
			g.AddDatum(off, operand.U32(c.bits))
			off += 4
		}
	}
	if g.wide() {
		return
	}
	g.masks = g.StaticGlobal("masks" + g.suffix)
	g.DataAttributes(attr.RODATA | attr.NOPTR)
	for i := range 32 {
		m := operand.U32(0)
		if i < 16 {
			m = math.MaxUint32
		}
		g.AddDatum(4*i, m)
	}
}

func f32(x float64) uint32 { return math.Float32bits(float32(x)) }

// op3 emits an instruction whose memory operand comes first: in full width for
// AVX2, broadcast from one word for AVX-512.
func (g *gen) op3(full, bcst func(...operand.Op), m operand.Mem, a, dst operand.Op) {
	if g.wide() {
		bcst(m, a, dst)
	} else {
		full(m, a, dst)
	}
}

// fmaConst sets d = d·x + constant.
func (g *gen) fmaConst(name string, x, d reg.Register) {
	g.op3(g.VFMADD213PS, g.VFMADD213PS_BCST, g.consts[name], x, d)
}

// constant returns a register that holds a constant.
func (g *gen) constant(name string) reg.VecVirtual {
	v := g.vec()
	g.VBROADCASTSS(g.consts[name], v)
	return v
}

// load reads part i of a block at base+4·idx.
func (g *gen) load(base, idx reg.Register, i int, m mask, dst reg.Register) {
	p := operand.Mem{Base: base, Index: idx, Scale: 4, Disp: 4 * g.width * i}
	switch {
	case m.all():
		g.VMOVUPS(p, dst)
	case g.wide():
		g.VMOVUPS_Z(p, m.k, dst)
	default:
		g.VMASKMOVPS(p, m.v[i], dst)
	}
}

// store writes part i of a block at base+4·idx.
func (g *gen) store(src, base, idx reg.Register, i int, m mask) {
	p := operand.Mem{Base: base, Index: idx, Scale: 4, Disp: 4 * g.width * i}
	switch {
	case m.all():
		g.VMOVUPS(src, p)
	case g.wide():
		g.VMOVUPS(src, m.k, p)
	default:
		g.VMASKMOVPS(src, m.v[i], p)
	}
}

// keep sets dst to src where the mask is set.
func (g *gen) keep(src, dst reg.Register, i int, m mask) {
	switch {
	case m.all():
		g.VMOVAPS(src, dst)
	case g.wide():
		g.VMOVAPS(src, m.k, dst)
	default:
		g.VBLENDVPS(m.v[i], src, dst, dst)
	}
}

// blocks emits body for every full block of n elements and once more, masked,
// for the rest. The index that body gets counts elements.
func (g *gen) blocks(n reg.GPVirtual, body func(idx reg.Register, m mask)) {
	idx, end := g.GP64(), g.GP64()
	g.XORQ(idx, idx)
	g.MOVQ(n, end)
	g.ANDQ(operand.I32(-16), end)
	g.JZ(operand.LabelRef("tail"))
	g.Label("blocks")
	body(idx, mask{})
	g.ADDQ(operand.Imm(16), idx)
	g.CMPQ(idx, end)
	g.JB(operand.LabelRef("blocks"))
	g.Label("tail")
	g.ANDQ(operand.Imm(15), n)
	g.JZ(operand.LabelRef("done"))
	body(idx, g.tailMask(n))
	g.Label("done")
}

// tailMask selects the first n elements, 0 < n < 16.
func (g *gen) tailMask(n reg.GPVirtual) mask {
	if g.wide() {
		one := g.GP64()
		g.MOVQ(operand.U32(1), one)
		g.MOVQ(n, reg.RCX)
		g.SHLQ(reg.CL, one)
		g.DECQ(one)
		k := g.K()
		g.KMOVW(one.As32(), k)
		return mask{k: k}
	}
	p := g.GP64()
	g.LEAQ(g.masks.Offset(64), p)
	g.NEGQ(n)
	m := mask{v: g.block()}
	for i, v := range m.v {
		g.VMOVUPS(operand.Mem{Base: p, Index: n, Scale: 4, Disp: 32 * i}, v)
	}
	return m
}

// fold reduces a block to its first element by op(upper, lower, into).
func (g *gen) fold(b block, op func(upper, lower, into reg.Register)) reg.VecVirtual {
	var y reg.VecVirtual
	lo, hi := reg.Register(nil), reg.Register(nil)
	if g.wide() {
		y = b[0]
		h := g.YMM()
		g.VEXTRACTF32X8(operand.Imm(1), y, h)
		lo, hi = y.AsY(), h
	} else {
		y = b[0]
		lo, hi = y, b[1]
	}
	op(hi, lo, lo)
	h := g.XMM()
	if g.wide() {
		g.VEXTRACTF32X4(operand.Imm(1), y.AsY(), h)
	} else {
		g.VEXTRACTF128(operand.Imm(1), y, h)
	}
	op(h, y.AsX(), y.AsX())
	g.VPERMILPS(operand.Imm(0x4e), y.AsX(), h) // lanes 2, 3, 0, 1
	op(h, y.AsX(), y.AsX())
	g.VPERMILPS(operand.Imm(0xb1), y.AsX(), h) // lanes 1, 0, 3, 2
	op(h, y.AsX(), y.AsX())
	return y
}

// exp sets x to exp(x), as kern's exp32 does.
func (g *gen) exp(x reg.VecVirtual, magic, c4 reg.Register) {
	t, n, q, r := g.vec(), g.vec(), g.vec(), g.vec()
	g.VMOVAPS(x, t)
	g.op3(g.VFMADD132PS, g.VFMADD132PS_BCST, g.consts["log2e"], magic, t)
	g.VSUBPS(magic, t, n)
	g.VMOVAPS(x, r)
	g.op3(g.VFNMADD231PS, g.VFNMADD231PS_BCST, g.consts["ln2hi"], n, r)
	g.op3(g.VFNMADD231PS, g.VFNMADD231PS_BCST, g.consts["ln2lo"], n, r)
	g.VMOVAPS(c4, q)
	for _, c := range []string{"c3", "c2", "c1", "half", "one", "one"} {
		g.fmaConst(c, r, q)
	}
	g.VPSLLD(operand.Imm(23), t, t)
	const lt, nlt, nle = 1, 5, 6
	if g.wide() {
		below, above := g.K(), g.K()
		g.VCMPPS_BCST(operand.Imm(nlt), g.consts["lo"], x, below)
		g.VCMPPS_BCST(operand.Imm(nle), g.consts["hi"], x, above)
		g.VPADDD_Z(t, q, below, q)
		g.VMULPS_BCST(g.consts["big"], x, above, q)
		g.VMOVAPS(q, x)
		return
	}
	g.VPADDD(t, q, q)
	g.VCMPPS(operand.Imm(lt), g.consts["lo"], x, t)
	g.VANDNPS(q, t, q)
	g.VCMPPS(operand.Imm(nle), g.consts["hi"], x, t)
	g.VMULPS(g.consts["big"], x, x)
	g.VBLENDVPS(t, x, q, x)
}
