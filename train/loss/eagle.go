package loss

import (
	"errors"

	"talf/internal/spec"
)

// eagle is w_reg·SmoothL1(f̂, f) + w_cls·CE(p, q) over the positions of the text (EAGLE,
// Li et al. 2024, §4.2). The default weights are the TALF paper's.
type eagle struct {
	soft
	wReg, wCls float32
	l1         bool
}

func eagleMethod() Method {
	return Method{
		Line: spec.Line{
			Name: "eagle", Doc: "feature regression and cross-entropy along the text (EAGLE)",
			Params: append([]spec.Param{
				weightParam("w_reg", 1, "weight of the regression"),
				weightParam("w_cls", 10, "weight of the cross-entropy"),
				regParam(),
			}, textParams()...),
		},
		New: newEagle,
	}
}

func newEagle(v spec.Values) (Loss, error) {
	e := eagle{soft: newSoft(v), wReg: v.Float32("w_reg"), wCls: v.Float32("w_cls"), l1: v.Text("reg") == "l1"}
	if e.wReg == 0 && e.wCls == 0 {
		return nil, errors.New("w_reg and w_cls are 0: there is nothing to learn from")
	}
	return e, nil
}

func (e eagle) Plan(d Labelling) (Plan, error) {
	p := Plan{Levels: 1, Outside: e.outside, Tail: e.tail, Temp: e.temp, Exact: e.exact(d)}
	if e.wReg != 0 {
		p.Regress = 1
	}
	return p, e.check(d)
}

func (e eagle) Build(in Inputs) []Term {
	var ts []Term
	if e.wReg != 0 {
		ts = append(ts, in.Regression(0, e.wReg, e.l1))
	}
	if e.wCls != 0 {
		ts = append(ts, e.cls(in, 0, e.wCls))
	}
	return ts
}
