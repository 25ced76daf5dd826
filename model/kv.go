package model

import (
	"context"
	"fmt"

	"talf/compute"
	"talf/tree"
)

const blockLen = compute.BlockLen

// blocks allocates the blocks of a KV store. A block is shared by the sequences that
// contain it and by its scratch slots in use; refs counts them all.
type blocks struct {
	kv      compute.KV
	refs    []int32
	free    []int32
	scratch int32 // block that scratch slots are taken from; −1: none
	fill    int   // slots taken from that block
}

func (b *blocks) get() (int32, error) {
	if len(b.free) == 0 {
		have := len(b.refs)
		if err := b.grow(have + max(8, have/2)); err != nil {
			return 0, err
		}
	}
	id := b.free[len(b.free)-1]
	b.free = b.free[:len(b.free)-1]
	b.refs[id] = 1
	return id, nil
}

// grow makes at least n blocks available.
func (b *blocks) grow(n int) error {
	have := len(b.refs)
	if n <= have {
		return nil
	}
	if err := b.kv.Grow(n); err != nil {
		return fmt.Errorf("grow KV store of %d blocks: %w", have, err)
	}
	n = b.kv.Blocks()
	for len(b.refs) < n {
		b.refs = append(b.refs, 0)
	}
	for i := n - 1; i >= have; i-- { // lowest first
		b.free = append(b.free, int32(i))
	}
	return nil
}

func (b *blocks) put(id int32) {
	if b.refs[id]--; b.refs[id] == 0 {
		b.free = append(b.free, id)
	}
}

// slot returns a scratch slot. Its block is freed when all its slots have been given
// back.
func (b *blocks) slot() (int32, error) {
	if b.scratch < 0 || b.fill == blockLen {
		id, err := b.get()
		if err != nil {
			return 0, err
		}
		if old := b.scratch; old >= 0 {
			b.put(old) // the reference that kept it open
		}
		b.scratch, b.fill = id, 0
	}
	s := b.scratch*blockLen + int32(b.fill)
	b.fill++
	b.refs[b.scratch]++
	return s, nil
}

func (b *blocks) putSlot(s int32) {
	id := s / blockLen
	b.put(id)
	if id == b.scratch && b.refs[id] == 1 { // only that reference is left
		b.put(id)
		b.scratch = -1
	}
}

// KVBlocks returns the number of blocks of compute.BlockLen positions in use and the
// number that the device has reserved.
func (m *Model) KVBlocks() (used, total int) {
	return len(m.blocks.refs) - len(m.blocks.free), len(m.blocks.refs)
}

// PositionBytes returns the bytes of KV cache per position, in all layers together.
func (m *Model) PositionBytes() int64 {
	c := kvConfig(m.spec, m.opt)
	return int64(2*c.Layers*c.KVHeads*c.HeadDim) * int64(c.Type.Size())
}

// A Seq is one sequence: its committed positions and their KV blocks.
type Seq struct {
	m      *Model
	n      int
	blocks []int32 // of [0,n), and of the tip's nodes while the tip is open
	tip    Branch  // the branch at the end
	open   int     // open branches, including the tip
	closed bool
	dst    []int32 // destinations of a commit's moves, until the next Sync
	src    []int32
	chain  *tree.Tree // used by Append
	path   []int
}

// NewSeq returns an empty sequence.
func (m *Model) NewSeq() *Seq { return &Seq{m: m} }

// Len returns the number of committed positions.
func (s *Seq) Len() int { return s.n }

func nblocks(positions int) int { return (positions + blockLen - 1) / blockLen }

// trim gives back the blocks after the committed positions.
func (s *Seq) trim() {
	keep := nblocks(s.n)
	for i := keep; i < len(s.blocks); i++ {
		s.m.blocks.put(s.blocks[i])
	}
	s.blocks = s.blocks[:keep]
}

// Fork returns a sequence that shares s's full blocks. The first of the two that writes
// to the tail block copies it.
func (s *Seq) Fork() *Seq {
	s.check()
	f := &Seq{m: s.m, n: s.n, blocks: append([]int32(nil), s.blocks[:nblocks(s.n)]...)}
	for _, b := range f.blocks {
		s.m.blocks.refs[b]++
	}
	return f
}

