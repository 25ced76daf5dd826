package wire_test

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"talf/serve/wire"
	"talf/text/chat"
)

var update = flag.Bool("update", false, "write the goldens of streams again")

// The same conversation with calls and their results, in three dialects.
const (
	chatCalls = `{"messages":[{"role":"system","content":"S"},{"role":"user","content":"Q"},
		{"role":"assistant","content":"C","reasoning_content":"T","tool_calls":[
			{"type":"function","id":"call1","function":{"name":"f","arguments":"{\"a\": 1}"}},{"type":"function","id":"call2","function":{"name":"g","arguments":"{}"}}]},
		{"role":"tool","tool_call_id":"call1","content":"x\ny"},{"role":"tool","tool_call_id":"call2","content":""},
		{"role":"assistant","content":null,"tool_calls":[{"type":"function","id":"call3","function":{"name":"g","arguments":""}}]},
		{"role":"tool","tool_call_id":"call3","content":"z"},{"role":"user","content":"R"}],
		"tools":[{"type":"function","function":{"name":"f","description":"D","parameters":{"type":"object"}}},{"type":"function","function":{"name":"g","parameters":{}}}]`
	responseCalls = `{"model":"m","instructions":"S","input":[{"role":"user","content":"Q"},
		{"type":"reasoning","id":"rs_1","summary":[],"content":[{"type":"reasoning_text","text":"T"}]},{"role":"assistant","content":[{"type":"output_text","text":"C"}]},
		{"type":"function_call","id":"fc_1","call_id":"call1","name":"f","arguments":"{\"a\": 1}","status":"completed"},{"type":"function_call","call_id":"call2","name":"g","arguments":"{}"},
		{"type":"function_call_output","call_id":"call1","output":[{"type":"input_text","text":"x"},{"type":"input_text","text":"y"}]},{"type":"function_call_output","call_id":"call2","output":""},
		{"type":"function_call","call_id":"call3","name":"g","arguments":""},{"type":"function_call_output","call_id":"call3","output":"z"},
		{"type":"reasoning","id":"rs_2","summary":[],"content":[{"type":"reasoning_text","text":"which leads to nothing"}]},{"role":"user","content":"R"}],
		"tools":[{"type":"function","name":"f","description":"D","parameters":{"type":"object"},"strict":true},{"type":"function","name":"g","parameters":{},"strict":null}]`
	messageCalls = `{"model":"m","max_tokens":9,"system":"S","messages":[{"role":"user","content":"Q"},
		{"role":"assistant","content":[{"type":"thinking","thinking":"T","signature":""},{"type":"redacted_thinking","data":"U"},{"type":"text","text":"C"},
			{"type":"tool_use","id":"call1","name":"f","input":{"a": 1}},{"type":"tool_use","id":"call2","name":"g","input":{}}]},
		{"role":"user","content":[{"type":"tool_result","tool_use_id":"call1","content":[{"type":"text","text":"x"},{"type":"text","text":"y"}]},{"type":"tool_result","tool_use_id":"call2"}]},
		{"role":"assistant","content":[{"type":"tool_use","id":"call3","name":"g","input":{}}]},
		{"role":"user","content":[{"type":"tool_result","tool_use_id":"call3","content":"z","is_error":true},{"type":"text","text":"R"}]}],
		"tools":[{"name":"f","description":"D","input_schema":{"type":"object"},"strict":true},{"type":"custom","name":"g","input_schema":{}}]`
)

// Every dialect tells the model the same of a conversation with calls, and of tools.
func TestCallsAreTheSameInEveryDialect(t *testing.T) {
	read := func(d wire.Dialect, body string) (messages []map[string]any, tools []any, all *wire.Tools) {
		t.Helper()
		r, bad := d.Parse([]byte(body + "}"))
		if bad != nil {
			t.Fatal(bad)
		}
		if _, err := chat.ParseConversation(r.Prompts[0].Conversation); err != nil {
			t.Error(err)
		}
		var c struct{ Messages []map[string]any }
		if err := json.Unmarshal(r.Prompts[0].Conversation, &c); err != nil {
			t.Fatal(err)
		}
		for _, x := range r.Prompts[0].Tools.List {
			var v any
			if err := json.Unmarshal(x.JSON, &v); err != nil {
				t.Fatal(err)
			}
			tools = append(tools, v)
		}
		return c.Messages, tools, r.Prompts[0].Tools
	}
	want, wantTools, _ := read(wire.Chat, chatCalls)
	for d, body := range map[wire.Dialect]string{wire.Responses: responseCalls, wire.Messages: messageCalls} {
		got, tools, list := read(d, body)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", d.ID(), diff)
		}
		if diff := cmp.Diff(wantTools, tools); diff != "" {
			t.Errorf("%s: %s", d.ID(), diff)
		}
		if !list.List[0].Strict || list.List[1].Strict || list.Required || list.None || list.Single {
			t.Errorf("%s: %+v", d.ID(), list)
		}
	}
	p, bad := wire.ParseCount([]byte(messageCalls + "}"))
	if bad != nil || len(p.Tools.List) != 2 {
		t.Errorf("%+v, %v", p, bad)
	}
}

