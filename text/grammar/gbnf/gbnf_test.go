package gbnf_test

import (
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	"talf/internal/leak"
	"talf/internal/limits"
	"talf/text/grammar"
	"talf/text/grammar/gbnf"
	"talf/text/grammar/grammartest"
)

func TestMain(m *testing.M) { os.Exit(leak.Main(m.Run)) }

func compile(text string) (*grammar.Grammar, error) {
	b := grammar.NewBuilder()
	e, err := gbnf.Compile(b, text)
	if err != nil {
		return nil, err
	}
	return b.Compile(e)
}

func TestEveryTextOfAGrammarIsReached(t *testing.T) {
	for _, c := range []struct {
		name, grammar string
		most          int
		want          []string
	}{
		{"alternatives over lines", "root ::= \"a\" |\n  \"b\"   # comment\n\n# more\nother ::= \"x\"\n", 3, []string{"a", "b"}},
		{"references", "root ::= x y\r\nx ::= [ab]\ny ::= x? \"-\"", 3, []string{"a-", "aa-", "ab-", "b-", "ba-", "bb-"}},
		{"counts", `root ::= "a"{2} | "b"{1,2} | "c"{3,} | "d"{ 0 , 1 }`, 4, []string{"", "aa", "b", "bb", "ccc", "cccc", "d"}},
		{"balanced brackets", `root ::= "(" root ")" root | ""`, 6, []string{
			"", "(())", "((()))", "(()())", "(())()", "()", "()(())", "()()", "()()()",
		}},
		{"groups over lines", "root ::= (\n \"a\"\n \"b\" |\n \"c\" )+", 3, []string{"ab", "abc", "c", "cab", "cc", "ccc"}},
		{"escapes", `root ::= "\x41\u00e9\n\"" | [\]\-\\] [^\x00-\xff]?`, 2, []string{`-`, `\`, `]`}},
		{"a class without characters", `root ::= "a" | []`, 2, []string{"a"}},
		{"a rule that never ends is no alternative", "root ::= \"a\" | loop\nloop ::= \"b\" loop", 3, []string{"a"}},
		{"right recursion", "root ::= \"a\" root | \"b\"", 3, []string{"aab", "ab", "b"}},
		{"a palindrome, which needs every stack", `root ::= "a" root "a" | "b" root "b" | "c"`, 5, []string{"aacaa", "abcba", "aca", "bacab", "bbcbb", "bcb", "c"}},
	} {
		g, err := compile(c.grammar)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		got, err := grammartest.Texts(g, c.most)
		slices.Sort(c.want)
		got = slices.DeleteFunc(got, func(s string) bool { return c.name == "escapes" && len(s) > 1 })
		if err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, %v, want %q", c.name, got, err, c.want)
		}
	}
}

func TestMistakesAreNamedWithTheirLine(t *testing.T) {
	for text, want := range map[string]string{
		"":                               `"root"`,
		"a ::= \"x\"":                    `"root"`,
		"root ::= a":                     `rule "a" is used`,
		"root ::= \"a\"\nroot ::= \"b\"": "line 2: rule \"root\" is defined twice",
		"root := \"a\"":                  "want ::=",
		"root ::= \"a":                   "not closed",
		"root ::= \"a\n\"":               "not closed",
		"root ::= [a":                    "not closed",
		"root ::= (\"a\"":                "in a group",
		"root ::= \"a\" )":               "want an element",
		"root ::= \"\\q\"":               `\q in a literal`,
		"root ::= \"\\x4\"":              "hexadecimal",
		"root ::= \"\\ud800\"":           "hexadecimal",
		"root ::= [b-a]":                 "from low to high",
		"root ::= \"a\"{2,1}":            "want {n}",
		"root ::= \"a\"{x}":              "want {n}",
		"root ::= \"a\"{99999999}":       "count",
		"root ::= <[1]>":                 "references to tokens",
		"\n\nroot ::= \"a\" $":           "line 3",
		"= 3":                            "name of a rule",
		"root ::= root \"a\" | \"b\"":    "left recursion",
		"root ::= x\nx ::= y? root \"a\" | \"b\"\ny ::= \"\"":                       "left recursion",
		"root ::= (x? \"\")* root | \"a\"\nx ::= \"b\"":                             "left recursion",
		"root ::= \"a\" root":                                                       "no text",
		"root ::= " + strings.Repeat("(", 300) + "\"a\"" + strings.Repeat(")", 300): "nested",
		"root ::= \"\xff\"":                                                         "UTF-8",
	} {
		if _, err := compile(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60q: %v, want an error with %q", text, err, want)
		}
	}
	if _, err := compile("root ::= \"" + strings.Repeat("a", limits.GrammarBytes) + "\""); !errors.Is(err, limits.ErrTooLarge) {
		t.Errorf("a grammar of more than a megabyte: %v", err)
	}
}

func FuzzCompile(f *testing.F) {
	for _, s := range []string{"root ::= \"a\" | [b-c]{1,3} x\nx ::= (root)? \"!\"", "root ::= \"(\" root \")\" root | \"\"", "root ::= .{0,9}", "root ::= ((\"\"*)*)*"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		g, err := compile(text)
		if err != nil {
			return
		}
		a, err := grammar.NewAutomaton(g, grammartest.Words("a", "b", "ab", "()", "é", "\n", "!"))
		if err != nil {
			return
		}
		s := a.Start()
		for range 8 {
			mask, err := a.Mask(s)
			if err != nil || !mask.Any() {
				return
			}
			for id := range int32(7) {
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
