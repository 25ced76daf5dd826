package recur

import "slices"

// A past has what tokens put into recurrent layers, so that the state after any of them can be made again.
type past struct {
	from   int // tokens before the first chunk
	chunks []chunk
	pos    int    // tokens before cursor
	cursor *state // the state that was asked for last, or nil
}

// A chunk is one commit.
type chunk struct {
	from  int // tokens before it
	path  []int
	log   *log
	start *state
}

// KeepPast makes the sequence keep what its next tokens put in, for branches at earlier positions. This takes
// much more memory than their keys and values.
func (s *Seq) KeepPast() {
	if s != nil && s.past == nil {
		s.past = &past{from: s.n}
	}
}

// fork returns a copy for another sequence.
func (p *past) fork() *past {
	if p == nil {
		return nil
	}
	f := &past{from: p.from, chunks: slices.Clone(p.chunks)}
	for _, c := range f.chunks {
		c.log.refs++
		c.start.share()
	}
	return f
}

func (p *past) add(c chunk) { p.chunks = append(p.chunks, c) }

// covers reports whether the state after n tokens can be made.
func (p *past) covers(n int) bool {
	if p == nil || len(p.chunks) == 0 {
		return false
	}
	last := &p.chunks[len(p.chunks)-1]
	return n >= p.from && n <= last.from+len(last.path)
}

// at returns the state after n tokens, which stays p's. It goes on from the last one that was asked for
// if that comes before it.
func (p *past) at(r *Runner, n int) (*state, error) {
	if p == nil {
		panic("model: a branch at an earlier position of a model with recurrent layers, without KeepPast")
	}
	if p.cursor == nil || n < p.pos {
		r.put(p.cursor)
		p.cursor, p.pos = p.chunks[0].start.share(), p.from
		for i := range p.chunks {
			if c := &p.chunks[i]; c.from <= n {
				r.put(p.cursor)
				p.cursor, p.pos = c.start.share(), c.from
			}
		}
	}
	for i := range p.chunks {
		c := &p.chunks[i]
		from, to := max(p.pos-c.from, 0), min(n-c.from, len(c.path))
		if from >= to {
			continue
		}
		dst := p.cursor
		if dst.refs > 1 {
			var err error
			if dst, err = r.take(); err != nil {
				return nil, err
			}
		}
		r.walk(dst, p.cursor, c.log, c.path[from:to], nil)
		if dst != p.cursor {
			r.put(p.cursor)
			p.cursor = dst
		}
		p.pos = c.from + to
	}
	return p.cursor, nil
}

// cut forgets the tokens from n on.
func (p *past) cut(r *Runner, n int) {
	for k := len(p.chunks); k > 0; k = len(p.chunks) {
		c := &p.chunks[k-1]
		if c.from+len(c.path) <= n {
			return
		}
		if c.from < n {
			c.path = c.path[:n-c.from]
			return
		}
		r.put(c.start)
		r.release(c.log)
		p.chunks = p.chunks[:k-1]
	}
}

func (p *past) close(r *Runner) {
	if p == nil {
		return
	}
	r.put(p.cursor)
	for _, c := range p.chunks {
		r.put(c.start)
		r.release(c.log)
	}
}
