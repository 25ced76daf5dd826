package source

import (
	"context"
	"errors"
	"fmt"

	"talf/infer"
	"talf/infer/prefix"
	"talf/model"
	"talf/model/arch"
	"talf/model/head"
)

// A Block is a block drafter as a source; see arch.Block.
//
// The first ask of a round runs what the target has verified since the last one, and a block after it. That says
// everything about the round: a node at depth d has the distribution of the row for the token after it,
// whatever its own token and those above it are. With a Markov head or a selector it depends on them, and a
// further ask costs products with these alone. Nodes that are deeper than the block have no rows.
//
// It keeps the context's keys and values, as a Head does.
type Block struct {
	pasts
	open  map[infer.SeqID]*blockSeq
	spare []*blockSeq // for their memory, which retire bounds

	batch  []model.BlockSegment
	seqs   []*blockSeq // of batch
	after  []model.After
	rowOf  []int // by node that is asked: of after, −1 for none
	answer answers
	pick   selector
}

// A blockSeq is an open sequence of a Block. tokens[i] belongs to position i.
type blockSeq struct {
	text
	feat  []model.Feature
	state *model.BlockState
	ran   bool        // state is of this round's block
	offer selection   // of this round's block
	rows  []int       // by depth, where nothing depends on tokens: of after in this pass
	nodes [][]float32 // states of a recurrent Markov head, by node of the tree that is asked
}

// NewBlock returns a source over h, a block drafter, that keeps the keys and values of up to prefixes closed
// sequences. h stays the caller's.
func NewBlock(h *head.Head, prefixes int) *Block {
	b := &Block{open: map[infer.SeqID]*blockSeq{}}
	b.init(h, prefixes)
	return b
}

// Open starts a sequence.
func (b *Block) Open(id infer.SeqID, prompt []int32, keep int) error {
	return b.OpenOf(id, prefix.Owner{}, prompt, keep)
}

// OpenOf is Open for an owner.
func (b *Block) OpenOf(id infer.SeqID, of prefix.Owner, prompt []int32, keep int) error {
	s := &blockSeq{}
	if n := len(b.spare); n > 0 {
		s, b.spare = b.spare[n-1], b.spare[:n-1]
	}
	s.ran = false
	if err := b.begin(&s.text, of, prompt, keep); err != nil {
		return err
	}
	b.open[id] = s
	return nil
}

// Close ends a sequence and keeps it as a prefix.
func (b *Block) Close(id infer.SeqID) {
	s := b.open[id]
	if s == nil {
		return
	}
	delete(b.open, id)
	b.keep(&s.text)
	s.seq = nil
	if len(b.spare) < mostSpare {
		s.shrink()
		b.spare = append(b.spare, s)
	}
}

// Commit takes the kept tokens and the target's hidden states, and ends the round.
func (b *Block) Commit(id infer.SeqID, p infer.Proposal, v infer.Verdict, sc infer.Scores) error {
	s := b.open[id]
	if s == nil {
		return fmt.Errorf("source: sequence %d is not open", id)
	}
	s.ran = false
	return b.take(&s.text, p, v, sc)
}

// Backlog returns how many committed tokens have not been read, with the root, with which each block begins.
func (b *Block) Backlog(id infer.SeqID) int {
	if s := b.open[id]; s != nil && !s.dead {
		return s.pending() + 1
	}
	return 0
}

// Rows runs the blocks of rounds that begin, with all that is pending, in one pass.
func (b *Block) Rows(ctx context.Context, asks []infer.Ask) ([]infer.Row, error) {
	b.batch, b.seqs = b.batch[:0], b.seqs[:0]
	for i := range asks {
		a := &asks[i]
		s := b.open[a.ID]
		if s == nil {
			return nil, fmt.Errorf("source: sequence %d is not open", a.ID)
		}
		switch n := s.pending(); {
		case s.dead:
		case a.Tree == nil:
			if b.m.Spec().Block.Linear {
				n-- // its block reads the last
			}
			if n = min(n, a.Width); n > 0 {
				b.add(s, n, -1)
			}
		case !s.ran && b.within(s) && (n > 0 || !b.m.Spec().Block.Linear):
			b.add(s, n, a.Tree.Token(0))
		}
	}
	if err := b.run(ctx); err != nil {
		return nil, err
	}
	if b.m.Spec().Block.SelectorRank > 0 {
		return b.selected(ctx, asks)
	}
	return b.rows(ctx, asks)
}

