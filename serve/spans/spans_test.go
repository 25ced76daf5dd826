package spans

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"talf/internal/leak"
)

func TestMain(m *testing.M) { os.Exit(leak.Main(m.Run)) }

// A collector receives spans as OpenTelemetry's does.
type collector struct {
	mu       sync.Mutex
	statuses []int // of the next responses; then 200
	spans    []*tracepb.Span
	resource map[string]string
	requests int
	headers  http.Header
	bad      string
}

func (c *collector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.requests++
	c.headers = r.Header
	b, err := io.ReadAll(r.Body)
	var got tracepb.TracesData
	if err != nil || r.URL.Path != "/base/v1/traces" || r.Header.Get("Content-Type") != "application/x-protobuf" || proto.Unmarshal(b, &got) != nil {
		c.bad = r.Method + " " + r.URL.Path
	}
	if len(c.statuses) > 0 {
		w.WriteHeader(c.statuses[0])
		c.statuses = c.statuses[1:]
		return
	}
	for _, rs := range got.GetResourceSpans() {
		c.resource = attributes(rs.GetResource().GetAttributes())
		for _, ss := range rs.GetScopeSpans() {
			c.spans = append(c.spans, ss.GetSpans()...)
		}
	}
}

func attributes(kvs []*commonpb.KeyValue) map[string]string {
	out := map[string]string{}
	for _, kv := range kvs {
		v := kv.GetValue().String()
		_, v, _ = strings.Cut(v, ":")
		out[kv.GetKey()] = strings.Trim(v, `" `)
	}
	return out
}

var at = time.Unix(1_700_000_000, 0)

func after(ms int) time.Time { return at.Add(time.Duration(ms) * time.Millisecond) }

func request() *Request {
	return &Request{
		ID: "mine", Route: "POST /v1/chat/completions", Status: 200, Begin: at, End: after(900),
		Answers: []Answer{
			{
				Finish: "eos", Prompt: 7, Cached: 3, Tokens: 12, Method: "salf", Rounds: 4, Drafted: 30, Accepted: 8,
				Submitted: after(10), Admitted: after(100), First: after(300), Last: after(800), Ended: after(810),
			},
			{Finish: "cancelled", Prompt: 7, Submitted: after(10), Ended: after(850)}, // in the queue
		},
	}
}

