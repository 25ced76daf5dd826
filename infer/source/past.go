package source

import (
	"fmt"

	"talf/infer"
	"talf/infer/prefix"
	"talf/model"
	"talf/model/arch"
	"talf/model/head"
	"talf/model/identity"
	"talf/tree"
)

// A text is what a head knows of a sequence.
type text struct {
	seq    *model.Seq
	of     prefix.Owner
	tokens []int32 // the newest last, which has no position yet

	// True features: rows [0,feats) of store, the last of them for the positions that have not run.
	store *model.Store
	feats int
	known int  // positions that have run or have a feature here
	dead  bool // the tokens exceed the head's positions
}

// pending returns the number of true positions that have not run.
func (s *text) pending() int { return len(s.tokens) - 1 - s.seq.Len() }

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

// A Keeper is a head as a source, which keeps closed sequences.
type Keeper interface {
	infer.Source
	// Prefixes returns the kept sequences, for the caller to bound or evict.
	Prefixes() *prefix.Cache[*Past]
}

// pasts are a head and the closed sequences that it keeps.
type pasts struct {
	m     *head.Head
	kept  *prefix.Cache[*Past] // by the tokens up to their last position's
	held  int                  // positions of kept sequences that have not run
	most  int                  // positions of these that may
	feats []model.Feature
}

// init keeps up to entries sequences, with the limits of other models' caches.
func (h *pasts) init(m *head.Head, entries int) {
	h.m, h.most = m, mostWaiting(m.Spec())
	h.kept = prefix.New(prefix.LimitOf(m.Model, entries), func(p *Past) {
		h.held -= p.rows
		p.seq.Close()
	})
}

// Identity identifies the head.
func (h *pasts) Identity() (f *identity.Function, tokenizer string, err error) {
	if err = h.m.Identify(); err != nil {
		return nil, "", err
	}
	return h.m.Function(), "", nil
}

// ReleaseKV gives the memory that the head's pool does not use back to the system.
func (h *pasts) ReleaseKV() { h.m.ReleaseKV() }

// Prefixes returns the kept sequences.
func (h *pasts) Prefixes() *prefix.Cache[*Past] { return h.kept }

// Match returns how many positions of prompt a kept sequence has. A position's feature comes
// from the target, so the position of the last prompt token is always run.
func (h *pasts) Match(prompt []int32) int { return h.MatchOf(prefix.Owner{}, prompt) }

// MatchOf is Match for an owner.
func (h *pasts) MatchOf(of prefix.Owner, prompt []int32) int {
	return positions(h.kept.MatchOf(of, prompt), prompt)
}

// positions returns how many positions of prompt correspond to n shared tokens.
func positions(n int, prompt []int32) int { return max(0, min(n-1, len(prompt)-2)) }

// begin begins s with the first keep positions of prompt.
func (h *pasts) begin(s *text, of prefix.Owner, prompt []int32, keep int) error {
	*s = text{of: of, tokens: append(s.tokens[:0], prompt[:keep+1]...), store: s.store}
	if keep == 0 {
		s.seq = h.m.NewSeq()
		return nil
	}
	k, n := h.kept.FindOf(of, prompt)
	if n = positions(n, prompt); keep > n {
		return fmt.Errorf("source: open with %d kept positions, %d are there", keep, n)
	}
	return h.inherit(s, k, keep)
}

// take takes the kept tokens and the target's hidden states, which it copies so that a pass that fails can be run
// again.
func (h *pasts) take(s *text, p infer.Proposal, v infer.Verdict, sc infer.Scores) error {
	if s.pending() == 0 {
		s.feats = 0
	}
	h.feats = h.feats[:0]
	for i, n := range v.Path {
		f := sc.Hidden(n)
		if !h.m.Reads(f) {
			return fmt.Errorf("source: the target does not give what the head reads of its hidden states at node %d", n)
		}
		h.feats = append(h.feats, f)
		if i > 0 {
			s.tokens = append(s.tokens, p.Tree.Token(n))
		}
	}
	s.tokens = append(s.tokens, v.Next)
	if s.dead = s.dead || len(s.tokens)-2 >= h.m.Spec().MaxPos; s.dead {
		return nil
	}
	if err := fit(&s.store, h.m.NewInputStore, s.feats, s.feats+len(h.feats)); err != nil {
		return err
	}
	if err := s.store.Put(s.feats, h.feats...); err != nil {
		return err
	}
	s.feats += len(h.feats)
	s.known = len(s.tokens) - 1
	return nil
}

// waitingBytes bounds the features of kept sequences that have not been read. What exceeds it is computed again by whoever needs it.
const waitingBytes = 256 << 20

// mostWaiting is waitingBytes in positions of a head.
func mostWaiting(s *arch.Spec) int { return max(tree.MaxNodes, waitingBytes/(4*s.FeatureSize())) }

// inherit begins s with the first keep positions of p: those that have run, and the features of
// the others.
func (h *pasts) inherit(s *text, p *Past, keep int) error {
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
func (h *pasts) keep(s *text) {
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
func (h *pasts) copyFeatures(to **model.Store, from *model.Store, first, n int) error {
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
