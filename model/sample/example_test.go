package sample_test

import (
	"fmt"

	"talf/model/sample"
)

// Tokens 0 and 2 are likely. 2 was seen before and is penalised; top-p removes 1 and 3.
func Example() {
	p := sample.Default()
	p.RepetitionPenalty, p.TopP = 1.5, 0.9
	s := sample.New(p, 0)

	logits := []float32{4, 0, 4.5, -1}
	dist := make([]float32, len(logits))
	s.Dist(dist, logits, []int32{2})
	fmt.Printf("%.3f\n", dist)

	const seed = 1
	for pos := range 8 {
		token, u := 0, sample.Uniform(seed, pos)
		for u >= float64(dist[token]) {
			u -= float64(dist[token])
			token++
		}
		fmt.Print(token, " ")
	}
	// Output:
	// [0.731 0.000 0.269 0.000]
	// 0 0 2 0 0 0 0 0
}
