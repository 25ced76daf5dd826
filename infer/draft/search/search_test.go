package search_test

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"talf/infer/draft/search"
	"talf/tree"
)

// A table is a model over a small vocabulary: the row of a path is drawn from a
// generator seeded by the path.
type table struct {
	seed  uint64
	vocab int
	kind  int // 0: positive, 1: one-hot, 2: with zeros, 3: uniform (all ties)
}

func (m table) row(path []int32) []float64 {
	h := fnv.New64a()
	binary.Write(h, binary.LittleEndian, path)
	rng := rand.New(rand.NewPCG(m.seed, h.Sum64()))
	p := make([]float64, m.vocab)
	var sum float64
	for i := range p {
		switch m.kind {
		case 0:
			p[i] = math.Exp(2 * rng.NormFloat64())
		case 2:
			if rng.IntN(2) == 0 {
				p[i] = rng.Float64()
			}
		case 3:
			p[i] = 1
		}
		sum += p[i]
	}
	if sum == 0 {
		p[rng.IntN(m.vocab)], sum = 1, 1
	}
	for i := range p {
		p[i] /= sum
	}
	return p
}

func (m table) best(path []int32, k int) tree.Row {
	p := m.row(path)
	ids := make([]int32, len(p))
	for i := range ids {
		ids[i] = int32(i)
	}
	slices.SortStableFunc(ids, func(a, b int32) int {
		if p[a] > p[b] {
			return -1
		} else if p[a] < p[b] {
			return 1
		}
		return 0
	})
	r := tree.Row{Tokens: ids[:min(k, len(ids))]}
	for _, t := range r.Tokens {
		r.LogProb = append(r.LogProb, float32(math.Log(p[t])))
	}
	return r
}

func pathTokens(t *tree.Tree, n int) []int32 {
	var path []int32
	for _, m := range t.AppendPath(nil, n) {
		path = append(path, t.Token(m))
	}
	return path
}

// run runs s until it is done and returns the number of rounds.
func run(s search.Search, m table, maxDepth int) (rounds int) {
	s.Start(0, maxDepth)
	for ask := s.Grow(nil); len(ask) > 0; rounds++ {
		w := s.Work()
		if ask[len(ask)-1] != w.Len()-1 || ask[0] != w.Len()-len(ask) {
			panic("asked nodes are not the tail of the work tree")
		}
		rows := make([]tree.Row, len(ask))
		for i, n := range ask {
			rows[i] = m.best(pathTokens(w, n), s.Width())
		}
		ask = s.Grow(rows)
	}
	return rounds
}

// valid checks what all searches promise about a tree.
func valid(tb rapid.TB, t *tree.Tree, m table, max, maxDepth int, logV []float64, ranks []int) {
	tb.Helper()
	if t.Len() > max {
		tb.Fatalf("%d nodes, root counted, want at most %d", t.Len(), max)
	}
	for n := 1; n < t.Len(); n++ {
		if t.Depth(n) > maxDepth {
			tb.Fatalf("node %d is %d edges deep, limit %d", n, t.Depth(n), maxDepth)
		}
		if t.Child(t.Parent(n), t.Token(n)) != n {
			tb.Fatalf("node %d has a sibling with the same token", n)
		}
		row := m.best(pathTokens(t, t.Parent(n)), m.vocab)
		if r := slices.Index(row.Tokens, t.Token(n)); r+1 != ranks[n] {
			tb.Fatalf("node %d has rank %d, recorded %d", n, r+1, ranks[n])
		}
		want := logV[t.Parent(n)] + min(0, float64(row.LogProb[ranks[n]-1]))
		if logV[n] != want {
			tb.Fatalf("node %d: log V %v, want %v", n, logV[n], want)
		}
	}
}

func drawTable(t *rapid.T) table {
	return table{
		seed:  rapid.Uint64().Draw(t, "seed"),
		vocab: rapid.IntRange(2, 9).Draw(t, "vocab"),
		kind:  rapid.IntRange(0, 3).Draw(t, "kind"),
	}
}

func newSALF(n, b int, th float64, f search.Finish) *search.SALF {
	s, err := search.NewSALF(search.SALFConfig{N: n, B: b, Th: th, Finish: f})
	if err != nil {
		panic(err)
	}
	return s
}

