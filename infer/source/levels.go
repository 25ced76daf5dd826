package source

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"talf/compute"
	"talf/infer"
	"talf/model"
	"talf/tree"
)

// A leveller runs levels of a sequence's draft tree before they are asked for, on a device that can choose
// their nodes (compute.Chooser). What runs is a tree of its own, with the nodes that were asked and those that
// nobody has asked for yet. An asked node that has run is answered from there, whatever the order of asking; others
// run as they are asked. So answers never depend on what is expected.
//
// It expects that a round asks for as many nodes of each depth as the last rounds did, and that they are the best
// children of the depth above, by the sum of their log-probabilities. That is what beam search asks for, and what a
// search asks for in several passes whose nodes are the likeliest of all depths, such as SALF's, or those above a
// threshold, such as DynaTree's.
type leveller struct {
	on   bool
	work tree.Tree // what has run, the root first
	node []int     // by node of the tree that is asked: its node of work
	from int       // nodes of work from here on run in this pass
	kept []likely  // by node of work
	ids  []int32   // of all nodes
	logp []float32

	asked []asked // of this round, by depth
	last  [recentRounds][]asked
	noted int    // rounds
	ran   bool   // levels ran ahead in this round
	ranTo int    // depth of the last of them
	wants []bool // by node of work: it was asked
	used  int    // nodes that had run when they were asked

	plan    model.Ahead
	plain   model.Segment // without it
	pass    tree.Tree     // the tree of a segment
	parents []int         // nodes of the pass's first level that were not asked
	tokens  []int32
	score   []float64
}

// A likely is what is known of a node that has run: its likely tokens, and the sum of log-probabilities of its path.
type likely struct {
	at, n int
	score float64
}

// An asked is what a round asked for of one depth.
type asked struct {
	nodes  int
	missed bool // levels of this depth had run ahead, but not all of these nodes
}

const (
	// recentRounds is how many rounds the next one is expected to be like.
	recentRounds = 8
	// aheadStep is what the nodes of a level are rounded up to if their number changes: rows cost by the
	// eight, and a device keeps a graph for each shape of a pass.
	aheadStep = 8
	// triedAgain is after how many rounds levels that did not pay run ahead again.
	triedAgain = 64
)

// begin begins a round.
func (x *leveller) begin(on bool, root int32) {
	if x.on = on; !on {
		return
	}
	if len(x.asked) > 1 {
		past := &x.last[x.noted%recentRounds]
		*past = append((*past)[:0], x.asked...)
		x.noted++
	}
	x.asked = append(x.asked[:0], asked{nodes: 1})
	x.work.Reset(root, tree.MaxNodes)
	x.node, x.from, x.ran, x.ranTo = append(x.node[:0], 0), 0, false, 0
	x.kept, x.wants = append(x.kept[:0], likely{}), append(x.wants[:0], true)
	x.ids, x.logp = x.ids[:0], x.logp[:0]
}

// in returns the node of what runs for node n of what is asked.
func (x *leveller) in(n int) int {
	if x.on {
		return x.node[n]
	}
	return n
}

// rank returns the place of token among the likely ones of work node w, -1 if it is not there.
func (x *leveller) rank(w int, token int32) int {
	k := x.kept[w]
	return slices.Index(x.ids[k.at:][:k.n], token)
}

// add adds a node that runs.
func (x *leveller) add(parent int, token int32) int {
	score := math.Inf(-1)
	if i := x.rank(parent, token); i >= 0 {
		score = x.below(parent, i)
	}
	x.kept, x.wants = append(x.kept, likely{score: score}), append(x.wants, false)
	return x.work.Add(parent, token)
}

// below returns the score of the i-th likely token after work node w; see compute.Choice.
func (x *leveller) below(w, i int) float64 {
	k := &x.kept[w]
	if p := x.logp[k.at+i]; p > float32(math.Inf(-1)) {
		return k.score + min(float64(p), 0)
	}
	return math.Inf(-1)
}

// ask finds the nodes of an ask below the root, and adds those that have not run. It reports whether there are any.
func (x *leveller) ask(a *infer.Ask) (run bool, err error) {
	x.from = x.work.Len()
	for n := a.From; n < a.Tree.Len(); n++ {
		p, token := x.node[a.Tree.Parent(n)], a.Tree.Token(n)
		w := -1
		if !a.Full && a.Allow == nil {
			for w = x.work.Child(p, token); w >= 0; w = x.work.NextSibling(w) {
				if x.work.Token(w) == token && x.kept[w].n >= max(1, a.Width) {
					break
				}
			}
		}
		if w < 0 {
			if x.work.Room() == 0 {
				return false, errors.New("source: a draft tree and what has run beside it are too large")
			}
			w = x.add(p, token)
		}
		x.node = append(x.node, w)
		if !x.wants[w] {
			if x.wants[w] = true; w < x.from {
				x.used++
			}
			d := a.Tree.Depth(n)
			for len(x.asked) <= d {
				x.asked = append(x.asked, asked{})
			}
			x.asked[d].nodes++
			x.asked[d].missed = x.asked[d].missed || w >= x.from && d <= x.ranTo
		}
	}
	return x.from < x.work.Len(), nil
}

