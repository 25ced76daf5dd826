package papers_test

import (
	"encoding/json"
	"math"
	"testing"

	"talf/infer/draft/papers"
	"talf/internal/golden"
)

// Trees tie, so the authors' code and ours may choose different ones of equal value.
func TestSequoiasTreesAreWorthTheAuthors(t *testing.T) {
	var all struct {
		Trees []struct {
			Accept        []float64
			Nodes, Levels int // the root counts as one of both
			Expected      float64
		}
	}
	if err := json.Unmarshal(golden.Read(t, "methods/sequoia/trees.json"), &all); err != nil {
		t.Fatal(err)
	}
	if len(all.Trees) != 20 {
		t.Errorf("%d trees, want 20", len(all.Trees))
	}
	shallow := 0
	for _, x := range all.Trees {
		paths, got, err := papers.SequoiaTree(x.Accept, x.Nodes, x.Levels-1)
		if err != nil {
			t.Fatal(err)
		}
		// What the paths are worth, as a check of the value that comes with them.
		worth := 1.0
		for _, p := range paths {
			chance := 1.0
			for _, rank := range p {
				chance *= x.Accept[rank]
			}
			worth += chance
		}
		if math.Abs(got-x.Expected) > 1e-8 || math.Abs(worth-x.Expected) > 1e-8 || len(paths) > x.Nodes-1 {
			t.Errorf("%v, %d nodes on %d levels: %d nodes worth %v (%v), want %v", x.Accept, x.Nodes, x.Levels, len(paths)+1, got, worth, x.Expected)
		}
		if _, less, err := papers.SequoiaTree(x.Accept, x.Nodes, max(x.Levels-2, 1)); err == nil && less < x.Expected-1e-8 {
			shallow++
		}
	}
	if shallow == 0 {
		t.Error("a level less makes no tree worse: the recordings cannot tell")
	}
}
