package bench

import (
	"slices"
	"time"

	"talf/infer"
	"talf/internal/stats"
)

// Definition says what a speed-up is, for help and documents.
const Definition = `A speed-up is the seconds per token of plain decoding over those of a method, on the same
prompts, temperatures and seeds. "End to end" counts everything from the request to its last
token: the pass over the prompt, what a method learns from it, the draft model's own pass over
it, and all rounds. "Decoding" counts the rounds after the prompt alone. First stands the
ratio of the totals of all prompts, with the 95% interval of a bootstrap that draws prompts
and takes both sides of the ratio from the same ones; beside it the mean of the prompts'
own ratios, with their standard deviation.`

// A spent is the time and the tokens of a prompt's answers, over seeds and repetitions.
type spent struct {
	time   time.Duration
	tokens int
}

// per returns seconds per token.
func (s spent) per() float64 { return s.time.Seconds() / float64(max(s.tokens, 1)) }

// A paired prompt is plain decoding and a method, or any two methods, on the same prompt.
type paired struct{ plain, mine spent }

// ratio compares the totals of prompts, each as often as times says, with its interval.
func ratio(pairs []paired) stats.Interval {
	return stats.DefaultBootstrap().Of(len(pairs), func(times []int) float64 {
		var a, b spent
		for i, n := range times {
			p := &pairs[i]
			a = spent{a.time + time.Duration(n)*p.plain.time, a.tokens + n*p.plain.tokens}
			b = spent{b.time + time.Duration(n)*p.mine.time, b.tokens + n*p.mine.tokens}
		}
		if b.per() == 0 {
			return 0
		}
		return a.per() / b.per()
	})
}

// ratios returns every pair's own ratio.
func ratios(pairs []paired) (out []float64) {
	for i := range pairs {
		if p := &pairs[i]; p.mine.time > 0 && p.plain.time > 0 {
			out = append(out, p.plain.per()/p.mine.per())
		}
	}
	return out
}

// end returns the time of a prompt's answers from request to last token, 0 if that of any is not
// known.
func (p *prompted) end() spent {
	if p.untimed {
		return spent{}
	}
	return spent{p.total, p.stats.Tokens}
}

func (p *prompted) decoding() spent { return spent{p.stats.Decode, p.stats.Tokens} }

// pairsOf pairs the prompts that both measurements have, in the order of keys. It returns nothing
// if a time is unknown.
func pairsOf(keys []promptKey, plain, mine map[promptKey]*prompted, of func(*prompted) spent) (out []paired) {
	for _, k := range keys {
		a, b := plain[k], mine[k]
		if a == nil || b == nil {
			continue
		}
		p := paired{of(a), of(b)}
		if p.plain.time <= 0 || p.mine.time <= 0 {
			return nil
		}
		out = append(out, p)
	}
	return out
}

// tauOf is τ over all prompts with its interval.
func tauOf(keys []promptKey, mine map[promptKey]*prompted) stats.Interval {
	return stats.DefaultBootstrap().Of(len(keys), func(times []int) float64 {
		var sum infer.Stats
		for i, n := range times {
			s := &mine[keys[i]].stats
			sum.Tokens, sum.Passes = sum.Tokens+n*s.Tokens, sum.Passes+n*s.Passes
		}
		return sum.Tau()
	})
}

// contextsOf are τ by class of contexts, each over the prompts that have passes there; nil if all passes are of the first
// class.
func contextsOf(keys []promptKey, mine map[promptKey]*prompted) (out []Context) {
	classes := 0
	for _, k := range keys {
		classes = max(classes, len(mine[k].stats.Contexts))
	}
	for c := 0; classes > 1 && c < classes; c++ {
		x := Context{From: infer.ContextFrom(c)}
		var each []infer.Yield
		for _, k := range keys {
			if all := mine[k].stats.Contexts; c < len(all) && all[c].Passes > 0 {
				each = append(each, all[c])
				x.Passes += all[c].Passes
			}
		}
		if x.Passes == 0 {
			continue
		}
		x.Tau = stats.DefaultBootstrap().Of(len(each), func(times []int) float64 {
			var sum infer.Stats
			for i, n := range times {
				sum.Tokens, sum.Passes = sum.Tokens+n*each[i].Tokens, sum.Passes+n*each[i].Passes
			}
			return sum.Tau()
		})
		out = append(out, x)
	}
	return out
}

// most is how many depths and ranks have intervals.
const most = 12

// rateOf are the shares kept of those tried, by depth or rank from 1, each with its interval. A
// sample of prompts in which none was tried has the share of all.
func rateOf(keys []promptKey, mine map[promptKey]*prompted, of func(*infer.Stats) []infer.Rate) (out []stats.Interval) {
	for d := 1; d <= most; d++ {
		var all infer.Rate
		each := make([]infer.Rate, len(keys))
		for i, k := range keys {
			if r := of(&mine[k].stats); d < len(r) {
				each[i] = r[d]
				all.Tried, all.Kept = all.Tried+r[d].Tried, all.Kept+r[d].Kept
			}
		}
		if all.Tried == 0 {
			break
		}
		out = append(out, stats.DefaultBootstrap().Of(len(keys), func(times []int) float64 {
			var sum infer.Rate
			for i, n := range times {
				sum.Tried, sum.Kept = sum.Tried+n*each[i].Tried, sum.Kept+n*each[i].Kept
			}
			if sum.Tried == 0 {
				sum = all
			}
			return sum.Value()
		}))
	}
	return out
}

// A Comparison is two methods on the same prompts of all sets.
type Comparison struct {
	Method      string  `json:"method"`
	Against     string  `json:"against"` // the fastest end to end
	Temperature float64 `json:"temperature"`
	// Ratio is the seconds per token of Against over those of Method, end to end: below 1, Method
	// is slower.
	Ratio stats.Interval `json:"ratio"`
}

// compare compares every method with the fastest at the same temperature and limits.
func compare(rows []Row, by map[place][]*Measurement) (out []Comparison) {
	for i := range rows {
		best := &rows[i]
		// rows of one temperature follow each other
		if i > 0 && rows[i-1].Temperature == best.Temperature && rows[i-1].Set == best.Set || best.Set != "" {
			continue
		}
		n := 1
		for n < len(rows)-i && rows[i+n].Temperature == best.Temperature && rows[i+n].Set == "" {
			n++
		}
		all := rows[i : i+n]
		if slices.ContainsFunc(all, func(r Row) bool { return r.EndToEnd.Value == 0 || r.limits != all[0].limits }) || n < 3 {
			continue // something is not known, or not comparable, or there is nothing to choose
		}
		for k := range all {
			if all[k].EndToEnd.Value > best.EndToEnd.Value {
				best = &all[k]
			}
		}
		keys, fastest := pool(by[place{best.Method, best.Temperature}], byPrompt)
		for k := range all {
			if &all[k] == best {
				continue
			}
			_, mine := pool(by[place{all[k].Method, best.Temperature}], byPrompt)
			out = append(out, Comparison{
				Method: all[k].Method, Against: best.Method, Temperature: best.Temperature,
				Ratio: ratio(pairsOf(keys, fastest, mine, (*prompted).end)),
			})
		}
	}
	return out
}
