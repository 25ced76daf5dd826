package source

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"talf/infer"
	"talf/infer/prefix"
	"talf/model"
	"talf/model/identity"
	"talf/tree"
)

// An LM is a language model as a source: usually a much smaller one than the target, with the
// target's tokenizer or a similar one.
//
// It keeps the tokens of a sequence, root included, in its own spelling. Drafted nodes follow
// the root; the rows of accepted ones stay, the others are dropped at the next commit. Waiting
// tokens run in one pass with the nodes that are asked. It needs nothing but tokens from the
// target, so it matches any prefix and runs what it has not kept.
//
// A sequence that outgrows the model's positions continues with its newest half; the text
// before is forgotten.
type LM struct {
	m     *model.Model
	vocab *Vocab
	open  map[infer.SeqID]*lmSeq
	kept  *prefix.Cache[*model.Seq] // closed sequences, by the tokens that ran

	segs   []model.Segment
	seqs   []*lmSeq // of segs
	segOf  []int    // segment of each ask, -1 for none
	answer answers
}

type lmSeq struct {
	seq    *model.Seq
	branch *model.Branch // of drafted nodes
	of     prefix.Owner  // Long says how the draft model's own positions rotate
	tokens []int32       // as the draft model spells them, the root last
	base   int           // of tokens; stands at position 0 of seq

	work tree.Tree // the asked nodes as the draft model spells them
	node []int     // node of work of each asked node, -1 for none

	chain tree.Tree
	path  []int
}

// NewLM returns a source over m, which stays the caller's. It keeps the KV store of up to
// prefixes closed sequences. vocab translates the target's tokens.
func NewLM(m *model.Model, vocab *Vocab, prefixes int) *LM {
	return &LM{m: m, vocab: vocab, kept: prefix.Of(m, prefixes), open: map[infer.SeqID]*lmSeq{}}
}

// Identity identifies the model, and its tokenizer by a hash.
func (l *LM) Identity() (f *identity.Function, tokenizer string, err error) {
	if l.vocab != nil {
		tokenizer = l.vocab.draft
	}
	if err = l.m.Identify(); err != nil {
		return nil, "", err
	}
	return l.m.Function(), tokenizer, nil
}

// ReleaseKV gives the memory that the model's pool does not use back to the system.
func (l *LM) ReleaseKV() { l.m.ReleaseKV() }

// Prefixes returns the kept sequences, for the caller to bound or evict.
func (l *LM) Prefixes() *prefix.Cache[*model.Seq] { return l.kept }

// Match returns the length of prompt: no position needs the target.
func (l *LM) Match(prompt []int32) int { return len(prompt) }

// MatchOf is Match for an owner.
func (l *LM) MatchOf(_ prefix.Owner, prompt []int32) int { return len(prompt) }

// Open starts a sequence from the longest prefix that a closed one shares with it.
func (l *LM) Open(id infer.SeqID, prompt []int32, keep int) error {
	return l.OpenOf(id, prefix.Owner{}, prompt, keep)
}

// OpenOf is Open for an owner.
func (l *LM) OpenOf(id infer.SeqID, of prefix.Owner, prompt []int32, keep int) error {
	s := &lmSeq{of: of}
	if first := l.vocab.spell(prompt[0]); !l.vocab.same && (len(first) == 0 || !slices.Contains(l.vocab.before, first[0])) {
		s.tokens = append(s.tokens, l.vocab.before...)
	}
	for _, t := range prompt[:keep+1] {
		s.tokens = append(s.tokens, l.vocab.spell(t)...)
	}
	s.of.Long = l.long(len(s.tokens))
	k, n := l.kept.FindOf(s.of, s.tokens)
	if n > 0 {
		s.seq = k.Fork()
		s.seq.Truncate(n)
	} else {
		s.seq = l.newSeq(s)
	}
	prefix.Mark(l.kept, s.of, s.tokens, n, s.seq)
	l.open[id] = s
	return nil
}

// Close ends a sequence and keeps it as a prefix.
func (l *LM) Close(id infer.SeqID) {
	s := l.open[id]
	if s == nil {
		return
	}
	delete(l.open, id)
	s.drop()
	if s.base > 0 { // it lacks the beginning of its text
		s.seq.Close()
		return
	}
	l.kept.PutOf(s.of, s.tokens[:s.seq.Len()], s.seq)
}

func (s *lmSeq) drop() {
	if s.branch != nil {
		s.branch.Drop()
		s.branch = nil
	}
	s.node = s.node[:0]
}

