package infer

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"talf/compute"
	"talf/infer/prefix"
	"talf/model"
	"talf/tree"
)

// A Sequence is a request being decoded.
type Sequence struct {
	id                 SeqID
	req                Request
	eos                []int32
	maxLen             int
	turn               int     // the target's Shape.Switch
	tokens             []int32 // prompt and output; the last is the next root
	prompt             int
	done               int          // tokens in the target's KV store
	seen               int          // tokens that the drafter has observed or will never see
	owner              prefix.Owner // of what it holds in the target and its source
	out                bool         // it holds nothing in the target and its source, and has to begin again
	reason             Reason
	err                error
	text               textStream
	stats              Stats
	opened             time.Time
	draft              *sequential
	chance             keyed
	scores             scores
	prop               Proposal
	root               tree.Tree // the tree that drafters are given
	chain              tree.Tree // a chunk of the prompt
	path               []int
	ran                int // nodes of the work tree that the source has run
	growing            bool
	closed             bool
	fits               kind   // of the last tree that the verifier accepted
	traits             Traits // of the drafter
	want               model.Want
	nodes              int       // of the round's tree
	steps              int       // passes of the source in the round
	bid                Bid       // the engine's controller's
	bids               bool      // it decides in this round
	sits               bool      // its drafter sits it out
	missed             int       // tokens of such rounds, of which the drafter has not been told,
	missedFrom         int       // and the place of the root of the first
	asleep             tree.Tree // these tokens
	trimmed            tree.Tree // what the controller leaves of the draft
	trimmedV           []float64
	at                 []int     // by node of the draft: where it is in trimmed
	begun              bool      // a round, which has no verdict yet
	lost               error     // why the last round without drafts had none
	plainly            error     // why the round in progress has no drafts
	alone              error     // why the next round has none
	draftsOff          bool      // no round has any more, because the source panicked
	logged             []Logged  // of the output, if asked for
	echoed             []Logged  // of the prompt but its first token, as far as it has run, if asked for
	row                []float32 // a row of logits
	draws              []compute.Draw
	inTarget, inSource Abilities
	inProcessor        ProcessorAbilities
}

// A kind is the property of a tree that decides whether a verifier fits it.
type kind struct {
	draw  Choice
	chain bool
	known bool // false in the zero value, which is no kind
}

// Tokens returns the output so far. The slice belongs to the sequence; its contents do not
// change in later rounds.
func (s *Sequence) Tokens() []int32 { return slices.Clip(s.tokens[s.prompt:]) }

// Prompt returns the prompt, which may not be changed.
func (s *Sequence) Prompt() []int32 { return slices.Clip(s.tokens[:s.prompt]) }

// Text returns the text of the output without the stop string. It is empty without
// Detok.
func (s *Sequence) Text() string { return s.text.text }

// Done reports whether the sequence has ended, and why.
func (s *Sequence) Done() (Reason, bool) { return s.reason, s.reason != "" }

// Err returns what made the sequence fail, or why it was cancelled.
func (s *Sequence) Err() error { return s.err }

// Cancel ends the sequence with the given cause: it takes no part in later rounds. The other
// sequences of a batch continue as if it had never been there, and what it holds in the target
// and its source stays until it is closed. A sequence that has ended stays as it is. Like all of
// the engine, Cancel is for the goroutine that calls Step: between two calls, or from the Trace
// of any sequence.
func (s *Sequence) Cancel(cause error) {
	if s.reason == "" {
		s.reason, s.err = Cancelled, cause
	}
}

// Fail ends the sequence as Cancel does, but as one that failed with err.
func (s *Sequence) Fail(err error) {
	if s.reason == "" {
		s.fail(err)
	}
}

// Stats returns the counts so far.
func (s *Sequence) Stats() *Stats { return &s.stats }

// ID names the sequence to the target and the source.
func (s *Sequence) ID() SeqID { return s.id }

func (p *Proposal) work() *tree.Tree {
	if p.Work != nil {
		return p.Work
	}
	return p.Tree
}

// prefilling reports whether tokens before the next root have to run: those of the prompt, and all
// of them after a preemption.
func (s *Sequence) prefilling() bool { return s.done < len(s.tokens)-1 }

