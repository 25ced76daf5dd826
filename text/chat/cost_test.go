package chat_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"talf/internal/limits"
	"talf/internal/limits/costtest"
	"talf/text/chat"
)

// A costly template asks for far more than it is long. Each of these once took all memory,
// or minutes that no context could end, or both.
type costly struct {
	name, source string
	want         string // what it writes, or the kind of its error
}

// doubled is a tuple that holds itself twice, n times over: 2ⁿ tuples that share all they
// have.
func doubled(n int) string {
	return "{% set t = (1,) %}" + strings.Repeat("{% set t = (t, t) %}", n)
}

// manyKeys are 5,000 arguments: k0='k1', k2='k3', …
var manyKeys = func() string {
	var b strings.Builder
	for i := 0; i < 10000; i += 2 {
		fmt.Fprintf(&b, "k%d='k%d', ", i, i+1)
	}
	return b.String()
}()

var costlyTemplates = []costly{
	{"sort keys of long texts", "{{ (['A' * 16000000] * 1000) | sort | length }}", "LimitError"},
	{"unique keys of long texts", "{{ (['A' * 16000000] * 1000) | unique | list | length }}", "LimitError"},
	{"the largest of long texts", "{{ (['A' * 16000000] * 1000) | max | length }}", "LimitError"},
	{"a dict sorted by long values", "{% set ns = namespace(d={}) %}{% for i in range(1000) %}{% set ns.d = dict(ns.d, **{i | string: 'É' * 8000000}) %}{% endfor %}{{ ns.d | dictsort(by='value') | length }}", "LimitError"},
	{"reversed copies that are kept", "{% set big = [0] * 1000000 %}{% set ns = namespace(l=[]) %}{% for i in range(1000) %}{% set ns.l = ns.l + [big | reverse] %}{% endfor %}{{ ns.l | length }}", "LimitError"},
	{"listed copies that are kept", "{% set big = [0] * 1000000 %}{% set ns = namespace(l=[]) %}{% for i in range(1000) %}{% set ns.l = ns.l + [big | list] %}{% endfor %}{{ ns.l | length }}", "LimitError"},
	{"reversed texts that are kept", "{% set ns = namespace(l=[]) %}{% for i in range(1000) %}{% set ns.l = ns.l + [('é' * 8000000) | reverse] %}{% endfor %}{{ ns.l | length }}", "LimitError"},
	{"a shared tuple looked up", doubled(34) + "{{ {}[t] is defined }}", "False"},
	{"a shared tuple of unhashable items", "{% set t = ([],) %}" + strings.Repeat("{% set t = (t, t) %}", 34) + "{{ {}[t] is defined }}", "False"},
	{"a shared tuple as text", doubled(34) + "{{ t | string | length }}", "LimitError"},
	{"strip of many characters", "{{ ('b' * 8000000).strip('a' * 8000000 ~ 'b') | length }}", "0"},
	{"strip of many other characters", "{{ ('é' * 4000000).strip('a' * 8000000 ~ 'é') | length }}", "0"},
	{"many long prefixes", "{% set s = 'a' * 8000000 %}{% set u = 'a' * 7999999 ~ 'b' %}{{ s.startswith((u,) * 1000000) }}", "LimitError"},
	{"many long suffixes", "{% set s = 'a' * 8000000 %}{% set u = 'b' ~ 'a' * 7999999 %}{{ s.endswith((u,) * 1000000) }}", "LimitError"},
	{"a path of many attributes", "{{ [1] | map(attribute='a.' * 4000000 ~ 'a', default={}) | list | length }}", "LimitError"},
	{"many paths to sort by", "{{ [1] | sort(attribute='a,' * 4000000) | length }}", "LimitError"},
	{"equal texts counted", "{% set s = 'a' * 8000000 %}{% set u = 'a' * 8000000 %}{{ ([s] * 1000000).count(u) }}", "LimitError"},
	{"equal texts searched", "{% set s = 'a' * 8000000 %}{% set u = 'a' * 7999999 ~ 'b' %}{{ u in [s] * 1000000 }}", "LimitError"},
	{"equal texts as the same", "{% set s = 'a' * 8000000 %}{% set u = 'a' * 8000000 %}{% for i in range(100000) %}{{ '' if s is sameas u }}{% endfor %}", "LimitError"},
	{"long keys looked up", "{% set d = {'a' * 8000000: 1} %}{% set u = 'a' * 8000000 %}{% for i in range(100000) %}{{ '' if d[u] }}{% endfor %}", "LimitError"},
	{"a number beyond 64 bits", "{{ 3 ** 41000 }}", "LimitError"},
	{"ratios of numbers", "{% for i in range(100000) %}{% for k in range(1000) %}{{ '' if i / (k + 1) }}{% endfor %}{% endfor %}", "LimitError"},
	{"powers of many bits", "{% for i in range(100000) %}{{ '' if 3 ** 41000 }}{% endfor %}", "LimitError"},
	{"products of many bits", "{% set x = 3 ** 20000 %}{% for i in range(100000) %}{{ '' if x * x }}{% endfor %}", "LimitError"},
	{"remainders of many bits", "{% set x = 3 ** 41000 %}{% set y = 3 ** 20000 + 1 %}{% for i in range(100000) %}{{ '' if x % y }}{% endfor %}", "LimitError"},
	{"texts of many digits", "{% set x = '9' * 4300 %}{% for i in range(100000) %}{{ '' if x | int }}{% endfor %}", "LimitError"},
	{"rounding to many digits", "{% for i in range(100000) %}{{ '' if 7 | round(-4300) }}{% endfor %}", "LimitError"},
	{"a wide number", "{{ '{:01000000d}'.format(1) | length }}", "1000000"},
	{"many wide numbers", "{% for i in range(100000) %}{{ '' if '{:01000000d}'.format(1) }}{% endfor %}", "LimitError"},
	{"many precise floats", "{% for i in range(100000) %}{{ '' if '%.1000000f' % 1.5 }}{% endfor %}", "LimitError"},
	{"fields of many names", "{{ ('{k9998}' * 1000000).format(" + manyKeys + ") | length }}", "LimitError"},
	{"a field of each of many names", "{{ ('{k' ~ range(0, 9999, 2) | join('}{k') ~ '}').format(" + manyKeys + ") | length }}", "24445"},
	{"title of letters beyond ASCII", "{% for i in range(1000) %}{{ '' if ('é ' * 4000000) | title }}{% endfor %}", "LimitError"},
	{"str.title of letters beyond ASCII", "{% for i in range(1000) %}{{ '' if ('é ' * 4000000).title() }}{% endfor %}", "LimitError"},
	{"upper case of letters beyond ASCII", "{% for i in range(1000) %}{{ '' if ('ŉ' * 4000000) | upper }}{% endfor %}", "LimitError"},
	{"lower case of letters beyond ASCII", "{% for i in range(1000) %}{{ '' if ('É' * 8000000) | lower }}{% endfor %}", "LimitError"},
	{"words that end in sigma", "{{ ('Σ' ~ '.' * 8000000 ~ 'Σ') | lower | length }}", "8000002"},
	{"many sigmas between what is ignored", "{{ (('Σ' ~ '.' * 1000) * 8000) | lower | length }}", "8008000"},
	{"a found text with the hash of others", "{% set a = 'a' * 8000000 %}{% set b = 'a' * 4000000 ~ 'b' %}{% for i in range(1000) %}{{ '' if b in a }}{% endfor %}", "LimitError"},
	{"a text split at every character", "{{ ('a,' * 8000000).split(',') | length }}", "LimitError"},
	{"a text split at every space", "{{ ('a ' * 500000).split() | length }}", "500000"},
	{"a text split from the right", "{{ ('a,' * 500000).rsplit(',', 499999) | length }}", "500000"},
	{"a long text replaced", "{{ ('ab' * 4000000).replace('ab', 'ba') | length }}", "8000000"},
	{"a text of lines", "{{ ('a\\n' * 500000).splitlines() | length }}", "500000"},
	{"a text taken backwards", "{{ ('é' * 8000000)[::-1] | length }}", "8000000"},
	{"a text with a huge step", "{{ 'abc'[::9223372036854775807] }}", "a"},
	{"a text with a huge step back", "{{ 'abc'[::-9223372036854775807 - 1] }}", "c"},
	{"a list with a huge step", "{{ [1, 2, 3][::9223372036854775807] }}", "[1]"},
	{"a range with a huge step", "{{ range(3)[::9223372036854775807] | list }} {{ 5 in range(0, 99, 4294967296)[::4294967296] }}", "[0] False"},
	{"an empty list taken backwards", "{{ [][::-1] }}", "[]"},
	{"many variables", setMany(12000), "11999"},
	{"many names and scopes", strings.Repeat("{% with %}", 280) + "{% for i in range(99999) %}{% for i in range(999) %}{{ x }}{% endfor %}{% endfor %}" + strings.Repeat("{% endwith %}", 280), "LimitError"},
	{"a long name", "{% for i in range(100000) %}{{ " + strings.Repeat("n", 200000) + " }}{% endfor %}", "LimitError"},
	{"a long attribute", "{% for i in range(100000) %}{{ messages." + strings.Repeat("n", 200000) + " }}{% endfor %}", "LimitError"},
	{"a macro of many arguments", manyArguments(8000), "1"},
	{"errors that name long texts", "{{ ('\x01' * 16000000) | attr('x') + 1 }}", "UndefinedError"},
	{"unknown items with long names", "{% set t = ['x' * 16000000] * 1000 %}{% for i in range(1000) %}{{ messages[t] }}{% endfor %}", ""},
	{"an exception with a long text", "{{ [0] * 1000000 + 1 }}", "TypeError"},
	{"an index that is not found", "{{ [0].index(['x' * 16000000] * 1000) }}", "LimitError"},
	{"a key that is not found", "{{ '%(x)s' % {} }}", "KeyError"},
	{"a date that grows", "{{ strftime_now('%A' * 8000000) | length }}", "LimitError"},
	{"a long text as JSON", "{{ ('\\x01' * 16000000) | tojson | length }}", "LimitError"},
	{"a long text quoted", "{{ ['\\x01' * 16000000] | string | length }}", "LimitError"},
	{"a long text escaped", "{{ ('&' * 16000000) | escape | length }}", "LimitError"},
	{"a deep JSON with indents", "{% set ns = namespace(x=[]) %}{% for i in range(400) %}{% set ns.x = [ns.x] %}{% endfor %}{{ ([ns.x] * 10000) | tojson(indent=100) | length }}", "LimitError"},
	{"iterators that are kept", "{% set ns = namespace(l=[]) %}{% for i in range(1000) %}{% for j in range(1000) %}{% set ns.l = [ns.l, range(9) | map('string')] %}{% endfor %}{% endfor %}", "LimitError"},
	{"macros that are kept", "{% set ns = namespace(l=0) %}{% for i in range(1000) %}{% for j in range(1000) %}{% macro f() %}{% endmacro %}{% set ns.l = [ns.l, f] %}{% endfor %}{% endfor %}", "LimitError"},
	{"methods that are kept", "{% set ns = namespace(l=0) %}{% for i in range(1000) %}{% for j in range(1000) %}{% set ns.l = [ns.l, ''.upper] %}{% endfor %}{% endfor %}", "LimitError"},
	{"arguments that are starred", "{% macro f() %}{{ varargs | length }}{% endmacro %}{% for i in range(1000) %}{{ f(*([0] * 1000000)) }}{% endfor %}", "LimitError"},
	{"tests of long texts", "{% for i in range(1000) %}{{ '' if ('é' * 8000000) is lower }}{% endfor %}", "LimitError"},
	{"lengths of long texts", "{% set s = 'é' * 8000000 %}{% for i in range(100000) %}{{ '' if s | length }}{% endfor %}", "LimitError"},
	{"characters of long texts", "{% set s = 'é' * 8000000 %}{% for i in range(100000) %}{{ '' if s[7999999] }}{% endfor %}", "LimitError"},
	{"a long text as a float", "{{ ('1' * 16000000) | float }}", "LimitError"},
	{"long texts as floats", "{% set s = '1' * 1000000 %}{% for i in range(100000) %}{{ '' if s | float }}{% endfor %}", "LimitError"},
}

