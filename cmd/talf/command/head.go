package command

import (
	"context"

	"github.com/spf13/cobra"

	"talf/checkpoints"
	"talf/compute/devices"
	"talf/infer/decode"
	"talf/internal/cli"
	"talf/internal/makehead"
	"talf/model"
	"talf/preprocess"
	"talf/text/chat"
	"talf/text/tokenizer"
	"talf/train"
	"talf/train/dist"
)

func newHead(a *app) *cobra.Command {
	t := &headTools{stageTools: stageTools{a}, machine: defaultMachine()}
	c := makehead.Config{Plan: makehead.Default(), Tools: t}
	var network, init string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "head MODEL --out DIR",
		Short: "Make a draft head that makes a model of yours faster",
		Long: `Head makes a draft head of a model, on the machine that it runs on, from the model alone:
the model answers prompts of chat, maths and code that talf writes (or those of --data),
labels the answers with its token trees, and teaches the head. Then it measures decoding
with and without the head on prompts that it has not seen, and says whether it pays here,
and if not, why.

Before it begins, it says what it will take. You can interrupt it at any point: run it
again and it continues, and the head has the bits of a run that was never stopped. All files
are in --out; the head is in head/best there.

Prompts are of the kinds that generate reads, and best of the kind that the model will be
asked. Most are learnt from; a few are kept to measure on.`,
		Example: `  talf head model.gguf --out head
  talf head MODEL --data prompts.jsonl --tokens 300000 --out head
  talf head MODEL --hours 8 --out head
  talf head MODEL --network eagle --out eagle
  talf head TUNED --init base/head/best --tokens 20000 --out tuned`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := cli.Need(cmd, "model", "out"); err != nil {
				return err
			}
			if cmd.Flags().Changed("hours") {
				if cmd.Flags().Changed("tokens") {
					return usagef("--hours and --tokens exclude each other")
				}
				c.Plan.Tokens = 0
			}
			if network == "" {
				if network = makehead.Network; init != "" && init != makehead.Linear && init != makehead.Random {
					network = train.NetworkOf(init)
				}
			}
			if c.Plan.SetNetwork(network); cmd.Flags().Changed("init") {
				c.Plan.Init = init
			}
			if err := c.Plan.Validate(); err != nil {
				return usageError(err)
			}
			a.resume = "run the same command again to go on: " + c.Dir + " keeps what is done"
			r, err := makehead.Run(cmd.Context(), c)
			if err != nil {
				return templateHint(err)
			}
			if asJSON {
				return a.printJSON(r)
			}
			a.printf("%s", r.Text(t.model))
			return nil
		},
	}
	f := cmd.Flags()
	modelVar(f, &t.model, "")
	f.Var((*cli.Files)(&c.Plan.Data), "data", "file of prompts that the model answers to be learnt from (may be repeated; default: those that talf writes)")
	f.StringVar(&c.Dir, "out", "", "directory to keep files in, and the head")
	f.IntVar(&c.Plan.Tokens, "tokens", c.Plan.Tokens, "tokens of answers to learn from: more raise acceptance, and take longer")
	f.Float64Var(&c.Plan.Hours, "hours", 0, "take about so many hours instead")
	f.Uint64Var(&c.Plan.Seed, "seed", c.Plan.Seed, "seed of the prompts that are drawn or written, and of training")
	f.StringVar(&network, "network", "", "network of the head: eagle, eagle3 or block, with parameters as for train (default: that of --init, or a linear block, "+makehead.Network+")")
	f.StringVar(&init, "init", "", "head to start from, such as that of the model that this one was tuned from; linear, the best linear prediction of what the model computes next (default with linear blocks and eagle); or random weights (with others)")
	threadsVar(f, &t.machine.Threads)
	f.Var(&t.machine.Device, "device", devices.Help())
	f.BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// headTools run the stages of talf head as the commands of the same names would.
type headTools struct {
	stageTools
	model   string
	machine machineOptions
}

func (t *headTools) Open(ctx context.Context, rough bool) (*model.Model, *tokenizer.Tokenizer, func(), error) {
	m := t.machine.Machine
	if rough {
		m = roughly(m)
	}
	return t.a.loader().WithTokenizer(ctx, t.model, &m)
}

// roughly returns m with activations of 8 bits, which devices other than the CPU do not have.
func roughly(m decode.Machine) decode.Machine {
	if !m.Device.Resolve().Remote() {
		m.ActBits = 8
	}
	return m
}

func (t *headTools) Prompts(files []string) (tasks []decode.Task, template *chat.Template, hash string, err error) {
	talk := chatOptions{date: chat.FixedDate}
	if template, hash, err = talk.of(t.model); err != nil {
		return nil, nil, "", err
	}
	for _, path := range files {
		set, err := t.a.parsePrompts(&promptSource{path: path, chat: talk}, template)
		if err != nil {
			return nil, nil, "", err
		}
		tasks = append(tasks, set.Tasks()...)
	}
	return tasks, template, hash, nil
}

func (t *headTools) Label(ctx context.Context, c preprocess.Config) (preprocess.Stats, error) {
	on := placement{machineOptions: machineOptions{roughly(t.machine.Machine)}, cublas: true, devices: devices.Names{t.machine.Device}}
	return t.a.preprocess(ctx, c, t.model, on, &regeneration{}, chatOptions{})
}

func (t *headTools) Train(ctx context.Context, c train.Config, f makehead.TrainFiles) (train.Result, error) {
	o := trainOptions{
		cfg: c, kind: checkpoints.KindHead, model: t.model, out: f.Out, data: cli.Files{f.Labels}, resume: true,
		stages: f.Stages, vocab: f.Vocab, init: f.Init, force: f.Init != makehead.Linear, threads: t.machine.Threads,
	}
	return t.a.train(ctx, &o, t.machine.Device, dist.Alone{})
}

func (t *headTools) Progress(what, unit string) (set func(done, total int, note string), end func()) {
	bar := t.a.progress(what, unit)
	return func(done, total int, note string) { bar.Set(int64(done), int64(total), note) }, bar.End
}

func (t *headTools) Warn(why string) { t.a.warn(why) }
