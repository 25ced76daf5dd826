package data

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"math/bits"
	"math/rand/v2"
	"path/filepath"
	"slices"
)

// A Part selects rows of a set.
type Part string

// The parts. Held-out rows are the last rows of the set: they are the same for every
// seed and are read without touching the rest.
const (
	All   Part = "all"
	Train Part = "train"
	Held  Part = "held"
)

// A Split says which rows are read.
type Split struct {
	Part     Part    `json:"part"`
	Fraction float64 `json:"fraction"` // fraction of the rows held out, rounded up; at least one row remains for training
}

// Everything reads all rows.
func Everything() Split { return Split{Part: All} }

// rows returns the range [from, to) of rows in a set of n.
func (sp Split) rows(n int) (from, to int, err error) {
	if !(sp.Fraction >= 0 && sp.Fraction < 1) {
		return 0, 0, fmt.Errorf("data: held-out fraction %v, want 0 ≤ fraction < 1", sp.Fraction)
	}
	held := min(int(math.Ceil(sp.Fraction*float64(n))), max(n-1, 0))
	switch sp.Part {
	case All:
		return 0, n, nil
	case Train:
		return 0, n - held, nil
	case Held:
		return n - held, n, nil
	}
	return 0, 0, fmt.Errorf("data: part %q, want %q, %q or %q", sp.Part, All, Train, Held)
}

// Count returns the number of rows in a part.
func (s *Set) Count(sp Split) (int, error) {
	from, to, err := sp.rows(s.rows)
	return to - from, err
}

// windowBytes bounds the size of the decoded values in a reader, unless one row group
// is larger.
const windowBytes = 64 << 20

// A State is a place in a reader's order. Resume continues at exactly the row that Next
// would have returned.
type State struct {
	Set      string `json:"set"` // ID of the set
	Split    Split  `json:"split"`
	Shuffled bool   `json:"shuffled"`
	Seed     uint64 `json:"seed"`
	Epoch    uint64 `json:"epoch"`
	Row      int    `json:"row"` // rows of the epoch read so far
}

// A Reader yields the rows of a part, epoch after epoch. Row groups come in an order
// drawn from (seed, epoch). As many as fit the window are decoded at once, and their
// rows are shuffled together. It is not safe for concurrent use.
type Reader struct {
	set   *Set
	st    State
	order []piece
	next  int      // first piece after the window
	win   []Record // rest of the window
	from  []Place  // places of the rows in win
	made  int      // rows at the front of win that a Maker has made
	last  Place
	rng   *rand.Rand
}

// A Place names a row of a set.
type Place struct {
	Shard string // file name
	Row   int    // index in the set
}

func (p Place) String() string { return fmt.Sprintf("%s, row %d of the set", p.Shard, p.Row) }

// A piece is the rows [from, to) of a row group that belong to the part.
type piece struct {
	*group
	from, to int
}

// Shuffled returns a reader in an order drawn from seed.
func (s *Set) Shuffled(seed uint64, sp Split) (*Reader, error) {
	return s.Resume(State{Set: s.id, Split: sp, Shuffled: true, Seed: seed})
}

// Sequential returns a reader in the order of the files.
func (s *Set) Sequential(sp Split) (*Reader, error) {
	return s.Resume(State{Set: s.id, Split: sp})
}

// Resume returns a reader that continues at st. It refuses the state of another set.
func (s *Set) Resume(st State) (*Reader, error) {
	if st.Set != s.id {
		return nil, fmt.Errorf("data: resume at set %.12s…, want %.12s…: the data is not what the run started with", st.Set, s.id)
	}
	from, to, err := st.Split.rows(s.rows)
	if err != nil {
		return nil, err
	}
	if st.Row < 0 || st.Row > to-from {
		return nil, fmt.Errorf("data: resume at row %d of %d", st.Row, to-from)
	}
	r := &Reader{set: s, st: st}
	for i := range s.groups {
		g := &s.groups[i]
		a, b := max(from, g.first), min(to, g.first+g.rows)
		if a < b {
			r.order = append(r.order, piece{g, a - g.first, b - g.first})
		}
	}
	r.begin()
	return r, r.skip()
}

