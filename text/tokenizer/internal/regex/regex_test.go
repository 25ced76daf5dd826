package regex

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/dlclark/regexp2"
	"pgregory.net/rapid"

	"talf/internal/limits"
)

// meterFor is what a tokenizer allows for a text.
func meterFor(s string) *limits.Meter {
	return limits.NewMeter(context.Background(), limits.Budget{Steps: int64(1<<10*len(s) + 1<<20), Bytes: int64(64*len(s) + 1<<20)})
}

func matches(t interface{ Fatalf(string, ...any) }, p *Pattern, s string) [][2]int {
	var out [][2]int
	if err := p.Each(s, meterFor(s), func(start, end int) { out = append(out, [2]int{start, end}) }); err != nil {
		t.Fatalf("%s on %.50q: %v", p, s, err)
	}
	return out
}

// oracle lists the matches of regexp2, which counts characters.
func oracle(t interface{ Fatalf(string, ...any) }, re *regexp2.Regexp, s string) [][2]int {
	at := []int{}
	for i := range s {
		at = append(at, i)
	}
	at = append(at, len(s))
	var out [][2]int
	m, err := re.FindStringMatch(s)
	for ; m != nil && err == nil; m, err = re.FindNextMatch(m) {
		out = append(out, [2]int{at[m.Index], at[m.Index+m.Length]})
	}
	if err != nil {
		t.Fatalf("%s on %q: %v", re, s, err)
	}
	return out
}

func drawText(t *rapid.T, chars string) string {
	return rapid.StringOfN(rapid.SampledFrom([]rune(chars)), 0, 24, -1).Draw(t, "text")
}

// Patterns of published tokenizers, and others with all that the dialect has.
var published = []string{
	`'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`,
	`(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`,
	`[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+`,
	"[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
	`\p{N}{1,3}(?=(?:\p{N}{3})*(?:\P{N}|$))`,
	`(?=(\d{3})+(?!\d))`, `\d(?=(\d\d)*\b)`, `(?<=[\n])|(?<!a)b`, `(?<=ab|c).`, `(?<!ab|c)\w`,
	`\b\w`, `\B.`, `^.+?$`, `(?i)[^k]+`, `[a-c\-x]{2,3}z`, `x{0}y`, `(?:ab|a)(?:c|bcd)`, `a|ab|`, `[一-龥]+|\x41\u0042\x{43}`, `{a}{|,{2}`,
}

func TestPublishedPatternsEqualTheOracle(t *testing.T) {
	for _, expr := range published {
		p, err := Compile(expr)
		if err != nil {
			t.Fatal(err)
		}
		re := regexp2.MustCompile(expr, regexp2.Multiline)
		rapid.Check(t, func(rt *rapid.T) {
			s := drawText(rt, "aAbcdelLrRsStvVmM'’xyz019٣½ \t\r\n\u00a0中é\u0301.,!/-_$\U0001F600ABCk")
			if got, want := matches(rt, p, s), oracle(rt, re, s); !slices.Equal(got, want) {
				rt.Fatalf("%s on %q: %v, want %v", expr, s, got, want)
			}
		})
	}
}

// drawPattern draws a pattern of small parts, whose repetitions nest, and the same with counted repetitions
// written out: regexp2 matches (?:(?:.b|a)+){2} otherwise than Perl and Python do.
func drawPattern(t *rapid.T, depth int) (expr, plain string) {
	atom := rapid.SampledFrom([]string{"a", "b", "ab", ".", "[ab]", "[^a]", `\s`, `\S`, "c", `\b`, "$", "^", "é"})
	kind := 9
	if depth > 0 {
		kind = rapid.IntRange(0, 9).Draw(t, "kind")
	}
	sub := func(before, after string) {
		e, p := drawPattern(t, depth-1)
		expr, plain = expr+before+e+after, plain+before+p+after
	}
	switch kind {
	case 0, 1:
		sub("", "")
		sub("", "")
	case 2, 3:
		sub("(?:", "|")
		sub("", ")")
	case 4, 5, 6:
		sub("(?:", ")")
		times, one := rapid.SampledFrom([]string{"*", "+", "?", "*?", "+?", "??", "{2}", "{1,3}", "{2,}"}).Draw(t, "times"), plain
		expr += times
		switch times {
		case "{2}":
			plain = one + one
		case "{1,3}":
			plain = one + "(?:" + one + one + "?)?"
		case "{2,}":
			plain = one + one + one + "*"
		default:
			plain += times
		}
	case 7:
		sub(rapid.SampledFrom([]string{"(?=", "(?!", "(?<=", "(?<!"}).Draw(t, "look"), ")")
	case 8:
		sub("(", ")")
	default:
		expr = atom.Draw(t, "atom")
		plain = expr
	}
	return expr, plain
}

