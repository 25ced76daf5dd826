package serve_test

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"talf/infer"
	"talf/infer/loop"
	"talf/internal/await"
	"talf/internal/e2e/talftest"
	"talf/serve"
	"talf/serve/metrics"
	"talf/serve/wire/refuse"
)

// requests returns the lines of requests in a server's log, once there are n: a line is written after
// its response.
func requests(t *testing.T, log *talftest.Log, n int) (out []map[string]any, text string) {
	t.Helper()
	await.Until(t, fmt.Sprint(n, " lines of requests"), func() bool {
		text = log.String()
		return strings.Count(text, `"msg":"request"`) >= n
	})
	for line := range strings.Lines(text) {
		var m map[string]any
		if err := json.Unmarshal([]byte(line), &m); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		if m["msg"] == "request" {
			out = append(out, m)
		}
	}
	if len(out) != n {
		t.Fatalf("%d lines of requests, want %d:\n%s", len(out), n, text)
	}
	return out, text
}

// startLogged serves with metrics and a log in JSON.
func startLogged(t *testing.T, c serve.Core, change func(*serve.Config)) (url string, log *talftest.Log) {
	t.Helper()
	log = &talftest.Log{}
	_, url = start(t, c, func(conf *serve.Config) {
		conf.Log = slog.New(slog.NewJSONHandler(log, nil))
		conf.Metrics = metrics.New(metrics.Config{Model: "tiny", Stats: func() loop.Stats { return loop.Stats{} }})
		if change != nil {
			change(conf)
		}
	})
	return url, log
}

func TestARequestIsOneLineOfTheLog(t *testing.T) {
	c := &core{words: []string{"secret-answer", " there"}, end: infer.EOS}
	url, log := startLogged(t, c, nil)
	const body = `{"prompt":["secret-prompt b","c"],"n":2,"user":"secret-user"}`
	do(t, "POST", url+"/v1/completions", body, "X-Request-Id", "mine")
	do(t, "POST", url+"/v1/completions", `{"prompt":"secret-prompt","stream":true}`, "X-Request-Id", "two words")
	do(t, "POST", url+"/v1/completions", `{"prompt":7}`)
	do(t, "GET", url+"/"+strings.Repeat("x", 500), "", "X-Request-Id", strings.Repeat("y", 129))
	do(t, strings.Repeat("M", 500), url+"/health", "")
	lines, text := requests(t, log, 5)
	if strings.Contains(text, "secret") {
		t.Errorf("the log has texts:\n%s", text)
	}
	first := lines[0]
	for key, want := range map[string]any{
		"id": "mine", "method": "POST", "path": "/v1/completions", "status": 200.0, "answers": 4.0,
		"prompt_tokens": 6.0, "cached_tokens": 4.0, "completion_tokens": 8.0, "draft": "goose", "rounds": 8.0, "end": "eos",
	} {
		if first[key] != want {
			t.Errorf("%s is %v, want %v", key, first[key], want)
		}
	}
	for _, key := range []string{"duration", "ttft"} {
		if d, ok := first[key].(float64); !ok || d <= 0 {
			t.Errorf("%s is %v, want a time", key, first[key])
		}
	}
	if id, ok := lines[1]["id"].(string); !ok || !strings.HasPrefix(id, "req-") {
		t.Errorf("an id with a space became %v", lines[1]["id"])
	}
	if lines[2]["status"] != 400.0 || lines[2]["answers"] != nil {
		t.Errorf("a refused request: %v", lines[2])
	}
	if path, ok := lines[3]["path"].(string); !ok || len(path) > 140 {
		t.Errorf("a long path: %v", lines[3]["path"])
	}
	if method, ok := lines[4]["method"].(string); !ok || len(method) > 140 {
		t.Errorf("a long method: %v", lines[4]["method"])
	}
	if id, ok := lines[3]["id"].(string); !ok || !strings.HasPrefix(id, "req-") {
		t.Errorf("an id of 129 bytes became %v", lines[3]["id"])
	}
}

// A path that only looks like one of the server's is none of its routes.
func TestOtherPathsAreNoRoute(t *testing.T) {
	url, _ := startLogged(t, &core{}, nil)
	do(t, "GET", url+"//version", "")
	do(t, "GET", url+"/v1/../version", "")
	_, _, body := do(t, "GET", url+"/metrics", "")
	if !strings.Contains(body, `talf_http_requests_total{code="404",route="none"} 2`) || strings.Contains(body, `route="GET /version"`) {
		t.Errorf("%s", body)
	}
}

