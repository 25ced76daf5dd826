package method

import (
	"talf/infer"
	"talf/infer/draft/shape"
)

// An Urn holds weighted tokens from which children are drawn. Each draw picks a bin, a run of
// Size tokens, and then a token in it: the cost is that of the bins and of one bin's tokens, not
// of the vocabulary. The Chance must not be keyed by position; no drafter's is.
type Urn[W float32 | float64] struct {
	Weights []W        // [vocab], which need not sum to 1
	Bins    infer.Dist // [⌈vocab/Size⌉], the sums of the bins' weights
	Size    int

	part infer.Dist
}

// Fill takes weights in bins of size tokens and computes the bins' sums.
func (u *Urn[W]) Fill(weights []W, size int) {
	u.Weights, u.Size, u.Bins = weights, size, u.Bins[:0]
	for at := 0; at < len(weights); at += size {
		u.Bins = append(u.Bins, 0)
		u.sum(len(u.Bins) - 1)
	}
}

// sum computes the sum of bin b.
func (u *Urn[W]) sum(b int) {
	u.Bins[b] = 0
	for _, w := range u.bin(b) {
		u.Bins[b] += float64(w)
	}
}

func (u *Urn[W]) bin(b int) []W { return u.Weights[b*u.Size : min((b+1)*u.Size, len(u.Weights))] }

// Children draws at most k children, one after another, and appends them to dst; pos is their
// sequence position. Without replacement (infer.Distinct) a token that was drawn has no weight
// for the next draw: the children have the distribution and the order of Gumbel-top-k, the k
// largest of log q(x) plus Gumbel noise (Kool et al. 2019, §2.3), without computing noise for
// every token of the vocabulary; there are fewer than k if fewer tokens have weight. With
// replacement (infer.Repeated) draws are independent. Children leaves the urn unchanged.
//
// A verifier divides by q, the weights over their sum: the caller must not drop or reorder
// children afterwards, and k must not depend on what is drawn.
func (u *Urn[W]) Children(dst []int32, c infer.Chance, pos, k int, d infer.Choice) []int32 {
	if d == infer.Repeated {
		for range k {
			dst = append(dst, u.draw(c, pos))
		}
		return dst
	}
	var weight [shape.MaxRank + 1]W // of the drawn tokens
	var bin [shape.MaxRank + 1]float64
	n, first := 0, len(dst)
	for ; n < k && hasMass(u.Bins); n++ {
		x := u.draw(c, pos)
		dst = append(dst, x)
		b := int(x) / u.Size
		weight[n], bin[n] = u.Weights[x], u.Bins[b]
		u.Weights[x] = 0
		u.sum(b)
	}
	for n--; n >= 0; n-- {
		x := dst[first+n]
		u.Weights[x], u.Bins[int(x)/u.Size] = weight[n], bin[n]
	}
	return dst
}

// draw returns a token with weight.
func (u *Urn[W]) draw(c infer.Chance, pos int) int32 {
	b := int(c.Draw(pos, u.Bins))
	u.part = u.part[:0]
	for _, w := range u.bin(b) {
		u.part = append(u.part, float64(w))
	}
	return int32(b*u.Size) + c.Draw(pos, u.part)
}

func hasMass(d infer.Dist) bool {
	for _, x := range d {
		if x > 0 {
			return true
		}
	}
	return false
}
