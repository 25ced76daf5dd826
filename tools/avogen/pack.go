package main

import (
	"github.com/mmcloughlin/avo/attr"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// packs emits what packing weights and storing keys and values is made of, once
// for all classes.
func (g *gen) packs() {
	table := g.StaticGlobal("pack" + g.suffix)
	g.DataAttributes(attr.RODATA | attr.NOPTR)
	for i, v := range [...]uint32{0x7fff, 1, 1 << 22, 0x81818181} {
		g.consts[[...]string{"pack 7fff", "pack one", "pack quiet", "pack -127"}[i]] = table.Offset(32 * i)
		for j := range 8 {
			g.AddDatum(32*i+4*j, operand.U32(v))
		}
	}
	g.transpose()
	g.narrow()
	g.widen("widenBF16", "widens n bfloat16, a multiple of 16.", func(from operand.Mem, v reg.VecVirtual) {
		g.VPMOVZXWD(from, v)
		g.VPSLLD(operand.Imm(16), v, v)
	})
	g.widen("widenF16", "widens n float16, a multiple of 16.", func(from operand.Mem, v reg.VecVirtual) {
		g.VCVTPH2PS(from, v)
	})
	g.absMax()
	g.packQ8()
}

// every emits body for every step elements of n, a multiple of it.
func (g *gen) every(step int, n reg.GPVirtual, body func(idx reg.Register)) {
	idx := g.GP64()
	g.XORQ(idx, idx)
	g.Label("loop")
	body(idx)
	g.ADDQ(operand.Imm(uint64(step)), idx)
	g.CMPQ(idx, n)
	g.JB(operand.LabelRef("loop"))
	g.ret()
}

// narrow rounds as kern's BF16 does.
func (g *gen) narrow() {
	g.text("narrowBF16", "func(dst *uint16, x *float32, n int)", "narrows n elements to bfloat16, a multiple of 16.")
	dst, x, n := g.ptr("dst"), g.ptr("x"), g.ptr("n")
	half, one, quiet := g.constant("pack 7fff"), g.constant("pack one"), g.constant("pack quiet")
	const unordered = 3
	g.every(16, n, func(idx reg.Register) {
		var v [2]reg.VecVirtual
		for i := range v {
			t, nan := g.YMM(), g.YMM()
			v[i] = g.YMM()
			g.VMOVDQU(operand.Mem{Base: x, Index: idx, Scale: 4, Disp: 32 * i}, v[i])
			g.VCMPPS(operand.Imm(unordered), v[i], v[i], nan)
			g.VPSRLD(operand.Imm(16), v[i], t)
			g.VPAND(one, t, t)
			g.VPADDD(half, t, t)
			g.VPADDD(v[i], t, t)
			g.VPOR(quiet, v[i], v[i])
			g.VBLENDVPS(nan, v[i], t, v[i])
			g.VPSRLD(operand.Imm(16), v[i], v[i])
		}
		g.VPACKUSDW(v[1], v[0], v[0])
		g.VPERMQ(operand.Imm(0xd8), v[0], v[0])
		g.VMOVDQU(v[0], operand.Mem{Base: dst, Index: idx, Scale: 2})
	})
}

func (g *gen) widen(name, doc string, op func(from operand.Mem, v reg.VecVirtual)) {
	g.text(name, "func(dst *float32, x *byte, n int)", doc)
	dst, x, n := g.ptr("dst"), g.ptr("x"), g.ptr("n")
	g.every(16, n, func(idx reg.Register) {
		for i := range 2 {
			v := g.YMM()
			op(operand.Mem{Base: x, Index: idx, Scale: 2, Disp: 16 * i}, v)
			g.VMOVUPS(v, operand.Mem{Base: dst, Index: idx, Scale: 4, Disp: 32 * i})
		}
	})
}

// absMax orders floats without their signs as integers: NaNs are largest.
func (g *gen) absMax() {
	g.text("absMax", "func(dst, x *float32, ld uintptr, rows int)",
		"sets dst to the largest |x| of each row of 32 elements; rows are ld bytes apart.")
	dst, x, ld, rows := g.ptr("dst"), g.ptr("x"), g.ptr("ld"), g.ptr("rows")
	abs := g.constant("magnitude")
	g.every(1, rows, func(idx reg.Register) {
		var v [4]reg.VecVirtual
		for i := range v {
			v[i] = g.YMM()
			g.VPAND(operand.Mem{Base: x, Disp: 32 * i}, abs, v[i])
		}
		g.VPMAXUD(v[1], v[0], v[0])
		g.VPMAXUD(v[3], v[2], v[2])
		g.VPMAXUD(v[2], v[0], v[0])
		t := g.XMM()
		g.VEXTRACTI128(operand.Imm(1), v[0], t)
		g.VPMAXUD(t, v[0].AsX(), t)
		for _, order := range []uint64{0x4e, 0xb1} {
			u := g.XMM()
			g.VPSHUFD(operand.Imm(order), t, u)
			g.VPMAXUD(u, t, t)
		}
		g.VMOVSS(t, operand.Mem{Base: dst, Index: idx, Scale: 4})
		g.ADDQ(ld, x)
	})
}

// packQ8 leaves the integers of a row where the narrowing instructions, which work
// within halves of a register, put them: in words of four k, even ones first.
func (g *gen) packQ8() {
	g.text("packQ8", "func(dst *byte, x *float32, ld uintptr, by *float32, rows int)",
		"writes the integers of one block of rows outputs, x times by; rows are ld bytes apart.")
	dst, x, ld, by, rows := g.ptr("dst"), g.ptr("x"), g.ptr("ld"), g.ptr("by"), g.ptr("rows")
	least := g.constant("pack -127")
	g.every(1, rows, func(idx reg.Register) {
		s := g.YMM()
		g.VBROADCASTSS(operand.Mem{Base: by, Index: idx, Scale: 4}, s)
		var v [4]reg.VecVirtual
		for i := range v {
			v[i] = g.YMM()
			g.VMULPS(operand.Mem{Base: x, Disp: 32 * i}, s, v[i])
			g.VCVTPS2DQ(v[i], v[i])
		}
		g.VPACKSSDW(v[1], v[0], v[0])
		g.VPACKSSDW(v[3], v[2], v[2])
		g.VPACKSSWB(v[2], v[0], v[0])
		g.VPMAXSB(least, v[0], v[0])
		odd := g.XMM()
		g.VEXTRACTI128(operand.Imm(1), v[0], odd)
		for i := range 4 {
			for j, w := range []reg.Register{v[0].AsX(), odd} {
				g.VPEXTRD(operand.Imm(uint64(i)), w, operand.Mem{Base: dst, Index: idx, Scale: 4, Disp: q8Scales + (2*i+j)*q8Line})
			}
		}
		g.ADDQ(ld, x)
	})
}
