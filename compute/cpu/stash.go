package cpu

import (
	"talf/compute"
	"talf/compute/cpu/kern"
)

// stashed is a buffer of bfloat16.
type stashed struct{ h []uint16 }

func (s *stashed) DType() compute.DType { return compute.BF16 }
func (s *stashed) Shape() []int         { return []int{len(s.h)} }

// Stash returns room for n elements.
func (q *Queue) Stash(n int) compute.Buffer { return &stashed{make([]uint16, n)} }

// stashTask narrows x to h, or widens h to x.
type stashTask struct {
	h     []uint16
	x     []float32
	widen bool
}

func (t *stashTask) run(_ *worker, part int) {
	i := part * flat
	n := min(flat, len(t.x)-i)
	if t.widen {
		kern.Widen(t.x[i:][:n], t.h[i:][:n])
	} else {
		kern.Narrow(t.h[i:][:n], t.x[i:][:n])
	}
}

// Narrow sets dst to src, rounded.
func (q *Queue) Narrow(dst, src compute.Buffer, n int) { q.stash("Narrow", dst, src, n, false) }

// Widen sets dst to src.
func (q *Queue) Widen(dst, src compute.Buffer, n int) { q.stash("Widen", src, dst, n, true) }

func (q *Queue) stash(op string, half, full compute.Buffer, n int, widen bool) {
	s, ok := half.(*stashed)
	if !ok {
		panic("cpu: " + op + ": a buffer that Stash did not make")
	}
	check(len(s.h) >= n, op, "room for elements", len(s.h), n)
	t := &q.train.stash
	*t = stashTask{h: s.h[:n], x: f32(op, full, n)[:n], widen: widen}
	q.run(t, parts(n, flat))
}
