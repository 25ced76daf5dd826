package command

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// A datastore of a model's own answers drafts them again: the output stays, in
// fewer passes.
func TestADatastoreIsBuiltInspectedAndDraftedFrom(t *testing.T) {
	dir := tinyModel(t, tinyConfig(), 1)
	prompts := promptFile(t, 3)
	answers := func(args ...string) string {
		out := filepath.Join(t.TempDir(), "out.jsonl")
		ok(t, "", append([]string{"generate", "--model", dir, "--prompts", prompts, "--max-tokens", "30", "--out", out}, args...)...)
		b, err := os.ReadFile(out)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	plain := answers()
	file := filepath.Join(t.TempDir(), "answers.idx")
	data := write(t, filepath.Join(t.TempDir(), "answers.jsonl"), plain)
	out := ok(t, "", "datastore", "build", "--model", dir, "--data", data, "--template", "{prompt}", "--answer-field", "text", "--out", file, "--json")
	var built, inspected storeFinding
	if err := json.Unmarshal([]byte(out), &built); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(ok(t, "", "datastore", "inspect", file, "--json")), &inspected); err != nil {
		t.Fatal(err)
	}
	built.Seconds = 0
	if d := cmp.Diff(built, inspected); d != "" || built.Documents != 3 || built.Tokens < 60 {
		t.Errorf("built %+v, inspected %+v", built, inspected)
	}
	if out := ok(t, "", "datastore", "inspect", file); !strings.Contains(out, "in 3 documents") {
		t.Errorf("inspect prints\n%s", out)
	}
	if d := cmp.Diff(plain, answers("--method", "rest:"+file)); d != "" {
		t.Errorf("drafting changes the output: %s", d)
	}
}

func TestDatastoresThatDoNotFitAreRefused(t *testing.T) {
	dir := tinyModel(t, tinyConfig(), 1)
	file := filepath.Join(t.TempDir(), "text.idx")
	ok(t, "", "datastore", "build", "--model", dir, "--data", textFile(t, 20), "--out", file)
	generate := []string{"generate", "--model", dir, "--prompt", "x", "--method", "rest:" + file}

	other := tinyModel(t, tinyConfig(), 1)
	editJSON(t, filepath.Join(other, "tokenizer.json"), "version", "1.0 ")
	talf(t, "", "generate", "--model", other, "--prompt", "x", "--method", "rest:"+file).refuses(t, exitFailure, "it was built with the tokenizer")
	talf(t, "", "generate", "--model", dir, "--prompt", "x", "--method", "rest").refuses(t, exitUsage, "talf datastore build")

	info, err := os.Stat(file)
	if err != nil {
		t.Fatal(err)
	}
	truncate(t, file, info.Size()-4)
	talf(t, "", generate...).refuses(t, exitFailure, "it is truncated")
	talf(t, "", "datastore", "inspect", file).refuses(t, exitFailure, "it is truncated")
	truncate(t, file, 0)
	talf(t, "", "datastore", "inspect", file).refuses(t, exitFailure, "it is not a datastore")

	empty := write(t, filepath.Join(t.TempDir(), "empty.txt"), "\n")
	talf(t, "", "datastore", "build", "--model", dir, "--data", empty, "--out", file).refuses(t, exitFailure, "no document has a token")
	talf(t, "", "datastore", "build", "--model", dir, "--data", empty, "--out", t.TempDir()).refuses(t, exitFailure, "is a directory")
	talf(t, "", "datastore", "build", "--data", empty, "--out", file).refuses(t, exitUsage, "--model")
}
