package infer

import (
	"testing"

	"pgregory.net/rapid"
)

// Rows are divided whole: no prompt gets more than it can use, nothing is left over while one
// could use it, the shortest always gets some, and the first too.
func TestRowsAreSharedWhole(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		lefts := rapid.SliceOfN(rapid.IntRange(1, 300), 0, 20).Draw(t, "left")
		rows := rapid.IntRange(0, 600).Draw(t, "rows")
		var ps []rowsPart
		all, shortest := 0, 0
		for i, n := range lefts {
			ps = append(ps, rowsPart{left: n})
			if all += n; n < lefts[shortest] {
				shortest = i
			}
		}
		shareRows(ps, rows)
		given := 0
		for i, p := range ps {
			if p.rows < 0 || p.rows > p.left {
				t.Fatalf("prompt %d gets %d rows, it can use %d", i, p.rows, p.left)
			}
			given += p.rows
		}
		if want := min(rows, all); given != want {
			t.Fatalf("%d of %d rows are given to prompts of %v", given, rows, lefts)
		}
		if len(ps) > 0 && rows > 0 {
			if p := ps[shortest]; p.rows < min(p.left, (rows+3)/4) {
				t.Fatalf("the shortest of %v gets %d of %d rows", lefts, p.rows, rows)
			}
			if p := ps[0]; p.rows < min(p.left, rows-(rows+3)/4) {
				t.Fatalf("the first of %v gets %d of %d rows", lefts, p.rows, rows)
			}
		}
	})
}
