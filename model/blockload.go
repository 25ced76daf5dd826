package model

import (
	"fmt"

	"talf/model/arch"
	"talf/model/safetensors"
)

// loadBlock loads what a block drafter has around its layers.
func (l *loader) loadBlock(target *Model, set *safetensors.Set) (err error) {
	m, x := l.m, &l.m.spec.Block
	switch {
	case m.opt.MaxRows < x.Size:
		return fmt.Errorf("%s: passes of at most %d rows, want at least block_size, %d", set.Name, m.opt.MaxRows, x.Size)
	case x.Group > 0 && (m.can.Variants == nil || m.can.Replay != nil):
		return fmt.Errorf("%s: DFlash 2 has convolutions, which %s does not have yet: use the CPU", set.Name, m.dev.Name())
	}
	h := &blockHead{}
	if h.at, err = m.spec.TapsOf(target.spec); err != nil {
		return fmt.Errorf("%s: %w", configOf(set), err)
	}
	if own, ok := set.Tensor(m.spec.Weight(arch.LMHead, noLayer)); ok {
		theirs, err := target.set.Get(target.spec.Weight(target.headRole(), noLayer))
		if err != nil {
			return err
		}
		if m.ids == nil && safetensors.SameValues(&own, &theirs) {
			l.take(arch.LMHead, noLayer, false) // as checkpoints repeat it
		} else {
			m.lmHead, m.logitScale = l.linear(noLayer, arch.LMHead), 1
		}
	}
	h.fused = l.norm(arch.FuseNorm, noLayer, false)
	if x.Linear {
		for k := range x.Size {
			h.maps = append(h.maps, l.linear(k, arch.RowMap))
		}
	} else {
		m.norm = l.norm(arch.FinalNorm, noLayer, false)
	}
	h.next = l.nextHead()
	for i := range x.Size {
		h.both, h.causal = append(h.both, 1<<x.Size-1), append(h.causal, 2<<i-1)
	}
	for i := range contextRows {
		h.self = append(h.self, 1<<i)
	}
	m.block = h
	return nil
}

// blockLayer loads a block drafter's attention.
func (l *loader) blockLayer(i int, y *layer) *blockLayer {
	x, h := &l.m.spec.Block, l.m.block
	b := &blockLayer{
		in: l.norm(arch.InputNorm, i, false), q: l.linear(i, arch.Q), kv: l.linear(i, arch.K, arch.V),
		attn: l.conv(arch.AttnConv, arch.AttnConvBase, i), ffn: l.conv(arch.FFNConv, arch.FFNConvBase, i),
	}
	kind := stepKind{y.kv.Group, x.CausalIn(i)}
	for b.kind < len(h.kinds) && h.kinds[b.kind] != kind {
		b.kind++
	}
	if b.kind == len(h.kinds) {
		h.kinds = append(h.kinds, kind)
	}
	if y.attn.Window > 0 && !kind.causal { // of the context alone
		y.attn.Window += x.Size - 1
	}
	return b
}

// conv loads a convolution, or returns nil if there is none.
func (l *loader) conv(kernel, base arch.Role, layer int) *conv {
	t, ok := l.take(base, layer, false)
	if !ok {
		return nil
	}
	return &conv{kernel: l.linear(layer, kernel), base: l.floats(t)}
}

// nextHead loads what makes logits depend on the token before; see arch.Block.
func (l *loader) nextHead() (n nextHead) {
	x := &l.m.spec.Block
	if x.Markov != "" {
		n.in, n.out = l.linear(noLayer, arch.MarkovIn).W, l.linear(noLayer, arch.MarkovOut)
	}
	switch x.Markov {
	case arch.GatedMarkov:
		n.gate = l.linear(noLayer, arch.MarkovGate)
	case arch.RNNMarkov:
		n.gate = l.linear(noLayer, arch.MarkovJoint)
	}
	if x.Confidence {
		n.confidence = l.linear(noLayer, arch.Confidence)
	}
	if x.SelectorRank > 0 {
		n.hidden = l.linear(noLayer, arch.SelectorHidden)
		n.before, n.after = l.linear(noLayer, arch.SelectorBefore).W, l.linear(noLayer, arch.SelectorAfter).W
	}
	return n
}
