package schema

import (
	"fmt"
	"slices"
	"strings"

	"talf/text/grammar"
	"talf/text/grammar/regex"
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
	date  = `(?:\d{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12]\d|3[01])|(?:0[469]|11)-(?:0[1-9]|[12]\d|30)|02-(?:0[1-9]|1\d|2[0-8]))|(?:\d\d(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)-02-29)`
	clock = `(?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d(?:\.\d{1,9})?(?:Z|[+-](?:[01]\d|2[0-3]):[0-5]\d)`

	// Labels of host names (RFC 1123, 2.1) have up to 63 characters. Two hyphens in the third and fourth
	// place stand for an encoding (RFC 5890, 2.3.1), which would have to be valid. A name has up to 253.
	ldh   = `[A-Za-z0-9-]`
	alnum = `[A-Za-z0-9]`
	label = alnum + `(?:` + ldh + `?` + alnum + `|` + ldh + `{2}` + alnum + `|` + ldh + `(?:` + alnum + ldh + `|-` + alnum + `)` + ldh + `{0,58}` + alnum + `)?`
	last  = alnum + `(?:` + ldh + `?` + alnum + `|` + ldh + `{2}` + alnum + `|` + ldh + `(?:` + alnum + ldh + `|-` + alnum + `)` + ldh + `{0,56}` + alnum + `)?`
	host  = label + `(?:\.` + label + `){0,2}(?:\.` + last + `)?`

	atext = "[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]" // RFC 5321, 4.1.2
	local = atext + `{1,20}(?:\.` + atext + `{1,20}){0,2}`
	octet = `(?:25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)`
	quad  = octet + `(?:\.` + octet + `){3}`
	group = `[0-9A-Fa-f]{1,4}`

	byteURL   = `%[0-9A-Fa-f]{2}`
	base64    = `(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?`
	pointerTo = `(?:/(?:[^/~]|~[01])*)*`
	// Of RFC 3987, section 2.2, without private use.
	ucs = `\u{A0}-\u{D7FF}\u{F900}-\u{FDCF}\u{FDF0}-\u{FFEF}\u{10000}-\u{1FFFD}\u{20000}-\u{2FFFD}\u{30000}-\u{3FFFD}`
)

// ipv6 are addresses of RFC 4291, section 2.2.
func ipv6() string {
	alts := []string{`(?:` + group + `:){7}` + group, `(?:` + group + `:){6}` + quad}
	for left := range 8 { // groups before ::
		head := `::`
		if left > 0 {
			head = fmt.Sprintf(`%s(?::%s){%d}::`, group, group, left-1)
		}
		alts = append(alts, head)
		if right := 7 - left; right > 0 {
			alts = append(alts, fmt.Sprintf(`%s%s(?::%s){0,%d}`, head, group, group, right-1))
		}
		if right := 5 - left; right >= 0 {
			alts = append(alts, fmt.Sprintf(`%s(?:%s:){0,%d}%s`, head, group, right, quad))
		}
	}
	return `(?:` + strings.Join(alts, `|`) + `)`
}

// uri are URIs (RFC 3986, 3), and references if relative may be left out; more are characters that
// IRIs (RFC 3987) have in addition. Hosts have no percent encoding, about which readers disagree.
func uri(more string, relative bool) string {
	char := func(also string) string {
		return `(?:[A-Za-z0-9._~!$&'()*+,;=` + also + more + `-]|` + byteURL + `)`
	}
	authority := `//(?:` + char(`:`) + `*@)?(?:\[` + ipv6() + `\]|[A-Za-z0-9._~!$&'()*+,;=` + more + `-]*)(?::\d{0,5})?(?:/` + char(`:@`) + `*)*`
	absolute := `/(?:` + char(`:@`) + `+(?:/` + char(`:@`) + `*)*)?`
	tail := `(?:\?` + char(`:@/?`) + `*)?(?:#` + char(`:@/?`) + `*)?`
	out := `[A-Za-z][A-Za-z0-9+.-]*:(?:` + authority + `|` + absolute + `|` + char(`:@`) + `+(?:/` + char(`:@`) + `*)*|)`
	if relative {
		out = `(?:` + out + `|` + authority + `|` + absolute + `|` + char(`@`) + `+(?:/` + char(`:@`) + `*)*|)`
	}
	return out + tail
}

// template are URI templates (RFC 6570, 2).
const template = `(?:[!#$&(-;=?-\[\]_a-z~` + ucs + `]|` + byteURL + `|\{[+#./;?&]?` + variable + `(?:,` + variable + `)*\})*`

const variable = `(?:[A-Za-z0-9_]|` + byteURL + `)(?:\.?(?:[A-Za-z0-9_]|` + byteURL + `))*(?::[1-9]\d{0,3}|\*)?`

