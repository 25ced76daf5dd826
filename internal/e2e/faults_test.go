package e2e

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"talf/cmd/talf/command"
	"talf/internal/durable"
	"talf/internal/e2e/talftest"
	"talf/internal/jsonl"
)

func TestBadInputGivesOneClearError(t *testing.T) {
	w := talftest.NewWorld(t)
	none := filepath.Join(t.TempDir(), "none")
	size := func(path string) int64 {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		return info.Size()
	}
	// flip changes one byte in the middle of a file.
	flip := func(path string) {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		b[len(b)/2] ^= 0x55
		talftest.Write(t, path, string(b))
	}
	shards, err := filepath.Glob(filepath.Join(w.Labels, "*.parquet"))
	if err != nil || len(shards) < 2 {
		t.Fatalf("shards %v, %v", shards, err)
	}
	shard := filepath.Base(shards[1])
	wide := talftest.TinyConfig()
	wide.Hidden = 48
	small := talftest.TinyConfig()
	small.Vocab = 900
	bad := func(args []string, flag, value string) []string {
		out := append([]string(nil), args...)
		for i, a := range out {
			if a == flag {
				out[i+1] = value
				return out
			}
		}
		return append(out, flag, value)
	}
	weights := func(dir string) string { return filepath.Join(dir, "model.safetensors") }
	for name, c := range map[string]struct {
		prepare func() (args []string)
		want    []string
	}{
		"no model directory": {func() []string { return bad(w.Generate(), "--model", none) }, []string{none, "does not exist"}},
		"a file instead of a model": {
			func() []string { return bad(w.Generate(), "--model", w.Text) },
			[]string{w.Text, "want a model (directory or .gguf)"},
		},
		"no config.json": {
			func() []string { return bad(w.Generate(), "--model", t.TempDir()) },
			[]string{"config.json"},
		},
		"a head instead of a model": {
			func() []string { return bad(w.Generate(), "--model", w.Head) },
			[]string{w.Head, "give it as --head"},
		},
		"config.json in a loop": {func() []string {
			dir := t.TempDir()
			conf := filepath.Join(dir, "config.json")
			if err := os.Symlink(conf, conf); err != nil {
				t.Fatal(err)
			}
			return bad(w.Generate(), "--model", dir)
		}, []string{"config.json", "symbolic links"}},
		"perplexity of nothing": {
			func() []string {
				return []string{"bench", "perplexity", "--model", w.Model, "--text", talftest.Write(t, filepath.Join(t.TempDir(), "empty.txt"), ""), "--dtype", "f32"}
			},
			[]string{"empty.txt", "0 tokens"},
		},
		"truncated weights": {func() []string {
			dir := talftest.CopyDir(t, w.Model)
			talftest.Truncate(t, weights(dir), size(weights(dir))-100)
			return bad(w.Generate(), "--model", dir)
		}, []string{"model.safetensors"}},
		"weights cut in the header": {func() []string {
			dir := talftest.CopyDir(t, w.Model)
			talftest.Truncate(t, weights(dir), 20)
			return bad(w.Generate(), "--model", dir)
		}, []string{"model.safetensors"}},
		"config.json of another size": {func() []string {
			dir := talftest.CopyDir(t, w.Model)
			talftest.EditJSON(t, filepath.Join(dir, "config.json"), "intermediate_size", 80)
			return bad(w.Generate(), "--model", dir)
		}, []string{"80", "72"}},
		"config.json of another vocabulary": {func() []string {
			dir := talftest.CopyDir(t, w.Model)
			talftest.EditJSON(t, filepath.Join(dir, "config.json"), "vocab_size", 2000)
			return bad(w.Generate(), "--model", dir)
		}, []string{"2000", "1024"}},
		"a tokenizer that is too large": {
			func() []string { return bad(w.Generate(), "--model", talftest.TinyModel(t, small, 1)) },
			[]string{"1024", "900"},
		},
		"an unknown architecture": {func() []string {
			dir := talftest.CopyDir(t, w.Model)
			talftest.EditJSON(t, filepath.Join(dir, "config.json"), "model_type", "mamba")
			return bad(w.Generate(), "--model", dir)
		}, []string{"mamba", "llama"}},
		"no head": {func() []string { return bad(w.Generate(), "--head", none) }, []string{none}},
		"another model's head": {
			func() []string {
				return bad(w.Generate(), "--head", talftest.TinyHead(t, talftest.TinyModel(t, talftest.TinyConfig(), 2), 1))
			},
			[]string{"model.safetensors", "the hash of the weights is", "force"},
		},
		"a head of another size": {
			func() []string {
				return append(bad(w.Generate(), "--head", talftest.TinyHead(t, talftest.TinyModel(t, wide, 2), 1)), "--force")
			},
			[]string{"48", "40"},
		},
		"a truncated head": {func() []string {
			dir := talftest.CopyDir(t, w.Head)
			talftest.Truncate(t, weights(dir), size(weights(dir))/2)
			return bad(w.Generate(), "--head", dir)
		}, []string{dirName(w.Head), "model.safetensors"}},
		"a model as head": {
			func() []string { return bad(w.Generate(), "--head", w.Model) },
			[]string{dirName(w.Model), "a language model, not a draft head", "--draft"},
		},
		"a corrupt checkpoint as head": {func() []string {
			dir := t.TempDir()
			talftest.OK(t, "", w.Train(dir)...)
			last := filepath.Join(dir, "step-00000004")
			// The trainer's state is not needed to decode, the weights are.
			if err := os.Remove(filepath.Join(last, "optimizer.safetensors")); err != nil {
				t.Fatal(err)
			}
			args := bad(w.Generate(), "--head", last)
			talftest.OK(t, "", args...)
			flip(weights(last))
			return args
		}, []string{"model.safetensors", "corrupt"}},
		"a language model's checkpoint as head": {func() []string {
			dir := t.TempDir()
			talftest.OK(t, "", "train", "--kind", "lm", "--model", w.Model, "--data", w.Text, "--steps", "1", "--rows", "64", "--window", "32",
				"--warmup", "0", "--out", dir)
			return bad(w.Generate(), "--head", dir)
		}, []string{"a language model, not a draft head", "--draft"}},
		"no labels": {func() []string { return bad(w.Train(t.TempDir()), "--data", none) }, []string{none}},
		"a directory without labels": {
			func() []string { return bad(w.Train(t.TempDir()), "--data", t.TempDir()) },
			[]string{"manifest.json"},
		},
		"a corrupt shard": {func() []string {
			dir := talftest.CopyDir(t, w.Labels)
			flip(filepath.Join(dir, shard))
			return append(bad(w.Train(t.TempDir()), "--data", dir), "--held-out", "0")
		}, []string{shard}},
		"a truncated shard": {func() []string {
			dir := talftest.CopyDir(t, w.Labels)
			talftest.Truncate(t, filepath.Join(dir, shard), size(filepath.Join(dir, shard))/2)
			return bad(w.Train(t.TempDir()), "--data", dir)
		}, []string{shard, "bytes"}},
		"a corrupt shard, inspected": {func() []string {
			dir := talftest.CopyDir(t, w.Labels)
			flip(filepath.Join(dir, shard))
			return []string{"inspect", dir}
		}, []string{shard}},
		"labels of another model": {
			func() []string {
				return bad(w.Train(t.TempDir()), "--model", talftest.TinyModel(t, talftest.TinyConfig(), 2))
			},
			[]string{"the hash of the weights is", "force"},
		},
		"labels of another size": {
			func() []string { return bad(w.Train(t.TempDir()), "--model", talftest.TinyModel(t, wide, 2)) },
			[]string{"hidden size", "48", "40"},
		},
		"another model's head to begin with": {
			func() []string {
				return bad(w.Train(t.TempDir()), "--init", talftest.TinyHead(t, talftest.TinyModel(t, talftest.TinyConfig(), 2), 1))
			},
			[]string{"initial head", "the hash of the weights is", "force"},
		},
		"no text": {func() []string { return bad(w.Preprocess(none), "--data", none+".jsonl") }, []string{none}},
		"output that is a file": {
			func() []string { return w.Preprocess(w.Text) },
			[]string{w.Text},
		},
		"labels made with other options": {
			func() []string { return bad(w.Preprocess(talftest.CopyDir(t, w.Labels)), "--max-len", "64") },
			[]string{"manifest"},
		},
		"a bad checkpoint, inspected": {func() []string {
			dir := t.TempDir()
			talftest.OK(t, "", w.Train(dir)...)
			step, err := filepath.Glob(filepath.Join(dir, "step-*"))
			if err != nil || len(step) == 0 {
				t.Fatal(step, err)
			}
			last := step[len(step)-1]
			flip(weights(last))
			return []string{"inspect", last}
		}, []string{"model.safetensors"}},
	} {
		t.Run(name, func(t *testing.T) {
			talftest.Run(t, "", c.prepare()...).Refuses(t, command.ExitFailure, c.want...)
		})
	}
}