func TestTreesAreClosedAndWithinBudgetAndDepth(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := drawTable(t)
		depth := rapid.IntRange(0, 6).Draw(t, "limit")
		n := rapid.IntRange(1, 40).Draw(t, "N")
		k := rapid.IntRange(1, 8).Draw(t, "k")

		b, err := search.NewBeam(search.BeamConfig{N: n, K: k, Depth: rapid.IntRange(0, 5).Draw(t, "depth")})
		if err != nil {
			t.Fatal(err)
		}
		// The second run reuses the state: nothing of the first may remain.
		for range 2 {
			run(b, m, depth)
			valid(t, b.Tree(), m, n, depth, b.LogV(), b.Ranks())
		}
		for _, f := range []search.Finish{search.TopN, search.Fill, search.Literal} {
			s := newSALF(n, k, rapid.SampledFrom([]float64{0, 0.3, 0.9}).Draw(t, "th"), f)
			for range 2 {
				run(s, m, depth)
				valid(t, s.Tree(), m, n, depth, s.LogV(), s.Ranks())
				if !slices.IsSortedFunc(s.LogV(), func(a, b float64) int {
					if a > b {
						return -1
					} else if a < b {
						return 1
					}
					return 0
				}) {
					t.Fatalf("log V is not best first: %v", s.LogV())
				}
			}
		}
	})
}

// bruteBest is the largest Σ V over all trees of n nodes that contain the root, trying every way
// to extend a tree by a node that comes after its newest one in some fixed order of the
// frontier.
func bruteBest(m table, n int) float64 {
	var best float64
	type node struct {
		path []int32
		v    float64
	}
	var extend func(frontier []node, size int, sum float64)
	extend = func(frontier []node, size int, sum float64) {
		best = max(best, sum)
		if size == n {
			return
		}
		for i, f := range frontier {
			rest := slices.Clone(frontier[i+1:])
			for tok, p := range m.row(f.path) {
				rest = append(rest, node{append(slices.Clone(f.path), int32(tok)), f.v * p})
			}
			extend(rest, size+1, sum+f.v)
		}
	}
	extend([]node{{[]int32{0}, 1}}, 0, 0)
	return best
}

func TestOptimalTreeEqualsBruteForceOverAllSubtrees(t *testing.T) {
	rounds := 200
	if testing.Short() {
		rounds = 40
	}
	for seed := range uint64(rounds) {
		m := table{seed: seed, vocab: 2 + int(seed%3), kind: int(seed % 4)}
		n := 1 + int(seed/4%7)
		for b := 1; b <= 4; b++ {
			s := newSALF(n, b, 0, search.TopN)
			run(s, m, 100)
			var sum float64
			for _, v := range s.LogV() {
				sum += math.Exp(v)
			}
			// Rows are rounded to f32 logarithms: a few 1e-7 relative per level.
			if want := bruteBest(m, n); math.Abs(sum-want) > 1e-5 {
				t.Fatalf("seed %d, N %d, B %d: Σ V = %v, best of all subtrees %v", seed, n, b, sum, want)
			}
		}
	}
}

func TestSumsNeverRiseAndFallStrictlyWhenEveryTokenHasMass(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := drawTable(t)
		b := rapid.IntRange(1, 8).Draw(t, "B")
		s := newSALF(rapid.IntRange(b+1, 50).Draw(t, "N"), b, 0, search.TopN)
		run(s, m, 1000)
		sums := s.Sums()
		for i := 2; i < len(sums); i++ {
			// The rows' f32 logarithms do not sum to 1 exactly.
			if b < m.vocab && sums[i] > sums[i-1]+1e-6 {
				t.Fatalf("S rises from round %d: %v", i, sums)
			}
			if b < m.vocab && m.kind == 0 && sums[i] >= sums[i-1] {
				t.Fatalf("S does not fall at round %d: %v", i, sums)
			}
		}
	})
}

