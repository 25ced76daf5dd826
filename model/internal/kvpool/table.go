package kvpool

import "slices"

// A Table is the blocks of a sequence.
type Table struct {
	// Of are each group's blocks [groups], of the committed positions and, while there are some, of the nodes
	// after them; −1: given back.
	Of     [][]int32
	All    bool // nothing is given back
	pool   *Pool
	layout *Layout
	seen   []int // [groups] blocks before it are given back, or of a place
	places []int // numbers of tokens after which windows stay: the earliest, and the newest
}

// NewTable returns an empty table.
func NewTable(pool *Pool, layout *Layout, all bool) Table {
	groups := len(layout.Windows)
	return Table{Of: make([][]int32, groups), All: all || !layout.Windowed(), pool: pool, layout: layout, seen: make([]int, groups)}
}

// Fork returns a table that shares the blocks of the first n positions.
func (t *Table) Fork(n int) Table {
	f := *t
	f.Of, f.seen, f.places = make([][]int32, len(t.Of)), slices.Clone(t.seen), slices.Clone(t.places)
	for g, blocks := range t.Of {
		f.Of[g] = slices.Clone(blocks[:Blocks(n)])
		for _, b := range f.Of[g] {
			if b >= 0 {
				t.pool.Share(b)
			}
		}
	}
	return f
}

// Trim gives back the blocks after the first n positions.
func (t *Table) Trim(n int) {
	keep := Blocks(n)
	for g, blocks := range t.Of {
		for _, b := range blocks[min(keep, len(blocks)):] {
			if b >= 0 {
				t.pool.Put(b)
			}
		}
		t.Of[g] = blocks[:min(keep, len(blocks))]
	}
}

// Cut drops the positions from n on, with their places.
func (t *Table) Cut(n int) {
	t.Trim(n)
	t.places = slices.DeleteFunc(t.places, func(p int) bool { return p > n })
	clear(t.seen)
}

// KeepAt makes n a place.
func (t *Table) KeepAt(n int) {
	if t.All || n <= 0 || slices.Contains(t.places, n) {
		return
	}
	t.places = append(t.places, n)
	slices.Sort(t.places[:len(t.places)-1])
	if len(t.places) > mostPlaces {
		t.places = slices.Delete(t.places, 1, 2)
		clear(t.seen)
	}
}

// GiveBack gives blocks back that no token after the first n sees.
func (t *Table) GiveBack(n int) {
	if t.All {
		return
	}
	for g, w := range t.layout.Windows {
		if w == 0 {
			continue
		}
		// A branch may also begin with the last token.
		end := min(first(n, w), max(0, n-1)) / blockLen
		for ; t.seen[g] < end; t.seen[g]++ {
			i := t.seen[g]
			if b := t.Of[g][i]; b >= 0 && !t.placed(i, w) {
				t.pool.Put(b)
				t.Of[g][i] = -1
			}
		}
	}
}

// placed reports whether block i of a group with window w belongs to a place.
func (t *Table) placed(i, w int) bool {
	return slices.ContainsFunc(t.places, func(n int) bool {
		return i*blockLen < n && (i+1)*blockLen > first(n, w)
	})
}

// Resume returns the largest number of tokens, at most n, after which layers with windows have what a next token sees.
func (t *Table) Resume(n int) int {
	for again := true; again; {
		again = false
		for g, w := range t.layout.Windows {
			if w == 0 {
				continue
			}
			first := max(0, n+1-w) / blockLen
			for i := Blocks(n) - 1; i >= first; i-- {
				if t.Of[g][i] < 0 {
					n, again = i*blockLen, true
					break
				}
			}
		}
	}
	return n
}

// Shared returns the block of a group that holds the last of n positions if the next one goes there, too,
// and another sequence has it as well, or −1.
func (t *Table) Shared(g, n int) int32 {
	if i := n / blockLen; n%blockLen != 0 && t.pool.Refs(t.Of[g][i]) > 1 {
		return t.Of[g][i]
	}
	return -1
}

// Takes returns the blocks that n more positions after the first from take.
func (t *Table) Takes(from, n int) int {
	take := 0
	for g := range t.Of {
		take += t.More(g, from+n)
		if t.Shared(g, from) >= 0 {
			take++
		}
	}
	return take
}

// More returns the blocks that a group lacks for n positions.
func (t *Table) More(g, n int) int { return max(0, Blocks(n)-len(t.Of[g])) }

// Extend takes the blocks that a group lacks for n positions, which are there.
func (t *Table) Extend(g, n int) {
	for range t.More(g, n) {
		t.Of[g] = append(t.Of[g], t.pool.Get())
	}
}

// Blocks returns the number of blocks, and how many of them no other sequence has.
func (t *Table) Blocks() (held, own int) {
	for _, blocks := range t.Of {
		for _, b := range blocks {
			if b < 0 {
				continue
			}
			if held++; t.pool.Refs(b) == 1 {
				own++
			}
		}
	}
	return held, own
}

// Slot returns the slot of position p in a group.
func (t *Table) Slot(g, p int) int32 { return t.Of[g][p/blockLen]*blockLen + int32(p%blockLen) }

// Slots returns all slots of a block.
func Slots(block int32) []int32 {
	s := make([]int32, blockLen)
	for i := range s {
		s[i] = block*blockLen + int32(i)
	}
	return s
}

// NoSlots returns own, which is of groups of layers, without slots.
func NoSlots(groups int, own [][]int32) [][]int32 {
	if len(own) < groups {
		own = make([][]int32, groups)
	}
	for g := range own {
		own[g] = own[g][:0]
	}
	return own
}
