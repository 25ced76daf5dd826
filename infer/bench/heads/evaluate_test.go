package heads_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"talf/infer/bench/heads"
	"talf/infer/draft"
	"talf/internal/stats"
	"talf/internal/table"
)

// items returns random decisions for texts of these lengths.
func items(r *rand.Rand, seqs []heads.Text) []heads.Item {
	var out []heads.Item
	for _, x := range seqs {
		for range max(len(x.Tokens)-1-x.From, 0) {
			p := r.Float64()
			out = append(out, heads.Item{Conf: p * r.Float64(), MaxProb: p, Correct: r.Float64() < p})
		}
	}
	return out
}

// The values are those of all items together, which the reference pins, whichever texts the
// items belong to. The intervals resample whole texts.
func TestIntervalsOfRanksHoldTheValuesOfAllItems(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 9))
	seqs := []heads.Text{
		{Tokens: make([]int32, 30)},
		{},
		{Tokens: make([]int32, 1)},
		{Tokens: make([]int32, 2)},
		{Tokens: make([]int32, 90), From: 10},
		{Tokens: make([]int32, 41)},
		{Tokens: make([]int32, 5), From: 9},
	}
	ranks := [][]heads.Item{items(r, seqs), items(r, seqs)}
	b := stats.DefaultBootstrap()
	b.Reps = 300
	got, err := heads.EvalRanks("talf", ranks, seqs, b)
	if err != nil {
		t.Fatal(err)
	}
	lines, err := heads.RankLines("talf", ranks, seqs)
	if err != nil || len(lines) != len(ranks) {
		t.Fatalf("%d lines, %v", len(lines), err)
	}
	for i, e := range got {
		line := lines[i]
		var sum heads.TextHits
		for _, x := range line.ByText {
			sum.Items, sum.Correct = sum.Items+x.Items, sum.Correct+x.Correct
		}
		if len(line.ByText) != e.Texts || sum.Items != line.Items || float64(sum.Correct) != math.Round(line.Accuracy*float64(line.Items)) {
			t.Errorf("rank %d: %+v by text, want %d texts of the %d items", i+1, line.ByText, e.Texts, line.Items)
		}
		for what, x := range map[string][2]float64{
			"accuracy": {e.Accuracy.Value, line.Accuracy}, "ECE": {e.ECE.Value, line.ECE}, "ECEMax": {e.ECEMax.Value, line.ECEMax},
			"ECEMass": {e.ECEMass.Value, line.ECEMass}, "ECEMaxMass": {e.ECEMaxMass.Value, line.ECEMaxMass},
		} {
			if math.Abs(x[0]-x[1]) > 1e-12 {
				t.Errorf("rank %d: %s %v, want %v", i+1, what, x[0], x[1])
			}
		}
		if e.Rank != i+1 || e.Texts != 4 || e.Items != len(ranks[i]) || e.Accuracy.Low >= e.Accuracy.High || e.Head != "talf" {
			t.Errorf("%+v", e)
		}
	}
	if _, err := heads.EvalRanks("x", [][]heads.Item{ranks[0][1:]}, seqs, b); err == nil || !strings.Contains(err.Error(), "items of rank 1") {
		t.Errorf("an item is missing: %v", err)
	}
	if _, err := heads.RankLines("x", [][]heads.Item{ranks[0], ranks[1][1:]}, seqs); err == nil || !strings.Contains(err.Error(), "items of rank 2") {
		t.Errorf("an item is missing: %v", err)
	}
	tables := heads.RankTables(append(got, got...))
	if len(tables) != 5 || !slices.Equal(tables[0].Header, []string{"head", "n = 1", "n = 2"}) || len(tables[0].Cells) != 1 {
		t.Errorf("tables %+v", tables)
	}
	if f := heads.RankFigures(got); len(f) != 2 || !slices.Equal(f[0].Series[0].X, []float64{1, 2}) {
		t.Errorf("figures %+v", f)
	}
}

