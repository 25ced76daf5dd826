//go:build gpu && linux && cgo

package cuda

import (
	"fmt"
	"math"
	"runtime"

	"talf/compute"
)

// check panics with a message if a caller broke the contract.
func check(ok bool, op, what string, got, want int) {
	if !ok {
		panic(fmt.Sprintf("cuda: %s: %s is %d, want %d", op, what, got, want))
	}
}

// Embed sets dst[r][col:col+In] to row ids[r] of table.
func (q *queue) Embed(dst compute.Buffer, col int, table compute.Weight, ids []int32) {
	const op = "Embed"
	w := q.dev.weightOf(op, table)
	d := q.dev.bufferOf(op, dst, compute.F32, 0)
	ld := d.width()
	q.dev.bufferOf(op, dst, compute.F32, len(ids)*ld)
	if col < 0 || col+w.in > ld {
		panic(fmt.Sprintf("cuda: Embed: columns [%d,%d) of rows of %d", col, col+w.in, ld))
	}
	for _, id := range ids {
		if id < 0 || int(id) >= w.out {
			panic(fmt.Sprintf("cuda: Embed: id %d, want 0..%d", id, w.out-1))
		}
	}
	n, live := q.counted(len(ids), false)
	if len(ids) == 0 || !q.reserve(4*n+16) {
		return
	}
	a := embedArgs{dst: d.mem.ptr, ids: q.putLate(bytesOf(ids), 4*n), live: live, in: int64(w.in), ld: int64(ld), col: int64(col)}
	for _, w := range w.all() {
		a.w, a.out, a.first = w.mem.ptr, int64(w.out), int64(w.first)
		launch(q, w.use.embed, n, 1, 1, &a)
	}
	runtime.KeepAlive(d)
	runtime.KeepAlive(w)
}

// Gather copies rows of src to rows of dst from row, at column col.
func (q *queue) Gather(dst compute.Buffer, row, col int, src compute.Buffer, rows []int32) {
	const op = "Gather"
	d, s := q.dev.bufferOf(op, dst, compute.F32, 0), q.dev.readOf(op, src, compute.F32, 0)
	ld, lds := d.width(), s.width()
	q.dev.bufferOf(op, dst, compute.F32, (row+len(rows))*ld)
	if row < 0 || col < 0 || col+lds > ld {
		panic(fmt.Sprintf("cuda: Gather: row %d, columns [%d,%d) of rows of %d", row, col, col+lds, ld))
	}
	for _, r := range rows {
		if r < 0 || (int(r)+1)*lds > s.n {
			panic(fmt.Sprintf("cuda: Gather: row %d of a source of shape %v", r, s.shape))
		}
	}
	n, live := q.counted(len(rows), false)
	if len(rows) == 0 || !q.reserve(4*n+16) {
		return
	}
	launch(q, gatherRows, n, 1, 1, &gatherArgs{
		dst: d.mem.ptr + 4*uint64(row*ld+col), src: s.mem.ptr, rows: q.putLate(bytesOf(rows), 4*n), live: live, ld: int64(ld), width: int64(lds),
	})
	runtime.KeepAlive(d)
	runtime.KeepAlive(s)
}

// normArgsOf returns a kernel's arguments for norm n over rows of width elements. A nil
// n leaves rows unchanged.
func (q *queue) normArgsOf(op string, dst, x uint64, n *compute.Norm, width int) normArgs {
	a := normArgs{dst: dst, x: x, width: int64(width)}
	if n != nil {
		a.weight, a.bias, a.eps, a.center = q.norm(op, n, width)
	}
	return a
}

// norm returns the parts of a norm over rows of width elements.
func (q *queue) norm(op string, n *compute.Norm, width int) (weight, bias, eps uint64, center int64) {
	w := q.dev.readOf(op, n.Weight, compute.F32, width)
	check(w.n == width, op, "elements of the norm's weight", w.n, width)
	if n.Bias != nil {
		bias = q.dev.readOf(op, n.Bias, compute.F32, width).mem.ptr
	}
	if n.Center {
		center = 1
	}
	return w.mem.ptr, bias, uint64(math.Float32bits(n.Eps)), center
}

// Norm normalises the rows of x.
func (q *queue) Norm(dst, x compute.Buffer, norm *compute.Norm, n int) {
	const op = "Norm"
	h := q.dev.readOf(op, norm.Weight, compute.F32, 1).n
	d, s := q.dev.bufferOf(op, dst, compute.F32, n*h), q.dev.readOf(op, x, compute.F32, n*h)
	if n == 0 {
		return
	}
	a := q.normArgsOf(op, d.mem.ptr, s.mem.ptr, norm, h)
	n, a.live = q.counted(n, false)
	launch(q, normRows, n, 1, 1, &a)
	runtime.KeepAlive(d)
	runtime.KeepAlive(s)
	runtime.KeepAlive(norm)
}