func TestChoicesOfTools(t *testing.T) {
	type choice struct {
		required, none, single bool
		callable               string // names
	}
	const both = "f g"
	for d, cases := range map[wire.Dialect]map[string]choice{
		wire.Chat: {
			`"tool_choice":{"type":"function","function":{"name":"g"}}`:                                                                    {required: true, single: true, callable: "g"},
			`"tool_choice":{"type":"allowed_tools","allowed_tools":{"mode":"auto","tools":[{"type":"function","function":{"name":"g"}}]}}`: {callable: "g"},
			`"tool_choice":{"type":"allowed_tools","allowed_tools":{"mode":"required","tools":[{"type":"function","function":{"name":"g"}},{"type":"function","function":{"name":"f"}}]}}`: {
				required: true, single: true, callable: both,
			},
		},
		wire.Responses: {
			`"tool_choice":"auto"`: {callable: both}, `"tool_choice":"none"`: {none: true, callable: both}, `"parallel_tool_calls":true`: {callable: both},
			`"tool_choice":"required","parallel_tool_calls":false`: {required: true, single: true, callable: both},
			`"tool_choice":"required"`:                             {required: true, single: true, callable: both},
			`"tool_choice":"required","parallel_tool_calls":true`:  {required: true, callable: both},
			`"tool_choice":{"type":"function","name":"g"}`:         {required: true, single: true, callable: "g"},
			`"tool_choice":{"type":"allowed_tools","mode":"required","tools":[{"type":"function","name":"f"}]},"parallel_tool_calls":false`: {required: true, single: true, callable: "f"},
		},
		wire.Messages: {
			`"tool_choice":{"type":"auto","disable_parallel_tool_use":true}`: {single: true, callable: both}, `"tool_choice":{"type":"none"}`: {none: true, callable: both},
			`"tool_choice":{"type":"any"}`: {required: true, single: true, callable: both}, `"tool_choice":{"type":"any","disable_parallel_tool_use":false}`: {required: true, callable: both}, `"tool_choice":{"type":"tool","name":"f"}`: {required: true, single: true, callable: "f"},
		},
	} {
		body := map[wire.Dialect]string{wire.Chat: chatCalls, wire.Responses: responseCalls, wire.Messages: messageCalls}[d]
		for fields, want := range cases {
			r, bad := d.Parse([]byte(body + "," + fields + "}"))
			if bad != nil {
				t.Errorf("%s: %v", fields, bad)
				continue
			}
			x := r.Prompts[0].Tools
			var names []string
			for _, tool := range x.Callable() {
				names = append(names, tool.Name)
			}
			if got := (choice{x.Required, x.None, x.Single, strings.Join(names, " ")}); got != want || len(x.List) != 2 {
				t.Errorf("%s: %+v of %d, want %+v of 2", fields, got, len(x.List), want)
			}
		}
	}
}

