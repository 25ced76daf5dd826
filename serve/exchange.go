package serve

import (
	"context"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"talf/infer"
	"talf/infer/trace"
	"talf/serve/metrics"
	"talf/serve/spans"
	"talf/serve/wire/refuse"
	"talf/text/toolcall"
)

// An exchange is a request over HTTP and what its answers did, for the log and the metrics.
type exchange struct {
	id      string
	arrived time.Time

	mu      sync.Mutex // answers are read side by side
	answers int
	first   time.Duration // from the request to the first token of any answer; 0: there is none
	prompt  int           // tokens, of all answers
	cached  int
	left    int // answers that ended before their own counts were complete
	tokens  int
	method  string
	rounds  int
	drafted int
	kept    int
	reason  infer.Reason // of the last answer that ended
	spans   []spans.Answer
}

type exchangeKey struct{}

// exchangeOf returns the request that ctx belongs to. A Core that is called without one counts
// for none.
func exchangeOf(ctx context.Context) *exchange {
	if x, ok := ctx.Value(exchangeKey{}).(*exchange); ok {
		return x
	}
	return &exchange{arrived: time.Now()}
}

// route is the pattern of the server's that a request has, "" for none.
func (s *Server) route(r *http.Request) string {
	if !canonical(r.URL.Path) {
		return ""
	}
	_, pattern := s.mux.Handler(r)
	return pattern
}

// closedRequest is the status of a request whose client went away before the response began, as nginx
// writes it. A stream begins at once, with status 200.
const closedRequest = 499

// mostWord bounds the bytes of a method or a path in the log: clients choose both.
const mostWord = 128

// short is the beginning of a word of a client's.
func short(s string) string {
	if len(s) > mostWord {
		return s[:mostWord] + "…"
	}
	return s
}

// finish counts a request that has ended and writes its line of the log. Neither has anything of
// a prompt or an answer.
func (s *Server) finish(x *exchange, r *http.Request, status int) {
	s.c.Metrics.Response(s.route(r), status)
	line := []slog.Attr{
		slog.String("id", x.id), slog.String("method", short(r.Method)), slog.String("path", short(r.URL.Path)), slog.Int("status", status),
		slog.Duration("duration", time.Since(x.arrived).Round(time.Microsecond)),
	}
	x.mu.Lock()
	s.tracer.Record(r.Header, &spans.Request{ID: x.id, Route: s.route(r), Status: status, Begin: x.arrived, End: time.Now(), Answers: x.spans})
	if x.answers > 0 {
		line = append(line,
			slog.Int("answers", x.answers), slog.Int("prompt_tokens", x.prompt), slog.Int("completion_tokens", x.tokens),
			slog.Duration("ttft", x.first.Round(time.Microsecond)), slog.String("end", string(x.reason)))
		if x.left < x.answers { // what is not known is no 0
			line = append(line, slog.Int("cached_tokens", x.cached), slog.String("draft", x.method), slog.Int("rounds", x.rounds),
				slog.Int("drafted", x.drafted), slog.Int("accepted", x.kept))
		}
	}
	x.mu.Unlock()
	s.c.Log.LogAttrs(r.Context(), slog.LevelInfo, "request", line...)
	s.alarm.look(time.Now(), s.c.Log)
}

// A watched Core counts what is submitted to it.
type watched struct {
	Core
	m *metrics.Metrics
}

// Submit queues a request.
func (w watched) Submit(ctx context.Context, j Job) (Answer, *refuse.Error) {
	a, bad := w.Core.Submit(ctx, j)
	if bad != nil {
		return nil, bad
	}
	x := exchangeOf(ctx)
	x.mu.Lock()
	defer x.mu.Unlock()
	x.answers++
	return &observed{Answer: a, x: x, m: w.m, prompt: len(j.Prompt), silent: j.Request.NoAnswer}, nil
}

// An observed Answer tells its exchange and the metrics what it does. One goroutine reads it; Close
// may come from another one after that.
type observed struct {
	Answer
	x      *exchange
	m      *metrics.Metrics
	prompt int
	silent bool // the client gets the prompt alone: the token that the loop adds counts nowhere

	mu     sync.Mutex
	last   time.Time // when the reader got the last piece
	tokens int
	ended  bool
}

// Next waits for more of the answer.
func (a *observed) Next(ctx context.Context) (infer.Delta, error) {
	d, err := a.Answer.Next(ctx)
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(d.Tokens) > 0 && !a.silent {
		now := time.Now()
		if a.last.IsZero() {
			a.x.began(now)
		} else {
			a.m.Between(now.Sub(a.last))
		}
		a.last = now
		a.tokens += len(d.Tokens)
	}
	switch {
	case d.Reason != "":
		a.end(d.Reason, true)
	case err != nil && ctx.Err() == nil:
		a.end(infer.Failed, false)
	}
	return d, err
}

// Rounds are those of a traced answer.
func (a *observed) Rounds() []trace.Numbered {
	if t, ok := a.Answer.(Traced); ok {
		return t.Rounds()
	}
	return nil
}

// PromptRead is that of the answer: all of the prompt once there are tokens, or if the answer does not know.
func (a *observed) PromptRead() int {
	a.mu.Lock()
	begun := !a.last.IsZero() || a.ended
	a.mu.Unlock()
	if r, ok := a.Answer.(Reading); ok && !begun {
		return r.PromptRead()
	}
	return a.prompt
}

// Close frees what the answer holds. One that has not ended is cancelled.
func (a *observed) Close() {
	a.Answer.Close()
	a.mu.Lock()
	defer a.mu.Unlock()
	a.end(infer.Cancelled, false)
}

// end counts the answer, once. whole says that the answer's own counts are complete: those of one
// that is being cancelled may be the loop's for as long as a pass takes.
func (a *observed) end(reason infer.Reason, whole bool) {
	if a.ended {
		return
	}
	a.ended = true
	e := metrics.Answer{Reason: reason, Arrived: a.x.arrived, Ended: time.Now(), Prompt: a.prompt, Tokens: a.tokens}
	if t, ok := a.Answer.(Timed); ok {
		e.Times = t.Times()
	}
	a.m.Answered(&e)
	x := a.x
	x.mu.Lock()
	defer x.mu.Unlock()
	span := spans.Answer{
		Finish: string(reason), Failed: reason == infer.Failed, Prompt: a.prompt, Tokens: a.tokens,
		Submitted: e.Times.Submitted, Admitted: e.Times.Admitted, First: e.Times.First, Last: e.Times.Last, Ended: e.Ended,
	}
	x.reason = reason
	x.prompt, x.tokens = x.prompt+a.prompt, x.tokens+a.tokens
	if !whole {
		x.left++
	} else {
		d := a.Drafting()
		x.cached += a.Stats().Cached
		x.method, x.rounds, x.drafted, x.kept = d.Method, x.rounds+d.Rounds, x.drafted+d.Drafted, x.kept+d.Accepted
		span.Cached, span.Method, span.Rounds, span.Drafted, span.Accepted = a.Stats().Cached, d.Method, d.Rounds, d.Drafted, d.Accepted
	}
	x.spans = append(x.spans, span)
}

// began records the first token of an answer.
func (x *exchange) began(now time.Time) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.first == 0 {
		x.first = now.Sub(x.arrived)
	}
}

// Parser is that of the answer.
func (a *observed) Parser() *toolcall.Parser {
	if c, ok := a.Answer.(Calling); ok {
		return c.Parser()
	}
	return nil
}
