package wire_test

import (
	"encoding/json"
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"

	"talf/model/sample"
	"talf/serve/wire"
	"talf/serve/wire/refuse"
	"talf/text/chat"
)

const hello = `"messages":[{"role":"user","content":"Hi"}]`

func parseChat(t *testing.T, fields string) *wire.Request {
	t.Helper()
	r, err := wire.ParseChat([]byte(`{` + hello + fields + `}`))
	if err != nil {
		t.Fatalf("%s: %v", fields, err)
	}
	return r
}

func TestChatRequestsHaveOpenAIsDefaults(t *testing.T) {
	r := parseChat(t, "")
	want := &wire.Request{N: 1, Sample: sample.Default(), Prompts: r.Prompts}
	if !reflect.DeepEqual(r, want) {
		t.Errorf("%+v, want %+v", r, want)
	}
	if got := string(r.Prompts[0].Conversation); got != `{"add_generation_prompt":true,"messages":[{"role":"user","content":"Hi"}]}` {
		t.Errorf("the template gets %s", got)
	}
	if _, err := chat.ParseConversation(r.Prompts[0].Conversation); err != nil {
		t.Error(err)
	}
	// null is no value.
	var nulls strings.Builder
	for _, name := range []string{
		"model", "n", "temperature", "top_p", "seed", "stop", "stream", "stream_options", "logit_bias", "max_tokens", "logprobs", "top_logprobs",
		"tools", "tool_choice", "response_format", "talf", "user", "audio", "modalities", "chat_template_kwargs",
	} {
		nulls.WriteString(`,"` + name + `":null`)
	}
	if got := parseChat(t, nulls.String()); !reflect.DeepEqual(got, want) {
		t.Errorf("with nulls: %+v, want %+v", got, want)
	}
}

