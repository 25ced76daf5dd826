package main

import (
	"go/parser"
	"go/token"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"talf/infer/draft/constants"
)

// The overlay has a variable of the same value in place of every constant, and nothing else is changed.
func TestTheOverlayHasVariablesInPlaceOfConstants(t *testing.T) {
	dir := t.TempDir()
	if err := overlay("../..", dir); err != nil {
		t.Fatal(err)
	}
	read := func(path string) string {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	vars, list := read(filepath.Join(dir, "tuned.go")), read(filepath.Join(dir, "overlay.json"))
	var before, after string
	paths, err := filepath.Glob(filepath.Join("../..", chooserDir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		got := read(filepath.Join(dir, filepath.Base(path)))
		if _, err := parser.ParseFile(token.NewFileSet(), path, got, 0); err != nil {
			t.Error(err)
		}
		if !strings.Contains(list, filepath.Base(path)) {
			t.Errorf("overlay.json does not replace %s:\n%s", path, list)
		}
		before, after = before+read(path), after+got
	}
	words := func(s string) []string { return strings.Fields(s) }
	var gone []string
	b, a := words(before), words(after)
	for len(b) > 0 {
		if len(a) > 0 && a[0] == b[0] {
			a, b = a[1:], b[1:]
			continue
		}
		gone, b = append(gone, strings.Join(b[:3], " ")), b[3:]
	}
	if len(a) > 0 || len(gone) != len(levers) {
		t.Fatalf("the overlay lacks %q, want %d constants; it adds %q", gone, len(levers), a)
	}
	for _, l := range levers {
		i := slices.IndexFunc(gone, func(s string) bool { return strings.HasPrefix(s, l.name+" = ") })
		if i < 0 {
			t.Errorf("%s is still a constant", l.name)
			continue
		}
		_, value, _ := strings.Cut(gone[i], "= ")
		fields := words(vars)
		at := slices.Index(fields, l.name)
		if at < 0 || !slices.Equal(fields[at:at+4], []string{l.name, l.of, "=", value}) {
			t.Errorf("%s = %s is not among the variables:\n%s", l.name, value, vars)
		}
	}
}

func TestConstantsThatDoNotExistAreNamed(t *testing.T) {
	src := func() map[string][]byte {
		return map[string][]byte{"a.go": []byte("package a\n\nconst (\n\tx = 1\n\ty\n\tp, q = 1, 2\n)\n")}
	}
	for name, want := range map[string]string{"z": "no constants z", "p": "one constant", "y": "one constant"} {
		if _, err := release(src(), []lever{{name: name, of: "int"}}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", name, err, want)
		}
	}
	if err := run(t.Context(), "auto", []string{"none.rec"}, &options{}); err == nil || !strings.Contains(err.Error(), "-overlay") {
		t.Errorf("without the overlay: %v", err)
	}
	vary(t)
	if err := run(t.Context(), "auto", []string{"none.rec"}, &options{only: "shares"}); err == nil || !strings.Contains(err.Error(), `"shares"`) {
		t.Errorf("a constant that auto lacks: %v", err)
	}
	delete(tuned, "share")
	if _, err := settings(nil); err == nil || !strings.Contains(err.Error(), "share") {
		t.Errorf("an overlay of other constants: %v", err)
	}
}

// vary gives this build variables, which decoding does not read.
func vary(t *testing.T) {
	tuned = map[string]any{}
	t.Cleanup(func() { tuned = nil })
	for _, l := range levers {
		if l.of == "int" {
			x := 3
			tuned[l.name] = &x
			continue
		}
		x := 0.75
		tuned[l.name] = &x
	}
}

// Every constant is tried at half and twice, in its range, and is what it was afterwards. One that nothing reads
// changes nothing.
func TestConstantsOfAutoAreVariedInTurn(t *testing.T) {
	vary(t)
	all, err := settings([]string{"share", "newcomer", "utmost", "recent"})
	if err != nil {
		t.Fatal(err)
	}
	l, err := open([]string{recorded(t)}, "costs.json,f32.json")
	if err != nil {
		t.Fatal(err)
	}
	l.curves = slices.DeleteFunc(l.curves, func(c curve) bool { return c.Name == "flat" })
	r, err := l.auto(t.Context(), constants.Fitted(), all)
	if err != nil {
		t.Fatal(err)
	}
	want := []float64{0.375, 1.5, 0.375, 1, 2, 6, 0.5, 0.875}
	if len(r.Effects) != len(want) {
		t.Fatalf("%d values were tried, want %d", len(r.Effects), len(want))
	}
	for i, x := range r.Effects {
		if math.Abs(x.Tried-want[i]) > 1e-12 || x.Change != 0 || x.Error != 0 || len(x.Cells) != 8 || x.Slowest != r.Slowest || x.Below != r.Below {
			t.Errorf("%+v, want %v to be tried and nothing to change in 8 cells", x, want[i])
		}
	}
	for _, s := range all {
		if s.value() != 3 && s.value() != 0.75 {
			t.Errorf("%s is %v afterwards", s.name, s.value())
		}
	}
	if len(r.Regrets) != 2*2*3 {
		t.Errorf("%d regrets, want those of 2 temperatures, 2 curves, 3 methods", len(r.Regrets))
	}
	for _, x := range r.Regrets {
		if !(x.SpeedUp > 0.5 && x.Worst <= x.SpeedUp && x.OfBest > 0 && x.OfBest <= x.SpeedUp) {
			t.Errorf("%+v", x)
		}
		if strings.Contains(x.Method, ", ") && strings.Contains(x.BestFixed, ", ") && !strings.HasSuffix(x.BestFixed, x.Method[strings.Index(x.Method, ", "):]) {
			t.Errorf("%s is compared with %s", x.Method, x.BestFixed)
		}
	}
	said := r.String()
	for _, line := range []string{"| constant | value | tried | change | head, T=0 | LM, T=0 | head, T=1 | LM, T=1 | f32 | q8 | slowest prompt |", "| `utmost`, and at worst | 0.75 | 0.375 | +0.0% ± 0.0% |"} {
		if !strings.Contains(said, line) {
			t.Errorf("%q is missing in\n%s", line, said)
		}
	}
}

// A cell's change is the mean over its prompts, that of all cells the mean of theirs; a prompt below the tolerated
// speed is counted.
func TestEffectsAreMeansOverPrompts(t *testing.T) {
	at := func(curve string, t float64, name string) prompt { return prompt{"r", curve, t, "s", name} }
	fill := func(x func(p prompt, m method) float64) speeds {
		s := speeds{}
		for _, c := range []string{"one", "two"} {
			for _, n := range []string{"a", "b"} {
				p := at(c, 0, n)
				s[p] = map[method]float64{}
				for _, m := range autos {
					s[p][m] = x(p, m)
				}
			}
		}
		return s
	}
	before := fill(func(prompt, method) float64 { return 1 })
	after := fill(func(p prompt, m method) float64 {
		if p.curve == "one" && m.draft == lm {
			if p.name == "a" {
				return math.Exp(0.4)
			}
			return math.Exp(-0.2)
		}
		return 1
	})
	var x effect
	x.judge(after, before)
	if math.Abs(x.Change-0.025) > 1e-12 || math.Abs(x.Error-0.075) > 1e-12 || x.Below != 1 || math.Abs(x.Slowest-math.Exp(-0.2)) > 1e-12 {
		t.Errorf("%+v, want a change of 0.025 ± 0.075, one below", x)
	}
	for _, c := range x.Cells {
		want := 0.0
		if c.Costs == "one" && c.Draft == lm {
			want = 0.1
		}
		if math.Abs(c.Change-want) > 1e-12 {
			t.Errorf("%+v, want a change of %v", c, want)
		}
	}
}
