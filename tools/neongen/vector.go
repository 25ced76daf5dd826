package main

import (
	"fmt"
	"math"
)

// The constants that functions keep in registers, four to a register; those of exp and gelu are
// the ones of package kern.
var constants = [...][4]float32{
	{math.Log2E, 0.693145751953125, 1.42860676533018e-6, 0.0013926213466153748}, // log₂e, ln 2 in two parts, c4
	{0.0083632029715759344, 0.041666554437687707, 0.16666576845993972, 0.5},     // c3, c2, c1, c0
	{1.5 * (1 << 23), -87.33654, 88.72283, 1 << 127},                            // magic, lo, hi, big
	{1, 0.3, -0.168841228, 0.0383115448},                                        // one, p, g7, g8
	{0.22798796, -0.0757365525, 0.142002776, 0.0949109271},                      // g6 to g3
	{0.121862024, 0.119495891, 6.68615576e-06, 32},                              // g2 to g0, max
	{-0.5, 0, 0, 0},
}

// Where constants are, and the registers of those that instructions take whole.
const (
	kExp, kPoly, kEnds, kOne, kGELU, kGELU2, kHalf = v(16), v(17), v(18), v(19), v(20), v(21), v(22)

	kMagic, kLo, kHi, kUnit = v(23), v(24), v(25), v(26)
)

func (g *gen) constants() {
	at := 0
	g.asm.WriteString("\n")
	for _, row := range constants {
		for _, c := range row {
			fmt.Fprintf(&g.asm, "DATA constsNEON<>+%d(SB)/4, $0x%08x\n", at, math.Float32bits(c))
			at += 4
		}
	}
	fmt.Fprintf(&g.asm, "GLOBL constsNEON<>(SB), RODATA|NOPTR, $%d\n", at)
}

// loadConstants loads the constants of exp and, unless few, of gelu.
func (g *gen) loadConstants(few bool) {
	g.op("MOVD $constsNEON<>(SB), R17")
	n := len(constants)
	if few {
		n = 4
	}
	for i := range n {
		g.ld(wordQ, kExp+v(i), 17, 16*i)
	}
	g.dup(kMagic, kEnds, 0)
	g.dup(kLo, kEnds, 1)
	g.dup(kHi, kEnds, 2)
	g.dup(kUnit, kOne, 0)
}

// exp sets y to exp(y), as kern's exp32 does. It uses the five registers from t on.
func (g *gen) exp(y, t v) {
	n, r, q, p := t+1, t+2, t+3, t+4
	g.mov(t, kMagic)
	g.el(fmlaE, t, y, kExp, 0)
	g.do(fsub, n, t, kMagic)
	g.mov(r, y)
	g.el(fmlsE, r, n, kExp, 1)
	g.el(fmlsE, r, n, kExp, 2)
	g.dup(q, kPoly, 0)
	g.el(fmlaE, q, r, kExp, 3)
	for i := 1; i < 4; i++ {
		g.dup(p, kPoly, i)
		g.do(fmla, p, q, r)
		p, q = q, p
	}
	for range 2 {
		g.mov(p, kUnit)
		g.do(fmla, p, q, r)
		p, q = q, p
	}
	g.shift(shl4s, t, t, 23)
	g.do(addw, q, q, t)
	g.do(fcmge, t, y, kLo) // below it, the result is 0
	g.do(and, q, q, t)
	g.do(fcmge, t, kHi, y)
	g.el(fmulE, y, y, kEnds, 3)
	g.do(bit, y, q, t)
}

// each emits body for every four of n elements; n is a multiple of four. Pointers move on.
func (g *gen) each(n x, ptrs []x, body func()) {
	g.op("CBZ %v, done", n)
	g.label("loop")
	body()
	for _, p := range ptrs {
		g.op("ADD $16, %v", p)
	}
	g.op("SUBS $4, %v", n)
	g.op("BNE loop")
	g.label("done")
	g.op("RET")
}

// lanes emits body for every four of n elements, with the part of a block of 16 that they are, and
// then writes the registers of sums to lanes.
func (g *gen) lanes(n x, ptrs []x, sums [4]v, body func(i int)) {
	step := func(i int) {
		body(i)
		for _, p := range ptrs {
			g.op("ADD $16, %v", p)
		}
	}
	g.op("SUBS $16, %v", n)
	g.op("BLT tail")
	g.label("loop")
	for i := range 4 {
		step(i)
	}
	g.op("SUBS $16, %v", n)
	g.op("BGE loop")
	g.label("tail")
	g.op("ADDS $16, %v", n)
	for i := range 3 {
		g.op("BEQ done")
		step(i)
		g.op("SUBS $4, %v", n)
	}
	g.label("done")
	out := g.arg("lanes")
	g.stp(sums[0], sums[1], out, 0)
	g.stp(sums[2], sums[3], out, 32)
	g.op("RET")
}