func TestThresholdZeroIsTheOptimalSearchAndStopsAtTheFirstLowSum(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := drawTable(t)
		n, b := rapid.IntRange(1, 40).Draw(t, "N"), rapid.IntRange(1, 10).Draw(t, "B")
		opt := newSALF(n, b, 0, search.TopN)
		rounds := run(opt, m, 50)
		th := rapid.Float64Range(0, 0.99).Draw(t, "th")
		s := newSALF(n, b, th, search.TopN)
		got := run(s, m, 50)
		want := 0
		for want < rounds && opt.Sums()[want] >= th {
			want++
		}
		if got != want {
			t.Fatalf("th %v: %d rounds, sums %v", th, got, opt.Sums())
		}
		// No threshold reaches the smallest positive sum: the same tree.
		tiny := newSALF(n, b, math.SmallestNonzeroFloat64, search.TopN)
		run(tiny, m, 50)
		if !slices.Equal(tiny.Tree().Tokens(), opt.Tree().Tokens()) {
			t.Fatal("th = 0 differs from a threshold that never stops")
		}
	})
}

func TestACertainDraftKeepsItsParents(t *testing.T) {
	m := table{seed: 5, vocab: 6, kind: 1}
	s := newSALF(12, 3, 0, search.TopN)
	run(s, m, 100)
	b, _ := search.NewBeam(search.BeamConfig{N: 12, K: 3, Depth: 20})
	run(b, m, 100)
	for name, tr := range map[string]*tree.Tree{"salf": s.Tree(), "beam": b.Tree()} {
		if tr.Len() != 12 || tr.Depth(11) != 11 {
			t.Errorf("%s: %d nodes, deepest %d: want the chain of 12", name, tr.Len(), tr.Depth(tr.Len()-1))
		}
	}
}

// Among equal scores the shallower node is kept, even if it was created later.
func TestTiesGoToTheShallowerNode(t *testing.T) {
	rows := map[int32]tree.Row{ // by token; the scores of 14 and 21 are both -4
		0:  {Tokens: []int32{1, 2}, LogProb: []float32{-1, -2}},
		1:  {Tokens: []int32{11}, LogProb: []float32{0}},
		11: {Tokens: []int32{14}, LogProb: []float32{-3}},
		2:  {Tokens: []int32{21}, LogProb: []float32{-2}},
	}
	s, err := search.NewSALF(search.SALFConfig{N: 5, B: 1})
	if err != nil {
		t.Fatal(err)
	}
	s.Start(0, 9)
	for ask := s.Grow(nil); len(ask) > 0; {
		ask = s.Grow([]tree.Row{rows[s.Work().Token(ask[0])]})
	}
	if got, want := s.Tree().Tokens(), []int32{0, 1, 11, 2, 21}; !slices.Equal(got, want) {
		t.Errorf("the tree holds %v, want %v", got, want)
	}
}

func TestSearchesDoNotAllocateOnceWarm(t *testing.T) {
	m := table{seed: 1, vocab: 9}
	rows := make([]tree.Row, 64)
	for i := range rows {
		rows[i] = m.best([]int32{int32(i)}, 9)
	}
	beam, _ := search.NewBeam(search.DefaultBeam())
	salf, _ := search.NewSALF(search.DefaultSALF())
	dyna, _ := search.NewDynaTree(search.DefaultDynaTree())
	for _, s := range []search.Search{beam, salf, dyna} {
		grow := func() {
			s.Start(1, 100)
			for ask := s.Grow(nil); len(ask) > 0; ask = s.Grow(rows[:len(ask)]) {
			}
		}
		grow()
		if n := testing.AllocsPerRun(20, grow); n != 0 {
			t.Errorf("%T: %v allocations per tree", s, n)
		}
	}
}

func TestBadParametersAreRefused(t *testing.T) {
	for _, c := range []interface{ Validate() error }{
		search.BeamConfig{N: 0, K: 1},
		search.BeamConfig{N: 60, K: 0},
		search.BeamConfig{N: 60, K: 250, Depth: 60},
		search.SALFConfig{N: 0, B: 1},
		search.SALFConfig{N: 60, B: 10, Th: 1},
		search.SALFConfig{N: 60, B: 10, Th: math.NaN()},
		search.SALFConfig{N: 60, B: 10, Finish: 9},
		search.FixedTree(0, 4, 2, 0.1),
		search.FixedTree(60, -1, 2, 0.1),
		search.FixedTree(60, 4, 0, 0.1),
		search.FixedTree(60, 4, 2, 1),
		search.FixedTree(60, 4, 2, math.NaN()),
		search.DynaTreeConfig{N: 9, D0: 5, DMax: 4, BMin: 1, BMid: 1, BMax: 1, High: 1},
		search.DynaTreeConfig{N: 9, D0: 2, DMax: 4, BMin: 1, BMid: 2, BMax: 1, High: 1},
		search.DynaTreeConfig{N: 9, D0: 2, DMax: 4, BMin: 1, BMid: 1, BMax: 1, High: 0.4, Low: 0.4},
		search.DynaTreeConfig{N: 9, D0: 2, DMax: 4, BMin: 1, BMid: 1, BMax: 1, High: 1, Stop: 0.2, Deep: 0.1},
	} {
		if c.Validate() == nil {
			t.Errorf("%+v is accepted", c)
		}
	}
}

