package lookup

import (
	"fmt"

	"talf/internal/splitmix"
)

// A Successor is a token that may come next. Score is the probability that the
// target gave it when it was last asked.
type Successor struct {
	Token int32
	Score float32
}

// A Key names a row of a Table.
type Key uint64

// After returns the key of the tokens that follow token.
func After(token int32) Key { return Key(uint32(token)) }

// AfterTwo returns the key of the tokens that follow before and token, in that order.
func AfterTwo(before, token int32) Key {
	return Key(uint64(uint32(before)+1)<<32 | uint64(uint32(token)))
}

// A Table maps keys to their most likely successors, best first, at most k each: with keys
// After, the adjacency matrix of Token Recycling (Luo et al. 2025). It grows as it learns, up
// to the bytes it is given. From then on it forgets rows that have not been read or updated for
// a while (the clock algorithm), so it works for any vocabulary. A table that has reached its
// size allocates nothing.
type Table struct {
	k, most int
	n       int     // rows in use
	slots   []int32 // open addressing: row plus one; 0 is free
	pages   []*page // of row/pageRows
	hand    int     // row that the clock looks at next
}

// A page is pageRows rows. Tables grow by pages so that nothing moves.
type page struct {
	keys  [pageRows]Key
	count [pageRows]int32
	used  [pageRows]bool // since the hand passed
	next  []Successor    // [pageRows][k]
}

const pageRows = 1 << 6

// rowBytes is the size of a row of k successors, including up to four slots, because a table
// that has grown has at least a quarter of them taken.
func rowBytes(k int) int { return 8*k + 8 + 4 + 1 + 4*4 }

// NewTable returns an empty table for as many rows of up to k successors as fit into bytes. It
// panics unless k >= 1 and they fill a page.
func NewTable(k, bytes int) *Table {
	t := &Table{k: k, slots: make([]int32, minSlots)}
	if k >= 1 {
		t.most = bytes / rowBytes(k) / pageRows * pageRows
	}
	if t.most == 0 {
		panic(fmt.Sprintf("lookup: a table of %d bytes for rows of %d successors", bytes, k))
	}
	return t
}

// Reset forgets everything and keeps the memory.
func (t *Table) Reset() {
	clear(t.slots)
	t.n, t.hand = 0, 0
}

// Len returns the number of rows.
func (t *Table) Len() int { return t.n }

// Width returns k.
func (t *Table) Width() int { return t.k }

// Bytes returns the memory that t uses.
func (t *Table) Bytes() int { return 4*len(t.slots) + len(t.pages)*pageRows*(8*t.k+8+4+1) }

func (t *Table) page(row int) (p *page, i int) { return t.pages[row/pageRows], row % pageRows }

func (t *Table) key(row int) Key {
	p, i := t.page(row)
	return p.keys[i]
}

func (t *Table) home(k Key) int { return int(splitmix.Mix(uint64(k))) & (len(t.slots) - 1) }

// slot returns where key is, or the free slot where it would be.
func (t *Table) slot(key Key) int {
	s := t.home(key)
	for ; t.slots[s] != 0 && t.key(int(t.slots[s])-1) != key; s = (s + 1) & (len(t.slots) - 1) {
	}
	return s
}

// Get returns the successors of key, best first; empty if t does not know the key. The slice is
// t's own and valid until its next Put.
func (t *Table) Get(key Key) []Successor {
	row := int(t.slots[t.slot(key)]) - 1
	if row < 0 {
		return nil
	}
	p, i := t.page(row)
	p.used[i] = true
	return p.next[i*t.k:][:p.count[i]]
}

// Put replaces the successors of key by next, best first. It keeps the first k.
func (t *Table) Put(key Key, next []Successor) {
	s := t.slot(key)
	row := int(t.slots[s]) - 1
	known := row >= 0
	if !known {
		row = t.room()
		s = t.slot(key) // the old one may have moved
		t.slots[s] = int32(row + 1)
	}
	p, i := t.page(row)
	p.keys[i], p.used[i] = key, known
	p.count[i] = int32(copy(p.next[i*t.k:(i+1)*t.k], next))
}

