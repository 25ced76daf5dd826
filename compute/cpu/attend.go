package cpu

import (
	"fmt"
	"math"
	"math/bits"
	"runtime"

	"talf/compute"
	"talf/internal/slab"
)

// attendRows is the most query rows (tokens × heads of a group) of a part, and
// attendScores the most scores, which bounds a worker's scratch memory. A group has at most
// attendHeads heads: more heads that share keys are divided, so that all workers get some.
const (
	attendRows   = 64
	attendScores = 1 << 19
	attendHeads  = 16
)

// attendTask computes one (span, some of its rows, kvHead, group of its query heads) per part.
//
// Every row's reduction runs over logical positions: the prefix, then the nodes that it sees by
// ascending node, or the last window of these. Nodes in between that the row does not see have
// weight 0, and fma(0, v, acc) is acc: the value is the same as in plain decoding. The sum of
// exponentials begins where the row's window does, wherever the part's first block lies.
type attendTask struct {
	dst, qkv []float32
	kv       *kvStore
	layer    int
	window   int // 0: all positions
	scale    float32
	limit    float32   // of scores, 0: none
	sinks    []float32 // [heads] or nil
	s        *compute.Step
	groups   int   // of the query heads of a KV head
	first    []int // first part of every span
	per      []int // rows of a part, by span
	prep     *prepareTask

	// writer holds for each block the span that writes to it in this pass: the pass
	// number in the upper half, the span in the lower.
	writer []uint64
	pass   uint32
}

// Attend stores keys and values and computes attention over each row's prefix
// and own ancestors.
func (q *Queue) Attend(dst, qkv compute.Buffer, kv compute.KV, layer int, a *compute.Attention, s *compute.Step) {
	const op = "Attend"
	prep := q.prepare(qkv, kv, layer, a, s)
	check(a.Window >= 0, op, "a negative window", a.Window, 0)
	st := kvOf(op, kv)
	t := &q.attend
	c := st.c
	check(s.Heads%c.KVHeads == 0, op, "query heads modulo KV heads", s.Heads%c.KVHeads, 0)
	t.dst = f32(op, dst, s.Rows*s.Heads*c.ValueDim())
	t.qkv = f32(op, qkv, s.Rows*c.Projection(s.Heads))
	t.kv, t.layer, t.window, t.s = st, layer, a.Window, s
	t.scale, t.limit, t.sinks = a.Scale, a.Cap, nil
	if t.scale == 0 {
		t.scale = float32(1 / math.Sqrt(float64(c.HeadDim)))
	}
	if a.Sinks != nil {
		t.sinks = f32(op, a.Sinks, s.Heads)
	}
	if layer < 0 || layer >= c.Layers {
		panic(fmt.Sprintf("cpu: %s: layer %d of %d", op, layer, c.Layers))
	}
	t.first, t.per = t.first[:0], t.per[:0]
	shared := s.Heads / c.KVHeads
	group := min(shared, attendHeads)
	t.groups = parts(shared, group)
	n, row, adds, bytes, whole := 0, 0, 0.0, 0.0, t.groups == 1
	for i := range s.Spans {
		p := &s.Spans[i]
		t.validate(p, i, row)
		row += p.N
		length := p.Prefix
		if t.window > 0 {
			length = min(length, t.window+block)
		}
		length += p.From + p.N
		per := min(attendRows, attendScores/(length+panel)) / group
		per = max(1, min(p.N, per))
		t.first, t.per = append(t.first, n), append(t.per, per)
		whole = whole && per >= p.N
		n += parts(p.N, per) * c.KVHeads * t.groups
		adds += float64(p.N*length) * float64(s.Heads*(c.HeadDim+c.ValueDim()))
		bytes += float64(length) * float64(4*c.KVHeads*(c.HeadDim+c.ValueDim()))
	}
	check(row == s.Rows, op, "rows of all spans", row, s.Rows)
	// A part that has all rows of its span prepares its own head.
	if t.prep = prep; !whole || !t.apart() {
		q.run(prep, prep.parts())
		t.prep = nil
	}
	// A part costs at least half a microsecond, however short.
	if nanos(adds, bytes)+float64(n)*500 < inline {
		q.pool.alone(t, n)
	} else {
		q.run(t, n)
	}
	runtime.KeepAlive(kv)
}

