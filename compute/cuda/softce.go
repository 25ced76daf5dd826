//go:build gpu && linux && cgo

package cuda

import (
	"fmt"
	"math"
	"runtime"

	"talf/compute"
)

// DType and Shape make a weight usable as SoftCE's buffer [Out][In].
func (w *weight) DType() compute.DType { return w.t }
func (w *weight) Shape() []int         { return []int{w.out, w.in} }

// ceLogits is how many logits are kept at a time.
const ceLogits = 1 << 26

// SoftCE computes losses and gradients of soft labels, chunk by chunk: logits, the
// loss and its gradient in their place, then dh and dw. w is a buffer or a weight
// of F32.
func (q *queue) SoftCE(loss, dh, dw, h, w compute.Buffer, labels *compute.SoftLabels, scale []float32, n int) {
	const op = "SoftCE"
	hidden := q.dev.readOf(op, h, compute.F32, 0).width()
	check(len(w.Shape()) == 2, op, "dimensions of w", len(w.Shape()), 2)
	v := w.Shape()[0]
	check(w.Shape()[1] == hidden, op, "columns of w", w.Shape()[1], hidden)
	check(len(scale) >= n, op, "len(scale)", len(scale), n)
	lb, dhb, hb := q.dev.bufferOf(op, loss, compute.F32, n), q.dev.bufferOf(op, dh, compute.F32, n*hidden), q.dev.readOf(op, h, compute.F32, n*hidden)
	checkLabels(labels, v, n)
	var dwb *buffer
	if dw != nil {
		dwb = q.dev.bufferOf(op, dw, compute.F32, v*hidden)
	}
	m := q.lmHead(op, hb, w, v, hidden, n)
	rows := m.rows
	if rows == 0 {
		return
	}
	kl := max(1, labels.K)
	if !q.scratch(&q.train.logits, "logits", 4*int64(rows)*int64(v), false) || !q.scratch(&q.train.labels, "labels", 4*int64(rows*kl), false) {
		return
	}
	if m.half != 0 && !q.scratch(&q.train.grads, "gradients of logits", 2*int64(rows)*int64(v), false) {
		return
	}
	for r := 0; r < n; r += rows {
		m.r, m.n = r, min(rows, n-r)
		a := crossArgs{z: q.train.logits.ptr, loss: lb.mem.ptr + 4*uint64(r), labels: q.train.labels.ptr, width: int64(v), k: int64(labels.K)}
		if m.half != 0 {
			a.half = q.train.grads.ptr
		}
		if !q.putLabels(&a, labels, scale, v, r, m.n) {
			return
		}
		m.logits()
		launch(q, softCE, m.n, 1, 1, &a)
		m.inputs(dhb.mem.ptr + 4*uint64(r*hidden))
		if dwb != nil {
			m.weights(dwb.mem.ptr)
		}
	}
	runtime.KeepAlive([]*buffer{lb, dhb, hb, dwb})
	runtime.KeepAlive(w)
}

// An lmHead has the products of an LM head w [V][In] with rows [r, r+n) of h, whose logits and their gradients
// are in the queue's scratch memory.
type lmHead struct {
	q       *queue
	v, dim  int64
	rows    int // of a chunk
	r, n    int
	h, w    uint64
	k, kw   kernel  // that multiply two buffers, and a buffer by w
	packed  *weight // that w is; nil: a buffer
	half    uint64  // w as rows in bfloat16, 0: products take floats
	hHalved uint64
}

// lmHead returns the products of w with n rows of h.
func (q *queue) lmHead(op string, h *buffer, w compute.Buffer, v, hidden, n int) *lmHead {
	m := &lmHead{q: q, v: int64(v), dim: int64(hidden), h: h.mem.ptr, k: gemmF32, kw: gemmF32Packed, rows: min(n, max(1, q.dev.logits/v))}
	if q.dev.cfg.BF16 {
		m.k, m.kw = gemmBF16, gemmBF16Packed
		// There should be more tiles (of 128 rows, times those of a gradient's columns) than multiprocessors.
		if m.rows = min(n, max(1, 2*q.dev.logits/v)); m.rows < n && m.rows > gemmSide {
			m.rows -= m.rows % gemmSide
		}
	}
	if m.rows == 0 {
		return m
	}
	halves := q.dev.cfg.BF16 && v%halfAlign == 0 && hidden%halfAlign == 0
	if pw, ok := w.(*weight); ok {
		pw = q.dev.weightOf(op, pw)
		check(pw.t == compute.F32, op, "type of the weight", int(pw.t), int(compute.F32))
		m.w, m.packed = pw.mem.ptr, pw
		if halves {
			m.half = q.halvedWeight(pw)
		}
	} else {
		b := q.dev.readOf(op, w, compute.F32, v*hidden)
		m.w, m.kw = b.mem.ptr, m.k
		if halves {
			m.half = q.halved(b, v*hidden)
		}
	}
	if m.half != 0 {
		if m.hHalved = q.halved(h, n*hidden); m.hHalved == 0 {
			m.half = 0
		}
	}
	if halves && m.half == 0 {
		q.needCopies(int64(m.rows), m.v, m.dim)
	}
	return m
}

