package computetest

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"talf/compute"
)

type geometry struct{ heads, kvHeads, headDim int }

// geometries cover grouped queries and head sizes below, at and above a panel, some of
// them not powers of two.
var geometries = []geometry{{4, 2, 8}, {3, 3, 16}, {6, 2, 20}, {2, 1, 64}, {1, 1, 34}}

// wideGeometries have heads of more than 128 elements.
var wideGeometries = []geometry{{3, 1, 138}, {2, 2, 256}}

// latentGeometries have values of less than a panel and of more; in one of them many heads share keys.
var latentGeometries = []geometry{{35, 1, 20}, {4, 2, 66}}

// geometries returns all of them. Variations and short runs get one with grouped queries
// and one above a panel; variations in a short run get one of these.
func (b *bench) geometries(v variation) []geometry {
	if v.latent {
		return latentGeometries
	}
	if v.wide {
		return wideGeometries
	}
	if i := slices.Index(slices.Concat(variations, variants), v); testing.Short() && i >= 0 {
		return []geometry{geometries[2+2*((i+i/4)%2)]}
	}
	if testing.Short() || v != (variation{}) {
		return []geometry{geometries[2], geometries[4]}
	}
	return geometries
}

// A world is a KV store and random projections for it. The order of its blocks is random,
// and every slot holds rubbish before it is written.
type world struct {
	*bench
	variation
	heads, kvh, hd int
	vd             int // elements of a value
	ld             int
	kv             compute.KV
	attn           compute.Attention
	rot            int // rotated elements of a head
	table          []float32
	qn, kn         []float32 // weights of the norms, or nil
	sink           []float32 // of every head, or nil
	blocks         []int32   // of positions
	free           []int32   // slots for tree nodes
	runs           int       // plans that ran
}

// A variation is what attention may have besides Llama's.
type variation struct {
	part   bool // only a part of each head is rotated
	norms  bool // of queries and keys
	window int
	half   bool // keys and values are kept in bfloat16
	wide   bool // heads are wide

	// Of queues with Variants:
	scale, limit float32 // of scores; 0: the usual scale, no limit
	sinks        bool

	latent bool // values are parts of keys, behind what is rotated
}

// variations have windows that end within a block, at its end, and on the row
// itself.
var variations = []variation{
	{part: true},
	{norms: true},
	{window: 20},
	{part: true, norms: true, window: 45},
	{window: 32},
	{window: 1},
	{half: true},
	{part: true, norms: true, window: 45, half: true},
	{wide: true, window: 45},
	{wide: true, part: true, norms: true, half: true},
}

// variants are variations for queues with Variants.
var variants = []variation{
	{scale: 0.4, limit: 1.5},
	{sinks: true, window: 20},
	{part: true, norms: true, scale: 0.3, limit: 2, sinks: true, half: true},
}

// latents are variations for queues with Latent.
var latents = []variation{{part: true, latent: true}, {part: true, latent: true, half: true, scale: 0.2}}

// varied runs f for each variation that the device knows.
func (b *bench) varied(f func(b *bench, v variation)) {
	all := variations
	if b.q.Abilities().Variants != nil {
		all = slices.Concat(all, variants)
	}
	if b.q.Abilities().Latent != nil {
		all = slices.Concat(all, latents)
	}
	for _, v := range all {
		b.Logf("%+v", v)
		f(b, v)
	}
}

const (
	worldPos = 160 // positions in blocks
	worldOwn = 256 // slots for tree nodes
	layers   = 2
)

