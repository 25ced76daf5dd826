package jinja

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

type kind uint8

const (
	tEOF kind = iota
	tData
	tVarBegin
	tVarEnd
	tBlockBegin
	tBlockEnd
	tName
	tString
	tInt
	tFloat
	tOp
	tError
)

type token struct {
	kind kind
	text string // data, name, the value of a string, an operator
	num  Value  // the value of a number
	err  error  // of a tError
	line int
}

// String names a token as the parser's errors do.
func (t token) String() string {
	switch t.kind {
	case tEOF:
		return "end of template"
	case tData:
		return "template text"
	case tVarBegin:
		return "begin of print statement"
	case tVarEnd:
		return "end of print statement"
	case tBlockBegin:
		return "begin of statement block"
	case tBlockEnd:
		return "end of statement block"
	case tInt:
		return "integer"
	case tFloat:
		return "float"
	case tString:
		return "string"
	}
	return t.text
}

// lexer splits a template as jinja2 does with trim_blocks and lstrip_blocks, dropping a
// single final newline. It reads on when the parser asks for a token, so that the memory
// for tokens does not grow with the template.
type lexer struct {
	s         string
	i         int
	line      int
	toks      []token // found, but not yet asked for; at most two
	lineStart bool    // what precedes i ends a line
	tag       kind    // the tag that i is in: tVarBegin, tBlockBegin or 0
	open      []byte  // the brackets to be closed before the tag ends
	ended     bool
}

func newLexer(source string) *lexer {
	if !utf8.ValidString(source) {
		throw("UnicodeDecodeError", "the template is not UTF-8")
	}
	source = strings.ReplaceAll(source, "\r\n", "\n")
	source = strings.ReplaceAll(source, "\r", "\n")
	source = strings.TrimSuffix(source, "\n")
	return &lexer{s: source, line: 1, lineStart: true}
}

// next returns the next token. After a fault, which comes as a tError, and at the end it
// is a tEOF.
func (l *lexer) next() token {
	for len(l.toks) == 0 {
		if l.ended || l.i >= len(l.s) {
			return token{kind: tEOF, line: l.line}
		}
		if err := l.more(); err != nil {
			// The parser may find another fault before it gets here.
			l.toks = append(l.toks, token{kind: tError, err: err, line: l.line})
			l.ended = true
		}
	}
	t := l.toks[0]
	l.toks = append(l.toks[:0], l.toks[1:]...)
	return t
}

func (l *lexer) fail(format string, a ...any) {
	throwAt(l.line, "TemplateSyntaxError", format, a...)
}

func (l *lexer) emit(k kind, text string) {
	l.toks = append(l.toks, token{kind: k, text: text, line: l.line})
}

// advance moves to byte i and counts the lines on the way.
func (l *lexer) advance(i int) {
	l.line += strings.Count(l.s[l.i:i], "\n")
	l.i = i
}

// skipSpace moves past white space.
func (l *lexer) skipSpace() {
	l.advance(l.i + spaceLen(l.s[l.i:]))
}

func spaceLen(s string) int {
	for i, r := range s {
		if !isSpace(r) {
			return i
		}
	}
	return len(s)
}

