package papers

import (
	"talf/infer"
	"talf/infer/draft/memory"
	"talf/infer/draft/shape"
	"talf/infer/lookup"
)

// A recycler drafts as Token Recycling does (Luo et al. 2025): the tree's shape is fixed, and a
// node's r-th child carries the r-th likeliest successor of the node's token when the target last saw
// that token.
type recycler struct {
	memory.Memory
	Shape shape.Shape
	// Zeros: a token that the table does not know has the successors that it has in the authors'
	// matrix of zeros, token 0 at every rank.
	Zeros bool
	// Late: a round's rows are learned when the next round begins, so that those of an answer's
	// last round are not: as in the authors' code, whose table outlives the answer.
	Late bool

	at    []int // by slot: the node there, -1 for none
	pos   int   // of the root of the last tree
	nodes int   // of that tree
	late  []late
	ids   []int32
	next  []lookup.Successor
}

// A late row is not yet learned.
type late struct {
	token int32
	ids   []int32 // best first
}

// Start begins a sequence.
func (d *recycler) Start(prompt []int32) error {
	d.late, d.pos, d.nodes = d.late[:0], -1, 0
	return d.Memory.Start(prompt)
}

// zero is a row of zeros.
var zero = make([]lookup.Successor, lookup.MaxWidth)

// Grow fills the shape. Slots of one parent with the same token, as a row of zeros has them, are one
// node with the children of all: what can be accepted is the same.
func (d *recycler) Grow(p *infer.Proposal, _ []infer.Row, _ infer.Chance) ([]int, error) {
	d.Table.Lock()
	defer d.Table.Unlock()
	d.learnLate()
	t := p.Tree
	d.at = append(d.at[:0], 0)
	for i, x := range d.Shape {
		var next []lookup.Successor
		if d.at[i] >= 0 && t.Depth(d.at[i]) < p.MaxDepth {
			if next = d.After(p, d.at[i]); len(next) == 0 && d.Zeros {
				next = zero[:d.Table.Width()]
			}
		}
		// The children of slots are in the order of slots.
		for _, child := range d.Shape[x.First : x.First+x.Kids] {
			n := -1
			if child.Rank < len(next) {
				token := next[child.Rank].Token
				if d.Zeros {
					n = t.Child(d.at[i], token)
				}
				if n < 0 && t.Room() > 0 {
					n = t.Add(d.at[i], token)
				}
			}
			d.at = append(d.at, n)
		}
	}
	d.pos, d.nodes = p.Pos, t.Len()
	return nil, nil
}

// Observe learns the rows of all nodes. Of nodes with the same token the last one's stays: in the
// order of slots, which is that of the authors' rows.
func (d *recycler) Observe(p infer.Proposal, v infer.Verdict, s infer.Scores) error {
	mine := p.Pos == d.pos && p.Tree.Len() == d.nodes
	if !mine || !d.Zeros && !d.Late || d.Harvest == memory.Verified || d.Prefill(p.Pos) {
		return d.Memory.Observe(p, v, s)
	}
	d.Table.Lock()
	defer d.Table.Unlock()
	d.learnLate()
	d.ids, d.late = d.ids[:0], d.late[:0]
	k := d.Table.Width()
	for _, n := range d.at {
		if n < 0 {
			continue
		}
		from := len(d.ids)
		if d.ids = s.Rank(d.ids, n, k); len(d.ids) > from { // otherwise a replay lacks the row
			d.late = append(d.late, late{p.Tree.Token(n), d.ids[from:len(d.ids):len(d.ids)]})
		}
	}
	if !d.Late {
		d.learnLate()
	}
	d.Follow(p, v)
	return nil
}

// learnLate learns the rows that were put off. The table is locked.
func (d *recycler) learnLate() {
	for _, x := range d.late {
		d.next = d.next[:0]
		for _, id := range x.ids {
			d.next = append(d.next, lookup.Successor{Token: id})
		}
		d.Table.Learn(-1, x.token, d.next)
	}
	d.late = d.late[:0]
}

// Traits are those of a memory whose nodes are all branches.
func (d *recycler) Traits() infer.Traits { return d.Memory.Traits(d.origin, "branch") }

func (d *recycler) origin(int) int { return 0 }
