package train

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"talf/data"
)

// A sample is a sequence and where it comes from.
type sample struct {
	*data.Record
	place  data.Place
	set    int
	before data.State // of the set's reader
}

// A mixture reads sequences of several sets. The next one is of the set that has
// given the fewest positions for its weight, so at any time every set's share is
// right to within a sequence.
type mixture struct {
	sets  []mixed
	limit int     // positions of a sequence that are used
	ahead *sample // read, but put back
}

type mixed struct {
	set    *data.Set
	reader *data.Reader
	weight float64
	spent  int64 // positions
}

// mixturePlace is where a mixture of several sets goes on.
type mixturePlace struct {
	State data.State `json:"state"`
	Spent int64      `json:"spent"`
}

func newMixture(shares []Share, seed uint64, sp data.Split, limit int) (mixture, error) {
	m := mixture{limit: limit}
	for _, s := range shares {
		r, err := s.Set.Shuffled(seed, sp)
		if err != nil {
			return m, err
		}
		m.sets = append(m.sets, mixed{set: s.Set, reader: r, weight: s.Weight})
	}
	return m, nil
}

// next returns the next sequence that has a position to learn from.
func (m *mixture) next() (sample, error) {
	if s := m.ahead; s != nil {
		m.ahead = nil
		m.sets[s.set].spent += int64(span(s.Record, m.limit))
		return *s, nil
	}
	which := 0
	for i := range m.sets {
		if a, b := &m.sets[i], &m.sets[which]; float64(a.spent)/a.weight < float64(b.spent)/b.weight {
			which = i
		}
	}
	x := &m.sets[which]
	ends := 0
	for {
		at := x.reader.State()
		r, err := x.reader.Next()
		switch {
		case errors.Is(err, io.EOF):
			if ends++; ends == 2 {
				return sample{}, errors.New("no training sequence has a position that counts")
			}
		case err != nil:
			return sample{}, err
		default:
			if n := span(r, m.limit); n > 0 {
				x.spent += int64(n)
				return sample{Record: r, place: x.reader.Last(), set: which, before: at}, nil
			}
		}
	}
}

// back puts the last sequence back: next returns it again.
func (m *mixture) back(s sample) {
	m.ahead = &s
	m.sets[s.set].spent -= int64(span(s.Record, m.limit))
}

// place is where next goes on: of one set the reader's own state.
func (m *mixture) place() (json.RawMessage, error) {
	ps := make([]mixturePlace, len(m.sets))
	for i, x := range m.sets {
		ps[i] = mixturePlace{x.reader.State(), x.spent}
		if m.ahead != nil && m.ahead.set == i {
			ps[i].State = m.ahead.before
		}
	}
	if len(ps) == 1 {
		return json.Marshal(ps[0].State)
	}
	return json.Marshal(ps)
}

func (m *mixture) seek(raw json.RawMessage) error {
	ps := make([]mixturePlace, 1)
	to := any(&ps)
	if len(m.sets) == 1 {
		to = &ps[0].State
	}
	if err := json.Unmarshal(raw, to); err != nil {
		return fmt.Errorf("place in the data: %w", err)
	}
	if len(ps) != len(m.sets) {
		return fmt.Errorf("place in the data: %d sets, want %d", len(ps), len(m.sets))
	}
	m.ahead = nil
	for i, p := range ps {
		r, err := m.sets[i].set.Resume(p.State)
		if err != nil {
			return err
		}
		m.sets[i].reader, m.sets[i].spent = r, p.Spent
	}
	return nil
}

// mixID identifies what a run learns from.
func mixID(shares []Share) string {
	if len(shares) == 1 {
		return shares[0].Set.ID()
	}
	var ids []string
	for _, s := range shares {
		ids = append(ids, fmt.Sprintf("%s=%v", s.Set.ID(), s.Weight))
	}
	return strings.Join(ids, "+")
}
