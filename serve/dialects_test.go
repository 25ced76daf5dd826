package serve_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"talf/infer"
	"talf/serve"
	"talf/serve/wire/refuse"
)

// routes are bodies of one question to every route that answers, less the closing brace.
var routes = map[string]string{
	"/v1/chat/completions": `{"model":"tiny","messages":[{"role":"user","content":"Hi"}],"max_tokens":9`,
	"/v1/completions":      `{"model":"tiny","prompt":"a b c","max_tokens":9`,
	"/v1/responses":        `{"model":"tiny","input":"Hi","max_output_tokens":9`,
	"/v1/messages":         `{"model":"tiny","messages":[{"role":"user","content":"Hi"}],"max_tokens":9`,
}

// names returns the names of a stream's events, and of pings.
func names(body string) []string { return fields(body, "event") }

// Every route asks the same of the core, and gives all of its answer.
func TestRoutesAskAlike(t *testing.T) {
	c := &core{words: []string{"Hello", " there"}, end: infer.EOS}
	_, url := start(t, c, nil)
	for path, body := range routes {
		for _, stream := range []bool{false, true} {
			status, h, got := do(t, "POST", url+path, fmt.Sprintf(`%s,"seed":5,"temperature":0.5,"top_k":3,"stream":%v}`, body, stream))
			if status != 200 || !strings.Contains(got, "Hello") || !strings.Contains(got, " there") {
				t.Errorf("%s: %d %s", path, status, got)
			}
			if want := map[bool]string{false: "application/json", true: "text/event-stream"}[stream]; h.Get("Content-Type") != want {
				t.Errorf("%s: %s, want %s", path, h.Get("Content-Type"), want)
			}
		}
	}
	for _, j := range c.jobs {
		if r := j.Request; j.Seed != 5 || r.MaxTokens != 9 || r.Sample.Temperature != 0.5 || r.Sample.TopK != 3 || len(j.Prompt) != 3 {
			t.Errorf("%+v of seed %d", r, j.Seed)
		}
	}
	if len(c.jobs) != 8 || c.open() != 0 {
		t.Errorf("%d jobs, %d open", len(c.jobs), c.open())
	}
}

func TestStreamsHaveTheEventsOfTheirDialect(t *testing.T) {
	c := &core{words: []string{"Hello", " there"}, end: infer.EOS}
	_, url := start(t, c, nil)
	for path, want := range map[string][]string{
		"/v1/responses": {
			"response.created", "response.in_progress", "response.output_item.added", "response.content_part.added", "response.output_text.delta",
			"response.output_text.delta", "response.output_text.done", "response.content_part.done", "response.output_item.done", "response.completed",
		},
		"/v1/messages": {"message_start", "content_block_start", "ping", "content_block_delta", "content_block_delta", "content_block_stop", "message_delta", "message_stop"},
	} {
		_, _, body := do(t, "POST", url+path, routes[path]+`,"stream":true}`)
		if got := names(body); strings.Join(got, " ") != strings.Join(want, " ") {
			t.Errorf("%s: %v, want %v", path, got, want)
		}
	}
	c.end = infer.Length
	if _, _, body := do(t, "POST", url+"/v1/responses", routes["/v1/responses"]+`,"stream":true}`); !strings.Contains(body, "event: response.incomplete") {
		t.Error(body)
	}
	c.fail = refuse.Unavailable("the loop is gone")
	c.end = ""
	for path, want := range map[string]string{"/v1/responses": "response.failed", "/v1/messages": "error"} {
		_, _, body := do(t, "POST", url+path, routes[path]+`,"stream":true}`)
		if got := names(body); got[len(got)-1] != want || !strings.Contains(body, "the loop is gone") {
			t.Errorf("%s: %v, want %s at the end: %s", path, got, want, body)
		}
	}
}

// A stop text that the request asked for is named; one that the server adds is an end like any other.
func TestMessagesNameTheirStopText(t *testing.T) {
	c := &core{words: []string{"Hello"}, end: infer.Stop, stop: "\n\n"}
	_, url := start(t, c, nil)
	for stops, want := range map[string]string{
		`["x","\n\n"]`: `"stop_reason":"stop_sequence","stop_sequence":"\n\n"`,
		`[]`:           `"stop_reason":"end_turn","stop_sequence":null`,
	} {
		for _, stream := range []string{"true", "false"} {
			if _, _, body := do(t, "POST", url+"/v1/messages", routes["/v1/messages"]+`,"stop_sequences":`+stops+`,"stream":`+stream+`}`); !strings.Contains(body, want) {
				t.Errorf("%s without %s", body, want)
			}
		}
	}
}

