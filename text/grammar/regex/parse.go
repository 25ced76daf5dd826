package regex

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode"

	"talf/internal/limits"
	"talf/text/grammar"
)

// depth bounds the nesting of groups.
const depth = 250

type parser struct {
	in    []rune
	at    int
	depth int
	parts int // of the expression so far: nodes, and ranges of classes
}

// count charges n more parts.
func (p *parser) count(n int) error {
	if p.parts += n; p.parts > limits.GrammarSize {
		return fmt.Errorf("more than %d parts: %w", limits.GrammarSize, limits.ErrTooLarge)
	}
	return nil
}

func (p *parser) more() bool { return p.at < len(p.in) }

func (p *parser) peek(s string) bool {
	for i, r := range []rune(s) {
		if p.at+i >= len(p.in) || p.in[p.at+i] != r {
			return false
		}
	}
	return true
}

func (p *parser) skip(s string) bool {
	if !p.peek(s) {
		return false
	}
	p.at += len([]rune(s))
	return true
}

// alternatives reads up to a closing parenthesis or the end.
func (p *parser) alternatives() (*node, error) {
	if p.depth++; p.depth > depth {
		return nil, fmt.Errorf("groups nested more than %d deep: %w", depth, limits.ErrTooLarge)
	}
	defer func() { p.depth-- }()
	alt := &node{op: opAlt}
	for {
		seq := &node{op: opSeq}
		for p.more() && !p.peek("|") && !p.peek(")") {
			n, err := p.term()
			if err != nil {
				return nil, err
			}
			seq.kids = append(seq.kids, n)
		}
		if len(seq.kids) == 1 {
			seq = seq.kids[0]
		}
		if err := p.count(1 + len(seq.kids)); err != nil {
			return nil, err
		}
		alt.kids = append(alt.kids, seq)
		if !p.skip("|") {
			break
		}
	}
	if len(alt.kids) == 1 {
		return alt.kids[0], nil
	}
	return alt, nil
}

// term reads an atom with its quantifier.
func (p *parser) term() (*node, error) {
	n, err := p.atom()
	if err != nil {
		return nil, err
	}
	lo, hi := 1, 1
	switch {
	case p.skip("*"):
		lo, hi = 0, grammar.Unbounded
	case p.skip("+"):
		hi = grammar.Unbounded
	case p.skip("?"):
		lo = 0
	case p.peek("{"):
		if lo, hi, err = p.counts(); err != nil {
			return nil, err
		}
	default:
		return n, nil
	}
	p.skip("?") // a lazy quantifier matches the same texts
	if n.op == opBegin || n.op == opEnd {
		return nil, errors.New("an anchor (^ or $) with a quantifier")
	}
	if p.more() && strings.ContainsRune("*+?{", p.in[p.at]) {
		return nil, errors.New("a quantifier after a quantifier")
	}
	return &node{op: opRepeat, kids: []*node{n}, lo: lo, hi: hi}, nil
}

// counts reads {n}, {n,} or {n,m}.
func (p *parser) counts() (lo, hi int, err error) {
	end := p.at
	for end < len(p.in) && p.in[end] != '}' {
		end++
	}
	if end == len(p.in) {
		return 0, 0, errors.New("a { without }, want {n}, {n,} or {n,m}, or \\{")
	}
	from, to, several := strings.Cut(string(p.in[p.at+1:end]), ",")
	number := func(s string) int {
		n, err := strconv.ParseUint(s, 10, 32)
		if err != nil {
			return -1
		}
		return int(min(n, limits.GrammarCount+1))
	}
	lo = number(from)
	switch {
	case !several:
		hi = lo
	case to == "":
		hi = grammar.Unbounded
	default:
		hi = number(to)
		if hi < 0 {
			lo = -1
		}
	}
	if lo < 0 || hi != grammar.Unbounded && hi < lo {
		return 0, 0, fmt.Errorf("quantifier %q, want {n}, {n,} or {n,m}, or \\{", string(p.in[p.at:end+1]))
	}
	if max(lo, hi) > limits.GrammarCount {
		return 0, 0, fmt.Errorf("quantifier %q, want at most %d: %w", string(p.in[p.at:end+1]), limits.GrammarCount, limits.ErrTooLarge)
	}
	p.at = end + 1
	return lo, hi, nil
}

var lineEnds = []grammar.Range{{Lo: '\n', Hi: '\n'}, {Lo: '\r', Hi: '\r'}, {Lo: 0x2028, Hi: 0x2029}}

