package jinja

import (
	"iter"
	"strings"
	"unicode"
	"unicode/utf8"
)

// str returns the text of a str, or "".
func str(v Value) string {
	s, _ := text(v)
	return s
}

// like converts a text to the type of self: methods of Markup return Markup.
func like(self Value, s string) Value {
	if _, ok := self.(Markup); ok {
		return Markup(s)
	}
	return s
}

// chars yields the characters of a text with their places in bytes.
func (r *run) chars(s string) iter.Seq2[int, rune] {
	return func(yield func(int, rune) bool) {
		paid, part := 0, 64
		for i, c := range s {
			if i >= paid {
				n := min(part, len(s)-i)
				r.work(n)
				paid, part = i+n, min(2*part, 4096)
			}
			if !yield(i, c) {
				return
			}
		}
	}
}

// backwards yields the characters of a text from the last one on, with the places in
// bytes where they end.
func (r *run) backwards(s string) iter.Seq2[int, rune] {
	return func(yield func(int, rune) bool) {
		paid, part := len(s), 64
		for end := len(s); end > 0; {
			if end <= paid {
				n := min(part, end)
				r.work(n)
				paid, part = end-n, min(2*part, 4096)
			}
			c, n := utf8.DecodeLastRuneInString(s[:end])
			if !yield(end, c) {
				return
			}
			end -= n
		}
	}
}

// runes returns the number of characters.
func (r *run) runes(s string) int {
	n := 0
	for s != "" {
		part := s
		if len(s) > 1<<16 {
			part = s[:1<<16]
			for !utf8.RuneStart(s[len(part)]) {
				part = s[:len(part)-1]
			}
		}
		r.work(len(part) / 2)
		n += utf8.RuneCountInString(part)
		s = s[len(part):]
	}
	return n
}

// all reports whether f holds for every character.
func (r *run) all(s string, f func(rune) bool) bool {
	for _, c := range r.chars(s) {
		if !f(c) {
			return false
		}
	}
	return true
}

// find returns the place of the first character for which f holds, or -1.
func (r *run) find(s string, f func(rune) bool) int {
	for i, c := range r.chars(s) {
		if f(c) {
			return i
		}
	}
	return -1
}

// trim cuts the characters for which f holds off the ends of a text.
func (r *run) trim(s string, left, right bool, f func(rune) bool) string {
	not := func(c rune) bool { return !f(c) }
	if left {
		i := r.find(s, not)
		if i < 0 {
			return ""
		}
		s = s[i:]
	}
	if right {
		for i, c := range r.backwards(s) {
			if not(c) {
				return s[:i]
			}
		}
		return ""
	}
	return s
}

// charSet returns a function that reports whether a character is in a text.
func (r *run) charSet(chars string) func(rune) bool {
	if len(chars) <= 16 {
		return func(c rune) bool { return strings.ContainsRune(chars, c) }
	}
	r.charge(min(len(chars), unicode.MaxRune) * 32)
	m := make(map[rune]bool, len(chars)/4)
	for _, c := range r.chars(chars) {
		m[c] = true
	}
	return func(c rune) bool { return m[c] }
}

// prime is the base of the hashes by which long texts are found.
const prime = 16777619

// index returns the place of sub in s, or -1. The standard library's function takes
// quadratic time if many parts of s have the hash of a long sub, but differ from it at
// the end: here, each such part is paid for.
func (r *run) index(s, sub string) int {
	if len(sub) > len(s) {
		return -1
	}
	if len(sub) < 64 {
		for from, part := 0, 32; ; from, part = from+part, min(4*part, 1<<16) {
			piece := s[from:min(from+part+len(sub)-1, len(s))]
			r.work(len(piece) / 2)
			if i := strings.Index(piece, sub); i >= 0 {
				return from + i
			}
			if from+len(piece) == len(s) {
				return -1
			}
		}
	}
	want, pow := r.hashOf(sub)
	got, _ := r.hashOf(s[:len(sub)])
	for i := len(sub); ; i++ {
		if got == want && r.same(s[i-len(sub):i], sub) {
			return i - len(sub)
		}
		if i == len(s) {
			return -1
		}
		if i&4095 == 0 {
			r.work(4096)
		}
		got = got*prime + uint32(s[i]) - pow*uint32(s[i-len(sub)])
	}
}