func TestFieldsOfRequestsAreRead(t *testing.T) {
	seed := uint64(7)
	r := parseChat(t, `,"model":"m","n":3,"temperature":0.5,"top_p":0.9,"top_k":40,"min_p":0.05,"presence_penalty":-1,"frequency_penalty":2,
		"repetition_penalty":1.2,"logit_bias":{"5":-100,"2":1.5,"9":0},"seed":7,"stop":["a","b"],"stop_token_ids":[3],"ignore_eos":true,
		"logprobs":true,"top_logprobs":2,"stream":true,"stream_options":{"include_usage":true},"max_tokens":5,"max_completion_tokens":9.0,
		"priority":-4,"user":"u",
		"talf":{"method":"goose","nodes":8},"chat_template_kwargs":{"enable_thinking":false},"add_generation_prompt":false,
		"tools":[],"tool_choice":"none","skip_special_tokens":true,"reasoning_effort":"none","verbosity":"medium","truncate_prompt_tokens":null,"modalities":["text"],"response_format":{"type":"text"},"metadata":{"x":"y"},"store":true`)
	want := &wire.Request{
		Model: "m", N: 3, MaxTokens: 9,
		Sample: sample.Params{
			Temperature: 0.5, TopP: 0.9, TopK: 40, MinP: 0.05, PresencePenalty: -1, FrequencyPenalty: 2, RepetitionPenalty: 1.2,
			LogitBias: []sample.Bias{{Token: 2, By: 1.5}, {Token: 5, By: -100}},
		},
		Seed: &seed, Stop: []string{"a", "b"}, StopIDs: []int32{3}, IgnoreEOS: true, Logprobs: true, Top: 2, Stream: true, Usage: true,
		Ignored: []string{"metadata", "store", "user"},
		Draft:   wire.Draft{Method: "goose", Nodes: 8}, Priority: -4, Prompts: r.Prompts,
	}
	if !reflect.DeepEqual(r, want) {
		t.Errorf("%+v, want\n%+v", r, want)
	}
	if got := string(r.Prompts[0].Conversation); !strings.Contains(got, `"enable_thinking":false`) || !strings.Contains(got, `"add_generation_prompt":false`) {
		t.Errorf("the template gets %s", got)
	}
	r, err := wire.ParseChat([]byte(`{"messages":[{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}]}`))
	if err != nil || !strings.Contains(string(r.Prompts[0].Conversation), `"content":"a\nb"`) {
		t.Errorf("parts of a message: %+v, %v", r, err)
	}
	r, err = wire.ParseCompletion([]byte(`{"prompt":"x","echo":true,"n":2,"best_of":2,"stop":"\n"}`))
	if err != nil || r.Logprobs || !r.Echo || r.MaxTokens != 16 || r.Stop[0] != "\n" {
		t.Errorf("%+v, %v", r, err)
	}
	r, err = wire.ParseCompletion([]byte(`{"prompt":"x","echo":true,"logprobs":1,"max_tokens":0}`))
	if err != nil || !r.Logprobs || !r.Echo || !r.NoAnswer {
		t.Errorf("%+v, %v", r, err)
	}
	if r, err := wire.ParseCompletion([]byte(`{"prompt":"x","logprobs":0}`)); err != nil || !r.Logprobs || r.Top != 0 {
		t.Errorf("%+v, %v", r, err)
	}
	for prediction, want := range map[string]string{
		`"x\ny"`: "x\ny", `[{"type":"text","text":"x\n"},{"type":"text","text":"y"}]`: "x\ny", `[]`: "", `""`: "",
	} {
		if got := parseChat(t, `,"prediction":{"type":"content","content":`+prediction+`}`).Prediction; got != want {
			t.Errorf("prediction %s: %q, want %q", prediction, got, want)
		}
	}
	if r, err := wire.ParseCompletion([]byte(`{"prompt":"x","prediction":{"type":"content","content":"y"}}`)); err != nil || r.Prediction != "y" {
		t.Errorf("%+v, %v", r, err)
	}
	for body, want := range map[string][]wire.Prompt{
		`"x"`:           {{Text: "x"}},
		`["x","y"]`:     {{Text: "x"}, {Text: "y"}},
		`[1,2]`:         {{Tokens: []int32{1, 2}}},
		`[[1,2],[3.0]]`: {{Tokens: []int32{1, 2}}, {Tokens: []int32{3}}},
		`["x",[4]]`:     {{Text: "x"}, {Tokens: []int32{4}}},
	} {
		r, err := wire.ParseCompletion([]byte(`{"prompt":` + body + `}`))
		if err != nil || !reflect.DeepEqual(r.Prompts, want) {
			t.Errorf("%s: %+v, %v, want %+v", body, r, err, want)
		}
	}
}

