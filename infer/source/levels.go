package source

import (
	"math"
	"slices"

	"talf/infer"
	"talf/model"
	"talf/tree"
)

// A leveller runs levels of a sequence's draft tree before they are asked for, on a device that can choose
// their nodes (compute.Chooser): it expects that the next round asks as the last one did. It knows one rule, that of
// beam search: a level is the best of the children of the level above, by the sum of their log-probabilities, best
// first. What is asked is compared with what has run, so that answers never depend on the rule.
type leveller struct {
	// Of this round: the levels below the root so far, as long as the rule has chosen all but the first.
	levels []int
	last   []int // of the round before
	broken bool  // a level was not the rule's choice

	// Of the last level that was asked: its first node, likely tokens of each, and scores of all nodes.
	from, k int
	ids     []int32
	logps   []float32
	score   []float64

	// What has run ahead: nodes [next,end) of work, and likely tokens of each node from first on.
	plan      model.Ahead
	plain     model.Segment // without it
	tree      tree.Tree
	first     int
	next, end int
	tokens    []int32
	parents   []int
	aheadIDs  []int32
	aheadP    []float32
	rows      []infer.Row
}

// begin begins a round.
func (x *leveller) begin() {
	x.last, x.levels = append(x.last[:0], x.levels...), x.levels[:0]
	x.broken, x.next, x.end = false, 0, 0
	x.score = append(x.score[:0], 0)
}

// took notes the rows that answer an ask for nodes from from on.
func (x *leveller) took(from int, rows []infer.Row) {
	x.from, x.k = from, 0
	x.ids, x.logps = x.ids[:0], x.logps[:0]
	for i, r := range rows {
		if i == 0 {
			x.k = len(r.Tokens)
		}
		if len(r.Tokens) != x.k || len(r.LogProb) != x.k {
			x.broken = true
			return
		}
		x.ids, x.logps = append(x.ids, r.Tokens...), append(x.logps, r.LogProb...)
	}
}

// candidate returns the score of candidate c of the last level; see compute.Choice.
func (x *leveller) candidate(c int) float64 {
	if p := x.logps[c]; p > float32(math.Inf(-1)) {
		return x.score[x.from+c/x.k] + min(float64(p), 0)
	}
	return math.Inf(-1)
}

// ask notes the nodes of an ask below the root, and whether the rule chooses them.
func (x *leveller) ask(a *infer.Ask) {
	if x.broken = x.broken || len(x.score) != a.From || x.k == 0; x.broken {
		return
	}
	last, best := -1, math.Inf(1)
	for n := a.From; n < a.Tree.Len(); n++ {
		row := a.Tree.Parent(n) - x.from
		i := -1
		if row >= 0 && (row+1)*x.k <= len(x.ids) {
			i = slices.Index(x.ids[row*x.k:][:x.k], a.Tree.Token(n))
		}
		if i < 0 {
			x.broken = true
			return
		}
		c := row*x.k + i
		s := x.candidate(c)
		if a.From > 1 && (s > best || s == best && c < last) {
			x.broken = true
			return
		}
		last, best = c, s
		x.score = append(x.score, s)
	}
	if a.From > 1 {
		before := 0
		for c := range x.ids {
			if s := x.candidate(c); s > best || s == best && c <= last {
				before++
			}
		}
		if before != a.Tree.Len()-a.From {
			x.broken = true
			return
		}
	}
	x.levels = append(x.levels, a.Tree.Len()-a.From)
}

// answer returns the rows of an ask whose nodes have run, or nil.
func (x *leveller) answer(a *infer.Ask) []infer.Row {
	n := a.Tree.Len() - a.From
	k := x.plan.K
	if x.next == 0 || a.From != x.next || a.Tree.Len() > x.end || a.Full || a.Allow != nil || max(1, a.Width) != k {
		return nil
	}
	for i := a.From; i < a.From+n; i++ {
		if at := i - x.first; a.Tree.Token(i) != x.tokens[at] || a.Tree.Parent(i) != x.parents[at] {
			return nil
		}
	}
	x.rows = x.rows[:0]
	for i := a.From; i < a.From+n; i++ {
		at := (i - x.first) * k
		x.rows = append(x.rows, infer.Row{Tokens: x.aheadIDs[at : at+a.Width], LogProb: x.aheadP[at : at+a.Width]})
	}
	x.next += n
	return x.rows
}