// answer returns the row of a node that has run in an earlier pass.
func (x *leveller) answer(a *infer.Ask, n int) infer.Row {
	k, width := x.kept[x.node[n]], max(1, a.Width)
	return infer.Row{Tokens: x.ids[k.at:][:width:width], LogProb: x.logp[k.at:][:width:width]}
}

// keep notes the likely tokens of work node w.
func (x *leveller) keep(w int, ids []int32, logp []float32) {
	n := min(len(ids), len(logp))
	x.kept[w].at, x.kept[w].n = len(x.ids), n
	x.ids, x.logp = append(x.ids, ids[:n]...), append(x.logp, logp[:n]...)
}

// expected returns how many nodes of depth d the last rounds lead to expect, and in which share of those that came to
// depth from they were asked for and had run, if anything had.
func (x *leveller) expected(d, from int) (nodes int, share float64) {
	rounds, with, same := 0, 0, true
	for i := range min(x.noted, recentRounds) {
		last := x.last[i]
		if from >= len(last) {
			continue
		}
		rounds++
		if d >= len(last) || last[d].nodes == 0 {
			continue
		}
		n := last[d].nodes
		same = same && (nodes == 0 || nodes == n)
		nodes = max(nodes, n)
		if !last[d].missed {
			with++
		}
	}
	if nodes == 0 {
		return 0, 0
	}
	if !same {
		nodes = (nodes + aheadStep - 1) / aheadStep * aheadStep
	}
	return nodes, float64(with) / float64(rounds)
}

// tree returns the tree of a segment that runs what was added.
func (x *leveller) tree() *tree.Tree {
	copyTree(&x.pass, &x.work, x.work.Len())
	return &x.pass
}

// copyTree sets dst to t, with room for so many nodes.
func copyTree(dst, t *tree.Tree, room int) {
	dst.Reset(t.Token(0), room)
	for n := 1; n < t.Len(); n++ {
		dst.Add(t.Parent(n), t.Token(n))
	}
}

// prepare makes g, the segment of an ask whose nodes have not run, run the levels that are expected after it, if
// there are any.
func (x *leveller) prepare(h *Head, s *headSeq, a *infer.Ask, g *model.Segment) {
	if !x.on || x.from == x.work.Len() || x.noted == 0 || a.Full || a.Allow != nil || a.Width < 1 {
		return
	}
	n, depth := x.work.Len()-x.from, x.work.Depth(x.from)
	p := &x.plan
	p.K = a.Width
	x.score = x.score[:0]
	for w := x.from; w < x.work.Len(); w++ {
		if x.work.Depth(w) != depth {
			return // a level's rows have one position
		}
		x.score = append(x.score, x.kept[w].score)
	}
	x.parents, x.tokens = x.parents[:0], x.tokens[:0]
	if depth == 1 && !x.ran {
		x.more(p.K)
	}
	above := n + len(x.tokens)
	p.Levels = append(p.Levels[:0], above)
	total := above
	for d := depth + 1; above*p.K <= compute.MostCandidates; d++ {
		m, share := x.expected(d, depth)
		if x.ran { // what runs now is what was missing
			m = min(m, n)
		}
		m = min(m, above*p.K, compute.MostCandidates/p.K)
		if m == 0 || !h.pays(share) || x.work.Len()-n+total+m+a.Tree.Room() > tree.MaxNodes ||
			!h.m.Chains(total+m, p.K) || len(s.tokens)-2+d >= h.m.Spec().MaxPos {
			break
		}
		p.Levels = append(p.Levels, m)
		total, above = total+m, m
	}
	if len(p.Levels) == 1 && (len(x.tokens) == 0 || !h.m.Chains(total, p.K) || x.work.Len()-n+total+a.Tree.Room() > tree.MaxNodes) {
		return
	}
	x.plain = *g
	p.Score = x.score
	for range x.tokens {
		s.feat = append(s.feat, s.fhat.At(0))
	}
	for len(s.feat) < total {
		s.feat = append(s.feat, model.Feature{})
	}
	p.Tree(&x.pass, &x.work, x.from, x.parents, x.tokens)
	g.Feat, g.Tree, g.Ahead = s.feat, &x.pass, p
}

