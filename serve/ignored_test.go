package serve_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"talf/infer"
	"talf/internal/e2e/servetest"
	"talf/internal/e2e/talftest"
	"talf/text/chat"
)

// A template that reads hints writes them; a plain one ignores them.
const hinted = `{% for m in messages %}{{ m.role }}: {{ m.content }} {% endfor %}{% if enable_thinking is defined and not enable_thinking %}quickly {% endif %}{{ reasoning_effort }}`

// What a request asks for in vain is named in the answer, whole and streamed, on every route; nothing else is.
func TestAnswersNameWhatWasIgnored(t *testing.T) {
	for _, reads := range []bool{true, false} {
		source := `{% for m in messages %}{{ m.role }}: {{ m.content }} {% endfor %}`
		if reads {
			source = hinted
		}
		parts := servetest.Default()
		var err error
		if parts.Template, err = chat.Parse("test", source); err != nil {
			t.Fatal(err)
		}
		url := servetest.Start(t, servetest.Setup{Dir: talftest.ChatModel(t), Parts: parts}).URL
		for _, c := range []struct {
			path, fields string
			always       []string // ignored whatever the template
			hints        []string // ignored by a template that does not read them
		}{
			{"/v1/chat/completions", ``, nil, nil},
			{"/v1/chat/completions", `,"user":"u","frobnicate":{"x":1},"store":null,"temperature":0.5`, []string{"frobnicate", "user"}, nil},
			{"/v1/chat/completions", `,"reasoning_effort":"none"`, nil, []string{"reasoning_effort"}},
			{"/v1/chat/completions", `,"verbosity":"low","talf":{"nods":4}`, []string{"talf.nods", "verbosity"}, nil},
			{"/v1/completions", `,"user":"u","reasoning_effort":"low"`, []string{"reasoning_effort", "user"}, nil},
			{"/v1/responses", `,"reasoning":{"effort":"high","summary":"auto"},"text":{"verbosity":"high"}`, []string{"reasoning.summary", "text.verbosity"}, []string{"reasoning.effort"}},
			{"/v1/messages", `,"thinking":{"type":"enabled","budget_tokens":2000},"output_config":{"effort":"low"},"metadata":{"user_id":"u"}`, []string{"thinking.budget_tokens", "metadata"}, []string{"thinking.type", "output_config.effort"}},
			{"/v1/messages", `,"thinking":{"type":"adaptive"}`, nil, nil},
		} {
			want := c.always
			if !reads {
				want = append(want[:len(want):len(want)], c.hints...)
			}
			for _, stream := range []string{`}`, `,"stream":true}`} {
				status, _, body := do(t, "POST", url+c.path, routes[c.path]+c.fields+stream)
				got := map[string]bool{}
				for part := range strings.SplitSeq(body, `"ignored":`) {
					var names []string
					if json.NewDecoder(strings.NewReader(part)).Decode(&names) == nil {
						for _, name := range names {
							got[name] = true
						}
					}
				}
				same := len(got) == len(want)
				for _, name := range want {
					same = same && got[name]
				}
				if status != 200 || !same {
					t.Errorf("%s %s, a template that reads hints %v: %d, ignored are %v, want %v: %s", c.path, c.fields, reads, status, got, want, body)
				}
			}
		}
		if !reads {
			continue
		}
		// The template is told, on every route alike, and what it is told in its own words wins.
		for fields, want := range map[string]string{
			`"reasoning_effort":"none"`: "user: Hi quickly none",
			`"reasoning_effort":"high"`: "user: Hi high",
			`"reasoning_effort":"none","chat_template_kwargs":{"enable_thinking":true}`:     "user: Hi none",
			`"reasoning_effort":"high","chat_template_kwargs":{"reasoning_effort":"a bit"}`: "user: Hi a bit",
		} {
			_, _, b := do(t, "POST", url+"/tokenize", `{"messages":[{"role":"user","content":"Hi"}],`+fields+`}`)
			_, _, b = do(t, "POST", url+"/detokenize", fmt.Sprintf(`{"tokens":%s}`, decode[struct{ Tokens json.RawMessage }](t, []byte(b)).Tokens))
			if got := decode[struct{ Prompt string }](t, []byte(b)).Prompt; strings.TrimSpace(got) != want {
				t.Errorf("%s: the template wrote %q, want %q", fields, got, want)
			}
		}
	}
}

