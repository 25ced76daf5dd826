//go:build (amd64 || arm64) && !purego

package kern

import "unsafe"

// chunkQ4 is the blocks of a chunk that groups of rows take turns on, at most: 36 KiB, which the second level of a cache
// holds beside them. Shapes may say otherwise.
const chunkQ4 = 64

// gemmQ4Asm computes a product with blocks of Q8Block k, each step bytes of a panel, by kernels, by number of rows.
func gemmQ4Asm(kernels []gemmQ8Func, c []float32, ldc int, a []uint32, ars int, b []byte, rows, blocks int, acc bool, step int, by Shape) {
	gemm4(kernels, c, ldc, a, ars, b, rows, blocks, acc, by, 0, step, 1)
}

// gemmQ4KAsm is gemmQ4Asm for q4k weights.
func gemmQ4KAsm(kernels []gemmQ8Func, c []float32, ldc int, a []uint32, ars int, b []byte, rows, blocks int, acc bool, by Shape) {
	gemm4(kernels, c, ldc, a, ars, b, rows, blocks, acc, by, 4*Panel, q4kPart, 8)
}

// gemmQ6KAsm is gemmQ4Asm for q6k weights. It has the shape of q4's, with fewer rows if there are no such
// kernels.
func gemmQ6KAsm(kernels []gemmQ8Func, c []float32, ldc int, a []uint32, ars int, b []byte, rows, blocks int, acc bool, by Shape) {
	gemm4(kernels, c, ldc, a, ars, b, rows, blocks, acc, by, 2*Panel, q6kPart, 8)
}

// gemm4 is gemmQ4Asm for blocks of first bytes and so many parts of Q8Block k, of part bytes each. Kernels prefetch by
// parts, and move on by pace after each of them and by first once.
func gemm4(kernels []gemmQ8Func, c []float32, ldc int, a []uint32, ars int, b []byte, rows, blocks int, acc bool, by Shape, first, part, parts int) {
	if rows == 0 {
		return
	}
	step, deep := first+parts*part, parts*Q8ABlockLen
	_ = c[(rows-1)*ldc+Panel-1]
	if blocks > 0 {
		_, _ = a[(rows-1)*ars+blocks*deep-1], b[blocks*step-1]
	}
	if rows < len(kernels) { // one call: there are many short ones
		kernels[rows](unsafe.SliceData(c), 4*uintptr(ldc), unsafe.SliceData(a), 4*uintptr(ars),
			unsafe.SliceData(b), blocks, acc, aheadOne, uintptr(part))
		return
	}
	w := newWalk(rows, min(len(kernels)-1, by.Rows), 1, blocks, max(1, by.Chunk/parts), step, 1)
	t := w.start()
	for ; t.rows > 0; w.advance(&t) {
		at, bt := a[min(t.r0*ars+t.i*deep, len(a)):], b[min(t.i*step, len(b)):]
		ahead, each := w.ahead(&t, 0)
		pace := (each - uintptr(first)) / uintptr(parts)
		kernels[t.rows](unsafe.SliceData(c[t.r0*ldc:]), 4*uintptr(ldc), unsafe.SliceData(at), 4*uintptr(ars),
			unsafe.SliceData(bt), t.n, acc || t.i > 0, ahead+uintptr(step)-each-(uintptr(part)-pace), pace)
	}
}

// gemmQ4Of returns the product with q4 weights that kernels compute.
func gemmQ4Of(kernels []gemmQ8Func) gemmIntegers {
	return func(c []float32, ldc int, a []uint32, ars int, b []byte, rows, blocks, _ int, acc bool) {
		gemmQ4Asm(kernels, c, ldc, a, ars, b, rows, blocks, acc, Q4BlockLen, Shape{len(kernels) - 1, chunkQ4})
	}
}

// compactOf is gemmQ4Of for a compact format whose blocks are of Q8Block k.
func compactOf(kernels []gemmQ8Func, format *Compact) gemmIntegers {
	return func(c []float32, ldc int, a []uint32, ars int, b []byte, rows, blocks, _ int, acc bool) {
		gemmQ4Asm(kernels, c, ldc, a, ars, b, rows, blocks, acc, format.Len, Shape{len(kernels) - 1, chunkQ4})
	}
}

// gemmQ4KOf is gemmQ4Of for q4k weights.
func gemmQ4KOf(kernels []gemmQ8Func) gemmIntegers {
	return func(c []float32, ldc int, a []uint32, ars int, b []byte, rows, blocks, _ int, acc bool) {
		gemmQ4KAsm(kernels, c, ldc, a, ars, b, rows, blocks, acc, Shape{len(kernels) - 1, chunkQ4})
	}
}

// gemmQ6KOf is gemmQ4Of for q6k weights.
func gemmQ6KOf(kernels []gemmQ8Func) gemmIntegers {
	return func(c []float32, ldc int, a []uint32, ars int, b []byte, rows, blocks, _ int, acc bool) {
		gemmQ6KAsm(kernels, c, ldc, a, ars, b, rows, blocks, acc, Shape{len(kernels) - 1, chunkQ4})
	}
}
