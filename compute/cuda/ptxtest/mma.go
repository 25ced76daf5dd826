package ptxtest

import "math"

// multiply adds a [16][16] · b [16][8] in bfloat16 to c [16][8] (mma.m16n8k16 of the PTX ISA, section
// "Matrix Fragments for mma.m16n8k16"): lane 4g+t holds rows g and g+8 of a and c, and column g of b.
func (w *warp) multiply(in *instruction, _ uint32) {
	d, a, b, c := in.args[:4], in.args[4:8], in.args[8:10], in.args[10:14]
	var x [16][16]float64
	var y [8][16]float64
	var badRow, badCol uint32
	pair := func(reg, l int) (float64, float64) {
		v := w.r32[reg][l]
		return float64(f32(v << 16)), float64(f32(v & 0xffff0000))
	}
	for l := range 32 {
		g, t := l/4, l%4
		for i, r := range a {
			row, k := g+i%2*8, 2*t+i/2*8
			x[row][k], x[row][k+1] = pair(r.reg, l)
			badRow |= w.bad32[r.reg] >> l & 1 << row
		}
		for i, r := range b {
			k := 2*t + i*8
			y[g][k], y[g][k+1] = pair(r.reg, l)
			badCol |= w.bad32[r.reg] >> l & 1 << g
		}
	}
	var out [4][32]uint32
	var bad [4]uint32
	for l := range 32 {
		for e := range 4 {
			row, col := l/4+e/2*8, l%4*2+e%2
			start := float64(f32(w.r32[c[e].reg][l]))
			if w.b.d.Truncate {
				out[e][l] = bits32(truncated(start, &x[row], &y[col]))
			} else {
				s := 0.0
				for k, v := range x[row] {
					s += v * y[col][k]
				}
				out[e][l] = bits32(float32(start + s))
			}
			bad[e] |= (badRow>>row | badCol>>col | w.bad32[c[e].reg]>>l) & 1 << l
		}
	}
	for e := range 4 {
		w.r32[d[e].reg] = out[e]
		w.bad32[d[e].reg] = bad[e]
	}
}

// loadMatrices loads four matrices [8][8] of 16 bits (ldmatrix.m8n8.x4 of the PTX ISA, section "Warp-level matrix
// load instruction: ldmatrix"): lane l has the address of row l%8 of matrix l/8, and gets elements 2·(l%4) and
// 2·(l%4)+1 of row l/4 of each matrix, or with .trans of its column l/4.
func (w *warp) loadMatrices(in *instruction, mask uint32) {
	from := in.args[4]
	if bad := w.bad32[from.reg] & mask; bad != 0 {
		w.fault(w.at, bad, "the address comes from uninitialised memory")
	}
	var v [32][8]uint16
	var bad [32]uint8 // by element
	for l := range 32 {
		a, off := w.locate(in, l, uint64(w.r32[from.reg][l])+uint64(from.off), 16, false, 0)
		for e := range 8 {
			v[l][e] = uint16(a.load(off+2*e, 2))
			if !a.has(off+2*e, 2) {
				bad[l] |= 1 << e
			}
		}
	}
	for m := range 4 {
		var poison uint32
		for l := range 32 {
			var half [2]uint16
			for e := range half {
				row, col := l/4, l%4*2+e
				if in.n == 1 {
					row, col = col, row
				}
				half[e] = v[8*m+row][col]
				poison |= uint32(bad[8*m+row]>>col&1) << l
			}
			w.r32[in.args[m].reg][l] = uint32(half[0]) | uint32(half[1])<<16
		}
		w.set32(in.args[m].reg, poison, all)
	}
}

// truncated returns c + Σ x·y as a device may calculate it: in two halves of eight products, each of
// which is aligned with the largest term, without what lies beyond 25 bits of that, and added, rounded
// toward zero.
func truncated(c float64, x, y *[16]float64) float32 {
	for h := 0; h < 16; h += 8 {
		terms := [9]float64{c}
		top := c
		for i := range 8 {
			terms[i+1] = x[h+i] * y[h+i]
			if math.Abs(terms[i+1]) > math.Abs(top) {
				top = terms[i+1]
			}
		}
		s := 0.0
		if _, e := math.Frexp(top); top != 0 && !math.IsInf(top, 0) {
			unit := math.Ldexp(1, e-25)
			for _, v := range terms {
				s += math.Trunc(v/unit) * unit
			}
		} else {
			for _, v := range terms {
				s += v
			}
		}
		f := float32(s)
		if math.Abs(float64(f)) > math.Abs(s) && !math.IsInf(float64(f), 0) {
			f = math.Nextafter32(f, 0)
		}
		c = float64(f)
	}
	return float32(c)
}
