package schema

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"talf/internal/limits"
	"talf/text/grammar"
	"talf/text/grammar/regex"
)

// types is a set of JSON types. Integers are numbers without a fraction.
type types uint8

const (
	nulls types = 1 << iota
	truths
	integers
	fractions
	strings_
	objects
	arrays
	allTypes = 1<<iota - 1
)

var typeBits = map[string]types{
	"null": nulls, "boolean": truths, "integer": integers, "number": integers | fractions, "string": strings_, "object": objects, "array": arrays,
}

// A shape is what schemas without alternatives ask for together.
type shape struct {
	at    *value
	types types
	enum  []*value // if not nil, one of these

	lo, hi *bound
	steps  []decimal
	text   texts

	prefix             int // the longest
	minItems, maxItems int
	arrays             []*value // schemas that say something of items

	required           names
	minProps, maxProps int
	objects            []*value // schemas that say something of properties
	keys               conj     // propertyNames
}

// names are texts in the order in which they were added, each once.
type names struct {
	list []string
	has  map[string]bool
}

func newNames() names { return names{has: map[string]bool{}} }

func (n *names) add(name string) {
	if !n.has[name] {
		n.has[name] = true
		n.list = append(n.list, name)
	}
}

// merge reads the keywords of schemas.
func (c *compiler) merge(cj conj) (*shape, error) {
	s := &shape{types: allTypes, required: newNames(), maxItems: grammar.Unbounded, maxProps: grammar.Unbounded, text: texts{hi: grammar.Unbounded}}
	if len(cj) > 0 {
		s.at = cj[0].v
	}
	for _, e := range cj {
		if err := c.read(s, e.v); err != nil {
			return nil, err
		}
	}
	if s.lo != nil && s.hi != nil {
		if n := s.lo.compare(s.hi.decimal); n > 0 || n == 0 && (s.lo.open || s.hi.open) {
			s.types &^= integers | fractions
		}
	}
	if s.text.hi != grammar.Unbounded && s.text.lo > s.text.hi {
		s.types &^= strings_
	}
	if s.maxItems != grammar.Unbounded && s.minItems > s.maxItems {
		s.types &^= arrays
	}
	if s.maxProps != grammar.Unbounded && max(s.minProps, len(s.required.list)) > s.maxProps {
		s.types &^= objects
	}
	if s.enum != nil {
		var kept []*value
		for _, v := range s.enum {
			ok, err := c.allows(s, v)
			if err != nil {
				return nil, err
			}
			if ok {
				kept = append(kept, v)
			}
		}
		if s.enum = kept; kept == nil {
			s.types = 0
		}
	}
	return s, nil
}

