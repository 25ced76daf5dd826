package infer_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"talf/infer"
	"talf/infer/draft/drafttest"
)

// A reader reads the target's rows of the prompt.
type reader struct {
	faulty
	keeps bool
	seen  *[]int // positions whose rows it was given
	start error
}

func (r *reader) Start([]int32) error { return r.start }

func (r *reader) Traits() infer.Traits {
	return infer.Traits{Harvest: map[bool]infer.Harvest{false: infer.Anew, true: infer.Once}[r.keeps]}
}

func (r *reader) Observe(p infer.Proposal, v infer.Verdict, s infer.Scores) error {
	for i, n := range v.Path {
		_ = s.TopK(n, 1) // panics if the row was not wanted
		*r.seen = append(*r.seen, p.Pos+i)
	}
	return nil
}

// An ender counts its ends.
type ender struct {
	faulty
	start error
	ends  int
}

func (d *ender) Start([]int32) error { return d.start }

func (d *ender) Traits() infer.Traits { return infer.Traits{End: func() { d.ends++ }} }

// A drafter learns once that its sequence has ended, and only if it has begun.
func TestADrafterLearnsOfTheEnd(t *testing.T) {
	n := newNets(t, 1, 2)
	e := &infer.Engine{Target: infer.NewTarget(n.target, 2), Config: infer.Default()}
	for _, c := range []struct {
		start error
		want  int
	}{{nil, 1}, {errors.New("no"), 0}} {
		d := &ender{start: c.start}
		req := plainRequest(t, 1, 2, 3)
		req.MaxTokens, req.Drafter = 4, d
		s, err := e.Open(req)
		if (err == nil) != (c.start == nil) {
			t.Fatal(err)
		}
		if err == nil {
			if err := e.Step(t.Context(), []*infer.Sequence{s}); err != nil || d.ends != 0 {
				t.Errorf("%d ends before the end, %v", d.ends, err)
			}
			e.Preempt(s)
			e.Close(s)
			e.Close(s)
		}
		if d.ends != c.want {
			t.Errorf("start error %v: %d ends, want %d", c.start, d.ends, c.want)
		}
	}
}

// A drafter that reads the rows of the prompt gets all of them, whichever prefix of it is kept,
// unless it can do without those of the prefix.
func TestHarvestersReadThePromptAgain(t *testing.T) {
	n := newNets(t, 1, 2)
	for _, keeps := range []bool{false, true} {
		e := &infer.Engine{Target: infer.NewTarget(n.target, 2), Config: infer.Config{PrefillChunk: 3, MaxNodes: 8}}
		prompt := []int32{1, 2, 3, 4, 5, 6, 7, 8}
		if _, err := e.Generate(t.Context(), plainRequest(t, prompt...)); err != nil {
			t.Fatal(err)
		}
		var seen []int
		req := plainRequest(t, prompt...)
		req.MaxTokens, req.Drafter = 1, &reader{keeps: keeps, seen: &seen}
		s, err := e.Generate(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		want := []int{0, 1, 2, 3, 4, 5, 6, 7}
		if keeps {
			want = want[7:]
		}
		if !slices.Equal(seen, want) || s.Stats().Cached != 8-len(want) {
			t.Errorf("keeps %v: read the rows of %v, want %v; %d tokens cached", keeps, seen, want, s.Stats().Cached)
		}
	}
}

// A ledger knows which sequences are open.
type ledger struct {
	infer.Target
	open map[infer.SeqID]bool
}

func (*ledger) Abilities() infer.Abilities { return infer.Abilities{} }

func (l *ledger) Open(id infer.SeqID, prompt []int32, keep int) error {
	l.open[id] = true
	return l.Target.Open(id, prompt, keep)
}

func (l *ledger) Close(id infer.SeqID) {
	if !l.open[id] {
		panic("closed twice")
	}
	delete(l.open, id)
	l.Target.Close(id)
}

// A full source opens nothing.
type full struct{ drafttest.Source }

func (*full) Open(infer.SeqID, []int32, int) error { return errPlanted }

func TestWhatCannotBeOpenedLeavesNothingOpen(t *testing.T) {
	for name, c := range map[string]struct {
		change func(e *infer.Engine, r *infer.Request)
		want   string
	}{
		"source": {func(e *infer.Engine, r *infer.Request) {
			r.Source, r.Drafter = &full{drafttest.Source{Target: e.Target.(*drafttest.Target)}}, faulty{}
		}, "open the draft source: planted"},
		"drafter": {func(_ *infer.Engine, r *infer.Request) {
			r.Drafter = &reader{start: errPlanted}
		}, "start the drafter: planted"},
	} {
		e := tableEngine(9)
		r := plainRequest(t, 1, 2)
		c.change(e, &r)
		l := &ledger{e.Target, map[infer.SeqID]bool{}}
		e.Target = l
		if s, err := e.Open(r); s != nil || !errors.Is(err, errPlanted) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want one that says %q", name, err, c.want)
		}
		if len(l.open) > 0 {
			t.Errorf("%s: %d sequences are open", name, len(l.open))
		}
		s, err := e.Open(plainRequest(t, 1, 2))
		if err != nil {
			t.Fatal(err)
		}
		e.Close(s)
		e.Close(s)
	}
}

