package cli

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"talf/internal/leak"
)

// crashEnv makes the test binary a program that crashes in the way that its value names.
const crashEnv = "TALF_TEST_CRASH"

// A crash is a way to end a process that nothing recovers. The runtime tells why on stderr, and
// where, for most kinds without the reason, in the report.
type crash struct {
	f             func()
	stderr, where string
}

var crashes = map[string]crash{
	"panic in a goroutine": {func() { go panic("planted"); select {} }, "panic: planted", "panic: planted"},
	"stack":                {func() { debug.SetMaxStack(1 << 16); print(deep(1)) }, "stack overflow", "cli.deep("},
	"map": {func() {
		m := map[int]int{}
		for range 4 {
			go func() {
				for {
					m[1]++
				}
			}()
		}
		select {}
	}, "concurrent map", "crash_test.go:"},
}

// deep calls itself until the stack is full.
func deep(n int) int {
	if n < 0 {
		return n
	}
	return deep(n+1) + 1
}

func TestMain(m *testing.M) {
	if c, ok := crashes[os.Getenv(crashEnv)]; ok {
		report := BeginCrashReport(os.Stderr, CrashDir(), "v1", CommandLine(commands(), os.Args[1:], "prompt"))
		Run(os.Stdout, os.Stderr, report, func(context.Context, io.Writer, io.Writer) Outcome { c.f(); return Outcome{} })
		os.Exit(ExitOK)
	}
	os.Exit(leak.Main(m.Run))
}

// crashWith runs a program that crashes.
func crashWith(t *testing.T, dir, how string, args ...string) (code int, stderr string) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := exec.CommandContext(t.Context(), self, args...)
	c.Env = append(os.Environ(), crashEnv+"="+how, CrashDirVariable+"="+dir)
	var errb bytes.Buffer
	c.Stderr = &errb
	var exit *exec.ExitError
	if err := c.Run(); !errors.As(err, &exit) {
		t.Fatalf("%s: %v, want a crash", how, err)
	}
	return exit.ExitCode(), errb.String()
}

// A scheduler tells crashes from mistakes in the command line by the exit code. Their reports
// hold no prompt, and the next run names them, once.
func TestCrashesHaveTheirExitCodeAndReport(t *testing.T) {
	for how, c := range crashes {
		t.Run(how, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "a", "b")
			code, stderr := crashWith(t, dir, how, "generate", "--prompt", "a secret", "--prompt=secrets", "--seed", "1")
			if code != ExitCrash || code == ExitUsage || !strings.Contains(stderr, c.stderr) {
				t.Errorf("exit %d, want %d, and stderr with %q:\n%s", code, ExitCrash, c.stderr, stderr)
			}
			var next bytes.Buffer
			r := BeginCrashReport(&next, dir, "v2", "talf version")
			path, ok := strings.CutPrefix(strings.TrimSpace(next.String()), "talf: an earlier run crashed: its report is ")
			if !ok {
				t.Fatalf("the next run says %q", &next)
			}
			b, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			text := string(b)
			for _, want := range []string{"version: v1\n", "command: talf generate --prompt … --prompt=… --seed 1\n", c.where, "goroutine "} {
				if !strings.Contains(text, want) {
					t.Errorf("the report lacks %q:\n%s", want, text)
				}
			}
			if strings.Contains(text, "secret") {
				t.Errorf("the report holds the prompt:\n%s", text)
			}
			r.End()
			next.Reset()
			BeginCrashReport(&next, dir, "v2", "talf version").End()
			if next.Len() > 0 {
				t.Errorf("the run after that says %q", &next)
			}
			if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
				t.Errorf("left behind: %v, %v, want the report alone", left, err)
			}
		})
	}
}