// logits computes h·wᵀ.
func (m *lmHead) logits() {
	z := m.q.train.logits.ptr
	if m.half != 0 {
		m.q.halfProduct(productNT, &halfArgs{c: z, a: m.rowsHalved(), b: m.half, m: int64(m.n), n: m.v, k: m.dim, ldc: m.v, lda: m.dim, ldb: m.dim})
		return
	}
	if m.byLibrary() {
		m.slabs(func(first, n int64, w uint64, ld int64) {
			m.q.trained(false, false, true, &halfArgs{c: z + 4*uint64(first), a: m.rowsOf(), b: w, m: int64(m.n), n: n, k: m.dim, ldc: m.v, lda: m.dim, ldb: ld})
		})
		return
	}
	m.q.gemm(m.kw, &gemmArgs{
		c: z, a: m.rowsOf(), b: m.w, m: int64(m.n), n: m.v, k: m.dim, ldc: m.v, aRow: m.dim, aCol: 1, bRow: 1, bCol: m.dim,
		out: m.v, in: m.dim, turned: 1,
	})
}

// inputs computes dh = dz·w.
func (m *lmHead) inputs(dh uint64) {
	if m.half != 0 {
		m.q.halfProduct(productNN, &halfArgs{c: dh, a: m.q.train.grads.ptr, b: m.half, m: int64(m.n), n: m.dim, k: m.v, ldc: m.dim, lda: m.v, ldb: m.dim})
		return
	}
	if m.byLibrary() {
		m.slabs(func(first, n int64, w uint64, ld int64) {
			m.q.trained(false, false, false, &halfArgs{
				c: dh, a: m.q.train.logits.ptr + 4*uint64(first), b: w, m: int64(m.n), n: m.dim, k: n, ldc: m.dim, lda: m.v, ldb: ld, beta: min(first, 1),
			})
		})
		return
	}
	m.q.gemm(m.kw, &gemmArgs{
		c: dh, a: m.q.train.logits.ptr, b: m.w, m: int64(m.n), n: m.dim, k: m.v, ldc: m.dim, aRow: m.v, aCol: 1, bRow: m.dim, bCol: 1,
		out: m.v, in: m.dim,
	})
}

// weights computes dw += dzᵀ·h.
func (m *lmHead) weights(dw uint64) {
	if m.half != 0 {
		m.q.halfProduct(productTN, &halfArgs{c: dw, a: m.q.train.grads.ptr, b: m.rowsHalved(), m: m.v, n: m.dim, k: int64(m.n), ldc: m.dim, lda: m.v, ldb: m.dim, beta: 1})
		return
	}
	if m.k == gemmF32 && m.q.byLibrary(false, true, false, &halfArgs{
		c: dw, a: m.q.train.logits.ptr, b: m.rowsOf(), m: m.v, n: m.dim, k: int64(m.n), ldc: m.dim, lda: m.v, ldb: m.dim, beta: 1,
	}) {
		return
	}
	m.q.gemm(m.k, &gemmArgs{
		c: dw, a: m.q.train.logits.ptr, b: m.rowsOf(), m: m.v, n: m.dim, k: int64(m.n), ldc: m.dim, aRow: 1, aCol: m.v, bRow: m.dim, bCol: 1, beta: 1,
	})
}

// byLibrary reports whether the library computes the chunk's products by w in f32.
func (m *lmHead) byLibrary() bool { return m.k == gemmF32 && m.q.large(int64(m.n), m.v, m.dim) }

// slabs calls f for rows [first, first+n) of w, one part after another, with the address of these rows and the elements
// from one to the next: all of a buffer, or as many of a packed weight as scratch memory takes.
func (m *lmHead) slabs(f func(first, n int64, w uint64, ld int64)) {
	if m.packed == nil {
		f(0, m.v, m.w, m.dim)
		return
	}
	w, slab := m.packed, &m.q.train.slab
	ld := (w.in + 3) / 4 * 4
	step := max(group, m.q.dev.slab/(4*ld)/group*group)
	if !m.q.scratch(slab, "rows of the LM head", 4*int64(min(step, w.groups()*group))*int64(ld), false) {
		return
	}
	for first := 0; first < w.out; first += step {
		n := min(step, w.out-first)
		m.q.unpack(w, w.mem.ptr, (*slab).ptr, ld, first, n)
		f(int64(first), int64(n), (*slab).ptr, int64(ld))
	}
}

func (m *lmHead) rowsOf() uint64     { return m.h + 4*uint64(m.r)*uint64(m.dim) }
func (m *lmHead) rowsHalved() uint64 { return m.hHalved + 2*uint64(m.r)*uint64(m.dim) }

