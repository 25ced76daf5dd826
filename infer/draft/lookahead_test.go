package draft_test

import (
	"context"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"talf/infer"
	"talf/infer/draft"
	"talf/infer/draft/drafttest"
	"talf/infer/verify"
	"talf/tree"
)

func TestLookaheadConforms(t *testing.T) {
	conform(t, "lookahead:W=3,N=3,G=2,prompt=on", "lookahead:W=1,N=4,G=1,bonus=on", "lookahead:W=7,N=3,G=5,slide=on", "lookahead:W=2,N=6,G=3,slide=on,bonus=on,prompt=on")
}

func TestLookaheadRefusesWhatNoTreeHolds(t *testing.T) {
	for spec, want := range map[string]string{
		"lookahead:N=2":                    "N is 2, want 3..1024",
		"lookahead:W=0":                    "W is 0, want 1..1024",
		"lookahead:W=500,G=500":            "4001 nodes, want at most 1024",
		"lookahead:W=4611686018427387904":  "W is 4611686018427387904, want 1..1024",
		"lookahead:W=wide":                 "want a whole number",
		"lookahead:W=3,N=3,G=2,window=now": "unknown parameter",
	} {
		if _, _, err := draft.Open(spec, draft.Env{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want one that says %q", spec, err, want)
		}
	}
}

// argmaxes is scores of a target whose next token is a function of the path.
type argmaxes struct {
	infer.Scores
	tree *tree.Tree
	next func(path []int32) int32
}

func (a argmaxes) TopK(n, _ int) []infer.Candidate {
	var path []int32
	for _, m := range a.tree.AppendPath(nil, n) {
		path = append(path, a.tree.Token(m))
	}
	return []infer.Candidate{{Token: a.next(path)}}
}

func (a argmaxes) Rank(dst []int32, n, k int) []int32 { return infer.Tokens(dst, a.TopK(n, k)) }

// inTurn draws 0, 1, 2 and so on.
type inTurn struct {
	infer.Chance
	next int32
}

func (c *inTurn) Draw(_ int, d infer.Dist) int32 {
	c.next++
	return (c.next - 1) % int32(len(d))
}

// Worked out by hand: W=2, N=3, the prompt 1 2 3, a target that adds up the path.
func TestLookaheadOfASmallWindow(t *testing.T) {
	for spec, live := range map[string]int{"lookahead:W=2,N=3,G=2,bonus=on,slide=on": 3, "lookahead:W=2,N=3,G=2,slide=on": 2} {
		d := open(t, spec, draft.Env{}).New()
		if err := d.Start([]int32{1, 2, 3}); err != nil {
			t.Fatal(err)
		}
		chance := new(inTurn)
		grow := func(root int32, pos, live int, want ...[]int32) infer.Proposal {
			t.Helper()
			p := infer.Proposal{Tree: tree.New(root, 20), Pos: pos, MaxNodes: 20, MaxDepth: 9}
			if _, err := d.Grow(&p, nil, chance); err != nil {
				t.Fatal(err)
			}
			if got := paths(p.Tree); !slices.EqualFunc(got, want, slices.Equal) || p.Live != live {
				t.Fatalf("%s: the tree at %d is %v with %d live nodes, want %v and %d", spec, pos, got, p.Live, want, live)
			}
			return p
		}
		sum := func(path []int32) (s int32) {
			for _, x := range path {
				s += x
			}
			return s
		}
		observe := func(p infer.Proposal, v infer.Verdict) {
			if err := d.Observe(p, v, argmaxes{tree: p.Tree, next: sum}); err != nil {
				t.Fatal(err)
			}
		}
		// Level 0 alone, one column more than the window has: 1 2 are drawn.
		p := grow(3, 2, 1, []int32{1, 2})
		// The target's tokens 3+1 and 3+1+2 are level 1; columns move by one.
		observe(p, infer.Verdict{Path: []int{0}, Next: 5})
		p = grow(5, 3, 1, []int32{4}, []int32{2, 6})
		// The next level is 5+4 and 5+2+6; the n-grams are 5 4 9 and 2 6 13.
		observe(p, infer.Verdict{Path: []int{0}, Next: 2})
		if live == 2 { // the n-gram's last token is left to the target
			p = grow(2, 4, live, []int32{6}, []int32{9}, []int32{6, 13})
			observe(p, infer.Verdict{Path: []int{0, 1}, Next: 13})
			// Columns move by one: 13 of level 1 stands in none of level 0's, and the prompt fills up.
			grow(13, 6, 1, []int32{21}, []int32{1, 2})
			continue
		}
		p = grow(2, 4, live, []int32{6, 13}, []int32{9}, []int32{6, 13})
		// The n-grams are 2 9 11 and 6 13 21. Both drafted tokens are kept: columns move by two.
		observe(p, infer.Verdict{Path: []int{0, 1, 2}, Next: 21})
		grow(21, 7, 1, []int32{1}, []int32{2, 3})
	}
}

// If the target repeats itself, n-grams found in one pass are accepted in a later one.
func TestLookaheadAcceptsItsNGrams(t *testing.T) {
	target := &drafttest.Target{Table: drafttest.Table{Seed: 4, Vocab: 30, Order: 1, Sharp: 100}, MaxLen: 400}
	e := &infer.Engine{Target: target, Config: infer.Default()}
	v, err := verify.New("", 0)
	if err != nil {
		t.Fatal(err)
	}
	s, err := e.Generate(context.Background(), infer.Request{
		Prompt: []int32{1, 2, 3, 4, 5}, MaxTokens: 200, Verifier: v, Processor: drafttest.Plain{},
		Drafter: open(t, "lookahead", draft.Env{}).New(),
	})
	if err != nil {
		t.Fatal(err)
	}
	if tau := s.Stats().Tau(); tau < 3 {
		t.Errorf("τ = %.2f on a target of one-token memory, want at least 3 of the 4 that n-grams allow", tau)
	}
}

func TestLookaheadDoesNotAllocate(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	d := open(t, "lookahead", draft.Env{}).New()
	if err := d.Start([]int32{1, 2, 3, 4, 5}); err != nil {
		t.Fatal(err)
	}
	tr, scores, path := tree.New(1, 200), &oneToken{cands: make([]infer.Candidate, 1)}, []int{0}
	var p infer.Proposal
	chance := new(inTurn)
	round := func() {
		tr.Reset(rng.Int32N(20), 200)
		p = infer.Proposal{Tree: tr, Pos: 10, MaxNodes: 200, MaxDepth: 30}
		if _, err := d.Grow(&p, nil, chance); err != nil {
			t.Fatal(err)
		}
		scores.cands[0].Token = rng.Int32N(20)
		if err := d.Observe(p, infer.Verdict{Path: path}, scores); err != nil {
			t.Fatal(err)
		}
	}
	for range 200 { // until the pool knows all first tokens
		round()
	}
	if n := testing.AllocsPerRun(50, round); n != 0 {
		t.Errorf("%v allocations a round, want 0", n)
	}
}

// oneToken gives every node the same next token.
type oneToken struct {
	infer.Scores
	cands []infer.Candidate
}

func (f *oneToken) TopK(int, int) []infer.Candidate { return f.cands }

func (f *oneToken) Rank(dst []int32, n, k int) []int32 { return infer.Tokens(dst, f.TopK(n, k)) }
