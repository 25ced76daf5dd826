package recur

import (
	"fmt"
	"slices"

	"talf/compute"
	"talf/tree"
)

// A state is that of all recurrent layers after some token. It changes only while it has one owner.
type state struct {
	buf  compute.Buffer // [layers][State]
	refs int
}

// A log has what nodes put into recurrent layers.
type log struct {
	buf  compute.Buffer // [rows][layers·Log]
	cap  int
	refs int // the branch, or the pasts of sequences
}

func (r *Runner) alloc() (compute.Buffer, error) {
	b, err := r.dev.Alloc(compute.F32, len(r.Layers), r.shape.State())
	if err != nil {
		return nil, fmt.Errorf("state of recurrent layers: %w", err)
	}
	return b, nil
}

// take returns a state with undefined contents.
func (r *Runner) take() (*state, error) {
	r.pool.Charge(r.per)
	if k := len(r.free); k > 0 {
		s := r.free[k-1]
		r.free, s.refs = r.free[:k-1], 1
		return s, nil
	}
	b, err := r.alloc()
	if err != nil {
		r.pool.Charge(-r.per)
		return nil, err
	}
	return &state{buf: b, refs: 1}, nil
}

// Spares are kept for the next sequences: more of them would be memory that the pool does not count.
const maxSpares = 4

// put gives one reference back.
func (r *Runner) put(s *state) {
	if s == nil {
		return
	}
	if s.refs--; s.refs > 0 {
		return
	}
	r.pool.Charge(-r.per)
	if len(r.free) < maxSpares {
		r.free = append(r.free, s)
	}
}

func (s *state) share() *state {
	s.refs++
	return s
}

// A Seq is the states of a sequence: the last, and a few earlier ones at which another sequence may go on.
type Seq struct {
	r      *Runner
	n      int
	at     *state // after n tokens
	spare  *state // for the next one, while at has other owners; or nil
	marks  []mark // in ascending order
	stride int    // tokens between marks
	past   *past  // of KeepPast, or nil
	nodes  []compute.ForkNode
}

// A mark is the state after n tokens.
type mark struct {
	n int
	s *state
}

// Marks of a sequence are at multiples of its stride, which doubles when there are too many.
const (
	firstStride = 2 * compute.BlockLen
	maxMarks    = 4
)

// NewSeq returns an empty sequence.
func (r *Runner) NewSeq() *Seq {
	if r == nil {
		return nil
	}
	return &Seq{r: r, at: r.zero.share(), stride: firstStride}
}

// Fork returns a sequence with the same states.
func (s *Seq) Fork() *Seq {
	if s == nil {
		return nil
	}
	f := &Seq{r: s.r, n: s.n, at: s.at.share(), stride: s.stride, marks: slices.Clone(s.marks), past: s.past.fork()}
	for _, m := range f.marks {
		m.s.share()
	}
	return f
}

// Close gives the states back.
func (s *Seq) Close() {
	if s == nil {
		return
	}
	s.r.put(s.at)
	s.r.put(s.spare)
	s.cut(-1)
	s.past.close(s.r)
	s.at, s.spare, s.past = nil, nil, nil
}

// cut drops the marks after n tokens.
func (s *Seq) cut(n int) {
	for k := len(s.marks); k > 0 && s.marks[k-1].n > n; k = len(s.marks) {
		s.r.put(s.marks[k-1].s)
		s.marks = s.marks[:k-1]
	}
}

// Resume returns the largest number of tokens, at most n, to which the sequence can be truncated.
func (s *Seq) Resume(n int) int {
	switch {
	case s == nil || n >= s.n || s.past.covers(n):
		return n
	}
	for _, m := range slices.Backward(s.marks) {
		if m.n <= n {
			return m.n
		}
	}
	return 0
}

// Truncate drops the tokens from n on. It panics unless Resume(n) is n.
func (s *Seq) Truncate(n int) {
	if s == nil || n == s.n {
		return
	}
	if s.Resume(n) != n {
		panic(fmt.Sprintf("model: Truncate(%d) of %d positions, of a model with recurrent layers: there is no state, the next one is after %d", n, s.n, s.Resume(n)))
	}
	at := s.r.zero
	switch k := len(s.marks); {
	case s.past.covers(n):
		var err error
		if at, err = s.past.at(s.r, n); err != nil {
			panic("model: " + err.Error())
		}
		s.past.cut(s.r, n)
	case n > 0:
		for at = nil; at == nil; k-- {
			if s.marks[k-1].n == n {
				at = s.marks[k-1].s
			}
		}
	}
	at.share()
	s.r.put(s.at)
	s.n, s.at = n, at
	s.cut(n)
}

// Blocks returns the blocks that the states count as, and those of them that closing the sequence frees.
func (s *Seq) Blocks() (held, own int) {
	if s == nil {
		return 0, 0
	}
	count := func(x *state) {
		if x != nil && x != s.r.zero {
			held += s.r.per
			if x.refs == 1 {
				own += s.r.per
			}
		}
	}
	count(s.at)
	count(s.spare)
	for _, m := range s.marks {
		count(m.s)
	}
	return held, own
}

// Needs returns the blocks that a commit takes that it has not taken yet.
func (s *Seq) Needs() int {
	if s == nil || s.spare != nil || s.at.refs == 1 {
		return 0
	}
	return s.r.per
}

// A Branch is the nodes of one tree.
type Branch struct {
	seq  *Seq
	pos  int    // tokens before node keep
	keep int    // nodes whose tokens the sequence has: 0 or 1
	past bool   // the sequence goes on after pos
	base *state // before the tree, if past
	log  *log
	up   []int32 // parent of each node; −1: the state before the tree
}

