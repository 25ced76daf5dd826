package load_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"talf/internal/wire"
	"talf/lab/load"
)

// A fake server answers with two pieces of text; every fifth request in a way of its own.
type fake struct {
	t       *testing.T
	seen    atomic.Int64
	drafts  atomic.Int64
	odd     func(w http.ResponseWriter, r *http.Request, n int64) bool
	mu      sync.Mutex
	bodies  []string
	headers []http.Header
}

func (f *fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/v1/models":
		_, _ = io.WriteString(w, `{"object":"list","data":[{"id":"tiny"}]}`)
		return
	case "/metrics":
		n := f.drafts.Load()
		fmt.Fprintf(w, "# HELP x\nvllm:spec_decode_num_drafts_total{model_name=\"a b\"} %d\nvllm:spec_decode_num_draft_tokens_total{} %d 17\nvllm:spec_decode_num_accepted_tokens_total %d\nother 1\n", n, 8*n, 2*n)
		return
	case "/v1/completions", "/v1/chat/completions":
	default:
		f.t.Errorf("asked for %s", r.URL.Path)
	}
	b, _ := io.ReadAll(r.Body)
	f.mu.Lock()
	f.bodies, f.headers = append(f.bodies, string(b)), append(f.headers, r.Header)
	f.mu.Unlock()
	n := f.seen.Add(1)
	if f.odd != nil && f.odd(w, r, n) {
		return
	}
	f.drafts.Add(1)
	send := func(s string) {
		_, _ = io.WriteString(w, s+"\n\n")
		w.(http.Flusher).Flush()
	}
	send(": ping")
	send(`data: {"choices":[{"delta":{"role":"assistant","content":""}}]}`)
	time.Sleep(2 * time.Millisecond)
	send(`data: {"choices":[{"delta":{"content":"a"},"text":"a"}]}`)
	time.Sleep(6 * time.Millisecond)
	send(`data: {"choices":[{"delta":{"content":"b c d"},"text":"b c d"}]}`)
	send(`data: {"choices":[],"usage":{"prompt_tokens":10,"completion_tokens":4,"prompt_tokens_details":{"cached_tokens":3}}}`)
	send(`data: [DONE]`)
}

func serve(t *testing.T, n *wire.Net, f *fake) load.Server {
	f.t = t
	return load.Server{Name: "fake", URL: n.Serve(t, f) + "/v1"}
}

func quick(n *wire.Net) load.Config {
	c := load.Default()
	c.Requests, c.Runs, c.Warmup, c.Clients, c.Timeout, c.Dial = 10, 2, 1, 4, 5*time.Second, n.Dial
	return c
}

