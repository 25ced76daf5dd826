package wire_test

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"talf/model/sample"
	"talf/serve/wire"
	"talf/serve/wire/refuse"
	"talf/text/chat"
)

// prompt returns the messages that the template is given, as "role: content" lines.
func prompt(t *testing.T, r *wire.Request) string {
	t.Helper()
	var c struct {
		Messages []struct{ Role, Content string }
		Generate bool `json:"add_generation_prompt"`
	}
	if len(r.Prompts) != 1 {
		t.Fatalf("%d prompts", len(r.Prompts))
	}
	if _, err := chat.ParseConversation(r.Prompts[0].Conversation); err != nil {
		t.Error(err)
	}
	if err := json.Unmarshal(r.Prompts[0].Conversation, &c); err != nil || !c.Generate {
		t.Errorf("%v: %s", err, r.Prompts[0].Conversation)
	}
	var lines []string
	for _, m := range c.Messages {
		lines = append(lines, m.Role+": "+m.Content)
	}
	return strings.Join(lines, "|")
}

func TestInputsOfResponsesAreConversations(t *testing.T) {
	for fields, want := range map[string]string{
		`"input":"Hi"`:                             "user: Hi",
		`"input":"Hi","instructions":"Rhyme"`:      "system: Rhyme|user: Hi",
		`"input":"Hi","instructions":""`:           "user: Hi",
		`"input":[{"role":"user","content":"Hi"}]`: "user: Hi",
		`"input":[{"type":"message","role":"developer","content":"Rhyme"},{"role":"user","content":"Hi"}]`:  "developer: Rhyme|user: Hi",
		`"instructions":"Rhyme","input":[{"role":"system","content":"Now"},{"role":"user","content":"Hi"}]`: "system: Rhyme\nNow|user: Hi",
		`"input":[{"role":"user","content":[{"type":"input_text","text":"a"},{"type":"input_text","text":"b"}]},
			{"type":"message","id":"msg_1","status":"completed","role":"assistant","phase":"final_answer",
			 "content":[{"type":"output_text","text":"c","annotations":[]},{"type":"refusal","refusal":"d"}]},
			{"role":"user","content":"e"}]`: "user: a\nb|assistant: c\nd|user: e",
		`"input":[{"role":"user","content":"a"},{"role":"user","content":"b"}]`: "user: a|user: b",
	} {
		r, err := wire.ParseResponses([]byte(`{"model":"m",` + fields + `}`))
		if err != nil {
			t.Errorf("%s: %v", fields, err)
		} else if got := prompt(t, r); got != want {
			t.Errorf("%s: %q, want %q", fields, got, want)
		}
	}
}

func TestFieldsOfResponsesAreRead(t *testing.T) {
	r, err := wire.ParseResponses([]byte(`{"model":"m","input":"Hi","temperature":0.5,"top_p":0.9,"max_output_tokens":7,"top_logprobs":2,
		"include":["message.output_text.logprobs","reasoning.encrypted_content"],"stream":true,"stream_options":{"include_obfuscation":false},
		"seed":3,"stop":["x"],"presence_penalty":1,"frequency_penalty":-1,"top_k":4,"min_p":0.1,"repetition_penalty":1.1,"ignore_eos":true,
		"talf":{"off":true},"store":true,"metadata":{"k":"v"},"tools":[],"tool_choice":"none","parallel_tool_calls":false,"max_tool_calls":2,
		"reasoning":{"effort":"none"},"text":{"format":{"type":"text"},"verbosity":"medium"},"truncation":"disabled","service_tier":"flex",
		"previous_response_id":null,"background":false,"user":"u","safety_identifier":"s","prompt_cache_key":"c","chat_template_kwargs":{"x":1}}`))
	if err != nil {
		t.Fatal(err)
	}
	seed := uint64(3)
	want := wire.Request{
		Model: "m", N: 1, MaxTokens: 7, Seed: &seed, Stop: []string{"x"}, IgnoreEOS: true, Logprobs: true, Top: 2, Stream: true,
		Ignored: []string{"service_tier"},
		Draft:   wire.Draft{Off: true}, Sample: sample.Params{Temperature: 0.5, TopP: 0.9, TopK: 4, MinP: 0.1, PresencePenalty: 1, FrequencyPenalty: -1, RepetitionPenalty: 1.1},
	}
	got := *r
	h := &wire.Head{ID: "resp_1", Created: 1, Model: "m", Clock: func() int64 { return 2 }}
	body := string(wire.Responses.Writer(h, r).Whole([]wire.Choice{{Text: "a", Finish: wire.Stop, Tokens: []wire.Token{{Bytes: []byte("a"), LogProb: -1}}}}, wire.Usage{Prompt: 3, Answer: 1, Cached: 2}))
	wantBody := `{"id":"resp_1","object":"response","created_at":1,"completed_at":2,"status":"completed","background":false,"error":null,"incomplete_details":null,` +
		`"instructions":null,"max_output_tokens":7,"max_tool_calls":2,"model":"m","output":[{"id":"msg_1","type":"message","status":"completed","role":"assistant",` +
		`"content":[{"type":"output_text","annotations":[],"logprobs":[{"token":"a","logprob":-1,"bytes":[97],"top_logprobs":[]}],"text":"a"}]}],` +
		`"parallel_tool_calls":false,"presence_penalty":1,"frequency_penalty":-1,"previous_response_id":null,"prompt_cache_key":"c","reasoning":{"effort":"none","summary":null},` +
		`"safety_identifier":"s","service_tier":"default","store":false,"temperature":0.5,"text":{"format":{"type":"text"},"verbosity":"medium"},"tool_choice":"none","tools":[],` +
		`"top_logprobs":2,"top_p":0.9,"truncation":"disabled","usage":{"input_tokens":3,"input_tokens_details":{"cache_write_tokens":0,"cached_tokens":2},"output_tokens":1,` +
		`"output_tokens_details":{"reasoning_tokens":0},"total_tokens":4},"user":"u","metadata":{"k":"v"}}`
	if body != wantBody {
		t.Errorf("%s, want\n%s", body, wantBody)
	}
	for i := range reflect.TypeOf(want).NumField() {
		name := reflect.TypeOf(want).Field(i).Name
		if g, w := reflect.ValueOf(got).Field(i), reflect.ValueOf(want).Field(i); name != "Prompts" && name != "asked" && !reflect.DeepEqual(g.Interface(), w.Interface()) {
			t.Errorf("%s is %+v, want %+v", name, g, w)
		}
	}
	if !strings.Contains(string(r.Prompts[0].Conversation), `"x":1`) {
		t.Errorf("the template gets %s", r.Prompts[0].Conversation)
	}
}

