//go:build amd64 && !purego

package kern

import "unsafe"

// The kernels by number of rows; those of class avx512vnni by planes, counted from 0, first.
var (
	gemmsQ4AVX2 = [...]gemmQ8Func{
		1: gemmQ4x1AVX2, gemmQ4x2AVX2, gemmQ4x3AVX2, gemmQ4x4AVX2, gemmQ4x5AVX2, gemmQ4x6AVX2,
	}
	gemmsQ4KAVX2 = [...]gemmQ8Func{
		1: gemmQ4Kx1AVX2, gemmQ4Kx2AVX2, gemmQ4Kx3AVX2, gemmQ4Kx4AVX2, gemmQ4Kx5AVX2, gemmQ4Kx6AVX2,
	}
	gemmsQ4AVX512 = [...]gemmQ8Func{
		1: gemmQ4x1AVX512, gemmQ4x2AVX512, gemmQ4x3AVX512, gemmQ4x4AVX512, gemmQ4x5AVX512, gemmQ4x6AVX512, gemmQ4x7AVX512, gemmQ4x8AVX512,
	}
	gemmsQ4KAVX512 = [...]gemmQ8Func{
		1: gemmQ4Kx1AVX512, gemmQ4Kx2AVX512, gemmQ4Kx3AVX512, gemmQ4Kx4AVX512, gemmQ4Kx5AVX512, gemmQ4Kx6AVX512, gemmQ4Kx7AVX512, gemmQ4Kx8AVX512,
	}
	gemmsQ4VNNI = [2][13]gemmQ8Func{
		{
			1: gemmQ4Planes1x1AVX512VNNI, gemmQ4Planes1x2AVX512VNNI, gemmQ4Planes1x3AVX512VNNI, gemmQ4Planes1x4AVX512VNNI,
			gemmQ4Planes1x5AVX512VNNI, gemmQ4Planes1x6AVX512VNNI, gemmQ4Planes1x7AVX512VNNI, gemmQ4Planes1x8AVX512VNNI,
			gemmQ4Planes1x9AVX512VNNI, gemmQ4Planes1x10AVX512VNNI, gemmQ4Planes1x11AVX512VNNI, gemmQ4Planes1x12AVX512VNNI,
		},
		{
			1: gemmQ4Planes2x1AVX512VNNI, gemmQ4Planes2x2AVX512VNNI, gemmQ4Planes2x3AVX512VNNI, gemmQ4Planes2x4AVX512VNNI,
			gemmQ4Planes2x5AVX512VNNI, gemmQ4Planes2x6AVX512VNNI, gemmQ4Planes2x7AVX512VNNI, gemmQ4Planes2x8AVX512VNNI,
			gemmQ4Planes2x9AVX512VNNI, gemmQ4Planes2x10AVX512VNNI, gemmQ4Planes2x11AVX512VNNI, gemmQ4Planes2x12AVX512VNNI,
		},
	}
	gemmsQ4KVNNI = [2][13]gemmQ8Func{
		{
			1: gemmQ4KPlanes1x1AVX512VNNI, gemmQ4KPlanes1x2AVX512VNNI, gemmQ4KPlanes1x3AVX512VNNI, gemmQ4KPlanes1x4AVX512VNNI,
			gemmQ4KPlanes1x5AVX512VNNI, gemmQ4KPlanes1x6AVX512VNNI, gemmQ4KPlanes1x7AVX512VNNI, gemmQ4KPlanes1x8AVX512VNNI,
			gemmQ4KPlanes1x9AVX512VNNI, gemmQ4KPlanes1x10AVX512VNNI, gemmQ4KPlanes1x11AVX512VNNI, gemmQ4KPlanes1x12AVX512VNNI,
		},
		{
			1: gemmQ4KPlanes2x1AVX512VNNI, gemmQ4KPlanes2x2AVX512VNNI, gemmQ4KPlanes2x3AVX512VNNI, gemmQ4KPlanes2x4AVX512VNNI,
			gemmQ4KPlanes2x5AVX512VNNI, gemmQ4KPlanes2x6AVX512VNNI, gemmQ4KPlanes2x7AVX512VNNI, gemmQ4KPlanes2x8AVX512VNNI,
			gemmQ4KPlanes2x9AVX512VNNI, gemmQ4KPlanes2x10AVX512VNNI, gemmQ4KPlanes2x11AVX512VNNI, gemmQ4KPlanes2x12AVX512VNNI,
		},
	}
)

