package command

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"talf/internal/e2e/talftest"
)

// generate, chat and bench ask a model with the same text.
func TestChatTemplatesOfPromptFiles(t *testing.T) {
	dir := talftest.ChatModel(t)
	tmp := t.TempDir()
	file := talftest.Write(t, filepath.Join(tmp, "in.jsonl"), `{"turns":["Hello","You?"]}
{"prompt":"Hello"}
{"messages":[{"role":"system","content":"x"},{"role":"user","content":"y"}]}
`)
	out := filepath.Join(tmp, "out.jsonl")
	args := []string{"generate", "--model", dir, "--max-tokens", "6", "--ignore-eos", "--prompts", file, "--out", out}
	// The template refuses one, which does not affect the others.
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
	// A single prompt is asked as a line of a file is, and --raw continues it.
	one := func(more ...string) string {
		return strings.TrimSuffix(talftest.OK(t, "", append([]string{"generate", dir, "Hello", "--max-tokens", "6", "--ignore-eos"}, more...)...), "\n")
	}
	if asked := one(); asked != got[1].Text || one("--chat-template", "none") != talftest.ReadAnswers(t, bare)[1].Text || one("--raw") != talftest.ReadAnswers(t, bare)[1].Text {
		t.Errorf("a prompt is answered %q, want %q; raw %q", asked, got[1].Text, one("--raw"))
	}
	raw := filepath.Join(tmp, "raw.jsonl")
	talftest.OK(t, "", append(args, "--raw", "--out", raw)...)
	if x, y := talftest.ReadAnswers(t, raw), talftest.ReadAnswers(t, bare); x[1].Text != y[1].Text {
		t.Errorf("a file's prompts raw: %+v, want %+v", x, y)
	}
	talftest.Run(t, "", "generate", dir, "x", "--raw", "--date", "2026-01-01").Refuses(t, ExitUsage, "--raw and --date")
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
}

// A text from a chat template includes its first token, which is not added again.
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
