package loss

import (
	"errors"

	"talf/internal/spec"
)

// talf is Σ_n CE(p(n), q(n)) over all labelled nodes of a position's tree, where the head is fed
// its own f̂ down every path, with gradients through it (TALF, Algorithm 1). The nodes of a tree
// count if its position does. The paper has no regression.
//
// A block head draws all levels from one pass, of which the nodes of a level share a row: q(n) differs
// between them only by what a Markov head adds for their own tokens. Without one, its optimum with
// reach=target is the target's own distribution of the token so many places ahead.
type talf struct {
	soft
	wCls, wReg float32
	decay      float32
	levels     int
	l1, detach bool
	undrafted  bool
	reach      bool
	path       bool
}

func talfMethod() Method {
	return Method{
		Line: spec.Line{
			Name: "talf", Doc: "cross-entropy on every node of the target's trees, the head following its own features (TALF)",
			Params: append([]spec.Param{
				weightParam("w_cls", 1, "weight of the cross-entropy"),
				weightParam("w_reg", 0, "weight of a regression along the text, which TALF does without"),
				spec.Float("decay", 1, spec.Closed(0.001, 1000), "weight of a level's nodes over that of the level above"),
				spec.Int("levels", 0, 0, 16, "levels of the trees that are trained on (0: all that the data have)"),
				spec.Choice("feed", "gradient through the features that are fed back: flow or detach (none)", "flow", "detach"),
				spec.Choice("beyond", "nodes at or below a token outside a draft vocabulary: skip, or learn all the same", "skip", "learn"),
				spec.Choice("reach", "weight of a node: all (1) or target (the probability that the target draws it)", reachAll, reachTarget),
				spec.Switch("path", false, "of a causal block head: nodes are rows with their ancestors' tokens, not those of one block"),
				regParam(),
			}, softParams()...),
		},
		New: newTALF,
	}
}

func newTALF(v spec.Values) (Loss, error) {
	t := talf{
		soft: newSoft(v), wCls: v.Float32("w_cls"), wReg: v.Float32("w_reg"), decay: v.Float32("decay"), levels: v.Int("levels"),
		l1: v.Text("reg") == "l1", detach: v.Text("feed") == "detach", undrafted: v.Text("beyond") == "learn",
		reach: v.Text("reach") == reachTarget, path: v.On("path"),
	}
	if t.wCls == 0 {
		return nil, errors.New("w_cls is 0: there is nothing to learn from the trees")
	}
	return t, nil
}

func (t talf) Plan(d Labelling) (Plan, error) {
	levels, err := d.levels(t.levels)
	if err != nil {
		return Plan{}, err
	}
	p := Plan{Levels: levels, Outside: t.outside, Tail: t.tail, Temp: t.temp, Detach: t.detach, Undrafted: t.undrafted, Reach: t.reach, Path: t.path}
	if t.wReg != 0 {
		p.Regress = 1
	}
	return p, t.check(d)
}

func (t talf) Build(in Inputs) []Term {
	var ts []Term
	if t.wReg != 0 {
		ts = append(ts, in.Regression(0, t.wReg, t.l1))
	}
	w := t.wCls
	for l := range in.FHat {
		ts = append(ts, t.cls(in, l, w))
		w *= t.decay
	}
	return ts
}
