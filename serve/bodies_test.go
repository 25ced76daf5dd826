package serve_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"time"

	"talf/infer"
	"talf/serve"
)

// A patient response knows until when it may be written, and its request read.
type patient struct {
	*httptest.ResponseRecorder
	until, body time.Time
}

func (w *patient) SetReadDeadline(t time.Time) error {
	w.body = t
	return nil
}

func (w *patient) SetWriteDeadline(t time.Time) error {
	w.until = t
	return nil
}

// A question is a body that looks at the response when it is read.
type question struct {
	io.Reader
	read func()
}

func (q question) Read(b []byte) (int, error) {
	q.read()
	return q.Reader.Read(b)
}

// Reading a body may write "100 Continue" first. The deadline that the connection's last response
// left would fail that, and the response with it.
func TestBodiesAreReadUnderANewWriteDeadline(t *testing.T) {
	s, _ := start(t, &core{words: []string{"x"}, end: infer.EOS}, nil)
	w := &patient{ResponseRecorder: httptest.NewRecorder(), until: time.Unix(1, 0)}
	reads := 0
	r := httptest.NewRequest("POST", "/v1/completions", question{strings.NewReader(`{"prompt":"a"}`), func() {
		if reads++; !w.until.After(time.Now()) {
			t.Errorf("the write deadline is %v while the body is read", w.until)
		}
	}})
	if s.ServeHTTP(w, r); w.Code != 200 || reads == 0 {
		t.Errorf("status %d after %d reads: %s", w.Code, reads, w.Body)
	}
}

// A body has its time, and the answer is not held to it: net/http goes on reading while a handler
// writes, and takes a deadline for a client that has gone.
func TestAnswersMayTakeLongerThanBodies(t *testing.T) {
	s, _ := start(t, &core{words: []string{"x"}, end: infer.EOS}, nil)
	for _, route := range []string{"/v1/completions", "/tokenize"} {
		w := &patient{ResponseRecorder: httptest.NewRecorder()}
		r := httptest.NewRequest("POST", route, question{strings.NewReader(`{"prompt":"a"}`), func() {
			if !w.body.After(time.Now()) {
				t.Errorf("%s: the read deadline is %v while the body is read", route, w.body)
			}
		}})
		if s.ServeHTTP(w, r); w.Code != 200 || !w.body.IsZero() {
			t.Errorf("%s: status %d, read deadline %v after the body", route, w.Code, w.body)
		}
	}
}

// What the bodies of all requests take is bounded, and given back with each answer.
func TestBodiesOfAllRequestsAreBounded(t *testing.T) {
	c := &core{words: []string{"a", "b"}, end: infer.EOS, hold: make(chan struct{})}
	_, url := start(t, c, func(conf *serve.Config) { conf.MaxBodies = 1000 })
	body := `{"prompt":"a","user":"` + strings.Repeat("x", 600) + `"}`
	held := make(chan int, 1)
	go func() {
		defer close(held)
		resp, err := http.Post(url+"/v1/completions", "application/json", strings.NewReader(body))
		if err != nil {
			t.Errorf("the first: %v", err)
			return
		}
		_ = resp.Body.Close()
		held <- resp.StatusCode
	}()
	for c.open() == 0 { // the first is being answered
		runtime.Gosched()
	}
	for _, route := range []string{"/v1/completions", "/tokenize"} {
		status, h, got := do(t, "POST", url+route, body)
		if status != 503 || h.Get("Retry-After") == "" || !strings.Contains(got, "larger than 1000 bytes together") {
			t.Errorf("%s: %d %s", route, status, got)
		}
	}
	if status, _, got := do(t, "POST", url+"/tokenize", `{"prompt":"a"}`); status != 200 {
		t.Errorf("a small one beside it: %d %s", status, got)
	}
	close(c.hold)
	if status := <-held; status != 200 {
		t.Errorf("the first got %d", status)
	}
	if status, _, got := do(t, "POST", url+"/v1/completions", body); status != 200 {
		t.Errorf("after the first: %d %s", status, got)
	}
}

// Without keys, a page that somebody visits could have the server work: browsers send its requests,
// though they do not let it read the answers.
func TestPagesOfOtherOriginsAreRefused(t *testing.T) {
	c := &core{words: []string{"x"}, end: infer.EOS}
	_, url := start(t, c, func(conf *serve.Config) { conf.Origins = []string{"http://ok"} })
	for _, x := range []struct {
		status  int
		headers []string
	}{
		{403, []string{"Origin", "http://evil", "Content-Type", "text/plain"}},
		{403, []string{"Origin", "null"}},
		{403, []string{"Sec-Fetch-Site", "cross-site"}},
		{200, []string{"Origin", "http://ok", "Sec-Fetch-Site", "cross-site"}},
		{200, []string{"Origin", url}}, // the playground
		{200, nil},
	} {
		for _, path := range []string{"/v1/completions", "/tokenize"} {
			if status, _, body := do(t, "POST", url+path, `{"prompt":"a"}`, x.headers...); status != x.status || status == 403 && !strings.Contains(body, "permission_error") {
				t.Errorf("%s with %q: %d %s, want %d", path, x.headers, status, body, x.status)
			}
		}
	}
	if status, _, body := do(t, "POST", url+"/v1/messages", `{}`, "Origin", "http://evil"); status != 403 || !strings.Contains(body, `"type":"permission_error"`) {
		t.Errorf("%d %s", status, body)
	}
	// A name of the page's own that was made to mean this machine is its own origin.
	port := url[strings.LastIndex(url, ":"):]
	for _, x := range []struct {
		status       int
		host, origin string
	}{
		{403, "evil.example" + port, "http://evil.example" + port},
		{403, "localhost.evil.example" + port, "http://localhost.evil.example" + port},
		{200, "evil.example" + port, ""}, // not from a browser: a proxy, a name of the operator's
		{200, "localhost" + port, "http://localhost" + port},
		{200, "[::1]" + port, "http://[::1]" + port},
		{200, "ok", "http://ok"},
	} {
		headers := []string{"Host", x.host}
		if x.origin != "" {
			headers = append(headers, "Origin", x.origin, "Sec-Fetch-Site", "same-origin")
		}
		if status, _, body := do(t, "POST", url+"/v1/completions", `{"prompt":"a"}`, headers...); status != x.status {
			t.Errorf("host %s, origin %s: %d %s, want %d", x.host, x.origin, status, body, x.status)
		}
	}
	keys, err := serve.OpenKeys("", "secret\n") // as files of secrets end
	if err != nil {
		t.Fatal(err)
	}
	for _, change := range []func(*serve.Config){
		func(conf *serve.Config) { conf.Keys = keys }, // which no page has
		func(conf *serve.Config) { conf.Origins = []string{"*"} },
	} {
		_, url := start(t, c, change)
		if status, _, body := do(t, "POST", url+"/v1/completions", `{"prompt":"a"}`, "Origin", "http://evil", "Authorization", "Bearer secret"); status != 200 {
			t.Errorf("%d %s", status, body)
		}
	}
	conf := serve.Default()
	conf.Names, conf.Origins = []string{"tiny"}, []string{"localhost:3000"}
	if _, err := serve.New(c, conf); err == nil || !strings.Contains(err.Error(), "http://localhost:3000") {
		t.Errorf("an origin without a scheme: %v", err)
	}
}
