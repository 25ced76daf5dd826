package serve_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"talf/internal/e2e/servetest"
	"talf/internal/e2e/talftest"
	"talf/text/chat"
)

// deltas joins the pieces of a stream. from takes the piece of an event, if it has one.
func deltas(t *testing.T, body string, from func(event []byte) string) string {
	t.Helper()
	var b strings.Builder
	for _, e := range events(body) {
		if e != "[DONE]" {
			b.WriteString(from([]byte(e)))
		}
	}
	return b.String()
}

// decode reads JSON of the tests' own server.
func decode[T any](t *testing.T, b []byte) (v T) {
	t.Helper()
	if err := json.Unmarshal(b, &v); err != nil {
		t.Fatalf("%v: %s", err, b)
	}
	return v
}

// A chatAnswer is what the two older routes say.
type chatAnswer struct {
	Choices []struct {
		Text     string
		Message  struct{ Content string }
		Delta    struct{ Content string }
		Logprobs json.RawMessage
	}
}

// A spelled list has log probabilities as the server wrote them.
type spelled []struct {
	Token   string
	Logprob json.Number
	Top     []struct{ Logprob json.Number } `json:"top_logprobs"`
}

// The same question with the same seed and parameters has the same text on every route, whole and
// streamed, whatever drafts; and where log probabilities can be asked for, they are the same numbers.
func TestRoutesAnswerAlike(t *testing.T) {
	dir := talftest.ChatModel(t)
	parts := servetest.Default()
	var err error
	if parts.Template, err = chat.Load(dir); err != nil {
		t.Fatal(err)
	}
	parts.Methods = []string{"salf:paper,N=12", "goose:N=8"}
	url := servetest.Start(t, servetest.Setup{Dir: dir, Head: talftest.TinyHead(t, dir, 1), Parts: parts}).URL
	post := func(path, body string) []byte {
		t.Helper()
		status, _, b := do(t, "POST", url+path, body)
		if status != 200 {
			t.Fatalf("%s %s: %d %s", path, body, status, b)
		}
		return []byte(b)
	}
	const asked = "Once upon a time?"
	tokens := decode[struct{ Tokens []int32 }](t, post("/tokenize", fmt.Sprintf(`{"messages":[{"role":"user","content":%q}]}`, asked))).Tokens
	ids, err := json.Marshal(tokens)
	if err != nil {
		t.Fatal(err)
	}
	texts := map[string]bool{}
	for _, c := range []struct{ sampling, stop string }{
		{`"temperature":0`, `[]`},
		{`"temperature":0.9,"seed":7,"top_k":30,"top_p":0.95`, `[]`},
		{`"temperature":1,"seed":8,"min_p":0.01,"presence_penalty":0.5,"repetition_penalty":1.1`, `["e","on"]`},
	} {
		want := ""
		var logprobs []spelled
		for _, talf := range []string{`{}`, `{"method":"goose:N=8"}`, `{"off":true}`} {
			common := fmt.Sprintf(`"model":"tiny",%s,"ignore_eos":true,"talf":%s`, c.sampling, talf)
			got := map[string]string{}
			for _, stream := range []bool{false, true} {
				tail := fmt.Sprintf(`,"stream":%v}`, stream)
				whole := !stream
				b := post("/v1/chat/completions", fmt.Sprintf(`{%s,"messages":[{"role":"user","content":%q}],"max_tokens":24,"logprobs":true,"top_logprobs":2,"stop":%s`, common, asked, c.stop)+tail)
				if whole {
					a := decode[chatAnswer](t, b)
					got["chat"] = a.Choices[0].Message.Content
					logprobs = append(logprobs, decode[struct{ Content spelled }](t, a.Choices[0].Logprobs).Content)
				} else {
					got["chat, streamed"] = deltas(t, string(b), func(e []byte) string { return decode[chatAnswer](t, e).Choices[0].Delta.Content })
				}
				b = post("/v1/completions", fmt.Sprintf(`{%s,"prompt":%s,"max_tokens":24,"stop":%s`, common, ids, c.stop)+tail)
				if whole {
					got["completions"] = decode[chatAnswer](t, b).Choices[0].Text
				} else {
					got["completions, streamed"] = deltas(t, string(b), func(e []byte) string { return decode[chatAnswer](t, e).Choices[0].Text })
				}
				b = post("/v1/responses", fmt.Sprintf(`{%s,"input":%q,"max_output_tokens":24,"include":["message.output_text.logprobs"],"top_logprobs":2,"stop":%s`, common, asked, c.stop)+tail)
				type response struct {
					Output []struct {
						Content []struct {
							Text     string
							Logprobs spelled
						}
					}
				}
				if whole {
					a := decode[response](t, b)
					got["responses"] = a.Output[0].Content[0].Text
					logprobs = append(logprobs, a.Output[0].Content[0].Logprobs)
				} else {
					var streamed spelled
					var last response
					got["responses, streamed"] = deltas(t, string(b), func(e []byte) string {
						x := decode[struct {
							Type     string
							Delta    string
							Logprobs spelled
							Response response
						}](t, e)
						if x.Type == "response.output_text.delta" {
							streamed = append(streamed, x.Logprobs...)
						}
						last = x.Response
						return x.Delta
					})
					got["responses, at the end"] = last.Output[0].Content[0].Text
					logprobs = append(logprobs, last.Output[0].Content[0].Logprobs)
					if all := logprobs[len(logprobs)-1]; len(streamed) > len(all) || fmt.Sprint(streamed) != fmt.Sprint(all[:len(streamed)]) {
						t.Errorf("deltas have log probabilities %v, the end %v", streamed, all)
					}
				}
				b = post("/v1/messages", fmt.Sprintf(`{%s,"messages":[{"role":"user","content":%q}],"max_tokens":24,"stop_sequences":%s`, common, asked, c.stop)+tail)
				if whole {
					got["messages"] = decode[struct{ Content []struct{ Text string } }](t, b).Content[0].Text
				} else {
					got["messages, streamed"] = deltas(t, string(b), func(e []byte) string {
						if x := decode[struct{ Delta struct{ Text string } }](t, e); x.Delta.Text != "" {
							return x.Delta.Text
						}
						return ""
					})
				}
			}
			for route, text := range got {
				if want == "" {
					want = text
				}
				if text != want || text == "" {
					t.Errorf("%s, %s, %s: %q, elsewhere %q", route, c.sampling, talf, text, want)
				}
			}
		}
		for _, l := range logprobs {
			if len(l) == 0 || fmt.Sprint(l) != fmt.Sprint(logprobs[0]) {
				t.Errorf("%s: log probabilities %v, elsewhere %v", c.sampling, l, logprobs[0])
			}
		}
		texts[want] = true
	}
	if len(texts) != 3 {
		t.Errorf("%d texts of three samplings", len(texts))
	}
}

