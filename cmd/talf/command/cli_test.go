package command

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"talf/compute/cpu/kern"
	"talf/internal/e2e/talftest"
	"talf/internal/quickstart"
)

func TestMain(m *testing.M) { talftest.Main(m, Run) }

func TestEveryCommandHasHelpWithAnExample(t *testing.T) {
	a := &app{}
	for _, c := range newRoot(a).Commands() {
		if c.Hidden || c.Name() == "help" {
			continue
		}
		if c.Short == "" || !strings.Contains(c.Example, "talf "+c.Name()) {
			t.Errorf("%s: help has no example", c.Name())
		}
		out := talftest.OK(t, "", c.Name(), "--help")
		if !strings.Contains(out, "Examples:") {
			t.Errorf("%s --help prints no example:\n%s", c.Name(), out)
		}
	}
}

// Shells complete subcommands, flags and known values of flags.
func TestShellsComplete(t *testing.T) {
	for want, args := range map[string][]string{
		"preprocess\t": {"pre"},
		"--head\t":     {"generate", "--he"},
		"salf\n":       {"generate", "--method", "sa"},
		"traversal\n":  {"bench", "--verify", "tr"},
		"hass\n":       {"train", "--loss", ""},
		":16\n":        {"generate", "--head", ""}, // only directories
	} {
		if out := talftest.OK(t, "", append([]string{"__complete"}, args...)...); !strings.Contains(out, want) {
			t.Errorf("%v: %q, want %q in it", args, out, want)
		}
	}
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		if out := talftest.OK(t, "", "completion", shell); !strings.Contains(out, "talf") {
			t.Errorf("%s: %q", shell, out)
		}
	}
	if out := talftest.OK(t, "", "help"); !strings.Contains(out, "\n  completion ") {
		t.Errorf("help does not tell of completion:\n%s", out)
	}
}

func TestWrongUsageExitsTwo(t *testing.T) {
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"unknown command":     {[]string{"generat"}, "generate"},
		"its flags too":       {[]string{"generat", "--model", "x"}, "generate"},
		"help of nothing":     {[]string{"help", "generat"}, "generate"},
		"nothing's help":      {[]string{"generat", "--help"}, `unknown command "generat": did you mean generate?`},
		"nothing's short":     {[]string{"-q", "generat", "-h"}, `unknown command "generat"`},
		"help of nothing yet": {[]string{"bench", "perplex", "--help"}, `unknown command "perplex": did you mean perplexity?`},
		"unknown flag":        {[]string{"version", "--nope"}, "--nope"},
		"superfluous":         {[]string{"version", "now"}, "now"},
		"missing model":       {[]string{"score", "--out", "x"}, "--model"},
		"missing two flags":   {[]string{"score"}, "--out"},
		"flag without value":  {[]string{"score", "--model"}, "--model"},
		"negative threads":    {[]string{"generate", "--model", ".", "--prompt", "x", "--threads", "-1"}, "--threads"},
		"unknown method":      {[]string{"generate", "--model", ".", "--prompt", "x", "--method", "magic"}, "magic"},
		"unknown parameter":   {[]string{"generate", "--model", ".", "--prompt", "x", "--method", "salf:speed=9"}, "speed"},
		"no prompt":           {[]string{"generate", "--model", ".", "--prompts", "a", "--prompt", "b"}, "--prompts"},
		"unknown loss":        {[]string{"train", "--model", ".", "--data", "d", "--out", "o", "--loss", "magic"}, "magic"},
		"sampling of nothing": {[]string{"preprocess", "--model", ".", "--data", "d", "--out", "o", "--temperature", "1"}, "--regenerate"},
		"argument of none":    {[]string{"generate", ".", "hello", "you"}, `unexpected argument "you"`},
		"two arguments":       {[]string{"inspect", "a", "b"}, `unexpected argument "b": want one PATH`},
		"no argument":         {[]string{"inspect", "metrics"}, "missing DIR"},
		"no subcommand":       {[]string{"bench", "perplex"}, `unknown command "perplex": did you mean perplexity?`},
		"swallowed flag":      {[]string{"generate", "--model", "--prompt", "x"}, "--model has no value"},
		"no number":           {[]string{"generate", "--model", ".", "--temperature", "hot"}, `--temperature is "hot", want a number`},
		"no numbers":          {[]string{"bench", "--model", ".", "--temperature", "0,hot"}, `--temperature is "0,hot", want numbers`},
		"negative seed":       {[]string{"generate", "--model", ".", "--seed", "-1"}, `--seed is "-1", want a whole number, 0 or more`},
		"too large a number":  {[]string{"generate", "--model", ".", "--max-tokens", "99999999999999999999"}, "want a whole number, not as large"},
		"no list of numbers":  {[]string{"bench", "--model", ".", "--budget", "1,x"}, `--budget is "1,x", want a whole number`},
		"neither yes nor no":  {[]string{"bench", "--model", ".", "--check=perhaps"}, `--check is "perhaps", want true or false`},
		"raw and template":    {[]string{"chat", "--model", ".", "--raw", "--chat-template", "x"}, "--raw and --chat-template"},
		"file without labels": {[]string{"preprocess", "--model", ".", "--out", "o"}, "--data"},
	} {
		t.Run(name, func(t *testing.T) {
			talftest.Run(t, "", c.args...).Refuses(t, ExitUsage, c.want)
		})
	}
}