// scalar loads a parameter into the first element of a register.
func (g *gen) scalar(name string, d v) { g.op("FMOVS %s, F%d", g.param(name), int(d)) }

func (g *gen) vectors() {
	g.binary("addNEON", "sets dst to a + b.", fadd)
	g.binary("mulNEON", "sets dst to a·b.", fmul)
	g.scale()
	g.axpy()
	g.dot()
	g.expFunc()
	g.expSums()
	g.most()
	g.peaks()
	g.index()
	g.silu()
	g.siluGrad()
	g.gelu()
	g.rope()
	g.adamW()
}

const fours = " n is a multiple of 4."

func (g *gen) binary(name, doc string, op three) {
	g.fn(name, doc+fours, "dst *float32", "a *float32", "b *float32", "n int")
	dst, a, b, n := g.arg("dst"), g.arg("a"), g.arg("b"), g.arg("n")
	g.each(n, []x{dst, a, b}, func() {
		g.ld(wordQ, 0, a, 0)
		g.ld(wordQ, 1, b, 0)
		g.do(op, 0, 0, 1)
		g.st(wordQ, 0, dst, 0)
	})
}

func (g *gen) scale() {
	g.fn("scaleNEON", "multiplies x by s."+fours, "x *float32", "n int", "s float32")
	p, n := g.arg("x"), g.arg("n")
	g.scalar("s", 1)
	g.each(n, []x{p}, func() {
		g.ld(wordQ, 0, p, 0)
		g.el(fmulE, 0, 0, 1, 0)
		g.st(wordQ, 0, p, 0)
	})
}

func (g *gen) axpy() {
	g.fn("axpyNEON", "adds a·x to y."+fours, "y *float32", "x *float32", "n int", "a float32")
	y, p, n := g.arg("y"), g.arg("x"), g.arg("n")
	g.scalar("a", 2)
	g.each(n, []x{y, p}, func() {
		g.ld(wordQ, 0, y, 0)
		g.ld(wordQ, 1, p, 0)
		g.el(fmlaE, 0, 1, 2, 0)
		g.st(wordQ, 0, y, 0)
	})
}

func (g *gen) dot() {
	g.fn("dotNEON", "sets 16 lanes to the sums of a·b."+fours, "a *float32", "b *float32", "n int", "lanes *float32")
	a, b, n := g.arg("a"), g.arg("b"), g.arg("n")
	sums := [4]v{4, 5, 6, 7}
	for _, s := range sums {
		g.zero(s)
	}
	g.lanes(n, []x{a, b}, sums, func(i int) {
		g.ld(wordQ, 0, a, 0)
		g.ld(wordQ, 1, b, 0)
		g.do(fmla, sums[i], 0, 1)
	})
}

func (g *gen) expFunc() {
	g.fn("expNEON", "sets dst to exp(x)."+fours, "dst *float32", "x *float32", "n int")
	dst, p, n := g.arg("dst"), g.arg("x"), g.arg("n")
	g.loadConstants(true)
	g.each(n, []x{dst, p}, func() {
		g.ld(wordQ, 0, p, 0)
		g.exp(0, 1)
		g.st(wordQ, 0, dst, 0)
	})
}

func (g *gen) expSums() {
	for _, store := range []bool{true, false} {
		name, doc, params := "expTotalNEON", "sets 16 lanes to the sums of exp(x−max).", []string{"x *float32", "n int", "max float32", "lanes *float32"}
		if store {
			name, doc = "expSumNEON", "sets dst to exp(x−max) and 16 lanes to its sums."
			params = append([]string{"dst *float32"}, params...)
		}
		g.fn(name, doc+fours, params...)
		var ptrs []x
		if store {
			ptrs = append(ptrs, g.arg("dst"))
		}
		p, n := g.arg("x"), g.arg("n")
		ptrs = append(ptrs, p)
		g.loadConstants(true)
		g.scalar("max", 7)
		g.dup(7, 7, 0)
		sums := [4]v{8, 9, 10, 11}
		for _, s := range sums {
			g.zero(s)
		}
		g.lanes(n, ptrs, sums, func(i int) {
			g.ld(wordQ, 0, p, 0)
			g.do(fsub, 0, 0, 7)
			g.exp(0, 1)
			if store {
				g.st(wordQ, 0, ptrs[0], 0)
			}
			g.do(fadd, sums[i], sums[i], 0)
		})
	}
}

// larger sets m to the larger of w and m, and keeps m if they are equal or either is a NaN.
func (g *gen) larger(m, w, t v) {
	g.do(fcmgt, t, w, m)
	g.do(bit, m, w, t)
}

