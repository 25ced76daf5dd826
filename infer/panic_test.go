package infer_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"talf/infer"
	"talf/infer/draft"
	"talf/infer/source"
	"talf/tree"
)

// A bomb panics at its nth call; it is one counter for all parts of a request.
type bomb struct {
	at   string // the call that panics
	left int    // calls of it until then
}

func (b *bomb) call(at string) {
	if b.at != at {
		return
	}
	if b.left--; b.left == 0 {
		panic("planted at " + at)
	}
}

type bombDrafter struct {
	infer.Drafter
	b *bomb
}

func (d bombDrafter) Traits() infer.Traits {
	d.b.call("Traits")
	return d.Drafter.Traits()
}

func (d bombDrafter) Start(prompt []int32) error {
	d.b.call("Start")
	return d.Drafter.Start(prompt)
}

func (d bombDrafter) Grow(p *infer.Proposal, rows []infer.Row, c infer.Chance) ([]int, error) {
	d.b.call("Grow")
	p.Allow = func(int) []uint64 { d.b.call("Allow"); return nil }
	return d.Drafter.Grow(p, rows, c)
}

func (d bombDrafter) Observe(p infer.Proposal, v infer.Verdict, s infer.Scores) error {
	d.b.call("Observe")
	return d.Drafter.Observe(p, v, s)
}

type bombVerifier struct {
	infer.Verifier
	b *bomb
}

func (v bombVerifier) Fits(d infer.Choice, chain bool) error {
	v.b.call("Fits")
	return v.Verifier.Fits(d, chain)
}

func (v bombVerifier) Verify(p infer.Proposal, s infer.Scores, c infer.Chance) (infer.Verdict, error) {
	v.b.call("Verify")
	return v.Verifier.Verify(p, s, c)
}

type bombProcessor struct {
	infer.Processor
	b *bomb
}

func (bombProcessor) Abilities() infer.ProcessorAbilities { return infer.ProcessorAbilities{} }

func (p bombProcessor) Plain() bool { p.b.call("Plain"); return false }

func (p bombProcessor) Argmax(logits []float32, context []int32) int32 {
	p.b.call("Argmax")
	return p.Processor.Argmax(logits, context)
}

type bombText struct{ b *bomb }

func (d bombText) Push(id int32) string { d.b.call("Push"); return fmt.Sprint(id) }
func (d bombText) Flush() string        { d.b.call("Flush"); return "" }

// bombSource panics in the calls for one sequence.
type bombSource struct {
	infer.Source
	b  *bomb
	id infer.SeqID
}

func (*bombSource) Abilities() infer.Abilities { return infer.Abilities{} }

func (s *bombSource) Open(id infer.SeqID, prompt []int32, keep int) error {
	s.id = id
	s.b.call("Open")
	return s.Source.Open(id, prompt, keep)
}

func (s *bombSource) Match(prompt []int32) int { s.b.call("Match"); return s.Source.Match(prompt) }

func (s *bombSource) Commit(id infer.SeqID, p infer.Proposal, v infer.Verdict, x infer.Scores) error {
	if id == s.id {
		s.b.call("Commit")
	}
	return s.Source.Commit(id, p, v, x)
}

