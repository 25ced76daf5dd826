package verify_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"gonum.org/v1/gonum/stat/distuv"

	"talf/infer"
	"talf/infer/draft"
	"talf/infer/draft/drafttest"
	"talf/infer/draft/method"
	"talf/infer/verify"
	"talf/infer/verify/verifytest"
	"talf/internal/golden"
	"talf/model/sample"
	"talf/tree"
)

func maker(t testing.TB, name string) func() infer.Verifier {
	t.Helper()
	m, err := verify.Find(name)
	if err != nil {
		t.Fatal(err)
	}
	return m.New
}

// Pairs that the table refuses would not be lossless: the enumeration finds a wrong
// probability. Rules for chains are left out: they treat a tree as a chain.
func TestRefusedPairsAreNotLossless(t *testing.T) {
	pairs := 0
	for _, m := range verify.Methods() {
		for _, s := range verifytest.Schemes() {
			if m.Fits(s.Draw, s.Chain) || m.Chain || s.Draw == infer.Chosen {
				continue
			}
			pairs++
			err := verifytest.Check(m.New, s, false, 100)
			if err == nil || !strings.Contains(err.Error(), "the target gives") {
				t.Errorf("%s with %s: %v, want a wrong probability", m.Name, s.Name, err)
			}
		}
	}
	if pairs == 0 {
		t.Error("no pair is refused")
	}
}

func TestCheckSaysWhatWouldWork(t *testing.T) {
	for _, c := range []struct {
		name  string
		draw  infer.Choice
		chain bool
		want  string
	}{
		{"traversal", infer.Distinct, false, ""},
		{"traversal", infer.Repeated, true, ""},
		{"rrs", infer.Distinct, true, ""},
		{"block", infer.Repeated, true, ""},
		{"target", infer.Repeated, false, ""},
		{"", infer.Repeated, false, ""},
		{"traversal", infer.Repeated, false, "traversal is not lossless with children drawn with replacement: use target or rrs, or a method with children drawn without replacement"},
		{"rrsw", infer.Chosen, false, "rrsw is not lossless with children chosen without randomness: use target, or"},
		{"rrs", infer.Distinct, false, "use target or rrsw or traversal, or a method with children drawn with replacement"},
		{"block", infer.Distinct, false, "block is for chains"},
		{"block", infer.Chosen, true, "block is not lossless with children chosen without randomness"},
		{"best", infer.Chosen, true, "unknown verifier"},
	} {
		got := ""
		if err := verify.Check(c.name, c.draw, c.chain); err != nil {
			got = err.Error()
		}
		if (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s, %s, chain %v: %q, want %q", c.name, c.draw, c.chain, got, c.want)
		}
	}
}

// before returns the sibling added before n, which must not be the first.
func before(t *tree.Tree, n int) int {
	m := t.FirstChild(t.Parent(n))
	for t.NextSibling(m) != n {
		m = t.NextSibling(m)
	}
	return m
}

// regular is the scheme of random shapes in which no child has more nodes below it than the one
// drawn before it.
func regular() verifytest.Scheme {
	grow := func(p *infer.Proposal, q verifytest.Rows, c infer.Chance, rng *rand.Rand) {
		var kids [3][9]int // by depth and place among the siblings
		for d := range kids {
			k := 1 + rng.IntN(3)
			for i := range kids[d] {
				kids[d][i] = k
				k -= rng.IntN(min(k, 1) + 1)
			}
		}
		verifytest.GrowDrawn(p, q, c, infer.Distinct, func(n, depth int) int {
			place := 0
			for m := n; n > 0 && m != p.Tree.FirstChild(p.Tree.Parent(n)); place++ {
				m = before(p.Tree, m)
			}
			return kids[depth][place]
		})
	}
	return verifytest.Scheme{Name: "regular trees drawn without replacement", Draw: infer.Distinct, Grow: grow}
}

