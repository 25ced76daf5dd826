package main

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"talf/infer"
	"talf/infer/bench"
	"talf/infer/draft"
	"talf/infer/source"
	"talf/model/head"
)

// A benchOptions holds bench's flags.
type benchOptions struct {
	decode       decodeOptions
	heads        []string // DIR or NAME=DIR
	methods      []string
	prompts      string
	template     string
	limit        int
	promptTokens int
	warmup       int
	temperatures []float64
	seeds        []uint
	ranks        int
	check        bool
}

func newBench(a *app) *cobra.Command {
	var o benchOptions
	var p printing
	c := &cobra.Command{
		Use:   "bench --model DIR --head CKPT --prompts FILE",
		Short: "Compare draft methods and heads with plain decoding",
		Long: `Bench decodes every prompt with every method and head, in turn, in one process,
and prints accepted lengths, speeds and acceptance by depth: τ is the mean number
of tokens per pass of the model, its own token counted. Means and deviations are
over prompts. Without --check=false it fails where an output differs from plain
decoding's.

Prompt files are those of generate. --prompt-tokens keeps only the beginning of
every text, so that the model writes the rest.

--ranks N also gives each head its own n-th ranked token, n = 1..N, at every
position of the texts, and compares its next guess with the model's: accuracy, and
the expected calibration error over 10 bins of equal width.`,
		Example: `  talf bench --model DIR --head heads/talf --prompts prompts.jsonl
  talf bench --model DIR --head eagle=heads/eagle --head talf=heads/talf --method beam --method salf:th=0.4 --temperature 0,1 --prompts stories.txt --prompt-tokens 16 --ranks 5 --out bench.json`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := need(cmd, "model", "prompts"); err != nil {
				return err
			}
			if err := p.check(); err != nil {
				return err
			}
			r, err := a.bench(cmd.Context(), &o)
			if err != nil {
				return err
			}
			return p.print(a, r, func(markdown bool) error {
				a.printf("%s, weights %s", r.Device, r.DType)
				if r.Layers > 0 {
					a.printf(", deepened to %d layers that add nothing: a cost model of a larger target", r.Layers)
				}
				a.printf("\n\n")
				write := r.WriteText
				if markdown {
					write = r.WriteMarkdown
				}
				if err := write(a.out); err != nil {
					return err
				}
				a.printRanks(r.ByRank)
				return nil
			})
		},
	}
	c.AddCommand(newBenchDecode(a), newBenchKernels(a), newBenchPerplexity(a))
	d := bench.Default()
	o.decode.sample = d.Sampling
	f := c.Flags()
	f.StringVar(&o.decode.model, "model", "", "model directory in Hugging Face layout")
	f.StringArrayVar(&o.heads, "head", nil, "checkpoint of a draft head, or NAME=CKPT to say what to call it (may be repeated)")
	f.StringArrayVar(&o.methods, "method", []string{"beam", "optimal", "salf"}, "draft method with its parameters (may be repeated): "+methodNames())
	f.StringVar(&o.prompts, "prompts", "", "file of prompts")
	f.StringVar(&o.template, "template", "", "how fields of a JSONL line make a prompt")
	countVar(f, &o.limit, "limit", 0, "most prompts, warm-up included (0: all)")
	countVar(f, &o.promptTokens, "prompt-tokens", 0, "keep this many tokens of every prompt (0: all)")
	countVar(f, &o.warmup, "warmup", d.Warmup, "first prompts that are run and not counted")
	f.IntVar(&o.decode.maxTokens, "max-tokens", d.MaxTokens, "most tokens of an answer")
	f.Float64SliceVar(&o.temperatures, "temperature", d.Temperatures, "temperatures to compare at")
	f.UintSliceVar(&o.seeds, "seed", []uint{0}, "seeds to decode with")
	countVar(f, &o.ranks, "ranks", 0, "also measure heads on their own ranked tokens up to this rank")
	f.BoolVar(&o.check, "check", d.Check, "fail where an output differs from plain decoding's")
	f.BoolVar(&o.decode.drafting.force, "force", false, "use heads that were trained for other weights")
	countVar(f, &o.decode.machine.layers, "layers", 0, "deepen the model to so many layers that add nothing: a cost model of a larger one (0: as it is)")
	f.BoolVar(&o.decode.ignoreEOS, "ignore-eos", false, "go on after an end-of-sequence token")
	o.decode.machine.flags(f)
	p.flags(f)
	return c
}

// A benchReport is a run and, if asked for, what heads do by rank.
type benchReport struct {
	*bench.Report
	Device string `json:"device"`
	DType  string `json:"dtype"`
	// Layers is what the model was deepened to: a cost model of a larger one.
	Layers int        `json:"deepened_to_layers,omitempty"`
	ByRank []rankLine `json:"heads_by_rank,omitempty"`
}

// A rankLine is one head given its own n-th ranked token.
type rankLine struct {
	Head     string  `json:"head"`
	Rank     int     `json:"rank"`
	Items    int     `json:"items"`
	Accuracy float64 `json:"accuracy"`
	ECE      float64 `json:"ece"`     // confidence: the head's probability of the model's choice
	ECEMax   float64 `json:"ece_max"` // confidence: the head's largest probability
}

// A namedHead is one that was loaded.
type namedHead struct {
	name string
	head *head.Head
}

