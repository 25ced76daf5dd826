package loss

import "errors"

// eagle is w_reg·SmoothL1(f̂, f) + w_cls·CE(p, q) over the positions of the text
// (EAGLE, Li et al. 2024, §4.2; weights of the TALF paper).
type eagle struct {
	soft
	wReg, wCls float32
	l1         bool
}

func newEagle(v Values) (Loss, error) {
	e := eagle{}
	var err error
	if e.soft, err = newSoft(v); err != nil {
		return nil, err
	}
	if e.wReg, err = v.float("w_reg"); err != nil {
		return nil, err
	}
	if e.wCls, err = v.float("w_cls"); err != nil {
		return nil, err
	}
	if e.wReg == 0 && e.wCls == 0 {
		return nil, errors.New("w_reg=0,w_cls=0: nothing to learn from")
	}
	reg, err := v.one("reg", "smooth", "l1")
	e.l1 = reg == "l1"
	return e, err
}

func (e eagle) Plan(d Labelling) (Plan, error) {
	p := Plan{Levels: 1, Outside: e.outside, Tail: e.tail, Temp: e.temp}
	if e.wReg != 0 {
		p.Regress = 1
	}
	return p, e.check(d)
}

func (e eagle) Build(in Inputs) []Term {
	var ts []Term
	if e.wReg != 0 {
		ts = append(ts, regress(in, 0, e.wReg, e.l1))
	}
	if e.wCls != 0 {
		ts = append(ts, e.cls(in, 0, e.wCls))
	}
	return ts
}