func newWorld(b *bench, g geometry, scattered bool, v variation) *world {
	b.Helper()
	heads, kvh, hd := g.heads, g.kvHeads, g.headDim
	w := &world{bench: b, variation: v, heads: heads, kvh: kvh, hd: hd, rot: hd}
	if v.part {
		w.rot = hd / 4 * 2
	}
	c := compute.KVConfig{Layers: layers, KVHeads: kvh, HeadDim: hd}
	if v.latent {
		c.Latent = hd - w.rot
	}
	w.vd, w.ld = c.ValueDim(), c.Projection(heads)
	if v.half {
		c.Type = compute.BF16
	}
	kv, err := b.dev.NewKV(c)
	if err != nil {
		b.Fatal(err)
	}
	const blocks = (worldPos + worldOwn) / compute.BlockLen
	// Grown in two steps: the contents must survive the second.
	for _, n := range []int{3, blocks} {
		if err := kv.Grow(n); err != nil {
			b.Fatal(err)
		}
		if kv.Blocks() < n {
			b.Fatalf("%d blocks after Grow(%d)", kv.Blocks(), n)
		}
	}
	w.kv = kv
	for p := range worldPos {
		// Rounded, because the library's last bits differ between platforms.
		for i := range w.rot / 2 {
			w.table = append(w.table, float32(math.Round(1024*math.Cos(w.angle(p, i)))/1024))
		}
		for i := range w.rot / 2 {
			w.table = append(w.table, float32(math.Round(1024*math.Sin(w.angle(p, i)))/1024))
		}
	}
	w.attn = compute.Attention{Rope: b.buffer(w.table, worldPos, w.rot), RotDim: w.rot, Window: v.window, Scale: v.scale, Cap: v.limit}
	if v.sinks {
		w.sink = b.random(heads)
		w.attn.Sinks = b.buffer(w.sink, heads)
	}
	if v.norms {
		w.qn, w.kn = b.random(hd), b.random(hd)
		w.attn.QNorm = &compute.Norm{Weight: b.buffer(w.qn, hd), Eps: 1e-5}
		w.attn.KNorm = &compute.Norm{Weight: b.buffer(w.kn, hd), Eps: 1e-5}
	}

	order := b.r.Perm(blocks)
	for _, o := range order[:worldPos/compute.BlockLen] {
		w.blocks = append(w.blocks, int32(o))
	}
	for _, o := range order[worldPos/compute.BlockLen:] {
		for i := range compute.BlockLen {
			w.free = append(w.free, int32(o*compute.BlockLen+i))
		}
	}
	if scattered {
		b.r.Shuffle(len(w.free), func(i, j int) { w.free[i], w.free[j] = w.free[j], w.free[i] })
	}
	junk := make([]float32, w.ld)
	for i := range junk {
		junk[i] = 1e15 * float32(i%7-3)
	}
	for l := range layers {
		w.write(b.buffer(junk, 1, w.ld), l, 0)
	}
	var others []int32
	for s := range blocks*compute.BlockLen - 1 {
		others = append(others, int32(s+1))
	}
	w.q.MoveKV(w.kv, others, make([]int32, len(others)))
	return w
}

// write puts the key and value of qkv, one row at position 0, into a slot: a
// sequence of one token.
func (w *world) write(qkv compute.Buffer, layer int, slot int32) {
	w.q.Attend(w.alloc(compute.F32, 1, w.heads*w.vd), qkv, w.kv, layer, &w.attn, &compute.Step{
		Rows: 1, Heads: w.heads, Pos: []int32{0}, Slot: []int32{slot},
		Spans: []compute.Span{{N: 1, Own: []int32{slot}, Anc: []uint64{1}, Stride: 1}},
	})
}

func (w *world) angle(p, i int) float64 {
	return float64(p) * math.Pow(100, -2*float64(i)/float64(w.rot))
}

// slot returns the slot of a position.
func (w *world) slot(p int) int32 {
	return w.blocks[p/compute.BlockLen]*compute.BlockLen + int32(p%compute.BlockLen)
}

// A plan is a tree to run: its nodes' projections, unrotated, and their parents.
type plan struct {
	prefix  int
	from    int
	parents []int
	rows    [][]float32 // [nodes][ld]
	own     []int32     // slots
}

