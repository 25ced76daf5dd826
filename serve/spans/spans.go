// Package spans tells OpenTelemetry what requests did: a span for each, with one for every phase of
// its answers, in the terms of the semantic conventions for generative AI. Spans have no texts.
package spans

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"talf/internal/version"
)

// A Config says where spans go.
type Config struct {
	Endpoint string // URL of a collector, such as http://127.0.0.1:4318; spans go to /v1/traces below it
	Headers  string // of requests to it, as in OTEL_EXPORTER_OTLP_HEADERS
	Model    string
	Log      *slog.Logger
}

// A Tracer makes spans. Its methods may be called from any goroutine, and of a nil *Tracer they
// do nothing.
type Tracer struct {
	model    string
	provider *sdk.TracerProvider
	tracer   trace.Tracer
}

// Spans wait for the collector in a queue of this size; what finds it full is dropped.
const queue = 2048

// New returns a tracer that sends spans to c.Endpoint, or nil if that is empty. It makes no connection
// before there is a span.
func New(c Config) (*Tracer, error) {
	if c.Endpoint == "" {
		return nil, nil
	}
	u, err := url.Parse(c.Endpoint)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, fmt.Errorf("OTLP endpoint %q: want the URL of a collector, such as http://127.0.0.1:4318", c.Endpoint)
	}
	headers, err := parseHeaders(c.Headers)
	if err != nil {
		return nil, err
	}
	to := &client{url: u.JoinPath("v1", "traces").String(), headers: headers, http: &http.Client{}, log: c.Log, wait: firstWait}
	return open(to, c.Model)
}

func open(to otlptrace.Client, model string) (*Tracer, error) {
	ctx := context.Background()
	// OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES win.
	about, err := resource.New(ctx, resource.WithAttributes(
		attribute.String("service.name", "talf"), attribute.String("service.version", version.Read().Version),
	), resource.WithFromEnv())
	if err != nil {
		return nil, err
	}
	exporter, err := otlptrace.New(ctx, to)
	if err != nil {
		return nil, err
	}
	p := sdk.NewTracerProvider(
		sdk.WithResource(about),
		sdk.WithSampler(sdk.ParentBased(sdk.AlwaysSample())), // a gateway that does not sample a request decides for us, too
		sdk.WithBatcher(exporter, sdk.WithMaxQueueSize(queue)),
	)
	return &Tracer{model: model, provider: p, tracer: p.Tracer("talf/serve")}, nil
}

// Close sends what waits, until ctx ends.
func (t *Tracer) Close(ctx context.Context) error {
	if t == nil {
		return nil
	}
	return t.provider.Shutdown(ctx)
}

// A Request is a request that has ended.
type Request struct {
	ID         string // X-Request-Id
	Route      string // pattern, such as "POST /v1/completions"
	Status     int
	Begin, End time.Time
	Answers    []Answer
}

// An Answer is one choice of a request.
type Answer struct {
	Finish             string // reason
	Failed             bool   // an error ended it
	Prompt, Cached     int    // tokens
	Tokens             int    // of the answer
	Method             string // of drafting
	Rounds             int
	Drafted, Accepted  int // tokens
	Submitted          time.Time
	Admitted           time.Time // zero if it was never
	First, Last, Ended time.Time // first and last token; zero if there was none
}

// mostAnswers bounds the answers of one request that have spans of their own.
const mostAnswers = 8

// operations are what the semantic conventions call our routes.
var operations = map[string]string{
	"POST /v1/chat/completions": "chat", "POST /v1/responses": "chat", "POST /v1/messages": "chat", "POST /v1/completions": "text_completion",
}

