package prompts_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"talf/data/corpus"
	"talf/infer/prompts"
	"talf/internal/e2e/talftest"
	"talf/text/chat"
)

// allTurns answers every turn of a file of prompts with "!" and returns the texts before the
// answers, and the errors of prompts that were left out.
func allTurns(t *testing.T, file, form string, template *chat.Template) (texts [][]string, bad []string) {
	t.Helper()
	c := corpus.Default()
	c.Template = form
	set, err := prompts.Read(file, c, template, func(b corpus.BadLine) { bad = append(bad, b.Error()) })
	if err != nil {
		t.Fatal(err)
	}
	for i := range set.Prompts {
		var all []string
		for c := set.Begin(&set.Prompts[i]); c.Ask(); c.Answer("!") {
			p, err := c.Prompt(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if p.Special == set.Prompts[i].Chat {
				t.Errorf("%q: special tokens are added: %v", p.Text, p.Special)
			}
			all = append(all, p.Text)
		}
		texts = append(texts, all)
	}
	return texts, bad
}

// A user's questions are rendered by the model's chat template, as preprocess renders them; text
// is continued as it stands.
func TestPromptsGoThroughTheChatTemplate(t *testing.T) {
	template, err := chat.Load(talftest.ChatModel(t))
	if err != nil {
		t.Fatal(err)
	}
	file := talftest.Write(t, filepath.Join(t.TempDir(), "in.jsonl"), `{"prompt":"a"}
{"turns":["b","c"]}
{"messages":[{"role":"user","content":"d"},{"role":"assistant","content":"no"},{"role":"user","content":"e"}]}
{"conversations":[{"from":"human","value":"f"},{"from":"gpt","value":"no"}]}
{"messages":[{"role":"assistant","content":"nobody asks"}]}
{"text":"g"}
`)
	want := [][]string{
		{"Q: a\nA:"},
		{"Q: b\nA:", "Q: b\nA: !<|end|>\nQ: c\nA:"},
		{"Q: d\nA:", "Q: d\nA: !<|end|>\nQ: e\nA:"},
		{"Q: f\nA:"},
		{"g"},
	}
	got, bad := allTurns(t, file, "", template)
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("with the template: %s", d)
	}
	if d := cmp.Diff([]string{file + ":5: a conversation in which no user asks"}, bad); d != "" {
		t.Errorf("left out: %s", d)
	}
	want = [][]string{
		{"a"},
		{"User: b\nAssistant:", "User: b\nAssistant:!\nUser: c\nAssistant:"},
		{"User: d\nAssistant:", "User: d\nAssistant:!\nUser: e\nAssistant:"},
		{"User: f\nAssistant:"},
		{"g"},
	}
	got, _ = allTurns(t, file, "", nil)
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("without: %s", d)
	}
	got, _ = allTurns(t, talftest.Write(t, filepath.Join(t.TempDir(), "q.jsonl"), `{"q":"h"}`), "{q}?", template)
	if d := cmp.Diff([][]string{{"h?"}}, got); d != "" {
		t.Errorf("text of --template: %s", d)
	}
}

// Only the first turn of a dialogue is asked when a single answer is measured, and a task is
// identified by everything that its user says.
func TestFirstTurnsAndTasks(t *testing.T) {
	file := talftest.Write(t, filepath.Join(t.TempDir(), "in.jsonl"), `{"turns":["b","c"]}`)
	set, err := prompts.Read(file, corpus.Default(), nil, func(b corpus.BadLine) { t.Error(b) })
	if err != nil {
		t.Fatal(err)
	}
	first := set.First(&set.Prompts[0])
	if !first.Ask() || first.Left() != 0 || first.Asked() != "b" {
		t.Errorf("the first turn is %q, and %d are left", first.Asked(), first.Left())
	}
	if tasks := set.Tasks(); len(tasks) != 1 || tasks[0].Key != "b\nc" || !strings.Contains(tasks[0].Place, "in.jsonl") {
		t.Errorf("tasks %+v", tasks)
	}
	if _, err := prompts.Read(talftest.Write(t, file, `{"messages":[]}`), corpus.Default(), nil, func(corpus.BadLine) {}); err == nil || !strings.Contains(err.Error(), "has no prompts (1 lines") {
		t.Errorf("a file without prompts: %v", err)
	}
}