// Tokens are those that requests are answered with.
func TestTokensAreSpelledAsTheVocabularyHasThem(t *testing.T) {
	dir := talftest.ChatModel(t)
	parts := servetest.Default()
	var err error
	if parts.Template, err = chat.Load(dir); err != nil {
		t.Fatal(err)
	}
	parts.Methods = []string{"ar"}
	url := servetest.Start(t, servetest.Setup{Dir: dir, Parts: parts}).URL
	type tokens struct {
		Count   int
		Context int `json:"max_model_len"`
		Tokens  []int32
		Pieces  []string `json:"token_strs"`
	}
	ask := func(body string) tokens {
		t.Helper()
		status, _, b := do(t, "POST", url+"/tokenize", body)
		if status != 200 {
			t.Fatalf("%s: %d %s", body, status, b)
		}
		x := decode[tokens](t, []byte(b))
		if x.Count != len(x.Tokens) || x.Context == 0 {
			t.Errorf("%s", b)
		}
		return x
	}
	bare := ask(`{"prompt":"Once upon","add_special_tokens":false,"return_token_strs":true}`)
	full := ask(`{"prompt":"Once upon"}`)
	before := full.Count - bare.Count
	if before < 0 || !slices.Equal(full.Tokens[before:], bare.Tokens) || full.Pieces != nil || len(bare.Pieces) != bare.Count {
		t.Errorf("%+v, with special tokens %+v", bare, full)
	}
	if got := strings.ReplaceAll(strings.Join(bare.Pieces, ""), "Ġ", " "); got != "Once upon" {
		t.Errorf("the pieces are %q", bare.Pieces)
	}
	const messages = `{"messages":[{"role":"user","content":"Hi"}]`
	written := ask(messages + `}`)
	if more := ask(messages + `,"add_special_tokens":true}`); more.Count-written.Count != before || !slices.Equal(more.Tokens[before:], written.Tokens) {
		t.Errorf("a conversation is %v, with special tokens %v", written.Tokens, more.Tokens)
	}
	if open := ask(messages + `,"add_generation_prompt":false}`); open.Count >= written.Count {
		t.Errorf("without the beginning of an answer %v, with it %v", open.Tokens, written.Tokens)
	}
	if empty := ask(`{"prompt":"","add_special_tokens":false}`); empty.Count != 0 {
		t.Errorf("%+v", empty)
	}
	if status, _, b := do(t, "POST", url+"/v1/completions", `{"prompt":"","add_special_tokens":false}`); status != 400 || !strings.Contains(b, `"param":"prompt"`) {
		t.Errorf("%d %s", status, b)
	}
	if status, _, b := do(t, "POST", url+"/v1/messages/count_tokens", `{"model":"m",`+messages[1:]+`}`); status != 200 || b != fmt.Sprintf(`{"input_tokens":%d}`, written.Count) {
		t.Errorf("%d %s, want %d", status, b, written.Count)
	}
	for body, param := range map[string]string{
		messages + `,"tools":[{}]}`: "tools[0].type", messages + `,"chat_template":"{{x}}"}`: "chat_template", messages + `,"continue_final_message":true,"add_generation_prompt":true}`: "continue_final_message",
		`{"prompt":["a","b"]}`: "prompt", `{"prompt":"a","return_token_strs":1}`: "return_token_strs", `{"prompt":"a","add_special_tokens":"x"}`: "add_special_tokens",
	} {
		if status, _, b := do(t, "POST", url+"/tokenize", body); status != 400 || !strings.Contains(b, `"param":"`+param+`"`) {
			t.Errorf("%s: %d %s", body, status, b)
		}
	}
}