func TestARecoveredPanicIsReported(t *testing.T) {
	dir := t.TempDir()
	var errb bytes.Buffer
	r := BeginCrashReport(&errb, dir, "v1", "talf x")
	code := Run(io.Discard, &errb, r, func(context.Context, io.Writer, io.Writer) Outcome { panic("planted") })
	r.End()
	reports, err := filepath.Glob(filepath.Join(dir, "talf-*"+crashed))
	if err != nil || len(reports) != 1 || code != ExitCrash {
		t.Fatalf("exit %d, reports %q, %v", code, reports, err)
	}
	if !strings.Contains(errb.String(), "with the file "+reports[0]+"\n") {
		t.Errorf("the report is not named:\n%s", &errb)
	}
	b, err := os.ReadFile(reports[0])
	if err != nil || !strings.Contains(string(b), "command: talf x\n") || !strings.Contains(string(b), "\n\npanic: planted\n\ngoroutine ") {
		t.Errorf("%v, report:\n%s", err, b)
	}
}

// A run that was killed says nothing about a crash, and its file does not stay for ever.
func TestReportsOfKilledRunsAreRemoved(t *testing.T) {
	dir := t.TempDir()
	old, young, foreign := filepath.Join(dir, "talf-1"+running), filepath.Join(dir, "talf-2"+running), filepath.Join(dir, "notes"+running)
	for _, path := range []string{old, young, foreign} {
		if err := os.WriteFile(path, []byte("version: v1\n\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, path := range []string{old, foreign} {
		before := time.Now().Add(-keptKilled - time.Hour)
		if err := os.Chtimes(path, before, before); err != nil {
			t.Fatal(err)
		}
	}
	var said bytes.Buffer
	BeginCrashReport(&said, dir, "v", "talf").End()
	for path, want := range map[string]bool{old: false, young: true, foreign: true} {
		if _, err := os.Stat(path); (err == nil) != want {
			t.Errorf("%s is there: %v, want %v", filepath.Base(path), err == nil, want)
		}
	}
	if said.Len() > 0 {
		t.Errorf("said %q", &said)
	}
}

// A container may have no place for reports.
func TestWithoutAPlaceThereIsNoReport(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{"", filepath.Join(file, "below")} {
		r := BeginCrashReport(io.Discard, dir, "v", "talf")
		if r != nil || r.keep("x") != "" {
			t.Errorf("%q: a report was begun", dir)
		}
		r.End()
	}
}

// commands is a program with commands that take arguments in place of flags.
func commands() *cobra.Command {
	root := &cobra.Command{Use: "talf"}
	root.PersistentFlags().BoolP("verbose", "v", false, "")
	for _, name := range []string{"train", "generate", "chat"} {
		c := &cobra.Command{Use: name, Run: func(*cobra.Command, []string) {}}
		root.AddCommand(c)
		c.Flags().String("model", "", "")
		c.Flags().Bool("json", false, "")
		if Arguments(c.Flags(), "model"); name == "generate" {
			c.Flags().String("prompt", "", "")
			Arguments(c.Flags(), "model", "prompt")
		}
	}
	return root
}

func TestACommandLineHidesTexts(t *testing.T) {
	for line, want := range map[string]string{
		"":                              "talf",
		"train --data x":                "talf train --data x",
		"generate --prompt":             "talf generate --prompt …",
		"chat --system s --stop=t -v":   "talf chat --system … --stop=… -v",
		"generate --prompts f --prompt": "talf generate --prompts f --prompt …",
		"generate m.gguf secret":        "talf generate m.gguf …",
		"generate m.gguf --json secret": "talf generate m.gguf --json …",
		"generate m.gguf two secrets":   "talf generate m.gguf … …",
		"-v generate --model m secret":  "talf -v generate --model m …",
		"generate --bad m.gguf secret":  "talf generate --bad m.gguf …",
	} {
		if got := CommandLine(commands(), strings.Fields(line), "prompt", "system", "stop"); got != want {
			t.Errorf("%q becomes %q, want %q", line, got, want)
		}
	}
}
