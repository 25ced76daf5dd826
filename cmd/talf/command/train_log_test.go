package command

import (
	"path/filepath"
	"testing"

	"talf/internal/e2e/talftest"
)

// --log tensorboard writes event files beside the checkpoints, one for each process that made steps.
func TestTrainingWritesEventFiles(t *testing.T) {
	w := talftest.NewWorld(t)
	out := filepath.Join(t.TempDir(), "run")
	events := func() int {
		names, err := filepath.Glob(filepath.Join(out, "events.out.tfevents.*"))
		if err != nil {
			t.Fatal(err)
		}
		return len(names)
	}
	talftest.Run(t, "", append(w.Train(out), "--log", "wandb")...).Refuses(t, ExitUsage, `--log is "wandb", want tensorboard`)
	talftest.OK(t, "", append(w.Train(out), "--log", "tensorboard")...)
	if n := events(); n != 1 {
		t.Errorf("%d event files, want 1", n)
	}
	talftest.OK(t, "", append(w.Train(out), "--resume", "--log", "tensorboard")...) // nothing is left to do
	if n := events(); n != 1 {
		t.Errorf("%d event files after a run that made no step, want 1", n)
	}
}
