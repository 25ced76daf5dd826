package schema

import (
	"unicode/utf8"

	"talf/text/grammar"
)

// Any adds the grammar of JSON values of any type (RFC 8259) to b. Between tokens there may be two
// blanks, line ends among them, or with Blanks a space, or a line end and an indentation of at most
// maxIndent blanks: more would let an answer go on without an end. There is none before and after the
// value. Escaped surrogates come in pairs.
func (c Config) Any(b *grammar.Builder) grammar.Expr { return c.newWriter(b).any() }

// Object adds the grammar of JSON objects with any members.
func (c Config) Object(b *grammar.Builder) grammar.Expr { return c.NewSet(b).Object() }

const (
	maxBlanks = 2  // between tokens
	maxIndent = 40 // at the beginning of a line
)

// A writer adds the parts of JSON to a builder, each once.
type writer struct {
	c     Config
	b     *grammar.Builder
	value grammar.Expr // any value; 0 until it is asked for
	made  bool

	object, array          grammar.Expr // of any values
	space                  grammar.Expr
	char                   grammar.Expr // one code point of a string, in any spelling
	str                    grammar.Expr // a string in any spelling
	integer, number, truth grammar.Expr
	digits                 grammar.Expr // one or more
	commaExpr              grammar.Expr
	commaMade              bool
	multiple               map[decimal]*grammar.DFA
	free                   *grammar.DFA // of anyText(0, grammar.Unbounded), which every object that is open needs
}

func set(ranges ...byte) (s grammar.ByteSet) {
	for i := 0; i < len(ranges); i += 2 {
		s.AddRange(ranges[i], ranges[i+1])
	}
	return s
}

func (c Config) newWriter(b *grammar.Builder) *writer {
	w := &writer{c: c, b: b, multiple: map[decimal]*grammar.DFA{}}
	w.space = b.Repeat(b.Bytes(set(' ', ' ', '\n', '\n', '\t', '\t')), 0, maxBlanks)
	if c.Blanks {
		w.space = b.Alt(b.Empty(), b.Text(" "),
			b.Seq(b.Text("\n"), b.Repeat(b.Bytes(set(' ', ' ', '\t', '\t')), 0, maxIndent)))
	}
	digit := b.Bytes(set('0', '9'))
	w.digits = b.Repeat(digit, 1, grammar.Unbounded)
	w.integer = b.Seq(b.Optional(b.Text("-")),
		b.Alt(b.Text("0"), b.Seq(b.Bytes(set('1', '9')), b.Repeat(digit, 0, grammar.Unbounded))))
	w.number = b.Seq(w.integer,
		b.Optional(b.Seq(b.Text("."), w.digits)),
		b.Optional(b.Seq(b.Bytes(set('e', 'e', 'E', 'E')), b.Optional(b.Bytes(set('+', '+', '-', '-'))), w.digits)))
	w.truth = b.Alt(b.Text("true"), b.Text("false"))
	w.char = w.anyChar()
	w.str = b.Seq(b.Text(`"`), b.Repeat(w.char, 0, grammar.Unbounded), b.Text(`"`))
	return w
}

// anyChar is one code point of a string: itself, or any escape that stands for it.
func (w *writer) anyChar() grammar.Expr {
	b := w.b
	hex := b.Bytes(set('0', '9', 'a', 'f', 'A', 'F'))
	low := b.Seq(b.Text(`\u`), b.Bytes(set('d', 'd', 'D', 'D')), b.Bytes(set('c', 'f', 'C', 'F')), hex, hex)
	d := b.Bytes(set('d', 'd', 'D', 'D'))
	return b.Alt(
		b.Runes([]grammar.Range{{Lo: ' ', Hi: '!'}, {Lo: '#', Hi: '['}, {Lo: ']', Hi: utf8.MaxRune}}),
		b.Seq(b.Text(`\`), b.Alt(
			b.Bytes(set('"', '"', '\\', '\\', '/', '/', 'b', 'b', 'f', 'f', 'n', 'n', 'r', 'r', 't', 't')),
			b.Seq(b.Text("u"), b.Alt(
				b.Seq(b.Bytes(set('0', '9', 'a', 'c', 'A', 'C', 'e', 'f', 'E', 'F')), hex, hex, hex),
				b.Seq(d, b.Bytes(set('0', '7')), hex, hex),
				b.Seq(d, b.Bytes(set('8', '9', 'a', 'b', 'A', 'B')), hex, hex, low),
			)),
		)),
	)
}

// any is the rule of any value.
func (w *writer) any() grammar.Expr {
	if w.made {
		return w.value
	}
	w.made = true
	b := w.b
	w.value = b.Rule("value")
	w.object = w.list("{", "}", b.Seq(w.str, w.space, b.Text(":"), w.space, w.value), 0, grammar.Unbounded)
	w.array = w.list("[", "]", w.value, 0, grammar.Unbounded)
	b.Define(w.value, b.Alt(w.object, w.array, w.str, w.number, w.truth, b.Text("null")))
	return w.value
}

// list is an array, or an object, of lo to hi parts.
func (w *writer) list(open, end string, part grammar.Expr, lo, hi int) grammar.Expr {
	b := w.b
	empty := b.Seq(b.Text(open), w.space, b.Text(end))
	if hi == 0 {
		return empty
	}
	most := hi
	if hi != grammar.Unbounded {
		most = hi - 1
	}
	more := b.Repeat(b.Seq(w.space, b.Text(","), w.space, part), max(lo-1, 0), most)
	some := b.Seq(b.Text(open), w.space, part, more, w.space, b.Text(end))
	if lo > 0 {
		return some
	}
	return b.Alt(empty, some)
}
