//go:build amd64 && !purego

package kern

import (
	"unsafe"

	"golang.org/x/sys/cpu"
)

func machine(c Class) *Funcs {
	x := &cpu.X86
	hasAVX2 := x.HasAVX2 && x.HasFMA && x.HasF16C
	hasAVX512 := hasAVX2 && x.HasAVX512F && x.HasAVX512BW && x.HasAVX512DQ && x.HasAVX512VL
	switch {
	case c == AVX2 && hasAVX2:
		return &avx2
	case c == AVX512 && hasAVX512:
		return &avx512
	case c == AVX512VNNI && hasAVX512 && x.HasAVX512VNNI:
		return &avx512vnni
	}
	return nil
}

var avx2 = Funcs{
	Class:       AVX2,
	MaxRows:     len(gemmsAVX2) - 1,
	Gemm:        gemmAVX2,
	MaxRowsBF16: portableRows,
	GemmBF16:    gemmBF16,
	QuantA:      quantA,
	MaxRowsQ8:   portableRows,
	GemmQ8:      gemmQ8,
	Exp:         unaryOf(expAVX2),
	Max:         func(x []float32) float32 { return maxAVX2(unsafe.SliceData(x), len(x)) },
	ExpSum:      expSumOf(expSumAVX2),
	Scale:       func(x []float32, s float32) { scaleAVX2(unsafe.SliceData(x), len(x), s) },
	Add:         binaryOf(addAVX2),
	Mul:         binaryOf(mulAVX2),
	Axpy:        axpyOf(axpyAVX2),
	Dot:         dotOf(dotAVX2),
	SiLUMul:     binaryOf(siluMulAVX2),
	SiLUMulGrad: siluMulGradOf(siluMulGradAVX2),
	GELU:        unaryOf(geluAVX2),
	Rope:        ropeOf(ropeAVX2),
	ArgMax:      argMaxOf(maxAVX2, indexAVX2),
	AdamW: func(p, g, m, v []float32, h *Adam) {
		g, m, v = g[:len(p)], m[:len(p)], v[:len(p)]
		row := newAdamRow(h)
		adamWAVX2(unsafe.SliceData(p), unsafe.SliceData(g), unsafe.SliceData(m), unsafe.SliceData(v), len(p), &row[0][0])
	},
}

var avx512 = Funcs{
	Class:       AVX512,
	MaxRows:     len(gemmsAVX512) - 1,
	Gemm:        gemmAVX512,
	MaxRowsBF16: portableRows,
	GemmBF16:    gemmBF16,
	QuantA:      quantA,
	MaxRowsQ8:   portableRows,
	GemmQ8:      gemmQ8,
	Exp:         unaryOf(expAVX512),
	Max:         func(x []float32) float32 { return maxAVX512(unsafe.SliceData(x), len(x)) },
	ExpSum:      expSumOf(expSumAVX512),
	Scale:       func(x []float32, s float32) { scaleAVX512(unsafe.SliceData(x), len(x), s) },
	Add:         binaryOf(addAVX512),
	Mul:         binaryOf(mulAVX512),
	Axpy:        axpyOf(axpyAVX512),
	Dot:         dotOf(dotAVX512),
	SiLUMul:     binaryOf(siluMulAVX512),
	SiLUMulGrad: siluMulGradOf(siluMulGradAVX512),
	GELU:        unaryOf(geluAVX512),
	Rope:        ropeOf(ropeAVX512),
	ArgMax:      argMaxOf(maxAVX512, indexAVX512),
	AdamW: func(p, g, m, v []float32, h *Adam) {
		g, m, v = g[:len(p)], m[:len(p)], v[:len(p)]
		row := newAdamRow(h)
		adamWAVX512(unsafe.SliceData(p), unsafe.SliceData(g), unsafe.SliceData(m), unsafe.SliceData(v), len(p), &row[0][0])
	},
}

// avx512vnni differs in products of q8 only.
var avx512vnni = func() Funcs {
	f := avx512
	f.Class = AVX512VNNI
	return f
}()

// gemmAsm computes a row count's outputs; strides are in bytes.
type gemmAsm = func(c *float32, ldc uintptr, a *float32, ars, aks uintptr, b *float32, ldb uintptr, k int, acc bool)

// The kernels by number of rows. From halfRows on, those of AVX2 compute half of
// a panel: 16 registers hold no more.
var (
	gemmsAVX2 = [...]gemmAsm{1: gemm1AVX2, gemm2AVX2, gemm3AVX2, gemm4AVX2, gemm5AVX2, gemm6AVX2}

	gemmsAVX512 = [...]gemmAsm{
		1: gemm1AVX512, gemm2AVX512, gemm3AVX512, gemm4AVX512, gemm5AVX512, gemm6AVX512, gemm7AVX512,
		gemm8AVX512, gemm9AVX512, gemm10AVX512, gemm11AVX512, gemm12AVX512, gemm13AVX512, gemm14AVX512,
	}
)

const halfRows = 4

// halfStep is the depth after which gemmAVX2 changes between the halves of a
// panel: the second half's lines are then still in the first-level cache.
const halfStep = 128

// checkGemm panics where a kernel would read or write beyond a slice.
func checkGemm(c []float32, ldc int, a []float32, ars, aks int, b []float32, ldb, rows, k int) {
	_ = c[(rows-1)*ldc+Panel-1]
	if k > 0 {
		_ = a[(rows-1)*ars+(k-1)*aks]
		_ = b[(k-1)*ldb+Panel-1]
	}
}