func TestWhatCannotBeCalledIsRefusedByName(t *testing.T) {
	hi := map[wire.Dialect]string{wire.Responses: `{"model":"m","input":`, wire.Messages: `{"model":"m","max_tokens":5,"messages":`}
	const user = `[{"role":"user","content":"x"}]`
	const f = user + `,"tools":[{"type":"function","name":"f"}],"tool_choice":{"type":"allowed_tools",`
	row := func(before, one string) string { return before + strings.Repeat(","+one, 65) + `]` }
	for d, cases := range map[wire.Dialect]map[string]string{
		wire.Responses: {
			user + `,"tools":[{"type":"web_search"}]`: "tools[0].type", user + `,"tools":[{"type":"custom","name":"f"}]`: "tools[0].type",
			user + `,"tools":[{"type":"function"}]`: "tools[0].name", user + `,"tools":[{"type":"function","name":"a b"}]`: "tools[0].name",
			user + `,"tools":[{"type":"function","name":"f"},{"type":"function","name":"f"}]`:                     "tools[1].name",
			user + `,"tools":[{"type":"function","name":"f","parameters":7}]`:                                     "tools[0].parameters",
			user + `,"tools":[{"type":"function","name":"f","description":"` + strings.Repeat("d", 1<<20) + `"}]`: "tools[0].name",
			user + `,"tool_choice":"required"`:                                                                    "tool_choice",
			user + `,"tool_choice":"some"`:                                                                        "tool_choice",
			user + `,"tool_choice":{"type":"function","name":"f"}`:                                                "tool_choice",
			f + `"mode":"auto","tools":[{"type":"function","name":"g"}]}`:                                         "tool_choice", f + `"tools":[{"type":"function","name":"f"}]}`: "tool_choice.mode",
			f + `"mode":"auto","tools":[]}`: "tool_choice.tools", f + `"mode":"any","tools":[{"type":"function","name":"f"}]}`: "tool_choice.mode",
			f + `"mode":"auto","tools":[{"type":"mcp"}]}`: "tool_choice.tools[0].type", f + `"mode":"auto","tools":[{"type":"function"}]}`: "tool_choice.tools[0].name",
			f + `"mode":"auto","tools":7}`:                                                                              "tool_choice.tools",
			user + `,"tool_choice":{"type":"mcp"}`:                                                                      "tool_choice.type",
			`[{"type":"function_call_output","call_id":"c","output":"x"}]`:                                              "input[0].call_id",
			`[{"type":"function_call","call_id":"c","name":"f","arguments":"7"}]`:                                       "input[0].arguments",
			`[{"type":"function_call","name":"f","arguments":"{}"}]`:                                                    "input[0].call_id",
			`[{"type":"function_call","call_id":"c","arguments":"{}"}]`:                                                 "input[0].name",
			`[{"type":"reasoning","content":[{"type":"text","text":"x"}]}]`:                                             "input[0].content[0].type",
			`[{"type":"reasoning","summary":[],"content":[{"type":"reasoning_text","text":"x"}]}]`:                      "input",
			row(`[{"role":"user","content":"x"}`, `{"type":"function_call","call_id":"c","name":"f","arguments":"{}"}`): "input[65].name",
		},
		wire.Messages: {
			user + `,"tools":[{"name":"f"}]`: "tools[0].input_schema", user + `,"tools":[{"input_schema":{}}]`: "tools[0].name",
			user + `,"tools":[{"type":"bash_20250124","name":"bash"}]`: "tools[0].type",
			user + `,"tool_choice":{"type":"any"}`:                     "tool_choice", user + `,"tool_choice":{"type":"tool","name":"f"}`: "tool_choice",
			user + `,"tool_choice":{"type":"tool"}`: "tool_choice.name", user + `,"tool_choice":{}`: "tool_choice.type", user + `,"tool_choice":"any"`: "tool_choice",
			`[{"role":"user","content":[{"type":"tool_result","tool_use_id":"t"}]}]`:                                                                                                       "messages[0].content[0].tool_use_id",
			`[{"role":"user","content":[{"type":"tool_use","id":"t","name":"f","input":{}}]}]`:                                                                                             "messages[0].content[0].type",
			`[{"role":"assistant","content":[{"type":"tool_use","id":"t","name":"f","input":[]}]},{"role":"user","content":"x"}]`:                                                          "messages[0].content[0].input",
			`[{"role":"assistant","content":[{"type":"server_tool_use","id":"t","name":"f","input":{}}]},{"role":"user","content":"x"}]`:                                                   "messages[0].content[0].type",
			`[{"role":"assistant","content":[{"type":"tool_use","id":"t","name":"f","input":{}}]}]`:                                                                                        "messages[0].role",
			`[{"role":"assistant","content":[{"type":"tool_use","id":"t","name":"f"}]},{"role":"user","content":[{"type":"tool_result"}]}]`:                                                "messages[1].content[0].tool_use_id",
			`[{"role":"assistant","content":[{"type":"tool_use","id":"t","name":"f"}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"t","content":[{"type":"image"}]}]}]`: "messages[1].content[0].content[0].type",
		},
	} {
		for fields, param := range cases {
			if _, err := d.Parse([]byte(hi[d] + fields + "}")); err == nil || err.Param != param || err.Status != 400 {
				t.Errorf("%s%.200s: %+v, want %s refused", d.ID(), fields, err, param)
			}
		}
	}
}

