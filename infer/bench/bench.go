// Package bench compares draft methods with each other and with plain decoding. They run
// interleaved, in one process and on the same target.
package bench

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"time"

	"talf/infer"
	"talf/infer/bench/rounds"
	"talf/infer/constrain"
	"talf/infer/decode"
	"talf/infer/draft"
	"talf/infer/loop"
	"talf/infer/verify"
	"talf/model/sample"
)

// Baseline is the specification of plain decoding. Every run includes it.
const Baseline = "ar"

// A Source is a draft model that methods may ask.
type Source struct {
	Name string // the run's own name for it
	LM   bool   // a language model; otherwise a draft head
	infer.Source
}

// A Method is one row of the table: a drafter, a verifier, and settings that differ from the
// run's.
type Method struct {
	Label  string // title of the row; empty means Name()
	Spec   string // of infer/draft, such as "salf:th=0.4"
	Verify string // of infer/verify; empty takes the one that suits every tree

	Source     infer.Source // the draft model; nil for none
	SourceName string       // tells draft models apart in names and logs

	Budget       int       // most nodes of a tree, the root included; 0: the method's own limit
	MaxTokens    int       // most tokens of an answer; 0: the run's limit
	PromptChars  int       // keep only this many first characters of a prompt; 0: all
	Temperatures []float64 // the run's temperatures that the method runs at; nil: all
	// Cold: every answer begins with a new maker, without what earlier ones taught the method and the
	// costs that they measured. Otherwise a method that learns goes on with what it learnt from the run's
	// earlier prompts of the same repetition, temperature and seed, and never from the prompt itself.
	Cold bool
	// Held: answers match the run's format. Unforced: what it alone allows is for the method to draft,
	// and not drafted without asking it.
	Held, Unforced bool

	learns bool   // as its makers say
	files  string // hash of the files that Spec names, for the key; empty if it names none
}

// Name describes m by its specification, verifier, draft model and limits.
func (m *Method) Name() string {
	s := m.Spec
	if m.Verify != "" {
		s += " @" + m.Verify
	}
	if m.SourceName != "" {
		s += " " + m.SourceName
	}
	s += m.group()
	if m.Unforced {
		s += unforced
	}
	if m.Cold {
		s += ", cold"
	}
	return s
}

// group describes what m shares with the plain decoding that it is compared with.
func (m *Method) group() string {
	s := ""
	if m.MaxTokens > 0 {
		s += fmt.Sprintf(", %d tokens", m.MaxTokens)
	}
	if m.PromptChars > 0 {
		s += fmt.Sprintf(", prompt of %d", m.PromptChars)
	}
	if m.Budget > 0 && m.Spec != Baseline {
		s += fmt.Sprintf(", %d nodes", m.Budget)
	}
	if m.Held {
		s += held
	}
	return s
}

// Title returns the label of m's row, which is unique within a run.
func (m *Method) Title() string {
	if m.Label != "" {
		return m.Label
	}
	return m.Name()
}

// Plain returns the plain decoding that m is compared with.
func (m *Method) Plain() Method {
	return Method{Spec: Baseline, MaxTokens: m.MaxTokens, PromptChars: m.PromptChars, Held: m.Held}
}

// RunsAt reports whether m runs at a temperature of the run.
func (m *Method) RunsAt(temperature float64) bool {
	return m.Temperatures == nil || slices.Contains(m.Temperatures, temperature)
}

// A Prompt is a text for the target to continue.
type Prompt struct {
	Name   string
	Tokens []int32
	// First returns the tokens of its first so many characters, at least one; nil if it cannot be
	// cut.
	First func(ctx context.Context, chars int) ([]int32, error)
}

// tokens returns p as m decodes it.
func (m *Method) tokens(ctx context.Context, p *Prompt) ([]int32, error) {
	switch {
	case m.PromptChars == 0:
		return p.Tokens, nil
	case p.First == nil:
		return nil, fmt.Errorf("the prompt cannot be cut to %d characters", m.PromptChars)
	}
	return p.First(ctx, m.PromptChars)
}

// A Set is a group of prompts, such as those of one benchmark.
type Set struct {
	Name    string
	Prompts []Prompt
	Cut     int // how many of them were cut to their ends
}

