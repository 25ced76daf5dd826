package remote

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"talf/data"
	"talf/internal/hint"
	"talf/internal/limits"
	"talf/internal/wire"
	"talf/model/sample"
	"talf/preprocess"
)

// A call is a request that a server of a test has seen.
type call struct {
	Path, Key string
	Body      map[string]any
}

// serve starts a server that answers its n-th request, from 1.
func serve(t *testing.T, answer func(n int, c *call, w http.ResponseWriter)) (url string, calls func() []call) {
	t.Helper()
	h, calls := answers(answer)
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s.URL, calls
}

// answers returns what serve serves, and what it was asked so far.
func answers(answer func(n int, c *call, w http.ResponseWriter)) (h http.Handler, calls func() []call) {
	var mu sync.Mutex
	var all []call
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			b, err := io.ReadAll(r.Body)
			if err != nil {
				return // the client is gone
			}
			c := call{Path: r.Method + " " + r.URL.Path, Key: r.Header.Get("Authorization")}
			_ = json.Unmarshal(b, &c.Body)
			mu.Lock()
			all = append(all, c)
			n := len(all)
			mu.Unlock()
			answer(n, &c, w)
		}), func() []call {
			mu.Lock()
			defer mu.Unlock()
			return append([]call(nil), all...)
		}
}

func write(w io.Writer, format string, args ...any) { _, _ = fmt.Fprintf(w, format, args...) }

// completion answers with a text.
func completion(w io.Writer, text string) {
	write(w, `{"id":"x","choices":[{"index":0,"text":%q,"finish_reason":"stop"}],"usage":{"total_tokens":3}}`, text)
}

func client(t *testing.T, url string, change func(*Config)) *Client {
	t.Helper()
	c := Default()
	c.URL, c.Model, c.Dir, c.Wait = url, "m", t.TempDir(), time.Millisecond
	if change != nil {
		change(&c)
	}
	a, err := New(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := a.Close(); err != nil {
			t.Error(err)
		}
	})
	return a
}

func TestQuestionsAreRequestsOfTheAPI(t *testing.T) {
	url, calls := serve(t, func(_ int, c *call, w http.ResponseWriter) {
		switch c.Path {
		case "GET /v1/models":
			write(w, `{"object":"list","data":[{"id":"only"}]}`)
		case "POST /v1/completions":
			write(w, `{"choices":[{"text":" and on\ufffd","finish_reason":"length"}]}`)
		default:
			write(w, `{"choices":[{"message":{"role":"assistant","content":"Hm.","reasoning":"So"},"finish_reason":"stop"}]}`)
		}
	})
	a := client(t, url, func(c *Config) {
		c.Model, c.Key = "", "secret"
		c.Sample = sample.Params{Temperature: 0.5, TopP: 0.9, TopK: 7}
	})
	got, err := a.Answer(t.Context(), &preprocess.Question{Text: "It goes on", Max: 12, Seed: 1<<63 + 5<<11, Place: "f:1"})
	if d := cmp.Diff(preprocess.Answer{Text: " and on", Cut: true}, got); err != nil || d != "" {
		t.Errorf("%v %s", err, d)
	}
	talk := `{"messages":[{"role":"user","content":"<Why?>","weight":1},{"role":"tool","tool_call_id":"t","content":"4"}],"tools":[{"type":"function"}],"enable_thinking":true}`
	got, err = a.Answer(t.Context(), &preprocess.Question{Conversation: []byte(talk), Max: 3, Place: "f:2"})
	if d := cmp.Diff(preprocess.Answer{Text: "Hm.", Reasoning: "So"}, got); err != nil || d != "" {
		t.Errorf("%v %s", err, d)
	}
	common := func(more map[string]any) map[string]any {
		m := map[string]any{"model": "only", "temperature": 0.5, "top_p": 0.9, "top_k": 7.0}
		for k, v := range more {
			m[k] = v
		}
		return m
	}
	want := []call{
		{"GET /v1/models", "Bearer secret", nil},
		{"POST /v1/completions", "Bearer secret", common(map[string]any{"prompt": "It goes on", "max_tokens": 12.0, "seed": float64(1<<52 + 5)})},
		{"POST /v1/chat/completions", "Bearer secret", common(map[string]any{
			"messages": []any{map[string]any{"role": "user", "content": "<Why?>"}, map[string]any{"role": "tool", "tool_call_id": "t", "content": "4"}},
			"tools":    []any{map[string]any{"type": "function"}}, "tool_choice": "none", "max_tokens": 3.0, "seed": 0.0,
			"chat_template_kwargs": map[string]any{"enable_thinking": true},
		})},
	}
	if d := cmp.Diff(want, calls()); d != "" {
		t.Error(d)
	}
	if d := a.Describe(); !strings.Contains(d, "0.9") || !strings.HasSuffix(d, ", by a server's only") || strings.Contains(d, url) {
		t.Error(d)
	}
}