func (p *plan) depth(n int) int {
	d := 0
	for p.parents[n] >= 0 {
		n, d = p.parents[n], d+1
	}
	return d
}

// path returns the nodes from the root to n.
func (p *plan) path(n int) []int {
	if n < 0 {
		return nil
	}
	return append(p.path(p.parents[n]), n)
}

// preorder returns the nodes in depth-first order, parents first.
func (p *plan) preorder() []int {
	below := make([][]int, len(p.parents))
	for i, parent := range p.parents {
		if parent >= 0 {
			below[parent] = append(below[parent], i)
		}
	}
	var all []int
	var visit func(int)
	visit = func(i int) {
		all = append(all, i)
		for _, c := range below[i] {
			visit(c)
		}
	}
	for i, parent := range p.parents {
		if parent < 0 {
			visit(i)
		}
	}
	return all
}

// run runs the plans in one pass over layer 1 and returns the outputs of the
// rows that ran, plan by plan.
func (w *world) run(plans ...*plan) []float32 {
	w.Helper()
	s := &compute.Step{Heads: w.heads}
	var x []float32
	for _, p := range plans {
		n := len(p.parents)
		stride := (n + 63) / 64
		sp := compute.Span{
			Row: s.Rows, N: n - p.from, Prefix: p.prefix, Blocks: w.blocks[:(p.prefix+compute.BlockLen-1)/compute.BlockLen],
			From: p.from, Own: p.own[:n], Anc: make([]uint64, n*stride), Stride: stride,
		}
		if w.runs++; w.window > 0 && w.runs%2 == 0 { // what no row sees may be gone
			sp.Blocks = slices.Clone(sp.Blocks)
			for i := range sp.Unseen(w.window) {
				sp.Blocks[i] = -1
			}
		}
		for i := range n {
			for _, a := range p.path(i) {
				sp.Anc[i*stride+a/64] |= 1 << (a % 64)
			}
		}
		for i := p.from; i < n; i++ {
			s.Pos = append(s.Pos, int32(p.prefix+p.depth(i)))
			s.Slot = append(s.Slot, p.own[i])
			x = append(x, p.rows[i]...)
		}
		s.Rows += n - p.from
		s.Spans = append(s.Spans, sp)
	}
	qkv := w.buffer(x, s.Rows, w.ld)
	dst := w.alloc(compute.F32, s.Rows, w.heads*w.vd)
	w.q.Attend(dst, qkv, w.kv, 1, &w.attn, s)
	return w.read(dst, s.Rows*w.heads*w.vd)
}

// chain returns positions [from,to) as a tree whose nodes take the positions'
// own slots.
func (w *world) chain(text [][]float32, from, to int) *plan {
	p := &plan{prefix: from, rows: text[from:to]}
	for i := from; i < to; i++ {
		p.parents = append(p.parents, i-from-1)
		p.own = append(p.own, w.slot(i))
	}
	return p
}

func (w *world) text(n int) [][]float32 {
	var t [][]float32
	for range n {
		t = append(t, w.random(w.ld))
	}
	return t
}

// tree returns a random tree of n nodes at prefix; bias near 1 makes it deep.
func (w *world) tree(prefix, n int, bias float64, own []int32) *plan {
	p := &plan{prefix: prefix, parents: []int{-1}, rows: w.text(n), own: own}
	for i := 1; i < n; i++ {
		parent := i - 1
		if w.r.Float64() > bias {
			parent = w.r.IntN(i)
		}
		for p.depth(parent)+1+prefix >= worldPos {
			parent = p.parents[parent]
		}
		p.parents = append(p.parents, parent)
	}
	return p
}

