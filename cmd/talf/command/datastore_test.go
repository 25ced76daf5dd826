package command

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"talf/internal/e2e/talftest"
	"talf/internal/inspect"
)

// A datastore of a model's own answers drafts them again: the output stays the same, in fewer
// passes.
func TestADatastoreIsBuiltInspectedAndDraftedFrom(t *testing.T) {
	dir := talftest.TinyModel(t, talftest.TinyConfig(), 1)
	prompts := talftest.PromptFile(t, 3)
	answers := func(args ...string) string {
		out := filepath.Join(t.TempDir(), "out.jsonl")
		talftest.OK(t, "", append([]string{"generate", "--model", dir, "--prompts", prompts, "--max-tokens", "30", "--out", out}, args...)...)
		b, err := os.ReadFile(out)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	plain := answers("--method", "ar")
	file := filepath.Join(t.TempDir(), "answers.idx")
	data := talftest.Write(t, filepath.Join(t.TempDir(), "answers.jsonl"), plain)
	out := talftest.OK(t, "", "datastore", "build", "--model", dir, "--data", data, "--template", "{prompt}", "--answer-field", "text", "--out", file, "--json")
	var built, inspected inspect.Datastore
	if err := json.Unmarshal([]byte(out), &built); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(talftest.OK(t, "", "datastore", "inspect", file, "--json")), &inspected); err != nil {
		t.Fatal(err)
	}
	built.Seconds = 0
	if d := cmp.Diff(built, inspected); d != "" || built.Documents != 3 || built.Tokens < 60 {
		t.Errorf("built %+v, inspected %+v", built, inspected)
	}
	if out := talftest.OK(t, "", "datastore", "inspect", file); !strings.Contains(out, "in 3 documents") {
		t.Errorf("inspect prints\n%s", out)
	}
	if d := cmp.Diff(plain, answers("--method", "rest:"+file)); d != "" {
		t.Errorf("drafting changes the output: %s", d)
	}
}

func TestDatastoresThatDoNotFitAreRefused(t *testing.T) {
	dir := talftest.TinyModel(t, talftest.TinyConfig(), 1)
	file := filepath.Join(t.TempDir(), "text.idx")
	talftest.OK(t, "", "datastore", "build", "--model", dir, "--data", talftest.TextFile(t, 20), "--out", file)
	generate := []string{"generate", "--model", dir, "--prompt", "x", "--method", "rest:" + file}

	other := talftest.TinyModel(t, talftest.TinyConfig(), 1)
	talftest.EditJSON(t, filepath.Join(other, "tokenizer.json"), "version", "1.0 ")
	talftest.Run(t, "", "generate", "--model", other, "--prompt", "x", "--method", "rest:"+file).Refuses(t, ExitFailure, "it was built with the tokenizer")
	talftest.Run(t, "", "generate", "--model", dir, "--prompt", "x", "--method", "rest").Refuses(t, ExitUsage, "talf datastore build")

	info, err := os.Stat(file)
	if err != nil {
		t.Fatal(err)
	}
	talftest.Truncate(t, file, info.Size()-4)
	talftest.Run(t, "", generate...).Refuses(t, ExitFailure, "it is truncated")
	talftest.Run(t, "", "datastore", "inspect", file).Refuses(t, ExitFailure, "it is truncated")
	talftest.Truncate(t, file, 0)
	talftest.Run(t, "", "datastore", "inspect", file).Refuses(t, ExitFailure, "it is not a datastore")

	empty := talftest.Write(t, filepath.Join(t.TempDir(), "empty.txt"), "\n")
	talftest.Run(t, "", "datastore", "build", "--model", dir, "--data", empty, "--out", file).Refuses(t, ExitFailure, "no document has a token")
	talftest.Run(t, "", "datastore", "build", "--model", dir, "--data", empty, "--out", t.TempDir()).Refuses(t, ExitFailure, "is a directory")
	talftest.Run(t, "", "datastore", "build", "--data", empty, "--out", file).Refuses(t, ExitUsage, "--model")
}
