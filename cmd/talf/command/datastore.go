package command

import (
	"context"
	"fmt"
	"io"
	"math"
	"time"

	"talf/infer/decode"

	"github.com/spf13/cobra"

	"talf/checkpoints"
	"talf/data/corpus"
	"talf/infer/lookup/datastore"
	"talf/internal/cli"
	"talf/internal/durable"
	"talf/internal/inspect"
	"talf/preprocess"
	"talf/preprocess/samples"
)

func newDatastore(a *app) *cobra.Command {
	c := &cobra.Command{
		Use:   "datastore",
		Short: "Make files of text that drafts are looked up in",
		Long: `A datastore holds text as token ids with their suffix array. The draft method rest
looks up in it what followed the newest tokens. The closer the text is to what the
model will write, the better; the model's own answers are best.`,
		Example: "  talf datastore build MODEL --data answers.jsonl --out answers.idx\n  talf generate MODEL --method rest:answers.idx --prompt 'Once upon a time'",
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	c.AddCommand(newDatastoreBuild(a), newDatastoreInspect(a))
	return c
}

func newDatastoreBuild(a *app) *cobra.Command {
	c := preprocess.Default()
	c.MaxLen = math.MaxInt32 // documents are not cut
	var dir, pre string
	var asJSON bool
	var talk chatOptions
	cmd := &cobra.Command{
		Use:   "build MODEL --data FILE --out FILE",
		Short: "Index text as tokens of a model",
		Long: `Build reads the same input as preprocess: plain text (paragraphs), JSON with
conversations, "text", "prompt" or "turns", or anything else with --template;
compressed by gzip or zstd too, and directories of such files. Of the model it needs
only the tokenizer's files. The file takes 8 bytes per token, building it about 25.`,
		Example: `  talf datastore build MODEL --data stories.txt --out stories.idx
  talf datastore build MODEL --data gsm8k.jsonl --template 'Question: {question}\nAnswer:' --answer-field answer --out gsm8k.idx`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := cli.Need(cmd, "model", "data", "out"); err != nil {
				return err
			}
			if err := c.Validate(); err != nil {
				return usageError(err)
			}
			if err := talk.check(); err != nil {
				return err
			}
			f, err := a.buildDatastore(cmd.Context(), c, dir, pre, talk)
			if err != nil {
				return err
			}
			return a.show(f, asJSON)
		},
	}
	f := cmd.Flags()
	modelVar(f, &dir, ", or a directory with tokenizer and chat template")
	preVar(f, &pre)
	f.Var((*cli.Files)(&c.Files), "data", "input file, or a directory of them (may be repeated)")
	f.StringVar(&c.Out, "out", "", "file to write")
	loadFlags(f, &c.Load)
	talk.flags(f)
	f.StringVar((*string)(&c.EOS), "eos", string(c.EOS), "where the end-of-sequence token follows: answers, always or never (conversations: the template says)")
	f.BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func (a *app) buildDatastore(ctx context.Context, c preprocess.Config, dir, pre string, talk chatOptions) (*inspect.Datastore, error) {
	began := time.Now()
	out, err := durable.Create(c.Out)
	if err != nil {
		return nil, err
	}
	defer func() { _ = out.Discard() }() // there was an error
	if found, err := checkpoints.Find(dir); err == nil {
		dir = found
	}
	tok, err := decode.Tokenizer(ctx, dir, pre, a.warn)
	if err != nil {
		return nil, err
	}
	r, err := sampleReader(dir, tok, talk)
	if err != nil {
		return nil, err
	}
	r.Positions = 0 // no model has to run what is looked up
	b, err := datastore.NewBuilder(r.Vocab, tok.Hash())
	if err != nil {
		return nil, err
	}
	bar := a.progress("datastore", "tokens")
	defer bar.End()
	bad := corpus.BadLines{Log: a.log}
	dropped, err := samples.Fill(ctx, c, r, b, bad.Add, func(documents int) {
		if documents%256 == 0 {
			bar.Set(int64(b.Info().Tokens), 0, fmt.Sprintf("%d documents", documents))
		}
	})
	if err != nil {
		return nil, templateHint(err)
	}
	bad.End()
	if _, err := cli.Wait(ctx, func() (struct{}, error) { b.Sort(); return struct{}{}, nil }); err != nil {
		return nil, err
	}
	err = out.Fill(func(w io.Writer) error {
		_, err := b.WriteTo(durable.Until(ctx, w))
		return err
	})
	if err != nil {
		return nil, err
	}
	f := inspect.NewDatastore(c.Out, b.Info())
	f.Seconds, f.Dropped = time.Since(began).Seconds(), dropped
	return f, nil
}

func newDatastoreInspect(a *app) *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:     "inspect FILE",
		Short:   "Describe a datastore and check all of it",
		Example: "  talf datastore inspect answers.idx",
		Args:    cobra.ExactArgs(1),
		RunE: cli.Waiting(func(_ *cobra.Command, args []string) error {
			f, err := inspect.OpenDatastore(args[0])
			if err != nil {
				return err
			}
			return a.show(f, asJSON)
		}),
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}