func run(t *testing.T, c load.Config, servers ...load.Server) *load.Report {
	t.Helper()
	prompts := []load.Prompt{{Text: "one"}, {Messages: json.RawMessage(`[{"role":"user","content":"two"}]`)}}
	r, err := c.Run(t.Context(), servers, prompts, func(string, int) {})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestAnswersAreMeasured(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var lan wire.Net
		f, g := &fake{}, &fake{}
		s := serve(t, &lan, f)
		s.Key = "secret"
		second := serve(t, &lan, g)
		second.Name, second.Model = "other", "named"
		r := run(t, quick(&lan), s, second)
		a := r.Servers[0].All
		if a.Answered != 20 || len(a.Failed) != 0 || a.AnswerTokens != 80 || a.PromptTokens != 200 || a.CachedTokens != 60 || r.Servers[0].Model != "tiny" {
			t.Errorf("%+v", a)
		}
		// Every answer has one gap and four tokens.
		near := func(x load.Times, want float64) bool {
			return x.P50 == want && x.Max == want && math.Abs(x.Mean-want) < 1e-9
		}
		if !near(a.TTFT, 2) || !near(a.ITL, 6) || !near(a.E2E, 8) || !near(a.TPOT, 2) {
			t.Errorf("times %+v", a)
		}
		if a.Drafting == nil || a.Drafting.Drafts != 20 || a.Drafting.Tau() != 3 {
			t.Errorf("drafting %+v: the warm-up does not count", a.Drafting)
		}
		if x := r.Servers[1].Throughput; x == nil || x.Value <= 0 || x.Low > x.Value || r.Servers[0].Throughput != nil {
			t.Errorf("ratio %+v", x)
		}
		// Both got the same requests, apart from the model.
		if len(f.bodies) != 21 || len(g.bodies) != 21 {
			t.Fatalf("%d and %d requests", len(f.bodies), len(g.bodies))
		}
		count := map[string]int{}
		for i := range f.bodies {
			count[f.bodies[i]]++
			count[strings.Replace(g.bodies[i], `"named"`, `"tiny"`, 1)]--
			if f.headers[i].Get("Authorization") != "Bearer secret" {
				t.Error("a request without the key")
			}
		}
		for b, n := range count {
			if n != 0 {
				t.Errorf("%+d of %s", n, b)
			}
		}
		var body map[string]any
		if err := json.Unmarshal([]byte(f.bodies[0]), &body); err != nil || body["stream"] != true || body["max_tokens"] != 128.0 || body["prompt"] != "one" {
			t.Errorf("%s", f.bodies[0])
		}
		var text strings.Builder
		table := r.Table()
		if err := table.Write(&text, true); err != nil || !strings.Contains(text.String(), "| fake | 20 | 0 |") {
			t.Errorf("%v\n%s", err, &text)
		}
		if fs := r.Figures(); len(fs) != 2 || len(fs[0].Series) != 2 {
			t.Errorf("%d figures", len(fs))
		}
	})
}

func TestFailuresAreCountedByKind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var lan wire.Net
		hang := make(chan struct{})
		f := &fake{odd: func(w http.ResponseWriter, r *http.Request, n int64) bool {
			switch n % 6 {
			case 1:
				http.Error(w, "busy", http.StatusTooManyRequests)
			case 2:
				_, _ = io.WriteString(w, "data: {\"choices\":[{\"text\":\"a\"}]}\n\n") // and no more
			case 3:
				_, _ = io.WriteString(w, "data: {nonsense\n\n")
			case 4:
				_, _ = io.WriteString(w, "data: {\"error\":{\"message\":\"x\"}}\n\n")
			case 5:
				select {
				case <-hang:
				case <-r.Context().Done():
				}
			default:
				return false
			}
			return true
		}}
		defer close(hang)
		c := quick(&lan)
		c.Warmup, c.Requests, c.Runs, c.Timeout = 0, 12, 1, 300*time.Millisecond
		r := run(t, c, serve(t, &lan, f))
		want := map[string]int{"429": 2, "cut off": 2, "malformed": 2, "500": 2, "timeout": 2}
		if a := r.Servers[0].All; a.Answered != 2 || !reflect.DeepEqual(a.Failed, want) {
			t.Errorf("%d answered, failed %v, want %v", a.Answered, a.Failed, want)
		}
		if err := r.Unanswered(); err != nil {
			t.Error(err)
		}
	})
}

// A server that answers nothing has no times, and is an error beside those that answer.
func TestServersWithoutAnswersAreNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var lan wire.Net
		mute, c := serve(t, &lan, &fake{odd: func(w http.ResponseWriter, r *http.Request, _ int64) bool {
			_, _ = io.WriteString(w, "hello")
			return true
		}}), quick(&lan)
		c.Warmup, c.Requests, c.Runs, mute.Name = 0, 3, 1, "mute"
		r := run(t, c, serve(t, &lan, &fake{}), mute)
		if err := r.Unanswered(); err == nil || err.Error() != fmt.Sprintf("mute, 4 clients: no answer from %s: cut off: 3", mute.URL) {
			t.Error(err)
		}
		if rows := r.Table().Cells; strings.Contains(strings.Join(rows[0][6:14], " "), "–") || strings.Join(rows[1][6:14], "") != strings.Repeat("–", 8) {
			t.Errorf("%q", rows)
		}
	})
}

