package mix

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"talf/data"
)

// A Sample is a sequence and its origin.
type Sample struct {
	*data.Record
	Place  data.Place
	Set    int        // index
	before data.State // of the set's reader
}

// A Reader reads the sequences of several sets. The next one comes from the set that has
// given the fewest positions in proportion to its weight, so at any time every set's
// share is right to within a sequence.
type Reader struct {
	sets  []source
	limit int     // positions of a sequence that are used
	early int     // see Learnt
	ahead *Sample // put back by Back
}

type source struct {
	set    *data.Set
	reader *data.Reader
	weight float64
	spent  int64 // positions
}

// A place is where one of several sets continues.
type place struct {
	State data.State `json:"state"`
	Spent int64      `json:"spent"`
}

// NewReader reads the part of the sets that sp names, shuffled by seed. At most limit
// head positions of a sequence are used; early says which of them count, see Learnt.
func NewReader(shares Shares, seed uint64, sp data.Split, limit, early int) (*Reader, error) {
	m := &Reader{limit: limit, early: early}
	for _, s := range shares {
		r, err := s.Set.Shuffled(seed, sp)
		if err != nil {
			return nil, err
		}
		m.sets = append(m.sets, source{set: s.Set, reader: r, weight: s.Weight})
	}
	return m, nil
}

// Next returns the next sequence that has a position to learn from.
func (m *Reader) Next() (Sample, error) {
	if s := m.ahead; s != nil {
		m.ahead = nil
		m.sets[s.Set].spent += int64(Span(s.Record, m.limit, m.early))
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
				return Sample{}, errors.New("no training sequence has a position that counts")
			}
		case err != nil:
			return Sample{}, err
		default:
			if n := Span(r, m.limit, m.early); n > 0 {
				x.spent += int64(n)
				return Sample{Record: r, Place: x.reader.Last(), Set: which, before: at}, nil
			}
		}
	}
}

// Back puts the last sequence back: Next returns it again.
func (m *Reader) Back(s Sample) {
	m.ahead = &s
	m.sets[s.Set].spent -= int64(Span(s.Record, m.limit, m.early))
}

// Place returns where Next continues. For a single set it is the state of the set's reader.
func (m *Reader) Place() (json.RawMessage, error) {
	ps := make([]place, len(m.sets))
	for i, x := range m.sets {
		ps[i] = place{x.reader.State(), x.spent}
		if m.ahead != nil && m.ahead.Set == i {
			ps[i].State = m.ahead.before
		}
	}
	if len(ps) == 1 {
		return json.Marshal(ps[0].State)
	}
	return json.Marshal(ps)
}

// Seek moves to a place.
func (m *Reader) Seek(raw json.RawMessage) error {
	ps := make([]place, 1)
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
