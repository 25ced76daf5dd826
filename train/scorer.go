package train

import (
	"context"
	"fmt"
	"slices"

	"talf/compute"
)

// A scorer finds the most likely next tokens of hidden states.
type scorer struct {
	q            compute.Queue
	can          compute.Abilities // q's
	w            compute.Linear
	logits, logp compute.Buffer
	ids          compute.Buffer
	hidden       int // width of a row
	k            int // tokens to find in a row
}

// scoreRows is how many rows of logits are kept at a time.
const scoreRows = 64

// newScorer returns a scorer of k tokens per row with the LM head w.
func newScorer(dev compute.Device, q compute.Queue, w compute.Weight, k int) (*scorer, error) {
	s := &scorer{q: q, can: q.Abilities(), w: compute.Linear{W: w}, hidden: w.In(), k: k}
	var err error
	for _, b := range []struct {
		to    *compute.Buffer
		t     compute.DType
		width int
	}{{&s.logits, compute.F32, w.Out()}, {&s.ids, compute.I32, k}, {&s.logp, compute.F32, k}} {
		if *b.to, err = dev.Alloc(b.t, scoreRows, b.width); err != nil {
			return nil, fmt.Errorf("make room for logits: %w", err)
		}
	}
	return s, nil
}

// use replaces the LM head by one of the same size.
func (s *scorer) use(w compute.Weight) { s.w.W = w }

// append appends the most likely next tokens of rows h [rows][H] to dst: [rows][k], best first. It returns ctx's
// error soon after ctx ends.
func (s *scorer) append(ctx context.Context, dst []int32, h []float32) ([]int32, error) {
	s.can.Until(ctx)
	defer s.can.Until(context.Background())
	rows := len(h) / s.hidden
	for at := 0; at < rows; at += scoreRows {
		n := min(scoreRows, rows-at)
		x := s.can.Train.Host(h[at*s.hidden:(at+n)*s.hidden], n, s.hidden)
		s.q.Linear(s.logits, x, &s.w, compute.Store, n)
		s.q.TopK(s.ids, s.logp, s.logits, s.k, n)
		from := len(dst)
		dst = slices.Grow(dst, n*s.k)[:from+n*s.k]
		s.q.Read(dst[from:], s.ids, 0)
		if err := s.q.Sync(ctx); err != nil {
			return nil, err
		}
	}
	return dst, nil
}