func TestRandomPatternsEqualTheOracle(t *testing.T) {
	drawn, tried := 0, 0
	rapid.Check(t, func(rt *rapid.T) {
		expr, plain := drawPattern(rt, 4)
		drawn++
		p, err := Compile(expr)
		if err != nil {
			return // a look behind of variable width, or a repetition of what may be empty
		}
		tried++
		re := regexp2.MustCompile(plain, regexp2.Multiline)
		for range 4 {
			s := drawText(rt, "aaabbc \né")
			if got, want := matches(rt, p, s), oracle(rt, re, s); !slices.Equal(got, want) {
				rt.Fatalf("%s on %q: %v, want %v", expr, s, got, want)
			}
		}
	})
	if 3*tried < drawn {
		t.Errorf("%d of %d patterns were compiled, want a third", tried, drawn)
	}
}

// The work grows with the text, not with its square or worse: each of these takes a backtracking
// engine exponential or quadratic time.
func TestWorkIsLinear(t *testing.T) {
	for _, c := range []struct{ expr, unit, end string }{
		{`(a+)+c`, "a", "b"},
		{`(a|a)*c`, "a", ""},
		{`(?:a|b|ab)+c`, "ab", ""},
		{`(.*)(.*)(.*)(.*)x`, "a", ""},
		{`\s+$`, " ", "x"},
		{`\s+(?!\S)|\s+`, " ", "x"},
		{`\s+(?=x)y|\s`, " ", "x"},
		{`(?=\s*x)\s`, " ", "x"},
		{`(?!\s*x)\s| `, " ", "x"},
		{`(?=(?:a+)+c)a|a`, "a", "b"},
		{`\d{1,3}(?=(?:\d{3})*\b)`, "1", ""},
		{`(?=(?=(?=a*b)a*b)a*b)a`, "a", "b"},
		{`(?<=(?=a*c)a)a|a`, "a", "b"},
		{`a{1,200}b|a`, "a", ""},
		{`(?:(?:(?:a+)+)+)+$`, "a", "b"},
		{`.*?.*?.*?x`, "a", ""},
		{`|a`, "a", ""},
	} {
		p, err := Compile(c.expr)
		if err != nil {
			t.Fatal(err)
		}
		steps := func(n int) int64 {
			s := strings.Repeat(c.unit, n/len(c.unit)) + c.end
			const most = 1 << 40
			m := limits.NewMeter(context.Background(), limits.Budget{Steps: most, Bytes: most})
			if err := p.Each(s, m, func(int, int) {}); err != nil {
				t.Fatal(err)
			}
			var left int64
			for bit := int64(most); bit > 0; bit /= 2 {
				if m.Step(int(bit)) == nil {
					left += bit
				} else if err := m.Step(int(-bit)); err != nil {
					t.Fatal(err)
				}
			}
			return most - left
		}
		short, long := steps(20_000), steps(200_000)
		if long > 12*short+100_000 || long > 1000*200_000 {
			t.Errorf("%s: %d steps for 20,000 bytes, %d for 200,000", c.expr, short, long)
		}
	}
}

func TestMemoryIsCharged(t *testing.T) {
	expr := strings.Repeat("(?:a|b)", 500) + "c"
	p, err := Compile(expr)
	if err != nil {
		t.Fatal(err)
	}
	s := strings.Repeat("ab", 1<<16)
	m := limits.NewMeter(context.Background(), limits.Budget{Steps: 1 << 40, Bytes: 1 << 16})
	if err := p.Each(s, m, func(int, int) {}); !errors.Is(err, limits.ErrTooLarge) {
		t.Errorf("%v, want ErrTooLarge", err)
	}
	// What a search took is given back.
	p, err = Compile(`(?=\s*x)\s|a*b`)
	if err != nil {
		t.Fatal(err)
	}
	m = limits.NewMeter(context.Background(), limits.Budget{Steps: 1 << 40, Bytes: 1 << 22})
	for range 20 {
		if err := p.Each(strings.Repeat(" ", 30_000)+"x"+strings.Repeat("a", 30_000), m, func(int, int) {}); err != nil {
			t.Fatal(err)
		}
	}
}

