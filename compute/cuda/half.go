//go:build gpu && linux && cgo

package cuda

import (
	"runtime"
	"sync/atomic"

	"talf/compute"
)

// Where a device multiplies in bfloat16, factors of products have copies in that type. A copy is made when
// a product first needs it, kept until the buffer is written, and updated by AdamW together with the weights.
// A product of copies has the bits of one that rounds floats as it loads them.

// A half is a bfloat16 copy of a block, or of a packed weight, row by row.
type half struct {
	mem   *block       // nil: there is no memory for it
	fresh atomic.Int64 // leading elements that are up to date
}

// halfArgs is kernels/product.cu's HalfArgs.
type halfArgs struct {
	c, a, b                      uint64
	m, n, k, ldc, lda, ldb, beta int64
}

// halfAlign is what lengths of rows and offsets of a copy must be multiples of.
const halfAlign = 8

// stale marks the copy of b as out of date.
func (b *block) stale() {
	if h := b.half.Load(); h != nil {
		h.fresh.Store(0)
	}
}

// halfOf returns the copy of a block with room for n elements, some of which may be stale; nil without memory
// for it.
func (q *queue) halfOf(b *block, n int64) *half {
	if q.dev.cfg.NoCopies {
		return nil
	}
	h := b.half.Load()
	if h == nil {
		h = &half{}
		// A failure is kept, too: another attempt would take longer than a product.
		h.mem, _ = q.dev.alloc("copies in bfloat16", 2*n, false)
		b.half.Store(h)
	}
	if h.mem == nil {
		return nil
	}
	return h
}

// halved returns the address of the copy of b's first n elements, 0 if there is no memory for it.
func (q *queue) halved(b *buffer, n int) uint64 {
	h := q.halfOf(b.mem, b.mem.size/4)
	if h == nil {
		return 0
	}
	if h.fresh.Load() < int64(n) {
		launch(q, halve, flatBlocks((n+7)/8), 1, 1, &roundArgs{dst: h.mem.ptr, src: b.mem.ptr, n: int64(n)})
		h.fresh.Store(int64(n))
	}
	return h.mem.ptr
}

// halvedWeight returns the address of a packed weight in F32 as rows [out][in] in bfloat16, 0 if there is no memory for
// it.
func (q *queue) halvedWeight(w *weight) uint64 {
	n := int64(w.out) * int64(w.in)
	h := q.halfOf(w.mem, n)
	if h == nil {
		return 0
	}
	if h.fresh.Load() < n {
		launch(q, halvePacked, (w.units()+7)/8, w.groups(), 1, &unpackArgs{dst: h.mem.ptr, w: w.mem.ptr, out: int64(w.out), in: int64(w.in), ld: int64(w.in)})
		h.fresh.Store(n)
	}
	return h.mem.ptr
}

// products computes c = op(a)·op(b) + beta·c from copies. It reports false, having done nothing, if
// a factor's rows are no multiples of 16 bytes, both are transposed in a way that training has no use for, or
// there is no memory.
func (q *queue) products(c, a, b compute.Mat, beta float32) bool {
	fits := func(m compute.Mat) bool {
		cols := m.Cols
		if m.T {
			cols = m.Rows
		}
		return cols%halfAlign == 0 && m.Stride%halfAlign == 0 && m.Off%halfAlign == 0
	}
	var k kernel
	switch {
	case !fits(a) || !fits(b):
		return false
	case !a.T && b.T:
		k = productNT
	case !a.T:
		k = productNN
	case !b.T:
		k = productTN
	default:
		return false
	}
	h := halfArgs{
		m: int64(c.Rows), n: int64(c.Cols), k: int64(a.Cols), ldc: int64(c.Stride), lda: int64(a.Stride), ldb: int64(b.Stride), beta: int64(beta),
	}
	for _, f := range []struct {
		name string
		m    compute.Mat
		at   *uint64
	}{{"a", a, &h.a}, {"b", b, &h.b}} {
		m, n := q.extent(f.name, f.m)
		at := q.halved(m, n)
		if at == 0 {
			q.needCopies(h.m, h.n, h.k)
			return false
		}
		*f.at = at + 2*uint64(f.m.Off)
	}
	d, _ := q.extent("c", c)
	d.mem.stale()
	h.c = d.mem.ptr + 4*uint64(c.Off)
	q.halfProduct(k, &h)
	runtime.KeepAlive([]compute.Buffer{c.Buf, a.Buf, b.Buf})
	return true
}

// halfProduct queues a product of copies: k, or the library's if it is large.
func (q *queue) halfProduct(k kernel, h *halfArgs) {
	if h.m > 0 && h.n > 0 && !q.byLibrary(true, k == productTN, k == productNT, h) {
		launch(q, k, int((h.m+gemmSide-1)/gemmSide*((h.n+gemmSide-1)/gemmSide)), 1, 1, h)
	}
}
