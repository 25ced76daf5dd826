// Package schema writes the grammar of JSON, and of the JSON values that a JSON Schema of draft
// 2020-12 allows.
//
// What is written is valid. What is valid can be written in one way at least: members of objects
// stand in the order of the schema, others after them; numbers with bounds have no exponent; in
// strings with a pattern, a format or a constant, every character has its shortest spelling, as
// JSON.stringify of ECMAScript writes it. A keyword that cannot be enforced is refused by name, and
// so is one that is not known, but for annotations.
package schema

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"talf/internal/limits"
	"talf/model/grammar"
)

// Compile adds the values that a schema allows to b.
func Compile(b *grammar.Builder, text []byte) (grammar.Expr, error) { return NewSet(b).Compile(text) }

// A Set compiles schemas of one grammar, which share what they have in common and the bound on
// the work.
type Set struct {
	w    *writer
	work int
}

// NewSet returns a set of no schemas for b.
func NewSet(b *grammar.Builder) *Set { return &Set{w: newWriter(b)} }

// Object adds objects with any members.
func (s *Set) Object() grammar.Expr {
	s.w.any()
	return s.w.object
}

// Compile adds the values that a schema allows.
func (s *Set) Compile(text []byte) (grammar.Expr, error) {
	root, err := parse(text)
	if err == nil && schema(root) != "" {
		err = errors.New("want a schema, which is an object or a boolean")
	}
	if err != nil {
		return 0, fmt.Errorf("JSON schema: %w", err)
	}
	c := compiler{w: s.w, work: s.work, root: root, rules: map[string]grammar.Expr{}, known: map[*value]bool{}, patterns: map[string]*grammar.DFA{}}
	e, err := c.expr(conj{{v: root}})
	if err == nil {
		err = cmp.Or(s.w.b.Err(), c.charge(root, 0))
	}
	s.work = c.work
	if err != nil {
		return 0, fmt.Errorf("JSON schema: %w", err)
	}
	return e, nil
}

type compiler struct {
	w        *writer
	root     *value
	rules    map[string]grammar.Expr
	known    map[*value]bool // schemas whose keywords were checked
	patterns map[string]*grammar.DFA
	anchors  map[string]*value // nil until one is referred to
	work     int
}

// An elem is a schema of which alternatives (anyOf, oneOf) may be chosen already.
type elem struct {
	v    *value
	done uint8 // bit 0: anyOf, bit 1: oneOf
}

// A conj is what has to hold at the same time.
type conj []elem

func (cj conj) key() string {
	var b strings.Builder
	for _, e := range slices.SortedFunc(slices.Values(cj), func(a, b elem) int { return 4*(a.v.id-b.v.id) + int(a.done) - int(b.done) }) {
		fmt.Fprintf(&b, "%d.%d ", e.v.id, e.done)
	}
	return b.String()
}

func (cj conj) with(e ...elem) conj { return append(slices.Clip(cj), e...) }

// maxWork bounds the work of compiling a schema, in units of some fifty nanoseconds. A schema that
// is looked at, as often as it is combined with others, costs schemaWork of them, a pair of
// constants that are compared costs one.
const (
	maxWork    = 1 << 24
	schemaWork = 1 << 7
)

// charge fails if n more units are too many.
func (c *compiler) charge(at *value, n int) error {
	if c.work += n; c.work > maxWork {
		return fmt.Errorf("%s: too many combinations of schemas (%d units of work): %w", pointer(at.at), maxWork, limits.ErrTooLarge)
	}
	return nil
}

func (c *compiler) step(at *value) error { return c.charge(at, schemaWork) }

// expr is the rule of the values for which all of cj holds.
func (c *compiler) expr(cj conj) (grammar.Expr, error) {
	if len(cj) == 0 {
		return c.w.any(), nil
	}
	key := cj.key()
	if e, ok := c.rules[key]; ok {
		return e, nil
	}
	rule := c.w.b.Rule(pointer(cj[0].v.at))
	c.rules[key] = rule
	shapes, err := c.shapes(cj)
	if err != nil {
		return 0, err
	}
	var alts []grammar.Expr
	for _, s := range shapes {
		e, err := c.write(s)
		if err != nil {
			return 0, err
		}
		alts = append(alts, e)
	}
	c.w.b.Define(rule, c.w.b.Alt(alts...))
	return rule, c.w.b.Err()
}

