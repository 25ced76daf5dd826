// Package prefix keeps closed sequences by their tokens, so that a later prompt with the same
// beginning need not be computed again.
package prefix

import (
	"container/list"

	"talf/model"
)

// A Limit bounds a cache.
type Limit struct {
	Entries int // most sequences; 0 keeps none
	// Bytes, if not 0, bounds the size of the sequences. A token in a prefix shared by several
	// sequences counts once, since forks share their KV blocks; duplicates from sequences that
	// were computed side by side are not noticed.
	Bytes    int64
	PerToken int64 // bytes of a token
}

// A Cache maps token sequences to values, such as KV stores, in a radix tree: each edge is a run
// of tokens and each leaf a sequence, so that a look-up costs as many steps as tokens match,
// however many sequences there are. No sequence in the cache is a prefix of another: the longer
// of two such serves for both.
//
// A cache is not safe for concurrent use.
type Cache[T any] struct {
	limit  Limit
	drop   func(T)
	root   node[T]
	used   list.List // of leaves, *node[T], the most recently used first
	clock  uint64
	tokens int
}

// A node is the run of tokens that leads to it and what follows.
type node[T any] struct {
	up    *node[T]
	run   []int32            // of the edge from up; empty for the root alone
	kids  map[int32]*node[T] // by the first token of their runs; empty for a leaf
	at    *list.Element      // of a leaf, in the order of use
	value T                  // of a leaf
	last  uint64             // when this leaf, or the last of those below, was used
}

// New returns an empty cache. drop is called once with every value that leaves the cache.
func New[T any](limit Limit, drop func(T)) *Cache[T] { return &Cache[T]{limit: limit, drop: drop} }

// Of returns a cache of up to entries sequences of m, which it closes when it drops them.
func Of(m *model.Model, entries int) *Cache[*model.Seq] {
	return New(Limit{Entries: entries, PerToken: m.PositionBytes()}, (*model.Seq).Close)
}

// Bound replaces the limit and evicts what exceeds it.
func (c *Cache[T]) Bound(limit Limit) {
	c.limit = limit
	c.shrink()
}

// Limit returns the limit.
func (c *Cache[T]) Limit() Limit { return c.limit }

// Len returns the number of sequences.
func (c *Cache[T]) Len() int { return c.used.Len() }

// Tokens returns the number of tokens, counting shared prefixes once.
func (c *Cache[T]) Tokens() int { return c.tokens }

// Match returns the largest number of leading tokens that a sequence shares. It does not count
// as a use of that sequence.
func (c *Cache[T]) Match(tokens []int32) int {
	_, _, n := c.walk(tokens)
	return n
}

// Find returns the sequence that shares most leading tokens, and their number; among equals the
// most recently used. That makes it the most recently used of all. The value stays the cache's,
// valid until the next Put, Bound or Evict. Without a shared token n is 0 and there is no value.
func (c *Cache[T]) Find(tokens []int32) (value T, n int) {
	at, _, n := c.walk(tokens)
	if n == 0 {
		return value, 0
	}
	leaf := at.newest()
	c.use(leaf)
	return leaf.value, n
}

// Put hands over a value for tokens, which are copied, and evicts what then exceeds the limit.
// Sequences that are prefixes of tokens, and tokens themselves if they are a prefix of a
// sequence, are dropped. A sequence that exceeds the limit by itself is dropped at once, and the
// others stay.
func (c *Cache[T]) Put(tokens []int32, value T) {
	at, off, n := c.walk(tokens)
	rest := tokens[n:]
	switch {
	case len(rest) == 0: // nothing to store, or a sequence begins with it
		if len(tokens) > 0 {
			c.use(at.newest())
		}
		c.drop(value)
		return
	case c.limit.Entries < 1 || c.limit.Bytes > 0 && int64(len(tokens))*c.limit.PerToken > c.limit.Bytes:
		c.drop(value)
		return
	case at.at != nil && off == len(at.run): // it continues a sequence
		at.run = append(at.run, rest...)
		c.drop(at.value)
		at.value = value
	default:
		if off < len(at.run) {
			at = at.split(off)
		}
		leaf := &node[T]{up: at, run: append([]int32(nil), rest...), value: value}
		if at.kids == nil {
			at.kids = map[int32]*node[T]{}
		}
		at.kids[rest[0]] = leaf
		leaf.at = c.used.PushFront(leaf)
		at = leaf
	}
	c.tokens += len(rest)
	c.use(at)
	c.shrink()
}

// Evict drops the least recently used sequence, and reports whether there was one: for a device
// that is out of memory.
func (c *Cache[T]) Evict() bool {
	e := c.used.Back()
	if e == nil {
		return false
	}
	leaf := c.used.Remove(e).(*node[T])
	c.tokens -= len(leaf.run)
	up := leaf.up
	delete(up.kids, leaf.run[0])
	for at := up; at != nil; at = at.up {
		at.last = 0
		for _, k := range at.kids {
			at.last = max(at.last, k.last)
		}
	}
	if up.up != nil && len(up.kids) == 1 {
		up.join()
	}
	c.drop(leaf.value)
	return true
}

// shrink evicts down to the limit.
func (c *Cache[T]) shrink() {
	for c.Len() > c.limit.Entries || c.limit.Bytes > 0 && int64(c.tokens)*c.limit.PerToken > c.limit.Bytes {
		if !c.Evict() {
			return
		}
	}
}

// walk follows tokens as far as they match: to the first off tokens of at's run, n tokens from
// the root.
func (c *Cache[T]) walk(tokens []int32) (at *node[T], off, n int) {
	at = &c.root
	for {
		for off = 0; off < len(at.run) && n < len(tokens) && at.run[off] == tokens[n]; off++ {
			n++
		}
		if off < len(at.run) || n == len(tokens) {
			return at, off, n
		}
		next := at.kids[tokens[n]]
		if next == nil {
			return at, off, n
		}
		at = next
	}
}

// use makes a leaf the most recently used.
func (c *Cache[T]) use(leaf *node[T]) {
	c.clock++
	c.used.MoveToFront(leaf.at)
	for at := leaf; at != nil; at = at.up {
		at.last = c.clock
	}
}

// newest returns the most recently used leaf at or below x.
func (x *node[T]) newest() *node[T] {
	for len(x.kids) > 0 {
		for _, k := range x.kids {
			if k.last == x.last {
				x = k
				break
			}
		}
	}
	return x
}

// split splits x's run after its first off tokens and returns the node of these, with x below
// it.
func (x *node[T]) split(off int) *node[T] {
	above := &node[T]{up: x.up, run: x.run[:off:off], kids: map[int32]*node[T]{x.run[off]: x}}
	x.up.kids[x.run[0]] = above
	x.up, x.run = above, x.run[off:]
	return above
}

// join prepends x's run to that of the only node below it, which replaces x.
func (x *node[T]) join() {
	for _, k := range x.kids {
		k.run = append(x.run[:len(x.run):len(x.run)], k.run...)
		k.up = x.up
		x.up.kids[k.run[0]] = k
	}
}
