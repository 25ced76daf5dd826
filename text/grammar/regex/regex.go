// Package regex reads regular expressions of ECMA-262, whose syntax JSON Schema uses for patterns.
// Text is matched by code points, as with the flag u. What no finite automaton can do is refused by
// name: back references and lookaround; word boundaries are refused too. Ahead finds what can be told from the beginning
// of a text.
package regex

import (
	"fmt"
	"slices"

	"talf/internal/limits"
	"talf/text/grammar"
)

// A Config says how an expression is matched.
type Config struct {
	// Rune returns the expression of one code point of ranges; nil is Builder.Runes, which is plain
	// text.
	Rune func(ranges []grammar.Range) grammar.Expr
	// Search looks for the expression anywhere in a text, as patterns of JSON Schema do. Otherwise
	// it is the whole text.
	Search bool
}

// Compile adds a regular expression to b.
func Compile(b *grammar.Builder, text string, c Config) (grammar.Expr, error) {
	if len(text) > limits.GrammarBytes {
		return 0, fmt.Errorf("regular expression: %d bytes, want at most %d: %w", len(text), limits.GrammarBytes, limits.ErrTooLarge)
	}
	if c.Rune == nil {
		c.Rune = b.Runes
	}
	p := parser{in: []rune(text)}
	n, err := p.alternatives()
	if err == nil && p.at < len(p.in) {
		err = fmt.Errorf("a %q that closes nothing", p.in[p.at])
	}
	if err == nil {
		open := noop
		if c.Search {
			open = any
		}
		if n, err = edges(n, open); err == nil {
			return (&writer{b: b, rune: c.Rune}).expr(n), nil
		}
	}
	return 0, fmt.Errorf("regular expression %.100q, character %d: %w", text, p.at, err)
}

// A node is a parsed expression.
type node struct {
	op     op
	ranges []grammar.Range
	kids   []*node
	lo, hi int
}

type op uint8

const (
	opRune op = iota
	opSeq
	opAlt
	opRepeat
	opBegin // ^
	opEnd   // $
)

var (
	noop = &node{op: opSeq}
	any  = &node{op: opRepeat, kids: []*node{{op: opRune, ranges: grammar.AnyRune()}}, lo: 0, hi: grammar.Unbounded}
)

// edges puts what may stand before and after a match in place of its anchors: nothing where there
// is one, and open where there is none. An anchor elsewhere is refused.
func edges(n *node, open *node) (*node, error) {
	n, err := edge(n, open, opBegin)
	if err != nil {
		return nil, err
	}
	if n, err = edge(n, open, opEnd); err != nil {
		return nil, err
	}
	if anchored(n) {
		return nil, fmt.Errorf("an anchor (^ or $) inside the expression, want it at an end")
	}
	return n, nil
}

// edge treats one end of n.
func edge(n *node, open *node, anchor op) (*node, error) {
	switch {
	case n.op == anchor:
		return noop, nil
	case n.op == opAlt && anchored(n):
		out := &node{op: opAlt}
		for _, k := range n.kids {
			k, err := edge(k, open, anchor)
			if err != nil {
				return nil, err
			}
			out.kids = append(out.kids, k)
		}
		return out, nil
	case n.op == opSeq && len(n.kids) > 0 && anchored(n):
		kids := slices.Clone(n.kids)
		at := 0
		if anchor == opEnd {
			at = len(kids) - 1
		}
		k, err := edge(kids[at], open, anchor)
		if err != nil {
			return nil, err
		}
		kids[at] = k
		return &node{op: opSeq, kids: kids}, nil
	}
	if open == noop {
		return n, nil
	}
	if anchor == opBegin {
		return &node{op: opSeq, kids: []*node{open, n}}, nil
	}
	return &node{op: opSeq, kids: []*node{n, open}}, nil
}

func anchored(n *node) bool {
	return n.op == opBegin || n.op == opEnd || slices.ContainsFunc(n.kids, anchored)
}

// A writer makes expressions of nodes.
type writer struct {
	b    *grammar.Builder
	rune func([]grammar.Range) grammar.Expr
}

func (w *writer) expr(n *node) grammar.Expr {
	kids := make([]grammar.Expr, len(n.kids))
	for i, k := range n.kids {
		kids[i] = w.expr(k)
	}
	switch n.op {
	case opRune:
		return w.rune(n.ranges)
	case opAlt:
		return w.b.Alt(kids...)
	case opRepeat:
		return w.b.Repeat(kids[0], n.lo, n.hi)
	}
	return w.b.Seq(kids...)
}
