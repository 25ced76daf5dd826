package ptxtest

import (
	"fmt"
	"math/bits"
	"slices"
)

// A stamp says who accessed a word last: a thread of a block, and after how many of its barriers.
// Of readers there may be more than one.
type stamp uint64

const (
	byThread  stamp = 1 << 63 // set in every stamp
	byMany    stamp = 1 << 62 // several threads of the block, in this epoch
	byBlocks  stamp = 1 << 61 // of several blocks
	readOnly  stamp = 1 << 60 // by ld.global.nc
	onItsWay  stamp = 1 << 59 // a copy that nobody has waited for
	atomic    stamp = 1 << 58 // by an atomic operation
	epochBits       = 16
	blockBits       = 24
	tidBits         = 10
)

func newStamp(block, tid, epoch int) stamp {
	return byThread | stamp(epoch&(1<<epochBits-1))<<(tidBits+blockBits) | stamp(block)<<tidBits | stamp(tid)
}

func (s stamp) tid() int   { return int(s & (1<<tidBits - 1)) }
func (s stamp) block() int { return int(s >> tidBits & (1<<blockBits - 1)) }
func (s stamp) epoch() int { return int(s >> (tidBits + blockBits) & (1<<epochBits - 1)) }

func (s stamp) String() string {
	return fmt.Sprintf("thread %d of block %d", s.tid(), s.block())
}

// A word has stamps of four bytes that were accessed together, or of each byte.
type word struct {
	writer, reader stamp
	bytes          *[4]word
}

// stored says who stored all of a word.
func (w *word) stored(by stamp) {
	w.writer = by
	if w.bytes != nil {
		for i := range w.bytes {
			w.bytes[i].writer = by
		}
	}
}

const pageWords = 1024

// A page holds what a launch did to some words.
type page struct {
	launch int
	words  [pageWords]word
	old    []byte // before the launch's first store, if it is to be undone

	chain  int // see Device.LaunchBehind
	stored [pageWords / 64]uint64
}

// mark records a store of n bytes by a launch of a chain.
func (p *page) mark(off, n, chain int) {
	if p.chain != chain {
		p.chain, p.stored = chain, [pageWords / 64]uint64{}
	}
	for i := off / 4; i <= (off+n-1)/4; i++ {
		p.stored[i%pageWords/64] |= 1 << (i % 64)
	}
}

// marked reports whether a launch of a chain has stored some of n bytes, or of their words.
func (p *page) marked(off, n, chain int) bool {
	if p.chain != chain {
		return false
	}
	for i := off / 4; i <= (off+n-1)/4; i++ {
		if p.stored[i%pageWords/64]>>(i%64)&1 != 0 {
			return true
		}
	}
	return false
}

// A Memory is that of a device: allocations at addresses.
type Memory struct {
	allocations []*allocation // by address
	launch      int
	chain       int  // launches that may overlap have the same
	behind      bool // the launch may overlap with those in front
	waits       bool // the last launch's kernel has griddepcontrol.wait
	last        *allocation
}

type allocation struct {
	at      uint64
	data    []byte
	written []uint64 // a bit for each byte
	pages   []*page
}

// Map makes data the memory at an address. It counts as uninitialised.
func (m *Memory) Map(at uint64, data []byte) error {
	i, _ := slices.BinarySearchFunc(m.allocations, at, func(a *allocation, at uint64) int {
		if a.at < at {
			return -1
		}
		return 1
	})
	if i > 0 && m.allocations[i-1].end() > at || i < len(m.allocations) && at+uint64(len(data)) > m.allocations[i].at {
		return fmt.Errorf("memory at %#x is mapped already", at)
	}
	m.allocations = slices.Insert(m.allocations, i, newAllocation(at, data))
	return nil
}

func newAllocation(at uint64, data []byte) *allocation {
	return &allocation{at: at, data: data, written: make([]uint64, (len(data)+63)/64), pages: make([]*page, (len(data)+4*pageWords-1)/(4*pageWords))}
}

// Unmap ends what Map began.
func (m *Memory) Unmap(at uint64) {
	m.last = nil
	m.allocations = slices.DeleteFunc(m.allocations, func(a *allocation) bool { return a.at == at })
}

// Written says that the host has written n bytes at an address.
func (m *Memory) Written(at uint64, n int) error {
	a, off := m.find(at, n)
	if a == nil {
		return fmt.Errorf("the host writes %d bytes at %#x, outside of allocations", n, at)
	}
	a.set(off, n, true)
	return nil
}

// Copied says that the host had n bytes copied within the device.
func (m *Memory) Copied(to, from uint64, n int) error {
	d, doff := m.find(to, n)
	s, soff := m.find(from, n)
	if d == nil || s == nil {
		return fmt.Errorf("%d bytes are copied from %#x to %#x, outside of allocations", n, from, to)
	}
	for i := range n {
		d.set(doff+i, 1, s.has(soff+i, 1))
	}
	return nil
}

// Read returns an error if some of n bytes at an address were never written.
func (m *Memory) Read(at uint64, n int) error {
	a, off := m.find(at, n)
	if a == nil {
		return fmt.Errorf("the host reads %d bytes at %#x, outside of allocations", n, at)
	}
	for i := range n {
		if !a.has(off+i, 1) {
			return fmt.Errorf("the host reads %d bytes, of which byte %d is uninitialised", n, i)
		}
	}
	return nil
}

func (a *allocation) end() uint64 { return a.at + uint64(len(a.data)) }

