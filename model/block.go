package model

import (
	"context"
	"errors"
	"fmt"

	"talf/compute"
)

// A BlockSegment is what a block drafter runs of one sequence in a pass; see arch.Block.
type BlockSegment struct {
	Seq *Seq
	// Feat are the target's states at the taps for positions from Seq.Len() on, which the pass adds to Seq.
	Feat   []Feature
	Anchor int32 // the token after all of Seq, whose block is run, in a linear head after some Feat; −1: no block
}

// A blockHead is what a block drafter has beside its layers, and what its passes use.
type blockHead struct {
	at    []int         // boundaries of the target
	fused *compute.Norm // of what fc makes of its states
	next  nextHead

	taps compute.Buffer // states of context rows [rows][taps·Hidden]
	q    compute.Buffer // [rows][Heads·HeadDim]
	kv   compute.Buffer // keys and values [rows][2·KVHeads·HeadDim]
	conv convolution
	cap  int

	// Of a linear head.
	maps          []compute.Linear // of each row [Hidden][2·Hidden]
	last          compute.Buffer   // what fc and its norm make of a segment's last position [segments][Hidden]
	z, y          compute.Buffer   // what the maps read, [blocks][2·Hidden], and what one makes of it, [blocks][Hidden]
	segs, anchors []int32          // of the blocks of a pass

	// Ancestor bits of a block's rows, which see the whole block or those before them, and of rows of context,
	// which see themselves.
	both, causal, self []uint64

	branches []*Branch // of the batch
	kinds    []stepKind
	ids, pos []int32
	feat     []int32
	slots    []int32
	spans    []compute.Span
	steps    []compute.Step
}

// A stepKind is what layers must share to share the steps of a pass.
type stepKind struct {
	group  int
	causal bool
}

// A blockLayer is the attention of a block drafter's layer, and DFlash 2's convolutions.
type blockLayer struct {
	in        *compute.Norm  // of rows, not of context
	q, kv     compute.Linear // [Heads·HeadDim][Hidden], [2·KVHeads·HeadDim][Hidden]
	kind      int            // of its steps
	attn, ffn *conv          // or nil
	post      *compute.Norm  // of the feed-forward network's input, if that is convolved
}

// A piece is context rows [lo,hi) of a segment, or its block.
type piece struct {
	seg, lo, hi int
	block       bool
}

// contextRows is the most rows of context in a span, which sees no other.
const contextRows = 64

// ForwardBlocks runs segments in one pass. Node n of a segment of the output is row n of its block; those rows
// that predict have logits. The output is valid as Forward's is. If it fails, sequences are as before; if the
// KV pool has too few blocks, it fails with an ErrKVFull before it has done anything.
//
// The bits of results depend only on the sequence, as Forward's do, not on the passes that its positions ran in.
func (m *Model) ForwardBlocks(ctx context.Context, batch []BlockSegment) (*Output, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	h, a := m.block, &m.act
	rest, blocks, err := m.planBlocks(batch)
	if err != nil {
		return nil, err
	}
	done := false
	defer func() {
		for i, b := range h.branches {
			if done {
				b.seq.n += len(batch[i].Feat)
			}
			b.Drop()
		}
	}()
	size := m.spec.Block.Size
	rows, wanted := blocks*size, blocks*m.spec.Block.Drafts()
	err = errors.Join(m.grow(rest+rows, wanted), h.grow(m, a.rows))
	if err == nil {
		err = m.growHidden(&a.out[1], rows)
	}
	if err != nil {
		return nil, fmt.Errorf("run %d rows: %w", rest+rows, err)
	}
	a.out[0], a.out[1] = a.out[1], a.out[0]
	o := &a.out[0]
	m.fillBlocks(o, batch)
	m.can.Until(ctx)
	defer m.can.Until(context.Background())
	ran := m.runPieces(ctx, o, batch) && m.readOut(ctx, o, rows)
	err = m.q.Sync(ctx)
	if err == nil && !ran {
		err = ctx.Err()
	}
	if err != nil {
		a.out[0], a.out[1] = a.out[1], a.out[0]
		return nil, fmt.Errorf("run %d rows: %w", rest+rows, err)
	}
	done = true
	return o, nil
}

