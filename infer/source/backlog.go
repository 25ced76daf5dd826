package source

import (
	"fmt"

	"talf/infer"
	"talf/infer/prefix"
	"talf/model"
	"talf/model/arch"
	"talf/tree"
)

// A reader decides when committed tokens run that no sequence has asked about. The rows of later asks
// have the same bits whenever that is.
type reader struct {
	postponed bool
	fresh     int // tokens committed since the last pass
	read      int // committed tokens that the last Rows ran
}

// Postpone leaves what is committed unread until its sequence asks.
func (r *reader) Postpone(on bool) { r.postponed = on }

// Read returns how many committed tokens the last Rows ran.
func (r *reader) Read() int { return r.read }

// begin begins a pass and returns how many tokens it may run of sequences that ask nothing: those
// that have come since the last pass, and some that have waited. A pass is to be no longer because
// many waited.
func (r *reader) begin() (room int) {
	room = r.fresh + tree.MaxNodes
	r.fresh, r.read = 0, 0
	return room
}

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

// waitingBytes bounds the features that wait while a head's reading is postponed, those of kept
// sequences included. What exceeds it is read although nobody asks.
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

// waiting returns how many positions wait to be read.
func (h *Head) waiting() int {
	n := h.held
	for _, s := range h.open {
		n += s.known - s.seq.Len()
	}
	return n
}

// readAhead adds what is to run of sequences that ask nothing. A drafter that does not ask the head
// for some rounds costs none of its passes, while the chunks of a prompt run as they arrive. If
// reading is postponed, only what exceeds the bound runs, the longest backlog first.
func (h *Head) readAhead(room int) {
	if h.postponed {
		if h.waiting() <= h.most {
			return
		}
		var longest *headSeq
		for _, s := range h.open {
			if !s.dead && !h.runs(s) && (longest == nil || s.pending() > longest.pending()) {
				longest = s
			}
		}
		if longest != nil && longest.pending() >= lag {
			h.add(longest, -1, longest.trueSegment(min(longest.pending(), tree.MaxNodes), model.WantNone))
		}
		return
	}
	for _, s := range h.open {
		if s.dead || s.pending() < lag || h.runs(s) {
			continue
		}
		n := min(s.pending(), tree.MaxNodes, room)
		if n == 0 {
			return
		}
		h.add(s, -1, s.trueSegment(n, model.WantNone))
		room -= n
	}
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
	if h.kept.Limit().Entries == 0 || h.copyFeatures(&p.store, s.store, s.feats-p.rows, p.rows) != nil {
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
