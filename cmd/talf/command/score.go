package command

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"talf/infer/decode"
	"talf/infer/score"
	"talf/internal/cli"
	"talf/internal/durable"
	"talf/model/head"
)

// A scoreOptions holds score's flags.
type scoreOptions struct {
	model, head, out string
	force            bool
	machine          machineOptions
}

func newScore(a *app) *cobra.Command {
	var o scoreOptions
	c := &cobra.Command{
		Use:   "score MODEL --out FILE",
		Short: "Write logits and hidden states of given tokens, to compare with other systems",
		Long: `Score reads one JSON object per line from standard input:

  {"ids": [1, 5, 9], "tree": {"parents": [-1, 0, 0], "tokens": [3, 4, 7]}}

"tree" is optional. The parent of node i is parents[i], an earlier node, or -1 for the
last id. For input N (counted from 0, without blank lines) the safetensors file gets,
in float32,

  N.logits       [ids, vocabulary]
  N.hidden       [ids, hidden size], after the final norm
  N.tree_logits  [nodes, vocabulary], only where the line has a tree
  N.head_logits  [ids − 1, vocabulary], only with --head: the draft head's, for every
                 id but the first and the model's hidden state before it`,
		Example: `  echo '{"ids":[1,5,9]}' | talf score MODEL --out scores.safetensors`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := cli.Need(cmd, "model", "out"); err != nil {
				return err
			}
			out, err := durable.Create(o.out)
			if err != nil {
				return err
			}
			defer func() { _ = out.Discard() }() // there was an error
			return a.score(cmd.Context(), &o, out)
		},
	}
	f := c.Flags()
	modelVar(f, &o.model, "")
	f.StringVar(&o.head, "head", "", "checkpoint of a draft head whose logits to write, too")
	f.BoolVar(&o.force, "force", false, "accept a head that was trained for another target")
	f.StringVar(&o.out, "out", "", "safetensors file to write")
	o.machine.flags(f)
	return c
}

// score reads its input and writes the tensors, completely or not at all.
func (a *app) score(ctx context.Context, o *scoreOptions, out *durable.File) error {
	in, err := cli.Wait(ctx, func() ([]score.Input, error) { return score.Read("standard input", a.in) })
	if err != nil {
		return err
	}
	if len(in) == 0 {
		return usagef("standard input is empty: want one JSON object a line")
	}
	m, closeModel, err := a.loader().Model(ctx, o.model, &o.machine.Machine)
	if err != nil {
		return err
	}
	defer closeModel()
	for i := range in {
		if err := in[i].Fits(m.Spec()); err != nil {
			return fmt.Errorf("%s: %w", in[i].Place, err)
		}
	}
	var h *head.Head
	if o.head != "" {
		if h, err = decode.LoadHead(o.head, m, o.force, a.warn); err != nil {
			return err
		}
		defer func() { _ = h.Close() }()
	}
	bar := a.progress("score", "lines")
	defer bar.End()
	return out.Fill(func(w io.Writer) error {
		return score.Write(ctx, durable.Until(ctx, w), m, h, in, func(n int) { bar.Set(int64(n+1), int64(len(in)), "") })
	})
}
