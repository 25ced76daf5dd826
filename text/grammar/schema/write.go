package schema

import (
	"fmt"
	"slices"
	"strings"

	"talf/text/grammar"
)

// write is the expression of a shape.
func (c *compiler) write(s *shape) (grammar.Expr, error) {
	w, b := c.w, c.w.b
	if s.enum != nil {
		return c.constants(s.enum)
	}
	var alts []grammar.Expr
	add := func(e grammar.Expr, err error) error {
		alts = append(alts, e)
		return err
	}
	var err error
	if s.types&objects != 0 {
		err = add(c.object(s))
	}
	if s.types&arrays != 0 && err == nil {
		err = add(c.array(s))
	}
	if s.types&strings_ != 0 && err == nil {
		err = add(c.text(s))
	}
	if s.types&(integers|fractions) != 0 && err == nil {
		err = add(w.numberIn(s.lo, s.hi, s.steps, s.types))
	}
	if err != nil && !strings.HasPrefix(err.Error(), "#") { // it may have a place already
		err = fmt.Errorf("%s: %w", pointer(s.at.at), err)
	}
	if err != nil {
		return 0, err
	}
	if s.types&truths != 0 {
		alts = append(alts, w.truth)
	}
	if s.types&nulls != 0 {
		alts = append(alts, b.Text("null"))
	}
	return b.Alt(alts...), nil
}

// constants is one of several values.
func (c *compiler) constants(values []*value) (grammar.Expr, error) {
	b := c.w.b
	var words []string
	var alts []grammar.Expr
	for _, v := range values {
		switch v.kind {
		case list, object:
			alts = append(alts, c.constant(v))
		case null:
			words = append(words, "null")
		case truth:
			words = append(words, fmt.Sprint(v.yes))
		case number:
			words = append(words, v.str)
		case text:
			words = append(words, `"`+spelled(v.str)+`"`)
		}
	}
	if len(words) == 1 {
		alts = append(alts, b.Text(words[0]))
	} else if len(words) > 0 {
		d, err := b.Words(words)
		if err != nil {
			return 0, err
		}
		alts = append(alts, b.Automaton(d))
	}
	return b.Alt(alts...), nil
}

// constant is one value. Between its tokens there may be blanks.
func (c *compiler) constant(v *value) grammar.Expr {
	w, b := c.w, c.w.b
	open, end := "[", "]"
	var parts []grammar.Expr
	switch v.kind {
	case list:
		for _, x := range v.items {
			parts = append(parts, c.constant(x))
		}
	case object:
		open, end = "{", "}"
		for _, m := range v.members {
			parts = append(parts, b.Seq(b.Text(`"`+spelled(m.name)+`"`), w.space, b.Text(":"), w.space, c.constant(m.v)))
		}
	default:
		e, _ := c.constants([]*value{v}) // one text: nothing to go wrong
		return e
	}
	all := []grammar.Expr{b.Text(open), w.space}
	for i, p := range parts {
		if i > 0 {
			all = append(all, w.comma())
		}
		all = append(all, p)
	}
	if len(parts) > 0 {
		all = append(all, w.space)
	}
	return b.Seq(append(all, b.Text(end))...)
}

func (w *writer) comma() grammar.Expr {
	if !w.commaMade {
		w.commaMade, w.commaExpr = true, w.b.Seq(w.space, w.b.Text(","), w.space)
	}
	return w.commaExpr
}

// text is a string.
func (c *compiler) text(s *shape) (grammar.Expr, error) {
	w, b := c.w, c.w.b
	if s.text.free() {
		return w.str, nil
	}
	content := b.Repeat(w.char, s.text.lo, s.text.hi)
	if s.text.spelled() {
		var err error
		if content, err = w.content(&s.text); err != nil {
			return 0, err
		}
	}
	return b.Seq(b.Text(`"`), content, b.Text(`"`)), nil
}