func TestMetricsCountRequests(t *testing.T) {
	c := &core{words: []string{"Hello", " there"}, end: infer.Length}
	url, _ := startLogged(t, c, nil)
	do(t, "POST", url+"/v1/completions", `{"prompt":"a","n":3}`)
	do(t, "POST", url+"/v1/completions", `{"prompt":"a","stream":true}`)
	do(t, "POST", url+"/v1/completions", `{"prompt":"a","n":0}`)
	c.refuse = refuse.Busy("full")
	do(t, "POST", url+"/v1/completions", `{"prompt":"a"}`)
	do(t, "GET", url+"/nowhere", "")
	metricsHave(t, url,
		`vllm:request_success_total{engine="0",finished_reason="length",model_name="tiny"} 4`,
		`vllm:e2e_request_latency_seconds_count{engine="0",model_name="tiny"} 4`,
		`vllm:inter_token_latency_seconds_count{engine="0",model_name="tiny"} 4`,
		`talf_http_requests_total{code="200",route="POST /v1/completions"} 2`,
		`talf_http_requests_total{code="400",route="POST /v1/completions"} 1`,
		`talf_http_requests_total{code="429",route="POST /v1/completions"} 1`,
		`talf_http_requests_total{code="404",route="none"} 1`,
	)
}

// Where the prompt is all that a client asks for, the token that the loop needs is no answer.
func TestAnEchoedPromptHasNoCompletionTokens(t *testing.T) {
	url, log := startLogged(t, &core{words: []string{"x"}, end: infer.Length}, nil)
	do(t, "POST", url+"/v1/completions", `{"prompt":"a b","echo":true,"max_tokens":0}`)
	lines, _ := requests(t, log, 1)
	if lines[0]["prompt_tokens"] != 2.0 || lines[0]["completion_tokens"] != 0.0 {
		t.Errorf("%v", lines[0])
	}
}

// metricsHave waits until /metrics has all lines: a request is counted after its response.
func metricsHave(t *testing.T, url string, lines ...string) {
	t.Helper()
	await.Until(t, fmt.Sprintf("metrics with lines %q", lines), func() bool {
		_, _, text := do(t, "GET", url+"/metrics", "")
		return !slices.ContainsFunc(lines, func(l string) bool { return !strings.Contains(text, "\n"+l+"\n") })
	})
}

// A client that goes away before the response begins is no failure of the server's, whatever its request was at. A
// stream has begun by then.
func TestClientsThatGoAwayAreCountedAsSuch(t *testing.T) {
	const prompt = `{"prompt":"a"}`
	for _, x := range []struct {
		what, path, body string
		words            int // before the client goes
		status           int
		end              any // of the answer in the log
	}{
		{"in the queue", "/v1/completions", prompt, 0, 499, "cancelled"},
		{"in the middle", "/v1/completions", prompt, 1, 499, "cancelled"},
		{"of several choices", "/v1/completions", `{"prompt":"a","n":3}`, 1, 499, "cancelled"},
		{"in the queue with a stream", "/v1/completions", `{"prompt":"a","stream":true}`, 0, 200, "cancelled"},
		{"in the middle of a stream", "/v1/completions", `{"prompt":"a","stream":true}`, 1, 200, "cancelled"},
		{"of Anthropic's API", "/v1/messages", `{"model":"tiny","messages":[{"role":"user","content":"a"}],"max_tokens":9}`, 1, 499, "cancelled"},
	} {
		t.Run(x.what, func(t *testing.T) {
			c := &core{words: []string{"Hello", "x"}[1-x.words:], hold: make(chan struct{})}
			ctx, leave := context.WithCancel(t.Context())
			defer leave()
			url, log := startLogged(t, c, nil)
			r, err := http.NewRequestWithContext(ctx, "POST", url+x.path, strings.NewReader(x.body))
			if err != nil {
				t.Fatal(err)
			}
			done := make(chan struct{})
			go func() {
				defer close(done)
				if resp, err := http.DefaultClient.Do(r); err == nil {
					_, _ = io.Copy(io.Discard, resp.Body)
					_ = resp.Body.Close()
				}
			}()
			await.Until(t, "a client that goes away", func() bool {
				if c.held() > 0 {
					leave()
				}
				select {
				case <-done:
					return true
				default:
					return false
				}
			})
			lines, text := requests(t, log, 1)
			if lines[0]["status"] != float64(x.status) || lines[0]["end"] != x.end {
				t.Errorf("status %v, end %v, want %d, %v", lines[0]["status"], lines[0]["end"], x.status, x.end)
			}
			if n, known := lines[0]["cached_tokens"]; known {
				t.Errorf("%v tokens were cached of a prompt whose answer was not counted", n)
			}
			if strings.Contains(text, `"level":"WARN"`) || strings.Contains(text, `"level":"ERROR"`) {
				t.Errorf("the log has a warning:\n%s", text)
			}
			metricsHave(t, url, fmt.Sprintf(`talf_http_requests_total{code="%d",route="POST %s"} 1`, x.status, x.path))
			if n := c.open(); n != 0 {
				t.Errorf("%d answers go on", n)
			}
		})
	}
}