// Record makes the spans of a request. Its headers may say which trace it belongs to (W3C
// traceparent). Requests on routes that do not generate have none.
func (t *Tracer) Record(headers http.Header, r *Request) {
	op := operations[r.Route]
	if t == nil || op == "" {
		return
	}
	ctx := propagation.TraceContext{}.Extract(context.Background(), propagation.HeaderCarrier(headers))
	method, path, _ := strings.Cut(r.Route, " ")
	ctx, span := t.tracer.Start(ctx, op+" "+t.model, trace.WithTimestamp(r.Begin), trace.WithSpanKind(trace.SpanKindServer), trace.WithAttributes(
		attribute.String("gen_ai.operation.name", op), attribute.String("gen_ai.provider.name", "talf"),
		attribute.String("gen_ai.request.model", t.model), attribute.String("gen_ai.response.model", t.model),
		attribute.String("http.request.method", method), attribute.String("http.route", path),
		attribute.Int("http.response.status_code", r.Status), attribute.String("talf.request.id", r.ID),
	))
	defer span.End(trace.WithTimestamp(r.End))
	if !span.IsRecording() {
		return
	}
	var sum Answer
	var finish []string
	first, failed := time.Time{}, false
	for i := range r.Answers {
		a := &r.Answers[i]
		finish, failed = append(finish, a.Finish), failed || a.Failed
		sum.Prompt, sum.Cached, sum.Tokens = sum.Prompt+a.Prompt, sum.Cached+a.Cached, sum.Tokens+a.Tokens
		sum.Rounds, sum.Drafted, sum.Accepted = sum.Rounds+a.Rounds, sum.Drafted+a.Drafted, sum.Accepted+a.Accepted
		if !a.First.IsZero() && (first.IsZero() || a.First.Before(first)) {
			first = a.First
		}
		if i < mostAnswers {
			t.phases(ctx, i, a)
		}
	}
	if len(r.Answers) > 0 {
		span.SetAttributes(
			attribute.StringSlice("gen_ai.response.finish_reasons", finish),
			attribute.Int("gen_ai.usage.input_tokens", sum.Prompt), attribute.Int("gen_ai.usage.output_tokens", sum.Tokens),
			attribute.Int("gen_ai.usage.cache_read.input_tokens", sum.Cached),
			attribute.Int("talf.rounds", sum.Rounds), attribute.Int("talf.drafted_tokens", sum.Drafted), attribute.Int("talf.accepted_tokens", sum.Accepted),
		)
	}
	if !first.IsZero() {
		span.SetAttributes(attribute.Float64("talf.time_to_first_token", first.Sub(r.Begin).Seconds()))
	}
	switch {
	case r.Status >= 500:
		span.SetStatus(codes.Error, http.StatusText(r.Status))
		span.SetAttributes(attribute.String("error.type", fmt.Sprint(r.Status)))
	case failed: // after its stream had begun, with status 200
		span.SetStatus(codes.Error, "an answer failed")
		span.SetAttributes(attribute.String("error.type", "_OTHER")) // what the conventions have for it
	}
}

// phases makes the spans of an answer: in the queue, while its prompt is read, and while it is
// decoded.
func (t *Tracer) phases(ctx context.Context, index int, a *Answer) {
	phase := func(name string, from, to time.Time, more ...attribute.KeyValue) {
		if from.IsZero() {
			return
		}
		if to.IsZero() {
			to = a.Ended
		}
		_, s := t.tracer.Start(ctx, name, trace.WithTimestamp(from), trace.WithAttributes(append(more, attribute.Int("talf.choice", index))...))
		s.End(trace.WithTimestamp(to))
	}
	phase("queue", a.Submitted, a.Admitted)
	phase("prefill", a.Admitted, a.First, attribute.Int("gen_ai.usage.input_tokens", a.Prompt), attribute.Int("gen_ai.usage.cache_read.input_tokens", a.Cached))
	tau := 0.0
	if a.Rounds > 0 {
		tau = float64(a.Tokens) / float64(a.Rounds)
	}
	phase("decode", a.First, a.Last,
		attribute.Int("gen_ai.usage.output_tokens", a.Tokens), attribute.String("talf.method", a.Method), attribute.Int("talf.rounds", a.Rounds),
		attribute.Int("talf.drafted_tokens", a.Drafted), attribute.Int("talf.accepted_tokens", a.Accepted), attribute.Float64("talf.tau", tau))
}