// shapes returns alternatives, one of which holds wherever all of cj does.
func (c *compiler) shapes(cj conj) ([]*shape, error) {
	seen := map[elem]bool{}
	var flat conj
	todo := slices.Clone(cj)
	for len(todo) > 0 {
		e := todo[0]
		todo = todo[1:]
		if seen[e] {
			continue
		}
		seen[e] = true
		if err := c.step(e.v); err != nil {
			return nil, err
		}
		if e.v.kind == truth {
			if !e.v.yes {
				return nil, nil
			}
			continue
		}
		if err := c.check(e.v); err != nil {
			return nil, err
		}
		if ref := e.v.get("$ref"); ref != nil {
			to, err := c.resolve(ref)
			if err != nil {
				return nil, err
			}
			todo = append(todo, elem{v: to})
		}
		if all := e.v.get("allOf"); all != nil {
			for _, v := range all.items {
				todo = append(todo, elem{v: v})
			}
		}
		flat = append(flat, e)
	}
	for i, e := range flat {
		for bit, name := range []string{"anyOf", "oneOf"} {
			of := e.v.get(name)
			if of == nil || e.done>>bit&1 != 0 {
				continue
			}
			rest := slices.Clone(flat)
			rest[i].done |= 1 << bit
			if name == "oneOf" {
				if err := c.disjoint(of, rest); err != nil {
					return nil, err
				}
			}
			var out []*shape
			for _, branch := range of.items {
				s, err := c.shapes(rest.with(elem{v: branch}))
				if err != nil {
					return nil, err
				}
				out = append(out, s...)
			}
			return out, nil
		}
	}
	s, err := c.merge(flat)
	if err != nil || s.types == 0 {
		return nil, err
	}
	return []*shape{s}, nil
}

// disjoint refuses a oneOf unless it can be shown that no value matches two branches.
func (c *compiler) disjoint(of *value, rest conj) error {
	for i, a := range of.items {
		for j, b := range of.items[:i] {
			empty, err := c.empty(rest.with(elem{v: a}, elem{v: b}), 0)
			if err != nil {
				return err
			}
			if !empty {
				return fmt.Errorf("%s: oneOf: a value may match branches %d and %d; want anyOf, or branches that a type, a constant or a required property tells apart",
					pointer(of.at), j, i)
			}
		}
	}
	return nil
}

// empty reports whether it is certain that nothing matches.
func (c *compiler) empty(cj conj, depth int) (bool, error) {
	shapes, err := c.shapes(cj)
	if err != nil {
		return false, err
	}
	for _, s := range shapes {
		if len(s.enum) > 0 || s.types&^objects != 0 || depth > 3 {
			return false, nil
		}
		out := false
		for _, name := range s.required.list {
			if out, err = c.empty(c.property(s, name), depth+1); out || err != nil {
				break
			}
		}
		if err != nil || !out {
			return false, err
		}
	}
	return true, nil
}

// resolve finds what a $ref refers to within the document.
func (c *compiler) resolve(ref *value) (*value, error) {
	fail := func(why string) error { return fmt.Errorf("%s: $ref %.200q: %s", pointer(ref.at), ref.str, why) }
	if ref.kind != text || !strings.HasPrefix(ref.str, "#") {
		return nil, fail("only places in the same schema are supported, want # or #/…")
	}
	path, err := url.PathUnescape(ref.str[1:])
	if err != nil {
		return nil, fail("want a JSON pointer")
	}
	if path != "" && path[0] != '/' {
		if c.anchors == nil {
			c.anchors = map[string]*value{}
			c.anchor(c.root)
		}
		if v := c.anchors[path]; v != nil {
			return v, nil
		}
		return nil, fail("there is no such anchor")
	}
	v := c.root
	for _, part := range strings.Split(path, "/")[1:] {
		part = strings.NewReplacer("~1", "/", "~0", "~").Replace(part)
		next := v.get(part)
		if v.kind == list {
			if i, err := strconv.Atoi(part); err == nil && i >= 0 && i < len(v.items) && strconv.Itoa(i) == part {
				next = v.items[i]
			}
		}
		if next == nil {
			return nil, fail("there is no such place")
		}
		v = next
	}
	if v.kind != object && v.kind != truth {
		return nil, fail("it is not a schema")
	}
	return v, nil
}

