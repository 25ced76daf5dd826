package main

import (
	"fmt"

	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

const (
	unroll = 4 // steps of k in a loop's body

	// Kernels of prefetchRows rows or more ask for b's lines prefetchSteps steps
	// ahead, into the second level. From memory that gains a third; fewer rows
	// keep the hardware's prefetcher busy by themselves, and would lose a quarter
	// of their speed from the caches.
	prefetchRows  = 4
	prefetchSteps = 64 // 8 KiB of a panel
)

// gemms emits gemm<rows>: rows×32 outputs, or rows×16 where 32 need more than
// the 16 registers of AVX2.
func (g *gen) gemms() {
	if g.wide() {
		for n := 1; n <= 14; n++ {
			g.gemm(n, 2)
		}
		return
	}
	for n := 1; n <= 3; n++ {
		g.gemm(n, 4)
	}
	for n := 4; n <= 6; n++ {
		g.gemm(n, 2)
	}
}

// gemm emits the kernel of n rows and cols registers of outputs. Strides are in
// bytes. Each output's sum is one chain over ascending k, in one register.
func (g *gen) gemm(n, cols int) {
	g.text(fmt.Sprintf("gemm%d", n),
		"func(c *float32, ldc uintptr, a *float32, ars, aks uintptr, b *float32, ldb uintptr, k int, acc bool)",
		fmt.Sprintf("computes %d rows of %d outputs; strides are in bytes.", n, cols*g.width))
	c, ldc := g.ptr("c"), g.ptr("ldc")
	a, ars, aks := g.ptr("a"), g.ptr("ars"), g.ptr("aks")
	b, ldb := g.ptr("b"), g.ptr("ldb")
	k := g.ptr("k")

	// Row r of a is at a multiple of ars that an address can express; rows from
	// the eighth on count from a second base.
	const group = 7
	bases := []reg.GPVirtual{a}
	var ars3, ars5 reg.GPVirtual
	if n > 3 {
		ars3 = g.GP64()
		g.LEAQ(operand.Mem{Base: ars, Index: ars, Scale: 2}, ars3)
	}
	if n > 5 {
		ars5 = g.GP64()
		g.LEAQ(operand.Mem{Base: ars, Index: ars, Scale: 4}, ars5)
	}
	if n > group {
		a2 := g.GP64()
		g.LEAQ(operand.Mem{Base: a, Index: ars3, Scale: 2}, a2)
		g.ADDQ(ars, a2)
		bases = append(bases, a2)
	}
	row := func(r int) operand.Mem {
		m := operand.Mem{Base: bases[r/group]}
		switch r % group {
		case 1, 2, 4:
			m.Index, m.Scale = ars, uint8(r%group)
		case 3, 6:
			m.Index, m.Scale = ars3, uint8(r%group/3)
		case 5:
			m.Index, m.Scale = ars5, 1
		}
		return m
	}

	ahead := reg.GPVirtual(nil)
	if n >= prefetchRows {
		ahead = g.GP64()
		g.IMUL3Q(operand.Imm(prefetchSteps), ldb, ahead)
		g.ADDQ(b, ahead)
	}

	sum := make([][]reg.VecVirtual, n)
	for r := range sum {
		for range cols {
			sum[r] = append(sum[r], g.vec())
		}
	}
	outputs := func(f func(m operand.Mem, v reg.VecVirtual)) {
		p := g.GP64()
		g.MOVQ(c, p)
		for r := range sum {
			for j, v := range sum[r] {
				f(operand.Mem{Base: p, Disp: 4 * g.width * j}, v)
			}
			if r < n-1 {
				g.ADDQ(ldc, p)
			}
		}
	}
	g.CMPB(g.addr(g.Param("acc")), operand.Imm(0))
	g.JE(operand.LabelRef("zero"))
	outputs(func(m operand.Mem, v reg.VecVirtual) { g.VMOVUPS(m, v) })
	g.JMP(operand.LabelRef("sums"))
	g.Label("zero")
	for r := range sum {
		for _, v := range sum[r] {
			if g.wide() {
				g.VPXORD(v, v, v)
			} else {
				g.VXORPS(v, v, v)
			}
		}
	}
	g.Label("sums")

	step := func() {
		bs := make([]operand.Op, cols)
		wide := n*cols+cols+2 <= 2*g.width // the register file: 32 ZMM or 16 YMM
		for j := range bs {
			bs[j] = operand.Mem{Base: b, Disp: 4 * g.width * j}
			if n > 1 && wide {
				v := g.vec()
				g.VMOVUPS(bs[j], v)
				bs[j] = v
			}
		}
		if wide || n == 1 {
			for r := range sum {
				x := g.vec()
				g.VBROADCASTSS(row(r), x)
				for j, v := range sum[r] {
					g.VFMADD231PS(bs[j], x, v)
				}
			}
		} else {
			xs := make([]reg.VecVirtual, n)
			for r := range sum {
				xs[r] = g.vec()
				g.VBROADCASTSS(row(r), xs[r])
			}
			for j := range bs {
				v := g.vec()
				g.VMOVUPS(bs[j], v)
				for r := range sum {
					g.VFMADD231PS(v, xs[r], sum[r][j])
				}
			}
		}
		for _, p := range bases {
			g.ADDQ(aks, p)
		}
		g.ADDQ(ldb, b)
		if ahead != nil {
			for j := 0; j < 4*g.width*cols; j += 64 {
				g.PREFETCHT1(operand.Mem{Base: ahead, Disp: j})
			}
			g.ADDQ(ldb, ahead)
		}
	}
	g.SUBQ(operand.Imm(unroll), k)
	g.JL(operand.LabelRef("rest"))
	g.Label("loop")
	for range unroll {
		step()
	}
	g.SUBQ(operand.Imm(unroll), k)
	g.JGE(operand.LabelRef("loop"))
	g.Label("rest")
	g.ADDQ(operand.Imm(unroll), k)
	g.JZ(operand.LabelRef("store"))
	g.Label("single")
	step()
	g.DECQ(k)
	g.JNZ(operand.LabelRef("single"))
	g.Label("store")
	outputs(func(m operand.Mem, v reg.VecVirtual) { g.VMOVUPS(v, m) })
	g.ret()
}
