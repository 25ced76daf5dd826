package regex_test

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"talf/internal/leak"
	"talf/text/grammar"
	"talf/text/grammar/grammartest"
	"talf/text/grammar/regex"
)

func TestMain(m *testing.M) { os.Exit(leak.Main(m.Run)) }

func compile(text string, search bool) (*grammar.Grammar, error) {
	b := grammar.NewBuilder()
	e, err := regex.Compile(b, text, regex.Config{Search: search})
	if err != nil {
		return nil, err
	}
	return b.Compile(e)
}

// Every text over a small alphabet matches as Go's regexp says it does, and no text with another
// byte does unless the expression says so.
func TestMatchesAreThoseOfGosRegexp(t *testing.T) {
	const alphabet = "ab-é"
	var all []string
	var grow func(s string, n int)
	grow = func(s string, n int) {
		all = append(all, s)
		if n > 0 {
			for _, r := range alphabet {
				grow(s+string(r), n-1)
			}
		}
	}
	grow("", 4)
	for _, expr := range []string{
		"", "a", "ab|ba", "a*b", "(a|b)*", "(a*)*", "(a*b?){0,3}", "(a?){2}", "(a?){0,1000}b", "(a|aa){1,2}", "a{2}", "a{1,}b{0,1}", "[ab]{2,3}",
		"[^a]*", "[a-]+", "[é-ê]", `\x61\u0062`, `a\-b`, "(?:ab)+", "(?<n>a)b", "(a|b|)(b|a)?", `[\x61-b]{1,2}`, "a+?b??", "(|a)+", "((a|b)+-)*a",
		"^ab$", "^(a|b)$", "^a|b$", "(^a|b)", "a$|^b", "(?:^ab?|b)-$", `\w*`, `\W`, "a.b", "[^]", "(a{0,2}){2,3}",
	} {
		if expr == "[^]" {
			continue // any character in ECMA-262, an error in Go
		}
		for _, search := range []bool{false, true} {
			g, err := compile(expr, search)
			if err != nil {
				t.Errorf("%s: %v", expr, err)
				continue
			}
			goExpr := "(?s:" + strings.ReplaceAll(strings.ReplaceAll(expr, `\u0062`, "b"), "(?<n>", "(?P<n>") + ")"
			if !search {
				goExpr = `\A` + goExpr + `\z`
			}
			if strings.Contains(expr, "{0,1000}") && !search {
				goExpr = `\A` + expr + `\z`
			}
			re := regexp.MustCompile(goExpr)
			a, err := grammar.NewAutomaton(g, grammartest.Bytes())
			if err != nil {
				t.Fatal(err)
			}
			for _, s := range all {
				state := a.Read(a.Start(), []byte(s))
				if got, want := state != nil && state.Accepting(), re.MatchString(s); got != want {
					t.Errorf("%q (search %v) matches %q: %v, Go says %v", expr, search, s, got, want)
				}
			}
		}
	}
}

// What is enumerated is all that matches, and no beginning is a dead end.
func TestEveryMatchIsReached(t *testing.T) {
	for expr, want := range map[string][]string{
		"a|bc?":         {"a", "b", "bc"},
		"[0-2]{1,2}":    {"0", "00", "01", "02", "1", "10", "11", "12", "2", "20", "21", "22"},
		`\u{e9}|x`:      {"x", "é"},
		`\p{Lu}\d?z{9}`: nil,
		`(yes|no)!`:     {"no!", "yes!"},
		`\ud83d\ude00`:  {"😀"},
		"[]|a":          {"a"},
		`\cJ[\b]`:       {"\n\b"},
	} {
		g, err := compile(expr, false)
		if err != nil {
			t.Errorf("%s: %v", expr, err)
			continue
		}
		if got, err := grammartest.Texts(g, 4); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %q, %v, want %q", expr, got, err, want)
		}
	}
}

func TestClassesAreThoseOfECMAScript(t *testing.T) {
	for expr, c := range map[string]struct{ in, out string }{
		`\s`:                {" \t\n\v\f\r\u00a0\ufeff\u2028\u2029\u3000", "\u200bx"},
		`.`:                 {"a\x00é\u0085", "\n\r\u2028\u2029"},
		`\S`:                {"x\u200b", "\u3000 "},
		`\d`:                {"09", "\u0660a"},
		`[^\W\d]`:           {"a_Z", "0é-"},
		`[^]`:               {"\na", ""},
		`\p{Script=Greek}`:  {"λΩ", "lя"},
		`\P{L}`:             {"1 ", "aλ"},
		`[\p{Lu}\p{Nd}_-]`:  {"AΩ7_-", "a+"},
		`\/|\.|\\|\{|\$|\^`: {`/.\{$^`, "a"},
	} {
		g, err := compile(expr, false)
		if err != nil {
			t.Errorf("%s: %v", expr, err)
			continue
		}
		a, err := grammar.NewAutomaton(g, grammartest.Bytes())
		if err != nil {
			t.Fatal(err)
		}
		for text, want := range map[string]bool{c.in: true, c.out: false} {
			for _, r := range text {
				s := a.Read(a.Start(), []byte(string(r)))
				if got := s != nil && s.Accepting(); got != want {
					t.Errorf("%s matches %q: %v", expr, r, got)
				}
			}
		}
	}
}

func TestWhatIsNotSupportedIsRefusedByName(t *testing.T) {
	for expr, want := range map[string]string{
		`(a)\1`: "back references", `a(?=b)`: "lookaround", `(?<!a)b`: "lookaround", `\bfoo`: "word boundaries", `(?i)a`: "group of this kind",
		`a^b`: "anchor", `(a$)b`: "anchor", `^*`: "anchor", `a**`: "quantifier after", `*a`: "after nothing", `a{2,1}`: "{n,m}", `a{,2}`: "{n,m}",
		`a{99999999}`: "at most", `(a`: "without )", `a)`: "closes nothing", `[a`: "without ]", `[b-a]`: "range", `\`: "at the end", `\q`: "not an escape",
		`\xg1`: "digits", `\p{Nonsense}`: "not supported", `\k<n>`: "back references", `a]`: "closes nothing", `\u{110000}`: "code point",
		strings.Repeat("(", 300) + strings.Repeat(")", 300): "nested",
		`\07`: "octal",
	} {
		if _, err := compile(expr, false); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.20s: %v, want an error with %q", expr, err, want)
		}
	}
	if _, err := compile("[]", false); err == nil || !strings.Contains(err.Error(), "no text") {
		t.Errorf("an expression that nothing matches: %v", err)
	}
}

func FuzzCompile(f *testing.F) {
	for _, s := range []string{`^[a-z]+(-\d{2,4})?$`, `(a|b)*\u{1F600}`, `((a?){9}){9}`, `\p{L}{1,3}|.`, `[^\W_]`, `^(?!a)(?=[)]|.*\d)b`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		rest, must, not := regex.Ahead(text)
		if rest != text && len(must)+len(not) == 0 {
			t.Errorf("%q is taken for %q", text, rest)
		}
		g, err := compile(rest, true)
		if err != nil {
			return
		}
		a, err := grammar.NewAutomaton(g, grammartest.Words("a", "b", "ab", "-1", "é", "\n"))
		if err != nil {
			return
		}
		s := a.Start()
		for range 8 { // follow the first token that is allowed
			mask, err := a.Mask(s)
			if err != nil || !mask.Any() {
				return
			}
			for id := range int32(6) {
				if mask.Has(id) {
					if s = a.Next(s, id); s == nil {
						t.Fatalf("%q: token %d is allowed and leads nowhere", text, id)
					}
					break
				}
			}
		}
	})
}
