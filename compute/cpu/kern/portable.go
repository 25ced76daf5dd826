package kern

import "math"

// portableRows is arbitrary: plain Go does not gain from more.
const portableRows = 8

var portable = Funcs{
	Class:   Portable,
	MaxRows: portableRows,
	Gemm:    gemm,
	GemmNext: func(c []float32, ldc int, a []float32, ars, aks int, b []float32, rows, k int, acc bool, _ []float32) {
		gemm(c, ldc, a, ars, aks, b, Panel, rows, k, acc)
	},
	MaxRowsBF16: portableRows,
	GemmBF16:    gemmBF16,
	GemmBF16Next: func(c []float32, ldc int, a []float32, ars, aks int, b []uint16, rows, k int, acc bool, _ []uint16) {
		gemmBF16(c, ldc, a, ars, aks, b, rows, k, acc)
	},
	MaxRowsPairs: portableRows,
	GemmPairs:    gemmPairs,
	QuantA:       quantA,
	MaxRowsQ8:    portableRows,
	GemmQ8:       gemmQ8,
	MaxRowsQ4:    portableRows,
	GemmQ4:       gemmQ4,
	GemmQ4K:      gemmQ4K,
	MaxRowsQ6K:   portableRows,
	GemmQ6K:      gemmQ6K,
	unpackedQ8: func(c []float32, ldc int, a []uint32, ars int, b []byte, rows, blocks, planes int, acc bool, _ []byte) {
		gemmQ8(c, ldc, a, ars, b, rows, blocks, planes, acc)
	},
	unpackedQ8M: func(c []float32, ldc int, a []uint32, ars int, b []byte, rows, blocks, planes int, acc bool, _ []byte) {
		gemmQ8M(c, ldc, a, ars, b, rows, blocks, planes, acc)
	},
	Exp:         exp,
	Max:         maxOf,
	Peaks:       peaks,
	ExpSum:      expSum,
	ExpTotal:    expTotal,
	Scale:       scale,
	Add:         add,
	Mul:         mul,
	Axpy:        axpy,
	Dot:         dot,
	SiLUMul:     siluMul,
	SiLUMulGrad: siluMulGrad,
	GELU:        gelu,
	Rope:        rope,
	ArgMax:      argMax,
	AdamW:       adamW,
}

func gemm(c []float32, ldc int, a []float32, ars, aks int, b []float32, ldb, rows, k int, acc bool) {
	for r := range rows {
		cr := (*[Panel]float32)(c[r*ldc:])
		var s [Panel]float32
		if acc {
			s = *cr
		}
		for i := range k {
			x, br := float64(a[r*ars+i*aks]), (*[Panel]float32)(b[i*ldb:])
			for j := range s {
				// fma32, written out because it is too long to be inlined
				t := x*float64(br[j]) + float64(s[j])
				if halfway(math.Float64bits(t)) {
					s[j] = fma32Odd(float32(x), br[j], s[j])
				} else {
					s[j] = float32(t)
				}
			}
		}
		*cr = s
	}
}

func exp(dst, x []float32) {
	x = x[:len(dst)]
	for i, v := range x {
		dst[i] = exp32(v)
	}
}

// laneMax returns the larger of a and b, b if they are equal or either is a NaN.
func laneMax(a, b float32) float32 {
	if a > b {
		return a
	}
	return b
}

func maxOf(x []float32) float32 {
	var m [lanes]float32
	for i := range m {
		m[i] = float32(math.Inf(-1))
	}
	for i, v := range x {
		m[i%lanes] = laneMax(v, m[i%lanes])
	}
	return foldMax(&m)
}

// foldMax returns the largest of lanes, halving.
func foldMax(m *[lanes]float32) float32 {
	for h := lanes / 2; h > 0; h /= 2 {
		for i := range h {
			m[i] = laneMax(m[i+h], m[i])
		}
	}
	return m[0]
}

// fold returns the sum of lanes, halving.
func fold(s *[lanes]float32) float32 {
	for h := lanes / 2; h > 0; h /= 2 {
		for i := range h {
			s[i] += s[i+h]
		}
	}
	return s[0]
}

func expSum(dst, x []float32, max float32) float32 {
	x = x[:len(dst)]
	var s [lanes]float32
	for i, v := range x {
		e := exp32(v - max)
		dst[i] = e
		s[i%lanes] += e
	}
	return fold(&s)
}

func expTotal(x []float32, max float32) float32 {
	var s [lanes]float32
	for i, v := range x {
		s[i%lanes] += exp32(v - max)
	}
	return fold(&s)
}

func scale(x []float32, s float32) {
	for i := range x {
		x[i] *= s
	}
}

func add(dst, a, b []float32) {
	a, b = a[:len(dst)], b[:len(dst)]
	for i := range dst {
		dst[i] = a[i] + b[i]
	}
}

func mul(dst, a, b []float32) {
	a, b = a[:len(dst)], b[:len(dst)]
	for i := range dst {
		dst[i] = a[i] * b[i]
	}
}

func axpy(y []float32, a float32, x []float32) {
	x = x[:len(y)]
	for i := range y {
		y[i] = fma32(a, x[i], y[i])
	}
}

func dot(a, b []float32) float32 {
	b = b[:len(a)]
	var s [lanes]float32
	for i := range a {
		s[i%lanes] = fma32(a[i], b[i], s[i%lanes])
	}
	return fold(&s)
}

func siluMul(dst, g, u []float32) {
	g, u = g[:len(dst)], u[:len(dst)]
	for i := range dst {
		dst[i] = float32(g[i]/(1+exp32(-g[i]))) * u[i]
	}
}

func siluMulGrad(dg, du, dy, g, u []float32) {
	du, dy, g, u = du[:len(dg)], dy[:len(dg)], g[:len(dg)], u[:len(dg)]
	for i := range dg {
		s := 1 / (1 + exp32(-g[i]))
		y := g[i] * s
		t := fma32(y, 1-s, s)
		w := dy[i] * u[i]
		dg[i], du[i] = float32(w)*t, dy[i]*y
	}
}

func rope(x, cos, sin []float32) {
	h := len(cos)
	ropePairs(x[:h], x[h:2*h], cos, sin[:h])
}

// ropePairs rotates the pairs (lo, hi).
func ropePairs(lo, hi, cos, sin []float32) {
	for i, c := range cos {
		a, b := lo[i], hi[i]
		lo[i] = fma32(a, c, -float32(b*sin[i]))
		hi[i] = fma32(b, c, float32(a*sin[i]))
	}
}

func argMax(x []float32) int {
	m := maxOf(x)
	for i, v := range x {
		if v == m {
			return i
		}
	}
	return 0
}

func adamW(p, g, m, v []float32, h *Adam) {
	g, m, v = g[:len(p)], m[:len(p)], v[:len(p)]
	d1, d2 := 1-h.Beta1, 1-h.Beta2
	for i := range p {
		gi := float32(g[i] * h.Scale)
		m[i] = fma32(h.Beta1, m[i], float32(d1*gi))
		v[i] = fma32(h.Beta2, v[i], float32(d2*float32(gi*gi)))
		q := fma32(-h.Decay, p[i], p[i])
		den := float32(math.Sqrt(float64(float32(v[i]*h.C2)))) + h.Eps
		p[i] = fma32(-h.LR, float32(m[i]*h.C1)/den, q)
	}
}
