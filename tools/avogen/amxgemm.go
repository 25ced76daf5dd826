package main

import (
	"encoding/binary"
	"fmt"

	"github.com/mmcloughlin/avo/attr"
	"github.com/mmcloughlin/avo/ir"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"

	"talf/tools/avogen/tile"
)

const (
	tileBytes = 16 * 64 // of a full tile
	tileRow   = 64
)

// amxRows are the rows that amxQ8 is made for; other numbers take the next larger
// one, which skips what is not there.
var amxRows = []int{1, 2, 4, 8, 12, 16}

// amx emits what class AMX has beyond AVX512VNNI, and what finds out about it.
func (g *gen) amx() {
	for _, planes := range []int{1, 2} {
		for _, blocks := range []int{1, 2} {
			g.amxBF16(blocks, planes)
		}
		least := 1
		for _, n := range amxRows {
			g.amxQ8(least, n, planes)
			least = n + 1
		}
		g.amxSplit(planes)
	}
	g.amxProbe()
}

func (g *gen) arg(param string, r reg.Register) { g.Load(g.Param(param), r) }

// amxBF16 emits a product of blocks·16 rows at most of one or two planes of
// activations by a panel, 32 k at a step. Tiles 0 and 1 accumulate the panel's
// halves for the first 16 rows, 2 and 3 for the others; 4 and 5 hold activations,
// 6 and 7 weights. How many rows there are, and how many k a step has, is in the
// configuration.
func (g *gen) amxBF16(blocks, planes int) {
	g.text(fmt.Sprintf("gemmBF16Blocks%dPlanes%d", blocks, planes),
		"func(cfg *byte, c *float32, ldc uintptr, a *uint32, ars uintptr, b *uint16, steps int, acc bool, ahead, pace uintptr)",
		fmt.Sprintf("computes up to %d rows of 32 outputs from %d planes; strides are in bytes.", 16*blocks, planes))
	const line = 2 * 2 * 32 // bytes of a pair of k of a panel
	var (
		cfg, c, ldc     = reg.RAX, reg.RDI, reg.R8
		a, ars, b, step = reg.RDX, reg.R9, reg.RSI, reg.RCX
		ldb, c2, a2     = reg.R10, reg.R11, reg.R12
		ahead           = reg.R13
	)
	g.arg("cfg", cfg)
	g.arg("c", c)
	g.arg("ldc", ldc)
	g.arg("a", a)
	g.arg("ars", ars)
	g.arg("b", b)
	g.arg("steps", step)
	g.arg("ahead", ahead)
	g.ADDQ(b, ahead)
	pre := &prefetcher{gen: g, ahead: ahead, part: 16 * line / tileRow}
	g.MOVQ(operand.U32(line), ldb)
	if blocks == 2 {
		g.MOVQ(ldc, c2)
		g.SHLQ(operand.Imm(4), c2)
		g.ADDQ(c, c2)
		g.MOVQ(ars, a2)
		g.SHLQ(operand.Imm(4), a2)
		g.ADDQ(a, a2)
	}
	outputs := func(f func(m operand.Mem, t tile.Reg)) {
		for i, p := range []reg.Register{c, c2}[:blocks] {
			f(tile.Rows(p, ldc, 1, 0), tile.Reg(2*i))
			f(tile.Rows(p, ldc, 1, tileRow), tile.Reg(2*i+1))
		}
	}
	g.raw(tile.LoadConfig(operand.Mem{Base: cfg}))
	g.CMPB(g.addr(g.Param("acc")), operand.Imm(0))
	g.JE(operand.LabelRef("steps")) // a configuration zeroes the tiles
	outputs(func(m operand.Mem, t tile.Reg) { g.raw(tile.Load(m, t)) })
	g.Label("steps")
	for plane := range planes {
		for i, p := range []reg.Register{a, a2}[:blocks] {
			x := tile.Reg(4 + i) // as the configuration has it
			if blocks == 1 {
				x = tile.Reg(4 + plane)
			}
			g.raw(tile.Load(tile.Rows(p, ars, 1, tileRow*plane), x))
			if plane == 0 && i == 0 {
				g.raw(tile.Load(tile.Rows(b, ldb, 1, 0), 6))
				g.raw(tile.Load(tile.Rows(b, ldb, 1, tileRow), 7))
			}
			g.raw(tile.DotBF16(6, x, tile.Reg(2*i)))
			g.raw(tile.DotBF16(7, x, tile.Reg(2*i+1)))
		}
	}
	pre.lines(16 * line / tileRow)
	pre.next()
	g.ADDQ(operand.I32(16*line), b)
	for _, p := range []reg.GPPhysical{a, a2}[:blocks] {
		g.ADDQ(operand.I32(tileRow*planes), p)
	}
	g.DECQ(step)
	g.JNZ(operand.LabelRef("steps"))
	outputs(func(m operand.Mem, t tile.Reg) { g.raw(tile.Store(t, m)) })
	g.raw(tile.Release())
	g.RET()
}