func gemmAVX512(c []float32, ldc int, a []float32, ars, aks int, b []float32, ldb, rows, k int, acc bool) {
	if rows == 0 {
		return
	}
	checkGemm(c, ldc, a, ars, aks, b, ldb, rows, k)
	gemmsAVX512[rows](unsafe.SliceData(c), 4*uintptr(ldc), unsafe.SliceData(a), 4*uintptr(ars), 4*uintptr(aks),
		unsafe.SliceData(b), 4*uintptr(ldb), k, acc)
}

func gemmAVX2(c []float32, ldc int, a []float32, ars, aks int, b []float32, ldb, rows, k int, acc bool) {
	if rows == 0 {
		return
	}
	checkGemm(c, ldc, a, ars, aks, b, ldb, rows, k)
	f := gemmsAVX2[rows]
	if rows < halfRows {
		f(unsafe.SliceData(c), 4*uintptr(ldc), unsafe.SliceData(a), 4*uintptr(ars), 4*uintptr(aks),
			unsafe.SliceData(b), 4*uintptr(ldb), k, acc)
		return
	}
	for i := 0; i < k || i == 0; i += halfStep {
		n := min(halfStep, k-i)
		ai, bi := a[min(i*aks, len(a)):], b[min(i*ldb, len(b)):]
		for j := 0; j < Panel; j += Panel / 2 {
			f(unsafe.SliceData(c[j:]), 4*uintptr(ldc), unsafe.SliceData(ai), 4*uintptr(ars), 4*uintptr(aks),
				unsafe.SliceData(bi[min(j, len(bi)):]), 4*uintptr(ldb), n, acc || i > 0)
		}
	}
}

func unaryOf(f func(dst, x *float32, n int)) func(dst, x []float32) {
	return func(dst, x []float32) {
		x = x[:len(dst)]
		f(unsafe.SliceData(dst), unsafe.SliceData(x), len(dst))
	}
}

func binaryOf(f func(dst, a, b *float32, n int)) func(dst, a, b []float32) {
	return func(dst, a, b []float32) {
		a, b = a[:len(dst)], b[:len(dst)]
		f(unsafe.SliceData(dst), unsafe.SliceData(a), unsafe.SliceData(b), len(dst))
	}
}

func expSumOf(f func(dst, x *float32, n int, max float32) float32) func(dst, x []float32, max float32) float32 {
	return func(dst, x []float32, max float32) float32 {
		x = x[:len(dst)]
		return f(unsafe.SliceData(dst), unsafe.SliceData(x), len(dst), max)
	}
}

func axpyOf(f func(y, x *float32, n int, a float32)) func(y []float32, a float32, x []float32) {
	return func(y []float32, a float32, x []float32) {
		x = x[:len(y)]
		f(unsafe.SliceData(y), unsafe.SliceData(x), len(y), a)
	}
}

func dotOf(f func(a, b *float32, n int) float32) func(a, b []float32) float32 {
	return func(a, b []float32) float32 {
		b = b[:len(a)]
		return f(unsafe.SliceData(a), unsafe.SliceData(b), len(a))
	}
}

func siluMulGradOf(f func(dg, du, dy, g, u *float32, n int)) func(dg, du, dy, g, u []float32) {
	return func(dg, du, dy, g, u []float32) {
		n := len(dg)
		du, dy, g, u = du[:n], dy[:n], g[:n], u[:n]
		f(unsafe.SliceData(dg), unsafe.SliceData(du), unsafe.SliceData(dy), unsafe.SliceData(g), unsafe.SliceData(u), n)
	}
}

func ropeOf(f func(lo, hi, cos, sin *float32, n int)) func(x, cos, sin []float32) {
	return func(x, cos, sin []float32) {
		h := len(cos)
		lo, hi, sin := x[:h], x[h:2*h], sin[:h]
		f(unsafe.SliceData(lo), unsafe.SliceData(hi), unsafe.SliceData(cos), unsafe.SliceData(sin), h)
	}
}

func argMaxOf(most func(x *float32, n int) float32, index func(x *float32, n int, v float32) int) func(x []float32) int {
	return func(x []float32) int {
		p := unsafe.SliceData(x)
		return max(0, index(p, len(x), most(p, len(x))))
	}
}

// An adamRow holds the constants of adamW in the order that the assembly reads
// them, each as often as a YMM register has lanes.
type adamRow [10][8]float32

func newAdamRow(h *Adam) (row adamRow) {
	for i, v := range [...]float32{h.LR, h.Beta1, 1 - h.Beta1, h.Beta2, 1 - h.Beta2, h.Eps, h.Decay, h.Scale, h.C1, h.C2} {
		for j := range row[i] {
			row[i][j] = v
		}
	}
	return row
}

// transpose packs the columns of Panel rows that fill whole steps, and returns
// how many they are. It moves bits only, so every class may share it.
func transpose(p, src []float32, k, ldsrc int) int {
	steps := k / packStep
	if steps == 0 || !cpu.X86.HasAVX2 {
		return 0
	}
	k = steps * packStep
	_, _ = p[k*Panel-1], src[(Panel-1)*ldsrc+k-1]
	transposeAVX2(unsafe.SliceData(p), unsafe.SliceData(src), 4*uintptr(ldsrc), steps)
	return k
}
