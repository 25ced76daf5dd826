package levels_test

import (
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"talf/tree"
	"talf/tree/levels"
)

// In these tests a node carries its path as its token, so that a row can be drawn for it.
func rows(t *rapid.T, n, width int) []tree.Row {
	out := make([]tree.Row, n)
	for i := range out {
		for token := range rapid.IntRange(0, width+2).Draw(t, "tokens") {
			out[i].Tokens = append(out[i].Tokens, int32(token))
			out[i].LogProb = append(out[i].LogProb, rapid.SampledFrom([]float32{0.25, 0, -0.5, -1, -1, -2, float32(math.Inf(-1))}).Draw(t, "logp"))
		}
		// Best first, as models answer.
		slices.SortFunc(out[i].LogProb, func(a, b float32) int { return int(4*max(b, -9)) - int(4*max(a, -9)) })
	}
	return out
}

// Each level holds the best continuations of the level above, by the sum of log
// probabilities along the path; ties go to the one that was created first.
func TestLevelsKeepTheBestOfEachLevel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := levels.Config{K: rapid.IntRange(1, 5).Draw(t, "k"), Depth: rapid.IntRange(1, 4).Draw(t, "depth")}
		limit := rapid.IntRange(0, 5).Draw(t, "limit")
		s, err := levels.New(c)
		if err != nil {
			t.Fatal(err)
		}
		for range 2 { // nothing of the first tree may remain
			s.Start(7, limit)
			score, level := []float64{0}, []int{0}
			ask := s.Grow(nil)
			for depth := 1; ; depth++ {
				if !slices.Equal(ask, level) {
					t.Fatalf("level %d: nodes %v are asked for, want %v", depth, ask, level)
				}
				if len(ask) == 0 {
					break
				}
				got := rows(t, len(ask), c.K)
				type cont struct {
					score  float64
					parent int
					token  int32
				}
				var all []cont
				for i, n := range level {
					for r := range min(len(got[i].Tokens), c.K) {
						if lp := got[i].LogProb[r]; lp > float32(math.Inf(-1)) && depth < c.Depth && depth <= limit {
							all = append(all, cont{score[n] + min(float64(lp), 0), n, got[i].Tokens[r]})
						}
					}
				}
				ask = s.Grow(got)
				level = level[:0]
				for range min(len(all), c.K) {
					best := 0
					for i := range all {
						if all[i].score > all[best].score {
							best = i
						}
					}
					n, x := len(score), all[best]
					if tr := s.Tree(); n >= tr.Len() || tr.Parent(n) != x.parent || tr.Token(n) != x.token {
						t.Fatalf("level %d: node %d is not token %d below %d", depth, n, x.token, x.parent)
					}
					score, level = append(score, x.score), append(level, n)
					all = slices.Delete(all, best, best+1)
				}
			}
			if s.Tree().Len() != len(score) || s.Tree().Token(0) != 7 {
				t.Fatalf("%d nodes below %d, want %d below 7", s.Tree().Len(), s.Tree().Token(0), len(score))
			}
		}
	})
}

func TestTheDefaultIsThePapers(t *testing.T) {
	if c, want := levels.Default(), (levels.Config{K: 4, Depth: 3}); c != want || c.Nodes() != 9 {
		t.Errorf("%+v of %d nodes, want %+v of 9", c, c.Nodes(), want)
	}
}

func TestBadParametersAreRefused(t *testing.T) {
	for _, c := range []levels.Config{{}, {K: 4}, {Depth: 2}, {K: 257, Depth: 2}, {K: 1, Depth: 65}, {K: 256, Depth: 5}} {
		if _, err := levels.New(c); err == nil {
			t.Errorf("%+v is accepted", c)
		}
	}
}

func TestAWarmSearchDoesNotAllocate(t *testing.T) {
	s, err := levels.New(levels.Default())
	if err != nil {
		t.Fatal(err)
	}
	row := tree.Row{Tokens: []int32{1, 2, 3, 4}, LogProb: []float32{-1, -2, -3, -4}}
	all := []tree.Row{row, row, row, row}
	grow := func() {
		s.Start(1, 100)
		for ask := s.Grow(nil); len(ask) > 0; ask = s.Grow(all[:len(ask)]) {
		}
	}
	grow()
	if n := testing.AllocsPerRun(20, grow); n != 0 {
		t.Errorf("%v allocations per tree", n)
	}
}
