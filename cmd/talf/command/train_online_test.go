package command

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"talf/internal/await"
	"talf/internal/e2e/talftest"
)

// A head that is trained while its text is labelled has the bits of one that preprocess and train
// make, for both networks and kinds of labels, with held-out text and stages, whatever is kept, and
// stopped in between or not.
func TestTrainingWhileLabellingIsPreprocessAndTrain(t *testing.T) {
	w := talftest.World{Model: talftest.TinyModel(t, talftest.TinyConfig(), 1), Text: talftest.TextFile(t, 12)}
	dir := t.TempDir()
	for name, x := range map[string]struct{ label, text, train []string }{
		"EAGLE-1":    {nil, nil, []string{"--stage", "eagle:2", "--stage", "talf:2"}},
		"EAGLE-3":    {[]string{"--features", "taps:0+1+2"}, nil, []string{"--network", "eagle3:taps=0+1+2", "--draft-vocab", "200", "--stage", "eagle3:steps=2:1", "--stage", "talf:outside=mask:1"}},
		"all labels": {nil, []string{"--labels", "full", "--depth", "2", "--k", "2", "--limit", "6"}, []string{"--loss", "hass:temp=2,passes=2", "--steps", "2"}},
	} {
		t.Run(name, func(t *testing.T) {
			out := func(what string) string { return filepath.Join(dir, name+" "+what) }
			text := append([]string{"--max-len", "96"}, x.text...)
			talftest.OK(t, "", slices.Concat([]string{"preprocess", "--model", w.Model, "--data", w.Text, "--out", out("labels")}, x.label, text)...)
			common := append([]string{"train", "--model", w.Model, "--rows", "128", "--warmup", "1", "--eval-every", "1", "--eval-seqs", "2", "--save-every", "1", "--held-out", "0.2"}, x.train...)
			talftest.OK(t, "", slices.Concat(common, []string{"--data", out("labels"), "--out", out("stored")})...)
			online := slices.Concat(common, []string{"--online", "--data", w.Text, "--keep-labels", "0", "--out", out("online")}, text)
			weights := func(what string) []byte {
				all, err := filepath.Glob(filepath.Join(out(what), "[a-z]*", "model.safetensors"))
				if err != nil || len(all) == 0 {
					t.Fatal(all, err)
				}
				b, err := os.ReadFile(slices.Max(all))
				if err != nil {
					t.Fatal(err)
				}
				return b
			}
			if name == "EAGLE-1" { // is killed once, and goes on
				c := talftest.Command(t, online...)
				if err := c.Start(); err != nil {
					t.Fatal(err)
				}
				await.Until(t, "a checkpoint", func() bool {
					all, _ := filepath.Glob(filepath.Join(out("online"), "[a-z]*", "model.safetensors"))
					return len(all) > 0
				})
				if err := c.Process.Kill(); err != nil {
					t.Fatal(err)
				}
				_ = c.Wait() // it was killed
				if n := len(weights("online")); n == 0 {
					t.Fatal("no checkpoint")
				}
				online = append(online, "--resume")
			}
			talftest.OK(t, "", online...)
			if !bytes.Equal(weights("stored"), weights("online")) {
				t.Error("another head than with stored labels")
			}
			if name == "EAGLE-1" { // not with other text
				more := filepath.Join(dir, "more.txt")
				if err := os.WriteFile(more, []byte("Once upon a time there was a dog.\n"), 0o666); err != nil {
					t.Fatal(err)
				}
				talftest.Run(t, "", append(online, "--data", more)...).Refuses(t, ExitFailure, "data")
			}
		})
	}
	base := []string{"train", "--model", w.Model, "--data", w.Text, "--out", filepath.Join(dir, "none")}
	talftest.Run(t, "", append(base, "--max-len", "96")...).Refuses(t, ExitUsage, "are for --online")
	talftest.Run(t, "", append(base, "--template", "{q}")...).Refuses(t, ExitUsage, "--online and --kind lm")
	talftest.Run(t, "", append(base, "--kind", "lm", "--online")...).Refuses(t, ExitUsage, "are for heads")
	talftest.Run(t, "", append(base, "--online", "--k", "0")...).Refuses(t, ExitUsage, "k")
}

// An interrupt ends a run that labels what it reads as any other: it says so and how to go on, and the rest of the run
// has the bits of one that was not stopped.
func TestTrainingWhileLabellingIsInterrupted(t *testing.T) {
	talftest.Interrupts(t)
	text, dir := talftest.TextFile(t, 12), t.TempDir()
	model := talftest.TinyModel(t, talftest.TinyConfig(), 1)
	run := func(out string) []string {
		return []string{
			"train", "--model", model, "--online", "--data", text, "--keep-labels", "0", "--max-len", "64", "--rows", "64", "--loss", "talf",
			"--steps", "40", "--eval-every", "0", "--save-every", "1", "--out", filepath.Join(dir, out),
		}
	}
	r := talftest.InterruptedTrain(t, talftest.Command(t, run("stopped")...), filepath.Join(dir, "stopped"))
	if r.Code != ExitInterrupted {
		t.Fatalf("exit %d, want %d; stderr:\n%s", r.Code, ExitInterrupted, r.Err)
	}
	var said []string
	for line := range strings.Lines(r.Err) {
		if strings.HasPrefix(line, "talf: ") {
			said = append(said, line)
		}
	}
	if len(said) != 3 || !strings.HasPrefix(said[0], "talf: stopping") || said[1] != "talf: interrupted\n" || !strings.Contains(said[2], "--resume") {
		t.Errorf("it says %q", said)
	}
	talftest.OK(t, "", append(run("stopped"), "--resume")...)
	talftest.OK(t, "", run("whole")...)
	var got [2][]byte
	for i, out := range []string{"stopped", "whole"} {
		var err error
		if got[i], err = os.ReadFile(filepath.Join(dir, out, "step-00000040", "model.safetensors")); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(got[0], got[1]) {
		t.Error("another head than that of a run that was not stopped")
	}
}

// What will label is looked at before any text is read, and text of which nothing is left is no text with zeros.
func TestTrainingWhileLabellingRefusesEarly(t *testing.T) {
	text := filepath.Join(t.TempDir(), "empty.txt")
	if err := os.WriteFile(text, []byte("\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	model := talftest.TinyModel(t, talftest.TinyConfig(), 1)
	run := []string{"train", "--model", model, "--online", "--data", text, "--out", filepath.Join(t.TempDir(), "head")}
	r := talftest.Run(t, "", run...)
	r.Refuses(t, ExitFailure, "nothing to learn")
	if strings.Contains(r.Err, "labelling while training") {
		t.Errorf("it counts what was refused:\n%s", r.Err)
	}
	weights := filepath.Join(model, "model.safetensors")
	b, err := os.ReadFile(weights)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 4 {
		b[len(b)-1-i] = 0xff // NaN
	}
	if err := os.WriteFile(weights, b, 0o666); err != nil {
		t.Fatal(err)
	}
	talftest.Run(t, "", run...).Refuses(t, ExitFailure, "NaN")
}
