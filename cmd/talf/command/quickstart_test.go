package command

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"talf/internal/e2e/talftest"
	"talf/internal/quickstart"
)

// stoppingTools stop a run after its first stage.
type stoppingTools struct{ quickTools }

func (*stoppingTools) End(time.Duration) error { return errStopped }

// A quickstart on a model of a few thousand weights that is interrupted after each of its stages
// and run again gives the result of an uninterrupted one.
func TestQuickstartGoesOnWhereItStopped(t *testing.T) {
	if testing.Short() {
		t.Skip("trains for some seconds")
	}
	source := talftest.TinyModel(t, talftest.TinyConfig(), 1)
	config := func(dir string) quickstart.Config {
		return quickstart.Config{
			Dir: dir, Tools: &quickTools{quietApp(t)}, Unpack: func(to string) error { return os.CopyFS(to, os.DirFS(source)) },
			Plan: quickstart.Plan{
				Format: 1, Seed: 3, Documents: 24, Prompts: 2, MaxTokens: 8, EagleSteps: 4, TalfSteps: 3, Rows: 128, Shard: 8,
				LearnRate: 1e-3, Methods: []string{"beam:N=8,k=3,depth=2", "salf:N=8,B=3,th=0"},
			},
		}
	}
	whole, err := quickstart.Run(t.Context(), config(t.TempDir()))
	if err != nil {
		t.Fatal(err)
	}
	parts := t.TempDir()
	for i := range 5 {
		c := config(parts)
		c.Tools = &stoppingTools{quickTools{quietApp(t)}}
		if _, err := quickstart.Run(t.Context(), c); !errors.Is(err, errStopped) {
			t.Fatalf("stage %d: %v, want the stop", i, err)
		}
		var state struct{ Done []string }
		b, err := os.ReadFile(filepath.Join(parts, "state.json"))
		if err == nil {
			err = json.Unmarshal(b, &state)
		}
		if err != nil || len(state.Done) != i+1 {
			t.Fatalf("stage %d: done %v, %v", i, state.Done, err)
		}
	}
	again, err := quickstart.Run(t.Context(), config(parts))
	if err != nil {
		t.Fatal(err)
	}
	if len(again.Rows) != 7 || len(again.Plots) != 2 {
		t.Fatalf("%d rows and plots %v", len(again.Rows), again.Plots)
	}
	for i, r := range again.Rows {
		w := whole.Rows[i]
		if r.Label() != w.Label() || r.Tau != w.Tau || r.Tokens != w.Tokens || r.Passes != w.Passes {
			t.Errorf("row %d: %+v, want %+v", i, r, w)
		}
	}
	for _, name := range again.Plots {
		if info, err := os.Stat(name); err != nil || info.Size() < 1000 {
			t.Errorf("plot %s: %v", name, err)
		}
	}
}
