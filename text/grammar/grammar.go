// Package grammar says which tokens may come next in a text that has to match a grammar: JSON, a
// JSON Schema, a regular expression, or rules in GBNF (see packages schema, regex and gbnf below
// this one, which all write expressions of a Builder).
//
// A Grammar is a pushdown automaton over bytes. A State is the set of its stacks after some text.
// States are immutable, so that the nodes of a draft tree fork them for nothing, and equal states
// are one, so that transitions and masks are computed once. An Automaton crosses a grammar with a
// vocabulary: a token is its bytes, whether it ends inside a UTF-8 character or reaches over
// several parts of the grammar, and added tokens are never text.
//
// The stacks are those of LL parsing without lookahead, kept side by side, as in llama.cpp's
// grammars; that they are shared and that transitions are remembered makes a lazily built
// deterministic automaton of what is regular (Thompson 1968). Crossing it with the vocabulary in a
// trie is from Koo, Liu and He, "Automata-based constraints for language model decoding" (2024).
package grammar

import (
	"errors"
	"fmt"
	"sync/atomic"

	"talf/internal/limits"
	"talf/text/grammar/internal/count"
)

// An Expr is an expression of a Builder.
type Expr int32

type kind uint8

const (
	kindBytes  kind = iota // one byte of a set
	kindText               // the bytes of a text, not empty
	kindSeq                // all, one after the other
	kindAlt                // one of several; without any, nothing matches
	kindRepeat             // one, min to max times
	kindRule               // what the rule is defined as
	kindDFA                // a deterministic automaton
)

// Unbounded is the largest count of a Repeat without one.
const Unbounded = -1

type node struct {
	kind     kind
	set      ByteSet
	text     string
	kids     []Expr
	min, max int32 // max Unbounded: any number
	loose    bool  // of a repeat: what is repeated may be empty; min is then 0
	name     string
	dfa      *DFA
	count    *count.Counter // of a DFA; nil: any text that it accepts
}

// A Builder makes expressions. Its errors are collected: Compile returns the first.
type Builder struct {
	nodes []node
	sets  map[ByteSet]Expr
	runes map[string]Expr
	texts map[string]Expr
	size  int // of all nodes, as limits.GrammarSize counts
	work  int // of all automata, as limits.GrammarCompile counts
	err   error
}

// NewBuilder returns a builder without expressions.
func NewBuilder() *Builder {
	return &Builder{sets: map[ByteSet]Expr{}, runes: map[string]Expr{}, texts: map[string]Expr{}}
}

func (b *Builder) add(n node) Expr {
	b.size += 1 + len(n.kids) + len(n.text)
	if n.dfa != nil {
		b.size += n.dfa.Len()
	}
	if b.size > limits.GrammarSize {
		b.fail(fmt.Errorf("more than %d parts: %w", limits.GrammarSize, limits.ErrTooLarge))
		if len(b.nodes) > 0 {
			return 0 // which exists; Compile reports the error
		}
	}
	b.nodes = append(b.nodes, n)
	return Expr(len(b.nodes) - 1)
}

func (b *Builder) fail(err error) {
	if b.err == nil {
		b.err = err
	}
}

// Err returns what went wrong first, such as too many expressions.
func (b *Builder) Err() error { return b.err }

// Bytes matches one byte of a set, and nothing if it is empty.
func (b *Builder) Bytes(set ByteSet) Expr {
	if set == (ByteSet{}) {
		return b.Alt()
	}
	e, ok := b.sets[set]
	if !ok {
		e = b.add(node{kind: kindBytes, set: set})
		b.sets[set] = e
	}
	return e
}

// Text matches a text.
func (b *Builder) Text(s string) Expr {
	e, ok := b.texts[s]
	if !ok {
		if s == "" {
			e = b.add(node{kind: kindSeq})
		} else {
			e = b.add(node{kind: kindText, text: s})
		}
		b.texts[s] = e
	}
	return e
}

// Empty matches the empty text.
func (b *Builder) Empty() Expr { return b.Text("") }

// Seq matches xs one after the other.
func (b *Builder) Seq(xs ...Expr) Expr {
	if len(xs) == 1 {
		return xs[0]
	}
	return b.add(node{kind: kindSeq, kids: append([]Expr(nil), xs...)})
}

// Alt matches one of xs. Without any it matches nothing.
func (b *Builder) Alt(xs ...Expr) Expr {
	if len(xs) == 1 {
		return xs[0]
	}
	return b.add(node{kind: kindAlt, kids: append([]Expr(nil), xs...)})
}

