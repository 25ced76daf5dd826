package command

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"talf/internal/e2e/talftest"

	"github.com/google/go-cmp/cmp"
)

// allTurns answers every turn of a file of prompts with "!" and returns the texts
// before the answers.
func allTurns(t *testing.T, model string, src promptSource) (texts [][]string) {
	t.Helper()
	set, err := quietApp(t).readPrompts(&src, model)
	if err != nil {
		t.Fatal(err)
	}
	for i := range set.prompts {
		var all []string
		for c := set.begin(&set.prompts[i]); c.Ask(); c.Answer("!") {
			p, err := c.Prompt(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if p.Special == set.prompts[i].chat {
				t.Errorf("%q: special tokens are added: %v", p.Text, p.Special)
			}
			all = append(all, p.Text)
		}
		texts = append(texts, all)
	}
	return texts
}

// What a user asks is written by the model's chat template, as preprocess writes it;
// what is text goes on as it stands.
func TestPromptsGoThroughTheChatTemplate(t *testing.T) {
	dir := talftest.ChatModel(t)
	file := talftest.Write(t, filepath.Join(t.TempDir(), "in.jsonl"), `{"prompt":"a"}
{"turns":["b","c"]}
{"messages":[{"role":"user","content":"d"},{"role":"assistant","content":"no"},{"role":"user","content":"e"}]}
{"conversations":[{"from":"human","value":"f"},{"from":"gpt","value":"no"}]}
{"messages":[{"role":"assistant","content":"nobody asks"}]}
{"text":"g"}
`)
	src := promptSource{path: file}
	want := [][]string{
		{"Q: a\nA:"},
		{"Q: b\nA:", "Q: b\nA: !<|end|>\nQ: c\nA:"},
		{"Q: d\nA:", "Q: d\nA: !<|end|>\nQ: e\nA:"},
		{"Q: f\nA:"},
		{"g"},
	}
	if d := cmp.Diff(want, allTurns(t, dir, src)); d != "" {
		t.Errorf("with the template: %s", d)
	}
	src.chat.file = noTemplate
	want = [][]string{
		{"a"},
		{"User: b\nAssistant:", "User: b\nAssistant:!\nUser: c\nAssistant:"},
		{"User: d\nAssistant:", "User: d\nAssistant:!\nUser: e\nAssistant:"},
		{"f"},
		{"g"},
	}
	if d := cmp.Diff(want, allTurns(t, dir, src)); d != "" {
		t.Errorf("without: %s", d)
	}
	src = promptSource{path: talftest.Write(t, filepath.Join(t.TempDir(), "q.jsonl"), `{"q":"h"}`), template: "{q}?"}
	if d := cmp.Diff([][]string{{"h?"}}, allTurns(t, dir, src)); d != "" {
		t.Errorf("text of --template: %s", d)
	}
}

// generate, chat and bench ask a model in the same words.
func TestChatTemplatesOfPromptFiles(t *testing.T) {
	dir := talftest.ChatModel(t)
	tmp := t.TempDir()
	file := talftest.Write(t, filepath.Join(tmp, "in.jsonl"), `{"turns":["Hello","You?"]}
{"prompt":"Hello"}
{"messages":[{"role":"system","content":"x"},{"role":"user","content":"y"}]}
`)
	out := filepath.Join(tmp, "out.jsonl")
	args := []string{"generate", "--model", dir, "--max-tokens", "6", "--ignore-eos", "--prompts", file, "--out", out}
	// The template refuses one, which the others do not suffer from.
	talftest.Run(t, "", args...).Refuses(t, ExitFailure, "in.jsonl:3 was not answered", "the chat template refuses it", "no system")
	got := talftest.ReadAnswers(t, out)
	if len(got) != 2 || len(got[0].Turns) != 2 || got[1].Turns != nil || got[0].Turns[0].Text != got[1].Text {
		t.Fatalf("%+v", got)
	}
	said := talftest.OK(t, "Hello\n", "chat", "--model", dir, "--max-tokens", "6", "--ignore-eos")
	if said != got[1].Text+"\n" {
		t.Errorf("chat answers %q, generate %q", said, got[1].Text)
	}
	talftest.Run(t, "", append(args, "--chat-template", "none")...).Refuses(t, ExitFailure, out, "other options")
	bare := filepath.Join(tmp, "bare.jsonl")
	talftest.OK(t, "", append(args, "--chat-template", "none", "--out", bare)...)
	if x := talftest.ReadAnswers(t, bare); len(x) != 3 || x[1].Text == got[1].Text {
		t.Errorf("without a template: %+v", x)
	}
	talftest.Run(t, "", "generate", "--model", dir, "--prompt", "x", "--chat-template", "none").Refuses(t, ExitUsage, "--chat-template", "--prompts")
	talftest.Run(t, "", append(args, "--date", "today")...).Refuses(t, ExitUsage, "--date")

	two := talftest.Write(t, filepath.Join(tmp, "two.jsonl"), `{"prompt":"Hello"}`+"\n"+`{"turns":["Hello","You?"]}`)
	bench := []string{"bench", "--model", dir, "--prompts", two, "--method", "pld", "--max-tokens", "6", "--ignore-eos"}
	if s := talftest.OK(t, "", bench...); !strings.Contains(s, "asked by the chat template") {
		t.Errorf("bench does not say that a template is used:\n%s", s)
	}
	if s := talftest.OK(t, "", append(bench, "--chat-template", "none")...); strings.Contains(s, "template") {
		t.Errorf("bench says that a template is used:\n%s", s)
	}
	talftest.Run(t, "", append(bench, "--prompts", "x="+file)...).Refuses(t, ExitFailure, "in.jsonl:3", "the chat template refuses it")
	rec := filepath.Join(tmp, "rec")
	talftest.OK(t, "", "bench", "record", "--model", dir, "--prompts", two, "--max-tokens", "6", "--ignore-eos", "--out", rec)
	if _, err := os.Stat(rec); err != nil {
		t.Error(err)
	}
}

// A text that a chat template made brings its first token, which is not added again.
func TestTheFirstTokenIsNotAddedTwice(t *testing.T) {
	dir := talftest.TinyModel(t, talftest.TinyConfig(), 1)
	tokens := func(prompt string) int {
		var a struct {
			Stats struct {
				Prompt int `json:"prompt_tokens"`
			}
		}
		out := talftest.OK(t, "", "generate", "--model", dir, "--prompt", prompt, "--max-tokens", "1", "--json")
		if err := json.Unmarshal([]byte(out), &a); err != nil {
			t.Fatal(err)
		}
		return a.Stats.Prompt
	}
	if with, without := tokens("<|begin|>Once"), tokens("Once"); with != without {
		t.Errorf("%d tokens, want the %d of the text alone", with, without)
	}
}
