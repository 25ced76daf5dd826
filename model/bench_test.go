package model_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"talf/compute/cpu/kern"
	"talf/model"
	"talf/model/modeltest"
)

// BenchmarkPass runs trees of n nodes after 128 tokens on a random Llama of 9.9M
// parameters (12 layers of 256). n = 1 is one step of plain decoding.
func BenchmarkPass(b *testing.B) {
	c := modeltest.Default()
	c.Vocab, c.Hidden, c.Layers, c.Heads, c.KVHeads, c.HeadDim, c.FFN, c.MaxPos, c.Tied = 4096, 256, 12, 4, 2, 64, 704, 1024, true
	dir := modeltest.Random(b, c, 1)
	ctx := context.Background()
	for _, class := range classes() {
		dev := device(b, class, 2)
		m := load(b, dir, dev, model.Default())
		s := m.NewSeq()
		if _, err := s.Append(ctx, make([]int32, 128), nil, model.WantNone); err != nil {
			b.Fatal(err)
		}
		for _, n := range []int{1, 8, 60} {
			if class == kern.Portable && n > 1 {
				continue // seconds per pass
			}
			tr := randomTree(rand.New(rand.NewPCG(1, 1)), m.Spec().Vocab, n)
			b.Run(fmt.Sprintf("%v/nodes=%d", class, n), func(b *testing.B) {
				batch := make([]model.Segment, 1)
				for b.Loop() {
					r := s.Branch(s.Len())
					batch[0] = model.Segment{Rows: r, Tree: tr, Want: model.WantAll}
					if _, err := m.Forward(ctx, batch); err != nil {
						b.Fatal(err)
					}
					r.Drop()
				}
				b.ReportMetric(float64(b.N*n)/b.Elapsed().Seconds(), "tokens/s")
			})
		}
	}
}
