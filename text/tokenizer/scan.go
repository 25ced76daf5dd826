package tokenizer

import (
	"sync"
	"unicode"
	"unicode/utf8"
)

// Classes of characters that the split patterns distinguish. They are mutually
// exclusive. A byte that is not UTF-8 is classOther, like U+FFFD.
const (
	classOther   uint8 = iota
	classLetter        // \p{L}
	classNumber        // \p{N}
	classSpace         // \s except the next class
	classNewline       // \r and \n
)

func isSpaceClass(c uint8) bool { return c >= classSpace }

// classes holds the class of every code point of the Basic Multilingual Plane.
var classes = sync.OnceValue(func() *[1 << 16]uint8 {
	t := new([1 << 16]uint8)
	for r := range rune(1 << 16) {
		t[r] = slowClass(r)
	}
	return t
})

func slowClass(r rune) uint8 {
	switch {
	case r == '\r' || r == '\n':
		return classNewline
	case unicode.IsSpace(r):
		return classSpace
	case unicode.IsLetter(r), unicode.Is(letters16, r):
		return classLetter
	case unicode.IsNumber(r), unicode.Is(numbers16, r):
		return classNumber
	}
	return classOther
}

// The reference's regex engine knows Unicode 16. These letters, marks and numbers are
// missing from Unicode 15, the version of package unicode's tables up to Go 1.26. Later
// tables contain them too.
var (
	letters16 = &unicode.RangeTable{
		R16: []unicode.Range16{{0x1C89, 0x1C8A, 1}, {0xA7CB, 0xA7CD, 1}, {0xA7DA, 0xA7DC, 1}},
		R32: []unicode.Range32{
			{0x105C0, 0x105F3, 1},
			{0x10D4A, 0x10D65, 1},
			{0x10D6F, 0x10D85, 1},
			{0x10EC2, 0x10EC4, 1},
			{0x11380, 0x11389, 1},
			{0x1138B, 0x1138B, 1},
			{0x1138E, 0x1138E, 1},
			{0x11390, 0x113B5, 1},
			{0x113B7, 0x113B7, 1},
			{0x113D1, 0x113D1, 1},
			{0x113D3, 0x113D3, 1},
			{0x11BC0, 0x11BE0, 1},
			{0x13460, 0x143FA, 1},
			{0x16100, 0x1611D, 1},
			{0x16D40, 0x16D6C, 1},
			{0x18CFF, 0x18CFF, 1},
			{0x1E5D0, 0x1E5ED, 1},
			{0x1E5F0, 0x1E5F0, 1},
			{0x2EBF0, 0x2EE5D, 1},
		},
	}
	marks16 = &unicode.RangeTable{
		R16: []unicode.Range16{{0x0897, 0x0897, 1}},
		R32: []unicode.Range32{
			{0x10D69, 0x10D6D, 1},
			{0x10EFC, 0x10EFC, 1},
			{0x113B8, 0x113C0, 1},
			{0x113C2, 0x113C2, 1},
			{0x113C5, 0x113C5, 1},
			{0x113C7, 0x113CA, 1},
			{0x113CC, 0x113D0, 1},
			{0x113D2, 0x113D2, 1},
			{0x113E1, 0x113E2, 1},
			{0x11F5A, 0x11F5A, 1},
			{0x1611E, 0x1612F, 1},
			{0x1E5EE, 0x1E5EF, 1},
		},
	}
	numbers16 = &unicode.RangeTable{
		R32: []unicode.Range32{
			{0x10D40, 0x10D49, 1},
			{0x116D0, 0x116E3, 1},
			{0x11BF0, 0x11BF9, 1},
			{0x16130, 0x16139, 1},
			{0x16D70, 0x16D79, 1},
			{0x1CCF0, 0x1CCF9, 1},
			{0x1E5F1, 0x1E5FA, 1},
		},
	}
)

// scanner cuts a text into pieces that cover it.
type scanner interface {
	// next returns the end of the piece that starts at s[i]; i < len(s).
	next(s string, i int) int
}

// gpt2Scanner matches
// 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
type gpt2Scanner struct{ table *[1 << 16]uint8 }

// llamaScanner matches
// (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,digits}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
type llamaScanner struct {
	table  *[1 << 16]uint8
	digits int
}

func classAt(t *[1 << 16]uint8, s string, i int) (uint8, int) {
	c := s[i]
	if c < utf8.RuneSelf {
		return t[c], 1
	}
	r, w := utf8.DecodeRuneInString(s[i:])
	if r < 1<<16 {
		return t[r], w
	}
	return slowClass(r), w
}

