package draft

import (
	"math"
	"slices"

	"talf/infer"
	"talf/infer/draft/memory"
	"talf/infer/draft/method"
	"talf/infer/draft/shape"
	"talf/infer/lookup"
	"talf/internal/spec"
	"talf/tree"
)

func gooseMethod() Method {
	share := spec.Closed(0, 1)
	return Method{
		Line: spec.Line{
			Name: "goose", Doc: "GOOSE: a spine copied from the context, with branches of likely transitions",
			Params: slices.Concat([]spec.Param{
				method.Nodes(60),
				spec.Int("D", 6, 1, shape.MaxDepth, "most edges of a branch, from where it leaves the spine"),
				spec.Int("K", 10, 1, lookup.MaxWidth, "successors that the table keeps per token, and most children made of them"),
				spec.Float("rho", 0.5, share, "share of branches that go to the spine instead of the root"),
				spec.Float("r", 0, share, "share of nodes for the spine; auto: by its running acceptance").Or("auto").With("auto"),
				spec.Float("ema", 0.3, share, "weight of the newest round in running acceptance"),
				spec.Int("spine", 20, 0, tree.MaxNodes-1, "most tokens of the spine; 0 drafts transitions alone"),
				spec.Choice("from", "where the spine's tokens come from: context; table keeps only its shape", "context", "table"),
			}, method.Ngrams(), []spec.Param{
				spec.Choice("pick", "which earlier occurrence is copied", "latest", "first"),
				spec.Switch("wrap", true, "a copy that reaches the end of the text goes on with itself: on or off"),
				spec.Int("bypass", 8, 0, tree.MaxNodes, "a longer match is drafted as a chain without branches"),
				spec.Choice("trust", "what is longer: match, the text that the occurrence has in common with the newest tokens; copy, what is copied", "match", "copy"),
				spec.Switch("consensus", true, "a match is also drafted so if any two lengths of n-grams agree on its next token: on or off"),
				spec.Switch("branches", true, "branches below the spine: on or off"),
				spec.Choice("alloc", "their allocation: harmonic or linear (Proposition 2)", "harmonic", "linear"),
				spec.Choice("extend", "what extends branches: the best successors of all; breadth first, several for a likely node; or breadth first, one for each", "best", "breadth", "one"),
				spec.Float("score", 0.01, share, "least probability of a successor"),
				spec.Switch("bigram", true, "condition transitions on two tokens: on or off"),
			}, method.Learning()),
		},
		Open: func(v spec.Values, _ Env) (Maker, error) {
			lo, hi, err := method.ReadNgrams(v)
			if err != nil {
				return Maker{}, err
			}
			c := gooseConfig{
				n: v.Int("N"), depth: v.Int("D"), width: v.Int("K"), rho: v.Float("rho"), ema: v.Float("ema"),
				spine: v.Int("spine"), invent: v.Choice("from") == 1,
				bypass: v.Int("bypass"), consensus: v.On("consensus"), branches: v.On("branches"),
				linear: v.Choice("alloc") == 1, extend: v.Choice("extend"),
				first: v.Choice("pick") == 1, wrap: v.On("wrap"), copied: v.Choice("trust") == 1,
				score: v.Float("score"), adapt: v.Is("r", "auto"),
			}
			if !c.adapt {
				c.r = v.Float("r")
			}
			remember := method.Remembering(v, lo, hi, c.width, v.On("bigram"), false)
			return Maker{Learns: method.Keeps(v), New: func() infer.Drafter { return &goose{Memory: remember(), cfg: c} }}, nil
		},
	}
}

type gooseConfig struct {
	n, depth, width, spine, bypass int
	rho, r, ema, score             float64
	adapt                          bool // r follows the spine's acceptance
	invent                         bool // the table's tokens on the spine
	first, wrap, copied            bool // pick, wrap and trust
	consensus, branches, linear    bool
	extend                         int
}

// What extends branches, as extend= lists it.
const (
	extendsBest = iota
	extendsBreadth
	extendsOne
)

// Initial running acceptances: the spine's is Algorithm 2's, the branches' is the median that
// the paper measures (§3).
const (
	firstSpine  = 0.3
	firstBranch = 0.033
)

