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
	hidden := q.dev.bufferOf(op, h, compute.F32, 0).width()
	check(len(w.Shape()) == 2, op, "dimensions of w", len(w.Shape()), 2)
	v := w.Shape()[0]
	check(w.Shape()[1] == hidden, op, "columns of w", w.Shape()[1], hidden)
	check(len(scale) >= n, op, "len(scale)", len(scale), n)
	lb, dhb, hb := q.dev.bufferOf(op, loss, compute.F32, n), q.dev.bufferOf(op, dh, compute.F32, n*hidden), q.dev.bufferOf(op, h, compute.F32, n*hidden)
	checkLabels(labels, v, n)
	var dwb *buffer
	if dw != nil {
		dwb = q.dev.bufferOf(op, dw, compute.F32, v*hidden)
	}
	k, kw, wp := q.lmHead(op, w, v, hidden)
	rows := min(n, max(1, ceLogits/v))
	if rows == 0 {
		return
	}
	kl := max(1, labels.K)
	if !q.scratch(&q.train.logits, "logits", 4*int64(rows)*int64(v), false) || !q.scratch(&q.train.labels, "labels", 4*int64(rows*kl), false) {
		return
	}
	z := q.train.logits.ptr
	for r := 0; r < n; r += rows {
		m := min(rows, n-r)
		a := crossArgs{z: z, loss: lb.mem.ptr + 4*uint64(r), labels: q.train.labels.ptr, width: int64(v), k: int64(labels.K)}
		if !q.putLabels(&a, labels, scale, v, r, m) {
			return
		}
		dim := int64(hidden)
		hp := hb.mem.ptr + 4*uint64(r*hidden)
		q.logits(kw, z, hp, wp, m, v, hidden)
		launch(q, softCE, m, 1, 1, &a)
		q.gemm(kw, &gemmArgs{ // dh = dz·w
			c: dhb.mem.ptr + 4*uint64(r*hidden), a: z, b: wp, m: int64(m), n: dim, k: int64(v), ldc: dim, aRow: int64(v), aCol: 1, bRow: dim, bCol: 1,
			out: int64(v), in: dim,
		})
		if dwb != nil { // dw += dzᵀ·h
			q.gemm(k, &gemmArgs{
				c: dwb.mem.ptr, a: z, b: hp, m: int64(v), n: dim, k: int64(m), ldc: dim, aRow: 1, aCol: int64(v), bRow: dim, bCol: 1, beta: 1,
			})
		}
	}
	runtime.KeepAlive([]*buffer{lb, dhb, hb, dwb})
	runtime.KeepAlive(w)
}

// lmHead returns the kernels that multiply two buffers and a buffer by w, and w's address.
func (q *queue) lmHead(op string, w compute.Buffer, v, hidden int) (k, kw kernel, ptr uint64) {
	k, packed := gemmF32, gemmF32Packed
	if q.dev.cfg.BF16 {
		k, packed = gemmBF16, gemmBF16Packed
	}
	if pw, ok := w.(*weight); ok {
		pw = q.dev.weightOf(op, pw)
		check(pw.t == compute.F32, op, "type of the weight", int(pw.t), int(compute.F32))
		return k, packed, pw.mem.ptr
	}
	return k, k, q.dev.bufferOf(op, w, compute.F32, v*hidden).mem.ptr
}

// logits sets z [m][v] to h·wᵀ.
func (q *queue) logits(k kernel, z, h, w uint64, m, v, hidden int) {
	dim := int64(hidden)
	q.gemm(k, &gemmArgs{
		c: z, a: h, b: w, m: int64(m), n: int64(v), k: dim, ldc: int64(v), aRow: dim, aCol: 1, bRow: 1, bCol: dim,
		out: int64(v), in: dim, turned: 1,
	})
}

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
	hidden := q.dev.bufferOf(op, h, compute.F32, 0).width()
	v := w.Shape()[0]
	check(w.Shape()[1] == hidden, op, "columns of w", w.Shape()[1], hidden)
	hb := q.dev.bufferOf(op, h, compute.F32, n*hidden)
	_, kw, wp := q.lmHead(op, w, v, hidden)
	rows := min(n, max(1, ceLogits/v))
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
		q.logits(kw, z, hb.mem.ptr+4*uint64(r*hidden), wp, m, v, hidden)
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

func checkLabels(l *compute.SoftLabels, v, n int) {
	const op = "SoftCE"
	if l.Full != nil {
		check(len(l.Full) >= n*v, op, "len(Full)", len(l.Full), n*v)
		return
	}
	check(len(l.IDs) >= n*l.K, op, "len(IDs)", len(l.IDs), n*l.K)
	check(len(l.Prob) >= n*l.K, op, "len(Prob)", len(l.Prob), n*l.K)
	if l.Tail != nil {
		check(len(l.Tail) >= n, op, "len(Tail)", len(l.Tail), n)
	}
	for i, id := range l.IDs[:n*l.K] {
		if int(id) >= v || (id < 0 && l.Prob[i] != 0) {
			panic(fmt.Sprintf("cuda: %s: row %d: id %d with probability %g, vocabulary of %d", op, i/l.K, id, l.Prob[i], v))
		}
	}
}

// treeTile is the number of keys of a block of tree_keys.
const treeTile = 32