// A panic of any part of a request, at any time, ends that request alone: its error has the
// panic and the stack, and the others emit what plain decoding emits.
func TestAPanicEndsItsSequenceAlone(t *testing.T) {
	for _, at := range []string{
		"Traits", "Start", "Grow", "Allow", "Observe", "Fits", "Verify", "Plain", "Argmax", "Detok", "Push", "Flush", "Trace", "Match", "Open", "Commit",
	} {
		for _, after := range []int{1, 3} {
			t.Run(fmt.Sprint(at, " ", after), func(t *testing.T) {
				n := newNets(t, 1, 3)
				e := &infer.Engine{Target: infer.NewTarget(n.target, 0), Config: infer.Config{PrefillChunk: 4, MaxNodes: 64}}
				head := source.NewHead(n.head, 0)
				prompts := [][]int32{{1, 2, 3, 4, 5, 6, 7}, {3, 4, 5}, {6}}
				b := &bomb{at: at, left: after}
				var seqs []*infer.Sequence
				var culprit *infer.Sequence
				opening := false // it never opened
				for i, p := range prompts {
					d, _, err := draft.New("beam:N=12,k=4,depth=3")
					if err != nil {
						t.Fatal(err)
					}
					req := plainRequest(t, p...)
					req.Drafter, req.Source, req.NoEOS, req.MaxTokens = d, head, true, 20
					if i == 1 {
						req.Drafter, req.Verifier, req.Processor = bombDrafter{d, b}, bombVerifier{req.Verifier, b}, bombProcessor{req.Processor, b}
						req.Source = &bombSource{Source: head, b: b}
						req.Detok = func() infer.Detokenizer { b.call("Detok"); return bombText{b} }
						req.Trace = func(infer.Round) error { b.call("Trace"); return nil }
					}
					s, err := e.Open(req)
					if i == 1 {
						var p *infer.PanicError
						if culprit, opening = s, errors.As(err, &p); opening {
							checkPanic(t, err, at)
							continue
						}
					}
					if err != nil {
						t.Fatal(err)
					}
					seqs = append(seqs, s)
				}
				for range 60 {
					if err := e.Step(t.Context(), seqs); err != nil {
						t.Fatal(err)
					}
				}
				for i, s := range seqs {
					reason, _ := s.Done()
					if s == culprit && b.left <= 0 {
						if reason != infer.Failed {
							t.Fatalf("the culprit: reason %q, error %v", reason, s.Err())
						}
						checkPanic(t, s.Err(), at)
						continue
					}
					want := plainRequest(t, s.Prompt()...)
					want.NoEOS, want.MaxTokens = true, 20
					alone, err := (&infer.Engine{Target: infer.NewTarget(n.target, 0), Config: infer.Default()}).Generate(t.Context(), want)
					if err != nil {
						t.Fatal(err)
					}
					if reason != infer.Length || !slices.Equal(s.Tokens(), alone.Tokens()) {
						t.Errorf("sequence %d: reason %q, error %v, %v; plain decoding gives %v", i, reason, s.Err(), s.Tokens(), alone.Tokens())
					}
				}
				if b.left > 0 && after == 1 {
					t.Errorf("%s was never called", at)
				}
				for _, s := range seqs {
					e.Close(s)
				}
				if used := n.target.KV().Used; used != 0 {
					t.Errorf("%d blocks are in use after all is closed", used)
				}
				if used := n.head.KV().Used; used != 0 {
					t.Errorf("%d of the head's blocks are in use after all is closed", used)
				}
			})
		}
	}
}

func checkPanic(t *testing.T, err error, at string) {
	t.Helper()
	var p *infer.PanicError
	if !errors.As(err, &p) || p.Value != "planted at "+at || !strings.Contains(string(p.Stack), "bomb") || !strings.Contains(err.Error(), "planted at "+at) {
		t.Errorf("error %v, want the panic planted at %s with its stack", err, at)
	}
}

// A source whose passes fail, or panic.
type badSource struct {
	infer.Source
	fail func() error
}

func (*badSource) Abilities() infer.Abilities { return infer.Abilities{} }

func (s *badSource) Rows(ctx context.Context, asks []infer.Ask) ([]infer.Row, error) {
	if err := s.fail(); err != nil {
		return nil, err
	}
	return s.Source.Rows(ctx, asks)
}

