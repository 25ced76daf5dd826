package data

import "fmt"

// Counts returns how often each token of the vocabulary is trained on in a part of the
// set: [Vocab]. It reads only the text, not trees, labels or features.
func (s *Set) Counts(sp Split) ([]int64, error) {
	from, to, err := sp.rows(s.rows)
	if err != nil {
		return nil, err
	}
	counts := make([]int64, s.meta.Vocab)
	for i := range s.groups {
		g := &s.groups[i]
		lo, hi := max(from-g.first, 0), min(to-g.first, g.rows)
		if lo >= hi {
			continue
		}
		rows, err := s.readWith(g, (*shardFile).text)
		if err != nil {
			return nil, err
		}
		for _, r := range rows[lo:hi] {
			for j, x := range r.Tokens {
				if r.LossMask[j] {
					counts[x]++
				}
			}
		}
	}
	return counts, nil
}

// A Coverage says how much of the trained tokens and labels a part of the vocabulary
// covers.
type Coverage struct {
	Tokens int64     `json:"tokens"`     // trained on
	Inside int64     `json:"inside"`     // of these, in the part
	Levels []float64 `json:"label_mass"` // share of the labels' mass, by tree level
}

// Share returns the covered share of the tokens.
func (c *Coverage) Share() float64 { return float64(c.Inside) / float64(max(c.Tokens, 1)) }

// Cover measures how much of a part of the set the tokens ids cover: of the tokens
// trained on, and of the labels of the trees at the positions before them. Tails are
// not counted, because their tokens are unknown.
func (s *Set) Cover(sp Split, ids []int32) (Coverage, error) {
	m := &s.meta
	c := Coverage{Levels: make([]float64, m.Depth)}
	from, to, err := sp.rows(s.rows)
	if err != nil {
		return c, err
	}
	in := make([]bool, m.Vocab)
	for _, id := range ids {
		if id < 0 || int(id) >= m.Vocab {
			return c, fmt.Errorf("data: token %d, want 0 to %d", id, m.Vocab-1)
		}
		in[id] = true
	}
	all, inside := make([]kahan, m.Depth), make([]kahan, m.Depth)
	n := m.Nodes()
	depth := make([]int, n)
	for i := range s.groups {
		g := &s.groups[i]
		lo, hi := max(from-g.first, 0), min(to-g.first, g.rows)
		if lo >= hi {
			continue
		}
		rows, err := s.read(g)
		if err != nil {
			return c, err
		}
		for _, r := range rows[lo:hi] {
			for p, learnt := range r.LossMask {
				if !learnt {
					continue
				}
				c.Tokens++
				if in[r.Tokens[p]] {
					c.Inside++
				}
				for j := range n {
					if p == 0 {
						break // nothing precedes the first token
					}
					at := (p-1)*n + j
					depth[j] = 0
					if up := int(r.TreeParents[at]); up >= 0 && up < j {
						depth[j] = min(depth[up]+1, m.Depth-1)
					}
					d := depth[j]
					if m.Labels != TopK {
						for id, x := range r.LabelFull[at*m.Vocab:][:m.Vocab] {
							if all[d].add1(float64(x)); in[id] {
								inside[d].add1(float64(x))
							}
						}
						continue
					}
					for k, id := range r.LabelIDs[at*m.K:][:m.K] {
						x := float64(r.LabelProbs[at*m.K+k])
						if all[d].add1(x); in[id] {
							inside[d].add1(x)
						}
					}
				}
			}
		}
	}
	for d := range c.Levels {
		if all[d].sum > 0 {
			c.Levels[d] = inside[d].sum / all[d].sum
		}
	}
	return c, nil
}
