package bench

import (
	"fmt"
	"math"
	"slices"
	"time"

	"talf/infer"
	"talf/infer/bench/rounds"
	"talf/internal/stats"
)

// A Mean is a mean and its standard deviation (n−1).
type Mean struct {
	Mean float64 `json:"mean"`
	Std  float64 `json:"std"`
	N    int     `json:"n"`
}

func meanOf(xs []float64) Mean {
	m := Mean{N: len(xs)}
	for _, x := range xs {
		m.Mean += x
	}
	m.Mean /= float64(max(len(xs), 1))
	for _, x := range xs {
		m.Std += (x - m.Mean) * (x - m.Mean)
	}
	m.Std = math.Sqrt(m.Std / float64(max(len(xs)-1, 1)))
	return m
}

// Text writes the mean and its standard deviation with so many decimals.
func (m Mean) Text(decimals int) string {
	return fmt.Sprintf("%.*f ± %.*f", decimals, m.Mean, decimals, m.Std)
}

// Error returns the standard error of the mean.
func (m Mean) Error() float64 { return m.Std / math.Sqrt(float64(max(m.N, 1))) }

// A Row is one method at one temperature on one set.
type Row struct {
	Method      string  `json:"method"`
	Spec        string  `json:"spec"`
	Verify      string  `json:"verify,omitempty"`
	Source      string  `json:"source,omitempty"`
	Set         string  `json:"set,omitempty"` // empty: all sets together
	Temperature float64 `json:"temperature"`
	Tau         Mean    `json:"tau"`               // tokens per target pass, over prompts
	Pooled      float64 `json:"tau_pooled"`        // all tokens over all passes
	Runs        Mean    `json:"tau_runs"`          // pooled for each seed and repetition, over these
	Straight    float64 `json:"tau_without_loops"` // pooled over the outputs that do not loop; 0 if all do
	Speed       Mean    `json:"tokens_per_second"` // after the prompt
	// TauOf is Pooled with its interval.
	TauOf stats.Interval `json:"tau_interval"`
	// EndToEnd and Decoding compare the totals with plain decoding's (Definition); EndToEnd is 0 if
	// the measurements do not have all times. EndMean and Speedup are means over prompts of the
	// same, end to end and of decoding alone. Slowest is the smallest ratio of decoding, Low95 the
	// lower end of the one-sided normal 95% confidence interval of Speedup.
	EndToEnd stats.Interval `json:"speedup_end_to_end"`
	EndMean  Mean           `json:"speedup_end_to_end_mean"`
	Decoding stats.Interval `json:"speedup_decoding"`
	Speedup  Mean           `json:"speedup"`
	Slowest  float64        `json:"speedup_min"`
	Low95    float64        `json:"speedup_low95"`
	TTFT     Mean           `json:"ttft_seconds"`
	TPOT     Mean           `json:"tpot_seconds"`
	Draft    float64        `json:"draft_share"` // of the decoding time
	Verified float64        `json:"verify_share"`
	Overhead float64        `json:"overhead_share"`
	Tokens   int            `json:"tokens"`
	Passes   int            `json:"passes"`
	Drafted  int            `json:"drafted"`
	// Emitted[n] counts passes that emitted n tokens; Depth and Rank are the
	// acceptance by depth and by rank among siblings, from 1; Ranked the share of
	// drafted nodes by rank.
	Emitted []int        `json:"emitted"`
	Depth   []infer.Rate `json:"by_depth"`
	Rank    []infer.Rate `json:"by_rank"`
	Ranked  []int        `json:"nodes_by_rank"`
	// DepthOf and RankOf are the shares kept, by depth and rank from 1, with intervals; only over
	// all sets together.
	DepthOf []stats.Interval `json:"by_depth_interval,omitempty"`
	RankOf  []stats.Interval `json:"by_rank_interval,omitempty"`
	// Contexts are τ by the context in which passes ran, where some reach beyond the first class; only over all sets together,
	// as ByPrompt and Hindsight are.
	Contexts  []Context       `json:"by_context,omitempty"`
	ByPrompt  []PromptSpeedup `json:"by_prompt,omitempty"`
	Hindsight *Hindsight      `json:"hindsight,omitempty"`
	Paths     *Paths          `json:"by_origin,omitempty"` // of methods that draft from several
	Parts     *rounds.Parts   `json:"parts,omitempty"`
	// Equal counts the outputs that are plain decoding's token for token, of those
	// Compared: sampled outputs of some verifiers have only its distribution.
	Equal    int `json:"equal_outputs"`
	Compared int `json:"compared_outputs"`
	Outputs  int `json:"outputs"`
	// Looping counts outputs with loops, Looped the tokens in them.
	Looping int   `json:"looping_outputs"`
	Looped  int   `json:"loop_tokens"`
	Peak    int64 `json:"peak_bytes,omitempty"` // largest resident memory of the process meanwhile
	// Of a replay: rows that were asked for, and those that the recording lacked.
	Asked  int `json:"asked,omitempty"`
	Missed int `json:"missed,omitempty"`

	limits string // that plain decoding has too
}

