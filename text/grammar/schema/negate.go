package schema

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
)

// What JSON Schema says by negation, alone or with conditions, is said again with alternatives: that
// not all of several keywords hold means that one of them does not, and for most keywords what does
// not hold can be said by others. Schemas that are made here stand for the place that they come from.

// firstMade is the id of the first schema that is made; those of documents are below.
const firstMade = 1 << 24

// extra is what no keyword says.
type extra struct {
	types   types    // allowed
	without []string // patterns that strings must not match
	words   []string // texts that they must not be, as they are spelled
}

// made returns a schema of some keywords, in the place of v.
func (c *compiler) made(v *value, members ...member) *value {
	c.ids++
	return &value{kind: object, id: firstMade + c.ids, at: v.at, in: v.in, members: members}
}

func (c *compiler) list(v *value, items ...*value) *value {
	return &value{kind: list, at: v.at, in: v.in, items: items}
}

func (c *compiler) never(v *value) *value {
	c.ids++
	return &value{kind: truth, id: firstMade + c.ids, at: v.at, in: v.in}
}

// anyOf is a schema of alternatives, one of which has to hold.
func (c *compiler) anyOf(v *value, alts ...*value) *value {
	switch len(alts) {
	case 0:
		return c.never(v)
	case 1:
		return alts[0]
	}
	return c.made(v, member{"anyOf", c.list(v, alts...)})
}

func (c *compiler) allOf(v *value, all ...*value) *value {
	if len(all) == 1 {
		return all[0]
	}
	return c.made(v, member{"allOf", c.list(v, all...)})
}

// not is the schema {"not": v}, of each v the same.
func (c *compiler) not(v *value) *value {
	n, ok := c.nots[v]
	if !ok {
		n = c.made(v, member{"not", v})
		c.nots[v] = n
	}
	return n
}

func (c *compiler) typed(v *value, t types) *value {
	out := c.made(v)
	out.extra = &extra{types: t}
	return out
}

// word is a text, such as the name of a type.
func word(v *value, s string) *value { return &value{kind: text, str: s, at: v.at, in: v.in} }

func (c *compiler) names(v *value, names ...string) *value {
	out := c.list(v)
	for _, n := range names {
		out.items = append(out.items, word(v, n))
	}
	return out
}

// has is an object with a property for which x holds; x nil: any.
func (c *compiler) has(v *value, name string, x *value) *value {
	members := []member{{"type", word(v, "object")}, {"required", c.names(v, name)}}
	if x != nil {
		members = append(members, member{"properties", c.made(v, member{name, x})})
	}
	return c.made(v, members...)
}

// lacks holds for all but objects with a property.
func (c *compiler) lacks(v *value, name string) *value {
	return c.made(v, member{"properties", c.made(v, member{name, c.never(v)})})
}

// implied returns what the keywords of v say that are said by others: conditions, dependencies and
// negations.
func (c *compiler) implied(v *value) ([]*value, error) {
	if out, ok := c.imply[v]; ok {
		return out, nil
	}
	if c.busy[v] {
		return nil, fmt.Errorf("%s: what depends on its own negation %w", pointer(v.at), errNegation)
	}
	c.busy[v] = true
	defer delete(c.busy, v)
	var out []*value
	if x := v.get("if"); x != nil {
		then, other := v.get("then"), v.get("else")
		if then != nil || other != nil {
			yes, no := []*value{x}, []*value{c.not(x)}
			if then != nil {
				yes = append(yes, then)
			}
			if other != nil {
				no = append(no, other)
			}
			out = append(out, c.anyOf(v, c.allOf(v, yes...), c.allOf(v, no...)))
		}
	}
	for _, name := range []string{"dependentRequired", "dependentSchemas", "dependencies"} {
		d := v.get(name)
		if d == nil {
			continue
		}
		for _, m := range d.members {
			with := m.v
			if with.kind == list {
				if len(with.items) == 0 {
					continue
				}
				with = c.made(m.v, member{"required", with})
			}
			out = append(out, c.anyOf(v, c.lacks(m.v, m.name), c.allOf(v, c.has(m.v, m.name, nil), with)))
		}
	}
	if x := v.get("not"); x != nil {
		n, err := c.negated(x)
		if err != nil {
			return nil, err
		}
		out = append(out, n)
	}
	c.imply[v] = out
	return out, nil
}

var errNegation = errors.New("cannot be negated")

// negated is a schema that holds where x does not.
func (c *compiler) negated(x *value) (*value, error) {
	if err := c.step(x); err != nil {
		return nil, err
	}
	if x.kind == truth {
		if x.yes {
			return c.never(x), nil
		}
		return c.made(x), nil
	}
	if err := c.check(x); err != nil {
		return nil, err
	}
	if ref := x.get("$ref"); ref != nil && x.legacy() {
		to, err := c.resolve(ref)
		if err != nil {
			return nil, err
		}
		return c.not(to), nil
	}
	var alts []*value
	for _, m := range x.members {
		more, err := c.negatedKeyword(x, m)
		if err != nil {
			return nil, err
		}
		alts = append(alts, more...)
	}
	if e := x.extra; e != nil {
		if e.types != 0 {
			alts = append(alts, c.typed(x, allTypes&^e.types))
		}
		for _, p := range e.without {
			alts = append(alts, c.made(x, member{"type", word(x, "string")}, member{"pattern", word(x, p)}))
		}
		if len(e.words) > 0 {
			return nil, fmt.Errorf("%s: not: a constant that is excluded %w twice", pointer(x.at), errNegation)
		}
	}
	return c.anyOf(x, alts...), nil
}

