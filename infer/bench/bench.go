// Package bench measures draft methods side by side: in one process, on the same
// target, interleaved, against plain decoding of the same run.
package bench

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"

	"talf/infer"
	"talf/infer/draft"
	"talf/infer/verify"
	"talf/model/sample"
)

// Baseline is the specification of plain decoding, which every run includes.
const Baseline = "ar"

// A Method is one row of the table: what drafts, what verifies, and where it
// differs from the run's configuration.
type Method struct {
	Label  string // names the row; empty means Name()
	Spec   string // of infer/draft, such as "salf:th=0.4"
	Verify string // of infer/verify; empty takes the one that suits every tree
	Files  string // identifies the contents of files that Spec names; empty where it names none

	Source     infer.Source // what it asks; nil where it asks none
	SourceName string       // tells sources apart in names and logs

	Budget       int       // most nodes of a tree, root counted; 0: as the method says
	MaxTokens    int       // of an answer; 0: the run's
	PromptTokens int       // newest tokens of a prompt that are kept; 0: all
	Temperatures []float64 // those of the run that it is for; nil: all
}

// Name says what m is by what it consists of.
func (m *Method) Name() string {
	s := m.Spec
	if m.Verify != "" {
		s += " @" + m.Verify
	}
	if m.SourceName != "" {
		s += " " + m.SourceName
	}
	return s + m.group()
}

// group says what m must share with the plain decoding that it is compared with.
func (m *Method) group() string {
	s := ""
	if m.MaxTokens > 0 {
		s += fmt.Sprintf(", %d tokens", m.MaxTokens)
	}
	if m.PromptTokens > 0 {
		s += fmt.Sprintf(", prompt of %d", m.PromptTokens)
	}
	if m.Budget > 0 && m.Spec != Baseline {
		s += fmt.Sprintf(", %d nodes", m.Budget)
	}
	return s
}

func (m *Method) label() string {
	if m.Label != "" {
		return m.Label
	}
	return m.Name()
}

// base returns the plain decoding that m is compared with.
func (m *Method) base() Method {
	return Method{Spec: Baseline, MaxTokens: m.MaxTokens, PromptTokens: m.PromptTokens}
}

func (m *Method) at(temperature float64) bool {
	return m.Temperatures == nil || slices.Contains(m.Temperatures, temperature)
}

// A Prompt is what to continue.
type Prompt struct {
	Name   string
	Tokens []int32
}

// A Set is prompts that belong together, such as those of one benchmark.
type Set struct {
	Name    string
	Prompts []Prompt
	Cut     int // how many of them lost their beginning
}

// A Config says what to run. Every method runs every prompt of every set at every
// temperature with every seed, Repeat times.
type Config struct {
	Methods      []Method
	Sets         []Set
	Warmup       int // of each set, the first prompts that are run and not counted
	Temperatures []float64
	Seeds        []uint64
	Repeat       int
	MaxTokens    int
	NoEOS        bool
	Sampling     sample.Params // beside the temperature
	Tokenizer    string        // hash that files of token ids must carry; empty accepts any
	// Check fails the run where a method's output should be plain decoding's and
	// is not.
	Check bool
	// Parts runs the passes of every decoding again, each model's alone, and keeps
	// what they took within decoding and alone.
	Parts    bool
	Progress func(done, total int)

	// Known are measurements of an earlier run that are not made again; Keep is
	// given each new one. Warm-up prompts are in neither.
	Known []Measurement
	Keep  func(*Measurement) error

	before func(*Measurement) error // each decoding, and after
	after  func(*Measurement)
}

// Default returns a greedy run without methods and prompts.
func Default() Config {
	return Config{
		Warmup: 1, Temperatures: []float64{0}, Seeds: []uint64{0}, Repeat: 1, MaxTokens: 128,
		Sampling: sample.Greedy(), Check: true,
	}
}

