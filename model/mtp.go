package model

import (
	"talf/compute"
	"talf/model/arch"
	"talf/model/safetensors"
)

// A joint is the norms of what a multi-token prediction module joins; see arch.Spec.MTPFor.
type joint struct{ embed, state *compute.Norm }

// loadMTP loads what such a module has around its layer and eh_proj. Its LM head is the target's unless
// it has one of other values: checkpoints repeat the target's.
func (l *loader) loadMTP(target *Model, set *safetensors.Set) error {
	m := l.m
	m.join, m.norm = &joint{l.norm(arch.EmbedNorm, noLayer, false), l.norm(arch.StateNorm, noLayer, false)}, l.norm(arch.FinalNorm, noLayer, false)
	theirs, err := target.set.Get(target.spec.Weight(target.headRole(), noLayer))
	if own, ok := set.Tensor(m.spec.Weight(arch.LMHead, noLayer)); ok && err == nil && !safetensors.SameValues(&own, &theirs) {
		m.lmHead, m.logitScale = l.linear(noLayer, arch.LMHead), 1
	}
	return err
}

// gatherStates copies the hidden states that rows [r,r+n) of the pass read to columns of dst.
func (m *Model) gatherStates(dst compute.Buffer, col, r, n int) {
	a := &m.act
	for i := r; i < r+n; {
		j := i + 1
		for j < r+n && a.feat[j].Buf == a.feat[i].Buf {
			j++
		}
		m.q.Gather(dst, i-r, col, a.feat[i].Buf, a.featRow[i:j])
		i = j
	}
}

// joinStates computes the layer's input for rows [r,r+n) of the pass.
func (m *Model) joinStates(r, n int) {
	a, q := &m.act, m.q
	q.Embed(a.norm, 0, m.embed, a.ids[r:r+n])
	q.Norm(a.norm, a.norm, m.join.embed, n)
	q.Gather(a.in, 0, 0, a.norm, a.iota[:n])
	m.gatherStates(a.norm, 0, r, n)
	q.Norm(a.norm, a.norm, m.join.state, n)
	q.Gather(a.in, 0, m.spec.Hidden, a.norm, a.iota[:n])
	q.Linear(a.x, a.in, &m.fc, compute.Store, n)
}
