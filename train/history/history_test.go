package history

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"talf/train"
)

func TestRowsEndWithEvaluationsAndStages(t *testing.T) {
	eval := &train.Eval{Loss: 2.5, Tau: 1.5, TauGreedy: 1.75}
	step := func(n, stage int, loss float64, e *train.Eval) train.Progress {
		return train.Progress{Step: n, Stage: stage, Loss: loss, LR: 0.5, Norm: float64(n), Positions: 10, Seconds: 0.25, Eval: e}
	}
	got := rows([]train.Progress{step(1, 0, 4, nil), step(2, 0, 3, eval), step(3, 0, 2, nil), step(4, 1, 1, nil), step(5, 1, 0.5, nil)})
	want := []Row{
		{Step: 2, Stage: 1, Loss: 3.5, Norm: 2, LR: 0.5, PerSecond: 40, Eval: eval},
		{Step: 3, Stage: 1, Loss: 2, Norm: 3, LR: 0.5, PerSecond: 40},
		{Step: 5, Stage: 2, Loss: 0.75, Norm: 5, LR: 0.5, PerSecond: 40},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Fatal(d)
	}
	const text = `runs/a
    step stage      loss  held out        lr     τ̂  greedy positions/s
       2     1    3.5000    2.5000       0.5  1.500   1.750          40
       3     1    2.0000         -       0.5      -       -          40
       5     2    0.7500         -       0.5      -       -          40
`
	r := Run{"runs/a", got}
	if d := cmp.Diff(text, r.String()); d != "" {
		t.Error(d)
	}
	var names []string
	for _, f := range Figures(r, Run{"b", got[1:]}) {
		for _, s := range f.Series {
			names = append(names, f.Y+": "+s.Name)
		}
	}
	if d := cmp.Diff([]string{"loss: a", "loss: a, held out", "loss: b", "τ̂: a", "τ̂: a, greedy"}, names); d != "" {
		t.Error(d)
	}
	if f := Figures(Run{"b", got[1:]}); len(f) != 1 {
		t.Errorf("%d figures of a run without an estimate, want the loss alone", len(f))
	}
}

func TestALogWithoutStepsIsNoHistory(t *testing.T) {
	dir := t.TempDir()
	log := filepath.Join(dir, train.MetricsFile)
	if err := os.WriteFile(log, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(dir); err == nil || !strings.Contains(err.Error(), "no step was made yet") {
		t.Errorf("an empty log: %v", err)
	}
	if err := os.WriteFile(log, []byte(`{"step":1,"loss":2,"lr":0.1,"grad_norm":1,"positions":4,"seconds":2}`+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	want := Run{dir, []Row{{Step: 1, Stage: 1, Loss: 2, Norm: 1, LR: 0.1, PerSecond: 2}}}
	if got, err := Read(dir); err != nil || !cmp.Equal(want, got) {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestARunSaysWhereItEnded(t *testing.T) {
	for want, r := range map[string]train.Result{
		"o/step-1: step 1\n": {Dir: "o/step-1", Step: 1, Best: "o/step-1"},
		"o: step 3, loss 2.5000\nheld out: loss 2.0000 over 9 positions; level 0: loss 1.5000, top-1 50.0%; level 1: loss 0.5000, top-1 25.0%, 75.00% of the labels in the draft vocabulary; τ̂ 1.500, greedy 1.250\nbest: b\n": {
			Dir: "o", Step: 3, Loss: 2.5, Best: "b",
			Eval: &train.Eval{Loss: 2, Positions: 9, Levels: []train.LevelEval{{Loss: 1.5, Top1: 0.5}, {Loss: 0.5, Top1: 0.25, Covered: 0.75}}, Tau: 1.5, TauGreedy: 1.25},
		},
	} {
		if got := Ended(r); got != want {
			t.Errorf("%s\nwant\n%s", strings.TrimSpace(got), want)
		}
	}
}
