package computetest

import (
	"fmt"

	"talf/compute"
)

// bothWays runs blocks of rows that see one another, after contexts whose keys and values the same step
// writes, in spans of rows that see themselves alone.
func bothWays(b *bench, v variation) {
	tol := 1e-5
	if v.half {
		tol = 2e-2
	}
	for _, g := range b.geometries(v) {
		w := newWorld(b, g, false, v)
		const context, rows = 70, 17
		width := w.heads * w.vd
		text, block := w.text(context), w.text(rows)
		both := w.block(context, block, func(int) uint64 { return 1<<rows - 1 })
		causal := w.block(context, block, func(i int) uint64 { return 2<<i - 1 })

		alone := func(from, to int) *blockPlan { return w.alone(text, from, to) }
		got := w.runBlocks(both, alone(0, 64), alone(64, context))[:rows*width]
		seq := append(append([][]float32{}, text...), block...)
		for i := range rows {
			b.near(fmt.Sprintf("%v: row %d", g, i), got[i*width:][:width], w.referenceOf(seq, context+i), tol)
		}
		b.same(fmt.Sprintf("%v: a block after an earlier context", g), w.runBlocks(both), got)
		other := w.block(33, w.text(9), func(int) uint64 { return 1<<9 - 1 })
		other.own = w.free[rows:]
		b.same(fmt.Sprintf("%v: a block beside another", g), w.runBlocks(other, both)[9*width:], got)

		chain := w.chain(seq, context, context+rows)
		b.same(fmt.Sprintf("%v: a block whose rows see those before them is a chain", g), w.runBlocks(causal), w.run(chain))
	}
}

// A blockPlan is rows of one word of ancestors.
type blockPlan struct {
	prefix, first int // positions seen, and that of the first row
	rows          [][]float32
	own           []int32
	anc           []uint64
}

// block is rows after a prefix, of which row i sees those of bits(i).
func (w *world) block(prefix int, rows [][]float32, bits func(i int) uint64) *blockPlan {
	p := &blockPlan{prefix: prefix, first: prefix, rows: rows, own: w.free}
	for i := range rows {
		p.anc = append(p.anc, bits(i))
	}
	return p
}

// alone is positions [from,to) of a text, each of which sees itself.
func (w *world) alone(text [][]float32, from, to int) *blockPlan {
	p := &blockPlan{first: from, rows: text[from:to]}
	for i := from; i < to; i++ {
		p.own, p.anc = append(p.own, w.slot(i)), append(p.anc, 1<<(i-from))
	}
	return p
}

// runBlocks is run for blocks.
func (w *world) runBlocks(plans ...*blockPlan) []float32 {
	w.Helper()
	s := &compute.Step{Heads: w.heads}
	var x []float32
	for _, p := range plans {
		n := len(p.rows)
		s.Spans = append(s.Spans, compute.Span{
			Row: s.Rows, N: n, Prefix: p.prefix, Blocks: w.blocks[:(p.prefix+compute.BlockLen-1)/compute.BlockLen],
			Own: p.own[:n], Anc: p.anc, Stride: 1,
		})
		for i, row := range p.rows {
			s.Pos, s.Slot, x = append(s.Pos, int32(p.first+i)), append(s.Slot, p.own[i]), append(x, row...)
		}
		s.Rows += n
	}
	dst := w.alloc(compute.F32, s.Rows, w.heads*w.vd)
	w.q.Attend(dst, w.buffer(x, s.Rows, w.ld), w.kv, 1, &w.attn, s)
	return w.read(dst, s.Rows*w.heads*w.vd)
}
