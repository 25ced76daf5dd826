package loss

import "errors"

// eagle is w_reg·SmoothL1(f̂, f) + w_cls·CE(p, q) over the positions of the text
// (EAGLE, Li et al. 2024, §4.2; weights of the TALF paper).
type eagle struct {
	wReg, wCls float32
	l1, tail   bool
}

func newEagle(v Values) (Loss, error) {
	var e eagle
	var err error
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
	if err != nil {
		return nil, err
	}
	labels, err := v.one("labels", "tail", "ignore")
	if err != nil {
		return nil, err
	}
	e.l1, e.tail = reg == "l1", labels == "tail"
	return e, nil
}

func (eagle) Levels(int) int    { return 1 }
func (e eagle) Regresses() bool { return e.wReg != 0 }
func (e eagle) Tail() bool      { return e.tail }

func (e eagle) Build(in Inputs) []Term {
	var ts []Term
	if e.wReg != 0 {
		scale := make([]float32, 0, in.FHat[0].Rows().Max)
		l := in.Graph.SmoothL1(in.FHat[0], in.Target, &scale, e.l1)
		ts = append(ts, Term{Name: "reg", Weight: e.wReg, Loss: l, scale: &scale})
	}
	if e.wCls != 0 {
		ts = append(ts, cls(in, 0, e.wCls))
	}
	return ts
}
