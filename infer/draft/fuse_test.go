package draft_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"talf/infer"
	"talf/infer/draft"
	"talf/infer/draft/drafttest"
	"talf/infer/draft/search"
	"talf/tree"
)

func TestFuseConforms(t *testing.T) {
	file := storeFile(t, 2, coins(300), coins(5))
	for _, c := range []struct {
		params string
		source bool
	}{
		{"", true},
		{"N=7,B=2,th=0", true},
		{"N=2,file=" + file, true},
		{"N=100,head=off,file=" + file, true},
		{"context=off,table=off,file=" + file, false},
	} {
		t.Run(c.params, func(t *testing.T) {
			drafttest.Run(t, open(t, "fuse:"+c.params, draft.Env{Source: c.source}).New)
		})
	}
}

func TestFuseRefusesToDraftFromNothing(t *testing.T) {
	for spec, want := range map[string]string{
		"fuse:context=off,table=off":  "no source is on",
		"fuse:head=of":                `head is "of", want on or off`,
		"fuse:table=some":             "want on, keep or off",
		"fuse:N=0":                    "N is 0",
		"fuse:B=0":                    "B is 0",
		"fuse:th=1":                   "want 0 <= th < 1",
		"fuse:th=NaN":                 "want 0 <= th < 1",
		"fuse:file=/nowhere/to/be.id": "no such file",
	} {
		if _, _, err := draft.Open(spec, draft.Env{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want one that says %q", spec, err, want)
		}
	}
}

// rows returns the rows of a draft model over a small vocabulary: the row of a path is drawn
// from a generator seeded by the path.
func rows(t *tree.Tree, ask []int, vocab int, seed uint64) (out []infer.Row) {
	for _, n := range ask {
		h := seed
		for _, m := range t.AppendPath(nil, n) {
			h = h*31 + uint64(t.Token(m)) + 1
		}
		rng := rand.New(rand.NewPCG(h, 3))
		p := make([]float64, vocab)
		sum := 0.0
		for i := range p {
			p[i] = rng.ExpFloat64() * rng.ExpFloat64() * rng.ExpFloat64()
			sum += p[i]
		}
		var row infer.Row
		for i := range p {
			row.Tokens = append(row.Tokens, int32(i))
		}
		slices.SortFunc(row.Tokens, func(a, b int32) int {
			if p[a] > p[b] {
				return -1
			}
			return 1
		})
		for _, i := range row.Tokens {
			row.LogProb = append(row.LogProb, float32(math.Log(p[i]/sum)))
		}
		out = append(out, row)
	}
	return out
}

// Before anything is learned, and with the draft model alone, the tree is SALF's.
func TestFuseOfADraftModelAloneIsSALF(t *testing.T) {
	const vocab = 6
	for seed := range uint64(40) {
		for _, th := range []string{"0", "0.3", "0.6"} {
			d := open(t, "fuse:context=off,table=off,N=25,B=4,th="+th, draft.Env{Source: true}).New()
			if err := d.Start([]int32{1, 2}); err != nil {
				t.Fatal(err)
			}
			p := infer.Proposal{Tree: tree.New(2, 60), Pos: 1, MaxNodes: 60, MaxDepth: 100}
			ask, err := d.Grow(&p, nil, nil)
			for ; err == nil && len(ask) > 0; ask, err = d.Grow(&p, rows(p.Work, ask, vocab, seed), nil) {
			}
			if err != nil {
				t.Fatal(err)
			}
			c := search.SALFConfig{N: 25, B: 4, Th: map[string]float64{"0": 0, "0.3": 0.3, "0.6": 0.6}[th]}
			s, err := search.NewSALF(c)
			if err != nil {
				t.Fatal(err)
			}
			s.Start(2, 100)
			for ask := s.Grow(nil); len(ask) > 0; ask = s.Grow(rows(s.Work(), ask, vocab, seed)) {
			}
			if got, want := paths(p.Tree), paths(s.Tree()); !slices.EqualFunc(got, want, slices.Equal) {
				t.Errorf("seed %d, th=%s: %v, SALF's is %v", seed, th, got, want)
			}
		}
	}
}

// Worked out by hand: "a b c d a b c e a b", where the longest match is a b c, twice.
func TestFuseFollowsTheContext(t *testing.T) {
	d := open(t, "fuse:table=off,N=6", draft.Env{}).New()
	got := grow(t, d, []int32{1, 2, 3, 4, 1, 2, 3, 5, 1, 2}, 6, 20)
	// Both places continue with 3, then the newer one with 5 1 and the older one with 4 1.
	if got.Token(1) != 3 || got.Parent(1) != 0 {
		t.Fatalf("the first node is %d below %d, want 3 below the root", got.Token(1), got.Parent(1))
	}
	for _, want := range []int32{5, 4} {
		if got.Child(1, want) < 0 {
			t.Errorf("%d does not follow 3: %v", want, paths(got))
		}
	}
	// A loop continues beyond the end of the sequence.
	d = open(t, "fuse:table=off,N=9", draft.Env{}).New()
	loop := grow(t, d, []int32{7, 8, 9, 7, 8, 9, 7, 8, 9}, 9, 20)
	if got, want := paths(loop)[0], []int32{7, 8, 9, 7, 8, 9, 7, 8}; !slices.Equal(got, want) {
		t.Errorf("a loop is continued by %v, want %v", got, want)
	}
}

// A token that two sources propose ranks above one that either proposes alone, and one that
// verdicts refute sinks.
func TestFuseLearnsFromVerdicts(t *testing.T) {
	d := open(t, "fuse:table=off,N=2,th=0", draft.Env{Source: true}).New()
	prompt := []int32{1, 2, 3, 1, 2}
	// The context says 3 after 1 2; the draft model always prefers 4, and is right.
	row := infer.Row{Tokens: []int32{4, 3, 5}, LogProb: []float32{-0.9, -1.2, -2}}
	drafted := func() int32 {
		p := infer.Proposal{Tree: tree.New(2, 60), Pos: 4, MaxNodes: 60, MaxDepth: 1}
		ask, err := d.Grow(&p, nil, nil)
		for ; err == nil && len(ask) > 0; ask, err = d.Grow(&p, []infer.Row{row}, nil) {
		}
		if err != nil {
			t.Fatal(err)
		}
		v := infer.Verdict{Path: []int{0}, Next: 4}
		tok := p.Tree.Token(1)
		if tok == 4 {
			v = infer.Verdict{Path: []int{0, 1}, Next: 0}
		}
		if err := d.Observe(p, v, nil); err != nil {
			t.Fatal(err)
		}
		return tok
	}
	var got []int32
	for range 400 {
		if err := d.Start(prompt); err != nil {
			t.Fatal(err)
		}
		got = append(got, drafted())
	}
	if got[0] != 3 || got[399] != 4 {
		t.Errorf("drafted %d at first and %d in the end, want 3, on which both agree, and then 4", got[0], got[399])
	}
}

func TestFuseDoesNotAllocate(t *testing.T) {
	d := open(t, "fuse:file="+storeFile(t, 2, coins(3000)), draft.Env{}).New()
	steady(t, d, coins(40))
}

func TestFuseNamesOrigins(t *testing.T) {
	d := open(t, "fuse:table=off", draft.Env{}).New()
	tr := grow(t, d, []int32{1, 2, 3, 1, 2}, 60, 9)
	l := d.Traits()
	for n := 1; n < tr.Len(); n++ {
		if name := l.Origins.Names[l.Origins.Of(n)]; name != "context" {
			t.Errorf("node %d is from %s, want the context", n, name)
		}
	}
}

// The zipf target gives every node ten likely tokens that depend on its own token.
type zipfScores struct {
	infer.Scores
	tree  *tree.Tree
	cands []infer.Candidate
}

func (z *zipfScores) TopK(n, k int) []infer.Candidate {
	z.cands = z.cands[:0]
	for i := range min(k, 10) {
		z.cands = append(z.cands, infer.Candidate{Token: (z.tree.Token(n)*31 + int32(i*i)) % 1000, LogProb: -1 - float32(i)/3})
	}
	return z.cands
}

// The cost that fuse adds to a round: building the tree and learning from it. With a draft
// model, the time per round that asks it once.
func BenchmarkFuse(b *testing.B) {
	rng := rand.New(rand.NewPCG(1, 1))
	seen := make([]int32, 600)
	for i := range seen {
		if seen[i] = rng.Int32N(1000); i > 60 && rng.IntN(3) > 0 {
			seen[i] = seen[i-50]
		}
	}
	file := storeFile(b, 1000, seen, seen[100:300])
	for _, c := range []struct {
		name, spec string
		source     bool
	}{
		{"free", "fuse", false}, {"store", "fuse:file=" + file, false}, {"head", "fuse:th=0.9", true},
	} {
		b.Run(c.name, func(b *testing.B) {
			d := open(b, c.spec, draft.Env{Source: c.source}).New()
			if err := d.Start(seen[:500]); err != nil {
				b.Fatal(err)
			}
			row := []infer.Row{{}}
			for i := range 10 {
				row[0].Tokens = append(row[0].Tokens, int32(i))
				row[0].LogProb = append(row[0].LogProb, -1-float32(i)/2)
			}
			tr, scores, path := tree.New(0, 60), new(zipfScores), []int{0}
			pos := 499
			var p infer.Proposal
			for b.Loop() {
				tr.Reset(seen[pos], 60)
				p = infer.Proposal{Tree: tr, Pos: pos, MaxNodes: 60, MaxDepth: 40}
				ask, err := d.Grow(&p, nil, nil)
				for ; err == nil && len(ask) > 0; ask, err = d.Grow(&p, row[:len(ask)], nil) {
				}
				if err != nil {
					b.Fatal(err)
				}
				if pos++; pos == 599 {
					pos = 499
					if err := d.Start(seen[:500]); err != nil {
						b.Fatal(err)
					}
					continue
				}
				scores.tree = tr
				if err := d.Observe(p, infer.Verdict{Path: path, Next: seen[pos]}, scores); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