func TestBadFieldsAreRefusedByName(t *testing.T) {
	for fields, param := range map[string]string{
		`"n":0`: "n", `"n":129`: "n", `"n":1.5`: "n", `"n":"1"`: "n", `"n":[1]`: "n",
		`"temperature":2.1`: "temperature", `"temperature":-0.1`: "temperature", `"temperature":"hot"`: "temperature", `"temperature":1e999`: "temperature",
		`"top_p":0`: "top_p", `"top_p":1.5`: "top_p", `"top_k":-2`: "top_k", `"min_p":2`: "min_p",
		`"presence_penalty":3`: "presence_penalty", `"frequency_penalty":-3`: "frequency_penalty", `"repetition_penalty":0`: "repetition_penalty",
		`"logit_bias":{"foo":0}`: "logit_bias.foo", `"logit_bias":{"1":101}`: "logit_bias.1", `"logit_bias":{"-1":1}`: "logit_bias.-1",
		`"logit_bias":{"01":1}`: "logit_bias.01", `"logit_bias":[1]`: "logit_bias",
		`"seed":"x"`: "seed", `"seed":1e30`: "seed", `"stop":""`: "stop", `"stop":[1]`: "stop[0]", `"stop":{}`: "stop",
		`"stop":["a","a","a","a","a","a","a","a","a","a","a","a","a","a","a","a","a"]`: "stop",
		`"stop_token_ids":[-1]`: "stop_token_ids", `"stream":1`: "stream", `"stream_options":{"include_usage":true}`: "stream_options",
		`"max_tokens":0`: "max_tokens", `"max_tokens":-2`: "max_tokens", `"max_completion_tokens":0`: "max_completion_tokens", `"max_completion_tokens":"5"`: "max_completion_tokens",
		`"top_logprobs":2`: "top_logprobs", `"logprobs":true,"top_logprobs":21`: "top_logprobs", `"logprobs":true,"top_logprobs":-1`: "top_logprobs",
		`"logprobs":1`: "logprobs", `"model":1`: "model", `"talf":{"nodes":0}`: "talf.nodes", `"talf":1`: "talf",
		`"tools":[{}]`: "tools[0].type", `"tools":[{"type":"function","function":{"name":"a b"}}]`: "tools[0].function.name", `"tool_choice":"required"`: "tool_choice", `"functions":[{}]`: "functions[0].name", `"function_call":{"name":"f"}`: "function_call", `"functions":[{"name":"f"}],"tools":[]`: "functions", `"audio":{"voice":"x"}`: "audio",
		`"modalities":["text","audio"]`: "modalities", `"response_format":{"type":"xml"}`: "response_format.type",
		`"response_format":{"type":"json_schema"}`: "response_format.json_schema", `"response_format":{"type":"json_schema","json_schema":{}}`: "response_format.json_schema.schema",
		`"response_format":{"type":"json_object"},"guided_regex":"a"`: "response_format.type", `"structured_outputs":{"regex":"a","json_object":true}`: "structured_outputs.regex",
		`"guided_choice":[]`: "guided_choice", `"guided_choice":[1]`: "guided_choice", `"guided_choice":"a"`: "guided_choice", `"structured_outputs":{"structural_tag":{"x":1}}`: "structured_outputs.structural_tag", `"structured_outputs":{"disable_any_whitespace":true}`: "structured_outputs.disable_any_whitespace",
		`"response_format":{}`: "response_format.type", `"guided_regex":1`: "guided_regex", `"min_tokens":-1`: "min_tokens", `"min_tokens":5,"max_tokens":4`: "min_tokens",
		`"prediction":"x"`: "prediction", `"prediction":{"content":"x"}`: "prediction.type", `"prediction":{"type":"tree","content":"x"}`: "prediction.type",
		`"prediction":{"type":"content"}`: "prediction.content", `"prediction":{"type":"content","content":1}`: "prediction.content",
		`"prediction":{"type":"content","content":[1]}`:                            "prediction.content[0]",
		`"prediction":{"type":"content","content":[{"type":"image_url"}]}`:         "prediction.content[0].type",
		`"prediction":{"type":"content","content":[{"type":"text","text":["x"]}]}`: "prediction.content[0].text",
		`"reasoning_effort":"little"`:                                              "reasoning_effort", `"verbosity":"none"`: "verbosity", `"truncate_prompt_tokens":9`: "truncate_prompt_tokens",
		`"include_stop_str_in_output":true`: "include_stop_str_in_output", `"skip_special_tokens":false`: "skip_special_tokens", `"return_token_ids":true`: "return_token_ids",
		`"logits_processors":["x"]`: "logits_processors", `"cache_salt":"x"`: "cache_salt", `"chat_template":"x"`: "chat_template", `"documents":[{}]`: "documents", `"echo":true`: "echo",
		`"add_special_tokens":1`:                 "add_special_tokens",
		`"chat_template_kwargs":{"messages":[]}`: "chat_template_kwargs.messages", `"chat_template_kwargs":3`: "chat_template_kwargs",
	} {
		_, err := wire.ParseChat([]byte(`{` + hello + `,` + fields + `}`))
		if err == nil || err.Param != param || err.Status != 400 || err.Type != "invalid_request_error" {
			t.Errorf("%s: %+v, want %s refused", fields, err, param)
		}
	}
	for body, param := range map[string]string{
		`{}`: "messages", `{"messages":[]}`: "messages", `{"messages":"x"}`: "messages", `{"messages":[1]}`: "messages[0]",
		`{"messages":[{"content":"x"}]}`: "messages[0].role", `{"messages":[{"role":"user","content":7}]}`: "messages[0].content",
		`{"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"http://127.0.0.1/x"}}]}]}`: "messages[0].content[0].type",
		`{"messages":[{"role":"user","content":[{"text":"x"}]}]}`:                                                  "messages[0].content[0].type",
		`[]`: "", `null`: "", `"x"`: "", `{`: "", ``: "",
		// What another reader would take otherwise.
		`{` + hello + `,"n":1,"n":2}`:                                "n",
		`{"messages":[{"role":"user","content":"a","content":"b"}]}`: "messages[0].content",
		`{"messages":[{"role":"user","content":"\ud83d"}]}`:          "messages[0].content",
		"{\"messages\":[{\"role\":\"user\",\"content\":\"\xff\"}]}":  "messages[0].content",
		`{"Messages":[{"role":"user","content":"a"}]}`:               "messages",
	} {
		if _, err := wire.ParseChat([]byte(body)); err == nil || err.Param != param || err.Status != 400 {
			t.Errorf("%s: %+v, want %q refused", body, err, param)
		}
	}
	for fields, param := range map[string]string{
		``: "prompt", `"prompt":[]`: "prompt", `"prompt":7`: "prompt", `"prompt":[1,"x"]`: "prompt", `"prompt":["x",1]`: "prompt[1]", `"prompt":[[]]`: "prompt[0]",
		`"prompt":"x","max_tokens":0`: "max_tokens", `"prompt":"x","echo":true,"max_tokens":-2`: "max_tokens", `"prompt":"x","suffix":"y","echo":true`: "suffix", `"prompt":"x","n":2,"best_of":1`: "best_of", `"prompt":"x","logprobs":21`: "logprobs", `"prompt":"x","echo":"y"`: "echo",
		`"prompt":[4294967296]`: "prompt",
	} {
		if _, err := wire.ParseCompletion([]byte(`{` + fields + `}`)); err == nil || err.Param != param {
			t.Errorf("%s: %+v, want %q refused", fields, err, param)
		}
	}
}

