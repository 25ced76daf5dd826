package serve_test

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"talf/internal/e2e/servetest"
	"talf/internal/e2e/talftest"
	"talf/text/chat"
	"talf/text/toolcall"
)

// A called message is one of the assistant, whole or a part of a stream.
type called struct {
	Content *string
	Calls   []struct {
		Index    int
		ID, Type string
		Function struct{ Name, Arguments string }
	} `json:"tool_calls"`
}

type calledAnswer struct {
	Choices []struct {
		Message, Delta called
		Finish         string `json:"finish_reason"`
	}
}

const someTools = `"tools":[{"type":"function","function":{"name":"f","strict":true,"parameters":{"type":"object","properties":{"a":{"enum":["x","y"]},"b":{"type":"boolean"}},` +
	`"required":["a","b"],"additionalProperties":false}}},{"type":"function","function":{"name":"g"}}]`

// A model that knows nothing of tools calls them with valid arguments if it has to, the same whole
// and streamed and whatever drafts; and its calls and their results go back to it.
func TestToolsAreCalled(t *testing.T) {
	dir := longerModel(t)
	for _, templated := range []bool{true, false} {
		parts := servetest.Default()
		if templated {
			var err error
			if parts.Template, err = chat.Load(dir); err != nil {
				t.Fatal(err)
			}
		}
		parts.Methods = []string{"goose:N=8"}
		url := servetest.Start(t, servetest.Setup{Dir: dir, Parts: parts}).URL
		for seed := range 4 {
			for _, choice := range []string{
				`"required"`, `{"type":"function","function":{"name":"f"}}`,
				`{"type":"allowed_tools","allowed_tools":{"mode":"required","tools":[{"type":"function","function":{"name":"f"}}]}}`,
			} {
				ask := fmt.Sprintf(`{"messages":[{"role":"user","content":"Hi"}],%s,"tool_choice":%s,"parallel_tool_calls":false,"seed":%d,"temperature":1`, someTools, choice, seed)
				var first string
				for _, tail := range []string{`}`, `,"talf":{"off":true}}`, `,"stream":true}`} {
					status, _, b := do(t, "POST", url+"/v1/chat/completions", ask+tail)
					if status != 200 {
						t.Fatalf("%d %s", status, b)
					}
					var name, args, finish, id string
					take := func(b []byte) {
						for _, c := range decode[calledAnswer](t, b).Choices {
							for _, m := range []called{c.Message, c.Delta} {
								for _, k := range m.Calls {
									name, args, id = name+k.Function.Name, args+k.Function.Arguments, id+k.ID
								}
								if m.Content != nil && *m.Content != "" {
									t.Errorf("content %q", *m.Content)
								}
							}
							finish += c.Finish
						}
					}
					if strings.Contains(tail, "stream") {
						deltas(t, b, func(e []byte) string { take(e); return "" })
					} else {
						take([]byte(b))
					}
					var got struct {
						A string
						B *bool
					}
					if err := json.Unmarshal([]byte(args), &got); err != nil || finish != "tool_calls" || len(id) != 9 {
						t.Fatalf("%s: %s(%s) %q, %s: %v", tail, name, args, id, finish, err)
					}
					if valid := (got.A == "x" || got.A == "y") && got.B != nil; name == "f" && !valid || name == "g" && strings.Trim(args, " {}\n\t") != "" || name != "f" && (name != "g" || choice[0] == '{') {
						t.Errorf("%s: %s(%s)", choice, name, args)
					}
					if call := name + args; first == "" {
						first = call
					} else if call != first {
						t.Errorf("%s: %s, want %s", tail, call, first)
					}
				}
			}
		}
		// An answer that calls nothing is that of plain decoding.
		for _, temperature := range []string{"0", "0.8", "1.5"} {
			ask := fmt.Sprintf(`"messages":[{"role":"user","content":"Hi"}],%s`, someTools)
			rest := `,"max_tokens":40,"seed":3,"stop":["\nUser:"],"temperature":` + temperature + `}`
			_, _, b := do(t, "POST", url+"/tokenize", "{"+ask+"}")
			prompt := decode[struct{ Tokens json.RawMessage }](t, []byte(b)).Tokens
			status, _, b := do(t, "POST", url+"/v1/completions", fmt.Sprintf(`{"prompt":%s,"talf":{"off":true}`, prompt)+rest)
			if status != 200 {
				t.Fatalf("%d %s", status, b)
			}
			want := decode[chatAnswer](t, []byte(b)).Choices[0].Text
			status, _, b = do(t, "POST", url+"/v1/chat/completions", "{"+ask+rest)
			if status != 200 {
				t.Fatalf("%d %s", status, b)
			}
			if got := decode[chatAnswer](t, []byte(b)).Choices[0].Message.Content; got != want || want == "" {
				t.Errorf("at %s: %q, want %q", temperature, got, want)
			}
		}
		// A stop text may end an answer within a call, or behind its arguments.
		for stop, want := range map[string]string{`"\"b\""`: "stop", `"</tool_call>"`: "tool_calls"} {
			status, _, b := do(t, "POST", url+"/v1/chat/completions", `{"messages":[{"role":"user","content":"Hi"}],`+someTools+`,"tool_choice":{"type":"function","function":{"name":"f"}},"seed":1,"stop":`+stop+`}`)
			if status != 200 {
				t.Fatalf("%d %s", status, b)
			}
			c := decode[calledAnswer](t, []byte(b)).Choices[0]
			if len(c.Message.Calls) != 1 || c.Finish != want || json.Valid([]byte(c.Message.Calls[0].Function.Arguments)) != (want == "tool_calls") {
				t.Errorf("stop %s: %s, want %s: %s", stop, c.Finish, want, b)
			}
		}
		// Grammars are kept, and taken for nothing else.
		for _, value := range []string{"p", "q", "p"} {
			status, _, b := do(t, "POST", url+"/v1/chat/completions", `{"messages":[{"role":"user","content":"Hi"}],"tool_choice":"required","parallel_tool_calls":false,"seed":1,`+
				`"tools":[{"type":"function","function":{"name":"f","parameters":{"properties":{"a":{"const":"`+value+`"}},"required":["a"],"additionalProperties":false}}}]}`)
			if status != 200 {
				t.Fatalf("%d %s", status, b)
			}
			calls := decode[calledAnswer](t, []byte(b)).Choices[0].Message.Calls
			if len(calls) != 1 || !strings.Contains(calls[0].Function.Arguments, `"`+value+`"`) {
				t.Errorf("%s: %s", value, b)
			}
		}
		back := `{"messages":[{"role":"user","content":"Hi"},{"role":"assistant","content":null,"tool_calls":[{"id":"abcdef123","type":"function","function":{"name":"f","arguments":"{\"a\":\"x\"}"}}]},` +
			`{"role":"tool","tool_call_id":"abcdef123","content":"3"}],` + someTools + `,"max_tokens":8`
		for _, tail := range []string{`}`, `,"tool_choice":"none"}`, `,"tool_choice":"auto","stream":true}`, `,"response_format":{"type":"json_object"}}`} {
			if status, _, b := do(t, "POST", url+"/v1/chat/completions", back+tail); status != 200 {
				t.Errorf("%s: %d %s", tail, status, b)
			}
		}
		for param, bad := range map[string]string{
			"tools[0].function.parameters": `"tools":[{"type":"function","function":{"name":"f","strict":true,"parameters":{"type":"object","unevaluatedProperties":false}}}]`,
			"tool_choice":                  someTools + `,"tool_choice":{"type":"function","function":{"name":"h"}}`,
			"tools[1].function.name":       `"tools":[{"type":"function","function":{"name":"f"}},{"type":"function","function":{"name":"f"}}]`,
		} {
			if status, _, b := do(t, "POST", url+"/v1/chat/completions", `{"messages":[{"role":"user","content":"Hi"}],`+bad+`}`); status != 400 || !strings.Contains(b, `"param":"`+param+`"`) {
				t.Errorf("%s: %d %s", param, status, b)
			}
		}
	}
}

