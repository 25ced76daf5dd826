//go:build (amd64 || arm64) && !purego

package kern

import "unsafe"

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