// Optional matches x or the empty text.
func (b *Builder) Optional(x Expr) Expr { return b.Repeat(x, 0, 1) }

// Repeat matches x from lo to hi times; hi may be Unbounded. What it costs does not depend on the
// counts.
func (b *Builder) Repeat(x Expr, lo, hi int) Expr {
	switch {
	case lo < 0 || hi != Unbounded && hi < lo || max(lo, hi) > limits.GrammarCount:
		b.fail(fmt.Errorf("a count of %d to %d, want at most %d: %w", lo, hi, limits.GrammarCount, limits.ErrTooLarge))
		return x
	case lo == 1 && hi == 1:
		return x
	case hi == 0:
		return b.Empty()
	}
	return b.add(node{kind: kindRepeat, kids: []Expr{x}, min: int32(lo), max: int32(hi)})
}

// Rule returns an expression that is defined later, and may refer to itself. The name is for
// errors.
func (b *Builder) Rule(name string) Expr { return b.add(node{kind: kindRule, name: name}) }

// Define says what a rule matches.
func (b *Builder) Define(rule, x Expr) {
	if b.err != nil {
		return
	}
	n := &b.nodes[rule]
	if n.kind != kindRule || n.kids != nil {
		panic("grammar: Define of what is not a rule, or is defined")
	}
	n.kids = []Expr{x}
}

// Automaton matches what a deterministic automaton accepts.
func (b *Builder) Automaton(d *DFA) Expr {
	if d.Empty() {
		return b.Alt()
	}
	return b.add(node{kind: kindDFA, dfa: d})
}

// ErrNothing is what Compile's error wraps if no text matches a grammar.
var ErrNothing = errors.New("no text matches")

// A Grammar is a compiled expression. It is immutable.
type Grammar struct {
	nodes   []node
	start   Expr
	class   [256]uint8 // of bytes that no expression tells apart
	members []byte     // one byte of each class
	count   []int      // [class] how many bytes it has
	id      uint64     // no other grammar's
}

// grammars counts those that were compiled.
var grammars atomic.Uint64

// Compile returns the grammar of the texts that e matches. Rules that begin with themselves are
// refused.
func (b *Builder) Compile(e Expr) (*Grammar, error) {
	if b.err != nil {
		return nil, fmt.Errorf("grammar: %w", b.err)
	}
	g, err := b.reachable(e)
	if err != nil {
		return nil, fmt.Errorf("grammar: %w", err)
	}
	if err := g.prune(); err != nil {
		return nil, fmt.Errorf("grammar: %w", err)
	}
	if err := g.leftRecursion(); err != nil {
		return nil, fmt.Errorf("grammar: %w", err)
	}
	g.classes()
	g.id = grammars.Add(1)
	return g, nil
}

// reachable returns a grammar of the expressions that e consists of.
func (b *Builder) reachable(e Expr) (*Grammar, error) {
	ids := map[Expr]Expr{e: 0}
	found := []Expr{e}
	g := &Grammar{}
	for i := 0; i < len(found); i++ {
		n := b.nodes[found[i]]
		if n.kind == kindRule && n.kids == nil {
			return nil, fmt.Errorf("rule %q is not defined", n.name)
		}
		kids := make([]Expr, len(n.kids))
		for j, k := range n.kids {
			id, ok := ids[k]
			if !ok {
				id = Expr(len(found))
				ids[k] = id
				found = append(found, k)
			}
			kids[j] = id
		}
		n.kids = kids
		g.nodes = append(g.nodes, n)
	}
	return g, nil
}

// fixpoint computes a property of expressions that holds if it holds of some or all of their
// parts: leaf says it of those without parts.
func (g *Grammar) fixpoint(leaf func(n *node) bool) []bool {
	users := make([][]Expr, len(g.nodes))
	missing := make([]int, len(g.nodes)) // parts of a sequence that lack the property
	have := make([]bool, len(g.nodes))
	var todo []Expr
	set := func(e Expr) {
		if !have[e] {
			have[e] = true
			todo = append(todo, e)
		}
	}
	for i := range g.nodes {
		n := &g.nodes[i]
		for _, k := range n.kids {
			users[k] = append(users[k], Expr(i))
		}
		missing[i] = len(n.kids)
		switch n.kind {
		case kindSeq:
			if len(n.kids) == 0 {
				set(Expr(i))
			}
		case kindAlt, kindRule:
		case kindRepeat:
			if n.min == 0 {
				set(Expr(i))
			}
		default:
			if leaf(n) {
				set(Expr(i))
			}
		}
	}
	for len(todo) > 0 {
		e := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		for _, u := range users[e] {
			if missing[u]--; g.nodes[u].kind != kindSeq || missing[u] == 0 {
				set(u)
			}
		}
	}
	return have
}