// What a server does wrong is tried again, for a while.
func TestFailuresThatPassAreWaitedFor(t *testing.T) {
	for name, bad := range map[string]func(w http.ResponseWriter){
		"an error of the server": func(w http.ResponseWriter) { http.Error(w, "oops", http.StatusInternalServerError) },
		"too many requests": func(w http.ResponseWriter) {
			w.Header().Set("Retry-After", "0")
			w.WriteHeader(http.StatusTooManyRequests)
		},
		"unavailable":                  func(w http.ResponseWriter) { w.WriteHeader(http.StatusServiceUnavailable) },
		"text that is no JSON":         func(w http.ResponseWriter) { write(w, "<html>") },
		"half a response":              func(w http.ResponseWriter) { write(w, `{"choices":[{"text":"ye`) },
		"no choice":                    func(w http.ResponseWriter) { write(w, `{"choices":[]}`) },
		"a choice of something else":   func(w http.ResponseWriter) { write(w, `{"choices":[{"finish_reason":"stop"}]}`) },
		"a connection that is closed":  func(http.ResponseWriter) { panic(http.ErrAbortHandler) },
		"a body that ends too early":   func(w http.ResponseWriter) { w.Header().Set("Content-Length", "99"); write(w, `{"choices":[`) },
		"an answer that is broken off": func(w http.ResponseWriter) { write(w, `{"choices":[{"text":"ye","finish_reason":"abort"}]}`) },
		"nesting without end":          func(w http.ResponseWriter) { write(w, "%s", strings.Repeat("[", 1<<16)) },
	} {
		t.Run(name, func(t *testing.T) {
			url, calls := serve(t, func(n int, _ *call, w http.ResponseWriter) {
				if n <= 2 {
					bad(w)
					return
				}
				completion(w, "yes")
			})
			a := client(t, url, nil)
			if got, err := a.Answer(t.Context(), &preprocess.Question{Text: "?", Max: 3}); err != nil || got.Text != "yes" || len(calls()) != 3 {
				t.Errorf("%q, %v after %d requests", got.Text, err, len(calls()))
			}
			url, calls = serve(t, func(_ int, _ *call, w http.ResponseWriter) { bad(w) })
			a = client(t, url, nil)
			_, err := a.Answer(t.Context(), &preprocess.Question{Text: "?", Max: 3, Place: "in.jsonl:7"})
			if n := len(calls()); err == nil || n != attempts || !strings.HasPrefix(err.Error(), url+"/v1/completions: in.jsonl:7: ") || !strings.HasSuffix(err.Error(), "(8 attempts)") || errors.Is(err, preprocess.ErrRefused) {
				t.Errorf("%d requests: %v", n, err)
			}
		})
	}
}

