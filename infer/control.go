package infer

import (
	"slices"
	"time"

	"talf/model"
	"talf/tree"
)

// A Controller decides which drafts are worth their time: whether drafters are asked, which passes of draft models run,
// and which nodes are scored. The engine calls it in the order of its methods, Ask once for each pass of a source. A
// round that fails begins again. The output does not depend on it.
type Controller interface {
	// Begin begins a round of the given number of sequences. The bids are of those that are controlled and do
	// not skip the round; it sets their Most and Least.
	Begin(bids []*Bid, sequences int)
	// Ask sets Go and Read of the bids that ask for a pass of a source.
	Ask(bids []*Bid)
	// Cut sets the Keep of each bid that has a tree; the pass has the given number of rows beside these
	// trees.
	Cut(bids []*Bid, rows int)
	// Learn ends a round. It sets Skip.
	Learn(bids []*Bid, p *Pass)
}

// A Control says which sequences a Controller decides for.
type Control uint8

// The ways.
const (
	WhenShared Control = iota // those of an engine whose Config says so
	Always                    // any: the drafter's trees are as large as a controller lets them
	Never                     // none: the output depends on the trees, since their children are drawn at random
)

// A Bid is a sequence's part in a round, as a controller sees it. One Bid serves all rounds of a sequence.
type Bid struct {
	Method  string
	Source  Source // nil if there is none
	State   any    // the controller's own
	Emitted int    // tokens of the output so far
	Left    int    // tokens that it may still have

	// Most is the largest tree that the sequence may draft, root counted; 1: its drafter is not asked. Least is as in
	// Proposal.
	Most  int
	Least float64

	// A pass of the source would be the Level-th of this round, from 0, for Nodes nodes. Reach is the draft's
	// probability that the text comes to one of them, 0 if it does not say. Backlog committed tokens are read in the
	// same pass, the root included. Without Go the pass is not for this sequence; with Read, the source reads a part of
	// the backlog meanwhile.
	Level, Nodes, Backlog int
	Reach                 float64
	Go, Read              bool

	// Tree is the draft, in Ask what there is of it without the source; nil if there is none beside the root. LogV and
	// Origin are as in Proposal and Traits. Nodes from Live on are only scored: all of them stay or none. Keep[n] says
	// whether node n stays, as the root always does and no node without its parent.
	Tree   *tree.Tree
	LogV   []float64
	Origin func(n int) int
	Live   int
	Keep   []bool

	Work   time.Duration // of the drafter and of what its source keeps, without passes of the source
	Tokens []int32       // that the round has emitted
	// Skip is the number of rounds, from the next on, that are plain decoding: until they are over, the
	// drafter is neither asked nor told anything.
	Skip int
}

// bidding is what a controller decides about a sequence.
type bidding struct {
	bid        Bid
	bids       bool      // it decides in this round
	skips      bool      // the drafter skips this round
	missed     int       // tokens of skipped rounds, of which the drafter has not been told,
	missedFrom int       // and the place of the root of the first
	replayed   tree.Tree // these tokens
	trimmed    tree.Tree // what the controller leaves of the draft
	trimmedV   []float64 // LogV of it
	at         []int     // by node of the draft: where it is in trimmed
}

// controls reports whether the engine's controller decides for s.
func (e *Engine) controls(s *Sequence) bool {
	return e.Control != nil && s.req.Drafter != nil && (s.traits.Control == Always || s.traits.Control == WhenShared && e.Config.Shared)
}

// bid begins a round of the controller.
func (e *Engine) bid(seqs []*Sequence) {
	e.bids = e.bids[:0]
	rounds := 0
	for _, s := range seqs {
		if s.bids, s.skips = false, false; s.reason != "" || s.prefilling() {
			continue
		}
		if rounds++; !e.controls(s) {
			continue
		}
		b := &s.bid
		if s.skips = b.Skip > 0; s.skips {
			b.Skip--
			continue
		}
		s.bids = true
		*b = Bid{
			Method: s.req.Method, Source: s.req.Source, State: b.State, Origin: s.traits.Origins.Of,
			Emitted: len(s.tokens) - s.prompt, Left: s.left(), Keep: b.Keep[:0],
		}
		e.bids = append(e.bids, b)
	}
	if len(e.bids) > 0 {
		e.Control.Begin(e.bids, rounds)
	}
}