// An answer that has to call ends after its call, unless the request asks for several.
func TestRequiredCallsAreOne(t *testing.T) {
	url := servetest.Start(t, servetest.Setup{Dir: longerModel(t), Parts: servetest.Default()}).URL
	for fields, several := range map[string]bool{``: false, `,"parallel_tool_calls":true`: true} {
		most := 0
		for seed := range 6 {
			status, _, b := do(t, "POST", url+"/v1/chat/completions", fmt.Sprintf(`{"messages":[{"role":"user","content":"Hi"}],%s,"tool_choice":"required","max_tokens":400,"temperature":1,"seed":%d%s}`, someTools, seed, fields))
			if status != 200 {
				t.Fatalf("%d %s", status, b)
			}
			c := decode[calledAnswer](t, []byte(b)).Choices[0]
			if most = max(most, len(c.Message.Calls)); !several && (len(c.Message.Calls) != 1 || c.Finish != "tool_calls") {
				t.Errorf("seed %d: %s", seed, b)
			}
		}
		if several && most < 2 {
			t.Errorf("%s: one call of six answers", fields)
		}
	}
}

// Calls come in the format that was chosen, whatever the template writes, and are read as calls.
func TestTheFormatOfToolsCanBeChosen(t *testing.T) {
	dir := longerModel(t)
	for name, form := range map[toolcall.Name]string{"llama3": `{"name": "NAME", "parameters": {…}}`, "mistral-v13": "[TOOL_CALLS]NAME[ARGS]{…}", "deepseek": "function<｜tool▁sep｜>NAME\n"} {
		parts := servetest.Default()
		var err error
		if parts.Template, err = chat.Load(dir); err != nil {
			t.Fatal(err)
		}
		parts.Server.ToolFormat = name
		url := servetest.Start(t, servetest.Setup{Dir: dir, Parts: parts}).URL
		_, _, b := do(t, "POST", url+"/tokenize", `{"messages":[{"role":"user","content":"Hi"}],`+someTools+`}`)
		_, _, b = do(t, "POST", url+"/detokenize", fmt.Sprintf(`{"tokens":%s}`, decode[struct{ Tokens json.RawMessage }](t, []byte(b)).Tokens))
		if told := decode[struct{ Prompt string }](t, []byte(b)).Prompt; !strings.Contains(told, form) {
			t.Errorf("%s: the model is told %q, want %q in it", name, told, form)
		}
		for _, tail := range []string{`}`, `,"stream":true}`} {
			status, _, b := do(t, "POST", url+"/v1/chat/completions", `{"messages":[{"role":"user","content":"Hi"}],`+someTools+`,"tool_choice":"required","max_tokens":200`+tail)
			var called, args string
			take := func(b []byte) {
				for _, c := range decode[calledAnswer](t, b).Choices {
					for _, k := range append(c.Message.Calls, c.Delta.Calls...) {
						if k.ID != "" {
							called += k.Function.Name
						}
						if called == "f" {
							args += k.Function.Arguments
						}
					}
				}
			}
			if status == 200 && strings.Contains(tail, "stream") {
				deltas(t, b, func(e []byte) string { take(e); return "" })
			} else if status == 200 {
				take([]byte(b))
			}
			if status != 200 || !strings.HasPrefix(called, "f") && !strings.HasPrefix(called, "g") || called == "f" && !json.Valid([]byte(args)) {
				t.Errorf("%s%s: %d, calls %q with %q: %s", name, tail, status, called, args, b)
			}
		}
	}
}

