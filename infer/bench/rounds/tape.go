package rounds

import (
	"context"
	"slices"
	"time"

	"talf/infer"
	"talf/model"
	"talf/tree"
)

// A Tape notes the calls that decoding one text makes to its models and repeats them, one model
// at a time. It reuses its memory from text to text. The time that noting takes is not counted.
// It serves one sequence at a time.
type Tape struct {
	sources map[infer.Source]*tapeSource
	now     func() time.Time
	target  infer.Target
	source  infer.Source
	prompt  []int32
	keep    int
	at      int // positions committed
	mark    time.Time
	calls   []call
	ints    []int32 // of the calls' trees and paths
	hidden  []model.Feature
	allows  []allowed
	rounds  []Round
	open    Round // the round in progress
}

// A call is one call of a target or a source. Its arguments are copied, because the caller
// reuses their memory.
type call struct {
	kind  callKind
	round int // −1: of the prompt
	step  int // pass of the draft model within the round
	tree  noted
	want  model.Want
	path  noted
	next  int32
	pos   int // of the tree's root
	first int // of its hidden states

	asks        bool // something is asked
	read        int  // committed tokens that a source is to read beside
	from, width int
	full        bool
	held        bool // the ask said what may follow
	allow, have int  // of the tape's allows: the first, and how many
}

// An allowed is what may follow a node, which many nodes have in common.
type allowed struct {
	node  int
	words []uint64 // nil: everything
}

type callKind uint8

const (
	callScore callKind = iota
	callCommit
	callRows
	callTake // a source's Commit
)

// A noted value is a span of a tape's numbers: a path, or a tree of capacity most, tokens first
// and then parents.
type noted struct{ first, n, most int }

func (t *Tape) noteTree(x *tree.Tree) noted {
	s := noted{len(t.ints), x.Len(), x.Len() + x.Room()}
	t.ints = append(t.ints, x.Tokens()...)
	for n := range s.n {
		t.ints = append(t.ints, int32(x.Parent(n)))
	}
	return s
}

// build makes dst the tree that was noted.
func (t *Tape) build(dst *tree.Tree, s noted) {
	tokens, above := t.ints[s.first:][:s.n], t.ints[s.first+s.n:][:s.n]
	dst.Reset(tokens[0], s.most)
	for n := 1; n < s.n; n++ {
		dst.Add(int(above[n]), tokens[n])
	}
}

func (t *Tape) notePath(path []int) noted {
	s := noted{first: len(t.ints), n: len(path)}
	for _, n := range path {
		t.ints = append(t.ints, int32(n))
	}
	return s
}

func (t *Tape) appendPath(dst []int, s noted) []int {
	for _, n := range t.ints[s.first:][:s.n] {
		dst = append(dst, int(n))
	}
	return dst
}

// Begin empties the tape for a text that e decodes with s, and returns the engine and the
// source to decode it with.
func (t *Tape) Begin(e *infer.Engine, s infer.Source) (*infer.Engine, infer.Source) {
	*t = Tape{
		now: e.Clock, target: e.Target, source: s,
		calls: t.calls[:0], ints: t.ints[:0], hidden: t.hidden[:0], allows: t.allows[:0], sources: t.sources,
	}
	if t.now == nil {
		t.now = time.Now
	}
	through := &infer.Engine{Target: &tapeTarget{e.Target, t}, Config: e.Config, Clock: e.Clock, Control: e.Control}
	if s == nil {
		return through, nil
	}
	// A controller tells sources apart.
	if t.sources[s] == nil {
		if t.sources == nil {
			t.sources = map[infer.Source]*tapeSource{}
		}
		t.sources[s] = &tapeSource{Source: s, t: t}
	}
	return through, t.sources[s]
}

// noting returns the time and leaves the time since then out of the round.
func (t *Tape) noting(since time.Time) time.Time {
	now := t.now()
	t.mark = t.mark.Add(now.Sub(since))
	return now
}

// Rounds returns the rounds so far. The slice is the caller's.
func (t *Tape) Rounds() []Round { return t.rounds }

// End ends a round.
func (t *Tape) End() {
	now := t.now()
	r := t.open
	r.Other = now.Sub(t.mark) - r.Target.Loop
	for _, d := range r.Draft {
		r.Other -= d.Loop
	}
	t.rounds, t.open = append(t.rounds, r), Round{}
	t.mark = t.now()
}