// negatedKeyword returns alternatives, one of which holds where a keyword of x does not.
func (c *compiler) negatedKeyword(x *value, m member) (alts []*value, err error) {
	v := m.v
	fail := fmt.Errorf("%s: not: the keyword %q %w", pointer(x.at), m.name, errNegation)
	of := func(t string, name string, by int) {
		if n := counted(v) + by; n >= 0 {
			alts = append(alts, c.made(x, member{"type", word(x, t)}, member{name, &value{kind: number, str: strconv.Itoa(n), at: v.at}}))
		}
	}
	flip := func(name string) {
		alts = append(alts, c.made(x, member{"type", word(x, "number")}, member{name, v}))
	}
	switch m.name {
	case "$ref":
		to, err := c.resolve(v)
		if err != nil {
			return nil, err
		}
		alts = append(alts, c.not(to))
	case "allOf":
		for _, s := range v.items {
			alts = append(alts, c.not(s))
		}
	case "oneOf":
		if c.disjoint(v, nil) != nil {
			return nil, fail
		}
		fallthrough
	case "anyOf":
		var all []*value
		for _, s := range v.items {
			all = append(all, c.not(s))
		}
		alts = append(alts, c.allOf(x, all...))
	case "not":
		alts = append(alts, v)
	case "then", "else": // of what "if" decides
	case "if":
		if then := x.get("then"); then != nil {
			alts = append(alts, c.allOf(x, v, c.not(then)))
		}
		if other := x.get("else"); other != nil {
			alts = append(alts, c.allOf(x, c.not(v), c.not(other)))
		}
	case "type":
		if rest := allTypes &^ typesOf(v); rest != 0 {
			alts = append(alts, c.typed(x, rest))
		}
	case "enum":
		return c.otherThan(x, v.items, fail)
	case "const":
		return c.otherThan(x, []*value{v}, fail)
	case "minimum", "maximum":
		name := map[string]string{"minimum": "exclusiveMaximum", "maximum": "exclusiveMinimum"}[m.name]
		if e := x.get("exclusive" + map[string]string{"minimum": "Minimum", "maximum": "Maximum"}[m.name]); e != nil && e.kind == truth && e.yes {
			name = map[string]string{"minimum": "maximum", "maximum": "minimum"}[m.name]
		}
		flip(name)
	case "exclusiveMinimum", "exclusiveMaximum":
		if v.kind == number {
			flip(map[string]string{"exclusiveMinimum": "maximum", "exclusiveMaximum": "minimum"}[m.name])
		}
	case "minLength":
		of("string", "maxLength", -1)
	case "maxLength":
		of("string", "minLength", 1)
	case "minItems":
		of("array", "maxItems", -1)
	case "maxItems":
		of("array", "minItems", 1)
	case "minProperties":
		of("object", "maxProperties", -1)
	case "maxProperties":
		of("object", "minProperties", 1)
	case "pattern":
		out := c.made(x)
		out.extra = &extra{types: strings_, without: []string{v.str}}
		alts = append(alts, out)
	case "required":
		for _, n := range v.items {
			alts = append(alts, c.allOf(x, c.typed(x, objects), c.lacks(x, n.str)))
		}
	case "properties":
		for _, p := range v.members {
			alts = append(alts, c.has(p.v, p.name, c.not(p.v)))
		}
	case "items", "additionalProperties", "additionalItems", "propertyNames":
		if v.kind != truth || !v.yes {
			return nil, fail
		}
	case "dependentRequired", "dependentSchemas", "dependencies":
		for _, d := range v.members {
			with := d.v
			if with.kind == list {
				with = c.made(d.v, member{"required", with})
			}
			alts = append(alts, c.allOf(x, c.has(d.v, d.name, nil), c.not(with)))
		}
	default:
		if wants[m.name] != nil {
			return nil, fail
		}
	}
	return alts, nil
}

// otherThan are the values that are none of some.
func (c *compiler) otherThan(x *value, values []*value, fail error) ([]*value, error) {
	var words []string
	var numbers []decimal
	spelling := map[decimal]string{}
	free := types(allTypes) // types of which nothing is excluded
	both := [2]bool{}
	for _, v := range values {
		switch v.kind {
		case null:
			free &^= nulls
		case truth:
			free &^= truths
			if v.yes {
				both[1] = true
			} else {
				both[0] = true
			}
		case number:
			d, err := parseDecimal(v.str)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", pointer(v.at), err)
			}
			free &^= integers | fractions
			if _, ok := spelling[d]; !ok {
				numbers = append(numbers, d)
			}
			spelling[d] = v.str
		case text:
			free &^= strings_
			words = append(words, spelled(v.str))
		default:
			return nil, fail
		}
	}
	alts := []*value{c.typed(x, free)}
	if free&truths == 0 && both[0] != both[1] {
		alts = append(alts, c.made(x, member{"const", &value{kind: truth, yes: both[0], at: x.at}}))
	}
	if len(words) > 0 {
		out := c.made(x)
		out.extra = &extra{types: strings_, words: words}
		alts = append(alts, out)
	}
	if len(numbers) > 0 { // between them
		slices.SortFunc(numbers, decimal.compare)
		for i := range len(numbers) + 1 {
			members := []member{{"type", word(x, "number")}}
			if i > 0 {
				members = append(members, member{"exclusiveMinimum", &value{kind: number, str: spelling[numbers[i-1]], at: x.at}})
			}
			if i < len(numbers) {
				members = append(members, member{"exclusiveMaximum", &value{kind: number, str: spelling[numbers[i]], at: x.at}})
			}
			alts = append(alts, c.made(x, members...))
		}
	}
	return alts, nil
}