// lowest fills d with −Inf.
func (g *gen) lowest(d v) {
	g.op("MOVD $0xff800000, R17")
	g.op("FMOVS R17, F%d", int(d))
	g.dup(d, d, 0)
}

func (g *gen) most() {
	g.fn("maxNEON", "sets 16 lanes to the largest elements."+fours, "x *float32", "n int", "lanes *float32")
	p, n := g.arg("x"), g.arg("n")
	sums := [4]v{4, 5, 6, 7}
	for _, s := range sums {
		g.lowest(s)
	}
	g.lanes(n, []x{p}, sums, func(i int) {
		g.ld(wordQ, 0, p, 0)
		g.larger(sums[i], 0, 1)
	})
}

func (g *gen) peaks() {
	g.fn("peaksNEON", "sets dst to the largest of each row of 32; strides are in bytes.",
		"dst *float32", "ldd uintptr", "x *float32", "ldx uintptr", "rows int")
	dst, ldd, p, ldx, n := g.arg("dst"), g.arg("ldd"), g.arg("x"), g.arg("ldx"), g.arg("rows")
	g.lowest(8)
	g.label("loop")
	for i := range v(4) {
		g.mov(4+i, 8)
	}
	for h := range 2 {
		for i := range 4 {
			g.ld(wordQ, v(i), p, 64*h+16*i)
		}
		for i := range v(4) {
			g.larger(4+i, i, 9)
		}
	}
	g.larger(4, 6, 9)
	g.larger(5, 7, 9)
	g.larger(4, 5, 9)
	g.ext(5, 4)
	g.larger(4, 5, 9)
	g.dup(5, 4, 1)
	g.larger(4, 5, 9)
	g.st(wordS, 4, dst, 0)
	g.op("ADD %v, %v", ldd, dst)
	g.op("ADD %v, %v", ldx, p)
	g.op("SUBS $1, %v", n)
	g.op("BNE loop")
	g.op("RET")
}

func (g *gen) index() {
	g.fn("indexNEON", "returns the first multiple of 4 from which on four elements have v, n if there is none."+fours,
		"x *float32", "n int", "v float32", "ret int")
	p, n := g.arg("x"), g.arg("n")
	at := g.reg()
	g.scalar("v", 1)
	g.dup(1, 1, 0)
	g.op("MOVD ZR, %v", at)
	g.label("loop")
	g.op("CMP %v, %v", n, at)
	g.op("BGE done")
	g.ld(wordQ, 0, p, 0)
	g.do(fcmeq, 0, 0, 1)
	g.umaxv(0, 0)
	g.pickWord(17, 0)
	g.op("CBNZW R17, done")
	g.op("ADD $16, %v", p)
	g.op("ADD $4, %v", at)
	g.op("B loop")
	g.label("done")
	g.op("MOVD %v, %s", at, g.param("ret"))
	g.op("RET")
}

// logistic sets d to 1 + exp(−s), with the registers from t on.
func (g *gen) logistic(d, s, t v) {
	g.un(fneg, d, s)
	g.exp(d, t)
	g.do(fadd, d, d, kUnit)
}

func (g *gen) silu() {
	g.fn("siluMulNEON", "sets dst to x/(1+exp(−x))·u."+fours, "dst *float32", "x *float32", "u *float32", "n int")
	dst, p, u, n := g.arg("dst"), g.arg("x"), g.arg("u"), g.arg("n")
	g.loadConstants(true)
	g.each(n, []x{dst, p, u}, func() {
		g.ld(wordQ, 6, p, 0)
		g.logistic(0, 6, 1)
		g.do(fdiv, 6, 6, 0)
		g.ld(wordQ, 1, u, 0)
		g.do(fmul, 6, 6, 1)
		g.st(wordQ, 6, dst, 0)
	})
}

func (g *gen) siluGrad() {
	g.fn("siluMulGradNEON", "gives the gradients of siluMulNEON for dy."+fours,
		"dg *float32", "du *float32", "dy *float32", "x *float32", "u *float32", "n int")
	dg, du, dy, p, u, n := g.arg("dg"), g.arg("du"), g.arg("dy"), g.arg("x"), g.arg("u"), g.arg("n")
	g.loadConstants(true)
	g.each(n, []x{dg, du, dy, p, u}, func() {
		g.ld(wordQ, 6, p, 0)
		g.logistic(0, 6, 1)
		g.do(fdiv, 0, kUnit, 0) // s = 1/(1+exp(−x))
		g.do(fmul, 6, 6, 0)     // y = x·s
		g.do(fsub, 1, kUnit, 0)
		g.do(fmla, 0, 6, 1) // y·(1−s) + s
		g.ld(wordQ, 2, dy, 0)
		g.ld(wordQ, 3, u, 0)
		g.do(fmul, 3, 2, 3)
		g.do(fmul, 3, 3, 0)
		g.do(fmul, 2, 2, 6)
		g.st(wordQ, 3, dg, 0)
		g.st(wordQ, 2, du, 0)
	})
}

