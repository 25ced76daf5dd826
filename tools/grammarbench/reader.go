package main

import (
	"encoding/json"
	"fmt"
	"math/big"
	"slices"
	"strings"

	"talf/text/grammar"
)

// A reader looks for a spelling of a JSON value that a grammar allows. The grammar of a schema fixes
// how a value is written, such as the order of members, which says nothing about validity: a value is
// allowed if one of its spellings is.
type reader struct {
	a     *grammar.Automaton
	order map[string]int // names in the order of the schema, which is tried first
	steps int            // that are left
	exact bool           // numbers are written as they were: in draft 4 no fraction is an integer, even 1.0
}

// budget bounds the steps of one search, some milliseconds. What takes more, such as invalid
// objects of many optional members, is reported as undecided.
const budget = 4_000

// allows reports whether the grammar allows v. decided is false if the search was given up.
func (r *reader) allows(v any) (ok, decided bool) {
	r.steps = budget
	ok = r.value(r.a.Start(), v, func(s *grammar.State) bool { return s.Accepting() })
	return ok, ok || r.steps > 0
}

// text reads a spelling and goes on with then.
func (r *reader) text(s *grammar.State, text string, then func(s *grammar.State) bool) bool {
	if r.steps--; r.steps <= 0 {
		return false
	}
	if s = r.a.Read(s, []byte(text)); s == nil {
		return false
	}
	return then(s)
}

func (r *reader) value(s *grammar.State, v any, then func(s *grammar.State) bool) bool {
	switch v := v.(type) {
	case json.Number:
		for i, text := range spellings(v) {
			if i > 0 && r.exact {
				break
			}
			if r.text(s, text, then) {
				return true
			}
		}
		return false
	case []any:
		return r.text(s, "[", func(s *grammar.State) bool { return r.items(s, v, true, then) })
	case map[string]any:
		var names []string
		for name := range v {
			names = append(names, name)
		}
		slices.SortFunc(names, func(a, b string) int {
			if x, y := r.rank(a), r.rank(b); x != y {
				return x - y
			}
			return strings.Compare(a, b)
		})
		failed := map[string]bool{} // by state and the names that are left
		return r.text(s, "{", func(s *grammar.State) bool { return r.members(s, v, names, failed, true, then) })
	}
	return r.text(s, quoted(v), then)
}

func (r *reader) rank(name string) int {
	if n, ok := r.order[name]; ok {
		return n
	}
	return len(r.order)
}

func (r *reader) items(s *grammar.State, v []any, first bool, then func(s *grammar.State) bool) bool {
	if len(v) == 0 {
		return r.text(s, "]", then)
	}
	item := func(s *grammar.State) bool {
		return r.value(s, v[0], func(s *grammar.State) bool { return r.items(s, v[1:], false, then) })
	}
	if first {
		return item(s)
	}
	return r.text(s, ",", item)
}

func (r *reader) members(s *grammar.State, v map[string]any, left []string, failed map[string]bool, first bool, then func(s *grammar.State) bool) bool {
	if len(left) == 0 {
		return r.text(s, "}", then)
	}
	key := fmt.Sprintf("%p %q", s, left)
	if failed[key] {
		return false
	}
	for i, name := range left {
		if _, known := r.order[name]; i > 0 && !known {
			if _, before := r.order[left[i-1]]; !before {
				continue // names that no schema mentions may stand in any order, so this one does
			}
		}
		open := quoted(name) + ":"
		if !first {
			open = "," + open
		}
		rest := slices.Delete(slices.Clone(left), i, i+1)
		if r.text(s, open, func(s *grammar.State) bool {
			return r.value(s, v[name], func(s *grammar.State) bool { return r.members(s, v, rest, failed, false, then) })
		}) {
			return true
		}
	}
	if r.steps > 0 {
		failed[key] = true
	}
	return false
}

// quoted is a scalar as JSON.stringify of ECMAScript spells it.
func quoted(v any) string {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		panic(err) // of a decoded value
	}
	text := strings.TrimSuffix(b.String(), "\n")
	return strings.NewReplacer(`\u2028`, "\u2028", `\u2029`, "\u2029").Replace(text)
}

// spellings are ways to write a number: as it was, and without an exponent and a fraction of zeros.
func spellings(n json.Number) []string {
	out := []string{n.String()}
	x, ok := new(big.Rat).SetString(n.String())
	if !ok {
		return out
	}
	text := x.FloatString(0)
	for digits := 0; digits < 400; digits++ {
		if text = x.FloatString(digits); equal(x, text) {
			break
		}
	}
	if equal(x, text) && text != out[0] {
		out = append(out, text)
	}
	return out
}

func equal(x *big.Rat, text string) bool {
	y, ok := new(big.Rat).SetString(text)
	return ok && x.Cmp(y) == 0
}
