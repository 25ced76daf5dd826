package command

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

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
				for {
					all, _ := filepath.Glob(filepath.Join(out("online"), "[a-z]*", "model.safetensors"))
					if len(all) > 0 {
						break
					}
					time.Sleep(time.Millisecond)
				}
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