func dirName(path string) string { return filepath.Base(filepath.Dir(path)) }

func TestTrainDoesNotMixRuns(t *testing.T) {
	w := talftest.NewWorld(t)
	out := filepath.Join(t.TempDir(), "run")
	_, figures, _ := strings.Cut(talftest.OK(t, "", w.Train(out)...), "\n")
	before := talftest.Contents(t, out)
	talftest.Run(t, "", w.Train(out)...).Refuses(t, command.ExitFailure, out, "--resume")
	for name, text := range talftest.Contents(t, out) {
		if before[name] != text {
			t.Errorf("%s was changed by a refused run", name)
		}
	}
	// A run that has finished has no step left to make, so there is no loss of one to report;
	// the figures of its evaluation are the final ones.
	first, rest, _ := strings.Cut(talftest.OK(t, "", append(w.Train(out), "--resume")...), "\n")
	if !strings.HasSuffix(first, "step 4") || !strings.HasPrefix(rest, "held out: loss") || rest != figures {
		t.Errorf("a finished run says %q and %q, want step 4 and %q", first, rest, figures)
	}
	var r struct {
		Step int
		Done bool
		Loss *float64
	}
	if err := json.Unmarshal([]byte(talftest.OK(t, "", append(w.Train(out), "--resume", "--json")...)), &r); err != nil || r.Step != 4 || !r.Done || r.Loss != nil {
		t.Errorf("a finished run says %+v, %v", r, err)
	}
	talftest.Run(t, "", append(w.Train(out), "--resume", "--steps", "3")...).Refuses(t, command.ExitFailure, out, "steps was 4, is 3")
}