// pending returns the number of tokens that have not run.
func (s *lmSeq) pending() int { return len(s.tokens) - s.base - s.seq.Len() }

// Commit takes the kept tokens; the rows of those that ran stay.
func (l *LM) Commit(id infer.SeqID, p infer.Proposal, v infer.Verdict, _ infer.Scores) error {
	s := l.open[id]
	if s == nil {
		return fmt.Errorf("source: sequence %d is not open", id)
	}
	first := len(s.tokens)
	for _, n := range v.Path[1:] {
		s.tokens = append(s.tokens, l.vocab.spell(p.Tree.Token(n))...)
	}
	s.tokens = append(s.tokens, l.vocab.spell(v.Next)...)
	if s.branch == nil {
		return nil
	}
	s.path = append(s.path[:0], 0)
	n := 0
	for _, t := range s.tokens[first:] {
		if n = s.work.Child(n, t); n < 0 || n >= s.branch.Len() {
			break
		}
		s.path = append(s.path, n)
	}
	if err := s.branch.Commit(s.path); err != nil {
		return fmt.Errorf("source: keep %d drafted tokens: %w", len(s.path)-1, err)
	}
	s.branch, s.node = nil, s.node[:0]
	return nil
}

// room is the depth kept free for trees: a sequence whose root is nearer to the model's
// last position forgets its older half.
func (l *LM) room() int { return min(64, l.m.Spec().MaxPos/4) }

// fit forgets old tokens so that the root and a tree below it have positions. The first token
// that is left depends only on the number of tokens, so that rows do not depend on when this
// happens.
func (l *LM) fit(s *lmSeq) {
	half := max(1, l.m.Spec().MaxPos/2)
	base := 0
	for len(s.tokens)-base > l.m.Spec().MaxPos-l.room() {
		base += half
	}
	if long := l.long(len(s.tokens) - base); base != s.base || long != s.of.Long {
		s.drop()
		s.seq.Close()
		s.base, s.of.Long = base, long
		s.seq = l.newSeq(s)
	}
}

// long reports whether a text of n tokens, root included, is read as a long one by a model with longrope: from
// where trees below the root would be.
func (l *LM) long(n int) bool { return l.m.Spec().Long(n + l.room()) }

func (l *LM) newSeq(s *lmSeq) *model.Seq {
	if s.of.Long {
		return l.m.NewSeqOf(l.m.Spec().MaxPos)
	}
	return l.m.NewSeq()
}

// Backlog returns how many tokens of a sequence have not run. They do with its next ask.
func (l *LM) Backlog(id infer.SeqID) int {
	s := l.open[id]
	if s == nil {
		return 0
	}
	if s.branch == nil {
		l.fit(s)
	}
	return s.pending()
}

// Rows runs the asked nodes and the pending tokens in one pass; in several only if a sequence
// that asks has more pending than a tree can hold.
func (l *LM) Rows(ctx context.Context, asks []infer.Ask) ([]infer.Row, error) {
	for _, a := range asks {
		s := l.open[a.ID]
		if s == nil {
			return nil, fmt.Errorf("source: sequence %d is not open", a.ID)
		}
		if a.From == 0 && a.Tree != nil {
			s.drop()
		}
	}
	for _, s := range l.open {
		if s.branch == nil {
			l.fit(s)
		}
	}
	for _, a := range asks {
		// A round that is started again runs its root again.
		if s := l.open[a.ID]; a.Tree != nil && a.From == 0 && s.pending() == 0 && s.seq.Len() > 0 {
			s.seq.Truncate(s.seq.Resume(s.seq.Len() - 1))
		}
	}
	for {
		l.clear()
		for i := range asks {
			if s := l.open[asks[i].ID]; asks[i].Tree != nil && s.branch == nil && s.pending() > tree.MaxNodes {
				l.add(s, s.trueSegment(tree.MaxNodes, model.WantNone))
			}
		}
		if len(l.segs) == 0 {
			break
		}
		if _, err := l.run(ctx); err != nil {
			return nil, err
		}
	}

	l.clear()
	for _, a := range asks {
		l.segOf = append(l.segOf, -1)
		s := l.open[a.ID]
		var g model.Segment
		if a.Tree == nil {
			if n := min(s.pending(), a.Width, tree.MaxNodes); s.branch == nil && n > 0 {
				l.add(s, s.trueSegment(n, model.WantNone))
			}
			continue
		}
		if a.From == 0 {
			if s.pending() == 0 {
				continue // no draft token stands for the text
			}
			g = s.trueSegment(s.pending(), model.WantLast)
			s.work.Reset(s.tokens[len(s.tokens)-1], tree.MaxNodes)
			s.node = append(s.node[:0], 0)
		} else {
			from := s.work.Len()
			if l.extend(s, &a); s.work.Len() == from {
				continue
			}
			if s.branch == nil {
				s.branch = s.seq.BranchLast()
			}
			g = model.Segment{Rows: s.branch, Tree: &s.work, From: from, Want: model.WantAll}
		}
		l.segOf[len(l.segOf)-1] = len(l.segs)
		l.add(s, g)
	}
	if len(l.segs) == 0 {
		return l.rows(asks, nil), nil
	}
	out, err := l.run(ctx)
	if err != nil {
		return nil, err
	}
	return l.rows(asks, out), nil
}