// read adds the keywords of one schema.
func (c *compiler) read(s *shape, v *value) error {
	if e := v.extra; e != nil {
		s.types &= e.types
		s.text.without = append(s.text.without, e.without...)
		s.text.words = append(s.text.words, e.words...)
	}
	for _, m := range v.members {
		x := m.v
		switch m.name {
		case "type":
			s.types &= typesOf(x)
		case "enum", "const":
			values := x.items
			if m.name == "const" {
				values = []*value{x}
			}
			if s.enum != nil {
				if err := c.charge(x, len(values)*len(s.enum)); err != nil {
					return err
				}
				values = slices.DeleteFunc(slices.Clone(s.enum), func(a *value) bool {
					return !slices.ContainsFunc(values, func(b *value) bool { return c.equal(a, b) })
				})
			}
			if s.enum = values; len(values) == 0 {
				s.types = 0
			}
		case "minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum":
			if x.kind == truth { // draft 4, see the bound beside it
				continue
			}
			open := strings.HasPrefix(m.name, "exclusive")
			if e := v.get("exclusive" + strings.ToUpper(m.name[:1]) + m.name[1:]); e != nil && e.kind == truth {
				open = e.yes
			}
			if err := s.limit(strings.HasSuffix(strings.ToLower(m.name), "maximum"), x.str, open); err != nil {
				return fmt.Errorf("%s: %w", pointer(x.at), err)
			}
		case "multipleOf":
			d, err := parseDecimal(x.str)
			if err != nil || d.neg || d.zero() {
				return fmt.Errorf("%s: want a number above 0", pointer(x.at))
			}
			s.steps = append(s.steps, d)
		case "minLength":
			s.text.lo = max(s.text.lo, counted(x))
		case "maxLength":
			s.text.hi = least(s.text.hi, counted(x))
		case "pattern":
			rest, must, not := regex.Ahead(x.str)
			s.text.patterns = append(append(s.text.patterns, rest), must...)
			s.text.without = append(s.text.without, not...)
		case "format":
			if ends, ok := numberFormats[x.str]; ok {
				if ends != nil { // they are numbers
					_, _ = s.limit(false, ends[0], false), s.limit(true, ends[1], false)
				}
				continue
			}
			p, ok := formats[x.str]
			if !ok {
				return fmt.Errorf("%s: the format %.100q is not supported, want one of %s", pointer(x.at), x.str, strings.Join(formatNames(), ", "))
			}
			s.text.patterns = append(s.text.patterns, "^(?:"+p+")$")
		case "minItems":
			s.minItems = max(s.minItems, counted(x))
		case "maxItems":
			s.maxItems = least(s.maxItems, counted(x))
		case "prefixItems":
			s.prefix = max(s.prefix, len(x.items))
		case "items":
			s.prefix = max(s.prefix, len(x.items)) // of a list
		case "minProperties":
			s.minProps = max(s.minProps, counted(x))
		case "maxProperties":
			s.maxProps = least(s.maxProps, counted(x))
		case "required":
			for _, n := range x.items {
				s.required.add(n.str)
			}
		case "propertyNames":
			s.keys = append(s.keys, elem{v: x})
		}
	}
	if v.get("prefixItems") != nil || v.get("items") != nil {
		s.arrays = append(s.arrays, v)
	}
	if v.get("properties") != nil || v.get("patternProperties") != nil || v.get("additionalProperties") != nil {
		s.objects = append(s.objects, v)
	}
	return nil
}

// limit adds a bound of numbers.
func (s *shape) limit(upper bool, by string, open bool) error {
	d, err := parseDecimal(by)
	if err != nil {
		return err
	}
	to, sign := &s.lo, 1
	if upper {
		to, sign = &s.hi, -1
	}
	if *to == nil || sign*d.compare((*to).decimal) > 0 || d.compare((*to).decimal) == 0 && open {
		*to = &bound{d, open}
	}
	return nil
}

// typesOf is the value of type.
func typesOf(v *value) (t types) {
	if v.kind == text {
		return typeBits[v.str]
	}
	for _, name := range v.items {
		t |= typeBits[name.str]
	}
	return t
}

// counted is a number that count has checked.
func counted(v *value) int {
	d, _ := parseDecimal(v.str)
	if len(d.whole) > 9 {
		return math.MaxInt32
	}
	n := 0
	for _, c := range d.whole {
		n = 10*n + int(c-'0')
	}
	return n
}

func least(a, b int) int {
	if a == grammar.Unbounded {
		return b
	}
	return min(a, b)
}

// item is what has to hold of item i of an array; i past the prefix stands for all that follow.
func (c *compiler) item(s *shape, i int) (cj conj) {
	for _, v := range s.arrays {
		first, rest := v.get("prefixItems"), v.get("items")
		if rest != nil && rest.kind == list {
			first, rest = rest, v.get("additionalItems")
		}
		if first != nil && i < len(first.items) {
			cj = append(cj, elem{v: first.items[i]})
		} else if rest != nil {
			cj = append(cj, elem{v: rest})
		}
	}
	return cj
}

// property is what has to hold of the value of a property.
func (c *compiler) property(s *shape, name string) conj {
	return c.valueOf(s, func(v *value) *value { return v.get("properties").member(name) }, func(p string) bool {
		d, err := c.automaton(p)
		return err == nil && d.Match(spelled(name))
	})
}

