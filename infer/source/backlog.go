package source

import (
	"fmt"

	"talf/infer"
	"talf/infer/prefix"
	"talf/model"
	"talf/model/arch"
	"talf/tree"
)

// A Past is a closed sequence of a head: what has run, and the features of positions that have not.
// Another that begins with it may need those, too, and the target's pass over them is gone.
type Past struct {
	seq   *model.Seq
	store *model.Store // nil if all have run
	first int          // row of store for the first position that has not
	rows  int          // positions that have not
}

// positions is how many positions of its text the past has.
func (p *Past) positions() int { return p.seq.Len() + p.rows }

// waitingBytes bounds the features of kept sequences that have not been read. What exceeds it is computed again by whoever needs it.
const waitingBytes = 256 << 20

// mostWaiting is waitingBytes in positions of a head.
func mostWaiting(s *arch.Spec) int { return max(tree.MaxNodes, waitingBytes/(4*s.FeatureSize())) }

// keptOf returns a cache of closed sequences with the limits of other models' caches.
func (h *Head) keptOf(entries int) *prefix.Cache[*Past] {
	return prefix.New(prefix.LimitOf(h.m.Model, entries), func(p *Past) {
		h.held -= p.rows
		p.seq.Close()
	})
}

// Backlog returns how many committed tokens of a sequence have not run. They do with its next ask.
func (h *Head) Backlog(id infer.SeqID) int {
	if s := h.open[id]; s != nil && !s.dead {
		return s.pending()
	}
	return 0
}

// inherit begins s with the first keep positions of p: those that have run, and the features of
// the others.
func (h *Head) inherit(s *headSeq, p *Past, keep int) error {
	run := min(keep, p.seq.Len())
	s.seq, s.known = p.seq.Fork(), keep
	s.seq.Truncate(run)
	if err := h.copyFeatures(&s.store, p.store, p.first, keep-run); err != nil {
		s.seq.Close()
		return fmt.Errorf("source: copy the features of %d kept positions: %w", keep-run, err)
	}
	s.feats = keep - run
	return nil
}

// keep hands a closed sequence over to the cache.
func (h *Head) keep(s *headSeq) {
	p := &Past{seq: s.seq, rows: s.known - s.seq.Len()}
	if h.kept.Limit().Entries == 0 || h.held+p.rows > h.most || h.copyFeatures(&p.store, s.store, s.feats-p.rows, p.rows) != nil {
		p.rows = 0
	}
	h.held += p.rows
	tokens := s.tokens[:min(len(s.tokens), p.positions()+1)]
	if h.kept.MatchOf(s.of, tokens) == len(tokens) && len(tokens) > 0 {
		// The cache has it already, and keeps the other: what this one has read, that one need not.
		if k, _ := h.kept.FindOf(s.of, tokens); k.seq.Len() < p.seq.Len() {
			more := min(p.seq.Len()-k.seq.Len(), k.rows)
			k.seq, p.seq = p.seq, k.seq
			k.first, k.rows, h.held = k.first+more, k.rows-more, h.held-more
		}
	}
	h.kept.PutOf(s.of, tokens, p)
}

// copyFeatures copies n rows of a store, from first on, to the beginning of another, which it
// makes if there is none or it is too small.
func (h *Head) copyFeatures(to **model.Store, from *model.Store, first, n int) error {
	if n == 0 {
		return nil
	}
	if *to == nil || (*to).Rows() < n {
		st, err := h.m.NewInputStore(n)
		if err != nil {
			return err
		}
		*to = st
	}
	h.feats = h.feats[:0]
	for i := range n {
		h.feats = append(h.feats, from.At(first+i))
	}
	return (*to).Put(0, h.feats...)
}