// Averaged over everything that a drafter can draw, traversal keeps at least as much as rrsw if
// every token has mass, and on chains exactly as much as block. For a single tree it may be the
// other way round, and also for a shape in which a later sibling reaches deeper than an earlier
// one, which no published tree does.
func TestTraversalKeepsMoreOnAverage(t *testing.T) {
	cases := 60
	if testing.Short() {
		cases = 20
	}
	more, trees := 0, 0
	for _, s := range append(verifytest.Schemes(), regular()) {
		if s.Name == irregular.Name {
			continue
		}
		if s.Draw != infer.Distinct {
			continue
		}
		for seed := range uint64(cases) {
			c := verifytest.NewCase(seed, true)
			mean := map[string]float64{}
			for _, name := range []string{"rrsw", "traversal", "block"} {
				var err error
				if mean[name], err = c.Emitted(s, maker(t, name)); err != nil {
					t.Fatal(err)
				}
			}
			if mean["traversal"] < mean["rrsw"]-verifytest.Tolerance {
				t.Errorf("case %d, %s: traversal emits %v tokens a round, rrsw %v", seed, s.Name, mean["traversal"], mean["rrsw"])
			}
			if s.Chain && math.Abs(mean["traversal"]-mean["block"]) > verifytest.Tolerance {
				t.Errorf("case %d, %s: traversal emits %v tokens a round, block %v", seed, s.Name, mean["traversal"], mean["block"])
			}
			if trees++; mean["traversal"] > mean["rrsw"]+1e-6 {
				more++
			}
		}
	}
	t.Logf("traversal keeps more than rrsw in %d of %d cases, and never less", more, trees)
	if more == 0 {
		t.Error("traversal never keeps more than rrsw")
	}
}

// irregular is a scheme of arbitrary shapes.
var irregular = verifytest.Drawn("trees drawn without replacement", infer.Distinct, false)

// The order in TestTraversalKeepsMoreOnAverage needs its condition: here the root has one
// child, which has both tokens of the vocabulary as children, and only the second of them has
// children of its own.
func TestTraversalMayKeepLessWhereALaterSiblingReachesDeeper(t *testing.T) {
	c := verifytest.NewCase(103, true)
	s := verifytest.Scheme{Draw: infer.Distinct, Grow: func(p *infer.Proposal, q verifytest.Rows, ch infer.Chance, _ *rand.Rand) {
		kids := []int{1, 2, 0, 2, 0, 0}
		verifytest.GrowDrawn(p, q, ch, infer.Distinct, func(n, _ int) int { return kids[n] })
	}}
	rrsw, err := c.Emitted(s, maker(t, "rrsw"))
	if err != nil {
		t.Fatal(err)
	}
	traversal, err := c.Emitted(s, maker(t, "traversal"))
	if err != nil {
		t.Fatal(err)
	}
	if t.Logf("traversal %v, rrsw %v", traversal, rrsw); traversal >= rrsw {
		t.Error("traversal keeps as much as rrsw")
	}
}

// The reference computed the averages with fractions. Here the samplers of infer/draft draw the
// trees.
func TestAveragesEqualTheReferenceFractions(t *testing.T) {
	var file struct {
		Cases []struct {
			Vocab     int
			Kids      []int `json:"children_per_depth"`
			Verifiers map[string]struct {
				Draws   string
				Emitted string `json:"expected_emitted"`
			}
			Rows []struct {
				Path []int32
				P, Q []string
			}
		}
	}
	if err := json.Unmarshal(golden.Read(t, "reference/verify/averages.json"), &file); err != nil {
		t.Fatal(err)
	}
	seen := map[string]int{}
	for i, c := range file.Cases {
		p, q := map[string]infer.Dist{}, map[string]infer.Dist{}
		for _, r := range c.Rows {
			p[fmt.Sprint(r.Path)], q[fmt.Sprint(r.Path)] = rats(t, r.P), rats(t, r.Q)
		}
		row := func(m map[string]infer.Dist) verifytest.Rows {
			return func(path []int32) infer.Dist { return m[fmt.Sprint(path[1:])] }
		}
		for name, ref := range c.Verifiers {
			d := infer.Distinct
			if ref.Draws == "with replacement" {
				d = infer.Repeated
			}
			v, mean := maker(t, name)(), 0.0
			verifytest.Enumerate(func(ch infer.Chance) func(float64) {
				prop := infer.Proposal{Tree: tree.New(0, 64), MaxNodes: 64, MaxDepth: len(c.Kids)}
				verifytest.GrowDrawn(&prop, row(q), ch, d, func(_, depth int) int { return c.Kids[depth] })
				verdict, err := v.Verify(prop, verifytest.Scores{Tree: prop.Tree, P: row(p)}, ch)
				if err != nil {
					t.Fatal(err)
				}
				return func(prob float64) { mean += prob * float64(len(verdict.Path)) }
			})
			if want := rat(t, ref.Emitted); math.Abs(mean-want) > verifytest.Tolerance {
				t.Errorf("case %d, %s: %.15g tokens a round, want %.15g", i, name, mean, want)
			}
			seen[name]++
		}
	}
	for _, name := range []string{"rrs", "rrsw", "block", "traversal"} {
		t.Logf("%s: %d cases", name, seen[name])
		if seen[name] == 0 {
			t.Errorf("%s is in no case of the reference", name)
		}
	}
}