// The reason why Generate stopped is known: its caller gave up, or a pass failed.
func TestGenerateSaysWhyItStopped(t *testing.T) {
	e := tableEngine(9)
	passes := 0
	e.Target.(*drafttest.Target).Fail = func() bool { passes++; return passes == 3 }
	s, err := e.Generate(t.Context(), plainRequest(t, 1, 2, 3))
	if r, _ := s.Done(); r != infer.Failed || !errors.Is(err, drafttest.ErrPass) || s.Err() != err || len(s.Tokens()) != 1 {
		t.Errorf("reason %q, error %v and %v, %d tokens; want a failed pass after one token", r, err, s.Err(), len(s.Tokens()))
	}
	ctx, cancel := context.WithCancel(t.Context())
	req := plainRequest(t, 1, 2, 3)
	s, err = e.Stream(ctx, req, func(infer.Delta) error { cancel(); return nil })
	if r, _ := s.Done(); r != infer.Cancelled || !errors.Is(err, context.Canceled) || len(s.Tokens()) != 1 {
		t.Errorf("reason %q, error %v, %d tokens; want cancelled after one", r, err, len(s.Tokens()))
	}
}

// A fussy verifier suits no drafted tree.
type fussy struct{ infer.Verifier }

func (fussy) Fits(infer.Choice, bool) error { return errPlanted }

func TestATreeThatDoesNotFitItsVerifierEndsTheSequence(t *testing.T) {
	req := plainRequest(t, 1, 2)
	req.Verifier, req.Drafter = fussy{req.Verifier}, truth{3, 4}
	s, err := tableEngine(9).Generate(t.Context(), req)
	if r, _ := s.Done(); !errors.Is(err, errPlanted) || r != infer.Failed || len(s.Tokens()) > 0 {
		t.Errorf("reason %q, error %v, tokens %v", r, err, s.Tokens())
	}
}

// A gazer records what it learns about rounds, and drafts the target's next token next to a
// wrong one.
type gazer struct {
	right []int32
	kept  int // tokens after the prompt
}

func (*gazer) Start([]int32) error { return nil }

func (*gazer) Traits() infer.Traits { return infer.Traits{} }

func (g *gazer) Grow(p *infer.Proposal, _ []infer.Row, _ infer.Chance) ([]int, error) {
	at := 0
	for d, id := range g.right[p.Pos-1:] {
		if d+2 > p.MaxDepth {
			break
		}
		p.Tree.Add(at, (id+1)%9)
		p.Tree.Add(p.Tree.Len()-1, (id+2)%9)
		at = p.Tree.Add(at, id)
	}
	return nil, nil
}

func (g *gazer) Observe(p infer.Proposal, v infer.Verdict, _ infer.Scores) error {
	if p.Pos > 0 {
		g.kept += len(v.Path)
	}
	return nil
}

// Reading any row of a round, and changing the tokens that are handed out, leaves the output
// unchanged; nothing past the end of the output is kept anywhere.
func TestWhoReadsARoundDoesNotChangeIt(t *testing.T) {
	want, err := tableEngine(9).Generate(t.Context(), plainRequest(t, 1, 2))
	if err != nil {
		t.Fatal(err)
	}
	for most := 1; most <= 10; most++ {
		for eos := range int32(9) {
			e := tableEngine(9)
			g := &gazer{right: want.Tokens()}
			req := plainRequest(t, 1, 2)
			req.Drafter, req.MaxTokens, req.EOS = g, most, []int32{eos}
			req.Trace = func(r infer.Round) error {
				for n := range r.Proposal.Tree.Len() {
					_ = r.Scores.Dist(n)
				}
				return nil
			}
			var seq *infer.Sequence
			var read infer.Reader
			var held [][]int32 // with a number of its own at the end
			if seq, err = e.Open(req); err != nil {
				t.Fatal(err)
			}
			for done := false; !done; _, done = seq.Done() {
				if err := e.Step(t.Context(), []*infer.Sequence{seq}); err != nil {
					t.Fatal(err)
				}
				now := seq.Snapshot()
				if d, ok := read.Next(&now); ok {
					held = append(held, append(d.Tokens, -1), append(seq.Tokens(), -1))
				}
			}
			out := want.Tokens()[:most]
			if i := slices.Index(out, eos); i >= 0 {
				out = out[:i+1]
			}
			what := fmt.Sprintf("%d tokens, end %d", most, eos)
			if !slices.Equal(seq.Tokens(), out) || seq.Err() != nil {
				t.Errorf("%s: %v, %v, want %v", what, seq.Tokens(), seq.Err(), out)
			}
			// The last token has not run yet.
			if kept := e.Target.(*drafttest.Target).Tokens(seq.ID()); len(kept) != 2+len(out)-1 {
				t.Errorf("%s: the target holds %v", what, kept)
			}
			for _, h := range held {
				if h[len(h)-1] != -1 {
					t.Errorf("%s: what was appended to the tokens became %d", what, h[len(h)-1])
				}
			}
			if g.kept != len(out) {
				t.Errorf("%s: the drafter was told of %d tokens, want %d", what, g.kept, len(out))
			}
			e.Close(seq)
		}
	}
}

// A drafter that no longer belongs to the sequence is not called any more.
func TestADrafterIsLeftAloneAfterClose(t *testing.T) {
	e := tableEngine(9)
	var seq *infer.Sequence
	closed, late := false, 0
	req := plainRequest(t, 1, 2)
	req.Drafter = faulty{observe: func(infer.Proposal) error {
		if closed {
			late++
		}
		return nil
	}}
	req.Trace = func(infer.Round) error {
		e.Close(seq)
		closed = true
		return nil
	}
	var err error
	if seq, err = e.Open(req); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if err := e.Step(t.Context(), []*infer.Sequence{seq}); err != nil {
			t.Fatal(err)
		}
	}
	if r, _ := seq.Done(); r != infer.Cancelled || !closed || late > 0 {
		t.Errorf("reason %q, closed %v, observed %d times after that", r, closed, late)
	}
}
