package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"talf/cmd/talf/command"
	"talf/internal/e2e/talftest"
)

// checkProfile fails unless a run left its profiles, and removes them.
func checkProfile(t testing.TB, dir string) {
	t.Helper()
	for _, name := range []string{"cpu.pprof", "heap.pprof"} {
		path := filepath.Join(dir, name)
		if b, err := os.ReadFile(path); err != nil || len(b) == 0 || os.Remove(path) != nil {
			t.Errorf("%s: %d bytes, %v", name, len(b), err)
		}
	}
}

// A profile changes nothing else of what a command does: neither the
// checkpoints nor how a run is interrupted and continued.
func TestTrainProfilesThroughTheCommandLine(t *testing.T) {
	if testing.Short() {
		t.Skip("trains; runs without -short")
	}
	w := talftest.NewWorld(t)
	dir := t.TempDir()
	plain, out, prof := filepath.Join(dir, "plain"), filepath.Join(dir, "out"), filepath.Join(dir, "new", "profile")
	talftest.OK(t, "", w.Train(plain)...)
	talftest.OK(t, "", append(w.Train(out), "--profile", prof)...)
	talftest.SameTree(t, out, plain)
	checkProfile(t, prof)
	talftest.OK(t, "", append(w.Train(out), "--profile", prof, "--resume")...)
	checkProfile(t, prof)
	file := filepath.Join(dir, "file")
	talftest.Write(t, file, "")
	talftest.Run(t, "", append(w.Train(filepath.Join(dir, "x")), "--profile", file)...).Refuses(t, command.ExitFailure, "profile: ", file)

	lm := filepath.Join(dir, "lm")
	talftest.OK(t, "", "train", "--kind", "lm", "--model", w.Model, "--data", w.Text, "--out", lm, "--steps", "3", "--rows", "128", "--window", "32", "--profile", prof, "--dtype", "bf16")
	checkProfile(t, prof)

	if testing.Short() {
		return
	}
	talftest.Interrupts(t)
	stopped := filepath.Join(dir, "stopped")
	long := append(w.Train(stopped), "--steps", "300", "--profile", prof)
	if r := talftest.InterruptedTrain(t, talftest.Command(t, long...), stopped); r.Code != command.ExitInterrupted || !strings.Contains(r.Err, "--resume") {
		t.Errorf("exit %d, stderr:\n%s", r.Code, r.Err)
	}
	checkProfile(t, prof)
}

// A run in bfloat16 has stages, a draft vocabulary and recomputed features like any other,
// continues only in bfloat16, and its head is like that of any other run.
func TestTrainInHalfThroughTheCommandLine(t *testing.T) {
	if testing.Short() {
		t.Skip("trains several heads")
	}
	w := talftest.NewWorld(t)
	dir := t.TempDir()
	out := func(name string) string { return filepath.Join(dir, name) }
	args := func(to string, more ...string) []string {
		return append([]string{
			"train", "--model", w.Model, "--data", w.Labels, "--stage", "eagle:2", "--stage", "hass:top=4:2", "--stage", "talf:2", "--rows", "128",
			"--layers", "2", "--draft-vocab", "24", "--held-out", "0.2", "--eval-every", "0", "--save-every", "1", "--warmup", "1", "--out", to,
		}, more...)
	}
	half := []string{"--dtype", "bf16"}
	talftest.OK(t, "", args(out("half"), half...)...)
	talftest.OK(t, "", args(out("again"), append(half, "--features", "recompute", "--threads", "1")...)...)
	talftest.SameTree(t, out("again"), out("half"))
	talftest.OK(t, "", args(out("f32"), "--dtype", "f32")...)
	a, b := talftest.Contents(t, out("half")), talftest.Contents(t, out("f32"))
	step := "step-00000006"
	if name := filepath.Join(step, "model.safetensors"); len(a[name]) != len(b[name]) || a[name] == b[name] || a[name] == "" {
		t.Errorf("weights of %d bytes, in f32 %d; the same: %v", len(a[name]), len(b[name]), a[name] == b[name])
	}
	if name := filepath.Join(step, "config.json"); a[name] != b[name] || a[name] == "" {
		t.Errorf("%s differs by the type that activations were kept as", name)
	}
	talftest.Run(t, "", args(out("half"), "--resume")...).Refuses(t, command.ExitFailure, "trainer.json", "dtype was bf16, is not given")
	talftest.Run(t, "", args(out("f32"), "--resume", "--dtype", "bf16")...).Refuses(t, command.ExitFailure, "trainer.json", "dtype was not given, is bf16")

	// If the last stage was lost, it is trained again with the same bits.
	for _, s := range []string{"step-00000005", step, "best.json"} {
		if err := os.RemoveAll(filepath.Join(out("again"), s)); err != nil {
			t.Fatal(err)
		}
	}
	talftest.OK(t, "", args(out("again"), append(half, "--resume")...)...)
	if got := talftest.Contents(t, out("again")); got[filepath.Join(step, "model.safetensors")] != a[filepath.Join(step, "model.safetensors")] {
		t.Error("other weights than the uninterrupted run's")
	}
	// Heads of one type can start from those of the other.
	one := []string{"train", "--model", w.Model, "--data", w.Labels, "--rows", "128", "--steps", "1", "--layers", "2"}
	talftest.OK(t, "", append(one, "--init", out("half"), "--out", out("from half"))...)
	talftest.OK(t, "", append(one, "--init", out("f32"), "--out", out("to half"), "--dtype", "bf16", "--draft-vocab", out("half"))...)
	talftest.OK(t, "", "generate", "--model", w.Model, "--head", out("half"), "--prompt", "Once", "--max-tokens", "4")
}