// Validate checks that there is something to measure and that every method fits
// its verifier.
func (c *Config) Validate() error {
	switch {
	case len(c.Sets) == 0:
		return errors.New("bench: want at least one set of prompts")
	case len(c.Temperatures) == 0 || len(c.Seeds) == 0:
		return errors.New("bench: want at least one temperature and one seed")
	case c.Repeat < 1:
		return fmt.Errorf("bench: repeat is %d, want at least 1", c.Repeat)
	case c.MaxTokens < 1:
		return fmt.Errorf("bench: max tokens is %d, want at least 1", c.MaxTokens)
	}
	var sets []string
	for _, s := range c.Sets {
		if c.Warmup < 0 || len(s.Prompts) <= c.Warmup {
			return fmt.Errorf("bench: %d prompts%s with the first %d for warm-up, want more prompts", len(s.Prompts), of(s.Name), c.Warmup)
		}
		if slices.Contains(sets, s.Name) || s.Name == "" && len(c.Sets) > 1 {
			return fmt.Errorf("bench: sets must differ in their names, two are called %q", s.Name)
		}
		sets = append(sets, s.Name)
	}
	for i, s := range c.Seeds {
		if slices.Contains(c.Seeds[:i], s) {
			return fmt.Errorf("bench: seed %d is there twice", s)
		}
	}
	for i, t := range c.Temperatures {
		if slices.Contains(c.Temperatures[:i], t) {
			return fmt.Errorf("bench: temperature %v is there twice", t)
		}
		p := c.Sampling
		p.Temperature = t
		if err := p.Validate(); err != nil {
			return fmt.Errorf("bench: %w", err)
		}
	}
	var labels []string
	for i := range c.Methods {
		m := &c.Methods[i]
		if m.Budget < 0 || m.MaxTokens < 0 || m.PromptTokens < 0 {
			return fmt.Errorf("bench: %s: budget %d, max tokens %d and prompt tokens %d, want none below 0", m.label(), m.Budget, m.MaxTokens, m.PromptTokens)
		}
		line, _, err := draft.Find(m.Spec)
		if err != nil {
			return err
		}
		if line.Source && m.Source == nil {
			return fmt.Errorf("bench: %s asks a draft model, want a source", m.Spec)
		}
		runs := false
		for _, t := range c.Temperatures {
			if !m.at(t) {
				continue
			}
			runs = true
			if err := c.fits(m, t); err != nil {
				return err
			}
		}
		if !runs {
			return fmt.Errorf("bench: %s runs at none of the temperatures %v", m.label(), c.Temperatures)
		}
		if slices.Contains(labels, m.label()) {
			return fmt.Errorf("bench: two rows are called %q", m.label())
		}
		labels = append(labels, m.label())
	}
	return nil
}

func of(set string) string {
	if set == "" {
		return ""
	}
	return " of " + set
}

// fits reports why m cannot be run at temperature t.
func (c *Config) fits(m *Method, t float64) error {
	mk, _, err := draft.Open(m.Spec, draft.Env{Temperature: t, Tokenizer: c.Tokenizer, Source: m.Source != nil})
	if err != nil {
		return err
	}
	defer func() { _ = mk.Close() }() // nothing was written
	if err := verify.Check(m.Verify, mk.Draw, mk.Chain); err != nil {
		return fmt.Errorf("%s: %w", m.label(), err)
	}
	_, err = verify.New(m.Verify, t)
	return err
}

// SameOutput reports whether a verifier's output is plain decoding's, token for
// token: greedy output always is, sampled output if every token is the target's
// own draw. The others only have the same distribution.
func SameOutput(verifier string, temperature float64) bool {
	if temperature == 0 || verifier == "" {
		return true
	}
	m, err := verify.Find(verifier)
	return err == nil && m.Exact
}

// Run measures. Methods take turns within every prompt, in an order that rotates,
// and sets within every round of prompts, so that a machine that slows down slows
// them all. A run that fails or is cancelled returns, with the error, the report
// of what it measured; nil if that is nothing.
func Run(ctx context.Context, e *infer.Engine, c Config) (*Report, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	r := runner{engine: e, c: &c, methods: withBases(c.Methods)}
	defer r.close()
	if err := r.open(); err != nil {
		return nil, err
	}
	err := r.run(ctx)
	if err != nil && len(r.got) == 0 {
		return nil, err
	}
	return c.report(r.methods, r.got), err
}

// Report summarises measurements of an earlier run of c without running anything.
// Those of methods and prompts that c does not have are passed over.
func (c *Config) Report(got []Measurement) *Report {
	return c.report(withBases(c.Methods), got)
}

