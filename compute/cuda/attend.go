//go:build gpu && linux && cgo

package cuda

import (
	"fmt"
	"math"
	"math/bits"
	"runtime"

	"talf/compute"
)

// chunk is the number of positions that one block of an attention kernel sums, and queries the
// number of rows times heads of a group that a block of attend_bf16_64 sums them for. Blocks of the
// other attention kernels have few queries, or fewest where heads are wide and keys in f32.
const (
	chunk   = 128
	queries = 64
	few     = 16
	fewest  = 8
)

// partBytes bounds the memory of the chunks' sums. Larger steps run in parts.
const partBytes = 128 << 20

// A step is the part of a compute.Step that attention needs, on the device until the queue next waits. It
// keeps that Step alive, so that its address is not reused for another one in the meantime.
type step struct {
	s      *compute.Step
	st     *store
	window int
	parts  []stepPart
	rows   uint64 // of row
	blocks uint64 // of prefixes
	own    uint64 // slots of trees
	anc    uint64
	ld     int    // of paths
	paths  uint64 // [rows][ld]
}

// A stepPart is rows [row, row+n) of a step.
type stepPart struct {
	row, n int
	chunks int // of the longest row
	items  uint64
	count  int // of items
	deep   int // most rows of an item
}

// Attend stores keys and values and computes attention over each row's prefix
// and own ancestors.
func (q *queue) Attend(dst, qkv compute.Buffer, kv compute.KV, layer int, a *compute.Attention, s *compute.Step) {
	const op = "Attend"
	st := q.dev.storeOf(op, kv)
	c := st.c
	heads := s.Heads + 2*c.KVHeads
	d := q.dev.bufferOf(op, dst, compute.F32, s.Rows*s.Heads*c.HeadDim)
	x := q.dev.bufferOf(op, qkv, compute.F32, s.Rows*heads*c.HeadDim)
	rope := q.dev.bufferOf(op, a.Rope, compute.F32, 0)
	check(a.Window >= 0, op, "a negative window", a.Window, 0)
	check(s.Heads%c.KVHeads == 0, op, "query heads modulo KV heads", s.Heads%c.KVHeads, 0)
	if layer < 0 || layer >= c.Layers {
		panic(fmt.Sprintf("cuda: %s: layer %d of %d", op, layer, c.Layers))
	}
	if a.RotDim < 0 || a.RotDim > c.HeadDim || a.RotDim%2 != 0 {
		panic(fmt.Sprintf("cuda: %s: %d of %d elements of a head are rotated", op, a.RotDim, c.HeadDim))
	}
	p := prepareArgs{
		qkv: x.mem.ptr, rope: rope.mem.ptr, rot: int64(a.RotDim), qHeads: int64(s.Heads), layer: int64(layer), kv: st.args(),
	}
	if a.QNorm != nil {
		p.qWeight, p.qBias, p.qEps, p.qCenter = q.norm(op, a.QNorm, c.HeadDim)
	}
	if a.KNorm != nil {
		p.kWeight, p.kBias, p.kEps, p.kCenter = q.norm(op, a.KNorm, c.HeadDim)
	}
	// Root and quotient in float32, each rounded once.
	scale, wide, sinks := a.Scale, c.HeadDim > narrowDim || a.Cap != 0, uint64(0)
	if scale == 0 {
		scale = 1 / float32(math.Sqrt(float64(c.HeadDim)))
	}
	if a.Sinks != nil {
		sinks = q.dev.readOf(op, a.Sinks, compute.F32, s.Heads).mem.ptr
	}
	checkPositions(op, s, a.RotDim, rope)
	t := q.stepOf(op, s, a.Window, st)
	if t == nil {
		return // no rows, or the device has failed
	}
	prep := prepareF32
	if c.Type == compute.BF16 {
		prep = prepareBF16
	}
	p.rows = t.rows
	rows, live := q.counted(s.Rows, false)
	p.live = live
	launch(q, prep, rows, (heads+3)/4, 1, &p)
	for _, part := range t.parts {
		// Several parts are launched exactly as they are: such passes are rare.
		rows, live := part.n, uint64(0)
		if len(t.parts) == 1 {
			rows, live = q.counted(part.n, false)
		}
		size := 4 * int64(rows*s.Heads*part.chunks) * int64(c.HeadDim+2)
		if !q.scratch(&q.part, "partial sums", size, false) {
			return
		}
		first := t.rows + uint64(part.row*rowBytes)
		group := s.Heads / c.KVHeads
		att, per := attendF32, few
		switch {
		case c.Type == compute.BF16 && rows*group <= few: // of the pass's bucket, so that its graph serves all of it
			att = attendBF16x16
		case c.Type == compute.BF16:
			att, per = attendBF16x64, queries
		case wide:
			per = fewest
		}
		if wide {
			att += attendWideF32 - attendF32
		}
		z := (part.deep*group + per - 1) / per
		items, liveItems := q.counted(part.count, true)
		launch(q, att, items, c.KVHeads, z, &attendArgs{
			part: q.part.ptr, qkv: x.mem.ptr + 4*uint64(part.row*heads*c.HeadDim), rows: first, items: part.items, live: liveItems,
			blocks: t.blocks, paths: t.paths + 4*uint64(part.row*t.ld), qHeads: int64(s.Heads), layer: int64(layer), ld: int64(t.ld), chunks: int64(part.chunks),
			scale: uint64(math.Float32bits(scale)), cap: uint64(math.Float32bits(a.Cap)), kv: st.args(),
		})
		launch(q, attendSum, rows, s.Heads, 1, &attendSumArgs{
			dst: d.mem.ptr + 4*uint64(part.row*s.Heads*c.HeadDim), part: q.part.ptr, rows: first, live: live, sinks: sinks,
			qHeads: int64(s.Heads), dim: int64(c.HeadDim), chunks: int64(part.chunks),
		})
	}
	runtime.KeepAlive(d)
	runtime.KeepAlive(x)
	runtime.KeepAlive(a)
	runtime.KeepAlive(st)
}