// array is an array.
func (c *compiler) array(s *shape) (grammar.Expr, error) {
	w, b := c.w, c.w.b
	item, err := c.expr(c.item(s, s.prefix))
	if err != nil {
		return 0, err
	}
	last := b.Seq(w.space, b.Text("]"))
	lo, hi := max(0, s.minItems-s.prefix), s.maxItems
	if hi != grammar.Unbounded {
		hi = max(0, hi-s.prefix)
	}
	more := func(lo, hi int) grammar.Expr { return b.Repeat(b.Seq(w.comma(), item), lo, hi) }
	var tail grammar.Expr // from item i on; items before it stand there
	if s.prefix > 0 {
		tail = b.Seq(more(lo, hi), last)
	} else {
		var alts []grammar.Expr
		if lo == 0 {
			alts = append(alts, b.Text("]"))
		}
		if hi != 0 {
			alts = append(alts, b.Seq(item, more(max(lo-1, 0), max(hi-1, grammar.Unbounded)), last))
		}
		tail = b.Alt(alts...)
	}
	for i := s.prefix - 1; i >= 0; i-- {
		x, err := c.expr(c.item(s, i))
		if err != nil {
			return 0, err
		}
		end := last
		if i == 0 {
			end = b.Text("]")
		} else {
			x = b.Seq(w.comma(), x)
		}
		var alts []grammar.Expr
		if i >= s.minItems {
			alts = append(alts, end)
		}
		if s.maxItems == grammar.Unbounded || i < s.maxItems {
			alts = append(alts, b.Seq(x, tail))
		}
		tail = b.Alt(alts...)
	}
	return b.Seq(b.Text("["), w.space, tail), nil
}

// A field is a property that an object may have or has to.
type field struct {
	expr     grammar.Expr
	required bool
}

// object is an object: the properties that are named in the order in which they are, then others.
func (c *compiler) object(s *shape) (grammar.Expr, error) {
	all := newNames()
	for _, v := range s.objects {
		if ps := v.get("properties"); ps != nil {
			for _, p := range ps.members {
				all.add(p.name)
			}
		}
	}
	for _, n := range s.required.list {
		all.add(n)
	}
	names := all.list
	w, b := c.w, c.w.b
	other, loose, err := c.others(s, names) // which finds mistakes in patterns, too
	if err != nil {
		return 0, err
	}
	var fields []field
	needed := 0
	for _, name := range names {
		required := s.required.has[name]
		ok, err := c.holds(s.keys, &value{kind: text, str: name, at: s.at.at})
		if err != nil {
			return 0, err
		}
		if ok {
			cj := c.property(s, name)
			ok = !slices.ContainsFunc(cj, func(e elem) bool { return e.v.kind == truth && !e.v.yes })
			if ok {
				x, err := c.expr(cj)
				if err != nil {
					return 0, err
				}
				fields = append(fields, field{b.Seq(b.Text(`"`+spelled(name)+`"`), w.space, b.Text(":"), w.space, x), required})
			}
		}
		if required {
			if needed++; !ok {
				return b.Alt(), nil
			}
		}
	}
	if loose && c.closed(s, len(fields)) {
		other = other[1:]
	}
	m := members{w: w, s: s, fields: fields, other: other, made: map[memberKey]grammar.Expr{}}
	m.counted = s.minProps > needed || s.maxProps != grammar.Unbounded
	tail := m.tail(0, 0, true)
	if m.doubtful {
		return 0, fmt.Errorf("minProperties %d needs several properties without a name, which could be the same, want at most one more than are required", s.minProps)
	}
	return b.Seq(b.Text("{"), w.space, tail), nil
}

// members writes what follows the opening brace of an object.
type members struct {
	w        *writer
	s        *shape
	fields   []field
	other    []grammar.Expr // properties that are not named
	counted  bool           // how many there are matters
	doubtful bool           // whether there are enough cannot be told
	made     map[memberKey]grammar.Expr
}

type memberKey struct {
	i, count int
	first    bool
}

// tail is what follows when fields before i are done and count properties were written.
func (m *members) tail(i, count int, first bool) grammar.Expr {
	if !m.counted {
		count = 0
	}
	key := memberKey{i, count, first}
	e, ok := m.made[key]
	if ok {
		return e
	}
	b, s := m.w.b, m.s
	if b.Err() != nil {
		return b.Empty()
	}
	lo, hi := max(0, s.minProps-count), s.maxProps
	if !m.counted {
		lo = 0
	}
	if hi != grammar.Unbounded {
		hi -= count
	}
	if i == len(m.fields) {
		e = m.rest(lo, hi, first)
	} else {
		f := m.fields[i]
		var alts []grammar.Expr
		if hi != 0 {
			x := b.Seq(f.expr, m.tail(i+1, count+1, false))
			if !first {
				x = b.Seq(m.w.comma(), x)
			}
			alts = append(alts, x)
		}
		if !f.required {
			alts = append(alts, m.tail(i+1, count, first))
		}
		e = b.Alt(alts...)
	}
	m.made[key] = e
	return e
}

