package mix

import (
	"fmt"

	"talf/data"
)

// massVocab returns the size tokens that have the most mass in the labels of the part of the data
// that sp names, ascending: of all nodes of the trees at positions whose next token is learnt. It
// is what the target would write, where CountVocab takes what the text says. Tails are not counted,
// because their tokens are unknown. Sets count by their weights.
func massVocab(shares Shares, sp data.Split, size int) ([]int32, error) {
	if len(shares) == 0 {
		return nil, fmt.Errorf("draft vocabulary: no data")
	}
	vocab := shares[0].Set.Meta().Vocab
	if size < 1 || size > vocab {
		return nil, fmt.Errorf("draft vocabulary of %d tokens, want 1 to the target's %d", size, vocab)
	}
	score := make([]float64, vocab)
	for _, s := range shares {
		m := s.Set.Meta()
		if m.Vocab != vocab {
			return nil, fmt.Errorf("draft vocabulary: the data are of vocabularies of %d and %d tokens", vocab, m.Vocab)
		}
		mass, err := masses(s.Set, &m, sp)
		if err != nil {
			return nil, fmt.Errorf("draft vocabulary: %w", err)
		}
		all := 0.0
		for _, x := range mass {
			all += x
		}
		for id, x := range mass {
			if all > 0 {
				score[id] += float64(s.Weight * (x / all))
			}
		}
	}
	return most(score, size), nil
}

// masses returns the mass of each token in the labels of a part of a set.
func masses(set *data.Set, m *data.Meta, sp data.Split) ([]float64, error) {
	mass := make([]float64, m.Vocab)
	rows, err := set.Count(sp)
	if err != nil {
		return nil, err
	}
	r, err := set.Sequential(sp)
	if err != nil {
		return nil, err
	}
	n := m.Nodes()
	for range rows {
		rec, err := r.Next()
		if err != nil {
			return nil, err
		}
		for p := 1; p < len(rec.Tokens); p++ {
			if !rec.LossMask[p] {
				continue
			}
			from, end := (p-1)*n, p*n
			if m.Labels == data.Full {
				for i, x := range rec.LabelFull[from*m.Vocab : end*m.Vocab] {
					mass[i%m.Vocab] += float64(x)
				}
				continue
			}
			for i, id := range rec.LabelIDs[from*m.K : end*m.K] {
				mass[id] += float64(rec.LabelProbs[from*m.K+i])
			}
		}
	}
	return mass, nil
}
