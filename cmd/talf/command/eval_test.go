package command

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"talf/infer/bench"
	"talf/infer/bench/heads"
	"talf/internal/durable"
	"talf/internal/e2e/talftest"
	"talf/internal/stats"
)

type evaluated = heads.Report

// Each figure and table takes one command, as a table, a plot and JSON. The values are bench's;
// the intervals contain them.
func TestEvaluationsComeOfOneCommandEach(t *testing.T) {
	if testing.Short() {
		t.Skip("runs whole pipelines")
	}
	model := talftest.TinyModel(t, talftest.TinyConfig(), 1)
	heads := []string{"--head", "k1=" + talftest.TinyHead(t, model, 2), "--head", "k4=" + talftest.TinyHead(t, model, 3)}
	prompts := talftest.PromptFile(t, 4)
	common := append([]string{"--model", model, "--prompts", "a=" + prompts, "--max-tokens", "12", "--threads", "1"}, heads...)
	var benched struct {
		Rows []bench.Row `json:"rows"`
	}
	if err := json.Unmarshal([]byte(talftest.OK(t, "", append([]string{"bench", "--method", "optimal:paper", "--json"}, common...)...)), &benched); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"fig2a": "rank 5 and lower", "fig2b": "n = 5", "table3": "optimal trees", "table4": "head k1",
	} {
		dir := t.TempDir()
		plot, file := filepath.Join(dir, "p.svg"), filepath.Join(dir, "r.json")
		args := append([]string{"eval", name, "--resamples", "100", "--plot", plot, "--out", file}, common...)
		if name == "fig2b" { // nothing is generated
			args = append(args, "--prompt-tokens", "0")
		}
		said := talftest.OK(t, "", args...)
		if !strings.Contains(said, want) || !strings.Contains(said, "95% confidence") {
			t.Errorf("%s prints\n%s", name, said)
		}
		if st, err := os.Stat(plot); err != nil || st.Size() < 1000 {
			t.Errorf("%s: plot: %v", name, err)
		}
		var r evaluated
		if _, err := durable.ReadJSON(file, &r); err != nil {
			t.Fatal(err)
		}
		holds := func(what string, i stats.Interval) {
			t.Helper()
			if !(i.Low <= i.Value && i.Value <= i.High) {
				t.Errorf("%s: %s %+v", name, what, i)
			}
		}
		switch name {
		case "fig2b":
			if len(r.Ranks) != 10 || len(r.Methods) > 0 {
				t.Fatalf("%d ranks, want 5 of 2 heads", len(r.Ranks))
			}
			for _, e := range r.Ranks {
				holds("accuracy", e.Accuracy)
			}
			continue
		case "table4":
			if len(r.Methods) != 10 {
				t.Errorf("%d thresholds, want 10", len(r.Methods))
			}
		case "table3":
			for _, e := range r.Methods {
				for _, row := range benched.Rows {
					if strings.HasPrefix(row.Spec, "optimal") && row.Source == e.Head && row.Pooled != e.Tau.Value {
						t.Errorf("%s: τ %v, bench says %v", e.Head, e.Tau.Value, row.Pooled)
					}
				}
			}
		}
		for _, e := range r.Methods {
			holds("τ", e.Tau)
			var sum float64
			for _, s := range e.Ranks {
				holds("share", s)
				sum += s.Value
			}
			if e.Prompts != 3 || sum < 0.999 || sum > 1.001 { // one of four warms up
				t.Errorf("%s: %d prompts, shares of %v in all", name, e.Prompts, sum)
			}
		}
	}
	// At another temperature, the values are still bench's.
	var warm evaluated
	sampled := append([]string{"--temperature", "1", "--seed", "3", "--json"}, common...)
	if err := json.Unmarshal([]byte(talftest.OK(t, "", append([]string{"bench", "--method", "optimal:paper"}, sampled...)...)), &benched); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(talftest.OK(t, "", append([]string{"eval", "table3", "--resamples", "100"}, sampled...)...)), &warm); err != nil {
		t.Fatal(err)
	}
	same := 0
	for _, e := range warm.Methods {
		for _, row := range benched.Rows {
			if strings.HasPrefix(row.Spec, "optimal") && row.Source == e.Head && row.Temperature == 1 && row.Pooled == e.Tau.Value {
				same++
			}
		}
	}
	if same != 2 || warm.Temperature != 1 {
		t.Errorf("temperature %v: τ of %d of 2 heads is what bench says", warm.Temperature, same)
	}
	talftest.Run(t, "", append([]string{"eval", "table3", "--temperature", "0,1"}, common...)...).Refuses(t, ExitUsage, "--temperature")
	talftest.Run(t, "", append([]string{"eval", "fig2b", "--seed", "1"}, common...)...).Refuses(t, ExitUsage, "--seed")
	talftest.Run(t, "", "eval", "table3", "--model", model, "--prompts", prompts).Refuses(t, ExitUsage, "--head")
	talftest.Run(t, "", append([]string{"eval", "fig2a", "--resamples", "3"}, common...)...).Refuses(t, ExitUsage, "100..1000000")
	talftest.Run(t, "", "eval", "fig9").Refuses(t, ExitUsage, "fig9")
}
