package schema

import (
	"fmt"
	"slices"
	"strings"

	"talf/model/grammar"
	"talf/model/grammar/regex"
)

// runes is one code point of ranges inside a string, in the one spelling that JSON.stringify of
// ECMAScript writes: itself, a short escape, or \u00xx for other controls.
func (w *writer) runes(ranges []grammar.Range) grammar.Expr {
	b := w.b
	var plain []grammar.Range
	var alts []grammar.Expr
	for _, r := range grammar.Normal(ranges) {
		for c := r.Lo; c <= min(r.Hi, '\\'); c++ {
			if c < ' ' || c == '"' || c == '\\' {
				alts = append(alts, b.Text(escaped(c)))
			} else {
				plain = append(plain, grammar.Range{Lo: c, Hi: c})
			}
		}
		plain = append(plain, grammar.Range{Lo: max(r.Lo, '\\'+1), Hi: r.Hi})
	}
	if plain = grammar.Normal(plain); len(plain) > 0 {
		alts = append(alts, b.Runes(plain))
	}
	return b.Alt(alts...)
}

// escaped is how a code point is spelled in a string.
func escaped(c rune) string {
	if i := strings.IndexRune("\"\\\b\f\n\r\t", c); i >= 0 {
		return `\` + string(`"\bfnrt`[i])
	}
	if c < ' ' {
		return fmt.Sprintf(`\u%04x`, c)
	}
	return string(c)
}

// spelled is the content of a string as runes spells it.
func spelled(s string) string {
	var b strings.Builder
	for _, r := range s {
		b.WriteString(escaped(r))
	}
	return b.String()
}

// anyText is any content, in the spelling of runes.
func (w *writer) anyText(lo, hi int) grammar.Expr {
	return w.b.Repeat(w.runes(grammar.AnyRune()), lo, hi)
}

// pattern is the content of strings in which a regular expression is found.
func (w *writer) pattern(expr string) (grammar.Expr, error) {
	return regex.Compile(w.b, expr, regex.Config{Rune: w.runes, Search: true})
}

const (
	date    = `(?:\d{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12]\d|3[01])|(?:0[469]|11)-(?:0[1-9]|[12]\d|30)|02-(?:0[1-9]|1\d|2[0-8]))|(?:\d\d(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)-02-29)`
	clock   = `(?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d(?:\.\d{1,9})?(?:Z|[+-](?:[01]\d|2[0-3]):[0-5]\d)`
	label   = `[A-Za-z0-9](?:[A-Za-z0-9-]{0,58}[A-Za-z0-9])?`
	host    = label + `(?:\.` + label + `){0,3}`
	atom    = "[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]{1,20}"
	octet   = `(?:25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)`
	quad    = octet + `(?:\.` + octet + `){3}`
	group   = `[0-9A-Fa-f]{1,4}`
	urlChar = `(?:[A-Za-z0-9._~!$&'()*+,;=:@-]|%[0-9A-Fa-f]{2})`
)

// formats are regular expressions of the formats of JSON Schema (draft 2020-12, validation, section
// 7.3), each for the whole text. They allow nothing that the format does not, and leave out what is
// rare: leap seconds, lower case t and z, quoted and international mail addresses, host names of more
// than four labels.
var formats = map[string]string{
	"date":      date,
	"time":      clock,
	"date-time": date + `T` + clock,
	"duration":  `P(?:\d{1,9}W|(?:\d{1,9}Y(?:\d{1,9}M(?:\d{1,9}D)?)?|\d{1,9}M(?:\d{1,9}D)?|\d{1,9}D)(?:T(?:\d{1,9}H(?:\d{1,9}M(?:\d{1,9}S)?)?|\d{1,9}M(?:\d{1,9}S)?|\d{1,9}S))?|T(?:\d{1,9}H(?:\d{1,9}M(?:\d{1,9}S)?)?|\d{1,9}M(?:\d{1,9}S)?|\d{1,9}S))`,
	"email":     atom + `(?:\.` + atom + `){0,2}@` + host,
	"hostname":  host,
	"ipv4":      quad,
	"ipv6": `(?:(?:` + group + `:){7}` + group + `|(?:` + group + `:){1,7}:|(?:` + group + `:){1,6}:` + group + `|(?:` + group + `:){1,5}(?::` + group + `){2}|(?:` +
		group + `:){1,4}(?::` + group + `){3}|(?:` + group + `:){1,3}(?::` + group + `){4}|(?:` + group + `:){1,2}(?::` + group + `){5}|` + group + `:(?::` + group + `){6}|:(?:(?::` + group + `){1,7}|:))`,
	"uri":  `[A-Za-z][A-Za-z0-9+.-]*:(?://(?:` + label + `)(?:\.` + label + `)*(?::\d{1,4})?(?:/` + urlChar + `*)*|` + urlChar + `+)(?:\?(?:` + urlChar + `|[/?])*)?(?:#(?:` + urlChar + `|[/?])*)?`,
	"uuid": `[0-9A-Fa-f]{8}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{12}`,
}

// formatNames lists the formats.
func formatNames() []string {
	var names []string
	for n := range formats {
		names = append(names, n)
	}
	slices.Sort(names)
	return names
}

// texts is what is asked of strings.
type texts struct {
	lo, hi   int // code points; hi grammar.Unbounded: any number
	patterns []string
}

// free reports whether any string will do.
func (t *texts) free() bool { return t.lo == 0 && t.hi == grammar.Unbounded && len(t.patterns) == 0 }

// content is what stands between the quotes, in the spelling of runes.
func (w *writer) content(t *texts) (grammar.Expr, error) {
	if t.lo == 0 && t.hi == grammar.Unbounded && len(t.patterns) == 1 {
		return w.pattern(t.patterns[0])
	}
	d, err := w.automaton(t)
	if err != nil {
		return 0, err
	}
	return w.b.Automaton(d), nil
}

// automaton is that of content.
func (w *writer) automaton(t *texts) (*grammar.DFA, error) {
	d, err := w.b.DFA(w.anyText(t.lo, t.hi))
	for _, p := range t.patterns {
		if err != nil {
			return nil, err
		}
		var e grammar.Expr
		var m *grammar.DFA
		if e, err = w.pattern(p); err != nil {
			return nil, err
		}
		if m, err = w.b.DFA(e); err == nil {
			d, err = w.b.And(d, m)
		}
	}
	return d, err
}
