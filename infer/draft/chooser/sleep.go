package chooser

import "talf/infer"

// slept reports whether the candidates have slept through the round, and keeps what was emitted. Where others proposed the
// round's tree, or added to it, they have not.
func (a *chooser) slept(p *infer.Proposal, v infer.Verdict) bool {
	a.dozes = a.dozes && p.Pos == a.at && p.Tree.Len() == 1
	if !a.dozes {
		return false
	}
	a.round = 1
	a.tokens++
	if len(a.missed) == 0 {
		a.missed, a.missedAt = append(a.missed, p.Tree.Token(0)), p.Pos
	}
	a.missed = append(a.missed, v.Next)
	for _, c := range a.all {
		if c.laterNode >= 0 { // the output may leave its tree now
			a.shared.Lock()
			c.laterNode = c.follow(&c.later, c.laterLive, c.laterNode, a.missed[len(a.missed)-1:])
			a.shared.Unlock()
		}
	}
	return true
}

// wake tells the candidates what was emitted while they slept: in rounds in which they were not asked. Their rows are
// gone.
func (a *chooser) wake() error {
	for i, token := range a.missed[:max(len(a.missed)-1, 0)] {
		a.root.Reset(token, 1)
		p := infer.Proposal{Tree: &a.root, Pos: a.missedAt + i, MaxNodes: 1}
		for _, c := range a.all {
			if err := c.d.Observe(p, infer.Verdict{Path: onlyRoot, Next: a.missed[i+1]}, unscored{}); err != nil {
				return err
			}
		}
	}
	a.missed = a.missed[:0]
	return nil
}

var onlyRoot = []int{0}

// unscored are the scores of a round whose rows are gone. Candidates may have grown trees for it at first, if it was begun
// again: one that takes it for the round of its last tree asks for rows.
type unscored struct{ infer.Scores }

func (unscored) TopK(int, int) []infer.Candidate    { return nil }
func (unscored) Rank(dst []int32, _, _ int) []int32 { return dst }