// A naive verifier follows the text of the algorithms for trees drawn at random, and can be
// broken in one place. It allocates freely.
type naive struct {
	sequence bool // traversal; else recursive rejection from the root
	replace  bool

	noUpdate     bool // rrs: a rejected duplicate leaves the residual as it is
	noScale      bool // the rest of q is not normalised
	noGuard      bool // an all-zero residual is divided by its sum
	keepA        bool // a(u) stays as it is when a child is rejected
	hotBonus     bool // the token after full acceptance without the temperature
	staleBonus   bool // and from the last residual row
	stray        *rand.Rand
	siblingsLast bool // children in reverse
}

func (*naive) Fits(infer.Choice, bool) error { return nil }

func (v *naive) Verify(p infer.Proposal, s infer.Scores, c infer.Chance) (infer.Verdict, error) {
	t := p.Tree
	rows, drafts := map[int]infer.Dist{}, map[int]infer.Dist{}
	left := map[int][]int{}
	for n := range t.Len() {
		rows[n] = slices.Clone(s.Dist(n))
		for k := t.FirstChild(n); k >= 0; k = t.NextSibling(k) {
			left[n] = append(left[n], k)
		}
		if len(left[n]) > 0 {
			drafts[n] = slices.Clone(p.Q(n))
		}
		if v.siblingsLast {
			slices.Reverse(left[n])
		}
	}
	accept := func(a float64) bool {
		if v.stray != nil {
			return v.stray.Float64() < a
		}
		return c.Accept(min(a, 1))
	}
	last := -1
	reject := func(u, k int, a float64) (r float64) {
		res := make(infer.Dist, len(rows[u]))
		for x := range res {
			res[x] = max(a*rows[u][x]-drafts[u][x], 0)
			r += res[x]
		}
		for x := range res {
			res[x] /= r
		}
		if r > 0 || v.noGuard {
			rows[u] = res
		}
		left[u] = slices.DeleteFunc(left[u], func(n int) bool { return n == k })
		last = u
		if v.replace {
			return r
		}
		drafts[u][t.Token(k)] = 0
		var sum float64
		for _, q := range drafts[u] {
			sum += q
		}
		if sum > 0 && !v.noScale {
			for x := range drafts[u] {
				drafts[u][x] /= sum
			}
		}
		return r
	}
	bonus := func(n int) infer.Dist {
		if t.FirstChild(n) >= 0 {
			return rows[n]
		}
		d := rows[n]
		if v.staleBonus && last >= 0 {
			d = rows[last]
		}
		if v.hotBonus {
			d = slices.Clone(d)
			for x := range d {
				d[x] *= d[x]
			}
		}
		return d
	}
	path := []int{0}
	verdict := func() (infer.Verdict, error) {
		return infer.Verdict{Path: path, Next: c.Draw(p.Pos+len(path), bonus(path[len(path)-1]))}, nil
	}
	if !v.sequence {
		for n := 0; ; {
			next := -1
			for tried := map[int32]bool{}; len(left[n]) > 0; {
				k := left[n][0]
				x := t.Token(k)
				if accept(rows[n][x] / drafts[n][x]) {
					next = k
					break
				}
				if tried[x] && v.noUpdate {
					left[n] = left[n][1:]
					continue
				}
				tried[x] = true
				reject(n, k, 1)
			}
			if next < 0 {
				return verdict()
			}
			path, n = append(path, next), next
		}
	}
	a := map[int]float64{0: 1}
	for {
		u := path[len(path)-1]
		for len(left[u]) > 0 {
			k := left[u][0]
			a[k] = min(a[u]*rows[u][t.Token(k)]/drafts[u][t.Token(k)], 1)
			path, u = append(path, k), k
		}
		if u == 0 || accept(a[u]) {
			return verdict()
		}
		path = path[:len(path)-1]
		parent := path[len(path)-1]
		r := reject(parent, u, a[parent])
		if parent != 0 && !v.keepA && (r > 0 || a[parent] < 1) {
			a[parent] = r / (r + 1 - a[parent])
		}
	}
}