// valueOf is what has to hold of the value of a property of which it is known what it is called in
// the properties of a schema, and which patterns it matches.
func (c *compiler) valueOf(s *shape, named func(v *value) *value, matches func(pattern string) bool) (cj conj) {
	for _, v := range s.objects {
		found := false
		if x := named(v); x != nil {
			cj, found = append(cj, elem{v: x}), true
		}
		if ps := v.get("patternProperties"); ps != nil {
			for _, m := range ps.members {
				if matches(m.name) {
					cj, found = append(cj, elem{v: m.v}), true
				}
			}
		}
		if x := v.get("additionalProperties"); x != nil && !found {
			cj = append(cj, elem{v: x})
		}
	}
	return cj
}

// member is get of what may be nil.
func (v *value) member(name string) *value {
	if v == nil {
		return nil
	}
	return v.get(name)
}

// automaton is that of a pattern in strings, as they are spelled.
func (c *compiler) automaton(pattern string) (*grammar.DFA, error) {
	if d, ok := c.patterns[pattern]; ok {
		return d, nil
	}
	d, err := c.w.automaton(&texts{hi: grammar.Unbounded, patterns: []string{pattern}})
	if err != nil {
		return nil, err
	}
	c.patterns[pattern] = d
	return d, nil
}

// holds reports whether a value matches all of cj.
func (c *compiler) holds(cj conj, v *value) (bool, error) {
	if len(cj) == 0 {
		return true, nil
	}
	shapes, err := c.shapes(cj)
	if err != nil {
		return false, err
	}
	for _, s := range shapes {
		if s.enum != nil && !slices.ContainsFunc(s.enum, func(x *value) bool { return c.equal(x, v) }) {
			continue
		}
		if ok, err := c.allows(s, v); ok || err != nil {
			return ok, err
		}
	}
	return false, nil
}

// allows reports whether a value matches a shape, but for its enum.
func (c *compiler) allows(s *shape, v *value) (bool, error) {
	if err := c.step(v); err != nil {
		return false, err
	}
	switch v.kind {
	case null:
		return s.types&nulls != 0, nil
	case truth:
		return s.types&truths != 0, nil
	case number:
		d, err := parseDecimal(v.str)
		if err != nil {
			return false, fmt.Errorf("%s: %w", pointer(v.at), err)
		}
		t := fractions
		if d.frac == "" {
			t = integers
		}
		if s.types&t == 0 {
			return false, nil
		}
		return c.w.contains(s.lo, s.hi, s.steps, d)
	case text:
		if s.types&strings_ == 0 {
			return false, nil
		}
		n := len([]rune(v.str))
		if n < s.text.lo || s.text.hi != grammar.Unbounded && n > s.text.hi {
			return false, nil
		}
		for i, p := range slices.Concat(s.text.patterns, s.text.without) {
			d, err := c.automaton(p)
			if err != nil || d.Match(spelled(v.str)) != (i < len(s.text.patterns)) {
				return false, err
			}
		}
		return !slices.Contains(s.text.words, spelled(v.str)), nil
	case list:
		n := len(v.items)
		if s.types&arrays == 0 || n < s.minItems || s.maxItems != grammar.Unbounded && n > s.maxItems {
			return false, nil
		}
		for i, x := range v.items {
			if ok, err := c.holds(c.item(s, i), x); !ok || err != nil {
				return false, err
			}
		}
		return true, nil
	}
	n := len(v.members)
	if s.types&objects == 0 || n < s.minProps || s.maxProps != grammar.Unbounded && n > s.maxProps {
		return false, nil
	}
	for _, name := range s.required.list {
		if v.get(name) == nil {
			return false, nil
		}
	}
	for _, m := range v.members {
		if ok, err := c.holds(c.property(s, m.name), m.v); !ok || err != nil {
			return false, err
		}
		if ok, err := c.holds(s.keys, &value{kind: text, str: m.name, at: v.at}); !ok || err != nil {
			return false, err
		}
	}
	return true, nil
}

// maxPatterns bounds the patterns of names in one object: each may match or not.
const maxPatterns = 6

func tooManyPatterns(at *value) error {
	return fmt.Errorf("%s: patternProperties: more than %d patterns: %w", pointer(at.at), maxPatterns, limits.ErrTooLarge)
}
