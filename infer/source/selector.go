package source

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"

	"talf/infer"
	"talf/model"
)

// A selection is what a selector chooses from at each depth.
type selection struct {
	ids  []int32   // [Drafts][SelectorTop], best first
	logp []float32 // as the block says it
}

// A selector is memory for the rows that a head with a selector answers.
type selector struct {
	ids    []int32
	scores []float32
	order  []int
	rows   []infer.Row
	tokens []int32 // of rows
	logps  []float32
}

// selections reads what a segment's block offers.
func (b *Block) selections(s *blockSeq, out *model.Output, seg int) {
	x := &b.m.Spec().Block
	if x.SelectorRank == 0 {
		return
	}
	d, k := x.Drafts(), x.SelectorTop
	s.offer.ids, s.offer.logp = slices.Grow(s.offer.ids[:0], d*k)[:d*k], slices.Grow(s.offer.logp[:0], d*k)[:d*k]
	out.TopK(s.offer.ids, s.offer.logp, out.LogitsRow(seg, x.Row(0)), d, k)
}

// selected returns the rows that were asked for, of a head with a selector: the softmax of its scores over the
// tokens that it chooses from. No other token has mass.
func (b *Block) selected(ctx context.Context, asks []infer.Ask) ([]infer.Row, error) {
	x, y := &b.m.Spec().Block, &b.pick
	k := x.SelectorTop
	b.after, y.ids, y.scores = b.after[:0], y.ids[:0], y.scores[:0]
	for i := range asks {
		a := &asks[i]
		s := b.open[a.ID]
		for n := a.From; n < a.Nodes(); n++ {
			if d := a.Tree.Depth(n); s.ran && d < x.Drafts() {
				b.after = append(b.after, model.After{Block: s.state, Depth: d, Token: a.Tree.Token(n)})
				y.ids, y.scores = append(y.ids, s.offer.ids[d*k:][:k]...), append(y.scores, s.offer.logp[d*k:][:k]...)
			}
		}
	}
	if len(b.after) > 0 {
		if err := b.m.SelectAfter(ctx, b.after, y.ids, y.scores); err != nil {
			return nil, fmt.Errorf("run the block drafter: %w", err)
		}
	}
	// Rows are slices of these, which must not move while rows are added.
	y.rows, y.tokens, y.logps = y.rows[:0], slices.Grow(y.tokens[:0], len(y.ids)), slices.Grow(y.logps[:0], len(y.ids))
	at := 0
	for i := range asks {
		a := &asks[i]
		s := b.open[a.ID]
		for n := a.From; n < a.Nodes(); n++ {
			if d := a.Tree.Depth(n); !s.ran || d >= x.Drafts() {
				y.rows = append(y.rows, infer.Row{})
				continue
			}
			y.rows = append(y.rows, y.row(a, n, y.ids[at*k:][:k], y.scores[at*k:][:k], b.m.Spec().Vocab))
			at++
		}
	}
	return y.rows, nil
}

// row returns the row of a node of which tokens have scores.
func (y *selector) row(a *infer.Ask, n int, ids []int32, scores []float32, vocab int) (r infer.Row) {
	y.order = y.order[:0]
	var allow []uint64
	if a.Allow != nil {
		allow = a.Allow(n)
	}
	for i, id := range ids {
		if may(allow, id) && scores[i] > float32(math.Inf(-1)) {
			y.order = append(y.order, i)
		}
	}
	if len(y.order) == 0 {
		return r
	}
	slices.SortFunc(y.order, func(i, j int) int {
		return cmp.Or(cmp.Compare(scores[j], scores[i]), cmp.Compare(ids[i], ids[j]))
	})
	top, sum := float64(scores[y.order[0]]), 0.0
	for _, i := range y.order {
		sum += math.Exp(float64(scores[i]) - top)
	}
	norm := top + math.Log(sum)
	from := len(y.tokens)
	for _, i := range y.order[:min(len(y.order), a.Width)] {
		y.tokens, y.logps = append(y.tokens, ids[i]), append(y.logps, float32(float64(scores[i])-norm))
	}
	r.Tokens, r.LogProb = y.tokens[from:], y.logps[from:]
	if a.Full {
		r.Logits = make([]float32, vocab)
		for i := range r.Logits {
			r.Logits[i] = float32(math.Inf(-1))
		}
		for _, i := range y.order {
			r.Logits[ids[i]] = scores[i]
		}
	}
	return r
}

// may reports whether a token may follow, as infer.Ask.Allow says.
func may(allow []uint64, id int32) bool {
	return allow == nil || int(id)/64 < len(allow) && allow[id/64]>>(id%64)&1 != 0
}