// blind hides the path to a node from the target's processors: their context is the committed
// tokens and the node's own.
type blind struct {
	infer.Scores
	tree *tree.Tree
}

func (b blind) Dist(n int) infer.Dist {
	if b.tree.Depth(n) < 2 {
		return b.Scores.Dist(n)
	}
	return b.Scores.Dist(b.tree.Parent(n))
}

// Each trap that the design names is planted once. The unbroken naive verifiers pass.
func TestPlantedTrapsAreCaught(t *testing.T) {
	drawn := func(d infer.Choice) verifytest.Scheme {
		return verifytest.Drawn("drawn trees", d, false)
	}
	after := func(s verifytest.Scheme, change func(p *infer.Proposal)) verifytest.Scheme {
		grow := s.Grow
		s.Grow = func(p *infer.Proposal, q verifytest.Rows, c infer.Chance, rng *rand.Rand) {
			grow(p, q, c, rng)
			change(p)
		}
		return s
	}
	// rebuild copies p's tree with only the children that order returns, in that order.
	rebuild := func(p *infer.Proposal, order func(q infer.Dist, kids []int) []int) {
		old, q := p.Tree, p.Q
		t := tree.New(old.Token(0), old.Len())
		from := []int{0}
		for n := 0; n < len(from); n++ {
			var kids []int
			for k := old.FirstChild(from[n]); k >= 0; k = old.NextSibling(k) {
				kids = append(kids, k)
			}
			if len(kids) > 0 {
				kids = order(q(from[n]), kids)
			}
			for _, k := range kids {
				t.Add(n, old.Token(k))
				from = append(from, k)
			}
		}
		p.Tree, p.Q = t, func(n int) infer.Dist { return q(from[n]) }
	}
	ranked := after(drawn(infer.Distinct), func(p *infer.Proposal) {
		old := p.Tree
		rebuild(p, func(q infer.Dist, kids []int) []int {
			slices.SortStableFunc(kids, func(a, b int) int {
				switch x, y := q[old.Token(a)], q[old.Token(b)]; {
				case x > y:
					return -1
				case x < y:
					return 1
				}
				return 0
			})
			return kids
		})
	})
	pruned := after(drawn(infer.Distinct), func(p *infer.Proposal) {
		old := p.Tree
		rebuild(p, func(q infer.Dist, kids []int) []int {
			return slices.DeleteFunc(kids, func(k int) bool { return q[old.Token(k)] < 0.2 })
		})
	})
	merged := after(drawn(infer.Repeated), func(p *infer.Proposal) {
		old := p.Tree
		rebuild(p, func(_ infer.Dist, kids []int) []int {
			seen := map[int32]bool{}
			return slices.DeleteFunc(kids, func(k int) bool {
				again := seen[old.Token(k)]
				seen[old.Token(k)] = true
				return again
			})
		})
	})
	stray := rand.New(rand.NewPCG(1, 2))
	wrong := "the target gives"
	for _, c := range []struct {
		name   string
		bug    infer.Verifier
		scheme verifytest.Scheme
		want   string // empty: it passes
	}{
		{"nothing, rrs", &naive{replace: true}, drawn(infer.Repeated), ""},
		{"nothing, rrsw", &naive{}, drawn(infer.Distinct), ""},
		{"nothing, traversal", &naive{sequence: true}, drawn(infer.Distinct), ""},
		{"temperature forgotten on the bonus token, rrs", &naive{replace: true, hotBonus: true}, drawn(infer.Repeated), wrong},
		{"temperature forgotten on the bonus token, rrsw", &naive{hotBonus: true}, drawn(infer.Distinct), wrong},
		{"temperature forgotten on the bonus token, traversal", &naive{sequence: true, hotBonus: true}, drawn(infer.Distinct), wrong},
		{"the residual row after full acceptance, rrsw", &naive{staleBonus: true}, drawn(infer.Distinct), wrong},
		{"the residual row after full acceptance, traversal", &naive{sequence: true, staleBonus: true}, drawn(infer.Distinct), wrong},
		{"an all-zero residual", &naive{sequence: true, noGuard: true}, drawn(infer.Distinct), "NaN"},
		{"randomness of its own, rrsw", &naive{stray: stray}, drawn(infer.Distinct), "two runs of the same choices"},
		{"randomness of its own, traversal", &naive{sequence: true, stray: stray}, drawn(infer.Distinct), "two runs of the same choices"},
		{"children put in another order afterwards, rrsw", verify.NewRRSW(), ranked, wrong},
		{"children put in another order afterwards, traversal", new(verify.Traversal), ranked, wrong},
		{"children pruned afterwards, rrsw", verify.NewRRSW(), pruned, wrong},
		{"children pruned afterwards, traversal", new(verify.Traversal), pruned, wrong},
		{"duplicate siblings merged, rrs", verify.NewRRS(), merged, wrong},
		{"a duplicate without a residual of its own, rrs", &naive{replace: true, noUpdate: true}, drawn(infer.Repeated), wrong},
		{"q not normalised, rrsw", &naive{noScale: true}, drawn(infer.Distinct), wrong},
		{"q not normalised, traversal", &naive{sequence: true, noScale: true}, drawn(infer.Distinct), wrong},
		{"siblings looked at backwards, rrsw", &naive{siblingsLast: true}, drawn(infer.Distinct), wrong},
		{"a(u) as it was, traversal", &naive{sequence: true, keepA: true}, drawn(infer.Distinct), wrong},
		{"the context without the node's own path, rrsw", contextless{verify.NewRRSW()}, drawn(infer.Distinct), wrong},
		{"the context without the node's own path, traversal", contextless{new(verify.Traversal)}, drawn(infer.Distinct), wrong},
	} {
		err := verifytest.Check(func() infer.Verifier { return c.bug }, c.scheme, false, 200)
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%s: %v", c.name, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s: caught by %v, want an error that says %q", c.name, err, c.want)
		}
	}
}

