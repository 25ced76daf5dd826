// Package suffixtree counts how often every text of up to a given length occurs in a set of
// sequences, and what follows it: the tree of SuffixDecoding (Oliaro et al. 2024, §3), with the
// counts and scores of its published code, snowflakedb/ArcticInference.
package suffixtree

import (
	"fmt"

	"talf/internal/splitmix"
)

// A Tree holds all substrings of at most depth tokens of its sequences. Chains of nodes without a
// branch or an end between them are one node (path compression), so that n tokens take at most 2n
// nodes. Appending a token moves the ends of the last depth suffixes by one token each, and takes
// time proportional to depth; so does removing one.
//
// A sequence that grew while others did is as good as one that was appended at once. A Tree is not
// safe for concurrent use.
type Tree struct {
	depth, bytes int

	seqs   []sequence // by age, from the oldest that was not removed
	oldest Seq
	tokens int // of all sequences

	pages  []*page // of node/pageNodes; node 0 is the root
	used   int32   // nodes that were ever in use since Reset
	free   int32   // first of the freed nodes, linked by next; 0 if there is none
	live   int32   // nodes in use without the root
	groups []group // [nodes that were in use at the same time]
	spare  int32   // first of the freed groups, linked by head; 0 if there is none

	slots []int32 // open addressing by parent and first token: node; 0 is free
}

// A Seq names a sequence of one tree until its next Reset. They are consecutive by age, and wrap
// around.
type Seq int32

// since says how many sequences younger than other s is.
func (s Seq) since(other Seq) int32 { return int32(s - other) }

type sequence struct {
	text []int32
	ends []int32 // nodes where the suffixes of the last depth tokens end, the longest first; nil once closed
}

// A node stands for a text below its parent's. All its tokens are those of sequence seq from
// position at on. That is the youngest sequence with a suffix through the node: sequences are
// removed from the oldest on, so the text is there as long as the node.
type node struct {
	count       int32 // suffixes that end here or go through
	length      int32 // tokens
	token       int32 // the first one
	seq         Seq
	at          int32
	parent      int32
	first, last int32 // children, most frequent first, and among equals the one that was seen last
	prev, next  int32 // siblings
	group       int32
}

// A group is neighbouring siblings of equal count.
type group struct{ head, tail int32 }

const (
	pageNodes = 1 << 9
	minSlots  = 1 << 8
	// nodeBytes is the size of a node, of its group in a slice that has doubled, and of up to four
	// slots, because slots that have grown have at least a quarter taken.
	nodeBytes = 11*4 + 2*2*4 + 4*4
)

type page [pageNodes]node

// New returns an empty tree that takes at most as many bytes, text included. It panics unless
// depth >= 1 and there is room for a token.
func New(depth, bytes int) *Tree {
	if depth < 1 || bytes < (depth+pageNodes)*nodeBytes {
		panic(fmt.Sprintf("suffixtree: %d tokens deep in %d bytes", depth, bytes))
	}
	t := &Tree{depth: depth, bytes: bytes, slots: make([]int32, minSlots)}
	t.Reset()
	return t
}

// Reset forgets all sequences and keeps the memory.
func (t *Tree) Reset() {
	clear(t.slots)
	t.seqs, t.oldest, t.tokens = t.seqs[:0], 0, 0
	t.groups, t.spare = append(t.groups[:0], group{}), 0
	t.used, t.free, t.live = 0, 0, -1
	t.make(node{})
}

// Len returns the number of sequences.
func (t *Tree) Len() int { return len(t.seqs) }

// Bytes returns the memory that nodes and texts in use take.
func (t *Tree) Bytes() int { return nodeBytes*int(t.live) + 4*t.tokens }

// Open adds an empty sequence, which is the youngest.
func (t *Tree) Open() Seq {
	t.seqs = append(t.seqs, sequence{ends: make([]int32, 0, t.depth)})
	return t.oldest + Seq(len(t.seqs)-1)
}

// Has reports whether s has not been removed.
func (t *Tree) Has(s Seq) bool { return s.since(t.oldest) >= 0 }