// The routes that have tools write the same calls, whole and streamed, and take them back with their
// results.
func TestEveryRouteCallsTools(t *testing.T) {
	dir := longerModel(t)
	parts := servetest.Default()
	var err error
	if parts.Template, err = chat.Load(dir); err != nil {
		t.Fatal(err)
	}
	url := servetest.Start(t, servetest.Setup{Dir: dir, Parts: parts}).URL
	type call = struct{ ID, Name, Arguments string }
	const schema = `{"type":"object","properties":{"a":{"enum":["x","y"]},"b":{"type":"boolean"}},"required":["a","b"],"additionalProperties":false}`
	const noSchema = `{"type":"object","additionalProperties":false}`
	routes := []struct {
		path, ask, required, back, rest string
		read                            func(body []byte) (calls []call, text, reason string)
		event                           func(event []byte, calls *[]call, text, reason *string)
	}{
		{
			path:     "/v1/chat/completions",
			ask:      `{"model":"m","max_tokens":200,"messages":[{"role":"user","content":"Hi"}`,
			required: `"tool_choice":"required","parallel_tool_calls":false`,
			back: `,{"role":"assistant","content":null,"tool_calls":[{"id":"ID","type":"function","function":{"name":"NAME","arguments":TEXT}}]},` +
				`{"role":"tool","tool_call_id":"ID","content":"3"}`,
			rest: `],"tools":[{"type":"function","function":{"name":"f","parameters":` + schema + `}},{"type":"function","function":{"name":"g","parameters":` + noSchema + `}}]`,
			read: func(b []byte) (calls []call, text, reason string) {
				c := decode[calledAnswer](t, b).Choices[0]
				for _, k := range c.Message.Calls {
					calls = append(calls, call{k.ID, k.Function.Name, k.Function.Arguments})
				}
				if c.Message.Content != nil {
					text = *c.Message.Content
				}
				return calls, text, c.Finish
			},
			event: func(b []byte, calls *[]call, text, reason *string) {
				for _, c := range decode[calledAnswer](t, b).Choices {
					for _, k := range c.Delta.Calls {
						if k.ID != "" {
							*calls = append(*calls, call{k.ID, k.Function.Name, ""})
						}
						(*calls)[k.Index].Arguments += k.Function.Arguments
					}
					if c.Delta.Content != nil {
						*text += *c.Delta.Content
					}
					*reason += c.Finish
				}
			},
		},
		{
			path:     "/v1/responses",
			ask:      `{"model":"m","max_output_tokens":200,"input":[{"role":"user","content":"Hi"}`,
			required: `"tool_choice":"required","parallel_tool_calls":false`,
			back:     `,{"type":"function_call","call_id":"ID","name":"NAME","arguments":TEXT},{"type":"function_call_output","call_id":"ID","output":"3"}`,
			rest:     `],"tools":[{"type":"function","name":"f","parameters":` + schema + `},{"type":"function","name":"g","parameters":` + noSchema + `}]`,
			read:     func(b []byte) (calls []call, text, reason string) { return responseCalls(t, b) },
			event: func(b []byte, calls *[]call, text, reason *string) {
				e := decode[struct {
					Type     string
					Response json.RawMessage
				}](t, b)
				if e.Type == "response.completed" || e.Type == "response.incomplete" {
					*calls, *text, *reason = responseCalls(t, e.Response)
				}
			},
		},
		{
			path:     "/v1/messages",
			ask:      `{"model":"m","max_tokens":200,"messages":[{"role":"user","content":"Hi"}`,
			required: `"tool_choice":{"type":"any","disable_parallel_tool_use":true}`,
			back: `,{"role":"assistant","content":[{"type":"tool_use","id":"ID","name":"NAME","input":JSON}]},` +
				`{"role":"user","content":[{"type":"tool_result","tool_use_id":"ID","content":"3"}]}`,
			rest: `],"tools":[{"name":"f","input_schema":` + schema + `},{"name":"g","input_schema":` + noSchema + `}]`,
			read: func(b []byte) (calls []call, text, reason string) {
				m := decode[struct {
					Content []struct {
						Type, ID, Name, Text string
						Input                json.RawMessage
					}
					Reason string `json:"stop_reason"`
				}](t, b)
				for _, c := range m.Content {
					if text += c.Text; c.Type == "tool_use" {
						calls = append(calls, call{c.ID, c.Name, string(c.Input)})
					}
				}
				return calls, text, m.Reason
			},
			event: func(b []byte, calls *[]call, text, reason *string) {
				e := decode[struct {
					Block struct{ Type, ID, Name string } `json:"content_block"`
					Delta struct {
						Text, Reason string
						JSON         string `json:"partial_json"`
						Stop         string `json:"stop_reason"`
					}
				}](t, b)
				if e.Block.Type == "tool_use" {
					*calls = append(*calls, call{e.Block.ID, e.Block.Name, ""})
				}
				if e.Delta.JSON != "" {
					(*calls)[len(*calls)-1].Arguments += e.Delta.JSON
				}
				*text, *reason = *text+e.Delta.Text, *reason+e.Delta.Stop
			},
		},
	}
	compact := func(s string) string {
		var b bytes.Buffer
		if err := json.Compact(&b, []byte(s)); err != nil {
			t.Fatalf("%q: %v", s, err)
		}
		return b.String()
	}
	for seed := range 3 {
		var first, firstText string
		for _, r := range routes {
			ask := func(body string, stream bool) (calls []call, text, reason string) {
				t.Helper()
				status, _, b := do(t, "POST", url+r.path, fmt.Sprintf(`%s,"seed":%d,"temperature":1,"stream":%v}`, body, seed, stream))
				if status != 200 {
					t.Fatalf("%s: %d %s", r.path, status, b)
				}
				if !stream {
					return r.read([]byte(b))
				}
				for _, data := range fields(b, "data") {
					if data != "[DONE]" {
						r.event([]byte(data), &calls, &text, &reason)
					}
				}
				return calls, text, reason
			}
			for _, stream := range []bool{false, true} {
				calls, text, reason := ask(r.ask+r.rest+","+r.required, stream)
				if want := map[string]string{"/v1/responses": "completed", "/v1/messages": "tool_use"}[r.path]; reason != cmp.Or(want, "tool_calls") || len(calls) == 0 || text != "" {
					t.Fatalf("%s: %+v %q %s", r.path, calls, text, reason)
				}
				all := ""
				for _, c := range calls {
					all += c.Name + compact(c.Arguments) + " "
				}
				if first = cmp.Or(first, all); all != first {
					t.Errorf("seed %d, %s, streamed %v: %s, want %s", seed, r.path, stream, all, first)
				}
				c := calls[0]
				quoted, _ := json.Marshal(c.Arguments)
				back := strings.NewReplacer("ID", c.ID, "NAME", c.Name, "TEXT", string(quoted), "JSON", c.Arguments).Replace(r.back)
				_, text, _ = ask(r.ask+back+r.rest, stream)
				if firstText = cmp.Or(firstText, text); text != firstText {
					t.Errorf("seed %d, %s, streamed %v: after the call %q, want %q", seed, r.path, stream, text, firstText)
				}
			}
		}
	}
	for path, bad := range map[string]string{
		"/v1/responses": `{"model":"m","input":"x","tools":[{"type":"function","name":"f","strict":true,"parameters":{"type":"object","unevaluatedProperties":false}}]}`,
		"/v1/messages":  `{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"x"}],"tools":[{"name":"f","strict":true,"input_schema":{"type":"object","unevaluatedProperties":false}}]}`,
	} {
		param := map[string]string{"/v1/responses": `"tools[0].parameters"`, "/v1/messages": "tools[0].input_schema: "}[path]
		if status, _, b := do(t, "POST", url+path, bad); status != 400 || !strings.Contains(b, param) {
			t.Errorf("%s: %d %s", path, status, b)
		}
	}
	// The tools of a message count.
	const hi = `{"model":"m","messages":[{"role":"user","content":"Hi"}]`
	count := func(body string) (n struct {
		Tokens int `json:"input_tokens"`
	},
	) {
		_, _, b := do(t, "POST", url+"/v1/messages/count_tokens", body)
		return decode[struct {
			Tokens int `json:"input_tokens"`
		}](t, []byte(b))
	}
	if few, more := count(hi+"}"), count(hi+`,"tools":[{"name":"f","input_schema":{}}]}`); few.Tokens == 0 || more.Tokens <= few.Tokens {
		t.Errorf("%d tokens without tools, %d with one", few.Tokens, more.Tokens)
	}
}