// Probs computes distributions as gradients of soft labels, q − p, with all mass on token 0, whose
// own probability is in the loss, and reads them back.
func (q *queue) Probs(dst []float32, h, w compute.Buffer, n int) {
	const op = "Probs"
	check(len(w.Shape()) == 2, op, "dimensions of w", len(w.Shape()), 2)
	v := w.Shape()[0]
	check(len(dst) >= n*v, op, "len(dst)", len(dst), n*v)
	q.probs(op, h, w, n, func(r, m int) []float32 { return dst[r*v:][:m*v] }, func(int, []float32) {})
}

// LabelProbs reads back whole distributions, chunk by chunk, and picks the labels on the host.
func (q *queue) LabelProbs(dst, rest []float32, h, w compute.Buffer, ids []int32, k, n int) {
	const op = "LabelProbs"
	check(len(w.Shape()) == 2, op, "dimensions of w", len(w.Shape()), 2)
	v := w.Shape()[0]
	check(len(dst) >= n*k, op, "len(dst)", len(dst), n*k)
	check(len(ids) >= n*k, op, "len(ids)", len(ids), n*k)
	check(len(rest) >= n, op, "len(rest)", len(rest), n)
	for i, id := range ids[:n*k] {
		if int(id) >= v {
			panic(fmt.Sprintf("cuda: %s: row %d: id %d, vocabulary of %d", op, i/k, id, v))
		}
	}
	var some []float32
	q.probs(op, h, w, n, func(_, m int) []float32 {
		if len(some) < m*v {
			some = make([]float32, m*v)
		}
		return some[:m*v]
	}, func(r int, row []float32) {
		for j, id := range ids[r*k:][:k] {
			dst[r*k+j] = 0
			if id >= 0 {
				dst[r*k+j], row[id] = row[id], 0
			}
		}
		sum := 0.0
		for _, x := range row {
			sum += float64(x)
		}
		rest[r] = float32(sum)
	})
}

// probs reads the distributions of rows [r, r+m) into the memory that chunk returns, [m][V], and
// then calls each for every row.
func (q *queue) probs(op string, h, w compute.Buffer, n int, chunk func(r, m int) []float32, each func(r int, row []float32)) {
	hidden := q.dev.readOf(op, h, compute.F32, 0).width()
	v := w.Shape()[0]
	check(w.Shape()[1] == hidden, op, "columns of w", w.Shape()[1], hidden)
	hb := q.dev.readOf(op, h, compute.F32, n*hidden)
	lm := q.lmHead(op, hb, w, v, hidden, n)
	rows := lm.rows
	if rows == 0 || !q.scratch(&q.train.logits, "logits", 4*int64(rows)*int64(v+1), false) || !q.scratch(&q.train.labels, "labels", 4*int64(rows), false) {
		return
	}
	z := q.train.logits.ptr
	losses := z + 4*uint64(rows)*uint64(v)
	first := &compute.SoftLabels{K: 1, IDs: make([]int32, rows), Prob: make([]float32, rows)}
	scale := make([]float32, rows)
	for i := range scale {
		first.Prob[i], scale[i] = 1, 1
	}
	loss := make([]float32, rows)
	for r := 0; r < n; r += rows {
		m := min(rows, n-r)
		a := crossArgs{z: z, loss: losses, labels: q.train.labels.ptr, width: int64(v), k: 1}
		if !q.putLabels(&a, first, scale, v, 0, m) {
			return
		}
		lm.r, lm.n = r, m
		lm.logits()
		launch(q, softCE, m, 1, 1, &a)
		dst := chunk(r, m)
		q.readAt(z, bytesOf(dst))
		q.readAt(losses, bytesOf(loss[:m]))
		for i := range m {
			row := dst[i*v:][:v]
			row[0] = float32(math.Exp(-float64(loss[i])))
			each(r+i, row)
		}
	}
	runtime.KeepAlive(hb)
	runtime.KeepAlive(w)
}

// putLabels copies the labels and scales of rows [r, r+m) to the device.
func (q *queue) putLabels(a *crossArgs, l *compute.SoftLabels, scale []float32, v, r, m int) bool {
	size := 4*m + 64
	if l.Full != nil {
		size += 4 * m * v
	} else {
		size += 4 * m * (2*l.K + 1)
	}
	if !q.reserve(size) {
		return false
	}
	a.scale = q.put(bytesOf(scale[r:][:m]))
	if l.Full != nil {
		a.full = q.put(bytesOf(l.Full[r*v:][:m*v]))
		return true
	}
	if l.K > 0 {
		a.ids, a.prob = q.put(bytesOf(l.IDs[r*l.K:][:m*l.K])), q.put(bytesOf(l.Prob[r*l.K:][:m*l.K]))
	}
	if l.Tail != nil {
		a.tail = q.put(bytesOf(l.Tail[r:][:m]))
	}
	return true
}

// checkLabels panics if l lacks something for n rows of a vocabulary of v.
func checkLabels(l *compute.SoftLabels, v, n int) {
	if err := l.Check(v, n); err != nil {
		panic("cuda: SoftCE: " + err.Error())
	}
}

// treeTile is the number of keys of a block of tree_keys.
const treeTile = 32
