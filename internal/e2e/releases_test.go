package e2e

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"talf/compute/cpu"
	"talf/internal/demo"
	"talf/internal/e2e/talftest"
	"talf/model/modeltest"
)

// releases has, by version of the schema, files that releases with that version wrote, and beside
// them the model and the texts that they were made from. They are never made again: what users
// have on their disks does not change either. A release that raises
// the version adds a directory, made with
//
//	go test ./internal/e2e -run TestFilesOfReleases -args -keep N
//
// of the release before it (-talf names another program than this one).
const releases = "testdata/releases"

var (
	keep     = flag.String("keep", "", "write the files of this schema")
	keepWith = flag.String("talf", "", "the program that writes them; empty: this one")
)

// The commands that write the files, in their order. They run in the directory of the files: some
// keep the paths that they were given.
var writes = [][]string{
	{"quantize", "--model", "model", "--out", "q8"},
	labelling("labels"),
	training("run"),
	answering("answers.jsonl"),
	measuring("bench.jsonl"),
	{"datastore", "build", "--model", "model", "--data", "text.jsonl", "--out", "text.idx"},
	{"generate", "--model", "model", "--head", "run", "--prompt", "Once", "--max-tokens", "4", "--trace", "trace.jsonl"},
}

func labelling(out string) []string {
	return []string{"preprocess", "--model", "model", "--data", "text.jsonl", "--out", out, "--shard", "4", "--max-len", "24", "--k", "2", "--depth", "2", "--label-k", "4", "--features", "none"}
}

func training(out string, more ...string) []string {
	return append([]string{
		"train", "--model", "model", "--data", "labels", "--loss", "talf", "--features", "recompute", "--steps", "4", "--rows", "64",
		"--save-every", "2", "--eval-every", "0", "--warmup", "1", "--held-out", "0", "--out", out,
	}, more...)
}

func answering(out string) []string {
	return []string{"generate", "--model", "model", "--prompts", "prompts.jsonl", "--max-tokens", "6", "--out", out}
}

func measuring(log string) []string {
	return []string{"bench", "--model", "model", "--head", "run", "--prompts", "prompts.jsonl", "--limit", "3", "--method", "salf", "--max-tokens", "4", "--prompt-tokens", "8", "--threads", "1", "--log", log}
}

// sources are what files are made from.
var sources = []string{"model", "text.jsonl", "prompts.jsonl"}

// keptShape is that of the model.
func keptShape() modeltest.Config {
	c := modeltest.Default()
	c.Vocab, c.Hidden, c.Layers, c.Heads, c.KVHeads, c.HeadDim, c.FFN, c.MaxPos, c.EOS, c.BF16 = demo.VocabSize, 16, 1, 2, 1, 8, 24, 128, 1, true
	return c
}