func TestErrorsHaveOpenAIsShape(t *testing.T) {
	for want, err := range map[string]*refuse.Error{
		`{"error":{"message":"n: is 0, want 1 to 128","type":"invalid_request_error","param":"n","code":null}}`:                                 refuse.Invalid("n", "is 0, want 1 to 128"),
		`{"error":{"message":"model: the model \"x\" does not exist","type":"invalid_request_error","param":"model","code":"model_not_found"}}`: refuse.NoModel("x"),
	} {
		if b, e := json.Marshal(err); e != nil || string(b) != want {
			t.Errorf("%s, %v, want %s", b, e, want)
		}
	}
	var err error = refuse.Invalid("n", "bad")
	if e := new(refuse.Error); !errors.As(err, &e) || err.Error() != "n: bad" {
		t.Errorf("%v", err)
	}
}

func TestRepliesHaveOpenAIsShape(t *testing.T) {
	h := &wire.Head{ID: "id", Created: 1, Model: "m"}
	u := wire.Usage{Prompt: 2, Answer: 3, Cached: 1}
	usage := `"usage":{"prompt_tokens":2,"completion_tokens":3,"total_tokens":5,"prompt_tokens_details":{"cached_tokens":1}}`
	tokens := []wire.Token{{Bytes: []byte("é"), LogProb: -1, Top: []wire.Alternative{{Bytes: []byte{0xff}, LogProb: math.Inf(-1)}}}}
	for _, c := range []struct{ got, want string }{
		{
			string(h.Reply(wire.Chat, []wire.Choice{{Text: "a<b", Finish: wire.Stop}}, u)),
			`{"id":"id","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"a<b","refusal":null,"annotations":[]},` +
				`"logprobs":null,"finish_reason":"stop"}],` + usage + `}`,
		},
		{
			string(h.Reply(wire.Completion, []wire.Choice{{Index: 1, Text: "é", Tokens: tokens, Finish: wire.Length, Offset: 4}}, u)),
			`{"id":"id","object":"text_completion","created":1,"model":"m","choices":[{"index":1,"text":"é","logprobs":{"tokens":["é"],"token_logprobs":[-1],` +
				`"top_logprobs":[{"�":-9999}],"text_offset":[4]},"finish_reason":"length"}],` + usage + `}`,
		},
		{
			string(h.Chunk(wire.Chat, wire.Choice{First: true})),
			`{"id":"id","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}]}`,
		},
		{
			string(h.Chunk(wire.Chat, wire.Choice{Text: "é", Tokens: tokens})),
			`{"id":"id","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"content":"é"},"logprobs":{"content":[{"token":"é","logprob":-1,` +
				`"bytes":[195,169],"top_logprobs":[{"token":"�","logprob":-9999,"bytes":[255]}]}],"refusal":null},"finish_reason":null}]}`,
		},
		{
			string(h.Chunk(wire.Chat, wire.Choice{Finish: wire.Stop, Drafting: &wire.Drafting{Method: "ar", Rounds: 3, Tau: 1}})),
			`{"id":"id","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{},"logprobs":null,"finish_reason":"stop",` +
				`"talf":{"method":"ar","rounds":3,"drafted":0,"accepted":0,"tau":1}}]}`,
		},
		{
			string(h.LastChunk(wire.Chat, u)),
			`{"id":"id","object":"chat.completion.chunk","created":1,"model":"m","choices":[],` + usage + `}`,
		},
		{
			string(wire.Models([]wire.Model{{ID: "m", Object: "model", Created: 1, Owner: "talf", Context: 512}})),
			`{"object":"list","data":[{"id":"m","object":"model","created":1,"owned_by":"talf","max_model_len":512}]}`,
		},
		{string(wire.Event([]byte("{}"))), "data: {}\n\n"},
		{string(wire.ErrorEvent(refuse.Internal("x"))), `data: {"error":{"message":"x","type":"server_error","param":null,"code":null}}` + "\n\n"},
	} {
		if c.got != c.want {
			t.Errorf("%s\nwant\n%s", c.got, c.want)
		}
	}
	// An answer without tokens has an empty list, not null.
	if b := h.Reply(wire.Chat, []wire.Choice{{Tokens: []wire.Token{}}}, u); !strings.Contains(string(b), `"logprobs":{"content":[],`) {
		t.Errorf("%s", b)
	}
}

