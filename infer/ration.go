package infer

import (
	"slices"
	"time"

	"talf/tree"
)

// A Budget shares the passes of rounds among the drafts of sequences, by what these are expected to
// gain. The engine calls it in the order of its methods; Ask and Asked once for each pass of a
// source. A round that fails begins again. The output does not depend on a budget.
//
// Trees whose children were drawn at random stay as they are, because the output depends on them.
type Budget interface {
	// Begin begins a round and sets the Most of each bid.
	Begin(bids []*Bid)
	// Ask sets the Go of those who ask a source for a pass.
	Ask(bids []*Bid)
	// Asked says what the pass took, in which the source has read so many committed tokens, those of
	// other sequences included.
	Asked(bids []*Bid, read int, took time.Duration)
	// Postpones reports whether sources leave what is committed unread until it is asked about.
	Postpones() bool
	// Cut sets the Keep of each bid that has a tree.
	Cut(bids []*Bid)
	// Learn takes the tokens that a bid's sequence puts out after the root of its tree.
	Learn(b *Bid, tokens []int32)
	// End ends a round.
	End(p *Pass)
}

// A Bid is what a sequence wants of a round. It is the same one in all rounds of the sequence.
type Bid struct {
	Method string
	State  any  // the budget's own
	Adapts bool // the drafter follows costs itself, for its own sequence

	// Most is the largest tree that the sequence may draft, root counted; 0 sets no bound, and with
	// 1 it is not asked for a draft.
	Most int

	// A pass of the source would be the Level-th of this round, from 0, for Nodes nodes. Reach
	// is the draft's probability that the output comes to one of them, 0 if it does not say.
	// Backlog committed tokens are read in the same pass.
	Level, Nodes int
	Backlog      int
	Reach        float64
	Go           bool

	// Tree is the finished draft, nil if there is none beside the root; LogV is the natural log of
	// the draft's path probability of each node, nil if it does not say. Nodes from Live on are
	// only scored: all of them stay or none. Keep[n] says whether node n stays, as the root always
	// does and no node without its parent; nil keeps all.
	Rows int // of the target's pass if nothing is cut
	// Grown is how long the sequence's drafter took, without passes of its source; Slept says that it sits the round out.
	Grown time.Duration
	Slept bool
	Tree  *tree.Tree
	LogV  []float64
	Live  int
	Keep  []bool
}

// bid begins a round of the budget.
func (e *Engine) bid(seqs []*Sequence) {
	e.bids = e.bids[:0]
	for _, s := range seqs {
		if s.reason == "" && !s.prefilling() {
			b := &s.bid
			*b = Bid{Method: s.req.Method, State: b.State, Adapts: s.traits.Took != nil, Keep: b.Keep[:0]}
			e.bids = append(e.bids, b)
		}
	}
	e.Budget.Begin(e.bids)
}

// ration leaves out of a source's pass the sequences that it does not pay for: their trees end.
func (e *Engine) ration(q *sourceAsks) {
	e.bids = e.bids[:0]
	for _, s := range q.owners {
		b := &s.bid
		b.Level, b.Nodes, b.Reach, b.Go = s.timing.Steps, s.prop.work().Len()-s.ran, s.prop.Reach, true
		if b.Backlog = 0; b.Level == 0 {
			b.Reach, b.Backlog = 1, s.backlog()
		}
		e.bids = append(e.bids, b)
	}
	e.Budget.Ask(e.bids)
	stay := 0
	for i, s := range q.owners {
		if s.bid.Go || !s.stop() {
			q.asks[stay], q.owners[stay], e.bids[stay] = q.asks[i], s, e.bids[i]
			stay++
		}
	}
	q.asks, q.owners, e.bids = q.asks[:stay], q.owners[:stay], e.bids[:stay]
}

// asked tells the budget what a pass of a source took.
func (e *Engine) asked(q *sourceAsks, took time.Duration) {
	e.bids = e.bids[:0]
	for _, s := range q.owners {
		e.bids = append(e.bids, &s.bid)
	}
	e.Budget.Asked(e.bids, q.read, took)
}

// stop ends a tree that has asked for more than it gets. It reports false if the drafter cannot.
func (s *Sequence) stop() bool {
	switch {
	case s.traits.Finish != nil:
		s.growing = false
		if err := s.callFinish(); err != nil {
			s.fail(err)
		} else if s.prop.Tree.Len() == 1 {
			s.plainly = ErrBudget
		}
	case s.timing.Steps == 0:
		s.plain(ErrBudget)
	default:
		return false
	}
	return true
}

// cut leaves of the trees what the budget keeps.
func (e *Engine) cut(seqs []*Sequence) {
	e.bids = e.bids[:0]
	for _, s := range seqs {
		if s.reason != "" || s.out || s.prefilling() {
			continue
		}
		s.bid.Rows, s.bid.Grown, s.bid.Slept = s.prop.Tree.Len(), s.timing.Overhead, s.rest.now
		if p := &s.prop; p.Tree.Len() > 1 && p.Draw() == Chosen {
			s.bid.Tree, s.bid.LogV, s.bid.Live = p.Tree, p.LogV, p.LiveNodes()
		}
		e.bids = append(e.bids, &s.bid)
	}
	e.Budget.Cut(e.bids)
	for _, s := range seqs {
		if s.reason == "" && !s.out && !s.prefilling() && s.bid.Tree != nil && slices.Contains(s.bid.Keep, false) {
			s.trim()
		}
	}
}

// trim cuts the tree to the nodes that the budget keeps.
func (s *Sequence) trim() {
	p, full, keep := &s.prop, s.bid.Tree, s.bid.Keep
	partial := p.LiveNodes() < full.Len()
	s.trimmed.Reset(full.Token(0), full.Len())
	s.trimmedV, s.at = append(s.trimmedV[:0], 0), append(s.at[:0], 0)
	for n := 1; n < full.Len() && !partial; n++ {
		up := s.at[full.Parent(n)]
		if !keep[n] || up < 0 {
			s.at = append(s.at, -1)
			continue
		}
		s.at = append(s.at, s.trimmed.Add(up, full.Token(n)))
		if p.LogV != nil {
			s.trimmedV = append(s.trimmedV, p.LogV[n])
		}
	}
	p.Tree, p.Live = &s.trimmed, 0
	if p.LogV != nil {
		p.LogV = s.trimmedV
	}
	if s.trimmed.Len() == 1 {
		s.plainly = ErrBudget
	}
}