// begin draws the order of the epoch.
func (r *Reader) begin() {
	r.next, r.win, r.from, r.made = 0, nil, nil, 0
	// Start from the order of the files, so that the result depends only on (seed,
	// epoch).
	slices.SortFunc(r.order, func(a, b piece) int { return cmp.Compare(a.first, b.first) })
	r.rng = rand.New(rand.NewPCG(r.st.Seed, r.st.Epoch))
	if r.st.Shuffled {
		shuffle(r.rng, r.order)
	}
}

// shuffle is a Fisher–Yates shuffle with a fixed use of the generator: the order for a
// seed must not change with the standard library.
func shuffle[T any](rng *rand.Rand, x []T) {
	for i := len(x) - 1; i > 0; i-- {
		j, _ := bits.Mul64(rng.Uint64(), uint64(i)+1)
		x[i], x[j] = x[j], x[i]
	}
}

// window returns the pieces of the next window and their rows.
func (r *Reader) window() (pieces []piece, rows int) {
	size := int64(0)
	i := r.next
	for ; i < len(r.order); i++ {
		p := r.order[i]
		if i > r.next && size+p.bytes > r.set.window {
			break
		}
		size += p.bytes
		rows += p.to - p.from
	}
	return r.order[r.next:i], rows
}

// perm draws the order of a window's rows. This is also done for windows that are
// skipped.
func (r *Reader) perm(n int) []int32 {
	p := make([]int32, n)
	for i := range p {
		p[i] = int32(i)
	}
	if r.st.Shuffled {
		shuffle(r.rng, p)
	}
	return p
}

// skip moves a fresh reader to st.Row.
func (r *Reader) skip() error {
	left := r.st.Row
	for left > 0 {
		pieces, rows := r.window()
		if left < rows {
			if err := r.fill(); err != nil {
				return err
			}
			r.win, r.from = r.win[left:], r.from[left:]
			return nil
		}
		r.perm(rows)
		r.next += len(pieces)
		left -= rows
	}
	return nil
}

func (r *Reader) fill() error {
	pieces, rows := r.window()
	all, from := make([]Record, 0, rows), make([]Place, 0, rows)
	for _, p := range pieces {
		for i := p.from; i < p.to; i++ {
			from = append(from, Place{filepath.Join(r.set.dir, r.set.shards[p.shard].File), p.first + i})
		}
		recs, err := r.set.readWith(p.group, (*shardFile).read)
		if err != nil {
			return err
		}
		all = append(all, recs[p.from:p.to]...)
	}
	r.win, r.from = make([]Record, rows), make([]Place, rows)
	for i, j := range r.perm(rows) {
		r.win[i], r.from[i] = all[j], from[j]
	}
	r.next += len(pieces)
	return nil
}

// Next returns the next row, which the caller must not change. At the end of an epoch
// it returns io.EOF once; the call after that starts the next epoch.
func (r *Reader) Next() (*Record, error) {
	if len(r.win) == 0 {
		if r.next == len(r.order) {
			r.st.Epoch++
			r.st.Row = 0
			r.begin()
			return nil, io.EOF
		}
		if err := r.fill(); err != nil {
			return nil, err
		}
	}
	if r.set.maker != nil {
		if r.made == 0 {
			n, err := r.set.maker.Make(r.win, r.from)
			if err != nil {
				return nil, err
			}
			r.made = n
		}
		r.made--
	}
	rec := &r.win[0]
	r.last = r.from[0]
	r.win, r.from = r.win[1:], r.from[1:]
	r.st.Row++
	return rec, nil
}

// Last returns the place of the row that Next returned last.
func (r *Reader) Last() Place { return r.last }

// State returns the place of the row that Next will return.
func (r *Reader) State() State { return r.st }
