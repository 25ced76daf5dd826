//go:build (amd64 || arm64) && !purego

package kern

import "unsafe"

// chunkQ4 is the blocks of a chunk that groups of rows take turns on, at most: 36 KiB, which the second level of a cache
// holds beside them. Shapes may say otherwise.
const chunkQ4 = 64

// cutQ4 is newWalk with rows that do not fit one kernel cut as by says. step is the bytes of k elements.
func cutQ4(kernels []gemmQ8Func, rows, steps, k, step int, by Shape) walk {
	return newWalk(rows, min(len(kernels)-1, by.Rows), 1, steps, max(1, by.Chunk*Q8Block/k), step, 1)
}

// gemm4Once is gemm4 for rows that one kernel holds: many such calls are short. pace is that of its prefetching.
func gemm4Once(kernels []gemmQ8Func, c []float32, ldc int, a []uint32, ars int, b []byte, rows, blocks int, acc bool, parts, step, pace int) {
	if rows == 0 {
		return
	}
	_ = c[(rows-1)*ldc+Panel-1]
	if blocks > 0 {
		_, _ = a[(rows-1)*ars+blocks*parts*Q8ABlockLen-1], b[blocks*step-1]
	}
	kernels[rows](unsafe.SliceData(c), 4*uintptr(ldc), unsafe.SliceData(a), 4*uintptr(ars),
		unsafe.SliceData(b), blocks, acc, aheadOne, uintptr(pace))
}

// gemmQ4Asm computes a product with blocks of Q8Block k, each step bytes of a panel, by kernels, by number of rows.
func gemmQ4Asm(kernels []gemmQ8Func, c []float32, ldc int, a []uint32, ars int, b []byte, rows, blocks int, acc bool, step int, by Shape) {
	if rows < len(kernels) {
		gemm4Once(kernels, c, ldc, a, ars, b, rows, blocks, acc, 1, step, step)
		return
	}
	w := cutQ4(kernels, rows, blocks, Q8Block, step, by)
	gemm4(&w, kernels, c, ldc, a, ars, b, acc, 1, func(t turn) (ahead, pace uintptr) { return w.ahead(&t, 0) })
}

// gemmQ4KAsm is gemmQ4Asm for q4k weights.
func gemmQ4KAsm(kernels []gemmQ8Func, c []float32, ldc int, a []uint32, ars int, b []byte, rows, blocks int, acc bool, by Shape) {
	gemmKAsm(kernels, c, ldc, a, ars, b, rows, blocks, acc, by, 4*Panel, q4kPart)
}

// gemmQ6KAsm is gemmQ4Asm for q6k weights. It has the shape of q4's, with fewer rows if there are no such
// kernels.
func gemmQ6KAsm(kernels []gemmQ8Func, c []float32, ldc int, a []uint32, ars int, b []byte, rows, blocks int, acc bool, by Shape) {
	gemmKAsm(kernels, c, ldc, a, ars, b, rows, blocks, acc, by, 2*Panel, q6kPart)
}

// gemmKAsm is gemmQ4Asm for blocks of first bytes and eight parts of Q8Block k, of part bytes each. Kernels
// prefetch by parts, and move on by pace after each of them and by first once.
func gemmKAsm(kernels []gemmQ8Func, c []float32, ldc int, a []uint32, ars int, b []byte, rows, blocks int, acc bool, by Shape, first, part int) {
	const parts = 8
	step := uintptr(first + parts*part)
	if rows < len(kernels) {
		gemm4Once(kernels, c, ldc, a, ars, b, rows, blocks, acc, parts, int(step), part)
		return
	}
	w := cutQ4(kernels, rows, blocks, parts*Q8Block, int(step), by)
	gemm4(&w, kernels, c, ldc, a, ars, b, acc, parts, func(t turn) (ahead, pace uintptr) {
		ahead, each := w.ahead(&t, 0)
		pace = (each - uintptr(first)) / parts
		return ahead + step - each - (uintptr(part) - pace), pace
	})
}

// gemm4 walks over the blocks, each of which has parts of Q8Block k.
func gemm4(w *walk, kernels []gemmQ8Func, c []float32, ldc int, a []uint32, ars int, b []byte, acc bool, parts int, ahead func(turn) (ahead, pace uintptr)) {
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
