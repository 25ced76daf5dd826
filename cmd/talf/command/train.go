package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"talf/checkpoints"
	"talf/compute/devices"
	"talf/data/corpus"
	"talf/model/arch"
	"talf/model/tokenizer"
	"talf/train"
	"talf/train/dist"
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
	stages           files
	features         string
	vocab            string // --draft-vocab
	plot             string
	window           int
	load             corpus.Config
	export           string
	threads          int
	profile          string
	device           devices.Name
	math             string
	dtype            string
}

// machine is what --device, --threads and --math say.
func (o *trainOptions) machine() *machineOptions {
	m := defaultMachine()
	m.threads, m.device, m.lazy, m.trainBF16 = o.threads, o.device, true, o.math == mathBF16
	return &m
}

// What --math may be.
const mathF32, mathBF16 = "f32", "bf16"

// initTarget begins a head with the target's last layers.
const initTarget = "target"

func newTrain(a *app) *cobra.Command {
	o := trainOptions{cfg: train.Default(), load: corpus.Default(), features: featuresAuto}
	var asJSON, printIt bool
	var config string
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

--stage makes a run of several parts, each with a loss and a schedule of its own, that
stops and resumes as one: eagle:10e is ten epochs, eagle:400 four hundred steps. A
stage is what a run with --init from the one before would be.

Beside the last checkpoints the best is kept, by the tokens of a target pass that the
held-out trees let expect (τ̂); --head DIR/best uses it. --patience ends a stage that no
longer improves it.

--draft-vocab N makes a head that predicts only the N tokens that are learnt most
often: its LM head has these rows of the model's. inspect data --stats --draft-vocab N
says beforehand what is lost.

--config reads a YAML file whose keys are the names of the flags; a flag on the command
line wins. --print-config writes one.

Losses: ` + lossNames() + `.`,
		Example: `  talf train --model DIR --data labels --loss eagle --steps 2000 --out heads/eagle
  talf train --model DIR --data labels --loss talf --steps 600 --init heads/eagle --out heads/talf
  talf train --model DIR --data math=0.7 --data chat=0.3 --stage eagle:10e --stage talf:3e:lr=1e-4 --out heads/both
  talf train --config run.yaml --lr 1e-4 --print-config
  talf train --kind lm --model config-dir --data text.jsonl --steps 5000 --out small --export small/model`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if config != "" {
				if err := readConfig(cmd.Flags(), config); err != nil {
					return err
				}
			}
			if err := o.check(cmd); err != nil {
				return err
			}
			if printIt {
				return printConfig(a.out, cmd.Flags())
			}
			group, err := dist.Open()
			if err != nil {
				return err
			}
			errw := a.err
			if group.Rank() > 0 { // the first rank speaks for all of them
				a.quiet, a.out, a.err = true, io.Discard, io.Discard
				a.log = slog.New(slog.DiscardHandler)
				o.profile = ""
			}
			res, err := a.train(cmd.Context(), &o, group)
			switch {
			case errors.Is(err, dist.ErrLost): // nobody would answer
				if slices.Contains(group.Lost(), 0) {
					a.err = errw
				}
				return fmt.Errorf("%w: the run ends here; %s", err, a.resume)
			case err == nil:
				err = group.Close()
			default:
				_ = group.Close() // the error before it counts
			}
			if errors.Is(err, context.Canceled) {
				return errors.Join(errInterrupted, err)
			}
			if err != nil || group.Rank() > 0 {
				return err
			}
			if o.plot != "" {
				if err := o.draw(); err != nil {
					return err
				}
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
					if l.Covered > 0 {
						a.printf(", %.2f%% of the labels in the draft vocabulary", 100*l.Covered)
					}
				}
				if e.Tau > 0 {
					a.printf("; τ̂ %.3f, greedy %.3f", e.Tau, e.TauGreedy)
				}
				a.printf("\n")
			}
			if res.Best != "" && res.Best != res.Dir {
				a.printf("best: %s\n", res.Best)
			}
			return nil
		},
	}
	f := c.Flags()
	f.StringVar(&config, "config", "", "YAML file of flags")
	f.BoolVar(&printIt, "print-config", false, "print all flags as such a file, and do nothing else")
	f.StringVar(&o.kind, "kind", checkpoints.KindHead, "head or lm")
	f.StringVar(&o.model, "model", "", "model directory in Hugging Face layout")
	f.Var(&o.data, "data", "directory that preprocess wrote, or DIR=WEIGHT of several; with --kind lm a text file (may be repeated)")
	f.StringVar(&o.out, "out", "", "directory of checkpoints")
	f.StringVar(&o.cfg.Loss, "loss", o.cfg.Loss, "loss of a head and its parameters, such as eagle:w_cls=1")
	f.StringVar(&o.init, "init", "", "where --out has no checkpoint to go on from, the head to begin with: a checkpoint, any EAGLE head, or target (the model's last layers)")
	f.IntVar(&o.cfg.Layers, "layers", o.cfg.Layers, "layers of a head; the speculators library loads one")
	f.StringVar(&o.vocab, "draft-vocab", "", draftVocabUsage)
	f.BoolVar(&o.cfg.FCBias, "fc-bias", o.cfg.FCBias, "give fc of a head a bias; vLLM loads none")
	f.BoolVar(&o.resume, "resume", false, "go on from the last checkpoint in --out, if there is one")
	f.BoolVar(&o.force, "force", false, "train although the data or --init belong to other weights")
	f.IntVar(&o.cfg.Steps, "steps", o.cfg.Steps, "optimiser steps")
	f.Float64Var(&o.epochs, "epochs", 0, "passes over the data, by their tokens, instead of --steps")
	f.Var(&o.stages, "stage", "LOSS:STEPS or LOSS:EPOCHSe and perhaps :lr=…,min-lr=…,warmup=…, instead of --loss and --steps (may be repeated)")
	f.IntVar(&o.cfg.Patience, "patience", o.cfg.Patience, "evaluations without a better τ̂ after which a stage ends (0: never)")
	f.StringVar(&o.features, "features", o.features, "hidden states: stored in the data, recompute with the model, or auto (stored where they are)")
	f.StringVar(&o.plot, "plot", "", "draw the run's losses and τ̂ to this .png or .svg in the end")
	f.IntVar(&o.cfg.Rows, "rows", o.cfg.Rows, "positions of a batch: sequences are packed into them")
	f.IntVar(&o.cfg.Accum, "accum", o.cfg.Accum, "batches of a step, of each rank under mpirun")
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
	f.StringVar(&o.dtype, "dtype", "f32", "how activations wait for the backward pass, and how the target's LM head is kept: f32 or bf16; weights are float32 either way")
	f.Uint64Var(&o.cfg.Seed, "seed", o.cfg.Seed, "seed of weights, order and noise")
	f.IntVar(&o.window, "window", 256, "with --kind lm: tokens that a prediction sees")
	f.StringVar(&o.load.Template, "template", "", `with --kind lm: how fields of a JSON object make a text: 'Question: {question}\nAnswer:'`)
	f.StringVar(&o.load.AnswerField, "answer-field", "", "with --kind lm: field whose text follows, learnt like the rest")
	f.StringVar(&o.export, "export", "", "with --kind lm: write the trained model to this new directory, in bfloat16")
	f.StringVar(&o.profile, "profile", "", "write pprof profiles and a table of the step's operations to this directory")
	threadsVar(f, &o.threads)
	f.Var(&o.device, "device", devices.Help())
	f.StringVar(&o.math, "math", mathF32, "what a CUDA device multiplies: f32, or bf16 on tensor cores; sums are f32")
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
	case o.kind == checkpoints.KindHead && (changed("window") || o.export != "" || o.load.Template != "" || o.load.AnswerField != ""):
		return usagef("--window, --template, --answer-field and --export are for --kind lm")
	case o.kind == checkpoints.KindLM && (changed("loss") || o.init != "" || len(o.stages) > 0 || changed("features") || changed("layers") || changed("fc-bias") || o.vocab != ""):
		return usagef("--loss, --stage, --features, --layers, --fc-bias, --draft-vocab and --init are for heads")
	case len(o.stages) > 0 && (changed("loss") || changed("steps") || changed("epochs")):
		return usagef("--stage and --loss, --steps or --epochs exclude each other")
	case o.features != featuresAuto && o.features != featuresStored && o.features != featuresRecompute:
		return usagef("--features is %q, want %s, %s or %s", o.features, featuresAuto, featuresStored, featuresRecompute)
	case o.math != mathF32 && o.math != mathBF16:
		return usagef("--math is %q, want %s or %s", o.math, mathF32, mathBF16)
	case o.math == mathBF16 && o.device.String() == string(devices.CPU):
		return usagef("--math bf16 is for CUDA devices")
	case o.epochs != 0 && changed("steps"):
		return usagef("--steps and --epochs exclude each other")
	case !(o.epochs >= 0 && o.epochs < 1e6):
		return usagef("--epochs is %v, want 0 or more", o.epochs)
	}
	switch d := o.device.Resolve(); { // o.device stays as given: --print-config prints it
	case o.math == mathBF16 && !d.Remote():
		return usagef("--math bf16 is for CUDA devices, and --device auto found none")
	case o.dtype == "bf16" && d.Remote():
		return usagef("--dtype bf16 is for the CPU: on %s --math bf16 multiplies in bfloat16", d)
	case o.profile != "" && d.Remote():
		return usagef("--profile times the CPU's operations one by one: those of %s run on meanwhile", d)
	}
	switch o.dtype {
	case "f32":
		o.cfg.DType = train.F32
	case "bf16":
		o.cfg.DType = train.BF16
	default:
		return usagef("--dtype is %q, want f32 or bf16", o.dtype)
	}
	if _, err := loss.Parse(o.cfg.Loss); err != nil {
		return usageError{err}
	}
	if err := o.cfg.Validate(); err != nil {
		return usageError{err}
	}
	for _, s := range o.stages {
		if _, err := parseStage(s, o.cfg); err != nil {
			return usageError{err}
		}
	}
	if o.kind == checkpoints.KindHead {
		for _, s := range o.data {
			if _, _, err := parseShare(s); err != nil {
				return err
			}
		}
	}
	if o.plot == "" {
		return nil
	}
	return checkPlot(o.plot, o.out)
}

// draw draws the run's log.
func (o *trainOptions) draw() error {
	r, err := readRun(o.out)
	if err != nil {
		return err
	}
	return saveMetrics(o.plot, []metricsRun{r})
}

// train runs one training job.
func (a *app) train(ctx context.Context, o *trainOptions, group *dist.World) (train.Result, error) {
	ready := false
	res, err := a.trainReady(ctx, o, group, &ready)
	if err != nil && !ready {
		err = dist.Agree(ctx, group, err) // the others wait to begin
	}
	return res, err
}

// onRanks refuses a device to several ranks, before each of them fills it; of what
// auto may mean they take the CPU.
func (o *trainOptions) onRanks(n int) error {
	switch {
	case n == 1:
	case o.device.Remote() || o.math == mathBF16:
		return usagef("--device %s --math %s: %d ranks train on CPUs, where their gradients are added: leave both out, or start one process", &o.device, o.math, n)
	case o.device == devices.Auto:
		o.device = devices.CPU
	}
	return nil
}

// trainReady is train; ready says that the run itself began, whose errors all ranks
// share.
func (a *app) trainReady(ctx context.Context, o *trainOptions, group *dist.World, ready *bool) (train.Result, error) {
	if group.Rank() == 0 {
		if err := o.checkOut(); err != nil {
			return train.Result{}, err
		}
	}
	if err := o.onRanks(group.Size()); err != nil {
		return train.Result{}, err
	}
	o.device = o.device.Resolve() // once: what auto means may change
	o.cfg.Accum *= group.Size()   // a step is of all ranks together
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
		return a.trainLM(ctx, o, report, group, ready)
	}
	m, closeModel, err := openModelAs(a.log, o.model, o.machine())
	if err != nil {
		return train.Result{}, err
	}
	defer closeModel()
	shares, tokens, err := a.openShares(o.data)
	defer func() {
		for _, s := range shares {
			s.Set.Close()
		}
	}()
	if err != nil {
		return train.Result{}, err
	}
	if err := checkFeatures(o.features, shares, o.data); err != nil {
		return train.Result{}, err
	}
	cfg := o.cfg
	if o.epochs > 0 {
		cfg.Steps = o.steps(o.epochs, tokens)
	}
	for _, s := range o.stages {
		st, err := parseStage(s, cfg)
		if err != nil {
			return train.Result{}, err
		}
		if st.epochs > 0 {
			st.Steps = o.steps(st.epochs, tokens)
		}
		cfg.Stages = append(cfg.Stages, st.Stage)
	}
	vocab, share, err := draftVocab(o.vocab, shares, o.cfg.Held)
	if err != nil {
		return train.Result{}, err
	}
	if vocab != nil {
		a.log.Info("draft vocabulary", "tokens", len(vocab), "share_of_text", fmt.Sprintf("%.2f%%", 100*share))
	}
	job := train.HeadJob{
		Vocab:  vocab,
		Target: m, Data: shares, Out: o.out, Init: o.init, Force: o.force, Recompute: o.features == featuresRecompute, Report: report, Profile: o.profile, Group: group,
		Arithmetic: o.arithmetic(m.Device()),
	}
	if o.init == initTarget {
		job.Init, job.FromTarget = "", true
	}
	*ready = true
	return train.Head(ctx, cfg, job)
}

// checkOut refuses to mix two runs in one directory by accident.
func (o *trainOptions) checkOut() error {
	if o.resume {
		return nil
	}
	es, err := os.ReadDir(o.out)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if slices.ContainsFunc(es, func(e os.DirEntry) bool { return strings.HasPrefix(e.Name(), "step-") }) {
		return fmt.Errorf("%s has checkpoints already: add --resume to go on from them, or choose another --out", o.out)
	}
	return nil
}

// steps is how many steps see the training share of tokens so many times.
func (o *trainOptions) steps(epochs float64, tokens int64) int {
	perStep := float64(o.cfg.Rows * o.cfg.Accum)
	return max(1, int(math.Ceil(epochs*float64(tokens)*(1-o.cfg.Held)/perStep)))
}

// trainLM trains a language model on text.
func (a *app) trainLM(ctx context.Context, o *trainOptions, report func(train.Progress), group *dist.World, ready *bool) (train.Result, error) {
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
	dev, err := o.machine().openDevice(a.log)
	if err != nil {
		return train.Result{}, err
	}
	defer func() { _ = dev.Close() }()
	cfg := o.cfg
	if o.epochs > 0 {
		cfg.Steps = o.steps(o.epochs, tokens)
	}
	*ready = true
	res, err := train.LM(ctx, cfg, train.LMJob{
		Device: dev, Spec: spec, Docs: docs, Window: min(o.window, spec.MaxPos, cfg.Rows), Out: o.out, Extra: extra, Report: report, Profile: o.profile, Group: group,
		Arithmetic: o.arithmetic(dev),
	})
	if err != nil || o.export == "" || group.Rank() > 0 {
		return res, err
	}
	return res, train.ExportLM(o.out, o.export, true)
}

// readDocs encodes the documents of files; each ends with the model's first end
// token.
func (a *app) readDocs(names []string, c corpus.Config, tok *tokenizer.Tokenizer, eos []int32) (docs [][]int32, tokens int64, err error) {
	for doc, err := range corpus.Load(names, c, func(b corpus.BadLine) { a.log.Warn("left out", "line", b.Error()) }) {
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
