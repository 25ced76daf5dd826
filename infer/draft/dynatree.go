package draft

import (
	"fmt"

	"talf/infer"
	"talf/tree/search"
)

func dynatree() Method {
	return Method{
		Name: "dynatree", Doc: "DynaTree: breadth by confidence, depth by path probability, both by what was accepted", Source: true,
		Params: []Param{
			{"N", "256", "nodes of the tree, root counted"},
			{"D0", "5", "base depth"},
			{"Dmax", "8", "largest depth"},
			{"Bmin", "1", "children where the draft is confident"},
			{"Bmid", "2", "children between"},
			{"Bmax", "3", "children where it is not"},
			{"high", "0.9", "probability from which it is confident (τh)"},
			{"low", "0.4", "probability below which it is not (τl)"},
			{"tau", "0.1", "least probability of a path"},
			{"stop", "0.1", "least probability of a path that goes on (ρstop)"},
			{"deep", "0.12", "probability above which a path goes on beyond D0 (ρdeep)"},
			{"W", "8", "rounds of history"},
			{"a", "0.6", "acceptance that history steers to (a*)"},
			{"etaD", "0.5", "its step of D0"},
			{"etah", "0.05", "its step of high"},
			{"accept", "depth", "what acceptance is: depth, accepted of the deepest path; nodes, accepted of all drafted"},
			{"breadth", "on", "off: Bmid children everywhere"},
			{"depth", "on", "off: every path ends at D0"},
			{"prune", "on", "off: unlikely leaves stay"},
			{"history", "on", "off: D0 and high stay as they are"},
		},
		Open: func(p *Params, _ Env) (Maker, error) {
			c := search.DynaTreeConfig{
				N: p.Int("N"), D0: p.Float("D0"), DMax: p.Int("Dmax"),
				BMin: p.Int("Bmin"), BMid: p.Int("Bmid"), BMax: p.Int("Bmax"),
				High: p.Float("high"), Low: p.Float("low"),
				Prune: p.Float("tau"), Stop: p.Float("stop"), Deep: p.Float("deep"),
			}
			if err := c.Validate(); err != nil {
				return Maker{}, err
			}
			h := history{
				window: p.Int("W"), want: p.Float("a"), stepD: p.Float("etaD"), stepHigh: p.Float("etah"),
				nodes: p.Choice("accept", "depth", "nodes") == 1,
			}
			if !p.On("breadth") {
				c.BMin, c.BMax = c.BMid, c.BMid
			}
			deep := p.On("depth")
			if !deep {
				c.Stop, c.Deep = 0, 0
			}
			if !p.On("prune") {
				c.Prune = 0
			}
			if !p.On("history") {
				h.stepD, h.stepHigh = 0, 0
			}
			switch {
			case h.window < 1 || h.window > 1024:
				return Maker{}, fmt.Errorf("a history of W=%d rounds, want 1..1024", h.window)
			case !(h.want > 0 && h.want < 1):
				return Maker{}, fmt.Errorf("a=%v, want above 0 and below 1", h.want)
			case !(h.stepD >= 0 && h.stepD <= 100 && h.stepHigh >= 0 && h.stepHigh <= 100):
				return Maker{}, fmt.Errorf("etaD and etah are %v and %v, want 0 to 100", h.stepD, h.stepHigh)
			}
			if _, err := (&dyna{cfg: c, gated: deep}).search(); err != nil {
				return Maker{}, err
			}
			return Maker{New: func() infer.Drafter {
				d := &dyna{cfg: c, gated: deep, history: h}
				s, err := d.search()
				if err != nil {
					panic(fmt.Sprintf("draft: a configuration that was accepted is refused: %v", err))
				}
				d.s = s
				return d
			}}, nil
		},
	}
}

// dyna drafts DynaTree's trees.
type dyna struct {
	cfg     search.DynaTreeConfig // as given
	gated   bool                  // paths may go beyond D0
	history history
	s       *search.DynaTree

	d0, high float64
}

// A history steers by what was accepted lately: the paper's proportional control.
type history struct {
	window          int
	want            float64
	stepD, stepHigh float64
	nodes           bool

	seen []float64 // a ring of the last rounds
	next int
}

func (h *history) mean(a float64) float64 {
	if len(h.seen) < h.window {
		h.seen = append(h.seen, a)
	} else {
		h.seen[h.next] = a
		h.next = (h.next + 1) % h.window
	}
	var sum float64
	for _, x := range h.seen {
		sum += x
	}
	return sum / float64(len(h.seen))
}

// search returns a search at d's present depth and threshold.
func (d *dyna) search() (*search.DynaTree, error) {
	d.d0, d.high = d.cfg.D0, d.cfg.High
	return search.NewDynaTree(d.now())
}

func (d *dyna) now() search.DynaTreeConfig {
	c := d.cfg
	c.D0, c.High = d.d0, d.high
	if !d.gated {
		// Depths are whole: D0 = 4.3 ends paths at depth 5, as the gate would.
		c.DMax = min(c.DMax, int(c.D0))
		if float64(c.DMax) < c.D0 && c.DMax < d.cfg.DMax {
			c.DMax++
		}
		c.D0 = min(c.D0, float64(c.DMax))
	}
	return c
}

// Start forgets the last sequence's history.
func (d *dyna) Start([]int32) error {
	d.history.seen, d.history.next = d.history.seen[:0], 0
	d.d0, d.high = d.cfg.D0, d.cfg.High
	return d.s.Set(d.now())
}

func (d *dyna) Grow(p *infer.Proposal, rows []infer.Row, c infer.Chance) ([]int, error) {
	return searched{d.s}.Grow(p, rows, c)
}

// Observe adapts to what became of d's own trees.
func (d *dyna) Observe(p infer.Proposal, v infer.Verdict, _ infer.Scores) error {
	t := p.Tree
	if t != d.s.Tree() || t.Len() < 2 {
		return nil
	}
	all := t.Len() - 1
	if !d.history.nodes {
		all = 0
		for n := range t.Len() {
			all = max(all, t.Depth(n))
		}
	}
	off := d.history.mean(float64(len(v.Path)-1)/float64(all)) - d.history.want
	if d.history.stepD > 0 {
		// The paper clips to 1..Dmax-1, which must hold D0 as given too.
		d.d0 = min(max(d.d0+d.history.stepD*off, 1), max(float64(d.cfg.DMax-1), d.cfg.D0))
	}
	if d.history.stepHigh > 0 {
		d.high = min(max(d.high-d.history.stepHigh*off, d.cfg.Low+minGap), 1)
	}
	return d.s.Set(d.now())
}

// minGap keeps the confidence thresholds apart.
const minGap = 0.01
