package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"talf/infer"
	"talf/infer/draft"
	"talf/infer/verify"
	"talf/model"
	"talf/model/chat"
	"talf/model/sample"
	"talf/model/tokenizer"
)

// A decodeOptions holds the flags that generate and chat share.
type decodeOptions struct {
	model, method string
	verify        string
	drafting      draftOptions
	sample        sample.Params
	seed          uint64
	maxTokens     int
	stop          []string
	ignoreEOS     bool
	machine       machineOptions
}

func (o *decodeOptions) flags(f *pflag.FlagSet) {
	o.sample = sample.Greedy()
	f.StringVar(&o.model, "model", "", "model directory in Hugging Face layout")
	o.drafting.flags(f)
	f.StringVar(&o.method, "method", "", "draft method and its parameters, such as salf:th=0.6,N=60 (default: salf with --head or --draft, ar without): "+methodNames())
	f.StringVar(&o.verify, "verify", "", "rule that keeps a part of a drafted tree (default: greedy at temperature 0, target above): "+verifierNames())
	f.Float64Var(&o.sample.Temperature, "temperature", 0, "0 always takes the most likely token")
	f.IntVar(&o.sample.TopK, "top-k", 0, "sample from the k most likely tokens (0: all)")
	f.Float64Var(&o.sample.TopP, "top-p", 1, "sample from the most likely tokens that make up this probability")
	f.Float64Var(&o.sample.MinP, "min-p", 0, "drop tokens less likely than this share of the most likely one's probability")
	f.Float64Var(&o.sample.RepetitionPenalty, "repetition-penalty", 1, "above 1 makes tokens that occurred less likely")
	f.Uint64Var(&o.seed, "seed", 0, "seed of sampling")
	f.IntVar(&o.maxTokens, "max-tokens", 256, "most tokens of an answer")
	f.StringArrayVar(&o.stop, "stop", nil, "end an answer before this `text` (may be repeated)")
	f.BoolVar(&o.ignoreEOS, "ignore-eos", false, "go on after an end-of-sequence token")
	o.machine.flags(f)
}

func methodNames() string {
	var names []string
	for _, m := range draft.Methods() {
		names = append(names, m.Name)
	}
	return strings.Join(names, ", ")
}

// methodName is the name in a method's specification.
func methodName(spec string) string {
	name, _, _ := strings.Cut(spec, ":")
	return name
}

// check finds mistakes that need no model to be seen.
func (o *decodeOptions) check(cmd *cobra.Command) error {
	if err := need(cmd, "model"); err != nil {
		return err
	}
	if err := o.drafting.check(); err != nil {
		return err
	}
	if o.method == "" {
		o.method = "ar"
		if o.drafting.given() {
			o.method = "salf"
		}
	}
	mk, m, err := draft.Open(o.method, draft.Env{Temperature: o.sample.Temperature, Source: o.drafting.given()})
	if file := (draft.FileError{}); errors.As(err, &file) {
		return err
	}
	if err != nil {
		return usageError{err}
	}
	if err := mk.Close(); err != nil {
		return err
	}
	if err := o.drafting.fits(m); err != nil {
		return err
	}
	if err := o.sample.Validate(); err != nil {
		return usageError{err}
	}
	if _, err := verify.New(o.verify, o.sample.Temperature); err != nil {
		return usageError{err}
	}
	if err := verify.Check(o.verify, mk.Draw, mk.Chain); err != nil {
		return usageError{fmt.Errorf("--method %s: %w", o.method, err)}
	}
	switch {
	case o.maxTokens < 1:
		return usagef("--max-tokens is %d, want at least 1", o.maxTokens)
	case slices.Contains(o.stop, ""):
		return usagef("--stop is empty, want the text to stop at")
	}
	return nil
}