// evaluations returns the evaluation with this name.
func evaluations(t *testing.T, name string) heads.Evaluation {
	t.Helper()
	e, err := heads.Evaluations().Find(name)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func TestEvaluationsNameWhatThePapersShow(t *testing.T) {
	for _, e := range heads.Evaluations().Lines {
		for _, s := range e.Specs() {
			if m, _, err := draft.Find(s); err != nil || !m.Source {
				t.Errorf("%s: %s asks no draft model, or is no method: %v", e.Name, s, err)
			}
		}
	}
	if d := cmp.Diff([]string{"fig2a", "fig2b", "table3", "table4"}, heads.Evaluations().Names()); d != "" {
		t.Error(d)
	}
	iv := func(v float64) stats.Interval { return stats.Interval{Value: v, Low: v - 0.1, High: v + 0.1} }
	evals := []heads.MethodEval{
		{Method: "optimal", Head: "k1", Prompts: 6, Tau: iv(2), Speedup: iv(1.5), Ranks: []stats.Interval{iv(0.6), iv(0.2), iv(0.1), iv(0.06), iv(0.04)}},
		{Method: "optimal", Head: "k1", Set: "maths", Prompts: 4, Tau: iv(3), Speedup: iv(2), Ranks: []stats.Interval{iv(0.5), iv(0.2), iv(0.1), iv(0.1), iv(0.1)}},
		{Method: "optimal", Head: "k2", Prompts: 6, Tau: iv(2.5), Speedup: iv(1.7), Ranks: []stats.Interval{iv(0.4), iv(0.2), iv(0.1), iv(0.1), iv(0.2)}},
		{Method: "optimal", Head: "k2", Set: "maths", Prompts: 4, Tau: iv(3.5), Speedup: iv(2.2), Ranks: []stats.Interval{iv(0.4), iv(0.2), iv(0.1), iv(0.1), iv(0.2)}},
	}
	e := evaluations(t, "table3")
	want := []table.Table{{
		Caption: "Tokens per target pass (τ), optimal trees",
		Header:  []string{"head", "all, τ (6 prompts)", "maths, τ (4 prompts)"},
		Cells:   [][]string{{"k1", "2.00 [1.90, 2.10]", "3.00 [2.90, 3.10]"}, {"k2", "2.50 [2.40, 2.60]", "3.50 [3.40, 3.60]"}},
	}}
	if d := cmp.Diff(want, e.Tables(evals)); d != "" {
		t.Error(d)
	}
	if f := e.Figures(evals); len(f) != 1 || len(f[0].Series) != 2 || !slices.Equal(f[0].Series[1].X, []float64{1, 2}) || !slices.Equal(f[0].Series[1].Y, []float64{3, 3.5}) {
		t.Errorf("figures %+v", f)
	}
	named := slices.Clone(evals)
	for i := range named {
		named[i].Head = []string{"eagle", "eagle", "talf", "talf"}[i]
	}
	if f := e.Figures(named); len(f) != 1 || !slices.Equal(f[0].Groups, []string{"all", "maths"}) || len(f[0].Series) != 2 || f[0].Series[1].Y[1] != 3.5 {
		t.Errorf("figures %+v", f)
	}
	e = evaluations(t, "fig2a")
	if tb := e.Tables(evals)[0]; len(tb.Cells) != 4 || tb.Cells[0][2] != "60.0 [50.0, 70.0]" || tb.Header[6] != "rank 5 and lower" {
		t.Errorf("table %+v", tb)
	}
	if f := e.Figures(evals)[0]; len(f.Series) != 2 || !slices.Equal(f.Series[0].X, []float64{1, 2, 3, 4, 5}) {
		t.Errorf("figure %+v", f)
	}
	for i := range evals {
		evals[i].Group = []string{"0.1", "0.1", "0.2", "0.2"}[i]
	}
	e = evaluations(t, "table4")
	if tb := e.Tables(evals)[0]; len(tb.Cells) != 2 || tb.Cells[1][0] != "0.2" || tb.Cells[0][1] != "1.50 [1.40, 1.60]×" || !strings.Contains(tb.Caption, "head k1") {
		t.Errorf("table %+v", tb)
	}
	if f := e.Figures(evals); len(f) != 2 || len(f[0].Series) != 2 || !slices.Equal(f[0].Series[0].X, []float64{0.1, 0.2}) {
		t.Errorf("figures %+v", f)
	}
}