// A source that fails costs the sequences that use it their drafts: the outputs of all stay, and
// so do the drafts of those that use another.
func TestASourceThatFailsCostsDraftsOnly(t *testing.T) {
	for name, x := range map[string]struct {
		fail func(rng *rand.Rand) error
		lost bool // for good
	}{
		"errors":       {func(rng *rand.Rand) error { return map[bool]error{true: errPlanted}[rng.IntN(3) == 0] }, false},
		"nothing else": {func(*rand.Rand) error { return errPlanted }, false},
		"a panic":      {func(*rand.Rand) error { panic(errPlanted) }, true},
		"a late panic": {func(rng *rand.Rand) error {
			return map[bool]error{true: errPlanted, false: nil}[panicIf(rng.IntN(9) == 0)]
		}, true},
		"too few answers": {func(*rand.Rand) error { return nil }, false},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNets(t, 1, 3)
			rng := rand.New(rand.NewPCG(1, 5))
			e := &infer.Engine{Target: infer.NewTarget(n.target, 0), Config: infer.Default()}
			good := source.NewHead(n.head, 0)
			var bad infer.Source = &badSource{source.NewHead(n.head, 0), func() error { return x.fail(rng) }}
			if name == "too few answers" {
				bad = &short{source.NewHead(n.head, 0)}
			}
			var seqs []*infer.Sequence
			for i := range 4 {
				d, _, err := draft.New("beam:N=12,k=4,depth=3")
				if err != nil {
					t.Fatal(err)
				}
				req := plainRequest(t, 1, int32(i))
				req.Drafter, req.Source, req.NoEOS, req.MaxTokens = d, []infer.Source{good, bad}[i%2], true, 30
				s, err := e.Open(req)
				if err != nil {
					t.Fatal(err)
				}
				seqs = append(seqs, s)
			}
			for range 40 {
				if err := e.Step(t.Context(), seqs); err != nil {
					t.Fatal(err)
				}
			}
			for i, s := range seqs {
				req := plainRequest(t, 1, int32(i))
				req.NoEOS, req.MaxTokens = true, 30
				alone, err := (&infer.Engine{Target: infer.NewTarget(n.target, 0), Config: infer.Default()}).Generate(t.Context(), req)
				if err != nil {
					t.Fatal(err)
				}
				if r, _ := s.Done(); r != infer.Length || !slices.Equal(s.Tokens(), alone.Tokens()) {
					t.Errorf("sequence %d: reason %q, error %v, %v; plain decoding gives %v", i, r, s.Err(), s.Tokens(), alone.Tokens())
				}
				if uses := i%2 == 1; uses != (s.Undrafted() != nil) || uses != (s.Stats().Undrafted > 0) && !x.lost {
					t.Errorf("sequence %d uses the bad source: %v; rounds without drafts: %d, %v", i, uses, s.Stats().Undrafted, s.Undrafted())
				}
				e.Close(s)
			}
			var p *infer.PanicError
			if err := seqs[1].Undrafted(); errors.As(err, &p) != x.lost || name != "too few answers" && !errors.Is(err, errPlanted) {
				t.Errorf("no drafts because of %v", err)
			}
			// A later request finds out at once.
			req := plainRequest(t, 1)
			d, _, _ := draft.New("beam:N=12,k=4,depth=3")
			req.Drafter, req.Source = d, bad
			s, err := e.Open(req)
			if err != nil || (s.Undrafted() != nil) != x.lost {
				t.Errorf("a request for the bad source: %v, no drafts because of %v", err, s.Undrafted())
			}
			e.Close(s)
		})
	}
}

func panicIf(b bool) bool {
	if b {
		panic(errPlanted)
	}
	return false
}

// short leaves out the last row.
type short struct{ infer.Source }

func (s *short) Rows(ctx context.Context, asks []infer.Ask) ([]infer.Row, error) {
	rows, err := s.Source.Rows(ctx, asks)
	return rows[:max(0, len(rows)-1)], err
}

// wild draws its trees' contents at random: what it asks for and what it proposes are mostly
// against the contract.
type wild struct{ rng *rand.Rand }

func (wild) Start([]int32) error                                       { return nil }
func (wild) Traits() infer.Traits                                      { return infer.Traits{} }
func (wild) Observe(infer.Proposal, infer.Verdict, infer.Scores) error { return nil }

