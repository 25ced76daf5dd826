package net

import (
	"fmt"

	"talf/compute"
	"talf/train/internal/gg"
)

// A Level is the rows of one depth of the label trees: level 0 is the positions
// of the sequences themselves, level l the nodes l edges below them. Callers
// append to the slices between Reset and Run.
type Level struct {
	Rows *gg.Rows
	IDs  []int32 // [rows] the row's input token
	Pos  []int32 // [rows] rotary position
	From []int32 // [rows] the parent's row on the level above; unused on level 0
	// Attn says what each row attends to: level-0 rows First to Last, and Anc[j], the row's
	// ancestor on level j+1, the last of which is the row itself.
	Attn compute.TrainAttention

	Out *gg.Node // [rows][width of LM]: what the LM head reads, f̂ of an EAGLE-1/2 head
	// Pair is of a block head with a selector: what PairHead reads, [rows][Hidden+rank].
	Pair *gg.Node
	// Sure is of a block head with a confidence head: [rows][1], whose sigmoid is how likely the token is
	// accepted that a row predicts.
	Sure *gg.Node
}

// Ranked returns what decides which tokens are likeliest, with the LM head and what stands beside it: Out or Pair.
func (l *Level) Ranked() *gg.Node {
	if l.Pair != nil {
		return l.Pair
	}
	return l.Out
}

func newLevel(p *Params, rows, depth int) *Level {
	s := p.Spec
	l := &Level{Rows: &gg.Rows{Max: rows}}
	l.IDs, l.Pos, l.From = make([]int32, 0, rows), make([]int32, 0, rows), make([]int32, 0, rows)
	l.Attn = compute.TrainAttention{
		Heads: s.Heads, KVHeads: s.KVHeads, HeadDim: s.HeadDim,
		First: make([]int32, 0, rows), Last: make([]int32, 0, rows), Anc: make([][]int32, depth),
	}
	for j := range l.Attn.Anc {
		l.Attn.Anc[j] = make([]int32, 0, rows)
	}
	return l
}

// Reset empties the level.
func (l *Level) Reset() {
	l.Rows.N = 0
	l.IDs, l.Pos, l.From = l.IDs[:0], l.Pos[:0], l.From[:0]
	l.Attn.First, l.Attn.Last = l.Attn.First[:0], l.Attn.Last[:0]
	for j := range l.Attn.Anc {
		l.Attn.Anc[j] = l.Attn.Anc[j][:0]
	}
}

// Add appends a row of level 0 at rotary position pos, which attends to the level's rows
// from first to itself, and returns its index.
func (l *Level) Add(id, pos, first int32) int32 {
	r := int32(len(l.IDs))
	if int(r) == l.Rows.Max {
		panic(fmt.Sprintf("net: more than %d rows", r))
	}
	l.IDs, l.Pos, l.From = append(l.IDs, id), append(l.Pos, pos), append(l.From, -1)
	l.Attn.First, l.Attn.Last = append(l.Attn.First, first), append(l.Attn.Last, r)
	l.Rows.N++
	return r
}

// AddBelow appends a row with input token id below row parent of level up, and returns its
// index.
func (l *Level) AddBelow(up *Level, parent int32, id int32) int32 {
	r := int32(len(l.IDs))
	if int(r) == l.Rows.Max {
		panic(fmt.Sprintf("net: more than %d rows on a level", r))
	}
	l.IDs, l.Pos, l.From = append(l.IDs, id), append(l.Pos, up.Pos[parent]+1), append(l.From, parent)
	l.Attn.First, l.Attn.Last = append(l.Attn.First, up.Attn.First[parent]), append(l.Attn.Last, up.Attn.Last[parent])
	for j := range up.Attn.Anc {
		l.Attn.Anc[j] = append(l.Attn.Anc[j], up.Attn.Anc[j][parent])
	}
	own := len(l.Attn.Anc) - 1
	l.Attn.Anc[own] = append(l.Attn.Anc[own], r)
	l.Rows.N++
	return r
}

