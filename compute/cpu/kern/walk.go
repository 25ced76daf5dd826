//go:build (amd64 || arm64) && !purego

package kern

import "unsafe"

type (
	// gemmBF16Asm is gemmAsm for panels of bfloat16.
	gemmBF16Asm = func(c *float32, ldc uintptr, a *float32, ars, aks uintptr, b *uint16, k int, acc bool, ahead, pace uintptr)
	// gemmPairsAsm computes a row count's outputs of panels of bfloat16, from pairs.
	gemmPairsAsm = func(c *float32, ldc uintptr, a *uint32, ars uintptr, b *uint16, pairs int, acc bool, ahead, pace uintptr)
	// gemmQ8Func computes a row count's outputs of panels of q8.
	gemmQ8Func = func(c *float32, ldc uintptr, a *uint32, ars uintptr, b *byte, blocks int, acc bool, ahead, pace uintptr)
	// quantFunc quantises n elements to integers of at most most.
	quantFunc = func(dst *uint32, x *float32, n int, most float32)
)

// gemmAsm computes a row count's outputs; strides are in bytes. For each part of b it prefetches
// as many lines, starting ahead bytes after b and moving by pace per part.
type gemmAsm = func(c *float32, ldc uintptr, a *float32, ars, aks uintptr, b *float32, ldb uintptr, k int, acc bool, ahead, pace uintptr)

// From halfRows rows on, the kernels of classes with 128 sums compute half of a panel: their
// registers hold no more.
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
	halves       int // kernel calls for one
	steps, chunk int // of k, or blocks
	step, part   int // bytes of one, and how many a part of a kernel has
	turns        int // kernel calls for a chunk
	next         int // bytes from b to what is read after it, 0: b continues
}

// A turn is a kernel call for rows r0..r0+rows on steps i..i+n, or several that
// share the outputs. The walk is over when rows is 0.
type turn struct {
	r0, rows, i, n int
	first          int // its number among the turns on this chunk
	each, run      int // bytes of a part and of all parts that a call on this chunk prefetches
}

const line = 64

// newWalk returns the walk of rows in groups of at most most, each of which needs halves calls
// for all outputs.
func newWalk(rows, most, halves, steps, chunk, step, part int) walk {
	w := walk{rows: rows, groups: 1, most: rows, halves: halves, steps: steps, chunk: max(1, steps), step: step, part: part, turns: halves}
	if rows > most {
		w.groups = (rows + most - 1) / most
		w.most = (rows + w.groups - 1) / w.groups
		w.turns *= w.groups
	}
	if w.turns > 1 { // chunks of whole parts and of one size: a short one costs as many calls
		n := max(1, (steps+chunk-1)/chunk)
		w.chunk = max(1, (steps+n*part-1)/(n*part)) * part
	}
	return w
}

// start returns the first turn; there is one even without steps.
func (w *walk) start() turn {
	t := turn{rows: min(w.most, w.rows), n: min(w.chunk, w.steps)}
	w.share(&t)
	return t
}

// advance makes t the next turn: that of the next group, or after the last group the first on
// the next chunk.
func (w *walk) advance(t *turn) {
	t.r0 += t.rows
	t.first += w.halves
	if t.r0 == w.rows {
		if t.i += t.n; t.i >= w.steps {
			t.rows = 0
			return
		}
		t.r0, t.first, t.n = 0, 0, min(w.chunk, w.steps-t.i)
		w.share(t)
	}
	t.rows = min(w.most, w.rows-t.r0)
}

// share sets what each call on a turn's chunk prefetches: an even share of the next chunk, which has as many steps as are
// left, or of the first chunk of what is read after b.
func (w *walk) share(t *turn) {
	t.each = w.step * w.part
	if w.turns == 1 {
		return
	}
	next := min(w.chunk, w.steps-t.i-t.n)
	if next <= 0 {
		next = min(w.chunk, w.steps)
	}
	n := t.n / w.part // parts
	calls := w.turns * max(1, n) * line
	t.each = min((next*w.step+calls-1)/calls*line, t.each)
	t.run = n * t.each
}

