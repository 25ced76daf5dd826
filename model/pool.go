package model

import (
	"errors"
	"fmt"
	"math"
	"math/bits"

	"talf/compute"
)

const blockLen = compute.BlockLen

// ErrKVFull says that the KV pool has too few free blocks for a pass. Forward returns it, as a
// *KVFullError, before anything has changed: the pass can run once other sequences have
// given blocks back.
var ErrKVFull = errors.New("the KV pool is full")

// A KVFullError is an ErrKVFull with its figures, in blocks of compute.BlockLen positions.
type KVFullError struct {
	Need  int   // blocks that the pass takes
	Free  int   // blocks that are left
	Total int   // blocks that the pool may have
	Err   error // why the device gave no more, or nil if all blocks are in use
}

func (e *KVFullError) Error() string {
	s := fmt.Sprintf("%v: the pass needs %d more blocks of %d positions, and %d of %d are free", ErrKVFull, e.Need, blockLen, e.Free, e.Total)
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

// Is reports whether target is ErrKVFull.
func (e *KVFullError) Is(target error) bool { return target == ErrKVFull }

// Unwrap returns the device's error.
func (e *KVFullError) Unwrap() error { return e.Err }

// KVStats describe a model's KV pool, in blocks.
type KVStats struct {
	BlockTokens int // positions of a block
	Total       int // blocks that all sequences together may take
	Used        int // blocks of sequences, kept prefixes and branches
	Free        int // Total − Used
	Held        int // blocks that take memory, in use or not, where the device gives memory back
}

// KV returns the state of the pool.
func (m *Model) KV() KVStats {
	b := &m.blocks
	s := KVStats{BlockTokens: blockLen, Total: b.most, Used: b.used, Free: b.most - b.used, Held: len(b.refs)}
	if b.can != nil {
		s.Held = min(s.Held, b.held*b.per)
	}
	return s
}

// PoolBytes returns the memory that the pool takes when all of its blocks are in use, less what it
// holds already.
func (m *Model) PoolBytes() int64 {
	s := m.KV()
	return int64(max(0, s.Total-s.Held)) * blockLen * m.PositionBytes()
}

// ReleaseKV gives the memory of all blocks that are not in use back to the system. The pool does
// this by itself after a burst, but only as sequences end: a server calls it when it has nothing
// to do.
func (m *Model) ReleaseKV() { m.blocks.release(m.blocks.busy) }

// blocks allocates the blocks of a KV store. A block is shared by the sequences that
// contain it and by its scratch slots in use; refs counts them all.
//
// The lowest free block is taken first, so that blocks in use lie together in few chunks and
// the memory of the others can be given back.
type blocks struct {
	kv      compute.KV
	most    int      // blocks that the pool may have
	used    int      // blocks with references
	refs    []int32  // of every block that the store has
	free    []uint64 // bit set of the blocks without references
	low     int      // no word of free before this one has a bit
	scratch int32    // block that scratch slots are taken from; −1: none
	fill    int      // slots taken from that block

	can   compute.Releaser // nil: the device keeps what it has allocated
	per   int              // blocks of a chunk, whose memory is given back together
	inUse []int32          // blocks of each chunk with references
	holds []bool           // whether a chunk was in use since its memory was given back
	held  int              // chunks that hold memory
	busy  int              // chunks with blocks in use
	peak  int              // most busy chunks in this window of closings
	last  int              // and in the one before
	ends  int              // closings in this window
}

// window is the number of closed sequences over which the pool watches how much memory it needs.
// What two windows in a row did not need goes back to the system: a burst is forgotten, while
// memory that every request uses again is not mapped anew for each.
const window = 32

// unbounded is the capacity of a pool without a bound: slots are numbered with 31 bits.
const unbounded = math.MaxInt32 / blockLen

func newBlocks(dev compute.Device, kv compute.KV, most int) blocks {
	b := blocks{kv: kv, most: unbounded, scratch: -1, can: dev.Abilities().Release}
	if most > 0 {
		b.most = min(most, unbounded)
	}
	if b.can != nil {
		b.per = b.can.Chunk(kv)
	}
	return b
}

// need makes n blocks available, or returns a *KVFullError and leaves the pool as it was.
func (b *blocks) need(n int) error {
	full := func(err error) error { return &KVFullError{Need: n, Free: b.most - b.used, Total: b.most, Err: err} }
	if n > b.most-b.used {
		return full(nil)
	}
	have := len(b.refs)
	if b.used+n <= have {
		return nil
	}
	// Growing in large steps is cheaper, but exactly enough must do if there is no more.
	err := b.grow(min(b.most, max(b.used+n, have+max(8, have/2))))
	if err != nil {
		err = b.grow(b.used + n)
	}
	if err != nil {
		return full(err)
	}
	return nil
}

// grow makes the store at least n blocks large.
func (b *blocks) grow(n int) error {
	have := len(b.refs)
	if n <= have {
		return nil
	}
	if err := b.kv.Grow(n); err != nil {
		return fmt.Errorf("grow KV store of %d blocks: %w", have, err)
	}
	n = min(b.kv.Blocks(), b.most)
	b.refs = append(b.refs, make([]int32, n-have)...)
	b.free = append(b.free, make([]uint64, (n+63)/64-len(b.free))...)
	for i := have; i < n; i++ {
		b.free[i/64] |= 1 << (i % 64)
	}
	if b.can != nil {
		chunks := (n + b.per - 1) / b.per
		b.inUse = append(b.inUse, make([]int32, chunks-len(b.inUse))...)
		b.holds = append(b.holds, make([]bool, chunks-len(b.holds))...)
	}
	return nil
}

// get returns a block. The caller has asked for it with need.
func (b *blocks) get() int32 {
	for b.free[b.low] == 0 {
		b.low++
	}
	id := int32(b.low*64 + bits.TrailingZeros64(b.free[b.low]))
	b.free[b.low] &= b.free[b.low] - 1
	b.refs[id] = 1
	b.used++
	if b.can != nil {
		c := int(id) / b.per
		if b.inUse[c]++; b.inUse[c] == 1 {
			b.busy++
			b.peak = max(b.peak, b.busy)
			if !b.holds[c] {
				b.holds[c] = true
				b.held++
			}
		}
	}
	return id
}

// put gives one reference to a block back.
func (b *blocks) put(id int32) {
	if b.refs[id]--; b.refs[id] > 0 {
		return
	}
	b.free[id/64] |= 1 << (id % 64)
	b.low = min(b.low, int(id/64))
	b.used--
	if b.can != nil {
		c := int(id) / b.per
		if b.inUse[c]--; b.inUse[c] == 0 {
			b.busy--
		}
	}
}

// closed notes that a sequence has ended.
func (b *blocks) closed() {
	if b.can == nil {
		return
	}
	if b.ends++; b.ends == window {
		b.release(max(b.peak, b.last))
		b.last, b.peak, b.ends = b.peak, b.busy, 0
	}
}

// release gives back the memory of chunks that are not in use, the last ones first, until at most
// keep hold memory.
func (b *blocks) release(keep int) {
	if b.can == nil {
		return
	}
	for c := len(b.holds) - 1; c >= 0 && b.held > keep; c-- {
		if b.holds[c] && b.inUse[c] == 0 {
			b.can.Release(b.kv, c)
			b.holds[c] = false
			b.held--
		}
	}
}

// room returns the number of scratch slots that need no new block.
func (b *blocks) room() int {
	if b.scratch < 0 {
		return 0
	}
	return blockLen - b.fill
}

// slot returns a scratch slot. Its block is freed when all its slots have been given
// back. The caller has asked for the blocks with need.
func (b *blocks) slot() int32 {
	if b.room() == 0 {
		id := b.get()
		if old := b.scratch; old >= 0 {
			b.put(old) // the reference that kept it open
		}
		b.scratch, b.fill = id, 0
	}
	s := b.scratch*blockLen + int32(b.fill)
	b.fill++
	b.refs[b.scratch]++
	return s
}

func (b *blocks) putSlot(s int32) {
	id := s / blockLen
	b.put(id)
	if id == b.scratch && b.refs[id] == 1 { // only that reference is left
		b.put(id)
		b.scratch = -1
	}
}
