package bench

import (
	"context"
	"fmt"
	"slices"
	"time"

	"talf/infer"
	"talf/internal/table"
	"talf/model"
	"talf/tree"
)

// A Pass is a pass of one model within decoding, and the same pass run again.
type Pass struct {
	Rows int `json:"rows"`
	At   int `json:"at"` // positions before the tree
	// Loop is what it took within decoding, Alone what it took among passes of the
	// same model with nothing but the keeping of what was accepted between them.
	Loop  time.Duration `json:"loop"`
	Alone time.Duration `json:"alone"`
}

// A Round is one round of decoding by its parts.
type Round struct {
	Target Pass          `json:"target"`
	Draft  []Pass        `json:"draft,omitempty"` // of the draft model, in order
	Other  time.Duration `json:"other"`           // the rest: trees, verdict, bookkeeping
}

// like reports whether r ran the same passes as o.
func (r *Round) like(o *Round) bool {
	same := func(a, b Pass) bool { return a.Rows == b.Rows && a.At == b.At }
	return same(r.Target, o.Target) && slices.EqualFunc(r.Draft, o.Draft, same)
}

// best takes the shorter time of every part.
func (r *Round) best(o *Round) {
	least := func(p *Pass, q *Pass) { p.Loop, p.Alone = min(p.Loop, q.Loop), min(p.Alone, q.Alone) }
	least(&r.Target, &o.Target)
	for i := range r.Draft {
		least(&r.Draft[i], &o.Draft[i])
	}
	r.Other = min(r.Other, o.Other)
}

// Parts say where a method's time goes, in seconds a round. Where all repetitions
// ran the same passes, each part counts with the shortest time that it took: what
// others did to the machine meanwhile is left out. Where they did not, as with trees
// that follow the clock, they are means, and so is what they are compared with.
type Parts struct {
	Best   bool    `json:"best_of_repetitions"`
	Rounds int     `json:"rounds"`  // that differ, or all
	Rows   float64 `json:"rows"`    // mean of the target's passes
	At     float64 `json:"context"` // and the positions before them
	Steps  float64 `json:"draft_passes"`

	Target      float64 `json:"target_seconds"`
	TargetAlone float64 `json:"target_alone_seconds"`
	Draft       float64 `json:"draft_seconds"`
	DraftAlone  float64 `json:"draft_alone_seconds"`
	Other       float64 `json:"other_seconds"`

	// Plain and PlainAlone are plain decoding's round, and its pass alone.
	Plain      float64 `json:"plain_seconds"`
	PlainAlone float64 `json:"plain_alone_seconds"`

	// Speedup is plain decoding's time per token over this method's, both by these
	// parts. Allowed is what it would be if rounds took no longer than their passes
	// do alone: τ / (cost of the target's passes + cost of the draft's), costs over
	// plain decoding's passes alone. Of is Speedup / Allowed.
	Speedup float64 `json:"speedup"`
	Allowed float64 `json:"allowed"`
	Of      float64 `json:"of_allowed"`

	tokens float64
}

// loop and alone are the seconds of a round.
func (p *Parts) loop() float64  { return p.Target + p.Draft + p.Other }
func (p *Parts) alone() float64 { return p.TargetAlone + p.DraftAlone }

// partsOf sums up measurements of one method and compares them with plain
// decoding's; nil where rounds were not kept of all.
func partsOf(ms, base []*Measurement) *Parts {
	best := repeats(ms) && repeats(base)
	p, b := sumParts(ms, best), sumParts(base, best)
	if p == nil || b == nil {
		return nil
	}
	p.Plain, p.PlainAlone = b.loop(), b.alone()
	p.Speedup = b.loop() / b.tokens / (p.loop() / p.tokens)
	p.Allowed = b.alone() / b.tokens / (p.alone() / p.tokens)
	p.Of = p.Speedup / p.Allowed
	return p
}

// A textKey is what repetitions have in common.
type textKey struct {
	promptKey
	seed uint64
}

func byText(m *Measurement) textKey { return textKey{byPrompt(m), m.Seed} }

// repeats reports whether all measurements of a text ran the same passes.
func repeats(ms []*Measurement) bool {
	first := map[textKey]*Measurement{}
	for _, m := range ms {
		k := byText(m)
		if first[k] == nil {
			first[k] = m
		}
		if !slices.EqualFunc(m.Rounds, first[k].Rounds, func(a, b Round) bool { return a.like(&b) }) {
			return false
		}
	}
	return true
}

