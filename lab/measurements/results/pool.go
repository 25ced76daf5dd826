package results

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
)

// A share is what a prompt adds to a ratio: tokens in passes, or correct guesses in all.
type share struct{ of, in int }

// Shares are those of heads that were trained with several seeds, [seed][prompt].
type Shares [][]share

// value is the ratio of the totals over all seeds, with each prompt as often as times says.
func (s Shares) value(times []int) float64 {
	of, in := 0, 0
	for _, seed := range s {
		for i, n := range times {
			of, in = of+n*seed[i].of, in+n*seed[i].in
		}
	}
	if in == 0 {
		return 0
	}
	return float64(of) / float64(in)
}

// Check reports seeds that have other prompts, or nothing to divide by.
func (s Shares) Check() error {
	for i, seed := range s {
		if len(seed) != len(s[0]) {
			return fmt.Errorf("seed %d has %d prompts, want %d as the first", i+1, len(seed), len(s[0]))
		}
		in := 0
		for _, x := range seed {
			in += x.in
		}
		if in == 0 {
			return fmt.Errorf("nothing was measured with seed %d", i+1)
		}
	}
	return nil
}

// Pooled is the ratio of the totals with its 95% interval over prompts, each drawn with its answers
// of all seeds.
func (s Shares) Pooled() Interval {
	return resample(len(s[0]), s.value)
}

// Minus is the difference of two ratios, whose samples take the same prompts of both.
func (s Shares) Minus(o Shares) Interval {
	return resample(len(s[0]), func(times []int) float64 { return s.value(times) - o.value(times) })
}

// BySeed are the differences of each seed's own ratios.
func (s Shares) BySeed(o Shares) []float64 {
	all := slices.Repeat([]int{1}, len(s[0]))
	var out []float64
	for i := range s {
		out = append(out, s[i:i+1].value(all)-o[i:i+1].value(all))
	}
	return out
}

// Only are the shares of some prompts.
func (s Shares) Only(at []int) Shares {
	out := make(Shares, len(s))
	for i, seed := range s {
		for _, j := range at {
			out[i] = append(out[i], seed[j])
		}
	}
	return out
}

// resample returns a statistic of n prompts and its 95% interval: percentiles over 2000 samples of n
// prompts drawn with replacement, as package talf/internal/stats computes them, which this module
// does not have. stat gets how often each prompt is in the sample.
func resample(n int, stat func(times []int) float64) Interval {
	const samples = 2000
	out := Interval{Value: stat(slices.Repeat([]int{1}, n))}
	r := rand.New(rand.NewPCG(1, uint64(n)))
	times, values := make([]int, n), make([]float64, samples)
	for k := range values {
		clear(times)
		for range n {
			times[r.IntN(n)]++
		}
		values[k] = stat(times)
	}
	slices.Sort(values)
	at := func(p float64) float64 {
		x := p * (samples - 1)
		i := int(x)
		return values[i] + (x-float64(i))*(values[i+1]-values[i])
	}
	out.Low, out.High = at(0.025), at(0.975)
	return out
}

// Signed writes numbers with a minus sign rather than a hyphen.
func Signed(s string) string { return strings.ReplaceAll(s, "-", "−") }

// A Drafted is a kind of answers: of a method with heads of a loss at a temperature.
type Drafted struct {
	Spec        string
	Temperature float64
	Loss        string
}

// An asked is a prompt of a set, by its name in logs of talf bench.
type asked struct{ set, prompt string }

// A Ranked is a kind of guesses: of heads of a loss on their own tokens of one rank.
type Ranked struct {
	Loss string
	Rank int
}

// A Deep is how far paths of a kind of answers went: to a depth from 1.
type Deep struct {
	Drafted
	Depth int
}

// A Pool is what heads of several seeds did with the same prompts.
type Pool struct {
	Prompts []asked
	Tau     map[Drafted]Shares // tokens in passes of the target
	Hits    map[Ranked]Shares  // correct guesses in all, of each text instead of each prompt
	ECE     map[Ranked][]float64
	Deep    map[Deep]Shares // accepted to a depth, of those that had come to the one above
}

// Within are the prompts of a set, as indices.
func (p *Pool) Within(set string) (at []int) {
	for i, u := range p.Prompts {
		if u.set == set {
			at = append(at, i)
		}
	}
	return at
}

// PoolDepths are how many depths are kept.
const PoolDepths = 5

