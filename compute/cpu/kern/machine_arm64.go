//go:build !purego

package kern

import (
	"unsafe"

	"golang.org/x/sys/cpu"
)

func offers(c Class) bool {
	switch c {
	case Portable, NEON: // every processor of this architecture has NEON
		return true
	case NEONDot:
		return cpu.ARM64.HasASIMDDP
	case NEONI8MM:
		return cpu.ARM64.HasASIMDDP && cpu.ARM64.HasI8MM
	}
	return false
}

func table(c Class) *Funcs {
	return [...]*Funcs{Portable: &portable, NEON: &neon, NEONDot: &neonDot, NEONI8MM: &neonI8MM}[c]
}

var neon = Funcs{
	Class:        NEON,
	MaxRows:      len(gemmsNEON) - 1,
	Gemm:         gemmOf(gemmsNEON[:], halfRows),
	GemmNext:     gemmNextOf(gemmsNEON[:], halfRows),
	MaxRowsBF16:  len(gemmsBF16NEON) - 1,
	GemmBF16:     gemmBF16Of(gemmsBF16NEON[:], halfRows),
	GemmBF16Next: gemmBF16NextOf(gemmsBF16NEON[:], halfRows),
	MaxRowsPairs: portableRows,
	GemmPairs:    gemmPairs,
	QuantA:       func(dst []uint32, x []float32, planes int) { quantNEON(quantPairs, dst, x, planes) },
	MaxRowsQ8:    len(gemmsQ8NEON) - 1,
	GemmQ8: func(c []float32, ldc int, a []uint32, ars int, b []byte, rows, blocks, _ int, acc bool) {
		gemmQ8Asm(gemmsQ8NEON[:], c, ldc, a, ars, b, rows, blocks, acc, Shape{len(gemmsQ8NEON) - 1, chunkQ8})
	},
	MaxRowsQ4:   len(gemmsQ4NEON) - 1,
	GemmQ4:      gemmQ4Of(gemmsQ4NEON[:]),
	GemmQ4K:     gemmQ4KOf(gemmsQ4KNEON[:]),
	MaxRowsQ6K:  len(gemmsQ6KNEON) - 1,
	GemmQ6K:     gemmQ6KOf(gemmsQ6KNEON[:]),
	unpackedQ8:  unpackedOf(Q8BlockLen, func(int) []gemmQ8Func { return gemmsQ8NEON[:] }),
	unpackedQ8M: unpackedOf(Q8MBlockLen, func(int) []gemmQ8Func { return gemmsQ8MNEON[:] }),
	Exp: func(dst, x []float32) {
		n := fours(len(dst))
		x = x[:len(dst)]
		expNEON(unsafe.SliceData(dst), unsafe.SliceData(x), n)
		exp(dst[n:], x[n:])
	},
	Max:   maxFours,
	Peaks: peaksOf(peaksNEON),
	ExpSum: func(dst, x []float32, max float32) float32 {
		n := fours(len(dst))
		x = x[:len(dst)]
		var s [lanes]float32
		expSumNEON(unsafe.SliceData(dst), unsafe.SliceData(x), n, max, &s[0])
		for i := n; i < len(x); i++ {
			e := exp32(x[i] - max)
			dst[i] = e
			s[i%lanes] += e
		}
		return fold(&s)
	},
	ExpTotal: func(x []float32, max float32) float32 {
		n := fours(len(x))
		var s [lanes]float32
		expTotalNEON(unsafe.SliceData(x), n, max, &s[0])
		for i := n; i < len(x); i++ {
			s[i%lanes] += exp32(x[i] - max)
		}
		return fold(&s)
	},
	Scale: func(x []float32, s float32) {
		n := fours(len(x))
		scaleNEON(unsafe.SliceData(x), n, s)
		scale(x[n:], s)
	},
	Add: func(dst, a, b []float32) {
		n := fours(len(dst))
		a, b = a[:len(dst)], b[:len(dst)]
		addNEON(unsafe.SliceData(dst), unsafe.SliceData(a), unsafe.SliceData(b), n)
		add(dst[n:], a[n:], b[n:])
	},
	Mul: func(dst, a, b []float32) {
		n := fours(len(dst))
		a, b = a[:len(dst)], b[:len(dst)]
		mulNEON(unsafe.SliceData(dst), unsafe.SliceData(a), unsafe.SliceData(b), n)
		mul(dst[n:], a[n:], b[n:])
	},
	Axpy: func(y []float32, a float32, x []float32) {
		n := fours(len(y))
		x = x[:len(y)]
		axpyNEON(unsafe.SliceData(y), unsafe.SliceData(x), n, a)
		axpy(y[n:], a, x[n:])
	},
	Dot: func(a, b []float32) float32 {
		n := fours(len(a))
		b = b[:len(a)]
		var s [lanes]float32
		dotNEON(unsafe.SliceData(a), unsafe.SliceData(b), n, &s[0])
		for i := n; i < len(a); i++ {
			s[i%lanes] = fma32(a[i], b[i], s[i%lanes])
		}
		return fold(&s)
	},
	SiLUMul: func(dst, g, u []float32) {
		n := fours(len(dst))
		g, u = g[:len(dst)], u[:len(dst)]
		siluMulNEON(unsafe.SliceData(dst), unsafe.SliceData(g), unsafe.SliceData(u), n)
		siluMul(dst[n:], g[n:], u[n:])
	},
	SiLUMulGrad: func(dg, du, dy, g, u []float32) {
		n := fours(len(dg))
		du, dy, g, u = du[:len(dg)], dy[:len(dg)], g[:len(dg)], u[:len(dg)]
		siluMulGradNEON(unsafe.SliceData(dg), unsafe.SliceData(du), unsafe.SliceData(dy), unsafe.SliceData(g), unsafe.SliceData(u), n)
		siluMulGrad(dg[n:], du[n:], dy[n:], g[n:], u[n:])
	},
	GELU: func(dst, x []float32) {
		n := fours(len(dst))
		x = x[:len(dst)]
		geluNEON(unsafe.SliceData(dst), unsafe.SliceData(x), n)
		gelu(dst[n:], x[n:])
	},
	Rope: func(x, cos, sin []float32) {
		h := len(cos)
		n := fours(h)
		lo, hi, sin := x[:h], x[h:2*h], sin[:h]
		ropeNEON(unsafe.SliceData(lo), unsafe.SliceData(hi), unsafe.SliceData(cos), unsafe.SliceData(sin), n)
		ropePairs(lo[n:], hi[n:], cos[n:], sin[n:])
	},
	ArgMax: func(x []float32) int {
		m := maxFours(x)
		for i := indexNEON(unsafe.SliceData(x), fours(len(x)), m); i < len(x); i++ {
			if x[i] == m {
				return i
			}
		}
		return 0
	},
	AdamW: func(p, g, m, v []float32, h *Adam) {
		n := fours(len(p))
		g, m, v = g[:len(p)], m[:len(p)], v[:len(p)]
		row := [12]float32{h.LR, h.Beta1, 1 - h.Beta1, h.Beta2, 1 - h.Beta2, h.Eps, h.Decay, h.Scale, h.C1, h.C2}
		adamWNEON(unsafe.SliceData(p), unsafe.SliceData(g), unsafe.SliceData(m), unsafe.SliceData(v), n, &row[0])
		adamW(p[n:], g[n:], m[n:], v[n:], h)
	},
}