// checkPositions panics unless every row has a position that the layer's table of angles has.
func checkPositions(op string, s *compute.Step, rot int, rope *buffer) {
	check(len(s.Pos) >= s.Rows && len(s.Slot) >= s.Rows, op, "the shorter of Pos and Slot", min(len(s.Pos), len(s.Slot)), s.Rows)
	for _, p := range s.Pos[:s.Rows] {
		if p < 0 || (int(p)+1)*rot > rope.n {
			panic(fmt.Sprintf("cuda: %s: position %d, the table has %d", op, p, rope.n/max(1, rot)))
		}
	}
}

// validate panics unless the rows, blocks and nodes of s are those of st. It runs once a step, not once a
// layer, because it looks at every block of the prefixes.
func validate(op string, st *store, window int, s *compute.Step) {
	blocks := st.Blocks()
	for _, slot := range s.Slot[:s.Rows] {
		checkSlot(op, slot, blocks)
	}
	row := 0
	for i := range s.Spans {
		p := &s.Spans[i]
		check(p.Row == row, op, "a span's first row", p.Row, row)
		row += p.N
		nodes := p.From + p.N
		if p.From < 0 || p.N < 0 || p.Prefix < 0 || len(p.Own) < nodes || p.Stride*64 < nodes || len(p.Anc) < nodes*p.Stride {
			panic(fmt.Sprintf("cuda: %s: span %d has nodes [%d,%d), %d own slots, %d words of ancestors in rows of %d",
				op, i, p.From, nodes, len(p.Own), len(p.Anc), p.Stride))
		}
		check(len(p.Blocks)*positions >= p.Prefix, op, "positions in a span's blocks", len(p.Blocks)*positions, p.Prefix)
		for _, b := range p.Blocks[p.Unseen(window) : (p.Prefix+positions-1)/positions] {
			checkSlot(op, b*positions, blocks)
		}
		check(p.Late == nil || len(s.Spans) == 1 && len(p.Late) == p.N*p.Stride, op, "words of a single span's late ancestors", len(p.Late), p.N*p.Stride)
		for _, o := range p.Own[:nodes] {
			checkSlot(op, o, blocks)
		}
	}
	check(row == s.Rows, op, "rows of all spans", row, s.Rows)
}