// However many lines of a file of prompts are bad, the report stays readable.
func TestManyBadPromptsAreCounted(t *testing.T) {
	dir := talftest.TinyModel(t, talftest.TinyConfig(), 1)
	tmp := t.TempDir()
	long := `{"prompt":"` + strings.Repeat("word ", 1000) + `"}` + "\n"
	file := talftest.Write(t, filepath.Join(tmp, "in.jsonl"), strings.Repeat("no\n", 100)+long+`{"prompt":"x"}`+"\n"+strings.Repeat(long, 50))
	out := filepath.Join(tmp, "out.jsonl")
	r := talftest.Run(t, "", "generate", "--model", dir, "--prompts", file, "--out", out, "--max-tokens", "2")
	r.Refuses(t, command.ExitFailure, "51 prompts were not answered", "in.jsonl:101", "too long")
	if n := strings.Count(r.Err, "\n"); n > 50 || !strings.Contains(r.Err, "count=100") {
		t.Errorf("%d lines:\n%s", n, r.Err)
	}
	if got := talftest.ReadAnswers(t, out); len(got) != 1 || got[0].Prompt != "x" {
		t.Errorf("%+v", got)
	}
}

// However long a bad line is, the report stays readable.
func TestErrorsDoNotRepeatTheirInput(t *testing.T) {
	dir := talftest.TinyModel(t, talftest.TinyConfig(), 1)
	file := talftest.Write(t, filepath.Join(t.TempDir(), "long.jsonl"), strings.Repeat("word ", 100_000)+"\n")
	for _, args := range [][]string{
		{"inspect", "metrics", file},
		{"inspect", "trace", file},
		{"bench", "--model", dir, "--prompts", talftest.PromptFile(t, 2), "--method", "pld", "--log", file},
		{"generate", "--model", dir, "--prompts", talftest.PromptFile(t, 2), "--out", file},
		{"generate", "--model", dir, "--prompts", file, "--out", file + ".out"},
	} {
		r := talftest.Run(t, "", args...)
		r.Refuses(t, command.ExitFailure, file)
		if len(r.Err) > 1000 {
			t.Errorf("talf %s %s says %d bytes", args[0], args[1], len(r.Err))
		}
	}
}