func (p *parser) atom() (*node, error) {
	switch {
	case p.skip("("):
		return p.group()
	case p.skip("["):
		return p.class()
	case p.skip("."):
		return runes(grammar.Invert(lineEnds)), nil
	case p.skip("^"):
		return &node{op: opBegin}, nil
	case p.skip("$"):
		return &node{op: opEnd}, nil
	case p.skip(`\`):
		return p.escape()
	case strings.ContainsRune("*+?{", p.in[p.at]):
		return nil, fmt.Errorf("a quantifier %q after nothing", p.in[p.at])
	case strings.ContainsRune("]}", p.in[p.at]):
		return nil, fmt.Errorf("a %q that closes nothing, want \\%c", p.in[p.at], p.in[p.at])
	}
	p.at++
	return one(p.in[p.at-1]), nil
}

func runes(r []grammar.Range) *node { return &node{op: opRune, ranges: r} }

func one(r rune) *node { return runes([]grammar.Range{{Lo: r, Hi: r}}) }

func (p *parser) group() (*node, error) {
	switch {
	case p.peek("?="), p.peek("?!"), p.peek("?<="), p.peek("?<!"):
		return nil, errors.New("lookaround is not supported")
	case p.skip("?:"):
	case p.skip("?<"):
		for p.more() && !p.peek(">") {
			p.at++
		}
		if !p.skip(">") {
			return nil, errors.New("the name of a group without >")
		}
	case p.peek("?"):
		return nil, errors.New("a group of this kind is not supported, want (…), (?:…) or (?<name>…)")
	}
	n, err := p.alternatives()
	if err != nil {
		return nil, err
	}
	if !p.skip(")") {
		return nil, errors.New("a ( without )")
	}
	return n, nil
}

// escape reads what follows a backslash outside of classes.
func (p *parser) escape() (*node, error) {
	if !p.more() {
		return nil, errors.New(`a \ at the end`)
	}
	switch c := p.in[p.at]; {
	case c == 'b' || c == 'B':
		return nil, fmt.Errorf(`\%c (word boundaries) is not supported`, c)
	case c >= '1' && c <= '9' || c == 'k':
		return nil, fmt.Errorf(`\%c (back references) is not supported`, c)
	}
	r, err := p.escaped()
	return runes(r), err
}

// Classes of ECMA-262, section 22.2.2.9, without the flag i.
var (
	digits = []grammar.Range{{Lo: '0', Hi: '9'}}
	words  = []grammar.Range{{Lo: '0', Hi: '9'}, {Lo: 'A', Hi: 'Z'}, {Lo: '_', Hi: '_'}, {Lo: 'a', Hi: 'z'}}
	spaces = append([]grammar.Range{
		{Lo: '\t', Hi: '\r'}, {Lo: ' ', Hi: ' '}, {Lo: 0xA0, Hi: 0xA0}, {Lo: 0xFEFF, Hi: 0xFEFF}, {Lo: 0x2028, Hi: 0x2029},
	}, table(unicode.Zs)...)
)

func table(t *unicode.RangeTable) (out []grammar.Range) {
	add := func(lo, hi, stride rune) {
		if stride == 1 {
			out = append(out, grammar.Range{Lo: lo, Hi: hi})
			return
		}
		for r := lo; r <= hi; r += stride {
			out = append(out, grammar.Range{Lo: r, Hi: r})
		}
	}
	for _, r := range t.R16 {
		add(rune(r.Lo), rune(r.Hi), rune(r.Stride))
	}
	for _, r := range t.R32 {
		add(rune(r.Lo), rune(r.Hi), rune(r.Stride))
	}
	return grammar.Normal(out)
}

// escaped reads an escape that stands for characters, after its backslash.
func (p *parser) escaped() ([]grammar.Range, error) {
	if !p.more() {
		return nil, errors.New(`a \ at the end`)
	}
	c := p.in[p.at]
	p.at++
	just := func(r rune) ([]grammar.Range, error) { return []grammar.Range{{Lo: r, Hi: r}}, nil }
	switch c {
	case 'd':
		return digits, nil
	case 'D':
		return grammar.Invert(digits), nil
	case 'w':
		return words, nil
	case 'W':
		return grammar.Invert(words), nil
	case 's':
		return spaces, nil
	case 'S':
		return grammar.Invert(spaces), nil
	case 't':
		return just('\t')
	case 'n':
		return just('\n')
	case 'v':
		return just('\v')
	case 'f':
		return just('\f')
	case 'r':
		return just('\r')
	case '0':
		if p.more() && p.in[p.at] >= '0' && p.in[p.at] <= '9' {
			return nil, errors.New(`\0 before a digit (octal escapes) is not supported`)
		}
		return just(0)
	case 'c':
		if p.more() {
			if l := p.in[p.at] | 0x20; l >= 'a' && l <= 'z' {
				p.at++
				return just(l & 31)
			}
		}
		return nil, errors.New(`\c without a letter`)
	case 'x':
		r, err := p.hex(2, 2)
		if err != nil {
			return nil, err
		}
		return just(r)
	case 'u':
		return p.unicode()
	case 'p', 'P':
		return p.property(c == 'P')
	}
	if c == '_' || c < 0x80 && (c >= '0' && c <= '9' || c|0x20 >= 'a' && c|0x20 <= 'z') {
		return nil, fmt.Errorf(`\%c is not an escape`, c)
	}
	return just(c)
}

// hex reads lo to hi hexadecimal digits.
func (p *parser) hex(lo, hi int) (rune, error) {
	n := 0
	for n < hi && p.at+n < len(p.in) && p.in[p.at+n] < 0x80 && strings.ContainsRune("0123456789abcdefABCDEF", p.in[p.at+n]) {
		n++
	}
	if n < lo {
		return 0, fmt.Errorf("an escape with %d hexadecimal digits, want %d", n, lo)
	}
	v, _ := strconv.ParseUint(string(p.in[p.at:p.at+n]), 16, 32) // at most eight digits
	p.at += n
	if v > unicode.MaxRune {
		return 0, fmt.Errorf("an escape of code point %#x, want at most 10FFFF", v)
	}
	return rune(v), nil
}

// unicode reads four digits, two surrogates, or {…}, after \u.
func (p *parser) unicode() ([]grammar.Range, error) {
	if p.skip("{") {
		r, err := p.hex(1, 6)
		if err == nil && !p.skip("}") {
			err = errors.New(`\u{ without }`)
		}
		return []grammar.Range{{Lo: r, Hi: r}}, err
	}
	r, err := p.hex(4, 4)
	if err == nil && r >= 0xD800 && r < 0xDC00 && p.skip(`\u`) {
		var low rune
		if low, err = p.hex(4, 4); err == nil && (low < 0xDC00 || low > 0xDFFF) {
			err = fmt.Errorf(`\u%04X after a high surrogate, want a low one`, low)
		}
		r = (r-0xD800)<<10 + (low - 0xDC00) + 0x10000
	}
	return []grammar.Range{{Lo: r, Hi: r}}, err
}

// property reads {L}, {Script=Greek} and the like, after \p or \P.
func (p *parser) property(not bool) ([]grammar.Range, error) {
	end := p.at
	for end < len(p.in) && p.in[end] != '}' {
		end++
	}
	if !p.peek("{") || end == len(p.in) {
		return nil, errors.New(`\p without {…}`)
	}
	name := string(p.in[p.at+1 : end])
	p.at = end + 1
	key, value, named := strings.Cut(name, "=")
	var t *unicode.RangeTable
	switch {
	case !named:
		if t = unicode.Categories[name]; t == nil {
			t = unicode.Properties[name]
		}
	case key == "Script" || key == "sc":
		t = unicode.Scripts[value]
	case key == "General_Category" || key == "gc":
		t = unicode.Categories[value]
	}
	if t == nil {
		return nil, fmt.Errorf(`\p{%s} is not supported, want a general category such as L or Lu, a property, or Script=…`, name)
	}
	if r := table(t); !not {
		return r, nil
	}
	return grammar.Invert(table(t)), nil
}

// class reads what follows [.
func (p *parser) class() (*node, error) {
	not := p.skip("^")
	var all []grammar.Range
	for {
		if !p.more() {
			return nil, errors.New("a [ without ]")
		}
		if p.skip("]") {
			break
		}
		lo, err := p.member()
		if err != nil {
			return nil, err
		}
		if !p.peek("-") || p.at+1 >= len(p.in) || p.in[p.at+1] == ']' {
			all = append(all, lo...)
			continue
		}
		p.at++
		hi, err := p.member()
		if err != nil {
			return nil, err
		}
		if len(lo) != 1 || len(hi) != 1 || lo[0].Lo != lo[0].Hi || hi[0].Lo != hi[0].Hi || lo[0].Lo > hi[0].Lo {
			return nil, errors.New("a range in [] that is not from a lower to a higher character")
		}
		all = append(all, grammar.Range{Lo: lo[0].Lo, Hi: hi[0].Lo})
	}
	if not {
		all = grammar.Invert(all)
	}
	if err := p.count(len(all)); err != nil {
		return nil, err
	}
	return runes(grammar.Normal(all)), nil
}

// member reads one character or escape inside [].
func (p *parser) member() ([]grammar.Range, error) {
	if !p.more() {
		return nil, errors.New("a [ without ]")
	}
	if p.skip(`\`) {
		if p.skip("b") {
			return []grammar.Range{{Lo: '\b', Hi: '\b'}}, nil
		}
		if p.skip("-") {
			return []grammar.Range{{Lo: '-', Hi: '-'}}, nil
		}
		return p.escaped()
	}
	p.at++
	return []grammar.Range{{Lo: p.in[p.at-1], Hi: p.in[p.at-1]}}, nil
}