// number is the round in progress, −1 in the prompt.
func (t *Tape) number() int {
	if t.at < len(t.prompt)-1 {
		return -1
	}
	return len(t.rounds)
}

type tapeTarget struct {
	infer.Target
	t *Tape
}

// Shape ends texts where they would be read again, which is not recorded.
func (x *tapeTarget) Shape() infer.Shape { return x.Target.Shape().Unswitched() }

// Abilities withholds what is not recorded.
func (*tapeTarget) Abilities() infer.Abilities { return infer.Abilities{} }

func (x *tapeTarget) Open(id infer.SeqID, prompt []int32, keep int) error {
	t := x.t
	t.prompt, t.keep, t.at, t.mark = slices.Clone(prompt), keep, keep, t.now()
	return x.Target.Open(id, prompt, keep)
}

func (x *tapeTarget) Score(ctx context.Context, jobs []infer.Job) ([]infer.Rows, error) {
	t, j := x.t, &jobs[0] // a text is decoded by itself
	since := t.now()
	t.calls = append(t.calls, call{kind: callScore, round: t.number(), tree: t.noteTree(j.Tree), want: j.Want})
	since = t.noting(since)
	rows, err := x.Target.Score(ctx, jobs)
	t.open.Target = Pass{Rows: j.Tree.Len(), At: t.at, Loop: t.now().Sub(since)}
	return rows, err
}

func (x *tapeTarget) Commit(id infer.SeqID, path []int) error {
	t := x.t
	since := t.now()
	t.calls = append(t.calls, call{kind: callCommit, path: t.notePath(path)})
	t.noting(since)
	err := x.Target.Commit(id, path)
	if prompt := t.number() < 0; prompt {
		t.open, t.mark = Round{}, t.now()
	}
	t.at += len(path)
	return err
}

type tapeSource struct {
	infer.Source
	t    *Tape
	held [1]infer.Ask
}

// Abilities withholds what is not recorded.
func (*tapeSource) Abilities() infer.Abilities { return infer.Abilities{} }

func (x *tapeSource) Rows(ctx context.Context, asks []infer.Ask) ([]infer.Row, error) {
	t := x.t
	since := t.now()
	c := call{kind: callRows, round: -1}
	var copying time.Duration
	rows := 0
	if a := &asks[0]; a.Tree == nil {
		c.read = a.Width
	} else {
		c.asks, c.round, c.step = true, t.number(), len(t.open.Draft)
		c.tree, c.from, c.width, c.full = t.noteTree(a.Tree), a.From, a.Width, a.Full
		rows = a.Tree.Len() - a.From
		if c.held, c.allow = a.Allow != nil, len(t.allows); c.held {
			x.held[0] = *a
			x.held[0].Allow = x.hold(a.Allow, &copying)
			asks = x.held[:]
		}
	}
	since = t.noting(since)
	out, err := x.Source.Rows(ctx, asks)
	if c.asks {
		t.open.Draft = append(t.open.Draft, Pass{Rows: rows, At: t.at, Loop: t.now().Sub(since) - copying})
		t.mark = t.mark.Add(copying)
	}
	c.have = len(t.allows) - c.allow
	t.calls = append(t.calls, c)
	return out, err
}

// hold notes what may follow each node that a source looks at, and adds the time that this takes to copying.
func (x *tapeSource) hold(allow func(n int) []uint64, copying *time.Duration) func(n int) []uint64 {
	t := x.t
	return func(n int) []uint64 {
		words := allow(n)
		since := t.now()
		held := allowed{node: n}
		if i := slices.IndexFunc(t.allows, func(a allowed) bool { return a.words != nil && words != nil && slices.Equal(a.words, words) }); i >= 0 {
			held.words = t.allows[i].words
		} else {
			held.words = slices.Clone(words)
		}
		t.allows = append(t.allows, held)
		*copying += t.now().Sub(since)
		return words
	}
}

// held returns what may follow a node in a call that asked so.
func (t *Tape) held(c *call) func(n int) []uint64 {
	if !c.held {
		return nil
	}
	of := t.allows[c.allow:][:c.have]
	return func(n int) []uint64 {
		if i := slices.IndexFunc(of, func(a allowed) bool { return a.node == n }); i >= 0 {
			return of[i].words
		}
		return nil
	}
}