// Other failures are not: they end the run, or leave a prompt out.
func TestFailuresThatDoNotPass(t *testing.T) {
	long := strings.Repeat("é", 400) + "\x1b[31m"
	for name, x := range map[string]struct {
		answer  func(w http.ResponseWriter)
		want    string
		refused bool
	}{
		"a key": {func(w http.ResponseWriter) {
			w.WriteHeader(http.StatusUnauthorized)
			write(w, `{"error":{"message":"Incorrect API key provided","type":"x"}}`)
		}, "status 401: Incorrect API key provided", false},
		"a model": {func(w http.ResponseWriter) {
			w.WriteHeader(404)
			write(w, `{"object":"error","message":"no such\n model"}`)
		}, "status 404: no such model", false},
		"a redirect": {func(w http.ResponseWriter) { w.Header().Set("Location", "/elsewhere"); w.WriteHeader(307) }, "status 307", false},
		"a prompt":   {func(w http.ResponseWriter) { w.WriteHeader(400); write(w, `{"detail":"too long"}`) }, "status 400: too long", true},
		"a form":     {func(w http.ResponseWriter) { w.WriteHeader(422); write(w, `{"error":"what?"}`) }, "status 422: what?", true},
		"a long one": {func(w http.ResponseWriter) { w.WriteHeader(413); write(w, "%s", long) }, "status 413: " + strings.Repeat("é", 150) + "…", true},
		"a call": {func(w http.ResponseWriter) {
			write(w, `{"choices":[{"message":{"content":null,"tool_calls":[{"function":{"name":"f"}}]},"finish_reason":"stop"}]}`)
		}, "the answer calls tools and says nothing", true},
		"a filter": {func(w http.ResponseWriter) { write(w, `{"choices":[{"text":"","finish_reason":"content_filter"}]}`) }, `finish_reason is "content_filter", want an answer`, true},
		"a huge answer": {func(w http.ResponseWriter) {
			write(w, `{"choices":[{"text":"`)
			for part := strings.Repeat("x", 1<<20); ; {
				if _, err := io.WriteString(w, part); err != nil {
					return
				}
			}
		}, fmt.Sprintf("the response: more than %d bytes: beyond the limit", limits.AnswerBytes), false},
	} {
		t.Run(name, func(t *testing.T) {
			url, calls := serve(t, func(_ int, _ *call, w http.ResponseWriter) { x.answer(w) })
			a := client(t, url, nil)
			_, err := a.Answer(t.Context(), &preprocess.Question{Text: "?", Max: 3, Place: "in.jsonl:7"})
			want := url + "/v1/completions: in.jsonl:7: " + x.want
			if x.refused {
				want = "the prompt is refused: " + want
			}
			if err == nil || err.Error() != want || errors.Is(err, preprocess.ErrRefused) != x.refused || len(calls()) != 1 {
				t.Errorf("%d requests: %v\nwant %s", len(calls()), err, want)
			}
		})
	}
}

// A server that refuses everything does not leave everything out.
func TestRefusalsOfEveryPromptEndTheRun(t *testing.T) {
	url, _ := serve(t, func(_ int, c *call, w http.ResponseWriter) {
		if c.Body["prompt"] == "good" {
			completion(w, "yes")
			return
		}
		w.WriteHeader(http.StatusBadRequest)
	})
	for _, good := range []bool{false, true} {
		a := client(t, url, nil)
		if good {
			if _, err := a.Answer(t.Context(), &preprocess.Question{Text: "good"}); err != nil {
				t.Fatal(err)
			}
		}
		for i := range 2 * mostRefused {
			_, err := a.Answer(t.Context(), &preprocess.Question{Text: fmt.Sprint(i)})
			if ends := !good && i+1 >= mostRefused; err == nil || errors.Is(err, preprocess.ErrRefused) == ends {
				t.Errorf("prompt %d, good %t: %v", i, good, err)
			}
		}
	}
}