// contextless verifies with blind scores.
type contextless struct{ infer.Verifier }

func (v contextless) Verify(p infer.Proposal, s infer.Scores, c infer.Chance) (infer.Verdict, error) {
	return v.Verifier.Verify(p, blind{Scores: s, tree: p.Tree}, c)
}

// A child that its row could not have drawn is an error of the drafter.
func TestATokenThatCouldNotBeDrawnIsAnError(t *testing.T) {
	tr := tree.New(0, 4)
	tr.Add(0, 1)
	p := infer.Proposal{Tree: tr, MaxNodes: 4, MaxDepth: 3, Q: func(int) infer.Dist { return infer.Dist{1, 0} }}
	s := nodeScores{tr, []infer.Dist{{0.5, 0.5}, {0.5, 0.5}}}
	for _, name := range []string{"rrs", "rrsw", "block", "traversal"} {
		verifytest.Enumerate(func(c infer.Chance) func(float64) {
			_, err := maker(t, name)().Verify(p, s, c)
			if err == nil || !strings.Contains(err.Error(), "node 0 has a child with token 1, to which its draft row gives 0") {
				t.Errorf("%s: %v", name, err)
			}
			return nil
		})
	}
}

// rounding is a Chance that rejects whenever it may, even if p = q, as rounding errors can:
// verdicts must still consist of the target's tokens.
type rounding struct{ rng *rand.Rand }

func (rounding) Accept(p float64) bool { return p > 1 }

func (r rounding) Draw(_ int, d infer.Dist) int32 {
	var sum float64
	for _, x := range d {
		sum += x
	}
	u := r.rng.Float64() * sum
	for i, x := range d {
		if u -= x; u < 0 && x > 0 {
			return int32(i)
		}
	}
	return -1
}

