package source

import (
	"math"
	"testing"

	"talf/infer"
	"talf/tree"
)

// What has run answers an ask for exactly these nodes, and the rule is that of beam search.
func TestLevelsThatRanAnswerOnlyWhatTheyAre(t *testing.T) {
	ask := func(tokens []int32, parents []int) infer.Ask {
		w := tree.New(9, 16)
		w.Add(0, 1)
		w.Add(0, 2)
		for i, token := range tokens {
			w.Add(parents[i], token)
		}
		return infer.Ask{Tree: w, From: 3, Width: 2}
	}
	ran := func() *leveller {
		x := &leveller{first: 3, next: 3, end: 5, tokens: []int32{5, 6}, parents: []int{1, 2}, aheadIDs: []int32{1, 2, 3, 4}, aheadP: make([]float32, 4)}
		x.plan.K = 2
		return x
	}
	right := ask([]int32{5, 6}, []int{1, 2})
	if rows := ran().answer(&right); len(rows) != 2 || rows[1].Tokens[0] != 3 {
		t.Errorf("what ran is answered by %v", rows)
	}
	full, wide, held := right, right, right
	full.Full, wide.Width, held.Allow = true, 3, func(int) []uint64 { return nil }
	for name, a := range map[string]infer.Ask{
		"another token": ask([]int32{5, 7}, []int{1, 2}), "another parent": ask([]int32{5, 6}, []int{1, 1}),
		"another order": ask([]int32{6, 5}, []int{2, 1}), "more nodes": ask([]int32{5, 6, 7}, []int{1, 2, 2}),
		"whole rows": full, "more tokens": wide, "a grammar": held,
	} {
		if rows := ran().answer(&a); rows != nil {
			t.Errorf("an ask for %s is answered by %v", name, rows)
		}
	}

	inf := float32(math.Inf(-1))
	for name, c := range map[string]struct {
		tokens  []int32
		parents []int
		rule    bool
	}{
		"the best, best first":            {[]int32{5, 7}, []int{1, 2}, true},
		"all but one without probability": {[]int32{5, 7, 6}, []int{1, 2, 1}, true},
		"another order":                   {[]int32{7, 5}, []int{2, 1}, false},
		"not the best":                    {[]int32{5, 6}, []int{1, 1}, false},
		"a token that was not likely":     {[]int32{5, 8}, []int{1, 1}, false},
	} {
		x := &leveller{}
		x.begin()
		x.took(0, []infer.Row{{Tokens: []int32{1, 2}, LogProb: []float32{-1, -1}}})
		first := ask(nil, nil)
		first.From = 1
		x.ask(&first)
		x.took(1, []infer.Row{{Tokens: []int32{5, 6}, LogProb: []float32{-1, -2}}, {Tokens: []int32{7, 8}, LogProb: []float32{-1, inf}}})
		a := ask(c.tokens, c.parents)
		if x.ask(&a); x.broken == c.rule || len(x.levels) != 1 && !c.rule || c.rule && len(x.levels) != 2 {
			t.Errorf("%s: levels %v, the rule is broken: %v", name, x.levels, x.broken)
		}
	}
}
