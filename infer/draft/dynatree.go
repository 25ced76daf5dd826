package draft

import (
	"fmt"

	"talf/infer"
	"talf/infer/draft/search"
	"talf/infer/draft/shape"
	"talf/internal/spec"
)

func dynatreeMethod() Method {
	c := search.DefaultDynaTree()
	return Method{
		Line: spec.Line{
			Name: "dynatree", Doc: "DynaTree: breadth by confidence, depth by path probability, both adjusted by acceptance",
			Params: []spec.Param{
				nodesParam(c.N),
				spec.Float("D0", c.D0, spec.Closed(1, shape.MaxDepth), "base depth"),
				spec.Int("Dmax", c.DMax, 1, shape.MaxDepth, "largest depth"),
				spec.Int("Bmin", c.BMin, 1, shape.MaxRank+1, "children if the draft is confident"),
				spec.Int("Bmid", c.BMid, 1, shape.MaxRank+1, "children in between"),
				spec.Int("Bmax", c.BMax, 1, shape.MaxRank+1, "children if it is not"),
				spec.Float("high", c.High, spec.Closed(0, 1), "probability from which it is confident (τh)"),
				spec.Float("low", c.Low, spec.Closed(0, 1), "probability below which it is not (τl)"),
				spec.Float("tau", c.Prune, spec.Below(0, 1), "least probability of a path"),
				spec.Float("stop", c.Stop, spec.Below(0, 1), "least probability of a path that continues (ρstop)"),
				spec.Float("deep", c.Deep, spec.Below(0, 1), "probability above which a path continues beyond D0 (ρdeep)"),
				spec.Int("W", 8, 1, 1024, "rounds of history"),
				spec.Float("a", 0.6, spec.Between(0, 1), "acceptance that history aims at (a*)"),
				spec.Float("etaD", 0.5, spec.Closed(0, 100), "step by which it changes D0"),
				spec.Float("etah", 0.05, spec.Closed(0, 100), "step by which it changes high"),
				spec.Choice("accept", "how acceptance is measured: depth, the accepted share of the deepest path; nodes, of all drafted nodes", "depth", "nodes"),
				spec.Switch("breadth", true, "off: Bmid children everywhere"),
				spec.Switch("depth", true, "off: every path ends at D0"),
				spec.Switch("prune", true, "off: unlikely leaves stay"),
				spec.Switch("history", true, "off: D0 and high stay as they are"),
			},
		},
		Source: true,
		Open: func(v spec.Values, _ Env) (Maker, error) {
			c := search.DynaTreeConfig{
				N: v.Int("N"), D0: v.Float("D0"), DMax: v.Int("Dmax"),
				BMin: v.Int("Bmin"), BMid: v.Int("Bmid"), BMax: v.Int("Bmax"),
				High: v.Float("high"), Low: v.Float("low"),
				Prune: v.Float("tau"), Stop: v.Float("stop"), Deep: v.Float("deep"),
			}
			if err := c.Validate(); err != nil {
				return Maker{}, err
			}
			h := history{
				window: v.Int("W"), want: v.Float("a"), stepD: v.Float("etaD"), stepHigh: v.Float("etah"),
				nodes: v.Choice("accept") == 1,
			}
			if !v.On("breadth") {
				c.BMin, c.BMax = c.BMid, c.BMid
			}
			deep := v.On("depth")
			if !deep {
				c.Stop, c.Deep = 0, 0
			}
			if !v.On("prune") {
				c.Prune = 0
			}
			if !v.On("history") {
				h.stepD, h.stepHigh = 0, 0
			}
			if _, err := (&dynatree{cfg: c, gated: deep}).search(); err != nil {
				return Maker{}, err
			}
			return Maker{New: func() infer.Drafter {
				d := &dynatree{cfg: c, gated: deep, history: h}
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

// A dynatree drafts DynaTree's trees.
type dynatree struct {
	cfg     search.DynaTreeConfig // as given
	gated   bool                  // paths may go beyond D0
	history history
	s       *search.DynaTree

	d0, high float64
}

// A history adjusts the search to recent acceptance: the paper's proportional control.
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

// search returns a search with d's current depth and threshold.
func (d *dynatree) search() (*search.DynaTree, error) {
	d.d0, d.high = d.cfg.D0, d.cfg.High
	return search.NewDynaTree(d.now())
}

func (d *dynatree) now() search.DynaTreeConfig {
	c := d.cfg
	c.D0, c.High = d.d0, d.high
	if !d.gated {
		// Depths are integers: D0 = 4.3 ends paths at depth 5, as the gate would.
		c.DMax = min(c.DMax, int(c.D0))
		if float64(c.DMax) < c.D0 && c.DMax < d.cfg.DMax {
			c.DMax++
		}
		c.D0 = min(c.D0, float64(c.DMax))
	}
	return c
}

// Start forgets the last sequence's history.
func (d *dynatree) Start([]int32) error {
	d.history.seen, d.history.next = d.history.seen[:0], 0
	d.d0, d.high = d.cfg.D0, d.cfg.High
	return d.s.Set(d.now())
}

func (d *dynatree) Grow(p *infer.Proposal, rows []infer.Row, c infer.Chance) ([]int, error) {
	return searched{d.s}.Grow(p, rows, c)
}

// Observe adapts to the verdicts on d's own trees.
func (d *dynatree) Observe(p infer.Proposal, v infer.Verdict, _ infer.Scores) error {
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
		// The paper clips to 1..Dmax-1; here the range also includes the given D0.
		d.d0 = min(max(d.d0+d.history.stepD*off, 1), max(float64(d.cfg.DMax-1), d.cfg.D0))
	}
	if d.history.stepHigh > 0 {
		d.high = min(max(d.high-d.history.stepHigh*off, d.cfg.Low+minGap), 1)
	}
	return d.s.Set(d.now())
}

// minGap is the smallest distance between the confidence thresholds.
const minGap = 0.01

func (d *dynatree) Traits() infer.Traits { return infer.Traits{Finish: d.finish} }

func (d *dynatree) finish(p *infer.Proposal) error { return searched{d.s}.finish(p) }
