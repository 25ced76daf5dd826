package command

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/pflag"

	"talf/checkpoints"
	"talf/compute"
	"talf/compute/cpu"
	"talf/compute/devices"
	"talf/infer/decode"
	"talf/internal/cli"
	"talf/model"
	"talf/model/arch"
	"talf/model/safetensors"
	"talf/model/synth"
)

// A machineOptions says how a model runs on this machine.
type machineOptions struct {
	threads int
	device  devices.Name
	dtype   dtypeFlag
	kv      kvFlag
	actBits actBitsFlag
	layers  int  // bench: deepen the model to this many; 0: unchanged
	rows    int  // most rows of an internal pass; 0: the model's default
	keep    int  // positions of keys and values that a device with its own memory sets aside
	lazy    bool // pack the weights only when the model first runs

	trainBF16 bool // training multiplies in bfloat16, which the CPU does not
}

// defaultMachine returns the options that apply unless a command's flags change them.
func defaultMachine() machineOptions {
	return machineOptions{dtype: dtypeAuto, actBits: 16}
}

func (o *machineOptions) flags(f *pflag.FlagSet) {
	*o = defaultMachine()
	threadsVar(f, &o.threads)
	f.Var(&o.device, "device", devices.Help())
	f.Var(&o.dtype, "dtype", dtypeHelp())
	cli.CountVar(f, &o.keep, "kv-positions", 2048, "KV cache positions, for all sequences together, that a CUDA device reserves when it loads the model, which fails if they do not fit (0: none)")
	o.precision(f)
}

// precision adds the flags that say how keys, values and activations are rounded.
func (o *machineOptions) precision(f *pflag.FlagSet) {
	f.Var(&o.kv, "kv-dtype", "type of the KV cache: f32 or bf16")
	f.Var(&o.actBits, "act-bits", "bits of the activations that q8 weights are multiplied by: 8 or 16")
}

// threadsVar adds --threads.
func threadsVar(f *pflag.FlagSet, threads *int) {
	cli.CountVar(f, threads, "threads", 0, "CPU threads (0: one for each core that talf doctor reports)")
}

// dtypeHelp is the help of --dtype in commands that load a model.
func dtypeHelp() string {
	return "type of the weights in memory: " + dtypeNames() + ", or auto: q8 if they are stored as q8, else f32; on a CUDA device bf16 if all are stored as bf16"
}

// modelOptions returns the options to load a set of weights with on dev.
func (o *machineOptions) modelOptions(set *safetensors.Set, dev compute.Device) model.Options {
	opt := model.Default()
	if o.rows > 0 {
		opt.MaxRows = o.rows
	}
	opt.KV, opt.Lazy = compute.DType(o.kv), o.lazy
	limited := dev.Abilities().Plan != nil
	if limited {
		opt.Positions = o.keep
	}
	if opt.DType = compute.DType(o.dtype); o.dtype == dtypeAuto {
		opt.DType = model.Stored(set)
		// On such a device reading weights takes most of the time, and bf16 loses nothing
		// here.
		if opt.DType == compute.F32 && limited && allBF16(set) {
			opt.DType = compute.BF16
		}
	}
	return opt
}

// allBF16 reports whether all weights of a set are stored as bfloat16.
func allBF16(set *safetensors.Set) bool {
	names := set.Names()
	for _, name := range names {
		if t, _ := set.Tensor(name); t.DType != "BF16" {
			return false
		}
	}
	return len(names) > 0
}

// dtypes are the types of packed weights by their names in --dtype.
var dtypes = []struct {
	name string
	t    compute.DType
}{{"f32", compute.F32}, {"bf16", compute.BF16}, {"q8", compute.Q8}}

func dtypeNames() string {
	var names []string
	for _, d := range dtypes {
		names = append(names, d.name)
	}
	return strings.Join(names, ", ")
}

// A dtypeFlag is the value of --dtype.
type dtypeFlag compute.DType

// dtypeAuto means the type that is stored.
const dtypeAuto dtypeFlag = 255

func (d *dtypeFlag) Type() string { return "dtype" }

func (d *dtypeFlag) String() string {
	for _, x := range dtypes {
		if x.t == compute.DType(*d) {
			return x.name
		}
	}
	return "auto"
}

