// Package prefix keeps closed sequences by their tokens, so that a later prompt with the same
// beginning need not be computed again.
package prefix

import (
	"container/list"
	"slices"

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
	// PerWindow are the bytes of these that layers with a window take. Of each sequence they keep at most
	// Window tokens.
	PerWindow int64
	Window    int
	// TenantBytes, if not 0, bounds the sequences of one tenant, whose oldest go first.
	TenantBytes int64
}

// An Owner is whose sequences a cache looks at: what one owner has left, no other finds.
type Owner struct {
	Tenant string
	// Long says that positions rotate as in texts beyond the length at which a model with longrope changes
	// all of them, so that keys and values of shorter texts are of no use.
	Long bool
}

// A Cache maps token sequences to values, such as KV stores, in a radix tree: each edge is a run
// of tokens and each leaf a sequence, so that a look-up costs as many steps as tokens match,
// however many sequences there are. No sequence in the cache is a prefix of another: the longer
// of two such serves for both.
//
// Sequences belong to owners, who have a tree each: what one tenant has asked shortens no other's answers,
// so that their times tell nothing about it. They share the limit.
//
// A cache is not safe for concurrent use.
type Cache[T any] struct {
	limit  Limit
	drop   func(T)
	roots  map[Owner]*node[T] // those without sequences are not there
	gone   func(of Owner, tokens []int32)
	resume func(value T, n int) int // how many of n tokens a sequence can continue after; nil: all
	used   list.List                // of leaves, *node[T], the most recently used first
	clock  uint64
	tokens int
}

// A node is the run of tokens that leads to it and what follows.
type node[T any] struct {
	up    *node[T]
	run   []int32            // of the edge from up; empty for the root alone
	kids  map[int32]*node[T] // by the first token of their runs; empty for a leaf
	at    *list.Element      // of a leaf, in the order of use
	who   Owner              // of a root
	size  int                // of a root: tokens below it
	seqs  int                // of a root: sequences below it
	value T                  // of a leaf
	last  uint64             // when this leaf, or the last of those below, was used
}

// New returns an empty cache. drop is called once with every value that leaves the cache.
func New[T any](limit Limit, drop func(T)) *Cache[T] {
	return &Cache[T]{limit: limit, drop: drop, roots: map[Owner]*node[T]{}}
}

// Of returns a cache of up to entries sequences of m, which it closes when it drops them.
func Of(m *model.Model, entries int) *Cache[*model.Seq] {
	c := New(LimitOf(m, entries), (*model.Seq).Close)
	c.resume = (*model.Seq).Resume
	return c
}

// LimitOf allows up to entries sequences of m, which take at most half of its KV pool.
func LimitOf(m *model.Model, entries int) Limit {
	kv := m.KV()
	if kv.State > 0 { // a kept sequence has states, too, which take another quarter at most
		entries = min(entries, max(1, kv.Total/(4*kv.State)))
	}
	l := Limit{Entries: entries, Bytes: max(1, int64(kv.Total)*m.BlockBytes()/2), PerToken: m.PositionBytes()}
	if groups := len(kv.Layout.Windows); kv.Layout.Windowed() {
		l.PerWindow = l.PerToken / int64(groups) * int64(groups-kv.Layout.Full())
		l.Window = kv.Layout.Window()
	}
	return l
}

// size returns the bytes of sequences with so many tokens.
func (l *Limit) size(tokens, sequences int) int64 {
	n := int64(tokens) * l.PerToken
	if gone := tokens - sequences*l.Window; l.Window > 0 && gone > 0 {
		n -= int64(gone) * l.PerWindow
	}
	return n
}

// Pair makes two caches forget together. When one evicts a sequence, the other drops those that
// share more of its tokens than what is left in the first: a target's keys and values and those of its
// draft head are of use only as far as both are there.
func Pair[A, B any](a *Cache[A], b *Cache[B]) {
	a.gone = follow(a.gone, a, b)
	b.gone = follow(b.gone, b, a)
}

func follow[A, B any](before func(Owner, []int32), a *Cache[A], b *Cache[B]) func(Owner, []int32) {
	return func(of Owner, tokens []int32) {
		if before != nil {
			before(of, tokens)
		}
		_, _, n := a.walk(a.roots[of], tokens)
		b.forget(of, tokens, n)
	}
}

