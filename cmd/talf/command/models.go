package command

import (
	"context"

	"github.com/spf13/pflag"
	"talf/infer/decode"

	"talf/checkpoints"
	"talf/compute/devices"
	"talf/internal/cli"
	"talf/model"
)

// machineOptions are the flags of a decode.Machine.
type machineOptions struct{ decode.Machine }

// defaultMachine returns the options that apply unless a command's flags change them.
func defaultMachine() machineOptions { return machineOptions{decode.DefaultMachine()} }

func (o *machineOptions) flags(f *pflag.FlagSet) {
	*o = defaultMachine()
	threadsVar(f, &o.Threads)
	f.Var(&o.Device, "device", devices.Help())
	f.Var(&o.DType, "dtype", dtypeHelp())
	cli.CountVar(f, &o.Positions, "kv-positions", decode.DefaultPositions, "KV cache positions, for all sequences together, that a CUDA device reserves when it loads the model, which fails if they do not fit (0: none); layers with a window reserve as much as one text of so many takes")
	f.BoolVar(&o.AllowNonFinite, "allow-nonfinite", false, "load a model although weights are NaN, infinite or too large for --dtype")
	PrecisionVar(f, &o.Machine)
	f.Var(&o.ActPlanes, "act-planes", devices.PlanesHelp)
	preVar(f, &o.Pre)
}

// PrecisionVar adds the flags that say how keys, values and activations are rounded.
func PrecisionVar(f *pflag.FlagSet, o *decode.Machine) {
	f.Var(&o.KV, "kv-dtype", "type of the KV cache: f32 or bf16")
	f.Var(&o.ActBits, "act-bits", "bits of the activations that q8 and q4 weights are multiplied by: 8 or 16, or auto: 8 for --dtype q4, otherwise 16")
}

// modelHelp is the help of --model.
const modelHelp = "model (directory or .gguf)"

// modelVar adds --model, whose value may be the command's first argument, too. or ends its help.
func modelVar(f *pflag.FlagSet, model *string, or string) {
	f.StringVar(model, "model", "", modelHelp+", which may also be the first argument"+or)
	cli.Arguments(f, "model")
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

// loader returns what loads the models of a command, and shows its progress.
func (a *app) loader() *decode.Loader {
	show := cli.Phases(a.err, "MiB", a.quiet)
	return &decode.Loader{Log: a.log, Progress: func(ctx context.Context, p model.Phase, done, total int64) {
		if a.told != nil {
			a.told(p, done, total)
		}
		show(ctx, string(p), done>>20, total>>20, done >= total)
	}}
}
