package draft

import (
	"math"
	"sync"

	"talf/infer"
	"talf/infer/draft/method"
	"talf/infer/draft/search"
	"talf/infer/draft/shape"
	"talf/internal/spec"
)

func dynatreeMethod() Method {
	c := search.DefaultDynaTree()
	return Method{
		Line: spec.Line{
			Name: "dynatree", Doc: "DynaTree: breadth by confidence, depth by path probability, both adjusted by acceptance", Main: "set",
			Params: []spec.Param{
				spec.Choice("set", "defaults of the others: paper, those of the authors' runs; rows, for machines on which the rows of a pass cost", "paper", "rows"),
				method.Nodes(c.N),
				spec.Float("D0", c.D0, spec.Closed(1, shape.MaxDepth), "base depth"),
				spec.Int("Dmax", c.DMax, 1, shape.MaxDepth, "largest depth"),
				spec.Int("root", c.Root, 0, shape.MaxRank+1, "children of the root; 0: by the draft's confidence"),
				spec.Int("Bmin", c.BMin, 1, shape.MaxRank+1, "children if the draft is confident"),
				spec.Int("Bmid", c.BMid, 1, shape.MaxRank+1, "children in between"),
				spec.Int("Bmax", c.BMax, 1, shape.MaxRank+1, "children if it is not"),
				spec.Float("high", c.High, spec.Closed(0, 1), "probability above which it is confident (τh)"),
				spec.Float("low", c.Low, spec.Closed(0, 1), "probability below which it is not (τl)"),
				spec.Float("tau", c.Tau, spec.Below(0, 1), "least probability of a path whose end has children (τ)"),
				spec.Float("stop", c.Stop, spec.Below(0, 1), "the same for the depth gate (ρstop)"),
				spec.Float("deep", c.Deep, spec.Below(0, 1), "probability above which a path continues beyond D0 (ρdeep)"),
				spec.Int("W", 10, 1, 1024, "answers, or rounds, of history"),
				spec.Float("a", 0.7, spec.Closed(0, shape.MaxDepth), "acceptance that history aims at (a*): tokens a round over D0+2, which may exceed 1 where paths go beyond D0"),
				spec.Float("etaD", 1, spec.Closed(0, 100), "step by which it changes D0"),
				spec.Float("etah", 0.05, spec.Closed(0, 100), "step by which it changes high and deep"),
				spec.Switch("breadth", true, "off: Bmid children everywhere"),
				spec.Switch("depth", true, "off: every path ends at a depth of D0+1"),
				spec.Switch("prune", false, "on: leaves whose path is less likely than tau are left out"),
				spec.Choice("history", "what moves the parameters: answers, the acceptance of whole answers, kept across requests; rounds, that of the last rounds; or nothing, off", "answers", "rounds", "off"),
			},
		},
		Source: true,
		Open:   openDynaTree,
	}
}

// rowsOfDynaTree are the defaults of set=rows: the best of a sweep on held-out prompts, which
// docs/measurements/methods-sweeps.md shows.
const rowsOfDynaTree = "N=256,root=0,tau=0.1,deep=0.12,W=8,a=0.6,etaD=0.5,prune=on,history=rounds"

// What moves the parameters, as history= lists it.
const (
	byAnswers = iota
	byRounds
)

