package net

import (
	"fmt"

	"talf/compute"
	"talf/model/arch"
	"talf/train/internal/gg"
)

// A place says which of a block head's tensors one is.
type place struct {
	role  arch.Role
	layer int // −1: of the whole head
	bias  bool
}

// placeOf returns the place of a tensor.
func placeOf(t *arch.Tensor) place { return place{t.Role, t.Layer, t.Bias} }

// blockRole reports whether a tensor is one that only block heads have.
func blockRole(t *arch.Tensor, s *arch.Spec) bool {
	switch t.Role {
	case arch.FC, arch.FuseNorm:
		return s.Block.On
	case arch.RowMap:
		return true
	case arch.MarkovIn, arch.MarkovGate, arch.MarkovOut, arch.Confidence,
		arch.AttnConv, arch.AttnConvBase, arch.FFNConv, arch.FFNConvBase,
		arch.SelectorHidden, arch.SelectorBefore, arch.SelectorAfter:
		return true
	}
	return false
}

// checkBlock refuses windows that rows of a block would see in another way than decoding does, or through which
// some see no context.
func checkBlock(s *arch.Spec) error {
	for i := range s.Layers {
		w := s.Window(i)
		switch {
		case !s.Block.On || w == 0:
		case !s.Block.CausalIn(i):
			return fmt.Errorf("network: layer %d has a window of %d positions, but is not causal: training supports no such layer", i, w)
		case w <= s.Block.Size:
			return fmt.Errorf("network: layer %d has a window of %d positions, want more than the %d of a block", i, w, s.Block.Size)
		}
	}
	return nil
}

// A Block is the part of a block head's graph that its levels read (arch.Block): the texts as context,
// and the rows of blocks. Rows of level 0 are anchors. Each has a block of its own, whose rows every
// node below it reads, the row of its depth: nodes at one depth differ only by what a Markov head reads,
// their own token.
//
// With Shape.Path the blocks follow the nodes, for heads whose layers are all causal: a node is a row
// with its own token, which sees the context and the tokens of its ancestors, and after it, unless
// arch.Block.Shift, a row with the mask token, which predicts.
type Block struct {
	Context *gg.Rows // positions of the texts, packed one after another

	spec *arch.Spec
	path bool
	pos  []int32   // [context] rotary positions
	rows []*Level  // of the blocks, for each kind of layer
	kind []int     // [layers] its kind
	read [][]int32 // [level][rows]: the row of rows that the level's row reads; of a linear head, the anchor
	node [][]int32 // [level][rows]: with path, the row that has the node's token
	text []int32   // [rows of blocks] the first row of its text
	last []int32   // [anchors] of a linear head: the row of Context before the anchor
}

// newBlock adds a block head to g, as NewHead does.
func newBlock(h *Head, g *gg.Graph, of map[*gg.Tensor]*gg.Node, embed *gg.Tensor, rope compute.Buffer, sh Shape) {
	p := h.Params
	s := p.Spec
	b := &Block{Context: &gg.Rows{Max: sh.Rows}, spec: s, path: sh.Path, read: make([][]int32, sh.Levels), node: make([][]int32, sh.Levels)}
	h.Block = b
	weight := func(r arch.Role) *gg.Node { return of[p.block[place{r, -1, false}]] }
	bias := func(r arch.Role) *gg.Node { return of[p.block[place{r, -1, true}]] }

	taps := g.Input("taps", b.Context, s.FeatureSize())
	h.Features = []*gg.Node{taps}
	c := g.Norm(g.Linear(taps, weight(arch.FC), nil), weight(arch.FuseNorm), s.NormEps)
	table := g.Frozen(embed)
	var x, z *gg.Node // z is what the rows of a linear head read
	if !s.Block.Linear {
		b.kinds(sh)
		x = g.Embed(table, &b.rows[0].IDs, b.rows[0].Rows)
	}
	for i, w := range p.layers {
		k := g.Norm(g.Linear(c, of[w.k], nil), of[w.kNorm], s.NormEps)
		layer := builder{g: g, p: p, of: of, rope: rope, k: []*gg.Node{g.Rope(k, s.HeadDim, rope, &b.pos)}, v: []*gg.Node{g.Linear(c, of[w.v], nil)}}
		if s.Block.Group > 0 {
			x = layer.convolved(i, x, b.rows[b.kind[i]])
		} else {
			x = layer.layer(i, x, b.rows[b.kind[i]])
		}
	}
	if !s.Block.Linear {
		x = g.Norm(x, of[p.finalNorm], s.NormEps)
	}

	if p.lmHead != nil {
		h.LMHead = of[p.lmHead]
	}
	for d := range sh.Levels {
		l := newLevel(p, sh.Blocks*max(1, min(d, 1)*sh.Branch), d)
		h.Levels = append(h.Levels, l)
		if s.Block.Linear {
			if d == 0 {
				z = g.Beside(g.Embed(table, &l.IDs, l.Rows), g.Select(c, &b.last, l.Rows))
			}
			x = g.Linear(z, of[p.block[place{arch.RowMap, d, false}]], nil)
		}
		out := g.Select(x, &b.read[d], l.Rows)
		l.Out = out
		var both *gg.Node // [out | e]
		if s.Block.Markov != "" {
			e := g.Embed(weight(arch.MarkovIn), &l.IDs, l.Rows)
			both = g.Beside(out, e)
			if l.Out = both; s.Block.Markov == arch.GatedMarkov {
				l.Out = g.Beside(out, g.Gate(g.Linear(both, weight(arch.MarkovGate), bias(arch.MarkovGate)), e))
			}
		}
		if s.Block.SelectorRank > 0 {
			e := g.Embed(weight(arch.SelectorBefore), &l.IDs, l.Rows)
			l.Pair = g.Beside(out, g.Mul(e, g.Linear(out, weight(arch.SelectorHidden), nil)))
		}
		if s.Block.Confidence {
			in := out
			if s.Block.ConfidenceMarkov {
				in = both
			}
			l.Sure = g.Linear(in, weight(arch.Confidence), bias(arch.Confidence))
		}
	}
	h.markov, h.after = weight(arch.MarkovOut), weight(arch.SelectorAfter)
}

