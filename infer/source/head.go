// Package source holds draft models: EAGLE-style heads and small language models.
package source

import (
	"context"
	"errors"
	"fmt"
	"time"

	"talf/infer"
	"talf/infer/prefix"
	"talf/model"
	"talf/model/head"
	"talf/tree"
)

// A Head is an EAGLE-style draft head as a source.
//
// Its position i takes the target's hidden state at i (an EAGLE-3 head the states at its
// taps) and the token at i+1, so it has one position fewer than there are tokens. Verified tokens run with their true features, batched
// with the nodes that are asked, and stay. Drafted nodes follow the last of them, take the
// head's own f̂ of their parents as features, and are dropped at the next commit. The
// sequence's first token has no feature before it: if it is the root, there is nothing to draft
// from, and the row is empty.
//
// The rows of a head with a draft vocabulary are indexed by the target's ids: tokens outside
// the draft vocabulary are never among the likeliest, and their logits are −∞.
type Head struct {
	pasts
	open map[infer.SeqID]*headSeq

	segs  []model.Segment
	heads []*headSeq // of segs
	asked []int      // ask of each segment, -1 for none
	segOf []int      // segment of each ask, -1 for none
	spare []*headSeq // for their memory, which retire bounds

	answer answers
	ahead  pace
}

// In a headSeq, tokens[i+1] belongs to position i. If no true feature is left, row 0 of store is that of the last
// position that has run, if last is set: a round that is started again runs it once more.
type headSeq struct {
	text
	branch *model.Branch // of drafted nodes
	last   bool
	chain  tree.Tree
	path   []int

	// f̂ of the nodes that ran, by node.
	fhat *model.Store
	feat []model.Feature // input features of a segment
	mute bool            // this round's tree exceeds the head's positions

	ahead leveller
}

// NewHead returns a source over h that keeps the KV store of up to prefixes closed sequences. h
// stays the caller's.
func NewHead(h *head.Head, prefixes int) *Head {
	src := &Head{open: map[infer.SeqID]*headSeq{}}
	src.init(h, prefixes)
	return src
}

// Open starts a sequence.
func (h *Head) Open(id infer.SeqID, prompt []int32, keep int) error {
	return h.OpenOf(id, prefix.Owner{}, prompt, keep)
}

// OpenOf is Open for an owner.
func (h *Head) OpenOf(id infer.SeqID, of prefix.Owner, prompt []int32, keep int) error {
	s := &headSeq{}
	if n := len(h.spare); n > 0 {
		s, h.spare = h.spare[n-1], h.spare[:n-1]
	}
	*s = headSeq{text: s.text, fhat: s.fhat, chain: s.chain, path: s.path, feat: s.feat, ahead: s.ahead}
	if err := h.begin(&s.text, of, prompt, keep); err != nil {
		return err
	}
	h.open[id] = s
	return nil
}

// Close ends a sequence and keeps it as a prefix.
func (h *Head) Close(id infer.SeqID) {
	s := h.open[id]
	if s == nil {
		return
	}
	delete(h.open, id)
	s.drop()
	h.keep(&s.text)
	s.seq = nil
	h.retire(s)
}

// What closed sequences leave to later ones is bounded: a burst of long prompts must not hold its
// memory for ever. Chunks of a prompt run as they arrive, so that few sequences need more.
const (
	mostSpare = 16  // sequences
	spareRows = 512 // hidden states of each store
)

// retire keeps the memory of a closed sequence for a later one.
func (h *Head) retire(s *headSeq) {
	if len(h.spare) == mostSpare {
		return
	}
	s.shrink()
	if s.fhat != nil && s.fhat.Rows() > spareRows {
		s.fhat = nil
	}
	h.spare = append(h.spare, s)
}

// shrink gives up memory that few sequences need.
func (s *text) shrink() {
	if s.store != nil && s.store.Rows() > spareRows {
		s.store = nil
	}
	if cap(s.tokens) > 4*spareRows {
		s.tokens = nil
	}
}

func (s *headSeq) drop() {
	if s.branch != nil {
		s.branch.Drop()
		s.branch = nil
	}
}

// Commit takes the kept tokens and the target's hidden states, which it copies so that a pass
// that fails can be run again.
func (h *Head) Commit(id infer.SeqID, p infer.Proposal, v infer.Verdict, sc infer.Scores) error {
	s := h.open[id]
	if s == nil {
		return fmt.Errorf("source: sequence %d is not open", id)
	}
	s.drop()
	s.last = s.last && s.pending() > 0
	return h.take(&s.text, p, v, sc)
}