func TestARequestIsATrace(t *testing.T) {
	c := &collector{}
	s := httptest.NewServer(c)
	defer s.Close()
	tr, err := New(Config{Endpoint: s.URL + "/base", Headers: "x-team = a%20b , authorization=Bearer%20k", Model: "tiny", Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	h := http.Header{"Traceparent": {"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}}
	tr.Record(h, request())
	tr.Record(http.Header{"Traceparent": {"nonsense"}}, &Request{Route: "POST /v1/completions", Status: 500, Begin: at, End: after(1)})
	tr.Record(http.Header{"Traceparent": {"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00"}}, request()) // the caller does not sample it
	tr.Record(http.Header{}, &Request{Route: "GET /health", Status: 200, Begin: at, End: after(1)})
	if err := tr.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if c.bad != "" || c.headers.Get("X-Team") != "a b" || c.headers.Get("Authorization") != "Bearer k" {
		t.Errorf("%s, %v", c.bad, c.headers)
	}
	if c.resource["service.name"] != "talf" {
		t.Errorf("resource %v", c.resource)
	}
	byName := map[string][]*tracepb.Span{}
	for _, x := range c.spans {
		byName[x.GetName()] = append(byName[x.GetName()], x)
	}
	if len(c.spans) != 6 || len(byName["chat tiny"]) != 1 || len(byName["text_completion tiny"]) != 1 || len(byName["queue"]) != 2 || len(byName["prefill"]) != 1 || len(byName["decode"]) != 1 {
		t.Fatalf("%v", c.spans)
	}
	root := byName["chat tiny"][0]
	if id := root.GetTraceId(); len(id) != 16 || id[0] != 0x4b || root.GetParentSpanId()[0] != 0 || root.GetParentSpanId()[1] != 0xf0 {
		t.Errorf("trace %x of %x: the caller's is lost", id, root.GetParentSpanId())
	}
	if root.GetKind() != tracepb.Span_SPAN_KIND_SERVER || root.GetStartTimeUnixNano() != uint64(at.UnixNano()) || root.GetEndTimeUnixNano() != uint64(after(900).UnixNano()) {
		t.Errorf("%v", root)
	}
	got := attributes(root.GetAttributes())
	for key, want := range map[string]string{
		"gen_ai.operation.name": "chat", "gen_ai.request.model": "tiny", "gen_ai.usage.input_tokens": "14", "gen_ai.usage.output_tokens": "12",
		"gen_ai.usage.cache_read.input_tokens": "3", "talf.drafted_tokens": "30", "talf.accepted_tokens": "8", "talf.request.id": "mine",
		"http.response.status_code": "200", "http.route": "/v1/chat/completions", "talf.time_to_first_token": "0.3",
	} {
		if got[key] != want {
			t.Errorf("%s is %q, want %q", key, got[key], want)
		}
	}
	for name, want := range map[string][2]int{"queue": {10, 100}, "prefill": {100, 300}, "decode": {300, 800}} {
		x := byName[name][0]
		if !bytes.Equal(x.GetParentSpanId(), root.GetSpanId()) || x.GetStartTimeUnixNano() != uint64(after(want[0]).UnixNano()) || x.GetEndTimeUnixNano() != uint64(after(want[1]).UnixNano()) {
			t.Errorf("%s: %v", name, x)
		}
	}
	if x := byName["queue"][1]; x.GetEndTimeUnixNano() != uint64(after(850).UnixNano()) {
		t.Errorf("an answer that was never admitted: %v", x)
	}
	if tau := attributes(byName["decode"][0].GetAttributes())["talf.tau"]; tau != "3" {
		t.Errorf("τ is %s", tau)
	}
	failed := byName["text_completion tiny"][0]
	if failed.GetStatus().GetCode() != tracepb.Status_STATUS_CODE_ERROR || len(failed.GetParentSpanId()) != 0 {
		t.Errorf("%v", failed)
	}
}

// An answer that fails after its stream has begun has status 200, and is an error for all that.
func TestAFailedAnswerIsAnError(t *testing.T) {
	c := &collector{}
	s := httptest.NewServer(c)
	defer s.Close()
	tr, err := New(Config{Endpoint: s.URL + "/base", Model: "tiny", Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	for _, failed := range []bool{false, true} {
		r := request()
		r.Answers[1].Failed = failed
		tr.Record(http.Header{}, r)
	}
	if err := tr.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, x := range c.spans {
		if x.GetName() == "chat tiny" {
			got = append(got, x.GetStatus().GetCode().String()+attributes(x.GetAttributes())["error.type"])
		}
	}
	if want := []string{"STATUS_CODE_UNSET", "STATUS_CODE_ERROR_OTHER"}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// A collector that is busy is asked again; one that is away costs spans and one line of the log.
func TestACollectorMayBeAway(t *testing.T) {
	c := &collector{statuses: []int{503, 429}}
	s := httptest.NewServer(c)
	defer s.Close()
	var log bytes.Buffer
	to := &client{url: s.URL + "/base/v1/traces", headers: http.Header{}, http: s.Client(), log: slog.New(slog.NewTextHandler(&log, nil)), wait: time.Millisecond}
	send := func(statuses ...int) {
		t.Helper()
		c.statuses = statuses
		if err := to.UploadTraces(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
	}
	send(503, 429)
	if c.requests != 3 || log.Len() != 0 {
		t.Errorf("%d requests: %s", c.requests, &log)
	}
	send(400) // it will not change its mind
	send(503, 503, 503)
	if c.requests != 3+1+3 || strings.Count(log.String(), "cannot send spans") != 1 || !strings.Contains(log.String(), "400 Bad Request") {
		t.Errorf("%d requests: %s", c.requests, &log)
	}
	send()
	send()
	if strings.Count(log.String(), "\n") != 2 || !strings.Contains(log.String(), "sent again") {
		t.Errorf("%s", &log)
	}
	s.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	to.wait = time.Hour
	if err := to.UploadTraces(ctx, nil); err != nil || strings.Count(log.String(), "cannot send spans") != 2 {
		t.Errorf("%v: %s", err, &log)
	}
}

func TestBadCollectors(t *testing.T) {
	for _, c := range []Config{{Endpoint: "127.0.0.1:4318"}, {Endpoint: "ftp://x"}, {Endpoint: "http://"}, {Endpoint: "http://x", Headers: "a"}, {Endpoint: "http://x", Headers: "=b"}, {Endpoint: "http://x", Headers: "a=%zz"}} {
		if _, err := New(c); err == nil {
			t.Errorf("%+v is accepted", c)
		}
	}
	tr, err := New(Config{})
	if tr != nil || err != nil {
		t.Errorf("%v, %v", tr, err)
	}
	tr.Record(http.Header{}, request())
	if err := tr.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

// A password in the collector's URL stays out of the log.
func TestThePasswordOfACollectorIsNotLogged(t *testing.T) {
	s := httptest.NewServer(http.NotFoundHandler())
	defer s.Close()
	var log bytes.Buffer
	to := &client{url: strings.Replace(s.URL, "http://", "http://me:secret@", 1), headers: http.Header{}, http: s.Client(), log: slog.New(slog.NewTextHandler(&log, nil)), wait: time.Millisecond}
	if err := to.UploadTraces(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(log.String(), "404") || !strings.Contains(log.String(), "me:xxxxx@") || strings.Contains(log.String(), "secret") {
		t.Errorf("%s", &log)
	}
}