func TestRejectionsByRoundingAloneLeaveTheTarget(t *testing.T) {
	for _, name := range []string{"rrs", "rrsw", "block", "traversal"} {
		m, err := verify.Find(name)
		if err != nil {
			t.Fatal(err)
		}
		v := m.New()
		for seed := range uint64(300) {
			c := verifytest.NewCase(seed, false)
			rng := rand.New(rand.NewPCG(seed, 3))
			p := infer.Proposal{Tree: tree.New(0, c.Nodes), MaxNodes: c.Nodes, MaxDepth: c.Depth}
			d := infer.Distinct
			if name == "rrs" {
				d = infer.Repeated
			}
			verifytest.GrowDrawn(&p, c.P.Row, rounding{rng}, d, func(int, int) int {
				if m.Chain {
					return 1
				}
				return 2
			})
			s := verifytest.Scores{Tree: p.Tree, P: c.P.Row}
			got, err := v.Verify(p, s, rounding{rng})
			if err != nil {
				t.Fatal(err)
			}
			if got.Next < 0 || s.Dist(got.Path[len(got.Path)-1])[got.Next] == 0 {
				t.Fatalf("%s, case %d: token %d after path %v, which the target never writes", name, seed, got.Next, got.Path)
			}
		}
	}
}

// wide returns a tree of drawn children over a vocabulary, with its rows.
func wide(t testing.TB, vocab int, replace, chain bool) (infer.Proposal, infer.Scores) {
	rng := rand.New(rand.NewPCG(5, 6))
	row := func() infer.Dist {
		d, sum := make(infer.Dist, vocab), 0.0
		for i := range d {
			d[i] = math.Exp(3 * rng.NormFloat64())
			sum += d[i]
		}
		for i := range d {
			d[i] /= sum
		}
		return d
	}
	tr := tree.New(0, 31)
	var p, q []infer.Dist
	kids := 2
	if chain {
		kids = 1
	}
	d := infer.Distinct
	if replace {
		d = infer.Repeated
	}
	var urn method.Urn[float64]
	for n := 0; n < tr.Len(); n++ {
		p, q = append(p, row()), append(q, row())
		urn.Fill(q[n], sample.Bin)
		for _, x := range urn.Children(nil, rounding{rng}, 0, min(kids, tr.Room()), d) {
			tr.Add(n, x)
		}
	}
	rowOf := func(n int) infer.Dist { return q[n] }
	return infer.Proposal{Tree: tr, MaxNodes: 31, MaxDepth: 31, Q: rowOf, Replace: replace}, nodeScores{tr, p}
}

func TestVerdictsDoNotAllocateOnceWarm(t *testing.T) {
	for _, m := range verify.Methods() {
		p, s := wide(t, 500, m.Name == "rrs", m.Chain)
		v, c := m.New(), rounding{rand.New(rand.NewPCG(7, 8))}
		step := func() {
			if _, err := v.Verify(p, s, c); err != nil {
				t.Fatal(err)
			}
		}
		step()
		if n := testing.AllocsPerRun(20, step); n > 0 {
			t.Errorf("%s: %v allocations a verdict", m.Name, n)
		}
	}
}