func TestWhatResponsesCannotDoIsRefusedByName(t *testing.T) {
	for fields, param := range map[string]string{
		``: "input", `"input":[]`: "input", `"input":7`: "input", `"input":[7]`: "input[0]", `"input":[{"content":"x"}]`: "input[0].role",
		`"input":[{"role":"user"}]`: "input[0].content", `"input":[{"role":"tool","content":"x"}]`: "input[0].role",
		`"input":[{"role":"user","content":[{"type":"input_image","image_url":"http://127.0.0.1/x"}]}]`: "input[0].content[0].type",
		`"input":[{"role":"user","content":[{"type":"input_file","file_url":"http://127.0.0.1/x"}]}]`:   "input[0].content[0].type",
		`"input":[{"role":"user","content":[{"type":"input_audio","input_audio":{}}]}]`:                 "input[0].content[0].type",
		`"input":[{"role":"user","content":[{"type":"input_text"}]}]`:                                   "input[0].content[0].text",
		`"input":[{"type":"item_reference","id":"msg_1"}]`:                                              "input[0].type",
		`"input":"x","previous_response_id":"resp_1"`:                                                   "previous_response_id",
		`"input":"x","conversation":"conv_1"`:                                                           "conversation",
		`"input":"x","prompt":{"id":"pmpt_1"}`:                                                          "prompt",
		`"input":"x","background":true`:                                                                 "background",
		`"input":"x","tool_choice":"required"`:                                                          "tool_choice",
		`"input":"x","tool_choice":{"type":"function","name":"f"}`:                                      "tool_choice",
		`"input":"x","text":{"format":{"type":"json_schema"}}`:                                          "text.format.schema",
		`"input":"x","text":{"verbosity":"none"}`:                                                       "text.verbosity",
		`"input":"x","reasoning":{"effort":"more"}`:                                                     "reasoning.effort",
		`"input":"x","truncation":"auto"`:                                                               "truncation",
		`"input":"x","include":["everything"]`:                                                          "include[0]",
		`"input":"x","top_logprobs":2`:                                                                  "top_logprobs",
		`"input":"x","top_logprobs":21,"include":["message.output_text.logprobs"]`:                      "top_logprobs",
		`"input":"x","temperature":2.1`:                                                                 "temperature",
		`"input":"x","max_output_tokens":0`:                                                             "max_output_tokens",
		`"input":"x","stream_options":{}`:                                                               "stream_options",
		`"input":"x","metadata":{"k":1}`:                                                                "metadata.k",
		`"input":"x","metadata":{"k":"` + strings.Repeat("v", 513) + `"}`:                               "metadata",

		// What other routes call so.
		`"input":"x","n":2`:                                    "n",
		`"input":"x","max_tokens":5`:                           "max_tokens",
		`"input":"x","logprobs":true`:                          "logprobs",
		`"input":"x","response_format":{"type":"json_object"}`: "response_format",
		`"input":"x","instructions":7`:                         "instructions",
		`"input":"x","store":"yes"`:                            "store",
		`"input":"x","stream":true,"talf":{"trace":true}`:      "talf.trace",
	} {
		_, err := wire.ParseResponses([]byte(`{"model":"m"` + strings.TrimSuffix(","+fields, ",") + `}`))
		if err == nil || err.Param != param || err.Status != 400 {
			t.Errorf("%s: %+v, want %s refused", fields, err, param)
		}
	}
	if _, err := wire.ParseResponses([]byte(`{"input":"x"}`)); err == nil || err.Param != "model" {
		t.Errorf("no model: %+v", err)
	}
}

