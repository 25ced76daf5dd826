package net

import (
	"talf/compute"
	"talf/train/internal/gg"
)

// eagle3 are the weights that only an EAGLE-3 head has (arch.Eagle3).
type eagle3 struct {
	fc       []*gg.Tensor // [Hidden][elements of the states]: in one piece or, with a norm for each tap, in one for each
	tapsNorm *gg.Tensor   // of all that fc reads
	tapNorms []*gg.Tensor // of each tap
	fuseNorm *gg.Tensor
	// The first layer reads [embedding; hidden state]. Of its projections, the layer's own q, k
	// and v are the halves for the embedding and these those for the hidden state, which is the
	// same for all children of a node and so multiplied once for all of them.
	q, k, v *gg.Tensor
}

// newEagle3 adds an EAGLE-3 head to g, as NewHead does. With e and m the normed embedding and the
// normed state that is fed in, the target's fused states on level 0 and what the parent fed back
// below it, the first layer is
//
//	a = r + W_o·attention(RoPE(W_q[e; m]), RoPE(W_k[e; m]), W_v[e; m]),  r the state before its norm, or m
//	h = a + W_down(silu(W_gate n) · W_up n),                               n = norm(a)
//
// Level.Out is norm(h), which the LM head reads. Fed back is h or, with NormOutput, norm(h).
func newEagle3(h *Head, g *gg.Graph, of map[*gg.Tensor]*gg.Node, embed *gg.Tensor, rope compute.Buffer, sh Shape) {
	p := h.Params
	s, first := p.Spec, p.layers[0]
	table := g.Frozen(embed)
	layers := make([]builder, len(p.layers))
	for i := range layers {
		layers[i] = builder{g: g, p: p, of: of, rope: rope}
	}
	if p.lmHead != nil {
		h.LMHead = of[p.lmHead]
	}
	var fed *gg.Node // of the level above
	for d := range sh.Levels {
		l := newLevel(p, sh.Rows*max(1, min(d, 1)*sh.Branch), d)
		h.Levels = append(h.Levels, l)
		e := g.Norm(g.Embed(table, &l.IDs, l.Rows), of[first.inNorm], s.NormEps)
		from := &l.From
		switch {
		case d == 0:
			fed, from = h.fuse(g, of, l.Rows), nil
		case sh.Detach:
			fed = g.Detach(fed)
		}
		m := g.Norm(fed, of[p.e3.fuseNorm], s.NormEps)
		res := fed
		if s.Eagle3.NormBeforeResidual {
			res = m
		}
		project := func(embedding, hidden *gg.Tensor) *gg.Node {
			return g.LinearAdd(e, of[embedding], g.Linear(m, of[hidden], nil), from)
		}
		x := layers[0].attend(0, project(first.q, p.e3.q), project(first.k, p.e3.k), project(first.v, p.e3.v), res, from, l)
		for i := range layers[1:] {
			x = layers[1+i].layer(1+i, x, l)
		}
		l.Out = g.Norm(x, of[p.finalNorm], s.NormEps)
		if fed = x; s.Eagle3.NormOutput {
			fed = l.Out
		}
	}
}

// fuse adds the inputs of level 0 and returns fc of them: [rows][Hidden].
func (h *Head) fuse(g *gg.Graph, of map[*gg.Tensor]*gg.Node, rows *gg.Rows) *gg.Node {
	p := h.Params
	var bias, sum *gg.Node
	if p.fcBias != nil {
		bias = of[p.fcBias]
	}
	for i, w := range p.e3.fc {
		t := g.Input("taps", rows, w.Shape[1])
		h.Features = append(h.Features, t)
		switch {
		case p.e3.tapsNorm != nil:
			t = g.Norm(t, of[p.e3.tapsNorm], p.Spec.NormEps)
		case p.e3.tapNorms != nil:
			t = g.Norm(t, of[p.e3.tapNorms[i]], p.Spec.NormEps)
		}
		if sum == nil {
			sum = g.Linear(t, of[w], bias)
		} else {
			sum = g.LinearAdd(t, of[w], sum, nil)
		}
	}
	return sum
}

// SetOutput sets, before any training, an EAGLE-3 or block head's LM head, if it has its own, to rows
// [tokens][Hidden] and the norm before it to norm [Hidden]: those of its target, for example.
func (p *Params) SetOutput(rows, norm []float32) {
	defer p.push()
	if p.lmHead != nil {
		copy(p.lmHead.Data, rows)
	}
	copy(p.finalNorm.Data, norm)
}

// OwnLMHead returns the LM head that is trained with a draft head, or nil if the head has its
// target's.
func (p *Params) OwnLMHead() *gg.Tensor {
	if !p.Spec.Draft {
		return nil
	}
	return p.lmHead
}