// responseCalls reads a response: its calls, its text and its status.
func responseCalls(t *testing.T, b []byte) (calls []struct{ ID, Name, Arguments string }, text, status string) {
	t.Helper()
	r := decode[struct {
		Status string
		Output []struct {
			Type, Name, Arguments string
			Call                  string `json:"call_id"`
			Content               []struct{ Text string }
		}
	}](t, b)
	for _, o := range r.Output {
		if o.Type == "function_call" {
			calls = append(calls, struct{ ID, Name, Arguments string }{o.Call, o.Name, o.Arguments})
		}
		for _, c := range o.Content {
			text += c.Text
		}
	}
	return calls, text, r.Status
}

// longerModel is a chat model with room for tools in its context.
func longerModel(t *testing.T) string {
	t.Helper()
	dir := talftest.ChatModel(t)
	config := filepath.Join(dir, "config.json")
	b, err := os.ReadFile(config)
	if err != nil {
		t.Fatal(err)
	}
	longer := regexp.MustCompile(`"max_position_embeddings": *\d+`).ReplaceAll(b, []byte(`"max_position_embeddings": 2048`))
	if err := os.WriteFile(config, longer, 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

// A template that leaves out a call of an earlier answer is not used for it.
func TestCallsThatATemplateLosesAreRefused(t *testing.T) {
	parts := servetest.Default()
	var err error
	parts.Template, err = chat.Parse("first", `{% for m in messages %}{{ m.content or '' }}{% for c in (m.tool_calls or [])[:1] %}<tool_call>`+
		`{"name": "{{ c.function.name }}", "arguments": {{ c.function.arguments | tojson }}}</tool_call>{% endfor %}{% endfor %}`)
	if err != nil {
		t.Fatal(err)
	}
	url := servetest.Start(t, servetest.Setup{Dir: talftest.ChatModel(t), Parts: parts}).URL
	const call = `{"function":{"name":"f","arguments":null}}`
	for calls, want := range map[string]int{call: 200, call + "," + call: 400} {
		status, _, b := do(t, "POST", url+"/v1/chat/completions", `{"messages":[{"role":"assistant","content":null,"tool_calls":[`+calls+`]}],"max_tokens":1}`)
		if status != want || want == 400 && !strings.Contains(b, chat.ErrCalls.Error()) {
			t.Errorf("%s: %d %s", calls, status, b)
		}
	}
}