// formats are regular expressions of the formats of JSON Schema (draft 2020-12, validation, section
// 7.3) and of OpenAPI 3.0 (data types), each for the whole text. They allow nothing that the format does
// not, and leave out what is rare: leap seconds, lower case t and z, quoted and international mail
// addresses, encoded host names and those of more than four labels.
var formats = map[string]string{
	"date":                  date,
	"time":                  clock,
	"date-time":             date + `T` + clock,
	"duration":              `P(?:\d{1,9}W|(?:\d{1,9}Y(?:\d{1,9}M(?:\d{1,9}D)?)?|\d{1,9}M(?:\d{1,9}D)?|\d{1,9}D)(?:T(?:\d{1,9}H(?:\d{1,9}M(?:\d{1,9}S)?)?|\d{1,9}M(?:\d{1,9}S)?|\d{1,9}S))?|T(?:\d{1,9}H(?:\d{1,9}M(?:\d{1,9}S)?)?|\d{1,9}M(?:\d{1,9}S)?|\d{1,9}S))`,
	"email":                 local + `@` + host,
	"hostname":              host,
	"ipv4":                  quad,
	"ipv6":                  ipv6(),
	"uri":                   uri(``, false),
	"uri-reference":         uri(``, true),
	"uri-template":          template,
	"iri":                   uri(ucs, false),
	"iri-reference":         uri(ucs, true),
	"uuid":                  `[0-9A-Fa-f]{8}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{12}`,
	"json-pointer":          pointerTo,
	"relative-json-pointer": `(?:0|[1-9]\d{0,8})(?:#|` + pointerTo + `)`,
	"byte":                  base64,
	"password":              `[^]*`,
	"binary":                `[^]*`,
}

// numberFormats are the bounds of OpenAPI's formats of numbers; those without say how they are kept.
var numberFormats = map[string]*[2]string{
	"int32":  {"-2147483648", "2147483647"},
	"int64":  {"-9223372036854775808", "9223372036854775807"},
	"float":  nil,
	"double": nil,
}

// formatNames lists the formats.
func formatNames() []string {
	var names []string
	for n := range formats {
		names = append(names, n)
	}
	for n := range numberFormats {
		names = append(names, n)
	}
	slices.Sort(names)
	return names
}

// texts is what is asked of strings.
type texts struct {
	lo, hi   int // code points; hi grammar.Unbounded: any number
	patterns []string
	without  []string // patterns that are not found in it
	words    []string // texts that it is not
}

// free reports whether any string will do.
func (t *texts) free() bool { return t.lo == 0 && t.hi == grammar.Unbounded && !t.spelled() }

// spelled reports whether the characters matter.
func (t *texts) spelled() bool { return len(t.patterns)+len(t.without)+len(t.words) > 0 }

// content is what stands between the quotes, in the spelling of runes.
func (w *writer) content(t *texts) (grammar.Expr, error) {
	if t.lo == 0 && t.hi == grammar.Unbounded && len(t.patterns) == 1 && len(t.without)+len(t.words) == 0 {
		return w.pattern(t.patterns[0])
	}
	if len(t.patterns) == 1 && len(t.without)+len(t.words) == 0 {
		if class, lo, hi, ok := regex.Class(t.patterns[0]); ok {
			if lo, hi = max(lo, t.lo), least(hi, t.hi); hi == grammar.Unbounded || lo <= hi {
				return w.b.Repeat(w.runes(class), lo, hi), nil // which counts with no state for each length
			}
		}
	}
	d, err := w.uncounted(t)
	if err != nil {
		return 0, err
	}
	if n := d.Longest(); n < 0 || t.hi != grammar.Unbounded && n > t.hi || t.lo > 0 {
		if max(t.lo, t.hi)*d.Len() > maxUnrolled {
			return w.b.Counted(d, w.free, t.lo, t.hi)
		}
	}
	if d, err = w.counted(d, t.lo, t.hi); err != nil {
		return 0, err
	}
	return w.b.Automaton(d), nil
}

// maxUnrolled bounds the states of automata that have one for each length: up to it they can be compared with
// those of other grammars, or are at least small.
const maxUnrolled = 1 << 11

// automaton is that of content, with a state for each length that matters.
func (w *writer) automaton(t *texts) (*grammar.DFA, error) {
	d, err := w.uncounted(t)
	if err != nil {
		return nil, err
	}
	return w.counted(d, t.lo, t.hi)
}

// uncounted is that of content of any length.
func (w *writer) uncounted(t *texts) (*grammar.DFA, error) {
	var err error
	if w.free == nil {
		if w.free, err = w.b.DFA(w.anyText(0, grammar.Unbounded)); err != nil {
			return nil, err
		}
	}
	d := w.free
	for _, p := range t.patterns {
		if err == nil {
			d, err = w.combine(d, p, w.b.And)
		}
	}
	for _, p := range t.without {
		if err == nil {
			d, err = w.combine(d, p, w.b.Without)
		}
	}
	if err == nil && len(t.words) > 0 {
		var words *grammar.DFA
		if words, err = w.b.Words(t.words); err == nil {
			d, err = w.b.Without(d, words)
		}
	}
	return d, err
}

// counted is d with lo to hi characters. Where all that d accepts is that short, such as mail addresses of up to 320
// characters, nothing is counted: a state for each length would be too many.
func (w *writer) counted(d *grammar.DFA, lo, hi int) (*grammar.DFA, error) {
	if n := d.Longest(); n >= 0 && (hi == grammar.Unbounded || n <= hi) { // in bytes, of which a character has at least one
		hi = grammar.Unbounded
	}
	if lo == 0 && hi == grammar.Unbounded {
		return d, nil
	}
	o, err := w.b.DFA(w.anyText(lo, hi))
	if err != nil {
		return nil, err
	}
	return w.b.And(d, o)
}

func (w *writer) combine(d *grammar.DFA, pattern string, with func(d, o *grammar.DFA) (*grammar.DFA, error)) (*grammar.DFA, error) {
	e, err := w.pattern(pattern)
	if err != nil {
		return nil, err
	}
	m, err := w.b.DFA(e)
	if err != nil {
		return nil, err
	}
	return with(d, m)
}