// SwiGLU computes silu(g)·u.
func (q *queue) SwiGLU(dst, gu compute.Buffer, n int) {
	const op = "SwiGLU"
	f := q.dev.bufferOf(op, dst, compute.F32, 0).width()
	d, s := q.dev.bufferOf(op, dst, compute.F32, n*f), q.dev.readOf(op, gu, compute.F32, 2*n*f)
	if n*f == 0 {
		return
	}
	n, live := q.counted(n, false)
	launch(q, swiglu, min((n*f+255)/256, 1024), 1, 1, &swigluArgs{dst: d.mem.ptr, gu: s.mem.ptr, live: live, n: int64(n), width: int64(f)})
	runtime.KeepAlive(d)
	runtime.KeepAlive(s)
}

// TopK writes the k largest of each row.
func (q *queue) TopK(ids, logp, logits compute.Buffer, k, n int) {
	const op = "TopK"
	v := q.dev.bufferOf(op, logits, compute.F32, 0).width()
	if k < 1 || k > v {
		panic(fmt.Sprintf("cuda: TopK: %d of %d logits", k, v))
	}
	i, p := q.dev.bufferOf(op, ids, compute.I32, n*k), q.dev.bufferOf(op, logp, compute.F32, n*k)
	x := q.dev.bufferOf(op, logits, compute.F32, n*v)
	if n == 0 {
		return
	}
	n, live := q.counted(n, false)
	q.topK(i.mem.ptr, p.mem.ptr, x, k, n, live)
	runtime.KeepAlive(i)
	runtime.KeepAlive(p)
}

// Rows of logits are cut into pieces, as in kernels.cu, whose best share at most topBytes per launch.
const (
	topPiece  = 2048
	topPieces = 1024
	topBytes  = 8 << 20
	topRows   = 1 << 15 // of a launch: grids are lower than 2¹⁶
)

// topK finds the k largest of rows of logits, and their log-probabilities, in two stages.
func (q *queue) topK(ids, logp uint64, x *buffer, k, n int, live uint64) {
	width := x.width()
	pieces := (width + topPiece - 1) / topPiece
	if pieces > topPieces {
		panic(fmt.Sprintf("cuda: TopK: %d logits, want at most %d", width, topPieces*topPiece))
	}
	a := topArgs{
		ids: ids, logp: logp, x: x.mem.ptr, live: live,
		width: int64(width), k: int64(k), pieces: int64(pieces), kept: int64(min(k, topPiece)),
	}
	rows := topRows
	if pieces > 1 {
		best, sums := 8*pieces*int(a.kept), 8*pieces // bytes of a row
		rows = min(rows, max(1, topBytes/(best+sums)))
		if !q.scratch(&q.part, "the best of pieces", int64(min(rows, n)*(best+sums)), false) {
			return
		}
		a.best = q.part.ptr
		a.sums = a.best + uint64(min(rows, n)*best)
	}
	for a.row0 = 0; int(a.row0) < n; a.row0 += int64(rows) {
		m := min(rows, n-int(a.row0))
		launch(q, topkPieces, pieces, m, 1, &a)
		if pieces > 1 {
			launch(q, topkMerge, m, 1, 1, &a)
		}
	}
	runtime.KeepAlive(x)
}

// linearRows is the most rows of one launch of a product, which bounds the sums that its
// blocks share.
const linearRows = 256

// Linear computes l over the rows of x into dst.
func (q *queue) Linear(dst, x compute.Buffer, l *compute.Linear, epi compute.Epilogue, n int) {
	const op = "Linear"
	w := q.dev.weightOf(op, l.W)
	d, s := q.dev.bufferOf(op, dst, compute.F32, n*w.out), q.dev.bufferOf(op, x, compute.F32, n*w.in)
	a := linearArgs{in: int64(w.in), act: int64(l.Act), ld: int64(w.out), limit: uint64(math.Float32bits(l.Limit))}
	if epi == compute.Accumulate {
		a.add = 1
	}
	if l.Bias != nil {
		a.bias = q.dev.bufferOf(op, l.Bias, compute.F32, w.out).mem.ptr
	}
	var up *weight
	if l.Up != nil {
		up = q.dev.weightOf(op, l.Up)
		check(up.out == w.out && up.in == w.in, op, "elements of the second weight", up.out*up.in, w.out*w.in)
		check(up.like(w) || up.four() && w.four(), op, "the second weight's type", int(up.t), int(w.t))
		if l.UpBias != nil {
			a.upBias = q.dev.bufferOf(op, l.UpBias, compute.F32, w.out).mem.ptr
		}
	}
	norm := q.normArgsOf(op, 0, 0, l.Norm, w.in)
	if q.bulky(w, n) {
		norm.x, a.dst, a.w, a.out = s.mem.ptr, d.mem.ptr, w.mem.ptr, int64(w.out)
		if up != nil {
			a.up = up.mem.ptr
		}
		q.library(w, norm, a, n)
		n = 0
	}
	n, live := q.counted(n, false)
	single := q.dev.single(w.t)
	step := linearRows
	if single {
		step = singleRows
	}
	for r := 0; r < n; r += step {
		m := min(step, n-r)
		if live != 0 {
			norm.live = live + uint64(r/linearRows*8)
			a.live = norm.live
		}
		norm.x = s.mem.ptr + 4*uint64(r*w.in)
		a.dst = d.mem.ptr + 4*uint64(r*w.out)
		if single && !q.singleProduct(w, up, &norm, a, m) || !single && !q.product(w, up, &norm, a, m) {
			break
		}
	}
	runtime.KeepAlive(d)
	runtime.KeepAlive(s)
	runtime.KeepAlive(l)
}

