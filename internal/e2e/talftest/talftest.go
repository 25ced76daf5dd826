// Package talftest is shared by the end-to-end tests and the tests of commands: it runs talf as
// a process, and has small models, heads and texts to run it on.
package talftest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"talf/compute/cpu"
	"talf/infer/decode"
	"talf/internal/demo"
	"talf/internal/durable"
	"talf/model"
	"talf/model/arch"
	"talf/model/head"
	"talf/model/identity"
	"talf/model/modeltest"
)

// asTalf makes the test binary behave as talf: commands run as separate processes, with real
// signals, limits and exit codes.
const asTalf = "TALF_TEST_AS_COMMAND"

// Main is the body of TestMain. run is command.Run.
func Main(m *testing.M, run func(args []string, in io.Reader, stdout, stderr io.Writer) int) {
	if os.Getenv(asTalf) != "" {
		os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
	}
	os.Exit(m.Run())
}

// A Result is what a command left behind.
type Result struct {
	Code     int
	Out, Err string
}

// A Log is what others write while a test reads it. The zero value is empty.
type Log struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *Log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// Command prepares talf with args as a child process, which may take five minutes.
func Command(t testing.TB, args ...string) *exec.Cmd {
	t.Helper()
	return CommandWithin(t, 5*time.Minute, args...)
}

// CommandWithin prepares talf with args as a child process, which is killed when the limit is over.
func CommandWithin(t testing.TB, limit time.Duration, args ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	t.Cleanup(cancel)
	c := exec.CommandContext(ctx, self, args...)
	c.Env = append(os.Environ(), asTalf+"=1")
	return c
}

// Run runs a command until it exits.
func Run(t testing.TB, stdin string, args ...string) Result {
	t.Helper()
	c := Command(t, args...)
	c.Stdin = strings.NewReader(stdin)
	return Finish(t, c)
}

func Finish(t testing.TB, c *exec.Cmd) Result {
	t.Helper()
	var out, errb bytes.Buffer
	c.Stdout, c.Stderr = &out, &errb
	err := c.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return Result{c.ProcessState.ExitCode(), out.String(), errb.String()}
}

// OK runs a command that must succeed and returns what it printed.
func OK(t testing.TB, stdin string, args ...string) string {
	t.Helper()
	r := Run(t, stdin, args...)
	if r.Code != 0 {
		t.Fatalf("talf %s: exit %d\n%s", strings.Join(args, " "), r.Code, r.Err)
	}
	return r.Out
}

// Refuses checks a failed command: the exit code, one clear line that contains every word of
// want, no panic.
func (r Result) Refuses(t testing.TB, code int, want ...string) {
	t.Helper()
	if r.Code != code {
		t.Errorf("exit %d, want %d; stderr:\n%s", r.Code, code, r.Err)
	}
	if strings.Contains(r.Err, "goroutine ") || strings.Contains(r.Err, "panic") {
		t.Errorf("a panic reached the user:\n%s", r.Err)
	}
	var lines []string
	for line := range strings.Lines(r.Err) {
		if strings.HasPrefix(line, "talf: ") && !strings.HasPrefix(line, "talf: see '") {
			lines = append(lines, strings.TrimSpace(line))
		}
	}
	if len(lines) != 1 {
		t.Errorf("%d error lines, want one; stderr:\n%s", len(lines), r.Err)
	}
	for _, w := range want {
		if !strings.Contains(strings.Join(lines, "\n"), w) {
			t.Errorf("the error does not name %q:\n%s", w, r.Err)
		}
	}
}

// Interrupts skips the test if a process cannot be sent an interrupt.
func Interrupts(t testing.TB) {
	t.Helper()
	if runtime.GOOS == "windows" {
		t.Skip("Windows has no signal to send to a single process")
	}
}

// Interrupt starts cmd, waits until ready, sends one interrupt and waits for the process to
// exit.
func Interrupt(t testing.TB, cmd *exec.Cmd, ready func() bool) Result {
	t.Helper()
	r, inTime := interrupt(t, cmd, ready)
	if !inTime {
		t.Fatalf("it ended before it could be interrupted: exit %d\n%s", r.Code, r.Err)
	}
	return r
}