// Clients choose the names of fields, and an answer does not repeat them without end.
func TestIgnoredNamesAreBounded(t *testing.T) {
	var fields strings.Builder
	for i := range 1000 {
		fmt.Fprintf(&fields, `,"x%d%s":1`, i, strings.Repeat("é", 500))
	}
	url := servetest.Start(t, servetest.Setup{Dir: talftest.ChatModel(t), Parts: servetest.Default()}).URL
	status, _, body := do(t, "POST", url+"/v1/completions", routes["/v1/completions"]+fields.String()+`}`)
	if status != 200 || len(body) > 5000 || !strings.Contains(body, `"x0`+strings.Repeat("é", 31)+`…"`) {
		t.Errorf("%d, %d bytes: %.300s", status, len(body), body)
	}
}

// -1 is as many tokens as there is room for, on every route; 0 is a mistake.
func TestMinusOneIsNoLength(t *testing.T) {
	c := &core{words: []string{"x"}, end: infer.Length}
	_, url := start(t, c, nil)
	for path, body := range routes {
		name := "max_tokens"
		if path == "/v1/responses" {
			name = "max_output_tokens"
		}
		for value, want := range map[string]int{"-1": 0, "-1.0": 0, "null": 0, "7": 7, "0": -1, "-2": -1, `"5"`: -1} {
			if value == "null" && path != "/v1/chat/completions" {
				continue
			}
			status, _, got := do(t, "POST", url+path, strings.Replace(body, `"`+name+`":9`, `"`+name+`":`+value, 1)+`}`)
			if want < 0 {
				if status != 400 || !strings.Contains(got, name) {
					t.Errorf("%s, %s: %d %s", path, value, status, got)
				}
			} else if last := c.jobs[len(c.jobs)-1].Request.MaxTokens; status != 200 || last != want {
				t.Errorf("%s, %s: %d, %d tokens, want %d: %s", path, value, status, last, want, got)
			}
			if path == "/v1/messages" && value == "-1" && !strings.Contains(got, "model_context_window_exceeded") {
				t.Errorf("an answer that ended with the context: %s", got)
			}
		}
	}
}

// What some clients and editors write is read: a mark of the byte order, and a slash at the end of the list.
func TestBodiesMayBeginWithAMark(t *testing.T) {
	c := &core{words: []string{"x"}, end: infer.EOS}
	_, url := start(t, c, nil)
	for path, body := range routes {
		if status, _, got := do(t, "POST", url+path, "\uFEFF"+body+`}`); status != 200 {
			t.Errorf("%s: %d %s", path, status, got)
		}
	}
	if status, _, got := do(t, "POST", url+"/v1/completions", "\uFEFF\uFEFF{}"); status != 400 {
		t.Errorf("two marks: %d %s", status, got)
	}
	_, _, want := do(t, "GET", url+"/v1/models", "")
	if status, _, got := do(t, "GET", url+"/v1/models/", ""); status != 200 || got != want {
		t.Errorf("%d %s, want %s", status, got, want)
	}
}

// Plain decoding lacks no drafts, whatever its rounds cost; and predictions are drafted from beside it.
func TestPlainDecodingHasNoFallbacks(t *testing.T) {
	parts := servetest.Default()
	parts.Methods = []string{"ar", "goose:N=8"}
	url := servetest.Start(t, servetest.Setup{Dir: talftest.ChatModel(t), Parts: parts}).URL
	for _, fields := range []string{``, `,"talf":{"off":true}`, `,"talf":{"method":"ar"}`, `,"n":4`, `,"response_format":{"type":"json_object"}`} {
		status, _, b := do(t, "POST", url+"/v1/chat/completions", `{"messages":[{"role":"user","content":"Hi"}],"max_tokens":60,"ignore_eos":true`+fields+`}`)
		if status != 200 || strings.Contains(b, "fallback") || !strings.Contains(b, `"method":"ar"`) {
			t.Errorf("%s: %d %s", fields, status, b)
		}
	}
}

// Of a prediction that is longer than any answer, what fits is drafted.
func TestLongPredictionsAreCut(t *testing.T) {
	parts := servetest.Default()
	url := servetest.Start(t, servetest.Setup{Dir: talftest.ChatModel(t), Parts: parts}).URL
	status, _, b := do(t, "POST", url+"/v1/completions", fmt.Sprintf(`{"prompt":"Once","max_tokens":20,"prediction":{"type":"content","content":%q}}`, strings.Repeat("a cat and ", 2000)))
	if status != 200 || !strings.Contains(b, "completion_tokens_details") {
		t.Errorf("%d %s", status, b)
	}
}