// A Config says what to run. Every method runs on every prompt of every set, at every
// temperature and with every seed, Repeat times.
type Config struct {
	Methods      []Method
	Sets         []Set
	Warmup       int // the first prompts of each set are run but not counted
	Temperatures []float64
	Seeds        []uint64
	Repeat       int
	MaxTokens    int
	NoEOS        bool
	Sampling     sample.Params // all but the temperature
	// Format is that of the answers of methods that are held to it, and Constraint the same for the
	// target.
	Format     constrain.Format
	Constraint *constrain.Constraint
	Tokenizer  string // hash that files of token ids must carry; empty accepts any
	// Check fails the run if an output that should be plain decoding's differs from it.
	Check bool
	// Parts runs the passes of every decoding again, one model at a time, and keeps both times:
	// within decoding and alone.
	Parts    bool
	Progress func(done, total int)

	// Known are measurements of an earlier run, which are not repeated. Keep is called with
	// each new one. Neither includes warm-up prompts.
	Known []Measurement
	Keep  func(*Measurement) error
	// Around, if not nil, is called in place of each decoding and must call decode, which
	// fills in the measurement's results.
	Around func(m *Measurement, decode func() error) error
}

// Default returns a greedy run without methods and prompts.
func Default() Config {
	return Config{
		Warmup: 1, Temperatures: []float64{0}, Seeds: []uint64{0}, Repeat: 1, MaxTokens: 128,
		Sampling: sample.Greedy(), Check: true,
	}
}

// Validate checks that there is something to measure and that every method suits its
// verifier.
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
			return fmt.Errorf("bench: seed %d is given twice", s)
		}
	}
	for i, t := range c.Temperatures {
		if slices.Contains(c.Temperatures[:i], t) {
			return fmt.Errorf("bench: temperature %v is given twice", t)
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
		if m.Budget < 0 || m.MaxTokens < 0 || m.PromptChars < 0 {
			return fmt.Errorf("bench: %s: budget %d, max tokens %d and prompt characters %d, want none below 0", m.Title(), m.Budget, m.MaxTokens, m.PromptChars)
		}
		runs := false
		for _, t := range c.Temperatures {
			if !m.RunsAt(t) {
				continue
			}
			runs = true
			if err := c.fits(m, t); err != nil {
				return err
			}
		}
		if !runs {
			return fmt.Errorf("bench: %s runs at none of the temperatures %v", m.Title(), c.Temperatures)
		}
		if slices.Contains(labels, m.Title()) {
			return fmt.Errorf("bench: two rows are called %q", m.Title())
		}
		labels = append(labels, m.Title())
	}
	return nil
}

func of(set string) string {
	if set == "" {
		return ""
	}
	return " of " + set
}

// fits reports why m cannot run at temperature t.
func (c *Config) fits(m *Method, t float64) error {
	opt := c.options(m, t)
	if err := opt.Validate(); err != nil {
		return fmt.Errorf("bench: %s: %w", m.Title(), err)
	}
	mk, err := c.Open(m, t, 0)
	if err != nil {
		return err
	}
	_ = mk.Close() // nothing was written
	return nil
}

// options returns the options with which m decodes answers at temperature t.
func (c *Config) options(m *Method, t float64) decode.Options {
	opt := decode.Options{Method: m.Spec, Verify: m.Verify, Sample: c.Sampling, MaxTokens: c.MaxTokens, IgnoreEOS: c.NoEOS}
	opt.Sample.Temperature = t
	if m.MaxTokens > 0 {
		opt.MaxTokens = m.MaxTokens
	}
	if m.Held {
		opt.Constraint, opt.Unforced = c.Constraint, m.Unforced
	}
	return opt
}

// Open returns the maker of m's drafters at temperature t. vocab is the target's vocabulary, 0
// if it is not known yet.
func (c *Config) Open(m *Method, t float64, vocab int) (*draft.Maker, error) {
	opt := c.options(m, t)
	mk, _, err := opt.Open(draft.Env{Vocab: vocab, Tokenizer: func() string { return c.Tokenizer }, Source: m.Source != nil})
	return mk, err
}

// SameOutput reports whether a verifier's output equals plain decoding's token for token.
// Greedy output always does, and sampled output if every token is the target's own draw.
// Other verifiers' output only has the same distribution.
func SameOutput(verifier string, temperature float64) bool {
	if temperature == 0 || verifier == "" {
		return true
	}
	m, err := verify.Find(verifier)
	return err == nil && m.Exact
}

