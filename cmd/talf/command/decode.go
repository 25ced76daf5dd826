package command

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"talf/infer"
	"talf/infer/decode"
	"talf/infer/draft"
	"talf/internal/cli"
	"talf/model"
	"talf/text/tokenizer"
)

// A decodeOptions holds the flags that generate and chat share.
type decodeOptions struct {
	decode.Options
	model    string
	drafting draftOptions
	seed     uint64
	output   decode.Output
	noSeed   bool // answers are sampled, and no seed is given: one is drawn
	machine  machineOptions
}

func (o *decodeOptions) flags(f *pflag.FlagSet) {
	o.Options = decode.Default()
	modelVar(f, &o.model, "")
	o.drafting.flags(f)
	f.StringVar(&o.Method, "method", "", "draft method and its parameters, such as salf:th=0.4,N=60 (default: salf with --head or --draft, ar without): "+methodNames())
	f.StringVar(&o.Verify, "verify", "", "rule that accepts tokens of a draft tree (default: greedy at temperature 0, target above): "+verifierNames())
	f.Float64Var(&o.Sample.Temperature, "temperature", 0, "sampling temperature (0: always the most likely token)")
	f.IntVar(&o.Sample.TopK, "top-k", 0, "sample from the k most likely tokens (0: all)")
	f.Float64Var(&o.Sample.TopP, "top-p", 1, "sample from the most likely tokens that together have this probability")
	f.Float64Var(&o.Sample.MinP, "min-p", 0, "drop tokens whose probability is below this fraction of the largest")
	f.Float64Var(&o.Sample.RepetitionPenalty, "repetition-penalty", 1, "values above 1 make tokens that have occurred less likely")
	f.Float64Var(&o.Sample.FrequencyPenalty, "frequency-penalty", 0, "subtracted from a token's logit for every time that the answer has it")
	f.Float64Var(&o.Sample.PresencePenalty, "presence-penalty", 0, "subtracted from a token's logit if the answer has it")
	f.Uint64Var(&o.seed, "seed", 0, "seed of sampling (default: drawn at random and named in the log)")
	f.IntVar(&o.MaxTokens, "max-tokens", o.MaxTokens, "maximum number of tokens in an answer")
	f.StringArrayVar(&o.Stop, "stop", nil, "end the answer before this `text` (may be repeated)")
	o.output.Flags(f.StringVar, f.BoolVar)
	f.BoolVar(&o.IgnoreEOS, "ignore-eos", false, "go on after an end-of-sequence token")
	o.machine.flags(f)
}

func methodNames() string {
	var names []string
	for _, m := range draft.Methods() {
		names = append(names, m.Name)
	}
	return strings.Join(names, ", ")
}

// check finds mistakes that show without a model.
func (o *decodeOptions) check(cmd *cobra.Command) error {
	if err := cli.Need(cmd, "model"); err != nil {
		return err
	}
	if err := o.drafting.check(); err != nil {
		return err
	}
	if o.Method == "" {
		o.Method = "ar"
		if o.drafting.given() {
			o.Method = "salf"
		}
	}
	var err error
	if o.Format, err = o.output.Format(); err != nil {
		return err
	}
	if err := o.Validate(); err != nil {
		return usageError(err)
	}
	o.noSeed = o.Sample.Temperature > 0 && !cmd.Flags().Changed("seed")
	mk, _, err := o.Open(draft.Env{Source: o.drafting.given()})
	var file draft.FileError
	var fits *decode.SourceError
	switch {
	case errors.As(err, &file):
		return err
	case errors.As(err, &fits) && fits.Given:
		return usagef("--method %s asks no draft model: leave --head and --draft out, or choose a method that asks one: %s", fits.Method, strings.Join(fits.Others, ", "))
	case errors.As(err, &fits):
		return usagef("--method %s asks a draft model: give --head CKPT or --draft DIR, or a method without one: %s", fits.Method, strings.Join(fits.Others, ", "))
	case err != nil:
		return usageError(err)
	}
	return mk.Close()
}

// drawSeed draws a seed if answers need one and none is given. A file of answers, if there is
// one, is continued with the seed that it was begun with.
func (o *decodeOptions) drawSeed(log *slog.Logger, answers string) (err error) {
	if !o.noSeed {
		return nil
	}
	if o.seed, err = decode.SeedFor(answers); err != nil {
		return err
	}
	log.Info("sampling", "seed", o.seed)
	return nil
}

// warnUndrafted says that rounds went without drafts, which the output does not show.
func (a *app) warnUndrafted(why error) {
	if why != nil {
		a.log.Warn("rounds were decoded without drafts; the output is the same", "why", why.Error())
	}
}

// warnEmpty says why an answer has no text. templated says that a chat template wrote the prompt.
func (a *app) warnEmpty(d *decoder, seq *infer.Sequence, templated bool) {
	if why, try := decode.Empty(seq, d.tok, templated); why != "" {
		a.log.Warn("the answer is empty: "+why, "try", try)
	}
}

// A decoder is a loaded decoder with its model.
type decoder struct {
	*decode.Decoder
	model  *model.Model
	tok    *tokenizer.Tokenizer
	engine *infer.Engine
	close  func()
}

// open loads the model, the tokenizer and the draft model. The last keep sequences stay cached
// after they are closed. Rounds are recorded in trace, unless it is nil.
func (o *decodeOptions) open(ctx context.Context, a *app, keep int, trace io.Writer) (*decoder, error) {
	m, tok, closeModel, err := a.loader().WithTokenizer(ctx, o.model, &o.machine.Machine)
	if err != nil {
		return nil, err
	}
	d, err := o.load(ctx, a, m, tok, keep, trace)
	if err != nil {
		closeModel()
		return nil, err
	}
	d.close = func() {
		_ = d.Close()
		closeModel()
	}
	decode.GiveBack()
	return d, nil
}

func (o *decodeOptions) load(ctx context.Context, a *app, m *model.Model, tok *tokenizer.Tokenizer, keep int, trace io.Writer) (*decoder, error) {
	c := decode.Config{Target: m, Tokenizer: tok, Options: o.Options, Keep: keep, Trace: trace}
	if o.drafting.given() {
		c.Draft = func() (infer.Source, io.Closer, error) {
			return o.drafting.open(ctx, a, m, tok, &o.machine.Machine, keep)
		}
	}
	d, err := decode.New(c)
	if err != nil {
		return nil, err
	}
	return &decoder{Decoder: d, model: m, tok: tok, engine: d.Engine()}, nil
}
