package lookup

import (
	"fmt"
	"slices"
)

// A Context is the tokens of one sequence with an index of its n-grams for every n in [lo, hi]:
// where the n tokens that end at a position occurred before. Appending or removing a token
// costs O(hi-lo+1) amortised.
type Context struct {
	lo, hi int
	tokens []int32
	grams  []gram // of lo, lo+1, …, hi
}

// A gram indexes the n-grams of one length. Slots are an open-addressing hash of the position
// after the latest occurrence of each n-gram; 0 is free. Slots are taken in the order of
// positions and freed in the opposite order, so a freed slot is never in the middle of a probe
// sequence still in use, and no tombstones are needed.
type gram struct {
	n      int
	slots  []int32
	before []int32 // [len(tokens)]: by last token, the latest earlier end of its n-gram, or 0
}

// NewContext returns an empty index of n-grams for n = lo..hi. It panics unless
// 1 <= lo <= hi.
func NewContext(lo, hi int) *Context {
	if lo < 1 || hi < lo {
		panic(fmt.Sprintf("lookup: n-grams of %d..%d tokens", lo, hi))
	}
	c := &Context{lo: lo, hi: hi}
	for n := lo; n <= hi; n++ {
		c.grams = append(c.grams, gram{n: n, slots: make([]int32, minSlots)})
	}
	return c
}

const minSlots = 1 << 8

// Reset empties c.
func (c *Context) Reset() {
	c.tokens = c.tokens[:0]
	for i := range c.grams {
		clear(c.grams[i].slots)
		c.grams[i].before = c.grams[i].before[:0]
	}
}

// Bytes returns the memory that c uses.
func (c *Context) Bytes() int {
	n := 4 * cap(c.tokens)
	for i := range c.grams {
		n += 4 * (len(c.grams[i].slots) + cap(c.grams[i].before))
	}
	return n
}

// Len returns the number of tokens.
func (c *Context) Len() int { return len(c.tokens) }

// Tokens returns all tokens. The slice is c's own.
func (c *Context) Tokens() []int32 { return c.tokens }

// Append adds tokens at the end.
func (c *Context) Append(tokens ...int32) {
	for _, t := range tokens {
		c.tokens = append(c.tokens, t)
		for i := range c.grams {
			c.grams[i].push(c.tokens)
		}
	}
}

// Truncate removes tokens from the end until n are left; it does nothing if there are fewer.
func (c *Context) Truncate(n int) {
	for len(c.tokens) > n {
		for i := range c.grams {
			c.grams[i].pop(c.tokens)
		}
		c.tokens = c.tokens[:len(c.tokens)-1]
	}
}

// hash returns the hash of the n-gram g.
func hash(g []int32) uint64 {
	h := uint64(0x9e3779b97f4a7c15)
	for _, t := range g {
		h = (h ^ uint64(uint32(t))) * 0xff51afd7ed558ccd
		h ^= h >> 32
	}
	return h
}

// slot returns where the n-gram of key is, or the free slot where it would be.
func (g *gram) slot(tokens, key []int32) int {
	mask := len(g.slots) - 1
	for s := int(hash(key)) & mask; ; s = (s + 1) & mask {
		end := int(g.slots[s])
		if end == 0 || slices.Equal(tokens[end-g.n:end], key) {
			return s
		}
	}
}

// push indexes the n-gram at the end of tokens.
func (g *gram) push(tokens []int32) {
	end := len(tokens)
	if end < g.n {
		g.before = append(g.before, 0)
		return
	}
	// Half of the slots are free. Inserting the positions again in order leaves the slots as if
	// there had always been this many.
	if 2*end > len(g.slots) {
		g.slots = make([]int32, 2*len(g.slots))
		for e := g.n; e < end; e++ {
			g.slots[g.slot(tokens, tokens[e-g.n:e])] = int32(e)
		}
	}
	s := g.slot(tokens, tokens[end-g.n:])
	g.before = append(g.before, g.slots[s])
	g.slots[s] = int32(end)
}

// pop removes the n-gram at the end of tokens.
func (g *gram) pop(tokens []int32) {
	end := len(tokens)
	if end >= g.n {
		g.slots[g.slot(tokens, tokens[end-g.n:])] = g.before[end-1]
	}
	g.before = g.before[:end-1]
}

// Find returns the position after the latest occurrence of key, which is Len if
// the sequence ends with it, and -1 if there is none. It panics unless the length
// of key is in [lo, hi].
func (c *Context) Find(key []int32) int {
	g := c.gram(len(key))
	if end := g.slots[g.slot(c.tokens, key)]; end > 0 {
		return int(end)
	}
	return -1
}

// Earlier returns the position after the latest earlier occurrence of the n
// tokens before position end, or -1. It panics unless n is in [lo, hi] and end
// in [1, Len].
func (c *Context) Earlier(n, end int) int {
	if b := c.gram(n).before[end-1]; b > 0 {
		return int(b)
	}
	return -1
}

// First returns the position after the first earlier occurrence of the n tokens before position end,
// or -1. It panics as Earlier does, and takes time proportional to the number of occurrences.
func (c *Context) First(n, end int) int {
	g := c.gram(n)
	first := -1
	for at := g.before[end-1]; at > 0; at = g.before[at-1] {
		first = int(at)
	}
	return first
}

func (c *Context) gram(n int) *gram {
	if n < c.lo || n > c.hi {
		panic(fmt.Sprintf("lookup: an n-gram of %d tokens, indexed are %d..%d", n, c.lo, c.hi))
	}
	return &c.grams[n-c.lo]
}

// A Match is an earlier occurrence of the newest tokens.
type Match struct {
	N    int // tokens that the index compared: the longest n-gram that occurred before
	Next int // position after the occurrence, where its continuation begins
	// Agree says that two lengths of n-grams were followed by the same token: the consensus of
	// GOOSE, appendix B.2. They may contradict the longest.
	Agree bool
}

// Match returns the latest earlier occurrence of the longest n-gram at the end of the sequence,
// and false if none occurred before.
func (c *Context) Match() (m Match, ok bool) { return c.match(c.Earlier) }

// MatchFirst is Match with the first occurrence of each n-gram. It takes time proportional to the
// number of occurrences.
func (c *Context) MatchFirst() (m Match, ok bool) { return c.match(c.First) }

func (c *Context) match(find func(n, end int) int) (m Match, ok bool) {
	end := len(c.tokens)
	for n := min(c.hi, end); n >= c.lo && !m.Agree; n-- {
		at := find(n, end)
		if at < 0 {
			continue
		}
		if !ok {
			m, ok = Match{N: n, Next: at}, true
			continue
		}
		for k := n + 1; k <= m.N && !m.Agree; k++ {
			longer := find(k, end)
			m.Agree = longer >= 0 && c.tokens[longer] == c.tokens[at]
		}
	}
	return m, ok
}

// Length returns how many tokens before position next equal those at the end of
// the sequence, at most most.
func (c *Context) Length(next, most int) int {
	n, end := 0, len(c.tokens)
	for n < min(most, next) && c.tokens[next-1-n] == c.tokens[end-1-n] {
		n++
	}
	return n
}

// Continue appends to dst the most tokens from position next on. Past the end of the sequence
// it reads from the copy itself, as Lempel and Ziv (1977) do, so that a loop continues. It
// panics unless next is in [0, Len).
func (c *Context) Continue(dst []int32, next, most int) []int32 {
	first := len(dst)
	for i := range most {
		if next+i < len(c.tokens) {
			dst = append(dst, c.tokens[next+i])
		} else {
			dst = append(dst, dst[first+next+i-len(c.tokens)])
		}
	}
	return dst
}
