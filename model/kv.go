package model

import (
	"context"
	"fmt"

	"talf/model/internal/kvpool"
	"talf/model/internal/recur"
	"talf/tree"
)

// BlockBytes returns the bytes of a block of the KV pool.
func (m *Model) BlockBytes() int64 {
	c := m.kv.Config()
	return blockLen * int64(c.Layers*c.KVHeads*(c.HeadDim+c.ValueDim())) * int64(c.Type.Size())
}

// PositionBytes returns the bytes of KV cache per position, in all layers together. Layers with a
// window keep fewer positions than others.
func (m *Model) PositionBytes() int64 { return m.BlockBytes() / blockLen * int64(m.groups()) }

// groups returns the number of groups of layers that have blocks of their own.
func (m *Model) groups() int { return len(m.layout.Windows) }

// A Seq is one sequence: its committed positions and their KV blocks.
type Seq struct {
	m      *Model
	n      int
	kv     kvpool.Table
	tip    Branch // the branch at the end
	open   int    // open branches, including the tip
	closed bool
	dst    []int32 // destinations of a commit's moves, until the next Sync
	src    []int32
	chain  *tree.Tree // used by Append
	path   []int
	rec    *recur.Seq // states of recurrent layers, or nil
	turn   int        // row of the rotary table for position 0: not 0 in texts beyond Spec.Rope.Switch
}

// NewSeq returns an empty sequence. If the model has longrope, it is for texts of at most Spec.Rope.Switch tokens.
func (m *Model) NewSeq() *Seq {
	return &Seq{m: m, kv: kvpool.NewTable(&m.blocks, &m.layout, m.spec.Draft), rec: m.rec.NewSeq()}
}

// Len returns the number of committed positions.
func (s *Seq) Len() int { return s.n }

func nblocks(positions int) int { return kvpool.Blocks(positions) }

// Fork returns a sequence that shares s's full blocks. The first of the two that writes
// to the tail block copies it.
func (s *Seq) Fork() *Seq {
	s.check()
	return &Seq{m: s.m, n: s.n, kv: s.kv.Fork(s.n), rec: s.rec.Fork(), turn: s.turn}
}

// Truncate drops the positions from n on. It panics while a branch is open, and unless Resume(n) is n.
func (s *Seq) Truncate(n int) {
	s.check()
	if n < 0 || n > s.n || s.open > 0 {
		panic(fmt.Sprintf("model: Truncate(%d) of %d positions with %d branches open", n, s.n, s.open))
	}
	if at := s.kv.Resume(n); n < s.n && at != n {
		panic(fmt.Sprintf("model: Truncate(%d) of %d positions: a layer with a window has given back what it sees there, the next place is after %d", n, s.n, at))
	}
	s.rec.Truncate(n)
	s.n = n
	s.kv.Cut(n)
}

// Resume returns the largest length, at most n, to which the sequence can be truncated: n unless the model
// has recurrent layers, whose states are there after few positions, or layers with windows, which keep what
// tokens at its end see, and at its places.
func (s *Seq) Resume(n int) int {
	for n < s.n {
		at := s.kv.Resume(s.rec.Resume(n))
		if at == n {
			break
		}
		n = at
	}
	return n
}

// KeepPast lets branches begin at the positions that are committed from now on, whatever the model's layers.
func (s *Seq) KeepPast() {
	s.kv.All = true
	s.rec.KeepPast()
}

// KeepAt makes layers with windows keep what a token after n others sees, so that the sequence and its
// forks can be truncated to n, or to slightly less, however long they are. It is for places where other texts
// go on, and comes before the text has passed them. Of several places the sequence keeps the earliest and the two newest.
func (s *Seq) KeepAt(n int) { s.kv.KeepAt(n) }

// Close gives the blocks back and drops the branch at the end, if one is open.
func (s *Seq) Close() {
	if s.closed {
		return
	}
	if s.tip.seq != nil {
		s.tip.Drop()
	}
	s.n = 0
	s.kv.Trim(0)
	s.rec.Close()
	s.closed = true
	s.m.blocks.Closed()
}

func (s *Seq) check() {
	if s.closed {
		panic("model: use of a closed sequence")
	}
}

