package suffixtree

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// A model of a tree: the sequences themselves, in which texts are counted by looking at every
// position.
type naive struct {
	depth int
	first Seq
	texts [][]int32
}

// counts returns how often each text of at most depth tokens occurs, the empty one too.
func (m *naive) counts() map[string]int32 {
	out := map[string]int32{}
	for _, text := range m.texts {
		for i := range text {
			for j := i; j <= min(len(text), i+m.depth); j++ {
				out[fmt.Sprint(text[i:j])]++
			}
		}
	}
	return out
}

// check compares a tree with its model, and looks at everything that its operations rely on.
func check(t *Tree, m *naive) error {
	want := m.counts()
	nodes, tokens := int32(0), 0
	for _, text := range m.texts {
		tokens += len(text)
	}
	if t.tokens != tokens || t.oldest != m.first || len(t.seqs) != len(m.texts) {
		return fmt.Errorf("%d tokens of %d sequences from %d on, want %d of %d from %d on", t.tokens, len(t.seqs), t.oldest, tokens, len(m.texts), m.first)
	}
	if root := t.at(0); root.count != want["[]"] || root.length != 0 {
		return fmt.Errorf("root %+v, want %d suffixes", *root, want["[]"])
	}
	found := map[string]int32{}
	var walk func(n int32, text []int32) error
	walk = func(n int32, text []int32) error {
		x, sum, before := t.at(n), int32(0), int32(0)
		for c := x.first; c != 0; c = t.at(c).next {
			y := t.at(c)
			nodes++
			g := t.groups[y.group]
			switch {
			case y.parent != n || y.prev != before || t.child(n, y.token) != c:
				return fmt.Errorf("node %d: %+v is not linked below %d after %d", c, *y, n, before)
			case y.length < 1 || !t.Has(y.seq) || y.token != t.text(y)[0]:
				return fmt.Errorf("node %d: text of %+v", c, *y)
			case before != 0 && t.at(before).count < y.count:
				return fmt.Errorf("node %d: %d times, %d times before", c, y.count, t.at(before).count)
			case (g.head == c) != (before == 0 || t.at(before).count > y.count):
				return fmt.Errorf("node %d: group %+v after %d", c, g, before)
			case (g.tail == c) != (y.next == 0 || t.at(y.next).count < y.count):
				return fmt.Errorf("node %d: group %+v before %d", c, g, y.next)
			case n != 0 && y.count == x.count:
				return fmt.Errorf("node %d is the only way on from %d", c, n)
			}
			longer := text
			for _, token := range t.text(y) {
				longer = append(slices.Clone(longer), token)
				found[fmt.Sprint(longer)] = y.count
			}
			if err := walk(c, longer); err != nil {
				return err
			}
			sum += y.count
			before = c
		}
		if x.last != before || sum > x.count {
			return fmt.Errorf("node %d: %+v has children up to %d, %d times", n, *x, before, sum)
		}
		return nil
	}
	if err := walk(0, nil); err != nil {
		return err
	}
	for text, n := range want {
		if text != "[]" && found[text] != n {
			return fmt.Errorf("%s: %d times, want %d", text, found[text], n)
		}
	}
	if len(found) != len(want)-min(1, len(want)) {
		return fmt.Errorf("%d texts, want %d", len(found), len(want)-1)
	}
	if t.live != nodes || int(nodes) > 2*tokens {
		return fmt.Errorf("%d nodes in use for %d tokens, found %d", t.live, tokens, nodes)
	}
	return nil
}

