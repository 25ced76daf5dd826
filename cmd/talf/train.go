package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"talf/checkpoints"
	"talf/data"
	"talf/model/arch"
	"talf/model/tokenizer"
	"talf/train"
	"talf/train/loss"
)

// A trainOptions holds train's flags.
type trainOptions struct {
	cfg              train.Config
	kind, model, out string
	data             files
	init             string
	resume, force    bool
	epochs           float64
	window           int
	load             data.LoadConfig
	export           string
	threads          int
}

func newTrain(a *app) *cobra.Command {
	o := trainOptions{cfg: train.Default(), load: data.DefaultLoad()}
	var asJSON bool
	c := &cobra.Command{
		Use:   "train --model DIR --data DIR --out DIR",
		Short: "Train a draft head, or a small language model",
		Long: `Train fits a draft head to what preprocess made of text with the same model. The
model itself does not change; its embedding and LM head serve the head, too. --out
gets checkpoints in the format of EAGLE heads, and metrics.jsonl.

Ctrl-C saves. With --resume the run goes on from its last checkpoint, and ends with
the same bits as if it had never stopped.

--kind lm trains a language model from scratch instead: --model has its config.json
and tokenizer, --data is text as for preprocess. Such as a target's own answers, which
make a draft model of it: generate --out answers.jsonl, then --data answers.jsonl
--template '{prompt}' --answer-field text.

Losses: ` + lossNames() + `.`,
		Example: `  talf train --model DIR --data labels --loss eagle --steps 2000 --out heads/eagle
  talf train --model DIR --data labels --loss talf --steps 600 --init heads/eagle --out heads/talf
  talf train --kind lm --model config-dir --data text.jsonl --steps 5000 --out small --export small/model`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.check(cmd); err != nil {
				return err
			}
			res, err := a.train(cmd.Context(), &o)
			if err != nil {
				return err
			}
			if asJSON {
				return a.printJSON(res)
			}
			a.printf("%s: step %d", res.Dir, res.Step)
			if res.Loss != 0 { // a step was left to make
				a.printf(", loss %.4f", res.Loss)
			}
			a.printf("\n")
			if e := res.Eval; e != nil {
				a.printf("held out: loss %.4f over %d positions", e.Loss, e.Positions)
				for i, l := range e.Levels {
					a.printf("; level %d: loss %.4f, top-1 %.1f%%", i, l.Loss, 100*l.Top1)
				}
				a.printf("\n")
			}
			return nil
		},
	}
	f := c.Flags()
	f.StringVar(&o.kind, "kind", checkpoints.KindHead, "head or lm")
	f.StringVar(&o.model, "model", "", "model directory in Hugging Face layout")
	f.Var(&o.data, "data", "directory that preprocess wrote; with --kind lm a text file (may be repeated)")
	f.StringVar(&o.out, "out", "", "directory of checkpoints")
	f.StringVar(&o.cfg.Loss, "loss", o.cfg.Loss, "loss of a head and its parameters, such as eagle:w_cls=1")
	f.StringVar(&o.init, "init", "", "head to begin with, where --out has no checkpoint to go on from: a checkpoint, or any EAGLE head")
	f.BoolVar(&o.resume, "resume", false, "go on from the last checkpoint in --out, if there is one")
	f.BoolVar(&o.force, "force", false, "train although the data or --init belong to other weights")
	f.IntVar(&o.cfg.Steps, "steps", o.cfg.Steps, "optimiser steps")
	f.Float64Var(&o.epochs, "epochs", 0, "passes over the data, instead of --steps")
	f.IntVar(&o.cfg.Rows, "rows", o.cfg.Rows, "positions of a batch: sequences are packed into them")
	f.IntVar(&o.cfg.Accum, "accum", o.cfg.Accum, "batches of a step")
	f.Float64Var(&o.cfg.LR, "lr", o.cfg.LR, "learning rate")
	f.Float64Var(&o.cfg.MinLR, "min-lr", o.cfg.MinLR, "share of --lr that the cosine ends at")
	f.IntVar(&o.cfg.Warmup, "warmup", o.cfg.Warmup, "steps of linear warm-up")
	f.Float64Var(&o.cfg.Decay, "weight-decay", o.cfg.Decay, "decoupled weight decay")
	f.Float64Var(&o.cfg.Clip, "clip", o.cfg.Clip, "largest gradient norm (0: any)")
	f.Float64Var(&o.cfg.Noise, "noise", o.cfg.Noise, "uniform noise on a head's input features")
	f.Float64Var(&o.cfg.Held, "held-out", o.cfg.Held, "share of the sequences kept for evaluation")
	f.IntVar(&o.cfg.EvalSeqs, "eval-seqs", o.cfg.EvalSeqs, "most sequences of an evaluation (0: all)")
	f.IntVar(&o.cfg.EvalEvery, "eval-every", o.cfg.EvalEvery, "steps between evaluations (0: at the end)")
	f.IntVar(&o.cfg.SaveEvery, "save-every", o.cfg.SaveEvery, "steps between checkpoints (0: at the end)")
	f.IntVar(&o.cfg.Keep, "keep", o.cfg.Keep, "checkpoints to keep (0: all)")
	f.Uint64Var(&o.cfg.Seed, "seed", o.cfg.Seed, "seed of weights, order and noise")
	f.IntVar(&o.window, "window", 256, "with --kind lm: tokens that a prediction sees")
	f.StringVar(&o.load.Template, "template", "", `with --kind lm: how fields of a JSON object make a text: 'Question: {question}\nAnswer:'`)
	f.StringVar(&o.load.AnswerField, "answer-field", "", "with --kind lm: field whose text follows, learnt like the rest")
	f.StringVar(&o.export, "export", "", "with --kind lm: write the trained model to this new directory, in bfloat16")
	countVar(f, &o.threads, "threads", 0, "CPU threads (0: all)")
	f.BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

