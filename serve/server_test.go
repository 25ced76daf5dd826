package serve_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"talf/infer"
	"talf/infer/draft/predict"
	"talf/infer/trace"
	"talf/internal/await"
	"talf/serve"
	"talf/serve/wire"
	"talf/serve/wire/refuse"
)

// A core answers every prompt with the words that a test gives it.
type core struct {
	words  []string
	end    infer.Reason
	stop   string        // text at which it ended
	fail   error         // after the words
	hold   chan struct{} // Next waits for it before the last word
	refuse *refuse.Error // of Submit
	prefix func() int    // how much of each prompt has been read; nil: all

	mu     sync.Mutex
	jobs   []serve.Job
	opened int
	closed int
	holds  int // calls of Next that wait
}

func (c *core) Context() int { return 64 }

func (c *core) Encode(_ context.Context, p *wire.Prompt) ([]int32, *refuse.Error) {
	switch {
	case p.Tokens != nil:
		return p.Tokens, nil
	case p.Conversation != nil:
		return make([]int32, 3), nil
	}
	return make([]int32, len(strings.Fields(p.Text))), nil
}

func (c *core) Decode(tokens []int32) (string, *refuse.Error) { return fmt.Sprint(tokens), nil }
func (c *core) Predict(text string) (*predict.Text, *refuse.Error) {
	return predict.New(make([]int32, len(strings.Fields(text)))), nil
}
func (c *core) Spell(id int32) []byte { return []byte{byte(id)} }
func (c *core) Piece(id int32) string { return fmt.Sprintf("t%d", id) }
func (c *core) Version() string       { return "v" }

func (c *core) Submit(_ context.Context, j serve.Job) (serve.Answer, *refuse.Error) {
	if c.refuse != nil {
		return nil, c.refuse
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.jobs = append(c.jobs, j)
	c.opened++
	return &answer{c: c, stats: infer.Stats{Prompt: len(j.Prompt), Cached: 1, Tokens: len(c.words), Passes: 2}}, nil
}

func (c *core) open() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.opened - c.closed
}

// held is the number of readers that wait for a last word.
func (c *core) held() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.holds
}

// ever is the number of answers that were opened.
func (c *core) ever() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.opened
}

type answer struct {
	c     *core
	i     int
	stats infer.Stats
}

func (a *answer) Next(ctx context.Context) (infer.Delta, error) {
	if a.c.hold != nil && a.i == len(a.c.words)-1 {
		a.c.mu.Lock()
		a.c.holds++
		a.c.mu.Unlock()
		select {
		case <-a.c.hold:
		case <-ctx.Done():
			return infer.Delta{}, ctx.Err()
		}
	}
	if a.i == len(a.c.words) {
		if a.c.fail != nil {
			return infer.Delta{}, a.c.fail
		}
		return infer.Delta{Reason: a.c.end, Stop: a.c.stop}, nil
	}
	a.i++
	return infer.Delta{Tokens: []int32{int32(a.i)}, Text: a.c.words[a.i-1]}, nil
}

func (a *answer) PromptRead() int {
	if a.c.prefix == nil {
		return a.stats.Prompt
	}
	return a.c.prefix()
}

func (a *answer) Stats() *infer.Stats { return &a.stats }
func (a *answer) Drafting() *wire.Drafting {
	return &wire.Drafting{Method: "goose", Rounds: 2, Tau: 1.5}
}

func (a *answer) Predicted() wire.Predicted { return wire.Predicted{Accepted: 2, Rejected: 3} }

func (a *answer) Close() {
	a.c.mu.Lock()
	defer a.c.mu.Unlock()
	a.c.closed++
}

func start(t *testing.T, c serve.Core, change func(*serve.Config)) (*serve.Server, string) {
	t.Helper()
	conf := serve.Default()
	conf.Names, conf.Now = []string{"tiny", "alias"}, func() time.Time { return time.Unix(7, 0) }
	if change != nil {
		change(&conf)
	}
	s, err := serve.New(c, conf)
	if err != nil {
		t.Fatal(err)
	}
	h := httptest.NewServer(s)
	t.Cleanup(h.Close)
	return s, h.URL
}