// Run runs c on e. Methods take turns within every prompt, in an order that rotates, and sets
// take turns prompt by prompt, so that a slowdown of the machine affects them all. If the run
// fails or is cancelled, Run returns the error with a report of what was measured so far, nil
// if nothing was.
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

// Report summarises measurements of an earlier run of c without running anything. It skips
// those of methods and prompts that c does not have.
func (c *Config) Report(got []Measurement) *Report {
	return c.report(withBases(c.Methods), got)
}

// withBases puts the plain decodings that methods are compared with in front, unless they are
// already among them.
func withBases(methods []Method) []Method {
	var bases []Method
	for i := range methods {
		b := methods[i].Plain()
		has := func(m Method) bool { return m.isPlain(&b) && m.Temperatures == nil }
		if !slices.ContainsFunc(methods, has) && !slices.ContainsFunc(bases, has) {
			bases = append(bases, b)
		}
	}
	if len(methods) == 0 {
		bases = []Method{{Spec: Baseline}}
	}
	return append(bases, methods...)
}

// A runner is a run in progress.
type runner struct {
	engine  *infer.Engine
	c       *Config
	methods []Method
	makers  [][]*makers // [temperature][method], nil if the method does not run there
	known   map[string]*Measurement
	got     []Measurement
	done    int
	total   int
	turn    int
	tape    rounds.Tape
}

func (r *runner) open() error {
	r.known = map[string]*Measurement{}
	for i := range r.c.Known {
		r.known[r.c.Known[i].Key] = &r.c.Known[i]
	}
	for _, t := range r.c.Temperatures {
		ms := make([]*makers, len(r.methods))
		r.makers = append(r.makers, ms)
		for i := range r.methods {
			m := &r.methods[i]
			if !m.RunsAt(t) {
				continue
			}
			mk, err := r.c.Open(m, t, r.engine.Target.Shape().Vocab)
			if err != nil {
				return err
			}
			ms[i] = &makers{first: mk}
			if m.files, err = decode.FilesHash(mk.Files); err != nil {
				return err
			}
			m.learns = mk.Learns
			warmed := 1 // repetitions that begin with the warm-up prompts
			if m.warm() {
				warmed = r.c.Repeat
			}
			for _, s := range r.c.Sets {
				r.total += (r.c.Repeat*(len(s.Prompts)-r.c.Warmup) + warmed*r.c.Warmup) * len(r.c.Seeds)
			}
		}
	}
	return nil
}

