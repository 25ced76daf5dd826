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
	"talf/internal/hint"
)

// A decodeOptions holds the flags that generate and chat share.
type decodeOptions struct {
	decode.Options
	model    string
	drafting decode.Drafting
	seed     uint64
	output   decode.Output
	noSeed   bool // answers are sampled, and no seed is given: one is drawn
	machine  machineOptions
}

func (o *decodeOptions) flags(f *pflag.FlagSet) {
	o.Options = decode.Default()
	modelVar(f, &o.model, "")
	draftFlags(f, &o.drafting)
	f.StringVar(&o.Method, "method", decode.DefaultMethod, "draft method and its parameters, such as salf:th=0.4,N=60; ar drafts nothing: "+methodsHelp())
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

// methodNames lists the methods to choose from, and those that replicate publications.
func methodNames() (ours, papers []string) {
	for _, m := range draft.Methods() {
		if m.Paper {
			papers = append(papers, m.Name)
		} else {
			ours = append(ours, m.Name)
		}
	}
	return ours, papers
}

// methodsHelp is methodNames as the help of flags has it.
func methodsHelp() string {
	ours, papers := methodNames()
	return strings.Join(ours, ", ") + "; from papers: " + strings.Join(papers, ", ")
}

// check finds mistakes that show without a model.
func (o *decodeOptions) check(cmd *cobra.Command) error {
	if err := cli.Need(cmd, "model"); err != nil {
		return err
	}
	if err := checkDraft(&o.drafting); err != nil {
		return err
	}
	var err error
	if o.Format, err = o.output.Format(); err != nil {
		return err
	}
	if err := o.Validate(); err != nil {
		return usageError(err)
	}
	o.noSeed = o.Sample.Temperature > 0 && !cmd.Flags().Changed("seed")
	mk, _, err := o.Open(draft.Env{Source: o.drafting.Given()})
	var file draft.FileError
	var fits *decode.SourceError
	var unfit *decode.UnfitError
	switch {
	case errors.As(err, &file):
		return err
	case errors.As(err, &fits) && fits.Given:
		return usagef("--method %s asks no draft model: leave --head and --draft out, or choose a method that asks one: %s", fits.Method, strings.Join(fits.Others, ", "))
	case errors.As(err, &fits):
		return usagef("--method %s asks a draft model: give --head CKPT or --draft DIR, or a method without one: %s", fits.Method, strings.Join(fits.Others, ", "))
	case errors.As(err, &unfit) && !cmd.Flags().Changed("method"):
		return usagef("--verify %s does not go with the default method, %s: %w", unfit.Verify, unfit.Method, unfit.Err)
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
	if why, try := decode.Empty(seq, d.parts.Tokenizer, templated); why != "" {
		a.log.Warn("the answer is empty: "+why, "try", hint.Flags(try))
	}
}

// A decoder is a decoder with the models that it was loaded with.
type decoder struct {
	*decode.Decoder
	parts *decode.Parts
}

// close is for what was only read.
func (d *decoder) close() {
	_ = d.Decoder.Close()
	_ = d.parts.Close()
}

// open loads the model, the tokenizer and, if the method asks one, the draft model. The last keep sequences stay cached
// after they are closed. Rounds are recorded in trace, unless it is nil.
func (o *decodeOptions) open(ctx context.Context, a *app, keep int, trace io.Writer) (*decoder, error) {
	var draft decode.Drafting
	if asks, err := decode.Asks(o.Method); err != nil {
		return nil, err
	} else if asks {
		draft = o.drafting
	}
	p, err := a.loader().Open(ctx, o.model, &o.machine.Machine, draft, keep)
	if err != nil {
		return nil, err
	}
	d, err := decode.New(decode.Config{Target: p.Model, Tokenizer: p.Tokenizer, Source: p.Source, Options: o.Options, Keep: keep, Trace: trace})
	if err != nil {
		return nil, errors.Join(err, p.Close())
	}
	return &decoder{d, p}, nil
}