// makeSources writes them, once.
func makeSources(t *testing.T) {
	if _, err := os.Stat(filepath.Join(releases, "model")); err == nil {
		return
	}
	model := filepath.Join(releases, "model")
	if err := os.MkdirAll(model, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(
		modeltest.Write(model, keptShape(), 1), demo.UnpackTokenizer(model),
		demo.WriteJSONL(filepath.Join(releases, "text.jsonl"), demo.Corpus(9, 9)),
	); err != nil {
		t.Fatal(err)
	}
	talftest.Write(t, filepath.Join(releases, "prompts.jsonl"), readFile(t, talftest.PromptFile(t, 4)))
}

// copySources copies them to dir.
func copySources(t *testing.T, dir string) {
	t.Helper()
	copyTo(t, filepath.Join(releases, "model"), filepath.Join(dir, "model"))
	for _, name := range sources[1:] {
		talftest.Write(t, filepath.Join(dir, name), readFile(t, filepath.Join(releases, name)))
	}
}

// keepFiles writes the files of a release.
func keepFiles(t *testing.T, dir, program string) {
	makeSources(t)
	copySources(t, dir)
	t.Chdir(dir)
	for _, args := range writes {
		if program == "" {
			done(t, args...)
			continue
		}
		if out, err := exec.Command(program, args...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", args, err, out)
		}
	}
	locks, err := filepath.Glob("*/.lock")
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range append(locks, append([]string{"q8/tokenizer.json"}, sources...)...) {
		if err := os.RemoveAll(l); err != nil {
			t.Fatal(err)
		}
	}
}

// Files of every release are read, and runs that it left unfinished are continued to the same
// bytes.
func TestFilesOfReleases(t *testing.T) {
	if *keep != "" {
		dir, err := filepath.Abs(filepath.Join(releases, *keep))
		if err != nil {
			t.Fatal(err)
		}
		keepFiles(t, dir, *keepWith)
		return
	}
	found, err := os.ReadDir(releases)
	if err != nil {
		t.Fatal(err)
	}
	var schemas []string
	for _, e := range found {
		if e.IsDir() && e.Name() != "model" {
			schemas = append(schemas, e.Name())
		}
	}
	if !slices.Equal(schemas, []string{"2"}) {
		t.Errorf("files of the schemas %v", schemas)
	}
	for _, schema := range schemas {
		t.Run("schema "+schema, func(t *testing.T) { continueFiles(t, schema) })
	}
}

func continueFiles(t *testing.T, schema string) {
	kept, err := filepath.Abs(filepath.Join(releases, schema))
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "files")
	copyTo(t, kept, dir)
	copySources(t, dir)
	talftest.Write(t, filepath.Join(dir, "q8", "tokenizer.json"), readFile(t, filepath.Join(dir, "model", "tokenizer.json")))
	t.Chdir(dir)
	same := func(name, like string) {
		t.Helper()
		got, want := talftest.Contents(t, name), talftest.Contents(t, filepath.Join(kept, like))
		for _, c := range []map[string]string{got, want} {
			delete(c, ".lock")
		}
		for file := range want {
			if got[file] != want[file] {
				t.Errorf("%s of %s: %d bytes, which are not those of the release's own, %d", file, name, len(got[file]), len(want[file]))
			}
		}
		if len(got) != len(want) {
			t.Errorf("%s has %d files, want %d", name, len(got), len(want))
		}
	}

	// Labels, complete and interrupted.
	done(t, labelling("labels")...)
	same("labels", "labels")
	copyTo(t, "labels", "part")
	cutSet(t, "part", 1)
	done(t, labelling("part")...)
	same("part", "labels")
	if err := os.Remove("part/manifest.json"); err != nil { // as if killed before the first one was written
		t.Fatal(err)
	}
	for _, later := range []string{"part/shard-00001.parquet", "part/shard-00002.parquet"} {
		if err := os.Remove(later); err != nil {
			t.Fatal(err)
		}
	}
	done(t, labelling("part")...)
	same("part", "labels")
	done(t, "inspect", "labels")
	done(t, training("anew")...)

	// A run of training, from its second step on.
	if err := os.RemoveAll("run/step-00000004"); err != nil {
		t.Fatal(err)
	}
	done(t, training("run", "--resume")...)
	same("run", "run")
	done(t, "inspect", "run")
	done(t, "generate", "--model", "model", "--head", "run", "--prompt", "Once", "--max-tokens", "4")
	done(t, "generate", "--model", "q8", "--head", "run", "--prompt", "Once", "--max-tokens", "4")
	done(t, "import", "--head", "run", "--model", "model", "--out", "imported")
	done(t, "generate", "--model", "model", "--head", "imported", "--prompt", "Once", "--max-tokens", "4")

	// Answers.
	whole := readFile(t, "answers.jsonl")
	cutLines(t, "answers.jsonl", 1)
	done(t, answering("answers.jsonl")...)
	if got := readFile(t, "answers.jsonl"); got != whole {
		t.Errorf("the answers are\n%s, want\n%s", got, whole)
	}

	// Measurements, which a log keeps with the name of the device.
	dev, err := cpu.New(cpu.Config{Class: cpu.Default().Class, Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	name := dev.Name()
	if err := dev.Close(); err != nil {
		t.Fatal(err)
	}
	log := regexp.MustCompile(`cpu [a-z0-9]+, 1 thread`).ReplaceAllString(readFile(t, "bench.jsonl"), name)
	talftest.Write(t, "bench.jsonl", log)
	cutLines(t, "bench.jsonl", 3)
	first := readFile(t, "bench.jsonl")
	done(t, measuring("bench.jsonl")...)
	got := readFile(t, "bench.jsonl")
	if !strings.HasPrefix(got, first) || strings.Count(got, "\n") != strings.Count(log, "\n") || !slices.Equal(outputs(t, got), outputs(t, log)) {
		t.Errorf("the log has %d lines, want those of\n%s", strings.Count(got, "\n"), log)
	}

	// What is only read.
	done(t, "datastore", "inspect", "text.idx")
	done(t, "generate", "--model", "model", "--method", "rest:file=text.idx", "--prompt", "Once", "--max-tokens", "4")
	done(t, "inspect", "trace", "trace.jsonl")
	if r := done(t, "generate", "--model", "q8", "--prompt", "Once", "--max-tokens", "4"); r.Out == "" {
		t.Error("the quantised model says nothing")
	}
	done(t, "generate", "--model", "model", "--head", "run", "--prompt", "Once", "--max-tokens", "4", "--trace", "new.jsonl")
	head, _, _ := strings.Cut(readFile(t, "new.jsonl"), "\n")
	if n := strings.Count(head, `{"id":"talf-fn-1:`); n != 2 {
		t.Errorf("a trace names %d functions, want those of the target and of the head: %s", n, head)
	}
	// Another model is refused, as far as the file can tell.
	if err := modeltest.Write("model", keptShape(), 2); err != nil {
		t.Fatal(err)
	}
	cutSet(t, "part", 1)
	cutLines(t, "answers.jsonl", 1)
	cutLines(t, "bench.jsonl", 3)
	for _, args := range [][]string{
		labelling("part"), training("run", "--resume"), training("other"), answering("answers.jsonl"), measuring("bench.jsonl"),
		{"generate", "--model", "model", "--head", "run", "--prompt", "Once"},
	} {
		if r := inProcess(args...); r.Code == 0 {
			t.Errorf("talf %s goes on with another model's files", strings.Join(args, " "))
		}
	}
}

func readFile(t *testing.T, path string) string {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// outputs are the tokens that the measurements of a log hold, by key.
func outputs(t *testing.T, log string) []string {
	t.Helper()
	var all []string
	for line := range strings.Lines(log) {
		var m struct {
			Key    string
			Output []int32
		}
		if err := json.NewDecoder(bytes.NewReader([]byte(line))).Decode(&m); err != nil {
			t.Fatal(err)
		}
		if m.Key != "" {
			all = append(all, fmt.Sprint(m.Key, m.Output))
		}
	}
	slices.Sort(all)
	return all
}
