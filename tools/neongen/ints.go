package main

import "fmt"

// The formats of kern/q8.go, kern/q4.go and kern/q6.go, in bytes.
const (
	q8Block   = 64 + 1024
	q8mMins   = 128 // q8m: bytes of a block's scales, and of its minima
	q8mBlock  = 2*q8mMins + 1024
	q4Block   = 64 + 512
	q4kFirst  = 128 // d and dm of eight parts
	q4kPart   = 64 + 512
	kParts    = 8  // of a block of q4k or q6k
	q6kFirst  = 64 // d of eight parts
	q6kShare  = 32 // the scales of a half of a part
	q6kGroup  = 3 * 64
	q6kPart   = 2*q6kShare + 4*q6kGroup
	q8ABlock  = 80
	q8AScale  = 64
	q8ATimes8 = 72
	q8ASum    = 76
	q8Plane   = 32
)

// A way is how integers are multiplied.
type way int

const (
	pairs  way = iota // of 16 bits, with SMLAL
	dots              // of 8 bits, with SDOT: the second plane has 128 taken from it
	mixed             // the same with SUDOT: the second plane is without sign
	square            // the same with SMMLA and USMMLA: two rows by two outputs
)

// A product is a kernel with weights of integers.
type product struct {
	*gen
	way     way
	format  string // Q8, Q8M, Q4, Q4K or Q6K
	planes  int
	n       int // rows
	strip   int // registers of outputs that are computed at once
	b, part x   // the block of weights, and the part of it
	arow    []x
	crow    []x

	next v // the first register that is not taken
}

// maxRows is the largest number of rows of a kernel.
const maxRows = 4

// ints emits the products with weights of integers: gemm<format>x<rows>, and
// gemm<format><way><planes>x<rows>.
func (g *gen) ints() {
	for _, format := range []string{"Q8", "Q8M", "Q4", "Q4K", "Q6K"} {
		for n := 1; n <= maxRows; n++ {
			g.product(&product{way: pairs, format: format, planes: 1, n: n, strip: 2}, "NEON")
		}
		for planes := 1; planes <= 2; planes++ {
			for n := 1; n <= maxRows; n++ {
				strip := 4
				if n == 1 {
					strip = 8
				} else if n*planes > 5 {
					strip = 2
				}
				g.product(&product{way: dots, format: format, planes: planes, n: n, strip: strip}, fmt.Sprintf("DotPlanes%d", planes))
				w := mixed
				if n%2 == 0 {
					w, strip = square, 16/(n*planes)
					strip = min(strip, 4)
				}
				g.product(&product{way: w, format: format, planes: planes, n: n, strip: strip}, fmt.Sprintf("I8MMPlanes%d", planes))
			}
		}
	}
}

func (g *gen) product(p *product, suffix string) {
	p.gen = g
	g.fn(fmt.Sprintf("gemm%s%sx%d", p.format, suffix, p.n), fmt.Sprintf("computes %d rows of 32 outputs; strides are in bytes.", p.n),
		"c *float32", "ldc uintptr", "a *uint32", "ars uintptr", "b *byte", "blocks int", "acc bool", "ahead uintptr", "pace uintptr")
	c, ldc, a, ars := g.arg("c"), g.arg("ldc"), g.arg("a"), g.arg("ars")
	p.b = g.arg("b")
	blocks, pace := g.arg("blocks"), g.arg("pace")
	lines := map[string]int{"Q8": q8Block, "Q8M": q8mBlock, "Q4": q4Block, "Q4K": q4kPart, "Q6K": q6kPart}[p.format] / 64
	first := map[string]int{"Q4K": q4kFirst, "Q6K": q6kFirst}[p.format] // bytes before the parts
	pre := g.prefetcher(p.b, lines)
	p.arow, p.crow = g.rows(a, ars, p.n), g.rows(c, ldc, p.n)
	g.op("MOVBU %s, R17", g.param("acc"))
	g.op("CBNZ R17, start")
	g.zero(0)
	for _, r := range p.crow {
		for j := 0; j < 8; j += 2 {
			g.stp(0, 0, r, 16*j)
		}
	}
	g.label("start")
	g.op("CBZ %v, done", blocks)
	p.part = p.b
	var left x
	if first > 0 {
		p.part, left = g.reg(), g.reg()
	}
	g.label("loop")
	if first > 0 {
		g.op("ADD $%d, %v, %v", first, p.b, p.part)
		g.op("MOVD $%d, %v", kParts, left)
		g.label("parts")
	}
	pre.lines(lines)
	pre.next(pace)
	for first := 0; first < 8; first += p.strip {
		if p.format != "Q6K" {
			p.outputs(first, 0, 8)
			continue
		}
		p.outputs(first, 0, 4)
		p.outputs(first, 4, 8)
	}
	for _, r := range p.arow {
		g.op("ADD $%d, %v", q8ABlock, r)
	}
	if first == 0 {
		g.op("ADD $%d, %v", 64*lines, p.b)
	} else {
		g.op("ADD $%d, %v", 64*lines, p.part)
		g.op("SUBS $1, %v", left)
		g.op("BNE parts")
		g.op("MOVD %v, %v", p.part, p.b)
	}
	g.op("SUBS $1, %v", blocks)
	g.op("BNE loop")
	g.label("done")
	g.op("RET")
}