func (x *tapeSource) Commit(id infer.SeqID, p infer.Proposal, v infer.Verdict, s infer.Scores) error {
	t := x.t
	since := t.now()
	c := call{kind: callTake, tree: t.noteTree(p.Tree), path: t.notePath(v.Path), next: v.Next, pos: p.Pos, first: len(t.hidden)}
	// By the time these rows are read again they hold something else. That does not matter:
	// only the time is of interest.
	for _, n := range v.Path {
		t.hidden = append(t.hidden, s.Hidden(n))
	}
	t.calls = append(t.calls, c)
	t.noting(since)
	return x.Source.Commit(id, p, v, s)
}

// Again runs all passes once more, first the target's and then the source's.
func (t *Tape) Again(ctx context.Context) error {
	const id = ^infer.SeqID(0) // no engine counts that far
	if err := t.target.Open(id, t.prompt, t.keep); err != nil {
		return err
	}
	err := t.targetAgain(ctx, id)
	t.target.Close(id)
	if err != nil || t.source == nil {
		return err
	}
	if err := t.source.Open(id, t.prompt, t.keep); err != nil {
		return err
	}
	defer t.source.Close(id)
	return t.sourceAgain(ctx, id)
}

func (t *Tape) targetAgain(ctx context.Context, id infer.SeqID) error {
	var tr tree.Tree
	var path []int
	jobs := make([]infer.Job, 1)
	for i := range t.calls {
		c := &t.calls[i]
		switch c.kind {
		case callScore:
			t.build(&tr, c.tree)
			jobs[0] = infer.Job{ID: id, Tree: &tr, Want: c.want}
			since := t.now()
			if _, err := t.target.Score(ctx, jobs); err != nil {
				return err
			}
			if c.round >= 0 {
				t.rounds[c.round].Target.Alone = t.now().Sub(since)
			}
		case callCommit:
			path = t.appendPath(path[:0], c.path)
			if err := t.target.Commit(id, path); err != nil {
				return err
			}
		}
	}
	return nil
}

func (t *Tape) sourceAgain(ctx context.Context, id infer.SeqID) error {
	var work, kept tree.Tree
	var path []int
	asks := make([]infer.Ask, 0, 1)
	for i := range t.calls {
		c := &t.calls[i]
		switch c.kind {
		case callRows:
			asks = asks[:0]
			if c.asks {
				t.build(&work, c.tree)
				asks = append(asks, infer.Ask{ID: id, Tree: &work, From: c.from, Width: c.width, Full: c.full, Allow: t.held(c)})
			}
			if c.read > 0 {
				asks = append(asks, infer.Ask{ID: id, Width: c.read})
			}
			since := t.now()
			if _, err := t.source.Rows(ctx, asks); err != nil {
				return err
			}
			if c.asks {
				t.rounds[c.round].Draft[c.step].Alone = t.now().Sub(since)
			}
		case callTake:
			t.build(&kept, c.tree)
			path = t.appendPath(path[:0], c.path)
			p := infer.Proposal{Tree: &kept, Pos: c.pos}
			s := hiddenOnly{path, t.hidden[c.first:]}
			if err := t.source.Commit(id, p, infer.Verdict{Path: path, Next: c.next}, &s); err != nil {
				return err
			}
		}
	}
	return nil
}

// hiddenOnly are scores that have only the hidden states of a path.
type hiddenOnly struct {
	path   []int
	hidden []model.Feature // by place on the path
}

const onlyHidden = "rounds: a source reads more of the target than hidden states of what was kept"

func (*hiddenOnly) Argmax(int) int32                { panic(onlyHidden) }
func (*hiddenOnly) Dist(int) infer.Dist             { panic(onlyHidden) }
func (*hiddenOnly) TopK(int, int) []infer.Candidate { panic(onlyHidden) }
func (*hiddenOnly) Rank([]int32, int, int) []int32  { panic(onlyHidden) }

func (s *hiddenOnly) Hidden(n int) model.Feature {
	for i, m := range s.path {
		if m == n {
			return s.hidden[i]
		}
	}
	panic(onlyHidden)
}