// Backlog returns how many committed tokens of a sequence have not run. They do with its next ask.
func (h *Head) Backlog(id infer.SeqID) int {
	if s := h.open[id]; s != nil && !s.dead {
		return s.pending()
	}
	return 0
}

// fit grows a store to n rows and keeps the first used ones.
func fit(st **model.Store, newStore func(rows int) (*model.Store, error), used, n int) error {
	old := *st
	if old != nil && old.Rows() >= n {
		return nil
	}
	grown, err := newStore(max(64, n+n/2))
	if err != nil {
		return err
	}
	var f []model.Feature
	for i := range used {
		f = append(f, old.At(i))
	}
	if used > 0 {
		if err := grown.Put(0, f...); err != nil {
			return err
		}
	}
	*st = grown
	return nil
}

// Rows runs the asked nodes and the pending positions in one pass; in several only if a
// sequence that asks has more pending than a tree can hold.
func (h *Head) Rows(ctx context.Context, asks []infer.Ask) ([]infer.Row, error) {
	all, err := h.find(asks)
	if err != nil {
		return nil, err
	}
	if all {
		return h.answerAll(asks), nil
	}
	for {
		h.clear()
		for i := range asks {
			if s := h.open[asks[i].ID]; asks[i].Tree != nil && !s.dead && s.pending() > tree.MaxNodes {
				h.add(s, -1, s.trueSegment(tree.MaxNodes, model.WantNone))
			}
		}
		if len(h.segs) == 0 {
			break
		}
		if _, err := h.run(ctx); err != nil {
			return nil, err
		}
	}
	h.clear()
	for i, a := range asks {
		s := h.open[a.ID]
		h.segOf = append(h.segOf, -1)
		if a.Tree == nil {
			if n := min(s.pending(), a.Width, tree.MaxNodes); !s.dead && n > 0 {
				h.add(s, -1, s.trueSegment(n, model.WantNone))
			}
			continue
		}
		if s.mute {
			continue
		}
		if a.From == 0 {
			h.segOf[i] = len(h.segs)
			h.add(s, i, s.trueSegment(s.pending(), model.WantLast))
			continue
		}
		g := model.Segment{Tree: a.Tree, From: a.From, Want: model.WantAll}
		if x := &s.ahead; x.on {
			if x.from == x.work.Len() {
				continue
			}
			g.Tree, g.From = x.tree(), x.from
		}
		if s.branch == nil {
			s.branch = s.seq.BranchLast()
		}
		s.feat = s.feat[:0]
		for n := g.From; n < g.Tree.Len(); n++ {
			s.feat = append(s.feat, s.fhat.At(g.Tree.Parent(n)))
		}
		g.Rows, g.Feat = s.branch, s.feat
		h.segOf[i] = len(h.segs)
		h.add(s, i, g)
	}
	var out *model.Output
	if len(h.segs) > 0 {
		h.goAhead(asks)
		start := time.Now()
		if out, err = h.run(ctx); err != nil {
			return nil, err
		}
		if g := &h.segs[0]; len(h.segs) == 1 && g.From > 0 {
			levels := 1
			if g.Ahead != nil {
				levels = g.Ahead.Ran
			}
			h.ahead.note(levels, time.Since(start))
		}
	}
	rows := h.rows(asks, out)
	h.answered(asks, rows)
	return rows, nil
}

// run passes the segments through the head and keeps what later passes need. If it fails, no
// position has run in the sequences that it did not reach.
func (h *Head) run(ctx context.Context) (*model.Output, error) {
	out, err := h.m.Forward(ctx, h.segs)
	if errors.Is(err, model.ErrKVFull) && h.retryWithoutAhead() {
		out, err = h.m.Forward(ctx, h.segs)
	}
	for errors.Is(err, model.ErrKVFull) && h.kept.Evict() {
		out, err = h.m.Forward(ctx, h.segs)
	}
	if err != nil {
		h.dropFrom(0)
		return nil, fmt.Errorf("run the draft head: %w", err)
	}
	for i, s := range h.heads {
		if err := h.retain(s, out, i); err != nil {
			h.dropFrom(i)
			return nil, fmt.Errorf("keep what the draft head made: %w", err)
		}
	}
	return out, nil
}