// play writes a stream in which an answer comes in two parts, the second with its end.
func play(d wire.Dialect, r *wire.Request, end func(wire.Writer) []byte) string {
	h := &wire.Head{ID: d.ID() + "1", Created: 1, Model: "m", Clock: func() int64 { return 2 }}
	w := d.Writer(h, r)
	b := w.Begin([]wire.Choice{{}}, wire.Usage{Prompt: 3})
	b = append(b, w.Part(wire.Choice{Text: "Hé", Tokens: []wire.Token{{Bytes: []byte("Hé"), LogProb: -1}}})...)
	b = append(b, w.Ping()...)
	return string(append(b, end(w)...))
}

var ended = wire.Usage{Prompt: 3, Answer: 2, Cached: 1}

func TestStreamsOfResponses(t *testing.T) {
	r, bad := wire.ParseResponses([]byte(`{"model":"m","input":"Hi","instructions":"Rhyme"}`))
	if bad != nil {
		t.Fatal(bad)
	}
	common := func(status, rest string) string {
		return `"id":"resp_1","object":"response","created_at":1,` + strings.Replace(rest, "STATUS", status, 1)
	}
	const options = `"parallel_tool_calls":true,"presence_penalty":0,"frequency_penalty":0,"previous_response_id":null,"prompt_cache_key":null,` +
		`"reasoning":{"effort":null,"summary":null},"safety_identifier":null,"service_tier":"default","store":false,"temperature":1,"text":{"format":{"type":"text"}},` +
		`"tool_choice":"auto","tools":[],"top_logprobs":0,"top_p":1,"truncation":"disabled",`
	const asked = `"instructions":"Rhyme","max_output_tokens":null,"max_tool_calls":null,"model":"m",`
	began := `"response":{` + common("in_progress", `"completed_at":null,"status":"STATUS","background":false,"error":null,"incomplete_details":null,`+asked+`"output":[],`+options+`"usage":null,"user":null,"metadata":{}}`)
	item := func(status, content string) string {
		return `{"id":"msg_1","type":"message","status":"` + status + `","role":"assistant","content":[` + content + `]}`
	}
	text := func(logprobs, text string) string {
		return `{"type":"output_text","annotations":[],"logprobs":[` + logprobs + `],"text":"` + text + `"}`
	}
	const first = `{"token":"Hé","logprob":-1,"bytes":[72,195,169],"top_logprobs":[]}`
	const where = `"item_id":"msg_1","output_index":0,"content_index":0`
	head := [][2]string{
		{"response.created", began},
		{"response.in_progress", began},
		{"response.output_item.added", `"output_index":0,"item":` + item("in_progress", "")},
		{"response.content_part.added", where + `,"part":` + text("", "")},
		{"response.output_text.delta", where + `,"delta":"Hé","logprobs":[` + first + `]`},
		{"", ": ping"},
	}
	usage := `"usage":{"input_tokens":3,"input_tokens_details":{"cache_write_tokens":0,"cached_tokens":1},"output_tokens":2,"output_tokens_details":{"reasoning_tokens":0},"total_tokens":5}`
	finished := func(status, completed, why string) [][2]string {
		all := item(status, text(first, "Hé"))
		return [][2]string{
			{"response.output_text.done", where + `,"text":"Hé","logprobs":[` + first + `]`},
			{"response.content_part.done", where + `,"part":` + text(first, "Hé")},
			{"response.output_item.done", `"output_index":0,"item":` + all},
			{"response." + status, `"response":{` + common(status, `"completed_at":`+completed+`,"status":"STATUS","background":false,"error":null,"incomplete_details":`+why+`,`+asked+
				`"output":[`+all+`],`+options+usage+`,"user":null,"metadata":{},"talf":{"method":"ar","rounds":2,"drafted":0,"accepted":0,"tau":1}}`)},
		}
	}
	drafting := &wire.Drafting{Method: "ar", Rounds: 2, Tau: 1}
	for name, c := range map[string]struct {
		end  func(wire.Writer) []byte
		want [][2]string
	}{
		"an end": {func(w wire.Writer) []byte {
			return append(w.Part(wire.Choice{Finish: wire.Stop, Drafting: drafting}), w.End(ended)...)
		}, finished("completed", "2", "null")},
		"too long": {func(w wire.Writer) []byte {
			return append(w.Part(wire.Choice{Finish: wire.Length, Drafting: drafting}), w.End(ended)...)
		}, finished("incomplete", "null", `{"reason":"max_output_tokens"}`)},
		"a failure": {func(w wire.Writer) []byte { return w.Fail(refuse.Internal("layer 3 is not finite")) }, [][2]string{
			{"response.failed", `"response":{` + common("failed", `"completed_at":null,"status":"STATUS","background":false,"error":{"code":"server_error","message":"layer 3 is not finite"},"incomplete_details":null,`+asked+
				`"output":[`+item("incomplete", text(first, "Hé"))+`],`+options+`"usage":null,"user":null,"metadata":{}}`)},
		}},
	} {
		var want strings.Builder
		n := 0
		for _, e := range append(head[:len(head):len(head)], c.want...) {
			if e[0] == "" {
				want.WriteString(e[1] + "\n\n")
				continue
			}
			number, err := json.Marshal(n)
			if err != nil {
				t.Fatal(err)
			}
			want.WriteString("event: " + e[0] + "\ndata: {\"type\":\"" + e[0] + "\",\"sequence_number\":" + string(number) + "," + e[1] + "}\n\n")
			n++
		}
		if got := play(wire.Responses, r, c.end); got != want.String() {
			t.Errorf("%s:\n%s\nwant\n%s", name, got, want.String())
		}
	}
}

