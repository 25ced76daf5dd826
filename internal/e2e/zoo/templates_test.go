package zoo

import (
	"testing"

	"talf/internal/zoo"
	"talf/text/chat"
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
				c, err := chat.ParseConversation(raw)
				if err != nil {
					t.Fatal(err)
				}
				if got, err := tmpl.Render(t.Context(), c); err != nil || got.Text != text {
					t.Errorf("%s: %v\n got %q\nwant %q", want[i].Name, err, got.Text, text)
				}
				if want[i].LlamaCpp == nil {
					equal++
				}
			}
			t.Logf("%s: %d conversations, of which llama.cpp writes %d like transformers", z.Name, len(want), equal)
		})
	}
}