func openDynaTree(v spec.Values, _ Env) (Maker, error) {
	if v.Choice("set") == 1 {
		var err error
		if v, err = dynatreeMethod().Under(v, rowsOfDynaTree); err != nil {
			return Maker{}, err
		}
	}
	c := search.DynaTreeConfig{
		N: v.Int("N"), D0: v.Float("D0"), DMax: v.Int("Dmax"), Root: v.Int("root"),
		BMin: v.Int("Bmin"), BMid: v.Int("Bmid"), BMax: v.Int("Bmax"),
		High: v.Float("high"), Low: v.Float("low"), Tau: v.Float("tau"), Stop: v.Float("stop"), Deep: v.Float("deep"),
		Prune: v.On("prune"),
	}
	if err := c.Validate(); err != nil {
		return Maker{}, err
	}
	if !v.On("breadth") {
		c.BMin, c.BMax = c.BMid, c.BMid
	}
	gated := v.On("depth")
	if !gated {
		c.Stop, c.Deep = 0, 0
	}
	d := dynatree{cfg: c, gated: gated}
	h := search.HistoryConfig{Window: v.Int("W"), Want: v.Float("a"), StepD: v.Float("etaD"), Step: v.Float("etah")}
	by := v.Choice("history")
	if by == byAnswers {
		d.answers = &answers{History: *search.NewHistory(h, c)}
	}
	if _, err := d.search(); err != nil {
		return Maker{}, err
	}
	return Maker{Learns: by == byAnswers, New: func() infer.Drafter {
		d := d
		if by == byRounds {
			d.rounds = search.NewRoundHistory(h, c)
		}
		d.s = method.Must(d.search())
		return &d
	}}, nil
}

// answers is the history of all requests.
type answers struct {
	sync.Mutex
	search.History
}

// A dynatree drafts DynaTree's trees.
type dynatree struct {
	cfg     search.DynaTreeConfig // as given
	gated   bool                  // paths may go beyond D0
	answers *answers              // at most one of these is not nil
	rounds  *search.RoundHistory
	s       *search.DynaTree

	tokens, passes int // of this answer, since its prompt
	prompt         int
}

// search returns a search with the current parameters.
func (d *dynatree) search() (*search.DynaTree, error) { return search.NewDynaTree(d.now()) }

// state returns what history has moved.
func (d *dynatree) state() search.DynaTreeState {
	switch {
	case d.answers != nil:
		d.answers.Lock()
		defer d.answers.Unlock()
		return d.answers.State()
	case d.rounds != nil:
		return d.rounds.State()
	}
	return search.DynaTreeState{D0: d.cfg.D0, High: d.cfg.High, Deep: d.cfg.Deep}
}

// now returns the current parameters.
func (d *dynatree) now() search.DynaTreeConfig {
	c, state := d.cfg, d.state()
	c.D0, c.High = state.D0, state.High
	if d.gated {
		c.Deep = state.Deep
		return c
	}
	// Depths are integers: D0 = 4.3 ends paths as D0 = 5 does.
	c.DMax = int(math.Ceil(c.D0)) + 1
	c.D0 = float64(c.DMax)
	return c
}

// Start begins an answer.
func (d *dynatree) Start(prompt []int32) error {
	d.end()
	d.prompt = len(prompt)
	if d.rounds != nil {
		d.rounds.Reset()
	}
	return d.s.Set(d.now())
}

func (d *dynatree) Grow(p *infer.Proposal, rows []infer.Row, c infer.Chance) ([]int, error) {
	return method.Searcher{Limited: d.s}.Grow(p, rows, c)
}

// Observe adapts to the verdicts on d's own trees, and counts the root that an answer with room for
// one more token ends with.
func (d *dynatree) Observe(p infer.Proposal, v infer.Verdict, _ infer.Scores) error {
	t := p.Tree
	last := t.Len() == 1 && p.MaxDepth == 0 && p.MaxNodes > 1
	if p.Pos < d.prompt-1 || t != d.s.Tree() && !last {
		return nil
	}
	d.tokens, d.passes = d.tokens+len(v.Path), d.passes+1
	if d.rounds == nil || t.Len() == 1 {
		return nil
	}
	deepest := 0
	for n := range t.Len() {
		deepest = max(deepest, t.Depth(n))
	}
	d.rounds.Add(float64(len(v.Path)-1) / float64(deepest))
	return d.s.Set(d.now())
}

// end counts the answer that has ended.
func (d *dynatree) end() {
	if d.answers != nil {
		d.answers.Lock()
		d.answers.Add(d.tokens, d.passes)
		d.answers.Unlock()
	}
	d.tokens, d.passes = 0, 0
}

func (d *dynatree) Traits() infer.Traits { return infer.Traits{Finish: d.finish, End: d.end} }

func (d *dynatree) finish(p *infer.Proposal) error { return method.Searcher{Limited: d.s}.End(p) }