// more reads the next part of the template.
func (l *lexer) more() (err error) {
	defer catch(&err)
	if l.tag != 0 {
		l.inside()
		return nil
	}
	// The next tag.
	at := l.i
	for {
		n := strings.IndexByte(l.s[at:], '{')
		if n < 0 || at+n+1 >= len(l.s) {
			at = len(l.s)
			break
		}
		at += n
		if c := l.s[at+1]; c == '{' || c == '%' || c == '#' {
			break
		}
		at++
	}
	if at >= len(l.s) {
		l.emit(tData, l.s[l.i:])
		l.advance(len(l.s))
		return nil
	}
	tag := l.s[at+1]
	after := at + 2
	sign := byte(0)
	if after < len(l.s) && (l.s[after] == '-' || l.s[after] == '+') {
		sign = l.s[after]
		after++
	}
	if data := lstrip(l.s[l.i:at], sign, tag == '{', l.lineStart); data != "" {
		l.emit(tData, data)
	}
	l.advance(after)
	switch tag {
	case '#':
		l.comment()
	case '{':
		l.emit(tVarBegin, "")
		l.tag = tVarBegin
	default:
		n := l.rawBegin()
		if n == 0 {
			l.emit(tBlockBegin, "")
			l.tag = tBlockBegin
			break
		}
		lineStart := l.s[l.i+n-1] == '\n'
		l.advance(l.i + n)
		l.raw(lineStart)
	}
	l.lineStart = l.s[l.i-1] == '\n'
	return nil
}

// lstrip drops white space before a tag: all of it before -, and the white space that
// begins the tag's line before anything except {{.
func lstrip(data string, sign byte, variable, lineStart bool) string {
	if sign == '-' {
		return strings.TrimRightFunc(data, isSpace)
	}
	if sign == '+' || variable {
		return data
	}
	nl := strings.LastIndexByte(data, '\n') + 1
	if (nl > 0 || lineStart) && strings.TrimFunc(data[nl:], isSpace) == "" {
		return data[:nl]
	}
	return data
}

func (l *lexer) comment() {
	n := strings.Index(l.s[l.i:], "#}")
	if l.i >= len(l.s) {
		return // jinja2 overlooks it there
	}
	if n < 0 {
		l.fail("Missing end of comment tag")
	}
	end := l.i + n
	sign := byte(0)
	if end > l.i {
		sign = l.s[end-1]
	}
	l.advance(end + 2)
	l.afterBlock(sign)
}

// afterBlock drops the newline after a block or comment, or all white space after -.
func (l *lexer) afterBlock(sign byte) {
	switch {
	case sign == '-':
		l.skipSpace()
	case sign != '+' && l.i < len(l.s) && l.s[l.i] == '\n':
		l.advance(l.i + 1)
	}
}

// rawBegin returns the length of `raw %}` if that follows.
func (l *lexer) rawBegin() int {
	s := l.s[l.i:]
	n := spaceLen(s)
	if !strings.HasPrefix(s[n:], "raw") {
		return 0
	}
	n += len("raw")
	n += spaceLen(s[n:])
	if strings.HasPrefix(s[n:], "-%}") {
		n += 3
		return n + spaceLen(s[n:])
	}
	if strings.HasPrefix(s[n:], "%}") {
		return n + 2
	}
	return 0
}

// raw reads up to the end of a raw block.
func (l *lexer) raw(lineStart bool) {
	for at := l.i; ; at++ {
		n := strings.Index(l.s[at:], "{%")
		if l.i >= len(l.s) {
			return // as with comments
		}
		if n < 0 {
			l.fail("Missing end of raw directive")
		}
		at += n
		after := at + 2
		sign := byte(0)
		if after < len(l.s) && (l.s[after] == '-' || l.s[after] == '+') {
			sign = l.s[after]
			after++
		}
		after += spaceLen(l.s[after:])
		if !strings.HasPrefix(l.s[after:], "endraw") {
			continue
		}
		after += len("endraw")
		after += spaceLen(l.s[after:])
		end := byte(0)
		if after < len(l.s) && (l.s[after] == '-' || l.s[after] == '+') {
			end = l.s[after]
			after++
		}
		if !strings.HasPrefix(l.s[after:], "%}") {
			continue
		}
		if data := lstrip(l.s[l.i:at], sign, false, lineStart); data != "" {
			l.emit(tData, data)
		}
		l.advance(after + 2)
		l.afterBlock(end)
		return
	}
}

// operators, longer ones first.
var operators = []string{
	"//", "**", "==", "!=", ">=", "<=",
	"+", "-", "/", "*", "%", "~", "[", "]", "(", ")", "{", "}", ">", "<", "=", ".", ":", "|", ",", ";",
}

