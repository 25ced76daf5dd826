//go:build gpu && linux && cgo

package cuda

import (
	"unsafe"

	"talf/compute"
)

// Choose chooses nodes of a draft tree in the pass.
func (q *queue) Choose(c *compute.Choice) bool {
	const op = "Choose"
	b := &c.Best
	check(len(c.IDs) == c.N*c.K, op, "len(IDs)", len(c.IDs), c.N*c.K)
	check(len(c.LogProb) == c.N*c.K, op, "len(LogProb)", len(c.LogProb), c.N*c.K)
	check(len(c.Score) == c.N, op, "len(Score)", len(c.Score), c.N)
	check(len(c.Anc) == c.N*c.Stride, op, "len(Anc)", len(c.Anc), c.N*c.Stride)
	check(len(b.Tokens) == c.M && len(b.Rows) == c.M && len(b.Score) == c.M, op, "the length of what is chosen", len(b.Tokens), c.M)
	check(len(b.Anc) == c.M*c.Stride, op, "len(Best.Anc)", len(b.Anc), c.M*c.Stride)
	check(c.M > 0 && c.M <= c.N*c.K, op, "M", c.M, c.N*c.K)
	check(c.Node >= 0 && c.Node+c.M <= 64*c.Stride, op, "the last node's number", c.Node+c.M, 64*c.Stride)
	p := &q.pass
	size := 8*c.N*c.K + 8*c.N + 8*len(c.Anc) + 16*c.M + 8*len(b.Anc) + 16*8
	// A pass with too many arguments is sent before it is complete, and its memory is reused.
	if c.N*c.K > compute.MostCandidates || !p.on || p.at+size > len(p.pinned) || q.dev.failure() != nil {
		return false
	}
	a := chooseArgs{
		ids: q.putLate(bytesOf(c.IDs), 4*len(c.IDs)), logp: q.putLate(bytesOf(c.LogProb), 4*len(c.LogProb)),
		score: q.putLate(bytesOf(c.Score), 8*c.N), above: q.putLate(bytesOf(c.Anc), 8*len(c.Anc)),
		n: int64(c.N), k: int64(c.K), m: int64(c.M), words: int64(c.Stride), row0: int64(c.Row), node: int64(c.Node),
	}
	a.tokens, a.rows = q.decided(bytesOf(b.Tokens)), q.decided(bytesOf(b.Rows))
	a.scores, a.anc = q.decided(bytesOf(b.Score)), q.decided(bytesOf(b.Anc))
	launch(q, chooseNodes, 1, 1, 1, &a)
	return true
}

// decided returns the device address of x, whose bytes the pass decides and reads back.
func (q *queue) decided(x []byte) uint64 {
	p := &q.pass
	p.late = append(p.late, late{unsafe.Pointer(unsafe.SliceData(x)), p.at, len(x)})
	p.reads = append(p.reads, passRead{p.at, len(x), x})
	return q.room(len(x))
}

// putLate is putIn unless the pass decides x.
func (q *queue) putLate(x []byte, size int) uint64 {
	p := &q.pass
	for i := range p.late {
		if l := &p.late[i]; l.host == unsafe.Pointer(unsafe.SliceData(x)) && l.n == len(x) {
			return p.twin.ptr + uint64(l.at)
		}
	}
	return q.putIn(x, size)
}
