package data_test

import (
	"math"
	"testing"

	"talf/data"
	"talf/model/identity"
)

// Two positions with trees of two levels of two nodes, and one without a tree. The sums
// are counted by hand.
func TestLevelsDescribeTheTrees(t *testing.T) {
	m := data.Meta{
		Schema: data.SchemaVersion, Function: &identity.Function{Arithmetic: "t"}, Tokenizer: "k", Hidden: 2, Vocab: 9, Branch: 2, Depth: 2,
		Labels: data.TopK, K: 3, Features: data.None, LossOnly: true, Source: "s",
	}
	r := &data.Record{
		Tokens: []int32{1, 2, 3}, LossMask: []bool{false, true, true},
		TreeTokens:  []int32{1, 1, 1, 2, 5, 6, 3, 7, 8},
		TreeParents: []int32{-1, 0, 0, -1, 0, 0, -1, 0, 0},
		LabelIDs: []int32{
			1, 2, 3, 1, 2, 3, 1, 2, 3,
			5, 6, 7, 1, 2, 3, 1, 2, 3,
			7, 8, 1, 1, 2, 3, 1, 2, 3,
		},
		LabelProbs: []float32{
			0.5, 0.25, 0.125, 0, 0, 0, 0, 0, 0,
			0.5, 0.25, 0.125, 0.25, 0.25, 0.25, 0.5, 0.25, 0.25,
			0.75, 0.125, 0.125, 0.5, 0, 0, 0.5, 0.5, 0,
		},
		Tail: []float32{0.125, 1, 1, 0.125, 0.25, 0, 0, 0.5, 0},
	}
	dir := t.TempDir()
	w, err := data.Create(dir, m, data.Whole(), data.DefaultWriter())
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Append(r); err != nil {
		t.Fatal(err)
	}
	if err := w.Cut(4, map[string]int{"short": 3}, nil, ""); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	st, err := open(t, dir).Stats()
	if err != nil {
		t.Fatal(err)
	}
	want := []data.Level{
		{Level: 0, Nodes: 2, Mass: (0.875 + 1) / 2, Top: []float64{(0.5 + 0.75) / 2, (0.75 + 0.875) / 2, (0.875 + 1) / 2}, Reach: 1},
		{Level: 1, Nodes: 4, Mass: (0.75 + 1 + 0.5 + 1) / 4, Top: []float64{(0.25 + 0.5 + 0.5 + 0.5) / 4, (0.5 + 0.75 + 0.5 + 1) / 4, (0.75 + 1 + 0.5 + 1) / 4}, Reach: (0.5 + 0.25 + 0.75 + 0.125) / 2},
	}
	if len(st.Levels) != 2 || len(st.TopK) != 3 || st.TopK[2] != 3 {
		t.Fatalf("levels %+v of the first %v", st.Levels, st.TopK)
	}
	near := func(a, b float64) bool { return math.Abs(a-b) < 1e-12 }
	for i, w := range want {
		g := st.Levels[i]
		ok := g.Level == w.Level && g.Nodes == w.Nodes && near(g.Mass, w.Mass) && near(g.Reach, w.Reach) && len(g.Top) == len(w.Top)
		for k := 0; ok && k < len(w.Top); k++ {
			ok = near(g.Top[k], w.Top[k])
		}
		if !ok {
			t.Errorf("level %d: %+v, want %+v", i, g, w)
		}
	}
	if n, of := st.DroppedShare(); n != 3 || of != 4 {
		t.Errorf("dropped %d of %d, want 3 of 4", n, of)
	}
}

// Full distributions have a mass of 1 and no top labels. Reach is still computed from
// their probabilities.
func TestLevelsOfFullDistributions(t *testing.T) {
	m := meta(data.Full, data.None)
	dir := t.TempDir()
	build(t, dir, m, 3, 3, data.DefaultWriter())
	st, err := open(t, dir).Stats()
	if err != nil {
		t.Fatal(err)
	}
	if len(st.TopK) != 0 || len(st.Levels) != 3 || st.Levels[0].Reach != 1 || len(st.Levels[0].Top) != 0 || !(st.Levels[1].Reach > 0) {
		t.Errorf("%v %+v", st.TopK, st.Levels)
	}
}