// turned returns head h of a row, normalised by n if not nil and rotated to
// position pos, in float64.
func (w *world) turned(row []float32, h, pos int, n []float32) []float64 {
	y := wide(row[h*w.hd:][:w.hd])
	if n != nil {
		y = normRef(y, wide(n), float64(float32(1e-5)))
	}
	for i := range w.rot / 2 {
		c, s := float64(w.table[pos*w.rot+i]), float64(w.table[pos*w.rot+w.rot/2+i])
		a, b := y[i], y[i+w.rot/2]
		y[i], y[i+w.rot/2] = a*c-b*s, b*c+a*s
	}
	return y
}

// reference computes the attention of a sequence's last row over all of it, or the last window of it.
func (w *world) reference(seq [][]float32) []float64 { return w.referenceOf(seq, len(seq)-1) }

// referenceOf is reference of the row at a position.
func (w *world) referenceOf(seq [][]float32, last int) []float64 {
	var out []float64
	first := 0
	if w.window > 0 {
		first = max(0, len(seq)-w.window)
	}
	for h := range w.heads {
		q := w.turned(seq[last], h, last, w.qn)
		kvh := h / (w.heads / w.kvh)
		scores, top := make([]float64, len(seq)), math.Inf(-1)
		for p, row := range seq {
			if p < first {
				continue
			}
			k := w.turned(row, w.heads+kvh, p, w.kn)
			for i := range q {
				scores[p] += q[i] * k[i]
			}
			if w.scale != 0 {
				scores[p] *= float64(w.scale)
			} else {
				scores[p] /= math.Sqrt(float64(w.hd))
			}
			if w.limit != 0 {
				scores[p] = float64(w.limit) * math.Tanh(scores[p]/float64(w.limit))
			}
			top = max(top, scores[p])
		}
		o, sum := make([]float64, w.vd), 0.0
		value := (w.heads + w.kvh + kvh) * w.hd
		if w.latent {
			value = (w.heads+kvh+1)*w.hd - w.vd
		}
		if w.sinks {
			top = max(top, float64(w.sink[h]))
			sum = math.Exp(float64(w.sink[h]) - top)
		}
		for p, row := range seq {
			if p < first {
				continue
			}
			e := math.Exp(scores[p] - top)
			sum += e
			for i := range o {
				o[i] += e * float64(row[value+i])
			}
		}
		for i := range o {
			out = append(out, o[i]/sum)
		}
	}
	return out
}

func attendAgrees(b *bench, v variation) {
	// float32 scores of size ~3 are off by 1e-6, weights and sums follow. Keys of 8
	// bits move a score by the root of headDim times 2⁻⁹ of their products, and
	// values by 2⁻⁹ of theirs.
	tol := 1e-5
	if v.half {
		tol = 2e-2
	}
	for _, g := range b.geometries(v) {
		w := newWorld(b, g, false, v)
		text := w.text(70)
		got := w.run(w.chain(text, 0, 70))
		width := w.heads * w.vd
		for i := range text {
			b.near(fmt.Sprintf("%v: position %d", g, i), got[i*width:][:width], w.reference(text[:i+1]), tol)
		}
		p := w.tree(70, 40, 0.5, w.free)
		got = w.run(p)
		for i := range p.parents {
			seq := append([][]float32{}, text...)
			for _, a := range p.path(i) {
				seq = append(seq, p.rows[a])
			}
			b.near(fmt.Sprintf("%v: node %d", g, i), got[i*width:][:width], w.reference(seq), tol)
		}
	}
}

func chunksInvariant(b *bench, v variation) {
	for _, g := range b.geometries(v) {
		w := newWorld(b, g, false, v)
		const n = 150
		text := w.text(n)
		want := w.run(w.chain(text, 0, n))
		for _, chunk := range []int{1, 7, 64} {
			var got []float32
			for p := 0; p < n; p += chunk {
				got = append(got, w.run(w.chain(text, p, min(n, p+chunk)))...)
			}
			b.same(fmt.Sprintf("%v: prompt in chunks of %d", g, chunk), got, want)
		}
	}
}

