package command

import (
	"encoding/json"
	"flag"
	"os"
	"strings"
	"testing"

	"talf/internal/e2e/talftest"
)

var quickstartResult = flag.String("quickstart", "", "JSON that talf quickstart printed: hold it to the README's claims")

// What quickstart promises of the model that talf carries.
func TestQuickstartClaims(t *testing.T) {
	if *quickstartResult == "" {
		t.Skip("no result of a quickstart to look at: -quickstart names none")
	}
	b, err := os.ReadFile(*quickstartResult)
	if err != nil {
		t.Fatal(err)
	}
	var got struct{ Rows []quickRow }
	if err := json.Unmarshal(b, &got); err != nil {
		t.Fatal(err)
	}
	if len(got.Rows) != 7 {
		t.Fatalf("%d rows, want plain decoding and two methods with three heads", len(got.Rows))
	}
	for _, r := range got.Rows {
		t.Logf("%-16s τ %.2f, %.0f tokens/s, speed-up %.2f", r.label(), r.Tau, r.TokensPerSecond, r.SpeedUp)
		if r.Equal != r.Outputs || r.Outputs == 0 {
			t.Errorf("%s: %d of %d outputs are plain decoding's", r.label(), r.Equal, r.Outputs)
		}
		switch r.Head {
		case "":
			if r.Tau != 1 {
				t.Errorf("%s: τ %.3f, want exactly 1", r.label(), r.Tau)
			}
		case "untrained":
			if r.Tau > 1.3 {
				t.Errorf("%s: τ %.3f, want at most 1.3: the control is no control", r.label(), r.Tau)
			}
		case "talf":
			if r.Tau < 2 {
				t.Errorf("%s: τ %.3f, want at least 2.0", r.label(), r.Tau)
			}
		}
	}
}

// A quickstart on a model of a few thousand weights, interrupted after each of
// its stages and gone on with, ends like one that was left alone.
func TestQuickstartGoesOnWhereItStopped(t *testing.T) {
	if testing.Short() {
		t.Skip("trains for some seconds")
	}
	plan := quickPlan{
		Format: 1, Seed: 3, Documents: 24, Prompts: 2, MaxTokens: 8, EagleSteps: 4, TalfSteps: 3, Rows: 128, Shard: 8,
		LearnRate: 1e-3, Methods: []string{"beam:N=8,k=3,depth=2", "salf:N=8,B=3,th=0"},
	}
	source := talftest.TinyModel(t, talftest.TinyConfig(), 1)
	newQuick := func(dir string) *quick {
		return &quick{a: quietApp(t), dir: dir, plan: plan, model: func(to string) error {
			return os.CopyFS(to, os.DirFS(source))
		}}
	}
	whole := newQuick(t.TempDir())
	if err := whole.run(t.Context()); err != nil {
		t.Fatal(err)
	}
	parts := t.TempDir()
	for i := range whole.stages() {
		q := newQuick(parts)
		q.after = func(string) error { return errStopped }
		if err := q.run(t.Context()); err == nil || !strings.Contains(err.Error(), errStopped.Error()) {
			t.Fatalf("stage %d: %v, want the stop", i, err)
		}
		if len(q.state.Done) != i+1 {
			t.Fatalf("stage %d: done %v", i, q.state.Done)
		}
	}
	again := newQuick(parts)
	if err := again.run(t.Context()); err != nil {
		t.Fatal(err)
	}
	for i, r := range again.state.Rows {
		w := whole.state.Rows[i]
		if r.label() != w.label() || r.Tau != w.Tau || r.Tokens != w.Tokens || r.Passes != w.Passes {
			t.Errorf("row %d: %+v, want %+v", i, r, w)
		}
	}
	for _, name := range again.state.Plots {
		if info, err := os.Stat(name); err != nil || info.Size() < 1000 {
			t.Errorf("plot %s: %v", name, err)
		}
	}
	other := newQuick(parts)
	other.plan.Seed++
	if err := other.run(t.Context()); err == nil || !strings.Contains(err.Error(), "choose another --dir") {
		t.Errorf("files of another plan were taken over: %v", err)
	}
}