// anchor keeps the schemas with an $anchor, of equal ones the first.
func (c *compiler) anchor(v *value) {
	if a := v.get("$anchor"); a != nil && a.kind == text && c.anchors[a.str] == nil {
		c.anchors[a.str] = v
	}
	for _, x := range v.items {
		c.anchor(x)
	}
	for _, m := range v.members {
		if m.name == "enum" || m.name == "const" || m.name == "default" || m.name == "examples" {
			continue
		}
		c.anchor(m.v)
	}
}

// Keywords that say nothing about validity, or that others look at.
var annotations = []string{
	"$schema", "$id", "$comment", "$defs", "definitions", "$anchor", "title", "description", "default", "examples", "example", "deprecated",
	"readOnly", "writeOnly", "contentEncoding", "contentMediaType", "contentSchema",
}

// wants says what the value of a keyword has to be.
var wants = map[string]func(v *value) string{
	"$ref": is(text, "a text"), "type": typeNames, "enum": is(list, "a list"), "const": anything,
	"allOf": schemas, "anyOf": schemas, "oneOf": schemas,
	"properties": schemaMap, "patternProperties": schemaMap, "additionalProperties": schema, "propertyNames": schema,
	"required": nameList, "minProperties": count, "maxProperties": count,
	"prefixItems": schemas, "items": schema, "minItems": count, "maxItems": count,
	"minimum": is(number, "a number"), "maximum": is(number, "a number"), "exclusiveMinimum": is(number, "a number"), "exclusiveMaximum": is(number, "a number"),
	"multipleOf": is(number, "a number"), "minLength": count, "maxLength": count, "pattern": is(text, "a text"), "format": is(text, "a text"),
}

func is(k kind, want string) func(v *value) string {
	return func(v *value) string {
		if v.kind == k {
			return ""
		}
		return want
	}
}

func anything(*value) string { return "" }

func schema(v *value) string {
	if v.kind == object || v.kind == truth {
		return ""
	}
	return "a schema"
}

func schemas(v *value) string {
	if v.kind != list || len(v.items) == 0 || slices.ContainsFunc(v.items, func(x *value) bool { return schema(x) != "" }) {
		return "a list of schemas"
	}
	return ""
}

func schemaMap(v *value) string {
	if v.kind != object || slices.ContainsFunc(v.members, func(m member) bool { return schema(m.v) != "" }) {
		return "an object of schemas"
	}
	return ""
}

func nameList(v *value) string {
	if v.kind != list || slices.ContainsFunc(v.items, func(x *value) bool { return x.kind != text }) {
		return "a list of names"
	}
	return ""
}

func typeNames(v *value) string {
	if v.kind == text && typeBits[v.str] != 0 {
		return ""
	}
	if v.kind != list || slices.ContainsFunc(v.items, func(x *value) bool { return x.kind != text || typeBits[x.str] == 0 }) {
		return "a type, or a list of types"
	}
	return ""
}

func count(v *value) string {
	if v.kind == number {
		if d, err := parseDecimal(v.str); err == nil && !d.neg && d.frac == "" {
			return ""
		}
	}
	return "a count"
}

// check refuses keywords that are not supported, and values of the wrong kind.
func (c *compiler) check(v *value) error {
	if c.known[v] {
		return nil
	}
	for _, m := range v.members {
		want, ok := wants[m.name]
		switch {
		case ok:
			if say := want(m.v); say != "" {
				return fmt.Errorf("%s: want %s", pointer(m.v.at), say)
			}
		case slices.Contains(annotations, m.name) || strings.HasPrefix(m.name, "x-"):
		case m.name == "uniqueItems" && m.v.kind == truth && !m.v.yes:
		case strings.HasPrefix(m.name, "unevaluated") && m.v.kind == truth && m.v.yes:
		default:
			return fmt.Errorf("%s: the keyword %q is not supported", pointer(v.at), m.name)
		}
	}
	c.known[v] = true
	return nil
}
