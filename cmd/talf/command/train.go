package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"talf/checkpoints"
	"talf/compute/devices"
	"talf/internal/cli"
	"talf/preprocess"
	"talf/train"
	"talf/train/dist"
	"talf/train/history"
	"talf/train/loss"
	"talf/train/plan"
)

// A trainOptions holds train's flags.
type trainOptions struct {
	cfg              train.Config
	kind, model, out string
	data             cli.Files
	init             string
	resume, force    bool
	epochs           float64
	stages           cli.Files
	features         string
	vocab            string // --draft-vocab
	plot             string
	window           int
	place            plan.Place
	label            preprocess.Config // with --online
	talk             chatOptions
	pre              string // with --online
	keepLabels       int    // MiB
	export           string
	threads          int
	logKind          string
	profile          string

	config    string
	print     bool // the configuration, and do nothing else
	printJSON bool
}

// initLinear is --init's word for a linear prediction of the next hidden state.
const initLinear = "linear"

func newTrain(a *app) *cobra.Command {
	o := trainOptions{cfg: train.Default(), label: preprocess.Default(), features: string(train.FeaturesAuto)}
	c := &cobra.Command{
		Use:   "train MODEL --data DIR --out DIR",
		Short: "Train a draft head, or a small language model",
		Long: `Train fits a draft head to the labels that preprocess made with the same model. The
model itself does not change: its embedding and LM head serve the head as well. --out
receives checkpoints in the format of EAGLE heads, and metrics.jsonl, a log of all steps.

Ctrl-C saves a checkpoint. With --resume a run continues from its last checkpoint, and
ends with the same bits as if it had never stopped. It may be given more --steps than
before: its learning rate follows the new length from there on.

--stage divides a run into parts, each with its own loss and schedule, that stop and
resume as one run: eagle:10e is ten epochs, eagle:400 four hundred steps. A stage does
what a run of its own would do with --init from the stage before.

Besides the latest checkpoints, the best one is kept: the one with the most tokens per
target pass expected on the held-out trees (τ̂). --head DIR/best uses it. --patience ends
a stage that no longer improves it.

--draft-vocab N trains a head that predicts only the N most frequent tokens of the text
to learn: its LM head has these rows of the model's. inspect data --stats --draft-vocab N
shows in advance what would be lost.

--kind lm trains a small language model instead, from scratch or from --init. --model then
has its config.json and tokenizer, and --data is text, as for preprocess. A draft model, for
instance, is trained on its target's own answers: generate --out answers.jsonl, then
train with --data answers.jsonl --template '{prompt}' --answer-field text.

--online labels texts in the same process, when a batch needs them, for targets whose
hidden states would not fit a disk: --data is then as for preprocess, and so are the
flags about texts and labels. The head is the one that preprocess and train make of them.

--config reads a YAML file whose keys are the names of the flags; a flag on the command
line wins. --print-config writes such a file.

Losses: ` + loss.Help() + `.`,
		Example: `  talf train MODEL --data labels --loss eagle --steps 2000 --out heads/eagle
  talf train MODEL --data labels --loss talf --steps 600 --init heads/eagle --out heads/talf
  talf train MODEL --data math=0.7 --data chat=0.3 --stage eagle:10e --stage talf:3e:lr=1e-4 --out heads/both
  talf train MODEL --data labels --draft-vocab 8192 --stage eagle3:10e --stage talf:outside=mask:3e --out heads/eagle3
  talf train MODEL --online --data sharegpt.json --loss-only --stage eagle3:10e --out heads/online
  talf train --config run.yaml --lr 1e-4 --print-config
  talf train --kind lm --model config-dir --data text.jsonl --steps 5000 --out small --export small/model
  talf train --kind lm --model MODEL --init MODEL --data text.jsonl --lr 3e-5 --steps 200 --out tuned --export tuned/model`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.config != "" {
				if err := trainFile().Read(cmd.Flags(), o.config); err != nil {
					return err
				}
			}
			if err := o.check(cmd); err != nil {
				return err
			}
			if o.print {
				return o.printConfig(a.out, cmd.Flags())
			}
			res, first, err := a.trainOnRanks(cmd.Context(), &o)
			if err != nil || !first {
				return err
			}
			if o.plot != "" {
				if err := o.draw(); err != nil {
					return err
				}
			}
			if o.printJSON {
				return a.printJSON(res)
			}
			a.printf("%s", history.Ended(res))
			return nil
		},
	}
	o.flags(c.Flags())
	return c
}