// The worst verdict: all of 30 drawn nodes are rejected, over 32000 tokens.
func BenchmarkVerdict(b *testing.B) {
	for _, m := range verify.Methods() {
		if m.Greedy {
			continue
		}
		p, s := wide(b, 32000, m.Name == "rrs", m.Chain)
		v, c := m.New(), rounding{rand.New(rand.NewPCG(7, 8))}
		b.Run(m.Name, func(b *testing.B) {
			for b.Loop() {
				if _, err := v.Verify(p, s, c); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// The joint distribution of the first three tokens over many seeds, through the real engine
// with its drafts and its draws, by a χ² test. Over all pairs together, a correct engine fails
// with probability 1e-5 at most; seeds are fixed.
func TestSampledTokensFollowTheTargetThroughTheEngine(t *testing.T) {
	const vocab, falseAlarm = 5, 1e-5
	seeds := 5000
	if testing.Short() {
		seeds = 1500
	}
	pairs := []struct{ verify, method string }{
		{"target", "static:binary-2,draw=distinct"},
		{"target", "static:binary-2"},
		{"rrs", "static:kary-3-2,draw=repeated"},
		{"rrs", "linear:K=3,draw=repeated"},
		{"rrsw", "static:kary-2-2,draw=distinct"},
		{"rrsw", "linear:K=3,draw=distinct"},
		{"block", "linear:K=3,draw=distinct"},
		{"traversal", "static:binary-2,draw=distinct"},
		{"traversal", "static:eagle-sparse,draw=distinct"},
		{"traversal", "linear:K=3,draw=repeated"},
	}
	quantile := func(cells int) float64 {
		return distuv.ChiSquared{K: float64(cells - 1)}.Quantile(1 - falseAlarm/float64(len(pairs)))
	}
	for _, pair := range pairs {
		stat, cells, st := chiSquared(t, maker(t, pair.verify), pair.method, vocab, seeds)
		limit := quantile(cells)
		t.Logf("%s, %s: χ² = %.1f over %d cells, limit %.1f; τ = %.2f", pair.verify, pair.method, stat, cells, limit, st.Tau())
		if stat > limit {
			t.Errorf("%s, %s: χ² = %.1f, want at most %.1f", pair.verify, pair.method, stat, limit)
		}
		if st.Tau() < 1.1 || st.Tau() > 3.9 {
			t.Errorf("%s, %s: τ = %.2f, want drafts that are accepted and drafts that are rejected", pair.verify, pair.method, st.Tau())
		}
	}
	bug := func() infer.Verifier { return &naive{sequence: true, hotBonus: true} }
	if stat, cells, _ := chiSquared(t, bug, "static:binary-2,draw=distinct", vocab, seeds); stat <= quantile(cells) {
		t.Errorf("a planted bug: χ² = %.1f, want more than %.1f", stat, quantile(cells))
	}
}

// Whatever the truncation, the penalty, the limits, the position of EOS and the passes that
// fail between a draft and its verdict: every token is one that the target may write there, and
// every sequence finishes properly.
func TestEveryTokenIsOneOfTheTargets(t *testing.T) {
	seeds := 300
	if testing.Short() {
		seeds = 100
	}
	failed, tokens := 0, 0
	for seed := range uint64(seeds) {
		rng := rand.New(rand.NewPCG(seed, 3))
		pair := [][2]string{
			{"rrs", "static:kary-3-2,draw=repeated"},
			{"rrsw", "static:medusa,draw=distinct"},
			{"block", "linear:draw=repeated"},
			{"traversal", "static:binary-3,draw=distinct"},
			{"traversal", "sequoia:N=20,draw=distinct"},
		}[rng.IntN(5)]
		vocab := 2 + rng.IntN(8)
		target := &drafttest.Target{
			Table:  drafttest.Table{Seed: seed, Vocab: vocab, Order: rng.IntN(3), Sharp: []float64{0, 1, 5, 100}[rng.IntN(4)]},
			MaxLen: 5 + rng.IntN(30), EOS: []int32{0}[rng.IntN(2):],
		}
		p := sample.Default()
		p.Temperature, p.RepetitionPenalty = []float64{0.01, 0.3, 1, 2}[rng.IntN(4)], []float64{1, 1.5}[rng.IntN(2)]
		p.TopK, p.TopP = rng.IntN(4), []float64{1, rng.Float64()}[rng.IntN(2)]
		mk, _, err := draft.Open(pair[1], draft.Env{Vocab: vocab, Temperature: p.Temperature})
		if err != nil {
			t.Fatal(err)
		}
		src := &drafttest.Source{Target: target, Agree: rng.Float64()}
		e := &infer.Engine{Target: target, Config: infer.Config{PrefillChunk: 1 + rng.IntN(4), MaxNodes: 1 + rng.IntN(30)}}
		prompt := []int32{1, 0, 1}[:1+rng.IntN(3)]
		proc, err := infer.NewSampling(p, 0)
		if err != nil {
			t.Fatal(err)
		}
		s, err := e.Open(infer.Request{
			Prompt: prompt, MaxTokens: 1 + rng.IntN(40), Seed: seed, Drafter: mk.New(), Source: src,
			Verifier: maker(t, pair[0])(), Processor: proc,
		})
		if err != nil {
			t.Fatal(err)
		}
		target.Fail = func() bool { return rng.IntN(4) == 0 }
		src.Fail = target.Fail
		for done := false; !done; _, done = s.Done() {
			if err := e.Step(t.Context(), []*infer.Sequence{s}); errors.Is(err, drafttest.ErrPass) {
				failed++
			} else if err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
		}
		if s.Err() != nil {
			t.Fatalf("seed %d, %v: %v", seed, pair, s.Err())
		}
		ctx, logits, d := slices.Clone(prompt), make([]float32, vocab), make(infer.Dist, vocab)
		for _, x := range s.Tokens() {
			target.Table.Logits(logits, ctx)
			if proc.Dist(d, logits, ctx); !(d[x] > 0) {
				t.Fatalf("seed %d, %v: token %d after %v, which the target never writes", seed, pair, x, ctx)
			}
			ctx = append(ctx, x)
			tokens++
		}
	}
	if t.Logf("%d tokens, %d passes failed", tokens, failed); failed == 0 || tokens < seeds {
		t.Error("too little was tried")
	}
}

// chiSquared decodes three tokens for each seed and compares their counts with the target's
// joint distribution. Outcomes expected fewer than five times share a cell.
func chiSquared(t *testing.T, newVerifier func() infer.Verifier, method string, vocab, seeds int) (stat float64, cells int, st infer.Stats) {
	t.Helper()
	const temperature = 0.8
	target := &drafttest.Target{Table: drafttest.Table{Seed: 9, Vocab: vocab, Order: 2, Sharp: 1.5}, MaxLen: 40}
	mk, _, err := draft.Open(method, draft.Env{Vocab: vocab, Temperature: temperature})
	if err != nil {
		t.Fatal(err)
	}
	proc := drafttest.Plain{Temperature: temperature}
	e := &infer.Engine{Target: target, Config: infer.Default()}
	src := &drafttest.Source{Target: target, Agree: 0.3}
	prompt := []int32{1, 2}
	count := make([]float64, vocab*vocab*vocab)
	d, v := mk.New(), newVerifier()
	for seed := range seeds {
		// One token more than is counted, so that trees reach the method's full depth.
		s, err := e.Generate(t.Context(), infer.Request{
			Prompt: prompt, MaxTokens: 4, Seed: uint64(seed), Drafter: d, Source: src, Verifier: v, Processor: proc,
		})
		if err != nil {
			t.Fatal(err)
		}
		x := s.Tokens()
		count[(int(x[0])*vocab+int(x[1]))*vocab+int(x[2])]++
		st.Add(s.Stats())
	}
	row := func(ctx ...int32) infer.Dist {
		logits, d := make([]float32, vocab), make(infer.Dist, vocab)
		target.Table.Logits(logits, ctx)
		proc.Dist(d, logits, nil)
		return d
	}
	var rareWant, rareGot float64
	for a, pa := range row(prompt...) {
		for b, pb := range row(1, 2, int32(a)) {
			for c, pc := range row(1, 2, int32(a), int32(b)) {
				want := float64(seeds) * pa * pb * pc
				got := count[(a*vocab+b)*vocab+c]
				if want < 5 {
					rareWant, rareGot = rareWant+want, rareGot+got
					continue
				}
				stat += (got - want) * (got - want) / want
				cells++
			}
		}
	}
	if rareWant > 0 {
		stat += (rareGot - rareWant) * (rareGot - rareWant) / rareWant
		cells++
	}
	return stat, cells, st
}

// The engine refuses trees for which the verifier is not lossless before they cost a pass.
func TestTheEngineRefusesUnfitTrees(t *testing.T) {
	target := &drafttest.Target{Table: drafttest.Table{Seed: 9, Vocab: 8, Order: 2, Sharp: 1}, MaxLen: 40}
	for _, c := range []struct{ verify, method, want string }{
		{"traversal", "static:binary-2,draw=repeated", "traversal is not lossless with children drawn with replacement"},
		{"rrs", "static:binary-2,draw=distinct", "rrs is not lossless"},
		{"block", "static:binary-2,draw=distinct", "block is for chains"},
		{"rrsw", "salf:paper", "rrsw is not lossless with children chosen without randomness"},
	} {
		mk, _, err := draft.Open(c.method, draft.Env{Vocab: 8, Temperature: 1})
		if err != nil {
			t.Fatal(err)
		}
		e := &infer.Engine{Target: target, Config: infer.Default()}
		before := target.Passes
		_, err = e.Generate(t.Context(), infer.Request{
			Prompt: []int32{1}, MaxTokens: 8, Drafter: mk.New(), Source: &drafttest.Source{Target: target, Agree: 1},
			Verifier: maker(t, c.verify)(), Processor: drafttest.Plain{Temperature: 1},
		})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s with %s: %v, want an error that says %q", c.verify, c.method, err, c.want)
		}
		if target.Passes != before {
			t.Errorf("%s with %s: %d passes of the target, want none", c.verify, c.method, target.Passes-before)
		}
	}
}