func do(t *testing.T, method, url, body string, headers ...string) (int, http.Header, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	if host := r.Header.Get("Host"); host != "" {
		r.Host = host // the header alone is not sent
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, resp.Header, string(b)
}

const chatBody = `{"messages":[{"role":"user","content":"Hi"}],"model":"alias"`

func TestAnswersAreWhole(t *testing.T) {
	c := &core{words: []string{"Hello", " there"}, end: infer.EOS}
	_, url := start(t, c, nil)
	status, _, body := do(t, "POST", url+"/v1/chat/completions", chatBody+`,"n":2,"seed":5}`)
	var got struct {
		ID, Object, Model string
		Created           int
		Fingerprint       string `json:"system_fingerprint"`
		Choices           []struct {
			Index   int
			Message struct{ Role, Content string }
			Finish  string `json:"finish_reason"`
			Talf    wire.Drafting
		}
		Usage struct {
			Prompt int `json:"prompt_tokens"`
			Answer int `json:"completion_tokens"`
			Total  int `json:"total_tokens"`
			Parts  struct {
				Cached int `json:"cached_tokens"`
			} `json:"prompt_tokens_details"`
		}
	}
	if err := json.Unmarshal([]byte(body), &got); err != nil || status != 200 {
		t.Fatalf("%d %v %s", status, err, body)
	}
	if got.Object != "chat.completion" || !strings.HasPrefix(got.ID, "chatcmpl-") || got.Created != 7 || got.Model != "alias" || got.Fingerprint != "v" || len(got.Choices) != 2 {
		t.Errorf("%s", body)
	}
	for i, x := range got.Choices {
		if x.Index != i || x.Message.Role != "assistant" || x.Message.Content != "Hello there" || x.Finish != "stop" || x.Talf.Tau != 1.5 {
			t.Errorf("%+v", x)
		}
	}
	if u := got.Usage; u.Prompt != 3 || u.Answer != 4 || u.Total != 7 || u.Parts.Cached != 1 {
		t.Errorf("usage %+v: the prompt counts once", u)
	}
	if len(c.jobs) != 2 || c.jobs[0].Seed != 5 || c.jobs[1].Seed == 5 || c.open() != 0 {
		t.Errorf("jobs %+v, %d open", c.jobs, c.open())
	}
	// What was predicted in vain counts as part of the answer.
	if _, _, body = do(t, "POST", url+"/v1/chat/completions", chatBody+`,"n":2,"prediction":{"type":"content","content":"Hello you"}}`); !strings.Contains(body,
		`"completion_tokens":10,"total_tokens":13,"prompt_tokens_details":{"cached_tokens":1},"completion_tokens_details":{"accepted_prediction_tokens":4,"rejected_prediction_tokens":6}}`) {
		t.Errorf("%s", body)
	}
	if x := c.jobs[len(c.jobs)-2:]; x[0].Prediction.Len() != 2 || x[0].Prediction != x[1].Prediction {
		t.Errorf("jobs %+v: want one prediction for both", x)
	}
	c.jobs = c.jobs[:2]
	c.end = infer.Length
	_, _, body = do(t, "POST", url+"/v1/completions", `{"prompt":["a b","c"],"echo":true}`)
	if !strings.Contains(body, `"text":"a bHello there"`) || !strings.Contains(body, `"text":"cHello there"`) || !strings.Contains(body, `"finish_reason":"length"`) {
		t.Errorf("%s", body)
	}
	if _, _, body = do(t, "POST", url+"/v1/completions", `{"prompt":[4,5],"echo":true}`); !strings.Contains(body, `"text":"[4 5]Hello there"`) {
		t.Errorf("tokens are not echoed: %s", body)
	}
	if c.jobs[2].Seed == c.jobs[3].Seed || c.jobs[2].Seed == 0 {
		t.Errorf("seeds %d and %d: want random ones", c.jobs[2].Seed, c.jobs[3].Seed)
	}
}

// fields returns the values of a field of a stream's events.
func fields(body, name string) (out []string) {
	for line := range strings.SplitSeq(body, "\n") {
		if value, ok := strings.CutPrefix(line, name+": "); ok {
			out = append(out, value)
		}
	}
	return out
}

func events(body string) []string { return fields(body, "data") }

func TestAnswersAreStreamed(t *testing.T) {
	c := &core{words: []string{"Hello", " there"}, end: infer.EOS}
	_, url := start(t, c, nil)
	status, h, body := do(t, "POST", url+"/v1/chat/completions", chatBody+`,"stream":true,"stream_options":{"include_usage":true}}`)
	es := events(body)
	if status != 200 || h.Get("Content-Type") != "text/event-stream" || len(es) != 6 || es[5] != "[DONE]" {
		t.Fatalf("%d\n%s", status, body)
	}
	for i, want := range []string{
		`"delta":{"role":"assistant","content":""}`, `"delta":{"content":"Hello"},"logprobs":null,"finish_reason":null`, `"delta":{"content":" there"}`,
		`"delta":{},"logprobs":null,"finish_reason":"stop","talf":{`, `"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":2`,
	} {
		if !strings.Contains(es[i], want) {
			t.Errorf("event %d is %s, want %s", i, es[i], want)
		}
	}
	// Several choices are all whole, in pieces of any order.
	_, _, body = do(t, "POST", url+"/v1/completions", `{"prompt":"a","n":3,"stream":true,"echo":true}`)
	texts := map[int]string{}
	for _, e := range events(body) {
		var got struct {
			Choices []struct {
				Index int
				Text  string
			}
		}
		if json.Unmarshal([]byte(e), &got) == nil {
			texts[got.Choices[0].Index] += got.Choices[0].Text
		}
	}
	if len(texts) != 3 || texts[0] != "aHello there" || texts[1] != texts[0] || texts[2] != texts[0] {
		t.Errorf("%v", texts)
	}
	if c.open() != 0 {
		t.Errorf("%d answers are open", c.open())
	}
}

// A tracedCore answers as core does, with a round for each word.
type tracedCore struct{ *core }

func (c tracedCore) Submit(ctx context.Context, j serve.Job) (serve.Answer, *refuse.Error) {
	a, bad := c.core.Submit(ctx, j)
	if bad != nil {
		return nil, bad
	}
	return &tracedAnswer{Answer: a, asked: j.Request.Draft.Trace}, nil
}

type tracedAnswer struct {
	serve.Answer
	asked bool

	mu     sync.Mutex
	rounds []trace.Numbered
	number int
}

func (a *tracedAnswer) Next(ctx context.Context) (infer.Delta, error) {
	d, err := a.Answer.Next(ctx)
	if d.Text != "" {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.number++
		a.rounds = append(a.rounds, trace.Numbered{Round: a.number, After: 1500 * time.Millisecond, Step: &trace.Step{
			Nodes: []trace.Node{{Parent: -1}}, Path: []int{0}, Next: trace.Token{ID: 5, Text: d.Text}, Kept: 1, Draw: "chosen",
		}})
	}
	return d, err
}

func (a *tracedAnswer) Rounds() []trace.Numbered {
	if !a.asked {
		panic("rounds of a request that did not ask")
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	rounds := a.rounds
	a.rounds = nil
	return rounds
}

// Each round of a traced answer is an event of its own, not later than the text that it adds;
// other answers have none.
func TestTracedAnswersHaveTheirRounds(t *testing.T) {
	c := tracedCore{&core{words: []string{"<b>", " there"}, end: infer.EOS}}
	_, url := start(t, c, nil)
	for path, ask := range map[string]string{"/v1/chat/completions": chatBody, "/v1/completions": `{"prompt":"a"`} {
		_, _, body := do(t, "POST", url+path, ask+`,"stream":true,"talf":{"trace":true}}`)
		es := events(body)
		var spelt, text string
		for i, e := range es[:len(es)-1] {
			var got struct {
				Choices []struct {
					Text   string
					Delta  struct{ Role, Content string }
					Finish string `json:"finish_reason"`
					Talf   struct {
						Number  int
						Seconds float64
						Round   *trace.Step
						Method  string
					}
				}
			}
			if err := json.Unmarshal([]byte(e), &got); err != nil || len(got.Choices) != 1 {
				t.Fatalf("%v: %s", err, e)
			}
			x := got.Choices[0]
			text += x.Text + x.Delta.Content
			if r := x.Talf.Round; r != nil {
				spelt += r.Next.Text
				if x.Text+x.Delta.Content+x.Delta.Role != "" || x.Finish != "" || x.Talf.Method != "" || x.Talf.Seconds != 1.5 || x.Talf.Number != 1+strings.Count(spelt, " ") || len(r.Nodes) != 1 {
					t.Errorf("%s", e)
				}
			}
			if !strings.HasPrefix(spelt, text) {
				t.Errorf("%q before its round", text)
			}
			if last := i == len(es)-2; last != (x.Talf.Method == "goose") || last != (x.Finish == "stop") {
				t.Errorf("event %d of %d: %s", i, len(es), e)
			}
		}
		if text != "<b> there" || spelt != text {
			t.Errorf("%q in rounds that spell %q", text, spelt)
		}
		if _, _, body := do(t, "POST", url+path, ask+`,"stream":true}`); strings.Contains(body, `"round":`) {
			t.Errorf("rounds that nobody asked for: %s", body)
		}
		if status, _, body := do(t, "POST", url+path, ask+`,"talf":{"trace":true}}`); status != 400 || !strings.Contains(body, `"param":"talf.trace"`) {
			t.Errorf("a trace without a stream: %d %s", status, body)
		}
	}
}

func TestSilentStreamsPing(t *testing.T) {
	c := &core{words: []string{"Hello"}, end: infer.EOS, hold: make(chan struct{})}
	_, url := start(t, c, func(conf *serve.Config) { conf.PingTime = 5 * time.Millisecond })
	resp, err := http.Post(url+"/v1/completions", "application/json", strings.NewReader(`{"prompt":"a","stream":true}`))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	in := bufio.NewReader(resp.Body)
	for range 4 {
		if line, err := in.ReadString('\n'); err != nil || line != ": ping\n" && line != "\n" {
			t.Fatalf("%q, %v", line, err)
		}
	}
	close(c.hold)
	rest, err := io.ReadAll(in)
	if err != nil || !strings.Contains(string(rest), "Hello") || !strings.HasSuffix(string(rest), "data: [DONE]\n\n") {
		t.Errorf("%s, %v", rest, err)
	}
}

func TestAnswersThatFailSaySo(t *testing.T) {
	c := &core{words: []string{"Hello"}, fail: errors.New("/srv/model.gguf: layer 3 is not finite")}
	_, url := start(t, c, nil)
	if status, _, body := do(t, "POST", url+"/v1/completions", `{"prompt":"a"}`); status != 500 || !strings.Contains(body, "the server's log says why") || strings.Contains(body, "/srv") {
		t.Errorf("%d %s", status, body)
	}
	_, _, body := do(t, "POST", url+"/v1/completions", `{"prompt":"a","stream":true}`)
	if es := events(body); len(es) != 2 || !strings.Contains(es[1], `{"error":{"message":"the answer failed; the server's log says why"`) {
		t.Errorf("%s", body)
	}
	c.refuse = refuse.Busy("the queue of %d is full", 4)
	status, h, body := do(t, "POST", url+"/v1/completions", `{"prompt":"a","n":2,"stream":true}`)
	if status != 429 || h.Get("Retry-After") == "" || !strings.Contains(body, "queue of 4") {
		t.Errorf("%d %s", status, body)
	}
	if c.open() != 0 {
		t.Errorf("%d answers are open", c.open())
	}
}

// A client that goes away, or a request that takes too long, takes its answers with it.
func TestRequestsEndWithTheirClient(t *testing.T) {
	for _, stream := range []bool{false, true} {
		c := &core{words: []string{"Hello", "x"}, hold: make(chan struct{})}
		_, url := start(t, c, nil)
		ctx, cancel := context.WithCancel(t.Context())
		r, err := http.NewRequestWithContext(ctx, "POST", url+"/v1/completions", strings.NewReader(fmt.Sprintf(`{"prompt":"a","n":2,"stream":%v}`, stream)))
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan error)
		go func() {
			resp, err := http.DefaultClient.Do(r)
			if err == nil {
				_, err = io.ReadAll(resp.Body)
				_ = resp.Body.Close()
			}
			done <- err
		}()
		await.Until(t, "two answers", func() bool { return c.open() == 2 })
		cancel()
		if err := <-done; err == nil {
			t.Error("a cancelled request has an answer")
		}
		await.Until(t, "the end of the answers", func() bool { return c.open() == 0 })
		c = &core{words: []string{"x"}, hold: make(chan struct{})}
		_, url = start(t, c, func(conf *serve.Config) { conf.MaxTime = 20 * time.Millisecond })
		if _, _, body := do(t, "POST", url+"/v1/completions", fmt.Sprintf(`{"prompt":"a","stream":%v}`, stream)); !strings.Contains(body, "took too long") {
			t.Errorf("%s", body)
		}
	}
}

func TestBadRequestsGetOneClearError(t *testing.T) {
	c := &core{words: []string{"x"}, end: infer.EOS}
	s, url := start(t, c, func(conf *serve.Config) { conf.MaxBody = 1000 })
	for _, x := range []struct {
		method, path, body string
		status             int
		want               string
	}{
		{"POST", "/v1/completions", `{"prompt":"a","n":0}`, 400, `"param":"n"`},
		{"POST", "/v1/completions", `nonsense`, 400, "want a JSON object"},
		{"POST", "/v1/completions", `{"prompt":"` + strings.Repeat("a", 1000) + `"}`, 413, "1000 bytes"},
		{"POST", "/v1/completions", `{"prompt":"` + strings.Repeat("a ", 100) + `"}`, 400, "context_length_exceeded"},
		{"GET", "/v1/models/other", "", 404, "model_not_found"},
		{"GET", "/v1/nothing", "", 404, "unknown_url"},
		{"GET", "/../etc/passwd", "", 404, "unknown_url"},
		{"GET", "/v1/completions", "", 405, "GET is not allowed for /v1/completions, want POST"},
		{"DELETE", "/v1/models", "", 405, "DELETE is not allowed for /v1/models, want GET"},
		{"POST", "/tokenize", `{}`, 400, `"param":"prompt"`},
		{"POST", "/detokenize", `{}`, 400, `"param":"tokens"`},
		{"POST", "/detokenize", `{"tokens":[1` + strings.Repeat(",1", 64) + `]}`, 400, "65 tokens, want at most the model's context of 64"},
	} {
		status, h, body := do(t, x.method, url+x.path, x.body)
		if status != x.status || !strings.Contains(body, x.want) || !strings.HasPrefix(body, `{"error":{"message":`) || h.Get("Content-Type") != "application/json" {
			t.Errorf("%s %s: %d %s, want %d with %q", x.method, x.path, status, body, x.status, x.want)
		}
	}
	for path, want := range map[string]string{
		"/v1/models": `"id":"tiny"`, "/v1/models/alias": `"root":"tiny"`, "/health": "{}", "/ready": "ready", "/version": `"go`,
	} {
		if status, _, body := do(t, "GET", url+path, ""); status != 200 || !strings.Contains(body, want) {
			t.Errorf("%s: %d %s, want %s", path, status, body, want)
		}
	}
	if _, _, body := do(t, "POST", url+"/tokenize", `{"prompt":"a b"}`); body != `{"count":2,"max_model_len":64,"tokens":[0,0],"token_strs":null}` {
		t.Error(body)
	}
	if _, _, body := do(t, "POST", url+"/detokenize", `{"tokens":[1,2]}`); body != `{"prompt":"[1 2]"}` {
		t.Error(body)
	}
	for method, path := range map[string]string{"POST": "/v1/models", "OPTIONS": "/v1/completions", "PUT": "/health"} {
		want := "GET, HEAD"
		if path == "/v1/completions" {
			want = "POST"
		}
		if status, h, _ := do(t, method, url+path, ""); status != 405 || h.Get("Allow") != want {
			t.Errorf("%s %s: %d, allowed is %q, want %q", method, path, status, h.Get("Allow"), want)
		}
	}
	for coding, want := range map[string]int{"gzip": 415, "identity": 200} {
		if status, _, body := do(t, "POST", url+"/tokenize", `{"prompt":"a b"}`, "Content-Encoding", coding); status != want || status == 415 && !strings.Contains(body, "gzip") {
			t.Errorf("a body in %s: %d %s", coding, status, body)
		}
	}
	s.Drain()
	for method, path := range map[string]string{"GET": "/ready", "POST": "/v1/completions"} {
		if status, h, _ := do(t, method, url+path, `{"prompt":"a"}`); status != 503 || h.Get("Retry-After") == "" {
			t.Errorf("%s while draining: %d", path, status)
		}
	}
	if status, _, _ := do(t, "GET", url+"/health", ""); status != 200 {
		t.Errorf("health while draining: %d", status)
	}
}

func TestKeysAndOrigins(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keys")
	if err := os.WriteFile(path, []byte("secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	keys, err := serve.LoadKeys(path)
	if err != nil {
		t.Fatal(err)
	}
	c := &core{words: []string{"x"}, end: infer.EOS}
	_, url := start(t, c, func(conf *serve.Config) { conf.Keys, conf.Origins = keys, []string{"http://ok"} })
	for path, method := range map[string]string{"/v1/models": "GET", "/v1/completions": "POST", "/tokenize": "POST", "/version": "GET", "/v1/models/tiny": "GET"} {
		if status, h, body := do(t, method, url+path, ""); status != 401 || h.Get("WWW-Authenticate") == "" || strings.Contains(body, "secret") {
			t.Errorf("%s: %d %s", path, status, body)
		}
	}
	if status, _, _ := do(t, "GET", url+"/health", ""); status != 200 {
		t.Errorf("health: %d", status)
	}
	if status, _, body := do(t, "POST", url+"/v1/completions", `{"prompt":"a"}`, "Authorization", "Bearer secret"); status != 200 {
		t.Errorf("%d %s", status, body)
	}
	if c.jobs[0].Tenant == "" || strings.Contains(c.jobs[0].Tenant, "secret") {
		t.Errorf("tenant %q", c.jobs[0].Tenant)
	}
	for origin, want := range map[string]string{"http://evil": "", "": "", "http://ok": "http://ok"} {
		if _, h, _ := do(t, "GET", url+"/health", "", "Origin", origin); h.Get("Access-Control-Allow-Origin") != want || h.Get("Vary") != "Origin" {
			t.Errorf("origin %q: %v", origin, h)
		}
	}
	status, h, _ := do(t, "OPTIONS", url+"/v1/completions", "", "Origin", "http://ok", "Access-Control-Request-Method", "POST", "Access-Control-Request-Headers", "anthropic-version,x-stainless-lang")
	if status != 204 || h.Get("Access-Control-Allow-Headers") != "anthropic-version,x-stainless-lang" || h.Get("Access-Control-Allow-Origin") != "http://ok" || h.Get("Access-Control-Allow-Credentials") != "" {
		t.Errorf("%d %v", status, h)
	}
	if _, h, _ := do(t, "GET", url+"/health", "", "X-Request-Id", "mine"); h.Get("X-Request-Id") != "mine" {
		t.Error("the request's own id is lost")
	}
	if _, h, _ := do(t, "GET", url+"/health", "", "X-Request-Id", strings.Repeat("x", 200)); len(h.Get("X-Request-Id")) > 128 {
		t.Error("an endless id is kept")
	}
}

// The page needs no key, what it asks for does, and it can be left out.
func TestThePlaygroundIsOpen(t *testing.T) {
	keys, err := serve.OpenKeys("", "secret")
	if err != nil {
		t.Fatal(err)
	}
	c := &core{words: []string{"x"}, end: infer.EOS}
	_, url := start(t, c, func(conf *serve.Config) { conf.Keys, conf.Methods = keys, []string{"goose", "ar"} })
	for _, path := range []string{"/", "/playground", "/playground/app.js"} {
		if status, h, body := do(t, "GET", url+path, ""); status != 200 || h.Get("Content-Security-Policy") == "" || body == "" {
			t.Errorf("%s: %d %v", path, status, h)
		}
	}
	if status, _, _ := do(t, "GET", url+"/v1/models", ""); status != 401 {
		t.Errorf("models without a key: %d", status)
	}
	if _, _, body := do(t, "GET", url+"/v1/models", "", "Authorization", "Bearer secret"); !strings.Contains(body, `"talf":{"methods":["goose","ar"]}`) {
		t.Errorf("%s", body)
	}
	_, url = start(t, c, func(conf *serve.Config) { conf.NoPlayground = true })
	for _, path := range []string{"/", "/playground", "/playground/app.js"} {
		if status, _, body := do(t, "GET", url+path, ""); status != 404 || !strings.Contains(body, "unknown_url") {
			t.Errorf("%s: %d %s", path, status, body)
		}
	}
}

// A bug in one request is one response of 500.
func TestAPanicIsOneResponse(t *testing.T) {
	_, url := start(t, exploding{&core{}}, nil)
	if status, _, body := do(t, "POST", url+"/v1/completions", `{"prompt":"a"}`); status != 500 || !strings.Contains(body, "req-") || strings.Contains(body, "oh no") {
		t.Errorf("%d %s", status, body)
	}
	if status, _, _ := do(t, "GET", url+"/health", ""); status != 200 {
		t.Error("the server is gone")
	}
}

type exploding struct{ *core }

func (exploding) Encode(context.Context, *wire.Prompt) ([]int32, *refuse.Error) { panic("oh no") }
