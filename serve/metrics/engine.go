package metrics

import (
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"talf/infer"
	"talf/infer/loop"
)

// An engine collects the state and the counts of a loop.
type engine struct{ stats func() loop.Stats }

func describe(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, labels, nil)
}

// What comes from the loop.
var (
	running    = describe("vllm:num_requests_running", "Answers that share the model's passes.")
	waiting    = describe("vllm:num_requests_waiting", "Answers that wait for their first pass, or for memory.")
	cacheUsage = describe("vllm:kv_cache_usage_perc", "Share of the KV cache that answers use, from 0 to 1; kept prefixes count as free.")
	cacheInfo  = describe("vllm:cache_config_info", "1, with the tokens of a block of the KV cache and the number of blocks as labels.", "block_size", "num_gpu_blocks")

	promptTokens = describe("vllm:prompt_tokens_total", "Tokens of the prompts of answers that have begun.")
	answerTokens = describe("vllm:generation_tokens_total", "Tokens of answers.")
	cacheQueries = describe("vllm:prefix_cache_queries_total", "Tokens of prompts that were looked up in the prefix cache.")
	cacheHits    = describe("vllm:prefix_cache_hits_total", "Tokens of prompts that the prefix cache had.")
	preemptions  = describe("vllm:num_preemptions_total", "Answers that gave up their memory and were computed again.")

	drafts   = describe("vllm:spec_decode_num_drafts_total", "Rounds with a draft.")
	drafted  = describe("vllm:spec_decode_num_draft_tokens_total", "Tokens drafted, all nodes of the trees.")
	accepted = describe("vllm:spec_decode_num_accepted_tokens_total", "Tokens of answers that had been drafted.")
	position = describe("vllm:spec_decode_num_accepted_tokens_per_pos_total", "Drafts of which the token at this depth, from 0, was accepted.", "position")

	methodRounds   = describe("talf_rounds_total", "Rounds of answers, by draft method. With talf_round_tokens_total: τ.", "method")
	methodTokens   = describe("talf_round_tokens_total", "Tokens that rounds put out, the model's own included, by draft method.", "method")
	methodDrafts   = describe("talf_drafts_total", "Rounds with a draft, by draft method.", "method")
	methodDrafted  = describe("talf_draft_tokens_total", "Tokens drafted, by draft method.", "method")
	methodAccepted = describe("talf_accepted_tokens_total", "Drafted tokens that were accepted, by draft method.", "method")
	fallbacks      = describe("talf_fallbacks_total", "Rounds that were to have a draft and had none, by draft method and reason.", "method", "reason")

	contextDrafts   = describe("talf_context_drafts_total", "Rounds with a draft, by the tokens before them: fewer than this, no fewer than the next smaller.", "context_below")
	contextAccepted = describe("talf_context_accepted_tokens_total", "Drafted tokens that were accepted, by the tokens before them.", "context_below")

	tau        = describe("talf_tau", "Tokens of a round, over the last passes that read no prompts; 0 if it is not known.")
	even       = describe("talf_tau_even", "τ below which drafts cost more time than they save, as measured; 0 if it is not known.")
	losing     = describe("talf_drafting_losing", "1 while drafting is slower than plain decoding, as measured.")
	draftShare = describe("talf_drafted_rounds_ratio", "Share of the last rounds that had a draft.")

	passes       = describe("talf_passes_total", "Passes of the model.")
	rows         = describe("talf_pass_rows_total", "Rows of the model's passes: nodes of draft trees, or tokens of prompts.", "kind")
	failedPasses = describe("talf_failed_passes_total", "Passes of the model that failed.")
	passSeconds  = describe("talf_pass_seconds_total", "Time in passes, by what it was spent on.", "part")
	refused      = describe("talf_refused_answers_total", "Answers that the queue did not take.")
	expired      = describe("talf_expired_answers_total", "Answers that waited too long to begin.")
)

