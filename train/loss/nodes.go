package loss

import (
	"talf/internal/detmath"
	"talf/internal/spec"
)

// The losses ℓ(n) of a node, as in the speculators library and, but for reverse KL, in "LK Losses"
// (Samarin et al. 2026, arXiv 2602.23881). There, they are summed over the positions of the text.
//
//	tv   1 − α
//	nla  −log α, whose gradient is that of tv divided by α: it does not vanish where p and q hardly overlap
//	lk   λ·KL(p‖q) + (1 − λ)·tv with λ = exp(−η·α), which the gradient takes as constant
//	rkl  KL(q‖p)

func nodeMethod(name, doc string, params []spec.Param, node func(spec.Values) func([]part, float64) float64) Method {
	params = append(params, spec.Choice("reach", "weight of a node: target (the probability that the target draws it), overlap (that a chain drawn from the head is accepted up to it) or all (1)",
		reachTarget, reachOverlap, reachAll))
	return Method{
		Line: spec.Line{Name: name, Doc: doc, Params: append(params, acceptParams()...)},
		New: func(v spec.Values) (Loss, error) {
			a := newAccept(v)
			a.reach, a.node, a.adapts = v.Text("reach"), node(v), name == "lk"
			return a, nil
		},
	}
}

func tvMethod() Method {
	return nodeMethod("tv", "total variation on the nodes of the target's trees: the probability that a token drawn from the head is rejected", nil,
		func(spec.Values) func([]part, float64) float64 { return tv })
}

func nlaMethod() Method {
	return nodeMethod("nla", "negative logarithm of the acceptance probability on the nodes of the target's trees (LK)", nil,
		func(spec.Values) func([]part, float64) float64 { return nla })
}

func lkMethod() Method {
	return nodeMethod("lk", "KL divergence, and total variation the more the distributions overlap, on the nodes of the target's trees (LK, hybrid)",
		[]spec.Param{spec.Float("eta", 3, spec.Closed(0, 100), "how soon the total variation takes over")},
		func(v spec.Values) func([]part, float64) float64 {
			eta := v.Float("eta")
			return func(row []part, scale float64) float64 { return lk(row, scale, eta) }
		})
}

func rklMethod() Method {
	return nodeMethod("rkl", "reverse KL divergence on the nodes of the target's trees", nil,
		func(spec.Values) func([]part, float64) float64 { return rkl })
}

// Each returns its loss of a row, and replaces q by −q·∂loss/∂q·scale.

func tv(row []part, scale float64) float64 {
	a := overlap(row)
	pullOverlap(row, scale)
	return 1 - a
}

func nla(row []part, scale float64) float64 {
	a := max(overlap(row), least)
	pullOverlap(row, scale/a)
	return -detmath.Log(a)
}

func lk(row []part, scale, eta float64) float64 {
	a := overlap(row)
	w := detmath.Exp(-float64(eta * a))
	kl := cross(row)
	for _, t := range row {
		for _, p := range t.p {
			if p > 0 {
				kl += float64(float64(p) * detmath.Log(float64(p)))
			}
		}
	}
	pullOverlap(row, float64(scale*(1-w)))
	pullCross(row, float64(scale*w))
	return float64(w*kl) + float64((1-w)*(1-a))
}

func rkl(row []part, scale float64) float64 {
	sum := 0.0
	for _, t := range row {
		for i, q := range t.q {
			if q == 0 {
				continue // q·log q is 0 there
			}
			// ∂/∂q is log(q/p) + 1. The 1 is the same for all tokens, so it has no gradient.
			d := float64(float64(q) * detmath.Log(float64(q)/max(float64(t.p[i]), leastP)))
			sum += d
			t.q[i] = float32(-float64(scale * d))
		}
	}
	return sum
}
