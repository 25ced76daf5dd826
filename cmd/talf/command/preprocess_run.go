package command

import (
	"context"
	"errors"
	"fmt"

	"talf/checkpoints"
	"talf/compute/devices"
	"talf/data/corpus"
	"talf/infer/decode"
	"talf/model"
	"talf/preprocess"
	"talf/preprocess/regenerate"
	"talf/preprocess/remote"

	"github.com/spf13/pflag"
)

// A placement says on which devices the target labels.
type placement struct {
	machineOptions
	devices                devices.Names
	cublas                 bool // may be used
	rowsGiven, tokensGiven bool // by the user: not to be chosen
}

func (o *placement) flags(f *pflag.FlagSet) {
	threadsVar(f, &o.Threads)
	f.Var(&o.devices, "device", devices.HelpAll())
	f.BoolVar(&o.cublas, "cublas", true, "on a CUDA device, let cuBLAS compute large products where it is found")
	f.Var(&o.DType, "dtype", dtypeHelp())
	f.Var(&o.ActPlanes, "act-planes", devices.PlanesHelp)
	preVar(f, &o.Pre)
}

// open loads a copy of the model in dir onto every device and reports what computes it. The
// returned function frees the copies.
func (o *placement) open(ctx context.Context, l *decode.Loader, c *preprocess.Config, dir string) (all []*model.Model, arithmetic string, closeAll func(), err error) {
	on, err := o.devices.Resolve()
	if err != nil {
		return nil, "", nil, fmt.Errorf("--device: %w", err)
	}
	if on[0].Remote() {
		if !o.rowsGiven {
			c.Rows = preprocess.DeviceRows
		}
		if !o.tokensGiven {
			c.Tokens = preprocess.DeviceTokens
		}
		o.Rows, o.LogitRows, o.Positions = c.Rows, c.Rows, c.Tokens
	}
	var undo []func()
	closeAll = func() {
		for _, f := range undo {
			f()
		}
	}
	for _, d := range on {
		o.Device = d
		m, closeModel, err := l.Model(ctx, dir, &o.Machine)
		if err != nil {
			closeAll()
			return nil, "", nil, err
		}
		all, undo = append(all, m), append(undo, closeModel)
	}
	if err := all[0].Identify(); err != nil { // what the set says of its labels
		closeAll()
		return nil, "", nil, err
	}
	return all, preprocess.Arithmetic(all[0], o.DType != checkpoints.Auto), closeAll, nil
}

// preprocess labels c's files with the model in dir.
func (a *app) preprocess(ctx context.Context, c preprocess.Config, dir string, on placement, re *regeneration, talk chatOptions) (preprocess.Stats, error) {
	dir, err := checkpoints.FindModel(dir)
	if err != nil {
		return preprocess.Stats{}, err
	}
	models, arithmetic, closeModels, err := on.open(ctx, a.loader(), &c, dir)
	if err != nil {
		return preprocess.Stats{}, err
	}
	defer closeModels()
	m := models[0]
	bulk := false
	if m.Device().Arithmetic() != "" {
		by, err := a.products(models, on.cublas)
		if err != nil {
			return preprocess.Stats{}, err
		}
		if bulk = by != ""; bulk {
			arithmetic += fmt.Sprintf(", %s, --rows %d --tokens %d", by, c.Rows, c.Tokens)
		}
	}
	bar := a.progress("preprocess", "tokens")
	defer bar.End()
	bad := corpus.BadLines{Log: a.log}
	in, err := a.labelled(ctx, dir, on.Pre, m, &talk, &bad)
	if err != nil {
		return preprocess.Stats{}, err
	}
	in.Arithmetic, in.Bulk = arithmetic, bulk
	in.Progress = func(p preprocess.Progress) {
		bar.Set(p.Tokens, p.AllTokens, fmt.Sprintf("%d shards", p.Shards))
	}
	for _, m := range models[1:] {
		in.Beside = append(in.Beside, preprocess.Worker{Target: m})
	}
	if re.on && re.server.URL == "" {
		in.Generator, in.Sampling = regenerate.New(m, re.sample), regenerate.Describe(re.sample)
		for i := range in.Beside {
			in.Beside[i].Generator = regenerate.New(models[i+1], re.sample)
		}
	}
	if a.resume == "" {
		a.resume = "run the same command again to go on: finished shards are kept"
	}
	var st preprocess.Stats
	if re.server.URL == "" {
		st, err = preprocess.Run(ctx, c, in)
	} else {
		re.server.Sample = re.sample
		st, err = remote.Run(ctx, c, in, re.server)
	}
	if err != nil {
		return st, templateHint(err)
	}
	bad.End()
	return st, nil
}

// labelled returns what labels texts with the target m of dir. pre is --pre.
func (a *app) labelled(ctx context.Context, dir, pre string, m *model.Model, talk *chatOptions, bad *corpus.BadLines) (in preprocess.Inputs, err error) {
	if dir, err = checkpoints.FindModel(dir); err != nil {
		return in, err
	}
	tok, err := decode.Tokenizer(ctx, dir, pre, a.warn)
	if err == nil {
		err = decode.CheckTokenizer(dir, tok, m)
	}
	if err != nil {
		return in, err
	}
	template, hash, err := talk.load(dir)
	return preprocess.Inputs{
		Target: m, Tokenizer: tok, TokenizerHash: tok.Hash(), Chat: template, ChatHash: hash,
		Arithmetic: preprocess.Arithmetic(m, false), Warn: a.warn, Bad: bad.Add,
	}, err
}

// products logs what computes large products of copies of a target, and returns the library's
// name, "" if the devices compute them themselves.
func (a *app) products(copies []*model.Model, library bool) (string, error) {
	by, err := preprocess.Products(copies, library, func(m *model.Model, by string, why error) {
		switch {
		case !library:
			by = "the device's own: cuBLAS is turned off"
		case why != nil:
			by = "the device's own: " + why.Error()
		}
		a.log.Info("labelling", "device", m.Device().Name(), "weights", m.TypeName(), "products", by)
	})
	if err != nil {
		err = fmt.Errorf("%w: turn the library off with --cublas=false", err)
	}
	return by, err
}

// templateHint adds advice for a missing chat template.
func templateHint(err error) error {
	if errors.Is(err, preprocess.ErrNoTemplate) {
		return fmt.Errorf("%w: give one with --chat-template FILE", err)
	}
	return err
}