func treesInvariant(b *bench, v variation) {
	rounds := 6
	if testing.Short() || v != (variation{}) {
		rounds = 2
	}
	for _, g := range b.geometries(v) {
		for round := range rounds {
			w := newWorld(b, g, round%2 == 1, v)
			width := w.heads * w.vd
			prefix := []int{0, 1, 31, 32, 64, 77}[(round+g.headDim)%6]
			text := w.text(prefix + 1)
			if prefix > 0 {
				w.run(w.chain(text, 0, prefix))
			}
			n := 1 + b.r.IntN(70)
			if round == 0 {
				n = 70
			}
			p := w.tree(prefix, n, []float64{0.9, 0.2, 0.6}[round%3], w.free)
			got := w.run(p)

			// The same nodes in two passes, together with trees at other, past
			// prefixes: the second pass of one with the first of another.
			cut := b.r.IntN(n)
			first := *p
			first.parents = p.parents[:cut]
			second := *p
			second.from = cut
			var parts []float32
			if cut > 0 {
				parts = w.run(&first)
			}
			batch := []*plan{&second}
			var others []*plan
			at := n
			for range 3 {
				past := b.r.IntN(prefix + 1)
				o := w.tree(past, 1+b.r.IntN(12), 0.3, w.free[at:])
				at += len(o.parents)
				others = append(others, o)
			}
			batch = append([]*plan{others[0]}, append(batch, others[1:]...)...)
			all := w.run(batch...)
			head := len(others[0].parents) * width
			parts = append(parts, all[head:head+(n-cut)*width]...)
			b.same(fmt.Sprintf("%v round %d: tree in two passes", g, round), parts, got)
			for i, o := range others {
				off := 0
				if i > 0 {
					off = (len(others[0].parents) + n - cut) * width
					for _, e := range others[1:i] {
						off += len(e.parents) * width
					}
				}
				b.same(fmt.Sprintf("%v round %d: tree %d of a batch", g, round, i), all[off:][:len(o.parents)*width], w.run(o))
			}

			// Plain decoding of every path: one row a pass, each in its position's slot.
			// A node's children follow it, so the slots before theirs are its path's.
			for _, i := range p.preorder() {
				path := p.path(i)
				if prefix+len(path) > worldPos {
					continue
				}
				seq := append([][]float32{}, text[:prefix]...)
				for _, a := range path {
					seq = append(seq, p.rows[a])
				}
				plain := w.run(w.chain(seq, len(seq)-1, len(seq)))
				b.same(fmt.Sprintf("%v round %d: node %d of %d at prefix %d", g, round, i, n, prefix), got[i*width:][:width], plain)
			}
		}
	}
}

func moveInvariant(b *bench) {
	ways := []variation{{}, {half: true}}
	if b.q.Abilities().Latent != nil {
		ways = append(ways, latents...)
	}
	for _, v := range ways {
		all := geometries
		if v.latent {
			all = latentGeometries
		}
		for _, g := range all {
			b.moves(newWorld(b, g, true, v), g)
		}
	}
}

// moves writes a text elsewhere, moves it home and compares the token after it.
func (b *bench) moves(w *world, g geometry) {
	text := w.text(41)
	want := w.run(w.chain(text, 0, 41))
	width := w.heads * w.vd
	// The text's first 40 positions are written elsewhere and then moved home, where
	// there is rubbish. The moves run in order: 40 goes through a slot that is needed
	// later.
	p := w.chain(text, 0, 40)
	p.own = w.free[:40]
	w.run(p)
	rubbish := w.chain(w.text(40), 0, 40)
	w.run(rubbish)
	var dst, src []int32
	for i := range 40 {
		dst, src = append(dst, w.free[40]), append(src, w.free[i])
		dst, src = append(dst, w.slot(i)), append(src, w.free[40])
	}
	w.q.MoveKV(w.kv, dst, src)
	b.same(fmt.Sprintf("%v: the token after moved ones", g), w.run(w.chain(text, 40, 41)), want[40*width:])
}
