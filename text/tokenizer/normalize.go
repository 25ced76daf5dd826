package tokenizer

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"

	"talf/internal/limits"
	"talf/text/tokenizer/internal/regex"
)

// normalizer rewrites a text before it is split. What it makes is charged to m.
type normalizer interface {
	normalize(s string, m *limits.Meter) (string, error)
	// align is normalize with the origin of each byte.
	align(a aligned, m *limits.Meter) (aligned, error)
}

// placed is a component with its place in the file, for errors.
type placed[T any] struct {
	part T
	path string
}

type prependNorm string

func (n prependNorm) normalize(s string, m *limits.Meter) (string, error) {
	if s == "" {
		return s, nil
	}
	if err := m.Alloc(len(n) + len(s)); err != nil {
		return "", err
	}
	return string(n) + s, nil
}

type literalNorm struct{ old, new string }

func (n literalNorm) normalize(s string, m *limits.Meter) (string, error) {
	if n.old == "" {
		return s, nil
	}
	times := strings.Count(s, n.old)
	if times == 0 {
		return s, nil
	}
	if err := m.Alloc(len(s) + times*(len(n.new)-len(n.old))); err != nil {
		return "", err
	}
	return strings.Replace(s, n.old, n.new, times), nil
}

// markNorm is the normalizer of SentencePiece-style vocabularies: it puts a mark in
// front and replaces every space by one.
type markNorm struct{ front, space string }

// maxMark is the length of the longest texts that a markNorm puts in, which are not charged.
const maxMark = 16

// newMarkNorm recognizes such a normalizer.
func newMarkNorm(norms []placed[normalizer]) *markNorm {
	var m markNorm
	if len(norms) == 2 {
		front, ok := norms[0].part.(prependNorm)
		if !ok {
			return nil
		}
		m.front, norms = string(front), norms[1:]
	}
	if len(norms) != 1 {
		return nil
	}
	if n, ok := norms[0].part.(literalNorm); ok && n.old == " " && !strings.Contains(m.front, " ") &&
		max(len(m.front), len(n.new)) <= maxMark {
		m.space = n.new
		return &m
	}
	return nil
}

// appendTo appends normalized s to dst.
func (m *markNorm) appendTo(dst []byte, s string) []byte {
	if s == "" {
		return dst
	}
	dst = slices.Grow(dst, len(m.front)+len(s)+strings.Count(s, " ")*max(0, len(m.space)-1))
	dst = append(dst, m.front...)
	for {
		i := strings.IndexByte(s, ' ')
		if i < 0 {
			return append(dst, s...)
		}
		dst = append(append(dst, s[:i]...), m.space...)
		s = s[i+1:]
	}
}

type regexNorm struct {
	find finder
	new  string
}

func (n regexNorm) normalize(s string, m *limits.Meter) (string, error) {
	spans, err := n.find.spans(s, m)
	if err != nil {
		return "", err
	}
	size := replacedLen(spans, n.new)
	if err := m.Alloc(spanBytes*len(spans) + size); err != nil {
		return "", err
	}
	defer m.Free(spanBytes * len(spans))
	var b strings.Builder
	b.Grow(size)
	for _, sp := range spans {
		if sp.match {
			b.WriteString(n.new)
		} else {
			b.WriteString(s[sp.start:sp.end])
		}
	}
	return b.String(), nil
}

// replacedLen returns the number of bytes of a text with the matched spans replaced.
func replacedLen(spans []span, with string) int {
	n := 0
	for _, sp := range spans {
		if sp.match {
			n += len(with)
		} else {
			n += sp.end - sp.start
		}
	}
	return n
}

type lowerNorm struct{}

func (lowerNorm) normalize(s string, m *limits.Meter) (string, error) {
	if err := m.Alloc(len(s)); err != nil {
		return "", err
	}
	var b strings.Builder
	b.Grow(len(s))
	for i := 0; i < len(s); {
		r, w := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && w == 1:
			b.WriteByte(s[i])
		case r == '\u0130':
			// The only character whose lower case is two characters
			// (SpecialCasing.txt).
			b.WriteString("i\u0307")
		default:
			b.WriteRune(unicode.ToLower(r))
		}
		i += w
	}
	return b.String(), nil
}

type stripNorm struct{ left, right bool }

