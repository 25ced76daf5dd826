package command

import (
	"context"
	"iter"
	"os"
	"slices"

	"talf/infer/decode"

	"github.com/spf13/cobra"

	"talf/checkpoints"
	"talf/data/corpus"
	"talf/internal/cli"
	"talf/internal/inspect"
	"talf/preprocess"
	"talf/preprocess/samples"
	"talf/text/tokenizer"
	"talf/train"
)

func newInspectSamples(a *app) *cobra.Command {
	o := inspection{conf: preprocess.Default(), n: 3, color: "auto"}
	var asJSON, stats bool
	var vocab string
	c := &cobra.Command{
		Use:   "data FILE",
		Short: "Show samples of training data with the tokens in the loss",
		Long: `Inspect data shows the sequences that a head is trained on: those that preprocess
would make of a file of conversations or texts, or the rows of Parquet shards. What is
learnt is green on a terminal, and elsewhere between ` + markOpen + ` and ` + markClose + `.

With --stats it summarises a set of shards instead: tokens, the probability mass that
the labels hold on each level of the trees, and what was dropped. --draft-vocab N adds
how much of that the N tokens cover that train would choose.

Source files need --model; a directory with only a tokenizer's files is enough. Without
it, rows of shards are shown as token ids.`,
		Example: "  talf inspect data sharegpt.json --model MODEL\n  talf inspect data labels --model MODEL --n 5 --seed 1\n  talf inspect data labels --stats",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.check(); err != nil {
				return err
			}
			if stats {
				v, err := cli.Wait(cmd.Context(), func() (*inspect.Data, error) {
					d, err := inspect.OpenData(args[0])
					if err == nil && vocab != "" {
						err = d.Cover(vocab, train.Default().Held)
					}
					return d, err
				})
				if err != nil {
					return err
				}
				return a.show(v, asJSON)
			}
			if vocab != "" {
				return usagef("--draft-vocab is for --stats")
			}
			v, err := o.inspect(cmd.Context(), a, args[0])
			if err != nil {
				return err
			}
			if asJSON {
				return a.printJSON(v)
			}
			if o.color == "always" || o.color == "auto" && cli.IsTerminal(a.out) && os.Getenv("NO_COLOR") == "" {
				v.Print(a.out, green, plain)
			} else {
				v.Print(a.out, markOpen, markClose)
			}
			return nil
		},
	}
	f := c.Flags()
	f.BoolVar(&stats, "stats", false, "show statistics of shards instead of samples")
	f.StringVar(&vocab, "draft-vocab", "", "with --stats: how much of text and labels a draft vocabulary covers, as for train")
	f.StringVar(&o.dir, "model", "", modelHelp)
	preVar(f, &o.pre)
	cli.CountVar(f, &o.n, "n", o.n, "number of samples to show")
	f.Uint64Var(&o.seed, "seed", 0, "seed for choosing samples at random (0: the first ones)")
	f.StringVar(&o.color, "color", o.color, "auto, always or never")
	loadFlags(f, &o.conf.Load)
	o.talk.flags(f)
	f.StringVar((*string)(&o.conf.EOS), "eos", string(o.conf.EOS), "as for preprocess: answers, always or never")
	f.IntVar(&o.conf.MaxLen, "max-len", o.conf.MaxLen, "as for preprocess: maximum tokens per sequence")
	f.BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

// Text that the loss covers is printed between these, on a terminal and elsewhere.
const (
	green     = "\x1b[32m"
	plain     = "\x1b[0m"
	markOpen  = "⟦"
	markClose = "⟧"
)

// An inspection is what to show.
type inspection struct {
	conf  preprocess.Config
	talk  chatOptions
	dir   string
	pre   string // how the tokenizer splits texts
	n     int
	seed  uint64
	color string
}

func (o *inspection) check() error {
	c := o.conf
	c.Files, c.Out = []string{"-"}, "-" // not used
	if err := c.Validate(); err != nil {
		return usageError(err)
	}
	if !slices.Contains([]string{"auto", "always", "never"}, o.color) {
		return usagef("--color %q, want auto, always or never", o.color)
	}
	return o.talk.check()
}

func (o *inspection) inspect(ctx context.Context, a *app, path string) (*samples.Set, error) {
	var tok *tokenizer.Tokenizer
	dir := o.dir
	if dir != "" {
		if found, err := checkpoints.Find(dir); err == nil {
			dir = found
		}
		var err error
		if tok, err = decode.Tokenizer(ctx, dir, o.pre, a.warn); err != nil {
			return nil, err
		}
	}
	var all iter.Seq2[samples.Sample, error]
	switch {
	case samples.AreShards(path):
		all = samples.Shards(path, tok)
	case tok == nil:
		return nil, usagef("missing --model: how %s is cut depends on a tokenizer", path)
	default:
		r, err := sampleReader(dir, tok, o.talk)
		if err != nil {
			return nil, err
		}
		c, bad := o.conf, corpus.BadLines{Log: a.log}
		c.Files = []string{path}
		all = samples.Texts(ctx, c, r, bad.Add)
	}
	s, err := samples.Pick(ctx, path, all, tok, o.n, o.seed)
	if err != nil {
		return nil, templateHint(err)
	}
	return s, nil
}

// sampleReader is what cutting text needs to know of the model in dir.
func sampleReader(dir string, tok *tokenizer.Tokenizer, talk chatOptions) (preprocess.Reader, error) {
	template, _, err := talk.load(dir)
	if err != nil {
		return preprocess.Reader{}, err
	}
	return samples.Reader(dir, tok, template)
}