// dropFrom drops the rows of segments from i on.
func (h *Head) dropFrom(i int) {
	for j, s := range h.heads[i:] {
		if g := &h.segs[i+j]; g.From == 0 {
			g.Rows.Drop()
		}
		s.drop()
	}
}

func (h *Head) clear() {
	h.segs, h.heads, h.asked, h.segOf = h.segs[:0], h.heads[:0], h.asked[:0], h.segOf[:0]
}

func (h *Head) add(s *headSeq, ask int, g model.Segment) {
	h.segs, h.heads, h.asked = append(h.segs, g), append(h.heads, s), append(h.asked, ask)
}

// begin makes the root a position that has to run. It already is one, unless the last round was
// interrupted after it had run.
func (s *headSeq) begin() {
	s.drop()
	if s.pending() == 0 && s.last {
		s.seq.Truncate(s.seq.Len() - 1)
	}
}

// beyond reports whether t needs a position that the head lacks.
func (h *Head) beyond(s *headSeq, t *tree.Tree) bool {
	depth := 0
	for n := range t.Len() {
		depth = max(depth, t.Depth(n))
	}
	return len(s.tokens)-2+depth >= h.m.Spec().MaxPos // the root's own is len(tokens)-2
}

// trueSegment runs the first n pending positions as a chain after the committed ones.
func (s *headSeq) trueSegment(n int, want model.Want) model.Segment {
	at, first := s.seq.Len(), s.feats-s.pending()
	s.chain.Reset(s.tokens[at+1], n)
	s.path = append(s.path[:0], 0)
	s.feat = append(s.feat[:0], s.store.At(first))
	for i := 1; i < n; i++ {
		s.path = append(s.path, s.chain.Add(i-1, s.tokens[at+1+i]))
		s.feat = append(s.feat, s.store.At(first+i))
	}
	return model.Segment{Rows: s.seq.Branch(at), Tree: &s.chain, Want: want, Feat: s.feat}
}

// retain keeps what later passes need of segment i: the KV rows and the last true feature of a
// chain, and f̂ of nodes that may get children. After an error the chain's rows are still open.
func (h *Head) retain(s *headSeq, out *model.Output, i int) error {
	g := &h.segs[i]
	if h.asked[i] >= 0 {
		h.feats = h.feats[:0]
		if g.From == 0 {
			h.feats = append(h.feats, out.Feature(i, g.Tree.Len()-1))
		} else {
			for n := g.From; n < g.Tree.Len(); n++ {
				h.feats = append(h.feats, out.Feature(i, n))
			}
		}
		if err := fit(&s.fhat, h.m.NewStore, g.From, g.From+len(h.feats)); err != nil {
			return err
		}
		if err := s.fhat.Put(g.From, h.feats...); err != nil {
			return err
		}
	}
	if g.From > 0 {
		return nil
	}
	all := s.pending() == g.Tree.Len()
	if last := s.feats - 1; all && last > 0 {
		if err := s.store.Put(0, s.store.At(last)); err != nil {
			return err
		}
	}
	if err := g.Rows.Commit(s.path); err != nil {
		return err
	}
	if all {
		s.feats, s.last = 1, true
	}
	return nil
}

// rows returns the rows that were asked for.
func (h *Head) rows(asks []infer.Ask, out *model.Output) []infer.Row {
	x := &h.answer
	x.read(asks, out, h.m.Spec().Vocab, h.m.Outputs(), nil)
	for i := range asks {
		a := &asks[i]
		seg, s := h.segOf[i], h.open[a.ID]
		for n := a.From; n < a.Nodes(); n++ {
			if a.From > 0 && s.ahead.on && !s.mute && s.ahead.in(n) < s.ahead.from {
				x.rows = append(x.rows, s.ahead.answer(a, n))
				continue
			}
			row := -1
			switch {
			case seg < 0:
			case a.From == 0:
				row = out.LogitsRow(seg, out.LastNode(seg)) // the root is the last true position
			default:
				row = out.LogitsRow(seg, s.ahead.in(n))
			}
			x.add(a, n, row)
		}
	}
	return x.rows
}

// Abilities: it keeps prefixes by tenant, and gives memory back.
func (h *Head) Abilities() infer.Abilities { return infer.Abilities{Tenants: h, Release: h} }

var _ infer.Source = (*Head)(nil)
