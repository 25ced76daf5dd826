package tokenizer

import (
	"hash/maphash"
	"strings"
)

// packed are the texts of ids, one after the other: a vocabulary has some 100,000, which as strings of their own
// would take several times as much.
type packed struct {
	all  string
	ends []uint32 // where the text of each id ends in all
}

// pack returns list as one. What a file may make bounds their bytes far below 4 GiB.
func pack(list []string) packed {
	n := 0
	for _, s := range list {
		n += len(s)
	}
	var all strings.Builder
	all.Grow(n)
	t := packed{ends: make([]uint32, len(list))}
	for id, s := range list {
		all.WriteString(s)
		t.ends[id] = uint32(all.Len())
	}
	t.all = all.String()
	return t
}

// len returns the number of ids.
func (t *packed) len() int { return len(t.ends) }

// at returns the text of an id.
func (t *packed) at(id int32) string {
	from := uint32(0)
	if id > 0 {
		from = t.ends[id-1]
	}
	return t.all[from:t.ends[id]]
}

// list returns all texts, which share memory with t.
func (t *packed) list() []string {
	out := make([]string, t.len())
	for id := range out {
		out[id] = t.at(int32(id))
	}
	return out
}

// An index finds ids by their texts: open addressing, linear probing, half full.
type index struct {
	of    *packed
	seed  maphash.Seed
	slots []int32 // id plus one, 0: empty
	n     int     // texts that can be found
}

// newIndex indexes the texts of ids for which has is true. They differ from each other.
func newIndex(of *packed, has func(id int32) bool) index {
	x := index{of: of, seed: maphash.MakeSeed()}
	for id := range of.len() {
		if has(int32(id)) {
			x.n++
		}
	}
	size := 16
	for size < 2*x.n {
		size *= 2
	}
	x.slots = make([]int32, size)
	for id := range int32(of.len()) {
		if !has(id) {
			continue
		}
		i := x.place(of.at(id))
		for x.slots[i] != 0 {
			i = (i + 1) & (size - 1)
		}
		x.slots[i] = id + 1
	}
	return x
}

func (x *index) place(s string) int { return int(maphash.String(x.seed, s)) & (len(x.slots) - 1) }

// find returns the id of a text; false if there is none.
func (x *index) find(s string) (int32, bool) {
	if x.n == 0 {
		return 0, false
	}
	for i := x.place(s); ; i = (i + 1) & (len(x.slots) - 1) {
		switch id := x.slots[i] - 1; {
		case id < 0:
			return 0, false
		case x.of.at(id) == s:
			return id, true
		}
	}
}