// llama.cpp's server takes a schema beside json_object; so does every route that has formats.
func TestObjectsMayHaveASchema(t *testing.T) {
	url := servetest.Start(t, servetest.Setup{Dir: longerModel(t), Parts: servetest.Default()}).URL
	const format = `{"type":"json_object","schema":{"type":"object","properties":{"a":{"const":"yes"}},"required":["a"],"additionalProperties":false}}`
	for path, field := range map[string]string{
		"/v1/chat/completions": `"response_format":` + format, "/v1/completions": `"response_format":` + format,
		"/v1/responses": `"text":{"format":` + format + `}`, "/v1/messages": `"output_config":{"format":` + format + `}`,
	} {
		status, _, b := do(t, "POST", url+path, strings.Replace(routes[path], `":9`, `":200`, 1)+`,`+field+`}`)
		text := strings.NewReplacer(" ", "", `\n`, "", `\t`, "").Replace(b) // without the blanks that a grammar allows
		if status != 200 || !strings.Contains(text, `{\"a\":\"yes\"}`) {
			t.Errorf("%s: %d %s", path, status, b)
		}
	}
}

// Answers invent no properties unless the request lets them; and a schema may say so itself.
func TestAnswersInventNoProperties(t *testing.T) {
	url := servetest.Start(t, servetest.Setup{Dir: longerModel(t), Parts: servetest.Default()}).URL
	for _, c := range []struct {
		schema, more string
		invents      bool
	}{
		{`{"type":"object","properties":{"a":{"const":1}},"required":["a"]}`, ``, false},
		{`{"type":"object","properties":{"a":{"const":1}},"required":["a"],"additionalProperties":{"const":2}}`, ``, true},
		{`{"type":"object","properties":{"a":{"const":1}},"required":["a"]}`, `,"structured_outputs":{"disable_additional_properties":false}`, true},
	} {
		most := 0
		for seed := range 8 {
			status, _, b := do(t, "POST", url+"/v1/chat/completions", fmt.Sprintf(`{"messages":[{"role":"user","content":"Hi"}],"max_tokens":120,"temperature":1,"seed":%d,"response_format":{"type":"json_schema","json_schema":{"name":"x","schema":%s}}%s}`, seed, c.schema, c.more))
			if status != 200 {
				t.Fatalf("%d %s", status, b)
			}
			most = max(most, strings.Count(decode[chatAnswer](t, []byte(b)).Choices[0].Message.Content, ":"))
		}
		if (most > 1) != c.invents {
			t.Errorf("%s%s: up to %d properties", c.schema, c.more, most)
		}
	}
}

// No token ends an answer before min_tokens, whatever drafts; the first one that may come is drawn as ever.
func TestAnswersHaveTheirMinTokens(t *testing.T) {
	parts := servetest.Default()
	parts.Methods, parts.Loop.Global = []string{"goose:N=8", "pld"}, false
	url := servetest.Start(t, servetest.Setup{Dir: talftest.ChatModel(t), Parts: parts}).URL
	first := map[string]string{}
	for _, method := range []string{"ar", "goose:N=8", "pld"} {
		for _, least := range []int{0, 1, 7} {
			for _, temperature := range []string{"0", "1"} {
				// Wherever token 300 may come, it does.
				status, _, b := do(t, "POST", url+"/v1/completions", fmt.Sprintf(`{"prompt":"Once upon","max_tokens":30,"min_tokens":%d,"stop_token_ids":[300],"logit_bias":{"300":100},"ignore_eos":true,"seed":4,"temperature":%s,"talf":{"method":%q}}`, least, temperature, method))
				if status != 200 {
					t.Fatalf("%d %s", status, b)
				}
				var got struct {
					Choices []struct {
						Text   string
						Finish string `json:"finish_reason"`
					}
					Usage struct {
						Completion int `json:"completion_tokens"`
					}
				}
				if err := json.Unmarshal([]byte(b), &got); err != nil || got.Usage.Completion != least+1 || got.Choices[0].Finish != "stop" {
					t.Errorf("%s, at least %d: %v %s", method, least, err, b)
				}
				key := fmt.Sprint(least, temperature)
				if text := got.Choices[0].Text; first[key] == "" {
					first[key] = text
				} else if text != first[key] {
					t.Errorf("%s, at least %d: %q, want %q", method, least, text, first[key])
				}
			}
		}
	}
}