// lastIndex returns the last place of sub in s, or -1.
func (r *run) lastIndex(s, sub string) int {
	if len(sub) > len(s) {
		return -1
	}
	if len(sub) < 64 {
		for end, part := len(s), 32; ; end, part = end-part, min(4*part, 1<<16) {
			piece := s[max(0, end-part-len(sub)+1):end]
			r.work(len(piece) / 2)
			if i := strings.LastIndex(piece, sub); i >= 0 {
				return end - len(piece) + i
			}
			if len(piece) == end {
				return -1
			}
		}
	}
	want, pow := r.hashBack(sub)
	got, _ := r.hashBack(s[len(s)-len(sub):])
	for i := len(s) - len(sub); ; i-- {
		if got == want && r.same(s[i:i+len(sub)], sub) {
			return i
		}
		if i == 0 {
			return -1
		}
		if i&4095 == 0 {
			r.work(4096)
		}
		got = got*prime + uint32(s[i-1]) - pow*uint32(s[i-1+len(sub)])
	}
}

// hashOf returns a polynomial in the bytes of s, and prime to the power of their number.
func (r *run) hashOf(s string) (sum, pow uint32) {
	pow = 1
	for len(s) > 0 {
		part := s[:min(4096, len(s))]
		r.work(len(part) / 2)
		for i := range len(part) {
			sum = sum*prime + uint32(part[i])
			pow *= prime
		}
		s = s[len(part):]
	}
	return sum, pow
}

// hashBack is hashOf of the bytes in reverse order.
func (r *run) hashBack(s string) (sum, pow uint32) {
	pow = 1
	for len(s) > 0 {
		part := s[max(0, len(s)-4096):]
		r.work(len(part) / 2)
		for i := len(part) - 1; i >= 0; i-- {
			sum = sum*prime + uint32(part[i])
			pow *= prime
		}
		s = s[:len(s)-len(part)]
	}
	return sum, pow
}

// same is s == t.
func (r *run) same(s, t string) bool {
	if len(s) != len(t) {
		return false
	}
	r.scan(len(s))
	return s == t
}

// compareText orders texts by their bytes, which is the order of their characters.
func (r *run) compareText(s, t string) int {
	r.scan(min(len(s), len(t)))
	return strings.Compare(s, t)
}

func (r *run) hasPrefix(s, p string) bool { return len(s) >= len(p) && r.same(s[:len(p)], p) }
func (r *run) hasSuffix(s, p string) bool { return len(s) >= len(p) && r.same(s[len(s)-len(p):], p) }

// byteIndex returns the place of a byte in s, or -1.
func (r *run) byteIndex(s string, c byte) int {
	i := strings.IndexByte(s, c)
	r.scan(max(i, 0)) // afterwards: sixteen million bytes take a millisecond
	if i < 0 {
		r.scan(len(s))
	}
	return i
}

// runeSlice returns characters [from,to) of s.
func (r *run) runeSlice(s string, from, to int) string {
	if from >= to {
		return ""
	}
	start, n := len(s), 0
	for i := range r.chars(s) {
		if n == from {
			start = i
		}
		if n == to {
			return s[start:i]
		}
		n++
	}
	return s[start:]
}

// everyNth returns count characters of s, beginning with character start of n, each
// step after the one before.
func (r *run) everyNth(s string, n, start, step, count int64) string {
	if count == 0 {
		return ""
	}
	b := buf{r: r}
	i, next := int64(0), start
	each, by := r.chars(s), int64(1)
	if step < 0 {
		each, by, i = r.backwards(s), -1, n-1
	}
	for _, c := range each {
		if i == next {
			b.rune(c)
			if count--; count == 0 {
				break
			}
			next += step
		}
		i += by
	}
	return b.text()
}

// replace is str.replace; n < 0 means all.
func (r *run) replace(s, old, to string, n int) string {
	b := buf{r: r}
	if old == "" {
		// Before every character, and at the end.
		for i, c := range r.chars(s) {
			if n == 0 {
				b.str(s[i:])
				return b.text()
			}
			n--
			b.str(to)
			b.rune(c)
		}
		if n != 0 {
			b.str(to)
		}
		return b.text()
	}
	for ; n != 0; n-- {
		i := r.index(s, old)
		if i < 0 {
			break
		}
		b.room(len(s))
		b.str(s[:i])
		b.str(to)
		s = s[i+len(old):]
		r.work(4)
	}
	if b.b.Len() == 0 {
		return s // what was replaced, if anything, came to nothing
	}
	b.str(s)
	return b.text()
}

