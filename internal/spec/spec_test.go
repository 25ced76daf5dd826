package spec_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"talf/internal/spec"
)

// A dish is a line of a table as packages define them.
type dish struct {
	spec.Line
	Hot bool
}

func menu() spec.Table[dish] {
	return spec.Table[dish]{Kind: "dish", Lines: []dish{
		{Line: spec.Line{Name: "water", Doc: "without parameters"}},
		{Hot: true, Line: spec.Line{
			Name: "soup", Doc: "one of each type", Main: "kind",
			Params: []spec.Param{
				spec.Text("kind", "pea", "what is in it"),
				spec.Int("N", 60, 1, 1024, "peas"),
				spec.Float("th", 0.6, spec.Below(0, 1), "thickness").Or("auto"),
				spec.Float("salt", 0.5, spec.Closed(0, 1), "share of salt"),
				spec.Choice("size", "of the bowl", "large", "small", "none"),
				spec.Switch("bread", true, "with bread"),
				spec.Switch("cheese", false, "with cheese"),
				spec.File("recipe", "where it is written"),
				spec.Floats("parts", "0.5/0.25", spec.Closed(0, 1), "shares of the ingredients"),
			},
		}},
	}}
}

func TestTheTableIsSound(t *testing.T) {
	if err := menu().Check(); err != nil {
		t.Error(err)
	}
}

func show(v spec.Values) string {
	th := "auto"
	if !v.Is("th", "auto") {
		th = fmt.Sprint(v.Float("th"))
	}
	return fmt.Sprint(v.Text("kind"), " ", v.Int("N"), " ", th, " ", v.Float("salt"), " ", v.Choice("size"), " ", v.On("bread"), " ", v.On("cheese"),
		" ", v.File("recipe"), " ", v.Floats("parts"))
}

func TestValuesAreReadByType(t *testing.T) {
	for text, want := range map[string]string{
		"soup":                    "pea 60 0.6 0.5 0 true false  [0.5 0.25]",
		"soup:":                   "pea 60 0.6 0.5 0 true false  [0.5 0.25]",
		"soup:bean":               "bean 60 0.6 0.5 0 true false  [0.5 0.25]",
		"soup:N=1,kind=bean":      "bean 1 0.6 0.5 0 true false  [0.5 0.25]",
		"soup:th=auto,size=none":  "pea 60 auto 0.5 2 true false  [0.5 0.25]",
		"soup:th=0,bread=off":     "pea 60 0 0.5 0 false false  [0.5 0.25]",
		"soup:recipe=a=b.txt":     "pea 60 0.6 0.5 0 true false a=b.txt [0.5 0.25]",
		"soup:./a=b":              "./a=b 60 0.6 0.5 0 true false  [0.5 0.25]",
		"soup:soup:th=auto+water": "soup:th=auto+water 60 0.6 0.5 0 true false  [0.5 0.25]",
		"soup:parts=1,cheese=on":  "pea 60 0.6 0.5 0 true true  [1]",
	} {
		line, v, err := menu().Parse(text)
		if err != nil || !line.Hot {
			t.Errorf("%q: %+v, %v", text, line, err)
			continue
		}
		if got := show(v); got != want {
			t.Errorf("%q is %q, want %q", text, got, want)
		}
	}
}

