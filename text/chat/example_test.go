package chat_test

import (
	"context"
	"fmt"
	"log"

	"talf/text/chat"
)

func Example() {
	tmpl, err := chat.Parse("example", "{% for m in messages %}{{ m.role | upper }}: {{ m.content | trim }}{{ eos_token }}\n{% endfor %}"+
		"{% if add_generation_prompt %}ASSISTANT:{% endif %}")
	if err != nil {
		log.Fatal(err)
	}
	talk, err := chat.ParseConversation([]byte(`{"messages": [
		{"role": "user", "content": "What is 2+2?"},
		{"role": "assistant", "content": "Four."}
	], "eos_token": "</s>"}`))
	if err != nil {
		log.Fatal(err)
	}
	r, err := tmpl.RenderSpans(context.Background(), talk)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Print(r.Text)
	for _, s := range r.Spans {
		fmt.Printf("the assistant says %q\n", r.Text[s.Start:s.End])
	}
	// Output:
	// USER: What is 2+2?</s>
	// ASSISTANT: Four.</s>
	// the assistant says " Four.</s>"
}
