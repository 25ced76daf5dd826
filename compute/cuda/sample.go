//go:build gpu && linux && cgo

package cuda

import (
	"runtime"
	"unsafe"

	"talf/compute"
)

// Rows of logits that tokens are drawn from are cut into bins, and those into pieces of blocks, as in sample.cu.
const (
	drawBin   = 128
	drawPiece = 32 * drawBin
)

// Draw draws tokens in the pass.
func (q *queue) Draw(tokens []int32, logits compute.Buffer, draws []compute.Draw, n int) bool {
	const op = "Draw"
	check(len(tokens) == n, op, "len(tokens)", len(tokens), n)
	check(len(draws) == n, op, "len(draws)", len(draws), n)
	v := q.dev.readOf(op, logits, compute.F32, 0).width()
	x := q.dev.readOf(op, logits, compute.F32, n*v)
	p := &q.pass
	if n == 0 || !p.on || n > passRows || q.dev.failure() != nil {
		return false
	}
	rows, live := q.counted(n, false)
	// A pass whose arguments are too many is sent before it is complete, and then its memory is used again.
	if p.at+20*rows+32 > len(p.pinned) {
		return false
	}
	pieces := (v + drawPiece - 1) / drawPiece
	bins := 8 * rows * pieces * (drawPiece / drawBin)
	if !q.scratch(&q.part, "sums of weights that tokens are drawn by", int64(bins+4*rows*pieces), false) {
		return false
	}
	a := drawArgs{
		x: x.mem.ptr, draws: q.putIn(bytesOf(draws), int(unsafe.Sizeof(draws[0]))*rows), live: live,
		bins: q.part.ptr, tops: q.part.ptr + uint64(bins), width: int64(v), pieces: int64(pieces),
	}
	out := bytesOf(tokens)
	p.late = append(p.late, late{unsafe.Pointer(unsafe.SliceData(out)), p.at, len(out)})
	p.reads = append(p.reads, passRead{p.at, len(out), out})
	a.tokens = q.room(4 * rows)
	launch(q, drawTops, pieces, rows, 1, &a)
	launch(q, drawBins, pieces, rows, 1, &a)
	launch(q, drawFind, rows, 1, 1, &a)
	runtime.KeepAlive(x)
	return true
}
