package model

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"talf/compute"
	"talf/model/internal/kvpool"
	"talf/tree"
)

// Want says which nodes of a segment get logits.
type Want uint8

// Logits of no node, of the last node, or of all nodes.
const (
	WantNone Want = iota
	WantLast
	WantAll
)

// A Segment is one tree run over one sequence. A pass takes any number of segments,
// each with its own branch.
type Segment struct {
	Rows *Branch
	Tree *tree.Tree
	From int  // run nodes [From,Len); earlier nodes have already run and keep their rows
	Want Want // logits of none, the last, or all run nodes
	// Feat is the input of each run node, of a draft head only: the target's hidden state
	// or the head's own. An EAGLE-3 head reads the target's at its taps.
	Feat []Feature
	// Draws, if not nil, asks for tokens of the rows that Want names, one for each: Output.Drawn may have them.
	Draws []compute.Draw
	// Ahead, in a batch of this segment alone, runs levels of which the device chooses all but the first; see Chains.
	Ahead *Ahead
}

// activations are the buffers of a pass. They grow to the largest pass seen.
type activations struct {
	rows   int            // of the buffers below, at most MaxRows
	in     compute.Buffer // draft head: [rows][2·Hidden]
	x      compute.Buffer // residual stream [rows][Hidden]
	norm   compute.Buffer // [rows][Hidden]: the final norm if that runs in steps, products that are normed or scaled
	qkv    compute.Buffer // [rows][(Heads+2·KVHeads)·HeadDim]
	att    compute.Buffer // [rows][Heads·HeadDim]
	ffn    compute.Buffer // [rows][FFN]
	iota   []int32        // 0, 1, … rows−1
	sel    compute.Buffer // hidden states of wanted rows
	selCap int
	out    [2]Output // of this pass and the previous one, whose hidden states may be inputs
	logits compute.Buffer
	peaks  compute.Buffer // of the logits, if the device records them
	sums   compute.Buffer // of the rows of logits, if the device cannot check them
	logCap int
	tops   []topBuf
	ahead  int            // how many likely tokens a pass reads ahead where separate reads are slow
	topRow compute.Buffer // [topCap][Outputs]
	topCap int

	ids, pos []int32
	slot     [][]int32 // [groups][rows]
	feat     []Feature
	featRow  []int32
	steps    []compute.Step // [steps][groups]
	owners   []*Branch      // of the spans of a step
	spans    []compute.Span
	one      [1]Segment // Append's
	narrow   []float32  // logits of a draft vocabulary
	host     []float32  // destinations of reads: only pointers to them
	hostIDs  []int32    // go through an interface without allocating
}

// Forward runs the segments in one pass. The output is valid until this model's next
// Forward, which may still take its hidden states as input features. If Forward fails,
// no node of the batch counts as run. If the KV pool has too few blocks, it fails with
// an ErrKVFull before it has done anything.
//
// On a device that runs operations as they are queued, Forward checks ctx between them, and the device within
// them, so that it returns soon after ctx ends. On others Sync checks it.
//
// The bits of a token's results depend only on its own sequence and path: not on the
// other segments, on how rows are divided into passes and blocks, or on slots.
func (m *Model) Forward(ctx context.Context, batch []Segment) (*Output, error) {
	if err := m.load(); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	rows, wanted, err := m.plan(batch)
	if err != nil {
		return nil, err
	}
	a := &m.act
	if err := m.grow(rows, wanted); err != nil {
		return nil, fmt.Errorf("run %d rows: %w", rows, err)
	}
	// The hidden states of the previous pass stay readable during this one.
	a.out[0], a.out[1] = a.out[1], a.out[0]
	o := &a.out[0]
	if err := errors.Join(m.growHidden(o, rows), m.growTaps(o, rows)); err != nil {
		a.out[0], a.out[1] = a.out[1], a.out[0]
		return nil, fmt.Errorf("run %d rows: %w", rows, err)
	}
	m.fill(o, batch, rows)
	far := m.can.Replay
	if far != nil {
		far.Pass(rows)
	}
	o.best.k = 0
	m.can.Until(ctx)
	defer m.can.Until(context.Background())
	done := m.runAll(ctx, o, rows)
	if done && far != nil && o.best.k == 0 {
		if m.Draws() {
			o.drawn.queue(m.can.Draw, o.Logits)
		}
		o.readAhead(far)
	}
	err = m.q.Sync(ctx)
	if err == nil && !done {
		err = ctx.Err()
	}
	if err != nil {
		o.best.k = 0
		o.drawn.drop()
		// If this pass is run again, it takes the same hidden states as features.
		a.out[0], a.out[1] = a.out[1], a.out[0]
		return nil, fmt.Errorf("run %d rows: %w", rows, err)
	}
	for i := range batch {
		b := batch[i].Rows
		b.ran, b.tree = max(b.ran, batch[i].Tree.Len()), batch[i].Tree
	}
	return o, nil
}