// A Branch holds the KV rows of one tree's nodes. At most one branch with prefix == Len
// may be open on a sequence. A branch must not be used after Commit or Drop, because
// its memory is reused for the next one.
type Branch struct {
	seq  *Seq      // nil when closed
	base int       // position of node 0
	keep int       // leading nodes whose rows were committed before: 0 or 1
	ran  int       // nodes [0,ran) have run
	own  [][]int32 // [groups] slot of every node that ran
	tip  bool
	tree *tree.Tree // of the last pass
	pass int
	rec  recur.Branch
}

// Branch returns rows for one tree whose root is at position prefix. With prefix < Len
// the branch is for labelling a past position: it sees positions [0,prefix) and its own
// nodes, and can only be dropped.
func (s *Seq) Branch(prefix int) *Branch {
	s.check()
	if prefix < 0 || prefix > s.n {
		panic(fmt.Sprintf("model: Branch(%d) of a sequence of %d", prefix, s.n))
	}
	if prefix == s.n {
		return s.atEnd(prefix, 0)
	}
	return s.label(prefix)
}

// BranchPast is Branch(pos) for a root that is the token at position pos: its row is
// reused, and the first Segment has From 1. With trees of nine nodes this saves a ninth
// of the work of labelling a text.
func (s *Seq) BranchPast(pos int) *Branch {
	s.check()
	if pos < 0 || pos >= s.n {
		panic(fmt.Sprintf("model: BranchPast(%d) of a sequence of %d", pos, s.n))
	}
	b := s.label(pos)
	b.keep, b.ran = 1, 1
	b.rec.Open(s.rec, pos, 1, false)
	for g := range b.own {
		b.own[g] = append(b.own[g], s.kv.Slot(g, pos))
	}
	return b
}

// label opens a branch that can only be dropped.
func (s *Seq) label(prefix int) *Branch {
	if s.kv.Resume(prefix) != prefix {
		panic(fmt.Sprintf("model: a branch after %d of %d positions of a model with windows, without KeepPast", prefix, s.n))
	}
	m := s.m
	if len(m.spare) == 0 {
		m.spare = append(m.spare, new(Branch))
	}
	b := m.spare[len(m.spare)-1]
	m.spare = m.spare[:len(m.spare)-1]
	*b = Branch{seq: s, base: prefix, own: kvpool.NoSlots(s.m.groups(), b.own), rec: b.rec}
	b.rec.Open(s.rec, prefix, 0, false)
	s.open++
	return b
}

// BranchLast returns rows for one tree whose root is the last committed position: its
// row is reused, and the first Segment has From 1. The path given to Commit begins with
// the root, which stays in place.
//
// A draft head drafts this way: the last verified token has been run with its true
// feature and committed, and is the root of the drafted nodes.
func (s *Seq) BranchLast() *Branch {
	s.check()
	if s.n == 0 {
		panic("model: BranchLast of an empty sequence")
	}
	return s.atEnd(s.n-1, 1)
}

func (s *Seq) atEnd(base, keep int) *Branch {
	if s.tip.seq != nil {
		panic("model: a second branch at the end of a sequence")
	}
	s.tip = Branch{seq: s, base: base, keep: keep, ran: keep, own: kvpool.NoSlots(s.m.groups(), s.tip.own), tip: true, rec: s.tip.rec}
	s.tip.rec.Open(s.rec, base, keep, true)
	s.open++
	return &s.tip
}

// needs returns the blocks that a pass over nodes [0,n) of the branch takes in a group: whole ones, the
// tail block if it is shared with another sequence and has to be copied, and scratch slots.
func (b *Branch) needs(g, n int) (whole int, tail int32, slots int) {
	if !b.tip {
		return 0, -1, max(0, n-len(b.own[g]))
	}
	return b.seq.kv.More(g, b.base+n), b.seq.kv.Shared(g, b.seq.n), 0
}

// BlocksFor returns the number of blocks that the sequence takes from the pool to run n more
// positions after its committed ones, whether as a tree of n nodes or as a text. Blocks of an open
// branch at its end count as taken. A block that it shares with another sequence and has to copy
// is one of them.
func (s *Seq) BlocksFor(n int) int {
	s.check()
	if n <= 0 {
		return 0
	}
	return s.rec.Needs() + s.kv.Takes(s.n, n)
}

// Blocks returns the number of blocks that the sequence holds, and how many of them it shares with
// no other: closing it frees these.
func (s *Seq) Blocks() (held, own int) {
	states, mine := s.rec.Blocks()
	held, own = s.kv.Blocks()
	return held + states, own + mine
}