func (n stripNorm) normalize(s string, _ *limits.Meter) (string, error) {
	if n.left {
		s = strings.TrimLeftFunc(s, unicode.IsSpace)
	}
	if n.right {
		s = strings.TrimRightFunc(s, unicode.IsSpace)
	}
	return s, nil
}

// formNorm is one of the Unicode normalization forms.
type formNorm struct{ form norm.Form }

// formCharBytes is the size of a formChar, of which a text has at most one per byte.
const formCharBytes = 16

// normalize charges what it has made: the forms of a text are at most eleven times as long as
// the text.
func (n formNorm) normalize(s string, m *limits.Meter) (string, error) {
	var out string
	if longMarks(s) || wideMarks(s) {
		if err := m.Alloc(formCharBytes * len(s)); err != nil {
			return "", err
		}
		out = normalizeByDefinition(s, n.form)
		m.Free(formCharBytes * len(s))
	} else {
		out = n.form.String(s)
	}
	return out, m.Alloc(len(out))
}

// wideMarks reports whether s has a character above U+FFFF next to one that may combine
// with what precedes it. Package norm finds composites by the low 16 bits of both
// characters: it composes the tag U+E0041 and U+0301 to U+00C1, Á.
func wideMarks(s string) bool {
	if !strings.ContainsFunc(s, func(r rune) bool { return r > 0xFFFF }) {
		return false
	}
	wide := false
	for i := 0; i < len(s); {
		if s[i] < utf8.RuneSelf {
			wide = false
			i++
			continue
		}
		p := norm.NFKC.PropertiesString(s[i:])
		w := max(p.Size(), 1)
		is := w == 4
		if (wide || is) && !p.BoundaryBefore() {
			return true
		}
		wide = is
		i += w
	}
	return false
}

// maxMarks is the number of combining marks in a row that package norm accepts. After
// that many it inserts U+034F (the Stream-Safe Text Format of UAX #15), which the
// normalization forms themselves do not.
const maxMarks = 30

// longMarks reports whether s may have more combining marks in a row than package norm
// accepts. Some characters decompose into several marks, so it uses a third of the
// limit.
func longMarks(s string) bool {
	n := 0
	for i := 0; i < len(s); {
		if s[i] < utf8.RuneSelf {
			n = 0
			i++
			continue
		}
		p := norm.NFKD.PropertiesString(s[i:])
		if p.CCC() != 0 || p.TrailCCC() != 0 {
			n++
			if n > maxMarks/3 {
				return true
			}
		} else {
			n = 0
		}
		i += max(p.Size(), 1)
	}
	return false
}

// formChar is a character of a normalized text.
type formChar struct {
	r   rune // -1: a byte that is not UTF-8
	raw byte
	ccc uint8
	// change says what the character replaces, counted as in the reference. 0: the next
	// character of the source; -n: that character and n more; 1: none.
	change int
}

func (c formChar) write(b *strings.Builder) {
	if c.r < 0 {
		b.WriteByte(c.raw)
	} else {
		b.WriteRune(c.r)
	}
}

// normalizeByDefinition is formNorm.normalize for texts that package norm gets wrong.
func normalizeByDefinition(s string, form norm.Form) string {
	var b strings.Builder
	b.Grow(len(s))
	for _, c := range formChars(s, form) {
		c.write(&b)
	}
	return b.String()
}