// fill lays out the rows of a pass and its output. The nodes have their slots.
func (m *Model) fill(o *Output, batch []Segment, rows int) {
	a := &m.act
	o.m, o.Logits, o.rows = m, a.logits, rows
	o.seg, o.want, o.ok = o.seg[:0], o.want[:0], o.ok[:0]
	o.drawn.begin()
	o.stale = false

	a.ids, a.pos, a.slot = a.ids[:0], a.pos[:0], kvpool.NoSlots(m.groups(), a.slot)
	a.feat, a.featRow = a.feat[:0], a.featRow[:0]
	for i := range batch {
		g := &batch[i]
		o.seg = append(o.seg, outSeg{row: len(a.ids), from: g.From, n: g.Tree.Len() - g.From, logit: len(o.want), want: g.Want, in: *g})
		for n := g.From; n < g.Tree.Len(); n++ {
			if g.Want == WantAll || g.Want == WantLast && n == g.Tree.Len()-1 {
				o.want = append(o.want, int32(len(a.ids)))
			}
			a.ids = append(a.ids, g.Tree.Token(n))
			a.pos = append(a.pos, int32(g.Rows.seq.turn+g.Rows.base+g.Tree.Depth(n)))
			for k, own := range g.Rows.own {
				a.slot[k] = append(a.slot[k], own[n])
			}
		}
		o.drawn.add(g.Draws, len(o.want)-o.seg[i].logit)
		if m.spec.Draft {
			a.feat = append(a.feat, g.Feat...)
		}
	}
	for _, f := range a.feat {
		a.featRow = append(a.featRow, f.Row)
	}
	if p := batch[0].Ahead; p != nil {
		for i := p.Levels[0]; i < rows; i++ {
			a.feat[i].Buf = o.Hidden
		}
		p.begin(batch[0].Tree, batch[0].From, a.ids, a.featRow)
	}
	m.cut(batch, rows)
}

// plan checks the batch, assigns slots to its nodes and counts rows.
func (m *Model) plan(batch []Segment) (rows, wanted int, err error) {
	m.pass++
	last := 0
	for i := range batch {
		g := &batch[i]
		b, t := g.Rows, g.Tree
		b.check()
		b.seq.check()
		if b.seq.m != m || b.pass == m.pass {
			panic(fmt.Sprintf("model: segment %d: its branch is another model's, or runs twice", i))
		}
		b.pass = m.pass
		if g.From < b.keep || g.From > b.ran || g.From >= t.Len() {
			panic(fmt.Sprintf("model: segment %d: run nodes [%d,%d), of which [0,%d) ran before", i, g.From, t.Len(), b.ran))
		}
		n := t.Len() - g.From
		switch {
		case !m.spec.Draft && g.Feat != nil:
			panic(fmt.Sprintf("model: segment %d: features, but this is not a draft head", i))
		case m.spec.Draft && len(g.Feat) != n:
			panic(fmt.Sprintf("model: segment %d: %d features for %d nodes", i, len(g.Feat), n))
		case m.fusion != nil:
			m.checkFeatures(i, g.Feat)
		}
		for k := g.From; k < t.Len(); k++ {
			if id := t.Token(k); id < 0 || int(id) >= m.spec.Vocab {
				return 0, 0, fmt.Errorf("token %d at node %d: want 0 to %d", id, k, m.spec.Vocab-1)
			}
			row, err := turnRow(m.spec, b.seq.turn, b.base+t.Depth(k))
			if err != nil {
				return 0, 0, fmt.Errorf("node %d %w", k, err)
			}
			last = max(last, row)
		}
		rows += n
		switch g.Want {
		case WantAll:
			wanted += n
		case WantLast:
			wanted++
		}
	}
	if err := m.growRope(last + 1); err != nil {
		return 0, 0, err
	}
	if err := m.blocks.Need(m.needs(batch)); err != nil {
		return 0, 0, err
	}
	for i := range batch {
		g := &batch[i]
		if err := errors.Join(g.Rows.reserve(g.Tree.Len()), g.Rows.rec.Reserve(g.Tree, g.From)); err != nil {
			return 0, 0, err
		}
	}
	return rows, wanted, nil
}

