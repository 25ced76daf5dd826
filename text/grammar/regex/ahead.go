package regex

import (
	"strings"

	"talf/text/grammar"
)

// Ahead divides an expression that looks ahead from the beginning of a text, such as ^(?!a)(?=.*b)c: what it matches
// are the texts in which rest and all of must are found, and none of not. Of any other expression, rest is the whole.
func Ahead(text string) (rest string, must, not []string) {
	tail, ok := strings.CutPrefix(text, "^")
	if !ok || divided(tail) {
		return text, nil, nil // the beginning is that of one alternative
	}
	for {
		into := &must
		inner, ok := strings.CutPrefix(tail, "(?=")
		if !ok {
			into = &not
			if inner, ok = strings.CutPrefix(tail, "(?!"); !ok {
				return "^" + tail, must, not
			}
		}
		end := closing(inner)
		if end < 0 || end+1 < len(inner) && strings.IndexByte("*+?{", inner[end+1]) >= 0 {
			return text, nil, nil // which is then refused
		}
		here := inner[:end]
		if strings.HasPrefix(here, "^") {
			if divided(here) {
				return text, nil, nil
			}
			here = here[1:]
		}
		*into = append(*into, "^(?:"+here+")")
		tail = inner[end+1:]
	}
}

// divided reports whether there are alternatives outside of groups.
func divided(text string) bool {
	found := false
	scan(text, func(depth, at int) bool {
		found = depth == 0 && text[at] == '|'
		return found
	})
	return found
}

// closing returns where the group ends that text is in, −1 if it does not.
func closing(text string) int {
	end := -1
	scan(text, func(depth, at int) bool {
		if depth < 0 {
			end = at
		}
		return depth < 0
	})
	return end
}

// scan calls f for each byte that is no part of a class or an escape, with the number of groups that are open after it,
// until f returns true.
func scan(text string, f func(depth, at int) bool) {
	depth, class := 0, false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '\\':
			i++
			continue
		case class:
			class = c != ']'
			continue
		case c == '[':
			class = true
			continue
		case c == '(':
			depth++
		case c == ')':
			depth--
		}
		if f(depth, i) {
			return
		}
	}
}

// Class returns what an expression says that is a number of characters of one class and nothing else, such as
// ^[a-z]{2,9}$.
func Class(text string) (ranges []grammar.Range, lo, hi int, ok bool) {
	p := parser{in: []rune(text)}
	n, err := p.alternatives()
	if err != nil || p.at < len(p.in) || n.op != opSeq || len(n.kids) != 3 || n.kids[0].op != opBegin || n.kids[2].op != opEnd {
		return nil, 0, 0, false
	}
	lo, hi = 1, 1
	x := n.kids[1]
	if x.op == opRepeat {
		lo, hi, x = x.lo, x.hi, x.kids[0]
	}
	for x.op == opSeq && len(x.kids) == 1 { // a group
		x = x.kids[0]
	}
	return x.ranges, lo, hi, x.op == opRune && len(x.ranges) > 0
}