// A Context is τ in a class of contexts.
type Context struct {
	From   int            `json:"from"` // tokens before a pass
	Passes int            `json:"passes"`
	Tau    stats.Interval `json:"tau"`
}

// Accepted returns the mean number of drafted tokens that a pass kept, its own
// token not counted.
func (r *Row) Accepted() float64 { return r.Pooled - 1 }

// Committed returns the tokens emitted per token drafted. It can exceed 1, because every pass
// also emits a token of its own.
func (r *Row) Committed() float64 { return float64(r.Tokens) / float64(max(r.Drafted, 1)) }

// A SetInfo says what a set's rows are over.
type SetInfo struct {
	Name    string `json:"name"`
	Prompts int    `json:"prompts"` // counted
	Cut     int    `json:"cut"`     // of all, those that lost their beginning
	Tokens  int    `json:"prompt_tokens"`
}

// A Report is what a run measured.
type Report struct {
	Sets        []SetInfo `json:"sets"`
	Prompts     int       `json:"prompts"`
	Warmup      int       `json:"warmup"`
	MaxTokens   int       `json:"max_tokens"`
	Seeds       []uint64  `json:"seeds"`
	Repeat      int       `json:"repeat"`
	Temperature []float64 `json:"temperatures"`
	// Rows are over all sets, by temperature and method, and then, where there
	// are several, those of every set.
	Rows []Row `json:"rows"`
	// Compared are all methods with the fastest, where there are several.
	Compared []Comparison `json:"compared_with_fastest,omitempty"`
}

// Row returns a method's row; nil if there is none. An empty set is all of them.
func (r *Report) Row(method, set string, temperature float64) *Row {
	if len(r.Sets) == 1 {
		set = ""
	}
	for i := range r.Rows {
		if x := &r.Rows[i]; x.Method == method && x.Set == set && x.Temperature == temperature {
			return x
		}
	}
	return nil
}

func (c *Config) report(methods []Method, got []Measurement) *Report {
	r := &Report{Warmup: c.Warmup, MaxTokens: c.MaxTokens, Seeds: c.Seeds, Repeat: c.Repeat, Temperature: c.Temperatures}
	for _, s := range c.Sets {
		i := SetInfo{Name: s.Name, Prompts: len(s.Prompts) - c.Warmup, Cut: s.Cut}
		for _, p := range s.Prompts[c.Warmup:] {
			i.Tokens += len(p.Tokens)
		}
		r.Prompts += i.Prompts
		r.Sets = append(r.Sets, i)
	}
	sets := []string{""}
	if len(c.Sets) > 1 {
		for _, s := range c.Sets {
			sets = append(sets, s.Name)
		}
	}
	by := map[place][]*Measurement{}
	for i := range got {
		m := &got[i]
		by[place{m.Method, m.Temperature}] = append(by[place{m.Method, m.Temperature}], m)
	}
	for _, set := range sets {
		for _, t := range c.Temperatures {
			for i := range methods {
				m := &methods[i]
				b := m.Plain()
				base := slices.IndexFunc(methods, func(o Method) bool { return o.isPlain(m) })
				mine := inSet(by[place{m.Title(), t}], set)
				if len(mine) == 0 {
					continue
				}
				plain := inSet(by[place{methods[base].Title(), t}], set)
				row := summarise(mine, plain)
				if set == "" {
					keys, sums := pool(mine, byPrompt)
					row.ByPrompt = promptSpeedups(plain, mine)
					row.DepthOf = rateOf(keys, sums, func(s *infer.Stats) []infer.Rate { return s.Depth })
					row.RankOf = rateOf(keys, sums, func(s *infer.Stats) []infer.Rate { return s.Rank })
					row.Contexts = contextsOf(keys, sums)
				}
				row.Method, row.Spec, row.Verify, row.Source = m.Title(), m.Spec, m.Verify, m.SourceName
				row.Set, row.Temperature, row.limits = set, t, b.group()
				r.Rows = append(r.Rows, row)
			}
		}
	}
	r.Compared = compare(r.Rows, by)
	hindsight(r.Rows, by)
	return r
}

// A place is where measurements of a run belong.
type place struct {
	method      string
	temperature float64
}

// inSet returns the measurements of a set.
func inSet(all []*Measurement, set string) []*Measurement {
	if set == "" {
		return all
	}
	var out []*Measurement
	for _, m := range all {
		if m.Set == set {
			out = append(out, m)
		}
	}
	return out
}