func (a *app) bench(ctx context.Context, o *benchOptions) (*benchReport, error) {
	c := bench.Default()
	c.Warmup, c.Temperatures, c.MaxTokens = o.warmup, o.temperatures, o.decode.maxTokens
	c.NoEOS, c.Check = o.decode.ignoreEOS, o.check
	c.Seeds = nil
	for _, s := range o.seeds {
		c.Seeds = append(c.Seeds, uint64(s))
	}
	names, err := headNames(o.heads)
	if err != nil {
		return nil, err
	}
	turns, err := a.readPrompts(o.prompts, o.template)
	if err != nil {
		return nil, err
	}
	if o.limit > 0 && len(turns) > o.limit {
		turns = turns[:o.limit]
	}
	o.decode.method = bench.Baseline
	d, err := o.decode.open(0)
	if err != nil {
		return nil, err
	}
	defer func() { d.close() }()
	heads := make([]namedHead, len(o.heads))
	for i, n := range names {
		// A deepened model has other weights and the same outputs.
		x, err := loadHead(n.path, d.model, o.decode.drafting.force || o.decode.machine.layers > 0)
		if err != nil {
			return nil, err
		}
		defer func() { _ = x.Close() }()
		heads[i] = namedHead{n.name, x}
	}
	if c.Methods, err = benchMethods(o.methods, heads); err != nil {
		return nil, usageError{err}
	}
	var texts [][]int32
	cut := 0
	room := d.model.Spec().MaxPos - o.decode.maxTokens
	for i, t := range turns {
		ids, err := d.tok.Encode(t[0], true)
		if err != nil {
			return nil, fmt.Errorf("encode prompt %d: %w", i, err)
		}
		if len(ids) == 0 {
			continue
		}
		texts = append(texts, ids)
		if o.promptTokens > 0 {
			ids = ids[:min(len(ids), o.promptTokens)]
		}
		if len(ids) > room && room > 0 { // the end of a prompt says what is asked
			ids, cut = ids[len(ids)-room:], cut+1
		}
		c.Prompts = append(c.Prompts, bench.Prompt{Name: fmt.Sprint(i), Tokens: ids})
	}
	if cut > 0 {
		a.log.Warn("prompts were cut to their ends", "prompts", cut, "tokens", room)
	}
	if err := c.Validate(); err != nil {
		return nil, usageError{err}
	}
	bar := a.progress("bench", "answers")
	c.Progress = func(done, total int) { bar.set(int64(done), int64(total), "") }
	r, err := bench.Run(ctx, d.engine, c)
	bar.end()
	if err != nil {
		return nil, err
	}
	out := &benchReport{
		Report: r, Device: d.model.Device().Name(), DType: d.model.Options().DType.String(), Layers: o.decode.machine.layers,
	}
	if o.ranks > 0 {
		for _, h := range heads {
			items, err := bench.ByRank(ctx, d.model, h.head, texts, o.ranks)
			if err != nil {
				return nil, err
			}
			out.ByRank = append(out.ByRank, rankLines(h.name, items)...)
		}
	}
	return out, nil
}

// A headName is a --head of the command line.
type headName struct{ name, path string }

// headNames reads NAME=CKPT; a checkpoint alone is called like its directory.
func headNames(flags []string) ([]headName, error) {
	var all []headName
	for _, f := range flags {
		name, path, ok := strings.Cut(f, "=")
		if !ok {
			name, path = filepath.Base(f), f
		}
		if name == "" || path == "" {
			return nil, usagef("--head is %q, want CKPT or NAME=CKPT", f)
		}
		if slices.ContainsFunc(all, func(n headName) bool { return n.name == name }) {
			return nil, usagef("--head: two are called %q: say NAME=CKPT", name)
		}
		all = append(all, headName{name, path})
	}
	return all, nil
}

// benchMethods crosses methods that ask a head with the heads.
func benchMethods(specs []string, heads []namedHead) ([]bench.Method, error) {
	sources := make([]infer.Source, len(heads))
	for i, h := range heads {
		sources[i] = source.NewHead(h.head, 0)
	}
	var out []bench.Method
	for _, spec := range specs {
		line, _, err := draft.Find(spec)
		if err != nil {
			return nil, err
		}
		if !line.Source {
			out = append(out, bench.Method{Spec: spec})
			continue
		}
		if len(heads) == 0 {
			return nil, fmt.Errorf("--method %s needs a draft head: give --head CKPT", spec)
		}
		for i, h := range heads {
			out = append(out, bench.Method{Label: spec + " " + h.name, Spec: spec, Source: sources[i]})
		}
	}
	return out, nil
}

func rankLines(name string, ranks [][]bench.Item) []rankLine {
	var out []rankLine
	for n, items := range ranks {
		hit, conf := bench.Split(items, false)
		hitMax, confMax := bench.Split(items, true)
		out = append(out, rankLine{
			Head: name, Rank: n + 1, Items: len(items), Accuracy: bench.Accuracy(items),
			ECE: bench.ECEWidth(hit, conf, 10), ECEMax: bench.ECEWidth(hitMax, confMax, 10),
		})
	}
	return out
}

// printRanks prints a line for each head: accuracy and calibration error by rank.
func (a *app) printRanks(lines []rankLine) {
	for len(lines) > 0 {
		name := lines[0].Head
		n := slices.IndexFunc(lines, func(l rankLine) bool { return l.Head != name })
		if n < 0 {
			n = len(lines)
		}
		a.printf("%s, given its own n-th ranked token:", name)
		for _, l := range lines[:n] {
			a.printf("  n=%d accuracy %.3f, ECE %.3f", l.Rank, l.Accuracy, l.ECE)
		}
		a.printf("\n")
		lines = lines[n:]
	}
}
