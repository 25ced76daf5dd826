package main

import (
	"github.com/mmcloughlin/avo/attr"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// An unpacking is a compact format, as kern/compact.go has them.
type unpacking struct {
	name        string
	first, own  int // bytes of shared scales, and of those of 32 k
	fifth, flip bool
	plain       bool   // flipped integers are written plus 16
	values      []int8 // that integers stand for, or nil
	// scales writes those of a part of a block of q8m for eight outputs, from the i-th eight on; nil: they are copied.
	scales func(g *gen, shared, own, dst reg.Register, i int)
}

// unpacks emits what unpacks blocks of compact formats, once for all classes.
func (g *gen) unpacks() {
	levels := []int8{-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113}
	fp4 := []int8{0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12}
	table := g.StaticGlobal("unpack" + g.suffix)
	g.DataAttributes(attr.RODATA | attr.NOPTR)
	for i, v := range [...]uint32{0x0f0f0f0f, 0x10101010} {
		g.consts[[...]string{"unpack low", "unpack fifth"}[i]] = table.Offset(32 * i)
		for j := range 8 {
			g.AddDatum(32*i+4*j, operand.U32(v))
		}
	}
	for _, u := range []unpacking{
		{name: "Q50", own: q8Scales, fifth: true, flip: true},
		{name: "Q50Plain", own: q8Scales, fifth: true, flip: true, plain: true},
		{name: "IQ4NL", own: q8Scales, values: levels},
		{name: "Q41", own: 2 * q8Scales, scales: (*gen).scalesDM},
		{name: "Q51", own: 2 * q8Scales, fifth: true, scales: (*gen).scalesDM},
		{name: "Q5K", first: 2 * q8Scales, own: 2 * q4kMins, fifth: true, scales: (*gen).scalesK},
		{name: "IQ4XS", first: q8Scales, own: q4kMins, values: levels, scales: (*gen).scalesXS},
		{name: "MXFP4", own: q8Scales, values: fp4, scales: (*gen).scalesE},
	} {
		g.unpack(&u)
	}
}

// unpack emits what unpacks blocks of a format to those of q8 or q8m.
func (g *gen) unpack(u *unpacking) {
	var table operand.Mem
	if u.values != nil {
		table = g.StaticGlobal("values" + u.name + g.suffix)
		g.DataAttributes(attr.RODATA | attr.NOPTR)
		for i := range 32 {
			g.AddDatum(i, operand.U8(uint8(u.values[i%16])))
		}
	}
	g.text("unpack"+u.name, "func(dst, src *byte, blocks int)", "unpacks blocks of a panel.")
	dst, src, blocks := g.ptr("dst"), g.ptr("src"), g.ptr("blocks")
	low, one := g.constant("unpack low"), g.constant("unpack fifth")
	var values reg.VecVirtual
	if u.values != nil {
		values = g.YMM()
		g.VMOVDQU(table, values)
	}
	g.Label("blocks")
	shared, parts := src, reg.GPVirtual(nil)
	if u.first > 0 {
		shared, parts = g.GP64(), g.GP64()
		g.MOVQ(src, shared)
		g.ADDQ(operand.I32(uint64(u.first)), src)
		g.MOVQ(operand.U32(8), parts)
		g.Label("parts")
	}
	to, bits := q8Scales, u.own+q4Ints
	if u.scales == nil {
		for i := 0; i < q8Scales; i += 32 {
			v := g.YMM()
			g.VMOVDQU(operand.Mem{Base: src, Disp: i}, v)
			g.VMOVDQU(v, operand.Mem{Base: dst, Disp: i})
		}
	} else {
		to = 2 * q8mMins
		for i := range 4 {
			u.scales(g, shared, src, dst, i)
		}
	}
	for line := range q8Lines {
		var fifth reg.VecVirtual // of two lines
		if u.fifth {
			fifth = g.YMM()
			g.VMOVDQU(operand.Mem{Base: src, Disp: bits + 32*(line/2)}, fifth)
		}
		for half := range 2 {
			v, h := g.YMM(), g.YMM()
			g.VMOVDQU(operand.Mem{Base: src, Disp: u.own + q4Line*line + 32*half}, v)
			g.VPSRLW(operand.Imm(4), v, h)
			for side, v := range []reg.VecVirtual{v, h} {
				g.VPAND(low, v, v)
				r := half + 2*side
				switch at := line%2*4 + r; {
				case values != nil:
					g.VPSHUFB(v, values, v)
				case u.fifth:
					b := fifth
					if at != 4 {
						b = g.YMM()
					}
					switch {
					case at < 4:
						g.VPSLLW(operand.Imm(uint64(4-at)), fifth, b)
					case at > 4:
						g.VPSRLW(operand.Imm(uint64(at-4)), fifth, b)
					}
					t := g.YMM()
					if u.plain {
						g.VPANDN(one, b, t)
					} else {
						g.VPAND(one, b, t)
					}
					if u.flip && !u.plain {
						g.VPSUBB(t, v, v)
					} else {
						g.VPOR(t, v, v)
					}
				}
				g.VMOVDQU(v, operand.Mem{Base: dst, Disp: to + q8Line*line + 32*r})
			}
		}
	}
	size := u.own + q4Ints
	if u.fifth {
		size += q4Ints / 4
	}
	g.ADDQ(operand.I32(uint64(size)), src)
	g.ADDQ(operand.I32(uint64(to+q8Lines*q8Line)), dst)
	if u.first > 0 {
		g.DECQ(parts)
		g.JNZ(operand.LabelRef("parts"))
	}
	g.DECQ(blocks)
	g.JNZ(operand.LabelRef("blocks"))
	g.ret()
}

// storeScales writes eight scales and minima, nil: zeros.
func (g *gen) storeScales(d, m reg.VecVirtual, dst reg.Register, i int) {
	if m == nil {
		m = g.YMM()
		g.zero(m)
	}
	g.VMOVUPS(d, operand.Mem{Base: dst, Disp: 32 * i})
	g.VMOVUPS(m, operand.Mem{Base: dst, Disp: q8mMins + 32*i})
}

func (g *gen) halves(from reg.Register, disp int) reg.VecVirtual {
	v := g.YMM()
	g.VCVTPH2PS(operand.Mem{Base: from, Disp: disp}, v)
	return v
}

// bytes returns eight bytes as floats.
func (g *gen) bytes(widen func(...operand.Op), from reg.Register, disp int) reg.VecVirtual {
	v := g.YMM()
	widen(operand.Mem{Base: from, Disp: disp}, v)
	g.VCVTDQ2PS(v, v)
	return v
}

func (g *gen) scalesDM(_, own, dst reg.Register, i int) {
	d, m := g.halves(own, 16*i), g.halves(own, q8Scales+16*i)
	g.VXORPS(g.consts["sign"], m, m)
	g.storeScales(d, m, dst, i)
}

func (g *gen) scalesK(shared, own, dst reg.Register, i int) {
	d, m := g.halves(shared, 16*i), g.halves(shared, q8Scales+16*i)
	for k, by := range []reg.VecVirtual{d, m} {
		g.VMULPS(g.bytes(g.VPMOVZXBD, own, q4kMins*k+8*i), by, by)
	}
	g.storeScales(d, m, dst, i)
}

func (g *gen) scalesXS(shared, own, dst reg.Register, i int) {
	d := g.halves(shared, 16*i)
	g.VMULPS(g.bytes(g.VPMOVSXBD, own, 8*i), d, d)
	g.storeScales(d, nil, dst, i)
}

func (g *gen) scalesE(_, own, dst reg.Register, i int) {
	d := g.YMM()
	g.VPMOVZXWD(operand.Mem{Base: own, Disp: 16 * i}, d)
	g.VPSLLD(operand.Imm(16), d, d)
	g.storeScales(d, nil, dst, i)
}
