// Package tree holds the token tree that preprocessing labels, training masks
// and inference verifies.
package tree

import (
	"fmt"
	"math/bits"
)

// MaxNodes is the largest tree that any stage builds: a prompt chunk is a chain
// of at most this many nodes.
const MaxNodes = 1024

// A Tree is a set of candidate continuations that share prefixes. Node 0 is the
// root: the last emitted token, whose KV entry the target has not written yet.
// Nodes are stored parents first, so Parent(n) < n for every n > 0.
//
// Ancestry is a bit table: row n has bit a set when a == n or a is an ancestor
// of n, which makes it row n of the tree-attention mask over the tree's own
// columns (SpecInfer, Miao et al. 2024, §4.2).
//
// The zero Tree is empty; Reset gives it a root. A Tree that is reused through
// Reset stops allocating once it has reached its largest size. It is not safe
// for concurrent use while nodes are being added.
type Tree struct {
	token  []int32
	parent []int32
	depth  []int32
	first  []int32  // first child, -1 if none
	last   []int32  // last child, -1 if none
	next   []int32  // next sibling, -1 if none
	anc    []uint64 // [Len][stride]
	stride int
	max    int
}

// New returns a tree that has only its root and room for max nodes in total.
func New(root int32, max int) *Tree {
	t := new(Tree)
	t.Reset(root, max)
	return t
}

// Reset empties t and gives it a root and room for max nodes in total. It panics unless 1 <=
// max <= MaxNodes.
func (t *Tree) Reset(root int32, max int) {
	if max < 1 || max > MaxNodes {
		panic(fmt.Sprintf("tree: room for %d nodes, want 1..%d", max, MaxNodes))
	}
	t.max, t.stride = max, (max+63)/64
	t.token, t.parent, t.depth = t.token[:0], t.parent[:0], t.depth[:0]
	t.first, t.last, t.next, t.anc = t.first[:0], t.last[:0], t.next[:0], t.anc[:0]
	t.push(root, -1, 0)
}

// Add appends a child of parent and returns its index. It panics if parent is
// not in t or t is full: both are caller bugs.
func (t *Tree) Add(parent int, token int32) int {
	if parent < 0 || parent >= t.Len() || t.Len() == t.max {
		panic(fmt.Sprintf("tree: Add below node %d to %d of %d nodes", parent, t.Len(), t.max))
	}
	n := t.push(token, int32(parent), t.depth[parent]+1)
	row := t.Ancestors(n)
	for i, w := range t.Ancestors(parent) {
		row[i] |= w
	}
	if l := t.last[parent]; l >= 0 {
		t.next[l] = int32(n)
	} else {
		t.first[parent] = int32(n)
	}
	t.last[parent] = int32(n)
	return n
}

func (t *Tree) push(token, parent, depth int32) int {
	n := len(t.token)
	t.token = append(t.token, token)
	t.parent = append(t.parent, parent)
	t.depth = append(t.depth, depth)
	t.first = append(t.first, -1)
	t.last = append(t.last, -1)
	t.next = append(t.next, -1)
	for range t.stride {
		t.anc = append(t.anc, 0)
	}
	t.Ancestors(n)[n/64] = 1 << (n % 64)
	return n
}

// Len returns the number of nodes, including the root.
func (t *Tree) Len() int { return len(t.token) }

// Room returns how many nodes can still be added.
func (t *Tree) Room() int { return t.max - len(t.token) }

// Token returns node n's token id.
func (t *Tree) Token(n int) int32 { return t.token[n] }

// Tokens returns all token ids by node. The slice is t's own.
func (t *Tree) Tokens() []int32 { return t.token }

// Parent returns node n's parent, or -1 for the root.
func (t *Tree) Parent(n int) int { return int(t.parent[n]) }

// Depth returns the number of edges between the root and n. The root's position
// in the sequence plus Depth(n) is n's rotary position.
func (t *Tree) Depth(n int) int { return int(t.depth[n]) }

// FirstChild returns the child that was added to n first, or -1.
func (t *Tree) FirstChild(n int) int { return int(t.first[n]) }

// NextSibling returns the child that was added to n's parent after n, or -1.
func (t *Tree) NextSibling(n int) int { return int(t.next[n]) }

// Child returns n's first child that carries token, or -1.
func (t *Tree) Child(n int, token int32) int {
	for c := t.first[n]; c >= 0; c = t.next[c] {
		if t.token[c] == token {
			return int(c)
		}
	}
	return -1
}

// Ancestors returns n's row of the mask: bit a of word a/64 is set when n
// attends to a. It has Stride words and is t's own.
func (t *Tree) Ancestors(n int) []uint64 { return t.anc[n*t.stride : (n+1)*t.stride] }

// Mask returns the Ancestors rows of all nodes: [Len][Stride] words, t's own.
func (t *Tree) Mask() []uint64 { return t.anc }

// Stride returns the number of words in a row of Ancestors.
func (t *Tree) Stride() int { return t.stride }

// AppendPath appends the nodes from the root to n, root first, to dst.
func (t *Tree) AppendPath(dst []int, n int) []int {
	for i, w := range t.Ancestors(n) {
		for ; w != 0; w &= w - 1 {
			dst = append(dst, i*64+bits.TrailingZeros64(w))
		}
	}
	return dst
}

// A Row holds a node's most likely next tokens, best first, with their natural log
// probabilities. An empty row means that the model has no prediction for the node.
type Row struct {
	Tokens  []int32
	LogProb []float32
	// Logits is the whole row [vocab] if the caller asked for it, to draw children at
	// random. Searches do not read it.
	Logits []float32
	// Accept is the draft model's own estimate of the probability that a token drafted after the node is accepted if the
	// node is; 0: it has none.
	Accept float32
}
