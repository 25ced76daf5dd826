package kern

import "math"

// fmaFlushed is fma32 as tiles compute it: a subnormal factor or term becomes a zero of its
// sign, and so does a result that is below 2⁻¹²⁶ after rounding to 24 bits.
func fmaFlushed(a, b, c float32) float32 {
	a, b, c = flushed(a), flushed(b), flushed(c)
	s := fma32(a, b, c)
	if s == 0 || !(math.Abs(float64(s)) <= 0x1p-126) {
		return s
	}
	// With everything 2⁶⁰ times as large the result has its 24 bits. The smaller factor is
	// scaled, since the result is this small only if there is room.
	if math.Abs(float64(a)) > math.Abs(float64(b)) {
		a, b = b, a
	}
	if math.Abs(float64(fma32(a*0x1p60, b, c*0x1p60))) < 0x1p-66 {
		return float32(math.Copysign(0, float64(s)))
	}
	return s
}

// flushed returns x, or a zero of its sign if x is subnormal.
func flushed(x float32) float32 {
	if math.Abs(float64(x)) < 0x1p-126 {
		return float32(math.Copysign(0, float64(x)))
	}
	return x
}

func addFlushed(a, b float32) float32 { return flushed(flushed(a) + flushed(b)) }

// splitOracle is SplitA. Widened, planes are exact.
func splitOracle(dst []uint32, x []float32, planes int) {
	clear(dst[:(len(x)+BF16Step-1)/BF16Step*BF16AStepLen(planes)])
	for i, v := range x {
		for p := range planes {
			h := BF16(v)
			dst[i/BF16Step*BF16AStepLen(planes)+p*BF16Step/2+i%BF16Step/2] |= uint32(h) << (i % 2 * 16)
			if w := widen(h); w-w == 0 {
				v -= w
			} else {
				v = 0
			}
		}
	}
}

// gemmSplitOracle is GemmSplit.
func gemmSplitOracle(c []float32, ldc int, a []uint32, ars int, b []uint16, rows, k, planes int, acc bool) {
	half := func(w uint32, i int) float32 { return widen(uint16(w >> (16 * i))) }
	for r := range rows {
		for j := range Panel {
			var s float32
			if acc {
				s = c[r*ldc+j]
			}
			for i := 0; i < k; i += BF16Step {
				x := a[r*ars+i/BF16Step*BF16AStepLen(planes):]
				for p := range planes {
					var chain [2]float32
					for t := range (min(BF16Step, k-i) + 1) / 2 {
						for h := range chain {
							w := widen(b[(i/2+t)*2*Panel+2*j+h])
							chain[h] = fmaFlushed(half(x[p*BF16Step/2+t], h), w, chain[h])
						}
					}
					s = addFlushed(s, addFlushed(chain[0], chain[1]))
				}
			}
			c[r*ldc+j] = s
		}
	}
}