// around returns s between copies of fill.
func (r *run) around(s, fill string, before, after int) string {
	b := buf{r: r}
	b.repeat(fill, before)
	b.str(s)
	b.repeat(fill, after)
	return b.text()
}

// isSpace is Python's str.isspace and \s.
func isSpace(c rune) bool {
	return unicode.IsSpace(c) || c >= 0x1c && c <= 0x1f
}

func isNewline(c rune) bool {
	return c >= '\n' && c <= '\r' || c >= 0x1c && c <= 0x1e || c == 0x85 || c == 0x2028 || c == 0x2029
}

// lines yields what str.splitlines returns.
func (r *run) lines(s string, keep bool) iter.Seq[string] {
	return func(yield func(string) bool) {
		from := 0
		for i, c := range r.chars(s) {
			if i < from || !isNewline(c) {
				continue // before from, it is the \n of \r\n
			}
			r.step()
			end := i + utf8.RuneLen(c)
			if c == '\r' && end < len(s) && s[end] == '\n' {
				end++
			}
			line := s[from:end]
			if !keep {
				line = s[from:i]
			}
			if !yield(line) {
				return
			}
			from = end
		}
		if from < len(s) {
			yield(s[from:])
		}
	}
}

// Letters.

func (r *run) isASCII(s string) bool {
	r.scan(len(s))
	for i := range len(s) {
		if s[i] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

// Quotes and escapes.

// quote adds Python's repr() of a str.
func (b *buf) quote(s string) {
	r := b.r
	q := '\''
	if r.byteIndex(s, '\'') >= 0 && r.byteIndex(s, '"') < 0 {
		q = '"'
	}
	b.rune(q)
	for _, c := range r.chars(s) {
		switch {
		case c == q || c == '\\':
			b.byte('\\')
			b.rune(c)
		case c == '\n':
			b.str(`\n`)
		case c == '\r':
			b.str(`\r`)
		case c == '\t':
			b.str(`\t`)
		case unicode.IsPrint(c):
			b.rune(c)
		default:
			b.escaped(c)
		}
	}
	b.rune(q)
}

// escaped adds Python's escape of a character.
func (b *buf) escaped(c rune) {
	switch {
	case c < 0x100:
		b.str(`\x`)
		b.hex(c, 2)
	case c < 0x10000:
		b.str(`\u`)
		b.hex(c, 4)
	default:
		b.str(`\U`)
		b.hex(c, 8)
	}
}

func (b *buf) hex(c rune, digits int) {
	for digits--; digits >= 0; digits-- {
		b.byte("0123456789abcdef"[c>>(4*digits)&15])
	}
}

// quote is Python's repr() of a str for messages of errors. Long texts are cut.
func quote(s string) string {
	const most = 4096
	more := ""
	if len(s) > most {
		n := most
		for n > 0 && !utf8.RuneStart(s[n]) {
			n--
		}
		s, more = s[:n], "…"
	}
	b := buf{r: &run{}}
	b.quote(s)
	return b.text() + more
}

// escape is markupsafe's escape.
func (r *run) escape(s string) string {
	b := buf{r: r}
	from := 0
	for i, c := range r.chars(s) {
		var to string
		switch c {
		case '&':
			to = "&amp;"
		case '>':
			to = "&gt;"
		case '<':
			to = "&lt;"
		case '\'':
			to = "&#39;"
		case '"':
			to = "&#34;"
		default:
			continue
		}
		b.str(s[from:i])
		b.str(to)
		from = i + 1
	}
	if from == 0 {
		return s
	}
	b.str(s[from:])
	return b.text()
}

// parts yields what is between the separators in a text.
func (r *run) parts(s, sep string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for {
			i := r.index(s, sep)
			if i < 0 {
				yield(s)
				return
			}
			r.step()
			if !yield(s[:i]) {
				return
			}
			s = s[i+len(sep):]
		}
	}
}

// isOneOf reports whether a byte is in a set of few.
func isOneOf(c byte, set string) bool { return strings.IndexByte(set, c) >= 0 }

// charOf returns the text of one ASCII character.
func charOf(c byte) string { return string(rune(c)) }

// setOf returns the words of a text.
func setOf(words string) map[string]bool {
	m := map[string]bool{}
	for _, w := range strings.Fields(words) {
		m[w] = true
	}
	return m
}
