package metrics_test

import (
	"bytes"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"github.com/prometheus/common/expfmt"

	"talf/infer"
	"talf/infer/loop"
	"talf/model"
	"talf/serve/metrics"
)

// sample is the state of a loop with two methods.
func sample() loop.Stats {
	salf := &loop.Drafting{
		Counts:   loop.Counts{Rounds: 10, Drafts: 9, Tokens: 25, Drafted: 80, Accepted: 15},
		Position: []int{9, 6},
	}
	salf.Context[0] = loop.Counts{Rounds: 7, Drafts: 6, Tokens: 20, Drafted: 60, Accepted: 13}
	salf.Context[len(loop.ContextBounds)] = loop.Counts{Rounds: 3, Drafts: 3, Tokens: 5, Drafted: 20, Accepted: 2}
	salf.Fallbacks[infer.FallbackMemory] = 4
	goose := &loop.Drafting{Counts: loop.Counts{Rounds: 5, Drafts: 1, Tokens: 8, Drafted: 3, Accepted: 3}, Position: []int{1, 1, 1}}
	return loop.Stats{
		Running: 3, Waiting: 2, KV: model.KVStats{BlockTokens: 16, Total: 40, Used: 30, Free: 30},
		PromptTokens: 100, CachedTokens: 60, Passes: 12, Rows: 90, PromptRows: 40, Preemptions: 1, Failed: 2, Refused: 7, Expired: 1,
		Draft: time.Second, Verify: 2 * time.Second, Busy: 4 * time.Second,
		Pace:    loop.Pace{Tau: 1.5, Even: 2, Drafted: 0.75, Losing: true},
		Methods: map[string]*loop.Drafting{"salf": salf, "goose": goose},
	}
}

func scrape(t *testing.T, m *metrics.Metrics) []byte {
	t.Helper()
	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	if w.Code != 200 || !strings.HasPrefix(w.Header().Get("Content-Type"), "text/plain") {
		t.Fatalf("%d %s: %s", w.Code, w.Header().Get("Content-Type"), w.Body)
	}
	return w.Body.Bytes()
}

// series returns the values of all series by name and labels, those of the model and the engine
// left out, and histograms as their count and sum.
func series(t *testing.T, text []byte) map[string]float64 {
	t.Helper()
	var parser expfmt.TextParser
	families, err := parser.TextToMetricFamilies(bytes.NewReader(text))
	if err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	out := map[string]float64{}
	for name, f := range families {
		for _, m := range f.GetMetric() {
			var labels []string
			of := map[string]string{}
			for _, l := range m.GetLabel() {
				if of[l.GetName()] = l.GetValue(); l.GetName() != "model_name" && l.GetName() != "engine" {
					labels = append(labels, l.GetName()+"="+l.GetValue())
				}
			}
			if strings.HasPrefix(name, "vllm:") && (of["model_name"] != "tiny" || of["engine"] != "0") {
				t.Errorf("%s has labels %v, want those of vLLM", name, of)
			}
			key := name
			if len(labels) > 0 {
				key += "{" + strings.Join(labels, ",") + "}"
			}
			switch {
			case m.GetGauge() != nil:
				out[key] = m.GetGauge().GetValue()
			case m.GetCounter() != nil:
				out[key] = m.GetCounter().GetValue()
			case m.GetHistogram() != nil:
				out[key+"_count"], out[key+"_sum"] = float64(m.GetHistogram().GetSampleCount()), m.GetHistogram().GetSampleSum()
			}
		}
	}
	return out
}