// forget drops the sequences of an owner that share more than n leading tokens.
func (c *Cache[T]) forget(of Owner, tokens []int32, n int) {
	for {
		at, _, m := c.walk(c.roots[of], tokens)
		if m <= n {
			return
		}
		c.remove(at.newest())
	}
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

// Size returns the bytes of all sequences, as the limit counts them.
func (c *Cache[T]) Size() int64 { return c.limit.size(c.tokens, c.Len()) }

// Match is MatchOf for the owner without a name.
func (c *Cache[T]) Match(tokens []int32) int { return c.MatchOf(Owner{}, tokens) }

// Find is FindOf for the owner without a name.
func (c *Cache[T]) Find(tokens []int32) (value T, n int) { return c.FindOf(Owner{}, tokens) }

// Put is PutOf for the owner without a name.
func (c *Cache[T]) Put(tokens []int32, value T) { c.PutOf(Owner{}, tokens, value) }

// MatchOf returns the largest number of leading tokens that a sequence of an owner shares, and after which it
// can be continued. It does not count as a use of that sequence.
func (c *Cache[T]) MatchOf(of Owner, tokens []int32) int {
	_, n := c.best(of, tokens)
	return n
}

// FindOf returns the sequence of an owner that MatchOf is about, and the number of tokens; among equals the
// most recently used. That makes it the most recently used of all. The value stays the cache's,
// valid until the next Put, Bound or Evict. Without a shared token n is 0 and there is no value.
func (c *Cache[T]) FindOf(of Owner, tokens []int32) (value T, n int) {
	leaf, n := c.best(of, tokens)
	if n == 0 {
		return value, 0
	}
	c.use(leaf)
	return leaf.value, n
}

// Shared returns the largest number of leading tokens that a sequence of an owner shares, whether or not it can be
// continued there.
func (c *Cache[T]) Shared(of Owner, tokens []int32) int {
	_, _, n := c.walk(c.roots[of], tokens)
	return n
}

// best returns the sequence of those that share most leading tokens which can be continued after most of them. So
// it finds one also after the tokens that it returned the number of.
func (c *Cache[T]) best(of Owner, tokens []int32) (leaf *node[T], n int) {
	at, _, shared := c.walk(c.roots[of], tokens)
	switch {
	case shared == 0:
		return nil, 0
	case c.resume == nil:
		return at.newest(), shared
	}
	for e := c.used.Front(); e != nil; e = e.Next() {
		x := e.Value.(*node[T])
		if !x.below(at) {
			continue
		}
		if m := c.resume(x.value, shared); m > n {
			leaf, n = x, m
		}
	}
	return leaf, n
}

// below reports whether x is y or below it.
func (x *node[T]) below(y *node[T]) bool {
	for x != nil && x != y {
		x = x.up
	}
	return x == y
}

// PutOf hands over an owner's value for tokens, which are copied, and evicts what then exceeds the
// limit.
// Sequences that are prefixes of tokens, and tokens themselves if they are a prefix of a
// sequence, are dropped. A sequence that exceeds the limit by itself is dropped at once, and the
// others stay.
func (c *Cache[T]) PutOf(of Owner, tokens []int32, value T) {
	root := c.roots[of]
	at, off, n := c.walk(root, tokens)
	rest := tokens[n:]
	bytes := c.limit.size(len(tokens), 1)
	switch {
	case len(rest) == 0: // nothing to store, or a sequence begins with it
		if len(tokens) > 0 {
			c.use(at.newest())
		}
		c.drop(value)
		return
	case c.limit.Entries < 1 || over(bytes, c.limit.Bytes) || over(bytes, c.limit.TenantBytes):
		c.drop(value)
		return
	case at != nil && at.at != nil && off == len(at.run): // it continues a sequence
		at.run = append(at.run, rest...)
		c.drop(at.value)
		at.value = value
	default:
		if root == nil {
			root = &node[T]{who: of}
			at, c.roots[of] = root, root
		}
		if off < len(at.run) {
			at = at.split(off)
		}
		leaf := &node[T]{up: at, run: append([]int32(nil), rest...), value: value}
		if at.kids == nil {
			at.kids = map[int32]*node[T]{}
		}
		at.kids[rest[0]] = leaf
		leaf.at = c.used.PushFront(leaf)
		root.seqs++
		at = leaf
	}
	c.tokens += len(rest)
	root.size += len(rest)
	c.use(at)
	for over(c.held(of.Tenant), c.limit.TenantBytes) {
		c.evict(c.oldest(of.Tenant))
	}
	c.shrink()
}

// over reports whether n exceeds a limit that is set.
func over(n, limit int64) bool { return limit > 0 && n > limit }

// held returns the bytes of a tenant's sequences, as the limit counts them.
func (c *Cache[T]) held(tenant string) (n int64) {
	for _, long := range []bool{false, true} {
		if root := c.roots[Owner{tenant, long}]; root != nil {
			n += c.limit.size(root.size, root.seqs)
		}
	}
	return n
}

// oldest returns the least recently used sequence of a tenant, who has one.
func (c *Cache[T]) oldest(tenant string) *node[T] {
	for e := c.used.Back(); ; e = e.Prev() {
		if leaf := e.Value.(*node[T]); leaf.root().who.Tenant == tenant {
			return leaf
		}
	}
}

// Evict drops the least recently used sequence, and reports whether there was one: for a device
// that is out of memory.
func (c *Cache[T]) Evict() bool {
	e := c.used.Back()
	if e == nil {
		return false
	}
	c.evict(e.Value.(*node[T]))
	return true
}

// evict drops a sequence and tells those who forget together with this cache.
func (c *Cache[T]) evict(leaf *node[T]) {
	if c.gone == nil {
		c.remove(leaf)
		return
	}
	who, tokens := leaf.root().who, leaf.tokens()
	c.remove(leaf)
	c.gone(who, tokens)
}

// remove drops a sequence.
func (c *Cache[T]) remove(leaf *node[T]) {
	root, up := leaf.root(), leaf.up
	c.used.Remove(leaf.at)
	c.tokens -= len(leaf.run)
	root.size -= len(leaf.run)
	root.seqs--
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
	if len(root.kids) == 0 {
		delete(c.roots, root.who)
	}
	c.drop(leaf.value)
}

// root returns the root above x.
func (x *node[T]) root() *node[T] {
	for x.up != nil {
		x = x.up
	}
	return x
}

// tokens returns the tokens from the root to x.
func (x *node[T]) tokens() []int32 {
	var runs [][]int32
	for ; x.up != nil; x = x.up {
		runs = append(runs, x.run)
	}
	slices.Reverse(runs)
	return slices.Concat(runs...)
}

// shrink evicts down to the limit.
func (c *Cache[T]) shrink() {
	for c.Len() > c.limit.Entries || over(c.Size(), c.limit.Bytes) {
		if !c.Evict() {
			return
		}
	}
}

// walk follows tokens from root as far as they match: to the first off tokens of at's run, n tokens
// from the root. Without a root nothing matches.
func (c *Cache[T]) walk(root *node[T], tokens []int32) (at *node[T], off, n int) {
	for at = root; at != nil; {
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
	return nil, 0, 0
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