// interrupt is Interrupt, and reports whether the process was still there.
func interrupt(t testing.TB, cmd *exec.Cmd, ready func() bool) (r Result, inTime bool) {
	t.Helper()
	var out, errb bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errb
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	result := func(err error) Result {
		if cmd.ProcessState == nil {
			t.Fatal(err)
		}
		return Result{cmd.ProcessState.ExitCode(), out.String(), errb.String()}
	}
	for !ready() {
		select {
		case err := <-ended:
			return result(err), false
		case <-time.After(5 * time.Millisecond):
		}
	}
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		if errors.Is(err, os.ErrProcessDone) {
			return result(<-ended), false
		}
		t.Fatal(err)
	}
	return result(<-ended), true
}

// TinyConfig is a model with the demo's vocabulary and little else: commands take milliseconds
// on it.
func TinyConfig() modeltest.Config {
	c := modeltest.Default()
	c.Vocab, c.MaxPos, c.EOS = demo.VocabSize, 256, 1
	return c
}

// TinyModel writes a random model directory with the demo's tokenizer.
func TinyModel(t testing.TB, c modeltest.Config, seed uint64) string {
	t.Helper()
	dir := t.TempDir()
	if err := demo.UnpackTokenizer(dir); err != nil {
		t.Fatal(err)
	}
	if err := modeltest.Write(dir, c, seed); err != nil {
		t.Fatal(err)
	}
	return dir
}

// OpenModel loads the model in dir onto one thread of the CPU, until the test ends. Its options are the
// default ones, changed so.
func OpenModel(t testing.TB, dir string, change ...func(*model.Options)) *model.Model {
	t.Helper()
	dev, err := cpu.New(cpu.Config{Class: cpu.Default().Class, Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = dev.Close() })
	opt := model.Default()
	for _, c := range change {
		c(&opt)
	}
	m, err := model.Load(dir, dev, opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.Close() })
	return m
}

// TinyHead writes an untrained head of the model in dir.
func TinyHead(t testing.TB, dir string, seed uint64) string {
	t.Helper()
	m := OpenModel(t, dir)
	return WriteHead(t, m, m.Spec().DraftFor(false), seed)
}

// WriteHead writes an untrained head of m.
func WriteHead(t testing.TB, m *model.Model, spec *arch.Spec, seed uint64) string {
	t.Helper()
	out := t.TempDir()
	if err := head.Write(t.Context(), out, spec, identity.To(m.Identity()), head.Random(spec, seed)...); err != nil {
		t.Fatal(err)
	}
	return out
}

// Write writes a file for a test.
func Write(t testing.TB, path, text string) string {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// Truncate cuts a file to n bytes.
func Truncate(t testing.TB, path string, n int64) {
	t.Helper()
	if err := os.Truncate(path, n); err != nil {
		t.Fatal(err)
	}
}

// EditJSON changes one field of a JSON file.
func EditJSON(t testing.TB, path, field string, value any) {
	t.Helper()
	var v map[string]any
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, &v); err != nil {
		t.Fatal(err)
	}
	v[field] = value
	if err := durable.WriteJSON(path, v); err != nil {
		t.Fatal(err)
	}
}

// TextFile writes n documents of the demo's text.
func TextFile(t testing.TB, n int) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "text.jsonl")
	if err := demo.WriteJSONL(path, demo.Corpus(9, n)); err != nil {
		t.Fatal(err)
	}
	return path
}

// PromptFile writes n prompts of the demo.
func PromptFile(t testing.TB, n int) string {
	t.Helper()
	text := ""
	for i, p := range demo.Prompts(9, n) {
		b, err := json.Marshal(map[string]any{"id": fmt.Sprint(i), "prompt": p})
		if err != nil {
			t.Fatal(err)
		}
		text += string(b) + "\n"
	}
	return Write(t, filepath.Join(t.TempDir(), "prompts.jsonl"), text)
}

// A World is the files of a small pipeline, made once for all fault tests.
type World struct {
	Model, Head, Text, Labels string
}

func NewWorld(t *testing.T) World {
	t.Helper()
	w := World{Model: TinyModel(t, TinyConfig(), 1), Text: TextFile(t, 24), Labels: filepath.Join(t.TempDir(), "labels")}
	w.Head = TinyHead(t, w.Model, 1)
	OK(t, "", w.Preprocess(w.Labels)...)
	return w
}

