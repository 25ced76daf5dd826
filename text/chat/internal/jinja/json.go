package jinja

import (
	"math"
	"unicode/utf16"
	"unicode/utf8"
)

// A jsonStyle is the style in which toJSON writes.
type jsonStyle struct {
	ascii      bool
	indent     string
	multiline  bool
	comma, sep string
	sortKeys   bool
}

// json adds what Python's json.dumps returns.
func (b *buf) json(v Value, s *jsonStyle, depth int) {
	checkDepth(depth)
	r := b.r
	r.step()
	switch x := v.(type) {
	case nil:
		b.str("null")
	case bool:
		b.bool(x)
	case int64:
		b.int(x)
	case Big:
		b.str(string(x))
	case float64:
		b.str(jsonFloat(x))
	case string:
		b.jsonString(x, s.ascii)
	case Markup:
		b.jsonString(string(x), s.ascii)
	case *List, *Tuple:
		b.jsonList(r.collect(x), s, depth)
	case *Dict:
		if x.Len() == 0 {
			b.str("{}")
			return
		}
		var order []int
		if s.sortKeys {
			order = r.sortStable(x.Len(), func(i, j int) bool { return r.less(x.entries[i].key, x.entries[j].key) })
		}
		b.byte('{')
		for i, e := range x.entries {
			if order != nil {
				e = x.entries[order[i]]
			}
			r.work(1)
			b.item(s, i, depth+1)
			b.jsonString(r.jsonKey(e.key), s.ascii)
			b.str(s.sep)
			b.json(e.val, s, depth+1)
		}
		b.line(s, depth)
		b.byte('}')
	default:
		throw("TypeError", "Object of type %s is not JSON serializable", typeName(v))
	}
}

func (b *buf) jsonList(items []Value, s *jsonStyle, depth int) {
	if len(items) == 0 {
		b.str("[]")
		return
	}
	b.byte('[')
	for i, v := range items {
		b.item(s, i, depth+1)
		b.json(v, s, depth+1)
	}
	b.line(s, depth)
	b.byte(']')
}

// item starts element i.
func (b *buf) item(s *jsonStyle, i, depth int) {
	if i > 0 {
		b.str(s.comma)
	}
	b.line(s, depth)
}

// line starts a new line if the style has lines.
func (b *buf) line(s *jsonStyle, depth int) {
	if s.multiline {
		b.byte('\n')
		b.repeat(s.indent, depth)
	}
}

func (b *buf) bool(v bool) {
	if v {
		b.str("true")
	} else {
		b.str("false")
	}
}

func jsonFloat(f float64) string {
	switch {
	case math.IsNaN(f):
		return "NaN"
	case math.IsInf(f, 1):
		return "Infinity"
	case math.IsInf(f, -1):
		return "-Infinity"
	}
	return floatRepr(f)
}

// jsonKey returns a dict's key as json.dumps writes it.
func (r *run) jsonKey(v Value) string {
	switch x := v.(type) {
	case string:
		return x
	case Markup:
		return string(x)
	case nil:
		return "null"
	case bool:
		if x {
			return "true"
		}
		return "false"
	case int64, Big:
		return r.intString(x)
	case float64:
		return jsonFloat(x)
	}
	throw("TypeError", "keys must be str, int, float, bool or None, not %s", typeName(v))
	return ""
}

// jsonString adds a text between quotes.
func (b *buf) jsonString(s string, ascii bool) {
	b.byte('"')
	from := 0
	for i, c := range b.r.chars(s) {
		if c >= ' ' && c != '"' && c != '\\' && (c < utf8.RuneSelf || !ascii) {
			continue
		}
		b.str(s[from:i])
		from = i + utf8.RuneLen(c)
		switch c {
		case '"', '\\':
			b.byte('\\')
			b.rune(c)
		case '\n':
			b.str(`\n`)
		case '\r':
			b.str(`\r`)
		case '\t':
			b.str(`\t`)
		case '\f':
			b.str(`\f`)
		case '\b':
			b.str(`\b`)
		default:
			if hi, lo := utf16.EncodeRune(c); hi != utf8.RuneError {
				b.str(`\u`)
				b.hex(hi, 4)
				c = lo
			}
			b.str(`\u`)
			b.hex(c, 4)
		}
	}
	b.str(s[from:])
	b.byte('"')
}