// A goose drafts GOOSE's trees. A round drafts one of three (Algorithm 2): a chain if the
// context match is confident, a spine with branches if there is a match or a transition, nothing
// otherwise.
type goose struct {
	memory.Memory
	cfg               gooseConfig
	onSpine, onBranch float64 // running acceptances p̂_s and p̂_t

	chain  []int32
	tree   *tree.Tree  // of the round
	nodes  []spineNode // by node of it
	logV   []float64
	widths []int // branches of the root and of each spine node
	queue  []offer
}

// A spineNode is what the construction of a tree records about a node.
type spineNode struct {
	spine bool
	edges int     // from the spine; 0 on it
	score float64 // estimated probability that the node is accepted
	share float64 // its probability among its siblings of the same origin
	next  []lookup.Successor
}

// An offer is the next successor of a node that could be added.
type offer struct {
	node, rank int
	score      float64
}

func (d *goose) Start(prompt []int32) error {
	d.onSpine, d.onBranch = firstSpine, firstBranch
	return d.Memory.Start(prompt)
}

func (d *goose) Grow(p *infer.Proposal, _ []infer.Row, _ infer.Chance) ([]int, error) {
	d.Table.Lock()
	defer d.Table.Unlock()
	d.nodes = append(d.nodes[:0], spineNode{spine: true, score: 1})
	d.chain = d.chain[:0]
	most := min(d.cfg.n, p.MaxNodes)
	sure := false
	if m, ok := d.match(); ok {
		length := d.cfg.spine
		if !d.cfg.wrap {
			length = min(length, d.Context.Len()-m.Next)
		}
		d.chain = d.Context.Continue(d.chain, m.Next, min(length, p.MaxDepth, most-1))
		// Algorithm 2 compares |d|, which a copy that continues through the context nearly
		// always reaches. §4.3 means to measure trust in the match, so trust=match counts the
		// tokens that the match has in common with the end of the sequence.
		if !d.cfg.copied {
			length = d.Context.Length(m.Next, d.cfg.bypass+1)
		}
		sure = length > d.cfg.bypass || m.Agree && d.cfg.consensus
		if d.cfg.invent {
			d.inventChain(p)
		}
	}
	if !sure || d.lay(p, len(d.chain)) == 0 {
		d.build(p, most)
	}
	d.tree, d.logV = p.Tree, d.logV[:0]
	for _, n := range d.nodes {
		d.logV = append(d.logV, math.Log(n.score))
	}
	p.LogV = d.logV
	return nil, nil
}

func (d *goose) match() (lookup.Match, bool) {
	if d.cfg.first {
		return d.Context.MatchFirst()
	}
	return d.Context.Match()
}

// inventChain replaces the tokens of the chain with the most likely transitions.
func (d *goose) inventChain(p *infer.Proposal) {
	before, token := d.Before(p, 0), p.Tree.Token(0)
	for i := range d.chain {
		next := d.Table.Next(before, token)
		if len(next) == 0 {
			d.chain = d.chain[:i]
			return
		}
		before, token = token, next[0].Token
		d.chain[i] = token
	}
}

// lay adds the first n tokens of the chain below the root, as far as they may come, and returns their number.
func (d *goose) lay(p *infer.Proposal, n int) int {
	for i, token := range d.chain[:n] {
		if !memory.May(p, i, token) {
			return i
		}
		d.add(p, i, token, spineNode{spine: true, score: d.nodes[i].score * d.onSpine})
	}
	return n
}

func (d *goose) add(p *infer.Proposal, parent int, token int32, n spineNode) {
	p.Tree.Add(parent, token)
	d.nodes = append(d.nodes, n)
}

// ratio returns the share of nodes for the spine: SPINERATIOTIER of Algorithm 2 with the tiers
// of table 5.
func (d *goose) ratio() float64 {
	switch {
	case !d.cfg.adapt:
		return d.cfg.r
	case d.onSpine < 0.2:
		return 0.15
	case d.onSpine < 0.4:
		return 0.30
	}
	return 0.50
}