// A decoder answers prompts with one model and at most one draft model.
type decoder struct {
	opt    *decodeOptions
	model  *model.Model
	tok    *tokenizer.Tokenizer
	enc    *chat.Encoder
	engine *infer.Engine
	maker  *draft.Maker
	source infer.Source // nil: plain decoding
	traced io.Writer    // where rounds are recorded; nil: nowhere
	close  func()
}

// open loads model, tokenizer and draft model. Of closed sequences the last keep stay
// cached, for prompts that go on where one ended.
func (o *decodeOptions) open(keep int) (*decoder, error) {
	dir, err := findModel(o.model)
	if err != nil {
		return nil, err
	}
	m, closeModel, err := openModelAs(dir, &o.machine)
	if err != nil {
		return nil, err
	}
	d := &decoder{opt: o, model: m, close: closeModel}
	if err := d.load(dir, keep); err != nil {
		d.close()
		return nil, err
	}
	return d, nil
}

func (d *decoder) load(dir string, keep int) error {
	o := d.opt
	var err error
	if d.tok, err = loadTokenizer(dir, d.model); err != nil {
		return err
	}
	if d.enc, err = chat.NewEncoder(d.tok); err != nil {
		return err
	}
	mk, m, err := draft.Open(o.method, draft.Env{Vocab: d.model.Spec().Vocab, Temperature: o.sample.Temperature, Tokenizer: d.tok.Hash(), Source: o.drafting.given()})
	if err != nil {
		return err
	}
	closeModel := d.close
	d.maker, d.close = mk, func() { _ = mk.Close(); closeModel() }
	if m.Source || m.May && o.drafting.given() {
		src, closeSource, err := o.drafting.open(d.model, d.tok, &o.machine, keep)
		if err != nil {
			return err
		}
		closeTarget := d.close
		d.source, d.close = src, func() { closeSource(); closeTarget() }
	}
	d.engine = &infer.Engine{Target: infer.NewTarget(d.model, keep), Config: infer.Default()}
	return nil
}

// request is what all answers share.
func (d *decoder) request(prompt []int32, seed uint64) (infer.Request, error) {
	o := d.opt
	verifier, err := verify.New(o.verify, o.sample.Temperature)
	if err != nil {
		return infer.Request{}, err
	}
	proc, err := infer.NewSampling(o.sample)
	if err != nil {
		return infer.Request{}, err
	}
	req := infer.Request{
		Prompt: prompt, MaxTokens: o.maxTokens, NoEOS: o.ignoreEOS, Seed: seed,
		Drafter: d.maker.New(), Source: d.source, Verifier: verifier, Processor: proc,
		Detok: func() infer.Detokenizer { return d.tok.NewStream(true) }, Stop: o.stop,
	}
	if d.traced != nil {
		req.Trace, err = d.trace(len(prompt), seed)
	}
	return req, err
}

// errLongPrompt is the cause of encode's error for a prompt that fills the model.
var errLongPrompt = errors.New("the prompt is too long")

// ids turns a prompt into tokens.
func (d *decoder) ids(p chat.Prompt) ([]int32, error) {
	ids, err := d.enc.Prompt(p)
	if err != nil {
		return nil, fmt.Errorf("encode the prompt: %w", err)
	}
	return ids, nil
}

// encode turns a prompt that has to fit the model into tokens. A prompt without any gets
// the token that every text begins with.
func (d *decoder) encode(p chat.Prompt) ([]int32, error) {
	ids, err := d.ids(p)
	if err != nil {
		return nil, err
	}
	if len(ids) == 0 {
		bos := d.model.Spec().BOS
		if bos < 0 {
			return nil, fmt.Errorf("the prompt is empty and the model has no beginning-of-sequence token")
		}
		ids = []int32{bos}
	}
	if most := d.model.Spec().MaxPos; len(ids) >= most {
		return nil, fmt.Errorf("%w: %d tokens, want fewer than the model's %d positions", errLongPrompt, len(ids), most)
	}
	return ids, nil
}