// neonDot and neonI8MM differ in products of integers only.
var (
	neonDot  = neonBytes(NEONDot, quantDot, &gemmsQ8Dot, &gemmsQ8MDot, &gemmsQ4Dot, &gemmsQ4KDot, &gemmsQ6KDot)
	neonI8MM = neonBytes(NEONI8MM, quantI8MM, &gemmsQ8I8MM, &gemmsQ8MI8MM, &gemmsQ4I8MM, &gemmsQ4KI8MM, &gemmsQ6KI8MM)
)

// neonBytes returns the kernels of a class that multiplies bytes.
func neonBytes(c Class, w quantWay, q8, q8m, q4, q4k, q6k *[2][5]gemmQ8Func) Funcs {
	f := neon
	f.Class = c
	f.QuantA = func(dst []uint32, x []float32, planes int) { quantNEON(w, dst, x, planes) }
	f.MaxRowsQ8 = len(q8[0]) - 1
	f.GemmQ8 = func(c []float32, ldc int, a []uint32, ars int, b []byte, rows, blocks, planes int, acc bool) {
		gemmQ8Asm(q8[planes-1][:], c, ldc, a, ars, b, rows, blocks, acc, Shape{len(q8[planes-1]) - 1, chunkQ8})
	}
	f.unpackedQ8 = unpackedOf(Q8BlockLen, func(planes int) []gemmQ8Func { return q8[planes-1][:] })
	f.unpackedQ8M = unpackedOf(Q8MBlockLen, func(planes int) []gemmQ8Func { return q8m[planes-1][:] })
	f.MaxRowsQ4 = len(q4[0]) - 1
	f.GemmQ4 = func(c []float32, ldc int, a []uint32, ars int, b []byte, rows, blocks, planes int, acc bool) {
		gemmQ4Asm(q4[planes-1][:], c, ldc, a, ars, b, rows, blocks, acc, Q4BlockLen, Shape{f.MaxRowsQ4, chunkQ4})
	}
	f.GemmQ4K = func(c []float32, ldc int, a []uint32, ars int, b []byte, rows, blocks, planes int, acc bool) {
		gemmQ4KAsm(q4k[planes-1][:], c, ldc, a, ars, b, rows, blocks, acc, Shape{f.MaxRowsQ4, chunkQ4})
	}
	f.MaxRowsQ6K = len(q6k[0]) - 1
	f.GemmQ6K = func(c []float32, ldc int, a []uint32, ars int, b []byte, rows, blocks, planes int, acc bool) {
		gemmQ6KAsm(q6k[planes-1][:], c, ldc, a, ars, b, rows, blocks, acc, Shape{f.MaxRowsQ6K, chunkQ4})
	}
	return f
}

