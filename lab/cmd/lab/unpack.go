package main

import (
	"errors"
	"path/filepath"

	"github.com/spf13/cobra"

	"talf/cmd/talf/command"
	"talf/internal/demo"
	"talf/internal/quickstart"
	"talf/lab/gsm10m"
	"talf/lab/sets"
	"talf/lab/target"
)

func newUnpack(*command.Session) *cobra.Command {
	var pack string
	c := &cobra.Command{
		Use:   "unpack DIR",
		Short: "Write the models and prompts that measurements are made with",
		Long: `Unpack writes gsm10m, gsm10m-lm and quickstart-target, three Hugging Face model directories,
to DIR: the target of the measurements, the small language model that drafts for it, and the
target of talf quickstart. prompts gets a file for each set to measure on, training.jsonl to
train draft models on, quickstart.jsonl, prompts for the target of quickstart, and
quickstart-text.jsonl, the text that talf quickstart trains heads on. orders gets a training
text for a model that answers in JSON, prompts to measure it on, and the schema of its
answers. Nothing is fetched.

--pack packs the weights of a model that was trained again into DIR instead.`,
		Example: "  lab unpack .cache/demo-large\n  lab unpack --pack MODEL gsm10m/lm",
		Args:    cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			if pack != "" {
				return gsm10m.Pack(pack, args[0])
			}
			return unpack(args[0])
		},
	}
	c.Flags().StringVar(&pack, "pack", "", "`model` directory whose weights to pack")
	return c
}

func unpack(dir string) error {
	if err := gsm10m.Unpack(filepath.Join(dir, "gsm10m")); err != nil {
		return err
	}
	if err := gsm10m.UnpackDraft(filepath.Join(dir, "gsm10m-lm")); err != nil {
		return err
	}
	if err := demo.Unpack(filepath.Join(dir, "quickstart-target")); err != nil {
		return err
	}
	if err := sets.WriteOrders(filepath.Join(dir, "orders")); err != nil {
		return err
	}
	prompts := filepath.Join(dir, "prompts")
	if err := sets.WriteSets(prompts); err != nil {
		return err
	}
	plan := quickstart.Default()
	return errors.Join(
		demo.WriteJSONL(filepath.Join(prompts, "quickstart-text.jsonl"), demo.Corpus(plan.Seed, plan.Documents)),
		demo.WriteJSONL(filepath.Join(prompts, "quickstart.jsonl"), sets.Continued(demo.Prompts(plan.Seed, sets.SetPrompts))),
	)
}

func newTarget(*command.Session) *cobra.Command {
	var dir, texts string
	c := &cobra.Command{
		Use:   "target",
		Short: "Write what the model that talf carries is trained from",
		Long: `Target writes the configuration and the vocabulary of the small model that talf carries and, with
--texts, the text that its weights are trained on. make demo-target does the rest.`,
		Example: "  lab target --texts .cache/demo",
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if err := target.Write(dir); err != nil || texts == "" {
				return err
			}
			return target.WriteTexts(texts)
		},
	}
	c.Flags().StringVar(&dir, "target", "internal/demo/target", "folder for the model's configuration and tokenizer")
	c.Flags().StringVar(&texts, "texts", "", "folder for train.jsonl and validation.jsonl; none are written without it")
	return c
}