func (o *trainOptions) flags(f *pflag.FlagSet) {
	f.StringVar(&o.config, "config", "", "YAML file of flags")
	f.BoolVar(&o.print, "print-config", false, "print all flags as such a file, and do nothing else")
	f.StringVar(&o.kind, "kind", checkpoints.KindHead, "head or lm")
	modelVar(f, &o.model, "")
	f.Var(&o.data, "data", "directory that preprocess wrote, or DIR=WEIGHT to mix several; with --kind lm or --online a text file (may be repeated)")
	f.StringVar(&o.out, "out", "", "directory of checkpoints")
	f.StringVar(&o.cfg.Loss, "loss", o.cfg.Loss, "loss of a head and its parameters, such as eagle:w_cls=1")
	f.StringVar(&o.init, "init", "", "head to start from, unless --out has a checkpoint to resume: a checkpoint, any EAGLE or block head, or linear (the best linear prediction in --data); with --kind lm a language model's directory")
	f.StringVar(&o.cfg.Network, "network", "", "network of a head: eagle (EAGLE-1 and 2), eagle3 or block, with parameters such as eagle3:taps=2+8+13 or block:size=8,causal=on (default: that of --init; that of the loss; else eagle)")
	f.IntVar(&o.cfg.Layers, "layers", o.cfg.Layers, "layers of a head; the speculators library loads one")
	f.StringVar(&o.vocab, "draft-vocab", "", "tokens that a head predicts: a number, for the most frequent tokens of the text to learn, mass: and a number, for those with the most mass in the labels, or a file or head that lists them: a head, a safetensors file with d2t, a token map (.pt) or a text file of ids (default: all)")
	f.BoolVar(&o.cfg.FCBias, "fc-bias", o.cfg.FCBias, "give a head's fc a bias; vLLM loads none")
	f.BoolVar(&o.resume, "resume", false, "continue from the last checkpoint in --out, if there is one; with more steps, also a run that has ended")
	f.BoolVar(&o.force, "force", false, "train even if the data or --init belong to another model")
	f.IntVar(&o.cfg.Steps, "steps", o.cfg.Steps, "optimiser steps")
	f.Float64Var(&o.epochs, "epochs", 0, "passes over the data, counted in tokens, instead of --steps")
	f.Var(&o.stages, "stage", "`LOSS:STEPS` or LOSS:EPOCHSe, with an optional schedule :lr=…,min-lr=…,warmup=…, instead of --loss and --steps (may be repeated)")
	f.IntVar(&o.cfg.Patience, "patience", o.cfg.Patience, "evaluations without a better τ̂ after which a stage ends (0: never)")
	f.StringVar(&o.features, "features", o.features, "the model's hidden states: stored (in the data), recompute (with the model) or auto (stored, if the data have them)")
	f.StringVar(&o.plot, "plot", "", "plot the run's losses and τ̂ to this .png or .svg file at the end")
	f.IntVar(&o.cfg.Rows, "rows", o.cfg.Rows, "positions of a batch; whole sequences are packed into it")
	f.IntVar(&o.cfg.Accum, "accum", o.cfg.Accum, "batches of a step (under mpirun: of each rank)")
	f.Float64Var(&o.cfg.LR, "lr", o.cfg.LR, "learning rate")
	f.Float64Var(&o.cfg.MinLR, "min-lr", o.cfg.MinLR, "share of --lr that the cosine ends at")
	f.IntVar(&o.cfg.Warmup, "warmup", o.cfg.Warmup, "steps of linear warm-up")
	f.Float64Var(&o.cfg.Decay, "weight-decay", o.cfg.Decay, "decoupled weight decay")
	f.Float64Var(&o.cfg.Clip, "clip", o.cfg.Clip, "largest gradient norm (0: no limit)")
	f.Float64Var(&o.cfg.Noise, "noise", o.cfg.Noise, "width of uniform noise on a head's input features")
	f.Float64Var(&o.cfg.Held, "held-out", o.cfg.Held, "share of the sequences kept for evaluation")
	f.IntVar(&o.cfg.EvalSeqs, "eval-seqs", o.cfg.EvalSeqs, "most sequences of an evaluation (0: all)")
	f.IntVar(&o.cfg.EvalEvery, "eval-every", o.cfg.EvalEvery, "steps between evaluations (0: at the end)")
	f.IntVar(&o.cfg.SaveEvery, "save-every", o.cfg.SaveEvery, "steps between checkpoints (0: at the end)")
	f.IntVar(&o.cfg.Keep, "keep", o.cfg.Keep, "checkpoints to keep (0: all)")
	f.StringVar(&o.place.DType, "dtype", "f32", "type of the activations stored for the backward pass and of the model's LM head: f32 or bf16; weights are always float32")
	f.Uint64Var(&o.cfg.Seed, "seed", o.cfg.Seed, "seed of weights, order and noise")
	f.IntVar(&o.window, "window", 256, "with --kind lm: tokens that a prediction sees")
	f.BoolVar(&o.place.Online, "online", false, "label --data, texts as for preprocess, while training reads them: nothing is stored")
	labelFlags(f, &o.label, &o.talk)
	preVar(f, &o.pre)
	cli.CountVar(f, &o.keepLabels, "keep-labels", 1024, "with --online: MiB of labels that are kept for later epochs and evaluations; others are made again")
	f.StringVar(&o.export, "export", "", "with --kind lm: write the trained model to this new directory, in bfloat16")
	f.StringVar(&o.logKind, "log", "", "also log every step in --out for another program: tensorboard (event files)")
	f.StringVar(&o.profile, "profile", "", "write profiles of the processor time and of memory to this directory, for go tool pprof")
	threadsVar(f, &o.threads)
	f.Var(&o.place.Devices, "device", devices.HelpAll()+"; several train one run together")
	f.StringVar(&o.place.Math, "math", plan.F32, "type in which a CUDA device multiplies: f32, or bf16 on tensor cores; sums are f32")
	f.BoolVar(&o.place.CUBLAS, "cublas", true, "on a CUDA device, let cuBLAS compute large products where it is found")
	f.BoolVar(&o.place.NCCL, "nccl", true, "with several CUDA devices, let NCCL sum gradients from device to device where it is found")
	f.BoolVar(&o.printJSON, "json", false, "print JSON")
}

