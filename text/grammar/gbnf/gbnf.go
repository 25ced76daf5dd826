// Package gbnf reads grammars in GBNF, the format of llama.cpp: rules such as
//
//	root  ::= "yes" | "no" (", " word)*   # a comment
//	word  ::= [a-z]{1,10} | [^\x00-\x7F]+
//
// The text is what rule root matches. Rules may refer to themselves, but not as the first thing in
// them. References to tokens (<…>) are refused: what matches is text.
package gbnf

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"talf/internal/limits"
	"talf/text/grammar"
)

// depth bounds the nesting of groups.
const depth = 250

// Compile adds the rules of a grammar to b and returns the rule root.
func Compile(b *grammar.Builder, text string) (grammar.Expr, error) {
	if len(text) > limits.GrammarBytes {
		return 0, fmt.Errorf("grammar: %d bytes, want at most %d: %w", len(text), limits.GrammarBytes, limits.ErrTooLarge)
	}
	p := parser{b: b, in: text, rules: map[string]*rule{}}
	if err := p.grammar(); err != nil {
		return 0, fmt.Errorf("grammar: line %d: %w", 1+strings.Count(text[:min(p.at, len(text))], "\n"), err)
	}
	for _, r := range p.order {
		if !r.defined {
			return 0, fmt.Errorf("grammar: rule %q is used and not defined", r.name)
		}
	}
	root, ok := p.rules["root"]
	if !ok {
		return 0, fmt.Errorf(`grammar: no rule is named "root"`)
	}
	return root.expr, nil
}

type rule struct {
	name    string
	expr    grammar.Expr
	defined bool
}

type parser struct {
	b     *grammar.Builder
	in    string
	at    int
	depth int
	rules map[string]*rule
	order []*rule
}

// space skips blanks and comments, and line ends if lines says so.
func (p *parser) space(lines bool) {
	for p.at < len(p.in) {
		switch c := p.in[p.at]; {
		case c == ' ' || c == '\t' || lines && (c == '\n' || c == '\r'):
			p.at++
		case c == '#':
			for p.at < len(p.in) && p.in[p.at] != '\n' && p.in[p.at] != '\r' {
				p.at++
			}
		default:
			return
		}
	}
}

func (p *parser) peek() byte {
	if p.at == len(p.in) {
		return 0
	}
	return p.in[p.at]
}

func (p *parser) skip(s string) bool {
	if !strings.HasPrefix(p.in[p.at:], s) {
		return false
	}
	p.at += len(s)
	return true
}

// found is what stands at the place of the parser, for errors.
func (p *parser) found() string {
	if p.at >= len(p.in) {
		return "the end"
	}
	r, _ := utf8.DecodeRuneInString(p.in[p.at:])
	return strconv.QuoteRune(r)
}

func (p *parser) grammar() error {
	for p.space(true); p.at < len(p.in); p.space(true) {
		name := p.name()
		if name == "" {
			return fmt.Errorf("%s, want the name of a rule", p.found())
		}
		p.space(false)
		if !p.skip("::=") {
			return fmt.Errorf("%s after %q, want ::=", p.found(), name)
		}
		r := p.rule(name)
		if r.defined {
			return fmt.Errorf("rule %q is defined twice", name)
		}
		r.defined = true
		p.space(true)
		x, err := p.alternatives(false)
		if err != nil {
			return err
		}
		p.b.Define(r.expr, x)
		if c := p.peek(); p.at < len(p.in) && c != '\n' && c != '\r' {
			return fmt.Errorf("%s in rule %q, want an element, | or the end of the line", p.found(), name)
		}
	}
	return p.b.Err()
}

func (p *parser) rule(name string) *rule {
	r, ok := p.rules[name]
	if !ok {
		r = &rule{name: name, expr: p.b.Rule(name)}
		p.rules[name] = r
		p.order = append(p.order, r)
	}
	return r
}

func (p *parser) name() string {
	from := p.at
	for p.at < len(p.in) {
		c := p.in[p.at]
		if c != '-' && c != '_' && (c < '0' || c > '9') && (c|0x20 < 'a' || c|0x20 > 'z') {
			break
		}
		p.at++
	}
	return p.in[from:p.at]
}

// alternatives reads sequences with | between them. Within a group lines may end anywhere,
// otherwise only after |.
func (p *parser) alternatives(group bool) (grammar.Expr, error) {
	if p.depth++; p.depth > depth {
		return 0, fmt.Errorf("groups nested more than %d deep: %w", depth, limits.ErrTooLarge)
	}
	defer func() { p.depth-- }()
	var alts []grammar.Expr
	for {
		var seq []grammar.Expr
		for {
			p.space(group)
			x, ok, err := p.element()
			if err != nil {
				return 0, err
			}
			if !ok {
				break
			}
			if x, err = p.repeated(x, group); err != nil {
				return 0, err
			}
			seq = append(seq, x)
		}
		alts = append(alts, p.b.Seq(seq...))
		if p.space(group); !p.skip("|") {
			break
		}
		p.space(true)
	}
	return p.b.Alt(alts...), nil
}