// prune removes alternatives that never end, such as a rule that must contain itself, so that
// every stack of a state can be emptied by some text.
func (g *Grammar) prune() error {
	ends := g.fixpoint(func(*node) bool { return true })
	if !ends[g.start] {
		return ErrNothing
	}
	nothing := Expr(len(g.nodes))
	g.nodes = append(g.nodes, node{kind: kindAlt})
	for i := range g.nodes {
		n := &g.nodes[i]
		switch {
		case n.kind == kindAlt:
			var kept []Expr
			for _, k := range n.kids {
				if ends[k] {
					kept = append(kept, k)
				}
			}
			n.kids = kept
		case n.kind == kindRepeat && !ends[n.kids[0]]:
			if n.min == 0 { // no times
				*n = node{kind: kindSeq}
			} else {
				*n = node{kind: kindAlt}
			}
		case i < len(ends) && !ends[i]:
			*n = node{kind: kindRule, name: n.name, kids: []Expr{nothing}}
		}
	}
	return nil
}

// leftRecursion refuses rules that can begin with themselves: expanding them would not end.
func (g *Grammar) leftRecursion() error {
	nullable := g.fixpoint(func(n *node) bool { return n.kind == kindDFA && n.accepts(0) })
	for i := range g.nodes {
		if n := &g.nodes[i]; n.kind == kindRepeat && nullable[n.kids[0]] {
			n.min, n.loose = 0, true
		}
	}
	const (
		unseen = iota
		open
		done
	)
	state := make([]uint8, len(g.nodes))
	type visit struct {
		e  Expr
		at int
	}
	for root := range g.nodes {
		if state[root] != unseen {
			continue
		}
		stack := []visit{{Expr(root), 0}}
		state[root] = open
		for len(stack) > 0 {
			top := &stack[len(stack)-1]
			n := &g.nodes[top.e]
			if top.at == len(n.kids) || n.kind == kindSeq && top.at > 0 && !nullable[n.kids[top.at-1]] {
				state[top.e] = done
				stack = stack[:len(stack)-1]
				continue
			}
			k := n.kids[top.at]
			top.at++
			switch state[k] {
			case unseen:
				state[k] = open
				stack = append(stack, visit{k, 0})
			case open:
				name := "" // of the innermost rule in the cycle
				for i := len(stack) - 1; i >= 0; i-- {
					if g.nodes[stack[i].e].kind == kindRule {
						name = g.nodes[stack[i].e].name
						break
					}
				}
				return fmt.Errorf("rule %q can begin with itself (left recursion), want a rule that begins with something else", name)
			}
		}
	}
	return nil
}

// classes divides the bytes into classes that no expression tells apart.
func (g *Grammar) classes() {
	count := 1
	split := map[[2]uint8]uint8{}
	refine := func(part func(c byte) uint8) {
		clear(split)
		var next [256]uint8
		count = 0
		for c := range 256 {
			key := [2]uint8{g.class[c], part(byte(c))}
			id, ok := split[key]
			if !ok {
				id = uint8(count)
				count++
				split[key] = id
			}
			next[c] = id
		}
		g.class = next
	}
	var single ByteSet
	seen := map[ByteSet]bool{}
	var texts []*node
	for i := range g.nodes {
		n := &g.nodes[i]
		switch n.kind {
		case kindText:
			for j := range len(n.text) {
				single.Add(n.text[j])
			}
		case kindBytes:
			if !seen[n.set] {
				seen[n.set] = true
				set := n.set
				refine(func(c byte) uint8 {
					if set.Has(c) {
						return 1
					}
					return 0
				})
			}
		case kindDFA:
			texts = append(texts, n)
		}
	}
	for c := range 256 {
		if single.Has(byte(c)) {
			refine(func(x byte) uint8 {
				if int(x) == c {
					return 1
				}
				return 0
			})
		}
	}
	for _, n := range texts {
		refine(func(c byte) uint8 { return n.dfa.class[c] })
	}
	g.members, g.count = make([]byte, count), make([]int, count)
	for c := range 256 {
		g.members[g.class[c]] = byte(c)
		g.count[g.class[c]]++
	}
}
