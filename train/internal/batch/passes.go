package batch

import "talf/data"

// addPasses appends the aligned passes of HASS after the first, which are also the steps of
// training-time test: pass j at position p is step j−1 of root p−j+1. Level l at position i is pass
// l+1, which is fed the f̂ of level l−1 at position i−1. Rows on which no position that counts
// depends are left out. So is a row that would be fed a token outside the draft vocabulary, and
// every row below it: the head never drafts them.
func (b *Batch) addPasses(r *data.Record, feat []float32, first int32, n int) {
	b.above, b.here = b.above[:0], b.here[:0]
	for i := range n {
		b.above, b.here = append(b.above, first+int32(i)), append(b.here, -1)
	}
	for l := 1; l < b.plan.Levels; l++ {
		for i := l; i < n; i++ {
			if b.here[i] = -1; !b.Needs(r, n, l, i) || b.above[i-1] < 0 || !b.runs(r.Tokens[i+1]) {
				continue
			}
			row := b.Head.AddNode(l, b.above[i-1], r.Tokens[i+1])
			b.here[i] = row
			b.Token[l] = append(b.Token[l], b.vocab.Draft(r.Tokens[i+1]))
			b.label(l, r, (i+1)*b.meta.Nodes(), b.repeats(r, l, i))
			if l < len(b.target) {
				h := b.hidden
				copy(b.target[l].Data()[int(row)*h:], feat[(i+1)*h:(i+2)*h])
			}
		}
		b.above, b.here = b.here, b.above
	}
}

// Needs reports whether a position that counts depends on the row of position i on a
// level: position i itself, or one that deeper levels reach from it.
func (b *Batch) Needs(r *data.Record, n, level, i int) bool {
	if level == 0 {
		return true // all later positions attend to it
	}
	for j := i; j < min(n, i+b.plan.Levels-level); j++ {
		if b.learnt(r, j) {
			return true
		}
	}
	return false
}

// repeats returns how many times the row of position i on a level counts. HASS adds up
// all passes at every position. But the features that passes after i+1 are fed at
// position i lie before the text, so these passes equal pass i+1, gradients included.
// They get no rows; the row of pass i+1, on level i, counts for them too, each by its weight over
// that of pass i+1.
func (b *Batch) repeats(r *data.Record, level, i int) float32 {
	switch {
	case !b.learnt(r, i):
		return 0
	case b.plan.Text && !b.plan.Once && level == i:
		if b.plan.Decay == 0 {
			return float32(b.plan.Levels - level)
		}
		sum, w := float32(0), float32(1)
		for range b.plan.Levels - level {
			sum += w
			w *= b.plan.Decay
		}
		return sum
	}
	return 1
}
