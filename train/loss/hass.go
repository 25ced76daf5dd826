package loss

import "errors"

// hass is eagle's loss and a top-K distillation, added over several aligned
// passes (HASS, Zhang et al. 2025, §3). Pass 1 is fed the target's features,
// pass j at position i the head's f̂ of pass j−1 at position i−1, and it sees
// true keys up to i−j+1 and after them the keys of passes 2..j: what a node at
// depth j−1 sees in decoding, on the path that the text itself took. So a pass is
// a level of a tree with one branch.
//
// The public implementation multiplies scores by masks of 0 and 1 before the
// softmax, where masked keys still take weight; here they are not seen at all,
// as in decoding.
//
// Top-K distillation is −Σ_{x∈topK(p)} p(x)·log q(x), p not normalised again. It
// and the cross-entropy are both linear in log q: one term holds both, the
// likeliest labels with weight w_cls + w_topk and the others with w_cls.
type hass struct {
	soft
	wReg, wDist float32 // wDist is w_cls + w_topk
	passes      int
	l1, flow    bool
	cuts        bool
}

func newHASS(v Values) (Loss, error) {
	var h hass
	var err error
	if h.soft, err = newSoft(v); err != nil {
		return nil, err
	}
	var wCls, wTop float32
	if h.wReg, err = v.float("w_reg"); err != nil {
		return nil, err
	}
	if wCls, err = v.float("w_cls"); err != nil {
		return nil, err
	}
	if wTop, err = v.float("w_topk"); err != nil {
		return nil, err
	}
	if h.top, err = v.int("top", 1, 1<<20); err != nil {
		return nil, err
	}
	if h.passes, err = v.int("passes", 1, 16); err != nil {
		return nil, err
	}
	feed, err := v.one("feed", "detach", "flow")
	if err != nil {
		return nil, err
	}
	reg, err := v.one("reg", "smooth", "l1")
	if err != nil {
		return nil, err
	}
	h.wDist = wCls + wTop
	if h.wReg == 0 && h.wDist == 0 {
		return nil, errors.New("w_reg=0,w_cls=0,w_topk=0: nothing to learn from")
	}
	if h.l1, h.flow, h.cuts = reg == "l1", feed == "flow", wTop != 0; h.cuts {
		h.rest = wCls / h.wDist
	} else {
		h.top = 0
	}
	return h, nil
}

func (h hass) Plan(d Labelling) (Plan, error) {
	p := Plan{Levels: h.passes, Text: true, Detach: !h.flow, Outside: h.outside, Tail: h.tail, Temp: h.temp, Cut: h.cuts}
	if h.wReg != 0 {
		p.Regress = h.passes
	}
	return p, h.check(d)
}

func (h hass) Build(in Inputs) []Term {
	var ts []Term
	for l := range in.FHat {
		if h.wReg != 0 {
			ts = append(ts, regress(in, l, h.wReg, h.l1))
		}
		if h.wDist != 0 {
			ts = append(ts, h.cls(in, l, h.wDist))
		}
	}
	return ts
}
