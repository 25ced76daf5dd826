package micro

import (
	"cmp"
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
	said  map[int][]guess // by rows
}

// A guess is the ms that a pass was expected to take as fast as the machine was then, and how far that is from
// what it took, relative to it.
type guess struct{ ms, off float64 }

// isMixture reports whether a model has experts. Others are not measured: there is nothing to learn.
func isMixture(m *model.Model) bool { return m.Spec().Mixture.Experts > 0 }

// randomTree returns a tree of n nodes with random parents and, for a mixture's sake, other tokens than those of
// the tree before.
func randomTree(r *rand.Rand, vocab, n int) *tree.Tree {
	t := new(tree.Tree)
	first := r.IntN(vocab)
	t.Reset(int32(first), n)
	for k := 1; k < n; k++ {
		// A vocabulary has at least as many tokens as a node has children here.
		t.Add(r.IntN(k), int32((first+k)%vocab))
	}
	return t
}

// learn takes a pass over a random tree of each power of two of rows, up to the first that is not less than
// most. The passes of a warm-up are only run; models without experts are not measured at all.
func (c *costs) learn(ctx context.Context, m *model.Model, seq *model.Seq, most int, r *rand.Rand, warmup bool) error {
	if !isMixture(m) {
		return nil
	}
	for n := 1; n < 2*most && n <= tree.MaxNodes; n *= 2 {
		t := randomTree(r, m.Spec().Vocab, n)
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

// compare keeps what a pass over so many rows, which was not learnt from, is expected to take and took.
func (c *costs) compare(rows int, took time.Duration) {
	if c.said == nil {
		c.said = map[int][]guess{}
	}
	expected := 1e3 * c.meter.Level * c.curve.Cost(rows)
	c.said[rows] = append(c.said[rows], guess{expected, expected/ms(took) - 1})
}

// predict returns how many experts of a layer a pass over so many rows is expected to read, the median
// of the ms that such passes were expected to take, and how far off that was. A model without experts has none.
func (c *costs) predict(rows int) (experts, ms, off float64) {
	layers := c.read.Experts().Layers
	if layers == 0 {
		return 0, 0, 0
	}
	ms, off = c.middle(rows)
	return c.curve.Read(rows) / float64(layers), ms, off
}

// middle returns the medians of what passes over so many rows were expected to take and of how far that was
// from what they took. Each pass is compared with what was expected of it, since the machine's speed changes
// from round to round.
func (c *costs) middle(rows int) (ms, off float64) {
	all := c.said[rows]
	at := func(of func(g guess) float64) float64 {
		return of(slices.SortedFunc(slices.Values(all), func(a, b guess) int { return cmp.Compare(of(a), of(b)) })[len(all)/2])
	}
	return at(func(g guess) float64 { return g.ms }), at(func(g guess) float64 { return g.off })
}