// amxQ8 emits a product of least to most rows by a panel, one block of 32 k at a
// time. Its sums of integers pass through memory on their way to the vector
// registers; while the tiles multiply a block, the one before is converted.
// Tiles 0 and 1 are the sums of the panel's halves for the high plane, 2 and 3
// for the low one; 4 and 5 hold the planes of activations, 6 and 7 weights.
func (g *gen) amxQ8(least, most, planes int) {
	g.Function(fmt.Sprintf("gemmQ8Planes%dx%d%s", planes, most, g.suffix))
	g.Attributes(0) // the frame is too large for NOSPLIT
	g.SignatureExpr("func(cfg *byte, c *float32, ldc uintptr, a *uint32, ars uintptr, b *byte, rows, blocks int, acc bool, ahead, pace uintptr)")
	g.Pragma("noescape")
	g.Doc(fmt.Sprintf("gemmQ8Planes%dx%d%s computes %d to %d rows of 32 outputs; strides are in bytes.",
		planes, most, g.suffix, least, most))
	var (
		cfg, c, ldc       = reg.RAX, reg.RDI, reg.R8 // before and after the blocks
		now, past, spills = reg.RAX, reg.RDI, reg.R8 // in between
		a, ars, b, left   = reg.RDX, reg.R9, reg.RSI, reg.RCX
		row, ahead        = reg.R11, reg.R10
		ars3, ars5        = reg.R12, reg.R13
		bases             = []reg.GPPhysical{a, reg.RBX, reg.R15}[:(most+6)/7]
	)
	// The accumulators that do not fit 28 registers lie behind the two buffers.
	const registers = 28
	buffer := 2 * planes * tileBytes
	spilled := max(0, 2*most-registers)
	frame := g.AllocLocal(2*buffer + 64*spilled + 64)
	sum := func(r, half int) reg.VecPhysical { return zmm[2*r+half] }
	spill := func(r, half int) operand.Mem {
		return operand.Mem{Base: spills, Disp: 64 * (2*r + half - registers)}
	}
	inRegister := func(r, half int) bool { return 2*r+half < registers }
	t := []reg.VecPhysical{reg.Z28, reg.Z29, reg.Z30, reg.Z31}

	// frameStart sets r to the first whole line of the frame.
	frameStart := func(r reg.Register) {
		g.LEAQ(frame.Offset(63), r)
		g.ANDQ(operand.I32(-64), r)
	}
	frameSpills := func() {
		if spilled > 0 {
			frameStart(spills)
			g.ADDQ(operand.I32(2*buffer), spills)
		}
	}
	// eachRow emits f for the rows that there are, and label end.
	eachRow := func(end string, f func(r int)) {
		for r := range most {
			if r >= least {
				g.CMPQ(g.addr(g.Param("rows")), operand.Imm(uint64(r)))
				g.JE(operand.LabelRef(end))
			}
			f(r)
		}
		g.Label(end)
	}

	for r := range most {
		for half := range 2 {
			if inRegister(r, half) {
				g.VPXORD(sum(r, half), sum(r, half), sum(r, half))
			}
		}
	}
	frameSpills()
	if spilled > 0 {
		g.VPXORD(t[0], t[0], t[0])
		for i := range spilled {
			g.VMOVUPS(t[0], operand.Mem{Base: spills, Disp: 64 * i})
		}
	}
	g.CMPB(g.addr(g.Param("acc")), operand.Imm(0))
	g.JE(operand.LabelRef("start"))
	g.arg("c", c)
	// R8 is ldc here, and so RBX takes its place as spills.
	outputs := func(end string, f func(r, half int, m operand.Mem)) {
		g.arg("ldc", ldc)
		eachRow(end, func(r int) {
			if r > 0 {
				g.ADDQ(ldc, c)
			}
			for half := range 2 {
				f(r, half, operand.Mem{Base: c, Disp: 64 * half})
			}
		})
	}
	aside := reg.RBX
	if spilled > 0 {
		g.MOVQ(spills, aside)
	}
	spillAside := func(r, half int) operand.Mem {
		m := spill(r, half)
		m.Base = aside
		return m
	}
	outputs("start", func(r, half int, m operand.Mem) {
		if inRegister(r, half) {
			g.VMOVUPS(m, sum(r, half))
		} else {
			g.VMOVUPS(m, t[0])
			g.VMOVUPS(t[0], spillAside(r, half))
		}
	})

	g.arg("cfg", cfg)
	g.raw(tile.LoadConfig(operand.Mem{Base: cfg}))
	g.arg("a", a)
	g.arg("ars", ars)
	g.arg("b", b)
	g.arg("blocks", left)
	g.arg("ahead", ahead)
	g.ADDQ(b, ahead)
	pre := &prefetcher{gen: g, ahead: ahead, part: q8Block / tileRow}
	g.MOVQ(operand.U32(tileRow), row)
	g.LEAQ(operand.Mem{Base: ars, Index: ars, Scale: 2}, ars3)
	g.LEAQ(operand.Mem{Base: ars, Index: ars, Scale: 4}, ars5)
	for i := 1; i < len(bases); i++ {
		g.LEAQ(operand.Mem{Base: bases[i-1], Index: ars3, Scale: 2}, bases[i])
		g.ADDQ(ars, bases[i])
	}
	frameStart(now)
	g.LEAQ(operand.Mem{Base: now, Disp: buffer}, past)
	frameSpills()

	multiply := func() {
		g.raw(tile.Load(tile.Rows(b, row, q8Line/tileRow, q8Scales), 6))
		g.raw(tile.Load(tile.Rows(b, row, q8Line/tileRow, q8Scales+tileRow), 7))
		for plane := range planes {
			x, p := tile.Reg(4+plane), tile.DotS8S8
			if plane == 1 {
				p = tile.DotU8S8
			}
			g.raw(tile.Load(tile.Rows(a, ars, 1, 32*plane), x))
			for half := range tile.Reg(2) {
				s := tile.Reg(2*plane) + half
				g.raw(tile.Zero(s))
				g.raw(p(6+half, x, s))
				g.raw(tile.Store(s, tile.Rows(now, row, 1, tileBytes*int(s))))
			}
		}
	}
	// convert adds the block before the one that a and b point to.
	convert := func(end string) {
		d := t[:2]
		for half := range 2 {
			g.VCVTPH2PS(operand.Mem{Base: b, Disp: 32*half - q8Block}, d[half])
		}
		eachRow(end, func(r int) {
			scale := operand.Mem{Base: bases[r/7], Disp: q8AScale - q8ABlock}
			switch r % 7 {
			case 1, 2, 4:
				scale.Index, scale.Scale = ars, uint8(r%7)
			case 3, 6:
				scale.Index, scale.Scale = ars3, uint8(r%7/3)
			case 5:
				scale.Index, scale.Scale = ars5, 1
			}
			for half := range 2 {
				v, o := t[2+half], t[3-half]
				from := operand.Mem{Base: past, Disp: tileBytes*half + tileRow*r}
				if planes == 2 {
					g.VPSLLD(operand.Imm(8), from, v)
					from.Disp += 2 * tileBytes
					g.VPADDD(from, v, v)
					g.VCVTDQ2PS(v, v)
				} else {
					g.VCVTDQ2PS(from, v)
				}
				g.VMULPS(d[half], v, v)
				if inRegister(r, half) {
					g.VFMADD231PS_BCST(scale, v, sum(r, half))
					continue
				}
				g.VMOVUPS(spill(r, half), o)
				g.VFMADD231PS_BCST(scale, v, o)
				g.VMOVUPS(o, spill(r, half))
			}
		})
	}
	advance := func() {
		pre.lines(q8Block / tileRow)
		pre.next()
		g.ADDQ(operand.I32(q8Block), b)
		for _, p := range bases {
			g.ADDQ(operand.I32(q8ABlock), p)
		}
		g.XCHGQ(now, past)
	}
	multiply()
	advance()
	g.DECQ(left)
	g.JZ(operand.LabelRef("last"))
	g.Label("blocks")
	multiply()
	convert("converted")
	advance()
	g.DECQ(left)
	g.JNZ(operand.LabelRef("blocks"))
	g.Label("last")
	convert("finish")

	if spilled > 0 {
		g.MOVQ(spills, aside)
	}
	g.arg("c", c)
	outputs("done", func(r, half int, m operand.Mem) {
		if inRegister(r, half) {
			g.VMOVUPS(sum(r, half), m)
		} else {
			g.VMOVUPS(spillAside(r, half), t[0])
			g.VMOVUPS(t[0], m)
		}
	})
	g.raw(tile.Release())
	g.ret()
}

