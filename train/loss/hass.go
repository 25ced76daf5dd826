package loss

import (
	"errors"

	"talf/internal/spec"
)

// hass is eagle's loss and a top-K distillation, summed over several aligned passes (HASS, Zhang
// et al. 2025, §3). Pass 1 is fed the target's features. Pass j at position i is fed the head's
// f̂ of pass j−1 at position i−1, and attends to the keys of pass 1 up to position i−j+1 and to
// those of passes 2 to j after it: the same keys as a node at depth j−1 in decoding, on the path
// of the text itself. So a pass is a level of a tree with one branch.
//
// The public implementation multiplies scores by masks of 0 and 1 before the softmax, so that
// masked keys keep some weight. Here they are not seen at all, as in decoding.
//
// Top-K distillation is −Σ_{x∈topK(p)} p(x)·log q(x), without renormalising p. It and the
// cross-entropy are both linear in log q, so one term covers both: the most likely labels with
// weight w_cls + w_topk, the others with w_cls.
//
// Pass j weighs decay^(j−1); HASS adds up its passes as they are.
type hass struct {
	soft
	wReg, wDist float32 // wDist is w_cls + w_topk
	passes      int
	decay       float32
	l1, flow    bool
	cuts        bool // there is a top-K distillation
}

func hassMethod() Method {
	return Method{
		Line: spec.Line{
			Name: "hass", Doc: "the same and top-K distillation in aligned passes, the head fed its own features along the text (HASS)",
			Params: append([]spec.Param{
				weightParam("w_reg", 1, "weight of the regression"),
				weightParam("w_cls", 10, "weight of the cross-entropy"),
				weightParam("w_topk", 10, "weight of the cross-entropy on the most likely tokens alone"),
				spec.Int("top", 10, 1, 1<<20, "how many they are"),
				spec.Int("passes", 3, 1, 16, "aligned passes, whose losses are added"),
				spec.Float("decay", 1, spec.Closed(0.001, 1000), "weight of a pass over that of the pass before"),
				spec.Choice("feed", "gradient through the features that are fed back: detach (none) or flow", "detach", "flow"),
				regParam(),
			}, textParams()...),
		},
		New: newHASS,
	}
}

func newHASS(v spec.Values) (Loss, error) {
	h := hass{
		soft: newSoft(v), wReg: v.Float32("w_reg"), passes: v.Int("passes"), decay: v.Float32("decay"),
		l1: v.Text("reg") == "l1", flow: v.Text("feed") == "flow",
	}
	wCls, wTop := v.Float32("w_cls"), v.Float32("w_topk")
	h.wDist = wCls + wTop
	if h.wReg == 0 && h.wDist == 0 {
		return nil, errors.New("w_reg, w_cls and w_topk are 0: there is nothing to learn from")
	}
	if wTop != 0 {
		h.cuts, h.top, h.rest = true, v.Int("top"), wCls/h.wDist
	}
	return h, nil
}

func (h hass) Plan(d Labelling) (Plan, error) {
	p := Plan{Levels: h.passes, Text: true, Decay: h.decay, Detach: !h.flow, Outside: h.outside, Tail: h.tail, Temp: h.temp, Cut: h.cuts, Exact: h.exact(d)}
	if h.wReg != 0 {
		p.Regress = h.passes
	}
	return p, h.check(d)
}

func (h hass) Build(in Inputs) []Term {
	var ts []Term
	w := float32(1)
	for l := range in.FHat {
		if h.wReg != 0 {
			ts = append(ts, in.Regression(l, w*h.wReg, h.l1))
		}
		if h.wDist != 0 {
			ts = append(ts, h.cls(in, l, w*h.wDist))
		}
		w *= h.decay
	}
	return ts
}