func (g *gen) gelu() {
	g.fn("geluNEON", "sets dst to x·Φ(x)."+fours, "dst *float32", "x *float32", "n int")
	dst, p, n := g.arg("dst"), g.arg("x"), g.arg("n")
	g.loadConstants(false)
	g.dup(27, kGELU2, 3)
	g.dup(28, kOne, 1)
	const a, m, t, r, s, e = 6, 7, 8, 9, 10, 0
	g.each(n, []x{dst, p}, func() {
		g.ld(wordQ, m, p, 0)
		g.un(fabs, a, m)
		g.do(fmin, a, a, 27)
		g.zero(t)
		g.do(fcmgt, t, t, m)
		g.do(bic, m, m, t) // max(x, 0)
		g.mov(t, kUnit)
		g.do(fmla, t, a, 28)
		g.do(fdiv, t, kUnit, t) // 1/(1 + p·a)
		g.dup(r, kOne, 2)
		g.el(fmlaE, r, t, kOne, 3)
		q, w := v(r), v(s)
		for i := range 7 {
			g.dup(w, kGELU+v(i/4), i%4)
			g.do(fmla, w, q, t)
			q, w = w, q
		}
		g.el(fmulE, e, a, kHalf, 0)
		g.do(fmul, e, e, a)
		g.exp(e, 1)
		g.do(fmul, q, e, q)
		g.do(fmls, m, a, q)
		g.st(wordQ, m, dst, 0)
	})
}

func (g *gen) rope() {
	g.fn("ropeNEON", "rotates the pairs (lo, hi)."+fours, "lo *float32", "hi *float32", "cos *float32", "sin *float32", "n int")
	lo, hi, cos, sin, n := g.arg("lo"), g.arg("hi"), g.arg("cos"), g.arg("sin"), g.arg("n")
	g.each(n, []x{lo, hi, cos, sin}, func() {
		g.ld(wordQ, 0, lo, 0)
		g.ld(wordQ, 1, hi, 0)
		g.ld(wordQ, 2, cos, 0)
		g.ld(wordQ, 3, sin, 0)
		g.do(fmul, 4, 1, 3)
		g.un(fneg, 4, 4)
		g.do(fmla, 4, 0, 2)
		g.do(fmul, 5, 0, 3)
		g.do(fmla, 5, 1, 2)
		g.st(wordQ, 4, lo, 0)
		g.st(wordQ, 5, hi, 0)
	})
}

func (g *gen) adamW() {
	g.fn("adamWNEON", "updates p, m and v by gradient d; h is an adamRow."+fours,
		"p *float32", "d *float32", "m *float32", "v *float32", "n int", "h *float32")
	p, d, m1, m2, n, h := g.arg("p"), g.arg("d"), g.arg("m"), g.arg("v"), g.arg("n"), g.arg("h")
	for i := range v(3) {
		g.ld(wordQ, 16+i, h, 16*int(i))
	}
	// c emits an operation with a constant.
	c := func(op element, d, n v, i int) { g.el(op, d, n, 16+v(i/4), i%4) }
	const lr, b1, d1, b2, d2, eps, decay, scale, c1, c2 = 0, 1, 2, 3, 4, 5, 6, 7, 8, 9
	g.dup(19, 16+eps/4, eps%4)
	g.each(n, []x{p, d, m1, m2}, func() {
		g.ld(wordQ, 0, d, 0)
		c(fmulE, 0, 0, scale)
		g.do(fmul, 1, 0, 0)
		c(fmulE, 0, 0, d1)
		c(fmulE, 1, 1, d2)
		g.ld(wordQ, 2, m1, 0)
		c(fmlaE, 0, 2, b1)
		g.st(wordQ, 0, m1, 0)
		g.ld(wordQ, 2, m2, 0)
		c(fmlaE, 1, 2, b2)
		g.st(wordQ, 1, m2, 0)
		c(fmulE, 1, 1, c2)
		g.un(fsqrt, 1, 1)
		g.do(fadd, 1, 1, 19)
		c(fmulE, 0, 0, c1)
		g.do(fdiv, 0, 0, 1)
		g.ld(wordQ, 2, p, 0)
		g.mov(3, 2)
		c(fmlsE, 3, 2, decay)
		c(fmlsE, 3, 0, lr)
		g.st(wordQ, 3, p, 0)
	})
}
