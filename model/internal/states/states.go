// Package states holds the hidden states that passes leave on a device: references to
// them, residual streams at some boundaries, and stores that outlive the pass.
package states

import (
	"context"
	"fmt"
	"slices"

	"talf/compute"
)

// A Feature is a reference to one row of a device buffer: a hidden state.
type Feature struct {
	Buf  compute.Buffer // [rows][Hidden]
	Row  int32          // row of Buf and of Taps
	Taps *Taps          // nil unless the model is tapped
}

// Taps are the residual streams of a pass's rows at some boundaries. Boundary j is the
// input of layer j before any norm, that is, the output of layer j−1. Boundary 0 is the
// embedding, and the number of layers is the input of the final norm.
type Taps struct {
	At   []int            // boundaries
	Rows []compute.Buffer // [rows][Hidden] for each of them
}

// NewTaps returns room for rows states of a hidden size at boundaries.
func NewTaps(dev compute.Device, boundaries []int, hidden, rows int) (*Taps, error) {
	t := &Taps{At: slices.Clone(boundaries)}
	for range boundaries {
		b, err := dev.Alloc(compute.F32, rows, hidden)
		if err != nil {
			return nil, fmt.Errorf("taps of %d rows: %w", rows, err)
		}
		t.Rows = append(t.Rows, b)
	}
	return t, nil
}

// Of returns the states at a boundary, nil if it is not tapped.
func (t *Taps) Of(boundary int) compute.Buffer {
	if i := slices.Index(t.At, boundary); i >= 0 {
		return t.Rows[i]
	}
	return nil
}

// A Store keeps hidden states for longer than the pass that computed them. An input store
// keeps taps.
type Store struct {
	dev    compute.Device
	q      compute.Queue
	queued bool           // operations run when the next pass does, which reports failures
	hidden int            // elements of a state
	rows   int            //
	buf    compute.Buffer // [rows][hidden], nil in an input store
	taps   *Taps          // of an input store
	tmp    compute.Buffer // used by Load
	tmpN   int
	src    []int32
}

// NewStore returns a store of the given number of rows.
func NewStore(dev compute.Device, q compute.Queue, queued bool, hidden, rows int) (*Store, error) {
	b, err := dev.Alloc(compute.F32, rows, hidden)
	if err != nil {
		return nil, fmt.Errorf("store %d hidden states: %w", rows, err)
	}
	return &Store{dev: dev, q: q, queued: queued, hidden: hidden, buf: b, rows: rows}, nil
}

// NewInputStore returns a store of the states at boundaries.
func NewInputStore(dev compute.Device, q compute.Queue, queued bool, boundaries []int, hidden, rows int) (*Store, error) {
	t, err := NewTaps(dev, boundaries, hidden, rows)
	if err != nil {
		return nil, err
	}
	return &Store{dev: dev, q: q, queued: queued, hidden: hidden, taps: t, rows: rows}, nil
}

// Rows returns the store's size in rows.
func (s *Store) Rows() int { return s.rows }

// At returns a reference to row r.
func (s *Store) At(r int) Feature {
	if r < 0 || r >= s.rows {
		panic(fmt.Sprintf("model: row %d of a store of %d", r, s.rows))
	}
	return Feature{Buf: s.buf, Row: int32(r), Taps: s.taps}
}

// Put copies hidden states to the rows from r on.
func (s *Store) Put(r int, f ...Feature) error {
	if r < 0 || r+len(f) > s.rows {
		panic(fmt.Sprintf("model: rows [%d,%d) of a store of %d", r, r+len(f), s.rows))
	}
	s.src = s.src[:0]
	for _, x := range f {
		s.src = append(s.src, x.Row)
	}
	for i := 0; i < len(f); {
		j := i + 1
		for j < len(f) && f[j].Buf == f[i].Buf && f[j].Taps == f[i].Taps {
			j++
		}
		if s.taps == nil {
			s.q.Gather(s.buf, r+i, 0, f[i].Buf, s.src[i:j])
		} else {
			for t, b := range s.taps.At {
				s.q.Gather(s.taps.Rows[t], r+i, 0, f[i].Taps.Of(b), s.src[i:j])
			}
		}
		i = j
	}
	if s.queued {
		return nil // src has been copied; the next pass reports a failure
	}
	return s.q.Sync(context.Background())
}

// Load copies host rows [n][Hidden] to the rows from r on; to an input store the states at
// all boundaries, those of a row side by side.
func (s *Store) Load(r int, x []float32) error {
	bufs := []compute.Buffer{s.buf}
	if s.taps != nil {
		bufs = s.taps.Rows
	}
	h, w := s.hidden, len(bufs)*s.hidden
	n := len(x) / w
	if r < 0 || n*w != len(x) || r+n > s.rows {
		panic(fmt.Sprintf("model: %d values to row %d of a store [%d][%d]", len(x), r, s.rows, w))
	}
	if n > s.tmpN {
		b, err := s.dev.Alloc(compute.F32, n, h)
		if err != nil {
			return fmt.Errorf("load %d hidden states: %w", n, err)
		}
		s.tmp, s.tmpN = b, n
	}
	s.src = s.src[:0]
	for i := range n {
		s.src = append(s.src, int32(i))
	}
	for i, b := range bufs {
		part := x
		if len(bufs) > 1 {
			part = make([]float32, 0, n*h)
			for r := range n {
				part = append(part, x[r*w+i*h:][:h]...)
			}
		}
		if n > 0 {
			s.q.Write(s.tmp, part)
			s.q.Gather(b, r, 0, s.tmp, s.src)
		}
	}
	return s.q.Sync(context.Background())
}

// Read copies rows [r, r+len(dst)/Hidden) to the host. It is not for input stores.
func (s *Store) Read(dst []float32, r int) { s.q.Read(dst, s.buf, r*s.hidden) }
