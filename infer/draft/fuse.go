package draft

import (
	"errors"
	"math"
	"slices"
	"sync"

	"talf/infer"
	"talf/infer/draft/memory"
	"talf/infer/draft/method"
	"talf/infer/draft/shape"
	"talf/infer/lookup"
	"talf/infer/lookup/datastore"
	"talf/internal/spec"
	"talf/tree"
)

func fuseMethod() Method {
	return Method{
		Line: spec.Line{
			Name: "fuse",
			Doc:  "one tree from a draft model, the context, a table of transitions and a datastore, calibrated online",
			Params: []spec.Param{
				method.Nodes(60),
				spec.Int("B", 10, 1, shape.MaxRank+1, "nodes that the draft model is asked for per round"),
				spec.Float("th", fitted.th, spec.Below(0, 1), "stop asking when the probability not covered by drafted children sums to less"),
				spec.Switch("head", true, "ask the draft model, if there is one"),
				spec.Switch("context", true, "continue earlier occurrences of the newest tokens"),
				spec.Choice("table", "transitions that the target showed: on, in this request; keep, in earlier ones too; off", "on", "keep", "off"),
				spec.File("file", "datastore, made by talf datastore build (empty: none)"),
			},
		},
		May:  true,
		Open: openFuse,
	}
}

type fuseConfig struct {
	n, b          int
	th            float64
	head, context bool
}

func openFuse(v spec.Values, e Env) (Maker, error) {
	c := fuseConfig{n: v.Int("N"), b: v.Int("B"), th: v.Float("th"), head: v.On("head") && e.Source, context: v.On("context")}
	use, file := v.Choice("table"), v.File("file")
	if !c.head && !c.context && use == 2 && file == "" {
		return Maker{}, errors.New("no source is on: give a draft model, or one of context=on, table=on and file=FILE")
	}
	shared := &fuseShared{calibration: &calibration{fuseConstants: fitted}}
	mk := Maker{Learns: true, Files: v.Files()} // the calibration
	if file != "" {
		s, err := method.OpenStore(file, e)
		if err != nil {
			return Maker{}, err
		}
		shared.store, mk.Close = s, s.Close
	}
	if use == 1 {
		shared.table = &memory.Table{Transitions: lookup.NewTransitions(fuseWidth, true), Keep: true}
	}
	mk.New = func() infer.Drafter {
		d := &fuse{cfg: c, shared: shared, Memory: memory.Memory{Context: lookup.NewContext(1, fuseGrams), Table: shared.table}}
		if use == 0 {
			d.Table = &memory.Table{Transitions: lookup.NewTransitions(fuseWidth, true)}
		}
		return d
	}
	return mk, nil
}

// fuseShared is what the drafters of one specification share.
type fuseShared struct {
	sync.Mutex
	*calibration
	store *datastore.Store // nil: none
	table *memory.Table    // nil: none, or each drafter has its own
}

const (
	fuseWidth  = 10 // successors of a row, of the table and of the draft model
	fuseGrams  = 5  // longest n-gram of the index
	fusePlaces = 6  // occurrences that a candidate follows
	fuseLong   = 32 // longest match that is distinguished from longer ones
	fuseStore  = 16 // longest look-up in the datastore
	fuseFinds  = 12 // look-ups in the datastore per round
	fuseFew    = 8  // places in the datastore below which shorter suffixes are looked up too
)

// A fuse grows one tree from several sources at once: the search of TALF's Algorithm 2 (salf)
// over candidates of the draft model, of earlier places of the sequence, of transitions that the
// target showed, and of a datastore. A spine copied from the context, the branches off it and
// the head's nodes compete for the same budget by the probability that their path is accepted.
//
// Training-free sources cost no pass, so they extend every node that is among the best N at
// once. The draft model is asked, as in salf, for the B best nodes it can reach, round by round;
// a node counts with the probability that its children in the tree do not cover yet, and the
// search stops once these sum to less than th. A long copy thus asks the draft model once. With
// the draft model alone, and before verdicts have taught anything, the tree is salf's node for
// node.
//
// A token that several sources propose is one candidate; a calibration merges their estimates
// into one probability.
type fuse struct {
	memory.Memory
	cfg    fuseConfig
	shared *fuseShared

	cands    []candidate
	top      []int32 // the best n, best first
	heap     []int32 // not opened, best first
	ask      []int
	asked    []int32 // candidates of ask
	work     tree.Tree
	may      func(t *tree.Tree, n int, token int32) bool // of the round's proposal
	opened   tree.Tree                                   // the opened candidates, if it is needed to say what may follow
	n        int                                         // most nodes, root counted
	maxDepth int
	pos      int     // of the root; -1: no tree of ours was scored
	node     []int32 // candidate of each node
	finds    int
	reach    float64 // what the nodes of ask cover that no child does yet
	succ     []datastore.Next
	key      []int32
}

