package measurements

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"talf/lab/measurements/results"
	"talf/lab/measurements/tables"
)

// figures is a report as talf bench writes it: plain decoding twice, pld, and auto with a head, over all
// sets and each of them, at both temperatures.
func figures(t *testing.T) *results.Report {
	t.Helper()
	var rows []string
	for _, set := range append([]string{""}, sets...) {
		for _, temperature := range []string{"0", "1"} {
			for n, m := range []string{`"ar","spec":"ar"`, `"ar @greedy","spec":"ar"`, `"pld","spec":"pld"`, `"auto talf","spec":"auto","source":"talf"`, `"auto talf, cold","spec":"auto","source":"talf"`} {
				r := fmt.Sprintf(`{"method":%s,"set":%q,"temperature":%s,"tau_pooled":1.%d,"tau_interval":{"value":1.%[4]d,"low":1,"high":2},"tokens_per_second":{"mean":800},
					"speedup_end_to_end":{"value":1.%[4]d,"low":1.1,"high":1.9},"speedup_end_to_end_mean":{"mean":1.%[4]d5,"std":0.25},
					"speedup_decoding":{"value":1.5,"low":1.25,"high":1.75},"speedup":{"mean":1.45,"std":0.5},"speedup_min":0.9`, m, set, temperature, n)
				if set == "" {
					r += `,"by_prompt":[{"prompt":"1","end_to_end":0.5,"decoding":0.4,"end_to_end_median":0.98,"decoding_median":0.9,"decoding_by_repetition":[0.9,0.91,0.89]},
						{"prompt":"2","end_to_end_median":0.96,"decoding_median":0.97,"decoding_by_repetition":[0.98,0.97,0.95]}]`
					if n > 2 {
						r += `,"hindsight":{"each":{"value":0.8,"low":0.7,"high":0.9},"one":{"value":1.05,"low":0.95,"high":1.15},"best":"salf talf"}`
					}
				}
				rows = append(rows, r+"}")
			}
		}
	}
	compared := `{"method":"ar","against":"auto talf","temperature":0,"ratio":{"value":0.5,"low":0.4,"high":0.6}},
		{"method":"pld","against":"auto talf","temperature":0,"ratio":{"value":0.9,"low":0.8,"high":1}},
		{"method":"auto talf","against":"pld","temperature":1,"ratio":{"value":0.9,"low":0.8,"high":0.95}}`
	r := &results.Report{}
	if err := json.Unmarshal([]byte(`{"prompts":2,"max_tokens":64,"repeat":3,"rows":[`+strings.Join(rows, ",")+`],"compared_with_fastest":[`+compared+`]}`), r); err != nil {
		t.Fatal(err)
	}
	return r
}

func TestTablesOfMethodsHaveWhatWasMeasured(t *testing.T) {
	body, err := acceptance(figures(t), "")
	if err != nil {
		t.Fatal(err)
	}
	// The rows of both temperatures are alike here.
	body, _, _ = strings.Cut(body, "| τ, temperature 1")
	for _, c := range [][3]string{
		{"auto, head", "passages", "1.3"},
		{"auto, head", "all", "1.30 [1.00, 2.00]"},
		{"auto, head", "end to end", "1.30 [1.10, 1.90]"},
		{"auto, head", "by prompt", "1.35 ± 0.25"},
		{"auto` cold, head", "decoding", "1.50 [1.25, 1.75]"},
		{"pld, –", "decoding by prompt", "1.45 ± 0.50"},
		{"pld, –", "slowest prompt, decoding", "0.90"},
		{"pld, –", "of the fastest", "0.90 [0.80, 1.00]"},
		{"auto, head", "of the fastest", "1.00"},
	} {
		if got, err := tables.Cell(body, c[0], c[1]); err != nil || !strings.HasPrefix(got, c[2]) {
			t.Errorf("%s, %s: %q (%v), want %q", c[0], c[1], got, err, c[2])
		}
	}
	if _, err := tables.Cell(body, "ar, –", "all"); err == nil {
		t.Error("plain decoding has a row")
	}
}

func TestASentenceNamesTheFastestAndWhatIsNotToldApartFromIt(t *testing.T) {
	r := figures(t)
	for temperature, want := range map[float64]string{
		0: "At temperature 0, the fastest end to end is `auto` (head); not told apart from it, with their speeds relative to it: `pld` at 0.90 [0.80, 1.00].\n",
		1: "At temperature 1, the fastest end to end is `pld`; no other method's interval of the ratio to it holds 1.\n",
	} {
		if got, err := r.Fastest(temperature); err != nil || got != want {
			t.Errorf("%q (%v), want %q", got, err, want)
		}
	}
	if _, err := r.Fastest(0.5); err == nil {
		t.Error("a temperature that was not measured has a fastest method")
	}
}