func (w *World) Preprocess(out string) []string {
	return []string{"preprocess", "--model", w.Model, "--data", w.Text, "--out", out, "--shard", "6", "--max-len", "96"}
}

func (w *World) Train(out string) []string {
	return []string{
		"train", "--model", w.Model, "--data", w.Labels, "--loss", "eagle", "--steps", "4", "--rows", "128",
		"--save-every", "1", "--eval-every", "0", "--warmup", "1", "--out", out,
	}
}

func (w *World) Generate() []string {
	return []string{"generate", "--model", w.Model, "--head", w.Head, "--prompt", "Once", "--max-tokens", "4"}
}

// Contents returns the contents of a directory, except for the lock files of writers.
func Contents(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	err := filepath.Walk(dir, func(path string, info os.FileInfo, err error) error {
		if err != nil || info.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		name, _ := filepath.Rel(dir, path)
		// Metrics contain the seconds that a step took.
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

func SameTree(t *testing.T, got, want string) {
	t.Helper()
	g, w := Contents(t, got), Contents(t, want)
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

// CopyDir returns a copy of dir that a test may damage.
func CopyDir(t *testing.T, dir string) string {
	t.Helper()
	to := filepath.Join(t.TempDir(), "copy")
	if err := os.CopyFS(to, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	return to
}

// InterruptedTrain stops a run that trains into dir after its first checkpoint. On a busy machine a short run may make all
// of its steps before it hears of that: then it begins anew.
func InterruptedTrain(t *testing.T, c *exec.Cmd, dir string) Result {
	t.Helper()
	for range 10 {
		r, inTime := interrupt(t, c, func() bool {
			m, err := filepath.Glob(filepath.Join(dir, "step-*"))
			return err == nil && len(m) > 0
		})
		if inTime && r.Code != 0 {
			return r
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
		c = &exec.Cmd{Path: c.Path, Args: c.Args, Env: c.Env, Dir: c.Dir}
	}
	t.Fatal("ten runs ended as if nobody had interrupted them")
	return Result{}
}

// FirstLoss returns the loss of a run's first step.
func FirstLoss(t *testing.T, dir string) float64 {
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

func ReadAnswers(t *testing.T, path string) []decode.Answer {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var all []decode.Answer
	for line := range strings.Lines(string(b)) {
		var a decode.Answer
		if err := json.Unmarshal([]byte(line), &a); err != nil {
			t.Fatal(err)
		}
		all = append(all, a)
	}
	return all
}

// TurnTemplate is a chat template in which every turn is a line that begins with the speaker.
const TurnTemplate = `{%- for m in messages -%}
{%- if m.role not in ['user', 'assistant'] %}{{ raise_exception('no ' + m.role) }}{% endif -%}
{%- if m.role == 'assistant' -%}{{ 'A: ' }}{% generation %}{{ m.content + eos_token }}{% endgeneration %}{%- else -%}{{ 'Q: ' + m.content }}{%- endif -%}{{ '\n' }}
{%- endfor -%}{%- if add_generation_prompt -%}{{ 'A:' }}{%- endif -%}`

// ChatModel writes a tiny model whose directory has TurnTemplate.
func ChatModel(t testing.TB) string {
	t.Helper()
	dir := TinyModel(t, TinyConfig(), 3)
	if err := os.WriteFile(filepath.Join(dir, "chat_template.jinja"), []byte(TurnTemplate), 0o644); err != nil {
		t.Fatal(err)
	}
	return dir
}

// HangsUp skips the test under nohup, where closing the terminal stops nothing.
func HangsUp(t testing.TB) {
	t.Helper()
	if signal.Ignored(syscall.SIGHUP) {
		t.Skip("SIGHUP is ignored here, as nohup wants")
	}
}

// Words splits a command line like a shell, up to a comment, pipe or redirection.
func Words(line string) []string {
	var all []string
	quoted := false
	word, open := "", false
	for _, r := range line + " " {
		switch {
		case r == '\'':
			quoted, open = !quoted, true
		case quoted:
			word += string(r)
		case r == ' ' || r == '\n':
			if open {
				all = append(all, word)
			}
			word, open = "", false
		case !open && strings.ContainsRune("#|<>", r):
			return all
		default:
			word, open = word+string(r), true
		}
	}
	return all
}