func (w wild) Grow(p *infer.Proposal, rows []infer.Row, _ infer.Chance) ([]int, error) {
	t := p.Tree
	switch w.rng.IntN(8) {
	case 0:
		p.Tree = nil
		return nil, nil
	case 1:
		p.Work = tree.New(p.Tree.Token(0), 300)
		t = p.Work
	case 2:
		p.Width = -1
	}
	p.Width += w.rng.IntN(3)
	for range w.rng.IntN(4) {
		t.Add(w.rng.IntN(t.Len()+1)%t.Len(), w.rng.Int32N(200)-10)
	}
	if w.rng.IntN(6) == 0 {
		p.Live = w.rng.IntN(9) - 3
	}
	ask := []int{0}
	if rows != nil {
		if w.rng.IntN(2) == 0 {
			return nil, nil
		}
		ask = ask[:0]
		for n := 1; n < t.Len(); n++ {
			ask = append(ask, n)
		}
	}
	return ask, nil
}

// wrong returns any verdict.
type wrong struct{ rng *rand.Rand }

func (wrong) Fits(infer.Choice, bool) error { return nil }

func (w wrong) Verify(p infer.Proposal, _ infer.Scores, _ infer.Chance) (infer.Verdict, error) {
	var v infer.Verdict
	for range w.rng.IntN(3) {
		v.Path = append(v.Path, w.rng.IntN(4)-1)
	}
	v.Next = w.rng.Int32N(140) - 5
	return v, nil
}

// Drafters and verifiers that keep to no contract at all cost only their own sequence.
func TestWildPartsEndTheirSequenceAlone(t *testing.T) {
	n := newNets(t, 1, 3)
	src := source.NewHead(n.head, 0)
	want := plainRequest(t, 1, 2)
	want.NoEOS = true
	alone, err := (&infer.Engine{Target: infer.NewTarget(n.target, 0), Config: infer.Default()}).Generate(t.Context(), want)
	if err != nil {
		t.Fatal(err)
	}
	failed := 0
	for seed := range uint64(150) {
		e := &infer.Engine{Target: infer.NewTarget(n.target, 0), Config: infer.Default()}
		rng := rand.New(rand.NewPCG(seed, 1))
		d, _, err := draft.New("beam:N=12,k=4,depth=3")
		if err != nil {
			t.Fatal(err)
		}
		good, bad := plainRequest(t, 1, 2), plainRequest(t, 1, 2)
		good.Drafter, good.Source, good.NoEOS = d, src, true
		bad.Drafter, bad.Source, bad.NoEOS = wild{rng}, src, true
		if seed%3 == 0 {
			bad.Drafter, bad.Source, bad.Verifier = nil, nil, wrong{rng}
		}
		var seqs []*infer.Sequence
		for _, r := range []infer.Request{bad, good} {
			s, err := e.Open(r)
			if err != nil {
				t.Fatal(err)
			}
			seqs = append(seqs, s)
		}
		for range 20 {
			if err := e.Step(t.Context(), seqs); err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
		}
		if r, _ := seqs[0].Done(); r == infer.Failed {
			failed++
		}
		if r, _ := seqs[1].Done(); r != infer.Length || !slices.Equal(seqs[1].Tokens(), alone.Tokens()) || seqs[1].Undrafted() != nil {
			t.Fatalf("seed %d: reason %q, error %v, %v; plain decoding gives %v; no drafts because of %v",
				seed, r, seqs[1].Err(), seqs[1].Tokens(), alone.Tokens(), seqs[1].Undrafted())
		}
		for _, s := range seqs {
			e.Close(s)
		}
	}
	if failed < 100 {
		t.Errorf("%d of the wild sequences failed, want most", failed)
	}
	if used := n.target.KV().Used; used != 0 {
		t.Errorf("%d blocks are in use after all is closed", used)
	}
}

// A panic of the target is an error of the step.
type panicTarget struct{ infer.Target }

func (panicTarget) Score(context.Context, []infer.Job) ([]infer.Rows, error) { panic(errPlanted) }