// rest is lo to hi properties that are not named, and the end.
func (m *members) rest(lo, hi int, first bool) grammar.Expr {
	b := m.w.b
	end := b.Seq(m.w.space, b.Text("}"))
	if first {
		end = b.Text("}")
	}
	if len(m.other) == 0 || hi == 0 {
		if lo > 0 {
			return b.Alt()
		}
		return end
	}
	if lo > 1 {
		m.doubtful = true
		return end
	}
	other := b.Alt(m.other...)
	more := func(lo, hi int) grammar.Expr {
		return b.Seq(b.Repeat(b.Seq(m.w.comma(), other), lo, hi), m.w.space, b.Text("}"))
	}
	if !first {
		return more(lo, hi)
	}
	some := b.Seq(other, more(0, max(hi-1, grammar.Unbounded)))
	if lo > 0 {
		return some
	}
	return b.Alt(end, some)
}

// closed reports whether objects have no properties but those that are named, or match a pattern. fields are
// how many named ones they may have.
func (c *compiler) closed(s *shape, fields int) bool {
	return !c.w.c.Others && fields >= max(1, s.minProps) &&
		!slices.ContainsFunc(s.objects, func(v *value) bool { return v.get("additionalProperties") != nil })
}

// others are the properties without a name in s, by the patterns that their names match; the first match none if loose.
func (c *compiler) others(s *shape, names []string) (out []grammar.Expr, loose bool, _ error) {
	w, b := c.w, c.w.b
	var patterns []string
	for _, v := range s.objects {
		if ps := v.get("patternProperties"); ps != nil {
			for _, m := range ps.members {
				if !slices.Contains(patterns, m.name) {
					patterns = append(patterns, m.name)
				}
			}
		}
	}
	if len(patterns) > maxPatterns {
		return nil, false, tooManyPatterns(s.at)
	}
	for _, p := range patterns {
		if _, err := c.automaton(p); err != nil {
			return nil, false, err
		}
	}
	for bits := range 1 << len(patterns) {
		matches := func(p string) bool { return bits>>slices.Index(patterns, p)&1 != 0 }
		cj := c.valueOf(s, func(*value) *value { return nil }, matches)
		if slices.ContainsFunc(cj, func(e elem) bool { return e.v.kind == truth && !e.v.yes }) {
			continue
		}
		key := w.str
		if len(patterns) > 0 || len(names) > 0 || len(s.keys) > 0 {
			d, err := c.keys(s, names)
			for _, p := range patterns {
				if err != nil {
					return nil, false, err
				}
				var m *grammar.DFA
				if m, err = c.automaton(p); err != nil {
					return nil, false, err
				}
				if matches(p) {
					d, err = b.And(d, m)
				} else {
					d, err = b.Without(d, m)
				}
			}
			if err != nil {
				return nil, false, err
			}
			if d.Empty() {
				continue
			}
			key = b.Seq(b.Text(`"`), b.Automaton(d), b.Text(`"`))
		}
		x, err := c.expr(cj)
		if err != nil {
			return nil, false, err
		}
		loose = loose || bits == 0
		out = append(out, b.Seq(key, w.space, b.Text(":"), w.space, x))
	}
	return out, loose, nil
}

// keys is the automaton of the names that an object may use besides those given.
func (c *compiler) keys(s *shape, without []string) (*grammar.DFA, error) {
	all, err := c.w.automaton(&texts{hi: grammar.Unbounded})
	if err != nil {
		return nil, err
	}
	if len(s.keys) > 0 {
		shapes, err := c.shapes(s.keys)
		if err != nil {
			return nil, err
		}
		some := new(grammar.DFA)
		for _, k := range shapes {
			var d *grammar.DFA
			switch {
			case k.enum != nil:
				var words []string
				for _, v := range k.enum {
					if v.kind == text {
						words = append(words, spelled(v.str))
					}
				}
				d, err = c.w.b.Words(words)
			case k.types&strings_ != 0:
				d, err = c.w.automaton(&k.text)
			default:
				continue
			}
			if err == nil {
				some, err = c.w.b.Or(some, d)
			}
			if err != nil {
				return nil, err
			}
		}
		all = some
	}
	words := make([]string, len(without))
	for i, n := range without {
		words[i] = spelled(n)
	}
	out, err := c.w.b.Words(words)
	if err != nil {
		return nil, err
	}
	return c.w.b.Without(all, out)
}
