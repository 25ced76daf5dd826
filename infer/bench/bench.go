// Package bench measures draft methods side by side: in one process, on the same
// target, interleaved, against plain decoding of the same run.
package bench

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"talf/infer"
	"talf/infer/draft"
	"talf/infer/verify"
	"talf/model/sample"
)

// Baseline is the label of plain decoding, which every run includes.
const Baseline = "ar"

// A Method is one row of the table.
type Method struct {
	Label  string       // names the row; empty means Spec
	Spec   string       // of infer/draft, such as "salf:th=0.4"
	Source infer.Source // what it asks; nil where it asks none
}

// A Prompt is what to continue.
type Prompt struct {
	Name   string
	Tokens []int32
}

// A Config says what to run. Every method runs every prompt at every temperature
// with every seed.
type Config struct {
	Methods      []Method
	Prompts      []Prompt
	Warmup       int // of Prompts, the first that are run and not counted
	Temperatures []float64
	Seeds        []uint64
	MaxTokens    int
	NoEOS        bool
	Sampling     sample.Params // beside the temperature
	// Check fails the run where a method's output is not plain decoding's.
	Check    bool
	Progress func(done, total int)
}

// Default returns a greedy run without methods and prompts.
func Default() Config {
	return Config{
		Warmup: 1, Temperatures: []float64{0}, Seeds: []uint64{0}, MaxTokens: 128,
		Sampling: sample.Greedy(), Check: true,
	}
}

// Validate checks that there is something to measure.
func (c Config) Validate() error {
	switch {
	case c.Warmup < 0 || len(c.Prompts) <= c.Warmup:
		return fmt.Errorf("bench: %d prompts with the first %d for warm-up, want more prompts", len(c.Prompts), c.Warmup)
	case len(c.Temperatures) == 0 || len(c.Seeds) == 0:
		return errors.New("bench: want at least one temperature and one seed")
	case c.MaxTokens < 1:
		return fmt.Errorf("bench: max tokens is %d, want at least 1", c.MaxTokens)
	}
	for _, t := range c.Temperatures {
		p := c.Sampling
		p.Temperature = t
		if err := p.Validate(); err != nil {
			return fmt.Errorf("bench: %w", err)
		}
	}
	var labels []string
	for _, m := range c.Methods {
		mk, line, err := draft.Open(m.Spec, draft.Env{})
		if err != nil {
			return err
		}
		_ = mk.Close() // nothing was written
		if line.Source && m.Source == nil {
			return fmt.Errorf("bench: %s asks a draft model, want a source", m.Spec)
		}
		if slices.Contains(labels, m.label()) {
			return fmt.Errorf("bench: two rows are called %q", m.label())
		}
		labels = append(labels, m.label())
	}
	return nil
}

func (m Method) label() string {
	if m.Label != "" {
		return m.Label
	}
	return m.Spec
}

// A Mean is a mean over prompts and its standard deviation (n−1).
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

// A Row is one method at one temperature.
type Row struct {
	Method      string  `json:"method"`
	Spec        string  `json:"spec"`
	Temperature float64 `json:"temperature"`
	Tau         Mean    `json:"tau"`               // tokens per target pass, over prompts
	Pooled      float64 `json:"tau_pooled"`        // all tokens over all passes
	Speed       Mean    `json:"tokens_per_second"` // after the prompt
	// Speedup is the ratio of seconds per token to plain decoding's on the same
	// prompts, temperature and seeds.
	Speedup  Mean    `json:"speedup"`
	TTFT     Mean    `json:"ttft_seconds"`
	TPOT     Mean    `json:"tpot_seconds"`
	Draft    float64 `json:"draft_share"` // of the decoding time
	Verify   float64 `json:"verify_share"`
	Overhead float64 `json:"overhead_share"`
	Tokens   int     `json:"tokens"`
	Passes   int     `json:"passes"`
	Drafted  int     `json:"drafted"`
	// Emitted[n] counts passes that emitted n tokens; Depth and Rank are the
	// acceptance by depth and by rank among siblings, from 1; Ranked the share of
	// drafted nodes by rank.
	Emitted []int        `json:"emitted"`
	Depth   []infer.Rate `json:"by_depth"`
	Rank    []infer.Rate `json:"by_rank"`
	Ranked  []int        `json:"nodes_by_rank"`
	// Equal counts the outputs that are plain decoding's token for token.
	Equal   int `json:"equal_outputs"`
	Outputs int `json:"outputs"`
}

// A Report is a finished run.
type Report struct {
	Prompts   int      `json:"prompts"`
	Warmup    int      `json:"warmup"`
	MaxTokens int      `json:"max_tokens"`
	Seeds     []uint64 `json:"seeds"`
	Rows      []Row    `json:"rows"`
}

// An outcome is one method's decoding of one prompt.
type outcome struct {
	stats  infer.Stats
	tokens []int32
}