// take returns n registers.
func (p *product) take(n int) []v {
	vs := make([]v, n)
	for i := range vs {
		vs[i] = p.next
		p.next++
	}
	if p.next > 32 {
		panic("too many vector registers")
	}
	return vs
}

// packed reports whether a byte has the integers of two outputs.
func (p *product) packed() bool { return p.format == "Q4" || p.format == "Q4K" }

// regs returns the registers of outputs of the strip that begins with first, in the order that
// weights gives them: those of q4 come in pairs from the lower and the higher half.
func (p *product) regs(first int) []int {
	var js []int
	for i := range p.strip {
		if p.packed() {
			js = append(js, first/2+i/2+i%2*4)
		} else {
			js = append(js, first+i)
		}
	}
	return js
}

// eight reports whether a byte is an integer.
func (p *product) eight() bool { return p.format == "Q8" || p.format == "Q8M" }

// weight loads the weights of a line (four k) of outputs j of q8, q8m or q6k; tmp and mask are for the latter.
func (p *product) weight(w v, line, j int, tmp, mask v) {
	if p.eight() {
		first := 64
		if p.format == "Q8M" {
			first = 2 * q8mMins
		}
		p.ld(wordQ, w, p.part, first+128*line+16*j)
		return
	}
	at := func(i int) int { return 2*q6kShare + (line/4*2+j/4)*q6kGroup + 64*i + j%4*16 }
	if line%4 < 3 {
		p.ld(wordQ, w, p.part, at(line%4))
		p.do(and, w, w, mask)
		return
	}
	// Two bits of each byte of the three other lines, the first one's highest.
	p.ld(wordQ, w, p.part, at(2))
	p.shift(shl16b, w, w, 2)
	for i := 1; i >= 0; i-- {
		p.ld(wordQ, tmp, p.part, at(i))
		p.shift(sli16b, w, tmp, 6-2*i)
	}
}

// weights loads the weights of a line (four k) of outputs js[i] and, in q4, js[i+1], whose
// integers are the bytes' halves, and calls use for each.
func (p *product) weights(line int, js []int, tmp []v, mask v, use func(i int, w v)) {
	if !p.packed() {
		for i, j := range js {
			w := tmp[i%len(tmp)]
			p.weight(w, line, j, tmp[(i+1)%len(tmp)], mask)
			use(i, w)
		}
		return
	}
	for i := 0; i < len(js); i += 2 {
		lo, hi := tmp[0], tmp[1]
		p.ld(wordQ, hi, p.part, 64+64*line+16*js[i])
		p.do(and, lo, hi, mask)
		p.shift(ushr16b, hi, hi, 4)
		use(i, lo)
		use(i+1, hi)
	}
}

// outputs emits the products of lines from..to of a block for a strip of outputs and all rows.
func (p *product) outputs(first, from, to int) {
	p.next = 0
	js := p.regs(first)
	var mask v // of the integers in a byte
	if !p.eight() {
		mask = p.take(1)[0]
		b := uint32(15)
		if p.format == "Q6K" {
			b = 0xfc
		}
		p.bytes(mask, b)
	}
	switch p.way {
	case pairs:
		p.pairSums(js, from, to, mask)
	case square:
		p.squareSums(js, from, to, mask)
	default:
		p.dotSums(js, from, to, mask)
	}
}

