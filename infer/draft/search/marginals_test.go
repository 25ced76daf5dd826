package search_test

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"slices"
	"testing"

	"talf/infer/draft/search"
	"talf/internal/golden"
	"talf/model/safetensors"
	"talf/tree"
)

// marginals returns rows by depth of a table [D][V] of logits.
func marginals(t *testing.T, set *safetensors.Set, name string) (rows []tree.Row) {
	x, err := set.Get(name)
	if err != nil {
		t.Fatal(err)
	}
	f, err := x.Float32s()
	if err != nil {
		t.Fatal(err)
	}
	vocab := x.Shape[1]
	for ; len(f) > 0; f = f[vocab:] {
		var r tree.Row
		sum := 0.0
		for i, v := range f[:vocab] {
			r.Tokens = append(r.Tokens, int32(i))
			sum += math.Exp(float64(v))
		}
		slices.SortStableFunc(r.Tokens, func(a, b int32) int {
			switch {
			case f[a] > f[b]:
				return -1
			case f[a] < f[b]:
				return 1
			}
			return 0
		})
		for _, id := range r.Tokens {
			r.LogProb = append(r.LogProb, float32(float64(f[id])-math.Log(sum)))
		}
		rows = append(rows, r)
	}
	return rows
}

// Over distributions that depend on the depth alone, the optimal search builds DDTree's trees, and Accum JetSpec's: the same nodes in
// the same order as their authors' code.
func TestTreesOfMarginalsAreTheAuthors(t *testing.T) {
	dir := golden.Shared(t, "data/block/trees")
	set, err := safetensors.Open(dir + "/marginals.safetensors")
	if err != nil {
		t.Fatal(err)
	}
	defer set.Close()
	raw, err := os.ReadFile(dir + "/trees.json")
	if err != nil {
		t.Fatal(err)
	}
	var trees []struct {
		Logits        int
		Method        string
		Budget, Width int
		Beta          float64
		G0            float64 `json:"g_0"`
		Tokens        []int32
		Parents       []int
		Scores        []float64
	}
	if err := json.Unmarshal(raw, &trees); err != nil {
		t.Fatal(err)
	}
	if len(trees) != 36 {
		t.Errorf("%d trees, want 36", len(trees))
	}
	for i, want := range trees {
		rows := marginals(t, set, fmt.Sprint("logits", want.Logits))
		var s interface {
			search.Search
			LogV() []float64
		}
		if want.Method == "ddtree" {
			s, err = search.NewSALF(search.SALFConfig{N: want.Budget + 1, B: 1 + i%7})
		} else {
			s, err = search.NewAccum(search.AccumConfig{N: want.Budget, K: want.Width, Beta: want.Beta, Gap: want.G0})
		}
		if err != nil {
			t.Fatal(err)
		}
		s.Start(0, 100)
		for ask := s.Grow(nil); len(ask) > 0; {
			in := make([]tree.Row, len(ask))
			for i, n := range ask {
				if d := s.Work().Depth(n); d < len(rows) {
					in[i] = rows[d]
				}
			}
			ask = s.Grow(in)
		}
		got := s.Tree()
		var parents []int
		for n := 1; n < got.Len(); n++ {
			parents = append(parents, got.Parent(n))
		}
		if !slices.Equal(got.Tokens()[1:], want.Tokens) || !slices.Equal(parents, want.Parents) {
			t.Errorf("%s %d of logits %d: %v below %v, want %v below %v", want.Method, want.Budget, want.Logits, got.Tokens()[1:], parents, want.Tokens, want.Parents)
			continue
		}
		for n, v := range want.Scores {
			if d := math.Abs(s.LogV()[n+1] - v); d > 2e-6 {
				t.Errorf("%s %d of logits %d: node %d scores %v, want %v", want.Method, want.Budget, want.Logits, n, s.LogV()[n+1], v)
			}
		}
	}
}
