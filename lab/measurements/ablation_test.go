package measurements

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"talf/lab/measurements/results"
	"talf/lab/measurements/tables"
)

func TestEveryVariantHasItsPlace(t *testing.T) {
	seen := map[string]bool{}
	for _, f := range families {
		for i, v := range f {
			if seen[v.name] {
				t.Errorf("two variants are called %s", v.name)
			}
			seen[v.name] = true
			if base, _, _ := strings.Cut(v.loss, ":"); base != f.name() || !strings.HasPrefix(v.name, base) {
				t.Errorf("%s has the loss %s and stands below %s", v.name, v.loss, f.name())
			}
			if changed := v.loss != f.name() || v.data != f[0].data || len(v.flag) > 0; changed == (i == 0) || changed == (v.what == "") {
				t.Errorf("%s: the first of a loss changes nothing, all others say what they change", v.name)
			}
			if v.as != "" && (v.as != f.name() || v.data != f[0].data) {
				t.Errorf("%s costs as much as %s, want the default of its own loss with the same labels", v.name, v.as)
			}
		}
	}
}

// plantedFamily returns a report and a log of a family: its i-th variant has i tokens per pass more than the
// default for stories, and half a token less for problems.
func plantedFamily(t *testing.T, f family, seed int) (*results.Report, string) {
	t.Helper()
	r := &results.Report{}
	var lines []string
	for i, v := range f {
		for _, m := range lossMethods {
			r.Rows = append(r.Rows, results.Row{Method: m + " " + v.name, Spec: m, Source: v.name})
			for _, set := range ablationSets {
				for prompt := 1; prompt <= 3; prompt++ {
					tokens := 20 + 10*i
					if set == "problems" {
						tokens = 20 - 5*min(i, 1)
					}
					lines = append(lines, fmt.Sprintf(`{"method":"%s %s","set":"%s","prompt":"%d","temperature":0,"stats":{"Tokens":%d,"Passes":10}}`,
						m, v.name, set, prompt, tokens+seed))
				}
			}
		}
	}
	log := filepath.Join(t.TempDir(), "log.jsonl")
	if err := os.WriteFile(log, []byte(strings.Join(lines, "\n")+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	return r, log
}

func TestTablesOfAnAblation(t *testing.T) {
	p, cost := &results.Pool{}, map[string]float64{}
	for _, f := range families {
		for i, v := range f {
			cost[v.name] = 1 + float64(i)
		}
		for seed := 1; seed <= 2; seed++ {
			r, log := plantedFamily(t, f, seed)
			if err := p.Add(r, log); err != nil {
				t.Fatal(err)
			}
		}
	}
	body, err := ablationTables(p, cost)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range [][3]string{
		{"hass", "steps", fmt.Sprint(ablationSteps)},
		{"hass", "optimal:paper, stories", "2.15 [2.15, 2.15]"},
		{"hass", "optimal:paper, seed by seed", ""},
		{"hass`, `labels=full", "steps", fmt.Sprint(ablationSteps / 2)},
		{"hass`, `labels=full", "optimal:paper, stories", "**+1.00 [1.00, 1.00]**"},
		{"hass`, `labels=full", "salf:paper, problems", "**−0.50 [−0.50, −0.50]**"},
		{"hass`, `labels=full", "salf:paper, seed by seed", "+0.25 / +0.25"},
	} {
		if got, err := tables.Cell(body, c[0], c[1]); err != nil || got != c[2] {
			t.Errorf("%s, %s: %q (%v), want %q", c[0], c[1], got, err, c[2])
		}
	}
	if got := difference(results.Interval{Value: 0.1, Low: -0.1, High: 0.3}); got != "+0.10 [−0.10, 0.30]" {
		t.Errorf("a difference that may be 0: %s", got)
	}
	delete(p.Tau, results.Drafted{Spec: lossMethods[0], Loss: "hass-full"})
	if _, err := ablationTables(p, cost); err == nil || !strings.Contains(err.Error(), "hass-full") {
		t.Errorf("%v, want an error about the variant that was not measured", err)
	}
}

func TestCostsOfVariants(t *testing.T) {
	l := &lab{root: t.TempDir(), work: "work"}
	if err := os.Mkdir(filepath.Join(l.root, l.work), 0o755); err != nil {
		t.Fatal(err)
	}
	write := func(round int, scale, hass float64, without ...string) {
		var cells []string
		for _, v := range timed() {
			cost := scale
			if v.name == "hass" {
				cost = scale * hass
			}
			if !slices.Contains(without, v.name) {
				cells = append(cells, fmt.Sprintf("%q: %g", v.name, cost))
			}
		}
		name := filepath.Join(l.root, l.path(fmt.Sprintf("ablation-pace-%d.json", round)))
		if err := os.WriteFile(name, []byte("{"+strings.Join(cells, ", ")+"}"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write(1, 1, 0.25)
	write(2, 3, 0.25) // a machine three times as slow
	write(3, 1, 0.5)
	cost, err := ablationCosts(l)
	if err != nil || cost["hass"] != 0.25 || cost["hass-noise"] != 0.25 || cost["talf-half"] != 1 {
		t.Errorf("hass %g and with noise %g, talf with decay %g (%v), want 0.25, 0.25 and 1", cost["hass"], cost["hass-noise"], cost["talf-half"], err)
	}
	for round := 1; round <= ablationTurns; round++ {
		write(round, 1, 0.25, "eagle")
	}
	if _, err := ablationCosts(l); err == nil || !strings.Contains(err.Error(), "eagle") {
		t.Errorf("%v, want an error about eagle, which was not timed", err)
	}
}