// trainOnRanks trains with the ranks that were started together. first says that this process is
// the first of them, which prints for all.
func (a *app) trainOnRanks(ctx context.Context, o *trainOptions) (res train.Result, first bool, err error) {
	group, err := dist.Open()
	if err != nil {
		return res, true, err
	}
	first = group.Rank() == 0
	if !first {
		a.quiet, o.logKind, o.profile = true, "", ""
		cli.Mute(a.out, true)
		cli.Mute(a.err, true)
		a.log = slog.New(slog.DiscardHandler)
	}
	on, err := o.place.On(group.Size(), os.LookupEnv)
	if err == nil && len(on) > 1 {
		res, err = a.trainOnDevices(ctx, o, on)
	} else if err == nil {
		res, err = a.train(ctx, o, on[0], group)
	} else {
		err = dist.Agree(ctx, group, usageError(err)) // the others wait for this rank to start
	}
	if any, cerr := checkpoints.Any(o.out); err != nil && cerr == nil && !any {
		a.resume = "no step was saved: run the same command to begin again"
	}
	switch {
	case errors.Is(err, dist.ErrLost): // closing the group would wait for the lost ranks
		if slices.Contains(group.Lost(), 0) {
			cli.Mute(a.err, false) // no other process is left to print
		}
		return res, first, fmt.Errorf("%w: the run ends here; %s", err, a.resume)
	case err == nil:
		err = group.Close()
	default:
		_ = group.Close() // the earlier error counts
	}
	if errors.Is(err, context.Canceled) {
		err = errors.Join(cli.ErrInterrupted, err)
	}
	return res, first, err
}

// trainOnDevices trains with several devices of this machine, which are the ranks of one group. The first prints for all.
func (a *app) trainOnDevices(ctx context.Context, o *trainOptions, on devices.Names) (train.Result, error) {
	return dist.Together(on, func(i int, m *dist.Member) (train.Result, error) {
		if i == 0 {
			return a.train(ctx, o, on[i], m)
		}
		own := *o
		own.logKind, own.profile = "", ""
		mute := app{out: io.Discard, err: io.Discard, quiet: true, log: slog.New(slog.DiscardHandler), resume: a.resume}
		return mute.train(ctx, &own, on[i], m)
	})
}
