// Package serve answers requests of OpenAI's API, and of Anthropic's, over HTTP with one model.
//
// A handler turns a request into prompts and hands them to a Core, which decodes; what the Core
// says of the progress becomes a response, whole or streamed. Every error has the shape of the API
// that its route belongs to. A request costs what its limits say: of headers, body, prompts, choices
// and time. A client that goes away takes its request with it.
package serve

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"os"
	"path"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"talf/internal/limits"
	"talf/serve/metrics"
	"talf/serve/playground"
	"talf/serve/spans"
	"talf/serve/wire"
	"talf/serve/wire/refuse"
	"talf/text/toolcall"
)

// A Config says what is served and to whom. The zero value of a field of time or size is no bound.
type Config struct {
	// Names of the model; the first is its own. A request for another name is answered, too.
	Names []string
	Keys  *Keys // nil: everyone is let in
	// Methods are what GET /v1/models says that requests may choose from, the default first.
	Methods []string
	// ToolFormat is how the model calls tools; "": as its template writes calls.
	ToolFormat toolcall.Name
	// NoPlayground leaves out the page at /.
	NoPlayground bool

	MaxBody    int64         // bytes of a request
	MaxBodies  int64         // bytes of all requests that are being answered
	HeaderTime time.Duration // in which the headers of a request have to come
	BodyTime   time.Duration // in which the body of a request has to come
	WriteTime  time.Duration // in which a client has to take each piece of a response
	MaxTime    time.Duration // of a request, waiting included
	PingTime   time.Duration // silence of a stream after which it says that it is alive
	Origins    []string      // that browsers may ask from; "*" is any

	Log *slog.Logger
	// Metrics count what the server does; nil: nothing is counted, and there is no /metrics.
	Metrics *metrics.Metrics
	// MetricsOpen lets everyone read the metrics, with and without a key.
	MetricsOpen bool
	// Collector is the URL of an OpenTelemetry collector that receives spans of requests; "": none is.
	Collector string
	// Now is the clock of responses; nil is time.Now.
	Now func() time.Time
}

// Default returns the bounds that talf serve begins with.
func Default() Config {
	return Config{
		MaxBody: limits.RequestBytes, MaxBodies: limits.RequestsBytes, HeaderTime: 10 * time.Second, BodyTime: time.Minute, WriteTime: time.Minute, MaxTime: 10 * time.Minute, PingTime: 5 * time.Second,
		Log: slog.New(slog.DiscardHandler),
	}
}

// A Server answers requests. It is an http.Handler.
type Server struct {
	c       Config
	core    Core
	mux     *http.ServeMux
	started int64
	load    load
	several sync.Mutex // held while a request queues more than one answer
	bodies  bodies
	alarm   alarm
	pages   *pages // nil: keys keep other pages out, or all may ask
	tracer  *spans.Tracer
}