// However sequences grow beside each other and are removed, every text has the count of its
// occurrences.
func TestCountsAreThoseOfTheTexts(t *testing.T) {
	wrapped := 0
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 1))
		vocab, depth := 1+rng.Int32N(4), 1+rng.IntN(7)
		tree, m := New(depth, 1<<20), &naive{depth: depth}
		if seed%2 == 1 { // after billions of sequences their names wrap around
			tree.oldest, m.first = math.MaxInt32-1, math.MaxInt32-1
		}
		var open []Seq
		for step := range 120 {
			switch op := rng.IntN(40); {
			case op == 0 && step > 60:
				tree.Reset()
				*m, open = naive{depth: depth}, nil
			case op < 2 || len(m.texts) == 0:
				open = append(open, tree.Open())
				m.texts = append(m.texts, nil)
			case op < 4:
				open = slices.DeleteFunc(open, func(s Seq) bool { return s == m.first })
				tree.Remove()
				m.texts, m.first = m.texts[1:], m.first+1
				if m.first < 0 && len(m.texts) > 0 {
					wrapped++
				}
			case op < 5 && len(open) > 0:
				tree.Close(open[0])
				open = open[1:]
			case len(open) > 0:
				s, token := open[rng.IntN(len(open))], rng.Int32N(vocab)
				if !tree.Append(s, token) {
					t.Fatal("no room")
				}
				m.texts[s-m.first] = append(m.texts[s-m.first], token)
			}
			if err := check(tree, m); err != nil {
				t.Fatalf("seed %d, step %d: %v", seed, step, err)
			}
		}
		for _, text := range m.texts {
			if got := tree.Text(m.first); !slices.Equal(got, text) {
				t.Fatalf("seed %d: text %v, want %v", seed, got, text)
			}
			tree.Remove()
			m.texts, m.first = m.texts[1:], m.first+1
		}
		if err := check(tree, m); err != nil || tree.Bytes() != 0 {
			t.Fatalf("seed %d: %d bytes without sequences: %v", seed, tree.Bytes(), err)
		}
	}
	if wrapped < 5 {
		t.Errorf("a sequence was removed %d times after names had wrapped around", wrapped)
	}
}

// A tree takes no more than it is given, refuses what there is no room for, and has room again when
// sequences are gone. Its memory is used again.
func TestMemoryIsBounded(t *testing.T) {
	const bytes = 1 << 17
	tree := New(8, bytes)
	rng := rand.New(rand.NewPCG(1, 1))
	fill := func() (n int) {
		for s := tree.Open(); tree.Append(s, rng.Int32N(1000)); n++ {
			if tree.Bytes() > bytes {
				t.Fatalf("%d bytes, want at most %d", tree.Bytes(), bytes)
			}
		}
		return n
	}
	first := fill()
	if first < bytes/(2*nodeBytes+4)-8 {
		t.Errorf("%d tokens in %d bytes", first, bytes)
	}
	pages := len(tree.pages)
	for range 3 {
		tree.Remove()
		if n := fill(); n < first*9/10 {
			t.Errorf("%d tokens, %d before", n, first)
		}
	}
	if len(tree.pages) > pages+1 || len(tree.groups) > pages*pageNodes {
		t.Errorf("%d pages and %d groups, %d pages before", len(tree.pages), len(tree.groups), pages)
	}
	if kept := len(tree.pages)*pageNodes*11*4 + 8*len(tree.groups) + 4*len(tree.slots); kept > bytes+pageNodes*nodeBytes {
		t.Errorf("%d bytes of nodes, groups and slots, want at most %d", kept, bytes)
	}
}

// Of children that occurred equally often, the one that was seen last comes first.
func TestTheNewestOfEqualsComesFirst(t *testing.T) {
	tree := New(8, 1<<20)
	s := tree.Open()
	for _, token := range []int32{1, 2, 1, 3, 1, 4, 1, 3, 1, 2, 1} {
		tree.Append(s, token)
	}
	var d, scratch Draft
	tree.Speculate(&d, &scratch, []int32{9, 1}, Limits{Most: 3, Factor: 3, Tree: true})
	if want := []int32{2, 3, 1}; !slices.Equal(d.Tokens, want) {
		t.Errorf("after 1: %v, want %v", d.Tokens, want)
	}
}