func lossNames() string {
	var names []string
	for _, m := range loss.Methods() {
		names = append(names, m.Name+" ("+m.Doc+")")
	}
	return strings.Join(names, ", ")
}

func (o *trainOptions) check(cmd *cobra.Command) error {
	if err := need(cmd, "model", "data", "out"); err != nil {
		return err
	}
	changed := cmd.Flags().Changed
	switch {
	case o.kind != checkpoints.KindHead && o.kind != checkpoints.KindLM:
		return usagef("--kind is %q, want %s or %s", o.kind, checkpoints.KindHead, checkpoints.KindLM)
	case o.kind == checkpoints.KindHead && len(o.data) > 1:
		return usagef("--data is given %d times: a head is trained on one directory", len(o.data))
	case o.kind == checkpoints.KindHead && (changed("window") || o.export != "" || o.load.Template != "" || o.load.AnswerField != ""):
		return usagef("--window, --template, --answer-field and --export are for --kind lm")
	case o.kind == checkpoints.KindLM && (changed("loss") || o.init != ""):
		return usagef("--loss and --init are for heads")
	case o.epochs != 0 && changed("steps"):
		return usagef("--steps and --epochs exclude each other")
	case !(o.epochs >= 0 && o.epochs < 1e6):
		return usagef("--epochs is %v, want 0 or more", o.epochs)
	}
	if _, err := loss.Parse(o.cfg.Loss); err != nil {
		return usageError{err}
	}
	if err := o.cfg.Validate(); err != nil {
		return usageError{err}
	}
	return nil
}

// train runs one training job.
func (a *app) train(ctx context.Context, o *trainOptions) (train.Result, error) {
	if err := o.checkOut(); err != nil {
		return train.Result{}, err
	}
	bar := a.progress("train", "steps")
	defer bar.end()
	report := func(p train.Progress) {
		note := fmt.Sprintf("loss %.3f", p.Loss)
		bar.set(int64(p.Step), int64(p.Steps), note)
		if p.Eval != nil {
			a.log.Debug("evaluated", "step", p.Step, "held_out_loss", p.Eval.Loss)
		}
	}
	if a.resume == "" {
		a.resume = "run the same command with --resume to go on: the last checkpoint is in " + o.out
	}
	if o.kind == checkpoints.KindLM {
		return a.trainLM(ctx, o, report)
	}
	m, closeModel, err := openModel(o.model, o.threads)
	if err != nil {
		return train.Result{}, err
	}
	defer closeModel()
	set, err := data.Open(o.data[0])
	if err != nil {
		return train.Result{}, err
	}
	defer set.Close()
	if !set.Complete() && filepath.Ext(o.data[0]) != ".parquet" {
		a.log.Warn("preprocess has not finished: training on what is there", "data", o.data[0])
	}
	cfg := o.cfg
	if o.epochs > 0 {
		tokens := int64(0)
		for _, s := range set.Shards() {
			tokens += s.Tokens
		}
		cfg.Steps = o.steps(tokens)
	}
	return train.Head(ctx, cfg, train.HeadJob{Target: m, Data: train.Only(set), Out: o.out, Init: o.init, Force: o.force, Report: report})
}