// planBlocks checks a batch, opens its branches and gives them slots. It counts rows of context and blocks.
func (m *Model) planBlocks(batch []BlockSegment) (context, blocks int, err error) {
	h := m.block
	if h == nil {
		panic("model: ForwardBlocks of a model that is not a block drafter")
	}
	h.branches = h.branches[:0]
	last := 0
	nodes := func(g *BlockSegment) int {
		if g.Anchor >= 0 {
			return len(g.Feat) + m.spec.Block.Size
		}
		return len(g.Feat)
	}
	for i := range batch {
		g := &batch[i]
		n := nodes(g)
		if g.Anchor >= 0 {
			blocks++
		}
		if m.spec.Block.Linear && g.Anchor >= 0 && len(g.Feat) == 0 {
			panic(fmt.Sprintf("model: segment %d: a block of a linear head without the feature before it", i))
		}
		if context += len(g.Feat); n == 0 || int(g.Anchor) >= m.spec.Vocab {
			return 0, 0, fmt.Errorf("segment %d: %d features and the token %d, want some and one of %d", i, len(g.Feat), g.Anchor, m.spec.Vocab)
		}
		for j, f := range g.Feat {
			if !m.Reads(f) {
				panic(fmt.Sprintf("model: segment %d: feature %d has not all taps that the head reads", i, j))
			}
		}
		row, err := turnRow(m.spec, g.Seq.turn, g.Seq.n+n-1)
		if err != nil {
			return 0, 0, fmt.Errorf("segment %d: the last row %w", i, err)
		}
		last = max(last, row)
	}
	if err := m.growRope(last + 1); err != nil {
		return 0, 0, err
	}
	defer func() {
		if err != nil {
			for _, b := range h.branches {
				b.Drop()
			}
		}
	}()
	take, tails := 0, m.tails[:0]
	for i := range batch {
		b := batch[i].Seq.Branch(batch[i].Seq.n)
		h.branches = append(h.branches, b)
		for g := range m.groups() {
			whole, tail, _ := b.needs(g, nodes(&batch[i]))
			if take += whole; tail >= 0 {
				tails = append(tails, tail)
			}
		}
	}
	m.tails = tails
	if err := m.blocks.Need(take + m.blocks.Copies(tails)); err != nil {
		return 0, 0, err
	}
	for i, b := range h.branches {
		if err := b.reserve(nodes(&batch[i])); err != nil {
			return 0, 0, err
		}
	}
	return context, blocks, nil
}

// fillBlocks lays out the output of a pass.
func (m *Model) fillBlocks(o *Output, batch []BlockSegment) {
	x, a := &m.spec.Block, &m.act
	o.m, o.Logits, o.Taps, o.rows = m, a.logits, nil, 0
	o.seg, o.want, o.ok, o.stale = o.seg[:0], o.want[:0], o.ok[:0], false
	o.drawn.begin()
	o.best.k = 0
	for _, g := range batch {
		s := outSeg{row: o.rows + x.Row(0), from: x.Row(0), logit: len(o.want), want: WantAll}
		if g.Anchor >= 0 {
			s.n = x.Drafts()
			for k := range s.n {
				o.want = append(o.want, int32(s.row+k))
			}
			o.rows += x.Size
		}
		o.seg = append(o.seg, s)
	}
}

// runPieces computes hidden states in steps of at most MaxRows rows. It reports false if ctx ended before that
// was done.
func (m *Model) runPieces(ctx context.Context, o *Output, batch []BlockSegment) bool {
	h, most, size := m.block, m.opt.MaxRows, m.spec.Block.Size
	h.ids, h.pos, h.feat, h.slots, h.spans, h.steps = h.ids[:0], h.pos[:0], h.feat[:0], h.slots[:0], h.spans[:0], h.steps[:0]
	var step []piece
	h.segs, h.anchors = h.segs[:0], h.anchors[:0]
	rows, r := 0, 0
	flush := func() bool {
		n, ok := m.runStep(ctx, o, batch, step, r)
		r, rows, step = r+n, 0, step[:0]
		return ok
	}
	add := func(p piece, n int) bool {
		if rows+n > most && rows > 0 && !flush() {
			return false
		}
		step, rows = append(step, p), rows+n
		return true
	}
	for i := range batch {
		n := len(batch[i].Feat)
		for lo := 0; lo < n; {
			hi := min(n, lo+min(contextRows, most))
			if !add(piece{seg: i, lo: lo, hi: hi}, hi-lo) {
				return false
			}
			lo = hi
		}
		if batch[i].Anchor >= 0 && !add(piece{seg: i, block: true}, size) {
			return false
		}
	}
	return flush()
}