// more adds the root's best children that were not asked yet, as far as they are expected to be.
func (x *leveller) more(k int) {
	m, _ := x.expected(1, 1)
	for i, token := range x.ids[x.kept[0].at:][:x.kept[0].n] {
		n := len(x.score)
		if n >= m || (n+1)*k > compute.MostCandidates {
			return
		}
		if score := x.below(0, i); x.work.Child(0, token) < 0 && score > math.Inf(-1) {
			x.parents, x.tokens, x.score = append(x.parents, 0), append(x.tokens, token), append(x.score, score)
		}
	}
}

// took notes what a pass has made of a segment: what an ask gets, and what ran ahead, of whose rows ids and logp
// are the likely tokens.
func (x *leveller) took(h *Head, a *infer.Ask, rows []infer.Row, g *model.Segment, ids []int32, logp []float32) {
	if a.Allow == nil {
		for i, r := range rows {
			if w := x.node[a.From+i]; w >= x.from && x.kept[w].n == 0 {
				x.keep(w, r.Tokens, r.LogProb)
			}
		}
	}
	if g == nil || g.Ahead == nil {
		return
	}
	p := &x.plan
	row := x.work.Len() - x.from
	h.ahead.ran -= row
	keep := func(parent int, token int32) {
		w := x.add(parent, token)
		x.keep(w, ids[row*p.K:][:p.K], logp[row*p.K:][:p.K])
		row++
	}
	for i, token := range x.tokens {
		keep(x.parents[i], token)
	}
	for l := 1; l < p.Ran; l++ {
		c := &p.Chosen[l-1]
		for i, token := range c.Tokens {
			keep(x.from+int(c.Rows[i]), token)
		}
	}
	h.ahead.ran += row
	x.ran, x.ranTo = true, x.work.Depth(x.work.Len()-1)
}

// find looks for what is asked among what has run, and adds what has not. It reports whether all has run.
func (h *Head) find(asks []infer.Ask) (all bool, err error) {
	all = h.m.Chains(1, 1)
	for i := range asks {
		a := &asks[i]
		s := h.open[a.ID]
		if s == nil {
			return false, fmt.Errorf("source: sequence %d is not open", a.ID)
		}
		if a.Tree == nil {
			s.drop()
			all = false
			continue
		}
		if a.From == 0 {
			s.mute = false
			s.begin()
			s.ahead.begin(h.m.Chains(1, 1), a.Tree.Token(0))
		}
		if s.mute || s.dead || len(s.tokens) == 1 || h.beyond(s, a.Tree) {
			s.mute = true
		}
		if s.mute || a.From == 0 || !s.ahead.on {
			all = false
			continue
		}
		run, err := s.ahead.ask(a)
		if err != nil {
			return false, err
		}
		h.ahead.used, s.ahead.used = h.ahead.used+s.ahead.used, 0
		all = all && !run
	}
	return all && len(asks) > 0, nil
}

// answerAll answers asks whose nodes have all run.
func (h *Head) answerAll(asks []infer.Ask) []infer.Row {
	h.answer.rows = h.answer.rows[:0]
	for i := range asks {
		for n := asks[i].From; n < asks[i].Tree.Len(); n++ {
			h.answer.rows = append(h.answer.rows, h.open[asks[i].ID].ahead.answer(&asks[i], n))
		}
	}
	return h.answer.rows
}

// goAhead lets a pass of one ask run the levels that are expected after it.
func (h *Head) goAhead(asks []infer.Ask) {
	if len(asks) == 1 && len(h.segs) == 1 && h.asked[0] == 0 && asks[0].From > 0 {
		h.heads[0].ahead.prepare(h, h.heads[0], &asks[0], &h.segs[0])
	}
}

// retryWithoutAhead reduces a failed pass to what was asked, which may fit into memory. It reports whether the
// pass had levels that nobody asked for.
func (h *Head) retryWithoutAhead() bool {
	g := &h.segs[0]
	if g.Ahead == nil {
		return false
	}
	x := &h.heads[0].ahead
	*g = x.plain
	g.Tree = x.tree()
	return true
}

// answered notes the answers to asks.
func (h *Head) answered(asks []infer.Ask, rows []infer.Row) {
	for i := range asks {
		a := &asks[i]
		if a.Tree == nil {
			continue
		}
		n := a.Tree.Len() - a.From
		s := h.open[a.ID]
		if s.ahead.on && !s.mute {
			var g *model.Segment
			if seg := h.segOf[i]; seg >= 0 {
				g = &h.segs[seg]
			}
			s.ahead.took(h, a, rows[:n], g, h.answer.ids, h.answer.logps)
		}
		rows = rows[n:]
	}
}
