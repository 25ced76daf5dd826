package measurements

import (
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"talf/lab/measurements/results"
	"talf/lab/measurements/tables"
)

// Costs are compared within a round, so that a machine that slows down between rounds changes nothing.
func TestStepsTakeAsLongAsTheBudget(t *testing.T) {
	round := func(speed float64, costs ...float64) map[string]float64 {
		out := map[string]float64{}
		for i, loss := range lossNames {
			out[loss] = costs[i] * speed
		}
		return out
	}
	got, err := ratios([]map[string]float64{
		round(1, 0.1, 0.25, 0.5, 0.6), round(3, 0.1, 0.25, 0.5, 0.6), round(2, 0.4, 0.25, 0.5, 0.1),
	}, pacer)
	want := map[string]float64{"eagle": 0.2, "hass": 0.5, "talf": 1, "eal": 1.2}
	near := func(a, b float64) bool { return math.Abs(a-b) < 1e-12 }
	if err != nil || !maps.EqualFunc(got, want, near) {
		t.Errorf("costs %v (%v), want %v", got, err, want)
	}
	for loss, steps := range map[string]int{"eagle": 5 * budgetSteps, "talf": budgetSteps, "eal": budgetSteps * 5 / 6} {
		if n := stepsOf(got[loss]); n != steps {
			t.Errorf("%d steps of %s, want %d", n, loss, steps)
		}
	}
	if got, err := ratios([]map[string]float64{round(1, 0.1, 0.3, 0.5, 1), round(1, 0.3, 0.3, 0.5, 1)}, pacer); err != nil || !near(got["eagle"], 0.4) {
		t.Errorf("eagle costs %v (%v), want the mean of two", got["eagle"], err)
	}
	if _, err := ratios([]map[string]float64{round(1, 0.1, 0, 0.5, 0.6)}, pacer); err == nil || !strings.Contains(err.Error(), "a step of hass") {
		t.Errorf("%v, want an error about the step that took no time", err)
	}
}

// planted returns a report and a log of a seed, whose head of the i-th loss has 1.5+i tokens per pass
// with seed 1, and half a token more with seed 2.
func planted(t *testing.T, seed int) (r *results.Report, log string, lines []string) {
	t.Helper()
	r = &results.Report{Prompts: 3, MaxTokens: 48}
	lines = []string{`{"format":"talf-bench-2"}`}
	for i, loss := range lossNames {
		for _, m := range lossMethods {
			for _, temperature := range []float64{0, 1} {
				x := results.Row{Method: m + " " + loss, Spec: m, Source: loss, Temperature: temperature}
				r.Rows = append(r.Rows, x)
				x.Set = "stories"
				r.Rows = append(r.Rows, x)
				for prompt := 1; prompt <= 3; prompt++ {
					lines = append(lines, fmt.Sprintf(`{"method":"%s %s","set":"stories","prompt":"%d","temperature":%g,"stats":{"Tokens":%d,"Passes":%d}}`,
						m, loss, prompt, temperature, prompt*(2*(1+i)+seed), 2*prompt))
				}
			}
		}
		for rank := 1; rank <= lossRanks; rank++ {
			line := results.RankLine{Head: loss, Rank: rank, ECE: 0.1 * float64(seed)}
			line.ByText = append(line.ByText, struct{ Items, Correct int }{10, i + rank - 1}, struct{ Items, Correct int }{10, i + rank + 1})
			r.ByRank = append(r.ByRank, line)
		}
	}
	log = filepath.Join(t.TempDir(), "log.jsonl")
	if err := os.WriteFile(log, []byte(strings.Join(lines, "\n")+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	return r, log, lines
}

func TestTablesOfLosses(t *testing.T) {
	x := &lesson{course: large, cost: map[string]float64{"eagle": 0.2, "hass": 0.5, "talf": 1, "eal": 1.2}}
	for seed := 1; seed <= 2; seed++ {
		r, log, _ := planted(t, seed)
		if err := x.Add(r, log); err != nil {
			t.Fatal(err)
		}
	}
	body, err := x.tables()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range [][3]string{
		{"eagle", "steps", fmt.Sprint(5 * budgetSteps)},
		{"eagle", "optimal:paper, T=0", "1.75 [1.75, 1.75]"},
		{"eal", "salf:paper, T=1", "4.75 [4.75, 4.75]"},
		{"talf − hass, 1.00 [1.00, 1.00]", "salf:paper, T=0", "1.00 [1.00, 1.00]"},
		{"talf − hass, 1.00 / 1.00", "salf:paper, T=0", "1.00 / 1.00"},
		{"hass, 20.0 [10.0, 30.0]", "n = 2", "30.0 [20.0, 40.0]"},
		{"hass, 0.150", "n = 5", "0.150"},
	} {
		if got, err := tables.Cell(body, c[0], c[1]); err != nil || got != c[2] {
			t.Errorf("%s, %s: %q (%v), want %q", c[0], c[1], got, err, c[2])
		}
	}
}

func TestSeedsThatWereAskedOtherwiseAreNotPooled(t *testing.T) {
	r, log, lines := planted(t, 1)
	first := func() *results.Pool {
		p := &results.Pool{}
		if err := p.Add(r, log); err != nil {
			t.Fatal(err)
		}
		return p
	}
	write := func(lines []string) string {
		name := filepath.Join(t.TempDir(), "other.jsonl")
		if err := os.WriteFile(name, []byte(strings.Join(lines, "\n")), 0o644); err != nil {
			t.Fatal(err)
		}
		return name
	}
	refused := func(p *results.Pool, r *results.Report, log, want string) {
		t.Helper()
		if err := p.Add(r, log); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want an error with %q", err, want)
		}
	}
	refused(first(), r, write(lines[:len(lines)-1]), "no answer to prompt 3 of stories by "+lossMethods[len(lossMethods)-1])
	fewer := slices.DeleteFunc(slices.Clone(lines), func(s string) bool { return strings.Contains(s, `"prompt":"2"`) })
	refused(first(), r, write(fewer), "2 prompts, want the 3")
	other, _, _ := planted(t, 2)
	other.ByRank[0].ByText[1].Items++
	refused(first(), other, log, "text 2 is another")
}

// Steps are named by what the tables need.
func TestEveryStepHasANameOfItsOwn(t *testing.T) {
	of := map[string]string{}
	var look func(steps []*step)
	look = func(steps []*step) {
		for _, s := range steps {
			key := s.of + strings.Join(s.code, " ")
			if was, ok := of[s.name]; ok && was != key {
				t.Errorf("two steps are called %s", s.name)
			}
			of[s.name] = key
			look(s.after)
		}
	}
	for _, x := range exhibits {
		look(x.needs)
	}
	for _, want := range []string{"labels", "losses-pace", "losses-first-2", "losses-3", "losses-quickstart-1"} {
		if _, ok := of[want]; !ok {
			t.Errorf("no step %s", want)
		}
	}
	if err := makeSteps(t.Context(), &Options{Work: ".cache/none"}, t.TempDir(), []string{"surely-none"}); err == nil || !strings.Contains(err.Error(), "losses-pace") {
		t.Errorf("%v, want an error that lists the steps", err)
	}
}