// convolved is layer with the convolutions of DFlash 2 before and after attention and feed-forward network:
// with C and C' these of the network's input n, h = x + C'(W_o·attention(… C(n))), and likewise below.
func (b *builder) convolved(i int, x *gg.Node, l *Level) *gg.Node {
	g, s, w := b.g, b.p.Spec, b.p.layers[i]
	around := func(kernel, base arch.Role, x, norm *gg.Node, inner func(n *gg.Node) *gg.Node) *gg.Node {
		n := g.Norm(x, norm, s.NormEps)
		coef, to := g.Linear(n, b.of[b.p.block[place{kernel, i, false}]], nil), b.of[b.p.block[place{base, i, false}]]
		taps := compute.Taps{Group: s.Block.Group, Block: s.Block.Size}
		y := inner(g.Convolve(n, coef, to, taps))
		taps.Col, taps.Base = coef.Width()/2, 2*s.Hidden
		return g.Sum(g.Convolve(y, coef, to, taps), x)
	}
	x = around(arch.AttnConv, arch.AttnConvBase, x, b.of[w.inNorm], func(n *gg.Node) *gg.Node {
		q, k := g.Norm(g.Linear(n, b.of[w.q], nil), b.of[w.qNorm], s.NormEps), g.Norm(g.Linear(n, b.of[w.k], nil), b.of[w.kNorm], s.NormEps)
		return g.Linear(b.heads(q, k, g.Linear(n, b.of[w.v], nil), l), b.of[w.o], nil)
	})
	return around(arch.FFNConv, arch.FFNConvBase, x, b.of[w.postNorm], func(n *gg.Node) *gg.Node {
		return g.Linear(g.SwiGLU(g.Linear(n, b.of[w.gu], nil)), b.of[w.down], nil)
	})
}

// Beside returns what stands beside the LM head in scores of what follows a token: W2 [draft tokens][rank] of a Markov
// head or C [V][rank] of a selector; nil if there is none.
func (p *Params) Beside() *gg.Tensor {
	if w := p.block[place{arch.SelectorAfter, -1, false}]; w != nil {
		return w
	}
	return p.block[place{arch.MarkovOut, -1, false}]
}

// LM returns the LM head that the levels' Out are multiplied with, over frozen rows lm [tokens][Hidden], or if lm is
// nil the head's own, which learns. That of a Markov head has its W2 beside it. pair is what Level.Pair is multiplied with,
// nil without a selector.
func (h *Head) LM(g *gg.Graph, lm *gg.Tensor) (w, pair *gg.Node) {
	if w = h.LMHead; lm != nil {
		w = g.Frozen(lm)
	}
	if h.after != nil {
		pair = g.Beside(w, h.after)
	}
	if h.markov != nil {
		w = g.Beside(w, h.markov)
	}
	return w, pair
}

// initBlock sets a tensor of DFlash 2 so that the head begins as one of DFlash: rows convolved with themselves alone,
// and all tokens alike for the selector. It reports whether t is such a tensor, or a bias, which is 0.
func (p *Params) initBlock(t *gg.Tensor) bool {
	for at, x := range p.block {
		if x != t {
			continue
		}
		switch at.role {
		case arch.AttnConvBase, arch.FFNConvBase: // [before, after][this row, the one before][Hidden]
			h := t.Shape[2]
			for i := range t.Data {
				if t.Data[i] = 0; i/h%2 == 0 {
					t.Data[i] = 1
				}
			}
			return true
		case arch.AttnConv, arch.FFNConv, arch.SelectorAfter:
			clear(t.Data)
			return true
		}
		if at.bias {
			clear(t.Data)
		}
		return at.bias
	}
	return false
}

