package search_test

import (
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"talf/infer/draft/search"
	"talf/tree"
)

// listing is DraftTree of DynaTree's Algorithm 1 as the authors' code has it, one node per step, below
// the last emitted token.
func listing(m table, c search.DynaTreeConfig) (tokens, parents []int) {
	type node struct {
		path   []int32
		parent int
		depth  int
		logp   float64
	}
	all := []node{{path: []int32{0}, parent: -1}}
	for i := 0; i < len(all) && len(all) < c.N; i++ {
		u := all[i]
		p := math.Exp(u.logp)
		if p < c.Tau || u.depth >= c.DMax || p < c.Stop || float64(u.depth) >= c.D0 && p <= c.Deep {
			continue
		}
		row := m.best(u.path, m.vocab)
		b := c.BMid
		if top := math.Exp(float64(row.LogProb[0])); i == 0 && c.Root > 0 {
			b = c.Root
		} else if top > c.High {
			b = c.BMin
		} else if top < c.Low {
			b = c.BMax
		}
		for r := range min(b, len(row.Tokens)) {
			v := node{append(slices.Clone(u.path), row.Tokens[r]), i, u.depth + 1, u.logp + min(0, float64(row.LogProb[r]))}
			// A node that is left out takes no room.
			if len(all) < c.N && (!c.Prune || math.Exp(v.logp) >= c.Tau) && row.LogProb[r] > float32(math.Inf(-1)) {
				all = append(all, v)
			}
		}
	}
	for _, u := range all {
		tokens, parents = append(tokens, int(u.path[len(u.path)-1])), append(parents, u.parent)
	}
	return tokens, parents
}

func drawDynaTree(t *rapid.T) search.DynaTreeConfig {
	p := rapid.Float64Range(0, 0.99)
	c := search.DynaTreeConfig{
		N: rapid.IntRange(1, 60).Draw(t, "N"), DMax: rapid.IntRange(1, 6).Draw(t, "DMax"), Root: rapid.IntRange(0, 2).Draw(t, "Root"),
		BMin: rapid.IntRange(1, 3).Draw(t, "BMin"), Tau: 0.3 * p.Draw(t, "tau"), Prune: rapid.Bool().Draw(t, "prune"),
		Low: p.Draw(t, "low"), Stop: 0.3 * p.Draw(t, "stop"),
	}
	c.D0 = 1 + (float64(c.DMax)-1)*p.Draw(t, "D0")
	c.BMid = c.BMin + rapid.IntRange(0, 3).Draw(t, "BMid")
	c.BMax = c.BMid + rapid.IntRange(0, 3).Draw(t, "BMax")
	c.High = c.Low + (1-c.Low)*(0.01+0.99*p.Draw(t, "high"))
	c.Deep = c.Stop + (1-c.Stop)*(0.01+0.9*p.Draw(t, "deep"))
	return c
}

func TestDynaTreeIsTheListing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m, c := drawTable(t), drawDynaTree(t)
		d, err := search.NewDynaTree(c)
		if err != nil {
			t.Fatal(err)
		}
		tokens, parents := listing(m, c)
		for range 2 {
			run(d, m, 100)
			valid(t, d.Tree(), m, c.N, c.DMax, d.LogV(), d.Ranks())
			var gotTokens, gotParents []int
			for n := range d.Tree().Len() {
				gotTokens, gotParents = append(gotTokens, int(d.Tree().Token(n))), append(gotParents, d.Tree().Parent(n))
			}
			if !slices.Equal(gotTokens, tokens) || !slices.Equal(gotParents, parents) {
				t.Fatalf("%+v:\ntokens  %v, want %v\nparents %v, want %v", c, gotTokens, tokens, gotParents, parents)
			}
		}
		limit := rapid.IntRange(0, 5).Draw(t, "limit")
		run(d, m, limit)
		valid(t, d.Tree(), m, c.N, limit, d.LogV(), d.Ranks())
	})
}

// A certain draft makes a chain: one child where the draft is certain, which continues beyond
// the base depth.
func TestACertainDraftGoesDeep(t *testing.T) {
	d, err := search.NewDynaTree(search.DefaultDynaTree())
	if err != nil {
		t.Fatal(err)
	}
	run(d, table{seed: 5, vocab: 6, kind: 1}, 100)
	if n := d.Tree().Len(); n != 9 || d.Tree().Depth(n-1) != 8 {
		t.Errorf("%d nodes, deepest %d: want the chain of 9", n, d.Tree().Depth(n-1))
	}
}