func TestUnsupportedPatternsAreRefused(t *testing.T) {
	for expr, want := range map[string]string{
		`a++`:            "a++",
		`a{2}{3}`:        "quantifier {2}{3}",
		`a{2}?`:          "{2}?",
		`(?:a?)*`:        "may be empty",
		`(?:|b)+`:        "may be empty",
		`(\b)*`:          "may be empty",
		`(a)\1`:          "reference",
		`(?>a)`:          "(?>",
		`(?<n>a)`:        "(?<n",
		`(?m:.)`:         "(?m",
		`(?#a)`:          "(?#",
		`(?<=a+)b`:       "variable width",
		`(?<!x(?:a|bc))`: "variable width",
		`[a[b]]`:         "set within a set",
		`[a&&b]`:         "&&",
		`[]a]`:           "start of a set",
		`[^]a]`:          "start of a set",
		`[a`:             "without its ]",
		`[a-\s]`:         "set at its end",
		`[z-a]`:          "wrong order",
		`(a`:             "without its )",
		`a)`:             "without its (",
		`*a`:             "nothing before *",
		`{2}`:            "nothing before {",
		`a{,3}`:          "{,",
		`a{5000}`:        "at most",
		`a{3,2}`:         "not more first",
		`(?:a{99}){99}`:  "written out",
		`\h`:             `\h`,
		`\R`:             `\R`,
		`\A`:             `\A`,
		`\p{Nope}`:       "Nope",
		`\pL`:            "without {}",
		`\x4`:            "hexadecimal",
		`\`:              "nothing after",
		`a(?i)b|c`:       "(?i)",
		"\xff":           "UTF-8",
		strings.Repeat("(", 200) + strings.Repeat(")", 200): "groups within groups",
		strings.Repeat("a", maxPattern+1):                   "bytes",
	} {
		if _, err := Compile(expr); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40s: %v, want an error with %q", expr, err, want)
		}
	}
}

// Case is ignored by Unicode's simple folding, as in Oniguruma.
func TestCaseIsFolded(t *testing.T) {
	for _, c := range []struct {
		expr, s string
		want    bool
	}{
		{"(?i:s)", "ſ", true},
		{"(?i)K", "\u212a", true},
		{"(?i:ß)", "ẞ", true},
		{"(?i:[a-c])x", "Bx", true},
		{"(?i:[a-c])x", "BX", false},
		{"(?i:[^a-c])", "B", false},
		{"(?i:é)", "É", true},
		{`(?i:\p{Lu})`, "a", true},
		{"s", "S", false},
	} {
		p, err := Compile(c.expr)
		if err != nil {
			t.Fatal(err)
		}
		if got := len(matches(t, p, c.s)) > 0; got != c.want {
			t.Errorf("%s on %q: %v", c.expr, c.s, got)
		}
	}
}

// Bytes that are not UTF-8 are U+FFFD, one each.
func TestBrokenTextIsMatchedByteByByte(t *testing.T) {
	p, err := Compile("[^a]|(?<=.)a")
	if err != nil {
		t.Fatal(err)
	}
	if got, want := fmt.Sprint(matches(t, p, "\xe4\xb8a\xffa")), "[[0 1] [1 2] [2 3] [3 4] [4 5]]"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

func BenchmarkEach(b *testing.B) {
	text := strings.Repeat("Once upon a time, there were 1234 naïve cafés.\n\n  It's 中文 — isn't it?  ", 200)
	for i, expr := range published[:3] {
		b.Run(fmt.Sprint("this/", i), func(b *testing.B) {
			p, err := Compile(expr)
			if err != nil {
				b.Fatal(err)
			}
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				matches(b, p, text)
			}
		})
		b.Run(fmt.Sprint("regexp2/", i), func(b *testing.B) {
			re := regexp2.MustCompile(expr, regexp2.Multiline)
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				oracle(b, re, text)
			}
		})
	}
}
