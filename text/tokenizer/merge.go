package tokenizer

import (
	"math/bits"
	"slices"
	"sync"
	"sync/atomic"
	"unsafe"

	"talf/internal/slab"
)

// mergeTable maps a pair of token ids to the rank of its merge and the merged
// id: open addressing, linear probing, half full. Slots hold
// the key (left<<32 | right, plus one so that zero means empty) and the value
// (rank<<32 | merged).
type mergeTable struct {
	slots []mergeSlot
}

type mergeSlot struct{ key, val uint64 }

const noMerge = ^uint64(0)

func newMergeTable(n int) *mergeTable {
	return &mergeTable{make([]mergeSlot, max(16, 2*n))}
}

// place returns the slot in which looking for key k begins.
func (t *mergeTable) place(k uint64) uint64 {
	at, _ := bits.Mul64(k*0x9E3779B97F4A7C15, uint64(len(t.slots)))
	return at
}

func pairKey(a, b int32) uint64 { return uint64(uint32(a))<<32 | uint64(uint32(b)) }

// put stores a merge; a later merge of the same pair replaces an earlier one,
// as in the reference implementation's map.
func (t *mergeTable) put(a, b int32, rank uint32, merged int32) {
	k := pairKey(a, b) + 1
	i := t.place(k)
	for t.slots[i].key != 0 && t.slots[i].key != k {
		if i++; i == uint64(len(t.slots)) {
			i = 0
		}
	}
	t.slots[i] = mergeSlot{k, uint64(rank)<<32 | uint64(uint32(merged))}
}

// get returns rank<<32 | merged id, or noMerge. Ranks in the high half make the
// smaller value the earlier merge.
func (t *mergeTable) get(a, b int32) uint64 {
	k := pairKey(a, b) + 1
	for i := t.place(k); ; {
		s := &t.slots[i]
		if s.key == k {
			return s.val
		}
		if s.key == 0 {
			return noMerge
		}
		if i++; i == uint64(len(t.slots)) {
			i = 0
		}
	}
}

// merges are those of a model: a table, or, of a SentencePiece model until it is worth making one, what the texts of
// tokens say. A table of 262,144 pieces takes longer to make than everything else that a first token needs.
type merges struct {
	made atomic.Pointer[mergeTable]
	once sync.Once
	make func() *mergeTable
	rank []uint32 // of the merge that makes a token; noRank: no merge does, and none joins it
	done atomic.Int64
}

const (
	noRank = ^uint32(0)
	// tableAt is after how many symbols a table is worth making: looking texts up takes some four times as long.
	tableAt = 1 << 16
)

// looked makes the table once many symbols were looked up.
func (t *merges) looked(symbols int) {
	if t.made.Load() == nil && t.done.Add(int64(symbols)) > tableAt {
		t.once.Do(func() { t.made.Store(t.make()) })
	}
}

// table returns the table of merges.
func (m *bpe) table() *mergeTable {
	m.merges.looked(tableAt + 1)
	return m.merges.made.Load()
}

// merge is mergeTable.get of the model's merges.
func (m *bpe) merge(a, b int32) uint64 {
	if t := m.merges.made.Load(); t != nil {
		return t.get(a, b)
	}
	rank := m.merges.rank
	if rank[a] == noRank || rank[b] == noRank {
		return noMerge
	}
	var room [64]byte
	joint := append(append(room[:0], m.tokens.At(a)...), m.tokens.At(b)...)
	id, ok := m.vocab.Find(unsafe.String(unsafe.SliceData(joint), len(joint))) // which keeps nothing of it
	if !ok || rank[id] == noRank {
		return noMerge
	}
	return uint64(rank[id])<<32 | uint64(uint32(id))
}

// scanMax is the number of symbols up to which repeated scanning for the best
// merge beats lists by rank, which must be cleared first.
const scanMax = 256

// mergeScan merges sc.ids in place: the lowest rank first, the leftmost of
// equals. val[i] is the merge of ids[i] and ids[i+1].
func (m *bpe) mergeScan(sc *scratch) []int32 {
	ids := sc.ids
	if len(ids) < 2 {
		return ids
	}
	m.merges.looked(len(ids))
	val := sc.val[:0]
	for i := range len(ids) - 1 {
		val = append(val, m.merge(ids[i], ids[i+1]))
	}
	sc.val = val
	for len(val) > 0 {
		best, at := noMerge>>32, -1
		for i, v := range val {
			if v>>32 < best {
				best, at = v>>32, i
			}
		}
		if at < 0 {
			break
		}
		ids[at] = int32(uint32(val[at]))
		copy(ids[at+1:], ids[at+2:])
		ids = ids[:len(ids)-1]
		copy(val[at:], val[at+1:])
		val = val[:len(val)-1]
		if at < len(val) {
			val[at] = m.merge(ids[at], ids[at+1])
		}
		if at > 0 {
			val[at-1] = m.merge(ids[at-1], ids[at])
		}
	}
	return ids
}

// merger merges the symbols of a long piece. Symbols stay where they started, and a
// bitmap records which are still there. This needs little memory, so a line of a
// megabyte stays in the caches.
type merger struct {
	merges *mergeTable
	ids    []int32
	alive  []uint64
	// Pending merges, by rank, then place. Those of a rank above the current one are
	// linked lists of nodes (heads: index of the first node by rank, 0 for none;
	// filled: which lists are not empty). The others are in a heap of rank<<32 | place.
	// They are few, since a merge seldom makes a better one possible.
	rank   uint32
	heads  []uint32
	filled []uint64
	nodes  []mergeNode
	free   uint32 // list of unused nodes
	urgent []uint64
	todo   []uint32
}

type mergeNode struct{ at, next uint32 }