// Run measures. Methods take turns within every prompt, in an order that rotates,
// so that a machine that slows down slows them all.
func Run(ctx context.Context, e *infer.Engine, c Config) (*Report, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	methods := c.Methods
	if !slices.ContainsFunc(methods, func(m Method) bool { return m.label() == Baseline }) {
		methods = append([]Method{{Spec: Baseline}}, methods...)
	}
	base := slices.IndexFunc(methods, func(m Method) bool { return m.label() == Baseline })
	makers, err := open(e, methods, c.Temperatures)
	if err != nil {
		return nil, err
	}
	defer makers.close()
	// got[temperature][method][prompt] pools the seeds.
	got := make([][][]infer.Stats, len(c.Temperatures))
	equal := make([][]int, len(c.Temperatures))
	for t := range got {
		got[t], equal[t] = make([][]infer.Stats, len(methods)), make([]int, len(methods))
		for m := range got[t] {
			got[t][m] = make([]infer.Stats, len(c.Prompts)-c.Warmup)
		}
	}
	total := len(c.Prompts) * len(c.Temperatures) * len(c.Seeds) * len(methods)
	done, turn := 0, 0
	outs := make([]outcome, len(methods))
	for i, p := range c.Prompts {
		for t, temperature := range c.Temperatures {
			for s, seed := range c.Seeds {
				turn++
				for k := range methods {
					m := (turn + k) % len(methods)
					var err error
					if outs[m], err = c.decode(ctx, e, methods[m], makers[t][m], p, temperature, seed); err != nil {
						return nil, fmt.Errorf("bench: %s, prompt %d (%s), temperature %v: %w", methods[m].label(), i, p.Name, temperature, err)
					}
					if done++; c.Progress != nil {
						c.Progress(done, total)
					}
				}
				for m := range methods {
					same := slices.Equal(outs[m].tokens, outs[base].tokens)
					if c.Check && !same {
						return nil, fmt.Errorf("bench: %s, prompt %d (%s), temperature %v, seed %d: the output leaves plain decoding's at token %d",
							methods[m].label(), i, p.Name, temperature, c.Seeds[s], infer.CommonPrefix(outs[m].tokens, outs[base].tokens))
					}
					if i < c.Warmup {
						continue
					}
					got[t][m][i-c.Warmup].Add(&outs[m].stats)
					if same {
						equal[t][m]++
					}
				}
			}
		}
	}
	r := &Report{Prompts: len(c.Prompts) - c.Warmup, Warmup: c.Warmup, MaxTokens: c.MaxTokens, Seeds: c.Seeds}
	for t, temperature := range c.Temperatures {
		for m := range methods {
			row := summarise(got[t][m], got[t][base], len(c.Seeds))
			row.Method, row.Spec, row.Temperature = methods[m].label(), methods[m].Spec, temperature
			row.Equal, row.Outputs = equal[t][m], len(got[t][m])*len(c.Seeds)
			r.Rows = append(r.Rows, row)
		}
	}
	return r, nil
}

// makers[temperature][method] make the drafters of a run.
type makers [][]*draft.Maker

func open(e *infer.Engine, methods []Method, temperatures []float64) (makers, error) {
	all := make(makers, len(temperatures))
	for t, temperature := range temperatures {
		for _, m := range methods {
			mk, _, err := draft.Open(m.Spec, draft.Env{Vocab: e.Target.Shape().Vocab, Temperature: temperature})
			if err != nil {
				all.close()
				return nil, err
			}
			all[t] = append(all[t], mk)
		}
	}
	return all, nil
}

func (all makers) close() {
	for _, ms := range all {
		for _, m := range ms {
			_ = m.Close() // nothing was written
		}
	}
}

func (c *Config) decode(ctx context.Context, e *infer.Engine, m Method, mk *draft.Maker, p Prompt, temperature float64, seed uint64) (outcome, error) {
	v, err := verify.New("", temperature)
	if err != nil {
		return outcome{}, err
	}
	params := c.Sampling
	params.Temperature = temperature
	proc, err := infer.NewSampling(params)
	if err != nil {
		return outcome{}, err
	}
	s, err := e.Generate(ctx, infer.Request{
		Prompt: p.Tokens, MaxTokens: c.MaxTokens, NoEOS: c.NoEOS, Seed: seed,
		Drafter: mk.New(), Source: m.Source, Verifier: v, Processor: proc,
	})
	if err != nil {
		return outcome{}, err
	}
	return outcome{*s.Stats(), slices.Clone(s.Tokens())}, nil
}

func summarise(prompts, base []infer.Stats, seeds int) (r Row) {
	var all infer.Stats
	var tau, speed, speedup, ttft, tpot []float64
	for i := range prompts {
		s := &prompts[i]
		all.Add(s)
		tau = append(tau, s.Tau())
		speed = append(speed, float64(s.Tokens)/s.Decode.Seconds())
		speedup = append(speedup, base[i].TPOT().Seconds()/s.TPOT().Seconds())
		ttft = append(ttft, s.TTFT.Seconds()/float64(seeds))
		tpot = append(tpot, s.TPOT().Seconds())
	}
	share := func(d time.Duration) float64 { return d.Seconds() / all.Decode.Seconds() }
	return Row{
		Tau: meanOf(tau), Pooled: all.Tau(), Speed: meanOf(speed), Speedup: meanOf(speedup),
		TTFT: meanOf(ttft), TPOT: meanOf(tpot),
		Draft: share(all.Draft), Verify: share(all.Verify), Overhead: share(all.Overhead),
		Tokens: all.Tokens, Passes: all.Passes, Drafted: all.Drafted,
		Emitted: all.Emitted, Depth: all.Depth, Rank: all.Rank, Ranked: all.Ranked,
	}
}