// Open begins a tree after prefix tokens, with a root that the sequence has if keep is 1. at says whether
// it is at the sequence's end.
func (b *Branch) Open(s *Seq, prefix, keep int, at bool) {
	*b = Branch{seq: s, pos: prefix + keep, keep: keep, past: !at, log: b.log, up: b.up[:0]}
}

// before returns the state before the tree.
func (b *Branch) before() *state {
	if b.past {
		return b.base
	}
	return b.seq.at
}

// Needs returns the blocks that a pass over the branch takes.
func (b *Branch) Needs() int {
	switch {
	case b.seq == nil || b.base != nil:
		return 0
	case b.past:
		return b.seq.r.per
	}
	return b.seq.Needs()
}

// Reserve prepares a pass over the nodes of t from from on.
func (b *Branch) Reserve(t *tree.Tree, from int) (err error) {
	s := b.seq
	if s == nil {
		return nil
	}
	switch {
	case !b.past && s.Needs() > 0:
		s.spare, err = s.r.take()
	case b.past && b.base == nil:
		if b.base, err = s.past.at(s.r, b.pos); err == nil {
			b.base.share()
		}
	}
	if err != nil {
		return err
	}
	for b.up = b.up[:min(from, len(b.up))]; len(b.up) < t.Len(); {
		up := int32(-1)
		if p := t.Parent(len(b.up)); p >= b.keep {
			up = int32(p)
		}
		b.up = append(b.up, up)
	}
	return b.grow(t.Len(), from)
}

// grow makes the log large enough for n nodes, of which have have run.
func (b *Branch) grow(n, have int) error {
	r := b.seq.r
	if b.log != nil && b.log.cap >= n {
		return nil
	}
	old := b.log
	if i := slices.IndexFunc(r.logs, func(l *log) bool { return l.cap >= n }); i >= 0 {
		b.log = r.logs[i]
		b.log.refs = 1
		r.logs = slices.Delete(r.logs, i, i+1)
	} else {
		rows := (n + 15) / 16 * 16
		buf, err := r.dev.Alloc(compute.F32, rows, len(r.Layers)*r.shape.Log())
		if err != nil {
			return fmt.Errorf("%d nodes of recurrent layers: %w", n, err)
		}
		b.log = &log{buf, rows, 1}
	}
	if old != nil {
		rows := make([]int32, have)
		for i := range rows {
			rows[i] = int32(i)
		}
		r.q.Gather(b.log.buf, 0, 0, old.buf, rows)
		r.release(old)
	}
	return nil
}

// release gives a log back, for other branches.
func (r *Runner) release(l *log) {
	if l == nil {
		return
	}
	if l.refs--; l.refs == 0 && len(r.logs) < maxSpares {
		r.logs = append(r.logs, l)
	}
}

// Close ends the branch.
func (b *Branch) Close() {
	if s := b.seq; s != nil {
		s.r.release(b.log)
		s.r.put(b.base)
	}
	*b = Branch{up: b.up[:0]}
}

// Commit moves the sequence on along a path of a branch at its end.
func (s *Seq) Commit(b *Branch, path []int) error {
	if s == nil {
		return nil
	}
	if path = path[min(b.keep, len(path)):]; len(path) == 0 {
		return nil
	}
	if s.past != nil {
		s.past.add(chunk{from: s.n, path: slices.Clone(path), log: b.log, start: s.at.share()})
		defer func() { b.log = nil }()
	}
	for len(path) > 0 {
		k, marks := len(path), false
		if next := (s.n/s.stride + 1) * s.stride; next-s.n <= k {
			k, marks = next-s.n, true
		}
		if err := s.advance(b.log, path[:k]); err != nil {
			return err
		}
		if path = path[k:]; marks {
			s.mark()
		}
	}
	return nil
}

// advance moves the state on along a path.
func (s *Seq) advance(l *log, path []int) error {
	to := s.at
	if to.refs > 1 {
		if s.spare == nil {
			var err error
			if s.spare, err = s.r.take(); err != nil {
				return err
			}
		}
		to, s.spare = s.spare, nil
	}
	s.nodes = s.r.walk(to, s.at, l, path, s.nodes)
	if to != s.at {
		s.r.put(s.at)
		s.at = to
	}
	s.n += len(path)
	return nil
}

// walk sets state to to what from becomes along a path.
func (r *Runner) walk(to, from *state, l *log, path []int, nodes []compute.ForkNode) []compute.ForkNode {
	nodes = nodes[:0]
	for i, n := range path {
		nodes = append(nodes, compute.ForkNode{Node: int32(n), Row: -1, Up: int32(i - 1), From: int32(min(i, 1) - 1)})
	}
	r.chain = compute.Fork{State: from.buf, Log: l.buf, Nodes: nodes, Slots: 1}
	r.can.Advance(to.buf, r.Layers, &r.chain)
	return nodes
}

// mark keeps the state, if the pool has room for it.
func (s *Seq) mark() {
	if s.past != nil || s.spare == nil && s.r.pool.Most()-s.r.pool.Used() < 2*s.r.per {
		return
	}
	if s.spare == nil { // the next commit must not fail because of this
		var err error
		if s.spare, err = s.r.take(); err != nil {
			s.spare = nil
			return
		}
	}
	s.marks = append(s.marks, mark{s.n, s.at.share()})
	for len(s.marks) > maxMarks {
		s.stride *= 2
		s.marks = slices.DeleteFunc(s.marks, func(m mark) bool {
			if m.n%s.stride == 0 {
				return false
			}
			s.r.put(m.s)
			return true
		})
	}
}
