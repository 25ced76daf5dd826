package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/mmcloughlin/avo/ir"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"

	"talf/tools/avogen/tile"
)

// gemmsPairs emits gemmPairsx<rows>: VDPBF16PS by class AVX512BF16, and by the others the two fused
// multiply-adds that it consists of.
func (g *gen) gemmsPairs() {
	if g.wide() {
		for n := 1; n <= 14; n++ {
			g.gemmPairs(n, 2)
		}
		return
	}
	for n := 1; n <= 3; n++ {
		g.gemmPairs(n, 4)
	}
	for n := 4; n <= 6; n++ {
		g.gemmPairs(n, 2)
	}
}

// flushing is MXCSR as VDPBF16PS computes, whatever MXCSR says: DAZ and FTZ, no exceptions, rounding
// to nearest even.
const flushing = 0x9fc0

// gemmPairs emits the kernel of n rows and cols registers of outputs, whose operands are both pairs
// of bfloat16. Strides are in bytes. Each output's sum is one chain in one register: of each pair
// in ascending order, the odd product and then the even one.
func (g *gen) gemmPairs(n, cols int) {
	g.text(fmt.Sprintf("gemmPairsx%d", n),
		"func(c *float32, ldc uintptr, a *uint32, ars uintptr, b *uint16, pairs int, acc bool, ahead, pace uintptr)",
		fmt.Sprintf("computes %d rows of %d outputs; strides are in bytes.", n, cols*g.width))
	const (
		line   = 2 * 2 * 32 // bytes of a pair of a panel
		unroll = unroll / 2 // pairs
	)
	a, ars := g.ptr("a"), g.ptr("ars")
	b := g.ptr("b")
	k := g.ptr("pairs")
	row, bases := g.rowsAt(a, ars, n)
	pre := g.prefetcher(b, unroll*line/64)
	var mxcsr operand.Mem
	var odd reg.VecVirtual // mask of the upper halves
	if !g.bf16 {
		mxcsr = g.AllocLocal(8)
		word := g.GP32()
		g.STMXCSR(mxcsr)
		g.MOVL(operand.U32(flushing), word)
		g.MOVL(word, mxcsr.Offset(4))
		g.LDMXCSR(mxcsr.Offset(4))
		if g.wide() {
			odd = g.vec()
			g.VPTERNLOGD(operand.Imm(0xff), odd, odd, odd)
			g.VPSLLD(operand.Imm(16), odd, odd)
		}
	}
	sum, outputs := g.sums(n, cols)
	g.CMPB(g.addr(g.Param("acc")), operand.Imm(0))
	g.JE(operand.LabelRef("zero"))
	outputs(func(m operand.Mem, v reg.VecVirtual) { g.VMOVUPS(m, v) })
	g.JMP(operand.LabelRef("sums"))
	g.Label("zero")
	for r := range sum {
		g.zero(sum[r]...)
	}
	g.Label("sums")

	// half widens one element of the pairs in v, in place.
	half := func(v reg.VecVirtual, i int) {
		switch {
		case i == 0:
			g.VPSLLD(operand.Imm(16), v, v)
		case g.wide():
			g.VPANDD(odd, v, v)
		default:
			g.VANDPS(g.consts["upper"], v, v)
		}
	}
	weights := func(disp, j int) reg.VecVirtual {
		v := g.vec()
		g.VMOVUPS(operand.Mem{Base: b, Disp: disp + 4*g.width*j}, v)
		return v
	}
	acts := func(r, disp int) reg.VecVirtual {
		x := g.vec()
		g.VBROADCASTSS(row(r, disp), x)
		return x
	}
	// step adds the products of pair i from here.
	step := func(i int) {
		if g.bf16 {
			w := make([]reg.VecVirtual, cols)
			for j := range w {
				w[j] = weights(i*line, j)
			}
			for r := range sum {
				x := acts(r, 4*i)
				for j, v := range sum[r] {
					g.VPDPWSSD(x, w[j], v) // becomes VDPBF16PS
				}
			}
			return
		}
		for _, which := range []int{1, 0} {
			if g.fits(n, cols) {
				w := make([]reg.VecVirtual, cols)
				for j := range w {
					w[j] = weights(i*line, j)
					half(w[j], which)
				}
				for r := range sum {
					x := acts(r, 4*i)
					half(x, which)
					for j, v := range sum[r] {
						g.VFMADD231PS(w[j], x, v)
					}
				}
				continue
			}
			xs := make([]reg.VecVirtual, n)
			for r := range xs {
				xs[r] = acts(r, 4*i)
				half(xs[r], which)
			}
			for j := range cols {
				w := weights(i*line, j)
				half(w, which)
				for r := range sum {
					g.VFMADD231PS(w, xs[r], sum[r][j])
				}
			}
		}
	}
	steps := func(n int) {
		for i := range n {
			pre.lines(line / 64)
			step(i)
		}
		g.ADDQ(operand.U32(n*line), b)
		for _, p := range bases {
			g.ADDQ(operand.Imm(uint64(4*n)), p)
		}
	}
	g.SUBQ(operand.Imm(unroll), k)
	g.JL(operand.LabelRef("rest"))
	g.Label("loop")
	steps(unroll)
	pre.next()
	g.SUBQ(operand.Imm(unroll), k)
	g.JGE(operand.LabelRef("loop"))
	g.Label("rest")
	g.ADDQ(operand.Imm(unroll), k)
	g.JZ(operand.LabelRef("store"))
	steps(1)
	g.Label("store")
	outputs(func(m operand.Mem, v reg.VecVirtual) { g.VMOVUPS(v, m) })
	if !g.bf16 {
		g.LDMXCSR(mxcsr)
	}
	g.ret()
}

// toDots replaces every instruction called name by the bytes of one that avo does not know. The operands are
// alike, so avo has chosen the registers; this runs after that. sets are the instruction sets of the one in avo, as
// functions name them, with those of the other.
func toDots(file *ir.File, name string, by func(b, a, c int) tile.Code, sets *strings.Replacer) {
	for _, f := range file.Functions() {
		var nodes []ir.Node
		for _, node := range f.Nodes {
			i, ok := node.(*ir.Instruction)
			if !ok || i.Opcode != name {
				nodes = append(nodes, node)
				continue
			}
			var regs [3]int
			for n, op := range i.Operands {
				regs[n] = int(op.(reg.Physical).PhysicalIndex())
			}
			code := by(regs[0], regs[1], regs[2])
			nodes = append(nodes, ir.NewComment(code.Text))
			for _, i := range encoded(code) {
				nodes = append(nodes, i)
			}
		}
		f.Nodes = nodes
		for i, isa := range f.ISA {
			f.ISA[i] = sets.Replace(isa)
		}
		slices.Sort(f.ISA)
		f.ISA = slices.Compact(f.ISA)
	}
}