// A quantWay is how quantised activations lie.
type quantWay int

const (
	quantPairs quantWay = iota // as portable kernels have them
	quantDot                   // planes of bytes; 128 is taken from those of the second
	quantI8MM                  // planes of bytes; those of the second have no sign
)

// quantNEON quantises a row. The last block may be short: it is padded with zeros.
func quantNEON(w quantWay, dst []uint32, x []float32, planes int) {
	dst = dst[:Q8ALen(len(x))]
	n := len(x) / Q8Block
	w.blocks(unsafe.SliceData(dst), unsafe.SliceData(x), n, planes)
	if rest := x[n*Q8Block:]; len(rest) > 0 {
		var last [Q8Block]float32
		copy(last[:], rest)
		w.blocks(&dst[n*Q8ABlockLen], &last[0], 1, planes)
	}
}

// blocks calls the assembly directly, since memory that goes through a function value escapes.
func (w quantWay) blocks(dst *uint32, x *float32, n, planes int) {
	most := q8Max(planes)
	switch {
	case n == 0:
	case w == quantPairs:
		quantANEON(dst, x, n, most)
	case planes == 1:
		quantADotPlanes1(dst, x, n, most)
	case w == quantDot:
		quantADotPlanes2(dst, x, n, most)
	default:
		quantAI8MMPlanes2(dst, x, n, most)
	}
}

// fours returns how many of n elements the assembly takes: registers have four. Plain Go, whose
// bits are the same, takes the rest.
func fours(n int) int { return n &^ 3 }

// maxFours is Max.
func maxFours(x []float32) float32 {
	n := fours(len(x))
	var m [lanes]float32
	maxNEON(unsafe.SliceData(x), n, &m[0])
	for i := n; i < len(x); i++ {
		m[i%lanes] = laneMax(x[i], m[i%lanes])
	}
	return foldMax(&m)
}

// The kernels by number of rows.
var (
	gemmsNEON = [...]gemmAsm{1: gemm1NEON, gemm2NEON, gemm3NEON, gemm4NEON, gemm5NEON, gemm6NEON}

	gemmsBF16NEON = [...]gemmBF16Asm{
		1: gemmBF16x1NEON, gemmBF16x2NEON, gemmBF16x3NEON, gemmBF16x4NEON, gemmBF16x5NEON, gemmBF16x6NEON,
	}
)