// mergeBuckets is mergeScan for long pieces, in nearly linear time.
func (m *bpe) mergeBuckets(dst, ids []int32, sc *scratch) []int32 {
	if len(ids) == 0 {
		return dst
	}
	q := &sc.merger
	q.merges, q.ids = m.table(), ids
	q.alive = slab.Zeros(q.alive, len(q.ids)/64+1)
	q.heads = slab.Zeros(q.heads, int(m.ranks))
	q.filled = slab.Zeros(q.filled, int(m.ranks)/64+1)
	q.nodes = append(slices.Grow(q.nodes[:0], len(q.ids)+1), mergeNode{})
	q.free = 0
	q.rank = 0
	// From the right, so that the lists start at the left.
	for i := len(q.ids) - 1; i >= 0; i-- {
		q.alive[i/64] |= 1 << (i % 64)
		if i+1 < len(q.ids) {
			if v := q.merges.get(q.ids[i], q.ids[i+1]); v != noMerge {
				q.add(uint32(v>>32), i)
			}
		}
	}
	for r := nextSet(q.filled, 0); r >= 0; r = nextSet(q.filled, r) {
		q.rank = uint32(r)
		pairs := 0
		for n := q.heads[r]; n != 0; n = q.nodes[n].next {
			pairs++
		}
		q.todo = slices.Grow(q.todo[:0], pairs)
		for n := q.heads[r]; n != 0; {
			q.todo = append(q.todo, q.nodes[n].at)
			n, q.nodes[n].next, q.free = q.nodes[n].next, q.free, n
		}
		q.heads[r] = 0
		q.filled[r/64] &^= 1 << (r % 64)
		slices.Sort(q.todo)
		for _, at := range q.todo {
			q.hurry(uint64(r)<<32 | uint64(at))
			q.merge(uint32(r), int(at))
		}
		q.hurry(noMerge)
	}
	for w, set := range q.alive {
		for ; set != 0; set &= set - 1 {
			dst = append(dst, q.ids[w*64+bits.TrailingZeros64(set)])
		}
	}
	q.ids = nil
	return dst
}

func (q *merger) add(rank uint32, at int) {
	n := q.free
	if n != 0 {
		q.free = q.nodes[n].next
	} else {
		n = uint32(len(q.nodes))
		q.nodes = append(q.nodes, mergeNode{})
	}
	q.nodes[n] = mergeNode{uint32(at), q.heads[rank]}
	q.heads[rank] = n
	q.filled[rank/64] |= 1 << (rank % 64)
}

// found files the merge of the symbols at two places, if there is one.
func (q *merger) found(at, next int) {
	if at < 0 || next < 0 {
		return
	}
	v := q.merges.get(q.ids[at], q.ids[next])
	switch rank := uint32(v >> 32); {
	case v == noMerge:
	case rank > q.rank:
		q.add(rank, at)
	default:
		q.urgent = push(q.urgent, uint64(rank)<<32|uint64(at))
	}
}

// hurry performs the urgent merges that precede the given one.
func (q *merger) hurry(before uint64) {
	for len(q.urgent) > 0 && q.urgent[0] < before {
		top := q.urgent[0]
		last := len(q.urgent) - 1
		q.urgent[0] = q.urgent[last]
		q.urgent = q.urgent[:last]
		siftDown(q.urgent, 0)
		q.merge(uint32(top>>32), int(uint32(top)))
	}
}

// merge performs a merge that was found earlier, unless it is stale, which shows in the
// rank of the pair now at its place. If the rank is equal, so is its place in the
// order, whichever pair it came from.
func (q *merger) merge(rank uint32, at int) {
	if q.alive[at/64]>>(at%64)&1 == 0 {
		return
	}
	next := nextSet(q.alive, at+1)
	if next < 0 {
		return
	}
	v := q.merges.get(q.ids[at], q.ids[next])
	if v == noMerge || uint32(v>>32) != rank {
		return
	}
	q.ids[at] = int32(uint32(v))
	q.alive[next/64] &^= 1 << (next % 64)
	q.found(at, nextSet(q.alive, next+1))
	q.found(prevSet(q.alive, at-1), at)
}

// nextSet returns the first bit set at or after i, or -1.
func nextSet(set []uint64, i int) int {
	w := i / 64
	if w >= len(set) {
		return -1
	}
	for v := set[w] >> (i % 64) << (i % 64); ; v = set[w] {
		if v != 0 {
			return w*64 + bits.TrailingZeros64(v)
		}
		if w++; w == len(set) {
			return -1
		}
	}
}

// prevSet returns the last bit set at or before i, or -1.
func prevSet(set []uint64, i int) int {
	if i < 0 {
		return -1
	}
	w := i / 64
	for v := set[w] << (63 - i%64) >> (63 - i%64); ; v = set[w] {
		if v != 0 {
			return w*64 + 63 - bits.LeadingZeros64(v)
		}
		if w--; w < 0 {
			return -1
		}
	}
}

// heapWays is the number of children of a heap node: a shallow heap misses the
// caches less often.
const heapWays = 4

func siftDown(h []uint64, i int) {
	if i >= len(h) {
		return
	}
	v := h[i]
	for {
		c := heapWays*i + 1
		if c >= len(h) {
			break
		}
		least := c
		for k := c + 1; k < min(c+heapWays, len(h)); k++ {
			if h[k] < h[least] {
				least = k
			}
		}
		if h[least] >= v {
			break
		}
		h[i] = h[least]
		i = least
	}
	h[i] = v
}

func push(h []uint64, v uint64) []uint64 {
	h = append(h, v)
	i := len(h) - 1
	for i > 0 {
		p := (i - 1) / heapWays
		if h[p] <= v {
			break
		}
		h[i] = h[p]
		i = p
	}
	h[i] = v
	return h
}