// extend adds the nodes that a asks for to s.work in the draft model's spelling. A node that
// cannot be spelled or has no position gets no node there, and neither do its descendants.
func (l *LM) extend(s *lmSeq, a *infer.Ask) {
	most := l.m.Spec().MaxPos
	if n := l.m.Spec().Rope.Switch(); n > 0 && !s.of.Long {
		most = n
	}
	last := most - 1 - (len(s.tokens) - 1 - s.base) // deepest node with a position
	for n := a.From; n < a.Tree.Len(); n++ {
		at := -1
		if len(s.node) > 0 {
			at = s.node[a.Tree.Parent(n)]
		}
		spelled := l.vocab.spell(a.Tree.Token(n))
		if at >= 0 && (len(spelled) == 0 || len(spelled) > s.work.Room() || s.work.Depth(at)+len(spelled) > last) {
			at = -1
		}
		if at >= 0 {
			for _, t := range spelled {
				at = s.work.Add(at, t)
			}
		}
		if len(s.node) > 0 {
			s.node = append(s.node, at)
		}
	}
}

// run passes the segments through the model and keeps the rows of true tokens. If it fails, no
// token has run.
func (l *LM) run(ctx context.Context) (*model.Output, error) {
	out, err := l.m.Forward(ctx, l.segs)
	for errors.Is(err, model.ErrKVFull) && l.kept.Evict() {
		out, err = l.m.Forward(ctx, l.segs)
	}
	if err != nil {
		for i, s := range l.seqs {
			if l.segs[i].From == 0 {
				l.segs[i].Rows.Drop()
			}
			s.drop()
		}
		return nil, fmt.Errorf("run the draft model: %w", err)
	}
	for i, s := range l.seqs {
		if g := &l.segs[i]; g.From == 0 {
			if err := g.Rows.Commit(s.path); err != nil {
				return nil, err
			}
		}
	}
	return out, nil
}

func (l *LM) clear() { l.segs, l.seqs, l.segOf = l.segs[:0], l.seqs[:0], l.segOf[:0] }

func (l *LM) add(s *lmSeq, g model.Segment) {
	l.segs, l.seqs = append(l.segs, g), append(l.seqs, s)
}

// trueSegment runs the first n pending tokens as a chain after those that ran.
func (s *lmSeq) trueSegment(n int, want model.Want) model.Segment {
	at := s.seq.Len()
	next := s.tokens[s.base+at:][:n]
	s.chain.Reset(next[0], n)
	s.path = append(s.path[:0], 0)
	for i := 1; i < n; i++ {
		s.path = append(s.path, s.chain.Add(i-1, next[i]))
	}
	return model.Segment{Rows: s.seq.Branch(at), Tree: &s.chain, Want: want}
}

// rows returns the rows that were asked for.
func (l *LM) rows(asks []infer.Ask, out *model.Output) []infer.Row {
	x := &l.answer
	x.read(asks, out, l.m.Spec().Vocab, l.m.Outputs(), l.vocab)
	for i := range asks {
		a := &asks[i]
		seg, s := l.segOf[i], l.open[a.ID]
		for n := a.From; n < a.Nodes(); n++ {
			row := -1
			switch {
			case seg < 0:
			case a.From == 0:
				row = out.LogitsRow(seg, out.LastNode(seg)) // the root is the last true token
			case s.node[n] >= 0:
				row = out.LogitsRow(seg, s.node[n])
			}
			x.add(a, n, row)
		}
	}
	return x.rows
}

// Abilities: it keeps prefixes by tenant, and gives memory back.
func (l *LM) Abilities() infer.Abilities { return infer.Abilities{Tenants: l, Release: l} }

var _ infer.Source = (*LM)(nil)