// build is Algorithm 1 for a budget of b nodes. Without a spine the root alone has branches.
func (d *goose) build(p *infer.Proposal, b int) {
	spine := d.lay(p, min(len(d.chain), floor(float64(b)*d.ratio()))) // step 1
	d.allocate(b-1-spine, spine)
	for i, width := range d.widths { // steps 2 and 3
		d.attach(p, i, width, b)
	}
	if d.cfg.extend == extendsBest { // step 4
		d.extendBest(p, b)
	} else {
		d.extendBreadth(p, b)
	}
}

// floor returns ⌊x⌋, tolerating a rounding error just below an integer.
func floor(x float64) int { return int(math.Floor(x + 1e-9)) }

// allocate returns how many branches of budget the root and each node of a spine get.
func (d *goose) allocate(budget, spine int) {
	switch {
	case spine == 0: // the root has its share, which is as wide as Algorithm 1 has it, but not nothing
		d.widths = append(d.widths[:0], max(1, floor(float64(budget)*(1-d.cfg.rho))))
	case !d.cfg.branches:
		d.widths = append(d.widths[:0], floor(float64(budget)*(1-d.cfg.rho)))
	case d.cfg.linear:
		d.widths = linearWidths(d.widths[:0], budget, spine, d.cfg.width, d.onSpine, d.onBranch)
	default:
		d.widths = harmonicWidths(d.widths[:0], budget, spine, d.cfg.rho)
	}
}

// harmonicWidths appends Algorithm 1's allocation of budget branches: b_r for the
// root, then a_i for each node of the spine.
func harmonicWidths(dst []int, budget, spine int, rho float64) []int {
	root := floor(float64(budget) * (1 - rho))
	dst = append(dst, root)
	sum := 0.0
	for i := 1; i <= spine; i++ {
		sum += 1 / float64(i)
	}
	for i := 1; i <= spine; i++ {
		dst = append(dst, floor(float64(budget-root)/float64(i)/sum))
	}
	return dst
}

// linearWidths appends Proposition 2's allocation of budget branches to the root and to all of
// the spine's nodes but the last: w_i = w_0 − i·|ln p_s|/|ln(1−p_t)| if positive, at most k,
// with the largest w_0 that the budget allows.
func linearWidths(dst []int, budget, spine, k int, ps, pt float64) []int {
	n := spine
	slope := math.Log(clamp(ps)) / math.Log1p(-clamp(pt))
	width := func(w0 float64, i int) int { return min(max(floor(w0-slope*float64(i)), 0), k) }
	total := func(w0 float64) (sum int) {
		for i := range n {
			sum += width(w0, i)
		}
		return sum
	}
	lo, hi := 0.0, float64(k)+slope*float64(n)
	if total(hi) <= budget {
		lo = hi
	}
	for range 50 {
		if mid := (lo + hi) / 2; total(mid) <= budget {
			lo = mid
		} else {
			hi = mid
		}
	}
	for i := range n {
		dst = append(dst, width(lo, i))
	}
	return dst
}

// clamp keeps a measured probability away from 0 and 1, whose logarithms are useless for
// an allocation.
func clamp(p float64) float64 { return min(max(p, 1e-3), 1-1e-3) }

// attach adds up to width successors of a node of the spine while the tree is smaller
// than b.
func (d *goose) attach(p *infer.Proposal, node, width, b int) {
	if p.Tree.Depth(node) == p.MaxDepth {
		return
	}
	first := p.Tree.Len()
	for _, x := range d.After(p, node) {
		if p.Tree.Len() == min(first+width, b) || float64(x.Score) < d.cfg.score {
			break
		}
		if p.Tree.Child(node, x.Token) < 0 {
			d.add(p, node, x.Token, spineNode{edges: 1, score: d.nodes[node].score * float64(x.Score), share: float64(x.Score)})
		}
	}
	d.shares(first)
}

// shares normalises the shares of siblings, nodes [first,Len), to sum to 1.
func (d *goose) shares(first int) {
	sum := 0.0
	for _, n := range d.nodes[first:] {
		sum += n.share
	}
	for i := range d.nodes[first:] {
		d.nodes[first+i].share /= sum
	}
}