func (d *dtypeFlag) Set(s string) error {
	if s == "auto" {
		*d = dtypeAuto
		return nil
	}
	for _, x := range dtypes {
		if strings.EqualFold(x.name, s) {
			*d = dtypeFlag(x.t)
			return nil
		}
	}
	return fmt.Errorf("want one of %s", dtypeNames())
}

// A kvFlag is the value of --kv-dtype.
type kvFlag compute.DType

func (k *kvFlag) Type() string   { return "dtype" }
func (k *kvFlag) String() string { return strings.ToLower(compute.DType(*k).String()) }

func (k *kvFlag) Set(s string) error {
	switch s {
	case "f32":
		*k = kvFlag(compute.F32)
	case "bf16":
		*k = kvFlag(compute.BF16)
	default:
		return errors.New("want f32 or bf16")
	}
	return nil
}

// An actBitsFlag is the value of --act-bits.
type actBitsFlag int

func (b *actBitsFlag) Type() string   { return "bits" }
func (b *actBitsFlag) String() string { return fmt.Sprint(int(*b)) }

func (b *actBitsFlag) Set(s string) error {
	switch s {
	case "8":
		*b = 8
	case "16":
		*b = 16
	default:
		return fmt.Errorf("want 8 or 16")
	}
	return nil
}

// openModelAs opens the device that o names and loads a model directory onto it. The
// returned function frees the model and the device.
func openModelAs(log *slog.Logger, dir string, o *machineOptions) (*model.Model, func(), error) {
	dir, err := findModel(dir)
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
	return m, func() {
		_ = m.Close()
		_ = dev.Close()
	}, nil
}

func (o *machineOptions) load(dir string, dev compute.Device) (*model.Model, error) {
	spec, err := arch.Load(dir)
	if err != nil {
		return nil, err
	}
	set, err := safetensors.OpenDir(dir)
	if err != nil {
		return nil, err
	}
	opt := o.modelOptions(set, dev)
	if o.layers == spec.Layers {
		o.layers = 0 // unchanged
	}
	if o.layers > 0 {
		// The deepened set shares this one's mappings, which last as long as the process:
		// a bench loads one model.
		if spec, set, err = synth.Deepen(spec, set, o.layers); err != nil {
			return nil, usageError(err)
		}
	}
	m, err := model.New(spec, set, dev, opt)
	if err != nil {
		return nil, errors.Join(err, set.Close())
	}
	return m, nil
}

// openDevice opens the device that o names. Its warnings go to log.
func (o *machineOptions) openDevice(log *slog.Logger) (compute.Device, error) {
	o.device = o.device.Resolve()
	if o.device.Remote() && o.actBits == 8 {
		return nil, usageError(fmt.Errorf("--act-bits 8 is for the CPU: on %s activations have 16 bits", o.device))
	}
	return devices.Open(o.device, o.config(log))
}

// openCPU opens the CPU.
func (o *machineOptions) openCPU() (*cpu.Device, error) { return devices.OpenCPU(o.config(nil)) }

func (o *machineOptions) config(log *slog.Logger) devices.Config {
	return devices.Config{Threads: o.threads, OnePlane: o.actBits == 8, TrainBF16: o.trainBF16, Log: log}
}

// findModel returns the model directory that path means: itself, or the newest
// checkpoint of a language model that was trained there. A path that is neither gets a
// clear error early.
func findModel(path string) (string, error) {
	info, err := os.Stat(path)
	switch {
	case os.IsNotExist(err):
		return "", fmt.Errorf("model directory %s does not exist", path)
	case err != nil:
		return "", err
	case !info.IsDir():
		return "", fmt.Errorf("%s is a file: want a model directory with config.json and safetensors", path)
	}
	dir, err := checkpoints.Find(path)
	if err != nil {
		// It may exist but be unreadable.
		if _, err := os.Stat(filepath.Join(path, checkpoints.ConfigFile)); err != nil && !os.IsNotExist(err) {
			return "", err
		}
		return "", fmt.Errorf("%s has no config.json: want a model directory in Hugging Face layout", path)
	}
	return dir, nil
}
