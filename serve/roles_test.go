package serve_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"talf/infer"
	"talf/internal/e2e/servetest"
	"talf/internal/e2e/talftest"
	"talf/serve/wire"
	"talf/serve/wire/refuse"
	"talf/text/chat"
)

// A template core remembers what a chat template would be given.
type templated struct {
	*core
	last json.RawMessage
}

func (c *templated) Encode(ctx context.Context, p *wire.Prompt) ([]int32, *refuse.Error) {
	c.last = p.Conversation
	return c.core.Encode(ctx, p)
}

// told is the last conversation: its messages as role:content, and what begins the answer.
func (c *templated) told(t *testing.T) string {
	t.Helper()
	var in struct {
		Messages []struct {
			Role    string
			Content *string
			Calls   []json.RawMessage `json:"tool_calls"`
			Call    string            `json:"tool_call_id"`
		}
		Begins    bool `json:"add_generation_prompt"`
		Continues bool `json:"continue_final_message"`
	}
	if err := json.Unmarshal(c.last, &in); err != nil {
		t.Fatalf("%s: %v", c.last, err)
	}
	var parts []string
	for _, m := range in.Messages {
		content := "null"
		if m.Content != nil {
			content = fmt.Sprintf("%q", *m.Content)
		}
		if len(m.Calls) > 0 {
			content += fmt.Sprintf("+%d", len(m.Calls))
		}
		if m.Call != "" {
			content += " of " + m.Call
		}
		parts = append(parts, m.Role+":"+content)
	}
	switch {
	case in.Begins && in.Continues:
		parts = append(parts, "both")
	case in.Begins:
		parts = append(parts, "new")
	case in.Continues:
		parts = append(parts, "goes on")
	}
	return strings.Join(parts, " ")
}

// Every role with every shape of content, on every route that has messages: what the template is given,
// or the field that is refused.
func TestEveryRoleWithEveryContent(t *testing.T) {
	c := &templated{core: &core{words: []string{"x"}, end: infer.EOS}}
	_, url := start(t, c, nil)
	const refused = "400 "
	texts := func(kind string) string {
		return fmt.Sprintf(`[{"type":%q,"text":"a"},{"type":%q,"text":"b"}]`, kind, kind)
	}
	shapes := func(kind string) map[string]string {
		return map[string]string{
			"text": `"content":"a"`, "empty": `"content":""`, "null": `"content":null`, "missing": `"name":"n"`, "number": `"content":7`, "object": `"content":{}`,
			"no parts": `"content":[]`, "parts": `"content":` + texts(kind), "odd part": `"content":[{"type":"hologram"}]`, "part without type": `"content":[{"text":"a"}]`,
			"part without text": fmt.Sprintf(`"content":[{"type":%q}]`, kind), "part is text": `"content":["a"]`,
		}
	}
	// What is the same for all roles: messages[1] is the one in question.
	usual := map[string]string{
		"text": `"a"`, "empty": `""`, "no parts": `""`, "parts": `"a\nb"`,
		"null": refused + "content", "missing": refused + "content", "number": refused + "content", "object": refused + "content",
		"odd part": refused + "content[0].type", "part without type": refused + "content[0].type", "part without text": refused + "content[0].text", "part is text": refused + "content[0]",
	}
	for _, route := range []struct {
		path, before, after, at, kind string
		roles                         map[string]string // what the template calls them; "": refused
		null                          map[string]string // what null is, if not refused
	}{
		{
			"/v1/chat/completions", `{"messages":[{"role":"user","content":"q"},`, `]}`, "messages[1].", "text",
			map[string]string{"system": "system", "developer": "developer", "user": "user", "assistant": "assistant", "tool": "tool", "function": "", "model": "", "System": "", "": ""},
			map[string]string{"assistant": `""`},
		},
		{
			"/v1/responses", `{"model":"m","input":[{"role":"user","content":"q"},`, `]}`, "input[1].", "input_text",
			map[string]string{"system": "system", "developer": "developer", "user": "user", "assistant": "assistant", "tool": "", "model": "", "": ""},
			map[string]string{"assistant": `""`},
		},
		{
			"/v1/messages", `{"model":"m","max_tokens":5,"messages":[{"role":"user","content":"q"},{"role":"assistant","content":"p"},`, `]}`, "messages[2].", "text",
			map[string]string{"user": "user", "system": "system", "developer": "", "tool": "", "model": "", "": ""},
			map[string]string{},
		},
		{
			"/v1/messages", `{"model":"m","max_tokens":5,"messages":[{"role":"user","content":"q"},`, `]}`, "messages[1].", "text",
			map[string]string{"assistant": "assistant"},
			map[string]string{"assistant": `""`},
		},
	} {
		for role, as := range route.roles {
			for shape, content := range shapes(route.kind) {
				body := fmt.Sprintf(`%s{"role":%q,%s}%s`, route.before, role, content, route.after)
				status, _, got := do(t, "POST", url+route.path, body)
				want := usual[shape]
				if null := route.null[role]; shape == "null" && null != "" {
					want = null
				}
				if as == "" {
					want = refused + "role"
				}
				if param, ok := strings.CutPrefix(want, refused); ok {
					// The error names the field in its message, in every dialect.
					if status != 400 || !strings.Contains(got, `"message":"`+route.at+param+":") {
						t.Errorf("%s %s: %d %s, want %s%s refused", route.path, body, status, got, route.at, param)
					}
					continue
				}
				end := " new"
				if role == "assistant" {
					end = " goes on"
				}
				if told := c.told(t); status != 200 || !strings.HasSuffix(told, " "+as+":"+want+end) {
					t.Errorf("%s %s: %d, the template is given %s, want %s:%s%s", route.path, body, status, told, as, want, end)
				}
			}
		}
	}
}

