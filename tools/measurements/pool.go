package main

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

// shares are those of heads that were trained with several seeds, [seed][prompt].
type shares [][]share

// value is the ratio of the totals over all seeds, with each prompt as often as times says.
func (s shares) value(times []int) float64 {
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

// check reports seeds that have other prompts, or nothing to divide by.
func (s shares) check() error {
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

// pooled is the ratio of the totals with its 95% interval over prompts, each drawn with its answers
// of all seeds.
func (s shares) pooled() interval {
	return resample(len(s[0]), s.value)
}

// minus is the difference of two ratios, whose samples take the same prompts of both.
func (s shares) minus(o shares) interval {
	return resample(len(s[0]), func(times []int) float64 { return s.value(times) - o.value(times) })
}

// bySeed are the differences of each seed's own ratios.
func (s shares) bySeed(o shares) []float64 {
	all := slices.Repeat([]int{1}, len(s[0]))
	var out []float64
	for i := range s {
		out = append(out, s[i:i+1].value(all)-o[i:i+1].value(all))
	}
	return out
}

// only are the shares of some prompts.
func (s shares) only(at []int) shares {
	out := make(shares, len(s))
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
func resample(n int, stat func(times []int) float64) interval {
	const samples = 2000
	out := interval{Value: stat(slices.Repeat([]int{1}, n))}
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

// signed writes numbers with a minus sign rather than a hyphen.
func signed(s string) string { return strings.ReplaceAll(s, "-", "−") }

// A drafted is a kind of answers: of a method with heads of a loss at a temperature.
type drafted struct {
	spec        string
	temperature float64
	loss        string
}

// An asked is a prompt of a set, by its name in logs of talf bench.
type asked struct{ set, prompt string }

// A ranked is a kind of guesses: of heads of a loss on their own tokens of one rank.
type ranked struct {
	loss string
	rank int
}

// A pool is what heads of several seeds did with the same prompts.
type pool struct {
	prompts []asked
	tau     map[drafted]shares // tokens in passes of the target
	hits    map[ranked]shares  // correct guesses in all, of each text instead of each prompt
	ece     map[ranked][]float64
}

// within are the prompts of a set, as indices.
func (p *pool) within(set string) (at []int) {
	for i, u := range p.prompts {
		if u.set == set {
			at = append(at, i)
		}
	}
	return at
}

// A rankLine is a head on its own tokens of one rank, as talf bench --ranks writes it.
type rankLine struct {
	Head   string                         `json:"head"`
	Rank   int                            `json:"rank"`
	ECE    float64                        `json:"ece"`
	ByText []struct{ Items, Correct int } `json:"by_text"`
}

// add adds the heads of another seed, which are called after their losses: the report of talf bench,
// and its log.
func (p *pool) add(r *report, log string) error {
	if p.tau == nil {
		p.tau, p.hits, p.ece = map[drafted]shares{}, map[ranked]shares{}, map[ranked][]float64{}
	}
	answers, prompts, err := readLog(log)
	if err != nil {
		return err
	}
	if p.prompts == nil {
		p.prompts = prompts
	}
	if !slices.Equal(prompts, p.prompts) {
		return fmt.Errorf("%s: %d prompts, want the %d of the first seed", log, len(prompts), len(p.prompts))
	}
	for i := range r.Rows {
		x := &r.Rows[i]
		if x.Set != "" || x.Source == "" {
			continue
		}
		var of []share
		for _, u := range prompts {
			a, ok := answers[answered{x.Method, x.Temperature, u}]
			if !ok {
				return fmt.Errorf("%s: no answer to prompt %s of %s by %s at temperature %g", log, u.prompt, u.set, x.Method, x.Temperature)
			}
			of = append(of, a)
		}
		k := drafted{x.Spec, x.Temperature, x.Source}
		p.tau[k] = append(p.tau[k], of)
		if err := p.tau[k].check(); err != nil {
			return fmt.Errorf("%s: %s with %s: %w", log, x.Spec, x.Source, err)
		}
	}
	for i := range r.ByRank {
		x := &r.ByRank[i]
		k := ranked{x.Head, x.Rank}
		var of []share
		for j, t := range x.ByText {
			if s := p.hits[k]; len(s) > 0 && (j >= len(s[0]) || t.Items != s[0][j].in) {
				return fmt.Errorf("heads by rank: %s, rank %d: text %d is another than that of the first seed", x.Head, x.Rank, j+1)
			}
			of = append(of, share{t.Correct, t.Items})
		}
		p.hits[k], p.ece[k] = append(p.hits[k], of), append(p.ece[k], x.ECE)
		if err := p.hits[k].check(); err != nil {
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

// readLog reads a log of talf bench: the tokens and passes of all answers, and the prompts in order.
func readLog(path string) (map[answered]share, []asked, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, nil, err
	}
	got, prompts := map[answered]share{}, []asked(nil)
	for line := range bytes.Lines(b) {
		var m struct {
			Method      string
			Set, Prompt string
			Temperature float64
			Stats       struct{ Tokens, Passes int }
		}
		if err := json.Unmarshal(line, &m); err != nil {
			return nil, nil, fmt.Errorf("%s: %w", path, err)
		}
		if m.Method == "" { // the head line
			continue
		}
		k := answered{m.Method, m.Temperature, asked{m.Set, m.Prompt}}
		got[k] = share{m.Stats.Tokens, m.Stats.Passes}
		if !slices.Contains(prompts, k.asked) {
			prompts = append(prompts, k.asked)
		}
	}
	slices.SortFunc(prompts, func(a, b asked) int {
		return cmp.Or(cmp.Compare(a.set, b.set), cmp.Compare(len(a.prompt), len(b.prompt)), cmp.Compare(a.prompt, b.prompt))
	})
	return got, prompts, nil
}