// setMany sets n variables and prints the last.
func setMany(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "{%%set v%d=%[1]d%%}", i)
	}
	fmt.Fprintf(&b, "{{v%d}}", n-1)
	return b.String()
}

// manyArguments calls a macro of n parameters by their names, and prints the second.
func manyArguments(n int) string {
	var params, args strings.Builder
	for i := range n {
		fmt.Fprintf(&params, "a%d,", i)
		fmt.Fprintf(&args, "a%d=%[1]d,", n-1-i)
	}
	return "{% macro f(" + strings.TrimSuffix(params.String(), ",") + ") %}{{ a1 }}{% endmacro %}{{ f(" + args.String() + ") }}"
}

// render parses and renders a template: it returns what that writes, or the kind of the
// error.
func render(ctx context.Context, t testing.TB, source string, c *chat.Conversation) string {
	tmpl, err := chat.Parse("test", source)
	if err == nil {
		var r *chat.Rendered
		if r, err = tmpl.WithClock(clock).Render(ctx, c); err == nil {
			return r.Text
		}
	}
	var e *chat.EvalError
	var raised *chat.RaisedError
	switch {
	case errors.As(err, &e):
		if e.Kind == "InternalError" {
			t.Error(err)
		}
		return e.Kind
	case errors.As(err, &raised):
		return "TemplateError"
	case errors.Is(err, limits.ErrTooLarge):
		return "too large"
	}
	t.Error(err)
	return err.Error()
}

