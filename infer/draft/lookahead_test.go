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
	conform(t, "lookahead", "lookahead:W=3,N=2,G=2", "lookahead:W=1,N=4,G=1", "lookahead:W=7,N=3,G=5")
}

func TestLookaheadRefusesWhatNoTreeHolds(t *testing.T) {
	for spec, want := range map[string]string{
		"lookahead:N=1":                    "N is 1, want 2..1024",
		"lookahead:W=0":                    "W is 0, want 1..1024",
		"lookahead:W=500,G=500":            "4001 nodes, want at most 1024",
		"lookahead:W=4611686018427387904":  "W is 4611686018427387904, want 1..1024",
		"lookahead:W=wide":                 "want a whole number",
		"lookahead:W=3,N=2,G=2,window=now": "unknown parameter",
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

// Worked out by hand: W=2, N=3, the prompt 1 2 3, a target that adds up the path.
func TestLookaheadOfASmallWindow(t *testing.T) {
	d := open(t, "lookahead:W=2,N=3,G=2", draft.Env{}).New()
	if err := d.Start([]int32{1, 2, 3}); err != nil {
		t.Fatal(err)
	}
	grow := func(root int32, pos int) infer.Proposal {
		p := infer.Proposal{Tree: tree.New(root, 20), Pos: pos, MaxNodes: 20, MaxDepth: 9}
		if _, err := d.Grow(&p, nil, nil); err != nil {
			t.Fatal(err)
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
	// Columns take the prompt in turn: 1 2, 3 1. Level 0 is the chain 1 3; each of its nodes has
	// its column's level 1 below it.
	p := grow(3, 2)
	if got, want := paths(p.Tree), [][]int32{{1, 2}, {1, 3, 1}}; !slices.EqualFunc(got, want, slices.Equal) || p.Live != 1 {
		t.Fatalf("the first tree is %v with %d live nodes, want %v and the root alone", got, p.Live, want)
	}
	// The next level: 3+1+2 = 6 and 3+1+3+1 = 8; the n-grams are 1 2 6 and 3 1 8.
	observe(p, infer.Verdict{Path: []int{0}, Next: 3})
	p = grow(3, 3)
	// The n-gram of the root is live; the window's levels are 2 1, 6 8.
	if got, want := paths(p.Tree), [][]int32{{1, 8}, {2, 6}, {2, 1, 8}}; !slices.EqualFunc(got, want, slices.Equal) || p.Live != 3 {
		t.Fatalf("the second tree is %v with %d live nodes, want %v and 3", got, p.Live, want)
	}
	// The n-grams were 2 6 11 and 1 8 14. Both drafted tokens are kept: columns move by two, and
	// the prompt continues after them.
	observe(p, infer.Verdict{Path: []int{0, 1, 2}, Next: 1})
	p = grow(1, 6)
	if got, want := paths(p.Tree), [][]int32{{8, 14}, {2, 6}, {2, 3}, {2, 1, 2}}; !slices.EqualFunc(got, want, slices.Equal) || p.Live != 5 {
		t.Fatalf("the third tree is %v with %d live nodes, want %v and 5", got, p.Live, want)
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
		t.Errorf("τ = %.2f on a target of one-token memory, want at least 3 of the 5 that n-grams allow", tau)
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
	round := func() {
		tr.Reset(rng.Int32N(20), 200)
		p = infer.Proposal{Tree: tr, Pos: 10, MaxNodes: 200, MaxDepth: 30}
		if _, err := d.Grow(&p, nil, nil); err != nil {
			t.Fatal(err)
		}
		scores.cands[0].Token = rng.Int32N(20)
		if err := d.Observe(p, infer.Verdict{Path: path}, scores); err != nil {
			t.Fatal(err)
		}
	}
	round()
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
