package zoo

import (
	"encoding/json"
	"testing"

	"talf/internal/zoo"
	"talf/model/chat"
)

func TestConversationsAreRenderedAsByTransformers(t *testing.T) {
	var in inputs
	read(t, "zoo/inputs.json", &in)
	for _, z := range zoo.Models() {
		t.Run(z.Name, func(t *testing.T) {
			path, want := zoo.Path(t, z.Name), recorded(t, z.Name).Templates
			tmpl, err := chat.Load(path)
			if len(want) == 0 {
				if err == nil {
					t.Error("a base model has a chat template")
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			equal := 0
			for i, raw := range in.Conversations {
				text := want[i].Text
				if want[i].Name == "a developer message" && want[i].LlamaCpp != nil {
					text = *want[i].LlamaCpp // to templates without the role the message is the system's
				}
				// In the form of templates, arguments of calls are objects; in that of OpenAI's API they are JSON in a string.
				for _, line := range [][]byte{raw, withTextArguments(t, raw)} {
					c, err := chat.ParseConversation(line)
					if err != nil {
						t.Fatal(err)
					}
					got, err := tmpl.Render(t.Context(), c)
					if err != nil || got.Text != text {
						t.Errorf("%s: %v\n got %q\nwant %q", want[i].Name, err, got.Text, text)
					}
				}
				if want[i].LlamaCpp == nil {
					equal++
				}
			}
			t.Logf("%s: %d conversations, of which llama.cpp writes %d like transformers", z.Name, len(want), equal)
		})
	}
}

// withTextArguments returns the conversation with the arguments of its calls as JSON in strings.
func withTextArguments(t *testing.T, raw []byte) []byte {
	t.Helper()
	var c map[string]any
	if err := json.Unmarshal(raw, &c); err != nil {
		t.Fatal(err)
	}
	for _, m := range c["messages"].([]any) {
		calls, _ := m.(map[string]any)["tool_calls"].([]any)
		for _, call := range calls {
			f := call.(map[string]any)["function"].(map[string]any)
			b, err := json.Marshal(f["arguments"])
			if err != nil {
				t.Fatal(err)
			}
			f["arguments"] = string(b)
		}
	}
	out, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	return out
}