// formChars writes out the definition of the forms (UAX #15, section 1.3): decompose,
// order the marks, compose.
func formChars(s string, form norm.Form) []formChar {
	split := norm.NFD
	if form == norm.NFKC || form == norm.NFKD {
		split = norm.NFKD
	}
	cs := make([]formChar, 0, len(s))
	for i := 0; i < len(s); {
		r, w := utf8.DecodeRuneInString(s[i:])
		switch {
		case r < utf8.RuneSelf:
			cs = append(cs, formChar{r: r})
		case r == utf8.RuneError && w == 1:
			cs = append(cs, formChar{r: -1, raw: s[i]})
		default:
			change := 0
			for _, d := range split.String(s[i : i+w]) {
				cs = append(cs, formChar{r: d, ccc: norm.NFD.PropertiesString(string(d)).CCC(), change: change})
				change = 1
			}
		}
		i += w
	}
	// Canonical ordering: a stable sort by class within runs of marks.
	for i := 0; i < len(cs); i++ {
		j := i
		for j < len(cs) && cs[j].ccc != 0 {
			j++
		}
		if j > i {
			slices.SortStableFunc(cs[i:j], func(a, b formChar) int { return int(a.ccc) - int(b.ccc) })
			i = j
		}
	}
	if form == norm.NFD || form == norm.NFKD {
		return cs
	}
	starter := -1
	out := cs[:0]
	lastCCC := uint8(0)
	for _, c := range cs {
		// Not blocked: nothing in between, or only marks of a lower class.
		if starter >= 0 && c.r >= 0 && (len(out)-1 == starter || lastCCC != 0 && lastCCC < c.ccc) {
			if r, ok := composePair(out[starter].r, c.r); ok {
				out[starter].r = r
				out[starter].change += c.change - 1
				continue
			}
		}
		if c.ccc == 0 {
			starter = len(out)
			if c.r < 0 {
				starter = -1
			}
		}
		lastCCC = c.ccc
		out = append(out, c)
	}
	return out
}

// composePair returns the primary composite of two characters, if there is one.
func composePair(a, b rune) (rune, bool) {
	// No character below the combining marks can be the second of a composite.
	if a < 0 || b < 0x300 {
		return 0, false
	}
	in := string(a) + string(b)
	out := norm.NFC.String(in)
	r, w := utf8.DecodeRuneInString(out)
	if w != len(out) || norm.NFD.String(out) != norm.NFD.String(in) {
		return 0, false
	}
	return r, true
}

func parseNormalizer(raw json.RawMessage, path string, left *parts) ([]placed[normalizer], error) {
	o, kind, err := typed(raw, path)
	if err == nil {
		err = left.take(path)
	}
	if err != nil {
		return nil, err
	}
	one := func(n normalizer, err error, keys ...string) ([]placed[normalizer], error) {
		if err := errors.Join(err, o.only(append(keys, "type")...)); err != nil {
			return nil, err
		}
		return []placed[normalizer]{{n, path}}, nil
	}
	switch kind {
	case "Sequence":
		var list []json.RawMessage
		if err := errors.Join(o.need("normalizers", &list), o.only("type", "normalizers")); err != nil {
			return nil, err
		}
		var out []placed[normalizer]
		for i, raw := range list {
			n, err := parseNormalizer(raw, fmt.Sprintf("%s.normalizers[%d]", path, i), left)
			if err != nil {
				return nil, err
			}
			out = append(out, n...)
		}
		return out, nil
	case "NFC":
		return one(formNorm{norm.NFC}, nil)
	case "NFD":
		return one(formNorm{norm.NFD}, nil)
	case "NFKC":
		return one(formNorm{norm.NFKC}, nil)
	case "NFKD":
		return one(formNorm{norm.NFKD}, nil)
	case "Lowercase":
		return one(lowerNorm{}, nil)
	case "Prepend":
		var s string
		err := o.need("prepend", &s)
		return one(prependNorm(s), err, "prepend")
	case "Strip":
		n := stripNorm{true, true}
		err := errors.Join(o.get("strip_left", &n.left), o.get("strip_right", &n.right))
		return one(n, err, "strip_left", "strip_right")
	case "Replace":
		var to string
		find, lit, err := parsePattern(o)
		err = errors.Join(err, o.need("content", &to))
		if lit != nil {
			return one(literalNorm{*lit, to}, err, "pattern", "content")
		}
		return one(regexNorm{find, to}, err, "pattern", "content")
	}
	return nil, o.refuse(kind)
}

// parsePattern reads the member pattern, {"String": …} or {"Regex": …}. If the pattern
// is a literal, it is returned too.
func parsePattern(o object) (finder, *string, error) {
	var p map[string]string
	if err := o.need("pattern", &p); err != nil {
		return nil, nil, err
	}
	if len(p) == 1 {
		if s, ok := p["String"]; ok {
			return literalFinder(s), &s, nil
		}
		if s, ok := p["Regex"]; ok {
			f, err := regex.Compile(s)
			if err != nil {
				return nil, nil, fmt.Errorf("%s.pattern: %w", o.path, err)
			}
			return regexFinder{f}, nil, nil
		}
	}
	return nil, nil, fmt.Errorf(`%s.pattern: expected {"String": …} or {"Regex": …}`, o.path)
}