// checkOut refuses to mix two runs in one directory by accident.
func (o *trainOptions) checkOut() error {
	if o.resume {
		return nil
	}
	if found, err := filepath.Glob(filepath.Join(o.out, "step-*")); err == nil && len(found) > 0 {
		return fmt.Errorf("%s has checkpoints already: add --resume to go on from them, or choose another --out", o.out)
	}
	return nil
}

// steps is how many steps see the training share of tokens --epochs times.
func (o *trainOptions) steps(tokens int64) int {
	perStep := float64(o.cfg.Rows * o.cfg.Accum)
	return max(1, int(math.Ceil(o.epochs*float64(tokens)*(1-o.cfg.Held)/perStep)))
}

// trainLM trains a language model on text.
func (a *app) trainLM(ctx context.Context, o *trainOptions, report func(train.Progress)) (train.Result, error) {
	if es, err := os.ReadDir(o.export); o.export != "" && err == nil && len(es) > 0 {
		return train.Result{}, fmt.Errorf("--export %s is not empty: choose a new directory", o.export)
	}
	spec, err := arch.Load(o.model)
	if err != nil {
		return train.Result{}, err
	}
	if spec.Arch != "llama" {
		return train.Result{}, fmt.Errorf("%s: model_type is %q, want \"llama\" for --kind lm", filepath.Join(o.model, "config.json"), spec.Arch)
	}
	tok, err := tokenizer.Load(o.model)
	if err != nil {
		return train.Result{}, err
	}
	if tok.VocabSize() > spec.Vocab {
		return train.Result{}, fmt.Errorf("%s: the tokenizer has %d tokens, but vocab_size is %d", o.model, tok.VocabSize(), spec.Vocab)
	}
	docs, tokens, err := a.readDocs(o.data, o.load, tok, spec.EOS)
	if err != nil {
		return train.Result{}, err
	}
	extra := map[string][]byte{}
	for _, name := range []string{"tokenizer.json", "tokenizer_config.json", "generation_config.json"} {
		b, err := os.ReadFile(filepath.Join(o.model, name))
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return train.Result{}, err
		}
		extra[name] = b
	}
	dev, err := openDevice(o.threads)
	if err != nil {
		return train.Result{}, err
	}
	defer func() { _ = dev.Close() }()
	cfg := o.cfg
	if o.epochs > 0 {
		cfg.Steps = o.steps(tokens)
	}
	res, err := train.LM(ctx, cfg, train.LMJob{
		Device: dev, Spec: spec, Docs: docs, Window: min(o.window, spec.MaxPos, cfg.Rows), Out: o.out, Extra: extra, Report: report,
	})
	if err != nil || o.export == "" {
		return res, err
	}
	return res, train.ExportLM(o.out, o.export, true)
}

// readDocs encodes the documents of files; each ends with the model's first end
// token.
func (a *app) readDocs(names []string, c data.LoadConfig, tok *tokenizer.Tokenizer, eos []int32) (docs [][]int32, tokens int64, err error) {
	for doc, err := range data.Load(names, c, func(b data.BadLine) { a.log.Warn("left out", "line", b.Error()) }) {
		if err != nil {
			return nil, 0, err
		}
		if doc.Chat != nil {
			return nil, 0, fmt.Errorf("%s: a conversation: language models are trained on texts", doc.Place())
		}
		var text strings.Builder
		for _, s := range doc.Spans {
			text.WriteString(s.Text)
		}
		ids, err := tok.Encode(text.String(), true)
		if err != nil {
			return nil, 0, fmt.Errorf("%s: %w", doc.Place(), err)
		}
		if len(eos) > 0 && (len(ids) == 0 || ids[len(ids)-1] != eos[0]) {
			ids = append(ids, eos[0])
		}
		docs = append(docs, ids)
		tokens += int64(len(ids))
	}
	return docs, tokens, nil
}
