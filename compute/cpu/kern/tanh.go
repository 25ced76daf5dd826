package kern

// The constants of GELUTanh: geluTanhA is 2·√(2/π).
const (
	geluTanhA = 1.5957691216057308
	geluTanhB = 0.044715
	// geluTanhMax is an x² where the sigmoid has long been 0 or 1 for z and for x itself, which
	// takes z's place beyond it so that no infinity meets its reciprocal.
	geluTanhMax = 1 << 14
)

// GELUTanh sets dst[i] = x[i]/2·(1 + tanh(√(2/π)·(x[i] + 0.044715·x[i]³))), which is
// x·σ(z) with z = 2√(2/π)·x·(1 + 0.044715x²): the SiLU of z, divided by z/x. dst may be x. work is as long as dst.
func (f *Funcs) GELUTanh(dst, x, work []float32) {
	for i, v := range x[:len(dst)] {
		r := float32(1)
		if sq := float32(v * v); sq < geluTanhMax {
			r = float32(geluTanhA * fma32(geluTanhB, sq, 1))
		}
		dst[i], work[i] = float32(v*r), float32(1/r)
	}
	f.SiLUMul(dst, dst, work)
}

// tanhSmall is where TanhCap changes from the series of tanh to exponentials.
const tanhSmall = 0.25

// TanhCap sets x[i] = limit·tanh(scale·x[i]/limit), to within 3e-7 of limit. It never leaves
// ±limit. work is as long as x.
func (f *Funcs) TanhCap(x []float32, scale, limit float32, work []float32) {
	e := work[:len(x)]
	inv := float32(1 / limit)
	for i, v := range x {
		t := float32(float32(v*scale) * inv)
		x[i] = t
		if t > 0 {
			t = -t
		}
		e[i] = float32(2 * t)
	}
	f.Exp(e, e)
	for i, t := range x {
		var y float32
		switch {
		case t < tanhSmall && t > -tanhSmall:
			s := float32(t * t)
			p := fma32(62.0/2835, s, -17.0/315)
			p = fma32(p, s, 2.0/15)
			p = fma32(p, s, -1.0/3)
			y = fma32(float32(p*s), t, t)
		case t < 0:
			y = float32((e[i] - 1) / (e[i] + 1))
		default: // and NaN
			y = float32((1 - e[i]) / (1 + e[i]))
		}
		x[i] = float32(y * limit)
	}
}