// Commands that the README, the guides and the help tell a reader to type are accepted as
// written: only files may be missing.
func TestEveryPrintedCommandIsAccepted(t *testing.T) {
	var texts []string
	files, err := filepath.Glob("../../../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	tables, err := filepath.Glob("../../../docs/measurements/*.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range append(append(files, tables...), "../../../README.md") {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		texts = append(texts, string(b))
	}
	guides := len(texts)
	a := &app{}
	for _, c := range newRoot(a).Commands() {
		texts = append(texts, c.Example)
		for _, sub := range c.Commands() {
			texts = append(texts, sub.Example)
		}
	}
	texts = append(texts, (&quickstart.Result{}).String())
	t.Chdir(t.TempDir())
	n := 0
	for i, text := range texts {
		guide := i < guides
		for line := range strings.Lines(strings.ReplaceAll(text, "\\\n", " ")) {
			// In the guides, lines of lists have two or three spaces, and code has four or more.
			if indent := len(line) - len(strings.TrimLeft(line, " ")); indent < 2 || guide && indent < 4 || strings.Contains(line, "`") || strings.HasPrefix(strings.TrimSpace(line), "lab ") {
				continue // prose, or of the laboratory
			}
			_, line, found := strings.Cut(" "+strings.TrimSpace(line), "talf ")
			if !found {
				continue
			}
			args := talftest.Words(line)
			if len(args) == 0 || args[0] == "quickstart" { // the build, and what needs no files
				continue
			}
			n++
			var errb bytes.Buffer
			code := Run(args, strings.NewReader(`{"ids":[1]}`), io.Discard, &errb)
			if code == ExitUsage || strings.Contains(errb.String(), "bug") {
				t.Errorf("talf %s: exit %d\n%s", strings.TrimSpace(line), code, errb.String())
			}
		}
	}
	if n < 20 {
		t.Errorf("found %d commands, want all that are printed", n)
	}
}

func TestVersionAndDoctorPrintJSON(t *testing.T) {
	for _, cmd := range []string{"version", "doctor"} {
		var v map[string]any
		if err := json.Unmarshal([]byte(talftest.OK(t, "", cmd, "--json")), &v); err != nil {
			t.Errorf("%s: %v", cmd, err)
		}
	}
	if out := talftest.OK(t, "", "doctor"); !strings.Contains(out, "gpu") || !strings.Contains(out, " cores") || !strings.Contains(out, "device") ||
		!strings.Contains(out, "kernels   portable") || (kern.NoAMX() != nil) != strings.Contains(out, "no AMX: ") {
		t.Errorf("doctor says too little:\n%s", out)
	}
}

// errStopped is a planted failure.
var errStopped = errors.New("stopped by the test")

// quietApp runs parts of commands inside a test.
func quietApp(t testing.TB) *app {
	t.Helper()
	return &app{in: strings.NewReader(""), out: io.Discard, err: io.Discard, log: slog.New(slog.DiscardHandler), quiet: true}
}

// What a command line needed is collected once it has ended: tests run thousands in one process.
func TestACommandLineLeavesNothingInMemory(t *testing.T) {
	const runs, most = 50, 4 << 10 // bytes; the commands and their flags take 24 KiB
	live := func() int64 {
		for range 2 {
			runtime.GC() // the second empties pools
		}
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	run := func() {
		if code := Run([]string{"version"}, strings.NewReader(""), io.Discard, io.Discard); code != ExitOK {
			t.Fatalf("exit %d", code)
		}
	}
	run()
	before := live()
	for range runs {
		run()
	}
	if each := (live() - before) / runs; each > most {
		t.Errorf("every command line leaves %d bytes, want at most %d", each, most)
	}
}
