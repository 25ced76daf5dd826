package command

import (
	"errors"
	"fmt"
	"log/slog"

	"github.com/spf13/pflag"

	"talf/checkpoints"
	"talf/compute"
	"talf/compute/devices"
	"talf/infer/decode"
	"talf/internal/cli"
	"talf/model"
	"talf/model/safetensors"
	"talf/model/tokenizer"
)

// A machineOptions says how a model runs on this machine.
type machineOptions struct {
	checkpoints.Loading
	threads   int
	device    devices.Name
	actBits   devices.ActBits
	actPlanes devices.ActPlanes
	pre       string // how the tokenizer splits texts
	trainBF16 bool   // training multiplies in bfloat16, which the CPU cannot
	trainBLAS bool   // and may use a library, of which the CPU has none
}

// defaultMachine returns the options that apply unless a command's flags change them.
func defaultMachine() machineOptions {
	return machineOptions{Loading: checkpoints.Loading{DType: checkpoints.Auto}}
}

func (o *machineOptions) flags(f *pflag.FlagSet) {
	*o = defaultMachine()
	threadsVar(f, &o.threads)
	f.Var(&o.device, "device", devices.Help())
	f.Var(&o.DType, "dtype", dtypeHelp())
	cli.CountVar(f, &o.Positions, "kv-positions", 2048, "KV cache positions, for all sequences together, that a CUDA device reserves when it loads the model, which fails if they do not fit (0: none); layers with a window reserve as much as one text of so many takes")
	f.BoolVar(&o.AllowNonFinite, "allow-nonfinite", false, "load a model although weights are NaN, infinite or too large for --dtype")
	o.precision(f)
	f.Var(&o.actPlanes, "act-planes", devices.PlanesHelp)
	preVar(f, &o.pre)
}

// precision adds the flags that say how keys, values and activations are rounded.
func (o *machineOptions) precision(f *pflag.FlagSet) {
	f.Var(&o.KV, "kv-dtype", "type of the KV cache: f32 or bf16")
	f.Var(&o.actBits, "act-bits", "bits of the activations that q8 and q4 weights are multiplied by: 8 or 16, or auto: 8 for --dtype q4, otherwise 16")
}

// threadsVar adds --threads.
func threadsVar(f *pflag.FlagSet, threads *int) {
	cli.CountVar(f, threads, "threads", 0, "CPU threads (0: one for each core that talf doctor reports)")
}

// preVar adds --pre.
func preVar(f *pflag.FlagSet, pre *string) {
	f.StringVar(pre, "pre", "", "how the tokenizer of a GGUF file splits texts: a name as in tokenizer.ggml.pre, such as llama-bpe or qwen2 (default: as the file says)")
}

// dtypeHelp is the help of --dtype in commands that load a model.
func dtypeHelp() string {
	return "type of the weights in memory: " + checkpoints.DTypeNames() + ", or auto: each matrix as it is stored; a CUDA device takes what it does not have as q8 or f32. " +
		"bf16dp is bf16 whose products round activations to bf16 as well: less exact, on the CPU alone, and where that has VDPBF16PS (talf doctor) perhaps faster"
}

// openModelAs opens the device that o names and loads a model directory onto it. The
// returned function frees the model and the device.
func openModelAs(log *slog.Logger, dir string, o *machineOptions) (*model.Model, func(), error) {
	dir, err := checkpoints.FindModel(dir)
	if err != nil {
		return nil, nil, err
	}
	dev, err := o.openDevice(log)
	if err != nil {
		return nil, nil, err
	}
	m, err := o.load(dir, dev)
	if err != nil {
		_ = dev.Close()
		if kind, _ := decode.KindOf(dir); kind == decode.DraftHead {
			return nil, nil, fmt.Errorf("model: %s is a draft head, not a language model: give it as --head", dir)
		}
		return nil, nil, err
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

// openWithTokenizer is openModelAs with the model's tokenizer. That is read first: reading it takes several times
// the memory that is kept, which the weights take afterwards.
func openWithTokenizer(log *slog.Logger, dir string, o *machineOptions) (*model.Model, *tokenizer.Tokenizer, func(), error) {
	dir, err := checkpoints.FindModel(dir)
	if err != nil {
		return nil, nil, nil, err
	}
	tok, tokErr := decode.Tokenizer(dir, o.pre, func(w string) { log.Warn(w) })
	decode.GiveBack()
	undo := decode.CollectEarly()
	m, closeModel, err := openModelAs(log, dir, o)
	undo()
	if err != nil { // which says more than that there is no tokenizer
		return nil, nil, nil, err
	}
	if err = tokErr; err == nil {
		err = decode.CheckTokenizer(dir, tok, m)
	}
	if err != nil {
		closeModel()
	}
	return m, tok, closeModel, err
}

func (o *machineOptions) load(dir string, dev compute.Device) (*model.Model, error) {
	m, err := o.Load(dir, dev)
	if wrong := (checkpoints.LayersError{}); errors.As(err, &wrong) {
		return nil, usageError(err)
	}
	if wrong := (*safetensors.ValueError)(nil); errors.As(err, &wrong) {
		return nil, fmt.Errorf("%w (--allow-nonfinite loads it all the same)", err)
	}
	return m, err
}

// openDevice opens the device that o names. Its warnings go to log.
func (o *machineOptions) openDevice(log *slog.Logger) (compute.Device, error) {
	o.device = o.device.Resolve()
	if o.device.Remote() && o.actBits == 8 {
		return nil, usagef("--act-bits 8 is for the CPU: on %s activations have 16 bits", o.device)
	}
	return devices.Open(o.device, o.config(log))
}

func (o *machineOptions) config(log *slog.Logger) devices.Config {
	return devices.Config{Threads: o.threads, ActBits: int(o.actBits), ActPlanes: int(o.actPlanes), Weights: compute.DType(o.DType), TrainBF16: o.trainBF16, TrainBLAS: o.trainBLAS, Log: log}
}