// kinds sets the kinds of layers, which differ in what their rows see.
func (b *Block) kinds(sh Shape) {
	s := b.spec
	per, keys := s.Block.Size, s.Block.Size
	if b.path {
		per, keys = 2*(1+sh.Branch*(sh.Levels-1)), sh.Levels+1
	}
	type seen struct {
		causal bool
		window int
	}
	at := make(map[seen]int)
	rows := &gg.Rows{Max: sh.Blocks * per}
	for i := range s.Layers {
		k := seen{s.Block.CausalIn(i), s.Window(i)}
		if _, ok := at[k]; !ok {
			at[k] = len(b.rows)
			b.rows = append(b.rows, &Level{Rows: rows, Attn: compute.TrainAttention{
				Heads: s.Heads, KVHeads: s.KVHeads, HeadDim: s.HeadDim, Anc: make([][]int32, keys),
			}})
		}
		b.kind = append(b.kind, at[k])
	}
}

func (b *Block) reset() {
	b.Context.N, b.pos, b.text, b.last = 0, b.pos[:0], b.text[:0], b.last[:0]
	for _, l := range b.rows {
		l.Reset()
	}
	for d := range b.read {
		b.read[d], b.node[d] = b.read[d][:0], b.node[d][:0]
	}
}

// AddText appends a text of n positions to the context and returns its first row.
func (b *Block) AddText(n int) (first int) {
	first = b.Context.N
	if first+n > b.Context.Max {
		panic(fmt.Sprintf("net: more than %d positions", b.Context.Max))
	}
	for i := range n {
		b.pos = append(b.pos, int32(i))
	}
	b.Context.N += n
	return first
}

// AddBlock appends a row of level 0 and its block: the anchor is token id at position pos of the text
// whose first row is first.
func (h *Head) AddBlock(id, pos, first int32) (row int32) {
	b, l := h.Block, h.Levels[0]
	row = l.Add(id, pos, 0)
	if b.spec.Block.Linear {
		b.last, b.read[0] = append(b.last, first+pos-1), append(b.read[0], row)
		return row
	}
	if b.path {
		h.grow(0, -1, id, pos, first)
		return row
	}
	size := int32(b.spec.Block.Size)
	from := int32(b.rows[0].Rows.N)
	for k := range size {
		token := b.spec.Block.Mask
		if k == 0 {
			token = id
		}
		b.add(token, pos+k, pos, first, func(j int32, causal bool) int32 {
			if causal && j > k {
				return -1
			}
			return from + j
		})
	}
	b.read[0] = append(b.read[0], from+int32(b.spec.Block.Row(0)))
	return row
}

// AddNode appends a row of a lower level, a node with token id below row parent of the level above.
func (h *Head) AddNode(level int, parent, id int32) (row int32) {
	b, l := h.Block, h.Levels[level]
	if row = l.AddBelow(h.Levels[level-1], parent, id); b == nil {
		return row
	}
	if b.spec.Block.Linear { // whose levels have a map each
		b.read[level] = append(b.read[level], b.read[level-1][parent])
		return row
	}
	if !b.path {
		b.read[level] = append(b.read[level], b.read[level-1][parent]+1)
		return row
	}
	above := b.node[level-1][parent]
	h.grow(level, above, id, l.Pos[row], b.text[above])
	return row
}

// grow appends the rows of a node at position pos whose parent's token is in row above.
func (h *Head) grow(level int, above, id, pos, first int32) {
	b := h.Block
	anchor := pos - int32(level)
	own := int32(b.rows[0].Rows.N)
	anc := b.rows[0].Attn.Anc
	up := func(j int32, _ bool) int32 {
		if j < int32(level) {
			return anc[j][above]
		}
		if j == int32(level) {
			return own
		}
		return -1
	}
	b.add(id, pos, anchor, first, up)
	b.node[level] = append(b.node[level], own)
	if b.spec.Block.Shift {
		b.read[level] = append(b.read[level], own)
		return
	}
	b.add(b.spec.Block.Mask, pos+1, anchor, first, func(j int32, causal bool) int32 {
		if int(j) == len(anc)-1 {
			return own + 1
		}
		return up(j, causal)
	})
	b.read[level] = append(b.read[level], own+1)
}

// add appends a row at position pos of a block after position anchor of the text whose first row is
// first. It sees rows see(j) of the blocks.
func (b *Block) add(id, pos, anchor, first int32, see func(j int32, causal bool) int32) {
	rows := b.rows[0].Rows
	if rows.N == rows.Max {
		panic(fmt.Sprintf("net: more than %d rows of blocks", rows.N))
	}
	for layer, kind := range b.kind {
		l := b.rows[kind]
		if len(l.Pos) > rows.N {
			continue // an earlier layer of this kind
		}
		causal, from := b.spec.Block.CausalIn(layer), first
		if w := int32(b.spec.Window(layer)); w > 0 {
			from = max(from, first+pos-w+1)
		}
		l.IDs, l.Pos = append(l.IDs, id), append(l.Pos, pos)
		l.Attn.First, l.Attn.Last = append(l.Attn.First, from), append(l.Attn.Last, first+anchor-1)
		for j := range l.Attn.Anc {
			l.Attn.Anc[j] = append(l.Attn.Anc[j], see(int32(j), causal))
		}
	}
	b.text = append(b.text, first)
	rows.N++
}