func TestBadLinesAreReportedAndCounted(t *testing.T) {
	w := talftest.NewWorld(t)
	good, err := os.ReadFile(w.Text)
	if err != nil {
		t.Fatal(err)
	}
	w.Text = talftest.Write(t, filepath.Join(t.TempDir(), "mixed.jsonl"), string(good)+"not json\n{\"text\": 7}\n")
	r := talftest.Run(t, "", w.Preprocess(filepath.Join(t.TempDir(), "labels"))...)
	if r.Code != command.ExitOK || !strings.Contains(r.Err, "mixed.jsonl:25") || !strings.Contains(r.Err, "count=") {
		t.Errorf("exit %d, stderr:\n%s", r.Code, r.Err)
	}
}

// Ctrl-C at any point: exit 130 and a message saying what to do next; doing it gives the bytes
// of an uninterrupted run.
func TestInterruptedStagesContinue(t *testing.T) {
	if testing.Short() {
		t.Skip("runs the pipeline several times")
	}
	talftest.Interrupts(t)
	w := talftest.NewWorld(t)
	w.Text = talftest.TextFile(t, 120)
	has := func(pattern string) func() bool {
		return func() bool {
			m, err := filepath.Glob(pattern)
			return err == nil && len(m) > 0
		}
	}
	tmp := t.TempDir()
	whole, parts := filepath.Join(tmp, "whole"), filepath.Join(tmp, "parts")
	talftest.OK(t, "", w.Preprocess(whole)...)
	r := talftest.Interrupt(t, talftest.Command(t, w.Preprocess(parts)...), has(filepath.Join(parts, "shard-00001.parquet")))
	if r.Code != command.ExitInterrupted || !strings.Contains(r.Err, "run the same command again") {
		t.Errorf("preprocess: exit %d, stderr:\n%s", r.Code, r.Err)
	}
	talftest.OK(t, "", w.Preprocess(parts)...)
	talftest.SameTree(t, parts, whole)

	w.Labels = whole
	args := func(out string) []string {
		return append(w.Train(out), "--steps", "60", "--save-every", "5", "--keep", "1")
	}
	whole, parts = filepath.Join(tmp, "trained"), filepath.Join(tmp, "stopped")
	talftest.OK(t, "", args(whole)...)
	r = talftest.InterruptedTrain(t, talftest.Command(t, args(parts)...), parts)
	if r.Code != command.ExitInterrupted || !strings.Contains(r.Err, "--resume") {
		t.Errorf("train: exit %d, stderr:\n%s", r.Code, r.Err)
	}
	talftest.OK(t, "", append(args(parts), "--resume")...)
	talftest.SameTree(t, parts, whole)
}

