package draft_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"talf/infer"
	"talf/infer/draft"
	"talf/infer/draft/drafttest"
	"talf/infer/verify"
	"talf/internal/limits/costtest"
	"talf/model"
	"talf/tree"
)

func TestTrainingFreeMethodsConform(t *testing.T) {
	conform(t,
		"pld:K=1", "pld:lo=1,hi=2", "pld:lo=2,hi=9,K=200",
		"recycle:K=1", "recycle:N=9", "recycle:table=keep", "recycle:zeros=off,harvest=all", "recycle:rows", "recycle:rows,N=7,K=3,accept=0.2/0.4/0.1", "recycle:rows,N=300,depth=3,harvest=rounds,table=keep", "recycle:tree=sequoia,accept=0",
		"isotropic:k=5", "isotropic:k=1,lo=1", "isotropic:bigram=off,harvest=verified", "isotropic:spine=0,table=keep",
		"goose:N=1", "goose:N=2", "goose:N=200,D=20,K=3,lo=1", "goose:D=1,rho=0", "goose:rho=1,r=1,lo=1",
		"goose:r=0", "goose:ema=1,bypass=0", "goose:spine=0", "goose:from=table,lo=1", "goose:consensus=off,bypass=1000,lo=1,hi=3",
		"goose:branches=off,lo=1", "goose:alloc=linear,lo=1,bypass=1000,consensus=off", "goose:extend=breadth", "goose:score=0", "goose:score=1",
		"goose:bigram=off", "goose:harvest=verified", "goose:harvest=rounds", "goose:table=keep",
	)
}

func TestTrainingFreeSpecificationsAreChecked(t *testing.T) {
	for spec, want := range map[string]string{
		"pld:K=0":                      "K is 0, want 1..1023",
		"pld:lo=4,hi=3":                "lo=4 to hi=3 tokens, want lo <= hi",
		"recycle:K=0":                  "K is 0, want 1..256",
		"recycle:N=2000":               "N is 2000, want 1..1024",
		"recycle:rows,accept=0.9/0.2":  "acceptance of rank 2 is 0.2",
		"recycle:accept=0.5":           "accept and depth are for tree=sequoia",
		"suffix:max_cached_requests=9": "max_cached_requests is for table=keep",
		"recycle:N=9,depth=3":          "accept and depth are for tree=sequoia",
		"recycle:accept=high":          `accept is "high", want numbers such as 0.5/0.2`,
		"isotropic:k=0":                "k is 0, want 1..256",
		"isotropic:bigram=yes":         `bigram is "yes", want on or off`,
		"goose:rho=2":                  "rho is 2, want 0..1",
		"goose:r=some":                 `r is "some", want auto or a number`,
		"salf:th=low":                  `th is "low", want auto or a number`,
		"goose:r=-1":                   "r is -1, want 0..1",
		"goose:score=NaN":              "score is NaN, want 0..1",
		"goose:harvest=none":           `harvest is "none", want all, verified or rounds`,
		"goose:table=old":              `table is "old", want fresh or keep`,
		"goose:D=0":                    "D is 0, want 1..64",
		"goose:K=1000":                 "K is 1000, want 1..256",
	} {
		if _, _, err := draft.New(spec); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: error %v, want one that says %q", spec, err, want)
		}
	}
}

// A script defines which tokens a target considers likely after two tokens or, if there is no
// entry for both, after the last one; the likeliest is the one it emits.
type script map[pair][]infer.Candidate

// A pair is two tokens; any stands for any first token.
type pair struct{ before, token int32 }

const any = int32(-1)

// likely returns a row of equally likely tokens.
func likely(p float64, tokens ...int32) (row []infer.Candidate) {
	for _, t := range tokens {
		row = append(row, infer.Candidate{Token: t, LogProb: float32(math.Log(p))})
	}
	return row
}

// scripted is the rows of one tree, given the token before its root.
type scripted struct {
	script script
	tree   *tree.Tree
	before int32
}

func (s scripted) TopK(n, k int) []infer.Candidate {
	at := pair{s.before, s.tree.Token(n)}
	if n > 0 {
		at.before = s.tree.Token(s.tree.Parent(n))
	}
	row, ok := s.script[at]
	if !ok {
		row = s.script[pair{any, at.token}]
	}
	return row[:min(k, len(row))]
}

func (s scripted) Rank(dst []int32, n, k int) []int32 { return infer.Tokens(dst, s.TopK(n, k)) }
func (s scripted) Argmax(n int) int32                 { return s.TopK(n, 1)[0].Token }
func (scripted) Dist(int) infer.Dist                  { panic("no distributions here") }
func (scripted) Hidden(int) (f model.Feature)         { return f }

