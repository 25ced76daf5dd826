package wire_test

import (
	"strings"
	"testing"

	"talf/serve/wire"
	"talf/serve/wire/refuse"
)

func TestMessagesAreConversations(t *testing.T) {
	for fields, want := range map[string]string{
		`"system":"","messages":[{"role":"user","content":"Hi"}]`:      "user: Hi",
		`"messages":[{"role":"user","content":"Hi"}]`:                  "user: Hi",
		`"system":"Rhyme","messages":[{"role":"user","content":"Hi"}]`: "system: Rhyme|user: Hi",
		`"system":[{"type":"text","text":"a","cache_control":{"type":"ephemeral"}},{"type":"text","text":"b"}],
			"messages":[{"role":"user","content":[{"type":"text","text":"c"},{"type":"text","text":"d"}]}]`: "system: a\nb|user: c\nd",
		`"messages":[{"role":"user","content":"a"},{"role":"user","content":"b"},{"role":"assistant","content":"c"},{"role":"user","content":"d"}]`: "user: a\nb|assistant: c|user: d",
	} {
		r, err := wire.ParseMessages([]byte(`{"model":"m","max_tokens":5,` + fields + `}`))
		if err != nil {
			t.Errorf("%s: %v", fields, err)
			continue
		}
		if got := prompt(t, r); got != want {
			t.Errorf("%s: %q, want %q", fields, got, want)
		}
		// Tokens are counted of the same conversation.
		p, err := wire.ParseCount([]byte(`{"model":"m",` + fields + `}`))
		if err != nil || string(p.Conversation) != string(r.Prompts[0].Conversation) {
			t.Errorf("%s: %+v, %v", fields, p, err)
		}
	}
	r, err := wire.ParseMessages([]byte(`{"model":"m","max_tokens":5,"messages":[{"role":"user","content":"Hi"}],"stop_sequences":["x","y"],"temperature":0.5,"top_p":0.9,
		"top_k":40,"stream":true,"metadata":{"user_id":"u"},"service_tier":"auto","thinking":{"type":"disabled"},"tools":[],"tool_choice":{"type":"auto"},"seed":4,"talf":{"nodes":3}}`))
	if err != nil {
		t.Fatal(err)
	}
	if r.MaxTokens != 5 || strings.Join(r.Stop, "") != "xy" || r.Sample.Temperature != 0.5 || r.Sample.TopP != 0.9 || r.Sample.TopK != 40 || !r.Stream || *r.Seed != 4 || r.Draft.Nodes != 3 {
		t.Errorf("%+v", r)
	}
}

func TestWhatMessagesCannotDoIsRefusedByName(t *testing.T) {
	const hi = `"messages":[{"role":"user","content":"Hi"}],`
	for fields, param := range map[string]string{
		``: "messages", `"messages":[]`: "messages", `"messages":[{"role":"user"}]`: "messages[0].content", `"messages":[{"content":"x"}]`: "messages[0].role",
		`"messages":[{"role":"tool","content":"x"}]`: "messages[0].role",
		`"messages":[{"role":"user","content":[{"type":"image","source":{"type":"url","url":"http://127.0.0.1/x"}}]}]`: "messages[0].content[0].type",
		`"messages":[{"role":"user","content":[{"type":"document","source":{"type":"text","data":"x"}}]}]`:             "messages[0].content[0].type",
		hi + `"max_tokens":0`: "max_tokens", hi + `"max_tokens":"5"`: "max_tokens",
		hi + `"system":7`: "system", hi + `"system":[{"type":"image"}]`: "system[0].type",
		hi + `"temperature":1.1`: "temperature", hi + `"top_p":1.1`: "top_p", hi + `"top_k":-2`: "top_k",
		hi + `"stop_sequences":[""]`: "stop_sequences", hi + `"thinking":{"type":"always"}`: "thinking.type", hi + `"output_config":{"format":{"type":"json_schema"}}`: "output_config.format.schema",
		hi + `"output_config":{"effort":"little"}`: "output_config.effort", hi + `"mcp_servers":[{"url":"x"}]`: "mcp_servers", hi + `"container":"c"`: "container",
		hi + `"n":2`: "n", hi + `"stop":["x"]`: "stop", hi + `"response_format":{"type":"json_object"}`: "response_format", hi + `"logprobs":true`: "logprobs",
		hi + `"inference_geo":"us"`: "inference_geo", hi + `"stream":true,"talf":{"trace":true}`: "talf.trace",
	} {
		if !strings.Contains(fields, "max_tokens") {
			fields = strings.TrimSuffix(`"max_tokens":5,`+fields, ",")
		}
		_, err := wire.ParseMessages([]byte(`{"model":"m",` + fields + `}`))
		if err == nil || err.Param != param || err.Status != 400 {
			t.Errorf("%s: %+v, want %s refused", fields, err, param)
		}
	}
	for body, param := range map[string]string{`{"model":"m",` + hi[:len(hi)-1] + `}`: "max_tokens", `{"max_tokens":5,` + hi[:len(hi)-1] + `}`: "model"} {
		if _, err := wire.ParseMessages([]byte(body)); err == nil || err.Param != param {
			t.Errorf("%s: %+v, want %s missed", body, err, param)
		}
	}
}