// sumParts returns the means over rounds, of which the repetitions of a text count
// as one, with the best of each, or as many.
func sumParts(ms []*Measurement, best bool) *Parts {
	p := &Parts{Best: best}
	at := map[textKey]int{}
	var texts [][]Round
	for _, m := range ms {
		if len(m.Rounds) == 0 {
			return nil
		}
		i, again := at[byText(m)]
		if again && best {
			for k := range texts[i] {
				texts[i][k].best(&m.Rounds[k])
			}
			continue
		}
		at[byText(m)] = len(texts)
		rounds := slices.Clone(m.Rounds)
		for k := range rounds {
			rounds[k].Draft = slices.Clone(rounds[k].Draft)
		}
		texts = append(texts, rounds)
		p.tokens += float64(m.Stats.Tokens)
	}
	if len(texts) == 0 {
		return nil
	}
	for _, rounds := range texts {
		for i := range rounds {
			r := &rounds[i]
			p.Rounds++
			p.Rows += float64(r.Target.Rows)
			p.At += float64(r.Target.At)
			p.Steps += float64(len(r.Draft))
			p.Target += r.Target.Loop.Seconds()
			p.TargetAlone += r.Target.Alone.Seconds()
			p.Other += r.Other.Seconds()
			for _, d := range r.Draft {
				p.Draft += d.Loop.Seconds()
				p.DraftAlone += d.Alone.Seconds()
			}
		}
	}
	for _, x := range []*float64{&p.Rows, &p.At, &p.Steps, &p.Target, &p.TargetAlone, &p.Draft, &p.DraftAlone, &p.Other, &p.tokens} {
		*x /= float64(p.Rounds)
	}
	return p
}

// parts lays out where the time goes.
func (r *Report) parts() []table.Table {
	t := table.Table{
		Caption: "By parts, µs a round: passes within decoding, and the same passes of each model alone",
		Header: []string{
			"method", "T", "set", "rounds", "of repetitions", "rows", "context", "target", "alone", "draft passes", "draft", "alone", "other", "round",
			"τ", "speed-up", "allowed by the passes", "of allowed",
		},
	}
	us := func(s float64) string { return fmt.Sprintf("%.0f", 1e6*s) }
	for i := range r.Rows {
		x := &r.Rows[i]
		p := x.Parts
		if p == nil {
			continue
		}
		of := "the mean"
		if p.Best {
			of = "the best"
		}
		t.Cells = append(t.Cells, []string{
			x.Method, fmt.Sprintf("%g", x.Temperature), setName(x.Set), fmt.Sprint(p.Rounds), of, fmt.Sprintf("%.1f", p.Rows), fmt.Sprintf("%.0f", p.At),
			us(p.Target), us(p.TargetAlone), fmt.Sprintf("%.1f", p.Steps), us(p.Draft), us(p.DraftAlone), us(p.Other), us(p.loop()),
			fmt.Sprintf("%.2f", x.Pooled), fmt.Sprintf("%.2f", p.Speedup), fmt.Sprintf("%.2f", p.Allowed), fmt.Sprintf("%.2f", p.Of),
		})
	}
	if len(t.Cells) == 0 {
		return nil
	}
	return []table.Table{t}
}

// A tape notes the calls that decoding one text makes to its models, and makes
// them again to one model at a time. Its memory serves one text after the other,
// and what noting takes does not count.
type tape struct {
	now    func() time.Time
	target infer.Target
	source infer.Source
	prompt []int32
	keep   int
	at     int // positions committed
	mark   time.Time
	calls  []call
	ints   []int32 // of the calls' trees and paths
	hidden []model.Feature
	rounds []Round
	open   Round // the round under way
}

// A call is one of a target or a source. What it was given is copied, for those who
// made it use their memory again.
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
	from, width int
	full        bool
}

type callKind uint8

const (
	callScore callKind = iota
	callCommit
	callRows
	callTake // a source's Commit
)

// A noted is a part of a tape's numbers: a path, or a tree with room for most nodes,
// tokens first and then parents.
type noted struct{ first, n, most int }

func (t *tape) noteTree(x *tree.Tree) noted {
	s := noted{len(t.ints), x.Len(), x.Len() + x.Room()}
	t.ints = append(t.ints, x.Tokens()...)
	for n := range s.n {
		t.ints = append(t.ints, int32(x.Parent(n)))
	}
	return s
}

