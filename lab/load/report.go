package load

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"talf/internal/plot"
	"talf/internal/stats"
	"talf/internal/table"
)

// A Report is the result of Config.Run.
type Report struct {
	Config  Config   `json:"config"`
	Machine string   `json:"machine,omitempty"`
	Date    string   `json:"date,omitempty"`
	Servers []Result `json:"servers"`
}

// A Result is what one server did.
type Result struct {
	Name  string `json:"name"`
	URL   string `json:"url"`
	Model string `json:"model"`
	Runs  []Run  `json:"runs"`
	All   Run    `json:"all"` // requests of all runs together; rates are means over runs
	// Against the first server, run by run: ratios with confidence intervals over runs. nil for the
	// first server, and if there are fewer than two runs.
	Throughput *stats.Interval `json:"throughput_ratio,omitempty"`
	TPOT       *stats.Interval `json:"tpot_p50_ratio,omitempty"`
}

// A Run is what clients saw during one run. Times are in milliseconds.
type Run struct {
	Seconds  float64        `json:"seconds"`
	Answered int            `json:"answered"`
	Failed   map[string]int `json:"failed"` // by status of HTTP, or "timeout", "connection", "cut off", "malformed"

	TTFT Times `json:"ttft_ms"` // until the first text
	TPOT Times `json:"tpot_ms"` // per token after the first
	ITL  Times `json:"itl_ms"`  // between two pieces of text, each of one token or more
	E2E  Times `json:"e2e_ms"`  // until the end of the text

	Requests float64 `json:"requests_per_s"` // answered
	Tokens   float64 `json:"tokens_per_s"`   // of answers
	Goodput  float64 `json:"good_per_s"`     // requests within the bounds of the Config

	PromptTokens int       `json:"prompt_tokens"`
	CachedTokens int       `json:"cached_tokens"` // of these
	AnswerTokens int       `json:"answer_tokens"`
	Drafting     *Counters `json:"drafting,omitempty"`

	ttft, tpot, itl, e2e []float64
	good                 int
}

// Times summarise a distribution.
type Times struct {
	Mean float64 `json:"mean"`
	P50  float64 `json:"p50"`
	P95  float64 `json:"p95"`
	P99  float64 `json:"p99"`
	Max  float64 `json:"max"`
}

