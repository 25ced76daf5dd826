package sample

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

func TestLogProbsAreThoseOfTheSoftmax(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 3))
	for range 300 {
		n := 1 + r.IntN(50)
		logits := make([]float32, n)
		for i := range logits {
			logits[i] = float32(r.IntN(9)) / 2 // with ties
		}
		if n > 1 && r.IntN(4) == 0 {
			logits[1] = float32(math.Inf(-1))
		}
		id, k := int32(r.IntN(n)), r.IntN(n+3)
		kept := []Likely{{Token: 7}}
		own, top := LogProbs(kept, logits, id, k)
		if p := Prob(logits, id); math.Abs(math.Exp(own.LogProb)-p) > 1e-12 || own.Token != id {
			t.Fatalf("%v of %v: %+v, probability %v", id, logits, own, p)
		}
		order := make([]int32, n)
		for i := range order {
			order[i] = int32(i)
		}
		slices.SortStableFunc(order, func(a, b int32) int {
			switch {
			case logits[a] > logits[b]:
				return -1
			case logits[a] < logits[b]:
				return 1
			}
			return 0
		})
		if len(top) != 1+min(k, n) || top[0].Token != 7 {
			t.Fatalf("%d alternatives of %d, want %d", len(top)-1, n, min(k, n))
		}
		for i, x := range top[1:] {
			// The same bits as the token's own, whatever k is.
			if alone, _ := LogProbs(nil, logits, x.Token, 0); x.Token != order[i] || x != alone {
				t.Fatalf("%v: alternative %d is %+v, want %+v", logits, i, x, alone)
			}
		}
	}
}