// ahead returns how many bytes ahead the h-th call of a turn prefetches in its first part of b,
// and by how many it moves from part to part: each call on a chunk prefetches one run of lines,
// and together they cover the next chunk.
func (w *walk) ahead(t *turn, h int) (ahead, pace uintptr) {
	if w.turns == 1 {
		return aheadOf(w.next), uintptr(t.each)
	}
	chunk := t.n * w.step
	if w.next != 0 && t.i+t.n >= w.steps {
		chunk = w.next - t.i*w.step
	}
	// In every part, the lines that a call has not prefetched before come last.
	return uintptr(chunk + (t.first+h)*t.run - (w.part*w.step - t.each)), uintptr(t.each)
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

// The most steps of a chunk, by the type of the weights: 16 KiB, and of q8 68 KiB, which the second level of a cache
// holds beside them. Shapes may say otherwise.
const (
	chunkF32  = 128
	chunkBF16 = 256
	chunkQ8   = 64
)

// partK is how many k are a part of a kernel for f32 or bfloat16.
const partK = 4

// gemmOf returns the product that kernels compute, by number of rows. Kernels of
// half or more rows compute half of a panel.
func gemmOf(kernels []gemmAsm, half int) func(c []float32, ldc int, a []float32, ars, aks int, b []float32, ldb, rows, k int, acc bool) {
	return func(c []float32, ldc int, a []float32, ars, aks int, b []float32, ldb, rows, k int, acc bool) {
		gemmAsmNext(kernels, half, c, ldc, a, ars, aks, b, ldb, rows, k, acc, 0, chunkF32)
	}
}

// gemmNextOf is gemmOf for panels, and prefetches the next one.
func gemmNextOf(kernels []gemmAsm, half int) func(c []float32, ldc int, a []float32, ars, aks int, b []float32, rows, k int, acc bool, next []float32) {
	return func(c []float32, ldc int, a []float32, ars, aks int, b []float32, rows, k int, acc bool, next []float32) {
		gemmAsmNext(kernels, half, c, ldc, a, ars, aks, b, Panel, rows, k, acc, distance(b, next), chunkF32)
	}
}

// distance returns the bytes from b to next, 0 if there is no next.
func distance[T any](b, next []T) int {
	if len(next) == 0 {
		return 0
	}
	return int(uintptr(unsafe.Pointer(unsafe.SliceData(next))) - uintptr(unsafe.Pointer(unsafe.SliceData(b))))
}

func gemmAsmNext(kernels []gemmAsm, half int, c []float32, ldc int, a []float32, ars, aks int, b []float32, ldb, rows, k int, acc bool, next, chunk int) {
	if rows == 0 {
		return
	}
	checkGemm(c, ldc, a, ars, aks, b, ldb, rows, k)
	if rows < min(len(kernels), half) { // one call: there are many short ones
		kernels[rows](unsafe.SliceData(c), 4*uintptr(ldc), unsafe.SliceData(a), 4*uintptr(ars), 4*uintptr(aks),
			unsafe.SliceData(b), 4*uintptr(ldb), k, acc, aheadOf(next), partK*4*Panel)
		return
	}
	w := newWalk(rows, len(kernels)-1, halves(rows, half), k, chunk, 4*Panel, partK)
	w.next = next
	t := w.start()
	for ; t.rows > 0; w.advance(&t) {
		n := halves(t.rows, half)
		at, bt := a[min(t.r0*ars+t.i*aks, len(a)):], b[min(t.i*ldb, len(b)):]
		for h := range n {
			j := h * Panel / n
			ahead, pace := w.ahead(&t, h)
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
	t := w.start()
	for ; t.rows > 0; w.advance(&t) {
		n := halves(t.rows, half)
		at, bt := a[min(t.r0*ars+t.i*aks, len(a)):], b[min(t.i*Panel, len(b)):]
		for h := range n {
			j := h * Panel / n
			ahead, pace := w.ahead(&t, h)
			kernels[t.rows](unsafe.SliceData(c[t.r0*ldc+j:]), 4*uintptr(ldc),
				unsafe.SliceData(at), 4*uintptr(ars), 4*uintptr(aks),
				unsafe.SliceData(bt[min(2*j, len(bt)):]),
				t.n, acc || t.i > 0, ahead, pace)
		}
	}
}

// gemmPairsOf is gemmOf for GemmPairs. Steps of its walk are pairs of k.
func gemmPairsOf(kernels []gemmPairsAsm, half int) func(c []float32, ldc int, a []uint32, ars int, b []uint16, rows, k int, acc bool) {
	return func(c []float32, ldc int, a []uint32, ars int, b []uint16, rows, k int, acc bool) {
		if rows == 0 {
			return
		}
		_ = c[(rows-1)*ldc+Panel-1]
		if k > 0 {
			_, _ = a[(rows-1)*ars+(k+1)/2-1], b[BF16PanelLen(k)-1]
		}
		pairs := (k + 1) / 2
		if rows < min(len(kernels), half) {
			kernels[rows](unsafe.SliceData(c), 4*uintptr(ldc), unsafe.SliceData(a), 4*uintptr(ars),
				unsafe.SliceData(b), pairs, acc, aheadOne, partK*2*Panel)
			return
		}
		w := newWalk(rows, len(kernels)-1, halves(rows, half), pairs, chunkBF16/2, 2*bf16Line, partK/2)
		t := w.start()
		for ; t.rows > 0; w.advance(&t) {
			n := halves(t.rows, half)
			at, bt := a[min(t.r0*ars+t.i, len(a)):], b[min(t.i*bf16Line, len(b)):]
			for h := range n {
				j := h * Panel / n
				ahead, pace := w.ahead(&t, h)
				kernels[t.rows](unsafe.SliceData(c[t.r0*ldc+j:]), 4*uintptr(ldc),
					unsafe.SliceData(at), 4*uintptr(ars), unsafe.SliceData(bt[min(2*j, len(bt)):]),
					t.n, acc || t.i > 0, ahead, pace)
			}
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

// gemmQ8Asm computes a product with q8 weights by kernels, by number of rows. Rows that do not fit one are cut as by
// says.
func gemmQ8Asm(kernels []gemmQ8Func, c []float32, ldc int, a []uint32, ars int, b []byte, rows, blocks int, acc bool, by Shape) {
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
	w := newWalk(rows, by.Rows, 1, blocks, by.Chunk, Q8BlockLen, 1)
	t := w.start()
	for ; t.rows > 0; w.advance(&t) {
		at, bt := a[min(t.r0*ars+t.i*Q8ABlockLen, len(a)):], b[min(t.i*Q8BlockLen, len(b)):]
		ahead, pace := w.ahead(&t, 0)
		kernels[t.rows](unsafe.SliceData(c[t.r0*ldc:]), 4*uintptr(ldc), unsafe.SliceData(at), 4*uintptr(ars),
			unsafe.SliceData(bt), t.n, acc || t.i > 0, ahead, pace)
	}
}

// gemmQ8Of returns the product with q8 weights that kernels compute.
func gemmQ8Of(kernels []gemmQ8Func) gemmIntegers {
	return func(c []float32, ldc int, a []uint32, ars int, b []byte, rows, blocks, _ int, acc bool) {
		gemmQ8Asm(kernels, c, ldc, a, ars, b, rows, blocks, acc, Shape{len(kernels) - 1, chunkQ8})
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