// A RankLine is a head on its own tokens of one rank, as talf bench --ranks writes it.
type RankLine struct {
	Head   string                         `json:"head"`
	Rank   int                            `json:"rank"`
	ECE    float64                        `json:"ece"`
	ByText []struct{ Items, Correct int } `json:"by_text"`
}

// Add adds the heads of another seed, which are called after their losses: the report of talf bench,
// and its log.
func (p *Pool) Add(r *Report, log string) error {
	if p.Tau == nil {
		p.Tau, p.Hits, p.ECE = map[Drafted]Shares{}, map[Ranked]Shares{}, map[Ranked][]float64{}
		p.Deep = map[Deep]Shares{}
	}
	answers, prompts, err := readLog(log)
	if err != nil {
		return err
	}
	if p.Prompts == nil {
		p.Prompts = prompts
	}
	if !slices.Equal(prompts, p.Prompts) {
		return fmt.Errorf("%s: %d prompts, want the %d of the first seed", log, len(prompts), len(p.Prompts))
	}
	for i := range r.Rows {
		x := &r.Rows[i]
		if x.Set != "" || x.Source == "" {
			continue
		}
		var of []share
		var depths [PoolDepths][]share
		for _, u := range prompts {
			a, ok := answers[answered{x.Method, x.Temperature, u}]
			if !ok {
				return fmt.Errorf("%s: no answer to prompt %s of %s by %s at temperature %g", log, u.prompt, u.set, x.Method, x.Temperature)
			}
			of = append(of, a.share)
			for d := range depths {
				depths[d] = append(depths[d], a.depths[d])
			}
		}
		k := Drafted{x.Spec, x.Temperature, x.Source}
		for d, of := range depths {
			p.Deep[Deep{k, d + 1}] = append(p.Deep[Deep{k, d + 1}], of)
		}
		p.Tau[k] = append(p.Tau[k], of)
		if err := p.Tau[k].Check(); err != nil {
			return fmt.Errorf("%s: %s with %s: %w", log, x.Spec, x.Source, err)
		}
	}
	for i := range r.ByRank {
		x := &r.ByRank[i]
		k := Ranked{x.Head, x.Rank}
		var of []share
		for j, t := range x.ByText {
			if s := p.Hits[k]; len(s) > 0 && (j >= len(s[0]) || t.Items != s[0][j].in) {
				return fmt.Errorf("heads by rank: %s, rank %d: text %d is another than that of the first seed", x.Head, x.Rank, j+1)
			}
			of = append(of, share{t.Correct, t.Items})
		}
		p.Hits[k], p.ECE[k] = append(p.Hits[k], of), append(p.ECE[k], x.ECE)
		if err := p.Hits[k].Check(); err != nil {
			return fmt.Errorf("heads by rank: %s, rank %d: %w", x.Head, x.Rank, err)
		}
	}
	return nil
}

// An answered is who answered what.
type answered struct {
	method      string
	temperature float64
	asked
}

// An answer is its tokens in its passes, and how many paths went to each depth, of those that had come to the
// one above.
type answer struct {
	share
	depths [PoolDepths]share
}

// readLog reads a log of talf bench: all answers, and the prompts in order.
func readLog(path string) (map[answered]answer, []asked, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, nil, err
	}
	got, prompts := map[answered]answer{}, []asked(nil)
	for line := range bytes.Lines(b) {
		var m struct {
			Method      string
			Set, Prompt string
			Temperature float64
			Stats       struct {
				Tokens, Passes int
				Depth          []struct{ Tried, Kept int } // from 0, which none is tried at
			}
		}
		if err := json.Unmarshal(line, &m); err != nil {
			return nil, nil, fmt.Errorf("%s: %w", path, err)
		}
		if m.Method == "" { // the head line
			continue
		}
		k := answered{m.Method, m.Temperature, asked{m.Set, m.Prompt}}
		a := answer{share: share{m.Stats.Tokens, m.Stats.Passes}}
		for d := range a.depths {
			if d+1 < len(m.Stats.Depth) {
				a.depths[d] = share{m.Stats.Depth[d+1].Kept, m.Stats.Depth[d+1].Tried}
			}
		}
		got[k] = a
		if !slices.Contains(prompts, k.asked) {
			prompts = append(prompts, k.asked)
		}
	}
	slices.SortFunc(prompts, func(a, b asked) int {
		return cmp.Or(cmp.Compare(a.set, b.set), cmp.Compare(len(a.prompt), len(b.prompt)), cmp.Compare(a.prompt, b.prompt))
	})
	return got, prompts, nil
}