func TestAutoStandsBesideTheBestAndTheNoise(t *testing.T) {
	r := figures(t)
	rows := map[string][]string{}
	for i := range r.Rows {
		x := &r.Rows[i]
		if x.Set != "" || x.Temperature != 0 {
			continue
		}
		if got, err := besides(x); err == nil {
			rows[x.Method] = got
		} else if x.Method != "pld" {
			t.Errorf("%s: %v", x.Method, err)
		}
	}
	want := []string{"`auto`", "head", "1.30", "1.30 [1.10, 1.90]", "1.50 [1.25, 1.75]", "0.96", "0.90 [0.88, 0.93]", "1 of 2", "1, 1", "0.80 [0.70, 0.90]", "1.05 [0.95, 1.15], `salf`"}
	if got := rows["auto talf"]; !slices.Equal(got, want) {
		t.Errorf("auto: %q, want %q", got, want)
	}
	if got := rows["ar @greedy"]; len(got) != len(want) || got[0] != "plain decoding again" || got[9] != "" || got[7] != "1 of 2" || got[8] != "1, 1" {
		t.Errorf("plain decoding again: %q", got)
	}
	if _, ok := rows["pld"]; ok {
		t.Error("a method with nothing to be held against has a row")
	}
}

func TestASmallRunTakesLessOfEverything(t *testing.T) {
	flags := []string{"--limit", "13", "--warmup", "1", "--repeat", "3", "--max-tokens", "64", "--dtype", "q8", "--temperature", "0,1"}
	if l := (&lab{}); !slices.Equal(l.scaled(flags), flags) || l.amount(2400) != 2400 {
		t.Errorf("a run is scaled to %q", l.scaled(flags))
	}
	l := &lab{small: true}
	want := []string{"--limit", "1", "--warmup", "0", "--repeat", "2", "--max-tokens", "16", "--dtype", "q8", "--temperature", "0,1"}
	if got := l.scaled(flags); !slices.Equal(got, want) || flags[1] != "13" {
		t.Errorf("a small run has %q, want %q", got, want)
	}
	if l.amount(2400) != 24 || l.amount(9) != 1 {
		t.Errorf("amounts %d and %d", l.amount(2400), l.amount(9))
	}
	if work := (&Options{Work: "w"}).folder(); work != "w" {
		t.Errorf("a run works in %s", work)
	}
	if work := (&Options{Work: "w/", Small: true}).folder(); work != "w-small" {
		t.Errorf("a small run works in %s, want a folder of its own beside that of others", work)
	}
}

func TestATableOfASchemaHasEveryKindOfRow(t *testing.T) {
	r := &results.Report{}
	for i, m := range []string{
		"ar", "ar, in the format", "auto talf", "auto talf, in the format", "auto talf, in the format, unforced",
		"auto talf, cold", "auto talf, in the format, cold", "auto talf, in the format, unforced, cold",
	} {
		spec, source := "auto", "talf"
		if i < 2 {
			spec, source = "ar", ""
		}
		r.Rows = append(r.Rows, results.Row{Method: m, Spec: spec, Source: source, Tau: float64(i), EndToEnd: results.Interval{Value: float64(i) / 4, Low: 0, High: 9}})
	}
	body, err := structured(r)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"| `auto` | head | 2.00 | 0.50 [0.00, 9.00] | 3.00 | 0.75 [0.00, 9.00] | 4.00 | 1.00 [0.00, 9.00] |\n",
		"| `auto` cold | head | 5.00 | 1.25 [0.00, 9.00] | 6.00 | 1.50 [0.00, 9.00] | 7.00 | 1.75 [0.00, 9.00] |\n",
	} {
		if !strings.Contains(body, want) {
			t.Errorf("want %q in\n%s", want, body)
		}
	}
	if strings.Contains(body, "`ar`") {
		t.Errorf("plain decoding has a row:\n%s", body)
	}
	r.Rows = r.Rows[:len(r.Rows)-1]
	if _, err := structured(r); err == nil || !strings.Contains(err.Error(), `"auto talf, in the format, unforced, cold"`) {
		t.Errorf("a kind of row was not measured: %v", err)
	}
}