// runStep runs the pieces of one step; the rows of its blocks, which it counts, are those of the output from r on.
func (m *Model) runStep(ctx context.Context, o *Output, batch []BlockSegment, step []piece, r int) (rows int, ok bool) {
	h, a, q := m.block, &m.act, m.q
	blocks, context, steps := m.layOut(batch, step)
	n := blocks + context
	if context > 0 { // a.norm is what layers read: rows of blocks, then those of context
		m.gatherTaps(batch, step)
		q.Linear(a.x, h.taps, &m.fc, compute.Store, context)
		q.Norm(a.x, a.x, h.fused, context)
		q.Gather(a.norm, blocks, 0, a.x, a.iota[:context])
		h.keepLast(m, batch, step)
	}
	switch {
	case blocks > 0 && h.maps != nil:
		h.linear(m, batch, step)
	case blocks > 0:
		q.Embed(a.x, 0, m.embed, h.ids[len(h.ids)-blocks:])
	}
	queries := m.spec.Heads * m.spec.HeadDim
	for i := range m.layers {
		y := &m.layers[i]
		l := y.block
		if ctx.Err() != nil {
			return blocks, false
		}
		if blocks > 0 {
			q.Norm(a.norm, a.x, l.in, blocks)
			h.conv.before(m, l.attn, blocks)
			q.Linear(h.q, a.norm, &l.q, compute.Store, blocks)
			q.Gather(a.qkv, 0, 0, h.q, a.iota[:blocks])
		}
		q.Linear(h.kv, a.norm, &l.kv, compute.Store, n)
		q.Gather(a.qkv, 0, queries, h.kv, a.iota[:n])
		q.Attend(a.att, a.qkv, m.kv, y.kv.Layer, &y.attn, &steps[l.kind]) // queries of context are of no use
		if blocks == 0 {
			continue
		}
		if ctx.Err() != nil {
			return blocks, false
		}
		m.addConvolved(a.att, &y.o, l.attn, blocks)
		if l.ffn != nil {
			q.Norm(a.norm, a.x, l.post, blocks)
			h.conv.before(m, l.ffn, blocks)
			q.Linear(a.ffn, a.norm, &y.gateUp, compute.Store, blocks)
		} else {
			q.Linear(a.ffn, a.x, &y.gateUp, compute.Store, blocks)
		}
		m.addConvolved(a.ffn, &y.down, l.ffn, blocks)
	}
	switch {
	case blocks > 0 && h.maps != nil:
		q.Gather(o.Hidden, r, 0, a.x, a.iota[:blocks])
	case blocks > 0:
		q.Norm(a.norm, a.x, m.norm, blocks)
		q.Gather(o.Hidden, r, 0, a.norm, a.iota[:blocks])
	}
	return blocks, true
}

// keepLast keeps what a linear head reads of the context of a step: that of each segment's last position.
func (h *blockHead) keepLast(m *Model, batch []BlockSegment, step []piece) {
	if h.maps == nil {
		return
	}
	row := 0
	for _, p := range step {
		if p.block {
			continue
		}
		if row += p.hi - p.lo; p.hi == len(batch[p.seg].Feat) {
			m.q.Gather(h.last, p.seg, 0, m.act.x, m.act.iota[row-1:row])
		}
	}
}

// linear computes the rows of a linear head's blocks.
func (h *blockHead) linear(m *Model, batch []BlockSegment, step []piece) {
	q, w := m.q, m.spec.Hidden
	from := len(h.segs)
	for _, p := range step {
		if p.block {
			h.segs, h.anchors = append(h.segs, int32(p.seg)), append(h.anchors, batch[p.seg].Anchor)
		}
	}
	n := len(h.segs) - from
	q.Embed(h.z, 0, m.embed, h.anchors[from:])
	q.Gather(h.z, 0, w, h.last, h.segs[from:])
	for k := range h.maps {
		q.Linear(h.y, h.z, &h.maps[k], compute.Store, n)
		for b := range n {
			q.Gather(m.act.x, b*len(h.maps)+k, 0, h.y, m.act.iota[b:b+1])
		}
	}
}