// inside reads the next token between the delimiters of a tag.
func (l *lexer) inside() {
	if len(l.open) == 0 && l.end() {
		l.tag = 0
		l.lineStart = l.s[l.i-1] == '\n'
		return
	}
	s := l.s[l.i:]
	if n := spaceLen(s); n > 0 {
		l.advance(l.i + n)
		return
	}
	c := s[0]
	switch {
	case c >= '0' && c <= '9':
		l.number()
		return
	case c == '\'' || c == '"':
		l.str(c)
		return
	}
	r, _ := utf8.DecodeRuneInString(s)
	if r == '_' || unicode.IsLetter(r) || unicode.IsNumber(r) {
		n := strings.IndexFunc(s, func(r rune) bool {
			return r != '_' && !unicode.IsLetter(r) && !unicode.IsNumber(r) && !unicode.Is(unicode.M, r)
		})
		if n < 0 {
			n = len(s)
		}
		if unicode.IsNumber(r) {
			l.fail("Invalid character in identifier")
		}
		l.emit(tName, s[:n])
		l.advance(l.i + n)
		return
	}
	op := ""
	for _, o := range operators {
		if strings.HasPrefix(s, o) {
			op = o
			break
		}
	}
	switch op {
	case "":
		l.fail("unexpected char %s at %d", quoteRune(r), utf8.RuneCountInString(l.s[:l.i]))
	case "(":
		l.open = append(l.open, ')')
	case "[":
		l.open = append(l.open, ']')
	case "{":
		l.open = append(l.open, '}')
	case ")", "]", "}":
		if len(l.open) == 0 {
			l.fail("unexpected '%s'", op)
		}
		if want := l.open[len(l.open)-1]; want != op[0] {
			l.fail("unexpected '%s', expected '%c'", op, want)
		}
		l.open = l.open[:len(l.open)-1]
	}
	l.emit(tOp, op)
	l.advance(l.i + len(op))
}

// end consumes the end of a tag if that is next.
func (l *lexer) end() bool {
	s := l.s[l.i:]
	block := l.tag == tBlockBegin
	closing, k := "}}", tVarEnd
	if block {
		closing, k = "%}", tBlockEnd
	}
	sign := byte(0)
	if len(s) > 2 && (s[0] == '-' || block && s[0] == '+') && s[1:3] == closing {
		sign = s[0]
	} else if !strings.HasPrefix(s, closing) {
		return false
	}
	l.emit(k, "")
	if sign != 0 {
		l.advance(l.i + 1)
	}
	l.advance(l.i + 2)
	if block {
		l.afterBlock(sign)
	} else if sign == '-' {
		l.skipSpace()
	}
	return true
}

