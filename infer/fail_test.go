package infer_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"talf/infer"
	"talf/infer/draft/drafttest"
)

// A faulty drafter drafts nothing until its turn comes.
type faulty struct {
	grow    func(p *infer.Proposal, rows []infer.Row) ([]int, error) // nil: it drafts nothing
	observe func(p infer.Proposal) error
}

func (faulty) Start([]int32) error { return nil }

func (d faulty) Grow(p *infer.Proposal, rows []infer.Row, _ infer.Chance) ([]int, error) {
	if d.grow == nil {
		return nil, nil
	}
	return d.grow(p, rows)
}

func (faulty) Traits() infer.Traits { return infer.Traits{} }

func (d faulty) Observe(p infer.Proposal, _ infer.Verdict, _ infer.Scores) error {
	if d.observe == nil {
		return nil
	}
	return d.observe(p)
}

// A deaf source refuses the commit of one sequence, the first that it opened.
type deaf struct {
	drafttest.Source
	first infer.SeqID
}

func (s *deaf) Open(id infer.SeqID, prompt []int32, keep int) error {
	if s.first == 0 {
		s.first = id
	}
	return s.Source.Open(id, prompt, keep)
}

func (s *deaf) Commit(id infer.SeqID, p infer.Proposal, v infer.Verdict, sc infer.Scores) error {
	if id == s.first {
		return errPlanted
	}
	return s.Source.Commit(id, p, v, sc)
}

type mute struct{}

func (mute) Fits(infer.Choice, bool) error { return nil }

func (mute) Verify(infer.Proposal, infer.Scores, infer.Chance) (infer.Verdict, error) {
	return infer.Verdict{}, errPlanted
}

var errPlanted = errors.New("planted")

// A failure in one sequence, in its prompt or after it, ends that one, with an error that names
// the operation, and leaves the others of its batch unchanged.
func TestWhatFailsInOneSequenceEndsItAlone(t *testing.T) {
	at := func(pos int) func(infer.Proposal) error {
		return func(p infer.Proposal) error {
			if p.Pos == pos {
				return errPlanted
			}
			return nil
		}
	}
	// asking adds two nodes to the root and asks for the given ones.
	asking := func(ask ...int) faulty {
		return faulty{grow: func(p *infer.Proposal, rows []infer.Row) ([]int, error) {
			if p.Width = 1; rows == nil {
				return []int{0}, nil
			}
			p.Tree.Add(0, 1)
			p.Tree.Add(0, 2)
			return ask, nil
		}}
	}
	for _, x := range []struct {
		name   string
		change func(r *infer.Request)
		want   string
		tokens int
	}{
		{"Grow at first", func(r *infer.Request) {
			r.Drafter = faulty{grow: func(*infer.Proposal, []infer.Row) ([]int, error) { return nil, errPlanted }}
		}, "draft: planted", 0},
		{"Grow with rows", func(r *infer.Request) {
			r.Drafter = faulty{grow: func(p *infer.Proposal, rows []infer.Row) ([]int, error) {
				if p.Width = 1; rows == nil {
					return []int{0}, nil
				}
				return nil, errPlanted
			}}
		}, "draft: planted", 0},
		{"an ask without a source", func(r *infer.Request) {
			r.Source = nil
			r.Drafter = faulty{grow: func(*infer.Proposal, []infer.Row) ([]int, error) { return []int{0}, nil }}
		}, "asks a source and the request has none", 0},
		{"a first ask for two nodes", func(r *infer.Request) {
			r.Drafter = faulty{grow: func(p *infer.Proposal, _ []infer.Row) ([]int, error) {
				p.Tree.Add(0, 1)
				return []int{0, 1}, nil
			}}
		}, "asked for 2 nodes at first, want the root alone", 0},
		{"an ask for a part of the new nodes", func(r *infer.Request) { r.Drafter = asking(2) }, "asked for 1 nodes from 2, want all of [1,3)", 0},
		{"an ask for nodes that ran", func(r *infer.Request) { r.Drafter = asking(0, 1) }, "asked for 2 nodes from 0, want all of [1,3)", 0},
		{"Observe of the prompt", func(r *infer.Request) { r.Drafter = faulty{observe: at(0)} }, "observe: planted", 0},
		{"Observe of a round", func(r *infer.Request) { r.Drafter = faulty{observe: at(3)} }, "observe: planted", 2},
		{"the source", func(r *infer.Request) { r.Drafter = faulty{} }, "commit to the draft source: planted", 0},
		{"the verifier", func(r *infer.Request) { r.Verifier = mute{} }, "verify: planted", 0},
		{"Trace", func(r *infer.Request) { r.Trace = func(infer.Round) error { return errPlanted } }, "trace: planted", 1},
	} {
		t.Run(x.name, func(t *testing.T) {
			e := tableEngine(9)
			src := &deaf{Source: drafttest.Source{Target: e.Target.(*drafttest.Target), Agree: 1}}
			if x.name != "the source" {
				src.first = 1 << 60
			}
			alone, err := tableEngine(9).Generate(t.Context(), plainRequest(t, 1, 2, 3))
			if err != nil {
				t.Fatal(err)
			}
			var seqs []*infer.Sequence
			for i := range 3 {
				r := plainRequest(t, 1, 2, 3)
				r.Source = src
				if i == 0 {
					x.change(&r)
				} else {
					r.Drafter = faulty{grow: func(p *infer.Proposal, rows []infer.Row) ([]int, error) {
						if p.Width = 1; rows == nil {
							return []int{0}, nil
						}
						p.Tree.Add(0, rows[0].Tokens[0])
						return nil, nil
					}}
				}
				s, err := e.Open(r)
				if err != nil {
					t.Fatal(err)
				}
				seqs = append(seqs, s)
			}
			for range 12 {
				if err := e.Step(context.Background(), seqs); err != nil {
					t.Fatal(err)
				}
			}
			if r, done := seqs[0].Done(); !done || r != infer.Failed || !strings.Contains(seqs[0].Err().Error(), x.want) {
				t.Errorf("reason %q, error %v; want one that says %q", r, seqs[0].Err(), x.want)
			}
			if n := len(seqs[0].Tokens()); n != x.tokens {
				t.Errorf("%d tokens, want %d", n, x.tokens)
			}
			for i, s := range seqs[1:] {
				if r, _ := s.Done(); r != infer.Length || s.Err() != nil || s.Stats().Passes >= 10 {
					t.Errorf("sequence %d: reason %q, error %v, %d passes", i+1, r, s.Err(), s.Stats().Passes)
				}
				for j, token := range s.Tokens() {
					if token != alone.Tokens()[j] {
						t.Fatalf("sequence %d: %v, alone %v", i+1, s.Tokens(), alone.Tokens())
					}
				}
			}
			for _, s := range seqs {
				e.Close(s)
			}
		})
	}
}