// ration leaves sequences out of a source's pass if it is not worth its time for them: their trees end.
func (e *Engine) ration(q *sourceAsks) {
	e.asking = e.asking[:0]
	for i, s := range q.owners {
		if b := &s.bid; s.bids {
			b.Level, b.Nodes, b.Reach, b.Backlog, b.Go, b.Read = s.steps, s.prop.work().Len()-s.ran, s.prop.Reach, 0, true, false
			if b.Level == 0 {
				b.Reach, b.Backlog = 1, q.backlog[i]
				s.offer()
			}
			e.asking = append(e.asking, b)
		}
	}
	if len(e.asking) == 0 {
		return
	}
	e.Control.Ask(e.asking)
	stay := 0
	for i, s := range q.owners {
		if s.bids && !s.bid.Go && s.stop() {
			if n := min(s.bid.Backlog-1, readChunk); s.bid.Read && n > 0 {
				q.reads = append(q.reads, Ask{ID: s.id, Width: n})
			}
			continue
		}
		q.asks[stay], q.owners[stay], q.backlog[stay] = q.asks[i], s, q.backlog[i]
		stay++
	}
	q.asks, q.owners, q.backlog = q.asks[:stay], q.owners[:stay], q.backlog[:stay]
}

// stop ends a tree whose drafter asks for rows that it does not get. It reports false if the drafter cannot.
func (s *Sequence) stop() bool {
	switch {
	case s.traits.Finish != nil:
		s.growing = false
		if err := s.callFinish(); err != nil {
			s.fail(err)
		} else if s.prop.Tree.Len() == 1 {
			s.plainly = s.spared()
		}
	case s.steps == 0:
		s.plain(s.spared())
	default:
		return false
	}
	return true
}

// spared returns why a round has no draft if the controller grants none: nil for drafters that leave the
// decision to it.
func (s *Sequence) spared() error {
	if s.traits.Control == Always {
		return nil
	}
	return ErrBudget
}

// offer puts the draft into the sequence's bid.
func (s *Sequence) offer() {
	b, p := &s.bid, &s.prop
	b.Tree, b.LogV, b.Live = nil, nil, 0
	if p.Tree.Len() > 1 && p.Choice() == Chosen {
		b.Tree, b.LogV, b.Live = p.Tree, p.LogV, p.LiveNodes()
	}
}

// cut trims the trees to what the controller keeps.
func (e *Engine) cut(seqs []*Sequence) {
	e.asking = e.asking[:0]
	rows := 0
	for _, s := range seqs {
		if s.reason != "" || s.out || s.prefilling() {
			continue
		}
		if s.bid.Tree = nil; s.bids {
			s.offer()
			e.asking = append(e.asking, &s.bid)
		}
		if s.bid.Tree != nil {
			rows++
		} else {
			rows += s.prop.Tree.Len()
		}
	}
	if len(e.asking) == 0 {
		return
	}
	e.Control.Cut(e.asking, rows)
	for _, s := range seqs {
		if s.bids && s.bid.Tree != nil && slices.Contains(s.bid.Keep, false) {
			s.trim()
		}
	}
}

// trim cuts the tree to the nodes that the controller keeps.
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
		s.plainly = s.spared()
	}
}

// learn ends a round of the controller.
func (e *Engine) learn(seqs []*Sequence) {
	e.asking = e.asking[:0]
	for _, s := range seqs {
		if s.bids && !s.closed && len(s.bid.Tokens) > 0 {
			e.asking = append(e.asking, &s.bid)
		}
		s.bids = false
	}
	e.Control.Learn(e.asking, &e.pass)
}

// miss counts tokens of a round that the drafter skips, of which it is told later.
func (s *Sequence) miss(kept int) {
	if s.missed == 0 {
		s.missedFrom = len(s.tokens) - kept - 1
	}
	s.missed += kept
}

// replay tells the drafter of the rounds that it skipped, as one chain whose rows no longer exist.
func (s *Sequence) replay() error {
	for s.missed > 0 {
		n, from := min(s.missed, tree.MaxNodes), s.missedFrom
		s.missed, s.missedFrom = s.missed-n, from+n
		s.replayed.Reset(s.tokens[from], n)
		s.path = append(s.path[:0], 0)
		for i := 1; i < n; i++ {
			s.path = append(s.path, s.replayed.Add(i-1, s.tokens[from+i]))
		}
		p := Proposal{Tree: &s.replayed, Pos: from, MaxNodes: n}
		if err := s.req.Drafter.Observe(p, Verdict{Path: s.path, Next: s.tokens[from+n]}, gone{}); err != nil {
			return err
		}
	}
	return nil
}

// gone are the scores of rounds whose rows no longer exist.
type gone struct{}

func (gone) Argmax(int) int32                   { return 0 }
func (gone) Dist(int) Dist                      { return nil }
func (gone) TopK(int, int) []Candidate          { return nil }
func (gone) Rank(dst []int32, _, _ int) []int32 { return dst }
func (gone) Hidden(int) (none model.Feature)    { return none }