// A Head is the graph of a draft head over sequences packed into one batch: the positions
// and, below them, the nodes of their label trees. The input of position i is (f_i,
// x_{i+1}); that of a node is its parent's f̂ and its own token, one rotary position
// further. Of an EAGLE-3 head, f_i are the target's states at its taps, and f̂ is what it feeds
// back.
type Head struct {
	Params *Params
	// Features are the inputs of level 0, side by side [rows][FeatureSize]: see Feed.
	Features []*gg.Node
	Levels   []*Level
	LMHead   *gg.Node   // [draft tokens][Hidden] of an EAGLE-3 head that has its own, else nil
	Block    *Block     // of a block head
	Nodes    []*gg.Node // of Params.Tensors, for Compile
	markov   *gg.Node   // [draft tokens][rank] W2 of a Markov head, or nil
	after    *gg.Node   // [V][rank] C of a selector, or nil
}

// Feed sets the features of level 0 from row on to f [n][FeatureSize].
func (h *Head) Feed(row int, f []float32) {
	width := h.Params.Spec.FeatureSize()
	at := 0
	for _, in := range h.Features {
		w := in.Width()
		dst := in.Data()[row*w:]
		for i := range len(f) / width {
			copy(dst[i*w:(i+1)*w], f[i*width+at:])
		}
		at += w
	}
}

// nodes adds the parameters to g.
func (p *Params) nodes(g *gg.Graph) (all []*gg.Node, of map[*gg.Tensor]*gg.Node) {
	of = make(map[*gg.Tensor]*gg.Node)
	for _, t := range p.list {
		of[t] = g.Param(t)
		all = append(all, of[t])
	}
	return all, of
}

// A Shape says for how much a head's graph has room, and how gradients flow through it.
type Shape struct {
	Rows   int  // positions of a batch
	Branch int  // nodes per position on each level below the first
	Levels int  // of the trees, including the positions themselves
	Detach bool // f̂ is fed back without its gradient
	Blocks int  // of a block head: blocks of a batch
	Path   bool // of a block head: nodes are rows of their own; see Block
}

// NewHead adds a head to g. embed is the target's table [V][H], or the head's own; rope is
// its table [positions][headDim] with at least one row for every position of a sequence
// and Levels−1 more.
func NewHead(g *gg.Graph, p *Params, embed *gg.Tensor, rope compute.Buffer, sh Shape) *Head {
	if !p.Spec.Draft {
		panic("net: NewHead of a language model's weights")
	}
	h := &Head{Params: p}
	all, of := p.nodes(g)
	h.Nodes = all
	switch {
	case p.Spec.Eagle3.On:
		newEagle3(h, g, of, embed, rope, sh)
		return h
	case p.Spec.Block.On:
		newBlock(h, g, of, embed, rope, sh)
		return h
	}
	table := g.Frozen(embed)
	layers := make([]builder, len(p.layers))
	for i := range layers {
		layers[i] = builder{g: g, p: p, of: of, rope: rope}
	}
	for d := range sh.Levels {
		l := newLevel(p, sh.Rows*max(1, min(d, 1)*sh.Branch), d)
		h.Levels = append(h.Levels, l)
		e := g.Embed(table, &l.IDs, l.Rows)
		var u *gg.Node
		var bias *gg.Node
		if p.fcBias != nil {
			bias = of[p.fcBias]
		}
		if d == 0 {
			f := g.Input("feature", l.Rows, p.Spec.Hidden)
			h.Features = append(h.Features, f)
			u = g.LinearAdd(e, of[p.fcE], g.Linear(f, of[p.fcF], bias), nil)
		} else {
			// The feature half is the same for all children of a node.
			fed := h.Levels[d-1].Out
			if sh.Detach {
				fed = g.Detach(fed)
			}
			half := g.Linear(fed, of[p.fcF], bias)
			u = g.LinearAdd(e, of[p.fcE], half, &l.From)
		}
		for i := range layers {
			u = layers[i].layer(i, u, l)
		}
		l.Out = u
	}
	return h
}