// cut divides the batch into steps of at most MaxRows rows. A segment that is cut
// continues as if its first nodes had run in an earlier pass.
func (m *Model) cut(batch []Segment, rows int) {
	a := &m.act
	a.steps, a.spans = a.steps[:0], a.spans[:0]
	m.rec.Begin()
	ahead, nsteps := batch[0].Ahead, (rows+m.opt.MaxRows-1)/m.opt.MaxRows
	if ahead != nil {
		nsteps = len(ahead.Levels)
	}
	// Steps point into spans, so the array must not move.
	if need := (len(batch) + nsteps) * m.groups(); cap(a.spans) < need {
		a.spans = make([]compute.Span, 0, 2*need)
	}
	r, i, from := 0, 0, 0
	for r < rows {
		n, late := min(m.opt.MaxRows, rows-r), []uint64(nil)
		if ahead != nil {
			n, late = ahead.at(r)
		}
		first := len(a.spans)
		a.owners = a.owners[:0]
		for at := 0; at < n; {
			g := &batch[i]
			from = max(from, g.From)
			k := min(n-at, g.Tree.Len()-from)
			b, stride := g.Rows, g.Tree.Stride()
			a.spans = append(a.spans, compute.Span{
				Row: at, N: k, Prefix: b.base, Blocks: b.seq.kv.Of[0][:nblocks(b.base)],
				From: from, Own: b.own[0][:from+k], Anc: g.Tree.Mask()[:(from+k)*stride], Stride: stride, Late: late,
			})
			a.owners = append(a.owners, b)
			m.rec.Add(&b.rec, at, from, k)
			at += k
			if from += k; from == g.Tree.Len() {
				i, from = i+1, 0
			}
		}
		for k, slot := range a.slot {
			spans := a.spans[first:]
			if k > 0 { // those of other groups differ in blocks and slots
				spans = m.spansOf(k, a.spans[first:first+len(a.owners)])
			}
			a.steps = append(a.steps, compute.Step{
				Rows: n, Heads: m.spec.Heads, Pos: a.pos[r : r+n], Slot: slot[r : r+n], Spans: spans,
			})
		}
		r += n
	}
}

// spansOf appends the spans of a group of layers, given those of the first.
func (m *Model) spansOf(group int, spans []compute.Span) []compute.Span {
	a, first := &m.act, len(m.act.spans)
	for i, p := range spans {
		b := a.owners[i]
		p.Blocks, p.Own = b.seq.kv.Of[group][:len(p.Blocks)], b.own[group][:len(p.Own)]
		a.spans = append(a.spans, p)
	}
	return a.spans[first:]
}

// runAll computes hidden states and logits. It reports false if ctx ended before that was done.
func (m *Model) runAll(ctx context.Context, o *Output, rows int) bool {
	a := &m.act
	if m.can.Replay != nil {
		ctx = context.Background() // nothing has run yet: Sync checks ctx
	}
	r, groups := 0, m.groups()
	for i := 0; i < len(a.steps); i += groups {
		n := a.steps[i].Rows
		if !m.run(ctx, a.steps[i:i+groups], r, o, len(a.steps) == groups) {
			return false
		}
		if p := o.seg[0].in.Ahead; p != nil && !m.level(o, p, r, n) {
			return true
		}
		r += n
	}
	return m.readOut(ctx, o, rows)
}

// readOut computes the logits of the wanted rows. It reports false if ctx ended before that was done.
func (m *Model) readOut(ctx context.Context, o *Output, rows int) bool {
	a, n := &m.act, len(o.want)
	if n == 0 {
		return true
	}
	if ctx.Err() != nil {
		return false
	}
	x := o.Hidden
	if n < rows {
		m.q.Gather(a.sel, 0, 0, o.Hidden, o.want)
		x = a.sel
	}
	if p := m.can.Peaks; p != nil {
		p.LinearPeaks(a.logits, a.peaks, x, &m.lmHead, n)
	} else {
		m.q.Linear(a.logits, x, &m.lmHead, compute.Store, n)
	}
	if m.logitScale != 1 || m.logitCap != 0 {
		m.can.Variants.ScaleCap(a.logits, a.peaks, m.logitScale, m.logitCap, n)
	}
	if c := m.can.Check; c != nil {
		o.ok = slices.Grow(o.ok[:0], n)[:n]
		c.CheckRows(o.ok, a.logits, n)
	} else if m.ones.W != nil {
		m.q.Linear(a.sums, a.logits, &m.ones, compute.Store, n)
	}
	return true
}