func TestChatStreamsOfAWriter(t *testing.T) {
	r := parseChat(t, `,"stream":true,"stream_options":{"include_usage":true}`)
	all := play(wire.Chat, r, func(w wire.Writer) []byte {
		return append(w.Part(wire.Choice{Finish: wire.Length}), w.End(ended)...)
	})
	got := all
	for _, want := range []string{`"delta":{"role":"assistant","content":""}`, `"delta":{"content":"Hé"}`, ": ping\n\n", `"finish_reason":"length"`, `"usage":{"prompt_tokens":3`, "data: [DONE]\n\n"} {
		_, rest, ok := strings.Cut(got, want)
		if !ok {
			t.Fatalf("%s\nwithout, or not in order: %s", got, want)
		}
		got = rest
	}
	if got != "" {
		t.Errorf("after [DONE]: %q", got)
	}
	// Every chunk but the last says that its usage is null, as OpenAI documents.
	if n := strings.Count(all, `"usage":null`); n != 3 {
		t.Errorf("%d chunks say that they have no usage, want 3: %s", n, all)
	}
}

// Whatever a body is, it is refused by an error with a message or gives a request within its ranges,
// whose answers can be written.
func fuzz(t *testing.T, d wire.Dialect, b []byte) {
	r, err := d.Parse(b)
	if err != nil {
		if err.Message == "" || err.Status != 400 {
			t.Errorf("%+v", err)
		}
		return
	}
	if err := r.Sample.Validate(); err != nil || r.N != 1 || r.Model == "" || len(r.Prompts) != 1 {
		t.Errorf("%+v: %v", r, err)
	}
	if _, err := chat.ParseConversation(r.Prompts[0].Conversation); err != nil {
		t.Errorf("the conversation %s: %v", r.Prompts[0].Conversation, err)
	}
	stream := play(d, r, func(w wire.Writer) []byte {
		b := w.Part(wire.Choice{Calls: []wire.Call{{ID: "c", Name: "f", Arguments: string(b)}}})
		return append(append(b, w.Part(wire.Choice{Finish: wire.Stop})...), w.End(ended)...)
	})
	if whole := d.Writer(&wire.Head{Clock: func() int64 { return 2 }}, r).Whole([]wire.Choice{{Calls: []wire.Call{{Name: "f", Arguments: string(b)}}}}, ended); !json.Valid(whole) {
		t.Errorf("an answer is no JSON: %s", whole)
	}
	for line := range strings.SplitSeq(stream, "\n") {
		if data, ok := strings.CutPrefix(line, "data: "); ok && !json.Valid([]byte(data)) {
			t.Errorf("an event is no JSON: %s", data)
		}
	}
}

func FuzzResponses(f *testing.F) {
	f.Fuzz(func(t *testing.T, b []byte) { fuzz(t, wire.Responses, b) })
}