// New returns a server of a core. One with a Collector has to Run, which sends the last spans.
func New(core Core, c Config) (*Server, error) {
	if len(c.Names) == 0 {
		return nil, errors.New("serve: the model needs a name")
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	s := &Server{c: c, core: watched{core, c.Metrics}, mux: http.NewServeMux(), started: c.Now().Unix(), bodies: bodies{most: c.MaxBodies}}
	if c.Keys == nil && !slices.Contains(c.Origins, "*") {
		var err error
		if s.pages, err = newPages(c.Origins); err != nil {
			return nil, err
		}
	}
	if m, ok := core.(Measured); ok {
		s.alarm.stats = m.Stats
	}
	for pattern, h := range map[string]http.HandlerFunc{
		"POST /v1/chat/completions":      s.generate(wire.Chat),
		"POST /v1/completions":           s.generate(wire.Completion),
		"POST /v1/responses":             s.generate(wire.Responses),
		"POST /v1/messages":              s.generate(wire.Messages),
		"POST /v1/messages/count_tokens": s.countTokens,
		"POST /infill":                   s.generate(wire.Infill),
		"GET /v1/models":                 s.models,
		"GET /v1/models/{name...}":       s.model,
		"POST /tokenize":                 s.tokenize,
		"POST /detokenize":               s.detokenize,
		"GET /version":                   s.version,
	} {
		s.mux.HandleFunc(pattern, s.guarded(h))
	}
	if c.Metrics != nil {
		read := c.Metrics.Handler().ServeHTTP
		if !c.MetricsOpen {
			read = s.guarded(read)
		}
		s.mux.HandleFunc("GET /metrics", read)
	}
	// Probes have no key.
	s.mux.HandleFunc("GET /health", func(w http.ResponseWriter, _ *http.Request) { s.send(w, http.StatusOK, []byte("{}")) })
	s.mux.HandleFunc("GET /ready", s.ready)
	if !c.NoPlayground {
		for pattern, h := range playground.Routes() { // files alone: what they ask the API for needs a key
			s.mux.HandleFunc(pattern, h)
		}
	}
	var err error
	s.tracer, err = spans.New(spans.Config{Endpoint: c.Collector, Headers: os.Getenv("OTEL_EXPORTER_OTLP_HEADERS"), Model: c.Names[0], Log: c.Log})
	return s, err
}

// Drain makes the server refuse new requests; those that run go on. The channel is closed when they
// have ended.
func (s *Server) Drain() (idle <-chan struct{}) { return s.load.drain() }

// ServeHTTP answers a request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	id := r.Header.Get("X-Request-Id")
	if len(id) > 128 || strings.ContainsFunc(id, func(c rune) bool { return c < '!' || c > '~' }) || id == "" {
		id = "req-" + random()
	}
	w.Header().Set("X-Request-Id", id)
	w.Header().Set("X-Content-Type-Options", "nosniff")
	out := &recorder{ResponseWriter: w, patience: s.c.WriteTime}
	if out.anthropic = strings.HasPrefix(r.URL.Path, "/v1/messages"); out.anthropic {
		w.Header().Set("Request-Id", id) // where Anthropic's clients look for it
	}
	x := &exchange{id: id, arrived: time.Now()}
	r = r.WithContext(context.WithValue(r.Context(), exchangeKey{}, x))
	defer func() { s.finish(x, r, out.status) }()
	defer func() {
		if p := recover(); p != nil {
			s.c.Log.Error("a request panicked", "id", id, "path", r.URL.Path, "panic", p, "stack", string(debug.Stack()))
			if out.status == 0 {
				s.fail(out, refuse.Internal("internal error; the server's log has request %s", id))
			} else {
				panic(http.ErrAbortHandler) // cut the response off
			}
		}
	}()
	// A request with two lengths, as may be meant to smuggle another past a proxy, is the last of its connection
	// (RFC 9112, section 6.1). net/http has dropped the length that chunks override, or in HTTP/1.0 the encoding.
	if r.TransferEncoding != nil || !r.ProtoAtLeast(1, 1) {
		w.Header().Set("Connection", "close")
	}
	// The last response of this connection left its deadline, which "100 Continue" would miss.
	out.extend()
	// Not http.Server.ReadTimeout: that would also end a stream that takes longer to write. The
	// body has its time whether a handler reads it or net/http does, which skips what is left.
	if r.ContentLength != 0 && s.c.BodyTime > 0 {
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(s.c.BodyTime)) // not every ResponseWriter can
	}
	if s.cors(out, r) {
		return
	}
	if _, pattern := s.mux.Handler(r); pattern == "" || !canonical(r.URL.Path) {
		s.fail(out, s.noRoute(out, r))
		return
	}
	s.mux.ServeHTTP(out, r)
}

// noRoute is the error of a path that the server does not have, or has for another method.
func (s *Server) noRoute(w http.ResponseWriter, r *http.Request) *refuse.Error {
	for method, allow := range map[string]string{http.MethodGet: "GET, HEAD", http.MethodPost: "POST"} { // of a path one or the other
		other := *r
		other.Method = method
		if _, pattern := s.mux.Handler(&other); pattern != "" && canonical(r.URL.Path) {
			w.Header().Set("Allow", allow)
			return refuse.NoMethod(r.Method, r.URL.Path, method)
		}
	}
	return refuse.NotFound(r.Method, r.URL.Path)
}

// canonical reports whether a path is as routes are written. For another one, http.ServeMux would
// send the client elsewhere, with a page for people.
func canonical(p string) bool {
	clean := path.Clean(p)
	return p == clean || p == clean+"/"
}

// recorder remembers the status of a response, and bounds how long its client may take.
type recorder struct {
	http.ResponseWriter
	status   int
	patience time.Duration // with each piece; 0: any
	// anthropic errors have the shape of Anthropic's API.
	anthropic bool
}

