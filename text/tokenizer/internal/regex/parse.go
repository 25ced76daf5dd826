package regex

import (
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Bounds on patterns. The longest in use have about 500 characters.
const (
	maxPattern = 1 << 14 // bytes
	maxDepth   = 100     // groups within groups
	maxProgram = 1 << 12 // instructions
)

// A node is a part of a pattern: one of the types below.
type node any

type (
	empty struct{}
	// one matches one character of a set.
	one struct{ set *set }
	// assert matches the empty string at certain places.
	assert struct{ kind op }
	// all matches its parts one after the other, either the first of its parts that leads to a match.
	all    struct{ parts []node }
	either struct{ parts []node }
	// repeat matches from min to max times, as often as possible unless lazy; max < 0: any number.
	repeat struct {
		part     node
		min, max int
		lazy     bool
	}
	// look matches the empty string where part matches (or, negated, does not match) what
	// follows, or what precedes.
	look struct {
		part           node
		negate, behind bool
	}
)

// parser reads a pattern in one pass. It fails with what is not supported.
type parser struct {
	s     string
	at    int
	fold  bool // ignore case
	late  bool // (?i) occurred after the start of this group
	depth int
	sets  map[string]*set // by spelling
}

func unsupported(what string) error { return fmt.Errorf("%s is not supported", what) }

func parse(s string) (node, error) {
	if len(s) > maxPattern {
		return nil, fmt.Errorf("%d bytes, expected at most %d", len(s), maxPattern)
	}
	if !utf8.ValidString(s) {
		return nil, errors.New("not UTF-8")
	}
	p := parser{s: s, sets: map[string]*set{}}
	n, err := p.either()
	if err == nil && p.at < len(s) {
		err = errors.New("a ) without its (")
	}
	return n, err
}

// ahead reports whether the rest begins with prefix, and skips it.
func (p *parser) skip(prefix string) bool {
	if !strings.HasPrefix(p.s[p.at:], prefix) {
		return false
	}
	p.at += len(prefix)
	return true
}

func (p *parser) more() bool { return p.at < len(p.s) }

func (p *parser) next() rune {
	r, w := utf8.DecodeRuneInString(p.s[p.at:])
	p.at += w
	return r
}

func (p *parser) either() (node, error) {
	fold, late := p.fold, p.late
	defer func() { p.fold, p.late = fold, late }() // (?i) ends with its group
	p.late = false
	if p.skip("(?i)") {
		p.fold = true
	}
	if p.depth++; p.depth > maxDepth {
		return nil, fmt.Errorf("more than %d groups within groups", maxDepth)
	}
	defer func() { p.depth-- }()
	var parts []node
	for {
		n, err := p.all()
		if err != nil {
			return nil, err
		}
		parts = append(parts, n)
		if !p.skip("|") {
			break
		}
		if p.late {
			return nil, unsupported("(?i) before |") // dialects differ
		}
	}
	if len(parts) == 1 {
		return parts[0], nil
	}
	return either{parts}, nil
}

func (p *parser) all() (node, error) {
	var parts []node
	for p.more() && p.s[p.at] != '|' && p.s[p.at] != ')' {
		n, err := p.atom()
		if err != nil {
			return nil, err
		}
		if n, err = p.repeat(n); err != nil {
			return nil, err
		}
		if n != (empty{}) {
			parts = append(parts, n)
		}
	}
	switch len(parts) {
	case 0:
		return empty{}, nil
	case 1:
		return parts[0], nil
	}
	return all{parts}, nil
}

// repeat reads the quantifier after n, if there is one.
func (p *parser) repeat(n node) (node, error) {
	start := p.at
	lo, hi, ok := p.quantifier()
	if !ok {
		return n, nil
	}
	quantifier := p.s[start:p.at]
	if hi >= 0 && lo > hi || lo > maxProgram || hi > maxProgram {
		return nil, fmt.Errorf("quantifier %s: expected at most %d, and not more first", quantifier, maxProgram)
	}
	if _, ok := n.(one); !ok && nullable(n) {
		return nil, unsupported("a repetition of what may be empty")
	}
	lazy := p.skip("?")
	if lazy && quantifier[0] == '{' {
		return nil, unsupported(quantifier + "?")
	}
	if was := p.at; p.more() {
		if _, _, twice := p.quantifier(); twice {
			return nil, unsupported("quantifier " + p.s[start:max(p.at, was)])
		}
	}
	return repeat{n, lo, hi, lazy}, nil
}

// quantifier skips a quantifier: *, +, ?, {n}, {n,} or {n,m}. Other braces are characters.
func (p *parser) quantifier() (lo, hi int, ok bool) {
	switch {
	case p.skip("*"):
		return 0, -1, true
	case p.skip("+"):
		return 1, -1, true
	case p.skip("?"):
		return 0, 1, true
	case !strings.HasPrefix(p.s[p.at:], "{"):
		return 0, 0, false
	}
	start := p.at
	p.at++
	lo, ok = p.number()
	hi = lo
	if ok && p.skip(",") {
		var bounded bool
		if hi, bounded = p.number(); !bounded {
			hi = -1
		}
	}
	if !ok || !p.skip("}") {
		p.at = start
		return 0, 0, false
	}
	return lo, hi, true
}

// number reads decimal digits. A large number becomes one that is too large.
func (p *parser) number() (n int, ok bool) {
	for p.more() && p.s[p.at] >= '0' && p.s[p.at] <= '9' {
		n, ok = min(10*n+int(p.s[p.at]-'0'), maxProgram+1), true
		p.at++
	}
	return n, ok
}

func (p *parser) atom() (node, error) {
	start := p.at
	switch r := p.next(); r {
	case '(':
		return p.group()
	case '[':
		return p.class(start)
	case '.':
		return one{p.set(".", func() ranges { return ranges{{'\n', '\n'}}.complement() })}, nil
	case '^':
		return assert{opLineStart}, nil
	case '$':
		return assert{opLineEnd}, nil
	case '*', '+', '?':
		return nil, fmt.Errorf("nothing before %c to repeat", r)
	case '{':
		if p.at--; p.isQuantifier() {
			return nil, errors.New("nothing before { to repeat")
		}
		if strings.HasPrefix(p.s[p.at:], "{,") {
			return nil, unsupported("{,")
		}
		p.at++
		return p.literal(r), nil
	case '\\':
		return p.escape(start)
	default:
		return p.literal(r), nil
	}
}

func (p *parser) isQuantifier() bool {
	q := *p
	_, _, ok := q.quantifier()
	return ok
}

func (p *parser) literal(r rune) node {
	return one{p.set(string(r), func() ranges { return ranges{{r, r}} })}
}

// group reads what follows an opening parenthesis. Groups do not capture.
func (p *parser) group() (node, error) {
	l := look{}
	looks := true
	switch {
	case p.skip("?="):
	case p.skip("?!"):
		l.negate = true
	case p.skip("?<="):
		l.behind = true
	case p.skip("?<!"):
		l.behind, l.negate = true, true
	default:
		looks = false
	}
	switch {
	case looks, p.skip("?:"):
	case p.skip("?i)"):
		p.fold, p.late = true, true // until the enclosing group ends
		return empty{}, nil
	case p.skip("?i:"):
		was := p.fold
		defer func() { p.fold = was }()
		p.fold = true
	case p.more() && p.s[p.at] == '?':
		return nil, unsupported("(" + p.s[p.at:min(len(p.s), p.at+3)])
	}
	n, err := p.either()
	if err != nil {
		return nil, err
	}
	if !p.skip(")") {
		return nil, errors.New("a ( without its )")
	}
	if !looks {
		return n, nil
	}
	l.part = n
	return l, nil
}

// escape reads what follows a backslash outside a set.
func (p *parser) escape(start int) (node, error) {
	if !p.more() {
		return nil, errors.New(`nothing after \`)
	}
	switch p.s[p.at] {
	case 'b':
		p.at++
		return assert{opWordEdge}, nil
	case 'B':
		p.at++
		return assert{opNotWordEdge}, nil
	case '1', '2', '3', '4', '5', '6', '7', '8', '9':
		return nil, unsupported("a reference to a group")
	}
	if rs, ok, err := p.category(); ok || err != nil {
		return one{p.set(p.s[start:p.at], func() ranges { return rs })}, err
	}
	r, err := p.character()
	return p.literal(r), err
}

// class reads what follows an opening bracket.
func (p *parser) class(start int) (node, error) {
	negate := p.skip("^")
	var in ranges
	for first := true; ; first = false {
		if !p.more() {
			return nil, errors.New("a [ without its ]")
		}
		if p.skip("]") {
			if first {
				return nil, unsupported("] at the start of a set")
			}
			break
		}
		rs, single, err := p.member()
		if err != nil {
			return nil, err
		}
		if strings.HasPrefix(p.s[p.at:], "-") && !strings.HasPrefix(p.s[p.at:], "-]") {
			p.at++
			last, ok, err := p.member()
			switch {
			case err != nil:
				return nil, err
			case !single || !ok:
				return nil, unsupported("a range with a set at its end")
			case rs[0].lo > last[0].lo:
				return nil, fmt.Errorf("range %c-%c in the wrong order", rs[0].lo, last[0].lo)
			}
			rs[0].hi = last[0].lo
		}
		in = append(in, rs...)
	}
	return one{p.set(p.s[start:p.at], func() ranges {
		in := in.sorted()
		if p.fold {
			in = in.folded()
		}
		if negate {
			in = in.complement()
		}
		return in
	})}, nil
}

// member reads a member of a set: one character (single), or a category.
func (p *parser) member() (rs ranges, single bool, err error) {
	switch {
	case !p.more():
		return nil, false, errors.New("a [ without its ]")
	case p.skip("["):
		return nil, false, unsupported("a set within a set")
	case p.skip("&&"):
		return nil, false, unsupported("&& in a set")
	case !p.skip(`\`):
		r := p.next()
		return ranges{{r, r}}, true, nil
	}
	if !p.more() {
		return nil, false, errors.New(`nothing after \`)
	}
	if p.skip("b") {
		return ranges{{'\b', '\b'}}, true, nil
	}
	if rs, ok, err := p.category(); ok || err != nil {
		return rs, false, err
	}
	r, err := p.character()
	return ranges{{r, r}}, true, err
}

// category reads \s, \p{L} and their like after the backslash; ok is false for others.
func (p *parser) category() (rs ranges, ok bool, err error) {
	c := p.s[p.at]
	switch c {
	case 's', 'S':
		rs = rangesOf(unicode.White_Space)
	case 'd', 'D':
		rs = rangesOf(unicode.Nd)
	case 'w', 'W':
		rs = wordRanges()
	case 'p', 'P':
		return p.property(c == 'P')
	default:
		return nil, false, nil
	}
	p.at++
	if unicode.IsUpper(rune(c)) {
		rs = rs.complement()
	}
	return rs, true, nil
}

// property reads p{Name} or P{Name}: a category, a script or a property of Unicode.
func (p *parser) property(negate bool) (ranges, bool, error) {
	p.at++
	end := strings.IndexByte(p.s[p.at:], '}')
	if !strings.HasPrefix(p.s[p.at:], "{") || end < 0 {
		return nil, false, unsupported(`\p without {}`)
	}
	name := p.s[p.at+1 : p.at+end]
	p.at += end + 1
	for _, tables := range []map[string]*unicode.RangeTable{unicode.Properties, unicode.Categories, unicode.Scripts} {
		if t := tables[name]; t != nil {
			rs := rangesOf(t)
			if negate {
				rs = rs.complement()
			}
			return rs, true, nil
		}
	}
	return nil, false, unsupported(`\p{` + name + `}`)
}

// character reads an escaped character after the backslash.
func (p *parser) character() (rune, error) {
	switch r := p.next(); {
	case r == 't':
		return '\t', nil
	case r == 'n':
		return '\n', nil
	case r == 'r':
		return '\r', nil
	case r == 'f':
		return '\f', nil
	case r == 'v':
		return '\v', nil
	case r == 'x':
		if p.skip("{") {
			end := strings.IndexByte(p.s[p.at:], '}')
			if end < 0 {
				return 0, errors.New(`\x{ without }`)
			}
			r, err := p.hex(end)
			p.at++
			return r, err
		}
		return p.hex(2)
	case r == 'u':
		return p.hex(4)
	case r < utf8.RuneSelf && !isWord(r):
		return r, nil
	default:
		return 0, unsupported(`\` + string(r))
	}
}

// hex reads a code point of n digits.
func (p *parser) hex(n int) (rune, error) {
	digits := p.s[p.at:min(len(p.s), p.at+n)]
	var v rune
	for _, c := range digits {
		d := strings.IndexRune("0123456789abcdef", unicode.ToLower(c))
		if d < 0 || v > unicode.MaxRune {
			v = -1
			break
		}
		v = v<<4 | rune(d)
	}
	if len(digits) != n || n == 0 || v < 0 || !utf8.ValidRune(v) {
		return 0, fmt.Errorf("%q is not a code point of %d hexadecimal digits", digits, n)
	}
	p.at += n
	return v, nil
}

// set returns the set that is spelled so, made by f if it is new. In brackets, f folds case.
func (p *parser) set(spelling string, f func() ranges) *set {
	key := spelling
	if p.fold {
		key = "(?i)" + key
	}
	s := p.sets[key]
	if s == nil {
		rs := f()
		if p.fold && spelling[0] != '[' {
			rs = rs.folded()
		}
		s = newSet(rs)
		p.sets[key] = s
	}
	return s
}

// nullable reports whether n may match the empty string.
func nullable(n node) bool {
	lo, _, _ := width(n)
	return lo == 0
}

// width returns the least and the greatest number of characters that n matches; bounded is false
// if there is no greatest.
func width(n node) (lo, hi int, bounded bool) {
	switch n := n.(type) {
	case one:
		return 1, 1, true
	case all:
		bounded = true
		for _, p := range n.parts {
			l, h, b := width(p)
			lo, hi, bounded = lo+l, hi+h, bounded && b
		}
		return lo, hi, bounded
	case either:
		lo, hi, bounded = width(n.parts[0])
		for _, p := range n.parts[1:] {
			l, h, b := width(p)
			lo, hi, bounded = min(lo, l), max(hi, h), bounded && b
		}
		return lo, hi, bounded
	case repeat:
		l, h, b := width(n.part)
		return min(l*n.min, maxProgram), min(h*max(n.max, 0), 2*maxProgram), b && n.max >= 0
	}
	return 0, 0, true
}
