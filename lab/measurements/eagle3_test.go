package measurements

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"talf/lab/measurements/results"
	"talf/lab/measurements/tables"
)

// tttCost is what a step of every loss costs in these tests, in steps of the pacer.
func tttCost() map[string]float64 {
	return map[string]float64{"eagle3 eagle3": 0.5, "eagle3 talf": 1, "eagle3 eal": 2, "eagle3 " + nextOnly: 0.1, "eagle3 talf k2": 0.4, "eagle eagle": 0.1, "eagle hass": 0.4}
}

func TestEAGLE3HeadsTrainAsLongOrAsMuch(t *testing.T) {
	got := map[string][2]int{}
	for _, x := range trainees {
		first, then := x.steps(tttCost())
		got[x.name] = [2]int{first, then}
	}
	const half = (tttFirst/2 + tttThen) / 2 // of all the time, in steps of the pacer
	want := map[string][2]int{
		"eagle3": {tttFirst, 2 * tttThen}, "talf": {tttFirst, tttThen}, "eal": {tttFirst, tttThen / 2}, "next-eagle3": {10 * half, 2 * half}, "next-talf": {10 * half, half * 5 / 2},
		"eagle3-even": {tttFirst, tttThen}, "eal-even": {tttFirst, tttThen}, "e1-hass": {5 * tttFirst, 5 * tttThen / 2},
	}
	if !maps.Equal(got, want) {
		t.Errorf("steps %v, want %v", got, want)
	}
	// Those that share a first stage have as many steps of the same in it.
	l := &lab{work: "w"}
	type stage struct {
		loss  string
		steps int
	}
	of := map[string]stage{}
	for _, x := range trainees {
		dir, now := x.begun(l, 1), stage{x.first, got[x.name][0]}
		if was, ok := of[dir]; ok && was != now {
			t.Errorf("%s has %v for one head, %v for another", dir, was, now)
		}
		of[dir] = now
	}
}

// Stages that differ have names of their own for what a step costs: trees of two tokens are not timed as those of four.
func TestEveryStageIsTimed(t *testing.T) {
	of := map[string]lap{}
	for _, s := range tttLaps() {
		if was, ok := of[s.key()]; ok {
			t.Errorf("%v and %v are both called %q", was, s, s.key())
		}
		of[s.key()] = s
	}
	for _, x := range trainees {
		for _, s := range x.laps() {
			if of[s.key()] != s {
				t.Errorf("%s: a step of %v is not timed", x.name, s)
			}
		}
	}
}

// writeAnswers writes a log of talf bench, in which the i-th head has 1.5+i tokens per pass, and i paths of 10 go to the
// first depth, and one of them to the second.
func writeAnswers(t *testing.T, names []string) (*results.Report, string) {
	t.Helper()
	r := &results.Report{MaxTokens: 32}
	lines := []string{`{"format":"talf-bench-2"}`}
	for i, name := range names {
		for _, temperature := range []float64{0, 1} {
			r.Rows = append(r.Rows, results.Row{Method: "m " + name, Spec: tttMethods[0], Source: name, Temperature: temperature, Equal: 2, Compared: 2})
			for prompt := 1; prompt <= 2; prompt++ {
				lines = append(lines, fmt.Sprintf(`{"method":"m %s","set":"stories","prompt":"%d","temperature":%g,"stats":{"Tokens":%d,"Passes":%d,"Depth":[{},{"Tried":10,"Kept":%d},{"Tried":%[6]d,"Kept":1}]}}`,
					name, prompt, temperature, prompt*(3+2*i), 2*prompt, i+2))
			}
		}
		for rank := 1; rank <= lossRanks; rank++ {
			r.ByRank = append(r.ByRank, results.RankLine{Head: name, Rank: rank, ByText: []struct{ Items, Correct int }{{10, i}, {10, i + 1}}})
		}
	}
	log := filepath.Join(t.TempDir(), "log.jsonl")
	if err := os.WriteFile(log, []byte(strings.Join(lines, "\n")+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	return r, log
}

func TestTablesOfEAGLE3Heads(t *testing.T) {
	p := &results.Pool{}
	for range 2 {
		if err := p.Add(writeAnswers(t, traineeNames())); err != nil {
			t.Fatal(err)
		}
	}
	body, err := tttTables(p, tttCost(), 32)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range [][3]string{
		{"e1-hass", "second stage, steps", fmt.Sprintf("hass`, %d", 5*tttThen/2)},
		{"next-eagle3", "optimal:paper, T=1", "4.50 [4.50, 4.50]"},
		{"talf − eagle3, 1.00 [1.00, 1.00]", "optimal:paper, T=0", "1.00 [1.00, 1.00]"},
		{"eal-even − eagle3-even, 1.00 / 1.00", "optimal:paper, T=0", "1.00 / 1.00"},
		{"talf, 15.0 [10.0, 20.0]", "n = 5", "15.0 [10.0, 20.0]"},
		{"next-eagle3, 50.0 [50.0, 50.0]", "depth 2", "20.0 [20.0, 20.0]"},
		{"next-eagle3, 50.0 [50.0, 50.0]", "depth 3", "0.0 [0.0, 0.0]"},
	} {
		if got, err := tables.Cell(body, c[0], c[1]); err != nil || got != c[2] {
			t.Errorf("%s, %s: %q (%v), want %q", c[0], c[1], got, err, c[2])
		}
	}
	delete(p.Deep, results.Deep{Drafted: results.Drafted{Spec: tttMethods[0], Temperature: 0, Loss: "next-eagle3"}, Depth: 2})
	if _, err := tttTables(p, tttCost(), 32); err == nil {
		t.Error("a depth that was not measured is left out without a word")
	}
}