// Refusals that are faster than the first answer do not end the run.
func TestRefusalsBesideASlowAnswerLeavePromptsOut(t *testing.T) {
	come, release := make(chan struct{}), make(chan struct{})
	url, _ := serve(t, func(_ int, c *call, w http.ResponseWriter) {
		if c.Body["prompt"] == "slow" {
			close(come)
			<-release
			completion(w, "yes")
			return
		}
		w.WriteHeader(http.StatusBadRequest)
	})
	a := client(t, url, nil)
	done := make(chan error, 1)
	go func() {
		_, err := a.Answer(t.Context(), &preprocess.Question{Text: "slow"})
		done <- err
	}()
	<-come
	for i := range 2 * mostRefused {
		if _, err := a.Answer(t.Context(), &preprocess.Question{Text: fmt.Sprint(i)}); !errors.Is(err, preprocess.ErrRefused) {
			t.Errorf("prompt %d: %v", i, err)
		}
	}
	close(release)
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// A server that says nothing is given up after two attempts.
func TestSilenceEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var n wire.Net
		release, last := make(chan struct{}), make(chan struct{})
		h, calls := answers(func(_ int, c *call, w http.ResponseWriter) {
			switch c.Body["prompt"] {
			case "slow": // half of an answer
				write(w, `{"choices":[`)
				w.(http.Flusher).Flush()
			case "last":
				close(last)
			}
			<-release
		})
		url := n.Serve(t, h)
		t.Cleanup(func() { close(release) }) // before the server waits for its requests
		a := client(t, url, func(c *Config) { c.Timeout = time.Minute })
		a.http.Transport.(*http.Transport).DialContext = n.Dial
		for i, text := range []string{"silent", "slow"} {
			began := time.Now()
			_, err := a.Answer(t.Context(), &preprocess.Question{Text: text, Place: "f:1"})
			if !errors.Is(err, context.DeadlineExceeded) || !strings.HasSuffix(err.Error(), "(2 attempts)") || len(calls()) != 2*(i+1) {
				t.Errorf("%s: %d requests: %v", text, len(calls()), err)
			}
			if took := time.Since(began); took < 2*time.Minute || took > 2*time.Minute+time.Second {
				t.Errorf("%s: given up after %v, want two minutes and a short wait", text, took)
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			<-last
			cancel()
		}()
		a = client(t, url, nil)
		a.http.Transport.(*http.Transport).DialContext = n.Dial
		if _, err := a.Answer(ctx, &preprocess.Question{Text: "last"}); !errors.Is(err, context.Canceled) {
			t.Errorf("%v, want that it was cancelled", err)
		}
	})
}

// A network that is away for a while is no server that says nothing.
func TestConnectionsThatAreNotMadeAreWaitedFor(t *testing.T) {
	url, calls := serve(t, func(_ int, _ *call, w http.ResponseWriter) { completion(w, "yes") })
	a := client(t, url, nil)
	transport := a.http.Transport.(*http.Transport)
	dial := transport.DialContext
	var tried atomic.Int64
	transport.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		if tried.Add(1) < attempts {
			return nil, &net.OpError{Op: "dial", Net: network, Err: context.DeadlineExceeded}
		}
		return dial(ctx, network, address)
	}
	if got, err := a.Answer(t.Context(), &preprocess.Question{Text: "?"}); err != nil || got.Text != "yes" || tried.Load() != attempts || len(calls()) != 1 {
		t.Errorf("%q, %v after %d connections", got.Text, err, tried.Load())
	}
}

func TestServersSayWhenToComeBack(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for s, want := range map[string]time.Duration{
		"": 0, "7": 7 * time.Second, "-7": 0, "soon": 0, "99999999999999999999": 0,
		"Fri, 02 Jan 2026 03:05:05 GMT": time.Minute,
	} {
		if got := retryAfter(s, now); got != want {
			t.Errorf("%q: %v, want %v", s, got, want)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		var n wire.Net
		h, calls := answers(func(n int, _ *call, w http.ResponseWriter) {
			if n == 1 {
				w.Header().Set("Retry-After", "7")
				w.WriteHeader(http.StatusTooManyRequests)
				return
			}
			completion(w, "yes")
		})
		a := client(t, n.Serve(t, h), nil)
		a.http.Transport.(*http.Transport).DialContext = n.Dial
		begun := time.Now()
		if _, err := a.Answer(t.Context(), &preprocess.Question{Text: "?"}); err != nil || len(calls()) != 2 {
			t.Fatalf("%d attempts: %v", len(calls()), err)
		}
		if d := time.Since(begun); d < 7*time.Second || d > 8*time.Second {
			t.Errorf("the second attempt came after %v, want seven seconds and a short wait", d)
		}
	})
}

