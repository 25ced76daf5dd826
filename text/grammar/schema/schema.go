// Package schema writes the grammar of JSON, and of the JSON values that a JSON Schema allows (draft
// 2020-12, or the draft from 4 on that $schema names).
//
// What is written is valid. What is valid can be written in one way at least: members of objects
// stand in the order of the schema, others after them; numbers with bounds have no exponent; in
// strings with a pattern, a format or a constant, every character has its shortest spelling, as
// JSON.stringify of ECMAScript writes it. A keyword that cannot be enforced is refused by name.
package schema

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"talf/internal/limits"
	"talf/text/grammar"
)

// A Config widens what is written to more of what is valid. What a model may go on with without end or invent,
// weak models do, so that the zero value leaves it out.
type Config struct {
	// Blanks allows lines with indentation between tokens; otherwise there are at most two blanks.
	Blanks bool
	// Others allows properties with any name in objects that name some, if additionalProperties is
	// not given, which JSON Schema takes for true; otherwise they have no others, unless minProperties asks for them.
	Others bool
}

// Compile adds the values that a schema allows to b.
func (c Config) Compile(b *grammar.Builder, text []byte) (grammar.Expr, error) {
	return c.NewSet(b).Compile(text)
}

// A Set compiles schemas of one grammar, which share what they have in common and the bound on
// the work.
type Set struct {
	w    *writer
	work int
}

// NewSet returns a set of no schemas for b.
func (c Config) NewSet(b *grammar.Builder) *Set { return &Set{w: c.newWriter(b)} }

// Object adds objects with any members.
func (s *Set) Object() grammar.Expr {
	s.w.any()
	return s.w.object
}

// Compile adds the values that a schema allows.
func (s *Set) Compile(text []byte) (grammar.Expr, error) { return s.compile(text, allTypes) }

// CompileObject adds those of them that are objects.
func (s *Set) CompileObject(text []byte) (grammar.Expr, error) { return s.compile(text, objects) }

