package main

import (
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// Products of activations of one plane of bytes without VNNI. VPMADDUBSW multiplies unsigned weights by the
// activations, from −127 to 127, and adds two products to a sum of 16 bits, of which a word of four k has two.
// It does not saturate below weights of 128, and sums may wrap on the way: only what they come to in the end has to
// fit. With all products of a share of 32 k, or of 16 in q6k, one such sum comes to at most
//
//	4 bits  16·127·15 = 30480
//	5 bits  16·127·16 = 32512, centred
//	6 bits   8·127·32 = 32512, centred, of 16 k
//
// so that a block needs one widening, by VPMADDWD with ones. What centres the weights is what sums start from. Weights
// of 8 bits leave no room for a second product: VPSIGNB, VPMADDUBSW, VPMADDWD with ones and VPADDD for 32 products take
// longer than two of VPMADDWD and VPADDD (on Zen 4, 17.6 products a cycle where these have 20.4), so that activations
// are widened for them.

// What a block of activations has in its second plane: −8, −16 and, of the first 16 k and of the others, −32 times the
// sums of the even and of the odd pairs of integers, 16 bits each; and 16 times the sum of all. For dot products they are
// of all integers, and the last two −128 times: weights of 6 bits are multiplied by four, as they lie, with 128 added.
const (
	bytesStart4 = q8Plane + 4*iota
	bytesStart5
	bytesStart6
	bytesStart6Rest
	bytesTimes16
)

const bytesPlanes = "Planes1" // in the kernels' names

// bytesKernels emits the kernels of n rows.
func (g *gen) bytesKernels(n int) {
	for _, minima := range []bool{false, true} {
		if g.dots {
			g.q8Dots(n, minima)
		} else {
			g.q8(n, minima, true)
		}
		if !g.dots {
			g.q5Bytes(n, minima)
		}
	}
	for _, q := range nibbleFormats {
		g.q4Bytes(q, n)
	}
	g.q6Bytes(n)
	g.q50Bytes(n)
}

// octets adds the products of unsigned weights w of word of a row's activations to sums of 16 bits, or sets them if
// first is set.
func (f *frame) octets(sums [][]reg.VecVirtual, w []reg.VecVirtual, word int, first bool) {
	for r := range sums {
		x := f.vec()
		f.VPBROADCASTD(f.arow(r, 4*word), x)
		for j, v := range sums[r] {
			if f.dots {
				if first {
					f.zero(v)
				}
				f.VPDPBUSD(x, w[j], v)
				continue
			}
			if first {
				f.VPMADDUBSW(x, w[j], v)
				continue
			}
			t := x
			if j < len(w)-1 {
				t = f.vec()
			}
			f.VPMADDUBSW(x, w[j], t)
			f.VPADDW(t, v, v)
		}
	}
}

// starts sets sums to the word at a place of each row's activations.
func (f *frame) starts(sums [][]reg.VecVirtual, at int) {
	for r := range sums {
		f.VPBROADCASTD(f.arow(r, at), sums[r][0])
		for _, v := range sums[r][1:] {
			if f.wide() {
				f.VMOVDQA32(sums[r][0], v)
			} else {
				f.VMOVDQA(sums[r][0], v)
			}
		}
	}
}

// busy returns how many registers the loops of a kernel of n rows and two columns need.
func (g *gen) busy(n int) int {
	if g.dots {
		return 2*n + 3
	}
	return 2*n + 4
}

// widened widens sums of 16 bits.
func (f *frame) widened(sums [][]reg.VecVirtual) {
	if f.dots {
		return
	}
	for r := range sums {
		for _, v := range sums[r] {
			f.VPMADDWD(f.consts["quant ones"], v, v)
		}
	}
}

// bytesInPairs lays out a block of each row's bytes as q8 multiplies them, and returns where they are.
func (f *frame) bytesInPairs() func(r, disp int) operand.Mem {
	const row = 64
	local := f.AllocLocal(row * f.n)
	for r := range f.n {
		for half := range 2 {
			x := f.vec()
			f.VPMOVSXBW(f.arow(r, 16*half), x)
			f.VPSHUFB(f.consts["quant pairs"], x, x)
			f.VMOVDQU(x, local.Offset(row*r+32*half))
		}
	}
	return func(r, disp int) operand.Mem { return local.Offset(row*r + disp) }
}

// q5Bytes emits a kernel of q8m for integers from 0 to 31, or of q8 for integers from −16 to 15, plus 16.
func (g *gen) q5Bytes(n int, minima bool) {
	const group = 2
	name := "gemmQ5"
	if minima {
		name = "gemmQ5M"
	}
	f, first, block := g.q8FrameOf(name, bytesPlanes, n, minima, false, func(*frame) {})
	for col := 0; col < 32/g.width; col += group {
		sum := f.sums(n, group)
		f.starts(sum, bytesStart5)
		for line := range q8Lines {
			f.pre.lines(1)
			w := make([]reg.VecVirtual, group)
			for j := range w {
				w[j] = g.vec()
				g.VMOVDQU(operand.Mem{Base: f.b, Disp: first + line*q8Line + 4*g.width*(col+j)}, w[j])
			}
			f.octets(sum, w, line, false)
		}
		f.widened(sum)
		if minima {
			for r := range sum {
				all := g.vec()
				g.VPBROADCASTD(f.arow(r, bytesTimes16), all)
				for _, v := range sum[r] {
					g.VPADDD(all, v, v)
				}
			}
		}
		f.q8(sum, col, 1, minima)
	}
	f.next(block)
	f.end()
}

// q4Bytes emits a kernel of integers of 4 bits.
func (g *gen) q4Bytes(q *nibbles, n int) {
	f, end := g.q4Frame(q, bytesPlanes, n, false, func(f *frame) { f.hold(g.busy(n), "quant nibble") })
	for j := range 16 / g.width {
		sum := f.sums(n, 2) // outputs of the low bits, and of the high ones
		if !q.minima {
			f.starts(sum, bytesStart4)
		}
		for line := range q8Lines {
			if j == 0 {
				f.pre.lines(1)
			}
			low, high := g.vec(), g.vec()
			g.VMOVDQU(operand.Mem{Base: f.b, Disp: q.ints() + q4Line*line + 4*g.width*j}, low)
			g.VPSRLW(operand.Imm(4), low, high)
			for _, v := range []reg.VecVirtual{low, high} {
				g.VPAND(f.constant("quant nibble"), v, v)
			}
			f.octets(sum, []reg.VecVirtual{low, high}, line, q.minima && line == 0)
		}
		f.widened(sum)
		f.scale(sum, q.minima, q.plus, f.q4Columns(q, j)...)
	}
	end()
}

// q6Plain returns the weights that q6Weights does, plus 32 instead of times four.
func (f *frame) q6Plain(half, group, at, i int) reg.VecVirtual {
	w := f.vec()
	if i < 3 {
		f.VMOVDQU(f.q6Line(half, group, at, i), w)
		f.VPSRLW(operand.Imm(2), w, w)
		f.VPAND(f.constant("quant low six"), w, w)
	} else {
		u := f.vec()
		for j, name := range []string{"quant next", "quant last", "quant three"} {
			to := w
			if j > 0 {
				to = u
			}
			f.VMOVDQU(f.q6Line(half, group, at, j), to)
			if j < 2 {
				f.VPSLLD(operand.Imm(uint64(4-2*j)), to, to)
			}
			f.VPAND(f.constant(name), to, to)
			if j > 0 {
				f.VPOR(u, w, w)
			}
		}
	}
	f.VPXOR(f.constant("quant flip"), w, w)
	return w
}

// q6Bytes emits a kernel of q6k.
func (g *gen) q6Bytes(n int) {
	const group = 2
	by := "" // of the scales
	if g.dots {
		by = "quant quarter"
	}
	f, end := g.q6Frame(bytesPlanes, n, false, by, func(f *frame) {
		if g.dots {
			f.hold(g.busy(n), "quant top", "quant six", "quant two", "quant next", "quant last")
		} else {
			f.hold(g.busy(n), "quant flip", "quant low six", "quant next", "quant last", "quant three")
		}
	})
	for half := range 2 {
		for col := 0; col < 32/g.width; col += group {
			sum := f.sums(n, group)
			f.starts(sum, bytesStart6+4*half)
			for i := range 4 {
				f.pre.lines(min(1, 3-i) * group * g.width / 16)
				w := make([]reg.VecVirtual, group)
				for j := range w {
					at := (col + j) * g.width
					if g.dots {
						w[j] = f.q6Weights(half, at/16, at%16*4, i, nil, nil)
						g.VPXOR(f.constant("quant top"), w[j], w[j])
					} else {
						w[j] = f.q6Plain(half, at/16, at%16*4, i)
					}
				}
				f.octets(sum, w, q6kLine/16*half+i, false)
			}
			f.widened(sum)
			f.q6(sum, half, col)
		}
	}
	end()
}

// quantBytes writes the plane of a block's integers v, in order, and what sums start from; sum is that of all integers.
func (g *gen) quantBytes(dst reg.Register, v []reg.VecVirtual, sum reg.VecVirtual, order, zero reg.VecVirtual) {
	g.VPACKSSDW(v[1], v[0], v[0])
	g.VPACKSSDW(v[3], v[2], v[2])
	g.VPACKSSWB(v[2], v[0], v[0])
	g.VPERMD(v[0], order, v[0])
	g.VMOVDQU(v[0], operand.Mem{Base: dst})
	pairs, t := g.vec(), g.XMM()
	g.VMOVDQU(g.consts["quant one"], pairs)
	g.VPMADDUBSW(v[0], pairs, pairs)
	rest := g.XMM()
	g.VEXTRACTI128(operand.Imm(1), pairs, rest)
	half := []reg.VecVirtual{pairs.AsX().(reg.VecVirtual), rest}
	for _, v := range half {
		for _, order := range []uint64{0x4e, 0xb1} {
			g.VPSHUFD(operand.Imm(order), v, t)
			g.VPADDW(t, v, v)
		}
	}
	if g.dots {
		for _, v := range half {
			g.VPMADDWD(g.consts["quant ones"].Offset(0), v, v)
		}
	}
	store := func(v reg.Register, by, at int) {
		if g.dots {
			g.VPSLLD(operand.Imm(uint64(by)), v, t)
			g.VPSUBD(t, zero.AsX(), t)
			g.VMOVD(t, operand.Mem{Base: dst, Disp: at})
			return
		}
		g.VPSLLW(operand.Imm(uint64(by)), v, t)
		g.VPSUBW(t, zero.AsX(), t)
		g.VMOVD(t, operand.Mem{Base: dst, Disp: at})
	}
	by := 5
	if g.dots {
		by = 7
	}
	store(half[0], by, bytesStart6)
	store(half[1], by, bytesStart6Rest)
	if g.dots {
		g.VPADDD(half[0], half[1], rest)
		store(rest, 7, q8AStart)
	} else {
		g.VPADDW(half[0], half[1], rest)
	}
	store(rest, 3, bytesStart4)
	store(rest, 4, bytesStart5)
	g.VPSLLD(operand.Imm(4), sum, t)
	g.VMOVD(t, operand.Mem{Base: dst, Disp: bytesTimes16})
}

// q8Dots emits a kernel of q8 or q8m with dot products of bytes: of weights plus 128.
func (g *gen) q8Dots(n int, minima bool) {
	const group = 2
	f, first, block := g.q8Frame(bytesPlanes, n, minima, false, func(f *frame) { f.hold(g.busy(n), "quant top") })
	for col := 0; col < 32/g.width; col += group {
		sum := f.sums(n, group)
		f.starts(sum, q8AStart)
		for line := range q8Lines {
			f.pre.lines(1)
			w := make([]reg.VecVirtual, group)
			for j := range w {
				w[j] = g.vec()
				g.VMOVDQU(operand.Mem{Base: f.b, Disp: first + line*q8Line + 4*g.width*(col+j)}, w[j])
				g.VPXOR(f.constant("quant top"), w[j], w[j])
			}
			f.octets(sum, w, line, false)
		}
		f.q8(sum, col, 1, minima)
	}
	f.next(block)
	f.end()
}