// A round drives one drafter the way the engine does.
type round struct {
	t      testing.TB
	d      infer.Drafter
	script script
	tokens []int32
	root   tree.Tree
	chain  tree.Tree
	greedy verify.Greedy
}

// start gives a drafter a prompt in one chunk.
func start(t testing.TB, d infer.Drafter, s script, prompt ...int32) *round {
	t.Helper()
	if err := d.Start(prompt); err != nil {
		t.Fatal(err)
	}
	r := &round{t: t, d: d, script: s, tokens: slices.Clone(prompt)}
	last := len(prompt) - 1
	if d.Traits().Harvest != infer.Unread && last > 0 {
		r.chain.Reset(prompt[0], last)
		path := []int{0}
		for _, x := range prompt[1:last] {
			path = append(path, r.chain.Add(len(path)-1, x))
		}
		p := infer.Proposal{Tree: &r.chain, MaxNodes: last, MaxDepth: last - 1}
		if err := d.Observe(p, infer.Verdict{Path: path, Next: prompt[last]}, scripted{s, &r.chain, any}); err != nil {
			t.Fatal(err)
		}
	}
	return r
}

// grow drafts one tree.
func (r *round) grow(most int) infer.Proposal {
	r.t.Helper()
	r.root.Reset(r.tokens[len(r.tokens)-1], most)
	p := infer.Proposal{Tree: &r.root, Pos: len(r.tokens) - 1, MaxNodes: most, MaxDepth: 200}
	if ask, err := r.d.Grow(&p, nil, nil); err != nil || len(ask) > 0 {
		r.t.Fatalf("asked for %d nodes, %v", len(ask), err)
	}
	return p
}

// scores returns the target's scores of a proposal.
func (r *round) scores(p infer.Proposal) scripted {
	s := scripted{r.script, p.Tree, any}
	if p.Pos > 0 {
		s.before = r.tokens[p.Pos-1]
	}
	return s
}

// keep reports a path and the token after it.
func (r *round) keep(p infer.Proposal, v infer.Verdict) {
	r.t.Helper()
	if err := r.d.Observe(p, v, r.scores(p)); err != nil {
		r.t.Fatal(err)
	}
	for _, n := range v.Path[1:] {
		r.tokens = append(r.tokens, p.Tree.Token(n))
	}
	r.tokens = append(r.tokens, v.Next)
}

// step drafts, verifies and keeps; it returns the proposal and the path.
func (r *round) step(most int) (infer.Proposal, infer.Verdict) {
	r.t.Helper()
	p := r.grow(most)
	v, err := r.greedy.Verify(p, r.scores(p), nil)
	if err != nil {
		r.t.Fatal(err)
	}
	r.keep(p, v)
	return p, v
}

// origins counts the nodes of the last tree by origin.
func (r *round) origins(p infer.Proposal) map[string]int {
	l := r.d.Traits()
	got := map[string]int{}
	for n := 1; n < p.Tree.Len(); n++ {
		got[l.Origins.Names[l.Origins.Of(n)]]++
	}
	return got
}

// branches returns the number of children of origin "branch" of the root and of each node of the
// spine, down to the last that has any.
func (r *round) branches(p infer.Proposal) (spine int, widths []int) {
	l := r.d.Traits()
	last := 0
	for n := 0; n >= 0; {
		next, width := -1, 0
		for c := p.Tree.FirstChild(n); c >= 0; c = p.Tree.NextSibling(c) {
			if l.Origins.Names[l.Origins.Of(c)] == "spine" {
				next = c
			} else {
				width++
			}
		}
		if widths = append(widths, width); width > 0 {
			last = len(widths)
		}
		if n = next; n >= 0 {
			spine++
		}
	}
	return spine, widths[:last]
}

