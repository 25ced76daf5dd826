// Package heads evaluates draft heads: what they make of their own tokens, rank by rank, and the figures
// and tables of the SALF and TALF papers, with confidence intervals, on the models and prompts at hand.
package heads

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"talf/model"
	"talf/model/head"
	"talf/model/sample"
	"talf/tree"
)

// An Item is one decision of a head conditioned on its own n-th ranked token (TALF, §3.1 and
// appendix A).
type Item struct {
	Token   int32   // c: the n-th most likely token of the head's first row
	Next    int32   // x̃: the target's most likely token after c
	Conf    float64 // the head's probability of x̃
	MaxProb float64 // the head's largest probability
	Correct bool    // the head's most likely token is x̃
}

// A Text is tokens, of which those behind index From count: an answer behind its prompt.
type Text struct {
	Tokens []int32
	From   int // the first item is the head's guess behind token From+1
}

// items is the number of items of the text and of each rank.
func (t *Text) items() int { return max(len(t.Tokens)-1-t.From, 0) }

// Fit cuts texts to the positions of a model and its heads, less one for the ranked token, and
// returns how many were cut.
func Fit(texts []Text, target *model.Model, heads []*head.Head) (out []Text, cut int) {
	most := target.Spec().MaxPos - 1
	for _, h := range heads {
		most = min(most, h.Spec().MaxPos)
	}
	out = slices.Clone(texts)
	for i := range out {
		if x := &out[i]; len(x.Tokens) > most {
			x.Tokens, cut = x.Tokens[:most], cut+1
		}
	}
	return out, cut
}

// ByRank conditions a head on its own n-th ranked token, n = 1..ranks, at every position of the
// texts that counts and has a token after it, and compares the head's next row with the target's.
// The result is [rank−1][item], with items in the order of the positions.
func ByRank(ctx context.Context, target *model.Model, h *head.Head, texts []Text, ranks int) ([][]Item, error) {
	if ranks < 1 || ranks > h.Outputs() {
		return nil, fmt.Errorf("%d ranks, want 1..%d", ranks, h.Outputs())
	}
	out := make([][]Item, ranks)
	for i := range texts {
		if texts[i].items() == 0 {
			continue
		}
		if err := byRank(ctx, target, h, &texts[i], out); err != nil {
			return nil, fmt.Errorf("condition on ranks: text %d: %w", i, err)
		}
	}
	return out, nil
}

// rankGroup is how many positions are scored in one pass.
const rankGroup = 32

func byRank(ctx context.Context, target *model.Model, h *head.Head, text *Text, out [][]Item) error {
	x := text.Tokens
	n := len(x) - 1 // positions of the head
	tseq, hseq := target.NewSeqOf(len(x)+1), h.NewSeq()
	defer tseq.Close()
	tseq.KeepPast() // every position is branched from
	defer hseq.Close()
	features, err := h.NewInputStore(n + 1)
	if err != nil {
		return err
	}
	fhat, err := h.NewStore(n)
	if err != nil {
		return err
	}
	ranks, vocab := len(out), target.Spec().Vocab
	// The pass over the text itself: the target's hidden states, the head's first rows and
	// its estimates f̂ of the next hidden states.
	ids, logp := make([]int32, n*ranks), make([]float32, n*ranks)
	for at := 0; at <= n; at += tree.MaxNodes {
		chunk := x[at:min(at+tree.MaxNodes, n+1)]
		o, err := tseq.Append(ctx, chunk, nil, model.WantNone)
		if err != nil {
			return err
		}
		if err := features.Put(at, hidden(o, len(chunk))...); err != nil {
			return err
		}
	}
	for at := 0; at < n; at += tree.MaxNodes {
		m := min(tree.MaxNodes, n-at)
		var f []model.Feature
		for i := range m {
			f = append(f, features.At(at+i))
		}
		o, err := hseq.Append(ctx, x[at+1:at+1+m], f, model.WantAll)
		if err != nil {
			return err
		}
		o.TopK(ids[at*ranks:], logp[at*ranks:], 0, m, ranks)
		if err := fhat.Put(at, hidden(o, m)...); err != nil {
			return err
		}
	}
	next, q := make([]float32, vocab), make([]float32, vocab)
	for at := text.From; at < n; at += rankGroup {
		m := min(rankGroup, n-at)
		trees := make([]*tree.Tree, m)
		scored, drafted := make([]model.Segment, m), make([]model.Segment, m)
		for i := range m {
			t := tree.New(x[at+i+1], 1+ranks)
			for r := range ranks {
				t.Add(0, ids[(at+i)*ranks+r])
			}
			trees[i] = t
			// The root's row is in both sequences already. A branch computes it again, with
			// the same bits.
			scored[i] = model.Segment{Rows: tseq.Branch(at + i + 1), Tree: t, Want: model.WantAll}
			feat := []model.Feature{features.At(at + i)}
			for range ranks {
				feat = append(feat, fhat.At(at+i))
			}
			drafted[i] = model.Segment{Rows: hseq.Branch(at + i), Tree: t, Want: model.WantAll, Feat: feat}
		}
		p, err := target.Forward(ctx, scored)
		if err != nil {
			return err
		}
		d, err := h.Forward(ctx, drafted)
		if err != nil {
			return err
		}
		for i := range m {
			if err := errors.Join(p.Err(i), d.Err(i)); err != nil {
				return err
			}
			for r := range ranks {
				p.ReadLogits(next, p.LogitsRow(i, 1+r))
				d.ReadLogits(q, d.LogitsRow(i, 1+r))
				want, guess := sample.Argmax(next), sample.Argmax(q)
				out[r] = append(out[r], Item{
					Token: trees[i].Token(1 + r), Next: want,
					Conf: sample.Prob(q, want), MaxProb: sample.Prob(q, guess), Correct: guess == want,
				})
			}
			scored[i].Rows.Drop()
			drafted[i].Rows.Drop()
		}
	}
	return nil
}

func hidden(o *model.Output, n int) (f []model.Feature) {
	for i := range n {
		f = append(f, o.Feature(0, i))
	}
	return f
}