// run computes the hidden states of one step, given for every group of layers: the rows of the pass from r
// on. It reports false if ctx ended before that was done. It checks several times in a layer, since a product
// over many rows of a large model may take a second.
func (m *Model) run(ctx context.Context, steps []compute.Step, r int, o *Output, whole bool) bool {
	a, q, n := &m.act, m.q, steps[0].Rows
	m.rec.Step(len(steps[0].Spans))
	switch {
	case m.fusion != nil:
		m.fuse(r, n)
	case m.join != nil:
		m.joinStates(r, n)
	case m.spec.Draft:
		q.Embed(a.in, 0, m.embed, a.ids[r:r+n])
		m.gatherStates(a.in, m.spec.Hidden, r, n)
		q.Linear(a.x, a.in, &m.fc, compute.Store, n)
	default:
		q.Embed(a.x, 0, m.embed, a.ids[r:r+n])
		if e := m.spec.EmbedScale; e != 0 {
			m.can.Variants.ScaleCap(a.x, nil, e, 0, n)
		}
	}
	for i := range m.layers {
		y := &m.layers[i]
		m.keepTaps(o, i, r, n)
		if ctx.Err() != nil {
			return false
		}
		att := a.att
		switch {
		case y.rec != nil:
			att = m.rec.Run(a.x, y.rec, n)
		case y.mla != nil:
			att = m.mla.Run(a.x, y.mla, m.kv, y.kv.Layer, &y.attn, &steps[y.kv.Group])
		case m.fusion != nil && i == 0:
			q.Linear(a.qkv, a.in, &y.qkv, compute.Store, n)
		default:
			q.Linear(a.qkv, a.x, &y.qkv, compute.Store, n)
		}
		if y.qNorm != nil {
			m.can.Variants.NormColumns(a.qkv, 0, y.qNorm, n)
			m.can.Variants.NormColumns(a.qkv, m.spec.Heads*m.spec.HeadDim, y.kNorm, n)
		}
		if y.qkv.W != nil {
			q.Attend(att, a.qkv, m.kv, y.kv.Layer, &y.attn, &steps[y.kv.Group])
		}
		if y.gate.W != nil {
			m.rec.Gate(att, a.x, &y.gate, n)
		}
		if m.spec.Parallel { // before attention changes what it reads
			q.Linear(a.ffn, a.x, &y.gateUp, compute.Store, n)
		}
		m.add(att, &y.o, y.oNorm, n)
		if ctx.Err() != nil {
			return false
		}
		if y.moe != nil {
			m.moe.Run(a.x, y.moe, n)
			continue
		}
		if !m.spec.Parallel {
			q.Linear(a.ffn, a.x, &y.gateUp, compute.Store, n)
		}
		if ctx.Err() != nil {
			return false
		}
		m.add(a.ffn, &y.down, y.downNorm, n)
	}
	m.keepTaps(o, len(m.layers), r, n)
	switch {
	case m.norm == nil:
		q.Gather(o.Hidden, r, 0, a.x, a.iota[:n])
	case whole:
		q.Norm(o.Hidden, a.x, m.norm, n)
	default:
		q.Norm(a.norm, a.x, m.norm, n)
		q.Gather(o.Hidden, r, 0, a.norm, a.iota[:n])
	}
	return true
}

// add adds the product l of n rows of x to the residual stream, normed and scaled as the model's
// family does it.
func (m *Model) add(x compute.Buffer, l *compute.Linear, norm *compute.Norm, n int) {
	a, scale := &m.act, m.spec.ResidScale
	if norm == nil && scale == 0 {
		m.q.Linear(a.x, x, l, compute.Accumulate, n)
		return
	}
	m.q.Linear(a.norm, x, l, compute.Store, n)
	m.can.Variants.AddScaled(a.x, a.norm, norm, cmp.Or(scale, 1), n)
}

