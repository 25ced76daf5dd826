package loss

import "fmt"

// talf is Σ_n CE(p(n), q(n)) over all labelled nodes of a position's tree, the
// head taking its own f̂ down every path, with gradients through it (TALF,
// Algorithm 1). A position's nodes share its mask; the paper has no regression.
type talf struct {
	soft
	wCls, wReg float32
	decay      float32
	levels     int
	l1, detach bool
}

func newTALF(v Values) (Loss, error) {
	var t talf
	var err error
	if t.soft, err = newSoft(v); err != nil {
		return nil, err
	}
	if t.wCls, err = v.float("w_cls"); err != nil {
		return nil, err
	}
	if t.wCls == 0 {
		return nil, fmt.Errorf("w_cls=0: nothing to learn from the trees")
	}
	if t.wReg, err = v.float("w_reg"); err != nil {
		return nil, err
	}
	if t.decay, err = v.float("decay"); err != nil {
		return nil, err
	}
	if t.decay < 1e-3 || t.decay > 1e3 {
		return nil, fmt.Errorf("decay=%s: want 0.001 to 1000", v["decay"])
	}
	if t.levels, err = v.int("levels", 0, 16); err != nil {
		return nil, err
	}
	feed, err := v.one("feed", "flow", "detach")
	if err != nil {
		return nil, err
	}
	reg, err := v.one("reg", "smooth", "l1")
	t.l1, t.detach = reg == "l1", feed == "detach"
	return t, err
}

func (t talf) Plan(d Labelling) (Plan, error) {
	if t.levels > d.Depth {
		return Plan{}, fmt.Errorf("levels=%d, but the trees of the data have %d", t.levels, d.Depth)
	}
	p := Plan{Levels: d.Depth, Outside: t.outside, Tail: t.tail, Temp: t.temp, Detach: t.detach}
	if t.levels > 0 {
		p.Levels = t.levels
	}
	if t.wReg != 0 {
		p.Regress = 1
	}
	return p, t.check(d)
}

func (t talf) Build(in Inputs) []Term {
	var ts []Term
	if t.wReg != 0 {
		ts = append(ts, regress(in, 0, t.wReg, t.l1))
	}
	w := t.wCls
	for l := range in.FHat {
		ts = append(ts, t.cls(in, l, w))
		w *= t.decay
	}
	return ts
}