// layOut appends the rows of a step: those of blocks first. steps are by kind.
func (m *Model) layOut(batch []BlockSegment, step []piece) (blocks, context int, steps []compute.Step) {
	h, size := m.block, m.spec.Block.Size
	pos, ids := len(h.pos), 0
	for _, p := range step {
		if s := batch[p.seg].Seq; p.block {
			h.ids = append(h.ids, batch[p.seg].Anchor)
			for k := range size {
				h.pos = append(h.pos, int32(s.turn+s.n+len(batch[p.seg].Feat)+k))
				if k > 0 {
					h.ids = append(h.ids, m.spec.Block.Mask)
				}
			}
			ids += size
		}
	}
	for _, p := range step {
		for i := p.lo; i < p.hi; i++ {
			s := batch[p.seg].Seq
			h.pos = append(h.pos, int32(s.turn+s.n+i))
		}
		context += p.hi - p.lo
	}
	blocks = ids
	first := len(h.steps)
	for _, kind := range h.kinds {
		from, row, slot := len(h.spans), 0, len(h.slots)
		span := func(p piece) {
			g, b := &batch[p.seg], h.branches[p.seg]
			own := b.own[kind.group]
			s := compute.Span{Row: row, N: p.hi - p.lo, Anc: h.self[:p.hi-p.lo], Stride: 1, Own: own[p.lo:p.hi]}
			if p.block {
				n := len(g.Feat)
				s.N, s.Own, s.Anc, s.Prefix = size, own[n:n+size], h.both, b.base+n
				if s.Blocks = b.seq.kv.Of[kind.group][:nblocks(s.Prefix)]; kind.causal {
					s.Anc = h.causal
				}
			}
			h.spans, h.slots, row = append(h.spans, s), append(h.slots, s.Own...), row+s.N
		}
		for _, p := range step {
			if p.block {
				span(p)
			}
		}
		for _, p := range step {
			if !p.block {
				span(p)
			}
		}
		h.steps = append(h.steps, compute.Step{
			Rows: row, Heads: m.spec.Heads, Pos: h.pos[pos:], Slot: h.slots[slot:], Spans: h.spans[from:],
		})
	}
	return blocks, context, h.steps[first:]
}

// gatherTaps copies the states that the context of a step is made of.
func (m *Model) gatherTaps(batch []BlockSegment, step []piece) {
	h, row := m.block, 0
	for _, p := range step {
		feat := batch[p.seg].Feat[p.lo:p.hi]
		for i := 0; i < len(feat); {
			j, from := i, len(h.feat)
			for ; j < len(feat) && feat[j].Taps == feat[i].Taps; j++ {
				h.feat = append(h.feat, feat[j].Row)
			}
			for t, boundary := range h.at {
				m.q.Gather(h.taps, row, t*m.spec.Hidden, feat[i].Taps.Of(boundary), h.feat[from:])
			}
			row, i = row+j-i, j
		}
	}
}

// addConvolved adds a product of n rows to the residual stream, between if c is not nil by way of a convolution.
func (m *Model) addConvolved(x compute.Buffer, l *compute.Linear, c *conv, n int) {
	if c == nil {
		m.q.Linear(m.act.x, x, l, compute.Accumulate, n)
		return
	}
	v := &m.block.conv
	m.q.Linear(v.out, x, l, compute.Store, n)
	v.convolve(m, v.out, c, 1, n)
	m.can.Variants.AddScaled(m.act.x, v.out, nil, 1, n)
}

// grow makes the buffers large enough for passes of rows.
func (h *blockHead) grow(m *Model, rows int) error {
	if rows <= h.cap {
		return nil
	}
	s := m.spec
	var errs error
	alloc := func(dst *compute.Buffer, cols int) {
		b, err := m.dev.Alloc(compute.F32, rows, cols)
		*dst, errs = b, errors.Join(errs, err)
	}
	alloc(&h.taps, s.FeatureSize())
	alloc(&h.q, s.Heads*s.HeadDim)
	alloc(&h.kv, 2*s.KVHeads*s.HeadDim)
	if h.maps != nil {
		alloc(&h.last, s.Hidden)
		alloc(&h.z, 2*s.Hidden)
		alloc(&h.y, s.Hidden)
	}
	if g := s.Block.Group; g > 0 {
		alloc(&h.conv.out, s.Hidden)
		alloc(&h.conv.coef, 4*s.Hidden/g)
	}
	if errs == nil {
		h.cap = rows
	}
	return errs
}