// withBases puts plain decoding first where a method has none to be compared with.
func withBases(methods []Method) []Method {
	var bases []Method
	for i := range methods {
		b := methods[i].base()
		has := func(m Method) bool {
			return m.Spec == Baseline && m.Verify == "" && m.MaxTokens == b.MaxTokens && m.PromptTokens == b.PromptTokens && m.Temperatures == nil
		}
		if !slices.ContainsFunc(methods, has) && !slices.ContainsFunc(bases, has) {
			bases = append(bases, b)
		}
	}
	if len(methods) == 0 {
		bases = []Method{{Spec: Baseline}}
	}
	return append(bases, methods...)
}

// A runner is a run under way.
type runner struct {
	engine  *infer.Engine
	c       *Config
	methods []Method
	makers  [][]*draft.Maker // [temperature][method], nil where it does not run
	known   map[string]*Measurement
	got     []Measurement
	done    int
	total   int
	turn    int
	tape    tape
}

func (r *runner) open() error {
	r.known = map[string]*Measurement{}
	for i := range r.c.Known {
		r.known[r.c.Known[i].Key] = &r.c.Known[i]
	}
	for _, t := range r.c.Temperatures {
		ms := make([]*draft.Maker, len(r.methods))
		r.makers = append(r.makers, ms)
		for i := range r.methods {
			m := &r.methods[i]
			if !m.at(t) {
				continue
			}
			mk, _, err := draft.Open(m.Spec, draft.Env{Vocab: r.engine.Target.Shape().Vocab, Temperature: t, Tokenizer: r.c.Tokenizer, Source: m.Source != nil})
			if err != nil {
				return err
			}
			ms[i] = mk
			for _, s := range r.c.Sets {
				r.total += r.c.Repeat*(len(s.Prompts)-r.c.Warmup)*len(r.c.Seeds) + r.c.Warmup*len(r.c.Seeds)
			}
		}
	}
	return nil
}

func (r *runner) close() {
	for _, ms := range r.makers {
		for _, m := range ms {
			if m != nil {
				_ = m.Close() // nothing was written
			}
		}
	}
}

func (r *runner) run(ctx context.Context) error {
	most := 0
	for _, s := range r.c.Sets {
		most = max(most, len(s.Prompts))
	}
	for repeat := range r.c.Repeat {
		for i := range most {
			if repeat > 0 && i < r.c.Warmup {
				continue // it is warm
			}
			for s := range r.c.Sets {
				if i >= len(r.c.Sets[s].Prompts) {
					continue
				}
				for t := range r.c.Temperatures {
					for _, seed := range r.c.Seeds {
						if err := r.prompt(ctx, repeat, i, s, t, seed); err != nil {
							return err
						}
					}
				}
			}
		}
	}
	return nil
}

// prompt decodes one prompt with all methods and compares their outputs. It counts
// for all of them or for none.
func (r *runner) prompt(ctx context.Context, repeat, i, s, t int, seed uint64) error {
	c, set := r.c, &r.c.Sets[s]
	temperature := c.Temperatures[t]
	outs := make([]*Measurement, len(r.methods))
	r.turn++
	for k := range r.methods {
		n := (r.turn + k) % len(r.methods)
		m := &r.methods[n]
		if r.makers[t][n] == nil {
			continue
		}
		x := Measurement{
			Method: m.label(), Set: set.Name, Prompt: set.Prompts[i].Name,
			Temperature: temperature, Seed: seed, Repeat: repeat,
		}
		x.Key = c.key(m, set.Prompts[i].Tokens, &x)
		if old := r.known[x.Key]; old != nil && i >= c.Warmup {
			x = *old
			x.Method, x.Prompt = m.label(), set.Prompts[i].Name
		} else if err := r.decode(ctx, &x, m, r.makers[t][n], set.Prompts[i].Tokens); err != nil {
			return fmt.Errorf("bench: %s, prompt %d%s (%s), temperature %v: %w", m.label(), i, of(set.Name), x.Prompt, temperature, err)
		}
		outs[n] = &x
		if r.done++; c.Progress != nil {
			c.Progress(r.done, r.total)
		}
	}
	for n, x := range outs {
		if x == nil {
			continue
		}
		m := &r.methods[n]
		plain := outs[slices.IndexFunc(r.methods, func(o Method) bool {
			return o.Spec == Baseline && o.Verify == "" && o.MaxTokens == m.MaxTokens && o.PromptTokens == m.PromptTokens
		})]
		x.Compared = SameOutput(m.Verify, temperature)
		x.Equal = x.Compared && slices.Equal(x.Output, plain.Output)
		if c.Check && x.Compared && !x.Equal {
			return fmt.Errorf("bench: %s, prompt %d%s (%s), temperature %v, seed %d: the output leaves plain decoding's at token %d",
				m.label(), i, of(set.Name), x.Prompt, temperature, seed, infer.CommonPrefix(x.Output, plain.Output))
		}
	}
	if i < c.Warmup {
		return nil
	}
	for _, x := range outs {
		if x == nil {
			continue
		}
		if r.known[x.Key] == nil && c.Keep != nil {
			if err := c.Keep(x); err != nil {
				return fmt.Errorf("bench: keep a measurement: %w", err)
			}
		}
	}
	for _, x := range outs {
		if x != nil {
			r.got = append(r.got, *x)
		}
	}
	return nil
}