// Requests of an open loop do not wait for answers: here none has one until all have come.
func TestAnOpenLoopWaitsForNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var lan wire.Net
		const n = 20
		c := quick(&lan)
		c.Requests, c.Runs, c.Warmup = n, 1, 0
		measure := func(c load.Config) int {
			all := make(chan struct{})
			f := &fake{odd: func(_ http.ResponseWriter, r *http.Request, seen int64) bool {
				if seen == n {
					close(all)
				}
				select {
				case <-all:
				case <-r.Context().Done():
				}
				return false
			}}
			return run(t, c, serve(t, &lan, f)).Servers[0].All.Answered
		}
		c.Rate, c.Clients = 500, 0
		if got := measure(c); got != n {
			t.Errorf("%d of %d are answered", got, n)
		}
		c.Rate, c.Arrivals = 0, make([]time.Duration, n)
		if got := measure(c); got != n {
			t.Errorf("%d of %d that come at once are answered", got, n)
		}
		c.Arrivals, c.Clients, c.Timeout = nil, n-1, 200*time.Millisecond // one too few for a closed loop
		if got := measure(c); got == n {
			t.Error("a closed loop did not wait for answers")
		}
	})
}

func TestServersThatCannotBeMeasuredAreErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var lan wire.Net
		c := quick(&lan)
		none := func(string, int) {}
		prompts := []load.Prompt{{Text: "x"}}
		for want, s := range map[string]load.Server{
			"http://HOST":     {Name: "a", URL: "127.0.0.1:80"},
			"list the models": {Name: "a", URL: "http://127.0.0.1:1/v1"},
		} {
			if _, err := c.Run(t.Context(), []load.Server{s}, prompts, none); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%+v: %v", s, err)
			}
		}
		if _, err := c.Run(t.Context(), nil, prompts, none); err == nil {
			t.Error("no server is measured")
		}
		ctx, cancel := context.WithCancel(t.Context())
		f := &fake{odd: func(http.ResponseWriter, *http.Request, int64) bool { cancel(); return false }}
		if _, err := c.Run(ctx, []load.Server{serve(t, &lan, f)}, prompts, none); err == nil {
			t.Error("an interrupted run has a result")
		}
		for want, change := range map[string]func(*load.Config){
			"rate":    func(c *load.Config) { c.Rate = -1 },
			"clients": func(c *load.Config) { c.Clients = 0 },
			"runs":    func(c *load.Config) { c.Runs = 0 },
			"arrival": func(c *load.Config) { c.Arrivals = make([]time.Duration, 3) },
			"tokens":  func(c *load.Config) { c.MaxTokens = 0 },
			"timeout": func(c *load.Config) { c.Timeout = 0 },
		} {
			c := quick(&lan)
			if change(&c); c.Validate() == nil || !strings.Contains(c.Validate().Error(), want) {
				t.Errorf("%s: %v", want, c.Validate())
			}
		}
	})
}

func TestEachLoadHasAConfiguration(t *testing.T) {
	var lan wire.Net
	c := quick(&lan)
	all, err := c.Each([]int{1, 4}, nil)
	if err != nil || len(all) != 2 || all[1].Clients != 4 || all[1].Open() || all[1].Requests != c.Requests {
		t.Errorf("%+v, %v", all, err)
	}
	all, err = c.Each([]int{1, 4}, []float64{0.5})
	if err != nil || len(all) != 1 || all[0].Rate != 0.5 || !all[0].Open() {
		t.Errorf("%+v, %v", all, err)
	}
	for _, bad := range [][]float64{{0}, {-1}} {
		if _, err := c.Each(nil, bad); err == nil {
			t.Errorf("rates %v are accepted", bad)
		}
	}
	if _, err := c.Each([]int{0}, nil); err == nil {
		t.Error("no clients are accepted")
	}
}
