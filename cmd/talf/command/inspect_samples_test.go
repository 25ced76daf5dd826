package command

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"talf/internal/e2e/talftest"
	"talf/preprocess/samples"
)

func TestInspectDataShowsTheLoss(t *testing.T) {
	dir := talftest.ChatModel(t)
	file := filepath.Join(t.TempDir(), "in.jsonl")
	const text = `{"id":"one","messages":[{"role":"user","content":"Hi"},{"role":"assistant","content":"Good day."},{"role":"user","content":"And \u001b[31m?"}]}
{"messages":[{"role":"user","content":"x"}]}
{"text":"A \u001b[31mstory."}
`
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	tokens := func(s string) string { // counts differ between vocabularies: not what is tested here
		var kept []string
		for line := range strings.Lines(s) {
			if i := strings.Index(line, " tokens, "); i > 0 {
				line = line[:strings.LastIndex(line[:i], " ")] + " N" + line[i:]
			}
			if i := strings.Index(line, " to learn"); i > 0 {
				line = line[:strings.LastIndex(line[:i], " ")] + " N" + line[i:]
			}
			kept = append(kept, strings.ReplaceAll(line, file, "FILE"))
		}
		return strings.Join(kept, "")
	}
	want := "FILE:1: N tokens, N to learn, 2 turns, 1 more cut off, id one\n" +
		"Q: Hi\nA: ⟦Good day.<|end|>⟧\n\n\n" +
		"FILE:3: N tokens, N to learn\n" +
		"⟦<|begin|>A ␛[31mstory.⟧\n\n" +
		"left out: 1: no assistant turn\n"
	if d := cmp.Diff(want, tokens(talftest.OK(t, "", "inspect", "data", file, "--model", dir))); d != "" {
		t.Error(d)
	}
	want = strings.NewReplacer("⟦", "\x1b[32m", "⟧", "\x1b[0m").Replace(want)
	if d := cmp.Diff(want, tokens(talftest.OK(t, "", "inspect", "data", file, "--model", dir, "--color", "always"))); d != "" {
		t.Error(d)
	}

	// A directory with only the tokenizer's files is enough, and so is another template.
	bare := t.TempDir()
	for _, name := range []string{"tokenizer.json", "tokenizer_config.json"} {
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(bare, name), b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	talftest.Run(t, "", "inspect", "data", file, "--model", bare).Refuses(t, ExitFailure, "in.jsonl:1", "--chat-template FILE")
	var s struct {
		Kind    string
		Samples []struct {
			Place, ID string
			Runs      []samples.Run
		}
		Dropped map[string]int
	}
	if err := json.Unmarshal([]byte(talftest.OK(t, "", "inspect", "data", file, "--model", bare, "--chat-template", filepath.Join(dir, "chat_template.jinja"), "--n", "1", "--json")), &s); err != nil {
		t.Fatal(err)
	}
	if s.Kind != "samples" || len(s.Samples) != 1 || s.Samples[0].ID != "one" {
		t.Fatalf("%+v", s)
	}
	if d := cmp.Diff([]samples.Run{{Text: "Q: Hi\nA: "}, {Text: "Good day.<|end|>", Loss: true}, {Text: "\n"}}, s.Samples[0].Runs); d != "" {
		t.Error(d)
	}

	talftest.Run(t, "", "inspect", "data", file).Refuses(t, ExitUsage, "--model")
	talftest.Run(t, "", "inspect", "data", file, "--model", dir, "--color", "red").Refuses(t, ExitUsage, "--color")
	talftest.Run(t, "", "inspect", "data", "--n", "1").Refuses(t, ExitUsage, "missing FILE")
	talftest.Run(t, "", "inspect", "data", filepath.Join(dir, "none.json"), "--model", dir).Refuses(t, ExitFailure, "none.json")
}

// Rows of shards are shown as text, without a tokenizer as ids, and never with another
// tokenizer; samples taken at random depend only on the seed.
func TestInspectDataShowsShards(t *testing.T) {
	dir, out := talftest.ChatModel(t), t.TempDir()
	file := filepath.Join(t.TempDir(), "in.txt")
	var text strings.Builder
	for range 40 {
		text.WriteString("A cat sat on a mat. " + strings.Repeat("So it was. ", text.Len()/100%7) + "\n\n")
	}
	if err := os.WriteFile(file, []byte(text.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	talftest.OK(t, "", "preprocess", "--model", dir, "--data", file, "--out", out, "--depth", "1", "--label-k", "1")
	show := func(more ...string) string {
		t.Helper()
		return talftest.OK(t, "", append([]string{"inspect", "data", out}, more...)...)
	}
	if s := show("--model", dir, "--n", "2"); strings.Count(s, "row") != 2 || !strings.Contains(s, ": row 1:") || !strings.Contains(s, "⟦<|begin|>A cat sat on a mat.") {
		t.Error(s)
	}
	if s := show("--n", "1"); !strings.Contains(s, "⟦0 ") && !strings.Contains(s, "⟦1 ") && !strings.Contains(s, "⟦2 ") {
		t.Error(s)
	}
	a, b := show("--seed", "5"), show("--seed", "6")
	if a != show("--seed", "5") || a == b || a == show() {
		t.Errorf("%s\n%s", a, b)
	}
	raw, err := os.ReadFile(filepath.Join(dir, "tokenizer.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "tokenizer.json"), append(raw, ' '), 0o644); err != nil {
		t.Fatal(err)
	}
	talftest.Run(t, "", "inspect", "data", out, "--model", dir).Refuses(t, ExitFailure, "not with that of the model")
}
