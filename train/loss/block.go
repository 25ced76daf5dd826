package loss

import (
	"errors"
	"fmt"
	"slices"

	"talf/compute"
	"talf/internal/detmath"
	"talf/internal/slab"
	"talf/internal/spec"
)

// The losses of block heads along the text. Row k of a block, from 0, predicts the token k+1 places after
// the anchor. Published trainers divide the sum over the rows by the weights of those that count, or by the
// sequences (dpace); here, as in all losses, it is divided by the positions that count: the anchors.

// fades is how rows weigh less the farther they are from the anchor: exp(−k/gamma).
type fades struct{ gamma float64 }

func gammaParam() spec.Param {
	return spec.Float("gamma", 4, spec.Closed(0, 1000), "rows after which a row weighs less by a factor e; DFlash has 4, 5, 7 for blocks of 8, 10, 16 rows (0: all weigh the same)")
}

// weight returns the weight of row k.
func (f fades) weight(k int) float32 {
	if f.gamma == 0 {
		return 1
	}
	return float32(detmath.Exp(-float64(k) / f.gamma))
}

// blockPlan returns the plan of a loss along the text. Labels are for a confidence head, if for nothing else.
func blockPlan(d Labelling) (Plan, error) {
	if d.Drafts == 0 {
		return Plan{}, errors.New("it is for block heads")
	}
	return Plan{Levels: d.Drafts, Text: true, Once: true, Undrafted: true, Outside: Drop, Tail: true, Temp: 1}, nil
}

// dflash is Σ_k exp(−k/γ)·CE over the rows of blocks (DFlash as SpecForge trains it). The labels are the
// text's tokens or, with labels other than text, the target's distributions (JetSpec; speculators' DFlash).
type dflash struct {
	soft
	fades
	text bool
}

// ownText is the value of labels that takes the text's tokens.
const ownText = "text"

func dflashMethod() Method {
	ps := softParams()
	ps[0] = spec.Choice("labels", "what is learnt: the tokens of the text, or the target's distributions, with the mass outside the top-K labels as one bucket (tail), without it (ignore), or whole, from the target's features (full)",
		ownText, "tail", "ignore", fromFeatures)
	return Method{
		Line: spec.Line{
			Name: "dflash", Doc: "cross-entropy on the rows of blocks along the text, later ones weighing less (DFlash; JetSpec with labels=full,gamma=0)",
			Params: append([]spec.Param{gammaParam()}, ps...),
		},
		New: func(v spec.Values) (Loss, error) {
			d := dflash{soft: newSoft(v), fades: fades{v.Float("gamma")}, text: v.Text("labels") == ownText}
			if d.text && d.temp != 1 {
				return nil, fmt.Errorf("temp=%v is for the target's distributions: want labels=%s", d.temp, fromFeatures)
			}
			return d, nil
		},
	}
}

func (d dflash) Plan(of Labelling) (Plan, error) {
	p, err := blockPlan(of)
	if err != nil || d.text {
		p.Cut = true
		return p, err
	}
	p.Outside, p.Tail, p.Temp, p.Exact = d.outside, d.tail, d.temp, d.exact(of)
	return p, d.check(of)
}

func (d dflash) Build(in Inputs) []Term {
	var ts []Term
	for l := range in.FHat {
		if d.text {
			ts = append(ts, in.CrossEntropy(l, d.weight(l), in.textLabels(l)))
		} else {
			ts = append(ts, d.cls(in, l, d.weight(l)))
		}
		if in.Pair != nil {
			ts = append(ts, in.selector(l, d.weight(l), d.text))
		}
	}
	return ts
}

// textLabels derives labels that are the tokens of the text.
func (in Inputs) textLabels(level int) func(dst, src *compute.SoftLabels) {
	return func(dst, _ *compute.SoftLabels) {
		*dst = compute.SoftLabels{K: 1, IDs: *in.Nodes[level].Next, Prob: dst.Prob[:0]}
		for _, id := range dst.IDs {
			p := float32(1)
			if id < 0 {
				p = 0
			}
			dst.Prob = append(dst.Prob, p)
		}
	}
}

// dpace weighs row k by how much its token is expected to add to the accepted length: with q_i the
// probability that the head gives to the text's token of row i,
//
//	w_k = Σ_{j≥k} Π_{i≤j} ((1−α)·q_i + α)
//
// over the rows that count, without gradient (SpecForge).
type dpace struct{ alpha float64 }