// Text returns the tokens of s. The slice is t's own.
func (t *Tree) Text(s Seq) []int32 { return t.seqs[s-t.oldest].text }

// Close says that s will not grow.
func (t *Tree) Close(s Seq) { t.seqs[s-t.oldest].ends = nil }

// Append adds a token to s, which is open. It does nothing and returns false if there may not be
// room for it.
func (t *Tree) Append(s Seq, token int32) bool {
	// Every suffix may need a node.
	if t.Bytes()+4+nodeBytes*t.depth > t.bytes {
		return false
	}
	q := &t.seqs[s-t.oldest]
	if len(q.ends) == t.depth {
		q.ends = append(q.ends[:0], q.ends[1:]...)
	}
	q.ends = append(q.ends, 0)
	q.text = append(q.text, token)
	t.tokens++
	t.at(0).count++
	for i, n := range q.ends {
		q.ends[i] = t.extend(n, s, token, int32(len(q.text)))
	}
	return true
}

// extend moves the end of a suffix of s from node n on by token, the one before position end of s,
// and returns the node where the suffix ends now. Ends are where nodes end, so nodes are cut and
// joined.
func (t *Tree) extend(n int32, s Seq, token, end int32) int32 {
	x, c := t.at(n), t.child(n, token)
	y := t.at(c)
	switch {
	case c == 0 && n != 0 && x.count == 1: // nothing but this suffix is here
		x.length++
		return n
	case c == 0:
		c = t.make(node{count: 1, length: 1, token: token, seq: s, at: end - 1, parent: n})
		t.put(c)
		before := t.at(n).last
		if before != 0 && t.at(before).count == 1 {
			before = t.groups[t.at(before).group].head
		} else {
			before = 0
		}
		t.insert(c, before)
		t.enter(c)
		return c
	case n != 0 && x.count == y.count+1 && y.length == 1:
		// All other suffixes go on to c, its only child, where this one will end: c takes its place.
		t.drop(c)
		y.count, y.token, y.length, y.at = x.count, x.token, x.length+1, y.at-x.length
		t.leave(c)
		t.replace(n, c)
		t.refer(c, s, end)
		return c
	case n != 0 && x.count == y.count+1:
		// They go on to c, but c goes on after token: n takes the token from it.
		t.drop(c)
		x.length++
		y.length--
		y.at++
		y.token = t.text(y)[0]
		t.put(c)
		t.refer(n, s, end)
		return n
	}
	if y.length > 1 {
		c = t.cut(c)
	}
	t.raise(c)
	t.refer(c, s, end)
	return c
}

// cut takes the first token of node c, which has more, into a new node above c, and returns it.
func (t *Tree) cut(c int32) int32 {
	x := *t.at(c)
	x.length, x.first, x.last = 1, 0, 0
	n := t.make(x)
	t.swap(c, n)
	t.slots[t.slot(x.parent, x.token)] = n
	y := t.at(c)
	y.parent, y.prev, y.next = n, 0, 0
	y.length--
	y.at++
	y.token = t.text(y)[0]
	t.put(c)
	t.insert(c, 0)
	t.enter(c)
	return n
}

// refer makes the text before position end of s that of node n, unless n has that of a younger
// sequence.
func (t *Tree) refer(n int32, s Seq, end int32) {
	if x := t.at(n); s.since(x.seq) >= 0 {
		x.seq, x.at = s, end-x.length
	}
}