func summarise(xs []float64) (t Times) {
	if len(xs) == 0 {
		return t
	}
	slices.Sort(xs)
	for _, x := range xs {
		t.Mean += x / float64(len(xs))
	}
	t.P50, t.P95, t.P99, t.Max = stats.Quantile(xs, 0.5), stats.Quantile(xs, 0.95), stats.Quantile(xs, 0.99), xs[len(xs)-1]
	return t
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// measure summarises a run's answers.
func (c *Config) measure(answers []answer, took time.Duration, drafting *Counters) Run {
	r := Run{Seconds: took.Seconds(), Failed: map[string]int{}, Drafting: drafting}
	for i := range answers {
		a := &answers[i]
		if a.problem != "" {
			r.Failed[a.problem]++
			continue
		}
		r.Answered++
		r.PromptTokens, r.CachedTokens, r.AnswerTokens = r.PromptTokens+a.prompt, r.CachedTokens+a.cached, r.AnswerTokens+a.tokens
		var each time.Duration
		if a.tokens > 1 {
			each = (a.last - a.first) / time.Duration(a.tokens-1)
			r.tpot = append(r.tpot, ms(each))
		}
		if a.first > 0 { // an answer may have no text
			r.ttft, r.e2e = append(r.ttft, ms(a.first)), append(r.e2e, ms(a.last))
		}
		for _, g := range a.gaps {
			r.itl = append(r.itl, ms(g))
		}
		within := func(d, most time.Duration) bool { return most == 0 || d <= most }
		if within(a.first, c.TTFT) && within(each, c.TPOT) && within(a.last, c.E2E) {
			r.good++
		}
	}
	r.Requests, r.Tokens, r.Goodput = float64(r.Answered)/r.Seconds, float64(r.AnswerTokens)/r.Seconds, float64(r.good)/r.Seconds
	r.times()
	return r
}

func (r *Run) times() {
	r.TTFT, r.TPOT, r.ITL, r.E2E = summarise(r.ttft), summarise(r.tpot), summarise(r.itl), summarise(r.e2e)
}

// summarise fills what is computed from all runs.
func (r *Report) summarise() {
	for i := range r.Servers {
		s := &r.Servers[i]
		s.All = Run{Failed: map[string]int{}}
		for _, x := range s.Runs {
			s.All.add(&x)
		}
		s.All.Requests, s.All.Tokens, s.All.Goodput = float64(s.All.Answered)/s.All.Seconds, float64(s.All.AnswerTokens)/s.All.Seconds, float64(s.All.good)/s.All.Seconds
		s.All.times()
		if first := r.Servers[0].Runs; i > 0 && len(s.Runs) > 1 {
			s.Throughput = ratio(s.Runs, first, func(x *Run) float64 { return x.Tokens })
			s.TPOT = ratio(s.Runs, first, func(x *Run) float64 { return x.TPOT.P50 })
		}
	}
}

func (r *Run) add(x *Run) {
	r.Seconds += x.Seconds
	r.Answered += x.Answered
	for k, n := range x.Failed {
		r.Failed[k] += n
	}
	r.PromptTokens, r.CachedTokens, r.AnswerTokens, r.good = r.PromptTokens+x.PromptTokens, r.CachedTokens+x.CachedTokens, r.AnswerTokens+x.AnswerTokens, r.good+x.good
	r.ttft, r.tpot, r.itl, r.e2e = append(r.ttft, x.ttft...), append(r.tpot, x.tpot...), append(r.itl, x.itl...), append(r.e2e, x.e2e...)
	if d := x.Drafting; d != nil {
		if r.Drafting == nil {
			r.Drafting = &Counters{known: true}
		}
		r.Drafting.Drafts, r.Drafting.Drafted, r.Drafting.Accepted = r.Drafting.Drafts+d.Drafts, r.Drafting.Drafted+d.Drafted, r.Drafting.Accepted+d.Accepted
	}
}

// ratio compares a figure of runs with that of another server's, pair by pair.
func ratio(a, b []Run, of func(*Run) float64) *stats.Interval {
	i := stats.DefaultBootstrap().Of(len(a), func(times []int) float64 {
		var x, y float64
		for k, n := range times {
			x, y = x+float64(n)*of(&a[k]), y+float64(n)*of(&b[k])
		}
		if y == 0 {
			return 0
		}
		return x / y
	})
	return &i
}

// Table returns one row for every server.
func (r *Report) Table() table.Table {
	t := table.Table{Caption: r.Config.Load() + ":", Header: []string{
		"server", "answered", "failed", "tokens/s", "requests/s", "good/s", "TTFT p50", "p95", "p99 ms", "TPOT p50", "p95", "p99 ms", "E2E p50", "p99 ms", "τ", "tokens/s to the first",
	}}
	for i := range r.Servers {
		s := &r.Servers[i]
		a := &s.All
		tau, versus := "–", "–"
		if a.Drafting != nil {
			tau = fmt.Sprintf("%.2f", a.Drafting.Tau())
		}
		if s.Throughput != nil {
			versus = s.Throughput.Text(2, 1)
		}
		t.Cells = append(t.Cells, []string{
			s.Name, fmt.Sprint(a.Answered), failures(a.Failed), fmt.Sprintf("%.0f", a.Tokens), fmt.Sprintf("%.2f", a.Requests), fmt.Sprintf("%.2f", a.Goodput),
			cell(a.ttft, a.TTFT.P50), cell(a.ttft, a.TTFT.P95), cell(a.ttft, a.TTFT.P99),
			cell(a.tpot, a.TPOT.P50), cell(a.tpot, a.TPOT.P95), cell(a.tpot, a.TPOT.P99), cell(a.e2e, a.E2E.P50), cell(a.e2e, a.E2E.P99), tau, versus,
		})
	}
	return t
}

// cell writes a quantile of times, if there are any.
func cell(times []float64, x float64) string {
	if len(times) == 0 {
		return "–"
	}
	return fmt.Sprintf("%.4g", x)
}

// Unanswered is an error that names the servers that answered no request of the report.
func (r *Report) Unanswered() (err error) {
	for i := range r.Servers {
		if s := &r.Servers[i]; s.All.Answered == 0 {
			err = errors.Join(err, fmt.Errorf("%s, %s: no answer from %s: %s", s.Name, r.Config.Load(), s.URL, failures(s.All.Failed)))
		}
	}
	return err
}

// failures writes counts by kind, such as "429: 12, timeout: 1".
func failures(n map[string]int) string {
	if len(n) == 0 {
		return "0"
	}
	var out []string
	for _, k := range slices.Sorted(maps.Keys(n)) {
		out = append(out, fmt.Sprintf("%s: %d", k, n[k]))
	}
	return strings.Join(out, ", ")
}

// Figures draw the distributions of waiting times: the share of requests that waited no longer.
// There is none of what was never measured.
func (r *Report) Figures() (out []plot.Figure) {
	draw := func(title string, of func(*Run) []float64) {
		f := plot.Figure{Title: title + ", " + r.Config.Load(), X: "milliseconds", Y: "share of requests", FromZero: true, MaxY: 1}
		for i := range r.Servers {
			xs := of(&r.Servers[i].All)
			for p := 0; p <= 100 && len(xs) > 0; p++ {
				f.Add(r.Servers[i].Name, stats.Quantile(xs, float64(p)/100), float64(p)/100)
			}
		}
		if len(f.Series) > 0 {
			out = append(out, f)
		}
	}
	draw("Time to the first token", func(x *Run) []float64 { return x.ttft })
	draw("Time per token after the first", func(x *Run) []float64 { return x.tpot })
	return out
}
