package model

import (
	"slices"

	"talf/compute"
	"talf/tree"
)

// An Ahead is levels of a draft tree that follow one another in one pass; the device chooses the nodes of all but
// the first (see compute.Chooser). The nodes of each but the first are the best of the K likeliest
// tokens after those of the level above, by the sum of log-probabilities along the path. The
// caller sets K, Levels and Score; a pass does the rest.
type Ahead struct {
	K      int       // likely tokens of each node
	Levels []int     // nodes of each level; the first one's are known
	Score  []float64 // of the first level's nodes

	// Chosen are the nodes of the levels from the second on: tokens, and rows of their parents in the
	// pass. They are valid until the model's next pass.
	Chosen []compute.Chosen
	Ran    int // levels that ran, which are at least one after a pass

	choices []compute.Choice
	first   []int // row of every level's first node
}

// Tree sets dst to t, whose nodes from from on are the first level with others, children of parents; and to a chain
// of levels of unknown nodes below the first of the level.
func (p *Ahead) Tree(dst, t *tree.Tree, from int, parents []int, tokens []int32) {
	total := from
	for _, n := range p.Levels {
		total += n
	}
	dst.Reset(t.Token(0), total)
	for n := 1; n < t.Len(); n++ {
		dst.Add(t.Parent(n), t.Token(n))
	}
	for i, token := range tokens {
		dst.Add(parents[i], token)
	}
	above := from
	for _, n := range p.Levels[1:] {
		first := dst.Len()
		for range n {
			dst.Add(above, 0)
		}
		above = first
	}
}

// begin prepares a pass whose rows are nodes [from,Len) of a tree from Tree. What is chosen goes to tokens and
// rows, which the pass takes it from; until then they hold some node.
func (p *Ahead) begin(t *tree.Tree, from int, tokens, rows []int32) {
	p.first, p.Chosen, p.Ran = p.first[:0], p.Chosen[:0], 0
	at := 0
	for _, n := range p.Levels {
		p.first = append(p.first, at)
		at += n
	}
	for len(p.choices) < len(p.Levels) {
		p.choices = append(p.choices, compute.Choice{})
	}
	score, anc, stride := p.Score, t.Mask()[from*t.Stride():][:p.Levels[0]*t.Stride()], t.Stride()
	for l := 1; l < len(p.Levels); l++ {
		c, m := &p.choices[l-1], p.Levels[l]
		lo := p.first[l]
		best := compute.Chosen{Tokens: tokens[lo : lo+m], Rows: rows[lo : lo+m], Score: slices.Grow(c.Best.Score[:0], m)[:m], Anc: slices.Grow(c.Best.Anc[:0], m*stride)[:m*stride]}
		*c = compute.Choice{N: p.Levels[l-1], K: p.K, M: m, Score: score, Anc: anc, Stride: stride, Row: p.first[l-1], Node: from + lo, Best: best}
		p.Chosen = append(p.Chosen, best)
		score, anc = best.Score, best.Anc
	}
}

// at returns the level whose first node is row r, and the ancestors of its nodes if they are chosen.
func (p *Ahead) at(r int) (nodes int, late []uint64) {
	l := slices.Index(p.first, r)
	if l > 0 {
		late = p.choices[l-1].Best.Anc
	}
	return p.Levels[l], late
}

// next reads the likely tokens of the next level's logits to ids and logp [rows of the pass][K], and chooses
// the level below. It reports whether there is one.
func (p *Ahead) next(can *compute.Abilities, logits compute.Buffer, ids []int32, logp []float32) bool {
	l := p.Ran
	lo, hi := p.K*p.first[l], p.K*(p.first[l]+p.Levels[l])
	can.Replay.ReadTopK(ids[lo:hi], logp[lo:hi], logits, p.K, p.Levels[l])
	if p.Ran++; p.Ran == len(p.Levels) {
		return false
	}
	c := &p.choices[l]
	c.IDs, c.LogProb = ids[lo:hi], logp[lo:hi]
	return can.Choose.Choose(c)
}

// Chains reports whether passes of so many rows may be an Ahead with k likely tokens of a node.
func (m *Model) Chains(rows, k int) bool {
	return m.can.Choose != nil && m.can.Replay != nil && m.spec.Draft && m.ids == nil && m.logitScale == 1 && m.logitCap == 0 &&
		rows <= min(m.opt.MaxRows, mostAheadRows) && k <= min(mostAhead, m.Outputs())
}

// level reads the likely tokens of rows [r,r+n), a level of p, and chooses the next one's. It reports whether
// there is one. Logits of a level are overwritten by the next one's.
func (m *Model) level(o *Output, p *Ahead, r, n int) bool {
	a, b := &m.act, &o.best
	m.q.Gather(a.norm, 0, 0, o.Hidden, a.iota[r:r+n])
	m.q.Linear(a.logits, a.norm, &m.lmHead, compute.Store, n)
	if r == 0 {
		b.room(p.K, o.rows)
		b.used = true
	}
	return p.next(&m.can, a.logits, b.ids, b.logp)
}