// What was answered is not asked again, by whatever the file ends with.
func TestAnswersAreKept(t *testing.T) {
	url, calls := serve(t, func(_ int, c *call, w http.ResponseWriter) { completion(w, fmt.Sprint(c.Body["prompt"], "!")) })
	dir := t.TempDir()
	ask := func(part data.Stripe, texts ...string) (asked int, err error) {
		a := client(t, url, func(c *Config) { c.Dir, c.Part = dir, part })
		before := len(calls())
		for _, text := range texts {
			got, err := a.Answer(t.Context(), &preprocess.Question{Text: text, Max: 5})
			if err != nil {
				return 0, err
			}
			if got.Text != text+"!" {
				t.Errorf("%q: %q", text, got.Text)
			}
		}
		return len(calls()) - before, a.Close()
	}
	expect := func(want int, texts ...string) {
		t.Helper()
		if n, err := ask(data.Whole(), texts...); n != want || err != nil {
			t.Errorf("%v: %d requests, %v; want %d", texts, n, err, want)
		}
	}
	file := filepath.Join(dir, "answers.jsonl")
	expect(3, "one", "two", "three <é>\n")
	expect(1, "three <é>\n", "one", "four", "two")
	whole, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if lines := strings.Split(strings.TrimSpace(string(whole)), "\n"); len(lines) != 5 {
		t.Errorf("%d lines, want a header and 4 answers", len(lines))
	}
	for _, torn := range []int{1, 2, 40} { // a crash within the last line
		if err := os.WriteFile(file, whole[:len(whole)-torn], 0o666); err != nil {
			t.Fatal(err)
		}
		expect(1, "one", "two", "three <é>\n", "four")
	}
	// A file that somebody has edited: what is not found is asked for again.
	if err := os.WriteFile(file, []byte(strings.Replace(string(whole), "\n", "\n\n", 1)), 0o666); err != nil {
		t.Fatal(err)
	}
	expect(4, "one", "two", "three <é>\n", "four")
	if err := os.WriteFile(file, []byte("notes\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	if _, err := ask(data.Whole(), "one"); err == nil || !strings.Contains(err.Error(), "is not a file of answers") {
		t.Errorf("%v", err)
	}
	if n, err := ask(data.Stripe{Index: 1, Count: 3}, "one"); n != 1 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	if _, err := os.Stat(filepath.Join(dir, "answers-00001-of-00003.jsonl")); err != nil {
		t.Error(err)
	}
}

func TestServersAreNamedAsClientsNameThem(t *testing.T) {
	url, _ := serve(t, func(_ int, c *call, w http.ResponseWriter) {
		switch c.Path {
		case "GET /v1/models":
			write(w, `{"data":[{"id":"a"},{"id":"b"}]}`)
		case "GET /none/models":
			write(w, `{"data":[]}`)
		case "GET /bad/models":
			write(w, `{"data":[{"id":"a\u001b[31m"}]}`)
		default:
			http.NotFound(w, nil)
		}
	})
	for address, want := range map[string]string{
		url:                          `/v1/models: 2 models ("a", "b"), want one: --regenerate-model names it`,
		url + "/none/":               "/none/models: no list of models: --regenerate-model names it",
		url + "/bad":                 `/bad/models: the model's name is "a\x1b[31m", want 1 to 256 printable bytes`,
		url + "/other":               "/other/models: the list of models: status 404: 404 page not found: --regenerate-model names it",
		"localhost:8000":             "http://host:8000/v1",
		"ftp://x/":                   `"ftp://x/", want one such as`,
		"http://":                    "want one such as",
		"http://me:word@host/v1":     `"http://me:xxxxx@host/v1", want no name or password in it: a key is read from OPENAI_API_KEY`,
		"http://host/v1?key=secret":  "want no query in it",
		"http://a b/":                "the server's address is no URL",
		"http://me:word@host:port/%": "the server's address is no URL",
	} {
		c := Default()
		c.URL = address
		if _, err := New(t.Context(), c); err == nil || !strings.Contains(hint.Text(err), want) || strings.Contains(hint.Text(err), "word@") {
			t.Errorf("%s: %v, want %s", address, err, want)
		}
	}
}
