// Package disk tests what every command that writes leaves on disk: after a power failure at any of
// its operations, and after an error of any of them.
package disk

import (
	"bytes"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"talf/cmd/talf/command"
	"talf/internal/e2e/talftest"
	"talf/internal/vfs"
)

// every makes the tests go through all operations and states instead of a sample, which takes long.
var every = flag.Bool("every", false, "test all operations and all states of the disk")

// stride returns the distance of the samples that are tested of n.
func (s *scenario) stride(n int) int {
	most := 30
	switch {
	case *every:
		most = n
	case testing.Short():
		most = 4
	}
	return (n + most - 1) / most
}

func TestMain(m *testing.M) { talftest.Main(m, command.Run) }

// A scenario is a few commands that write below a directory.
type scenario struct {
	name string
	// commands returns the command lines, given the directory.
	commands func(dir string) [][]string
	// again returns those that a user runs after a failure, if they are others.
	again func(dir string) [][]string
	stdin string
	// begin prepares the directory, which is otherwise empty.
	begin func(t *testing.T, dir string)
	// read is a command that reads what was written. If it succeeds, all of it is there.
	read func(dir string) []string
	// timed are the files that contain measurements: they are compared without numbers.
	timed []string
	large bool // runs with -every alone
}

// talf runs a command in this process, where operations can be watched.
func talf(stdin string, args ...string) talftest.Result {
	var out, errb bytes.Buffer
	code := command.Run(args, strings.NewReader(stdin), &out, &errb)
	return talftest.Result{Code: code, Out: out.String(), Err: errb.String()}
}

// smallWorld returns files on which a command takes milliseconds: three shards of labels, of which one part of two has
// two.
func smallWorld(t *testing.T) talftest.World {
	w := talftest.World{Model: talftest.TinyModel(t, talftest.TinyConfig(), 1), Text: talftest.TextFile(t, 6), Labels: filepath.Join(t.TempDir(), "labels")}
	w.Head = talftest.TinyHead(t, w.Model, 1)
	talftest.OK(t, "", label(&w, w.Labels)...)
	return w
}

func label(w *talftest.World, out string) []string {
	return []string{"preprocess", "--model", w.Model, "--data", w.Text, "--out", out, "--shard", "2", "--max-len", "32", "--depth", "2"}
}

// scenarios returns all commands that write, on a small world.
func scenarios(t *testing.T) []scenario {
	w := smallWorld(t)
	prompts := talftest.PromptFile(t, 3)
	eagle := filepath.Join(t.TempDir(), "eagle")
	talftest.OK(t, "", "export", "--head", w.Head, "--model", w.Model, "--format", "eagle", "--out", eagle)
	trace := filepath.Join(t.TempDir(), "trace.jsonl")
	talftest.OK(t, "", append(w.Generate(), "--trace", trace)...)
	with := func(args []string, more ...string) []string { return append(slices.Clone(args), more...) }
	one := func(args ...string) func(string) [][]string {
		return func(dir string) [][]string {
			line := slices.Clone(args)
			for i := range line {
				line[i] = strings.ReplaceAll(line[i], "DIR", dir)
			}
			return [][]string{line}
		}
	}
	resumed := func(train func(dir string) [][]string) func(string) [][]string {
		return func(dir string) [][]string { return [][]string{with(train(dir)[0], "--resume")} }
	}
	answer := func(dir string) []string {
		return []string{"generate", "--model", filepath.Join(dir, "out"), "--prompt", "Once", "--max-tokens", "2"}
	}
	draft := func(dir string) []string {
		return []string{"generate", "--model", w.Model, "--head", filepath.Join(dir, "out"), "--prompt", "Once", "--max-tokens", "2"}
	}
	head := one("train", "--model", w.Model, "--data", w.Labels, "--loss", "eagle", "--steps", "4", "--rows", "128", "--save-every", "1", "--eval-every", "2",
		"--keep", "1", "--warmup", "1", "--out", "DIR/out", "--plot", "DIR/out/loss.svg")
	lm := one("train", "--kind", "lm", "--model", w.Model, "--data", w.Text, "--steps", "2", "--rows", "128", "--window", "64", "--save-every", "1",
		"--keep", "0", "--warmup", "1", "--out", "DIR/run", "--export", "DIR/out")
	all := []scenario{
		{name: "preprocess", commands: func(dir string) [][]string { return [][]string{label(&w, dir+"/out")} }},
		{name: "preprocess in two parts", commands: func(dir string) [][]string {
			line := label(&w, dir+"/new/out")
			return [][]string{with(line, "--shard-index", "1", "--shard-count", "2"), with(line, "--shard-index", "0", "--shard-count", "2")}
		}},
		{name: "train a head", commands: head, again: resumed(head)},
		{name: "train a language model and export it", commands: lm, again: resumed(lm), read: answer},
		{name: "generate --out", commands: one("generate", "--model", w.Model, "--prompts", prompts, "--max-tokens", "3", "--out", "DIR/answers.jsonl")},
		{name: "generate --trace", commands: one(with(w.Generate(), "--method", "salf:N=8,th=0.3", "--trace", "DIR/trace.jsonl")...), timed: []string{"trace.jsonl"}},
		{name: "bench", commands: one("bench", "--model", w.Model, "--prompts", prompts, "--method", "pld", "--max-tokens", "2", "--warmup", "0",
			"--log", "DIR/log.jsonl", "--out", "DIR/report.json", "--plot", "DIR/plot.svg"), timed: []string{"log.jsonl", "report.json", "plot.svg"}},
		{name: "score", commands: one("score", "--model", w.Model, "--head", w.Head, "--out", "DIR/scores.safetensors"), stdin: `{"ids":[1,2,3]}`},
		{name: "quantize", commands: one("quantize", "--model", w.Model, "--dtype", "q8", "--out", "DIR/out"), read: answer},
		{
			name: "quantize into an empty directory", commands: one("quantize", "--model", w.Model, "--dtype", "bf16", "--out", "DIR/out"), read: answer,
			begin: func(t *testing.T, dir string) {
				if err := os.Mkdir(filepath.Join(dir, "out"), 0o777); err != nil {
					t.Fatal(err)
				}
			},
		},
		{
			name: "import", commands: one("import", "--head", eagle, "--model", w.Model, "--out", "DIR/new/out"),
			read: func(dir string) []string { return draft(filepath.Join(dir, "new")) },
		},
		{
			name: "datastore build", commands: one("datastore", "build", "--model", w.Model, "--data", w.Text, "--out", "DIR/text.idx"),
			read: func(dir string) []string { return []string{"datastore", "inspect", filepath.Join(dir, "text.idx")} },
		},
		{name: "inspect trace --svg", commands: one("inspect", "trace", trace, "--svg", "DIR/rounds.svg")},
		{name: "quickstart", large: true, commands: one("quickstart", "--dir", "DIR/out"), timed: []string{"state.json", "quickstart.png", "quickstart.svg"}},
	}
	for _, format := range []string{"eagle", "sglang", "vllm", "speculators"} {
		all = append(all, scenario{name: "export " + format, commands: one("export", "--head", w.Head, "--model", w.Model, "--format", format, "--verifier", "org/model", "--out", "DIR/out")})
	}
	return all
}