// extends reports whether branch node n may have children.
func (d *goose) extends(p *infer.Proposal, n int) bool {
	return !d.nodes[n].spine && d.nodes[n].edges < d.cfg.depth && p.Tree.Depth(n) < p.MaxDepth
}

// extendBreadth visits the branches' nodes in the order in which they were added. Each gets a
// number of children between 1 and K, in proportion to its score among its siblings (appendix
// C.1).
func (d *goose) extendBreadth(p *infer.Proposal, b int) {
	for n := 0; n < p.Tree.Len() && p.Tree.Len() < b; n++ {
		if !d.extends(p, n) {
			continue
		}
		x := d.nodes[n]
		first, most := p.Tree.Len(), 1
		if d.cfg.extend == extendsBreadth {
			most = max(1, floor(float64(d.cfg.width)*x.share))
		}
		for _, s := range d.After(p, n) {
			if p.Tree.Len() == min(first+most, b) || float64(s.Score) < d.cfg.score {
				break
			}
			d.add(p, n, s.Token, spineNode{edges: x.edges + 1, score: x.score * float64(s.Score), share: float64(s.Score)})
		}
		d.shares(first)
	}
}

// extendBest adds the successor that is most likely to be accepted, whichever
// branch it extends, until the tree has b nodes.
func (d *goose) extendBest(p *infer.Proposal, b int) {
	d.queue = d.queue[:0]
	for n := range p.Tree.Len() {
		d.offer(p, n)
	}
	for p.Tree.Len() < b && len(d.queue) > 0 {
		o := d.pop()
		x := &d.nodes[o.node]
		token, edges := x.next[o.rank].Token, x.edges
		d.push(o.node, o.rank+1)
		n := p.Tree.Len()
		d.add(p, o.node, token, spineNode{edges: edges + 1, score: o.score})
		d.offer(p, n)
	}
}

// offer queues the first successor of node n.
func (d *goose) offer(p *infer.Proposal, n int) {
	if d.extends(p, n) {
		d.nodes[n].next = d.After(p, n)
		d.push(n, 0)
	}
}

func (d *goose) push(node, rank int) {
	x := &d.nodes[node]
	if rank == len(x.next) || float64(x.next[rank].Score) < d.cfg.score {
		return
	}
	d.queue = append(d.queue, offer{node, rank, x.score * float64(x.next[rank].Score)})
	for i := len(d.queue) - 1; i > 0 && d.queue[i].before(d.queue[(i-1)/2]); i = (i - 1) / 2 {
		d.queue[i], d.queue[(i-1)/2] = d.queue[(i-1)/2], d.queue[i]
	}
}

func (d *goose) pop() offer {
	q := d.queue
	top, last := q[0], len(q)-1
	q[0], q = q[last], q[:last]
	for i := 0; ; {
		c := 2*i + 1
		if c+1 < last && q[c+1].before(q[c]) {
			c++
		}
		if c >= last || !q[c].before(q[i]) {
			break
		}
		q[i], q[c] = q[c], q[i]
		i = c
	}
	d.queue = q
	return top
}

// before orders offers: more likely first, then by earlier node.
func (a offer) before(b offer) bool {
	return a.score > b.score || a.score == b.score && a.node < b.node
}

// Observe learns, and tracks how much of the spine and the branches is accepted.
func (d *goose) Observe(p infer.Proposal, v infer.Verdict, s infer.Scores) error {
	if !d.Prefill(p.Pos) && p.MaxDepth > 0 && p.Tree == d.tree && p.Tree.Len() == len(d.nodes) {
		var drafted, kept [2]float64
		for n := 1; n < len(d.nodes); n++ {
			drafted[d.origin(n)]++
		}
		for _, n := range v.Path[1:] {
			kept[d.origin(n)]++
		}
		for i, running := range []*float64{&d.onSpine, &d.onBranch} {
			if drafted[i] > 0 {
				*running += d.cfg.ema * (kept[i]/drafted[i] - *running)
			}
		}
	}
	return d.Memory.Observe(p, v, s)
}

func (d *goose) Traits() infer.Traits { return d.Memory.Traits(d.origin, "spine", "branch") }

func (d *goose) origin(n int) int {
	if d.nodes[n].spine {
		return 0
	}
	return 1
}
