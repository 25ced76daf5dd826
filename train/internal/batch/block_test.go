package batch

import (
	"math/rand/v2"
	"slices"
	"testing"

	"talf/data"
	"talf/train/mix"
)

// As many blocks are drawn as make up the positions that count, all of which are drawn equally often, and
// a step draws the same ones each time.
func TestAnchorsAreDrawnFromThePositionsThatCount(t *testing.T) {
	const size, limit, steps = 4, 30, 4000
	r := rand.New(rand.NewPCG(3, 4))
	var recs []*data.Record
	counted := 0
	for _, n := range []int{5, 40, 3, 17} {
		rec := &data.Record{Tokens: make([]int32, n), LossMask: make([]bool, n)}
		for i := range rec.LossMask {
			rec.LossMask[i] = r.IntN(3) > 0
		}
		counted += mix.Counted(rec, limit, 0)
		recs = append(recs, rec)
	}
	draw := func(step int) (all [][]int, n int) {
		a := NewAnchors(size, limit, 0)
		for i, rec := range recs {
			x := a.Draw(rec, 7, uint64(step), uint64(i))
			all, n = append(all, x), n+len(x)
		}
		return all, n
	}
	times := make([][]int, len(recs))
	for i, rec := range recs {
		times[i] = make([]int, len(rec.Tokens))
	}
	for step := range steps {
		all, n := draw(step)
		if n != Blocks(counted, size) {
			t.Fatalf("%d blocks of %d rows in %d positions, want %d", n, size, counted, Blocks(counted, size))
		}
		for i, x := range all {
			for _, at := range x {
				if !mix.Learnt(recs[i], at, 0) || at >= limit {
					t.Fatalf("a block at position %d of record %d, which does not count", at, i)
				}
				times[i][at]++
			}
		}
		if again, _ := draw(step); step == 0 && !slices.EqualFunc(all, again, slices.Equal) {
			t.Errorf("drawn again: %v, first %v", again, all)
		}
	}
	for i, rec := range recs {
		// Of a record's positions each is drawn with the same probability, a few in ten of the steps: the deviation
		// of times is about 30.
		least, most := steps, 0
		for at, n := range times[i] {
			if mix.Learnt(rec, at, 0) && at < limit && at < mix.Span(rec, limit, 0) {
				least, most = min(least, n), max(most, n)
			}
		}
		if most-least > 300 {
			t.Errorf("positions of record %d are drawn between %d and %d times", i, least, most)
		}
	}
}