func newDrafter(t testing.TB, spec string) infer.Drafter {
	t.Helper()
	d, _, err := draft.New(spec)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// GOOSE, figure 2: the output continues with self.calc.eval(data, flag, 2) and the context
// contains …eval(data, flag, 1). The spine alone yields six tokens; a branch repairs the
// seventh, and its extension is the eighth. The next token is too unlikely to be drafted.
func TestASpineContinuesInABranch(t *testing.T) {
	const (
		self = int32(iota)
		dot
		calc
		eval
		opening
		data
		comma
		flag
		one
		two
		closing
		end
		other
	)
	s := script{
		{any, self}: likely(0.9, dot), {self, dot}: likely(0.9, calc), {other, dot}: likely(0.9, calc), {any, calc}: likely(0.9, dot),
		{calc, dot}: likely(0.9, eval), {any, eval}: likely(0.9, opening), {any, opening}: likely(0.9, data), {any, data}: likely(0.9, comma),
		{data, comma}: likely(0.9, flag), {any, flag}: likely(0.9, comma), {flag, comma}: likely(0.4, two, one), {any, one}: likely(0.9, closing),
		{any, two}: likely(0.9, closing), {two, closing}: likely(0.005, end), {any, closing}: likely(0.9, end), {any, end}: likely(0.4, self, other), {any, other}: likely(0.9, dot),
	}
	prompt := []int32{two, closing, end, other, dot, calc, dot, eval, opening, data, comma, flag, comma, one, closing, end, self, dot, calc, dot}
	said := []int32{eval, opening, data, comma, flag, comma, two, closing}
	for _, c := range []struct {
		spec string
		want int
	}{{"goose", 8}, {"pld", 6}, {"goose:branches=off", 6}, {"goose:spine=0,D=7", 7}} {
		r := start(t, newDrafter(t, c.spec), s, prompt...)
		p, v := r.step(60)
		if got := r.tokens[len(prompt):]; len(v.Path)-1 != c.want || !slices.Equal(got, append(said, end)[:c.want+1]) {
			t.Errorf("%s: %d tokens accepted, then %d: %v; want %d", c.spec, len(v.Path)-1, v.Next, got, c.want)
		}
		if c.spec == "goose" {
			if spine, widths := r.branches(p); spine != 18 || len(widths) != 7 || widths[6] != 1 {
				t.Errorf("a spine of %d with branches %v, want 18, and one below its sixth node", spine, widths)
			}
		}
	}
}

// flat returns a script in which the width tokens from n on follow everything, each with
// probability p, and a text of count different tokens below n.
func flat(p float64, n, count, width int32) (s script, text []int32) {
	s = script{}
	var row []infer.Candidate
	for i := range width {
		row = append(row, likely(p, n+i)...)
	}
	for i := range n + width {
		s[pair{any, i}] = row
	}
	for i := range count {
		text = append(text, i)
	}
	return s, text
}

// Algorithm 1 with a budget of 60 and half of the branches below the spine. By hand, for a spine
// of m tokens: b_s = min(m, ⌊60r⌋), b_r = ⌊(59−b_s)/2⌋, b_p = 59−b_s−b_r, and the i-th node of
// the spine has ⌊b_p/(i·H)⌋ branches with H = Σ_{j≤b_s} 1/j; the table has 40 successors here,
// so none is cut off.
func TestTheBudgetIsSplitAsByHand(t *testing.T) {
	for _, c := range []struct {
		spec   string
		spine  int
		widths []int
	}{
		// 20; 19; 20 by H = 3.5977: 5.559/i
		{"r=0.5,spine=20", 20, []int{19, 5, 2, 1, 1, 1}},
		// 18; 20; 21 by H = 3.4951: 6.008/i
		{"r=0.3,spine=20", 18, []int{20, 6, 3, 2, 1, 1, 1}},
		{"r=auto,spine=20", 18, []int{20, 6, 3, 2, 1, 1, 1}},
		// 9; 25; 25 by H = 2.8290: 8.837/i
		{"r=0.15,spine=20", 9, []int{25, 8, 4, 2, 2, 1, 1, 1, 1}},
		// 3; 28; 28 by H = 1.8333: 15.27/i
		{"r=0.3,spine=3", 3, []int{28, 15, 7, 5}},
		// 1; 29; 29
		{"r=0.3,spine=1", 1, []int{29, 29}},
		// Without a spine the root has the same share: ⌊59·0.5⌋.
		{"r=0.3,spine=0", 0, []int{29}},
		{"r=0,spine=20", 0, []int{29}},
		// 9; ⌊50·0.8⌋ = 40; 10 by H: 3.535/i
		{"r=0.15,spine=20,rho=0.2", 9, []int{40, 3, 1, 1}},
		// Without branches below the spine the root still gets only its share.
		{"r=0.3,spine=20,branches=off", 18, []int{20}},
		// Proposition 2 with p_s = 0.3 and p_t = 0.033: w_i = w_0 − 35.88i, 41 in all.
		{"r=0.3,spine=20,alloc=linear", 18, []int{38, 3}},
		// With at most ten branches per node: 10, 10, 10, 10, 1.
		{"r=0.3,spine=20,alloc=linear,K=10", 18, []int{10, 10, 10, 10, 1}},
		{"r=0.3,spine=20,K=10", 18, []int{10, 6, 3, 2, 1, 1, 1}},
	} {
		s, text := flat(0.02, 30, 30, 40)
		spec := "goose:D=1,bypass=1000,consensus=off"
		if !strings.Contains(c.spec, "K=") {
			spec += ",K=40"
		}
		r := start(t, newDrafter(t, spec+","+c.spec), s, append(text, text[:5]...)...)
		p := r.grow(60)
		spine, widths := r.branches(p)
		if spine != c.spine || !slices.Equal(widths, c.widths) {
			t.Errorf("%s: a spine of %d with branches %v, want %d with %v", c.spec, spine, widths, c.spine, c.widths)
		}
	}
}

// A branch never repeats the spine's token; the next successor takes its place.
func TestTheSpineHasPriority(t *testing.T) {
	text := []int32{1, 2, 3, 4, 5, 6, 1, 2, 3}
	s := script{}
	for i := range int32(20) {
		s[pair{any, i}] = likely(0.05, (i+1)%20, 10, 11, 12)
	}
	r := start(t, newDrafter(t, "goose:bypass=1000,consensus=off,D=1,spine=3,K=4"), s, text...)
	p := r.grow(60)
	l := r.d.Traits()
	for n, next := 0, []int32{4, 5, 6}; len(next) > 0; next = next[1:] {
		var got []int32
		for c := p.Tree.FirstChild(n); c >= 0; c = p.Tree.NextSibling(c) {
			if got = append(got, p.Tree.Token(c)); (l.Origins.Of(c) == 0) != (len(got) == 1) {
				t.Errorf("node %d: child %d is from %s", n, c, l.Origins.Names[l.Origins.Of(c)])
			}
		}
		if want := []int32{next[0], 10, 11, 12}; !slices.Equal(got, want) {
			t.Errorf("node %d: children %v, want %v", n, got, want)
		}
		n = p.Tree.FirstChild(n)
	}
}

// A confident match is drafted as a chain alone: either two lengths of n-grams agree, or enough
// tokens before it are the same.
func TestASureMatchIsDraftedAlone(t *testing.T) {
	s, text := flat(0.05, 30, 30, 10)
	for _, c := range []struct {
		spec    string
		matches int // tokens that occurred before
		alone   bool
	}{
		{"goose", 3, false},
		{"goose", 4, true}, // of 3 and of 4
		{"goose:consensus=off", 4, false},
		{"goose:consensus=off", 8, false},
		{"goose:consensus=off", 9, true},
		{"goose:consensus=off,bypass=3", 4, true},
		{"goose:consensus=off,bypass=1000", 29, false},
		{"goose:bypass=2", 3, true},
	} {
		prompt := append(slices.Clone(text), 30)
		r := start(t, newDrafter(t, c.spec), s, append(prompt, text[:c.matches]...)...)
		p := r.grow(60)
		got := r.origins(p)
		if (got["branch"] == 0) != c.alone || c.alone && got["spine"] != 20 {
			t.Errorf("%s with %d tokens in common: %v, want a chain alone: %v", c.spec, c.matches, got, c.alone)
		}
	}
}

// The share of the spine follows its running acceptance: p̂_s starts at 0.3 and moves 0.3 of the
// way to the acceptance of the newest round. By hand.
func TestTheSpineGrowsWithItsAcceptance(t *testing.T) {
	s, text := flat(0.05, 40, 40, 10)
	r := start(t, newDrafter(t, "goose:bypass=1000,consensus=off"), s, append(text, text[:3]...)...)
	spine := func() int {
		p := r.grow(60)
		n, _ := r.branches(p)
		return n
	}
	for i, c := range []struct {
		accept int // nodes of the spine
		want   int // its length in the next round
	}{
		{0, 18},  // 0.21
		{0, 9},   // 0.147
		{9, 20},  // 0.4029: half of 60, and a match is 20 long at most
		{20, 20}, // 0.582
		{0, 20},  // 0.4075
		{0, 18},  // 0.285
	} {
		p := r.grow(60)
		path := []int{0}
		for range c.accept {
			path = append(path, p.Tree.FirstChild(path[len(path)-1]))
		}
		// The token that follows keeps the text on course, so that it matches.
		next := r.tokens[len(r.tokens)-1]
		if c.accept > 0 {
			next = p.Tree.Token(path[c.accept])
		}
		r.keep(p, infer.Verdict{Path: path, Next: (next + 1) % 40})
		if got := spine(); got != c.want {
			t.Errorf("round %d: a spine of %d, want %d", i, got, c.want)
		}
	}
}

// letters lists a tree's nodes in order, each as the tokens from the root down.
func letters(t *tree.Tree) (out []string) {
	for n := 1; n < t.Len(); n++ {
		p := ""
		for _, m := range t.AppendPath(nil, n)[1:] {
			p += string(rune('a' + t.Token(m)))
		}
		out = append(out, p)
	}
	return out
}

// How branches are extended, by hand: after a come b (0.6), c (0.3) and d (0.02); after b come c
// (0.5) and a (0.4); after c comes d (0.9); after d, a (0.005).
func TestBranchesAreExtended(t *testing.T) {
	const a, b, c, d = 0, 1, 2, 3
	s := script{
		{any, a}: slices.Concat(likely(0.6, b), likely(0.3, c), likely(0.02, d)),
		{any, b}: slices.Concat(likely(0.5, c), likely(0.4, a)),
		{any, c}: likely(0.9, d), {any, d}: likely(0.005, a),
	}
	for _, x := range []struct{ spec, want string }{
		// The root has room for four children. Below them the likeliest of all: bc 0.3, cd 0.27,
		// bcd 0.27, ba 0.24, bab 0.144; ties go to the child of the elder node.
		{"goose:N=9,D=3", "b c d bc cd bcd ba bab"},
		// One edge less.
		{"goose:N=9,D=2", "b c d bc cd ba"},
		// Room for one, though nothing is left of it by rounding.
		{"goose:N=4,D=3,rho=0.9", "b bc bcd"},
		// Breadth first: of K = 3, b gets ⌊3·0.6/0.92⌋ = 1, c and d at least 1.
		{"goose:N=9,D=3,K=3,extend=breadth", "b c d bc cd bcd"},
		// Six for b, three for c.
		{"goose:N=9,D=3,extend=breadth", "b c d bc ba cd bcd bab"},
		// Less likely ones are left out, even if the budget is not used up.
		{"goose:N=9,D=3,score=0.35", "b bc bcd ba bab"},
		{"goose:N=60,D=2,score=0.001", "b c d bc cd ba da"},
	} {
		r := start(t, newDrafter(t, x.spec), s, b, c, d, a, b, d, a)
		if got := strings.Join(letters(r.grow(60).Tree), " "); got != x.want {
			t.Errorf("%s: %s, want %s", x.spec, got, x.want)
		}
	}
}

// GOOSE's control: the table's tokens instead of the context's, in a tree of the same shape.
func TestTheControlKeepsTheShape(t *testing.T) {
	s, text := flat(0.05, 30, 70, 40) // the branches' tokens too, so that the table knows all rows
	shape := func(spec string) (parents []int, tokens []int32) {
		r := start(t, newDrafter(t, spec), s, append(text, text[:3]...)...)
		p := r.grow(60)
		for n := range p.Tree.Len() {
			parents = append(parents, p.Tree.Parent(n))
		}
		return parents, p.Tree.Tokens()
	}
	const spec = "goose:bypass=1000,consensus=off,K=40"
	parents, tokens := shape(spec)
	control, others := shape(spec + ",from=table")
	if !slices.Equal(parents, control) || slices.Equal(tokens, others) {
		t.Errorf("the control has parents %v and tokens %v; with the context %v and %v", control, others, parents, tokens)
	}
}

// A table learns from rejected branches and from the prompt, unless it is configured not to, and
// drafts from two tokens before it drafts from one.
func TestWhatATableLearnsFrom(t *testing.T) {
	s := script{
		{any, 0}: likely(0.5, 1), {any, 1}: likely(0.4, 2, 3), {any, 2}: likely(0.5, 4), {any, 3}: likely(0.5, 5),
		{any, 4}: likely(0.5, 6), {any, 5}: likely(0.5, 7), {9, 1}: likely(0.5, 8), {any, 8}: likely(0.5, 8), {any, 9}: likely(0.5, 1),
	}
	for _, x := range []struct{ spec, first, second string }{
		{"goose", "b bc bd", "f"},
		{"goose:harvest=verified", "b bc bd", ""},
		{"goose:harvest=rounds", "", ""},
		{"recycle:rows,accept=0.5/0.4,N=7", "b bc bd", "f"},
		{"isotropic:k=2", "b bc bd", "f"},
	} {
		r := start(t, newDrafter(t, x.spec), s, 0, 1, 0)
		p := r.grow(60)
		if got := strings.Join(letters(p.Tree), " "); got != x.first {
			t.Errorf("%s: after the prompt %q, want %q", x.spec, got, x.first)
		}
		// All branches are rejected, and 3 follows: its row was seen in one of them.
		r.keep(p, infer.Verdict{Path: []int{0}, Next: 3})
		if got := strings.Join(letters(r.grow(60).Tree), " "); got != x.second {
			t.Errorf("%s: after a token of a rejected branch %q, want %q", x.spec, got, x.second)
		}
	}
	for _, x := range []struct {
		spec string
		want int32
	}{{"goose:D=1,N=2", 8}, {"goose:D=1,N=2,bigram=off", 2}, {"isotropic:k=1,N=2", 8}, {"recycle:rows,N=2", 2}} {
		r := start(t, newDrafter(t, x.spec), s, 9, 1, 0, 1, 9, 1)
		if p := r.grow(60); p.Tree.Len() != 2 || p.Tree.Token(1) != x.want {
			t.Errorf("%s: drafted %v after 9, 1; want %d", x.spec, p.Tree.Tokens(), x.want)
		}
	}
}

// withTable adds the parameter table to a specification.
func withTable(spec, table string) string {
	if strings.Contains(spec, ":") {
		return spec + ",table=" + table
	}
	return spec + ":table=" + table
}

// Drafters of one maker share a table if it is kept, and no other.
func TestATableIsKeptOnlyIfConfigured(t *testing.T) {
	s := script{{any, 0}: likely(0.5, 1), {any, 1}: likely(0.5, 0), {any, 2}: likely(0.5, 0)}
	for _, method := range []string{"goose", "recycle:rows", "isotropic"} {
		for table, want := range map[string]bool{"fresh": false, "keep": true} {
			mk := open(t, withTable(method, table), draft.Env{})
			first, second := mk.New(), mk.New()
			start(t, first, s, 0, 1, 0, 1)
			for _, d := range []infer.Drafter{first, second} {
				r := start(t, d, s, 0) // nothing of the prompt is harvested
				if got := r.grow(60).Tree.Len() > 1; got != want {
					t.Errorf("%s, table=%s: drafts from another request: %v, want %v", method, table, got, want)
				}
			}
		}
	}
}

// Recycle's tree is Sequoia's, filled by ranks; by hand for chances of 0.5, 0.3
// and 0.1 and five drafted nodes: a, b, aa, ab (and ba, equal), aaa.
func TestRecycleFillsAFixedTree(t *testing.T) {
	s := script{}
	for i := range int32(6) {
		s[pair{any, i}] = likely(0.3, (i+1)%6, (i+2)%6, (i+3)%6)
	}
	r := start(t, newDrafter(t, "recycle:rows,N=5,accept=0.5/0.3/0.1"), s, 0, 1, 2, 3, 4, 5, 0)
	// Ranks 0, 1, 00 and one of 01, 10 (0.15 both); 000 has 0.125.
	if got := letters(r.grow(60).Tree); !slices.Equal(got, []string{"b", "c", "bc", "bd"}) && !slices.Equal(got, []string{"b", "c", "bc", "cd"}) {
		t.Errorf("%v, want b, c, bc and bd or cd", got)
	}
	r = start(t, newDrafter(t, "recycle:rows,K=1,N=5,accept=0.5/0.3/0.1"), s, 0, 1, 2, 3, 4, 5, 0)
	if got := letters(r.grow(60).Tree); !slices.Equal(got, []string{"b", "bc", "bcd", "bcde"}) {
		t.Errorf("with one successor: %v, want a chain", got)
	}
}

// Isotropic has k children at every node, breadth first; on the match's path the first child is
// the context's.
func TestIsotropicIsUniform(t *testing.T) {
	s, text := flat(0.05, 20, 30, 10) // the branches' tokens too, so that the table knows all rows
	for _, k := range []int{1, 3, 5} {
		r := start(t, newDrafter(t, "isotropic:k="+string(rune('0'+k))), s, append(text, text[:3]...)...)
		p := r.grow(60)
		for n := range p.Tree.Len() {
			kids := 0
			for c := p.Tree.FirstChild(n); c >= 0; c = p.Tree.NextSibling(c) {
				kids++
			}
			if want := min(k, max(0, 59-n*k)); kids != want {
				t.Fatalf("k = %d: node %d has %d children, want %d", k, n, kids, want)
			}
		}
		n := 0
		for i, want := range text[3:6] {
			if n = p.Tree.FirstChild(n); p.Tree.Token(n) != want || r.d.Traits().Origins.Of(n) != 0 {
				t.Errorf("k = %d: node %d of the match carries %d, want %d", k, i+1, p.Tree.Token(n), want)
			}
			if p.Tree.Depth(n) == 3 && k > 3 {
				break
			}
			if p.Tree.FirstChild(n) < 0 {
				break
			}
		}
	}
}

// A stream drives a drafter without allocating: a target that emits pseudo-random tokens and
// keeps half of each tree's first path.
type stream struct {
	d      infer.Drafter
	rows   [][]infer.Candidate
	root   tree.Tree
	p      infer.Proposal
	scores infer.Scores
	path   []int
	tokens []int32
	period int // of the text, in tokens
}

func newStream(t testing.TB, spec string, vocab, period int) *stream {
	s := &stream{d: newDrafter(t, spec), period: period}
	rng := rand.New(rand.NewPCG(1, 1))
	for range vocab {
		row := make([]infer.Candidate, 10)
		for i := range row {
			row[i] = infer.Candidate{Token: rng.Int32N(int32(vocab)), LogProb: -0.7 * float32(i+1)}
		}
		s.rows = append(s.rows, row)
	}
	var prompt []int32
	for range period {
		s.tokens = append(s.tokens, rng.Int32N(int32(vocab)))
	}
	for i := range period {
		prompt = append(prompt, s.at(i))
	}
	s.scores = s
	if err := s.d.Start(prompt); err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *stream) TopK(n, k int) []infer.Candidate {
	row := s.rows[s.p.Tree.Token(n)]
	return row[:min(k, len(row))]
}
func (s *stream) Rank(dst []int32, n, k int) []int32 { return infer.Tokens(dst, s.TopK(n, k)) }
func (s *stream) Argmax(n int) int32                 { return s.TopK(n, 1)[0].Token }
func (*stream) Dist(int) infer.Dist                  { panic("no distributions here") }
func (*stream) Hidden(int) (f model.Feature)         { return f }

// at is the text: seven tokens of a loop, then seven from elsewhere in it, so that matches are
// short.
func (s *stream) at(i int) int32 {
	if i/7%2 == 1 {
		i *= 31
	}
	return s.tokens[i%s.period]
}

func (s *stream) grow(t testing.TB, pos int) {
	s.root.Reset(s.at(pos), 100)
	s.p = infer.Proposal{Tree: &s.root, Pos: pos, MaxNodes: 100, MaxDepth: 200}
	if _, err := s.d.Grow(&s.p, nil, nil); err != nil {
		t.Fatal(err)
	}
}

// keep accepts the text's tokens, at most three.
func (s *stream) keep(t testing.TB, pos int) int {
	s.path = append(s.path[:0], 0)
	for n := s.root.Child(0, s.at(pos+1)); n >= 0 && len(s.path) < 4; n = s.root.Child(n, s.at(pos+len(s.path))) {
		s.path = append(s.path, n)
	}
	if err := s.d.Observe(s.p, infer.Verdict{Path: s.path, Next: s.at(pos + len(s.path))}, s.scores); err != nil {
		t.Fatal(err)
	}
	return pos + len(s.path)
}

func TestTrainingFreeStepsDoNotAllocate(t *testing.T) {
	if costtest.RaceDetector {
		t.Skip("one goroutine draws the steps, and what they allocate is counted without the race detector")
	}
	for _, spec := range []string{
		"pld", "recycle", "isotropic", "goose", "goose:consensus=off,bypass=1000", "goose:extend=breadth,consensus=off,bypass=1000",
		"goose:alloc=linear,consensus=off,bypass=1000", "goose:spine=0", "goose:from=table", "goose:table=keep",
	} {
		s := newStream(t, spec, 300, 500)
		pos := s.period - 1
		step := func() {
			s.grow(t, pos)
			pos = s.keep(t, pos)
		}
		for range 3000 {
			step()
		}
		// The table knows all rows by now; the index grows by doubling.
		if n := testing.AllocsPerRun(300, step); n != 0 {
			t.Errorf("%s: %v allocations a step", spec, n)
		}
	}
}

// BenchmarkTrainingFree measures a step without the target: building the tree for a context of
// two thousand tokens, and learning from its rows.
func BenchmarkTrainingFree(b *testing.B) {
	for _, spec := range []string{"pld", "recycle", "isotropic", "goose", "goose:consensus=off,bypass=1000", "goose:spine=0", "goose:extend=breadth,spine=0"} {
		s := newStream(b, spec, 400, 2000)
		pos := s.period - 1
		for range 1000 {
			s.grow(b, pos)
			pos = s.keep(b, pos)
		}
		b.Run(spec+"/grow", func(b *testing.B) {
			for b.Loop() {
				s.grow(b, pos)
			}
			b.ReportMetric(float64(s.root.Len()), "nodes")
		})
		b.Run(spec+"/observe", func(b *testing.B) {
			for b.Loop() {
				s.grow(b, pos)
				pos = s.keep(b, pos)
			}
		})
	}
}

// Whatever the parameters, a tree stays within its budgets of nodes, of the spine, of a branch's
// edges and of children, and the spine is a chain of first children.
func TestSpineTreesAreWithinTheirBudgets(t *testing.T) {
	for seed := range uint64(150) {
		r := rand.New(rand.NewPCG(seed, 8))
		n, depth, width, spine := 1+r.IntN(90), 1+r.IntN(8), 1+r.IntN(12), r.IntN(30)
		spec := fmt.Sprintf("goose:N=%d,D=%d,K=%d,spine=%d,rho=%.2f,ema=%.2f,score=%.3f,bypass=%d,lo=%d", n, depth, width, spine,
			r.Float64(), r.Float64(), r.Float64()*r.Float64()/2, 2+r.IntN(20), 1+r.IntN(3))
		for key, words := range map[string][]string{
			"r": {"auto", "0", "0.4", "1"}, "consensus": {"on", "off"}, "branches": {"on", "off"}, "alloc": {"harmonic", "linear"},
			"extend": {"best", "breadth"}, "bigram": {"on", "off"}, "from": {"context", "table"}, "harvest": {"all", "verified", "rounds"},
		} {
			spec += "," + key + "=" + words[r.IntN(len(words))]
		}
		s := newStream(t, spec, 100, 150)
		l := s.d.Traits()
		for pos := s.period - 1; pos < s.period+120; pos = s.keep(t, pos) {
			s.grow(t, pos)
			onSpine := 0
			for m := 1; m < s.root.Len(); m++ {
				up := s.root.Parent(m)
				if l.Origins.Of(m) == 0 {
					onSpine++
					if up > 0 && l.Origins.Of(up) != 0 || s.root.FirstChild(up) != m {
						t.Fatalf("%s: node %d of the spine is below node %d, and not its first child", spec, m, up)
					}
				}
			}
			for m := range s.root.Len() {
				edges := 0
				for up := m; up > 0 && l.Origins.Of(up) == 1; up = s.root.Parent(up) {
					edges++
				}
				kids := 0
				for c := s.root.FirstChild(m); c >= 0; c = s.root.NextSibling(c) {
					kids += l.Origins.Of(c)
				}
				if edges > depth || kids > width {
					t.Fatalf("%s: node %d is %d edges into a branch and has %d transitions", spec, m, edges, kids)
				}
			}
			if s.root.Len() > n || onSpine > spine {
				t.Fatalf("%s: %d nodes, %d of the spine", spec, s.root.Len(), onSpine)
			}
		}
	}
}

// Drafters that share a table may be driven from several goroutines.
func TestDriversMayShareATable(t *testing.T) {
	mk := open(t, "goose:table=keep", draft.Env{})
	var streams []*stream
	for range 3 {
		s := newStream(t, "goose", 50, 100)
		s.d = mk.New()
		streams = append(streams, s)
	}
	var all sync.WaitGroup
	for _, s := range streams {
		all.Go(func() {
			if err := s.d.Start(s.tokens); err != nil {
				t.Error(err)
			}
			for pos := s.period - 1; pos < 400; pos = s.keep(t, pos) {
				s.grow(t, pos)
			}
		})
	}
	all.Wait()
}

// A replay lacks rows that the recording never met; the table keeps what it knows about such a
// place.
func TestARowThatIsMissingTeachesNothing(t *testing.T) {
	for _, spec := range []string{"recycle:rows,K=2,N=3", "goose:N=3,consensus=off", "isotropic:N=3"} {
		d, _, err := draft.New(spec)
		if err != nil {
			t.Fatal(err)
		}
		known := script{{any, 1}: likely(0.4, 2, 3)}
		r := start(t, d, known, 1, 1)
		want := r.grow(3).Tree.Len()
		if want == 1 {
			t.Fatalf("%s drafts nothing where two successors are known", spec)
		}
		r.script = script{}
		p := r.grow(1)
		r.keep(p, infer.Verdict{Path: []int{0}, Next: 1})
		if n := r.grow(3).Tree.Len(); n != want {
			t.Errorf("%s: %d nodes after a row that is missing, want %d", spec, n, want)
		}
	}
}

// A table that outlives requests has learned the rows of a kept prefix; an empty one needs them
// again.
func TestATableThatIsKeptTakesAPrefixThatIsKept(t *testing.T) {
	for spec, want := range map[string]int{"goose:table=keep": 3, "recycle:rows,table=keep": 3, "recycle": 3, "recycle:rows": 0, "goose": 0, "pld": 3, "auto": 3} {
		mk, _, err := draft.Open(spec, draft.Env{})
		if err != nil {
			t.Fatal(err)
		}
		target := &drafttest.Target{Table: drafttest.Table{Seed: 5, Vocab: 9, Order: 2, Sharp: 2}, MaxLen: 60}
		e := &infer.Engine{Target: target, Config: infer.Default()}
		var last *infer.Sequence
		for range 2 {
			if last, err = e.Generate(t.Context(), infer.Request{
				Prompt: []int32{1, 2, 3, 4}, MaxTokens: 10, Drafter: mk.New(), Verifier: new(verify.Greedy), Processor: drafttest.Plain{},
			}); err != nil {
				t.Fatal(err)
			}
		}
		if got := last.Stats().Cached; got != want {
			t.Errorf("%s: %d tokens of the prompt come from a kept prefix, want %d", spec, got, want)
		}
	}
}