// pairSums multiplies activations of 16 bits in pairs, as portable kernels have them: of a word of
// four weights, the even and the odd.
func (p *product) pairSums(js []int, from, to int, mask v) {
	sums := make([][][]v, p.n) // [row][output][half]
	for r := range sums {
		for range js {
			h := p.take(2)
			p.zero(h[0])
			p.zero(h[1])
			sums[r] = append(sums[r], h)
		}
	}
	acts, tmp := p.take(p.n), p.take(2)
	even, odd, x := p.take(1)[0], p.take(1)[0], p.take(1)[0]
	for line := from; line < to; line++ {
		if line%2 == 0 {
			for r, a := range acts {
				p.ld(wordQ, a, p.arow[r], 8*line)
			}
		}
		p.weights(line, js, tmp, mask, func(i int, w v) {
			p.shift(shl8h, even, w, 8)
			p.shift(sshr8h, even, even, 8)
			p.shift(sshr8h, odd, w, 8)
			for r, a := range acts {
				for half, w := range []v{even, odd} {
					p.dup(x, a, line%2*2+half)
					p.do(smlal, sums[r][i][0], w, x)
					p.do(smlal2, sums[r][i][1], w, x)
				}
			}
		})
	}
	for r := range sums {
		for _, h := range sums[r] {
			p.do(addp, h[0], h[0], h[1])
		}
	}
	p.next = sums[p.n-1][len(js)-1][1] + 1
	p.finish(js, from/4, func(r, i int) v { return sums[r][i][0] })
}

// dotSums multiplies planes of bytes.
func (p *product) dotSums(js []int, from, to int, mask v) {
	sums := make([][][]v, p.n) // [row][plane][output]
	for r := range sums {
		for range p.planes {
			s := p.take(len(js))
			for _, s := range s {
				p.zero(s)
			}
			sums[r] = append(sums[r], s)
		}
	}
	var all []v // sums of the weights
	var ones v
	kept := p.next
	if p.way == dots && p.planes == 2 {
		all = p.take(len(js))
		for _, s := range all {
			p.zero(s)
		}
		kept = p.next
		ones = p.take(1)[0]
		p.bytes(ones, 1)
	}
	acts := make([][]v, p.n)
	for r := range acts {
		acts[r] = p.take(p.planes)
	}
	tmp := p.take(2)
	for line := from; line < to; line++ {
		if line%4 == 0 {
			for r := range acts {
				for plane, a := range acts[r] {
					p.ld(wordQ, a, p.arow[r], q8Plane*plane+4*line)
				}
			}
		}
		p.weights(line, js, tmp, mask, func(i int, w v) {
			if all != nil {
				p.do(sdot, all[i], w, ones)
			}
			for r := range acts {
				for plane, a := range acts[r] {
					op := sdotE
					if plane == 1 && p.way == mixed {
						op = sudotE
					}
					p.el(op, sums[r][plane][i], w, a, line%4)
				}
			}
		})
	}
	if p.planes == 2 {
		for i := range js {
			if all != nil {
				p.shift(shl4s, all[i], all[i], 7)
			}
			for r := range sums {
				s := sums[r][0][i]
				p.shift(shl4s, s, s, 8)
				p.do(addw, s, s, sums[r][1][i])
				if all != nil {
					p.do(addw, s, s, all[i])
				}
			}
		}
	}
	p.next = kept
	p.finish(js, from/4, func(r, i int) v { return sums[r][0][i] })
}

