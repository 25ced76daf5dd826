package search_test

import (
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"talf/infer/draft/search"
)

// What rows cost cuts a tree after the node where the sum of the probabilities is most above the price,
// and a beam stops, cuts and tells its gains as SALF does.
func TestPricesCutWhatIsNotWorthItsRows(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := drawTable(t)
		n := rapid.IntRange(1, 24).Draw(t, "n")
		price := make([]float64, rapid.IntRange(1, n).Draw(t, "priced"))
		for i := range price {
			if i > 0 {
				price[i] = price[i-1] + rapid.Float64Range(0, 0.3).Draw(t, "row")
			}
		}
		type paced interface {
			search.Search
			Tune(t search.Tuning)
			LogV() []float64
			Ranks() []int
			Sums() []float64
			Gains() []float64
		}
		var whole, cut paced = newSALF(n, 4, 0, search.TopN), newSALF(n, 4, 0, search.TopN)
		if rapid.Bool().Draw(t, "beam") {
			c := search.BeamConfig{N: n, K: 3, Depth: 5}
			a, err := search.NewBeam(c)
			if err != nil {
				t.Fatal(err)
			}
			b, err := search.NewBeam(c)
			if err != nil {
				t.Fatal(err)
			}
			whole, cut = a, b
		}
		run(whole, m, 50)
		cut.Tune(search.Tuning{Price: price})
		run(cut, m, 50)
		valid(t, cut.Tree(), m, n, 50, cut.LogV(), cut.Ranks())

		likely := slices.Clone(whole.LogV())
		slices.SortFunc(likely, func(a, b float64) int { return int(math.Copysign(1, b-a)) })
		keep, best, sum := 1, 0.0, 0.0
		for i := 1; i < min(len(likely), len(price)); i++ {
			if sum += math.Exp(likely[i]); sum-price[i] > best {
				keep, best = i+1, sum-price[i]
			}
		}
		got := slices.Clone(cut.LogV())
		slices.SortFunc(got, func(a, b float64) int { return int(math.Copysign(1, b-a)) })
		if len(got) != keep || !slices.Equal(got, likely[:keep]) {
			t.Fatalf("%d nodes are kept, want the likeliest %d of %d", len(got), keep, len(likely))
		}
		if len(cut.Gains()) > 0 && cut.Sums()[0] != 1 {
			t.Fatalf("the first round expands %v", cut.Sums()[0])
		}
		var gained, all float64
		for _, g := range cut.Gains() {
			gained += g
		}
		floor := math.Exp(got[len(got)-1])
		for _, v := range got[1:] {
			all += math.Exp(v) - floor
		}
		if math.Abs(gained-all) > 1e-9 {
			t.Fatalf("gains %v, the tree holds %v above its least likely node", cut.Gains(), all)
		}
	})
}

// A beam stops before the level whose nodes sum to less than the threshold, and expands none that is
// less likely than PerNode.
func TestABeamStopsBeforeALevelThatDoesNotPay(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := drawTable(t)
		c := search.BeamConfig{N: 40, K: 4, Depth: 8}
		free, err := search.NewBeam(c)
		if err != nil {
			t.Fatal(err)
		}
		paced, err := search.NewBeam(c)
		if err != nil {
			t.Fatal(err)
		}
		levels := run(free, m, 50)
		th := rapid.Float64Range(0, 1).Draw(t, "th")
		paced.Tune(search.Tuning{Th: th})
		got := run(paced, m, 50)
		want := 1
		for want < levels && free.Sums()[want] >= th {
			want++
		}
		if got != want {
			t.Fatalf("%d levels of sums %v at th %v, want %d", got, free.Sums(), th, want)
		}
		paced.Tune(search.Tuning{PerNode: th})
		run(paced, m, 50)
		for i, s := range paced.Sums()[:len(paced.Gains())] {
			if i > 0 && s < th {
				t.Fatalf("level %d of nodes that sum to %v is expanded, a node has to have %v", i, s, th)
			}
		}
	})
}