// Beside calls, saying nothing is null: some templates tell by it that there are calls.
func TestMessagesThatCallMaySayNothing(t *testing.T) {
	c := &templated{core: &core{words: []string{"x"}, end: infer.EOS}}
	_, url := start(t, c, nil)
	const calls = `"tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{}"}}]`
	const call = `"function_call":{"name":"f","arguments":"{}"}`
	for message, want := range map[string]string{
		`{"role":"assistant",` + calls + `}`:                                  "assistant:null+1",
		`{"role":"assistant","content":null,` + calls + `}`:                   "assistant:null+1",
		`{"role":"assistant","content":"",` + calls + `}`:                     "assistant:null+1",
		`{"role":"assistant","content":[],` + calls + `}`:                     "assistant:null+1",
		`{"role":"assistant","content":"a",` + calls + `}`:                    `assistant:"a"+1`,
		`{"role":"assistant","content":null,"tool_calls":[]}`:                 `assistant:""`,
		`{"role":"assistant","content":null,"tool_calls":null}`:               `assistant:""`,
		`{"role":"assistant","content":null,` + call + `}`:                    "assistant:null+1",
		`{"role":"assistant","content":"a","function_call":null}`:             `assistant:"a"`,
		`{"role":"assistant",` + call + `},{"role":"function","content":"r"}`: `assistant:null+1 tool:"r" of call00001`,
		`{"role":"assistant",` + call + `},{"role":"function","content":null},{"role":"assistant",` + call + `},{"role":"function","content":"r"}`: `assistant:null+1 tool:"" of call00001 assistant:null+1 tool:"r" of call00002`,
	} {
		body := `{"messages":[{"role":"user","content":"q"},` + message + `,{"role":"user","content":"r"}]}`
		status, _, got := do(t, "POST", url+"/v1/chat/completions", body)
		if status != 200 || c.told(t) != `user:"q" `+want+` user:"r" new` {
			t.Errorf("%s: %d %s; the template is given %s, want %s", message, status, got, c.told(t), want)
		}
	}
}

// Whether an answer begins anew or goes on: llama.cpp's default, vLLM's fields and DeepSeek's.
func TestAnswersMayBeBegun(t *testing.T) {
	c := &templated{core: &core{words: []string{"x"}, end: infer.EOS}}
	_, url := start(t, c, nil)
	const begun, asked = `{"role":"user","content":"q"},{"role":"assistant","content":"a"`, `{"role":"user","content":"q"`
	const called = `{"role":"user","content":"q"},{"role":"assistant","tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{}"}}]`
	for _, path := range []string{"/v1/chat/completions", "/tokenize"} {
		for fields, want := range map[string]string{
			begun + `}]`:  "goes on",
			asked + `}]`:  "new",
			called + `}]`: "new",
			begun + `}],"continue_final_message":true`:                               "goes on",
			begun + `}],"continue_final_message":false`:                              "new",
			begun + `}],"add_generation_prompt":true`:                                "new",
			begun + `}],"add_generation_prompt":false`:                               "",
			asked + `}],"continue_final_message":true`:                               "goes on",
			asked + `}],"add_generation_prompt":false`:                               "",
			begun + `,"prefix":true}]`:                                               "goes on",
			begun + `,"prefix":false}]`:                                              "new",
			begun + `,"prefix":null}]`:                                               "goes on",
			begun + `}],"continue_final_message":true,"add_generation_prompt":false`: "goes on",
			begun + `}],"continue_final_message":false,"add_generation_prompt":true`: "new",
			begun + `}],"continue_final_message":true,"add_generation_prompt":true`:  "400 continue_final_message",
			begun + `}],"continue_final_message":1`:                                  "400 continue_final_message",
			asked + `,"prefix":true}]`:                                               "400 messages[0].prefix",
			called + `,"prefix":true}]`:                                              "400 messages[1].prefix",
			begun + `,"prefix":true},{"role":"user","content":"q"}]`:                 "400 messages[1].prefix",
			begun + `,"prefix":"yes"}]`:                                              "400 messages[1].prefix",
			begun + `}],"chat_template_kwargs":{"continue_final_message":true}`:      "400 chat_template_kwargs.continue_final_message",
		} {
			status, _, got := do(t, "POST", url+path, `{"messages":[`+fields+`}`)
			if param, ok := strings.CutPrefix(want, "400 "); ok {
				if status != 400 || !strings.Contains(got, `"param":"`+param+`"`) {
					t.Errorf("%s %s: %d %s, want %s refused", path, fields, status, got, param)
				}
				continue
			}
			told := c.told(t)
			if i := strings.LastIndexAny(told, "\"1"); status != 200 || strings.TrimSpace(told[i+1:]) != want {
				t.Errorf("%s %s: %d, the template is given %s, want %q", path, fields, status, told, want)
			}
		}
	}
}