// On Anthropic's routes errors have Anthropic's shape, whatever they are.
func TestErrorsOfMessagesHaveTheirOwnShape(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keys")
	if err := os.WriteFile(path, []byte("secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	keys, err := serve.LoadKeys(path)
	if err != nil {
		t.Fatal(err)
	}
	c := &core{words: []string{"x"}, end: infer.EOS}
	s, url := start(t, c, func(conf *serve.Config) { conf.Keys, conf.MaxBody = keys, 1000 })
	check := func(method, path, body, kind string, status int, headers ...string) {
		t.Helper()
		got, h, b := do(t, method, url+path, body, headers...)
		var e struct {
			Type  string
			Error struct{ Type, Message string }
			ID    string `json:"request_id"`
		}
		if err := json.Unmarshal([]byte(b), &e); err != nil || got != status || e.Type != "error" || e.Error.Type != kind || e.Error.Message == "" || e.ID != h.Get("Request-Id") || e.ID == "" {
			t.Errorf("%s %s: %d %s, want %d %s", method, path, got, b, status, kind)
		}
	}
	key := []string{"X-Api-Key", "secret", "Anthropic-Version", "2023-06-01"}
	check("POST", "/v1/messages", `{}`, "authentication_error", 401)
	check("POST", "/v1/messages/count_tokens", `{}`, "authentication_error", 401, "X-Api-Key", "wrong")
	check("POST", "/v1/messages", `{"max_tokens":5}`, "invalid_request_error", 400, key...)
	check("POST", "/v1/messages/count_tokens", `{"model":"m"}`, "invalid_request_error", 400, key...)
	check("POST", "/v1/messages", `{"x":"`+strings.Repeat("a", 1000)+`"}`, "request_too_large", 413, key...)
	check("POST", "/v1/messages/batches", `{}`, "not_found_error", 404, key...)
	check("GET", "/v1/messages", ``, "invalid_request_error", 405, key...)
	if status, _, body := do(t, "POST", url+"/v1/messages", routes["/v1/messages"]+`}`, key...); status != 200 {
		t.Errorf("%d %s", status, body)
	}
	if status, _, body := do(t, "POST", url+"/v1/messages/count_tokens?beta=true", `{"model":"m","messages":[{"role":"user","content":"Hi"}]}`, key...); status != 200 || body != `{"input_tokens":3}` {
		t.Errorf("%d %s", status, body)
	}
	c.refuse = refuse.Busy("the queue is full")
	check("POST", "/v1/messages", routes["/v1/messages"]+`}`, "rate_limit_error", 429, key...)
	s.Drain()
	check("POST", "/v1/messages", routes["/v1/messages"]+`}`, "overloaded_error", 503, key...)
}

// What one answer to a prompt finds in the cache counts; its siblings find what it has put there.
func TestCachedTokensAreNoMoreThanThePrompts(t *testing.T) {
	c := &core{words: []string{"x"}, end: infer.EOS}
	_, url := start(t, c, nil)
	for body, want := range map[string]string{
		`{"prompt":"a b","n":3}`:           `"prompt_tokens":2,"completion_tokens":3,"total_tokens":5,"prompt_tokens_details":{"cached_tokens":1}`,
		`{"prompt":["a b","c d e"],"n":2}`: `"prompt_tokens":5,"completion_tokens":4,"total_tokens":9,"prompt_tokens_details":{"cached_tokens":2}`,
		`{"prompt":"a b","n":2,"stream":true,"stream_options":{"include_usage":true}}`: `"prompt_tokens_details":{"cached_tokens":1}`,
	} {
		if _, _, got := do(t, "POST", url+"/v1/completions", body); !strings.Contains(got, want) {
			t.Errorf("%s: %s, want %s", body, got, want)
		}
	}
	for path, want := range map[string]string{
		"/v1/chat/completions": `"prompt_tokens":3,"completion_tokens":1,"total_tokens":4,"prompt_tokens_details":{"cached_tokens":1}`,
		"/v1/responses":        `"input_tokens":3,"input_tokens_details":{"cache_write_tokens":0,"cached_tokens":1},"output_tokens":1`,
		"/v1/messages":         `"cache_read_input_tokens":1,"inference_geo":null,"input_tokens":2,"output_tokens":1`,
	} {
		if _, _, got := do(t, "POST", url+path, routes[path]+`}`); !strings.Contains(got, want) {
			t.Errorf("%s: %s, want %s", path, got, want)
		}
	}
}

// A stream that waits says so in the way of its dialect.
func TestEveryDialectPings(t *testing.T) {
	for path, ping := range map[string]string{
		"/v1/chat/completions": ": ping\n\n", "/v1/completions": ": ping\n\n", "/v1/responses": ": ping\n\n", "/v1/messages": "event: ping\ndata: {\"type\":\"ping\"}\n\n",
	} {
		c := &core{words: []string{"Hello"}, end: infer.EOS, hold: make(chan struct{})}
		_, url := start(t, c, func(conf *serve.Config) { conf.PingTime = 2 * time.Millisecond })
		resp, err := http.Post(url+path, "application/json", strings.NewReader(routes[path]+`,"stream":true}`))
		if err != nil {
			t.Fatal(err)
		}
		var got strings.Builder
		b := make([]byte, 512)
		for strings.Count(got.String(), ping) < 3 {
			n, err := resp.Body.Read(b)
			if err != nil {
				t.Fatalf("%s: %v after %s", path, err, got.String())
			}
			got.Write(b[:n])
		}
		close(c.hold)
		if err := resp.Body.Close(); err != nil {
			t.Error(err)
		}
	}
}