func (s *Set) compile(text []byte, of types) (grammar.Expr, error) {
	root, err := parse(text)
	if err == nil && schema(root) != "" {
		err = errors.New("want a schema, which is an object or a boolean")
	}
	if err != nil {
		return 0, fmt.Errorf("JSON schema: %w", err)
	}
	c := compiler{
		w: s.w, work: s.work, rules: map[string]grammar.Expr{}, known: map[*value]bool{}, patterns: map[string]*grammar.DFA{},
		resources: map[string]*resource{}, refs: map[*value]*value{}, nots: map[*value]*value{}, imply: map[*value][]*value{}, busy: map[*value]bool{},
	}
	err = c.locate(root, nil, aSchema)
	var e grammar.Expr
	if err == nil {
		all := conj{{v: root}}
		if of != allTypes {
			all = all.with(elem{v: c.typed(root, of)})
		}
		e, err = c.expr(all)
	}
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
	rules    map[string]grammar.Expr
	known    map[*value]bool // schemas whose keywords were checked
	patterns map[string]*grammar.DFA
	work     int

	resources map[string]*resource // by URI
	refs      map[*value]*value    // what a $ref refers to
	ids       int                  // of schemas that are made
	nots      map[*value]*value
	imply     map[*value][]*value
	busy      map[*value]bool // whose imply is being made
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
// constants that are compared costs one, as does a byte of the URIs of $id and $ref. The names
// that an alternative requires, if they are more than fewNames, cost nameWork each.
const (
	maxWork    = 1 << 24
	schemaWork = 1 << 7
	nameWork   = 1 << 4
	fewNames   = 32
)

// charge fails if n more units are too many.
func (c *compiler) charge(at *value, n int) error {
	if c.work += n; c.work > maxWork {
		return fmt.Errorf("%s: too many combinations of schemas, of names that they require, or of URIs (%d units of work): %w", pointer(at.at), maxWork, limits.ErrTooLarge)
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
	// A schema of which an alternative was chosen comes before what refers to it, and is not looked at
	// again: nothing would have been chosen then.
	seen := map[*value]bool{}
	var flat conj
	todo := slices.Clone(cj)
	for len(todo) > 0 {
		e := todo[0]
		todo = todo[1:]
		if seen[e.v] {
			continue
		}
		seen[e.v] = true
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
			if e.v.legacy() {
				continue
			}
		}
		implied, err := c.implied(e.v)
		if err != nil {
			return nil, err
		}
		for _, v := range implied {
			todo = append(todo, elem{v: v})
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
			var doubt error // that only one branch of oneOf matches
			if name == "oneOf" {
				if doubt = c.disjoint(of, rest); errors.Is(doubt, limits.ErrTooLarge) {
					return nil, doubt
				}
			}
			var out []*shape
			for _, branch := range of.items {
				with := rest.with(elem{v: branch})
				for _, other := range of.items {
					if doubt != nil && other != branch {
						with = with.with(elem{v: c.not(other)})
					}
				}
				s, err := c.shapes(with)
				if doubt != nil && errors.Is(err, errNegation) {
					return nil, doubt
				}
				if err != nil {
					return nil, err
				}
				out = append(out, s...)
			}
			return out, nil
		}
	}
	s, err := c.merge(flat)
	if err != nil {
		return nil, err
	}
	if n := len(s.required.list); n > fewNames {
		err = c.charge(s.at, nameWork*n)
	}
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

// refused are keywords of JSON Schema, of one draft or another, that are not supported.
var refused = []string{
	"$dynamicRef", "$recursiveRef", "contains", "minContains", "maxContains", "uniqueItems", "unevaluatedItems", "unevaluatedProperties",
	"extends", "disallow", "divisibleBy",
}

// wants says what the value of a keyword has to be.
var wants = map[string]func(v *value) string{
	"$ref": is(text, "a text"), "type": typeNames, "enum": is(list, "a list"), "const": anything,
	"allOf": schemas, "anyOf": schemas, "oneOf": schemas, "not": schema, "if": schema, "then": schema, "else": schema,
	"properties": schemaMap, "patternProperties": schemaMap, "additionalProperties": schema, "propertyNames": schema,
	"required": nameList, "minProperties": count, "maxProperties": count,
	"dependentRequired": dependencies, "dependentSchemas": schemaMap, "dependencies": dependencies,
	"prefixItems": schemas, "items": items, "additionalItems": schema, "minItems": count, "maxItems": count,
	"minimum": is(number, "a number"), "maximum": is(number, "a number"), "exclusiveMinimum": exclusive, "exclusiveMaximum": exclusive,
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

// items may be a list up to draft 2019-09, which is prefixItems since.
func items(v *value) string {
	if v.kind == list && v.in != nil && v.in.draft <= draft2019 && !slices.ContainsFunc(v.items, func(x *value) bool { return schema(x) != "" }) {
		return ""
	}
	if schema(v) != "" {
		return "a schema, or in draft 2019-09 and before a list of them"
	}
	return ""
}

// exclusive is a number, or in draft 4 says whether the bound beside it is.
func exclusive(v *value) string {
	if v.kind == number || v.kind == truth && v.in != nil && v.in.draft == draft4 {
		return ""
	}
	return "a number"
}

func dependencies(v *value) string {
	if v.kind != object || slices.ContainsFunc(v.members, func(m member) bool { return schema(m.v) != "" && nameList(m.v) != "" }) {
		return "an object of lists of names"
	}
	return ""
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
		return "a type, or a list of types, of array, boolean, integer, null, number, object and string"
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

// check refuses keywords that are not supported, and values of the wrong kind. What no draft knows is
// an annotation (2020-12, core, section 6.5), unless it looks like a keyword that was misspelt.
func (c *compiler) check(v *value) error {
	if c.known[v] {
		return nil
	}
	for _, m := range v.members {
		if want, ok := wants[m.name]; ok {
			if say := want(m.v); say != "" {
				is := ""
				if m.v.kind == text {
					is = fmt.Sprintf("is %.100q, ", m.v.str)
				}
				return fmt.Errorf("%s: %swant %s", pointer(m.v.at), is, say)
			}
			continue
		}
		off := m.v.kind == truth && (m.name == "uniqueItems" && !m.v.yes || strings.HasPrefix(m.name, "unevaluated") && m.v.yes)
		if slices.Contains(refused, m.name) && !off {
			return fmt.Errorf("%s: the keyword %q is not supported", pointer(v.at), m.name)
		}
		for name := range wants {
			if strings.EqualFold(name, m.name) {
				return fmt.Errorf("%s: %q is no keyword, want %q", pointer(v.at), m.name, name)
			}
		}
	}
	c.known[v] = true
	return nil
}
