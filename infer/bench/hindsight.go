package bench

import (
	"cmp"
	"slices"
	"time"

	"talf/internal/stats"
)

// A PromptSpeedup is a method's speed-ups on one prompt, over seeds and repetitions.
type PromptSpeedup struct {
	Set      string  `json:"set,omitempty"`
	Prompt   string  `json:"prompt"`
	EndToEnd float64 `json:"end_to_end"` // 0 if a time is unknown
	Decoding float64 `json:"decoding"`
	// The same of the medians over seeds and repetitions, to which an answer that other work on the machine
	// interrupted adds nothing.
	MedianEnd      float64 `json:"end_to_end_median"`
	MedianDecoding float64 `json:"decoding_median"`
	// Decodings are its speed-ups over plain decoding of the same repetition, over seeds, in the order of repetitions.
	Decodings []float64 `json:"decoding_by_repetition,omitempty"`
}

// promptSpeedups returns the speed-ups of the prompts that both have.
func promptSpeedups(base, ms []*Measurement) (out []PromptSpeedup) {
	keys, mine := pool(ms, byPrompt)
	_, plain := pool(base, byPrompt)
	turns, mineOf := pool(ms, byTurn)
	_, plainOf := pool(base, byTurn)
	slices.SortStableFunc(turns, func(a, b turnKey) int { return cmp.Compare(a.repeat, b.repeat) })
	decodings := map[promptKey][]float64{}
	for _, t := range turns {
		if a := plainOf[t]; a != nil {
			if x, y := a.decoding(), mineOf[t].decoding(); x.time > 0 && y.time > 0 {
				decodings[t.promptKey] = append(decodings[t.promptKey], x.per()/y.per())
			}
		}
	}
	for _, k := range keys {
		a, b := plain[k], mine[k]
		if a == nil || b == nil {
			continue
		}
		over := func(of func(*prompted) spent) float64 {
			p := paired{of(a), of(b)}
			if p.plain.time <= 0 || p.mine.time <= 0 {
				return 0
			}
			return p.plain.per() / p.mine.per()
		}
		x := PromptSpeedup{Set: k.set, Prompt: k.prompt, EndToEnd: over((*prompted).end), Decoding: over((*prompted).decoding), Decodings: decodings[k]}
		if x.EndToEnd > 0 {
			x.MedianEnd = median(a.ends) / median(b.ends)
		}
		if x.Decoding > 0 {
			x.MedianDecoding = median(a.decodings) / median(b.decodings)
		}
		out = append(out, x)
	}
	return out
}

func median(xs []float64) float64 {
	xs = slices.Sorted(slices.Values(xs))
	return stats.Quantile(xs, 0.5)
}

// A Hindsight compares a method with the run's other methods that ask the same draft model or none: what
// it leaves to somebody who knew beforehand which of them to take. Speeds are end to end.
type Hindsight struct {
	// Each is the method's speed over that of whichever other method is the fastest on each prompt. The
	// other repetitions say which that is, or luck would choose it: among its copies, a method is at 1.
	Each stats.Interval `json:"each"`
	// One is its speed over that of Best, the other method that is the fastest over all prompts.
	One  stats.Interval `json:"one"`
	Best string         `json:"best"`
}

// hindsight compares the rows over all sets with the others. Without repetitions there is nothing to
// choose by.
func hindsight(rows []Row, by map[place][]*Measurement) {
	for i := range rows {
		r := &rows[i]
		if r.Set != "" || r.EndToEnd.Value == 0 {
			continue
		}
		var others [][]*Measurement
		var best *Row
		for k := range rows {
			o := &rows[k]
			if o.Set != "" || o.Temperature != r.Temperature || o.limits != r.limits || o.EndToEnd.Value == 0 || o.Spec == r.Spec || o.Source != "" && o.Source != r.Source {
				continue
			}
			others = append(others, by[place{o.Method, o.Temperature}])
			if best == nil || o.EndToEnd.Value > best.EndToEnd.Value {
				best = o
			}
		}
		if best == nil {
			continue
		}
		mine := by[place{r.Method, r.Temperature}]
		each := foreseen(mine, others)
		if each == nil {
			continue
		}
		keys, sums := pool(mine, byPrompt)
		_, fastest := pool(by[place{best.Method, best.Temperature}], byPrompt)
		r.Hindsight = &Hindsight{Each: ratio(each), One: ratio(pairsOf(keys, fastest, sums, (*prompted).end)), Best: best.Method}
	}
}

// foreseen pairs every prompt of a method with the best of others: in each repetition, the one that is
// the fastest on that prompt in the other repetitions. It returns nothing if a prompt was answered only
// once, or not by all.
func foreseen(mine []*Measurement, others [][]*Measurement) (out []paired) {
	keys, sums := pool(mine, byPrompt)
	each, _ := pool(mine, byTurn)
	turns := map[promptKey][]int{}
	for _, t := range each {
		turns[t.promptKey] = append(turns[t.promptKey], t.repeat)
	}
	theirs := make([]map[turnKey]*prompted, len(others))
	for i, o := range others {
		_, theirs[i] = pool(o, byTurn)
	}
	for _, k := range keys {
		if len(turns[k]) < 2 {
			return nil
		}
		p := paired{mine: sums[k].end()}
		for _, now := range turns[k] {
			var least time.Duration
			var chosen spent
			for i, t := range theirs {
				var elsewhere time.Duration
				for _, turn := range turns[k] {
					x := t[turnKey{k, turn}]
					if x == nil {
						return nil
					}
					if turn != now {
						elsewhere += x.total
					}
				}
				if i == 0 || elsewhere < least {
					least, chosen = elsewhere, t[turnKey{k, now}].end()
				}
			}
			p.plain.time += chosen.time
			p.plain.tokens += chosen.tokens
		}
		out = append(out, p)
	}
	return out
}

// A turnKey is a prompt in one repetition.
type turnKey struct {
	promptKey
	repeat int
}

func byTurn(m *Measurement) turnKey { return turnKey{byPrompt(m), m.Repeat} }