// Truncate drops the positions from n on. It panics while a branch is open.
func (s *Seq) Truncate(n int) {
	s.check()
	if n < 0 || n > s.n || s.open > 0 {
		panic(fmt.Sprintf("model: Truncate(%d) of %d positions with %d branches open", n, s.n, s.open))
	}
	s.n = n
	s.trim()
}

// Close gives the blocks back and drops the branch at the end, if one is open.
func (s *Seq) Close() {
	if s.closed {
		return
	}
	if s.tip.seq != nil {
		s.tip.Drop()
	}
	s.n = 0
	s.trim()
	s.closed = true
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
	seq  *Seq    // nil when closed
	base int     // position of node 0
	keep int     // leading nodes whose rows were committed before: 0 or 1
	ran  int     // nodes [0,ran) have run
	own  []int32 // slot of every node that ran
	tip  bool
	tree *tree.Tree // of the last pass
	pass int
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
	b.own = append(b.own, s.slot(pos))
	return b
}

// label opens a branch that can only be dropped.
func (s *Seq) label(prefix int) *Branch {
	m := s.m
	var b *Branch
	if k := len(m.spare); k > 0 {
		b, m.spare = m.spare[k-1], m.spare[:k-1]
	} else {
		b = new(Branch)
	}
	*b = Branch{seq: s, base: prefix, own: b.own[:0]}
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
	s.tip = Branch{seq: s, base: base, keep: keep, ran: keep, own: s.tip.own[:0], tip: true}
	s.open++
	return &s.tip
}

// reserve gives nodes [0,n) their slots.
func (b *Branch) reserve(n int) error {
	s := b.seq
	if !b.tip {
		if b.keep == 1 { // the sequence may have replaced a block that it shared
			b.own[0] = s.slot(b.base)
		}
		for len(b.own) < n {
			slot, err := s.m.blocks.slot()
			if err != nil {
				return err
			}
			b.own = append(b.own, slot)
		}
		return nil
	}
	pool := &s.m.blocks
	if i := s.n / blockLen; s.n%blockLen != 0 && pool.refs[s.blocks[i]] > 1 {
		// The block is shared with another sequence: copy it before the first write.
		id, err := pool.get()
		if err != nil {
			return err
		}
		var dst, src [blockLen]int32
		for j := range dst {
			dst[j], src[j] = id*blockLen+int32(j), s.blocks[i]*blockLen+int32(j)
		}
		s.m.q.MoveKV(s.m.kv, dst[:], src[:])
		if err := s.m.q.Sync(context.Background()); err != nil {
			pool.put(id)
			return fmt.Errorf("copy KV block: %w", err)
		}
		pool.put(s.blocks[i])
		s.blocks[i] = id
	}
	for len(s.blocks) < nblocks(b.base+n) {
		id, err := pool.get()
		if err != nil {
			return err
		}
		s.blocks = append(s.blocks, id)
	}
	b.own = b.own[:0]
	for p := b.base; p < b.base+n; p++ {
		b.own = append(b.own, s.slot(p))
	}
	return nil
}

// slot returns the slot of position p.
func (s *Seq) slot(p int) int32 { return s.blocks[p/blockLen]*blockLen + int32(p%blockLen) }

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
	// Parents come first, so path[i] ≥ i: a row moves down or stays, and no row is
	// overwritten before it has moved.
	s.dst, s.src = s.dst[:0], s.src[:0]
	for i, n := range path {
		if n != i {
			s.dst, s.src = append(s.dst, b.own[i]), append(s.src, b.own[n])
		}
	}
	if len(s.dst) > 0 {
		s.m.q.MoveKV(s.m.kv, s.dst, s.src)
	}
	s.n = max(s.n, b.base+len(path))
	b.close()
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
	b.seq, b.tree = nil, nil
	if b.tip {
		s.trim()
		return
	}
	for _, slot := range b.own[b.keep:] { // a kept row belongs to the sequence
		s.m.blocks.putSlot(slot)
	}
	b.own = b.own[:0]
	s.m.spare = append(s.m.spare, b)
}