// In "talf train 2>&1 | tee log", Ctrl-C also stops tee, before talf has written its last words;
// closing a terminal closes both streams. Either way, what was trained is saved.
func TestTrainSavesThoughNobodyReads(t *testing.T) {
	if testing.Short() {
		t.Skip("trains for some seconds")
	}
	talftest.Interrupts(t)
	w := talftest.NewWorld(t)
	for name, signals := range map[string][]os.Signal{
		"Ctrl-C":          {os.Interrupt},
		"closed terminal": {syscall.SIGHUP},
	} {
		t.Run(name, func(t *testing.T) {
			if signals[0] == syscall.SIGHUP {
				talftest.HangsUp(t)
			}
			dir := filepath.Join(t.TempDir(), "run")
			r, pipe, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			c := talftest.Command(t, append(w.Train(dir), "--steps", "100000", "--save-every", "1000000")...)
			c.Stdout, c.Stderr = pipe, pipe
			if err := errors.Join(c.Start(), pipe.Close()); err != nil {
				t.Fatal(err)
			}
			ended := make(chan error, 1)
			go func() { ended <- c.Wait() }()
			steps := filepath.Join(dir, "metrics.jsonl")
			for waiting := true; waiting; { // until some are done
				b, err := os.ReadFile(steps)
				waiting = err != nil || strings.Count(string(b), "\n") <= 2
				select {
				case err := <-ended:
					t.Fatalf("the run ended before it was interrupted: %v", err)
				case <-time.After(5 * time.Millisecond):
				}
			}
			if err := r.Close(); err != nil {
				t.Fatal(err)
			}
			for _, s := range signals {
				if err := c.Process.Signal(s); err != nil {
					t.Fatal(err)
				}
			}
			<-ended // or Command kills it, in minutes; the exit code shows it
			if got := c.ProcessState.ExitCode(); got != command.ExitInterrupted {
				t.Errorf("%v, want exit code %d", c.ProcessState, command.ExitInterrupted)
			}
			if m, err := filepath.Glob(filepath.Join(dir, "step-*")); err != nil || len(m) != 1 {
				t.Errorf("%v, %v: want one checkpoint", m, err)
			}
		})
	}
}

// Output that cannot be printed is a failure, whether or not anybody reads it.
func TestLostOutputIsAFailure(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skip("needs /dev/full: ", err)
	}
	defer func() { _ = full.Close() }()
	model := talftest.TinyModel(t, talftest.TinyConfig(), 1)
	for _, args := range [][]string{
		{"version"},
		{"help"},
		{"train", "--help"},
		{"doctor"},
		{"bench", "--help"},
		{"inspect", model},
		{"inspect", model, "--json"},
		{"generate", "--model", model, "--prompt", "x", "--max-tokens", "2"},
	} {
		t.Run(strings.Join(args[:1], " "), func(t *testing.T) {
			c := talftest.Command(t, args...)
			var errb bytes.Buffer
			c.Stdout, c.Stderr = full, &errb
			_ = c.Run() // the exit code is checked
			talftest.Result{Code: c.ProcessState.ExitCode(), Out: "", Err: errb.String()}.Refuses(t, command.ExitFailure, "stdout", "no space left")
		})
	}
}

// A pipe that is closed, as by head, stops a command quietly.
func TestOutputThatNobodyReadsEndsQuietly(t *testing.T) {
	talftest.Interrupts(t)
	r, pipe, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = pipe.Close() }()
	for _, args := range [][]string{{"version"}, {"bench", "--help"}} {
		c := talftest.Command(t, args...)
		var errb bytes.Buffer
		c.Stdout, c.Stderr = pipe, &errb
		_ = c.Run() // the exit code is checked
		if got := c.ProcessState.ExitCode(); got != command.ExitUnread || errb.Len() > 0 {
			t.Errorf("%v: exit code %d, want %d; stderr: %s", args, got, command.ExitUnread, errb.String())
		}
	}
}