// An answer whose client goes away, and one that fails, are counted as such.
func TestMetricsCountAnswersThatDoNotFinish(t *testing.T) {
	c := &core{words: []string{"Hello", "x"}, hold: make(chan struct{})}
	url, log := startLogged(t, c, nil)
	ctx, cancel := context.WithCancel(t.Context())
	r, err := http.NewRequestWithContext(ctx, "POST", url+"/v1/completions", strings.NewReader(`{"prompt":"a"}`))
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		if resp, err := http.DefaultClient.Do(r); err == nil {
			_ = resp.Body.Close()
		}
	}()
	await.Until(t, "the request", func() bool { return c.open() > 0 })
	cancel()
	<-done
	requests(t, log, 1)
	c.fail, c.words, c.hold = context.DeadlineExceeded, nil, nil
	do(t, "POST", url+"/v1/completions", `{"prompt":"a"}`)
	metricsHave(t, url,
		`vllm:request_success_total{engine="0",finished_reason="abort",model_name="tiny"} 1`,
		`vllm:request_success_total{engine="0",finished_reason="error",model_name="tiny"} 1`,
	)
}

func TestMetricsNeedAKeyUnlessTheyAreOpen(t *testing.T) {
	keys, err := serve.OpenKeys("", "secret")
	if err != nil {
		t.Fatal(err)
	}
	for open, want := range map[bool]int{false: 401, true: 200} {
		url, _ := startLogged(t, &core{}, func(conf *serve.Config) { conf.Keys, conf.MetricsOpen = keys, open })
		if status, _, _ := do(t, "GET", url+"/metrics", ""); status != want {
			t.Errorf("open %v: %d, want %d", open, status, want)
		}
		if status, _, body := do(t, "GET", url+"/metrics", "", "Authorization", "Bearer secret"); status != 200 || !strings.Contains(body, "vllm:num_requests_waiting{") {
			t.Errorf("with a key: %d", status)
		}
	}
}

// A collector gets the trace of a request, in the caller's trace, before the server has stopped.
func TestACollectorIsToldOfRequests(t *testing.T) {
	var mu sync.Mutex
	var got tracepb.TracesData
	collector := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		b, err := io.ReadAll(r.Body)
		mu.Lock()
		defer mu.Unlock()
		if err != nil || proto.Unmarshal(b, &got) != nil {
			t.Error("no spans of OTLP")
		}
	}))
	defer collector.Close()
	conf := serve.Default()
	conf.Names, conf.Collector = []string{"tiny"}, collector.URL
	s, err := serve.New(&core{words: []string{"secret", "x"}, end: infer.EOS}, conf)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	ended, ready := make(chan error, 1), make(chan string, 1)
	go func() {
		ended <- s.Run(ctx, &serve.Listener{Address: "127.0.0.1:0", Grace: time.Minute}, func(a string) { ready <- a })
	}()
	url := "http://" + <-ready
	do(t, "POST", url+"/v1/completions", `{"prompt":"secret","n":2}`, "Traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
	stop()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	mu.Lock()
	defer mu.Unlock()
	text := got.String()
	if len(got.GetResourceSpans()) != 1 || strings.Contains(text, "secret") {
		t.Fatal(text)
	}
	spans := got.GetResourceSpans()[0].GetScopeSpans()[0].GetSpans()
	if len(spans) != 1 || hex.EncodeToString(spans[0].GetTraceId()) != "4bf92f3577b34da6a3ce929d0e0e4736" || spans[0].GetName() != "text_completion tiny" {
		t.Errorf("%s", text)
	}
	if _, err := serve.New(&core{}, serve.Config{Names: []string{"tiny"}, Collector: "nonsense"}); err == nil {
		t.Error("a collector without a URL is accepted")
	}
}