// grow makes the buffers large enough for a pass.
func (m *Model) grow(rows, wanted int) error {
	a, s := &m.act, m.spec
	var errs error
	alloc := func(dst *compute.Buffer, shape ...int) {
		b, err := m.dev.Alloc(compute.F32, shape...)
		if err != nil {
			errs = errors.Join(errs, err)
			return
		}
		*dst = b
	}
	if n := min(rows, m.opt.MaxRows); n > a.rows {
		n = min(max(n, 2*a.rows), m.opt.MaxRows)
		if s.Draft {
			alloc(&a.in, n, 2*s.Hidden)
		}
		if m.fusion != nil {
			m.fusion.grow(alloc, n, s)
		}
		alloc(&a.x, n, s.Hidden)
		alloc(&a.norm, n, s.Hidden)
		if m.mla != nil {
			errs = errors.Join(errs, m.mla.Grow(m.dev, n))
		} else {
			alloc(&a.qkv, n, (s.Heads+2*s.KVHeads)*s.HeadDim)
			alloc(&a.att, n, s.Heads*s.HeadDim)
		}
		alloc(&a.ffn, n, s.FFN)
		errs = errors.Join(errs, m.rec.Grow(n))
		if m.moe != nil {
			errs = errors.Join(errs, m.moe.Grow(m.dev, n))
		}
		a.count(n)
		if errs == nil {
			a.rows = n
		}
	}
	if wanted > a.logCap {
		n := roundUp(wanted)
		alloc(&a.logits, n, m.Outputs())
		if m.ones.W != nil {
			alloc(&a.sums, n, 1)
		}
		if m.can.Peaks != nil {
			alloc(&a.peaks, n, (m.Outputs()+compute.PeakLen-1)/compute.PeakLen)
		}
		if errs == nil {
			a.logCap = n
		}
	}
	if wanted < rows && wanted > a.selCap {
		n := roundUp(wanted)
		alloc(&a.sel, n, s.Hidden)
		if errs == nil {
			a.selCap = n
		}
	}
	return errs
}

// count makes iota at least n long.
func (a *activations) count(n int) {
	for i := len(a.iota); i < n; i++ {
		a.iota = append(a.iota, int32(i))
	}
}

// roundUp leaves room for slightly larger passes.
func roundUp(rows int) int { return (rows + 15) / 16 * 16 }

func (m *Model) growHidden(o *Output, rows int) error {
	if rows <= o.cap {
		return nil
	}
	n := roundUp(rows)
	b, err := m.dev.Alloc(compute.F32, n, m.spec.Hidden)
	if err != nil {
		return err
	}
	o.Hidden, o.cap = b, n
	return nil
}

// Append runs tokens as a chain after the committed positions and commits them:
// prefill. Long inputs run in passes of tree.MaxNodes tokens. Feat holds a draft head's
// input features, one per token; it is nil for other models. The output is that of the
// last pass and numbers its nodes; the last one is LastNode. If a pass fails, or the
// logits that it is asked for are not finite, the
// tokens of earlier passes stay committed.
func (s *Seq) Append(ctx context.Context, tokens []int32, feat []Feature, want Want) (*Output, error) {
	s.check()
	if len(tokens) == 0 {
		return nil, errors.New("append 0 tokens, want at least one")
	}
	if feat != nil && len(feat) != len(tokens) {
		panic(fmt.Sprintf("model: Append of %d tokens with %d features", len(tokens), len(feat)))
	}
	var out *Output
	for len(tokens) > 0 {
		n := min(len(tokens), tree.MaxNodes)
		if s.chain == nil {
			s.chain = new(tree.Tree)
		}
		s.chain.Reset(tokens[0], n)
		s.path = append(s.path[:0], 0)
		for i := 1; i < n; i++ {
			s.path = append(s.path, s.chain.Add(i-1, tokens[i]))
		}
		g := Segment{Rows: s.Branch(s.n), Tree: s.chain, Want: want}
		if feat != nil {
			g.Feat, feat = feat[:n], feat[n:]
		}
		var err error
		s.m.act.one[0] = g
		if out, err = s.m.Forward(ctx, s.m.act.one[:]); err != nil {
			s.tip.Drop()
			return nil, err
		}
		if err := out.Err(0); err != nil {
			s.tip.Drop()
			return nil, err
		}
		if err := s.tip.Commit(s.path); err != nil {
			return nil, err
		}
		tokens = tokens[n:]
	}
	return out, nil
}
