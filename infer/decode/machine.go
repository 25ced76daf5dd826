package decode

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"talf/checkpoints"
	"talf/compute"
	"talf/compute/devices"
	"talf/infer/source"
	"talf/internal/hint"
	"talf/model"
	"talf/model/safetensors"
	"talf/text/tokenizer"
)

// A Machine says how a model runs on this machine. The zero value keeps weights as float32 on the CPU.
type Machine struct {
	checkpoints.Loading
	Threads   int // of the CPU; 0: one for each core
	Device    devices.Name
	ActBits   devices.ActBits
	ActPlanes devices.ActPlanes
	Pre       string // how the tokenizer splits texts; "": as its file says
	TrainBF16 bool   // training multiplies in bfloat16, which the CPU cannot
	TrainBLAS bool   // and may use a library, of which the CPU has none
}

// DefaultPositions are the positions of keys and values that commands reserve on a device of limited memory.
const DefaultPositions = 2048

// DefaultMachine returns the CPU with weights as they are stored.
func DefaultMachine() Machine {
	return Machine{Loading: checkpoints.Loading{DType: checkpoints.Auto}}
}

// An OptionError reports an option that this machine or this model cannot have, whatever the files hold.
type OptionError struct{ Err error }

func (e OptionError) Error() string { return e.Err.Error() }
func (e OptionError) Unwrap() error { return e.Err }

// A Loader loads models until a context ends.
type Loader struct {
	Log *slog.Logger
	// Progress, unless nil, is called for every piece of work on all the weights of a model, of which done bytes of
	// total are done.
	Progress func(ctx context.Context, p model.Phase, done, total int64)
}

// Watch returns what ends work on all the weights of a model with ctx.
func (l *Loader) Watch(ctx context.Context) model.Watch {
	return func(p model.Phase, done, total int64) error {
		if l.Progress != nil {
			l.Progress(ctx, p, done, total)
		}
		return ctx.Err()
	}
}

// Model opens the device that o names and loads the model at path onto it. The
// returned function frees the model and the device.
func (l *Loader) Model(ctx context.Context, path string, o *Machine) (*model.Model, func(), error) {
	path, err := checkpoints.FindModel(path)
	if err != nil {
		return nil, nil, err
	}
	dev, err := o.Open(l.Log)
	if err != nil {
		return nil, nil, err
	}
	began := time.Now()
	m, err := l.On(ctx, path, o, dev)
	if err != nil {
		_ = dev.Close()
		if kind, _ := kindOf(path); kind == DraftHead {
			return nil, nil, hint.Errorf("give it as {head}", "model: %s is a draft head, not a language model", path)
		}
		return nil, nil, err
	}
	held := m.Held()
	l.Log.Debug("loaded", "what", "weights", "as", m.Weights(), "bytes_in_file", held.File, "bytes_in_memory", held.Memory, "seconds", time.Since(began).Seconds())
	if what := m.Rounded(); what != "" {
		l.Log.Warn("rounded to 8 bits: " + what + ", which " + dev.Name() + " does not keep; dtype f32 rounds nothing")
	}
	reserved := int64(0)
	if dev.Abilities().Account != nil { // keys and values will be in this machine's memory
		reserved = m.PoolBytes()
	}
	devices.LimitHeap(reserved)
	return m, func() {
		_ = m.Close()
		_ = dev.Close()
	}, nil
}

// WithTokenizer is Model with the model's tokenizer, which is read at the same time.
func (l *Loader) WithTokenizer(ctx context.Context, path string, o *Machine) (*model.Model, *tokenizer.Tokenizer, func(), error) {
	path, err := checkpoints.FindModel(path)
	if err != nil {
		return nil, nil, nil, err
	}
	began := time.Now()
	tokens := readTokenizer(path, o.Pre)
	m, closeModel, err := l.Model(ctx, path, o)
	if err != nil { // which says more than that there is no tokenizer
		return nil, nil, nil, err
	}
	tok, err := tokens.wait(ctx, func(why string) { l.Log.Warn(why) })
	l.Log.Debug("loaded", "what", "weights and tokenizer", "seconds", time.Since(began).Seconds())
	if err == nil {
		err = CheckTokenizer(path, tok, m)
	}
	if err != nil {
		closeModel()
	}
	return m, tok, closeModel, err
}

// Draft loads a language model that drafts for target, on its device. Asked for q4, a model
// that has nothing to keep has its own type of weights: the answer does not depend on it.
func (l *Loader) Draft(ctx context.Context, path string, target *model.Model, tok *tokenizer.Tokenizer, o *Machine) (*model.Model, *source.Vocab, error) {
	path, err := checkpoints.FindModel(path)
	if err != nil {
		return nil, nil, fmt.Errorf("draft: %w", err)
	}
	alone := *o
	alone.Layers = 0 // of the target
	if alone.DType == checkpoints.DType(compute.Q4) && !keeps(path, target) {
		alone.DType = checkpoints.Auto // q4 would refuse it
	}
	return LoadDraft(path, o.Pre, target, tok, func(path string) (*model.Model, error) { return l.On(ctx, path, &alone, target.Device()) })
}

// On loads the model at path, which FindModel has found, onto a device.
func (l *Loader) On(ctx context.Context, path string, o *Machine, dev compute.Device) (*model.Model, error) {
	o.Watch = l.Watch(ctx)
	m, err := o.Load(path, dev)
	if wrong := (checkpoints.LayersError{}); errors.As(err, &wrong) {
		return nil, OptionError{err}
	}
	if wrong := (*safetensors.ValueError)(nil); errors.As(err, &wrong) {
		return nil, &hint.Error{Err: err, Hint: "{allow-nonfinite} loads it all the same"}
	}
	return m, err
}

// Open opens the device that o names. Its warnings go to log.
func (o *Machine) Open(log *slog.Logger) (compute.Device, error) {
	o.Device = o.Device.Resolve()
	if o.Device.Remote() && o.ActBits == 8 {
		return nil, OptionError{hint.Errorf("want {act-bits} 16", "activations of 8 bits are for the CPU: on %s they have 16", o.Device)}
	}
	return devices.Open(o.Device, o.Config(log))
}

// Config returns the configuration of the device that o names.
func (o *Machine) Config(log *slog.Logger) devices.Config {
	return devices.Config{
		Threads: o.Threads, ActBits: int(o.ActBits), ActPlanes: int(o.ActPlanes), Weights: compute.DType(o.DType),
		TrainBF16: o.TrainBF16, TrainBLAS: o.TrainBLAS, Log: log,
	}
}
