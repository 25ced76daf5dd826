package batch

import (
	"math/rand/v2"
	"slices"

	"talf/data"
	"talf/train/mix"
)

// Blocks returns how many blocks of size rows are drawn in so many positions that count: then each of
// these is predicted about once.
func Blocks(counted, size int) int { return (counted + size - 1) / size }

// Anchors draws, of the sequences of one micro-batch in turn, the head positions that have blocks.
type Anchors struct {
	size, limit, early int
	counted, drawn     int
}

// NewAnchors draws as many positions as Blocks says, of those up to limit that count.
func NewAnchors(size, limit, early int) *Anchors {
	return &Anchors{size: size, limit: limit, early: early}
}

// Draw returns those of a record, ascending. They depend on key and on the number of positions that
// counted in the records before.
func (a *Anchors) Draw(r *data.Record, key ...uint64) []int {
	var all []int
	for i := range mix.Span(r, a.limit, a.early) {
		if mix.Learnt(r, i, a.early) {
			all = append(all, i)
		}
	}
	a.counted += len(all)
	n := min(len(all), Blocks(a.counted, a.size)-a.drawn)
	a.drawn += n
	s := rand.New(rand.NewPCG(fold(key)))
	s.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	all = all[:n]
	slices.Sort(all)
	return all
}

// Choose sets which head positions of the sequence that is added next have blocks; without it all that count
// have one.
func (b *Batch) Choose(anchors []int) { b.anchors = anchors }

// addBlocks appends the first n positions of a record to the graph of a block head: as context, and with
// blocks after its anchors.
func (b *Batch) addBlocks(r *data.Record, in []float32, n int) error {
	first := b.Head.Block.AddText(n)
	b.Head.Feed(first, in[:n*b.Head.Params.Spec.FeatureSize()])
	if b.exact != nil {
		if err := b.teach(r, min(len(r.Tokens), n+b.plan.Levels)-1); err != nil {
			return err
		}
	}
	anchors := b.anchors
	if anchors == nil {
		for i := range n {
			if b.learnt(r, i) {
				anchors = append(anchors, i)
			}
		}
	}
	b.anchors = nil
	for _, i := range anchors {
		row := b.Head.AddBlock(r.Tokens[i+1], int32(i+1), int32(first))
		b.label(0, r, (i+1)*b.meta.Nodes(), b.times(r, i))
		b.Count++
		if !b.plan.Text {
			if err := b.addTree(r, i, row); err != nil {
				return err
			}
			continue
		}
		b.next(0, r, i)
		b.addChain(r, i, row)
	}
	return nil
}

// addChain appends the rows below row root that follow the text after head position i. They end with the
// text or, as Plan.Ends says, with what is learnt.
func (b *Batch) addChain(r *data.Record, i int, root int32) {
	above := root
	for l := 1; l < len(b.Head.Levels) && i+l+2 < len(r.Tokens); l++ {
		if b.plan.Ends && !b.learnt(r, i+l) {
			return
		}
		token := r.Tokens[i+l+1]
		above = b.Head.AddNode(l, above, token)
		b.Token[l] = append(b.Token[l], b.vocab.Draft(token))
		b.label(l, r, (i+l+1)*b.meta.Nodes(), b.times(r, i+l))
		b.next(l, r, i+l)
	}
}

// times returns 1 if head position i counts, else 0.
func (b *Batch) times(r *data.Record, i int) float32 {
	if b.learnt(r, i) {
		return 1
	}
	return 0
}

// next appends the token that head position i predicts.
func (b *Batch) next(level int, r *data.Record, i int) {
	b.Next[level] = append(b.Next[level], b.vocab.Draft(r.Tokens[i+2]))
}