// limit prepares talf so that no file may grow beyond kib KiB, which looks like a full disk to a
// writer.
func limit(t *testing.T, kib int, args ...string) *exec.Cmd {
	t.Helper()
	if runtime.GOOS == "windows" {
		t.Skip("Windows has no limit for the size of files")
	}
	sh, err := exec.LookPath("sh")
	if err != nil {
		t.Skip("needs a shell to set a limit for the size of files")
	}
	c := talftest.Command(t, args...)
	// POSIX counts blocks of 512 bytes.
	c.Args = append([]string{"sh", "-c", "ulimit -f " + strconv.Itoa(2*kib) + ` && exec "$0" "$@"`, c.Path}, args...)
	c.Path = sh
	return c
}

func TestAFullDiskLosesNothing(t *testing.T) {
	if testing.Short() {
		t.Skip("runs the pipeline several times")
	}
	w := talftest.NewWorld(t)
	tmp := t.TempDir()

	labels := filepath.Join(tmp, "labels")
	talftest.Finish(t, limit(t, 16, w.Preprocess(labels)...)).Refuses(t, command.ExitFailure, "shard-00000.parquet", "too large")
	talftest.OK(t, "", w.Preprocess(labels)...)
	talftest.SameTree(t, labels, w.Labels)

	whole, parts := filepath.Join(tmp, "whole"), filepath.Join(tmp, "parts")
	talftest.OK(t, "", w.Train(whole)...)
	// Some steps are saved before the disk is full.
	longer := func(args []string) []string { return append(args, "--steps", "400") }
	r := talftest.InterruptedTrain(t, talftest.Command(t, longer(w.Train(parts))...), parts)
	if r.Code != command.ExitInterrupted {
		t.Fatalf("exit %d, want an interrupted run\n%s", r.Code, r.Err)
	}
	before := talftest.Contents(t, parts)
	talftest.Finish(t, limit(t, 16, append(longer(w.Train(parts)), "--resume")...)).Refuses(t, command.ExitFailure, parts, "too large")
	after := talftest.Contents(t, parts)
	for name, text := range before {
		if after[name] != text {
			t.Errorf("%s was lost", name)
		}
	}
	fresh := filepath.Join(tmp, "fresh")
	talftest.Finish(t, limit(t, 16, w.Train(fresh)...)).Refuses(t, command.ExitFailure, fresh, "too large")
	talftest.OK(t, "", w.Train(fresh)...)
	talftest.SameTree(t, fresh, whole)

	// What an export could not finish does not get in the way of the next try.
	out := filepath.Join(tmp, "export")
	export := []string{"export", "--head", w.Head, "--model", w.Model, "--format", "eagle", "--out", out}
	talftest.Finish(t, limit(t, 16, export...)).Refuses(t, command.ExitFailure, out, "too large")
	talftest.OK(t, "", export...)

	scores := filepath.Join(tmp, "scores.safetensors")
	c := limit(t, 16, "score", "--model", w.Model, "--out", scores)
	c.Stdin = strings.NewReader(`{"ids":[` + strings.Repeat("1,", 99) + `1]}`)
	talftest.Finish(t, c).Refuses(t, command.ExitFailure, scores, "too large")
	if left, _ := filepath.Glob(filepath.Join(tmp, "*scores*")); len(left) != 0 {
		t.Errorf("half a file was left: %v", left)
	}
}

