package command

import (
	"context"
	"fmt"
	"os"

	"talf/checkpoints"
	"talf/compute/devices"
	"talf/data"
	"talf/data/corpus"
	"talf/model"
	"talf/preprocess"
	"talf/train"
	"talf/train/dist"
	"talf/train/history"
	"talf/train/mix"
	"talf/train/plan"
	"talf/train/tensorboard"
)

// A trainRun is a run that is ready to start.
type trainRun struct {
	start func(context.Context) (train.Result, error)
	close func() error
}

// train trains on device as one of the ranks of group.
func (a *app) train(ctx context.Context, o *trainOptions, device devices.Name, group dist.Group) (train.Result, error) {
	bar := a.progress("train", "steps")
	defer bar.End()
	events := tensorboard.New(o.logKind, o.out, a.warn)
	defer events.Close()
	held := "" // τ̂ of the last evaluation
	report := func(p train.Progress) {
		events.Step(p)
		if p.Eval != nil && p.Eval.Tau > 0 {
			held = fmt.Sprintf(", τ̂ %.2f", p.Eval.Tau)
		}
		bar.Set(int64(p.Step), int64(p.Steps), fmt.Sprintf("loss %.3f%s", p.Loss, held))
		if p.Eval != nil {
			a.log.Debug("evaluated", "step", p.Step, "held_out_loss", p.Eval.Loss)
		}
	}
	r, err := a.prepareTraining(ctx, o, device, group, report)
	if err != nil {
		return train.Result{}, dist.Agree(ctx, group, err) // the others wait for this rank to start
	}
	defer func() { _ = r.close() }() // only read
	return r.start(ctx)
}

func (a *app) prepareTraining(ctx context.Context, o *trainOptions, device devices.Name, group dist.Group, report func(train.Progress)) (*trainRun, error) {
	if group.Rank() == 0 && !o.resume {
		// Two runs in one directory would be a mistake.
		if any, err := checkpoints.Any(o.out); err != nil {
			return nil, err
		} else if any {
			return nil, fmt.Errorf("%s has checkpoints already: add --resume to continue from them, or choose another --out", o.out)
		}
	}
	if a.resume == "" {
		a.resume = "run the same command with --resume to go on: the last checkpoint is in " + o.out
	}
	m := defaultMachine()
	m.Lazy = !o.place.Online // a target that labels is refused for its size before any text is read
	m.Threads, m.Device, m.TrainBF16, m.TrainBLAS = o.threads, device, o.place.Math == plan.BF16, o.place.CUBLAS
	if o.kind == checkpoints.KindLM {
		return a.prepareLM(o, &m, group, report)
	}
	return a.prepareHead(ctx, o, &m, group, report)
}

func (a *app) prepareHead(ctx context.Context, o *trainOptions, m *machineOptions, group dist.Group, report func(train.Progress)) (*trainRun, error) {
	target, closeTarget, err := a.loader().Model(ctx, o.model, &m.Machine)
	if err != nil {
		return nil, err
	}
	if err := target.Identify(); err != nil { // what the head is tied to
		closeTarget()
		return nil, err
	}
	o.place.Log(a.log, target.Device())
	cfg := o.trainConfig(group.Size())
	job := train.HeadJob{
		Target: target, Out: o.out, Init: o.init, Force: o.force, Features: train.Features(o.features),
		Report: report, Profile: o.profile, Group: group, Arithmetic: plan.Arithmetic(target.Device(), o.place.Math, group), Joined: o.place.Joined(a.log), Warn: a.warn,
	}
	if o.init == initLinear {
		job.Init, job.Linear = "", true
	}
	p := plan.Head{Data: o.data, Vocab: o.vocab, Epochs: o.epochs, Stages: o.stages}
	if o.place.Online {
		p.Label = func(taps []int) (*data.Set, error) { return a.online(ctx, o, target, taps) }
	}
	err = p.Open(&cfg, &job, a.log)
	r := &trainRun{
		start: func(ctx context.Context) (train.Result, error) { return train.Head(ctx, cfg, job) },
		close: func() error {
			defer closeTarget()
			return job.Data.Close()
		},
	}
	if err != nil {
		_ = r.close() // only read
		return nil, err
	}
	return r, nil
}

// online returns the set that labels o's texts while training reads it.
func (a *app) online(ctx context.Context, o *trainOptions, target *model.Model, taps []int) (*data.Set, error) {
	bad := corpus.BadLines{Log: a.log}
	in, err := a.labelled(ctx, o.model, o.pre, target, &o.talk, &bad)
	if err != nil {
		return nil, err
	}
	c := o.label
	c.Files, c.Features = o.data, preprocess.FeaturesAt(taps)
	set, st, err := preprocess.Online(ctx, c, in, int64(o.keepLabels)<<20)
	if bad.End(); err == nil {
		a.log.Info("labelling while training", "sequences", st.Sequences, "tokens", st.Tokens, "to_learn", st.LossTokens)
	}
	return set, templateHint(err)
}

func (a *app) prepareLM(o *trainOptions, m *machineOptions, group dist.Group, report func(train.Progress)) (*trainRun, error) {
	if es, err := os.ReadDir(o.export); o.export != "" && err == nil && len(es) > 0 {
		return nil, fmt.Errorf("--export %s is not empty: choose a new directory", o.export)
	}
	text, err := mix.ReadText(o.model, o.data, o.label.Load, func(b corpus.BadLine) { a.log.Warn("left out", "line", b.Error()) })
	if err != nil {
		return nil, err
	}
	dev, err := m.Open(a.log)
	if err != nil {
		return nil, err
	}
	o.place.Log(a.log, dev)
	cfg := o.trainConfig(group.Size())
	if o.epochs > 0 {
		cfg.Steps = cfg.EpochSteps(o.epochs, text.Tokens)
	}
	job := train.LMJob{
		Device: dev, Spec: text.Spec, Init: o.init, Docs: text.Docs, Window: min(o.window, text.Spec.MaxPos, cfg.Rows), Out: o.out, Extra: text.Extra,
		Report: report, Profile: o.profile, Group: group, Arithmetic: plan.Arithmetic(dev, o.place.Math, group), Joined: o.place.Joined(a.log), Warn: a.warn,
	}
	return &trainRun{close: dev.Close, start: func(ctx context.Context) (train.Result, error) {
		res, err := train.LM(ctx, cfg, job)
		if err != nil || o.export == "" || group.Rank() > 0 {
			return res, err
		}
		return res, checkpoints.ExportLM(ctx, o.out, o.export, true)
	}}, nil
}

// draw plots the run's log.
func (o *trainOptions) draw() error {
	r, err := history.Read(o.out)
	if err != nil {
		return err
	}
	return saveFigures(o.plot, history.Figures(r)...)
}