// apart reports whether no span writes to a block that another span reads or writes. A
// product takes whole panels of keys, so a span reads more of a block than it uses.
func (t *attendTask) apart() bool {
	if len(t.s.Spans) < 2 {
		return true
	}
	t.pass++
	for len(t.writer) < t.kv.blocks {
		t.writer = append(t.writer, 0)
	}
	mark := func(i int) uint64 { return uint64(t.pass)<<32 | uint64(i) }
	// free reports whether block b is span i's or has no owner.
	free := func(i int, b int32) bool {
		w := t.writer[b]
		return uint32(w>>32) != t.pass || w == mark(i)
	}
	for i := range t.s.Spans {
		p := &t.s.Spans[i]
		for _, s := range p.Own[p.From : p.From+p.N] {
			if !free(i, s/block) {
				return false
			}
			t.writer[s/block] = mark(i)
		}
	}
	for i := range t.s.Spans {
		p := &t.s.Spans[i]
		for _, b := range p.Blocks[p.Unseen(t.window):parts(p.Prefix, block)] {
			if !free(i, b) {
				return false
			}
		}
		for _, s := range p.Own[:p.From] {
			if !free(i, s/block) {
				return false
			}
		}
	}
	return true
}

func (t *attendTask) validate(p *compute.Span, i, row int) {
	const op = "Attend"
	check(p.Row == row, op, "a span's first row", p.Row, row)
	nodes := p.From + p.N
	if p.From < 0 || p.N < 0 || p.Prefix < 0 || len(p.Own) < nodes || p.Stride*64 < nodes || len(p.Anc) < nodes*p.Stride {
		panic(fmt.Sprintf("cpu: %s: span %d has nodes [%d,%d), %d own slots, %d words of ancestors in rows of %d",
			op, i, p.From, nodes, len(p.Own), len(p.Anc), p.Stride))
	}
	check(len(p.Blocks)*block >= p.Prefix, op, "positions in a span's blocks", len(p.Blocks)*block, p.Prefix)
	for _, b := range p.Blocks[p.Unseen(t.window):parts(p.Prefix, block)] {
		t.kv.checkSlot(op, b*block)
	}
	for _, s := range p.Own[:nodes] {
		t.kv.checkSlot(op, s)
	}
}

func (t *attendTask) run(w *worker, part int) {
	// The last span that starts at or before part. Empty spans share the start of the
	// span after them.
	i, end := 0, len(t.first)
	for end-i > 1 {
		if mid := (i + end) / 2; t.first[mid] <= part {
			i = mid
		} else {
			end = mid
		}
	}
	p := &t.s.Spans[i]
	part -= t.first[i]
	blocks := parts(p.N, t.per[i])
	r0 := part % blocks * t.per[i]
	t.rows(w, p, part/blocks, r0, min(t.per[i], p.N-r0))
}

