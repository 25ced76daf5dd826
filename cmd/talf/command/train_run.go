package command

import (
	"context"
	"fmt"
	"os"
	"strings"

	"talf/checkpoints"
	"talf/data/corpus"
	"talf/train"
	"talf/train/dist"
	"talf/train/history"
	"talf/train/mix"
)

// A trainRun is a run that is ready to start.
type trainRun struct {
	start func(context.Context) (train.Result, error)
	close func() error
}

// train trains on the ranks of group, of which this process is one.
func (a *app) train(ctx context.Context, o *trainOptions, group *dist.World) (train.Result, error) {
	bar := a.progress("train", "steps")
	defer bar.End()
	report := func(p train.Progress) {
		bar.Set(int64(p.Step), int64(p.Steps), fmt.Sprintf("loss %.3f", p.Loss))
		if p.Eval != nil {
			a.log.Debug("evaluated", "step", p.Step, "held_out_loss", p.Eval.Loss)
		}
	}
	r, err := a.prepareTraining(o, group, report)
	if err != nil {
		return train.Result{}, dist.Agree(ctx, group, err) // the others wait for this rank to start
	}
	defer func() { _ = r.close() }() // only read
	return r.start(ctx)
}

func (a *app) prepareTraining(o *trainOptions, group *dist.World, report func(train.Progress)) (*trainRun, error) {
	if group.Rank() == 0 && !o.resume {
		// Two runs in one directory would be a mistake.
		if any, err := checkpoints.Any(o.out); err != nil {
			return nil, err
		} else if any {
			return nil, fmt.Errorf("%s has checkpoints already: add --resume to continue from them, or choose another --out", o.out)
		}
	}
	device, err := o.deviceFor(group.Size())
	if err != nil {
		return nil, err
	}
	if a.resume == "" {
		a.resume = "run the same command with --resume to go on: the last checkpoint is in " + o.out
	}
	m := defaultMachine()
	m.threads, m.device, m.lazy, m.trainBF16 = o.threads, device.Resolve(), true, o.math == mathBF16
	if o.kind == checkpoints.KindLM {
		return a.prepareLM(o, &m, group, report)
	}
	return a.prepareHead(o, &m, group, report)
}

// profileOf returns --profile of the first rank: the others are not profiled.
func (o *trainOptions) profileOf(group *dist.World) string {
	if group.Rank() > 0 {
		return ""
	}
	return o.profile
}

func (a *app) prepareHead(o *trainOptions, m *machineOptions, group *dist.World, report func(train.Progress)) (_ *trainRun, err error) {
	target, closeTarget, err := openModelAs(a.log, o.model, m)
	if err != nil {
		return nil, err
	}
	shares, err := mix.Open(o.data)
	r := &trainRun{close: func() error {
		defer closeTarget()
		return shares.Close()
	}}
	defer func() {
		if err != nil {
			_ = r.close() // only read
		}
	}()
	if err != nil {
		return nil, err
	}
	for _, s := range shares {
		if !s.Set.Complete() && !strings.HasSuffix(s.Dir, ".parquet") {
			a.log.Warn("preprocess has not finished: training on what is there", "data", s.Dir)
		}
	}
	cfg := o.trainConfig(group.Size())
	if o.epochs > 0 {
		cfg.Steps = cfg.EpochSteps(o.epochs, shares.Tokens())
	}
	for _, text := range o.stages {
		s, err := train.ParseStage(text, cfg)
		if err != nil {
			return nil, err
		}
		cfg.Stages = append(cfg.Stages, s.In(cfg, shares.Tokens()))
	}
	vocab, share, err := mix.Vocab(o.vocab, shares, cfg.Held)
	if err != nil {
		return nil, err
	}
	if vocab != nil {
		a.log.Info("draft vocabulary", "tokens", len(vocab), "share_of_text", fmt.Sprintf("%.2f%%", 100*share))
	}
	job := train.HeadJob{
		Target: target, Data: shares, Vocab: vocab, Out: o.out, Init: o.init, Force: o.force, Features: train.Features(o.features),
		Report: report, Profile: o.profileOf(group), Group: group, Arithmetic: o.arithmetic(target.Device()),
	}
	if o.init == initTarget {
		job.Init, job.FromTarget = "", true
	}
	r.start = func(ctx context.Context) (train.Result, error) { return train.Head(ctx, cfg, job) }
	return r, nil
}

func (a *app) prepareLM(o *trainOptions, m *machineOptions, group *dist.World, report func(train.Progress)) (*trainRun, error) {
	if es, err := os.ReadDir(o.export); o.export != "" && err == nil && len(es) > 0 {
		return nil, fmt.Errorf("--export %s is not empty: choose a new directory", o.export)
	}
	text, err := mix.ReadText(o.model, o.data, o.load, func(b corpus.BadLine) { a.log.Warn("left out", "line", b.Error()) })
	if err != nil {
		return nil, err
	}
	dev, err := m.openDevice(a.log)
	if err != nil {
		return nil, err
	}
	cfg := o.trainConfig(group.Size())
	if o.epochs > 0 {
		cfg.Steps = cfg.EpochSteps(o.epochs, text.Tokens)
	}
	job := train.LMJob{
		Device: dev, Spec: text.Spec, Docs: text.Docs, Window: min(o.window, text.Spec.MaxPos, cfg.Rows), Out: o.out, Extra: text.Extra,
		Report: report, Profile: o.profileOf(group), Group: group, Arithmetic: o.arithmetic(dev),
	}
	return &trainRun{close: dev.Close, start: func(ctx context.Context) (train.Result, error) {
		res, err := train.LM(ctx, cfg, job)
		if err != nil || o.export == "" || group.Rank() > 0 {
			return res, err
		}
		return res, checkpoints.ExportLM(o.out, o.export, true)
	}}, nil
}

// printTrained says where a run ended.
func printTrained(a *app, res train.Result) {
	a.printf("%s: step %d", res.Dir, res.Step)
	if res.Loss != 0 { // there was a step left to make
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
}

// draw plots the run's log.
func (o *trainOptions) draw() error {
	r, err := history.Read(o.out)
	if err != nil {
		return err
	}
	return saveFigures(o.plot, history.Figures(r)...)
}