// singleRows is the most rows of one launch of a product with one plane. Its blocks share no sums, so there may be
// more: all of a pass that is collected, and few enough that a multiprocessor's cache keeps them for all outputs.
const singleRows = 1024

// stagedOutputs is the number of outputs of a block that reads its rows once for all of them. Others have a group.
const stagedOutputs = 128

// occupied reports whether so many blocks keep enough of the device busy: with fewer, smaller blocks are faster, though
// they read more. The bits are the same.
func (d *device) occupied(blocks int) bool { return 3*blocks >= 2*d.info.SMs }

// The kernels of a layout: of embeddings, of the rows that products take, and of products of fewest rows. Rows that are
// prepared by splitSums, the last of the kernels for rows, serve products that need no sums, too.
type layout struct{ embed, rows, linear, staged kernel }

// layout returns those of a weight that is no stack.
func (w *weight) layout() layout {
	switch {
	case w.t == compute.F32:
		return layout{embedF32, foursRows, linearF32, kernelCount}
	case w.t == compute.BF16:
		return layout{embedBF16, splitRows, linearBF16, stagedBF16x16}
	case w.t == compute.Q8:
		return layout{embedQ8, splitRows, linearQ8, stagedQ8x16}
	case w.kind == compute.KeptQ4_K:
		return layout{embedQ4K, splitSums, linearQ4K, stagedQ4Kx16}
	case w.kind == compute.KeptQ6_K:
		return layout{embedQ6K, splitRows, linearQ6K, stagedQ6Kx16}
	}
	return layout{embedQ4, splitRows, linearQ4, stagedQ4x16}
}

// What a product does with what is at its destination.
const (
	accumulate = 1
	gate       = 2 // multiplies it
)

// actClampedUp is kernels.cu's act_clamped_up.
const actClampedUp = int64(compute.ClampedSwiGLU) + 1

// product runs n rows, at most linearRows. In a, what the rows and the epilogue have is set.
func (q *queue) product(w, up *weight, norm *normArgs, a linearArgs, n int) bool {
	if !q.splitRows(w, up, norm, &a, n) {
		return false
	}
	if up == nil || up.like(w) {
		return q.runs(w, up, a, n)
	}
	// Two weights whose outputs are in different layouts: first one product and its activation, then the other, which
	// multiplies it.
	dst := a.dst
	if a.add == accumulate {
		if !q.scratch(&q.gated, "gated products", 4*int64(n)*int64(w.out), false) {
			return false
		}
		a.dst = q.gated.ptr
	}
	first, second := a, a
	first.add, first.upBias = 0, 0
	second.add, second.bias, second.upBias, second.act = gate, a.upBias, 0, int64(compute.Identity)
	if compute.Activation(a.act) == compute.ClampedSwiGLU {
		second.act = actClampedUp
	}
	if !q.runs(w, nil, first, n) || !q.runs(up, nil, second, n) {
		return false
	}
	if a.add == accumulate {
		launch(q, finishRows, min((n*w.out+255)/256, 4096), 1, 1, &linearArgs{dst: dst, part: a.dst, live: a.live, rows: a.rows, out: a.ld, add: accumulate, ld: a.ld})
	}
	return true
}

// splitRows makes what products of n rows with two weights read of the rows.
func (q *queue) splitRows(w, up *weight, norm *normArgs, a *linearArgs, n int) bool {
	// Products read fragments of rows up to the next 64.
	const behind = 4096
	rows := w.use.rows
	if up != nil {
		rows = max(rows, up.use.rows)
	}
	size := int64(w.units()) * 8 * int64(n) * 16
	if rows != foursRows {
		size = int64(w.units()) * int64((n+7)/8) * (2*512 + 8*4) // and sums
	}
	if !q.scratch(&q.rows, "rows of activations", size+behind, false) {
		return false
	}
	norm.dst = q.rows.ptr
	launch(q, rows, n, 1, 1, norm)
	a.x, a.rows = q.rows.ptr, int64(n)
	return true
}

