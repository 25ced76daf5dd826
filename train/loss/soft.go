package loss

import (
	"fmt"
	"math"

	"talf/compute"
)

// soft is what every loss does with soft labels.
type soft struct {
	tail    bool
	outside Outside
	temp    float32
	// The cross-entropy on the top most likely labels has weight 1, on all
	// others rest; top 0: all have weight 1.
	top  int
	rest float32
}

func newSoft(v Values) (soft, error) {
	labels, err := v.one("labels", "tail", "ignore")
	if err != nil {
		return soft{}, err
	}
	outside, err := v.one("outside", string(Drop), string(Renorm), string(Mask))
	if err != nil {
		return soft{}, err
	}
	temp, err := v.float("temp")
	if err == nil && (temp < 0.01 || temp > 100) {
		err = fmt.Errorf("temp=%s: want 0.01 to 100", v["temp"])
	}
	return soft{tail: labels == "tail", outside: Outside(outside), temp: temp}, err
}

// check refuses data that do not hold what the labels are made of.
func (s soft) check(d Labelling) error {
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

// cls adds a cross-entropy term.
func (s soft) cls(in Inputs, level int, weight float32) Term {
	labels := in.Labels[level]
	t := Term{Name: "cls", Level: level, Weight: weight * s.temp * s.temp}
	if s.temp != 1 || s.top != 0 {
		own, best := new(compute.SoftLabels), make([]float32, 0, s.top+1)
		t.relabel = func() { s.relabel(own, in.Labels[level], in.Vocab, best) }
		labels = own
	}
	scale := make([]float32, 0, in.FHat[level].Rows().Max)
	t.scale = &scale
	t.Loss = in.Graph.SoftCE(in.FHat[level], in.LMHead, labels, &scale)
	return t
}

// relabel sets dst to what the labels src become. best is room for top+1 values.
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

// temper sets p to p^(1/temp), normalised.
func temper(p []float32, temp float32) {
	sum, e := 0.0, 1/float64(temp)
	for _, x := range p {
		sum += math.Pow(float64(x), e)
	}
	for i, x := range p {
		p[i] = float32(math.Pow(float64(x), e) / sum)
	}
}

// cut multiplies all but the top largest of p by rest. Of equal ones the earlier
// count as larger.
func (s soft) cut(p, best []float32) {
	if s.top >= len(p) {
		return
	}
	// least is the smallest of the largest, and left how many equal to it are.
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
