package infer_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"talf/infer"
	"talf/infer/draft"
	"talf/infer/draft/drafttest"
	"talf/infer/source"
	"talf/tree"
)

// late ends after its Err was asked n times: somewhere inside a round.
type late struct {
	context.Context
	n atomic.Int64 // several workers ask
}

func endLate(ctx context.Context, n int) *late {
	c := &late{Context: ctx}
	c.n.Store(int64(n))
	return c
}

func (c *late) Err() error {
	if c.n.Add(-1) < 0 {
		return context.Canceled
	}
	return nil
}

// Rounds that are interrupted anywhere and started again must equal undisturbed rounds: not only
// in their output, which the verifier guards, but in what was drafted and accepted.
func TestRoundsCutShortAreBegunAgain(t *testing.T) {
	trials := 30
	if testing.Short() {
		trials = 8
	}
	cut := 0
	for trial := range trials {
		rng := rand.New(rand.NewPCG(uint64(trial), 11))
		n := newNets(t, 1+trial%2, uint64(trial))
		spec := []string{"salf:N=20,th=0", "beam:N=12,k=4,depth=3", "salf:th=0.1,N=30"}[trial%3]
		var prompts [][]int32
		for range 3 {
			prompt := make([]int32, 1+rng.IntN(40))
			for i := range prompt {
				prompt[i] = rng.Int32N(int32(n.target.Spec().Vocab))
			}
			prompts = append(prompts, prompt)
		}
		generate := func(disturb bool) (all []infer.Stats, out [][]int32) {
			e := &infer.Engine{Target: infer.NewTarget(n.target, 0), Config: infer.Config{PrefillChunk: 16, MaxNodes: 64}}
			src := source.NewHead(n.head, 0)
			var seqs []*infer.Sequence
			for i, p := range prompts {
				d, _, err := draft.New(spec)
				if err != nil {
					t.Fatal(err)
				}
				s, err := e.Open(infer.Request{
					Prompt: p, MaxTokens: 25, Seed: uint64(i), NoEOS: true, Drafter: d, Source: src,
					Verifier: verifier(t, float64(trial%2)), Processor: drafttest.Plain{Temperature: float64(trial % 2)},
				})
				if err != nil {
					t.Fatal(err)
				}
				seqs = append(seqs, s)
			}
			for slices.ContainsFunc(seqs, func(s *infer.Sequence) bool { _, done := s.Done(); return !done }) {
				if disturb {
					err := e.Step(endLate(t.Context(), rng.IntN(60)), seqs)
					if err != nil && !errors.Is(err, context.Canceled) {
						t.Fatal(err)
					}
					if err != nil {
						cut++
					}
				}
				if err := e.Step(t.Context(), seqs); err != nil {
					t.Fatal(err)
				}
			}
			for _, s := range seqs {
				if s.Err() != nil {
					t.Fatal(s.Err())
				}
				all, out = append(all, *s.Stats()), append(out, s.Tokens())
				e.Close(s)
			}
			if used := n.head.KV().Used; used != 0 {
				t.Fatalf("trial %d: %d of the head's blocks are in use after all is closed", trial, used)
			}
			return all, out
		}
		want, wantOut := generate(false)
		got, gotOut := generate(true)
		for i := range want {
			g, w := &got[i], &want[i]
			if !slices.Equal(gotOut[i], wantOut[i]) {
				t.Fatalf("trial %d, sequence %d: %v, undisturbed %v", trial, i, gotOut[i], wantOut[i])
			}
			if g.Drafted != w.Drafted || !slices.Equal(g.Emitted, w.Emitted) || !slices.Equal(g.Ranked, w.Ranked) {
				t.Fatalf("trial %d, sequence %d: drafted %d, emitted %v; undisturbed %d, %v", trial, i, g.Drafted, g.Emitted, w.Drafted, w.Emitted)
			}
		}
	}
	t.Logf("%d rounds were cut short", cut)
	if cut < trials {
		t.Error("too few rounds were cut short")
	}
}