// stepOf returns s on the device, uploaded unless an earlier layer did that; nil if it has no rows or the
// device has failed.
func (q *queue) stepOf(op string, s *compute.Step, window int, st *store) *step {
	c := st.c
	for _, t := range q.steps {
		if t.s == s && t.st == st && t.window == window {
			return t
		}
	}
	validate(op, st, window, s)
	if s.Rows == 0 {
		return nil
	}
	t := &step{s: s, st: st, window: window}
	b := &q.build
	b.reset(s.Heads/c.KVHeads, window)
	for i := range s.Spans {
		b.span(&s.Spans[i], s)
	}
	b.cut(s.Heads * (c.HeadDim + 2) * 4)
	t.ld = b.deepest
	if q.pass.on {
		t.ld = power(t.ld, 16)
		for i := range b.parts {
			b.parts[i].chunks = power(b.parts[i].chunks, 8)
		}
	}
	n, live := q.counted(len(b.rows), false)
	items, blocks, own, anc := q.padded(len(b.items), itemBytes), q.padded(len(b.blocks), 4), q.padded(len(b.own), 4), q.padded(len(b.anc), 8)
	if !q.reserve(rowBytes*n + items + blocks + own + anc + 4*n*t.ld + 16*6) {
		return nil
	}
	t.rows = q.putIn(bytesOf(b.rows), rowBytes*n)
	first := q.putIn(bytesOf(b.items), items)
	for i := range b.parts {
		p := b.parts[i]
		p.items += first
		t.parts = append(t.parts, p)
	}
	if blocks > 0 {
		t.blocks = q.putIn(bytesOf(b.blocks), blocks)
	}
	t.own = q.putIn(bytesOf(b.own), own)
	if s.Spans[0].Late != nil {
		t.anc = q.putLate(bytesOf(s.Spans[0].Late), anc)
	} else {
		t.anc = q.putIn(bytesOf(b.anc), anc)
	}
	t.paths = q.room(4 * n * t.ld)
	launch(q, paths, n, 1, 1, &pathsArgs{paths: t.paths, rows: t.rows, own: t.own, anc: t.anc, live: live, ld: int64(t.ld)})
	q.steps = append(q.steps, t)
	return t
}

// A stepBuilder lays out a step for the device.
type stepBuilder struct {
	group, window int
	rows          []row
	items         []item
	parts         []stepPart
	bunches       []bunch
	blocks, own   []int32
	anc           []uint64
	deepest       int // most ancestors of a row, itself included
}

// reset begins another step in the memory of the last one.
func (b *stepBuilder) reset(group, window int) {
	*b = stepBuilder{
		group: group, window: window, rows: b.rows[:0], items: b.items[:0], parts: b.parts[:0],
		bunches: b.bunches[:0], blocks: b.blocks[:0], own: b.own[:0], anc: b.anc[:0],
	}
}

// A bunch is the rows of a span that one block of the kernel handles with all their heads.
type bunch struct {
	row, n int
	common int  // leading positions that all its rows share
	chain  bool // each row has all positions of the one before it
}

