//go:build gpu && linux && cgo

package cuda

import (
	"runtime"

	"talf/compute"
	"talf/compute/cuda/internal/driver"
)

// Where bits need not be those of plain decoding, cuBLAS may compute products of many
// rows. Packed weights are unpacked first, a slab at a time. That costs little compared
// with a product of a thousand rows, and a second copy of all weights would double the
// memory.

// bulkRows is the fewest rows for which unpacking pays: a product reads a weight once,
// and unpacking moves it twice more.
const bulkRows = 128

const slabBytes = 256 << 20 // of a weight that are unpacked at a time

// A bulk is the library and the memory around it, of one queue.
type bulk struct {
	on  bool
	err error // why there is none
	lib *library

	slab   *block // rows of a weight
	planes *block // activations
	sums   *block
}

// Bulk implements compute.Bulker with cuBLAS: for weights in F32 and BF16, those
// by activations in the device's bfloat16 planes, one or two.
func (q *queue) Bulk(on bool) (string, error) {
	if q.bulk == nil {
		q.bulk = &bulk{}
		q.bulk.err = q.startBulk()
	}
	b := q.bulk
	if b.err != nil {
		return "", b.err
	}
	b.on = on
	return b.lib.name, nil
}

func (q *queue) startBulk() (err error) {
	q.bulk.lib, err = q.dev.newLibrary()
	return err
}

// bulky reports whether the library computes a product of n rows. Passes that may have
// such products are not collected.
func (q *queue) bulky(w *weight, n int) bool {
	return q.bulk.allowed(n) && (w.t == compute.F32 || w.t == compute.BF16) && !q.pass.on
}

func (b *bulk) allowed(rows int) bool { return b != nil && b.on && rows >= bulkRows }

// library runs n rows of a product. In a, everything but the rows' addresses is set.
func (q *queue) library(w *weight, norm normArgs, a linearArgs, n int) bool {
	b := q.bulk
	bf16 := w.t == compute.BF16
	size, align := 4, 4
	if bf16 {
		size, align = 2, 8
	}
	ld := (w.in + align - 1) / align * align
	// Rows as they are, normalised, or as planes.
	x, lo := norm.x, uint64(0)
	ldx := w.in
	switch {
	case bf16:
		plane := int64(n) * int64(ld) * 2
		all := int64(2)
		if q.dev.single(w.t) {
			all = 1
		}
		if !q.scratch(&b.planes, "rows of activations", all*plane, false) {
			return false
		}
		norm.dst, ldx = b.planes.ptr, ld
		x = norm.dst
		if all == 2 {
			lo = norm.dst + uint64(plane)
		}
		launch(q, planes, n, 1, 1, &planeArgs{norm: norm, lo: lo, ld: int64(ld)})
	case norm.weight != 0:
		if !q.scratch(&b.planes, "rows of activations", int64(n)*int64(w.in)*4, false) {
			return false
		}
		norm.dst = b.planes.ptr
		x = norm.dst
		launch(q, normRows, n, 1, 1, &norm)
	}
	// Sums go to their destination unless something is fused to the product.
	weights := []uint64{a.w}
	if a.up != 0 {
		weights = append(weights, a.up)
	}
	direct := a.bias == 0 && a.up == 0 && a.act == int64(compute.Identity)
	to, beta := a.dst, float32(a.add)
	if !direct {
		if !q.scratch(&b.sums, "sums of products", 4*int64(len(weights))*int64(n)*int64(w.out), false) {
			return false
		}
		to, beta = b.sums.ptr, 0
		a.part = to
	}
	step := max(group, q.dev.slab/(ld*size)/group*group)
	if !q.scratch(&b.slab, "rows of a weight", int64(min(step, w.groups()*group))*int64(ld*size), false) {
		return false
	}
	for i, p := range weights {
		for first := 0; first < w.out; first += step {
			m := min(step, w.out-first)
			q.unpack(w, p, b.slab.ptr, ld, first, m)
			c := to + 4*(uint64(i)*uint64(n)*uint64(w.out)+uint64(first))
			p := driver.Product{
				BF16: bf16, M: n, N: m, K: w.in, A: x, LDA: ldx, B: b.slab.ptr, LDB: ld, TB: true, Beta: beta, C: c, LDC: w.out,
			}
			q.dev.multiply(b.lib, p)
			if lo != 0 {
				p.A, p.Beta = lo, 1
				q.dev.multiply(b.lib, p)
			}
		}
	}
	if !direct {
		a.rows = int64(n)
		launch(q, finishRows, min((n*w.out+255)/256, 4096), 1, 1, &a)
	}
	return true
}

// unpack writes n outputs of w, from first on, to dst as rows that are ld elements apart. p is w's address, or that of
// a weight of its shape.
func (q *queue) unpack(w *weight, p, dst uint64, ld, first, n int) {
	u := &unpackArgs{dst: dst, w: p, out: int64(w.out), in: int64(w.in), first: int64(first), ld: int64(ld)}
	if w.t == compute.BF16 {
		launch(q, unpackBF16, (w.units()+7)/8, (n+15)/16, 1, u)
	} else {
		launch(q, unpackF32, (w.units()+7)/8, (n+31)/32, 1, u)
	}
}

// ReadBF16 implements compute.BF16Reader: rows are rounded before they are copied.
func (q *queue) ReadBF16(dst []byte, src compute.Buffer, off int) {
	n := len(dst) / 2
	s := q.dev.bufferOf("ReadBF16", src, compute.F32, off+n)
	if n == 0 || !q.scratch(&q.rounded, "rounded rows", int64(len(dst)), false) {
		return
	}
	launch(q, roundBF16, min((n+255)/256, 1024), 1, 1, &roundArgs{dst: q.rounded.ptr, src: s.mem.ptr + 4*uint64(off), n: int64(n)})
	q.readAt(q.rounded.ptr, dst)
	runtime.KeepAlive(s)
}