// squareSums multiplies planes of bytes of two rows by eight k of two outputs at once.
func (p *product) squareSums(js []int, from, to int, mask v) {
	sums := make([][][][]v, p.n/2) // [pair of rows][plane][output][half]
	for r := range sums {
		for range p.planes {
			var s [][]v
			for range js {
				h := p.take(2)
				p.zero(h[0])
				p.zero(h[1])
				s = append(s, h)
			}
			sums[r] = append(sums[r], s)
		}
	}
	kept := p.next
	acts := make([][][]v, p.n/2) // [pair of rows][plane][eight of 16 k]
	for r := range acts {
		for range p.planes {
			acts[r] = append(acts[r], p.take(2))
		}
	}
	tmp := p.take(6)
	for line := from; line < to; line += 2 {
		for r := range acts {
			for plane, a := range acts[r] {
				if line%4 == 0 {
					p.ld(wordQ, tmp[0], p.arow[2*r], q8Plane*plane+4*line)
					p.ld(wordQ, tmp[1], p.arow[2*r+1], q8Plane*plane+4*line)
					p.do(uzp1d, a[0], tmp[0], tmp[1])
					p.do(uzp2d, a[1], tmp[0], tmp[1])
				}
			}
		}
		// use multiplies by the weights of one register of outputs, from two lines.
		use := func(i int, even, odd v) {
			for half, op := range []three{zip1s, zip2s} {
				w := tmp[4+half]
				p.do(op, w, even, odd)
				for r := range acts {
					for plane, a := range acts[r] {
						mul := smmla
						if plane == 1 {
							mul = usmmla
						}
						p.do(mul, sums[r][plane][i][half], a[line/2%2], w)
					}
				}
			}
		}
		if !p.packed() {
			for i, j := range js {
				w := tmp[i%2*2:]
				for l := range 2 {
					p.weight(w[l], line+l, j, tmp[4], mask)
				}
				use(i, w[0], w[1])
			}
			continue
		}
		for i := 0; i < len(js); i += 2 {
			for l := range 2 {
				lo, hi := tmp[l], tmp[2+l]
				p.ld(wordQ, hi, p.part, 64+64*(line+l)+16*js[i])
				p.do(and, lo, hi, mask)
				p.shift(ushr16b, hi, hi, 4)
			}
			use(i, tmp[0], tmp[1])
			use(i+1, tmp[2], tmp[3])
		}
	}
	for r := range sums {
		for i := range js {
			h := sums[r][0][i]
			if p.planes == 2 {
				for half, s := range h {
					p.shift(shl4s, s, s, 8)
					p.do(addw, s, s, sums[r][1][i][half])
				}
			}
			p.do(uzp1d, tmp[0], h[0], h[1])
			p.do(uzp2d, h[1], h[0], h[1])
			p.mov(h[0], tmp[0])
		}
	}
	p.next = kept
	p.finish(js, from/4, func(r, i int) v { return sums[r/2][0][i][r%2] })
}

// finish turns the sums of integers into floats, scales them and adds them to the outputs. half is what
// lines of q6k they are of.
func (p *product) finish(js []int, half int, sum func(r, i int) v) {
	t := p.take(4)
	d, m, s, c := t[0], t[1], t[2], t[3]
	for i, j := range js {
		switch p.format {
		case "Q8", "Q4":
			p.ld(wordD, d, p.part, 8*j)
			p.un(fcvtl, d, d)
		case "Q8M":
			p.ld(wordQ, d, p.part, 16*j)
			p.ld(wordQ, m, p.part, q8mMins+16*j)
		case "Q6K": // a quarter: weights are four times as large
			p.ld(wordD, d, p.b, 8*j)
			p.un(fcvtl, d, d)
			p.ld(wordS, s, p.part, q6kShare*half+4*j)
			p.un(sshllBH, s, s)
			p.un(sshllHS, s, s)
			p.un(quarter, s, s)
			p.do(fmul, d, d, s)
		default:
			for k, to := range []v{d, m} {
				p.ld(wordD, to, p.b, 64*k+8*j)
				p.un(fcvtl, to, to)
				p.ld(wordS, s, p.part, 32*k+4*j)
				p.un(ushllBH, s, s)
				p.un(ushllHS, s, s)
				p.un(ucvtf, s, s)
				p.do(fmul, to, to, s)
			}
		}
		for r, a := range p.arow {
			x := sum(r, i)
			if p.format == "Q4" {
				p.ld(wordS, s, a, q8ATimes8)
				p.dup(s, s, 0)
				p.do(addw, x, x, s)
			}
			p.un(scvtf, x, x)
			p.do(fmul, x, d, x)
			if p.format == "Q4K" || p.format == "Q8M" {
				p.ld(wordS, s, a, q8ASum)
				p.el(fmlsE, x, m, s, 0)
			}
			p.ld(wordQ, c, p.crow[r], 16*j)
			p.ld(wordS, s, a, q8AScale)
			p.el(fmlaE, c, x, s, 0)
			p.st(wordQ, c, p.crow[r], 16*j)
		}
	}
}
