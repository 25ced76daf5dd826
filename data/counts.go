package data

// Counts returns how often each token of the vocabulary is to be learnt in a part
// of the set: [Vocab]. It reads the text alone, not trees, labels or features.
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
