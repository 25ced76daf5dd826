package model

import (
	"fmt"
	"slices"

	"talf/compute"
	"talf/model/arch"
	"talf/model/internal/states"
	"talf/model/safetensors"
)

// A fusion is what an EAGLE-3 head computes before its layers; see arch.Eagle3.
type fusion struct {
	at           []int           // boundaries of the target
	each         []*compute.Norm // of the state at each of them, nil: none
	embed, fused *compute.Norm   // of the two halves of layer 0's input
	in           compute.Buffer  // states of the rows with taps [rows][taps·target's Hidden]
	one          compute.Buffer  // states at one boundary [rows][target's Hidden], if each of them is normed
	out          compute.Buffer  // of fc [rows][Hidden]
}

// loadDraft loads what a draft head has around its layers: first target's embedding and
// LM head are shared, unless the head has its own.
func (l *loader) loadDraft(target *Model, set *safetensors.Set) (err error) {
	m, spec, t := l.m, l.m.spec, target.spec
	m.embed, m.lmHead = target.embed, target.lmHead
	// A cap keeps the order of tokens, so that a head can do without.
	m.logitScale = target.logitScale
	own, ok := set.Tensor(spec.Weight(arch.Embed, noLayer))
	if ok {
		theirs, err := target.set.Get(t.Weight(arch.Embed, noLayer))
		if err != nil {
			return err
		}
		ok = !safetensors.SameValues(&own, &theirs)
	}
	if ok || spec.Hidden != t.Hidden {
		m.embed = l.linear(noLayer, arch.Embed).W
	}
	switch {
	case spec.Eagle3.On && !spec.Eagle3.TargetLMHead:
		m.lmHead, m.logitScale = l.linear(noLayer, arch.LMHead), 1
	case spec.Block.OwnLMHead: // see loadBlock
	case m.ids != nil:
		if m.lmHead.W, err = target.PackLMHead(target.opt.DType, m.ids); err != nil {
			return err
		}
	}
	m.fc = l.linear(noLayer, arch.FC)
	switch {
	case spec.Block.On:
		return l.loadBlock(target, set)
	case spec.MTP:
		return l.loadMTP(target, set)
	case !spec.Eagle3.On:
		return nil
	}
	f := &fusion{embed: l.norm(arch.InputNorm, 0, false), fused: l.norm(arch.FuseNorm, 0, false)}
	if f.at, err = spec.TapsOf(t); err != nil {
		return fmt.Errorf("%s: %w", set.Name, err)
	}
	m.fc.Norm = l.norm(arch.TapsNorm, noLayer, false)
	if spec.Eagle3.FCNorm {
		for i := range f.at {
			f.each = append(f.each, l.norm(arch.TapNorm, i, false))
		}
	}
	final := l.norm(arch.FinalNorm, noLayer, false)
	if m.lmHead.Norm = final; spec.Eagle3.NormOutput {
		m.norm, m.lmHead.Norm = final, nil
	}
	m.fusion = f
	return nil
}

// reads returns the boundaries of the target at which a draft head reads its states; nil for one that reads the last hidden state.
func (m *Model) reads() []int {
	switch {
	case m.fusion != nil:
		return m.fusion.at
	case m.block != nil:
		return m.block.at
	}
	return nil
}

// tapFor makes the target's passes record what its draft head reads.
func (m *Model) tapFor(boundaries []int) {
	for _, b := range boundaries {
		if !slices.Contains(m.taps, b) {
			m.taps = append(slices.Clip(m.taps), b)
		}
	}
}

func (f *fusion) grow(alloc func(dst *compute.Buffer, shape ...int), rows int, s *arch.Spec) {
	alloc(&f.in, rows, s.FeatureSize())
	alloc(&f.out, rows, s.Hidden)
	if f.each != nil {
		alloc(&f.one, rows, s.TargetHidden())
	}
}

// fuse computes layer 0's input and residual stream for rows [r,r+n) of the pass: of
// states of the target for rows with taps, of the head's own states for others.
func (m *Model) fuse(r, n int) {
	a, q, f := &m.act, m.q, m.fusion
	true0 := 0 // rows with taps
	// runs calls each with the runs of consecutive rows [i,j) whose features are in the
	// same buffers; k is the number of rows with taps before them.
	runs := func(each func(i, j, k int)) {
		true0 = 0
		for i := r; i < r+n; {
			j := i + 1
			for j < r+n && a.feat[j].Buf == a.feat[i].Buf && a.feat[j].Taps == a.feat[i].Taps {
				j++
			}
			if each(i, j, true0); a.feat[i].Taps != nil {
				true0 += j - i
			}
			i = j
		}
	}
	width := m.spec.TargetHidden()
	for t, b := range f.at {
		dst, col := f.in, t*width
		if f.each != nil {
			dst, col = f.one, 0
		}
		runs(func(i, j, k int) {
			if taps := a.feat[i].Taps; taps != nil {
				q.Gather(dst, k, col, taps.Of(b), a.featRow[i:j])
			}
		})
		if f.each != nil && true0 > 0 {
			q.Norm(f.one, f.one, f.each[t], true0)
			q.Gather(f.in, 0, t*width, f.one, a.iota[:true0])
		}
	}
	if true0 > 0 {
		q.Linear(f.out, f.in, &m.fc, compute.Store, true0)
	}
	runs(func(i, j, k int) {
		if a.feat[i].Taps != nil {
			q.Gather(a.x, i-r, 0, f.out, a.iota[k:k+j-i])
		} else {
			q.Gather(a.x, i-r, 0, a.feat[i].Buf, a.featRow[i:j])
		}
	})
	q.Embed(a.norm, 0, m.embed, a.ids[r:r+n])
	q.Norm(a.norm, a.norm, f.embed, n)
	q.Gather(a.in, 0, 0, a.norm, a.iota[:n])
	q.Norm(a.norm, a.x, f.fused, n)
	q.Gather(a.in, 0, m.spec.Hidden, a.norm, a.iota[:n])
	if m.spec.Eagle3.NormBeforeResidual {
		q.Gather(a.x, 0, 0, a.norm, a.iota[:n])
	}
}

// checkFeatures panics unless every feature has what the draft head reads.
func (m *Model) checkFeatures(seg int, feat []Feature) {
	for i, f := range feat {
		if !m.Reads(f) && (f.Buf == nil || f.Taps != nil) {
			panic(fmt.Sprintf("model: segment %d: feature %d has neither the head's own hidden state nor all taps that it reads", seg, i))
		}
	}
}

// Reads reports whether f has the states of the target that draft head m reads: its
// hidden state, or for an EAGLE-3 head or a block drafter those at its taps.
func (m *Model) Reads(f Feature) bool {
	at := m.reads()
	if at == nil {
		return f.Buf != nil
	}
	return f.Taps != nil && !slices.ContainsFunc(at, func(b int) bool { return f.Taps.Of(b) == nil })
}

// NewInputStore returns a store of the given number of rows for what draft head m reads
// of its target; see Reads.
func (m *Model) NewInputStore(rows int) (*Store, error) {
	at := m.reads()
	if at == nil {
		return m.NewStore(rows)
	}
	return states.NewInputStore(m.dev, m.q, m.can.Replay != nil, at, m.spec.TargetHidden(), rows)
}
