package regex_test

import (
	"errors"
	"regexp"
	"strings"
	"testing"

	"talf/text/grammar"
	"talf/text/grammar/grammartest"
	"talf/text/grammar/regex"
)

// Every short text is found as the definition of lookahead has it: Go's regexp has none, so that the parts stand in
// for it, which the test writes down itself.
func TestLookingAheadFromTheBeginning(t *testing.T) {
	var all []string
	var grow func(s string, n int)
	grow = func(s string, n int) {
		if all = append(all, s); n > 0 {
			for _, r := range "ab-1|)" {
				grow(s+string(r), n-1)
			}
		}
	}
	grow("", 4)
	for _, c := range []struct {
		expr, rest string
		must, not  []string
	}{
		{`^(?!a)b*`, `^b*`, nil, []string{`^a`}},
		{`^(?!^[-+.]*$)[+-]?0*\d*\.?\d*$`, `^[+-]?0*\d*\.?\d*$`, nil, []string{`^[-+.]*$`}},
		{`^(?=.*\d)(?=.*[ab]).{2,}$`, `^.{2,}$`, []string{`^.*\d`, `^.*[ab]`}, nil},
		{`^(?=a|b)(?!ab|.*\))[^]`, `^(?s:.)`, []string{`^(?:a|b)`}, []string{`^(?:ab|.*\))`}},
		{`^(?![|)\]]|\))(a|.)`, `^(a|.)`, nil, []string{`^(?:[|)\]]|\))`}},
		{`^(?=(a|b){2})`, `^`, []string{`^(a|b){2}`}, nil},
		{`^(?!$)`, `^`, nil, []string{`^$`}},
	} {
		rest, must, not := regex.Ahead(c.expr)
		if len(must) != len(c.must) || len(not) != len(c.not) {
			t.Errorf("%s: divided into %q, %q and %q", c.expr, rest, must, not)
			continue
		}
		found := func(expr string) func(text string) bool {
			g, err := compile(expr, true)
			if errors.Is(err, grammar.ErrNothing) {
				return func(string) bool { return false }
			}
			var a *grammar.Automaton
			if err == nil {
				a, err = grammar.NewAutomaton(g, grammartest.Bytes())
			}
			if err != nil {
				t.Fatalf("%s: %v", c.expr, err)
			}
			return func(text string) bool {
				s := a.Read(a.Start(), []byte(text))
				return s != nil && s.Accepting()
			}
		}
		type part struct {
			got  func(text string) bool
			want *regexp.Regexp
			yes  bool
		}
		parts := []part{{found(rest), regexp.MustCompile(c.rest), true}}
		for i := range must {
			parts = append(parts, part{found(must[i]), regexp.MustCompile(c.must[i]), true})
		}
		for i := range not {
			parts = append(parts, part{found(not[i]), regexp.MustCompile(c.not[i]), false})
		}
		for _, text := range all {
			got, want := true, true
			for _, p := range parts {
				got = got && p.got(text) == p.yes
				want = want && p.want.MatchString(text) == p.yes
			}
			if got != want {
				t.Fatalf("%s: found in %q: %v", c.expr, text, got)
			}
		}
	}
	for _, expr := range []string{`(?!a)b`, `^(?!a)b|c`, `a(?=b)`, `^(?!a)*b`, `^(?!^a|b)c`, `^(?!a`, `^((?!a)b)`, `^(?<!a)b`, `^(?!(?=a))b`} {
		rest, must, not := regex.Ahead(expr)
		for _, e := range append(append([]string{rest}, must...), not...) {
			if _, err := compile(e, true); err != nil {
				rest = ""
				if !strings.Contains(err.Error(), "lookaround") && !strings.Contains(err.Error(), "without )") {
					t.Errorf("%s: %v", expr, err)
				}
			}
		}
		if rest != "" {
			t.Errorf("%s is taken for %q, %q and %q", expr, rest, must, not)
		}
	}
}
