// Package texts keeps many texts by their ids, and finds ids by their texts: vocabularies.
package texts

import (
	"hash/maphash"
	"strings"
)

// A Packed is the texts of ids, one after the other: a vocabulary has some 100,000, which as strings of their own
// would take several times as much.
type Packed struct {
	all  string
	ends []uint32 // where the text of each id ends in all
}

// Pack returns list as one. Callers bound their bytes far below 4 GiB.
func Pack(list []string) *Packed {
	n := 0
	for _, s := range list {
		n += len(s)
	}
	var all strings.Builder
	all.Grow(n)
	t := &Packed{ends: make([]uint32, len(list))}
	for id, s := range list {
		all.WriteString(s)
		t.ends[id] = uint32(all.Len())
	}
	t.all = all.String()
	return t
}

// Len returns the number of ids.
func (t *Packed) Len() int { return len(t.ends) }

// Bytes returns the bytes of all texts.
func (t *Packed) Bytes() int { return len(t.all) }

// At returns the text of an id.
func (t *Packed) At(id int32) string {
	from := uint32(0)
	if id > 0 {
		from = t.ends[id-1]
	}
	return t.all[from:t.ends[id]]
}

// List returns all texts, which share memory with t.
func (t *Packed) List() []string {
	out := make([]string, t.Len())
	for id := range out {
		out[id] = t.At(int32(id))
	}
	return out
}

// Map returns what f makes of the texts: it appends that of an id to dst.
func (t *Packed) Map(f func(dst []byte, id int32, s string) []byte) *Packed {
	all, to := make([]byte, 0, len(t.all)), &Packed{ends: make([]uint32, t.Len())}
	for id := range to.ends {
		all = f(all, int32(id), t.At(int32(id)))
		to.ends[id] = uint32(len(all))
	}
	to.all = string(all)
	return to
}

// An Index finds ids by their texts: open addressing, linear probing, half full. The zero Index finds nothing.
type Index struct {
	of    *Packed
	seed  maphash.Seed
	slots []int32 // id plus one, 0: empty
	n     int
}

// NewIndex indexes the texts of ids for which has, unless it is nil, is true. If two are equal, the last is found, and
// twice is called with it and the one before.
func NewIndex(of *Packed, has func(id int32) bool, twice func(id, before int32)) Index {
	x := Index{of: of, seed: maphash.MakeSeed()}
	size := 16
	for size < 2*of.Len() {
		size *= 2
	}
	x.slots = make([]int32, size)
	for id := range int32(of.Len()) {
		if has != nil && !has(id) {
			continue
		}
		at := x.slot(of.At(id))
		if before := x.slots[at] - 1; before < 0 {
			x.n++
		} else if twice != nil {
			twice(id, before)
		}
		x.slots[at] = id + 1
	}
	return x
}

// slot returns the place of a text: that of its id, or the free one where it belongs.
func (x *Index) slot(s string) int {
	i := int(maphash.String(x.seed, s)) & (len(x.slots) - 1)
	for x.slots[i] != 0 && x.of.At(x.slots[i]-1) != s {
		i = (i + 1) & (len(x.slots) - 1)
	}
	return i
}

// Len returns the number of texts that can be found.
func (x *Index) Len() int { return x.n }

// Find returns the id of a text; false if there is none.
func (x *Index) Find(s string) (int32, bool) {
	if x.n == 0 {
		return 0, false
	}
	id := x.slots[x.slot(s)] - 1
	return id, id >= 0
}

// Share makes x look into another Packed with the same texts where x has ids.
func (x *Index) Share(of *Packed) { x.of = of }