// prepare makes g, the segment of an ask for the first level, run the levels that are expected after it, if
// there are any.
func (x *leveller) prepare(h *Head, s *headSeq, a *infer.Ask, g *model.Segment) {
	n := a.Tree.Len() - a.From
	if !h.m.Chains(n, a.Width) || a.From != 1 || len(x.last) < 2 || x.broken || a.Full || a.Allow != nil || a.Width < 1 {
		return
	}
	p := &x.plan
	p.K, p.Levels, p.Score = a.Width, append(p.Levels[:0], n), x.score[1:]
	total, above := n, n
	for _, m := range x.last[1:] {
		if m > above*p.K || above*p.K > mostCandidates || 1+total+m > tree.MaxNodes || len(s.tokens)-2+len(p.Levels)+1 >= h.m.Spec().MaxPos {
			break
		}
		p.Levels = append(p.Levels, m)
		total, above = total+m, m
	}
	if len(p.Levels) < 2 || !h.m.Chains(total, p.K) {
		return
	}
	x.plain = *g
	p.Tree(&x.tree, a.Tree, a.From)
	for len(s.feat) < total {
		s.feat = append(s.feat, model.Feature{})
	}
	g.Feat = s.feat
	g.Tree, g.Ahead = &x.tree, p
}

// keep notes what ran ahead, of whose rows ids and logps are the likely tokens.
func (x *leveller) keep(ids []int32, logps []float32) {
	p := &x.plan
	x.first = p.Levels[0] + 1
	x.tokens, x.parents = x.tokens[:0], x.parents[:0]
	ran := p.Levels[0]
	for l := 1; l < p.Ran; l++ {
		for i, token := range p.Chosen[l-1].Tokens {
			x.tokens, x.parents = append(x.tokens, token), append(x.parents, 1+int(p.Chosen[l-1].Rows[i]))
		}
		ran += p.Levels[l]
	}
	x.next, x.end = x.first, 1+ran
	x.aheadIDs = append(x.aheadIDs[:0], ids[p.Levels[0]*p.K:ran*p.K]...)
	x.aheadP = append(x.aheadP[:0], logps[p.Levels[0]*p.K:ran*p.K]...)
}

// mostCandidates bounds what a device is asked to choose from.
const mostCandidates = 1024

// expect prepares for what is asked. If it has run, expect returns the answer, and otherwise nil.
func (h *Head) expect(asks []infer.Ask) []infer.Row {
	if !h.m.Chains(1, 1) {
		return nil
	}
	for i := range asks {
		s := h.open[asks[i].ID]
		switch {
		case s == nil:
		case asks[i].From == 0:
			s.ahead.begin()
		default:
			s.ahead.ask(&asks[i])
		}
	}
	if len(asks) != 1 || h.open[asks[0].ID] == nil {
		return nil
	}
	x := &h.open[asks[0].ID].ahead
	rows := x.answer(&asks[0])
	if rows == nil {
		x.next = 0
		return nil
	}
	h.read = 0
	x.took(asks[0].From, rows)
	return rows
}

// goAhead lets a pass of one ask run the levels that are expected after it.
func (h *Head) goAhead(asks []infer.Ask) {
	if len(asks) == 1 && len(h.segs) == 1 && h.asked[0] == 0 {
		h.heads[0].ahead.prepare(h, h.heads[0], &asks[0], &h.segs[0])
	}
}

// goNoFurther makes the pass that failed one of what was asked alone, for which there may be room. It reports
// whether the pass was more.
func (h *Head) goNoFurther() bool {
	g := &h.segs[0]
	if g.Ahead == nil {
		return false
	}
	*g = h.heads[0].ahead.plain
	return true
}

// answered notes the answers to asks.
func (h *Head) answered(asks []infer.Ask, rows []infer.Row) {
	if !h.m.Chains(1, 1) {
		return
	}
	if len(h.segs) == 1 && h.segs[0].Ahead != nil {
		h.heads[0].ahead.keep(h.answer.ids, h.answer.logps)
	}
	for _, a := range asks {
		n := a.Tree.Len() - a.From
		h.open[a.ID].ahead.took(a.From, rows[:n])
		rows = rows[n:]
	}
}