// needs returns the blocks that a pass takes.
func (m *Model) needs(batch []Segment) int {
	take, slots := 0, 0
	tails := m.tails[:0]
	for i := range batch {
		take += batch[i].Rows.rec.Needs()
		for g := range m.groups() {
			whole, tail, n := batch[i].Rows.needs(g, batch[i].Tree.Len())
			take += whole
			slots += n
			if tail >= 0 {
				tails = append(tails, tail)
			}
		}
	}
	m.tails = tails
	take += m.blocks.Copies(tails)
	return take + nblocks(max(0, slots-m.blocks.Room()))
}

// reserve gives nodes [0,n) their slots. The blocks are there.
func (b *Branch) reserve(n int) error {
	s := b.seq
	pool := &s.m.blocks
	if !b.tip {
		for g := range b.own {
			if b.keep == 1 { // the sequence may have replaced a block that it shared
				b.own[g][0] = s.kv.Slot(g, b.base)
			}
			for len(b.own[g]) < n {
				b.own[g] = append(b.own[g], pool.Slot())
			}
		}
		return nil
	}
	for g := range b.own {
		if err := s.unshare(g); err != nil {
			return err
		}
		s.kv.Extend(g, b.base+n)
		b.own[g] = b.own[g][:0]
		for p := b.base; p < b.base+n; p++ {
			b.own[g] = append(b.own[g], s.kv.Slot(g, p))
		}
	}
	return nil
}

// unshare copies the last block of a group before the first write to it, if another sequence has it, too.
func (s *Seq) unshare(g int) error {
	old := s.kv.Shared(g, s.n)
	if old < 0 {
		return nil
	}
	id := s.m.blocks.Get()
	s.m.q.MoveKV(s.m.kv, kvpool.Slots(id), kvpool.Slots(old))
	if err := s.m.q.Sync(context.Background()); err != nil {
		s.m.blocks.Put(id)
		return fmt.Errorf("copy KV block: %w", err)
	}
	s.m.blocks.Put(old)
	s.kv.Of[g][s.n/blockLen] = id
	return nil
}

// Len returns the number of nodes that have run.
func (b *Branch) Len() int { return b.ran }

// Commit appends path (nodes from the root down, each the parent of the next) to the
// sequence and drops the other nodes. The branch must have prefix == Len. After an
// error it is still open.
func (b *Branch) Commit(path []int) error {
	b.check()
	if !b.tip {
		return fmt.Errorf("commit at position %d of %d: only a branch at the end can be committed", b.base, b.seq.n)
	}
	for i, n := range path {
		if n < 0 || n >= b.ran {
			return fmt.Errorf("commit node %d: %d nodes have run", n, b.ran)
		}
		want := -1
		if i > 0 {
			want = path[i-1]
		}
		if b.tree != nil && b.tree.Parent(n) != want || b.tree == nil && n != 0 {
			return fmt.Errorf("commit path %v: node %d does not follow node %d", path, n, want)
		}
	}
	s := b.seq
	if err := s.rec.Commit(&b.rec, path); err != nil {
		return err
	}
	// Parents come first, so path[i] ≥ i: a row moves down or stays, and no row is
	// overwritten before it has moved.
	s.dst, s.src = s.dst[:0], s.src[:0]
	for _, own := range b.own {
		for i, n := range path {
			if n != i {
				s.dst, s.src = append(s.dst, own[i]), append(s.src, own[n])
			}
		}
	}
	if len(s.dst) > 0 {
		s.m.q.MoveKV(s.m.kv, s.dst, s.src)
	}
	s.n = max(s.n, b.base+len(path))
	b.close()
	s.kv.GiveBack(s.n)
	return nil
}

// Drop gives the rows back.
func (b *Branch) Drop() {
	b.check()
	b.close()
}

func (b *Branch) check() {
	if b.seq == nil {
		panic("model: use of a branch after Commit or Drop")
	}
}

func (b *Branch) close() {
	s := b.seq
	s.open--
	b.rec.Close()
	b.seq, b.tree = nil, nil
	if b.tip {
		s.kv.Trim(s.n)
		return
	}
	for g, own := range b.own {
		for _, slot := range own[min(b.keep, len(own)):] { // a kept row belongs to the sequence
			s.m.blocks.PutSlot(slot)
		}
		b.own[g] = own[:0]
	}
	s.m.spare = append(s.m.spare, b)
}
