package draft

import (
	"math"
	"slices"
	"strings"

	"talf/infer"
	"talf/tree"
)

// A Candidate is a way to draft. Its children must be chosen without randomness: no verifier is lossless if some of
// those that were drawn are left out.
type Candidate struct {
	Name string
	Asks bool // it asks a draft model
	New  func() infer.Drafter
}

// Union returns a function that makes drafters which propose what all candidates do, as one tree. Which of its nodes
// are scored, and whether the draft model is asked, the controller decides: that is the choice among candidates. At most
// one of them asks a draft model.
func Union(all []Candidate) func() infer.Drafter {
	names := make([]string, 1<<len(all)) // by the set of candidates that propose a node
	for set := range names {
		var in []string
		for i, c := range all {
			if set>>i&1 == 1 {
				in = append(in, c.Name)
			}
		}
		names[set] = strings.Join(in, "+")
	}
	return func() infer.Drafter {
		d := &union{names: names}
		for _, c := range all {
			a := &arm{asks: c.Asks, d: c.New()}
			a.traits = a.d.Traits()
			d.all = append(d.all, a)
		}
		return d
	}
}

// A union drafts the tree of all candidates.
type union struct {
	all   []*arm
	names []string
	root  int32
	tree  tree.Tree
	most  int       // nodes without the draft model's
	from  []int     // by node: the set of candidates that propose it
	claim []float64 // by node: the largest log probability of a candidate, given its parent
	logv  []float64
	at    []int // by node of a candidate's tree: where it is in tree, -1: nowhere
}

// unclaimed is the claim of a node whose candidates claim nothing.
const unclaimed = 0.01

// An arm is a candidate of one sequence.
type arm struct {
	d      infer.Drafter
	traits infer.Traits
	asks   bool
	prop   infer.Proposal
	tree   tree.Tree
}

// Start begins a sequence.
func (d *union) Start(prompt []int32) error {
	for _, a := range d.all {
		if err := a.d.Start(prompt); err != nil {
			return err
		}
	}
	return nil
}

// Traits combines those of the candidates.
func (d *union) Traits() infer.Traits {
	t := infer.Traits{Control: infer.Always, Origins: infer.Origins{Names: d.names, Of: func(n int) int { return d.from[n] }}}
	for _, a := range d.all {
		t.Harvest = max(t.Harvest, a.traits.Harvest)
		if a.asks && a.traits.Finish != nil {
			t.Finish = d.finish
		}
	}
	t.End = func() {
		for _, a := range d.all {
			if a.traits.End != nil {
				a.traits.End()
			}
		}
	}
	return t
}

// Grow proposes what candidates without a draft model do, and lets the other ask.
func (d *union) Grow(p *infer.Proposal, rows []infer.Row, c infer.Chance) (ask []int, err error) {
	if rows == nil {
		d.root = p.Tree.Token(0)
		d.tree.Reset(d.root, p.MaxNodes)
		d.most = p.MaxNodes
		if slices.ContainsFunc(d.all, func(a *arm) bool { return a.asks }) {
			d.most = (p.MaxNodes + 1) / 2 // the rest is the draft model's
		}
		d.from, d.claim = append(d.from[:0], 0), append(d.claim[:0], 0)
	}
	for i, a := range d.all {
		if rows != nil && !a.asks {
			continue
		}
		if rows == nil {
			a.tree.Reset(d.root, p.MaxNodes)
			a.prop = infer.Proposal{Tree: &a.tree, Pos: p.Pos, MaxNodes: p.MaxNodes, MaxDepth: p.MaxDepth, Left: p.Left, Least: p.Least}
		}
		a.prop.Allow, a.prop.May = p.Allow, p.May
		x, err := a.d.Grow(&a.prop, rows, c)
		switch {
		case err != nil:
			return nil, err
		case len(x) == 0:
			d.add(i)
		default:
			ask, p.Work, p.Width, p.Full, p.Reach = x, a.prop.Work, a.prop.Width, a.prop.Full, a.prop.Reach
			if p.Work == nil {
				p.Work = a.prop.Tree
			}
		}
	}
	d.propose(p)
	return ask, nil
}

// finish ends the draft of the candidate that asks.
func (d *union) finish(p *infer.Proposal) error {
	for i, a := range d.all {
		if a.asks {
			if err := a.traits.Finish(&a.prop); err != nil {
				return err
			}
			d.add(i)
		}
	}
	d.propose(p)
	return nil
}

// add adds the nodes of candidate i, as far as there is room.
func (d *union) add(i int) {
	p := &d.all[i].prop
	t := p.Tree
	d.at = append(d.at[:0], 0)
	for n := 1; n < t.Len(); n++ {
		up, at := d.at[t.Parent(n)], -1
		if up >= 0 {
			if at = d.tree.Child(up, t.Token(n)); at < 0 && d.tree.Room() > 0 && (d.all[i].asks || d.tree.Len() < d.most) {
				at = d.tree.Add(up, t.Token(n))
				d.from, d.claim = append(d.from, 0), append(d.claim, math.Log(unclaimed))
			}
		}
		if d.at = append(d.at, at); at >= 0 {
			d.from[at] |= 1 << i
			if p.LogV != nil {
				d.claim[at] = max(d.claim[at], min(p.LogV[n]-p.LogV[t.Parent(n)], 0))
			}
		}
	}
}

// propose sets p's tree.
func (d *union) propose(p *infer.Proposal) {
	d.logv = append(d.logv[:0], 0)
	for n := 1; n < d.tree.Len(); n++ {
		d.logv = append(d.logv, d.logv[d.tree.Parent(n)]+d.claim[n])
	}
	p.Tree, p.LogV = &d.tree, d.logv
}

// Observe tells the candidates.
func (d *union) Observe(p infer.Proposal, v infer.Verdict, s infer.Scores) error {
	for _, a := range d.all {
		if err := a.d.Observe(p, v, s); err != nil {
			return err
		}
	}
	return nil
}