// digits returns the length of a run of digits with single underscores between.
func digits(s string, ok func(c byte) bool) int {
	n := 0
	for n < len(s) {
		switch {
		case ok(s[n]):
			n++
		case s[n] == '_' && n > 0 && n+1 < len(s) && ok(s[n+1]):
			n += 2
		default:
			return n
		}
	}
	return n
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

func (l *lexer) number() {
	s := l.s[l.i:]
	emit := func(k kind, n int, v Value) {
		l.toks = append(l.toks, token{kind: k, text: s[:n], num: v, line: l.line})
		l.advance(l.i + n)
	}
	// A float, unless the digits are an attribute (a.0.1).
	if l.i == 0 || l.s[l.i-1] != '.' {
		n := digits(s, isDigit)
		end := n
		if n+1 < len(s) && s[n] == '.' && isDigit(s[n+1]) {
			n += 1 + digits(s[n+1:], isDigit)
			end = n
		}
		if n < len(s) && (s[n] == 'e' || s[n] == 'E') {
			e := n + 1
			if e < len(s) && (s[e] == '+' || s[e] == '-') {
				e++
			}
			if d := digits(s[e:], isDigit); d > 0 && isDigit(s[e]) {
				end = e + d
			}
		}
		if strings.ContainsAny(s[:end], ".eE") {
			f, _ := strconv.ParseFloat(strings.ReplaceAll(s[:end], "_", ""), 64)
			emit(tFloat, end, f)
			return
		}
	}
	base, n, from := 10, 0, 0
	if len(s) > 2 && s[0] == '0' {
		is := map[byte]func(byte) bool{
			'b': func(c byte) bool { return c == '0' || c == '1' },
			'o': func(c byte) bool { return c >= '0' && c <= '7' },
			'x': func(c byte) bool { return isDigit(c) || c|0x20 >= 'a' && c|0x20 <= 'f' },
		}[s[1]|0x20]
		if is != nil {
			from = 2
			if s[2] == '_' {
				from = 3
			}
			if n = digits(s[from:], is); n > 0 {
				base = map[byte]int{'b': 2, 'o': 8, 'x': 16}[s[1]|0x20]
			}
		}
	}
	if base == 10 {
		from = 0
		if s[0] == '0' {
			n = digits(s, func(c byte) bool { return c == '0' })
		} else {
			n = digits(s, isDigit)
		}
	}
	word := strings.ReplaceAll(s[from:from+n], "_", "")
	if len(word) > maxDigits {
		l.fail("an integer of more than %d digits", maxDigits)
	}
	v, ok := parseDigits(word)
	if base != 10 {
		var err error
		v, err = strconv.ParseInt(word, base, 64)
		ok = err == nil
	}
	if !ok {
		l.fail("an integer of more than 64 bits")
	}
	emit(tInt, from+n, v)
}

// str reads a string literal.
func (l *lexer) str(q byte) {
	s := l.s[l.i:]
	n := 1
	for n < len(s) && s[n] != q {
		if s[n] == '\\' {
			n++
		}
		n++
	}
	if n >= len(s) {
		l.fail("unexpected char %s at %d", quoteRune(rune(q)), utf8.RuneCountInString(l.s[:l.i]))
	}
	l.emit(tString, l.unescape(s[1:n]))
	l.advance(l.i + n + 1)
}

// unescape decodes Python's escapes.
func (l *lexer) unescape(s string) string {
	if strings.IndexByte(s, '\\') < 0 {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); {
		if s[i] != '\\' || i+1 >= len(s) {
			b.WriteByte(s[i])
			i++
			continue
		}
		c := s[i+1]
		i += 2
		if k := strings.IndexByte(`\'"abfnrtv`, c); k >= 0 {
			b.WriteByte("\\'\"\a\b\f\n\r\t\v"[k])
			continue
		}
		hex := map[byte]int{'x': 2, 'u': 4, 'U': 8}[c]
		switch {
		case c == '\n':
		case hex > 0:
			var n uint64
			var err error
			if i+hex > len(s) {
				err = strconv.ErrSyntax
			} else {
				n, err = strconv.ParseUint(s[i:i+hex], 16, 32)
			}
			if err != nil || !utf8.ValidRune(rune(n)) || n > unicode.MaxRune {
				l.fail("a bad escape in a string: want \\%c and %d hexadecimal digits of a character", c, hex)
			}
			b.WriteRune(rune(n))
			i += hex
		case c >= '0' && c <= '7':
			n := rune(c - '0')
			for k := 0; k < 2 && i < len(s) && s[i] >= '0' && s[i] <= '7'; k++ {
				n = n*8 + rune(s[i]-'0')
				i++
			}
			b.WriteRune(n)
		case c == 'N':
			l.fail(`names of characters (\N{…}) in strings are not supported`)
		default:
			// Not an escape: both characters stay.
			b.WriteByte('\\')
			i--
		}
	}
	return b.String()
}

func quoteRune(r rune) string { return quote(string(r)) }