// answer decodes one prompt; emit gets the text as it comes and may be nil.
func (d *decoder) answer(ctx context.Context, prompt chat.Prompt, seed uint64, emit func(string) error) (*infer.Sequence, error) {
	ids, err := d.encode(prompt)
	if err != nil {
		return nil, err
	}
	req, err := d.request(ids, seed)
	if err != nil {
		return nil, err
	}
	if emit != nil {
		req.Emit = func(x infer.Delta) error { return emit(x.Text) }
	}
	return d.engine.Generate(ctx, req)
}

// A statsLine is what --stats prints.
type statsLine struct {
	Tau             float64   `json:"tau"` // tokens per target pass
	Tokens          int       `json:"tokens"`
	Passes          int       `json:"passes"`
	Prompt          int       `json:"prompt_tokens"`
	Cached          int       `json:"cached_tokens"`
	Drafted         int       `json:"drafted_tokens"`
	TokensPerSecond float64   `json:"tokens_per_second"` // after the prompt
	FirstToken      float64   `json:"first_token_seconds"`
	DraftShare      float64   `json:"draft_share"` // of decoding time
	VerifyShare     float64   `json:"verify_share"`
	OverheadShare   float64   `json:"overhead_share"`
	Emitted         []int     `json:"emitted"`  // [n]: passes that emitted n tokens
	ByDepth         []float64 `json:"by_depth"` // [d-1]: share of passes that kept a node of depth d
}

func newStats(s *infer.Stats) statsLine {
	l := statsLine{
		Tau: s.Tau(), Tokens: s.Tokens, Passes: s.Passes, Prompt: s.Prompt, Cached: s.Cached, Drafted: s.Drafted,
		FirstToken: s.TTFT.Seconds(), Emitted: s.Emitted, ByDepth: byDepth(s),
	}
	if t := s.Decode.Seconds(); t > 0 {
		l.TokensPerSecond = float64(s.Tokens) / t
		l.DraftShare, l.VerifyShare, l.OverheadShare = s.Draft.Seconds()/t, s.Verify.Seconds()/t, s.Overhead.Seconds()/t
	}
	return l
}

// byDepth returns the share of all passes that kept a node of depth 1, 2, ….
func byDepth(s *infer.Stats) []float64 {
	var out []float64
	for d := 1; d < len(s.Depth); d++ {
		if s.Depth[d].Kept == 0 {
			break
		}
		out = append(out, float64(s.Depth[d].Kept)/float64(s.Passes))
	}
	return out
}

func (l *statsLine) print(w io.Writer) {
	_, _ = fmt.Fprintf(w, "τ %.2f: %d tokens in %d passes; %.1f tokens/s; first token after %s\n",
		l.Tau, l.Tokens, l.Passes, l.TokensPerSecond, time.Duration(l.FirstToken*float64(time.Second)).Round(time.Millisecond))
	_, _ = fmt.Fprintf(w, "time: draft %.0f%%, verify %.0f%%, overhead %.0f%%; %d prompt tokens, %d of them cached; %d drafted\n",
		100*l.DraftShare, 100*l.VerifyShare, 100*l.OverheadShare, l.Prompt, l.Cached, l.Drafted)
	var b strings.Builder
	for n, c := range l.Emitted {
		if n > 0 && c > 0 {
			fmt.Fprintf(&b, " %d×%d", n, c)
		}
	}
	_, _ = fmt.Fprintf(w, "tokens a pass × passes:%s\n", b.String())
	if len(l.ByDepth) > 0 {
		b.Reset()
		for _, x := range l.ByDepth {
			fmt.Fprintf(&b, " %.2f", x)
		}
		_, _ = fmt.Fprintf(w, "accepted at depth 1, 2, …:%s\n", b.String())
	}
}

// mixSeed derives the seed of prompt i: equal prompts of one file get answers of
// their own, and each can be repeated alone.
func mixSeed(seed uint64, i int) uint64 {
	if i == 0 {
		return seed
	}
	return seed ^ uint64(i)*0x9e3779b97f4a7c15&math.MaxInt64
}