// The blocks of a chunk that groups of rows take turns on: 9 KiB.
const (
	chunkQ4  = 16
	chunkQ4K = 2
)

// gemmQ4Asm computes a product with q4 weights by kernels, by number of rows.
func gemmQ4Asm(kernels []gemmQ8Func, c []float32, ldc int, a []uint32, ars int, b []byte, rows, blocks int, acc bool) {
	w := newWalk(rows, len(kernels)-1, 1, blocks, chunkQ4, Q4BlockLen, 1)
	gemm4(&w, kernels, c, ldc, a, ars, b, acc, 1, func(t turn) (ahead, pace uintptr) { return w.ahead(t, 0) })
}

// gemmQ4KAsm is gemmQ4Asm for q4k weights. Its kernels prefetch by parts of q4kPart bytes, and move
// on by pace after each of them and by the length of a block's first scales once.
func gemmQ4KAsm(kernels []gemmQ8Func, c []float32, ldc int, a []uint32, ars int, b []byte, rows, blocks int, acc bool) {
	const parts, first = Q4KBlock / Q8Block, 4 * Panel
	w := newWalk(rows, len(kernels)-1, 1, blocks, chunkQ4K, Q4KBlockLen, 1)
	gemm4(&w, kernels, c, ldc, a, ars, b, acc, parts, func(t turn) (ahead, pace uintptr) {
		if w.turns == 1 {
			return aheadOne, q4kPart
		}
		ahead, _ = w.ahead(t, 0)
		pace = uintptr(w.each-first) / parts
		return ahead + Q4KBlockLen - uintptr(w.each) - (q4kPart - pace), pace
	})
}

// gemm4 walks over the blocks, each of which has parts of Q8Block k.
func gemm4(w *walk, kernels []gemmQ8Func, c []float32, ldc int, a []uint32, ars int, b []byte, acc bool, parts int, ahead func(turn) (ahead, pace uintptr)) {
	if w.rows == 0 {
		return
	}
	_ = c[(w.rows-1)*ldc+Panel-1]
	if w.steps > 0 {
		_, _ = a[(w.rows-1)*ars+w.steps*parts*Q8ABlockLen-1], b[w.steps*w.step-1]
	}
	for t := w.start(); t.rows > 0; w.advance(&t) {
		at, bt := a[min(t.r0*ars+t.i*parts*Q8ABlockLen, len(a)):], b[min(t.i*w.step, len(b)):]
		first, pace := ahead(t)
		kernels[t.rows](unsafe.SliceData(c[t.r0*ldc:]), 4*uintptr(ldc), unsafe.SliceData(at), 4*uintptr(ars),
			unsafe.SliceData(bt), t.n, acc || t.i > 0, first, pace)
	}
}

// gemmQ4Of returns the product with q4 weights that kernels compute.
func gemmQ4Of(kernels []gemmQ8Func) func(c []float32, ldc int, a []uint32, ars int, b []byte, rows, blocks, planes int, acc bool) {
	return func(c []float32, ldc int, a []uint32, ars int, b []byte, rows, blocks, _ int, acc bool) {
		gemmQ4Asm(kernels, c, ldc, a, ars, b, rows, blocks, acc)
	}
}

// gemmQ4KOf is gemmQ4Of for q4k weights.
func gemmQ4KOf(kernels []gemmQ8Func) func(c []float32, ldc int, a []uint32, ars int, b []byte, rows, blocks, planes int, acc bool) {
	return func(c []float32, ldc int, a []uint32, ars int, b []byte, rows, blocks, _ int, acc bool) {
		gemmQ4KAsm(kernels, c, ldc, a, ars, b, rows, blocks, acc)
	}
}
