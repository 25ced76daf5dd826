package command

import (
	"context"
	"encoding/json"
	"path/filepath"

	"github.com/spf13/cobra"

	"talf/checkpoints"
	"talf/infer/bench"
	"talf/infer/bench/diagnose"
	"talf/infer/bench/heads"
	"talf/infer/bench/rig"
	"talf/internal/cli"
	"talf/internal/limits"
	"talf/train/history"
)

func newInspectHead(a *app) *cobra.Command {
	o := rigOptions{}
	var asJSON bool
	c := &cobra.Command{
		Use:   "head HEAD --model MODEL --prompts FILE",
		Short: "Name why a draft head is seldom right",
		Long: `Head lets a draft head guess the tokens of the model's own greedy answers, as they are
and under other circumstances, and names those under which it is right more often beyond
doubt, with the figures:

  weights     the head says that it was trained for another model
  taps        it reads the states of other layers than it was trained on, by one
  template    it was trained on texts with, or without, the chat template
  length      texts are longer than those that it was trained on
  vocabulary  the answers have tokens that it cannot predict
  dtype       rounding its weights costs right guesses
  domain      it was right more often on text held out of its training`,
		Example: "  talf inspect head head/head/best --model MODEL --prompts prompts.jsonl --limit 20",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.checkGiven(cmd); err != nil {
				return err
			}
			d, err := a.diagnose(cmd.Context(), &o, args[0])
			if err != nil {
				return err
			}
			return a.show(d, asJSON)
		},
	}
	f := c.Flags()
	modelVar(f, &o.decode.model, "")
	f.StringArrayVar(&o.prompts, "prompts", nil, "file of prompts that the model answers, or `NAME=FILE` (may be repeated)")
	f.StringVar(&o.template, "template", "", "how fields of a JSON object make a prompt: 'Question: {question}\\nAnswer:'")
	o.chat.flags(f)
	cli.CountVar(f, &o.limit, "limit", 0, "most prompts of a file (0: all)")
	f.IntVar(&o.decode.MaxTokens, "max-tokens", 128, "maximum number of tokens in an answer")
	o.decode.machine.flags(f)
	f.BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

// diagnose looks for the causes of a head's wrong guesses.
func (a *app) diagnose(ctx context.Context, o *rigOptions, path string) (*diagnose.Diagnosis, error) {
	o.split, o.temperatures, o.decode.Sample = "all", bench.Default().Temperatures, bench.Default().Sampling
	r, err := a.openRig(ctx, o)
	if err != nil {
		return nil, err
	}
	defer r.close()
	in := diagnose.Input{Target: r.Model, Head: path, Options: r.Model.HeadOptions(), Forms: map[string][]heads.Text{}}
	answers := func(r *rig.Rig) ([]heads.Text, error) {
		c := o.config(&loadedRig{Rig: r})
		texts, _, err := r.RankTexts(ctx, rig.OverAnswers, &c)
		return texts, err
	}
	if in.Texts, err = answers(r.Rig); err != nil {
		return nil, err
	}
	if r.Chats { // the same prompts as plain texts
		plain := rig.New(r.Model, r.Tokenizer, r.decoder)
		names, err := rig.ParseAll(nil, nil, o.prompts)
		if err != nil {
			return nil, usageError(err)
		}
		talk := o.chat
		talk.file = noTemplate
		if err := a.addSets(ctx, plain, o, names.Prompts, talk); err != nil {
			return nil, err
		}
		if in.Forms["without the chat template"], err = answers(plain); err != nil {
			return nil, err
		}
	}
	in.Trained, in.Expect = trainedOn(path)
	return diagnose.Run(ctx, in)
}

// trainedOn returns what the run that trained a head left beside it: how long its texts were, and how often the head
// was right on those that were held out. What is not there is 0.
func trainedOn(path string) (positions int, right float64) {
	dir, err := checkpoints.Find(path)
	if err != nil {
		return 0, 0
	}
	var state struct{ Config struct{ Rows int } }
	if raw, err := limits.ReadFile(filepath.Join(dir, checkpoints.StateFile), limits.ConfigBytes); err == nil {
		_ = json.Unmarshal(raw, &state) // 0 then
	}
	if run, err := history.Read(filepath.Dir(dir)); err == nil {
		for _, row := range run.Rows {
			if row.Eval != nil && len(row.Eval.Levels) > 0 {
				right = max(right, row.Eval.Levels[0].Top1)
			}
		}
	}
	return state.Config.Rows, right
}