func dpaceMethod() Method {
	return Method{
		Line: spec.Line{
			Name: "dpace", Doc: "cross-entropy on the rows of blocks along the text, each weighed by the accepted length that it is expected to bring (SpecForge's dpace)",
			Params: []spec.Param{spec.Float("alpha", 0.5, spec.Closed(0, 1), "what is added to a row's probability, times what it lacks of 1")},
		},
		New: func(v spec.Values) (Loss, error) { return dpace{v.Float("alpha")}, nil },
	}
}

func (d dpace) Plan(of Labelling) (Plan, error) {
	p, err := blockPlan(of)
	p.Held, p.Cut = true, true
	return p, err
}

func (d dpace) Build(in Inputs) []Term {
	labels := make([]*compute.SoftLabels, len(in.FHat))
	for l := range labels {
		labels[l] = new(compute.SoftLabels)
	}
	own := in
	own.Labels = labels
	t := own.Joint(1, (&paces{dpace: d, in: in}).judge)
	t.relabel = func() {
		for l, s := range labels {
			in.textLabels(l)(s, nil)
		}
	}
	return []Term{t}
}

// paces computes dpace over the blocks of a batch.
type paces struct {
	dpace
	in     Inputs
	before [][]float64 // [level][rows]: Π over the rows up to it
	after  [][]float64 // [level][rows]: its weight
}

// judge is a gg.Judge. A row that does not count is a factor of 1, and no addend.
func (p *paces) judge(q []*compute.SoftLabels, loss, scale []float32) {
	p.before, p.after = slab.Resize(p.before, len(q)), slab.Resize(p.after, len(q))
	root := make([][]int, len(q))
	for l, x := range q {
		mask, n := *p.in.Nodes[l].Mask, len(x.Prob)
		p.before[l], p.after[l], root[l] = slab.Zeros(p.before[l], n), slab.Zeros(p.after[l], n), make([]int, n)
		for r := range n {
			reach := 1.0
			if root[l][r] = r; l > 0 {
				up := (*p.in.Nodes[l].Parent)[r]
				reach, root[l][r] = p.before[l-1][up], root[l-1][up]
			}
			if mask[r] != 0 {
				reach *= float64((1-p.alpha)*float64(x.Prob[r])) + p.alpha
				p.after[l][r] = reach
			}
			p.before[l][r] = reach
		}
	}
	for l := len(q) - 1; l > 0; l-- {
		for r, w := range p.after[l] {
			p.after[l-1][(*p.in.Nodes[l].Parent)[r]] += w
		}
	}
	sum := make([]float64, len(loss))
	for l, x := range q {
		mask := *p.in.Nodes[l].Mask
		for r, prob := range x.Prob {
			w := p.after[l][r]
			if x.Prob[r], x.Tail[r] = 0, 0; mask[r] == 0 || x.IDs[r] < 0 {
				continue
			}
			sum[root[l][r]] -= float64(w * detmath.Log(max(float64(prob), leastQ)))
			x.Prob[r] = float32(w * float64(scale[root[l][r]]))
		}
	}
	for r, s := range sum {
		loss[r] = float32(s)
	}
}

// dspark is, over the rows of blocks (DSpark),
//
//	Σ_k exp(−k/γ)·[w_ce·CE(text) + w_l1·Σ|q − p| + w_sure·BCE(c, 1 − ½Σ|q − p|)]
//
// with p the target's distribution and c what the confidence head says, whose label has no gradient.
// Rows end before the first token that is not learnt. Top-K labels have a tail, compared as one token.
type dspark struct {
	fades
	wCE, wL1, wSure float32
	full            bool
}

func dsparkMethod() Method {
	return Method{
		Line: spec.Line{
			Name: "dspark", Doc: "cross-entropy and total variation on the rows of blocks along the text, and confidence (DSpark)",
			Params: []spec.Param{
				weightParam("w_ce", 0.1, "weight of the cross-entropy with the text's token"),
				weightParam("w_l1", 0.9, "weight of the distance to the target's distribution"),
				weightParam("w_sure", 1, "weight of the confidence head's cross-entropy, if there is one"),
				gammaParam(),
				spec.Choice("labels", "the target's distribution: tail (the top-K labels and one bucket) or full (whole, from its features)", "tail", fromFeatures),
			},
		},
		New: func(v spec.Values) (Loss, error) {
			d := dspark{fades: fades{v.Float("gamma")}, wCE: v.Float32("w_ce"), wL1: v.Float32("w_l1"), wSure: v.Float32("w_sure"), full: v.Text("labels") == fromFeatures}
			if d.wCE == 0 && d.wL1 == 0 {
				return nil, errors.New("w_ce and w_l1 are 0: there is nothing to learn from")
			}
			return d, nil
		},
	}
}