var zmm = [32]reg.VecPhysical{
	reg.Z0, reg.Z1, reg.Z2, reg.Z3, reg.Z4, reg.Z5, reg.Z6, reg.Z7,
	reg.Z8, reg.Z9, reg.Z10, reg.Z11, reg.Z12, reg.Z13, reg.Z14, reg.Z15,
	reg.Z16, reg.Z17, reg.Z18, reg.Z19, reg.Z20, reg.Z21, reg.Z22, reg.Z23,
	reg.Z24, reg.Z25, reg.Z26, reg.Z27, reg.Z28, reg.Z29, reg.Z30, reg.Z31,
}

// amxSplit emits the rounding of a row to bfloat16 and, for two planes, of what
// the rounding leaves, 32 elements at a step.
func (g *gen) amxSplit(planes int) {
	g.text(fmt.Sprintf("split%d", planes), "func(dst *uint32, x *float32, n int)",
		fmt.Sprintf("rounds n elements to %d planes of bfloat16.", planes))
	dst, x, n := g.ptr("dst"), g.ptr("x"), g.ptr("n")
	constant := func(bits uint32) reg.VecVirtual {
		t, v := g.GP32(), g.vec()
		g.MOVL(operand.U32(bits), t)
		g.VPBROADCASTD(t, v)
		return v
	}
	one, most, upper, quiet := constant(1), constant(0x7fff), constant(0xffff0000), constant(1<<22)
	// round rounds v, a number, to d, whose lower halves it leaves to be cut.
	round := func(v, d reg.VecVirtual) {
		g.VPSRLD(operand.Imm(16), v, d)
		g.VPANDD(one, d, d)
		g.VPADDD(most, d, d)
		g.VPADDD(v, d, d)
	}
	store := func(v reg.VecVirtual, disp int) {
		w := g.vec()
		g.VPSRLD(operand.Imm(16), v, w)
		g.VPMOVDW(w, operand.Mem{Base: dst, Disp: disp})
	}
	step := func(load func(i int, v reg.VecVirtual)) {
		for i := range 2 {
			v, high := g.vec(), g.vec()
			load(i, v)
			round(v, high)
			nan := g.K()
			const unordered, ordered = 3, 7
			g.VCMPPS(operand.Imm(unordered), v, v, nan)
			g.VPORD(quiet, v, nan, high) // a NaN stays one, whatever the cut removes
			store(high, 32*i)
			if planes == 1 {
				continue
			}
			g.VPANDD(upper, high, high)
			rest, finite := g.vec(), g.K()
			g.VSUBPS(high, high, rest)
			g.VCMPPS(operand.Imm(ordered), rest, rest, finite)
			g.VSUBPS_Z(high, v, finite, rest)
			low := g.vec()
			round(rest, low)
			store(low, 64+32*i)
		}
		g.ADDQ(operand.I32(64*planes), dst)
		g.ADDQ(operand.I32(128), x)
	}
	at := func(i int) operand.Mem { return operand.Mem{Base: x, Disp: 64 * i} }
	g.SUBQ(operand.Imm(32), n)
	g.JL(operand.LabelRef("rest"))
	g.Label("steps")
	step(func(i int, v reg.VecVirtual) { g.VMOVUPS(at(i), v) })
	g.SUBQ(operand.Imm(32), n)
	g.JGE(operand.LabelRef("steps"))
	g.Label("rest")
	g.ADDQ(operand.Imm(32), n)
	g.JZ(operand.LabelRef("done"))
	bits := g.GP64()
	g.MOVQ(operand.U32(1), bits)
	g.MOVQ(n, reg.RCX)
	g.SHLQ(reg.CL, bits)
	g.DECQ(bits)
	var masks [2]reg.OpmaskVirtual
	for i := range masks {
		masks[i] = g.K()
		g.KMOVW(bits.As32(), masks[i])
		g.SHRQ(operand.Imm(16), bits)
	}
	step(func(i int, v reg.VecVirtual) { g.VMOVUPS_Z(at(i), masks[i], v) })
	g.Label("done")
	g.ret()
}