const (
	messageHead = `{"id":"msg_1","type":"message","role":"assistant","model":"m",`
	noEnd       = `"container":null,"stop_details":null,"stop_reason":null,"stop_sequence":null`
)

// usageOf is the usage of a message.
func usageOf(read, input, output string) string {
	return `"usage":{"cache_creation":null,"cache_creation_input_tokens":0,"cache_read_input_tokens":` + read + `,"inference_geo":null,"input_tokens":` + input +
		`,"output_tokens":` + output + `,"output_tokens_details":null,"server_tool_use":null,"service_tier":"standard"}`
}

func TestStreamsOfMessages(t *testing.T) {
	r, bad := wire.ParseMessages([]byte(`{"model":"m","max_tokens":2,"messages":[{"role":"user","content":"Hi"}]}`))
	if bad != nil {
		t.Fatal(bad)
	}
	const head = "event: message_start\ndata: {\"type\":\"message_start\",\"message\":" + messageHead + `"content":[],` + noEnd + `,`
	begin := head + usageOf("0", "3", "0") + "}}\n\n" +
		"event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"text\",\"citations\":null,\"text\":\"\"}}\n\n" +
		"event: ping\ndata: {\"type\":\"ping\"}\n\n" +
		"event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"Hé\"}}\n\n" +
		"event: ping\ndata: {\"type\":\"ping\"}\n\n"
	end := func(reason, sequence string) string {
		return "event: content_block_stop\ndata: {\"type\":\"content_block_stop\",\"index\":0}\n\n" +
			"event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"container\":null,\"stop_details\":null,\"stop_reason\":\"" + reason + "\",\"stop_sequence\":" + sequence + "}," +
			usageOf("1", "2", "2") + "}\n\nevent: message_stop\ndata: {\"type\":\"message_stop\"}\n\n"
	}
	for name, c := range map[string]struct {
		last wire.Choice
		want string
	}{
		"an end":           {wire.Choice{Finish: wire.Stop}, end("end_turn", "null")},
		"a stop text":      {wire.Choice{Finish: wire.Stop, Stopped: "\n"}, end("stop_sequence", `"\n"`)},
		"as many as asked": {wire.Choice{Finish: wire.Length}, end("max_tokens", "null")},
	} {
		got := play(wire.Messages, r, func(w wire.Writer) []byte { return append(w.Part(c.last), w.End(ended)...) })
		if got != begin+c.want {
			t.Errorf("%s:\n%s\nwant\n%s", name, got, begin+c.want)
		}
	}
	got := play(wire.Messages, r, func(w wire.Writer) []byte { return w.Fail(refuse.Unavailable("the server is draining")) })
	if want := begin + "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"the server is draining\"},\"request_id\":null}\n\n"; got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
	// A message that is whole; fewer tokens than asked for is the end of the context.
	h := &wire.Head{ID: "msg_1", Created: 1, Model: "m"}
	u := wire.Usage{Prompt: 3, Answer: 1, Cached: 1}
	body := string(wire.Messages.Writer(h, r).Whole([]wire.Choice{{Text: "Hé", Finish: wire.Length, Drafting: &wire.Drafting{Method: "ar"}}}, u))
	want := messageHead + `"content":[{"type":"text","citations":null,"text":"Hé"}],"container":null,"stop_details":null,"stop_reason":"model_context_window_exceeded","stop_sequence":null,` +
		usageOf("1", "2", "1") + `,"talf":{"method":"ar","rounds":0,"drafted":0,"accepted":0,"tau":0}}`
	if body != want {
		t.Errorf("%s\nwant\n%s", body, want)
	}
}

func TestErrorsHaveAnthropicsShape(t *testing.T) {
	busy := refuse.Busy("full")
	large := refuse.Invalid("", "large")
	large.Status = 413
	for want, err := range map[string]*refuse.Error{
		`{"type":"error","error":{"type":"invalid_request_error","message":"max_tokens: is missing"},"request_id":"r"}`: refuse.Invalid("max_tokens", "is missing"),
		`{"type":"error","error":{"type":"rate_limit_error","message":"full"},"request_id":"r"}`:                        busy,
		`{"type":"error","error":{"type":"request_too_large","message":"large"},"request_id":"r"}`:                      large,
		`{"type":"error","error":{"type":"api_error","message":"x"},"request_id":"r"}`:                                  refuse.Internal("x"),
		`{"type":"error","error":{"type":"not_found_error","message":"no route GET /x"},"request_id":"r"}`:              refuse.NotFound("GET", "/x"),
	} {
		if got := string(wire.MessagesError(err, "r")); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	if got := string(wire.MessagesError(refuse.Unauthorized(), "")); !strings.Contains(got, `"authentication_error"`) || !strings.HasSuffix(got, `"request_id":null}`) {
		t.Error(got)
	}
}

func FuzzMessages(f *testing.F) {
	f.Fuzz(func(t *testing.T, b []byte) { fuzz(t, wire.Messages, b) })
}