func (d dspark) Plan(of Labelling) (Plan, error) {
	p, err := blockPlan(of)
	p.Ends, p.Exact = true, d.full && of.K != 0
	p.Cut, p.Held = d.wCE != 0, d.wSure != 0
	return p, err
}

func (d dspark) Build(in Inputs) []Term {
	var ts []Term
	for l := range in.FHat {
		w := d.weight(l)
		if d.wCE != 0 {
			ts = append(ts, in.CrossEntropy(l, w*d.wCE, in.textLabels(l)))
		}
		if in.Sure != nil {
			ts = append(ts, in.confidence(l, 2*w*d.wL1, w*d.wSure)...)
		} else if d.wL1 != 0 {
			ts = append(ts, in.variation(l, 2*w*d.wL1, nil))
		}
	}
	return ts
}

// variation returns a term that is the total variation between a level's labels and the head's
// distributions. seen, if not nil, is called with what they share of each row, 1 less that.
func (in Inputs) variation(level int, weight float32, seen func(r int, overlap float64)) Term {
	w := accept{}.walk(in, level+1)
	scale := make([]float32, 0, in.FHat[level].Rows().Max)
	t := Term{Name: "joint", Level: level, Weight: weight, scale: &scale}
	t.Loss = in.Graph.Joint(in.FHat[level:level+1], in.LMHead, in.Labels[level:level+1], &scale, func(q []*compute.SoftLabels, loss, scale []float32) {
		for r := range loss {
			lost := tv(w.row(q[0], level, r), float64(scale[r]))
			if loss[r] = float32(lost); seen != nil {
				seen(r, 1-lost)
			}
		}
	})
	return t
}

// confidence returns the terms of a level's confidence head: it learns the probability that a token drawn
// from the head is accepted. That is known with the total variation, which has a weight of its own.
func (in Inputs) confidence(level int, variation, weight float32) []Term {
	rows := in.FHat[level].Rows().Max
	labels, scale := make([]float32, rows), make([]float32, 0, rows)
	tv := in.variation(level, variation, func(r int, overlap float64) { labels[r] = float32(min(max(overlap, 0), 1)) })
	sure := Term{Name: "sure", Level: level, Weight: weight, scale: &scale}
	sure.Loss = in.Graph.Logistic(in.Sure[level], &labels, &scale, tv.Loss)
	return []Term{tv, sure}
}

// selector returns the term of a level's selector: the cross-entropy of its scores of the likeliest tokens with what
// the labels give these, or the text if text. Of rows whose tokens are all others it is 0 (DFlash 2, as NeMo trains it).
func (in Inputs) selector(level int, weight float32, text bool) Term {
	scale := make([]float32, 0, in.FHat[level].Rows().Max)
	t := Term{Name: "pair", Level: level, Weight: weight, scale: &scale}
	t.Loss = in.Graph.Candidates(in.FHat[level], in.LMHead, in.Pair[level], in.PairHead, in.Top, &scale, func(ids []int32, p []float32) {
		for i, id := range ids {
			if r := i / in.Top; !text {
				p[i] = in.prob(level, r, id)
			} else if p[i] = 0; id == (*in.Nodes[level].Next)[r] {
				p[i] = 1
			}
		}
	})
	return t
}

// prob returns the probability that the labels of a row give a token, 0 if they do not say.
func (in Inputs) prob(level, r int, id int32) float32 {
	l := in.Labels[level]
	if l.Full != nil {
		return l.Full[r*in.Vocab+int(id)]
	}
	for i, x := range l.IDs[r*l.K:][:l.K] {
		if x == id {
			return l.Prob[r*l.K+i]
		}
	}
	return 0
}

// Terms returns the terms of a loss. If there is a confidence head or a selector and the loss has no terms for it,
// they are followed by some with weight 1, so that whatever trains the head trains it, too.
func Terms(l Loss, in Inputs) []Term {
	ts := l.Build(in)
	has := func(name string) bool {
		return slices.ContainsFunc(ts, func(t Term) bool { return t.Name == name })
	}
	sure, pair := has("sure"), has("pair")
	for l := range in.FHat {
		if in.Sure != nil && !sure {
			ts = append(ts, in.confidence(l, 0, 1)...)
		}
		if in.Pair != nil && !pair {
			ts = append(ts, in.selector(l, 1, false))
		}
	}
	return ts
}
