package verify

import "talf/infer"

// Block is Block Verification (Sun et al. 2025, Algorithm 2) of a chain x_1 … x_γ: with a_0 = 1
// and a_i = min(1, a_{i-1}·p(x_i)/q(x_i)), the first i tokens are accepted with probability a_γ
// for i = γ, and otherwise with h_i = r_i / (r_i + 1 − a_i), r_i = Σ_x max(a_i·p(x) − q(x), 0);
// the longest accepted prefix is kept. Prefixes are tried from the longest down, so that the
// first success is the answer. No rule accepts more of a chain.
type Block struct {
	path []int
	a    []float64
	rest rest
}

// Fits reports why the rule would not be lossless.
func (*Block) Fits(d infer.Choice, chain bool) error { return Check("block", d, chain) }

// Verify makes at most one decision per drafted token and draws one token.
func (v *Block) Verify(p infer.Proposal, s infer.Scores, c infer.Chance) (infer.Verdict, error) {
	v.path, v.a = append(v.path[:0], 0), append(v.a[:0], 1)
	for n, k := 0, firstLive(&p, 0); k >= 0; n, k = k, firstLive(&p, k) {
		v.rest.begin(&p, s, n)
		x, err := v.rest.ratio(p.Tree.Token(k))
		if err != nil {
			return infer.Verdict{}, err
		}
		v.path, v.a = append(v.path, k), append(v.a, min(v.a[len(v.a)-1]*x, 1))
	}
	for i := len(v.path) - 1; ; i-- {
		v.rest.begin(&p, s, v.path[i])
		h := v.a[i]
		if i < len(v.path)-1 {
			r := v.rest.reject(p.Tree, v.path[i+1], h)
			h = residual(r, h)
		}
		if i == 0 || c.Accept(h) {
			return infer.Verdict{Path: v.path[:i+1], Next: v.rest.draw(c, p.Pos+i+1)}, nil
		}
	}
}

// residual is the probability of accepting a path whose last node was accepted with probability
// a and whose continuation was rejected; r is the sum of the residual row.
func residual(r, a float64) float64 {
	if r == 0 && a == 1 { // p = q: rounding alone rejects
		return 1
	}
	return r / (r + 1 - a)
}