// find returns the allocation that holds n bytes at an address, or nil.
func (m *Memory) find(at uint64, n int) (*allocation, int) {
	if a := m.last; a != nil && at >= a.at && at-a.at+uint64(n) <= uint64(len(a.data)) {
		return a, int(at - a.at)
	}
	lo, hi := 0, len(m.allocations)
	for lo < hi {
		if mid := (lo + hi) / 2; m.allocations[mid].at <= at {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	if lo == 0 {
		return nil, 0
	}
	a := m.allocations[lo-1]
	if at-a.at+uint64(n) > uint64(len(a.data)) || at-a.at > uint64(len(a.data)) {
		return nil, 0
	}
	m.last = a
	return a, int(at - a.at)
}

// near describes an address outside of all allocations.
func (m *Memory) near(at uint64) string {
	best := ""
	least := ^uint64(0)
	for _, a := range m.allocations {
		switch {
		case at >= a.end() && at-a.end() < least:
			least = at - a.end()
			best = fmt.Sprintf("%d bytes behind the end of an allocation of %d bytes", least, len(a.data))
		case at >= a.at && at < a.end():
			return fmt.Sprintf("across the end of an allocation of %d bytes, of which %d are left", len(a.data), a.end()-at)
		case at < a.at && a.at-at < least:
			least = a.at - at
			best = fmt.Sprintf("%d bytes before an allocation of %d bytes", least, len(a.data))
		}
	}
	if best == "" {
		return "there is no allocation"
	}
	return best
}

// has reports whether n ≤ 64 bytes at an offset, a multiple of n where n is more than 1, were all written.
func (a *allocation) has(off, n int) bool {
	want := uint64(1)<<n - 1
	return a.written[off>>6]>>(off&63)&want == want
}

// hasSome reports whether a byte of a page was written.
func (a *allocation) hasSome(page int) bool {
	const words = 4 * pageWords / 64
	written := a.written[page*words:]
	return slices.ContainsFunc(written[:min(words, len(written))], func(w uint64) bool { return w != 0 })
}

func (a *allocation) set(off, n int, v bool) {
	for n > 0 {
		k := min(n, 64-off&63)
		bits := (uint64(1)<<k - 1) << (off & 63)
		if k == 64 {
			bits = ^uint64(0)
		}
		if v {
			a.written[off>>6] |= bits
		} else {
			a.written[off>>6] &^= bits
		}
		off, n = off+k, n-k
	}
}

// page returns that of an offset, cleared for a launch.
func (a *allocation) page(off, launch int) *page {
	p := a.pages[off/(4*pageWords)]
	if p == nil {
		p = &page{launch: launch}
		a.pages[off/(4*pageWords)] = p
	} else if p.launch != launch {
		*p = page{launch: launch, chain: p.chain, stored: p.stored}
	}
	return p
}

// load returns size bytes at an offset.
func (a *allocation) load(off, size int) uint64 {
	switch b := a.data[off:]; size {
	case 1:
		return uint64(b[0])
	case 2:
		return uint64(order.Uint16(b))
	case 4:
		return uint64(order.Uint32(b))
	}
	return order.Uint64(a.data[off:])
}

func (a *allocation) store(off, size int, v uint64) {
	switch b := a.data[off:]; size {
	case 1:
		b[0] = byte(v)
	case 2:
		order.PutUint16(b, uint16(v))
	case 4:
		order.PutUint32(b, uint32(v))
	default:
		order.PutUint64(b, v)
	}
}

// A conflict is two accesses without an order.
type conflict struct {
	what  string
	other stamp
}

// An access is one thread's, of size bytes.
type access struct {
	me    stamp
	block *block
	lane  *thread
}

// before reports whether what s did comes before the access in every execution.
func (x *access) before(s stamp) bool {
	if s.block() == x.me.block() {
		return s.epoch() != x.me.epoch() || s.tid() == x.me.tid()
	}
	return x.lane.seen.covers(s) || x.block.seen.covers(s)
}

// touch records an access of some bytes of a word and returns what it conflicts with.
func (x *access) touch(w *word, mask uint8, write bool) *conflict {
	if w.bytes == nil {
		if mask == 15 {
			return x.one(w, write)
		}
		b := *w
		w.bytes = &[4]word{b, b, b, b}
	}
	for m := mask; m != 0; m &= m - 1 {
		if c := x.one(&w.bytes[bits.TrailingZeros8(m)&3], write); c != nil {
			return c
		}
	}
	return nil
}

func (x *access) one(w *word, write bool) *conflict {
	me := x.me
	if w.writer != 0 && w.writer != me {
		switch {
		case w.writer&onItsWay != 0:
			return &conflict{"a copy to these bytes that was not waited for", w.writer}
		case me&readOnly != 0:
			return &conflict{"a store in the same launch, to what is loaded as read-only", w.writer}
		case w.writer&me&atomic == 0 && !x.before(w.writer):
			return &conflict{"a store without an order", w.writer}
		}
	}
	if !write {
		switch r := w.reader; {
		case r == 0 || r&(me&readOnly) == r&readOnly && r&^readOnly == me&^readOnly:
			w.reader = me | r&readOnly
		case r&byBlocks != 0:
			w.reader = r | me&readOnly
		case r.block() != me.block():
			w.reader = r | me&readOnly | byBlocks
		case r.epoch() == me.epoch() && r.tid() != me.tid():
			w.reader = r | me&readOnly | byMany
		case r.epoch() == me.epoch():
			w.reader = r | me&readOnly
		default:
			w.reader = me | r&readOnly
		}
		return nil
	}
	if r := w.reader; r != 0 {
		switch {
		case r&readOnly != 0:
			return &conflict{"a load of the same launch, as read-only, of what is stored to", r}
		case r&byBlocks != 0, r&byMany != 0 && (r.block() == me.block() && r.epoch() == me.epoch() || r.block() != me.block() && !x.before(r)), !x.before(r):
			if r&me&atomic == 0 {
				return &conflict{"a load without an order", r}
			}
		}
	}
	w.writer, w.reader = me, 0
	return nil
}
