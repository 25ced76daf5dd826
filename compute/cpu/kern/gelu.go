package kern

// The constants of gelu32. With a = |x| and t = 1/(1 + geluP·a), Φ(−a) =
// exp(−a²/2)·R(t); R of degree 8 is the minimax fit, relative to Φ(−a), over
// 0 ≤ a ≤ 13.3, where exp ends. It is closer than 2⁻²⁴.
const (
	geluP   = 0.3
	geluC0  = 6.68615576e-06
	geluC1  = 0.119495891
	geluC2  = 0.121862024
	geluC3  = 0.0949109271
	geluC4  = 0.142002776
	geluC5  = -0.0757365525
	geluC6  = 0.22798796
	geluC7  = -0.168841228
	geluC8  = 0.0383115448
	geluMax = 32 // beyond it Φ(−a) is 0: keeps an infinity from meeting that 0
)

// gelu32 is the GELU of all classes, x·Φ(x) = max(x, 0) − a·Φ(−a): nothing cancels on either
// side of 0.
func gelu32(x float32) float32 {
	a, m := x, x
	if !(x > 0) {
		a = -x
	}
	if 0 > x {
		m = 0
	}
	if geluMax < a {
		a = geluMax
	}
	t := 1 / fma32(geluP, a, 1)
	r := fma32(geluC8, t, geluC7)
	r = fma32(r, t, geluC6)
	r = fma32(r, t, geluC5)
	r = fma32(r, t, geluC4)
	r = fma32(r, t, geluC3)
	r = fma32(r, t, geluC2)
	r = fma32(r, t, geluC1)
	r = fma32(r, t, geluC0)
	r = float32(exp32(float32(float32(a*-0.5)*a)) * r)
	return fma32(-a, r, m)
}

func gelu(dst, x []float32) {
	x = x[:len(dst)]
	for i, v := range x {
		dst[i] = gelu32(v)
	}
}