// The paper's baseline: full breadth to the full depth below the likeliest token, if no path is
// unlikely.
func TestFixedTreesAreFullWithoutAThreshold(t *testing.T) {
	d, err := search.NewDynaTree(search.FixedTree(256, 4, 3, 0))
	if err != nil {
		t.Fatal(err)
	}
	run(d, table{seed: 1, vocab: 5}, 100)
	want := tree.New(0, 256)
	want.Add(0, 0)
	for n := 1; n < want.Len(); n++ {
		for range 3 {
			if want.Depth(n) < 5 {
				want.Add(n, 0)
			}
		}
	}
	if d.Tree().Len() != want.Len() {
		t.Fatalf("%d nodes, want %d", d.Tree().Len(), want.Len())
	}
	for n := range want.Len() {
		if d.Tree().Parent(n) != want.Parent(n) {
			t.Fatalf("node %d hangs below %d, want %d", n, d.Tree().Parent(n), want.Parent(n))
		}
	}
}

// Nothing moves before the fifth answer, nor while acceptance is near what it aims at, and D0 and the
// thresholds end at the bounds of the authors' code.
func TestHistoryMovesOnceAnAnswer(t *testing.T) {
	c := search.DefaultDynaTree()
	h := search.NewHistory(search.HistoryConfig{Window: 10, Want: 0.7, StepD: 1, Step: 0.05}, c)
	start := search.DynaTreeState{D0: 5, High: 0.9, Deep: 0.5}
	add := func(answers, tokens, rounds int) search.DynaTreeState {
		for range answers {
			h.Add(tokens, rounds)
		}
		return h.State()
	}
	if got := add(4, 700, 100); got != start {
		t.Errorf("after four answers %+v, want %+v", got, start)
	}
	if got, want := add(1, 700, 100), (search.DynaTreeState{D0: 6, High: 0.9 - 0.05, Deep: 0.5 - 0.05}); got != want {
		t.Errorf("after five %+v, want %+v", got, want)
	}
	if got, want := add(30, 700, 100), (search.DynaTreeState{D0: 7, High: 0.5, Deep: 0.3}); got != want {
		t.Errorf("while all is accepted %+v, want %+v", got, want)
	}
	if got := h.Rates(); len(got) != 10 || got[0] != 1 {
		t.Errorf("the window is %v, want ten times 1", got)
	}
	low := add(30, 210, 100) // 0.3
	if want := (search.DynaTreeState{D0: 2, High: 0.95, Deep: 0.8}); low != want {
		t.Errorf("while little is accepted %+v, want %+v", low, want)
	}
	if add(9, 490, 100); h.State() != low { // the mean falls back to 0.66 only gradually
		t.Errorf("below the dead band %+v, want %+v", h.State(), low)
	}
	if got := add(20, 490, 100); got != low { // 0.7 exactly
		t.Errorf("at what it aims at %+v, want %+v", got, low)
	}
	for _, x := range []struct {
		want   float64
		tokens int // of a thousand rounds, which have 7000 at most while paths end at D0
		moves  float64
	}{
		{0.7, 4165, -1}, {0.7, 4235, 0}, {0.7, 5565, 0}, {0.7, 5635, 1}, // 0.595, 0.605, 0.795, 0.805
		{1.2, 7665, -1}, {1.2, 7735, 0}, {1.2, 9065, 0}, {1.2, 9135, 1}, // 1.095, 1.105, 1.295, 1.305
	} {
		h := search.NewHistory(search.HistoryConfig{Window: 10, Want: x.want, StepD: 1, Step: 0.05}, c)
		for range 5 {
			h.Add(x.tokens, 1000)
		}
		if moved := h.State().D0 - start.D0; moved != x.moves {
			t.Errorf("an acceptance of %v moves the depth by %v, want %v where %v is aimed at", float64(x.tokens)/7000, moved, x.moves, x.want)
		}
	}
	if got := add(20, 0, 0); got != low || len(h.Rates()) != 10 {
		t.Errorf("answers without rounds: %+v, %d rates", got, len(h.Rates()))
	}
}