// runs multiplies by each run of a stack, or of two that are alike.
func (q *queue) runs(w, up *weight, a linearArgs, n int) bool {
	dst, bias, upBias := a.dst, a.bias, a.upBias
	for i, w := range w.all() {
		at := 4 * uint64(w.first)
		a.w, a.dst, a.out, a.splits = w.mem.ptr, dst+at, int64(w.out), int64(w.splits)
		if bias != 0 {
			a.bias = bias + at
		}
		if upBias != 0 {
			a.upBias = upBias + at
		}
		if up != nil {
			a.up = up.all()[i].mem.ptr
		}
		if !q.run(w, a, n) {
			return false
		}
	}
	return true
}

// run multiplies by a weight that is no stack, or by two.
func (q *queue) run(w *weight, a linearArgs, n int) bool {
	weights := 1
	if a.up != 0 {
		weights = 2
	}
	l, rows := &w.use, 8
	k := l.linear
	if w.t == compute.F32 {
		if n > 8 {
			k, rows = linearF32x16, 16
		}
	} else {
		for rows < n && rows < 64 {
			rows *= 2
			k++
		}
	}
	blocks, groups := (n+rows-1)/rows, w.groups()
	if wide := (w.out + stagedOutputs - 1) / stagedOutputs; rows > 8 && w.t != compute.F32 && q.dev.occupied(blocks*wide*w.splits*weights) {
		k, groups = l.staged+(k-l.linear-1), wide
	}
	if !q.scratch(&q.tickets, "tickets of products", 4*int64(w.groups()*blocks), true) {
		return false
	}
	if weights*w.splits > 1 {
		if !q.scratch(&q.part, "partial sums", 4*int64(weights*w.splits*n)*int64(w.out), false) {
			return false
		}
		a.part = q.part.ptr
	}
	a.tickets = q.tickets.ptr
	launch(q, k, blocks, groups, w.splits*weights, &a)
	return true
}

// singles are the kernels of products with one plane: rows and outputs of a block, which with two weights has half of
// each.
var singles = [...]struct {
	kernel        kernel
	rows, outputs int
}{{singleBF16x16, 16, 64}, {singleBF16x64, 64, 128}, {singleBF16x128, 128, 128}, {singleBF16x256, 256, 192}}

// singleOf returns the index of the one that serves n rows of a product of so many outputs: the one of most rows that
// is not half empty and occupies the device. The bits are the same.
func (d *device) singleOf(outputs, n int) int {
	at := 0
	if n > singles[0].rows {
		at = 1
	}
	for i := 2; i < len(singles); i++ {
		if s := singles[i]; 2*n > s.rows && d.occupied((n+s.rows-1)/s.rows*((outputs+s.outputs-1)/s.outputs)) {
			at = i
		}
	}
	return at
}

// singleProduct runs n rows, at most singleRows, in one plane.
func (q *queue) singleProduct(w, up *weight, norm *normArgs, a linearArgs, n int) bool {
	if !q.scratch(&q.rows, "rows of activations", int64(w.units())*2*int64((n+15)/16)*512, false) {
		return false
	}
	norm.dst = q.rows.ptr
	launch(q, roundRows, n, 1, 1, norm)
	a.x, a.rows = q.rows.ptr, int64(n)
	a.w, a.out, a.splits = w.mem.ptr, int64(w.out), int64(w.splits)
	weights := 1
	if up != nil {
		a.up, weights = up.mem.ptr, 2
	}
	s := singles[q.dev.singleOf(w.out*weights, n)]
	launch(q, s.kernel, (n+s.rows-1)/s.rows, (w.out*weights+s.outputs-1)/s.outputs, 1, &a)
	return true
}

// MoveKV copies slots in every layer, in order.
func (q *queue) MoveKV(kv compute.KV, dst, src []int32) {
	const op = "MoveKV"
	st := q.dev.storeOf(op, kv)
	check(len(dst) == len(src), op, "len(dst)", len(dst), len(src))
	blocks := st.Blocks()
	for i := range src {
		checkSlot(op, src[i], blocks)
		checkSlot(op, dst[i], blocks)
	}
	if len(src) == 0 || !q.reserve(8*len(src)+32) {
		return
	}
	launch(q, moveSlots, st.c.Layers, st.c.KVHeads, 1, &moveArgs{
		dst: q.put(bytesOf(dst)), src: q.put(bytesOf(src)), n: int64(len(src)), size: int64(st.c.Type.Size()), kv: st.args(),
	})
	runtime.KeepAlive(st)
}
