package command

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"talf/internal/jsonl"
)

// A world is a small pipeline's worth of files, made once for all fault tests.
type world struct {
	model, head, text, labels string
}

func newWorld(t *testing.T) world {
	t.Helper()
	w := world{model: tinyModel(t, tinyConfig(), 1), text: textFile(t, 24), labels: filepath.Join(t.TempDir(), "labels")}
	w.head = tinyHead(t, w.model, 1)
	ok(t, "", w.preprocess(w.labels)...)
	return w
}

func (w *world) preprocess(out string) []string {
	return []string{"preprocess", "--model", w.model, "--data", w.text, "--out", out, "--shard", "6", "--max-len", "96"}
}

func (w *world) train(out string) []string {
	return []string{
		"train", "--model", w.model, "--data", w.labels, "--loss", "eagle", "--steps", "4", "--rows", "128",
		"--save-every", "1", "--eval-every", "0", "--warmup", "1", "--out", out,
	}
}

func (w *world) generate() []string {
	return []string{"generate", "--model", w.model, "--head", w.head, "--prompt", "Once", "--max-tokens", "4"}
}

// contents returns the contents of a directory, but for the lock files of writers.
func contents(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	err := filepath.Walk(dir, func(path string, info os.FileInfo, err error) error {
		if err != nil || info.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		name, _ := filepath.Rel(dir, path)
		// Metrics hold the seconds that a step took.
		if info.Size() > 0 && filepath.Base(name) != "metrics.jsonl" {
			out[name] = string(b)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func sameTree(t *testing.T, got, want string) {
	t.Helper()
	g, w := contents(t, got), contents(t, want)
	for name := range w {
		if g[name] != w[name] {
			t.Errorf("%s differs from the uninterrupted run's", name)
		}
	}
	for name := range g {
		if _, ok := w[name]; !ok {
			t.Errorf("%s was left behind", name)
		}
	}
}

// copyDir returns a copy of dir that a test may damage.
func copyDir(t *testing.T, dir string) string {
	t.Helper()
	to := filepath.Join(t.TempDir(), "copy")
	if err := os.CopyFS(to, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	return to
}

func TestBadInputGivesOneClearError(t *testing.T) {
	w := newWorld(t)
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
		write(t, path, string(b))
	}
	shards, err := filepath.Glob(filepath.Join(w.labels, "*.parquet"))
	if err != nil || len(shards) < 2 {
		t.Fatalf("shards %v, %v", shards, err)
	}
	shard := filepath.Base(shards[1])
	wide := tinyConfig()
	wide.Hidden = 48
	small := tinyConfig()
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
		"no model directory": {func() []string { return bad(w.generate(), "--model", none) }, []string{none, "does not exist"}},
		"a file instead of a model": {
			func() []string { return bad(w.generate(), "--model", w.text) },
			[]string{w.text, "model directory"},
		},
		"no config.json": {
			func() []string { return bad(w.generate(), "--model", t.TempDir()) },
			[]string{"config.json"},
		},
		"a head instead of a model": {
			func() []string { return bad(w.generate(), "--model", w.head) },
			[]string{w.head, "give it as --head"},
		},
		"config.json in a loop": {func() []string {
			dir := t.TempDir()
			conf := filepath.Join(dir, "config.json")
			if err := os.Symlink(conf, conf); err != nil {
				t.Fatal(err)
			}
			return bad(w.generate(), "--model", dir)
		}, []string{"config.json", "symbolic links"}},
		"perplexity of nothing": {
			func() []string {
				return []string{"bench", "perplexity", "--model", w.model, "--text", os.DevNull, "--dtype", "f32"}
			},
			[]string{os.DevNull, "0 tokens"},
		},
		"truncated weights": {func() []string {
			dir := copyDir(t, w.model)
			truncate(t, weights(dir), size(weights(dir))-100)
			return bad(w.generate(), "--model", dir)
		}, []string{"model.safetensors"}},
		"weights cut in the header": {func() []string {
			dir := copyDir(t, w.model)
			truncate(t, weights(dir), 20)
			return bad(w.generate(), "--model", dir)
		}, []string{"model.safetensors"}},
		"config.json of another size": {func() []string {
			dir := copyDir(t, w.model)
			editJSON(t, filepath.Join(dir, "config.json"), "intermediate_size", 80)
			return bad(w.generate(), "--model", dir)
		}, []string{"80", "72"}},
		"config.json of another vocabulary": {func() []string {
			dir := copyDir(t, w.model)
			editJSON(t, filepath.Join(dir, "config.json"), "vocab_size", 2000)
			return bad(w.generate(), "--model", dir)
		}, []string{"2000", "1024"}},
		"a tokenizer that is too large": {
			func() []string { return bad(w.generate(), "--model", tinyModel(t, small, 1)) },
			[]string{"1024", "900"},
		},
		"an unknown architecture": {func() []string {
			dir := copyDir(t, w.model)
			editJSON(t, filepath.Join(dir, "config.json"), "model_type", "mamba")
			return bad(w.generate(), "--model", dir)
		}, []string{"mamba", "llama"}},
		"no head": {func() []string { return bad(w.generate(), "--head", none) }, []string{none}},
		"another model's head": {
			func() []string { return bad(w.generate(), "--head", tinyHead(t, tinyModel(t, tinyConfig(), 2), 1)) },
			[]string{"model.safetensors", "weight hash", "force"},
		},
		"a head of another size": {
			func() []string {
				return append(bad(w.generate(), "--head", tinyHead(t, tinyModel(t, wide, 2), 1)), "--force")
			},
			[]string{"48", "40"},
		},
		"a truncated head": {func() []string {
			dir := copyDir(t, w.head)
			truncate(t, weights(dir), size(weights(dir))/2)
			return bad(w.generate(), "--head", dir)
		}, []string{dirName(w.head), "model.safetensors"}},
		"a model as head": {
			func() []string { return bad(w.generate(), "--head", w.model) },
			[]string{dirName(w.model), "a language model, not a draft head", "--draft"},
		},
		"a corrupt checkpoint as head": {func() []string {
			dir := t.TempDir()
			ok(t, "", w.train(dir)...)
			last := filepath.Join(dir, "step-00000004")
			// The trainer's state is not needed to decode, the weights are.
			if err := os.Remove(filepath.Join(last, "optimizer.safetensors")); err != nil {
				t.Fatal(err)
			}
			args := bad(w.generate(), "--head", last)
			ok(t, "", args...)
			flip(weights(last))
			return args
		}, []string{"model.safetensors", "corrupt"}},
		"a language model's checkpoint as head": {func() []string {
			dir := t.TempDir()
			ok(t, "", "train", "--kind", "lm", "--model", w.model, "--data", w.text, "--steps", "1", "--rows", "64", "--window", "32",
				"--warmup", "0", "--out", dir)
			return bad(w.generate(), "--head", dir)
		}, []string{"a language model, not a draft head", "--draft"}},
		"no labels": {func() []string { return bad(w.train(t.TempDir()), "--data", none) }, []string{none}},
		"a directory without labels": {
			func() []string { return bad(w.train(t.TempDir()), "--data", t.TempDir()) },
			[]string{"manifest.json"},
		},
		"a corrupt shard": {func() []string {
			dir := copyDir(t, w.labels)
			flip(filepath.Join(dir, shard))
			return append(bad(w.train(t.TempDir()), "--data", dir), "--held-out", "0")
		}, []string{shard}},
		"a truncated shard": {func() []string {
			dir := copyDir(t, w.labels)
			truncate(t, filepath.Join(dir, shard), size(filepath.Join(dir, shard))/2)
			return bad(w.train(t.TempDir()), "--data", dir)
		}, []string{shard, "bytes"}},
		"a corrupt shard, inspected": {func() []string {
			dir := copyDir(t, w.labels)
			flip(filepath.Join(dir, shard))
			return []string{"inspect", dir}
		}, []string{shard}},
		"labels of another model": {
			func() []string { return bad(w.train(t.TempDir()), "--model", tinyModel(t, tinyConfig(), 2)) },
			[]string{"weight hash", "force"},
		},
		"labels of another size": {
			func() []string { return bad(w.train(t.TempDir()), "--model", tinyModel(t, wide, 2)) },
			[]string{"hidden size", "48", "40"},
		},
		"another model's head to begin with": {
			func() []string {
				return bad(w.train(t.TempDir()), "--init", tinyHead(t, tinyModel(t, tinyConfig(), 2), 1))
			},
			[]string{"initial head", "weight hash", "force"},
		},
		"no text": {func() []string { return bad(w.preprocess(none), "--data", none+".jsonl") }, []string{none}},
		"output that is a file": {
			func() []string { return w.preprocess(w.text) },
			[]string{w.text},
		},
		"labels made with other options": {
			func() []string { return bad(w.preprocess(copyDir(t, w.labels)), "--max-len", "64") },
			[]string{"manifest"},
		},
		"a bad checkpoint, inspected": {func() []string {
			dir := t.TempDir()
			ok(t, "", w.train(dir)...)
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
			talf(t, "", c.prepare()...).refuses(t, exitFailure, c.want...)
		})
	}
}

func dirName(path string) string { return filepath.Base(filepath.Dir(path)) }

func TestTrainDoesNotMixRuns(t *testing.T) {
	w := newWorld(t)
	out := filepath.Join(t.TempDir(), "run")
	_, figures, _ := strings.Cut(ok(t, "", w.train(out)...), "\n")
	before := contents(t, out)
	talf(t, "", w.train(out)...).refuses(t, exitFailure, out, "--resume")
	for name, text := range contents(t, out) {
		if before[name] != text {
			t.Errorf("%s was changed by a refused run", name)
		}
	}
	// Of a run that has ended no step is left to make, so there is no loss of one to
	// report; the figures of its evaluation are those that it ended with.
	first, rest, _ := strings.Cut(ok(t, "", append(w.train(out), "--resume")...), "\n")
	if !strings.HasSuffix(first, "step 4") || !strings.HasPrefix(rest, "held out: loss") || rest != figures {
		t.Errorf("a finished run says %q and %q, want step 4 and %q", first, rest, figures)
	}
	var r struct {
		Step int
		Done bool
		Loss *float64
	}
	if err := json.Unmarshal([]byte(ok(t, "", append(w.train(out), "--resume", "--json")...)), &r); err != nil || r.Step != 4 || !r.Done || r.Loss != nil {
		t.Errorf("a finished run says %+v, %v", r, err)
	}
	talf(t, "", append(w.train(out), "--resume", "--steps", "5")...).refuses(t, exitFailure, out, "steps was 4, is 5")
}

// However many lines of a file of prompts are bad, what is said of them can be read.
func TestManyBadPromptsAreCounted(t *testing.T) {
	dir := tinyModel(t, tinyConfig(), 1)
	tmp := t.TempDir()
	long := `{"prompt":"` + strings.Repeat("word ", 1000) + `"}` + "\n"
	file := write(t, filepath.Join(tmp, "in.jsonl"), strings.Repeat("no\n", 100)+long+`{"prompt":"x"}`+"\n"+strings.Repeat(long, 50))
	out := filepath.Join(tmp, "out.jsonl")
	r := talf(t, "", "generate", "--model", dir, "--prompts", file, "--out", out, "--max-tokens", "2")
	r.refuses(t, exitFailure, "51 prompts were not answered", "in.jsonl:101", "too long")
	if n := strings.Count(r.err, "\n"); n > 50 || !strings.Contains(r.err, "count=100") {
		t.Errorf("%d lines:\n%s", n, r.err)
	}
	if got := readAnswers(t, out); len(got) != 1 || got[0].Prompt != "x" {
		t.Errorf("%+v", got)
	}
}

// However long a wrong line is, what is said of it can be read.
func TestErrorsDoNotRepeatTheirInput(t *testing.T) {
	dir := tinyModel(t, tinyConfig(), 1)
	file := write(t, filepath.Join(t.TempDir(), "long.jsonl"), strings.Repeat("word ", 100_000)+"\n")
	for _, args := range [][]string{
		{"inspect", "metrics", file},
		{"inspect", "trace", file},
		{"bench", "replay", file},
		{"bench", "--model", dir, "--prompts", promptFile(t, 2), "--method", "pld", "--log", file},
		{"generate", "--model", dir, "--prompts", promptFile(t, 2), "--out", file},
		{"generate", "--model", dir, "--prompts", file, "--out", file + ".out"},
	} {
		r := talf(t, "", args...)
		r.refuses(t, exitFailure, file)
		if len(r.err) > 1000 {
			t.Errorf("talf %s %s says %d bytes", args[0], args[1], len(r.err))
		}
	}
}

func TestBadLinesAreReportedAndCounted(t *testing.T) {
	w := newWorld(t)
	good, err := os.ReadFile(w.text)
	if err != nil {
		t.Fatal(err)
	}
	w.text = write(t, filepath.Join(t.TempDir(), "mixed.jsonl"), string(good)+"not json\n{\"text\": 7}\n")
	r := talf(t, "", w.preprocess(filepath.Join(t.TempDir(), "labels"))...)
	if r.code != exitOK || !strings.Contains(r.err, "mixed.jsonl:25") || !strings.Contains(r.err, "count=") {
		t.Errorf("exit %d, stderr:\n%s", r.code, r.err)
	}
}

// Ctrl-C at any point: exit 130, what to do next, and after doing it the bytes
// of a run that was left alone.
func TestInterruptedStagesGoOn(t *testing.T) {
	if testing.Short() {
		t.Skip("runs the pipeline several times")
	}
	interrupts(t)
	w := newWorld(t)
	w.text = textFile(t, 120)
	has := func(pattern string) func() bool {
		return func() bool {
			m, err := filepath.Glob(pattern)
			return err == nil && len(m) > 0
		}
	}
	tmp := t.TempDir()
	whole, parts := filepath.Join(tmp, "whole"), filepath.Join(tmp, "parts")
	ok(t, "", w.preprocess(whole)...)
	r := interrupt(t, command(t, w.preprocess(parts)...), has(filepath.Join(parts, "shard-00001.parquet")))
	if r.code != exitInterrupted || !strings.Contains(r.err, "run the same command again") {
		t.Errorf("preprocess: exit %d, stderr:\n%s", r.code, r.err)
	}
	ok(t, "", w.preprocess(parts)...)
	sameTree(t, parts, whole)

	w.labels = whole
	args := func(out string) []string {
		return append(w.train(out), "--steps", "60", "--save-every", "5", "--keep", "1")
	}
	whole, parts = filepath.Join(tmp, "trained"), filepath.Join(tmp, "stopped")
	ok(t, "", args(whole)...)
	r = interruptedTrain(t, command(t, args(parts)...), parts)
	if r.code != exitInterrupted || !strings.Contains(r.err, "--resume") {
		t.Errorf("train: exit %d, stderr:\n%s", r.code, r.err)
	}
	ok(t, "", append(args(parts), "--resume")...)
	sameTree(t, parts, whole)
}

// hangsUp skips under nohup, where a closed terminal stops nothing.
func hangsUp(t *testing.T) {
	t.Helper()
	if signal.Ignored(syscall.SIGHUP) {
		t.Skip("SIGHUP is ignored here, as nohup wants")
	}
}

// A terminal that is closed sends two signals, its own and its shell's: the second is
// no wish to quit at once. If it were, this process would end here.
func TestAClosedTerminalSendsTwoSignals(t *testing.T) {
	interrupts(t)
	hangsUp(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	stop := quietApp(t).watch(cancel)
	defer stop()
	came := make(chan os.Signal, 2)
	signal.Notify(came, syscall.SIGHUP)
	defer signal.Stop(came)
	self, err := os.FindProcess(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := self.Signal(syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
		<-came
		<-ctx.Done()
	}
	time.Sleep(50 * time.Millisecond) // for the second to be acted upon
	if err := context.Cause(ctx); !errors.Is(err, errInterrupted) {
		t.Errorf("cancelled by %v, want an interruption", err)
	}
}

// In "talf train 2>&1 | tee log", Ctrl-C ends tee too, and before talf has written
// its last words; a terminal that is closed takes both streams along. Either way what
// was trained is saved.
func TestTrainSavesThoughNobodyReads(t *testing.T) {
	if testing.Short() {
		t.Skip("trains for some seconds")
	}
	interrupts(t)
	w := newWorld(t)
	for name, signals := range map[string][]os.Signal{
		"Ctrl-C":          {os.Interrupt},
		"closed terminal": {syscall.SIGHUP},
	} {
		t.Run(name, func(t *testing.T) {
			if signals[0] == syscall.SIGHUP {
				hangsUp(t)
			}
			dir := filepath.Join(t.TempDir(), "run")
			r, pipe, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			c := command(t, append(w.train(dir), "--steps", "100000", "--save-every", "1000000")...)
			c.Stdout, c.Stderr = pipe, pipe
			if err := errors.Join(c.Start(), pipe.Close()); err != nil {
				t.Fatal(err)
			}
			ended := make(chan error, 1)
			go func() { ended <- c.Wait() }()
			steps := filepath.Join(dir, "metrics.jsonl")
			late := time.After(time.Minute)
			for waiting := true; waiting; { // until some are done
				b, err := os.ReadFile(steps)
				waiting = err != nil || strings.Count(string(b), "\n") <= 2
				select {
				case err := <-ended:
					t.Fatalf("the run ended before it was interrupted: %v", err)
				case <-late:
					_ = c.Process.Kill()
					t.Fatalf("no steps after a minute: %q", b)
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
			select {
			case <-ended: // the exit code tells
			case <-time.After(time.Minute):
				_ = c.Process.Kill()
				t.Fatal("the run goes on after its signals")
			}
			if got := c.ProcessState.ExitCode(); got != exitInterrupted {
				t.Errorf("%v, want exit code %d", c.ProcessState, exitInterrupted)
			}
			if m, err := filepath.Glob(filepath.Join(dir, "step-*")); err != nil || len(m) != 1 {
				t.Errorf("%v, %v: want one checkpoint", m, err)
			}
		})
	}
}

// What cannot be printed is a failure, whoever looks at it.
func TestLostOutputIsAFailure(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skip("needs /dev/full: ", err)
	}
	defer func() { _ = full.Close() }()
	model := tinyModel(t, tinyConfig(), 1)
	for _, args := range [][]string{
		{"version"},
		{"help"},
		{"train", "--help"},
		{"doctor"},
		{"bench", "--paper", "list"},
		{"inspect", model},
		{"inspect", model, "--json"},
		{"generate", "--model", model, "--prompt", "x", "--max-tokens", "2"},
	} {
		t.Run(strings.Join(args[:1], " "), func(t *testing.T) {
			c := command(t, args...)
			var errb bytes.Buffer
			c.Stdout, c.Stderr = full, &errb
			_ = c.Run() // the exit code is looked at
			result{c.ProcessState.ExitCode(), "", errb.String()}.refuses(t, exitFailure, "stdout", "no space left")
		})
	}
}

// A pipe that is closed, as head does, ends a command quietly.
func TestOutputThatNobodyReadsEndsQuietly(t *testing.T) {
	interrupts(t)
	r, pipe, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = pipe.Close() }()
	for _, args := range [][]string{{"version"}, {"bench", "--paper", "list"}} {
		c := command(t, args...)
		var errb bytes.Buffer
		c.Stdout, c.Stderr = pipe, &errb
		_ = c.Run() // the exit code is looked at
		if got := c.ProcessState.ExitCode(); got != exitUnread || errb.Len() > 0 {
			t.Errorf("%v: exit code %d, want %d; stderr: %s", args, got, exitUnread, errb.String())
		}
	}
}

// interruptedTrain stops a run that trains into dir after its first checkpoint.
func interruptedTrain(t *testing.T, c *exec.Cmd, dir string) result {
	t.Helper()
	return interrupt(t, c, func() bool {
		m, err := filepath.Glob(filepath.Join(dir, "step-*"))
		return err == nil && len(m) > 0
	})
}

// limit prepares talf where no file may grow beyond some KiB: what a full disk is
// to a writer.
func limit(t *testing.T, kib int, args ...string) *exec.Cmd {
	t.Helper()
	if runtime.GOOS == "windows" {
		t.Skip("Windows has no limit for the size of files")
	}
	sh, err := exec.LookPath("sh")
	if err != nil {
		t.Skip("needs a shell to set a limit for the size of files")
	}
	c := command(t, args...)
	// POSIX counts blocks of 512 bytes.
	c.Args = append([]string{"sh", "-c", "ulimit -f " + strconv.Itoa(2*kib) + ` && exec "$0" "$@"`, c.Path}, args...)
	c.Path = sh
	return c
}

func TestAFullDiskLosesNothing(t *testing.T) {
	if testing.Short() {
		t.Skip("runs the pipeline several times")
	}
	w := newWorld(t)
	tmp := t.TempDir()

	labels := filepath.Join(tmp, "labels")
	finish(t, limit(t, 16, w.preprocess(labels)...)).refuses(t, exitFailure, "shard-00000.parquet", "too large")
	ok(t, "", w.preprocess(labels)...)
	sameTree(t, labels, w.labels)

	whole, parts := filepath.Join(tmp, "whole"), filepath.Join(tmp, "parts")
	ok(t, "", w.train(whole)...)
	// Some steps are saved before the disk is full.
	longer := func(args []string) []string { return append(args, "--steps", "400") }
	r := interruptedTrain(t, command(t, longer(w.train(parts))...), parts)
	if r.code != exitInterrupted {
		t.Fatalf("exit %d, want an interrupted run\n%s", r.code, r.err)
	}
	before := contents(t, parts)
	finish(t, limit(t, 16, append(longer(w.train(parts)), "--resume")...)).refuses(t, exitFailure, parts, "too large")
	after := contents(t, parts)
	for name, text := range before {
		if after[name] != text {
			t.Errorf("%s was lost", name)
		}
	}
	fresh := filepath.Join(tmp, "fresh")
	finish(t, limit(t, 16, w.train(fresh)...)).refuses(t, exitFailure, fresh, "too large")
	ok(t, "", w.train(fresh)...)
	sameTree(t, fresh, whole)

	// What an export could not finish is not in the way of the next try.
	out := filepath.Join(tmp, "export")
	export := []string{"export", "--head", w.head, "--model", w.model, "--format", "eagle", "--out", out}
	finish(t, limit(t, 16, export...)).refuses(t, exitFailure, out, "too large")
	ok(t, "", export...)

	scores := filepath.Join(tmp, "scores.safetensors")
	c := limit(t, 16, "score", "--model", w.model, "--out", scores)
	c.Stdin = strings.NewReader(`{"ids":[` + strings.Repeat("1,", 99) + `1]}`)
	finish(t, c).refuses(t, exitFailure, scores, "too large")
	if left, _ := filepath.Glob(filepath.Join(tmp, "*scores*")); len(left) != 0 {
		t.Errorf("half a file was left: %v", left)
	}
}

// What cannot be written is refused before the work, and what was measured is
// printed although it could not be written.
func TestOutputFilesAreLookedAtFirst(t *testing.T) {
	w := newWorld(t)
	tmp := t.TempDir()
	file := write(t, filepath.Join(tmp, "file"), "mine")
	prompts := promptFile(t, 2)
	bench := []string{"bench", "--model", w.model, "--prompts", prompts, "--method", "pld", "--max-tokens", "2", "--quiet"}
	for _, c := range [][]string{
		append(bench, "--out"), append(bench, "--plot"), append(bench, "--log"),
		{"bench", "decode", "--shape", "10m", "--plot"},
		{"generate", "--model", w.model, "--prompts", prompts, "--out"},
		{"score", "--model", w.model, "--out"},
		{"datastore", "build", "--model", w.model, "--data", w.text, "--out"},
		append(w.train(filepath.Join(tmp, "run")), "--plot"),
	} {
		for dir, want := range map[string]string{"nowhere": "no such", "file": "is a file"} {
			out := filepath.Join(tmp, dir, "x.svg")
			r := talf(t, "", append(c, out)...)
			r.refuses(t, exitFailure, out, want)
			if r.out != "" {
				t.Errorf("talf %v worked before it looked at %s:\n%s", c, out, r.out)
			}
		}
	}
	ok(t, "", append(w.train(filepath.Join(tmp, "run")), "--plot", filepath.Join(tmp, "run", "plot.svg"))...)

	big := filepath.Join(tmp, "big.svg")
	for _, flag := range []string{"--out", "--plot"} {
		write(t, big, "before")
		r := finish(t, limit(t, 1, append(bench, flag, big)...))
		r.refuses(t, exitFailure, big, "too large")
		if !strings.Contains(r.out, "pld") {
			t.Errorf("%s: what was measured is lost:\n%s", flag, r.out)
		}
		if b, err := os.ReadFile(big); err != nil || string(b) != "before" {
			t.Errorf("%s: the file holds %.20q, %v; want what it held before", flag, b, err)
		}
	}
	if b, err := os.ReadFile(file); err != nil || string(b) != "mine" {
		t.Errorf("%s holds %q, %v", file, b, err)
	}
}

// Two processes never write to one file: each would write over the other's lines.
func TestAFileIsWrittenByOne(t *testing.T) {
	model := tinyModel(t, tinyConfig(), 1)
	prompts := promptFile(t, 2)
	path := filepath.Join(t.TempDir(), "lines.jsonl")
	f, err := jsonl.Open(path, jsonl.Config{})
	if err != nil {
		t.Fatal(err)
	}
	bench := []string{"bench", "--model", model, "--prompts", prompts, "--method", "pld", "--max-tokens", "2", "--log", path}
	generate := []string{"generate", "--model", model, "--prompts", prompts, "--max-tokens", "2", "--out", path}
	for _, args := range [][]string{bench, generate} {
		talf(t, "", args...).refuses(t, exitFailure, path, "another run is writing")
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	ok(t, "", generate...)
}

func TestInspectOfEveryKind(t *testing.T) {
	w := newWorld(t)
	run := filepath.Join(t.TempDir(), "run")
	ok(t, "", w.train(run)...)
	for path, want := range map[string]string{
		w.model:                             "model",
		w.head:                              "head",
		run:                                 "head",
		w.labels:                            "data",
		w.labels + "/shard-00000.parquet":   "data",
		w.model + "/model.safetensors":      "tensors",
		run + "/step-00000004/config.json/": "",
	} {
		r := talf(t, "", "inspect", path, "--json")
		if want == "" {
			r.refuses(t, exitFailure, path)
			continue
		}
		var v struct{ Kind string }
		if err := json.Unmarshal([]byte(r.out), &v); err != nil || v.Kind != want {
			t.Errorf("%s: kind %q, %v, want %q\n%s", path, v.Kind, err, want, r.err)
		}
		if text := ok(t, "", "inspect", path); len(strings.TrimSpace(text)) == 0 {
			t.Errorf("%s: nothing to read", path)
		}
	}
}

// A language model trained by one process speaks in another.
func TestALanguageModelFromText(t *testing.T) {
	c := tinyConfig()
	dir := tinyModel(t, c, 1)
	tmp := t.TempDir()
	out, export := filepath.Join(tmp, "lm"), filepath.Join(tmp, "model")
	ok(t, "", "train", "--kind", "lm", "--model", dir, "--data", textFile(t, 40), "--steps", "5", "--rows", "256", "--window", "64",
		"--warmup", "1", "--out", out, "--export", export)
	for _, path := range []string{out, export} {
		text := ok(t, "", "generate", "--model", path, "--prompt", "Once", "--max-tokens", "5", "--ignore-eos")
		if len(bytes.TrimSpace([]byte(text))) == 0 {
			t.Errorf("%s says nothing", path)
		}
	}
	// Both fields of an answer are learnt: a document is as long as the two together.
	answers := write(t, filepath.Join(tmp, "answers.jsonl"), `{"prompt":"Once upon","text":"a time there was a cat"}`+"\n")
	both := filepath.Join(tmp, "both")
	ok(t, "", "train", "--kind", "lm", "--model", dir, "--data", answers, "--template", "{prompt}", "--answer-field", "text",
		"--steps", "1", "--held-out", "0", "--out", both)
	whole := filepath.Join(tmp, "whole")
	ok(t, "", "train", "--kind", "lm", "--model", dir, "--data", write(t, filepath.Join(tmp, "whole.txt"), "Once upon a time there was a cat\n"),
		"--steps", "1", "--held-out", "0", "--out", whole)
	if a, b := firstLoss(t, both), firstLoss(t, whole); a != b {
		t.Errorf("loss %v on the two fields of an answer, %v on their text", a, b)
	}
	talf(t, "", "train", "--model", dir, "--data", both, "--answer-field", "text", "--out", filepath.Join(tmp, "head")).
		refuses(t, exitUsage, "--answer-field", "--kind lm")

	// A place that is taken is seen before the training, not after it.
	again := filepath.Join(tmp, "again")
	talf(t, "", "train", "--kind", "lm", "--model", dir, "--data", textFile(t, 40), "--steps", "5", "--out", again, "--export", export).
		refuses(t, exitFailure, export, "not empty")
	if _, err := os.Stat(again); err == nil {
		t.Error("it was trained for nothing")
	}
}

// firstLoss is the loss of a run's first step.
func firstLoss(t *testing.T, dir string) float64 {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, "metrics.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	line, _, _ := bytes.Cut(b, []byte("\n"))
	var m struct{ Loss float64 }
	if err := json.Unmarshal(line, &m); err != nil || m.Loss == 0 {
		t.Fatalf("%s: %v", line, err)
	}
	return m.Loss
}