// A candidate may become a node.
type candidate struct {
	score       float64 // log of the probability that its path is accepted
	logp        float64 // of its own, given its parent's
	parent      int32
	token       int32
	depth       int32
	first, next int32 // child, sibling; -1: none
	work        int32 // node of the work tree, -1: not asked
	place       int32 // node of the tree of opened candidates, -1: it had no room
	opened, ran bool  // children come from the training-free sources; from the draft model
	know        uint8 // sources that know what follows
	places      int8
	ev          [origins]evidence
	at          [fusePlaces]int32 // positions of the sequence that continue its path
	long        [fusePlaces]int8  // tokens that match there
	store       datastore.Match
}

func (d *fuse) Start(prompt []int32) error {
	d.pos = -1
	return d.Memory.Start(prompt)
}

func (d *fuse) Grow(p *infer.Proposal, rows []infer.Row, _ infer.Chance) ([]int, error) {
	d.shared.Lock()
	defer d.shared.Unlock()
	if d.Table != nil {
		d.Table.Lock()
		defer d.Table.Unlock()
	}
	if rows == nil {
		d.begin(p)
		if d.cfg.head && d.n > 1 {
			d.request(0)
			p.Work, p.Width = &d.work, fuseWidth
			return d.ask, nil
		}
	}
	for i := range rows {
		d.merge(d.asked[i], &rows[i])
	}
	d.rank()
	if d.cfg.head && d.n > 1 && d.next() {
		p.Reach = d.reach
		return d.ask, nil
	}
	d.plant(p)
	if d.shared.store != nil {
		return nil, d.shared.store.Err()
	}
	return nil, nil
}

// plant makes the tree of the best candidates.
func (d *fuse) plant(p *infer.Proposal) {
	d.node = append(d.node[:0], 0)
	for _, c := range d.top[1:] {
		x := &d.cands[c]
		parent := slices.Index(d.node, x.parent)
		p.Tree.Add(parent, x.token)
		d.node = append(d.node, c)
	}
}

// finish ends the tree with the rows of the draft model that came so far.
func (d *fuse) finish(p *infer.Proposal) error {
	d.shared.Lock()
	defer d.shared.Unlock()
	if d.Table != nil {
		d.Table.Lock()
		defer d.Table.Unlock()
	}
	d.rank()
	d.plant(p)
	if d.shared.store != nil {
		return d.shared.store.Err()
	}
	return nil
}

// begin starts a tree below the newest token.
func (d *fuse) begin(p *infer.Proposal) {
	d.n, d.maxDepth, d.pos = min(d.cfg.n, p.MaxNodes), p.MaxDepth, p.Pos
	d.finds = 0
	d.cands = append(d.cands[:0], candidate{parent: -1, token: p.Tree.Token(0), first: -1, next: -1, work: -1})
	d.work.Reset(p.Tree.Token(0), min(8*d.n+d.cfg.b, tree.MaxNodes))
	if d.may = p.May; d.may != nil {
		d.opened.Reset(p.Tree.Token(0), tree.MaxNodes)
	}
	d.ask, d.asked = d.ask[:0], d.asked[:0]
}

// request appends a candidate, whose parent was asked, to the work tree.
func (d *fuse) request(c int32) {
	x := &d.cands[c]
	x.work = 0
	if x.parent >= 0 {
		x.work = int32(d.work.Add(int(d.cands[x.parent].work), x.token))
	}
	d.ask, d.asked = append(d.ask, int(x.work)), append(d.asked, c)
}

// next asks for the most promising nodes and reports whether there are any.
func (d *fuse) next() bool {
	d.ask, d.asked = d.ask[:0], d.asked[:0]
	sum := 0.0
	for _, c := range d.top {
		x := &d.cands[c]
		if x.work >= 0 || int(x.depth) >= d.maxDepth || !d.cands[x.parent].ran {
			continue
		}
		if len(d.asked) == d.cfg.b {
			break
		}
		// The part that its children in the tree already cover is no gain.
		left := 1.0
		for k := x.first; k >= 0; k = d.cands[k].next {
			left -= math.Exp(d.cands[k].logp)
		}
		sum += math.Exp(x.score) * max(left, 0)
		d.asked = append(d.asked, c)
	}
	picked := d.asked
	d.reach = sum
	if len(picked) == 0 || sum < d.cfg.th || d.work.Room() < len(picked) {
		return false
	}
	d.asked = d.asked[:0]
	for _, c := range picked {
		d.request(c)
	}
	return true
}

// merge adds the draft model's row for c.
func (d *fuse) merge(c int32, row *infer.Row) {
	d.open(c)
	d.cands[c].ran = true
	if len(row.Tokens) > 0 {
		d.cands[c].know |= 1 << fromHead
	}
	for r, t := range row.Tokens {
		if lp := float64(row.LogProb[r]); lp > math.Inf(-1) && r < fuseWidth {
			d.propose(c, t, fromHead, r, math.Exp(min(lp, 0)))
		}
	}
	d.settle(c)
}

// propose records that a source proposes token after c.
func (d *fuse) propose(c, token int32, o origin, rank int, q float64) int32 {
	k := d.child(c, token)
	e := &d.cands[k].ev[o]
	if e.cell < 0 {
		*e = d.shared.evidence(o, int(d.cands[k].depth), rank, q)
	}
	return k
}