// element reads one element; false if none stands here.
func (p *parser) element() (grammar.Expr, bool, error) {
	switch c := p.peek(); {
	case c == '"':
		x, err := p.literal()
		return x, true, err
	case c == '[':
		x, err := p.class()
		return x, true, err
	case c == '.':
		p.at++
		return p.b.Runes(grammar.AnyRune()), true, nil
	case c == '(':
		p.at++
		x, err := p.alternatives(true)
		if err == nil && !p.skip(")") {
			err = fmt.Errorf("%s in a group, want an element, | or )", p.found())
		}
		return x, true, err
	case c == '<' || c == '!':
		return 0, false, fmt.Errorf("%s: references to tokens are not supported, want text", p.found())
	}
	if name := p.name(); name != "" {
		return p.rule(name).expr, true, nil
	}
	return 0, false, nil
}

// repeated reads *, +, ? and {n,m} after x.
func (p *parser) repeated(x grammar.Expr, group bool) (grammar.Expr, error) {
	for {
		p.space(group)
		switch {
		case p.skip("*"):
			x = p.b.Repeat(x, 0, grammar.Unbounded)
		case p.skip("+"):
			x = p.b.Repeat(x, 1, grammar.Unbounded)
		case p.skip("?"):
			x = p.b.Optional(x)
		case p.skip("{"):
			inner, _, ok := strings.Cut(p.in[p.at:], "}")
			from, to, several := strings.Cut(inner, ",")
			lo, err := strconv.ParseUint(strings.TrimSpace(from), 10, 31)
			hi := lo
			unbounded := several && strings.TrimSpace(to) == ""
			if err == nil && several && !unbounded {
				hi, err = strconv.ParseUint(strings.TrimSpace(to), 10, 31)
			}
			if !ok || err != nil || hi < lo {
				return 0, fmt.Errorf("{%.20s after an element, want {n}, {n,} or {n,m}", inner)
			}
			p.at += len(inner) + 1
			if unbounded {
				x = p.b.Repeat(x, int(lo), grammar.Unbounded)
			} else {
				x = p.b.Repeat(x, int(lo), int(hi))
			}
		default:
			return x, nil
		}
	}
}

func (p *parser) literal() (grammar.Expr, error) {
	p.at++
	var text []byte
	for !p.skip(`"`) {
		r, err := p.char("a literal", '"')
		if err != nil {
			return 0, err
		}
		text = utf8.AppendRune(text, r)
	}
	return p.b.Text(string(text)), nil
}

func (p *parser) class() (grammar.Expr, error) {
	p.at++
	not := p.skip("^")
	var ranges []grammar.Range
	for !p.skip("]") {
		lo, err := p.char("a class", ']')
		if err != nil {
			return 0, err
		}
		hi := lo
		if strings.HasPrefix(p.in[p.at:], "-") && !strings.HasPrefix(p.in[p.at:], "-]") {
			p.at++
			if hi, err = p.char("a class", ']'); err != nil {
				return 0, err
			}
		}
		if hi < lo {
			return 0, fmt.Errorf("range %q-%q in a class, want it from low to high", lo, hi)
		}
		ranges = append(ranges, grammar.Range{Lo: lo, Hi: hi})
	}
	if not {
		ranges = grammar.Invert(ranges)
	}
	return p.b.Runes(ranges), nil
}

// char reads one character or escape of what is named.
func (p *parser) char(what string, end byte) (rune, error) {
	r, n := utf8.DecodeRuneInString(p.in[p.at:])
	switch {
	case n == 0 || r == '\n':
		return 0, fmt.Errorf("%s that is not closed, want %c", what, end)
	case r == utf8.RuneError && n == 1:
		return 0, fmt.Errorf("%s that is not UTF-8", what)
	}
	p.at += n
	if r != '\\' {
		return r, nil
	}
	c := p.peek()
	p.at = min(p.at+1, len(p.in))
	digits := 0
	switch c {
	case 'n':
		return '\n', nil
	case 'r':
		return '\r', nil
	case 't':
		return '\t', nil
	case '\\', '"', '[', ']', '-', '^':
		return rune(c), nil
	case 'x':
		digits = 2
	case 'u':
		digits = 4
	case 'U':
		digits = 8
	default:
		return 0, fmt.Errorf(`\%c in %s, want \n, \r, \t, \\, \", \[, \], \xHH, \uHHHH or \UHHHHHHHH`, c, what)
	}
	if p.at+digits > len(p.in) {
		return 0, fmt.Errorf(`\%c in %s, want %d hexadecimal digits after it`, c, what, digits)
	}
	v, err := strconv.ParseUint(p.in[p.at:p.at+digits], 16, 32)
	if err != nil || !utf8.ValidRune(rune(v)) || v > utf8.MaxRune {
		return 0, fmt.Errorf(`\%c%s in %s, want %d hexadecimal digits of a character`, c, p.in[p.at:p.at+digits], what, digits)
	}
	p.at += digits
	return rune(v), nil
}
