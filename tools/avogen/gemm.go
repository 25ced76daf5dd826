package main

import (
	"fmt"

	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

const (
	unroll = 4 // steps of k in a loop's body

	// Memory drops requests for lines that come faster than it answers, and a line
	// that is not there stops all sums of a kernel of many rows. From againRows on,
	// f32 kernels ask once more for what they read againBytes later: from memory a
	// thirtieth faster, from the second level as fast. Those for bfloat16, which
	// multiply twice as long for a line, lose by it.
	againRows  = 4
	againBytes = 4 * 4 * 32

	// aheadFrom is the smallest k for which a kernel that starts new sums asks for the outputs of the next panel:
	// products with large matrices do so, those of attention over a block do not.
	aheadFrom = 128
)

// A prefetcher asks for lines of b that lie ahead of those in use, into the second
// level of the cache: also where the hardware's prefetcher would find them, it
// gains up to a half from memory. Where to is the caller's choice: kernels that take
// turns on a chunk of b ask for their own run of the next chunk's lines each, evenly,
// since in bursts they wait for each other and then memory waits for the sums: such
// a kernel moves on by fewer lines a part than it asks for, and those asked for again
// cost next to nothing.
type prefetcher struct {
	*gen
	ahead reg.Register
	part  int // lines of a part of b
	asked int // of this part so far
}

// prefetcher begins a kernel whose b has parts of so many lines.
func (g *gen) prefetcher(b reg.GPVirtual, part int) *prefetcher {
	p := &prefetcher{gen: g, ahead: g.ptr("ahead"), part: part}
	p.ADDQ(b, p.ahead)
	return p
}

// lines asks for n lines. The second half of a part, which two turns have not asked
// for before, comes between the first.
func (p *prefetcher) lines(n int) {
	for range n {
		line := p.asked / 2
		if p.asked%2 == 0 {
			line += p.part / 2
		}
		p.PREFETCHT1(operand.Mem{Base: p.ahead, Disp: 64 * line})
		p.asked++
	}
}

// next ends a part.
func (p *prefetcher) next() {
	p.ADDQ(p.addr(p.Param("pace")), p.ahead)
	p.asked = 0
}

// gemms emits gemm<rows> and gemmBF16<rows>: rows×32 outputs, or rows×16 where 32
// need more than the 16 registers of AVX2.
func (g *gen) gemms() {
	for _, bf16 := range []bool{false, true} {
		if g.wide() {
			for n := 1; n <= 14; n++ {
				g.gemm(n, 2, bf16)
			}
			continue
		}
		for n := 1; n <= 3; n++ {
			g.gemm(n, 4, bf16)
		}
		for n := 4; n <= 6; n++ {
			g.gemm(n, 2, bf16)
		}
	}
}

// rowsAt returns the address of byte disp of row r < n of a matrix whose rows are
// stride bytes apart, and the registers that move all rows. Rows from the eighth
// on count from a second one: an address expresses few multiples of a stride.
func (g *gen) rowsAt(p, stride reg.GPVirtual, n int) (at func(r, disp int) operand.Mem, bases []reg.GPVirtual) {
	const group = 7
	bases = []reg.GPVirtual{p}
	var s3, s5 reg.GPVirtual
	if n > 3 {
		s3 = g.GP64()
		g.LEAQ(operand.Mem{Base: stride, Index: stride, Scale: 2}, s3)
	}
	if n > 5 {
		s5 = g.GP64()
		g.LEAQ(operand.Mem{Base: stride, Index: stride, Scale: 4}, s5)
	}
	if n > group {
		p2 := g.GP64()
		g.LEAQ(operand.Mem{Base: p, Index: s3, Scale: 2}, p2)
		g.ADDQ(stride, p2)
		bases = append(bases, p2)
	}
	return func(r, disp int) operand.Mem {
		m := operand.Mem{Base: bases[r/group], Disp: disp}
		switch r % group {
		case 1, 2, 4:
			m.Index, m.Scale = stride, uint8(r%group)
		case 3, 6:
			m.Index, m.Scale = s3, uint8(r%group/3)
		case 5:
			m.Index, m.Scale = s5, 1
		}
		return m
	}, bases
}

// sums takes registers for n rows of cols vectors of outputs. outputs calls f with each and its place in C.
func (g *gen) sums(n, cols int) (sum [][]reg.VecVirtual, outputs func(f func(m operand.Mem, v reg.VecVirtual))) {
	sum = make([][]reg.VecVirtual, n)
	for r := range sum {
		for range cols {
			sum[r] = append(sum[r], g.vec())
		}
	}
	return sum, func(f func(m operand.Mem, v reg.VecVirtual)) {
		p, ldc := g.ptr("c"), g.ptr("ldc")
		for r := range sum {
			for j, v := range sum[r] {
				f(operand.Mem{Base: p, Disp: 4 * g.width * j}, v)
			}
			if r < n-1 {
				g.ADDQ(ldc, p)
			}
		}
	}
}

// fits reports whether n rows of sums leave registers for the weights of a whole step, and for two more.
func (g *gen) fits(n, cols int) bool { return n*cols+cols+2 <= g.registers }

// zero clears registers.
func (g *gen) zero(vs ...reg.VecVirtual) {
	for _, v := range vs {
		if g.wide() {
			g.VPXORD(v, v, v)
		} else {
			g.VXORPS(v, v, v)
		}
	}
}

// gemm emits the kernel of n rows and cols registers of outputs. Strides are in
// bytes. Each output's sum is one chain over ascending k, in one register. A line
// of bfloat16 holds two k: it is widened to the even one's weights by a shift and
// to the odd one's by a mask.
func (g *gen) gemm(n, cols int, bf16 bool) {
	name, signature := "gemm", "func(c *float32, ldc uintptr, a *float32, ars, aks uintptr, b *float32, ldb uintptr, k int, acc bool, ahead, pace uintptr)"
	if bf16 {
		name, signature = "gemmBF16x", "func(c *float32, ldc uintptr, a *float32, ars, aks uintptr, b *uint16, k int, acc bool, ahead, pace uintptr)"
	}
	g.text(fmt.Sprintf("%s%d", name, n), signature,
		fmt.Sprintf("computes %d rows of %d outputs; strides are in bytes.", n, cols*g.width))
	a, ars, aks := g.ptr("a"), g.ptr("ars"), g.ptr("aks")
	b := g.ptr("b")
	k := g.ptr("k")
	row, bases := g.rowsAt(a, ars, n)

	var ldb reg.GPVirtual
	lines := unroll * 4 * 32 / 64 // of a part
	if bf16 {
		lines /= 2
	}
	pre := g.prefetcher(b, lines)
	var odd reg.VecVirtual // mask of the upper halves
	const pair = 32 * 2 * 2
	if bf16 {
		if g.wide() {
			odd = g.vec()
			g.VPTERNLOGD(operand.Imm(0xff), odd, odd, odd)
			g.VPSLLD(operand.Imm(16), odd, odd)
		}
	} else {
		ldb = g.ptr("ldb")
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
	g.CMPQ(k, operand.I32(aheadFrom))
	g.JL(operand.LabelRef("sums"))
	outputs(func(m operand.Mem, _ reg.VecVirtual) {
		if m.Disp%64 == 0 {
			m.Disp += 4 * 32
			g.PREFETCHT0(m)
		}
	})
	g.Label("sums")

	// weights returns register j of a step, read from m.
	weights := func(m operand.Mem, half int) reg.VecVirtual {
		v := g.vec()
		switch {
		case !bf16:
			g.VMOVUPS(m, v)
		case g.wide() && half == 0:
			g.VPSLLD(operand.Imm(16), m, v)
		case g.wide():
			g.VPANDD(m, odd, v)
		case half == 0:
			g.VMOVUPS(m, v)
			g.VPSLLD(operand.Imm(16), v, v)
		default:
			g.VMOVUPS(m, v)
			g.VANDPS(g.consts["upper"], v, v)
		}
		return v
	}
	// step adds the products of one k, whose weights are disp bytes ahead.
	step := func(disp, half int) {
		at := func(j int) operand.Mem { return operand.Mem{Base: b, Disp: disp + 4*g.width*j} }
		if g.fits(n, cols) || n == 1 {
			bs := make([]operand.Op, cols)
			for j := range bs {
				bs[j] = at(j)
				if n > 1 || bf16 {
					bs[j] = weights(at(j), half)
				}
			}
			for r := range sum {
				x := g.vec()
				g.VBROADCASTSS(row(r, 0), x)
				for j, v := range sum[r] {
					g.VFMADD231PS(bs[j], x, v)
				}
			}
		} else {
			xs := make([]reg.VecVirtual, n)
			for r := range sum {
				xs[r] = g.vec()
				g.VBROADCASTSS(row(r, 0), xs[r])
			}
			for j := range cols {
				v := weights(at(j), half)
				for r := range sum {
					g.VFMADD231PS(v, xs[r], sum[r][j])
				}
			}
		}
		for _, p := range bases {
			g.ADDQ(aks, p)
		}
	}
	if bf16 {
		const unroll = unroll / 2 // pairs
		pairs := func(n int) {
			for i := range n {
				pre.lines(pair / 64)
				step(i*pair, 0)
				step(i*pair, 1)
			}
			g.ADDQ(operand.U32(n*pair), b)
		}
		g.SUBQ(operand.Imm(2*unroll), k)
		g.JL(operand.LabelRef("rest"))
		g.Label("loop")
		pairs(unroll)
		pre.next()
		g.SUBQ(operand.Imm(2*unroll), k)
		g.JGE(operand.LabelRef("loop"))
		g.Label("rest")
		g.ADDQ(operand.Imm(2*unroll-2), k)
		g.JL(operand.LabelRef("last"))
		pairs(1)
		g.SUBQ(operand.Imm(2), k)
		g.Label("last")
		g.ADDQ(operand.Imm(2), k)
		g.JZ(operand.LabelRef("store"))
		step(0, 0)
	} else {
		next := func() {
			step(0, 0)
			g.ADDQ(ldb, b)
		}
		g.SUBQ(operand.Imm(unroll), k)
		g.JL(operand.LabelRef("rest"))
		g.Label("loop")
		for range unroll {
			pre.lines(4 * 32 / 64)
			if n >= againRows {
				for line := range (4*g.width*cols + 63) / 64 {
					g.PREFETCHT0(operand.Mem{Base: b, Disp: againBytes + 64*line})
				}
			}
			next()
		}
		pre.next()
		g.SUBQ(operand.Imm(unroll), k)
		g.JGE(operand.LabelRef("loop"))
		g.Label("rest")
		g.ADDQ(operand.Imm(unroll), k)
		g.JZ(operand.LabelRef("store"))
		g.Label("single")
		next()
		g.DECQ(k)
		g.JNZ(operand.LabelRef("single"))
	}
	g.Label("store")
	outputs(func(m operand.Mem, v reg.VecVirtual) { g.VMOVUPS(v, m) })
	g.ret()
}
