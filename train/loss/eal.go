package loss

import (
	"talf/compute"
	"talf/internal/detmath"
	"talf/internal/slab"
	"talf/internal/spec"
)

// eal is the expected accepted length of a chain that is drawn from the head, in tokens, along the
// target's own tree of D levels: the sum over nodes of the probability that a chain is accepted up
// to the node and one token more,
//
//	EAL = Σ_n r(n)·α(n) = Σ_n r(n) · Σ_x min(p_n(x), q_n(x)),  r as in accept, with reach=overlap
//
// which bounds the expected accepted length of D draws from below: chains that leave the tree, which
// has the target's most likely tokens, end there. At temperature 1 it is exact for chains; drafts of
// several children are accepted more often. At temperature 0 the product along a path would be 0 or 1.
//
// The loss is −log(EAL/D), or D − EAL with form=linear. With V(n) the tokens that are expected to be
// accepted below node n,
//
//	V(n) = Σ_x min(p_n(x), q_n(x)) · (1 + V(child x)),  EAL = V(root)
//	∂EAL/∂q_n(x) = r(n) · (1 + V(child x))  where q_n(x) < p_n(x), else 0
//
// with V = 0 where there is no child. So, other than in tv, the gradient at a node counts what it opens
// below. With one level and w_cls=0, eal is nla, and tv with form=linear.
//
// The gradient of EAL alone hardly reaches nodes that the head does not get to yet, so the loss has
// w_cls times talf's cross-entropy in addition.
func ealMethod() Method {
	return Method{
		Line: spec.Line{
			Name: "eal", Doc: "expected accepted length over the target's trees",
			Params: append([]spec.Param{
				spec.Choice("form", "the loss: log (its negative logarithm) or linear (what it lacks of the depth)", "log", "linear"),
				weightParam("w_cls", 0.1, "weight of a cross-entropy on every node, as in talf"),
			}, acceptParams()...),
		},
		New: func(v spec.Values) (Loss, error) {
			a := newAccept(v)
			a.reach, a.linear, a.wCls = reachOverlap, v.Text("form") == "linear", v.Float("w_cls")
			return a, nil
		},
	}
}

// value returns the loss of a tree of so many levels, and slope −∂loss/∂EAL.
func (w *walk) value(eal float64, levels int) (loss, slope float64) {
	if w.linear {
		return float64(levels) - eal, 1
	}
	eal = max(eal, least)
	return -detmath.Log(eal / float64(levels)), 1 / eal
}

// length computes eal of every tree.
func (w *walk) length(q []*compute.SoftLabels, scale []float32) {
	for l := len(q) - 1; l >= 0; l-- {
		w.below[l] = slab.Zeros(w.below[l], len(w.reached[l]))
		for r := range w.below[l] {
			if w.counts(l, r) {
				w.below[l][r] = overlap(w.row(q[l], l, r))
			}
		}
		if l+1 < len(q) {
			for c, v := range w.below[l+1] {
				w.below[l][(*w.in.Nodes[l+1].Parent)[c]] += float64(w.link[l+1][c] * v)
			}
		}
	}
	for r, v := range w.below[0] {
		w.sum[r], w.slope[r] = w.value(v, len(q))
	}
	for l := range q {
		w.pull(q, l, scale)
	}
}

// pull replaces q on a level by −q·∂loss/∂q.
func (w *walk) pull(q []*compute.SoftLabels, l int, scale []float32) {
	by := func(r int) float64 {
		root := w.root[l][r]
		return float64(w.reached[l][r] * float64(w.slope[root]*float64(scale[root])))
	}
	var up []int32
	if l+1 < len(q) {
		up = *w.in.Nodes[l+1].Parent
	}
	w.extra = slab.Zeros(w.extra, len(up))
	for c, r := range up {
		if at := w.label[l+1][c]; at >= 0 {
			row := w.row(q[l], l, int(r))[0]
			if p, x := float64(row.p[at]), float64(row.q[at]); x < p*(1-tie) {
				w.extra[c] = float64(float64(x*by(int(r))) * w.below[l+1][c])
			}
		}
	}
	for r := range w.reached[l] {
		row := w.row(q[l], l, r)
		if w.wCls == 0 || !w.counts(l, r) {
			pullOverlap(row, by(r))
			continue
		}
		root := w.root[l][r]
		w.sum[root] += float64(w.wCls * cross(row))
		pullOverlap(row, by(r))
		pullCross(row, float64(w.wCls*float64(scale[root])))
	}
	for c, r := range up {
		if w.extra[c] != 0 {
			t := &w.row(q[l], l, int(r))[0].q[w.label[l+1][c]]
			*t = float32(float64(*t) + w.extra[c])
		}
	}
}
