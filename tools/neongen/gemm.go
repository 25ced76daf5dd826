package main

import "fmt"

const (
	panelBytes = 4 * 32 // of one k of a panel in f32
	unroll     = 4      // steps of k in a loop's body
)

// A prefetcher asks for lines of b that lie ahead of those in use, a part of b at a time, as the
// kernels of avogen do: where to is the caller's choice.
type prefetcher struct {
	*gen
	ahead x
	part  int // lines of a part of b
	asked int // of this part so far
}

// prefetcher begins a kernel whose b has parts of so many lines.
func (g *gen) prefetcher(b x, part int) *prefetcher {
	p := &prefetcher{gen: g, ahead: g.arg("ahead"), part: part}
	g.op("ADD %v, %v", b, p.ahead)
	return p
}

// lines asks for n lines. The second half of a part, which two turns have not asked for before,
// comes between the first.
func (p *prefetcher) lines(n int) {
	for range n {
		line := p.asked / 2
		if p.asked%2 == 0 {
			line += p.part / 2
		}
		p.op("PRFM %d(%v), PLDL2KEEP", 64*line, p.ahead)
		p.asked++
	}
}

// next ends a part.
func (p *prefetcher) next(pace x) {
	p.op("ADD %v, %v", pace, p.ahead)
	p.asked = 0
}

// gemms emits gemm<rows> and gemmBF16x<rows>: up to three rows of 32 outputs, and up to six of 16:
// 32 registers hold 24 of sums beside what they are made of.
func (g *gen) gemms() {
	for _, bf16 := range []bool{false, true} {
		for n := 1; n <= 3; n++ {
			g.gemm(n, 8, bf16)
		}
		for n := 4; n <= 6; n++ {
			g.gemm(n, 4, bf16)
		}
	}
}

// rows returns pointers to n rows from p, which is the first, stride bytes apart.
func (g *gen) rows(p, stride x, n int) []x {
	rows := []x{p}
	for len(rows) < n {
		r := g.reg()
		g.op("ADD %v, %v, %v", stride, rows[len(rows)-1], r)
		rows = append(rows, r)
	}
	return rows
}

// gemm emits the kernel of n rows and cols registers of outputs. Strides are in bytes. Each
// output's sum is one chain over ascending k, in one register. A line of bfloat16 holds two k: it is
// widened to the even one's weights by a shift and to the odd one's by a mask.
func (g *gen) gemm(n, cols int, bf16 bool) {
	name, b, ld := "gemm%dNEON", "b *float32", []string{"ldb uintptr"}
	if bf16 {
		name, b, ld = "gemmBF16x%dNEON", "b *uint16", nil
	}
	params := append([]string{"c *float32", "ldc uintptr", "a *float32", "ars uintptr", "aks uintptr", b}, ld...)
	g.fn(fmt.Sprintf(name, n), fmt.Sprintf("computes %d rows of %d outputs; strides are in bytes.", n, 4*cols),
		append(params, "k int", "acc bool", "ahead uintptr", "pace uintptr")...)
	cp, ldc, ap, ars, aks, bp := g.arg("c"), g.arg("ldc"), g.arg("a"), g.arg("ars"), g.arg("aks"), g.arg("b")
	var ldb x
	part := unroll * panelBytes / 64
	if bf16 {
		part /= 2
	} else {
		ldb = g.arg("ldb")
	}
	k, pace := g.arg("k"), g.arg("pace")
	pre := g.prefetcher(bp, part)
	row := g.rows(ap, ars, n)
	at := g.reg() // of the rows, in bytes
	g.op("MOVD ZR, %v", at)

	sum := func(r, j int) v { return v(r*cols + j) }
	xs := func(r int) v { return v(n*cols + r) }
	free := v(n*cols + n)
	var odd v // mask of the upper halves
	if bf16 {
		odd = free
		free++
		g.upper(odd)
	}
	outputs := func(f func(d, e v, p x, off int)) {
		p := g.reg()
		g.gp--
		g.op("MOVD %v, %v", cp, p)
		for r := range n {
			for j := 0; j < cols; j += 2 {
				f(sum(r, j), sum(r, j+1), p, 16*j)
			}
			if r < n-1 {
				g.op("ADD %v, %v", ldc, p)
			}
		}
	}
	g.op("MOVBU %s, %v", g.param("acc"), x(17))
	g.op("CBZ %v, zero", x(17))
	outputs(g.ldp)
	g.op("B sums")
	g.label("zero")
	for r := range n {
		for j := range cols {
			g.zero(sum(r, j))
		}
	}
	g.label("sums")

	// step adds the products of one k, whose weights are disp bytes ahead.
	step := func(disp, half int) {
		for r := range n {
			g.ldx(xs(r), row[r], at)
		}
		g.op("ADD %v, %v", aks, at)
		for j := 0; j < cols; {
			ws := []v{free}
			switch {
			case !bf16:
				ws = append(ws, free+1)
				if free+3 < 32 && j/2%2 == 1 {
					ws = []v{free + 2, free + 3}
				}
				g.ldp(ws[0], ws[1], bp, disp+16*j)
			default:
				if free+1 < 32 && j%2 == 1 {
					ws[0]++
				}
				g.ld(wordQ, ws[0], bp, disp+16*j)
				if half == 0 {
					g.shift(shl4s, ws[0], ws[0], 16)
				} else {
					g.do(and, ws[0], ws[0], odd)
				}
			}
			for i, w := range ws {
				for r := range n {
					g.el(fmlaE, sum(r, j+i), w, xs(r), 0)
				}
			}
			j += len(ws)
		}
	}
	if bf16 {
		const pairs = unroll / 2
		some := func(n int) {
			for i := range n {
				pre.lines(panelBytes / 64)
				step(i*panelBytes, 0)
				step(i*panelBytes, 1)
			}
			g.op("ADD $%d, %v", n*panelBytes, bp)
		}
		g.op("SUBS $%d, %v", unroll, k)
		g.op("BLT rest")
		g.label("loop")
		some(pairs)
		pre.next(pace)
		g.op("SUBS $%d, %v", unroll, k)
		g.op("BGE loop")
		g.label("rest")
		g.op("ADDS $%d, %v", unroll-2, k)
		g.op("BLT last")
		some(1)
		g.op("SUB $2, %v", k)
		g.label("last")
		g.op("ADDS $2, %v", k)
		g.op("BEQ store")
		step(0, 0)
	} else {
		g.op("SUBS $%d, %v", unroll, k)
		g.op("BLT rest")
		g.label("loop")
		for range unroll {
			pre.lines(panelBytes / 64)
			step(0, 0)
			g.op("ADD %v, %v", ldb, bp)
		}
		pre.next(pace)
		g.op("SUBS $%d, %v", unroll, k)
		g.op("BGE loop")
		g.label("rest")
		g.op("ADDS $%d, %v", unroll, k)
		g.op("BEQ store")
		g.label("single")
		step(0, 0)
		g.op("ADD %v, %v", ldb, bp)
		g.op("SUBS $1, %v", k)
		g.op("BNE single")
	}
	g.label("store")
	outputs(g.stp)
	g.op("RET")
}