// A prompted sum pools the seeds and repetitions of one prompt.
type prompted struct {
	stats   infer.Stats
	n       int
	total   time.Duration // from request to last token
	untimed bool          // total lacks some

	ends, decodings []float64 // seconds per token of each answer
}

// pool sums measurements by a property, in the order in which it is first seen.
func pool[K comparable](ms []*Measurement, by func(*Measurement) K) (keys []K, sums map[K]*prompted) {
	sums = map[K]*prompted{}
	for _, m := range ms {
		k := by(m)
		p := sums[k]
		if p == nil {
			p = new(prompted)
			sums[k] = p
			keys = append(keys, k)
		}
		p.stats.Add(&m.Stats)
		p.n++
		p.total += m.Total
		p.untimed = p.untimed || m.Total == 0
		p.ends = append(p.ends, spent{m.Total, m.Stats.Tokens}.per())
		p.decodings = append(p.decodings, spent{m.Stats.Decode, m.Stats.Tokens}.per())
	}
	return keys, sums
}

type promptKey struct{ set, prompt string }

func byPrompt(m *Measurement) promptKey { return promptKey{m.Set, m.Prompt} }

type runKey struct {
	seed   uint64
	repeat int
}

func byRun(m *Measurement) runKey { return runKey{m.Seed, m.Repeat} }

func summarise(ms, base []*Measurement) (r Row) {
	var all, straight infer.Stats
	for _, m := range ms {
		all.Add(&m.Stats)
		r.Outputs++
		if m.Compared {
			r.Compared++
		}
		if m.Equal {
			r.Equal++
		}
		r.Asked, r.Missed = r.Asked+m.Asked, r.Missed+m.Missed
		r.Looped += m.Looped
		if m.Looped > 0 {
			r.Looping++
		} else {
			straight.Add(&m.Stats)
		}
		r.Peak = max(r.Peak, m.Peak)
		if m.Paths != nil {
			if r.Paths == nil {
				r.Paths = m.Paths.clone()
			} else {
				r.Paths.add(m.Paths)
			}
		}
	}
	var tau, speed, ttft, tpot, runs []float64
	keys, prompts := pool(ms, byPrompt)
	_, plain := pool(base, byPrompt)
	for _, k := range keys {
		s := &prompts[k].stats
		tau = append(tau, s.Tau())
		speed = append(speed, perSecond(s))
		ttft = append(ttft, s.TTFT.Seconds()/float64(prompts[k].n))
		tpot = append(tpot, s.TPOT().Seconds())
	}
	end, decoding := pairsOf(keys, plain, prompts, (*prompted).end), pairsOf(keys, plain, prompts, (*prompted).decoding)
	speedup := ratios(decoding)
	r.TauOf, r.EndToEnd, r.EndMean, r.Decoding = tauOf(keys, prompts), ratio(end), meanOf(ratios(end)), ratio(decoding)
	r.Parts = rounds.Of(texts(ms), texts(base))
	keysOfRuns, byRuns := pool(ms, byRun)
	for _, k := range keysOfRuns {
		runs = append(runs, byRuns[k].stats.Tau())
	}
	share := func(d time.Duration) float64 { return d.Seconds() / max(all.Decode.Seconds(), 1e-9) }
	r.Tau, r.Pooled, r.Runs, r.Straight = meanOf(tau), all.Tau(), meanOf(runs), straight.Tau()
	r.Speed, r.Speedup, r.TTFT, r.TPOT = meanOf(speed), meanOf(speedup), meanOf(ttft), meanOf(tpot)
	if len(speedup) > 0 {
		r.Slowest = slices.Min(speedup)
	}
	r.Low95 = r.Speedup.Mean - 1.645*r.Speedup.Error()
	r.Draft, r.Verified, r.Overhead = share(all.Draft), share(all.Verify), share(all.Overhead)
	r.Tokens, r.Passes, r.Drafted = all.Tokens, all.Passes, all.Drafted
	r.Emitted, r.Depth, r.Rank, r.Ranked = all.Emitted, all.Depth, all.Rank, all.Ranked
	return r
}

func perSecond(s *infer.Stats) float64 {
	if s.Decode <= 0 {
		return 0
	}
	return float64(s.Tokens) / s.Decode.Seconds()
}

// texts are the measurements as texts with rounds.
func texts(ms []*Measurement) []rounds.Text {
	out := make([]rounds.Text, len(ms))
	for i, m := range ms {
		out[i] = rounds.Text{Set: m.Set, Prompt: m.Prompt, Seed: m.Seed, Rounds: m.Rounds, Tokens: m.Stats.Tokens}
	}
	return out
}