// A rendering comes back soon after its deadline, whatever it does: it looks at its context at least
// this often, in yards of its own processor time.
const lookedAt = 12

func TestCostlyTemplates(t *testing.T) {
	if costtest.RaceDetector {
		t.Skip("the bounds on processor time are those of a build without the race detector")
	}
	conv := hello()
	for i, c := range costlyTemplates {
		if testing.Short() && i%6 != 0 {
			continue // most of them use up a whole budget
		}
		t.Run(c.name, func(t *testing.T) {
			bound := costtest.Default
			bound.Look = lookedAt
			costtest.Check(t, c.name, bound, func(ctx context.Context) {
				if got := render(ctx, t, c.source, conv); got != c.want {
					t.Errorf("got %.100q, want %q", got, c.want)
				}
			})
		})
	}
}

// filled repeats a part as often as the limit on templates allows.
func filled(begin, part, end string) string {
	return begin + strings.Repeat(part, (limits.TemplateBytes-len(begin)-len(end))/len(part)) + end
}

// counted is filled with numbers in place of %d.
func counted(begin, part, end string) string {
	var b strings.Builder
	b.WriteString(begin)
	for i := 0; b.Len()+len(part)+8+len(end) <= limits.TemplateBytes; i++ {
		fmt.Fprintf(&b, part, i)
	}
	return b.String() + end
}