// key identifies what x measures by all that decides it.
func (c *Config) key(m *Method, prompt []int32, x *Measurement) string {
	h := fnv.New64a()
	for _, id := range prompt {
		_, _ = h.Write([]byte{byte(id), byte(id >> 8), byte(id >> 16), byte(id >> 24)}) // never fails
	}
	tokens := m.MaxTokens
	if tokens == 0 {
		tokens = c.MaxTokens
	}
	spec := m.Spec
	if m.Files != "" {
		spec += "#" + m.Files
	}
	return fmt.Sprintf("%s|%s|%s|%d|%d|%d|%s|%x|%v|%d|%d", spec, m.Verify, m.SourceName, m.Budget, tokens, m.PromptTokens,
		x.Set, h.Sum64(), x.Temperature, x.Seed, x.Repeat)
}

// decode fills x.
func (r *runner) decode(ctx context.Context, x *Measurement, m *Method, mk *draft.Maker, prompt []int32) error {
	v, err := verify.New(m.Verify, x.Temperature)
	if err != nil {
		return err
	}
	params := r.c.Sampling
	params.Temperature = x.Temperature
	proc, err := infer.NewSampling(params)
	if err != nil {
		return err
	}
	if m.PromptTokens > 0 && len(prompt) > m.PromptTokens {
		prompt = prompt[len(prompt)-m.PromptTokens:]
	}
	maxTokens := r.c.MaxTokens
	if m.MaxTokens > 0 {
		maxTokens = m.MaxTokens
	}
	config := r.engine.Config
	defer func() { r.engine.Config = config }()
	if m.Budget > 0 {
		r.engine.Config.MaxNodes = min(config.MaxNodes, m.Budget)
	}
	if r.c.before != nil {
		if err := r.c.before(x); err != nil {
			return err
		}
	}
	drafter := mk.New()
	seen := watch(v, drafter)
	engine, src, emit := r.engine, m.Source, seen.emit
	if r.c.Parts {
		if drafter == nil {
			src = nil
		}
		engine, src = r.tape.begin(engine, src)
		emit = func(d infer.Delta) error {
			err := seen.emit(d)
			r.tape.ends()
			return err
		}
	}
	resetPeak()
	s, err := engine.Generate(ctx, infer.Request{
		Prompt: prompt, MaxTokens: maxTokens, NoEOS: r.c.NoEOS, Seed: x.Seed,
		Drafter: drafter, Source: src, Verifier: seen, Processor: proc, Emit: emit,
	})
	if err != nil {
		return err
	}
	x.Peak = peakMemory()
	x.Stats, x.Output, x.Paths = *s.Stats(), slices.Clone(s.Tokens()), seen.paths
	x.Looped = LoopTokens(x.Output)
	if r.c.Parts {
		if err := r.tape.again(ctx); err != nil {
			return fmt.Errorf("run its passes again: %w", err)
		}
		x.Rounds = r.tape.rounds
	}
	if r.c.after != nil {
		r.c.after(x)
	}
	return nil
}
