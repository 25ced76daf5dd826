package data_test

import (
	"math"
	"testing"

	"talf/data"
	"talf/model/identity"
)

// Two sequences with trees of one branch, counted by hand. The second is held out.
func TestCoverageIsCounted(t *testing.T) {
	m := data.Meta{
		Schema: data.SchemaVersion, Function: &identity.Function{Arithmetic: "t"}, Tokenizer: "k", Hidden: 2, Vocab: 9, Branch: 1, Depth: 2,
		Labels: data.TopK, K: 2, Features: data.None, Source: "s",
	}
	dir := t.TempDir()
	w, err := data.Create(dir, m, data.Whole(), data.DefaultWriter())
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := w.Append(&data.Record{
			Tokens: []int32{4, 1, 3, 1}, LossMask: []bool{false, true, true, true},
			TreeTokens: []int32{4, 1, 1, 3, 3, 8, 1, 2}, TreeParents: []int32{-1, 0, -1, 0, -1, 0, -1, 0},
			LabelIDs:   []int32{1, 2, 3, 1, 3, 5, 1, 6, 8, 1, 2, 7, 0, 1, 0, 1},
			LabelProbs: []float32{0.5, 0.25, 0.5, 0.5, 0.75, 0.25, 1, 0, 0.5, 0.25, 0.5, 0.25, 0.5, 0.5, 0.5, 0.5},
			Tail:       []float32{0.25, 0, 0, 0, 0.25, 0.25, 0, 0},
		}); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	set := open(t, dir)
	for _, part := range []data.Part{data.Train, data.Held} {
		sp := data.Split{Part: part, Fraction: 0.5}
		counts, err := set.Counts(sp)
		if err != nil {
			t.Fatal(err)
		}
		for id, n := range counts {
			if want := map[int]int64{1: 2, 3: 1}[id]; n != want {
				t.Errorf("%s: token %d is trained on %d times, want %d", part, id, n, want)
			}
		}
		c, err := set.Cover(sp, []int32{1, 8})
		if err != nil {
			t.Fatal(err)
		}
		// The token after each of positions 0 to 2 is trained on.
		want := []float64{(0.5 + 0 + 0.75) / (0.75 + 1 + 0.75), (0.5 + 1 + 0) / (1 + 1 + 0.75)}
		if c.Tokens != 3 || c.Inside != 2 || math.Abs(c.Share()-2./3) > 1e-12 || math.Abs(c.Levels[0]-want[0]) > 1e-12 || math.Abs(c.Levels[1]-want[1]) > 1e-12 {
			t.Errorf("%s: %+v, want label mass %v", part, c, want)
		}
	}
	if _, err := set.Cover(data.Everything(), []int32{9}); err == nil {
		t.Error("a token outside the vocabulary was accepted")
	}
}