// Parsing takes time and memory in proportion to the source, whatever is in it.
func TestParsingIsLinear(t *testing.T) {
	if costtest.RaceDetector {
		t.Skip("the bounds on processor time are those of a build without the race detector")
	}
	const perByte = 300 // bytes made for a byte of source; two of 300 MB would be refused by Check
	for name, source := range map[string]string{
		"adjacent texts":     filled("{{ ", "'' ", "}}"),
		"keyword arguments":  counted("{{ f(", "a%d=1,", ") }}"),
		"prints":             filled("", "{{1}}", ""),
		"data and prints":    filled("", "a{{1}}", ""),
		"comments":           filled("", "{##}", ""),
		"open braces":        filled("", "{", ""),
		"raw blocks":         filled("", "{%raw%}{%endraw%}", ""),
		"a raw block":        filled("{% raw %}", "{% ", "{% endraw %}"),
		"empty lists":        filled("{{ [", "[],", "] }}"),
		"empty dicts":        filled("{{ [", "{},", "] }}"),
		"a dict":             filled("{{ {", "1:1,", "} }}"),
		"numbers":            filled("{{ [", "1,", "] }}"),
		"names":              filled("{{ [", "a,", "] }}"),
		"calls":              filled("{{ [", "a(),", "] }}"),
		"filters":            filled("{{ [", "a|e,", "] }}"),
		"tests":              filled("{{ [", "a is e,", "] }}"),
		"sums":               filled("{{ 1", "+1", " }}"),
		"conditions":         filled("{{ 1", " if 1", " }}"),
		"comparisons":        filled("{{ 1", "<1", " }}"),
		"ors":                filled("{{ 1", " or 1", " }}"),
		"slices":             filled("{{ [", "a[:],", "] }}"),
		"statements":         filled("", "{%if 1%}{%endif%}", ""),
		"loops":              filled("", "{%for a in a%}{%endfor%}", ""),
		"macros":             filled("", "{%macro a()%}{%endmacro%}", ""),
		"assignments":        filled("", "{%set a=1%}", ""),
		"targets":            filled("{% set ", "a,", "a = 1 %}"),
		"uses in macros":     strings.Repeat("{%macro m()%}", 290) + filled("{{ [", "caller,", "] }}")[:limits.TemplateBytes-30000],
		"unknown filters":    filled("", "{{1|x}}", ""),
		"unknown names":      counted("", "{{1|x%d}}", ""),
		"escapes":            filled("{{ '", `\n`, "' }}"),
		"spaces":             filled("{{ ", " ", "1 }}"),
		"lines":              filled("", "\r\n", ""),
		"stripped lines":     filled("", "\n {%-set a=1-%}", ""),
		"a name":             filled("{{ ", "a", " }}"),
		"digits":             filled("{{ ", "1", " }}"),
		"digits of a float":  filled("{{ 1.", "1", " }}"),
		"underscores":        filled("{{ [", "1_1,", "] }}"),
		"hexadecimal digits": filled("{{ [", "0x"+strings.Repeat("f", 4000)+",", "] }}"),
		"decimal digits":     filled("{{ [", strings.Repeat("9", 4000)+",", "] }}"),
		"loaders":            filled("", "{%include a%}", ""),
	} {
		t.Run(name, func(t *testing.T) {
			if len(source) > limits.TemplateBytes {
				t.Fatalf("%d bytes", len(source))
			}
			bound := costtest.Default
			var before, after runtime.MemStats
			costtest.Check(t, name, bound, func(context.Context) {
				runtime.ReadMemStats(&before)
				_, err := chat.Parse("test", source)
				runtime.ReadMemStats(&after)
				var e *chat.EvalError
				if errors.As(err, &e) && e.Kind == "InternalError" {
					t.Error(err)
				}
			})
			if made := (after.TotalAlloc - before.TotalAlloc) / limits.TemplateBytes; made > perByte {
				t.Errorf("makes %d bytes for each byte, want at most %d", made, perByte)
			}
		})
	}
}

func TestLongTemplatesAreRefused(t *testing.T) {
	_, err := chat.Parse("long.jinja", strings.Repeat(" ", limits.TemplateBytes+1))
	if err == nil || !strings.Contains(err.Error(), "long.jinja") || !strings.Contains(err.Error(), "262145 bytes, want at most 262144") {
		t.Errorf("error %v, want one that names the template and its size", err)
	}
}