// Output files that cannot be written are refused before the work, and measurements are printed
// even if they could not be written.
func TestOutputFilesAreLookedAtFirst(t *testing.T) {
	w := talftest.NewWorld(t)
	tmp := t.TempDir()
	file := talftest.Write(t, filepath.Join(tmp, "file"), "mine")
	prompts := talftest.PromptFile(t, 2)
	bench := []string{"bench", "--model", w.Model, "--prompts", prompts, "--method", "pld", "--max-tokens", "2", "--quiet"}
	for _, c := range [][]string{
		append(bench, "--out"), append(bench, "--plot"), append(bench, "--log"),
		{"generate", "--model", w.Model, "--prompts", prompts, "--out"},
		{"score", "--model", w.Model, "--out"},
		{"datastore", "build", "--model", w.Model, "--data", w.Text, "--out"},
		append(w.Train(filepath.Join(tmp, "run")), "--plot"),
	} {
		for dir, want := range map[string]string{"nowhere": "no such", "file": "is a file"} {
			out := filepath.Join(tmp, dir, "x.svg")
			r := talftest.Run(t, "", append(c, out)...)
			r.Refuses(t, command.ExitFailure, out, want)
			if r.Out != "" {
				t.Errorf("talf %v worked before it looked at %s:\n%s", c, out, r.Out)
			}
		}
	}
	talftest.OK(t, "", append(w.Train(filepath.Join(tmp, "run")), "--plot", filepath.Join(tmp, "run", "plot.svg"))...)

	big := filepath.Join(tmp, "big.svg")
	for _, flag := range []string{"--out", "--plot"} {
		talftest.Write(t, big, "before")
		r := talftest.Finish(t, limit(t, 1, append(bench, flag, big)...))
		r.Refuses(t, command.ExitFailure, big, "too large")
		if !strings.Contains(r.Out, "pld") {
			t.Errorf("%s: what was measured is lost:\n%s", flag, r.Out)
		}
		if b, err := os.ReadFile(big); err != nil || string(b) != "before" {
			t.Errorf("%s: the file holds %.20q, %v; want what it held before", flag, b, err)
		}
	}
	if b, err := os.ReadFile(file); err != nil || string(b) != "mine" {
		t.Errorf("%s holds %q, %v", file, b, err)
	}
}

// Two processes never write to one file: each would overwrite the other's lines.
func TestAFileIsWrittenByOne(t *testing.T) {
	model := talftest.TinyModel(t, talftest.TinyConfig(), 1)
	prompts := talftest.PromptFile(t, 2)
	path := filepath.Join(t.TempDir(), "lines.jsonl")
	f, err := jsonl.Open(path, jsonl.Config{})
	if err != nil {
		t.Fatal(err)
	}
	bench := []string{"bench", "--model", model, "--prompts", prompts, "--method", "pld", "--max-tokens", "2", "--log", path}
	generate := []string{"generate", "--model", model, "--prompts", prompts, "--max-tokens", "2", "--out", path}
	for _, args := range [][]string{bench, generate} {
		talftest.Run(t, "", args...).Refuses(t, command.ExitFailure, path, "another run is writing")
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	talftest.OK(t, "", generate...)

	// Files and directories that appear whole are locked from the beginning of the work.
	text := talftest.TextFile(t, 2)
	head := talftest.TinyHead(t, model, 1)
	out := filepath.Join(t.TempDir(), "out.svg")
	file, err := durable.Create(out)
	if err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"score", "--model", model, "--out", out},
		{"datastore", "build", "--model", model, "--data", text, "--out", out},
		{"generate", "--model", model, "--prompt", "Once", "--trace", out},
	} {
		talftest.Run(t, "", args...).Refuses(t, command.ExitFailure, out, "another run is writing")
	}
	talftest.Run(t, "", "bench", "--model", model, "--prompts", prompts, "--method", "pld", "--max-tokens", "2", "--plot", out).
		Refuses(t, command.ExitFailure, out, "another run is writing")
	if err := file.Discard(); err != nil {
		t.Fatal(err)
	}
	dir, err := durable.NewDir(out)
	if err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"quantize", "--model", model, "--dtype", "q8", "--out", out},
		{"export", "--head", head, "--model", model, "--format", "eagle", "--out", out},
		{"import", "--head", head, "--model", model, "--out", out},
	} {
		talftest.Run(t, "", args...).Refuses(t, command.ExitFailure, out, "another run is writing")
	}
	if err := dir.Discard(); err != nil {
		t.Fatal(err)
	}
}