func TestMistakesAreNamed(t *testing.T) {
	for text, want := range map[string]string{
		"":                            `unknown dish "", want one of water, soup`,
		"suop":                        `unknown dish "suop" (did you mean soup?), want one of water, soup`,
		"steak":                       `unknown dish "steak", want one of water, soup`,
		"water:N=1":                   `dish "water:N=1": unknown parameter "N": it has no parameters`,
		"soup:n=1":                    `unknown parameter "n" (did you mean N?): known are kind, N, th`,
		"soup:breed=on":               `unknown parameter "breed" (did you mean bread?)`,
		"soup:N":                      `parameter "N" has no value, want N=…`,
		"soup:N=1,bean":               `unknown parameter "bean": known`,
		"soup:bean,kind=pea":          `parameter "kind" is given twice`,
		"soup:N=1,N=1":                `parameter "N" is given twice`,
		"soup:N=0":                    `N is 0, want 1..1024`,
		"soup:N=1025":                 `N is 1025, want 1..1024`,
		"soup:N=99999999999999999999": `N is 99999999999999999999, want 1..1024`,
		"soup:N=many":                 `N is "many", want a whole number, 1..1024`,
		"soup:th=1":                   `th is 1, want 0 <= th < 1`,
		"soup:th=NaN":                 `th is NaN, want 0 <= th < 1`,
		"soup:th=low":                 `th is "low", want auto or a number, 0 <= th < 1`,
		"soup:salt=-1":                `salt is -1, want 0..1`,
		"soup:salt=2":                 `salt is 2, want 0..1`,
		"soup:salt=auto":              `salt is "auto", want a number, 0..1`,
		"soup:size=huge":              `size is "huge", want large, small or none`,
		"soup:bread=yes":              `bread is "yes", want on or off`,
		"soup:parts=0.5/much":         `parts is "0.5/much", want numbers such as 0.5/0.2`,
		"soup:parts=0.5/2":            `parts is 2, want 0..1`,
		"soup:N=1,,th=0":              `unknown parameter ""`,
		"soup:recipe=a,recipe":        `parameter "recipe" has no value`,
	} {
		_, _, err := menu().Parse(text)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

func TestFilesAreReportedAndNothingElseIs(t *testing.T) {
	for text, want := range map[string][]string{"soup": nil, "soup:spec_test.go": nil, "soup:recipe=none.txt,kind=spec.go": {"none.txt"}} {
		_, v, err := menu().Parse(text)
		if diff := cmp.Diff(want, v.Files()); err != nil || diff != "" {
			t.Errorf("%q: %v\n%s", text, err, diff)
		}
	}
}

func TestGivenDiffersFromDefault(t *testing.T) {
	_, v, err := menu().Parse("soup:N=60")
	if err != nil || !v.Given("N") || v.Given("th") {
		t.Errorf("N given: %v, th given: %v, %v", v.Given("N"), v.Given("th"), err)
	}
}

// A set of values replaces defaults and nothing that was given.
func TestASetReplacesDefaults(t *testing.T) {
	line, v, err := menu().Parse("soup:N=60,size=none")
	if err != nil {
		t.Fatal(err)
	}
	got, err := line.Under(v, "bean,N=5,th=auto,size=small")
	if err != nil || show(got) != "bean 60 auto 0.5 2 true false  [0.5 0.25]" {
		t.Errorf("%q, %v", show(got), err)
	}
	if !got.Given("N") || got.Given("th") || got.Given("salt") {
		t.Error("what was given has changed")
	}
	if diff := cmp.Diff(v.Files(), got.Files()); diff != "" {
		t.Error(diff)
	}
	if _, err := line.Under(v, "N=0"); err == nil {
		t.Error("a set with a value out of range is taken")
	}
}

// 1 + 2^-24 and a little: rounded to float64 first it would be half-way, and become 1.
func TestFloat32IsRoundedOnce(t *testing.T) {
	_, v, err := spec.Table[dish]{Kind: "dish", Lines: []dish{{Line: spec.Line{
		Name: "tea", Doc: "x", Params: []spec.Param{spec.Float("x", 0, spec.Closed(0, 2), "a number")},
	}}}}.Parse("tea:x=1.00000005960464477539062500000001")
	if err != nil || v.Float32("x") != 1+0x1p-23 {
		t.Errorf("%v, %v, want %v", v.Float32("x"), err, 1+0x1p-23)
	}
}

func TestBrokenTablesAreCaught(t *testing.T) {
	n := spec.Int("N", 1, 1, 2, "a number")
	for want, l := range map[string][]spec.Line{
		"used twice":                      {{Name: "a", Doc: "x"}, {Name: "a", Doc: "x"}},
		"not a word":                      {{Name: "a:b", Doc: "x"}},
		"no description":                  {{Name: "a"}},
		"parameter N has no description":  {{Name: "a", Doc: "x", Params: []spec.Param{spec.Int("N", 1, 1, 2, "")}}},
		`parameter "N" is declared twice`: {{Name: "a", Doc: "x", Params: []spec.Param{n, n}}},
		"has no type":                     {{Name: "a", Doc: "x", Params: []spec.Param{{Name: "N", Doc: "x"}}}},
		"the default of parameter N":      {{Name: "a", Doc: "x", Params: []spec.Param{n.With("3")}}},
		"the main parameter":              {{Name: "a", Doc: "x", Main: "M", Params: []spec.Param{n}}},
	} {
		var lines []dish
		for _, x := range l {
			lines = append(lines, dish{Line: x})
		}
		if err := (spec.Table[dish]{Kind: "dish", Lines: lines}).Check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// Any text is either values or an error, and values mean the same when they are written out in
// full.
func TestAnySpecificationReadsBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var items []string
		keys := rapid.Permutation([]string{"kind", "N", "th", "size", "parts"}).Draw(t, "keys")
		for _, k := range keys[:rapid.IntRange(0, len(keys)).Draw(t, "given")] {
			x := map[string]*rapid.Generator[string]{
				"kind":  rapid.StringMatching(`[a-z=:+;./]{0,6}`),
				"N":     rapid.Custom(func(t *rapid.T) string { return fmt.Sprint(rapid.IntRange(1, 1024).Draw(t, "n")) }),
				"th":    rapid.SampledFrom([]string{"auto", "0", "0.999", "1e-9"}),
				"size":  rapid.SampledFrom([]string{"large", "small", "none"}),
				"parts": rapid.SampledFrom([]string{"1", "0.5/0.5/0", "1e-3/1"}),
			}[k].Draw(t, k)
			items = append(items, k+"="+x)
		}
		_, v, err := menu().Parse("soup:" + strings.Join(items, ","))
		if err != nil {
			t.Fatal(err)
		}
		for _, k := range keys {
			i := slices.IndexFunc(items, func(s string) bool { return strings.HasPrefix(s, k+"=") })
			if v.Given(k) != (i >= 0) || i >= 0 && v.Text(k) != strings.TrimPrefix(items[i], k+"=") {
				t.Fatalf("%v: %s is %q", items, k, v.Text(k))
			}
		}
	})
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{"soup:th=0.4,N=60", "water", "soup:", "soup:=,", ":", "soup:N"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if line, v, err := menu().Parse(text); err == nil && line.Hot {
			_ = show(v)
		}
	})
}
