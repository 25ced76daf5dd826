package source

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// What a row of 4096 and of 131072 logits costs where a part of the tokens may follow.
func BenchmarkAllowed(b *testing.B) {
	for _, vocab := range []int{4096, 131072} {
		rng := rand.New(rand.NewPCG(1, 2))
		logits := make([]float32, vocab)
		for i := range logits {
			logits[i] = float32(4 * rng.NormFloat64())
		}
		for _, share := range []float64{0.001, 0.1, 0.24, 0.26, 0.97} {
			allow := make([]uint64, (vocab+63)/64)
			for i := range vocab {
				if rng.Float64() < share {
					allow[i/64] |= 1 << (i % 64)
				}
			}
			b.Run(fmt.Sprintf("%d/%v", vocab, share), func(b *testing.B) {
				var f filter
				var tokens []int32
				var logp []float32
				for b.Loop() {
					out, p, ok := f.best(tokens[:0], logp[:0], logits, allow, 8)
					if !ok {
						b.Fatal("nothing may follow")
					}
					tokens, logp = out, p
				}
			})
		}
	}
}