func TestInspectOfEveryKind(t *testing.T) {
	if testing.Short() {
		t.Skip("trains; runs without -short")
	}
	w := talftest.NewWorld(t)
	run := filepath.Join(t.TempDir(), "run")
	talftest.OK(t, "", w.Train(run)...)
	for path, want := range map[string]string{
		w.Model:                             "model",
		w.Head:                              "head",
		run:                                 "head",
		w.Labels:                            "data",
		w.Labels + "/shard-00000.parquet":   "data",
		w.Model + "/model.safetensors":      "tensors",
		run + "/step-00000004/config.json/": "",
	} {
		r := talftest.Run(t, "", "inspect", path, "--json")
		if want == "" {
			r.Refuses(t, command.ExitFailure, path)
			continue
		}
		var v struct{ Kind string }
		if err := json.Unmarshal([]byte(r.Out), &v); err != nil || v.Kind != want {
			t.Errorf("%s: kind %q, %v, want %q\n%s", path, v.Kind, err, want, r.Err)
		}
		if text := talftest.OK(t, "", "inspect", path); len(strings.TrimSpace(text)) == 0 {
			t.Errorf("%s: nothing to read", path)
		}
	}
}

// A language model trained by one process generates text in another.
func TestALanguageModelFromText(t *testing.T) {
	c := talftest.TinyConfig()
	dir := talftest.TinyModel(t, c, 1)
	tmp := t.TempDir()
	out, export := filepath.Join(tmp, "lm"), filepath.Join(tmp, "model")
	talftest.OK(t, "", "train", "--kind", "lm", "--model", dir, "--data", talftest.TextFile(t, 40), "--steps", "5", "--rows", "256", "--window", "64",
		"--warmup", "1", "--out", out, "--export", export)
	for _, path := range []string{out, export} {
		text := talftest.OK(t, "", "generate", "--model", path, "--prompt", "Once", "--max-tokens", "5", "--ignore-eos")
		if len(bytes.TrimSpace([]byte(text))) == 0 {
			t.Errorf("%s says nothing", path)
		}
	}
	// Both fields of an answer are learned: a document is as long as the two together.
	answers := talftest.Write(t, filepath.Join(tmp, "answers.jsonl"), `{"prompt":"Once upon","text":"a time there was a cat"}`+"\n")
	both := filepath.Join(tmp, "both")
	talftest.OK(t, "", "train", "--kind", "lm", "--model", dir, "--data", answers, "--template", "{prompt}", "--answer-field", "text",
		"--steps", "1", "--held-out", "0", "--out", both)
	whole := filepath.Join(tmp, "whole")
	talftest.OK(t, "", "train", "--kind", "lm", "--model", dir, "--data", talftest.Write(t, filepath.Join(tmp, "whole.txt"), "Once upon a time there was a cat\n"),
		"--steps", "1", "--held-out", "0", "--out", whole)
	if a, b := talftest.FirstLoss(t, both), talftest.FirstLoss(t, whole); a != b {
		t.Errorf("loss %v on the two fields of an answer, %v on their text", a, b)
	}
	talftest.Run(t, "", "train", "--model", dir, "--data", both, "--answer-field", "text", "--out", filepath.Join(tmp, "head")).
		Refuses(t, command.ExitUsage, "--answer-field", "--kind lm")

	// An existing export directory is noticed before the training, not after it.
	again := filepath.Join(tmp, "again")
	talftest.Run(t, "", "train", "--kind", "lm", "--model", dir, "--data", talftest.TextFile(t, 40), "--steps", "5", "--out", again, "--export", export).
		Refuses(t, command.ExitFailure, export, "not empty")
	if _, err := os.Stat(again); err == nil {
		t.Error("it was trained for nothing")
	}
}