// child returns c's child that carries token.
func (d *fuse) child(c, token int32) int32 {
	last := int32(-1)
	for k := d.cands[c].first; k >= 0; k = d.cands[k].next {
		if d.cands[k].token == token {
			return k
		}
		last = k
	}
	k := int32(len(d.cands))
	d.cands = append(d.cands, candidate{parent: c, token: token, depth: d.cands[c].depth + 1, first: -1, next: -1, work: -1})
	x := &d.cands[k]
	for o := range x.ev {
		x.ev[o].cell = -1
	}
	if last < 0 {
		d.cands[c].first = k
	} else {
		d.cands[last].next = k
	}
	return k
}

// settle gives c's children their probabilities, which sum to 1 at most.
func (d *fuse) settle(c int32) {
	know, sum := d.cands[c].know, 0.0
	for k := d.cands[c].first; k >= 0; k = d.cands[k].next {
		x := &d.cands[k]
		x.logp = min(d.shared.probability(&x.ev, know), highest)
		sum += x.logp
	}
	scale := 1.0
	if sum > 1 {
		scale = 1 / sum
	}
	for k := d.cands[c].first; k >= 0; k = d.cands[k].next {
		d.cands[k].logp = math.Log(d.cands[k].logp * scale)
	}
}

// rank scores all candidates, opens those that are among the best and keeps the
// best n.
func (d *fuse) rank() {
	d.top, d.heap = d.top[:0], d.heap[:0]
	for i := range d.cands {
		x := &d.cands[i]
		if i > 0 {
			x.score = d.cands[x.parent].score + x.logp
		}
		d.enter(int32(i))
	}
	for len(d.heap) > 0 {
		c := d.pop()
		if !d.good(c) {
			break // and so are all that follow
		}
		d.open(c)
		for k := d.cands[c].first; k >= 0; k = d.cands[k].next {
			x := &d.cands[k]
			x.score = d.cands[c].score + x.logp
			d.enter(k)
		}
	}
}

// good reports whether c may be one of the best n.
func (d *fuse) good(c int32) bool {
	return len(d.top) < d.n || !d.before(d.top[len(d.top)-1], c)
}

// enter puts c among the best and among those to open.
func (d *fuse) enter(c int32) {
	if !d.good(c) {
		return
	}
	i, _ := slices.BinarySearchFunc(d.top, c, func(a, b int32) int {
		if d.before(a, b) {
			return -1
		}
		return 1
	})
	if len(d.top) == d.n {
		d.top = d.top[:d.n-1]
	}
	d.top = slices.Insert(d.top, i, c)
	if x := &d.cands[c]; !x.opened && int(x.depth) < d.maxDepth {
		d.push(c)
	}
}

// before orders candidates: higher score, then shallower, then earlier.
func (d *fuse) before(a, b int32) bool {
	x, y := &d.cands[a], &d.cands[b]
	if x.score != y.score {
		return x.score > y.score
	}
	if x.depth != y.depth {
		return x.depth < y.depth
	}
	return a < b
}

func (d *fuse) push(c int32) {
	d.heap = append(d.heap, c)
	for i := len(d.heap) - 1; i > 0; {
		up := (i - 1) / 2
		if !d.before(d.heap[i], d.heap[up]) {
			break
		}
		d.heap[i], d.heap[up] = d.heap[up], d.heap[i]
		i = up
	}
}

func (d *fuse) pop() int32 {
	c, last := d.heap[0], len(d.heap)-1
	d.heap[0] = d.heap[last]
	d.heap = d.heap[:last]
	for i := 0; ; {
		k := 2*i + 1
		if k+1 < last && d.before(d.heap[k+1], d.heap[k]) {
			k++
		}
		if k >= last || !d.before(d.heap[k], d.heap[i]) {
			return c
		}
		d.heap[i], d.heap[k] = d.heap[k], d.heap[i]
		i = k
	}
}

// Observe learns from the verdict on the last tree.
func (d *fuse) Observe(p infer.Proposal, v infer.Verdict, s infer.Scores) error {
	if p.Pos == d.pos && p.Tree.Len() == len(d.node) {
		d.shared.Lock()
		for i, n := range v.Path {
			next := v.Next
			if i+1 < len(v.Path) {
				next = p.Tree.Token(v.Path[i+1])
			}
			c := &d.cands[d.node[n]]
			for k := c.first; k >= 0; k = d.cands[k].next {
				d.shared.learn(&d.cands[k].ev, c.know, d.cands[k].token == next)
			}
		}
		d.shared.Unlock()
	}
	d.pos = -1
	return d.Memory.Observe(p, v, s)
}

func (d *fuse) Traits() infer.Traits {
	t := d.Memory.Traits(d.origin, originNames...)
	t.Finish = d.finish
	return t
}

func (d *fuse) origin(n int) int {
	best := 0
	x := &d.cands[d.node[n]]
	for o := range x.ev {
		if x.ev[o].cell >= 0 && (x.ev[best].cell < 0 || x.ev[o].odds > x.ev[best].odds) {
			best = o
		}
	}
	return best
}