// Describe sends nothing: the collector is unchecked, because its descriptions are fixed here.
func (e *engine) Describe(chan<- *prometheus.Desc) {}

// mostPositions bounds the series of accepted tokens by depth.
const mostPositions = 32

// Collect reads the loop once and sends everything.
func (e *engine) Collect(out chan<- prometheus.Metric) {
	s := e.stats()
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	counter := func(d *prometheus.Desc, v float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, v, labels...)
	}
	gauge(running, float64(s.Running))
	gauge(waiting, float64(s.Waiting))
	usage := 0.0
	if s.KV.Total > 0 {
		usage = 1 - float64(s.KV.Free)/float64(s.KV.Total)
	}
	gauge(cacheUsage, usage)
	gauge(cacheInfo, 1, strconv.Itoa(s.KV.BlockTokens), strconv.Itoa(s.KV.Positions(0)/max(1, s.KV.BlockTokens)))

	var all loop.Drafting
	for _, name := range slices.Sorted(maps.Keys(s.Methods)) {
		d := s.Methods[name]
		if name == "" {
			name = "none"
		}
		counter(methodRounds, float64(d.Rounds), name)
		counter(methodTokens, float64(d.Tokens), name)
		counter(methodDrafts, float64(d.Drafts), name)
		counter(methodDrafted, float64(d.Drafted), name)
		counter(methodAccepted, float64(d.Accepted), name)
		for f, n := range d.Fallbacks {
			counter(fallbacks, float64(n), name, infer.Fallback(f).String())
		}
		sum(&all, d)
	}
	counter(promptTokens, float64(s.PromptTokens))
	counter(answerTokens, float64(all.Tokens))
	counter(cacheQueries, float64(s.PromptTokens))
	counter(cacheHits, float64(s.CachedTokens))
	counter(preemptions, float64(s.Preemptions))
	counter(drafts, float64(all.Drafts))
	counter(drafted, float64(all.Drafted))
	counter(accepted, float64(all.Accepted))
	for i := range min(len(all.Position), mostPositions) {
		counter(position, float64(all.Position[i]), strconv.Itoa(i))
	}
	for i := range all.Context {
		below := "+Inf"
		if i < len(loop.ContextBounds) {
			below = fmt.Sprint(loop.ContextBounds[i])
		}
		counter(contextDrafts, float64(all.Context[i].Drafts), below)
		counter(contextAccepted, float64(all.Context[i].Accepted), below)
	}
	gauge(tau, s.Pace.Tau)
	gauge(even, s.Pace.Even)
	gauge(draftShare, s.Pace.Drafted)
	alarm := 0.0
	if s.Pace.Losing {
		alarm = 1
	}
	gauge(losing, alarm)
	counter(passes, float64(s.Passes))
	counter(rows, float64(s.PromptRows), "prompt")
	counter(rows, float64(s.Rows-s.PromptRows), "tree")
	counter(failedPasses, float64(s.Failed))
	counter(passSeconds, s.Draft.Seconds(), "draft")
	counter(passSeconds, s.Verify.Seconds(), "verify")
	counter(passSeconds, (s.Busy - s.Draft - s.Verify).Seconds(), "other")
	counter(refused, float64(s.Refused))
	counter(expired, float64(s.Expired))
}

// sum adds what the metrics over all methods show.
func sum(all, d *loop.Drafting) {
	add := func(to *loop.Counts, c loop.Counts) {
		to.Rounds, to.Drafts, to.Tokens = to.Rounds+c.Rounds, to.Drafts+c.Drafts, to.Tokens+c.Tokens
		to.Drafted, to.Accepted = to.Drafted+c.Drafted, to.Accepted+c.Accepted
	}
	add(&all.Counts, d.Counts)
	for i := range d.Context {
		add(&all.Context[i], d.Context[i])
	}
	if grow := len(d.Position) - len(all.Position); grow > 0 {
		all.Position = append(all.Position, make([]int, grow)...)
	}
	for i, n := range d.Position {
		all.Position[i] += n
	}
}