// room returns a row that no slot refers to.
func (t *Table) room() int {
	if t.n == t.most {
		return t.evict()
	}
	if t.n == len(t.pages)*pageRows {
		t.pages = append(t.pages, &page{next: make([]Successor, pageRows*t.k)})
	}
	t.n++
	if 2*t.n > len(t.slots) {
		t.slots = make([]int32, 2*len(t.slots))
		for row := range t.n - 1 {
			t.slots[t.slot(t.key(row))] = int32(row + 1)
		}
	}
	return t.n - 1
}

// evict frees the first row, starting at the hand, that was not used since the hand last
// passed, and returns it.
func (t *Table) evict() int {
	for {
		row := t.hand
		t.hand = (t.hand + 1) % t.most
		p, i := t.page(row)
		if p.used[i] {
			p.used[i] = false
			continue
		}
		t.free(t.slot(p.keys[i]))
		return row
	}
}

// free empties slot s and moves up the entries that were displaced by it (Knuth, volume 3,
// algorithm 6.4R).
func (t *Table) free(s int) {
	mask := len(t.slots) - 1
	for j := (s + 1) & mask; t.slots[j] != 0; j = (j + 1) & mask {
		home := t.home(t.key(int(t.slots[j]) - 1))
		if (j-home)&mask >= (j-s)&mask {
			t.slots[s] = t.slots[j]
			s = j
		}
	}
	t.slots[s] = 0
}

// Transitions are GOOSE's two tiers (appendix C.1): the successors of two tokens or, where they
// are unknown, those of the last token.
type Transitions struct {
	one, two *Table // two is nil without bigrams
}

// The memory of the two tiers. At ten successors the first has 150,000 rows, enough for every
// token of most vocabularies.
const (
	oneBytes = 16 << 20
	twoBytes = 32 << 20
)

// NewTransitions returns empty tables of k successors; without bigrams, only for the last
// token. They take at most 48 MiB. It panics unless k is in 1..256.
func NewTransitions(k int, bigrams bool) *Transitions {
	if k < 1 || k > MaxWidth {
		panic(fmt.Sprintf("lookup: transitions to %d tokens, want 1..%d", k, MaxWidth))
	}
	t := &Transitions{one: NewTable(k, oneBytes)}
	if bigrams {
		t.two = NewTable(k, twoBytes)
	}
	return t
}

// MaxWidth is the largest number of successors in Transitions.
const MaxWidth = 256

// Reset forgets everything and keeps the memory.
func (t *Transitions) Reset() {
	t.one.Reset()
	if t.two != nil {
		t.two.Reset()
	}
}

// Bytes returns the memory that t uses.
func (t *Transitions) Bytes() int {
	if t.two == nil {
		return t.one.Bytes()
	}
	return t.one.Bytes() + t.two.Bytes()
}

// Width returns k.
func (t *Transitions) Width() int { return t.one.k }

// Learn stores the successors of before and token, best first. A negative before means that
// token is the first of its sequence.
func (t *Transitions) Learn(before, token int32, next []Successor) {
	t.one.Put(After(token), next)
	if t.two != nil && before >= 0 {
		t.two.Put(AfterTwo(before, token), next)
	}
}

// Next returns the successors of before and token, best first; empty if unknown. The slice is
// valid until the next Learn.
func (t *Transitions) Next(before, token int32) []Successor {
	if t.two != nil && before >= 0 {
		if next := t.two.Get(AfterTwo(before, token)); len(next) > 0 {
			return next
		}
	}
	return t.one.Get(After(token))
}

// Tiers returns the successors of before and token, and those of token alone, best first each;
// empty if unknown. The slices are valid until the next Learn.
func (t *Transitions) Tiers(before, token int32) (two, one []Successor) {
	if t.two != nil && before >= 0 {
		two = t.two.Get(AfterTwo(before, token))
	}
	return two, t.one.Get(After(token))
}
