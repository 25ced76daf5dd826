package command

import (
	"context"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"talf/infer/bench"
	"talf/infer/bench/rig"
	"talf/infer/decode"
	"talf/infer/prompts"
	"talf/internal/cli"
)

// A rigOptions holds the flags for the models and prompts of bench, eval and lab record.
type rigOptions struct {
	decode              decodeOptions
	force               bool
	heads               []string // CKPT or NAME=CKPT
	drafts              []string // DIR or NAME=DIR
	prompts             []string // FILE or NAME=FILE
	chat                chatOptions
	template, split     string
	over                string // what heads are conditioned on
	limit, promptTokens int
	once                bool // texts end where the target would read them again
	temperatures        []float64
	seeds               []uint
}

func (o *rigOptions) flags(f *pflag.FlagSet) {
	d := bench.Default()
	o.decode.Sample, o.temperatures = d.Sampling, d.Temperatures
	modelVar(f, &o.decode.model, "")
	f.StringArrayVar(&o.heads, "head", nil, "checkpoint of a draft head, or `NAME=CKPT` to name it (may be repeated)")
	f.StringArrayVar(&o.drafts, "draft", nil, "small language model (directory or .gguf) that drafts, or `NAME=MODEL` to name it (may be repeated)")
	f.StringArrayVar(&o.prompts, "prompts", nil, "file of prompts, or `NAME=FILE` to name the set (may be repeated)")
	f.StringVar(&o.template, "template", "", "how fields of a JSON object make a prompt: 'Question: {question}\\nAnswer:'")
	o.chat.flags(f)
	f.StringVar(&o.split, "split", string(prompts.All), "`part` of the prompts, by a hash of each: tune to choose constants on, report to measure them on, or all")
	cli.CountVar(f, &o.limit, "limit", 0, "most prompts of a set, warm-up included (0: all)")
	cli.CountVar(f, &o.promptTokens, "prompt-tokens", 0, "keep this many tokens of every prompt (0: all)")
	f.IntVar(&o.decode.MaxTokens, "max-tokens", d.MaxTokens, "maximum number of tokens in an answer")
	f.BoolVar(&o.force, "force", false, "use heads that were trained for another target")
	o.decode.machine.flags(f)
	cli.CountVar(f, &o.decode.machine.Layers, "layers", 0, "deepen the model to this many layers, of which the new ones add nothing: a cost model of a larger one (0: as it is)")
	f.BoolVar(&o.decode.IgnoreEOS, "ignore-eos", false, "go on after an end-of-sequence token")
}

// overFlag says what --ranks conditions heads on.
func (o *rigOptions) overFlag(f *pflag.FlagSet) {
	f.StringVar(&o.over, "over", rig.OverAnswers, "`text` that heads are given their own ranked tokens in: the target's greedy answers to the prompts, or the prompts themselves, as texts")
}

// drawFlags adds the flags of commands that decode.
func (o *rigOptions) drawFlags(f *pflag.FlagSet, temperature string) {
	cli.NumbersVar(f, &o.temperatures, "temperature", o.temperatures, temperature)
	f.UintSliceVar(&o.seeds, "seed", []uint{0}, "seeds to decode with")
}

// checkGiven finds what is missing.
func (o *rigOptions) checkGiven(cmd *cobra.Command) error {
	if err := cli.Need(cmd, "model"); err != nil {
		return err
	}
	if len(o.prompts) == 0 {
		return usagef("missing --prompts")
	}
	return o.chat.check()
}

// A loadedRig is a rig with the function that closes it.
type loadedRig struct {
	*rig.Rig
	decoder *decode.Decoder
	close   func()
}

// openRig loads models, heads and prompts.
func (a *app) openRig(ctx context.Context, o *rigOptions) (_ *loadedRig, err error) {
	names, err := rig.ParseAll(o.heads, o.drafts, o.prompts)
	if err != nil {
		return nil, usageError(err)
	}
	if _, err := prompts.ParseSplit(o.split); err != nil {
		return nil, usageError(err)
	}
	o.decode.Method = bench.Baseline
	d, err := o.decode.open(ctx, a, 0, nil)
	if err != nil {
		return nil, err
	}
	r := &loadedRig{Rig: rig.New(d.parts.Model, d.parts.Tokenizer, d.Decoder), decoder: d.Decoder}
	r.close = func() {
		r.Close()
		d.close()
	}
	defer func() {
		if err != nil {
			r.close()
		}
	}()
	for _, n := range names.Heads {
		// A deepened model has other weights but the same outputs.
		if err := r.AddHead(n, o.force || o.decode.machine.Layers > 0, a.warn); err != nil {
			return nil, err
		}
	}
	for _, n := range names.Drafts {
		m, v, err := a.loader().Draft(ctx, n.Path, d.parts.Model, d.parts.Tokenizer, &o.decode.machine.Machine)
		if err != nil {
			return nil, err
		}
		r.AddDraft(n.Name, m, v)
	}
	if err := a.addSets(ctx, r.Rig, o, names.Prompts, o.chat); err != nil {
		return nil, err
	}
	return r, nil
}

// addSets adds the prompts of files.
func (a *app) addSets(ctx context.Context, r *rig.Rig, o *rigOptions, files []rig.Named, talk chatOptions) error {
	part, err := prompts.ParseSplit(o.split)
	if err != nil {
		return usageError(err)
	}
	for _, f := range files {
		in, _, err := a.readPrompts(&promptSource{f.Path, o.template, talk}, o.decode.model)
		if err != nil {
			return err
		}
		cut, room, err := r.AddSet(ctx, f.Name, in, rig.Limits{Prompts: o.limit, Tokens: o.promptTokens, Answer: o.decode.MaxTokens, Once: o.once, Split: part})
		if err != nil {
			return err
		}
		if cut > 0 {
			a.log.Warn("prompts were cut to their ends", "file", f.Path, "prompts", cut, "tokens", room)
		}
	}
	return nil
}

// config returns a run on the rig, without methods.
func (o *rigOptions) config(r *loadedRig) bench.Config {
	c := bench.Default()
	c.Temperatures, c.MaxTokens, c.NoEOS = o.temperatures, o.decode.MaxTokens, o.decode.IgnoreEOS
	c.Sets, c.Tokenizer, c.Seeds = r.Sets, r.Tokenizer.Hash(), nil
	for _, s := range o.seeds {
		c.Seeds = append(c.Seeds, uint64(s))
	}
	return c
}

// ranksCut says that texts were cut for --ranks.
func (a *app) ranksCut(texts int) {
	a.log.Warn("texts were cut to their beginnings for --ranks", "texts", texts)
}
