package jinja

import (
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/cases"
	"golang.org/x/text/language"
)

// casers are the parts of x/text that one rendering uses. They have a state.
type casers struct {
	made         bool
	upper, title cases.Caser
}

// letters returns the casers.
func (r *run) letters() *casers {
	if !r.fold.made {
		r.charge(1024)
		r.fold = casers{true, cases.Upper(language.Und), cases.Title(language.Und, cases.NoLower)}
	}
	return &r.fold
}

// caseWork is what one byte costs in x/text, in units of work.
const caseWork = 16

// recase applies a caser that looks at one character at a time.
func (r *run) recase(s string, c *cases.Caser) string {
	b := buf{r: r}
	b.room(len(s))
	for s != "" {
		n := min(len(s), 4096)
		for n < len(s) && !utf8.RuneStart(s[n]) {
			n++
		}
		r.work(n * caseWork)
		r.charge(4 * n)
		b.str(c.String(s[:n]))
		s = s[n:]
	}
	return b.text()
}

// recaseASCII changes the case of the 26 letters from first on.
func (r *run) recaseASCII(s string, first byte) string {
	b := buf{r: r}
	b.room(len(s))
	var part [4096]byte
	changed := false
	for i := 0; i < len(s); i += len(part) {
		n := copy(part[:], s[i:])
		r.work(n / 2)
		for k, c := range part[:n] {
			if c-first < 26 {
				part[k] = c ^ 0x20
				changed = true
			}
		}
		b.b.Write(part[:n])
	}
	if !changed {
		return s
	}
	return b.text()
}

// recaseRune adds a character as a caser writes it.
func (b *buf) recaseRune(c rune, with *cases.Caser) {
	b.r.work(40 * caseWork)
	b.r.charge(64)
	b.str(with.String(string(c)))
}

// upper and lower are full Unicode mappings, as in Python (ß becomes SS).
func (r *run) upper(s string) string {
	if r.isASCII(s) {
		return r.recaseASCII(s, 'a')
	}
	return r.recase(s, &r.letters().upper)
}

func (r *run) lower(s string) string {
	if r.isASCII(s) {
		return r.recaseASCII(s, 'A')
	}
	b := buf{r: r}
	b.room(len(s))
	for i, c := range r.chars(s) {
		if c == 'Σ' && r.endsWord(s[:i], s[i+2:]) {
			c = 'ς'
		}
		b.lowerRune(c)
	}
	return b.text()
}

// lowerRune adds a letter in lower case.
func (b *buf) lowerRune(c rune) {
	if c == 'İ' {
		b.str("i̇")
		return
	}
	b.rune(unicode.ToLower(c))
}

// upperRune adds a letter in upper case.
func (b *buf) upperRune(c rune) {
	if c < utf8.RuneSelf {
		b.rune(unicode.ToUpper(c))
		return
	}
	b.recaseRune(c, &b.r.letters().upper)
}

// titleRune adds a letter in title case.
func (b *buf) titleRune(c rune) {
	if c < utf8.RuneSelf {
		b.rune(unicode.ToUpper(c))
		return
	}
	b.recaseRune(c, &b.r.letters().title)
}

// endsWord reports whether a letter between two texts is the last one of a word of more
// than one: where Σ is written ς.
func (r *run) endsWord(before, after string) bool {
	inside := false
	for _, c := range r.backwards(before) {
		if !isCaseIgnorable(c) {
			inside = isCased(c)
			break
		}
	}
	if !inside {
		return false
	}
	for _, c := range r.chars(after) {
		if !isCaseIgnorable(c) {
			return !isCased(c)
		}
	}
	return true
}

// isCaseIgnorable is Unicode's property Case_Ignorable.
func isCaseIgnorable(c rune) bool {
	switch c {
	case '\'', '.', ':', '·', '\u0387', '\u055f', '\u05f4', '\u2018', '\u2019', '\u2024', '\u2027',
		'\ufe13', '\ufe52', '\ufe55', '\uff07', '\uff0e', '\uff1a':
		return true
	}
	return unicode.In(c, unicode.Mn, unicode.Me, unicode.Cf, unicode.Lm, unicode.Sk)
}

func isCased(c rune) bool {
	return unicode.IsUpper(c) || unicode.IsLower(c) || unicode.IsTitle(c) || unicode.Is(unicode.Other_Lowercase, c) || unicode.Is(unicode.Other_Uppercase, c)
}