// rows computes m rows of p from r0 for one group of the queries of a KV head.
func (t *attendTask) rows(w *worker, p *compute.Span, group, r0, m int) {
	var (
		kv     = t.kv
		hd, vd = kv.c.HeadDim, kv.c.ValueDim()
		hp     = panels(vd) * panel
		head   = group / t.groups
		shared = t.s.Heads / kv.c.KVHeads
		first  = head*shared + group%t.groups*attendHeads // query head
		g      = min(attendHeads, (head+1)*shared-first)
		rows   = m * g
		skip   = t.unseen(p, r0, m) // blocks of the prefix that no row sees
		blocks = p.Blocks[min(skip, len(p.Blocks)):]
		prefix = p.Prefix - min(p.Prefix, skip*block)
		last   = lastSeen(p, r0, m) // nodes [0,last) may be seen
		ld     = prefix + last + panel
		ldq    = kv.c.Projection(t.s.Heads)
	)
	if t.prep != nil {
		t.prep.head(w, head, p.Row, p.Row+p.N)
	}
	// One buffer: queries [rows][hd], results [rows][hp], scores [rows][ld].
	buf := w.buf(0, rows*(hd+hp+ld))
	q, o, s := buf[:rows*hd], buf[rows*hd:][:rows*hp], buf[rows*(hd+hp):][:rows*ld]
	for i := range m {
		copy(q[i*g*hd:][:g*hd], t.qkv[(p.Row+r0+i)*ldq+first*hd:])
	}
	w.k.Scale(q, t.scale)

	// Blocks of a head lie far apart, so each product prefetches what the next one
	// reads: after the last keys the first values, after the last values the next
	// head's keys.
	count := parts(prefix, block)
	for b := range count {
		next := kv.vals(kv.at(int(blocks[0]), t.layer, head))
		if b+1 < count {
			next = kv.keys(kv.at(int(blocks[b+1]), t.layer, head))
		}
		kv.scores(w, s[b*block:], ld, q, kv.at(int(blocks[b]), t.layer, head), 0, rows, next)
	}
	own := t.own(w, p.Own[:last], head)
	// A run shorter than a panel also scores the memory after it. The next run overwrites these
	// scores, and nothing reads the last run's.
	for n := 0; n < last; {
		u, off, e := own.run(n)
		kv.scores(w, s[prefix+n:], ld, q, u, off, rows, kvUnit{})
		n = e
	}

	for i := range m {
		node := p.From + r0 + i
		anc := p.Anc[node*p.Stride:][:p.Stride]
		for j := range g {
			r := i*g + j
			row := s[r*ld:][:prefix+last]
			n := prefix + pull(row[prefix:], anc)
			seen := row[:n]
			if t.window > 0 && n > t.window {
				seen = row[n-t.window : n]
				clear(row[:n-t.window])
			}
			sum := t.weigh(w, seen, first+j)
			push(row[prefix:], anc, n-prefix)
			// The query is no longer needed: its first element holds the row's sum.
			q[r*hd] = sum
		}
	}

	acc := false
	for b := range count {
		var next kvUnit
		if b+1 < count {
			next = kv.vals(kv.at(int(blocks[b+1]), t.layer, head))
		} else if head+1 < kv.c.KVHeads {
			next = kv.keys(kv.at(int(blocks[0]), t.layer, head+1))
		}
		kv.values(w, o, hp, s[b*block:], ld, kv.at(int(blocks[b]), t.layer, head), 0, rows, min(block, prefix-b*block), acc, next)
		acc = true
	}
	for n := 0; n < last; {
		u, off, e := own.run(n)
		kv.values(w, o, hp, s[prefix+n:], ld, u, off, rows, e-n, acc, kvUnit{})
		acc = true
		n = e
	}
	for i := range m {
		for j := range g {
			r := i*g + j
			x := o[r*hp:][:vd]
			w.k.Scale(x, 1/q[r*hd])
			copy(t.dst[((p.Row+r0+i)*t.s.Heads+first+j)*vd:][:vd], x)
		}
	}
}

// unseen returns the number of whole blocks of the prefix that precede the windows of
// nodes [From+r0, From+r0+m).
func (t *attendTask) unseen(p *compute.Span, r0, m int) int {
	if t.window == 0 {
		return 0
	}
	first := p.Prefix
	for i := range m {
		node := p.From + r0 + i
		first = min(first, p.Prefix+ancestors(p.Anc[node*p.Stride:][:p.Stride])-t.window)
	}
	return max(0, first) / block
}

// lastSeen returns the node after the last that one of m rows of p from r0 sees.
func lastSeen(p *compute.Span, r0, m int) (end int) {
	for i := range m {
		end = max(end, extent(p.Anc[(p.From+r0+i)*p.Stride:][:p.Stride]))
	}
	return end
}

