package method

import (
	"fmt"
	"sync"

	"talf/infer/draft/memory"
	"talf/infer/lookup"
	"talf/internal/spec"
)

// Learning returns the parameters of methods with a table.
func Learning() []spec.Param {
	return []spec.Param{
		spec.Choice("harvest", "rows that the table learns from: all, verified (without rejected branches) or rounds (without the prompt)", "all", "verified", "rounds"),
		spec.Choice("table", "fresh starts every request with an empty table, keep carries over that of earlier requests", "fresh", "keep"),
	}
}

// Keeps reports whether values of Learning carry the table from request to request.
func Keeps(v spec.Values) bool { return v.Choice("table") == 1 }

// Remembering returns a function that makes memories for the values of Learning, with tables of
// k successors; ranked tables store no scores.
func Remembering(v spec.Values, lo, hi, k int, bigrams, ranked bool) func() memory.Memory {
	h := memory.Harvest(v.Choice("harvest"))
	keep := Keeps(v)
	fresh := func() *memory.Table {
		return &memory.Table{Transitions: lookup.NewTransitions(k, bigrams), Keep: keep, Ranked: ranked}
	}
	shared := sync.OnceValue(fresh)
	return func() memory.Memory {
		m := memory.Memory{Context: lookup.NewContext(lo, hi), Harvest: h}
		if keep {
			m.Table = shared()
		} else {
			m.Table = fresh()
		}
		return m
	}
}

// Ngrams are the lengths of n-grams that a context indexes.
func Ngrams() []spec.Param {
	return []spec.Param{
		spec.Int("lo", 3, 1, 16, "shortest n-gram that counts as a match"),
		spec.Int("hi", 5, 1, 16, "longest n-gram looked for; the longest that matches wins"),
	}
}

func ReadNgrams(v spec.Values) (lo, hi int, err error) {
	if lo, hi = v.Int("lo"), v.Int("hi"); hi < lo {
		err = fmt.Errorf("n-grams of lo=%d to hi=%d tokens, want lo <= hi", lo, hi)
	}
	return lo, hi, err
}