// within reports whether the head has positions for all rows of the next block.
func (b *Block) within(s *blockSeq) bool {
	return len(s.tokens)-1+b.m.Spec().Block.Size <= b.m.Spec().MaxPos
}

// add runs the first n pending positions, and the block of anchor after them unless it is −1.
func (b *Block) add(s *blockSeq, n int, anchor int32) {
	s.feat = s.feat[:0]
	for i := range n {
		s.feat = append(s.feat, s.store.At(s.feats-s.pending()+i))
	}
	b.batch, b.seqs = append(b.batch, model.BlockSegment{Seq: s.seq, Feat: s.feat, Anchor: anchor}), append(b.seqs, s)
}

// run passes the batch through the head and keeps what the blocks say.
func (b *Block) run(ctx context.Context) error {
	if len(b.batch) == 0 {
		return ctx.Err()
	}
	out, err := b.m.ForwardBlocks(ctx, b.batch)
	for errors.Is(err, model.ErrKVFull) && b.kept.Evict() {
		out, err = b.m.ForwardBlocks(ctx, b.batch)
	}
	if err != nil {
		return fmt.Errorf("run the block drafter: %w", err)
	}
	for i, s := range b.seqs {
		if b.batch[i].Anchor < 0 {
			continue
		}
		if s.state == nil {
			if s.state, err = b.m.NewBlockState(); err != nil {
				return err
			}
		}
		out.Keep(i, s.state)
		b.selections(s, out, i)
		s.ran = true
	}
	return nil
}

// rows returns the rows that were asked for, of a head without a selector.
func (b *Block) rows(ctx context.Context, asks []infer.Ask) ([]infer.Row, error) {
	x := &b.m.Spec().Block
	b.after, b.rowOf = b.after[:0], b.rowOf[:0]
	for i := range asks {
		a := &asks[i]
		s := b.open[a.ID]
		s.rows = s.rows[:0]
		for range x.Drafts() {
			s.rows = append(s.rows, -1)
		}
		for n := a.From; n < a.Nodes(); n++ {
			b.rowOf = append(b.rowOf, b.place(s, a, n, x.Chained()))
		}
	}
	var out *model.Output
	var err error
	if len(b.after) > 0 {
		if out, err = b.m.ForwardAfter(ctx, b.after); err != nil {
			return nil, fmt.Errorf("run the block drafter: %w", err)
		}
	}
	b.answer.read(asks, out, b.m.Spec().Vocab, b.m.Outputs(), nil)
	at := 0
	for i := range asks {
		a := &asks[i]
		for n := a.From; n < a.Nodes(); n++ {
			r := b.rowOf[at]
			b.answer.add(a, n, r)
			if x.Confidence && r >= 0 {
				b.answer.rows[at].Accept = b.after[r].Accept
			}
			at++
		}
	}
	return b.answer.rows, nil
}

// place returns the row of after for a node, which it adds if it is not there; −1 if the block says nothing of it.
func (b *Block) place(s *blockSeq, a *infer.Ask, n int, chained bool) int {
	d := a.Tree.Depth(n)
	switch {
	case !s.ran || d >= len(s.rows):
		return -1
	case !chained && s.rows[d] >= 0:
		return s.rows[d]
	}
	at := model.After{Block: s.state, Depth: d, Token: a.Tree.Token(n)}
	if b.m.Spec().Block.Markov == arch.RNNMarkov {
		for len(s.nodes) <= n {
			s.nodes = append(s.nodes, make([]float32, b.m.Spec().Block.Rank))
		}
		if at.State = s.nodes[n]; n > 0 {
			at.Before = s.nodes[a.Tree.Parent(n)]
		}
	}
	b.after = append(b.after, at)
	s.rows[d] = len(b.after) - 1
	return s.rows[d]
}

// Abilities: it keeps prefixes by tenant, and gives memory back.
func (b *Block) Abilities() infer.Abilities {
	return infer.Abilities{Tenants: b, Release: b, AtOnce: true}
}

var _ infer.Source = (*Block)(nil)
