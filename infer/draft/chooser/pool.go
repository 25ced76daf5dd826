package chooser

import (
	"time"

	"talf/infer"
)

// A drafter is a chooser while its sequence is open. Afterwards the chooser, whose tables and trees are a hundred times
// larger than what plain decoding needs, serves another sequence.
type drafter struct {
	shared *shared
	c      *chooser // nil between sequences
}

const (
	mostIdle  = 16      // choosers that wait for a sequence
	idleBytes = 4 << 20 // of the tables of each, at most
	idleText  = 4096    // tokens of the sequence that it comes from, at most
)

// take returns a chooser that waits, or a new one.
func (s *shared) take() *chooser {
	s.Lock()
	defer s.Unlock()
	if n := len(s.idle); n > 0 {
		c := s.idle[n-1]
		s.idle[n-1] = nil // it may become large, and not come back
		s.idle = s.idle[:n-1]
		return c
	}
	return s.make()
}

// give keeps a chooser for another sequence, unless it has become large.
func (s *shared) give(c *chooser) {
	if c.promptLen+c.tokens > idleText || c.bytes() > idleBytes {
		return
	}
	s.Lock()
	defer s.Unlock()
	if len(s.idle) < mostIdle {
		s.idle = append(s.idle, c)
	}
}

// Release gives back the choosers that wait.
func (s *shared) Release() {
	s.Lock()
	defer s.Unlock()
	s.idle = nil
}

// A sizer is a drafter that says how much memory the tables of its sequence take.
type sizer interface{ Bytes() int }

// bytes returns the memory of the candidates' tables, of those who say so.
func (a *chooser) bytes() (n int) {
	for _, c := range a.all {
		if d, ok := c.d.(sizer); ok {
			n += d.Bytes()
		}
	}
	return n
}

func (d *drafter) chooser() *chooser {
	if d.c == nil {
		d.c = d.shared.take()
	}
	return d.c
}

// in marks that c is in a call. A call that panics leaves the mark, and its chooser serves nobody else.
func (d *drafter) in() *chooser {
	d.c.busy = true
	return d.c
}

func (d *drafter) Start(prompt []int32) error {
	d.chooser()
	c := d.in()
	err := c.Start(prompt)
	c.busy = err != nil
	return err
}

func (d *drafter) Grow(p *infer.Proposal, rows []infer.Row, ch infer.Chance) ([]int, error) {
	c := d.in()
	ask, err := c.Grow(p, rows, ch)
	c.busy = err != nil
	return ask, err
}

func (d *drafter) Observe(p infer.Proposal, v infer.Verdict, s infer.Scores) error {
	c := d.in()
	err := c.Observe(p, v, s)
	c.busy = err != nil
	return err
}

func (d *drafter) Traits() infer.Traits {
	t := d.chooser().Traits()
	t.Took, t.Rest, t.Rested, t.Origin, t.End = d.took, d.rest, d.rested, d.origin, d.end
	if t.Finish != nil {
		t.Finish = d.finish
	}
	return t
}

func (d *drafter) took(t infer.Timing) {
	c := d.in()
	c.took(t)
	c.busy = false
}

func (d *drafter) finish(p *infer.Proposal) error {
	c := d.in()
	err := c.finish(p)
	c.busy = err != nil
	return err
}

func (d *drafter) rest() int { return d.c.rest() }

func (d *drafter) rested(pos int, tokens []int32, work time.Duration) {
	c := d.in()
	c.rested(pos, tokens, work)
	c.busy = false
}

func (d *drafter) origin(n int) int { return d.c.origin(n) }

func (d *drafter) end() {
	c := d.c
	d.c = nil
	sound := !c.busy
	if c.end() == nil && sound {
		d.shared.give(c)
	}
}