func TestMetricsHaveTheNamesThatToolsRead(t *testing.T) {
	m := metrics.New(metrics.Config{Model: "tiny", Stats: sample})
	at := time.Unix(1000, 0)
	after := func(ms int) time.Time { return at.Add(time.Duration(ms) * time.Millisecond) }
	m.Answered(&metrics.Answer{
		Reason: infer.EOS, Arrived: at, Ended: after(900), Prompt: 7, Tokens: 5,
		Times: loop.Times{Submitted: after(100), Admitted: after(300), First: after(400), Last: after(800)},
	})
	m.Answered(&metrics.Answer{Reason: infer.Cancelled, Arrived: at, Ended: after(50), Prompt: 7, Times: loop.Times{Submitted: after(10)}}) // in the queue
	m.Answered(&metrics.Answer{                                                                                                             // before its first token
		Reason: infer.Failed, Arrived: at, Ended: after(50), Prompt: 7, Times: loop.Times{Submitted: after(10), Admitted: after(20)},
	})
	m.Between(20 * time.Millisecond)
	m.Response("POST /v1/completions", 200)
	m.Response("", 404)
	got := series(t, scrape(t, m))
	for key, want := range map[string]float64{
		"vllm:num_requests_running":                                      3,
		"vllm:num_requests_waiting":                                      2,
		"vllm:kv_cache_usage_perc":                                       0.25,
		"vllm:cache_config_info{block_size=16,num_gpu_blocks=40}":        1,
		"vllm:prompt_tokens_total":                                       100,
		"vllm:generation_tokens_total":                                   33,
		"vllm:prefix_cache_queries_total":                                100,
		"vllm:prefix_cache_hits_total":                                   60,
		"vllm:num_preemptions_total":                                     1,
		"vllm:request_success_total{finished_reason=stop}":               1,
		"vllm:request_success_total{finished_reason=length}":             0,
		"vllm:request_success_total{finished_reason=abort}":              1,
		"vllm:request_success_total{finished_reason=error}":              1,
		"vllm:time_to_first_token_seconds_count":                         1,
		"vllm:time_to_first_token_seconds_sum":                           0.4,
		"vllm:inter_token_latency_seconds_sum":                           0.02,
		"vllm:request_time_per_output_token_seconds_sum":                 0.1,
		"vllm:e2e_request_latency_seconds_count":                         3,
		"vllm:e2e_request_latency_seconds_sum":                           1,
		"vllm:request_queue_time_seconds_count":                          2,
		"vllm:request_queue_time_seconds_sum":                            0.21,
		"vllm:request_prefill_time_seconds_sum":                          0.1,
		"vllm:request_decode_time_seconds_sum":                           0.4,
		"vllm:request_prompt_tokens_sum":                                 14,
		"vllm:request_generation_tokens_sum":                             5,
		"vllm:spec_decode_num_drafts_total":                              10,
		"vllm:spec_decode_num_draft_tokens_total":                        83,
		"vllm:spec_decode_num_accepted_tokens_total":                     18,
		"vllm:spec_decode_num_accepted_tokens_per_pos_total{position=0}": 10,
		"vllm:spec_decode_num_accepted_tokens_per_pos_total{position=1}": 7,
		"vllm:spec_decode_num_accepted_tokens_per_pos_total{position=2}": 1,

		"talf_rounds_total{method=salf}":                         10,
		"talf_round_tokens_total{method=salf}":                   25,
		"talf_drafts_total{method=goose}":                        1,
		"talf_draft_tokens_total{method=goose}":                  3,
		"talf_accepted_tokens_total{method=salf}":                15,
		"talf_fallbacks_total{method=salf,reason=kv_full}":       4,
		"talf_fallbacks_total{method=salf,reason=source_failed}": 0,
		"talf_context_drafts_total{context_below=512}":           6,
		"talf_context_drafts_total{context_below=2048}":          0,
		"talf_context_accepted_tokens_total{context_below=+Inf}": 2,
		"talf_tau":                            1.5,
		"talf_tau_even":                       2,
		"talf_drafted_rounds_ratio":           0.75,
		"talf_drafting_losing":                1,
		"talf_passes_total":                   12,
		"talf_pass_rows_total{kind=prompt}":   40,
		"talf_pass_rows_total{kind=tree}":     50,
		"talf_failed_passes_total":            2,
		"talf_pass_seconds_total{part=other}": 1,
		"talf_refused_answers_total":          7,
		"talf_expired_answers_total":          1,
		"talf_http_requests_total{code=200,route=POST /v1/completions}": 1,
		"talf_http_requests_total{code=404,route=none}":                 1,
	} {
		if v, ok := got[key]; !ok || v < want-1e-9 || v > want+1e-9 {
			t.Errorf("%s is %v (there: %v), want %v", key, v, ok, want)
		}
	}
	if !slices.ContainsFunc(keys(got), func(k string) bool { return strings.HasPrefix(k, "talf_build_info{goversion=go") }) {
		t.Error("no talf_build_info")
	}
}

func keys(m map[string]float64) (out []string) {
	for k := range m {
		out = append(out, k)
	}
	return out
}

// The linter's only complaint is about the colon that is vLLM's.
func TestMetricsFollowPrometheusConventions(t *testing.T) {
	text := scrape(t, metrics.New(metrics.Config{Model: "tiny", Stats: sample}))
	problems, err := promlint.New(bytes.NewReader(text)).Lint()
	if err != nil {
		t.Fatal(err)
	}
	colons := 0
	for _, p := range problems {
		if strings.HasPrefix(p.Metric, "vllm:") && p.Text == "metric names should not contain ':'" {
			colons++
			continue
		}
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
	if want := bytes.Count(text, []byte("# TYPE vllm:")); colons != want || want < 20 {
		t.Errorf("%d metrics of vLLM's, %d with a colon", want, colons)
	}
}

// Without metrics there is nothing to count, and nothing that panics.
func TestNoMetrics(t *testing.T) {
	var m *metrics.Metrics
	m.Answered(&metrics.Answer{})
	m.Between(1)
	m.Response("x", 200)
}