// Remove removes the oldest sequence, open or not. It panics if there is none.
func (t *Tree) Remove() {
	text := t.seqs[0].text
	for start := range text {
		t.at(0).count--
		n := int32(0)
		for i, stop := start, min(len(text), start+t.depth); i < stop; {
			c := t.child(n, text[i])
			if t.at(c).count == 1 { // nothing but this suffix
				t.drop(c)
				t.leave(c)
				t.unlink(c)
				t.release(c)
				break
			}
			t.lower(c)
			i += int(t.at(c).length)
			n = c
		}
		// Where the suffix ended, or branched off, there may be neither an end nor a branch now.
		x := t.at(n)
		c := x.first
		if n == 0 || c == 0 || t.at(c).next != 0 || t.at(c).count != x.count {
			continue
		}
		t.drop(c)
		y := t.at(c)
		y.token, y.length, y.at = x.token, y.length+x.length, y.at-x.length
		t.leave(c)
		t.replace(n, c)
	}
	t.tokens -= len(text)
	t.seqs[0] = sequence{}
	t.seqs = t.seqs[1:]
	t.oldest++
}

func (t *Tree) at(n int32) *node { return &t.pages[n/pageNodes][n%pageNodes] }

// text returns a node's tokens.
func (t *Tree) text(x *node) []int32 { return t.seqs[x.seq-t.oldest].text[x.at:][:x.length] }

// make returns a new node.
func (t *Tree) make(x node) int32 {
	n := t.free
	if n != 0 {
		t.free = t.at(n).next
	} else {
		n = t.used
		t.used++
		if int(n)/pageNodes == len(t.pages) {
			t.pages = append(t.pages, new(page))
		}
	}
	t.live++
	*t.at(n) = x
	return n
}

func (t *Tree) release(n int32) {
	*t.at(n) = node{next: t.free}
	t.free = n
	t.live--
}

// replace puts c, the only child of n, which is no longer in slots or in a group, in n's place, and
// releases n. Their counts are equal.
func (t *Tree) replace(n, c int32) {
	x := t.at(n)
	t.swap(n, c)
	t.slots[t.slot(x.parent, x.token)] = c
	y := t.at(c)
	y.parent, y.prev, y.next, y.group = x.parent, x.prev, x.next, x.group
	t.release(n)
}

// swap makes the siblings, the parent and the group of node a name b instead.
func (t *Tree) swap(a, b int32) {
	x := t.at(a)
	if x.prev != 0 {
		t.at(x.prev).next = b
	} else {
		t.at(x.parent).first = b
	}
	if x.next != 0 {
		t.at(x.next).prev = b
	} else {
		t.at(x.parent).last = b
	}
	g := &t.groups[x.group]
	if g.head == a {
		g.head = b
	}
	if g.tail == a {
		g.tail = b
	}
}

func (t *Tree) home(parent, token int32) int {
	return int(splitmix.Mix(uint64(uint32(parent))<<32|uint64(uint32(token)))) & (len(t.slots) - 1)
}

// slot returns where the child of parent that begins with token is, or the free slot where it would
// be.
func (t *Tree) slot(parent, token int32) int {
	for s := t.home(parent, token); ; s = (s + 1) & (len(t.slots) - 1) {
		n := t.slots[s]
		if n == 0 {
			return s
		}
		if x := t.at(n); x.parent == parent && x.token == token {
			return s
		}
	}
}

// child returns the child of parent that begins with token, 0 if there is none.
func (t *Tree) child(parent, token int32) int32 { return t.slots[t.slot(parent, token)] }

// put adds n to the slots, of which half are free.
func (t *Tree) put(n int32) {
	if 2*int(t.live) > len(t.slots) {
		old := t.slots
		t.slots = make([]int32, 2*len(old))
		for _, o := range old {
			if o != 0 {
				x := t.at(o)
				t.slots[t.slot(x.parent, x.token)] = o
			}
		}
	}
	x := t.at(n)
	t.slots[t.slot(x.parent, x.token)] = n
}

// drop takes n from the slots, and moves those behind it that would not be found any more.
func (t *Tree) drop(n int32) {
	mask := len(t.slots) - 1
	x := t.at(n)
	gap := t.slot(x.parent, x.token)
	for s := (gap + 1) & mask; t.slots[s] != 0; s = (s + 1) & mask {
		y := t.at(t.slots[s])
		if home := t.home(y.parent, y.token); (s-home)&mask >= (s-gap)&mask {
			t.slots[gap] = t.slots[s]
			gap = s
		}
	}
	t.slots[gap] = 0
}