// Reset empties all levels.
func (h *Head) Reset() {
	for _, l := range h.Levels {
		l.Reset()
	}
	if h.Block != nil {
		h.Block.reset()
	}
}

// An LM is a language model's graph over sequences packed into one batch.
type LM struct {
	Params *Params
	Level  *Level
	Head   *gg.Node   // LM head [V][H], the embedding if tied
	Nodes  []*gg.Node // of Params.Tensors, for Compile
}

// NewLM adds a language model to g with at most rows tokens a batch.
func NewLM(g *gg.Graph, p *Params, rope compute.Buffer, rows int) *LM {
	if p.Spec.Draft {
		panic("net: NewLM of a draft head's weights")
	}
	m := &LM{Params: p, Level: newLevel(p, rows, 0)}
	all, of := p.nodes(g)
	m.Nodes = all
	l := m.Level
	x := g.Embed(of[p.embed], &l.IDs, l.Rows)
	for i := range p.layers {
		b := builder{g: g, p: p, of: of, rope: rope}
		x = b.layer(i, x, l)
	}
	l.Out = g.Norm(x, of[p.finalNorm], p.Spec.NormEps)
	m.Head = of[p.embed]
	if p.lmHead != nil {
		m.Head = of[p.lmHead]
	}
	return m
}

// A builder adds one decoder layer level by level, and keeps the keys and values of the
// levels so far.
type builder struct {
	g    *gg.Graph
	p    *Params
	of   map[*gg.Tensor]*gg.Node
	rope compute.Buffer
	k, v []*gg.Node
}

// layer adds decoder layer i over x [rows][Hidden]:
//
//	h = x + W_o·attention(RoPE(W_q n), RoPE(W_k n), W_v n),  n = norm(x), or x in a draft head's first
//	y = h + W_down(silu(W_gate m) · W_up m),                 m = norm(h)
func (b *builder) layer(i int, x *gg.Node, l *Level) *gg.Node {
	g, s, w := b.g, b.p.Spec, b.p.layers[i]
	n := x
	if w.inNorm != nil {
		n = g.Norm(x, b.of[w.inNorm], s.NormEps)
	}
	return b.attend(i, g.Linear(n, b.of[w.q], nil), g.Linear(n, b.of[w.k], nil), g.Linear(n, b.of[w.v], nil), x, nil, l)
}

// attend adds the rest of decoder layer i after its projections q, k and v. Its residual stream is
// row from[r] of x, or r if from is nil.
func (b *builder) attend(i int, q, k, v, x *gg.Node, from *[]int32, l *Level) *gg.Node {
	g, s, w := b.g, b.p.Spec, b.p.layers[i]
	if w.qNorm != nil {
		q, k = g.Norm(q, b.of[w.qNorm], s.NormEps), g.Norm(k, b.of[w.kNorm], s.NormEps)
	}
	h := g.LinearAdd(b.heads(q, k, v, l), b.of[w.o], x, from)
	m := g.Norm(h, b.of[w.postNorm], s.NormEps)
	return g.LinearAdd(g.SwiGLU(g.Linear(m, b.of[w.gu], nil)), b.of[w.down], h, nil)
}

// heads adds attention over projections q, k and v whose heads are normed.
func (b *builder) heads(q, k, v *gg.Node, l *Level) *gg.Node {
	s := b.p.Spec
	q = b.g.Rope(q, s.HeadDim, b.rope, &l.Pos)
	b.k = append(b.k, b.g.Rope(k, s.HeadDim, b.rope, &l.Pos))
	b.v = append(b.v, v)
	return b.g.Attend(q, b.k, b.v, &l.Attn)
}
