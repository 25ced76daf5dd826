package draft

import "talf/infer"

// Children draws at most k children from q, one after the other, and appends them
// to dst; pos is their sequence position. Without replacement (infer.Distinct) a
// token that was drawn has no mass for the next draw: the children have the law
// and the order of Gumbel-top-k, the k largest of log q(x) plus Gumbel noise (Kool
// et al. 2019, §2.3), without noise for every token of the vocabulary; fewer than
// k come where fewer tokens have mass. With replacement (infer.Repeated) draws are
// independent. q [vocab] is afterwards as it was.
//
// A verifier divides by q: nothing may be dropped or put in another order
// afterwards, and k must not depend on what is drawn.
func Children(dst []int32, c infer.Chance, pos int, q infer.Dist, k int, d infer.Draw) []int32 {
	if d == infer.Repeated {
		for range k {
			dst = append(dst, c.Draw(pos, q))
		}
		return dst
	}
	var mass [maxRank + 1]float64 // of the drawn tokens
	saved, first := mass[:0], len(dst)
	for range k {
		if !hasMass(q) {
			break
		}
		x := c.Draw(pos, q)
		dst, saved = append(dst, x), append(saved, q[x])
		q[x] = 0
	}
	for i, m := range saved {
		q[dst[first+i]] = m
	}
	return dst
}

func hasMass(q infer.Dist) bool {
	for _, x := range q {
		if x > 0 {
			return true
		}
	}
	return false
}