// build makes dst the tree that was noted.
func (t *tape) build(dst *tree.Tree, s noted) {
	tokens, above := t.ints[s.first:][:s.n], t.ints[s.first+s.n:][:s.n]
	dst.Reset(tokens[0], s.most)
	for n := 1; n < s.n; n++ {
		dst.Add(int(above[n]), tokens[n])
	}
}

func (t *tape) notePath(path []int) noted {
	s := noted{first: len(t.ints), n: len(path)}
	for _, n := range path {
		t.ints = append(t.ints, int32(n))
	}
	return s
}

func (t *tape) appendPath(dst []int, s noted) []int {
	for _, n := range t.ints[s.first:][:s.n] {
		dst = append(dst, int(n))
	}
	return dst
}

// begin empties t for a text that e decodes with s, and returns the engine and the
// source to decode it with.
func (t *tape) begin(e *infer.Engine, s infer.Source) (*infer.Engine, infer.Source) {
	*t = tape{
		now: e.Clock, target: e.Target, source: s,
		calls: t.calls[:0], ints: t.ints[:0], hidden: t.hidden[:0],
	}
	if t.now == nil {
		t.now = time.Now
	}
	through := &infer.Engine{Target: &tapeTarget{e.Target, t}, Config: e.Config, Clock: e.Clock}
	if s == nil {
		return through, nil
	}
	return through, &tapeSource{s, t}
}

// noting returns the time and leaves what passed since out of the round.
func (t *tape) noting(since time.Time) time.Time {
	now := t.now()
	t.mark = t.mark.Add(now.Sub(since))
	return now
}

// ends is the end of a round.
func (t *tape) ends() {
	now := t.now()
	r := t.open
	r.Other = now.Sub(t.mark) - r.Target.Loop
	for _, d := range r.Draft {
		r.Other -= d.Loop
	}
	t.rounds, t.open = append(t.rounds, r), Round{}
	t.mark = t.now()
}

// number is the round under way, −1 in the prompt.
func (t *tape) number() int {
	if t.at < len(t.prompt)-1 {
		return -1
	}
	return len(t.rounds)
}

type tapeTarget struct {
	infer.Target
	t *tape
}

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
	t *tape
}

func (x *tapeSource) Rows(ctx context.Context, asks []infer.Ask) ([]infer.Row, error) {
	t := x.t
	since := t.now()
	c := call{kind: callRows, round: -1}
	rows := 0
	if len(asks) > 0 {
		a := &asks[0]
		c.asks, c.round, c.step = true, t.number(), len(t.open.Draft)
		c.tree, c.from, c.width, c.full = t.noteTree(a.Tree), a.From, a.Width, a.Full
		rows = a.Tree.Len() - a.From
	}
	t.calls = append(t.calls, c)
	since = t.noting(since)
	out, err := x.Source.Rows(ctx, asks)
	if c.asks {
		t.open.Draft = append(t.open.Draft, Pass{Rows: rows, At: t.at, Loop: t.now().Sub(since)})
	}
	return out, err
}

func (x *tapeSource) Commit(id infer.SeqID, p infer.Proposal, v infer.Verdict, s infer.Scores) error {
	t := x.t
	since := t.now()
	c := call{kind: callTake, tree: t.noteTree(p.Tree), path: t.notePath(v.Path), next: v.Next, pos: p.Pos, first: len(t.hidden)}
	// What lies in these rows when they are read again is not what was there now,
	// which is all the same to those who only measure.
	for _, n := range v.Path {
		t.hidden = append(t.hidden, s.Hidden(n))
	}
	t.calls = append(t.calls, c)
	t.noting(since)
	return x.Source.Commit(id, p, v, s)
}

// again runs all passes once more, first the target's and then the source's.
func (t *tape) again(ctx context.Context) error {
	const id = ^infer.SeqID(0) // no engine comes so far
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

func (t *tape) targetAgain(ctx context.Context, id infer.SeqID) error {
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

func (t *tape) sourceAgain(ctx context.Context, id infer.SeqID) error {
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
				asks = append(asks, infer.Ask{ID: id, Tree: &work, From: c.from, Width: c.width, Full: c.full})
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

// hiddenOnly are scores of which only hidden states of a path are read.
type hiddenOnly struct {
	path   []int
	hidden []model.Feature // by place on the path
}

const onlyHidden = "bench: a source reads more of the target than hidden states of what was kept"

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