// run returns the end of the run of characters of one class from s[i].
func run(t *[1 << 16]uint8, s string, i int, class uint8) int {
	for i < len(s) {
		c, w := classAt(t, s, i)
		if c != class {
			break
		}
		i += w
	}
	return i
}

// spaces measures the run of white space from s[i]: its end, the start of its
// last character, and the end of its last \r or \n (i if there is none).
func spaces(t *[1 << 16]uint8, s string, i int) (end, last, newline int) {
	end, last, newline = i, i, i
	for end < len(s) {
		c, w := classAt(t, s, end)
		if !isSpaceClass(c) {
			break
		}
		last = end
		end += w
		if c == classNewline {
			newline = end
		}
	}
	return end, last, newline
}

// blank applies \s+(?!\S)|\s+ to a measured run: its last character is left to the
// following word, unless it is the only one.
func blank(s string, i, end, last int) int {
	if end == len(s) || last == i {
		return end
	}
	return last
}

func (g gpt2Scanner) next(s string, i int) int {
	c := s[i]
	if c == '\'' && i+1 < len(s) {
		switch s[i+1] {
		case 's', 't', 'm', 'd':
			return i + 2
		case 'r', 'v':
			if i+2 < len(s) && s[i+2] == 'e' {
				return i + 3
			}
		case 'l':
			if i+2 < len(s) && s[i+2] == 'l' {
				return i + 3
			}
		}
	}
	j := i
	if c == ' ' && i+1 < len(s) {
		j++
	}
	class, w := classAt(g.table, s, j)
	if !isSpaceClass(class) {
		return run(g.table, s, j+w, class)
	}
	end, last, _ := spaces(g.table, s, i)
	return blank(s, i, end, last)
}

func (l llamaScanner) next(s string, i int) int {
	if s[i] == '\'' {
		if n := contraction(s[i:]); n > 0 {
			return i + n
		}
	}
	class, w := classAt(l.table, s, i)
	switch class {
	case classLetter:
		return run(l.table, s, i+w, classLetter)
	case classNumber:
		j := i + w
		for n := 1; n < l.digits && j < len(s); n++ {
			c, w := classAt(l.table, s, j)
			if c != classNumber {
				break
			}
			j += w
		}
		return j
	}
	after := uint8(classNewline) // stands for the end of the text
	var afterW int
	if i+w < len(s) {
		after, afterW = classAt(l.table, s, i+w)
	}
	if class != classNewline && after == classLetter {
		return run(l.table, s, i+w+afterW, classLetter)
	}
	j := i
	if s[i] == ' ' && after == classOther {
		j = i + w
		class = classOther
	}
	if class == classOther {
		j = run(l.table, s, j, classOther)
		for j < len(s) && (s[j] == '\r' || s[j] == '\n') {
			j++
		}
		return j
	}
	end, last, newline := spaces(l.table, s, i)
	if newline > i {
		return newline
	}
	return blank(s, i, end, last)
}

// contraction returns the length of (?i:'s|'t|'re|'ve|'m|'ll|'d) at the start
// of s, which begins with an apostrophe, or 0. Case folding brings U+017F, the
// long s, to s.
func contraction(s string) int {
	if len(s) < 2 {
		return 0
	}
	switch s[1] | 0x20 {
	case 's', 't', 'm', 'd':
		return 2
	case 'r', 'v':
		if len(s) > 2 && s[2]|0x20 == 'e' {
			return 3
		}
	case 'l':
		if len(s) > 2 && s[2]|0x20 == 'l' {
			return 3
		}
	}
	if len(s) > 2 && s[1:3] == "\u017f" {
		return 3
	}
	return 0
}

// patterns maps the split regexes that have scanners, as the tokenizer.json files of
// the model families spell them.
func knownScanner(pattern string) scanner {
	switch pattern {
	case patternGPT2:
		return gpt2Scanner{classes()}
	case patternLlama3, patternCL100K:
		return llamaScanner{classes(), 3}
	case patternQwen2:
		return llamaScanner{classes(), 1}
	}
	return nil
}

const (
	patternGPT2   = `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`
	patternLlama3 = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	patternQwen2  = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	// Its possessive quantifiers change nothing here: no alternative could give back
	// what it took and still match.
	patternCL100K = `'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+`
)
