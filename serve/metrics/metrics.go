// Package metrics shows what a server does to Prometheus and to routers that read its gauges.
//
// What vLLM measures, too, has vLLM's names, labels and buckets (vllm/v1/metrics/loggers.py and
// vllm/v1/spec_decode/metrics.py): dashboards, load generators and the Gateway API inference
// extension read those. The rest begins with talf_. Counters of rounds and passes come from the
// loop whenever somebody reads; the others are counted when an answer goes on or ends.
package metrics

import (
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"talf/infer"
	"talf/infer/loop"
	"talf/internal/version"
)

// A Config says what is measured.
type Config struct {
	Model string            // its name, a label
	Stats func() loop.Stats // the state of the loop; it is called whenever somebody reads
}

// Metrics are the metrics of one server, in a registry of their own. The methods may be called
// from any goroutine, and of a nil *Metrics they do nothing.
type Metrics struct {
	registry *prometheus.Registry

	ended map[infer.Reason]prometheus.Counter

	firstToken, betweenTokens, perToken   prometheus.Histogram // seconds
	endToEnd, queued, prefilled, decoding prometheus.Histogram // seconds
	promptLength, answerLength            prometheus.Histogram // tokens

	responses *prometheus.CounterVec // by route and status
}

// Buckets of vLLM's histograms.
var (
	firstTokenSeconds = []float64{
		0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160, 640, 2560,
	}
	// A small model answers within a millisecond, which vLLM's lowest bucket of 10 ms would hide.
	tokenSeconds = []float64{
		0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80,
	}
	requestSeconds = []float64{
		0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680,
	}
	tokenCounts = []float64{1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 20_000, 50_000, 100_000, 200_000}
)

// finished is how vLLM calls the ends of an answer.
var finished = map[infer.Reason]string{
	infer.EOS: "stop", infer.Complete: "stop", infer.Stop: "stop", infer.Length: "length", infer.Cancelled: "abort", infer.Failed: "error",
}

// New returns the metrics of a server.
func New(c Config) *Metrics {
	r := prometheus.NewRegistry()
	m := &Metrics{registry: r, ended: map[infer.Reason]prometheus.Counter{}}
	labels := prometheus.Labels{"model_name": c.Model, "engine": "0"}
	vllm := prometheus.WrapRegistererWith(labels, r)
	histogram := func(name, help string, buckets []float64) prometheus.Histogram {
		x := prometheus.NewHistogram(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets})
		vllm.MustRegister(x)
		return x
	}
	ends := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "vllm:request_success_total", Help: "Answers that have ended, by reason.",
	}, []string{"finished_reason"})
	vllm.MustRegister(ends)
	for reason, name := range finished { // all, so that the first one of a kind is an increase
		m.ended[reason] = ends.WithLabelValues(name)
	}
	m.firstToken = histogram("vllm:time_to_first_token_seconds", "Time from a request to the first token of an answer.", firstTokenSeconds)
	m.betweenTokens = histogram("vllm:inter_token_latency_seconds", "Time between the rounds of an answer, of one or more tokens, as its reader gets them.", tokenSeconds)
	m.perToken = histogram("vllm:request_time_per_output_token_seconds", "Mean time per token of an answer, after its first.", tokenSeconds)
	m.endToEnd = histogram("vllm:e2e_request_latency_seconds", "Time from a request to the end of an answer.", requestSeconds)
	m.queued = histogram("vllm:request_queue_time_seconds", "Time that an answer waited in the queue.", requestSeconds)
	m.prefilled = histogram("vllm:request_prefill_time_seconds", "Time from the queue to the first token.", requestSeconds)
	m.decoding = histogram("vllm:request_decode_time_seconds", "Time from the first token to the last.", requestSeconds)
	m.promptLength = histogram("vllm:request_prompt_tokens", "Tokens of a prompt.", tokenCounts)
	m.answerLength = histogram("vllm:request_generation_tokens", "Tokens of an answer.", tokenCounts)

	m.responses = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "talf_http_requests_total", Help: "Requests, by route and status of the response; route \"none\" is that of paths which the server does not have.",
	}, []string{"route", "code"})
	v := version.Read()
	build := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "talf_build_info", Help: "1, with the build as labels.",
		ConstLabels: prometheus.Labels{"version": v.Version, "revision": v.Revision, "goversion": v.Go},
	})
	build.Set(1)
	r.MustRegister(m.responses, build, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	vllm.MustRegister(&engine{c.Stats})
	return m
}

// Handler answers with the metrics in Prometheus' text format.
func (m *Metrics) Handler() http.Handler {
	// Reading takes the loop's lock: of a crowd of readers, all but four get status 503 at once.
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{MaxRequestsInFlight: 4})
}

// Response counts a response. route is one of the server's patterns, "" for none of them.
func (m *Metrics) Response(route string, status int) {
	if m == nil {
		return
	}
	if route == "" {
		route = "none"
	}
	m.responses.WithLabelValues(route, strconv.Itoa(status)).Inc()
}

// Between counts the time from one piece of an answer to the next, as its reader got them.
func (m *Metrics) Between(d time.Duration) {
	if m != nil {
		m.betweenTokens.Observe(d.Seconds())
	}
}

// An Answer is what an answer was, once it has ended.
type Answer struct {
	Reason infer.Reason
	// Arrived is when the request came, Ended when its answer ended.
	Arrived, Ended time.Time
	Times          loop.Times
	Prompt         int // tokens
	Tokens         int // of the answer
}

// Answered counts an answer that has ended.
func (m *Metrics) Answered(a *Answer) {
	if m == nil {
		return
	}
	if c := m.ended[a.Reason]; c != nil {
		c.Inc()
	}
	m.endToEnd.Observe(a.Ended.Sub(a.Arrived).Seconds())
	t := &a.Times
	if t.Admitted.IsZero() {
		return // it ended in the queue
	}
	m.queued.Observe(t.Admitted.Sub(t.Submitted).Seconds())
	m.promptLength.Observe(float64(a.Prompt))
	m.answerLength.Observe(float64(a.Tokens))
	if t.First.IsZero() {
		return
	}
	m.firstToken.Observe(t.First.Sub(a.Arrived).Seconds())
	m.prefilled.Observe(t.First.Sub(t.Admitted).Seconds())
	decoding := t.Last.Sub(t.First).Seconds()
	m.decoding.Observe(decoding)
	if a.Tokens > 1 {
		m.perToken.Observe(decoding / float64(a.Tokens-1))
	}
}
