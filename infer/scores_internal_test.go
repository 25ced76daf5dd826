package infer

import (
	"testing"

	"talf/tree"
)

type zeroRows struct{ Rows }

func (zeroRows) Logits([]float32, int) {}

type noProcessor struct{ Processor }

func (noProcessor) Dist(Dist, []float32, []int32) {}

// A round keeps the rows that its verifier read, and the rounds after it give back what they do not
// need.
func TestRowsOfALargeRoundAreGivenBack(t *testing.T) {
	s := scores{proc: noProcessor{}, vocab: 10}
	tr := tree.New(1, 64)
	for i := range 63 {
		tr.Add(i, 2)
	}
	tokens := make([]int32, 1, 100) // with room for a path, as sequences have
	round := func(rows int) {
		s.begin(zeroRows{}, tr, tokens)
		for n := range rows {
			if first := s.Dist(n); &first[0] != &s.Dist(n)[0] {
				t.Fatal("a row was computed twice")
			}
		}
	}
	round(64)
	if len(s.dists) != 64 {
		t.Fatalf("%d rows are kept during a round of 64", len(s.dists))
	}
	for range 2 * recentRounds {
		round(3)
	}
	if len(s.dists) > 3 || s.dists[:64][63] != nil {
		t.Errorf("%d rows are kept after rounds of 3", len(s.dists))
	}
	// Rounds of changing length allocate nothing once they have settled.
	if n := testing.AllocsPerRun(100, func() { round(4); round(3) }); n > 0 {
		t.Errorf("rounds of 3 and 4 rows allocate %v times", n)
	}
}
