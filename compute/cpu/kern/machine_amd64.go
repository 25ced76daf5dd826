//go:build amd64 && !purego

package kern

import (
	"math"
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
	case c == AMX && hasAVX512 && x.HasAVX512VNNI && noAMX == nil:
		return &amx
	}
	return nil
}

var avx2 = Funcs{
	Class:        AVX2,
	MaxRows:      len(gemmsAVX2) - 1,
	Gemm:         gemmOf(gemmsAVX2[:], halfRows),
	GemmNext:     gemmNextOf(gemmsAVX2[:], halfRows),
	MaxRowsBF16:  len(gemmsBF16AVX2) - 1,
	GemmBF16:     gemmBF16Of(gemmsBF16AVX2[:], halfRows),
	GemmBF16Next: gemmBF16NextOf(gemmsBF16AVX2[:], halfRows),
	QuantA:       func(dst []uint32, x []float32, planes int) { quantAsm(quantAAVX2, dst, x, planes) },
	MaxRowsQ8:    len(gemmsQ8AVX2) - 1,
	GemmQ8: func(c []float32, ldc int, a []uint32, ars int, b []byte, rows, blocks, _ int, acc bool) {
		gemmQ8Asm(gemmsQ8AVX2[:], c, ldc, a, ars, b, rows, blocks, acc)
	},
	MaxRowsQ4:   len(gemmsQ4AVX2) - 1,
	GemmQ4:      gemmQ4Of(gemmsQ4AVX2[:]),
	GemmQ4K:     gemmQ4KOf(gemmsQ4KAVX2[:]),
	Exp:         unaryOf(expAVX2),
	Max:         func(x []float32) float32 { return maxAVX2(unsafe.SliceData(x), len(x)) },
	Peaks:       peaksOf(peaksAVX2),
	ExpSum:      expSumOf(expSumAVX2),
	ExpTotal:    func(x []float32, max float32) float32 { return expTotalAVX2(unsafe.SliceData(x), len(x), max) },
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
	Class:        AVX512,
	MaxRows:      len(gemmsAVX512) - 1,
	Gemm:         gemmOf(gemmsAVX512[:], math.MaxInt),
	GemmNext:     gemmNextOf(gemmsAVX512[:], math.MaxInt),
	MaxRowsBF16:  len(gemmsBF16AVX512) - 1,
	GemmBF16:     gemmBF16Of(gemmsBF16AVX512[:], math.MaxInt),
	GemmBF16Next: gemmBF16NextOf(gemmsBF16AVX512[:], math.MaxInt),
	QuantA:       func(dst []uint32, x []float32, planes int) { quantAsm(quantAAVX512, dst, x, planes) },
	MaxRowsQ8:    len(gemmsQ8AVX512) - 1,
	GemmQ8: func(c []float32, ldc int, a []uint32, ars int, b []byte, rows, blocks, _ int, acc bool) {
		gemmQ8Asm(gemmsQ8AVX512[:], c, ldc, a, ars, b, rows, blocks, acc)
	},
	MaxRowsQ4:   len(gemmsQ4AVX512) - 1,
	GemmQ4:      gemmQ4Of(gemmsQ4AVX512[:]),
	GemmQ4K:     gemmQ4KOf(gemmsQ4KAVX512[:]),
	Exp:         unaryOf(expAVX512),
	Max:         func(x []float32) float32 { return maxAVX512(unsafe.SliceData(x), len(x)) },
	Peaks:       peaksOf(peaksAVX512),
	ExpSum:      expSumOf(expSumAVX512),
	ExpTotal:    func(x []float32, max float32) float32 { return expTotalAVX512(unsafe.SliceData(x), len(x), max) },
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

// avx512vnni differs in products of q8 and of 4 bits only.
var avx512vnni = func() Funcs {
	f := avx512
	f.Class = AVX512VNNI
	f.QuantA = func(dst []uint32, x []float32, planes int) {
		quantAsm(quantsVNNI[planes], dst, x, planes)
	}
	f.MaxRowsQ8 = len(gemmsQ8VNNI[0]) - 1
	f.GemmQ8 = func(c []float32, ldc int, a []uint32, ars int, b []byte, rows, blocks, planes int, acc bool) {
		gemmQ8Asm(gemmsQ8VNNI[planes-1][:], c, ldc, a, ars, b, rows, blocks, acc)
	}
	f.MaxRowsQ4 = len(gemmsQ4VNNI[0]) - 1
	f.GemmQ4 = func(c []float32, ldc int, a []uint32, ars int, b []byte, rows, blocks, planes int, acc bool) {
		gemmQ4Asm(gemmsQ4VNNI[planes-1][:], c, ldc, a, ars, b, rows, blocks, acc)
	}
	f.GemmQ4K = func(c []float32, ldc int, a []uint32, ars int, b []byte, rows, blocks, planes int, acc bool) {
		gemmQ4KAsm(gemmsQ4KVNNI[planes-1][:], c, ldc, a, ars, b, rows, blocks, acc)
	}
	return f
}()

type (
	// gemmBF16Asm is gemmAsm for panels of bfloat16.
	gemmBF16Asm = func(c *float32, ldc uintptr, a *float32, ars, aks uintptr, b *uint16, k int, acc bool, ahead, pace uintptr)
	// gemmQ8Func computes a row count's outputs of panels of q8.
	gemmQ8Func = func(c *float32, ldc uintptr, a *uint32, ars uintptr, b *byte, blocks int, acc bool, ahead, pace uintptr)
	// quantFunc quantises n elements to integers of at most most.
	quantFunc = func(dst *uint32, x *float32, n int, most float32)
)

// gemmAsm computes a row count's outputs; strides are in bytes. For each part of b it prefetches
// as many lines, starting ahead bytes after b and moving by pace per part.
type gemmAsm = func(c *float32, ldc uintptr, a *float32, ars, aks uintptr, b *float32, ldb uintptr, k int, acc bool, ahead, pace uintptr)

// The kernels by number of rows. From halfRows on, those of AVX2 compute half of
// a panel: 16 registers hold no more.
var (
	gemmsAVX2 = [...]gemmAsm{1: gemm1AVX2, gemm2AVX2, gemm3AVX2, gemm4AVX2, gemm5AVX2, gemm6AVX2}

	gemmsAVX512 = [...]gemmAsm{
		1: gemm1AVX512, gemm2AVX512, gemm3AVX512, gemm4AVX512, gemm5AVX512, gemm6AVX512, gemm7AVX512,
		gemm8AVX512, gemm9AVX512, gemm10AVX512, gemm11AVX512, gemm12AVX512, gemm13AVX512, gemm14AVX512,
	}
)

var (
	gemmsBF16AVX2 = [...]gemmBF16Asm{
		1: gemmBF16x1AVX2, gemmBF16x2AVX2, gemmBF16x3AVX2, gemmBF16x4AVX2, gemmBF16x5AVX2, gemmBF16x6AVX2,
	}
	gemmsQ8AVX2 = [...]gemmQ8Func{
		1: gemmQ8x1AVX2, gemmQ8x2AVX2, gemmQ8x3AVX2, gemmQ8x4AVX2, gemmQ8x5AVX2, gemmQ8x6AVX2,
	}

	gemmsBF16AVX512 = [...]gemmBF16Asm{
		1: gemmBF16x1AVX512, gemmBF16x2AVX512, gemmBF16x3AVX512, gemmBF16x4AVX512, gemmBF16x5AVX512,
		gemmBF16x6AVX512, gemmBF16x7AVX512, gemmBF16x8AVX512, gemmBF16x9AVX512, gemmBF16x10AVX512,
		gemmBF16x11AVX512, gemmBF16x12AVX512, gemmBF16x13AVX512, gemmBF16x14AVX512,
	}
	gemmsQ8AVX512 = [...]gemmQ8Func{
		1: gemmQ8x1AVX512, gemmQ8x2AVX512, gemmQ8x3AVX512, gemmQ8x4AVX512,
		gemmQ8x5AVX512, gemmQ8x6AVX512, gemmQ8x7AVX512, gemmQ8x8AVX512,
	}

	// by planes, counted from 0
	gemmsQ8VNNI = [2][13]gemmQ8Func{
		{
			1: gemmQ8Planes1x1AVX512VNNI, gemmQ8Planes1x2AVX512VNNI, gemmQ8Planes1x3AVX512VNNI, gemmQ8Planes1x4AVX512VNNI,
			gemmQ8Planes1x5AVX512VNNI, gemmQ8Planes1x6AVX512VNNI, gemmQ8Planes1x7AVX512VNNI, gemmQ8Planes1x8AVX512VNNI,
			gemmQ8Planes1x9AVX512VNNI, gemmQ8Planes1x10AVX512VNNI, gemmQ8Planes1x11AVX512VNNI, gemmQ8Planes1x12AVX512VNNI,
		},
		{
			1: gemmQ8Planes2x1AVX512VNNI, gemmQ8Planes2x2AVX512VNNI, gemmQ8Planes2x3AVX512VNNI, gemmQ8Planes2x4AVX512VNNI,
			gemmQ8Planes2x5AVX512VNNI, gemmQ8Planes2x6AVX512VNNI, gemmQ8Planes2x7AVX512VNNI, gemmQ8Planes2x8AVX512VNNI,
			gemmQ8Planes2x9AVX512VNNI, gemmQ8Planes2x10AVX512VNNI, gemmQ8Planes2x11AVX512VNNI, gemmQ8Planes2x12AVX512VNNI,
		},
	}
	// by planes
	quantsVNNI = [...]quantFunc{1: quantAPlanes1AVX512VNNI, quantAPlanes2AVX512VNNI}
)

const halfRows = 4

// checkGemm panics if a kernel would read or write beyond a slice.
func checkGemm(c []float32, ldc int, a []float32, ars, aks int, b []float32, ldb, rows, k int) {
	_ = c[(rows-1)*ldc+Panel-1]
	if k > 0 {
		_ = a[(rows-1)*ars+(k-1)*aks]
		_ = b[(k-1)*ldb+Panel-1]
	}
}

// A walk is the order of computing the rows of a product that do not fit one kernel: groups of
// them take turns on a chunk of b, which stays in the first level of the cache, and each
// prefetches its share of the next chunk, so that memory is always busy.
type walk struct {
	rows, groups int
	most         int // rows of a group
	steps, chunk int // of k, or blocks
	step, part   int // bytes of one, and how many a part of a kernel has
	turns        int // kernel calls for a chunk
	each         int // bytes of a part that one of them prefetches
	next         int // bytes from b to what is read after it, 0: b continues
}

// A turn is a kernel call for rows r0..r0+rows on steps i..i+n, or several that
// share the outputs. The walk is over when rows is 0.
type turn struct {
	r0, rows, i, n int
	first          int // its number among the turns on this chunk
}

const line = 64

// newWalk returns the walk of rows in groups of at most most, each of which needs halves calls
// for all outputs.
func newWalk(rows, most, halves, steps, chunk, step, part int) walk {
	w := walk{rows: rows, groups: 1, most: rows, steps: steps, chunk: max(1, steps), step: step, part: part, turns: halves}
	if rows > most {
		w.groups = (rows + most - 1) / most
		w.most = (rows + w.groups - 1) / w.groups
		w.turns *= w.groups
	}
	w.each = step * part
	if w.turns > 1 {
		w.chunk = chunk
		w.each = (w.each/line + w.turns - 1) / w.turns * line
	}
	return w
}

// start returns the first turn; there is one even without steps.
func (w *walk) start() turn {
	return turn{rows: min(w.most, w.rows), n: min(w.chunk, w.steps)}
}

// advance makes t the next turn: that of the next group, or after the last group the first on
// the next chunk.
func (w *walk) advance(t *turn) {
	t.r0 += t.rows
	t.first += w.turns / w.groups
	if t.r0 == w.rows {
		if t.i += t.n; t.i >= w.steps {
			t.rows = 0
			return
		}
		t.r0, t.first, t.n = 0, 0, min(w.chunk, w.steps-t.i)
	}
	t.rows = min(w.most, w.rows-t.r0)
}

// ahead returns how many bytes ahead the h-th call of a turn prefetches in its first part of b,
// and by how many it moves from part to part: each call on a chunk prefetches one run of lines,
// and together they cover the next chunk.
func (w *walk) ahead(t turn, h int) (ahead, pace uintptr) {
	if w.turns == 1 {
		return aheadOf(w.next), uintptr(w.each)
	}
	chunk := t.n * w.step
	if w.next != 0 && t.i+t.n >= w.steps {
		chunk = w.next - t.i*w.step
	}
	// In every part, the lines that a call has not prefetched before come last.
	return uintptr(chunk + (t.first+h)*(t.n/w.part)*w.each - (w.part*w.step - w.each)), uintptr(w.each)
}

// aheadOne is how many bytes ahead to prefetch if one group of rows reads a panel.
const aheadOne = 8 << 10

// aheadOf is how many bytes ahead it prefetches if next, unless it is 0, is read after the
// panel.
func aheadOf(next int) uintptr {
	if next != 0 {
		return uintptr(next)
	}
	return aheadOne
}

// The steps of a chunk, by the type of the weights: 16 or 8 KiB.
const (
	chunkF32  = 128
	chunkBF16 = 256
	chunkQ8   = 8
)

// partK is how many k are a part of a kernel for f32 or bfloat16.
const partK = 4

// gemmOf returns the product that kernels compute, by number of rows. Kernels of
// half or more rows compute half of a panel.
func gemmOf(kernels []gemmAsm, half int) func(c []float32, ldc int, a []float32, ars, aks int, b []float32, ldb, rows, k int, acc bool) {
	return func(c []float32, ldc int, a []float32, ars, aks int, b []float32, ldb, rows, k int, acc bool) {
		gemmAsmNext(kernels, half, c, ldc, a, ars, aks, b, ldb, rows, k, acc, 0)
	}
}

// gemmNextOf is gemmOf for panels, and prefetches the next one.
func gemmNextOf(kernels []gemmAsm, half int) func(c []float32, ldc int, a []float32, ars, aks int, b []float32, rows, k int, acc bool, next []float32) {
	return func(c []float32, ldc int, a []float32, ars, aks int, b []float32, rows, k int, acc bool, next []float32) {
		gemmAsmNext(kernels, half, c, ldc, a, ars, aks, b, Panel, rows, k, acc, distance(b, next))
	}
}

// distance returns the bytes from b to next, 0 if there is no next.
func distance[T any](b, next []T) int {
	if len(next) == 0 {
		return 0
	}
	return int(uintptr(unsafe.Pointer(unsafe.SliceData(next))) - uintptr(unsafe.Pointer(unsafe.SliceData(b))))
}

func gemmAsmNext(kernels []gemmAsm, half int, c []float32, ldc int, a []float32, ars, aks int, b []float32, ldb, rows, k int, acc bool, next int) {
	if rows == 0 {
		return
	}
	checkGemm(c, ldc, a, ars, aks, b, ldb, rows, k)
	if rows < min(len(kernels), half) { // one call: there are many short ones
		kernels[rows](unsafe.SliceData(c), 4*uintptr(ldc), unsafe.SliceData(a), 4*uintptr(ars), 4*uintptr(aks),
			unsafe.SliceData(b), 4*uintptr(ldb), k, acc, aheadOf(next), partK*4*Panel)
		return
	}
	w := newWalk(rows, len(kernels)-1, halves(rows, half), k, chunkF32, 4*Panel, partK)
	w.next = next
	for t := w.start(); t.rows > 0; w.advance(&t) {
		n := halves(t.rows, half)
		at, bt := a[min(t.r0*ars+t.i*aks, len(a)):], b[min(t.i*ldb, len(b)):]
		for h := range n {
			j := h * Panel / n
			ahead, pace := w.ahead(t, h)
			kernels[t.rows](unsafe.SliceData(c[t.r0*ldc+j:]), 4*uintptr(ldc),
				unsafe.SliceData(at), 4*uintptr(ars), 4*uintptr(aks),
				unsafe.SliceData(bt[min(j, len(bt)):]), 4*uintptr(ldb),
				t.n, acc || t.i > 0, ahead, pace)
		}
	}
}

// gemmBF16Of is gemmOf for bfloat16 weights.
func gemmBF16Of(kernels []gemmBF16Asm, half int) func(c []float32, ldc int, a []float32, ars, aks int, b []uint16, rows, k int, acc bool) {
	return func(c []float32, ldc int, a []float32, ars, aks int, b []uint16, rows, k int, acc bool) {
		gemmBF16AsmNext(kernels, half, c, ldc, a, ars, aks, b, rows, k, acc, 0)
	}
}

// gemmBF16NextOf is gemmNextOf for bfloat16 weights.
func gemmBF16NextOf(kernels []gemmBF16Asm, half int) func(c []float32, ldc int, a []float32, ars, aks int, b []uint16, rows, k int, acc bool, next []uint16) {
	return func(c []float32, ldc int, a []float32, ars, aks int, b []uint16, rows, k int, acc bool, next []uint16) {
		gemmBF16AsmNext(kernels, half, c, ldc, a, ars, aks, b, rows, k, acc, distance(b, next))
	}
}

func gemmBF16AsmNext(kernels []gemmBF16Asm, half int, c []float32, ldc int, a []float32, ars, aks int, b []uint16, rows, k int, acc bool, next int) {
	if rows == 0 {
		return
	}
	_ = c[(rows-1)*ldc+Panel-1]
	if k > 0 {
		_, _ = a[(rows-1)*ars+(k-1)*aks], b[BF16PanelLen(k)-1]
	}
	if rows < min(len(kernels), half) {
		kernels[rows](unsafe.SliceData(c), 4*uintptr(ldc), unsafe.SliceData(a), 4*uintptr(ars), 4*uintptr(aks),
			unsafe.SliceData(b), k, acc, aheadOf(next), partK*2*Panel)
		return
	}
	w := newWalk(rows, len(kernels)-1, halves(rows, half), k, chunkBF16, 2*Panel, partK)
	w.next = next
	for t := w.start(); t.rows > 0; w.advance(&t) {
		n := halves(t.rows, half)
		at, bt := a[min(t.r0*ars+t.i*aks, len(a)):], b[min(t.i*Panel, len(b)):]
		for h := range n {
			j := h * Panel / n
			ahead, pace := w.ahead(t, h)
			kernels[t.rows](unsafe.SliceData(c[t.r0*ldc+j:]), 4*uintptr(ldc),
				unsafe.SliceData(at), 4*uintptr(ars), 4*uintptr(aks),
				unsafe.SliceData(bt[min(2*j, len(bt)):]),
				t.n, acc || t.i > 0, ahead, pace)
		}
	}
}

// halves returns the kernel calls that a panel's outputs need.
func halves(rows, half int) int {
	if rows < half {
		return 1
	}
	return 2
}

// gemmQ8Asm computes a product with q8 weights by kernels, by number of rows.
func gemmQ8Asm(kernels []gemmQ8Func, c []float32, ldc int, a []uint32, ars int, b []byte, rows, blocks int, acc bool) {
	if rows == 0 {
		return
	}
	_ = c[(rows-1)*ldc+Panel-1]
	if blocks > 0 {
		_, _ = a[(rows-1)*ars+blocks*Q8ABlockLen-1], b[blocks*Q8BlockLen-1]
	}
	if rows < len(kernels) {
		kernels[rows](unsafe.SliceData(c), 4*uintptr(ldc), unsafe.SliceData(a), 4*uintptr(ars),
			unsafe.SliceData(b), blocks, acc, aheadOne, Q8BlockLen)
		return
	}
	w := newWalk(rows, len(kernels)-1, 1, blocks, chunkQ8, Q8BlockLen, 1)
	for t := w.start(); t.rows > 0; w.advance(&t) {
		at, bt := a[min(t.r0*ars+t.i*Q8ABlockLen, len(a)):], b[min(t.i*Q8BlockLen, len(b)):]
		ahead, pace := w.ahead(t, 0)
		kernels[t.rows](unsafe.SliceData(c[t.r0*ldc:]), 4*uintptr(ldc), unsafe.SliceData(at), 4*uintptr(ars),
			unsafe.SliceData(bt), t.n, acc || t.i > 0, ahead, pace)
	}
}

// quantAsm quantises a row.
func quantAsm(f quantFunc, dst []uint32, x []float32, planes int) {
	dst = dst[:Q8ALen(len(x))]
	f(unsafe.SliceData(dst), unsafe.SliceData(x), len(x), q8Max(planes))
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

// transpose packs the columns of Panel rows that fill whole steps, and returns their number. It
// only moves bits, so every class may share it.
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

// wordStep is the number of elements that a converting function handles at once. These functions
// round as the plain ones do, so every class may share them too.
const wordStep = 16

// narrowWords narrows whole steps of x and returns the number of their elements.
func narrowWords(dst []uint16, x []float32) int {
	n := len(x) &^ (wordStep - 1)
	if n == 0 || !cpu.X86.HasAVX2 {
		return 0
	}
	_ = dst[n-1]
	narrowBF16AVX2(unsafe.SliceData(dst), unsafe.SliceData(x), n)
	return n
}

// widenBF16Words widens whole steps of src to dst and returns the number of their elements.
func widenBF16Words(dst []float32, src []byte) int {
	n := len(dst) &^ (wordStep - 1)
	if n == 0 || !cpu.X86.HasAVX2 {
		return 0
	}
	_ = src[2*n-1]
	widenBF16AVX2(unsafe.SliceData(dst), unsafe.SliceData(src), n)
	return n
}

// widenF16Words is widenBF16Words for float16.
func widenF16Words(dst []float32, src []byte) int {
	n := len(dst) &^ (wordStep - 1)
	if n == 0 || !cpu.X86.HasAVX2 || !cpu.X86.HasF16C {
		return 0
	}
	_ = src[2*n-1]
	widenF16AVX2(unsafe.SliceData(dst), unsafe.SliceData(src), n)
	return n
}

// pairs packs the words of Panel rows, ld elements apart, that fill whole steps into a panel,
// and returns how many words of a row they are.
func pairs[T byte | uint16](p []uint16, src []T, words, ld int) int {
	steps := words / packStep
	if steps == 0 || !cpu.X86.HasAVX2 {
		return 0
	}
	words = steps * packStep
	size := int(unsafe.Sizeof(src[0]))
	_, _ = p[2*words*Panel-1], src[(Panel-1)*ld+4*words/size-1]
	transposeAVX2((*float32)(unsafe.Pointer(unsafe.SliceData(p))), (*float32)(unsafe.Pointer(unsafe.SliceData(src))), uintptr(ld*size), steps)
	return words
}

// packQ8Block quantises one block of Panel outputs, rows of src ldsrc apart, and
// reports whether it did.
func packQ8Block(u *[Q8BlockLen]byte, src []float32, ldsrc int) bool {
	if !cpu.X86.HasAVX2 {
		return false
	}
	_ = src[(Panel-1)*ldsrc+Q8Block-1]
	var amax, by [Panel]float32
	absMaxAVX2(&amax[0], unsafe.SliceData(src), 4*uintptr(ldsrc), Panel)
	large := false
	for j, m := range amax {
		h, d := q8Scale(m)
		u[2*j], u[2*j+1] = byte(h), byte(h>>8)
		if d > 0 {
			by[j] = 1 / d
		}
		large = large || !(m < 127*q8MaxF16)
	}
	packQ8AVX2(&u[0], unsafe.SliceData(src), 4*uintptr(ldsrc), &by[0], Panel)
	for j := 0; large && j < Panel; j++ {
		if !(amax[j] < 127*q8MaxF16) { // the conversion to integers goes wrong
			packQ8(u, j, src[j*ldsrc:][:Q8Block])
		}
	}
	return true
}