func TestAPanicOfTheTargetIsAnError(t *testing.T) {
	n := newNets(t, 1, 3)
	e := &infer.Engine{Target: panicTarget{infer.NewTarget(n.target, 0)}, Config: infer.Default()}
	s, err := e.Generate(t.Context(), plainRequest(t, 1))
	var p *infer.PanicError
	if !errors.As(err, &p) || !errors.Is(err, errPlanted) {
		t.Errorf("error %v", err)
	}
	if r, _ := s.Done(); r != infer.Failed {
		t.Errorf("reason %q", r)
	}
}

// A target whose passes fail as long as fail says so.
type badTarget struct {
	infer.Target
	fail bool
}

func (*badTarget) Abilities() infer.Abilities { return infer.Abilities{} }

func (b *badTarget) Score(ctx context.Context, jobs []infer.Job) ([]infer.Rows, error) {
	if b.fail {
		return nil, errPlanted
	}
	return b.Target.Score(ctx, jobs)
}

// A round that lost its drafts in a step that failed has them when the step is called again, and
// counts as any other.
func TestARoundBegunAgainHasItsDrafts(t *testing.T) {
	n := newNets(t, 1, 3)
	target, bad := &badTarget{Target: infer.NewTarget(n.target, 0)}, false
	src := &badSource{source.NewHead(n.head, 0), func() error { return map[bool]error{true: errPlanted}[bad] }}
	e := &infer.Engine{Target: target, Config: infer.Default()}
	d, _, err := draft.New("beam:N=12,k=4,depth=3")
	if err != nil {
		t.Fatal(err)
	}
	req := plainRequest(t, 1, 2, 3)
	req.Drafter, req.Source, req.NoEOS = d, src, true
	s, err := e.Open(req)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close(s)
	step := func(fails bool, drafted, undrafted int) {
		t.Helper()
		target.fail = fails
		if err := e.Step(t.Context(), []*infer.Sequence{s}); errors.Is(err, errPlanted) != fails {
			t.Fatal(err)
		}
		if st := s.Stats(); (st.Drafted > 0) != (drafted > 0) || st.Undrafted != undrafted || (s.Undrafted() != nil) != (undrafted > 0) {
			t.Errorf("%d nodes drafted, %d rounds without because of %v; want %d rounds", st.Drafted, st.Undrafted, s.Undrafted(), undrafted)
		}
	}
	step(false, 0, 0) // the prompt
	bad = true
	step(true, 0, 0)
	step(true, 0, 0)
	bad = false
	step(false, 1, 0)
	bad = true
	step(true, 1, 0)
	step(false, 1, 1)
}

// A source that panics in a step that is cut short is given up like any other: its state is unknown.
func TestASourceThatPanicsInAStepThatIsCutIsNotCalledAgain(t *testing.T) {
	n := newNets(t, 1, 3)
	ctx, cancel := context.WithCancel(t.Context())
	calls := 0
	src := &badSource{source.NewHead(n.head, 0), func() error {
		if calls++; calls == 3 {
			cancel()
			panic(errPlanted)
		}
		return nil
	}}
	e := &infer.Engine{Target: infer.NewTarget(n.target, 0), Config: infer.Default()}
	d, _, err := draft.New("beam:N=12,k=4,depth=3")
	if err != nil {
		t.Fatal(err)
	}
	req := plainRequest(t, 1, 2, 3)
	req.Drafter, req.Source, req.NoEOS = d, src, true
	s, err := e.Open(req)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close(s)
	for ctx.Err() == nil {
		err = e.Step(ctx, []*infer.Sequence{s})
	}
	var p *infer.PanicError
	if !errors.Is(err, context.Canceled) || errors.As(err, &p) {
		t.Errorf("the step in which it panics: %v, want the end of the context", err)
	}
	for range 5 {
		if err := e.Step(t.Context(), []*infer.Sequence{s}); err != nil {
			t.Fatal(err)
		}
	}
	if calls != 3 || !errors.Is(s.Undrafted(), errPlanted) {
		t.Errorf("the source was called %d times, want 3; no drafts because of %v", calls, s.Undrafted())
	}
}
