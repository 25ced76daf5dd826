package loss

import (
	"fmt"
	"math"

	"talf/compute"
	"talf/internal/spec"
)

// soft is how a loss treats soft labels.
type soft struct {
	tail    bool
	full    bool // whole distributions, from the target's features
	outside Outside
	temp    float32
	// The top most likely labels have weight 1 in the cross-entropy, all others weight rest. If
	// top is 0, all have weight 1.
	top  int
	rest float32
}

// fromFeatures is the value of labels that asks for Plan.Exact.
const fromFeatures = "full"

// textParams is softParams of a loss whose rows follow the text.
func textParams(outside ...Outside) []spec.Param {
	ps := softParams(outside...)
	ps[0] = spec.Choice("labels", "mass outside the top-K labels: tail (one bucket), ignore, or full (the whole distribution, from the target's features as the data hold them); sets with full labels use them whole",
		"tail", "ignore", fromFeatures)
	return ps
}

// softParams returns the parameters that newSoft reads. outside lists the values of the parameter of
// this name, the default first.
func softParams(outside ...Outside) []spec.Param {
	if outside == nil {
		outside = []Outside{Drop, Renorm, Mask}
	}
	var ways []string
	for _, o := range outside {
		ways = append(ways, string(o))
	}
	return []spec.Param{
		spec.Choice("labels", "mass outside the top-K labels: tail (one bucket) or ignore; sets with full labels use them whole", "tail", "ignore"),
		spec.Choice("outside", "labels outside a draft vocabulary: drop (their mass), renorm (those inside get it) or mask (the same, and nodes whose most likely token is outside do not count)",
			ways...),
		spec.Float("temp", 1, spec.Closed(0.01, 100), "temperature of both distributions, the loss multiplied by its square; other than 1 needs full labels"),
	}
}

func newSoft(v spec.Values) soft {
	return soft{tail: v.Text("labels") == "tail", full: v.Text("labels") == fromFeatures, outside: Outside(v.Text("outside")), temp: v.Float32("temp")}
}

// exact says whether the labels of such data come from the target's features.
func (s soft) exact(d Labelling) bool { return s.full && d.K != 0 }

// check refuses data that lack what the labels are derived from.
func (s soft) check(d Labelling) error {
	if s.full {
		d.K = 0
	}
	if s.temp != 1 && d.K != 0 {
		return fmt.Errorf("temp=%v needs full labels, the data hold %d of a node: the shape of the rest is not known", s.temp, d.K)
	}
	if s.temp != 1 && d.DraftVocab != 0 && s.outside == Drop {
		return fmt.Errorf("temp=%v with a draft vocabulary needs outside=%s or %s: tempered labels have mass 1", s.temp, Renorm, Mask)
	}
	if d.K != 0 && s.top > d.K {
		return fmt.Errorf("top=%d, but the data hold %d labels of a node", s.top, d.K)
	}
	return nil
}

// cls returns a cross-entropy term.
func (s soft) cls(in Inputs, level int, weight float32) Term {
	var relabel func(dst, src *compute.SoftLabels)
	if s.temp != 1 || s.top != 0 {
		best := make([]float32, 0, s.top+1)
		relabel = func(dst, src *compute.SoftLabels) { s.relabel(dst, src, in.Vocab, best) }
	}
	return in.CrossEntropy(level, weight*s.temp*s.temp, relabel)
}

// relabel sets dst to the labels derived from src. best is room for top+1 values.
func (s soft) relabel(dst, src *compute.SoftLabels, vocab int, best []float32) {
	*dst = compute.SoftLabels{
		K: src.K, IDs: src.IDs, Prob: append(dst.Prob[:0], src.Prob...),
		Tail: append(dst.Tail[:0], src.Tail...), Full: append(dst.Full[:0], src.Full...),
	}
	if src.Tail == nil {
		dst.Tail = nil
	}
	p, k := dst.Prob, src.K
	if src.Full != nil {
		p, k = dst.Full, vocab
	} else {
		dst.Full = nil
	}
	for at := 0; at < len(p); at += k {
		row := p[at : at+k]
		if s.temp != 1 {
			temper(row, s.temp)
		}
		if s.top != 0 {
			s.cut(row, best)
		}
	}
	for i := range dst.Tail {
		dst.Tail[i] *= s.rest
	}
}

// temper sets p to p^(1/temp), normalised to sum 1.
func temper(p []float32, temp float32) {
	sum, e := 0.0, 1/float64(temp)
	for _, x := range p {
		sum += math.Pow(float64(x), e)
	}
	for i, x := range p {
		p[i] = float32(math.Pow(float64(x), e) / sum)
	}
}

// cut multiplies all but the top largest of p by rest. Among equal ones the earlier counts as
// larger.
func (s soft) cut(p, best []float32) {
	if s.top >= len(p) {
		return
	}
	// least is the smallest of the largest; left is how many of them equal it.
	best = best[:0]
	for _, x := range p {
		if len(best) == s.top {
			if x <= best[len(best)-1] {
				continue
			}
			best = best[:len(best)-1]
		}
		i := len(best)
		best = append(best, x)
		for ; i > 0 && best[i-1] < x; i-- {
			best[i] = best[i-1]
		}
		best[i] = x
	}
	least, left := best[len(best)-1], 0
	for _, x := range best {
		if x == least {
			left++
		}
	}
	for i, x := range p {
		switch {
		case x > least:
		case x == least && left > 0:
			left--
		default:
			p[i] = x * s.rest
		}
	}
}