// run runs command lines until one fails.
func (s *scenario) run(lines [][]string) talftest.Result {
	var r talftest.Result
	for _, line := range lines {
		if r = talf(s.stdin, line...); r.Code != command.ExitOK {
			break
		}
	}
	return r
}

// repeat returns the command lines after a failure.
func (s *scenario) repeat(dir string) [][]string {
	if s.again != nil {
		return s.again(dir)
	}
	return s.commands(dir)
}

var (
	number  = regexp.MustCompile(`-?[0-9]+(\.[0-9]+)?(e[-+]?[0-9]+)?`)
	seconds = regexp.MustCompile(`"seconds":[^,}]*`)
)

// contents returns the files below dir, without what changes from run to run.
func (s *scenario) contents(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		name, text := e.Name(), string(b)
		switch {
		case text == "" && (strings.HasPrefix(name, ".lock") || strings.HasPrefix(name, ".") && strings.HasSuffix(name, ".lock")): // harmless
			return nil
		case name == "metrics.jsonl":
			text = seconds.ReplaceAllString(text, `"seconds":0`)
		case slices.Contains(s.timed, name) && strings.Contains(name, "."+"svg"), strings.HasSuffix(name, ".png"):
			text = fmt.Sprint("a picture, complete: ", strings.HasSuffix(strings.TrimSpace(text), "</svg>") || strings.Contains(text, "IEND"))
		case slices.Contains(s.timed, name):
			text = number.ReplaceAllString(text, "0")
		}
		rel, err := filepath.Rel(dir, path)
		files[rel] = text
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// difference names the first file in which two directories differ.
func difference(got, want map[string]string) string {
	for _, name := range slices.Sorted(maps.Keys(want)) {
		if text, ok := got[name]; !ok {
			return name + " is missing"
		} else if text != want[name] {
			return fmt.Sprintf("%s differs: %.300q, want %.300q", name, text, want[name])
		}
	}
	for _, name := range slices.Sorted(maps.Keys(got)) {
		if _, ok := want[name]; !ok {
			return name + " was left behind"
		}
	}
	return ""
}

// quick carries operations out without waiting for the disk.
func quick(op *vfs.Op, run func() error) error {
	if op.Kind == vfs.Sync || op.Kind == vfs.SyncDir {
		return nil
	}
	return run()
}
