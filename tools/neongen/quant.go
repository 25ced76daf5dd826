package main

import (
	"math"
)

// quants emits what quantises rows of activations: quantANEON for products of pairs, and
// quantADotPlanes<planes> for those of bytes; with class neoni8mm the second of two planes is without sign.
func (g *gen) quants() {
	g.quant("quantANEON", pairs, 2)
	g.quant("quantADotPlanes1", dots, 1)
	g.quant("quantADotPlanes2", dots, 2)
	g.quant("quantAI8MMPlanes2", mixed, 2)
}

// quant emits a function that quantises blocks of 32 elements.
func (g *gen) quant(name string, w way, planes int) {
	g.fn(name, "quantises blocks of 32 elements to integers of at most most.", "dst *uint32", "x *float32", "blocks int", "most float32")
	dst, p, n := g.arg("dst"), g.arg("x"), g.arg("blocks")
	amax := g.reg()
	const most, inv, scale, order = 20, 21, 22, 24
	g.scalar("most", most)
	switch {
	case w == pairs:
		// of four words the halves 0, 2, 1 and 3, in both halves of a register
		at := g.reg()
		g.op("MOVD $0x0706030205040100, %v", at)
		g.op("FMOVD %v, F%d", at, order)
		g.op("MOVD $0x0f0e0b0a0d0c0908, %v", at)
		g.op("VMOV %v, V%d.D[1]", at, order)
	case w == dots && planes == 2:
		g.bytes(order, 0x80)
	}
	g.label("loop")
	for i := 0; i < 8; i += 2 {
		g.ldp(v(i), v(i+1), p, 16*i)
	}
	for i := range v(8) {
		g.un(fabs, 8+i, i)
	}
	for h := v(4); h > 0; h /= 2 {
		for i := range h {
			g.do(umax, 8+i, 8+i, 8+i+h)
		}
	}
	g.umaxv(8, 8)
	g.pickWord(amax, 8)
	// F8 is the largest magnitude: its bits tell NaNs, infinities, and what is too small.
	g.op("MOVD $0x7f800000, R17")
	g.op("CMPW R17, %v", amax)
	g.op("BHS infinite")
	g.op("MOVD $0x%08x, R17", math.Float32bits(0x1p-100))
	g.op("CMPW R17, %v", amax)
	g.op("BLO tiny")
	g.op("FDIVS F%d, F8, F%d", most, scale)
	g.op("FDIVS F8, F%d, F%d", most, inv)
	g.op("B scaled")
	g.label("infinite")
	g.op("MOVD $0x7fc00000, R17")
	g.op("FMOVS R17, F%d", scale)
	g.zero(inv)
	g.op("B scaled")
	g.label("tiny")
	g.zero(scale)
	g.zero(inv)
	g.label("scaled")
	for i := range v(8) {
		g.el(fmulE, i, i, inv, 0)
		g.un(fcvtns, i, i)
	}
	for i := range v(4) {
		g.do(addw, 8+i, 2*i, 2*i+1)
	}
	g.do(addw, 8, 8, 9)
	g.do(addw, 10, 10, 11)
	g.do(addw, 8, 8, 10)
	g.addv(8, 8)
	for i := range v(4) {
		g.do(uzp1h, i, 2*i, 2*i+1)
	}
	switch {
	case w == pairs:
		for i := range v(4) {
			g.do(tbl, i, i, order)
			g.st(wordQ, i, dst, 16*int(i))
		}
	case planes == 1:
		g.do(uzp1b, 0, 0, 1)
		g.do(uzp1b, 1, 2, 3)
		g.stp(0, 1, dst, 0)
	default:
		g.do(uzp2b, 4, 0, 1)
		g.do(uzp2b, 5, 2, 3)
		g.do(uzp1b, 0, 0, 1)
		g.do(uzp1b, 1, 2, 3)
		if w == dots {
			g.do(eor, 0, 0, order)
			g.do(eor, 1, 1, order)
		}
		g.stp(4, 5, dst, 0)
		g.stp(0, 1, dst, q8Plane)
	}
	g.st(wordS, scale, dst, q8AScale)
	g.pickWord(17, 8)
	g.op("LSLW $3, R17")
	g.op("NEGW R17, R17")
	g.op("MOVW R17, %d(%v)", q8ATimes8, dst)
	g.un(scvtf, 8, 8)
	g.st(wordS, 8, dst, q8ASum)
	g.op("ADD $%d, %v", q8ABlock, dst)
	g.op("ADD $128, %v", p)
	g.op("SUBS $1, %v", n)
	g.op("BNE loop")
	g.op("RET")
}