// answerParts are what was thought, a text, and two calls.
var answerParts = []wire.Choice{
	{Reasoning: "Th"},
	{Reasoning: "ink", Tokens: []wire.Token{{Bytes: []byte("no text's"), LogProb: -1}}},
	{Text: "Let", Tokens: []wire.Token{{Bytes: []byte("Let"), LogProb: -0.5}}},
	{Text: " me"},
	{Calls: []wire.Call{{ID: "call1", Name: "f"}}},
	{Calls: []wire.Call{{Arguments: `{"a": 1`}}},
	{Calls: []wire.Call{{Arguments: `}`}}},
	{Calls: []wire.Call{{Index: 1, ID: "call2", Name: "g"}}},
	{Calls: []wire.Call{{Index: 1, Arguments: `{"b": "é", "c": 12`}}},
}

// Streams with calls have the events of their dialects, byte for byte as they were looked at once;
// and what clients put together from them is what a whole answer has.
func TestStreamsWithCalls(t *testing.T) {
	for name, d := range map[string]wire.Dialect{"responses": wire.Responses, "messages": wire.Messages} {
		body := map[wire.Dialect]string{wire.Responses: responseCalls, wire.Messages: messageCalls}[d]
		for _, finish := range []wire.Finish{wire.Called, wire.Length} {
			write := func() wire.Writer {
				r, bad := d.Parse([]byte(body + "}"))
				if bad != nil {
					t.Fatal(bad)
				}
				return d.Writer(&wire.Head{ID: d.ID() + "1", Created: 1, Model: "m", Clock: func() int64 { return 2 }}, r)
			}
			parts := answerParts
			if finish == wire.Called { // all of them are whole
				parts = append(parts[:len(parts):len(parts)], wire.Choice{Calls: []wire.Call{{Index: 1, Arguments: "}"}}})
			}
			w := write()
			got := w.Begin([]wire.Choice{{}}, wire.Usage{Prompt: 3})
			for _, c := range parts {
				got = append(got, w.Part(c)...)
			}
			got = append(got, w.Part(wire.Choice{Finish: finish})...)
			got = append(got, w.End(ended)...)
			file := filepath.Join("testdata", "streams", name+"-"+string(finish)+".txt")
			if *update {
				if err := os.WriteFile(file, got, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), string(got)); diff != "" {
				t.Errorf("%s: %s", file, diff)
			}
			whole := string(write().Whole([]wire.Choice{{Parts: parts, Finish: finish}}, ended))
			if d == wire.Responses { // the last event has all of it
				last := string(got[strings.LastIndex(string(got), `"response":`)+len(`"response":`):])
				if last != whole+"}\n\n" {
					t.Errorf("%s: whole\n%s, streamed\n%s", name, whole, last)
				}
				continue
			}
			content := `"content":[{"type":"thinking","thinking":"Think","signature":""},{"type":"text","citations":null,"text":"Let me"},` +
				`{"type":"tool_use","id":"call1","caller":{"type":"direct"},"name":"f","input":{"a":1}},{"type":"tool_use","id":"call2","caller":{"type":"direct"},"name":"g","input":`
			ending := map[wire.Finish]string{wire.Called: `{"b":"é","c":12}}],"container":null,"stop_details":null,"stop_reason":"tool_use"`, wire.Length: `{"b":"é"}}],"container":null,"stop_details":null,"stop_reason":"model_context_window_exceeded"`}
			if !strings.Contains(whole, content+ending[finish]) {
				t.Errorf("%s: %s, want\n%s", name, whole, content+ending[finish])
			}
		}
	}
}

// An answer that may call tools and says nothing has no item, and one that only speaks has one.
func TestAnswersThatCallNothing(t *testing.T) {
	for d, body := range map[wire.Dialect]string{wire.Responses: responseCalls, wire.Messages: messageCalls} {
		for text, want := range map[string]int{"": 0, "Hi": 1} {
			r, bad := d.Parse([]byte(body + "}"))
			if bad != nil {
				t.Fatal(bad)
			}
			h := &wire.Head{ID: d.ID() + "1", Clock: func() int64 { return 2 }}
			var got struct{ Output, Content []any }
			if err := json.Unmarshal(d.Writer(h, r).Whole([]wire.Choice{{Text: text, Finish: wire.Stop}}, ended), &got); err != nil {
				t.Fatal(err)
			}
			if n := len(got.Output) + len(got.Content); n != want {
				t.Errorf("%s: %q is %d items, want %d: %+v", d.ID(), text, n, want, got)
			}
		}
	}
}
