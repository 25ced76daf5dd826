package infer

import (
	"errors"
	"fmt"

	"talf/compute"
	"talf/tree"
)

// round is a round of drafting and scoring, and why rounds go without drafts.
type round struct {
	prop    Proposal
	root    tree.Tree // the tree that drafters are given
	begun   bool      // it has no verdict yet
	growing bool      // the drafter waits for rows
	ran     int       // nodes of the work tree that the source has run
	steps   int       // passes of the source
	nodes   int       // of its tree, once that is scored
	fits    kind      // of the last tree that the verifier accepted
	draft   *sequential
	chance  keyed
	scores  scores
	path    []int
	draws   []compute.Draw

	plainly   error // why this round has no drafts
	alone     error // why the next round has none
	lost      error // why the last round without drafts had none
	draftsOff bool  // no round has any more, because the source panicked
}

// A kind is the property of a tree that decides whether a verifier fits it.
type kind struct {
	draw  Choice
	chain bool
	known bool // false in the zero value, which is no kind
}

// Tree returns the number of nodes of the last draft tree, root counted.
func (s *Sequence) Tree() int { return max(1, s.nodes) }

// Undrafted returns why the last round that was to have drafts had none: the source failed, the KV
// pool was full, or the target's rows for the drafts were not finite. Stats.Undrafted counts these
// rounds, but not those after a source was given up because it panicked.
func (s *Sequence) Undrafted() error { return s.lost }

func (p *Proposal) work() *tree.Tree {
	if p.Work != nil {
		return p.Work
	}
	return p.Tree
}

// beginRound creates an empty proposal and calls the drafter for the first time.
func (s *Sequence) beginRound(maxNodes int) {
	left := s.left()
	if s.bids {
		maxNodes = min(maxNodes, max(s.bid.Most, 2))
	}
	s.root.Reset(s.tokens[len(s.tokens)-1], maxNodes)
	s.prop = Proposal{Tree: &s.root, Pos: len(s.tokens) - 1, MaxNodes: maxNodes}
	s.ran, s.growing = 0, false
	// A round that is begun again draws the same numbers again.
	if s.begun {
		s.draft.rewind()
	} else {
		s.draft.mark()
		s.begun = true
	}
	if s.plainly = s.alone; s.plainly != nil {
		return
	}
	depth := left - 1 // a round emits its accepted nodes and one more token
	if at := len(s.tokens); at <= s.turn {
		depth = min(depth, s.turn-at) // deeper nodes would be those of a long text, and their ancestors of a short one
	}
	if s.req.Drafter == nil || depth < 1 || maxNodes < 2 {
		return
	}
	if s.skips || s.bids && s.bid.Most == 1 {
		s.plainly = s.spared()
		return
	}
	s.prop.MaxDepth, s.prop.Left = depth, left
	if s.bids {
		s.prop.Least = s.bid.Least
	}
	s.grow(nil)
}

// plain makes this a round without drafts. The output does not depend on it.
func (s *Sequence) plain(err error) {
	s.growing, s.plainly = false, err
	s.root.Reset(s.tokens[len(s.tokens)-1], 1)
	s.prop = Proposal{Tree: &s.root, Pos: len(s.tokens) - 1, MaxNodes: 1, MaxDepth: s.prop.MaxDepth}
}

// grow gives rows to the drafter and checks what it asks for next.
func (s *Sequence) grow(rows []Row) {
	if err := s.callGrow(rows); err != nil {
		s.fail(err)
	}
}

// grown checks what the drafter asks for, or the tree that it has finished.
func (s *Sequence) grown(ask []int) error {
	if s.growing = len(ask) > 0; !s.growing {
		return s.checkTree()
	}
	w := s.prop.work()
	switch {
	case s.req.Source == nil:
		return errors.New("draft: the drafter asks a source and the request has none")
	case s.ran == 0 && w.Len() != 1:
		return fmt.Errorf("draft: asked for %d nodes at first, want the root alone", w.Len())
	case ask[0] != s.ran || len(ask) != w.Len()-s.ran:
		return fmt.Errorf("draft: asked for %d nodes from %d, want all of [%d,%d)", len(ask), ask[0], s.ran, w.Len())
	case s.prop.Width < 0:
		return fmt.Errorf("draft: asked for %d tokens a node, want at least 0", s.prop.Width)
	}
	return s.checkTokens(w, s.ran)
}

// checkTokens checks the tokens of nodes from on, because a wrong one would make a pass fail for
// all sequences.
func (r *round) checkTokens(t *tree.Tree, from int) error {
	for n, token := range t.Tokens()[from:] {
		if token < 0 || int(token) >= r.scores.vocab {
			return fmt.Errorf("draft: node %d has token %d, want 0..%d", from+n, token, r.scores.vocab-1)
		}
	}
	return nil
}

// checkTree checks a finished tree against the contract, because a broken tree would make the
// pass fail for all sequences, and against what the verifier is lossless with.
func (s *Sequence) checkTree() error {
	t := s.prop.Tree
	if n := t.Len(); n > s.prop.MaxNodes {
		return fmt.Errorf("draft: a tree of %d nodes, want at most %d", n, s.prop.MaxNodes)
	}
	for n := range t.Len() {
		if d := t.Depth(n); d > s.prop.MaxDepth {
			return fmt.Errorf("draft: node %d is %d edges deep, want at most %d", n, d, s.prop.MaxDepth)
		}
	}
	if err := s.checkTokens(t, 0); err != nil {
		return err
	}
	if k := (kind{s.prop.Choice(), s.prop.Chain(), true}); s.prop.LiveNodes() > 1 && k != s.fits {
		if err := s.callFits(k); err != nil {
			return err
		}
		s.fits = k
	}
	return nil
}

// wishes lists the draws after the nodes of the round's tree, if the target's passes draw.
func (s *Sequence) wishes(e *Engine) []compute.Draw {
	q := s.inProcessor.Quantile
	if q == nil || !s.inTarget.Draws {
		return nil
	}
	s.draws = s.draws[:0]
	for n := range s.prop.Tree.Len() {
		w, ok := q.Wish(s.chance.quantile(s.prop.Pos + s.prop.Tree.Depth(n) + 1))
		if !ok {
			return nil
		}
		s.draws = append(s.draws, w)
	}
	return s.draws
}