// span appends the rows of p.
func (b *stepBuilder) span(p *compute.Span, s *compute.Step) {
	blocks, own := int32(len(b.blocks)), int32(len(b.own))
	// The kernel reads whole chunks: positions before the windows have no weight but must exist.
	all, there := p.Blocks[:(p.Prefix+positions-1)/positions], int32(0)
	switch n := p.Unseen(b.window); {
	case n < len(all):
		there = all[n]
	case p.From+p.N > 0:
		there = p.Own[0] / positions
	}
	for _, at := range all {
		if at < 0 {
			at = there
		}
		b.blocks = append(b.blocks, at)
	}
	b.own = append(b.own, p.Own[:p.From+p.N]...)
	per := max(1, queries/b.group)
	for i := range p.N {
		node := p.From + i
		anc := p.Anc[node*p.Stride:][:node/64+1]
		if p.Late != nil {
			anc = p.Anc[node*p.Stride:][:p.Stride] // as a Choice lays them out
		}
		n := 0
		for _, w := range anc {
			n += bits.OnesCount64(w)
		}
		b.deepest = max(b.deepest, n)
		first := 0
		if b.window > 0 {
			first = max(0, p.Prefix+n-b.window)
		}
		r := len(b.rows)
		b.rows = append(b.rows, row{
			pos: s.Pos[p.Row+i], slot: s.Slot[p.Row+i], prefix: int32(p.Prefix), len: int32(p.Prefix + n), first: int32(first),
			blocks: blocks, own: own, words: int32(len(anc)), anc: int64(len(b.anc)),
		})
		b.anc = append(b.anc, anc...)
		if i%per == 0 {
			b.bunches = append(b.bunches, bunch{row: r, n: 1, common: p.Prefix + n, chain: true})
			continue
		}
		last := &b.bunches[len(b.bunches)-1]
		last.n++
		if p.Late != nil {
			last.common, last.chain = p.Prefix, false // rows may share any ancestors or none
			continue
		}
		last.common = min(last.common, p.Prefix+b.shared(last.row, anc))
		before := &b.rows[r-1]
		last.chain = last.chain && b.shared(r-1, anc) == int(before.len-before.prefix)
	}
}

// shared returns how many ancestors, from the root on, row r shares with a row whose
// ancestors are anc.
func (b *stepBuilder) shared(r int, anc []uint64) int {
	f := &b.rows[r]
	n := 0
	for i, w := range b.anc[f.anc:][:f.words] {
		var o uint64
		if i < len(anc) {
			o = anc[i]
		}
		if diff := w ^ o; diff != 0 {
			return n + bits.OnesCount64(w&(diff&-diff-1))
		}
		n += bits.OnesCount64(w)
	}
	return n
}

// cut groups bunches into parts so that a part's sums, chunkBytes for each chunk of each
// row, fit into partBytes.
func (b *stepBuilder) cut(chunkBytes int) {
	for i := 0; i < len(b.bunches); {
		p := stepPart{row: b.bunches[i].row, items: uint64(len(b.items) * itemBytes)}
		for ; i < len(b.bunches); i++ {
			u := &b.bunches[i]
			chunks := p.chunks
			for _, r := range b.rows[u.row:][:u.n] {
				chunks = max(chunks, (int(r.len)+chunk-1)/chunk)
			}
			if p.n > 0 && (p.n+u.n)*chunks*chunkBytes > partBytes {
				break
			}
			p.chunks = chunks
			p.n += u.n
			b.bunch(&p, u)
		}
		p.count = len(b.items) - int(p.items)/itemBytes
		b.parts = append(b.parts, p)
	}
}

// bunch appends the items of u: one for each chunk that its rows share, or see more and more of; one
// per row for the other chunks.
func (b *stepBuilder) bunch(p *stepPart, u *bunch) {
	rows := b.rows[u.row:][:u.n]
	first, last := int(rows[0].first), 0
	for _, r := range rows {
		first, last = min(first, int(r.first)), max(last, int(r.len))
	}
	for c := first / chunk; c*chunk < last; c++ {
		if (c+1)*chunk <= u.common {
			b.items = append(b.items, item{row: int32(u.row - p.row), rows: int32(u.n), chunk: int32(c)})
			p.deep = max(p.deep, u.n)
			continue
		}
		began := false
		for i, r := range rows {
			if int(r.len) <= c*chunk || int(r.first) >= (c+1)*chunk {
				continue // in a chain, these are the first and the last rows
			}
			if !began || !u.chain {
				b.items = append(b.items, item{row: int32(u.row - p.row + i), chunk: int32(c)})
				began = true
			}
			last := &b.items[len(b.items)-1]
			last.rows++
			p.deep = max(p.deep, int(last.rows))
		}
	}
}