// An answer that the request has begun goes on from its last letter, on every route alike.
func TestAnswersGoOnFromWhatTheyBeginWith(t *testing.T) {
	dir := talftest.ChatModel(t)
	parts := servetest.Default()
	var err error
	if parts.Template, err = chat.Load(dir); err != nil {
		t.Fatal(err)
	}
	url := servetest.Start(t, servetest.Setup{Dir: dir, Parts: parts}).URL
	post := func(path, body string) []byte {
		t.Helper()
		status, _, b := do(t, "POST", url+path, body)
		if status != 200 {
			t.Fatalf("%s %s: %d %s", path, body, status, b)
		}
		return []byte(b)
	}
	const begun = `[{"role":"user","content":"Once upon a time?"},{"role":"assistant","content":"There was a k"}]`
	tokens := decode[struct{ Tokens json.RawMessage }](t, post("/tokenize", `{"messages":`+begun+`}`)).Tokens
	if prompt := decode[struct{ Prompt string }](t, post("/detokenize", fmt.Sprintf(`{"tokens":%s}`, tokens))).Prompt; !strings.HasSuffix(prompt, "There was a k") {
		t.Errorf("the prompt is %q", prompt)
	}
	const rest = `"temperature":0.8,"seed":3,"ignore_eos":true,"model":"m"`
	want := decode[chatAnswer](t, post("/v1/completions", fmt.Sprintf(`{"prompt":%s,"max_tokens":12,%s}`, tokens, rest))).Choices[0].Text
	got := map[string]string{
		"chat":     decode[chatAnswer](t, post("/v1/chat/completions", `{"messages":`+begun+`,"max_tokens":12,`+rest+`}`)).Choices[0].Message.Content,
		"messages": decode[struct{ Content []struct{ Text string } }](t, post("/v1/messages", `{"messages":`+begun+`,"max_tokens":12,`+rest+`}`)).Content[0].Text,
		"responses": decode[struct {
			Output []struct{ Content []struct{ Text string } }
		}](t, post("/v1/responses", `{"input":`+begun+`,"max_output_tokens":12,`+rest+`}`)).Output[0].Content[0].Text,
	}
	for route, text := range got {
		if text != want || text == "" {
			t.Errorf("%s: %q, want %q", route, text, want)
		}
	}
}

// Functions are called as OpenAI's API had them before tools, whole and streamed.
func TestFunctionsAreCalled(t *testing.T) {
	dir := longerModel(t)
	parts := servetest.Default()
	var err error
	if parts.Template, err = chat.Load(dir); err != nil {
		t.Fatal(err)
	}
	url := servetest.Start(t, servetest.Setup{Dir: dir, Parts: parts}).URL
	type message struct {
		Content  *string
		Calls    []json.RawMessage                `json:"tool_calls"`
		Function struct{ Name, Arguments string } `json:"function_call"`
	}
	type answer struct {
		Choices []struct {
			Message, Delta message
			Finish         string `json:"finish_reason"`
		}
	}
	const ask = `{"messages":[{"role":"user","content":"Hi"},{"role":"assistant","function_call":{"name":"f","arguments":"{\"a\":\"x\"}"}},{"role":"function","name":"f","content":"3"}],` +
		`"functions":[{"name":"f","parameters":{"type":"object","properties":{"a":{"enum":["x","y"]}},"required":["a"],"additionalProperties":false}},{"name":"g"}],` +
		`"function_call":{"name":"f"},"seed":1,"temperature":1,"max_tokens":200,"stream":`
	check := func(name, args, finish string) {
		t.Helper()
		var got struct{ A string }
		if err := json.Unmarshal([]byte(args), &got); err != nil || name != "f" || got.A != "x" && got.A != "y" || finish != "function_call" {
			t.Errorf("%s(%s), %s: %v", name, args, finish, err)
		}
	}
	status, _, b := do(t, "POST", url+"/v1/chat/completions", ask+`false}`)
	if status != 200 {
		t.Fatalf("%d %s", status, b)
	}
	c := decode[answer](t, []byte(b)).Choices[0]
	if check(c.Message.Function.Name, c.Message.Function.Arguments, c.Finish); c.Message.Content != nil || c.Message.Calls != nil {
		t.Errorf("a call of a function beside something else: %s", b)
	}
	_, _, b = do(t, "POST", url+"/v1/chat/completions", ask+`true}`)
	var name, args, finish string
	deltas(t, b, func(e []byte) string {
		for _, c := range decode[answer](t, e).Choices {
			name, args, finish = name+c.Delta.Function.Name, args+c.Delta.Function.Arguments, finish+c.Finish
		}
		return ""
	})
	check(name, args, finish)
}
