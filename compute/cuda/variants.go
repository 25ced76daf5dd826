//go:build gpu && linux && cgo

package cuda

import (
	"fmt"
	"math"
	"runtime"

	"talf/compute"
)

var _ compute.Varier = (*queue)(nil)

// The arguments of kernels/variants.cu.

type addScaledArgs struct {
	norm  normArgs
	scale uint64
}

type normColumnsArgs struct {
	norm normArgs
	ld   int64
}

type scaleCapArgs struct {
	x, peaks, live uint64
	n, width       int64
	scale, limit   uint64
}

type scatterScaledArgs struct {
	dst, src, weights, rows, live uint64
	width                         int64
}

// AddScaled adds scale·norm(x) to dst.
func (q *queue) AddScaled(dst, x compute.Buffer, norm *compute.Norm, scale float32, n int) {
	const op = "AddScaled"
	h := q.dev.bufferOf(op, dst, compute.F32, 0).width()
	d, s := q.dev.bufferOf(op, dst, compute.F32, n*h), q.dev.readOf(op, x, compute.F32, n*h)
	if n == 0 {
		return
	}
	a := addScaledArgs{norm: q.normArgsOf(op, d.mem.ptr, s.mem.ptr, norm, h), scale: uint64(math.Float32bits(scale))}
	n, a.norm.live = q.counted(n, false)
	launch(q, addScaled, n, 1, 1, &a)
	runtime.KeepAlive(d)
	runtime.KeepAlive(s)
	runtime.KeepAlive(norm)
}

// NormColumns normalises columns of x in place.
func (q *queue) NormColumns(x compute.Buffer, col int, norm *compute.Norm, n int) {
	const op = "NormColumns"
	h := q.dev.readOf(op, norm.Weight, compute.F32, 1).n
	ld := q.dev.bufferOf(op, x, compute.F32, 0).width()
	if col < 0 || col+h > ld {
		panic(fmt.Sprintf("cuda: %s: columns [%d,%d) of rows of %d", op, col, col+h, ld))
	}
	b := q.dev.bufferOf(op, x, compute.F32, n*ld)
	if n == 0 {
		return
	}
	first := b.mem.ptr + 4*uint64(col)
	a := normColumnsArgs{norm: q.normArgsOf(op, first, first, norm, h), ld: int64(ld)}
	n, a.norm.live = q.counted(n, false)
	launch(q, normColumns, n, 1, 1, &a)
	runtime.KeepAlive(b)
	runtime.KeepAlive(norm)
}

// ScaleCap multiplies rows of x by scale, caps them softly unless limit is 0, and notes their peaks.
func (q *queue) ScaleCap(x, peaks compute.Buffer, scale, limit float32, n int) {
	const op = "ScaleCap"
	w := q.dev.bufferOf(op, x, compute.F32, 0).width()
	b := q.dev.bufferOf(op, x, compute.F32, n*w)
	a := scaleCapArgs{x: b.mem.ptr, width: int64(w), scale: uint64(math.Float32bits(scale)), limit: uint64(math.Float32bits(limit))}
	per := (w + compute.PeakLen - 1) / compute.PeakLen
	if peaks != nil {
		a.peaks = q.dev.bufferOf(op, peaks, compute.F32, n*per).mem.ptr
	}
	if n*w == 0 {
		return
	}
	n, a.live = q.counted(n, false)
	a.n = int64(n)
	const warps = 8
	launch(q, scaleCap, min((n*per+warps-1)/warps, 4096), 1, 1, &a)
	runtime.KeepAlive(b)
	runtime.KeepAlive(peaks)
}

// ScatterAdd adds weighted rows of src to rows of dst.
func (q *queue) ScatterAdd(dst, src compute.Buffer, rows []int32, weights []float32) {
	const op = "ScatterAdd"
	n, h := len(rows), q.dev.bufferOf(op, dst, compute.F32, 0).width()
	d, s := q.dev.bufferOf(op, dst, compute.F32, 0), q.dev.readOf(op, src, compute.F32, n*h)
	if len(weights) < n {
		panic(fmt.Sprintf("cuda: %s: %d weights for %d rows", op, len(weights), n))
	}
	for _, r := range rows {
		if r < 0 || (int(r)+1)*h > d.n {
			panic(fmt.Sprintf("cuda: %s: row %d of a destination of shape %v", op, r, d.shape))
		}
	}
	m, live := q.counted(n, false)
	if n == 0 || !q.reserve(8*m+32) {
		return
	}
	launch(q, scatterScaled, m, 1, 1, &scatterScaledArgs{
		dst: d.mem.ptr, src: s.mem.ptr, weights: q.putIn(bytesOf(weights[:n]), 4*m), rows: q.putIn(bytesOf(rows), 4*m), live: live, width: int64(h),
	})
	runtime.KeepAlive(d)
	runtime.KeepAlive(s)
}
