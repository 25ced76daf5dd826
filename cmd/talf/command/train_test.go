package command

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"talf/internal/e2e/talftest"
	"talf/train"
	"talf/train/history"
)

// A configuration file is equivalent to its flags: the printed file of a command line prints
// itself, and a flag overrides it.
func TestAConfigurationFileEqualsItsFlags(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "run.yaml")
	for _, args := range [][]string{
		{"--model", "m", "--data", "labels", "--out", "o"},
		{"--model", "m: 'x'", "--data", "a=0.7", "--data", "b=0.3", "--out", "true", "--stage", "eagle:10e", "--stage", "talf:3e:lr=1e-4", "--lr", "2e-4", "--resume", "--noise", "0.2", "--plot", "p.svg"},
		{"--model", "m", "--data", "d", "--out", "007", "--epochs", "2.5", "--loss", "hass:top=4", "--seed", "18446744073709551615", "--patience", "3"},
		{"--kind", "lm", "--model", "m", "--data", "a.jsonl", "--data", "b.jsonl", "--out", "o", "--export", "e", "--window", "64", "--steps", "3"},
	} {
		printed := talftest.OK(t, "", append(append([]string{"train"}, args...), "--print-config")...)
		talftest.Write(t, file, printed)
		if again := talftest.OK(t, "", "train", "--config", file, "--print-config"); again != printed {
			t.Errorf("%v:\n%s\nread again:\n%s", args, printed, again)
		}
		if !strings.Contains(printed, "accum: 1\n") {
			t.Errorf("a default is missing:\n%s", printed)
		}
	}
	talftest.Write(t, file, "model: m\ndata: [a, b]\nout: o\nlr: 0.5\nsteps: 7\nloss: eagle\n")
	got := talftest.OK(t, "", "train", "--config", file, "--lr", "0.25", "--data", "c", "--stage", "talf:3e", "--print-config")
	for want, there := range map[string]bool{"lr: 0.25": true, "- c\n": true, "- talf:3e\n": true, "- a\n": false, "steps: 7": false, "loss: eagle": false} {
		if strings.Contains(got, want) != there {
			t.Errorf("%q in it: %v, want %v:\n%s", want, !there, there, got)
		}
	}
}

func TestBadConfigurationFilesAreRefusedByLine(t *testing.T) {
	file := filepath.Join(t.TempDir(), "run.yaml")
	for text, want := range map[string]string{
		"model: m\nlearning_rate: 1":  ":2: learning_rate: no such option",
		"config: x":                   ":1: config: no such option",
		"steps: 1\n\nsteps: 2":        "steps: given twice",
		"steps: many":                 ":1: steps: \"many\", want a whole number",
		"steps: [1, 2]":               "want a plain value",
		"steps:":                      "want a plain value",
		"lr: {a: 1}":                  "want a plain value",
		"- a\n- b":                    "the flags' names and values",
		"a: [":                        "run.yaml: ",
		"model: m\n---\nmodel: n":     "one YAML document",
		"stage: [eagle:1, {talf: 2}]": "want a plain value",
	} {
		talftest.Write(t, file, text)
		talftest.Run(t, "", "train", "--config", file, "--print-config").Refuses(t, ExitUsage, want)
	}
	talftest.Write(t, file, "model: m\ndata: d\nout: o\nlr: -1")
	talftest.Run(t, "", "train", "--config", file).Refuses(t, ExitUsage, "lr is -1")
	talftest.Run(t, "", "train", "--model", "m", "--data", "d", "--out", "o", "--dtype", "f16").Refuses(t, ExitUsage, "dtype is \"f16\"")
	talftest.Run(t, "", "train", "--config", filepath.Join(t.TempDir(), "none.yaml")).Refuses(t, ExitFailure, "none.yaml")
}