// The TALF paper, §4.1, uses N = 60, a width of 10, seven levels expanded below the root's and a
// threshold of 0.6.
func TestDefaultsAreThePapers(t *testing.T) {
	if c, want := search.DefaultBeam(), (search.BeamConfig{N: 60, K: 10, Depth: 7}); c != want {
		t.Errorf("beam: %+v, want %+v", c, want)
	}
	if c, want := search.DefaultSALF(), (search.SALFConfig{N: 60, B: 10, Th: 0.6, Finish: search.TopN}); c != want {
		t.Errorf("salf: %+v, want %+v", c, want)
	}
}

// A limit lowers N, never raises it, and leaves at least the root; the next limit starts from
// the configuration again.
func TestALimitLowersTheNodes(t *testing.T) {
	m := table{seed: 5, vocab: 9}
	beam, _ := search.NewBeam(search.BeamConfig{N: 20, K: 4, Depth: 3})
	salf, _ := search.NewSALF(search.SALFConfig{N: 20, B: 4})
	dyna, _ := search.NewDynaTree(search.FixedTree(20, 4, 3, 0))
	for _, s := range []interface {
		search.Search
		Limit(n int)
	}{beam, salf, dyna} {
		for _, c := range []struct{ limit, want int }{{7, 7}, {100, 20}, {1, 1}, {-3, 1}, {20, 20}} {
			s.Limit(c.limit)
			if run(s, m, 50); s.Tree().Len() != c.want {
				t.Errorf("%T limited to %d: %d nodes, want %d", s, c.limit, s.Tree().Len(), c.want)
			}
		}
	}
}

func ExampleBeam() {
	b, _ := search.NewBeam(search.BeamConfig{N: 4, K: 2, Depth: 1})
	b.Start(7, 8)
	rows := map[int32]tree.Row{
		7: {Tokens: []int32{1, 2}, LogProb: []float32{-0.5, -1}},
		1: {Tokens: []int32{3, 4}, LogProb: []float32{-0.2, -3}},
		2: {Tokens: []int32{5, 6}, LogProb: []float32{-0.7, -0.8}},
	}
	for ask := b.Grow(nil); len(ask) > 0; {
		var in []tree.Row
		for _, n := range ask {
			in = append(in, rows[b.Work().Token(n)])
		}
		ask = b.Grow(in)
	}
	fmt.Println(b.Tree().Tokens())
	// Output: [7 1 2 3]
}

// A least probability saves the draft the expansions of what is less likely, but of one node a round: a draft that is
// always modest goes on all the same.
func TestTheLeastProbabilitySavesExpansions(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := drawTable(t)
		n, b := rapid.IntRange(1, 40).Draw(t, "N"), rapid.IntRange(1, 10).Draw(t, "B")
		least := rapid.Float64Range(0, 0.9).Draw(t, "least")
		opt, few := newSALF(n, b, 0, search.TopN), newSALF(n, b, 0, search.TopN)
		run(opt, m, 50)
		few.Least(least)
		run(few, m, 50)
		valid(t, few.Tree(), m, n, 50, few.LogV(), few.Ranks())
		if few.Work().Len() > opt.Work().Len() {
			t.Fatalf("%d nodes expanded, %d without", few.Work().Len(), opt.Work().Len())
		}
		few.Least(0)
		if run(few, m, 50); !slices.Equal(few.Tree().Tokens(), opt.Tree().Tokens()) {
			t.Fatalf("%v, want %v", few.Tree().Tokens(), opt.Tree().Tokens())
		}
	})
}