// Whatever a body is, it is refused by an error with a name or gives a request within its ranges.
func FuzzRequest(f *testing.F) {
	f.Add([]byte(`{` + hello + `,"n":2,"logit_bias":{"1":2},"stop":"x","talf":{"off":true}}`))
	f.Add([]byte(`{` + hello + `,"prediction":{"type":"content","content":[{"type":"text","text":"x"}]}}`))
	f.Add([]byte(`{"prompt":"x","prediction":{"type":"content","content":"y"},"max_tokens":0,"echo":true,"logprobs":0}`))
	f.Add([]byte(`{"prompt":[[1,2],"x"],"echo":true,"logprobs":3,"temperature":0.1,"seed":-1,"top_k":-1}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, parse := range []func([]byte) (*wire.Request, *refuse.Error){wire.ParseChat, wire.ParseCompletion} {
			r, err := parse(b)
			if err != nil {
				if err.Message == "" || err.Status != 400 {
					t.Errorf("%+v", err)
				}
				continue
			}
			if err := r.Sample.Validate(); err != nil || r.N < 1 || r.N > wire.MaxChoices || r.MaxTokens < 0 || len(r.Prompts) == 0 {
				t.Errorf("%+v: %v", r, err)
			}
		}
	})
}

func TestFormatsOfEveryDialect(t *testing.T) {
	const schema = `{"type": "object"}`
	for fields, want := range map[string]wire.Format{
		`"response_format":{"type":"text"}`:        {},
		`"response_format":{"type":"json_object"}`: {Kind: "json", Param: "response_format.type"},
		`"response_format":{"type":"json_schema","json_schema":{"name":"x","strict":true,"schema":` + schema + `}}`: {Kind: "json-schema", Text: schema, Param: "response_format.json_schema.schema"},
		`"response_format":{"type":"json_object","schema":` + schema + `}`:                                          {Kind: "json-schema", Text: schema, Param: "response_format.schema"},
		`"guided_json":` + schema:                      {Kind: "json-schema", Text: schema, Param: "guided_json"},
		`"guided_json":"{\"type\": \"object\"}"`:       {Kind: "json-schema", Text: schema, Param: "guided_json"},
		`"guided_regex":"a+"`:                          {Kind: "regex", Text: "a+", Param: "guided_regex"},
		`"guided_grammar":"root ::= x"`:                {Kind: "gbnf", Text: "root ::= x", Param: "guided_grammar"},
		`"guided_choice":["yes","\"no\\"]`:             {Kind: "gbnf", Text: `root ::= "yes" | "\"no\\"`, Param: "guided_choice"},
		`"structured_outputs":{"json":` + schema + `}`: {Kind: "json-schema", Text: schema, Param: "structured_outputs.json"},
		`"structured_outputs":{"regex":"a"}`:           {Kind: "regex", Text: "a", Param: "structured_outputs.regex"},
		`"structured_outputs":{"choice":["a"]}`:        {Kind: "gbnf", Text: `root ::= "a"`, Param: "structured_outputs.choice"},
		`"structured_outputs":{"json_object":true}`:    {Kind: "json", Param: "structured_outputs.json_object"},
		`"structured_outputs":{"json":` + schema + `,"disable_any_whitespace":false,"disable_additional_properties":false}`: {
			Kind: "json-schema", Text: schema, Param: "structured_outputs.json", Blanks: true, Others: true,
		},
		`"structured_outputs":{"disable_any_whitespace":false,"disable_additional_properties":false},"response_format":{"type":"json_object"}`: {Kind: "json", Param: "response_format.type", Blanks: true, Others: true},
		`"structured_outputs":{"json":` + schema + `,"disable_additional_properties":true}`:                                                    {Kind: "json-schema", Text: schema, Param: "structured_outputs.json"},
		`"grammar":"root ::= x"`:  {Kind: "gbnf", Text: "root ::= x", Param: "grammar"},
		`"json_schema":` + schema: {Kind: "json-schema", Text: schema, Param: "json_schema"},
	} {
		if got := parseChat(t, ","+fields).Format; got != want {
			t.Errorf("%s: %+v, want %+v", fields, got, want)
		}
	}
	want := wire.Format{Kind: "json-schema", Text: schema, Param: "text.format.schema"}
	r, err := wire.ParseResponses([]byte(`{"model":"m","input":"x","text":{"format":{"type":"json_schema","name":"x","schema":` + schema + `}}}`))
	if err != nil || r.Format != want {
		t.Errorf("responses: %+v, %v", r, err)
	}
	want.Param = "output_config.format.schema"
	r, err = wire.ParseMessages([]byte(`{"model":"m","max_tokens":5,"messages":[{"role":"user","content":"x"}],"output_config":{"format":{"type":"json_schema","schema":` + schema + `}}}`))
	if err != nil || r.Format != want {
		t.Errorf("messages: %+v, %v", r, err)
	}
}

// llama.cpp's clients name the length of an answer n_predict; OpenAI's names win.
func TestNPredictIsALength(t *testing.T) {
	for body, want := range map[string]int{
		`{"prompt":"a","n_predict":5}`:                                                         5,
		`{"prompt":"a","n_predict":-1}`:                                                        0,
		`{"prompt":"a","n_predict":5,"max_tokens":7}`:                                          7,
		`{"messages":[{"role":"user","content":"a"}],"n_predict":5}`:                           5,
		`{"messages":[{"role":"user","content":"a"}],"n_predict":5,"max_completion_tokens":7}`: 7,
	} {
		parse := wire.ParseCompletion
		if strings.Contains(body, "messages") {
			parse = wire.ParseChat
		}
		r, err := parse([]byte(body))
		if err != nil || r.MaxTokens != want || len(r.Ignored) > 0 {
			t.Errorf("%s: %+v, %v, want %d tokens", body, r, err, want)
		}
	}
}