// amxProbe emits what detection asks the processor.
func (g *gen) amxProbe() {
	g.Function("cpuid")
	g.Attributes(attr.NOSPLIT)
	g.SignatureExpr("func(leaf, sub uint32) (eax, ebx, ecx, edx uint32)")
	g.Doc("cpuid executes CPUID.")
	g.arg("leaf", reg.EAX)
	g.arg("sub", reg.ECX)
	g.CPUID()
	for i, r := range []reg.Register{reg.EAX, reg.EBX, reg.ECX, reg.EDX} {
		g.Store(r, g.ReturnIndex(i))
	}
	g.RET()

	g.Function("xgetbv")
	g.Attributes(attr.NOSPLIT)
	g.SignatureExpr("func() (xcr0 uint32)")
	g.Doc("xgetbv returns the lower half of XCR0. CPUID must have reported OSXSAVE.")
	g.XORL(reg.ECX, reg.ECX)
	g.XGETBV()
	g.Store(reg.EAX, g.ReturnIndex(0))
	g.RET()
}

// raw emits an instruction as bytes, under a comment in the GNU assembler's syntax.
func (g *gen) raw(c tile.Code) {
	g.Comment(c.Text)
	for _, i := range encoded(c) {
		g.Instruction(i)
	}
}

// encoded returns the bytes of an instruction as directives of the assembler.
func encoded(c tile.Code) (all []*ir.Instruction) {
	b, isa := c.Bytes, []string{c.ISA}
	for ; len(b) >= 4; b = b[4:] {
		all = append(all, &ir.Instruction{Opcode: "LONG", ISA: isa, Operands: []operand.Op{operand.U32(binary.LittleEndian.Uint32(b))}})
	}
	for _, v := range b {
		all = append(all, &ir.Instruction{Opcode: "BYTE", ISA: isa, Operands: []operand.Op{operand.U8(v)}})
	}
	return all
}