// The kernels for integers by number of rows; those of bytes by planes, counted from 0, first.
var (
	gemmsQ8NEON  = [...]gemmQ8Func{1: gemmQ8NEONx1, gemmQ8NEONx2, gemmQ8NEONx3, gemmQ8NEONx4}
	gemmsQ8MNEON = [...]gemmQ8Func{1: gemmQ8MNEONx1, gemmQ8MNEONx2, gemmQ8MNEONx3, gemmQ8MNEONx4}
	gemmsQ4NEON  = [...]gemmQ8Func{1: gemmQ4NEONx1, gemmQ4NEONx2, gemmQ4NEONx3, gemmQ4NEONx4}
	gemmsQ4KNEON = [...]gemmQ8Func{1: gemmQ4KNEONx1, gemmQ4KNEONx2, gemmQ4KNEONx3, gemmQ4KNEONx4}
	gemmsQ6KNEON = [...]gemmQ8Func{1: gemmQ6KNEONx1, gemmQ6KNEONx2, gemmQ6KNEONx3, gemmQ6KNEONx4}

	gemmsQ8Dot = [2][5]gemmQ8Func{
		{1: gemmQ8DotPlanes1x1, gemmQ8DotPlanes1x2, gemmQ8DotPlanes1x3, gemmQ8DotPlanes1x4},
		{1: gemmQ8DotPlanes2x1, gemmQ8DotPlanes2x2, gemmQ8DotPlanes2x3, gemmQ8DotPlanes2x4},
	}
	gemmsQ8MDot = [2][5]gemmQ8Func{
		{1: gemmQ8MDotPlanes1x1, gemmQ8MDotPlanes1x2, gemmQ8MDotPlanes1x3, gemmQ8MDotPlanes1x4},
		{1: gemmQ8MDotPlanes2x1, gemmQ8MDotPlanes2x2, gemmQ8MDotPlanes2x3, gemmQ8MDotPlanes2x4},
	}
	gemmsQ4Dot = [2][5]gemmQ8Func{
		{1: gemmQ4DotPlanes1x1, gemmQ4DotPlanes1x2, gemmQ4DotPlanes1x3, gemmQ4DotPlanes1x4},
		{1: gemmQ4DotPlanes2x1, gemmQ4DotPlanes2x2, gemmQ4DotPlanes2x3, gemmQ4DotPlanes2x4},
	}
	gemmsQ4KDot = [2][5]gemmQ8Func{
		{1: gemmQ4KDotPlanes1x1, gemmQ4KDotPlanes1x2, gemmQ4KDotPlanes1x3, gemmQ4KDotPlanes1x4},
		{1: gemmQ4KDotPlanes2x1, gemmQ4KDotPlanes2x2, gemmQ4KDotPlanes2x3, gemmQ4KDotPlanes2x4},
	}
	gemmsQ6KDot = [2][5]gemmQ8Func{
		{1: gemmQ6KDotPlanes1x1, gemmQ6KDotPlanes1x2, gemmQ6KDotPlanes1x3, gemmQ6KDotPlanes1x4},
		{1: gemmQ6KDotPlanes2x1, gemmQ6KDotPlanes2x2, gemmQ6KDotPlanes2x3, gemmQ6KDotPlanes2x4},
	}

	gemmsQ8I8MM = [2][5]gemmQ8Func{
		{1: gemmQ8I8MMPlanes1x1, gemmQ8I8MMPlanes1x2, gemmQ8I8MMPlanes1x3, gemmQ8I8MMPlanes1x4},
		{1: gemmQ8I8MMPlanes2x1, gemmQ8I8MMPlanes2x2, gemmQ8I8MMPlanes2x3, gemmQ8I8MMPlanes2x4},
	}
	gemmsQ8MI8MM = [2][5]gemmQ8Func{
		{1: gemmQ8MI8MMPlanes1x1, gemmQ8MI8MMPlanes1x2, gemmQ8MI8MMPlanes1x3, gemmQ8MI8MMPlanes1x4},
		{1: gemmQ8MI8MMPlanes2x1, gemmQ8MI8MMPlanes2x2, gemmQ8MI8MMPlanes2x3, gemmQ8MI8MMPlanes2x4},
	}
	gemmsQ4I8MM = [2][5]gemmQ8Func{
		{1: gemmQ4I8MMPlanes1x1, gemmQ4I8MMPlanes1x2, gemmQ4I8MMPlanes1x3, gemmQ4I8MMPlanes1x4},
		{1: gemmQ4I8MMPlanes2x1, gemmQ4I8MMPlanes2x2, gemmQ4I8MMPlanes2x3, gemmQ4I8MMPlanes2x4},
	}
	gemmsQ4KI8MM = [2][5]gemmQ8Func{
		{1: gemmQ4KI8MMPlanes1x1, gemmQ4KI8MMPlanes1x2, gemmQ4KI8MMPlanes1x3, gemmQ4KI8MMPlanes1x4},
		{1: gemmQ4KI8MMPlanes2x1, gemmQ4KI8MMPlanes2x2, gemmQ4KI8MMPlanes2x3, gemmQ4KI8MMPlanes2x4},
	}
	gemmsQ6KI8MM = [2][5]gemmQ8Func{
		{1: gemmQ6KI8MMPlanes1x1, gemmQ6KI8MMPlanes1x2, gemmQ6KI8MMPlanes1x3, gemmQ6KI8MMPlanes1x4},
		{1: gemmQ6KI8MMPlanes2x1, gemmQ6KI8MMPlanes2x2, gemmQ6KI8MMPlanes2x3, gemmQ6KI8MMPlanes2x4},
	}
)