// Nothing after the end of the output counts anywhere, though a path through it
// was accepted: not in τ, not in the histogram, not by depth or rank.
func TestNothingAfterTheEndIsCounted(t *testing.T) {
	for seed := uint64(0); ; seed++ {
		e := tableEngine(9)
		e.Target.(*drafttest.Target).Table.Seed = seed
		free, err := e.Generate(t.Context(), plainRequest(t, 1, 2))
		if err != nil {
			t.Fatal(err)
		}
		out := free.Tokens()
		if slices.Contains(out[:2], out[2]) {
			continue // the third token is to end the output
		}
		req := plainRequest(t, 1, 2)
		req.EOS = out[2:3]
		req.Drafter = truth(out[:6])
		careless := 0 // counts what was accepted: the bug that this case shows
		req.Trace = func(r infer.Round) error {
			careless += len(r.Verdict.Path)
			return nil
		}
		s, err := e.Generate(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		once := infer.Rate{Tried: 1, Kept: 1}
		want := infer.Stats{
			Prompt: 2, Tokens: 3, Passes: 1, Drafted: 6, Emitted: []int{0, 0, 0, 1},
			Depth: []infer.Rate{{}, once, once, once}, Rank: []infer.Rate{{}, {Tried: 3, Kept: 3}}, Ranked: []int{0, 6},
		}
		if d := cmp.Diff(want, counts(s.Stats())); d != "" {
			t.Errorf("statistics (-want +got):\n%s", d)
		}
		if careless != 7 {
			t.Errorf("%d tokens were accepted, want 4 after the end", careless)
		}
		return
	}
}

// truth drafts one chain.
type truth []int32

func (truth) Start([]int32) error { return nil }

func (d truth) Grow(p *infer.Proposal, _ []infer.Row, _ infer.Chance) ([]int, error) {
	p.Tree = tree.New(p.Tree.Token(0), p.MaxNodes)
	for i, id := range d {
		p.Tree.Add(i, id)
	}
	return nil, nil
}

func (truth) Observe(infer.Proposal, infer.Verdict, infer.Scores) error { return nil }

func (truth) Traits() infer.Traits { return infer.Traits{} }

// jump returns a path that skips a node.
type jump struct{}

func (jump) Fits(infer.Choice, bool) error { return nil }

func (jump) Verify(p infer.Proposal, _ infer.Scores, _ infer.Chance) (infer.Verdict, error) {
	return infer.Verdict{Path: []int{0, 2}, Next: 1}, nil
}

// A verdict that is not a path ends its sequence, and nothing of it remains.
func TestAWrongVerdictEndsItsSequenceAndLeavesNothing(t *testing.T) {
	for _, keep := range []int{0, 2} {
		n := newNets(t, 1, 1)
		e := &infer.Engine{Target: infer.NewTarget(n.target, keep), Config: infer.Default()}
		blocks := func() int { used := n.target.KV().Used; return used }
		req := plainRequest(t, make([]int32, 33)...)
		if _, err := e.Generate(t.Context(), req); err != nil {
			t.Fatal(err)
		}
		before := blocks()
		bad := plainRequest(t, append(make([]int32, 31), 7, 8)...)
		bad.Verifier, bad.Drafter = jump{}, truth{1, 2}
		s, err := e.Generate(t.Context(), bad)
		if err == nil || !strings.Contains(err.Error(), "does not follow") || len(s.Tokens()) != 2 {
			t.Fatalf("error %v, tokens %v", err, s.Tokens())
		}
		// Its 32 committed positions are a block, if they are kept.
		if most := before + min(keep, 1); blocks() > most {
			t.Errorf("keep %d: %d blocks in use, want at most %d", keep, blocks(), most)
		}
		if _, err := e.Generate(t.Context(), plainRequest(t, append(make([]int32, 31), 7, 9, 9)...)); err != nil {
			t.Error(err)
		}
	}
}