func (w *recorder) WriteHeader(status int) {
	if w.status == 0 {
		w.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *recorder) Write(b []byte) (int, error) {
	if w.status == 0 {
		w.WriteHeader(http.StatusOK)
	}
	w.extend()
	return w.ResponseWriter.Write(b)
}

// extend gives the client its time for the next piece. Otherwise one that reads nothing would hold
// its request for ever.
func (w *recorder) extend() {
	if w.patience > 0 {
		_ = http.NewResponseController(w.ResponseWriter).SetWriteDeadline(time.Now().Add(w.patience)) // not every ResponseWriter can
	}
}

// Unwrap lets http.ResponseController flush.
func (w *recorder) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// cors lets pages of the allowed origins in, and reports whether the request was only about that.
func (s *Server) cors(w http.ResponseWriter, r *http.Request) bool {
	h := w.Header()
	if len(s.c.Origins) > 0 {
		h.Add("Vary", "Origin") // whoever asks: a cache may keep what another page was told
	}
	origin := r.Header.Get("Origin")
	if origin == "" || !slices.Contains(s.c.Origins, origin) && !slices.Contains(s.c.Origins, "*") {
		return false
	}
	h.Set("Access-Control-Allow-Origin", origin) // without credentials: keys come in a header
	if r.Method != http.MethodOptions {
		return false
	}
	h.Set("Access-Control-Allow-Methods", "GET, POST")
	h.Set("Access-Control-Allow-Headers", "Authorization, Content-Type, X-Api-Key, X-Request-Id")
	if asked := r.Header.Get("Access-Control-Request-Headers"); asked != "" { // clients add many that say who they are
		h.Set("Access-Control-Allow-Headers", asked)
	}
	w.WriteHeader(http.StatusNoContent)
	return true
}

type tenantKey struct{}

// guarded is a handler of requests that need a key, with bounds on body and time.
func (s *Server) guarded(h http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		tenant, ok := s.c.Keys.tenant(r)
		if !ok {
			w.Header().Set("WWW-Authenticate", "Bearer")
			s.fail(w, refuse.Unauthorized())
			return
		}
		if bad := s.pages.refusal(r); bad != nil {
			s.fail(w, bad)
			return
		}
		ctx := context.WithValue(r.Context(), tenantKey{}, tenant)
		if s.c.MaxTime > 0 {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, s.c.MaxTime)
			defer cancel()
		}
		if s.c.MaxBody > 0 {
			r.Body = http.MaxBytesReader(w, r.Body, s.c.MaxBody)
		}
		body := s.bodies.charge(r.Body)
		defer body.free()
		r.Body = body
		h(w, r.WithContext(ctx))
	}
}

func (s *Server) send(w http.ResponseWriter, status int, b []byte) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(b) // the client may have gone
}

func (s *Server) fail(w http.ResponseWriter, e *refuse.Error) {
	if e.Status == http.StatusTooManyRequests || e.Status == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", "1")
	}
	if r, ok := w.(*recorder); ok && r.anthropic {
		s.send(w, e.Status, wire.MessagesError(e, w.Header().Get("X-Request-Id")))
		return
	}
	b, err := json.Marshal(e)
	if err != nil {
		b = []byte(`{"error":{"message":"internal error","type":"server_error","param":null,"code":null}}`)
	}
	s.send(w, e.Status, b)
}

func (s *Server) list() []wire.Model {
	var out []wire.Model
	for i, name := range s.c.Names {
		m := wire.Model{ID: name, Object: "model", Created: s.started, Owner: "talf", Context: s.core.Context()}
		if i > 0 {
			m.Root = s.c.Names[0]
		}
		if len(s.c.Methods) > 0 {
			m.Offers = &wire.Offer{Methods: s.c.Methods}
		}
		out = append(out, m)
	}
	return out
}

func (s *Server) models(w http.ResponseWriter, _ *http.Request) {
	s.send(w, http.StatusOK, wire.Models(s.list()))
}

func (s *Server) model(w http.ResponseWriter, r *http.Request) {
	if r.PathValue("name") == "" { // the list with a slash at its end
		s.models(w, r)
		return
	}
	for _, m := range s.list() {
		if m.ID == r.PathValue("name") {
			s.sendJSON(w, m)
			return
		}
	}
	s.fail(w, refuse.NoModel(r.PathValue("name")))
}

// random returns 96 random bits.
func random() string {
	var b [12]byte
	_, _ = rand.Read(b[:]) // it never fails
	return hex.EncodeToString(b[:])
}
