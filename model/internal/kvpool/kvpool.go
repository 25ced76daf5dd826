// Package kvpool says which blocks of a store of keys and values are in use, and by how many
// sequences.
package kvpool

import (
	"errors"
	"fmt"
	"math"
	"math/bits"
	"slices"

	"talf/compute"
)

const blockLen = compute.BlockLen

// ErrFull says that the pool has too few free blocks.
var ErrFull = errors.New("the KV pool is full")

// A FullError is an ErrFull with its figures, in blocks of compute.BlockLen positions.
type FullError struct {
	Need  int   // blocks that the pass takes
	Free  int   // blocks that are left
	Total int   // blocks that the pool may have
	Err   error // why the device gave no more, or nil if all blocks are in use
}

func (e *FullError) Error() string {
	s := fmt.Sprintf("%v: the pass needs %d more blocks of %d positions, and %d of %d are free", ErrFull, e.Need, blockLen, e.Free, e.Total)
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

// Is reports whether target is ErrFull.
func (e *FullError) Is(target error) bool { return target == ErrFull }

// Unwrap returns the device's error.
func (e *FullError) Unwrap() error { return e.Err }

// A Pool allocates the blocks of a KV store. A block is shared by the sequences that
// contain it and by its scratch slots in use; refs counts them all.
//
// The lowest free block is taken first, so that blocks in use lie together in few chunks and
// the memory of the others can be given back.
type Pool struct {
	kv      compute.KV
	most    int      // blocks that the pool may have
	used    int      // blocks with references
	charged int      // blocks that something else is worth
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

// Unbounded is the capacity of a pool without a bound: slots are numbered with 31 bits.
const Unbounded = math.MaxInt32 / blockLen

// New returns an empty pool of at most most blocks, 0: without a bound.
func New(dev compute.Device, kv compute.KV, most int) Pool {
	b := Pool{kv: kv, most: Unbounded, scratch: -1, can: dev.Abilities().Release}
	if most > 0 {
		b.most = min(most, Unbounded)
	}
	if b.can != nil {
		b.per = b.can.Chunk(kv)
	}
	return b
}

// Need makes n blocks available, or returns a *FullError and leaves the pool as it was.
func (b *Pool) Need(n int) error {
	full := func(err error) error { return &FullError{Need: n, Free: b.most - b.Used(), Total: b.most, Err: err} }
	if n > b.most-b.Used() {
		return full(nil)
	}
	have := len(b.refs)
	if b.used+n <= have {
		return nil
	}
	// Growing in large steps is cheaper, but exactly enough must do if there is no more.
	err := b.Grow(min(b.most-b.charged, max(b.used+n, have+max(8, have/2))))
	if err != nil {
		err = b.Grow(b.used + n)
	}
	if err != nil {
		return full(err)
	}
	return nil
}

// Grow makes the store at least n blocks large.
func (b *Pool) Grow(n int) error {
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

// Share adds a reference to a block.
func (b *Pool) Share(id int32) { b.refs[id]++ }

// Refs returns the number of references to a block.
func (b *Pool) Refs(id int32) int { return int(b.refs[id]) }

// Copies returns the number of blocks that sequences take to write to these, which they share, and sorts them. Of
// several sequences that share one, with no other owner, the last one to write keeps it.
func (b *Pool) Copies(tails []int32) (take int) {
	slices.Sort(tails)
	for i := 0; i < len(tails); {
		n := 1
		for i+n < len(tails) && tails[i+n] == tails[i] {
			n++
		}
		take += min(n, b.Refs(tails[i])-1)
		i += n
	}
	return take
}

// Most returns the number of blocks that the pool may have.
func (b *Pool) Most() int { return b.most }

// Bound sets Most.
func (b *Pool) Bound(most int) { b.most = most }

// Used returns the number of blocks with references, and of those that something else is worth.
func (b *Pool) Used() int { return b.used + b.charged }

// Charge says that memory outside the pool worth n blocks has been taken or, if n is negative, given
// back: the pool may have so many fewer.
func (b *Pool) Charge(n int) { b.charged += n }

// Held returns the number of blocks that take memory, in use or not.
func (b *Pool) Held() int {
	if b.can == nil {
		return len(b.refs)
	}
	return min(len(b.refs), b.held*b.per)
}

// ReleaseAll gives the memory of all blocks that are not in use back.
func (b *Pool) ReleaseAll() { b.Release(b.busy) }

// Get returns a block. The caller has asked for it with Need.
func (b *Pool) Get() int32 {
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

// Put gives one reference to a block back.
func (b *Pool) Put(id int32) {
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

// Closed notes that a sequence has ended.
func (b *Pool) Closed() {
	if b.can == nil {
		return
	}
	if b.ends++; b.ends == window {
		b.Release(max(b.peak, b.last))
		b.last, b.peak, b.ends = b.peak, b.busy, 0
	}
}

// Release gives back the memory of chunks that are not in use, the last ones first, until at most
// keep hold memory.
func (b *Pool) Release(keep int) {
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

// Room returns the number of scratch slots that need no new block.
func (b *Pool) Room() int {
	if b.scratch < 0 {
		return 0
	}
	return blockLen - b.fill
}

// Slot returns a scratch slot. Its block is freed when all its slots have been given
// back. The caller has asked for the blocks with Need.
func (b *Pool) Slot() int32 {
	if b.Room() == 0 {
		id := b.Get()
		if old := b.scratch; old >= 0 {
			b.Put(old) // the reference that kept it open
		}
		b.scratch, b.fill = id, 0
	}
	s := b.scratch*blockLen + int32(b.fill)
	b.fill++
	b.refs[b.scratch]++
	return s
}

// PutSlot gives a scratch slot back.
func (b *Pool) PutSlot(s int32) {
	id := s / blockLen
	b.Put(id)
	if id == b.scratch && b.refs[id] == 1 { // only that reference is left
		b.Put(id)
		b.scratch = -1
	}
}