// Pending returns how many tokens have to run before the next round: those of the prompt that
// have not, and after a preemption those of the output too.
func (s *Sequence) Pending() int { return len(s.tokens) - 1 - s.done }

// Tree returns the number of nodes of the last draft tree, root counted.
func (s *Sequence) Tree() int { return max(1, s.nodes) }

// Preempted reports whether the sequence holds nothing in the target and its source, so that the
// next step that it is part of begins to compute all of it again.
func (s *Sequence) Preempted() bool { return s.out }

// fail ends the sequence with err. A sequence that failed or was cancelled before keeps
// its reason; one whose output ended does not.
func (s *Sequence) fail(err error) {
	if s.growing = false; s.reason != Failed && s.reason != Cancelled {
		s.reason, s.err = Failed, err
	}
}

// outgrown reports whether what the sequence holds is that of a short text, and its next root makes it a long one.
func (s *Sequence) outgrown() bool {
	return s.turn > 0 && len(s.tokens) > s.turn && !s.owner.Long && !s.out && s.reason == ""
}

// left returns how many tokens the output may still have.
func (s *Sequence) left() int {
	return min(s.req.MaxTokens-(len(s.tokens)-s.prompt), s.maxLen-len(s.tokens))
}

// mostNodes returns the bound on the sequence's trees.
func (s *Sequence) mostNodes(most int) int {
	if n := s.req.MaxNodes; n > 0 {
		return min(n, most)
	}
	return most
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
	if s.sits || s.bids && s.bid.Most == 1 {
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

// disableDrafting makes all further rounds plain decoding, because the source is broken.
func (s *Sequence) disableDrafting(err error) {
	s.draftsOff = s.draftsOff || s.req.Drafter != nil
	s.req.Drafter, s.req.Source, s.traits, s.lost, s.missed = nil, nil, Traits{}, err, 0
}

// Undrafted returns why the last round that was to have drafts had none: the source failed, the KV
// pool was full, or the target's rows for the drafts were not finite. Stats.Undrafted counts these
// rounds, but not those after a source was given up because it panicked.
func (s *Sequence) Undrafted() error { return s.lost }

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
func (s *Sequence) checkTokens(t *tree.Tree, from int) error {
	for n, token := range t.Tokens()[from:] {
		if token < 0 || int(token) >= s.scores.vocab {
			return fmt.Errorf("draft: node %d has token %d, want 0..%d", from+n, token, s.scores.vocab-1)
		}
	}
	return nil
}

// checkVerdict checks that a verdict's path is in the tree; that it is a path, the target's
// commit finds out.
func (s *Sequence) checkVerdict(v Verdict) error {
	if len(v.Path) == 0 || v.Path[0] != 0 {
		return fmt.Errorf("verify: path %v, want one that begins with the root", v.Path)
	}
	for _, n := range v.Path {
		if n < 0 || n >= s.prop.Tree.Len() {
			return fmt.Errorf("verify: path %v in a tree of %d nodes", v.Path, s.prop.Tree.Len())
		}
	}
	if v.Next < 0 || int(v.Next) >= s.scores.vocab {
		return fmt.Errorf("verify: token %d after the path, want 0..%d", v.Next, s.scores.vocab-1)
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

// chunk builds the next part of the prompt as a chain. What the drafter has observed already, in
// a sequence that was preempted, is not in one chunk with what it has not.
func (s *Sequence) chunk(most int) Job {
	n := min(most, s.Pending())
	want := s.want
	switch {
	case s.done < s.seen:
		n, want = min(n, s.seen-s.done), model.WantNone
	case s.req.PromptLogProbs:
		n = min(n, loggedRows)
	}
	s.chain.Reset(s.tokens[s.done], n)
	for i := 1; i < n; i++ {
		s.chain.Add(i-1, s.tokens[s.done+i])
	}
	return Job{ID: s.id, Tree: &s.chain, Want: want}
}

func (s *Sequence) keepChunk(e *Engine, rows Rows) {
	n := s.chain.Len()
	s.path = s.path[:0]
	for i := range n {
		s.path = append(s.path, i)
	}
	if s.logChunk(rows); s.reason != "" {
		return
	}
	p := Proposal{Tree: &s.chain, Pos: s.done, MaxNodes: n, MaxDepth: n - 1}
	v := Verdict{Path: s.path, Next: s.tokens[s.done+n]}
	s.keep(e, p, v, rows, s.tokens[:s.done+1])
	s.done += n
	s.seen = max(s.seen, s.done)
}

// keep commits a verdict everywhere. The source comes last but before the next
// target pass: it reads the target's hidden states.
func (s *Sequence) keep(e *Engine, p Proposal, v Verdict, rows Rows, tokens []int32) {
	if s.req.Drafter != nil {
		var start time.Time
		if s.bids {
			start = e.now()
		}
		// The drafter may ask for rows off the path. Their context must not overwrite the
		// tokens that follow.
		s.scores.begin(rows, p.Tree, tokens[:len(tokens):len(tokens)])
		if s.done >= s.seen && !s.sits {
			if err := s.callObserve(&p, v); err != nil {
				s.fail(named("observe", err))
			}
		}
		if s.req.Source != nil {
			if err := s.callTake(&p, v); err != nil {
				s.fail(named("commit to the draft source", err))
			}
		}
		if s.bids {
			s.bid.Work += e.now().Sub(start)
		}
	}
	if err := e.commit(s.id, v.Path); err != nil {
		s.fail(named(fmt.Sprintf("commit %d nodes", len(v.Path)), err))
	}
}

// finishRound verifies a scored proposal, commits what is kept and emits it.
func (s *Sequence) finishRound(e *Engine, rows Rows) {
	s.scores.begin(rows, s.prop.Tree, s.tokens)
	s.chance.begin(s.prop.Pos)
	s.begun, s.alone = false, nil
	if s.plainly != nil {
		s.lost = s.plainly
		s.stats.Undrafted++
		s.fellBack(s.lost)
	} else if s.draftsOff {
		s.fellBack(s.lost)
	}
	v, err := s.callVerify()
	if err != nil {
		s.fail(err)
		return
	}
	first := len(s.tokens)
	var reason Reason
	for i := 1; i <= len(v.Path) && reason == ""; i++ {
		tok := v.Next
		if i < len(v.Path) {
			tok = s.prop.Tree.Token(v.Path[i])
		}
		s.tokens = append(s.tokens, tok)
		stopped, complete := false, false
		if !slices.Contains(s.eos, tok) {
			if stopped, err = s.callAdd(tok); err == nil {
				complete, err = s.callComplete()
			}
			if err != nil {
				s.fail(err)
				return
			}
		}
		switch {
		case slices.Contains(s.eos, tok):
			reason = EOS
		case stopped:
			reason = Stop
		case complete:
			reason = Complete
		case len(s.tokens)-s.prompt >= s.req.MaxTokens || len(s.tokens) >= s.maxLen:
			reason = Length
		}
	}
	kept := len(s.tokens) - first
	s.bid.Tokens = s.tokens[first:len(s.tokens):len(s.tokens)]
	s.stats.round(s.prop.Tree, s.prop.LiveNodes(), v.Path, kept)
	s.log(rows, v.Path, s.tokens[first:])
	var untraced error
	if s.req.Trace != nil {
		// As in keep, reading must not overwrite the tokens that follow.
		s.scores.begin(rows, s.prop.Tree, s.tokens[:first:first])
		untraced = s.callTrace(Round{Proposal: &s.prop, Scores: &s.scores, Verdict: v, Kept: kept})
		if s.closed {
			return // by Trace: the drafter and the source are no longer the sequence's
		}
	}
	v.Path, v.Next = v.Path[:kept], s.tokens[len(s.tokens)-1]
	if s.keep(e, s.prop, v, rows, s.tokens[:first]); s.sits && s.req.Drafter != nil {
		s.miss(kept)
	}
	if s.reason != "" {
		return
	}
	s.done += kept
	s.seen = s.done
	if untraced != nil {
		s.fail(named("trace", untraced))
		return
	}
	s.reason = reason
	if reason != "" {
		if err := s.callEnd(reason == Stop); err != nil {
			s.reason, s.err = Failed, err
			return
		}
	}
}