func (r *runner) close() {
	for _, ms := range r.makers {
		for _, m := range ms {
			if m != nil {
				m.close()
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

// prompt decodes one prompt with all methods and compares their outputs. The prompt counts for
// all methods or for none.
func (r *runner) prompt(ctx context.Context, repeat, i, s, t int, seed uint64) error {
	c, set := r.c, &r.c.Sets[s]
	temperature := c.Temperatures[t]
	outs := make([]*Measurement, len(r.methods))
	fresh := make([]bool, len(r.methods)) // measured now
	again := repeat > 0 && i < c.Warmup
	r.turn++
	for k := range r.methods {
		n := (r.turn + k) % len(r.methods)
		m := &r.methods[n]
		if r.makers[t][n] == nil || again && !m.warm() {
			continue // it is warm already
		}
		x := Measurement{
			Method: m.Title(), Set: set.Name, Prompt: set.Prompts[i].Name,
			Temperature: temperature, Seed: seed, Repeat: repeat,
		}
		x.Key = c.key(m, set.Prompts[i].Tokens, &x)
		old := r.known[x.Key]
		if old != nil && m.warm() && !r.complete(m, temperature, seed, repeat) {
			old = nil // what comes later has to learn from it
		}
		if old != nil && i >= c.Warmup {
			x = *old
			x.Method, x.Prompt = m.Title(), set.Prompts[i].Name
		} else if err := c.around(&x, func() error {
			prompt, err := m.tokens(ctx, &set.Prompts[i])
			if err != nil {
				return err
			}
			return r.decode(ctx, n, t, prompt, &x)
		}); err != nil {
			return fmt.Errorf("bench: %s, prompt %d%s (%s), temperature %v: %w", m.Title(), i, of(set.Name), x.Prompt, temperature, err)
		} else {
			fresh[n] = true
		}
		outs[n] = &x
		if r.done++; c.Progress != nil {
			c.Progress(r.done, r.total)
		}
	}
	if again {
		return nil
	}
	for n, x := range outs {
		if x == nil {
			continue
		}
		m := &r.methods[n]
		plain := outs[slices.IndexFunc(r.methods, func(o Method) bool { return o.isPlain(m) })]
		x.Compared = SameOutput(m.Verify, temperature)
		x.Equal = x.Compared && slices.Equal(x.Output, plain.Output)
		if c.Check && x.Compared && !x.Equal {
			return fmt.Errorf("bench: %s, prompt %d%s (%s), temperature %v, seed %d: the output differs from plain decoding's at token %d",
				m.Title(), i, of(set.Name), x.Prompt, temperature, seed, infer.CommonPrefix(x.Output, plain.Output))
		}
	}
	if i < c.Warmup {
		return nil
	}
	for n, x := range outs {
		if fresh[n] && c.Keep != nil {
			if err := c.Keep(x); err != nil {
				return fmt.Errorf("bench: save a measurement: %w", err)
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

// key identifies a measurement by everything that determines it.
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
	if m.files != "" {
		spec += "#" + m.files
	}
	length := "0"
	if m.PromptChars > 0 {
		length = fmt.Sprintf("%dc", m.PromptChars)
	}
	key := fmt.Sprintf("%s|%s|%s|%d|%d|%s|%s|%x|%v|%d|%d", spec, m.Verify, m.SourceName, m.Budget, tokens, length,
		x.Set, h.Sum64(), x.Temperature, x.Seed, x.Repeat)
	key += c.formatKey(m)
	switch {
	case m.warm():
		key += "|warm"
	case m.Cold:
		key += "|cold"
	}
	return key
}

func (c *Config) around(x *Measurement, decode func() error) error {
	if c.Around == nil {
		return decode()
	}
	return c.Around(x, decode)
}

// Decode decodes one prompt with m, as Run does, at x's temperature and with its seed, and
// fills in x's results. mk makes m's drafters.
func Decode(ctx context.Context, e *infer.Engine, c *Config, m *Method, mk *draft.Maker, prompt []int32, x *Measurement) error {
	return decodePrompt(ctx, e, c, m, mk, prompt, x, new(rounds.Tape))
}

func decodePrompt(ctx context.Context, e *infer.Engine, c *Config, m *Method, mk *draft.Maker, prompt []int32, x *Measurement, tape *rounds.Tape) error {
	clock := time.Now
	if e.Clock != nil {
		clock = e.Clock
	}
	resetPeak()
	begin := clock()
	opt := c.options(m, x.Temperature)
	req, err := opt.Request(mk, m.Source, prompt, x.Seed)
	if err != nil {
		return err
	}
	config := e.Config
	defer func() { e.Config = config }()
	if m.Budget > 0 {
		e.Config.MaxNodes = min(config.MaxNodes, m.Budget)
	}
	seen := watch(req.Verifier, req.Drafter)
	req.Verifier = seen
	emit := seen.emit
	engine := e
	if c.Parts {
		if req.Drafter == nil {
			req.Source = nil
		}
		engine, req.Source = tape.Begin(e, req.Source)
		emit = func(d infer.Delta) error {
			err := seen.emit(d)
			tape.End()
			return err
		}
	}
	l, err := loop.New(engine, loop.Offline())
	if err != nil {
		return err
	}
	e.Control = engine.Control // what it has learnt is for all answers
	s, err := l.Answer(ctx, req, emit)
	if err == nil {
		err = s.Undrafted() // what was measured is not the method
	}
	if err != nil {
		return err
	}
	x.Total = clock().Sub(begin)
	x.Peak = peakMemory()
	x.Stats, x.Output, x.Paths = *s.Stats(), slices.Clone(s.Tokens()), seen.paths
	x.Looped = LoopTokens(x.Output)
	if c.Parts {
		if err := tape.Again(ctx); err != nil {
			return fmt.Errorf("run its passes again: %w", err)
		}
		x.Rounds = tape.Rounds()
	}
	return nil
}
