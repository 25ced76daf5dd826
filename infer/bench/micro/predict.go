package micro

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"talf/infer/draft/cost"
	"talf/infer/experts"
	"talf/model"
	"talf/tree"
)

// costs learn what passes of a model with experts cost, as draft methods do while they decode.
type costs struct {
	curve cost.Curve
	meter cost.Meter
	read  experts.Meter
	said  map[int][]float64 // by rows: ms that were expected in each round, as fast as the machine was then
}

// learn takes a pass over a random tree of each power of two of rows, up to the first that is not less than
// most. The passes of a warm-up are only run; models without experts are not measured at all.
func (c *costs) learn(ctx context.Context, m *model.Model, seq *model.Seq, most int, r *rand.Rand, warmup bool) error {
	if m.Spec().Mixture.Experts == 0 {
		return nil
	}
	for n := 1; n < 2*most && n <= tree.MaxNodes; n *= 2 {
		t := new(tree.Tree)
		t.Reset(int32(r.IntN(m.Spec().Vocab)), n)
		for token := range int32(n - 1) {
			t.Add(r.IntN(t.Len()), token%int32(m.Spec().Vocab))
		}
		c.read.Begin(m)
		since := time.Now()
		b := seq.Branch(seq.Len())
		_, err := m.Forward(ctx, []model.Segment{{Rows: b, Tree: t, Want: model.WantAll}})
		b.Drop()
		took := time.Since(since).Seconds()
		if err != nil {
			return err
		}
		if c.read.End(m); !warmup {
			c.meter.Add(&c.curve, n, c.read.Experts(), took)
		}
	}
	return nil
}

// note keeps what a pass over so many rows is expected to take now.
func (c *costs) note(rows int) {
	if c.said == nil {
		c.said = map[int][]float64{}
	}
	c.said[rows] = append(c.said[rows], 1e3*c.meter.Level*c.curve.Cost(rows))
}

// predict returns how many experts of a layer a pass over so many rows is expected to read, and the median
// of the ms that it was expected to take.
func (c *costs) predict(rows int) (experts, ms float64) {
	layers := c.read.Experts().Layers
	if layers == 0 {
		return 0, 0
	}
	said := slices.Sorted(slices.Values(c.said[rows]))
	return c.curve.Read(rows) / float64(layers), said[len(said)/2]
}