// extent returns the node after the last in anc.
func extent(anc []uint64) int {
	for i := len(anc) - 1; i >= 0; i-- {
		if anc[i] != 0 {
			return i*64 + bits.Len64(anc[i])
		}
	}
	return 0
}

// ancestors counts the nodes in anc.
func ancestors(anc []uint64) int {
	n := 0
	for _, b := range anc {
		n += bits.OnesCount64(b)
	}
	return n
}

// pull moves the scores of the nodes in anc to the front and returns their number.
func pull(own []float32, anc []uint64) int {
	n := ancestors(anc)
	if n == extent(anc) {
		return n // a chain: they are already in front
	}
	n = 0
	for i, b := range anc {
		for ; b != 0; b &= b - 1 {
			own[n] = own[i*64+bits.TrailingZeros64(b)]
			n++
		}
	}
	return n
}

// push undoes pull and sets all other scores to 0.
func push(own []float32, anc []uint64, n int) {
	end := len(own)
	if n == extent(anc) {
		clear(own[n:])
		return
	}
	for i := len(anc) - 1; i >= 0; i-- {
		for b := anc[i]; b != 0; {
			top := 63 - bits.LeadingZeros64(b)
			b &^= 1 << top
			a := i*64 + top
			n--
			own[a] = own[n]
			clear(own[a+1 : end])
			end = a
		}
	}
	clear(own[:end])
}

// ownRows are one head's keys and values of the tree's own nodes, as runs of nodes that
// are adjacent in a block.
type ownRows struct {
	kv          *kvStore
	slots       []int32
	layer, head int
	copied      kvUnit // blocks in node order, if the slots are scattered
}

// own prepares the nodes in slots. Slots are normally one run cut at block boundaries.
// If they are scattered, copying them in node order is cheaper than a panel product for
// every few nodes. In bfloat16, values are stored in pairs of positions, so runs that
// begin inside a pair are copied too.
func (t *attendTask) own(w *worker, slots []int32, head int) ownRows {
	o := ownRows{kv: t.kv, slots: slots, layer: t.layer, head: head}
	runs, odd := 1, false
	for i := range slots {
		if i > 0 && o.joined(i) {
			continue
		}
		if i > 0 {
			runs++
		}
		odd = odd || slots[i]%2 != 0
	}
	kv := t.kv
	half := kv.c.Type == compute.BF16
	if !(half && odd) && (runs <= 4 || len(slots) >= 8*runs) {
		return o
	}
	// Positions after the last node are multiplied too, but their scores are ignored.
	n := parts(len(slots), block)
	if half {
		w.half = slab.Resize(w.half, n*kv.unit)
		o.copied.h = w.half
		clear(o.copied.h[(n-1)*kv.unit:])
	} else {
		o.copied.f = w.buf(1, n*kv.unit)
		clear(o.copied.f[(n-1)*kv.unit:])
	}
	for i, s := range slots {
		kv.move(o.block(i/block), i%block, kv.at(int(s)/block, t.layer, head), int(s)%block)
	}
	return o
}

// block returns a block of the copy.
func (o *ownRows) block(b int) (u kvUnit) {
	n := o.kv.unit
	if o.copied.h != nil {
		u.h = o.copied.h[b*n:][:n]
	} else {
		u.f = o.copied.f[b*n:][:n]
	}
	return u
}

// joined reports whether node i directly follows node i−1 in the same block.
func (o *ownRows) joined(i int) bool {
	return o.slots[i] == o.slots[i-1]+1 && o.slots[i]%block != 0
}

// run returns the block and offset of node n's run and the node after the run.
func (o *ownRows) run(n int) (u kvUnit, off, end int) {
	if o.copied.f != nil || o.copied.h != nil {
		b := n / block
		return o.block(b), 0, min(len(o.slots), (b+1)*block)
	}
	s := int(o.slots[n])
	for end = n + 1; end < len(o.slots) && o.joined(end); end++ {
	}
	return o.kv.at(s/block, o.layer, o.head), s % block, end
}