// A run in stages on two sets, from a configuration file: what is printed, kept, logged and
// drawn.
func TestTrainingInStagesThroughTheCommandLine(t *testing.T) {
	if testing.Short() {
		t.Skip("runs whole pipelines")
	}
	w := talftest.NewWorld(t)
	dir := t.TempDir()
	out, file, picture := filepath.Join(dir, "run[1]"), filepath.Join(dir, "run.yaml"), filepath.Join(dir, "run.svg")
	talftest.Write(t, file, fmt.Sprintf(`model: %q
data:
  - %s=2
  - %s
out: %q
stage:
  - eagle:3
  - hass:top=4:2:lr=1e-3
  - talf:2
rows: 128
warmup: 1
eval-every: 1
eval-seqs: 4
save-every: 1
keep: 1
held-out: 0.2
`, w.Model, w.Labels, w.Labels, out))
	printed := talftest.OK(t, "", "train", "--config", file, "--plot", picture, "--features", "recompute")
	if !strings.Contains(printed, "step 7") || !strings.Contains(printed, "τ̂ ") {
		t.Errorf("printed:\n%s", printed)
	}
	var runs []history.Run
	if err := json.Unmarshal([]byte(talftest.OK(t, "", "inspect", "metrics", out, "--json")), &runs); err != nil {
		t.Fatal(err)
	}
	if len(runs) != 1 || len(runs[0].Rows) != 7 || runs[0].Rows[6].Stage != 3 || runs[0].Rows[6].Eval == nil || runs[0].Rows[6].Eval.Tau <= 1 {
		t.Errorf("metrics: %+v", runs)
	}
	if text := talftest.OK(t, "", "inspect", "metrics", out, filepath.Join(out, train.MetricsFile)); strings.Count(text, "held out") != 2 {
		t.Errorf("metrics:\n%s", text)
	}
	if b, err := os.ReadFile(picture); err != nil || !strings.Contains(string(b), "<svg") {
		t.Errorf("picture: %.40s, %v", b, err)
	}
	talftest.OK(t, "", "generate", "--model", w.Model, "--head", filepath.Join(out, "best"), "--prompt", "Once", "--max-tokens", "4")
	talftest.Run(t, "", "train", "--config", file, "--resume", "--patience", "2").Refuses(t, ExitFailure, "patience")
	talftest.Run(t, "", "train", "--config", file).Refuses(t, ExitFailure, "--resume")
	longer := talftest.Run(t, "", "train", "--config", file, "--resume", "--stage", "eagle:3", "--stage", "hass:top=4:2:lr=1e-3", "--stage", "talf:4")
	if longer.Code != 0 || !strings.Contains(longer.Out, "step 9") || !strings.Contains(longer.Err, "lengthened from 2 to 4 steps: the learning rates of the first 2 were those of 2") {
		t.Errorf("lengthened: exit %d\n%s%s", longer.Code, longer.Out, longer.Err)
	}
	talftest.Run(t, "", "inspect", "metrics", t.TempDir()).Refuses(t, ExitFailure, "metrics.jsonl")
	talftest.Run(t, "", "train", "--config", file, "--steps", "2", "--stage", "talf:1").Refuses(t, ExitUsage, "exclude each other")
}

func TestWhatADeviceMultipliesIsAskedOfDevices(t *testing.T) {
	args := []string{"train", "--model", "m", "--data", "d", "--out", filepath.Join(t.TempDir(), "o")}
	talftest.Run(t, "", append(args, "--math", "bf16")...).Refuses(t, ExitUsage, "math bf16 is for CUDA devices: --device names one")
	t.Setenv("CUDA_VISIBLE_DEVICES", "-1")
	talftest.Run(t, "", append(args, "--math", "bf16", "--device", "auto")...).Refuses(t, ExitUsage,
		"math bf16 is for CUDA devices, and none was found")
	talftest.Run(t, "", append(args, "--math", "f16")...).Refuses(t, ExitUsage, `math is "f16", want f32 or bf16`)
	talftest.Run(t, "", append(args, "--device", "gpu")...).Refuses(t, ExitUsage, "want cpu, auto, cuda:all, or cuda:N")
}

// Of data in which only the last sequences have trees, losses along the text learn; those over trees, and evaluations of
// more than these sequences, are refused.
func TestTrainOnTextOfWhichFewHaveTrees(t *testing.T) {
	w := talftest.World{Model: talftest.TinyModel(t, talftest.TinyConfig(), 1), Text: talftest.TextFile(t, 24), Labels: filepath.Join(t.TempDir(), "labels")}
	talftest.OK(t, "", append(w.Preprocess(w.Labels), "--tree-share", "0.2")...)
	if said := talftest.OK(t, "", "inspect", "data", w.Labels, "--stats"); !strings.Contains(said, "of the last 20% of the rows alone") {
		t.Errorf("inspect says of the trees:\n%s", said)
	}
	run := func(args ...string) []string {
		return append([]string{"train", w.Model, "--data", w.Labels, "--steps", "2", "--rows", "128", "--out", filepath.Join(t.TempDir(), "head")}, args...)
	}
	for _, loss := range []string{"eagle", "hass"} {
		talftest.OK(t, "", run("--loss", loss, "--held-out", "0.2")...)
	}
	talftest.Run(t, "", run("--loss", "talf", "--held-out", "0.2")...).Refuses(t, ExitFailure, "loss talf: it learns from trees, and only the last 20% of the data's sequences have any")
	talftest.Run(t, "", run("--loss", "hass", "--held-out", "0.3")...).Refuses(t, ExitFailure, "held-out is 0.3, want at most 0.2")
	talftest.Run(t, "", append(w.Preprocess(w.Labels), "--tree-share", "0.3")...).Refuses(t, ExitFailure, "tree_share: 0.2, want 0.3")
	talftest.Run(t, "", append(w.Preprocess(w.Labels+"2"), "--tree-share", "1")...).Refuses(t, ExitUsage, "tree-share is 1")
}
