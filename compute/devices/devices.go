// Package devices is the table of the devices that a program can run on. Programs
// parse names of devices, open them and report on them by this table and name no
// device themselves: a new one is an entry in kinds.
package devices

import (
	"fmt"
	"log/slog"

	"talf/compute"
	"talf/compute/cpu"
	"talf/compute/cpu/kern"
	"talf/compute/cuda"
	"talf/internal/hint"
)

// A Config says how a device computes, whichever it is. The zero Config is valid.
type Config struct {
	Threads int // of the CPU; 0: one for each core that it finds
	ActBits int // of the CPU: see cpu.Config; other devices refuse 8
	// Weights is the type of the weights that are to be loaded, if it is known: only the CPU has BF16DP, and Log is
	// told where that is slow.
	Weights compute.DType
	// ActPlanes is how many bfloat16 planes of activations a GPU multiplies bf16 weights by: see
	// cuda.Config. 1 is refused unless Weights is BF16, and by the CPU, which has one way to multiply them.
	ActPlanes int
	// TrainBF16 rounds what training multiplies to bfloat16; the CPU refuses it.
	TrainBF16 bool
	// TrainBLAS lets a vendor's library compute large products of training where it is found; the CPU has none.
	TrainBLAS bool
	// Log, unless nil, gets a warning of what costs time on this machine.
	Log *slog.Logger
}

// A kind is a family of devices: all of one implementation.
type kind struct {
	name string // of the devices "name:N"
	api  string // what their driver speaks, for people
	open func(ordinal int, c Config) (compute.Device, error)
	// roomiest returns the ordinal of the device with the most free memory, −1 if there
	// is none to use.
	roomiest func() int
	examine  func() Report
	// try opens a device as Open does and measures it.
	try func(ordinal int, i *Info) error
}

// kinds are the devices beside the CPU. "auto" takes the first kind that has one.
func kinds() []kind {
	return []kind{{
		name: "cuda", api: "CUDA", open: openCUDA, roomiest: cuda.Roomiest, examine: examineCUDA, try: tryCUDA,
	}}
}

// Open opens the device that n names here. "auto" is resolved first.
func Open(n Name, c Config) (compute.Device, error) {
	n = n.Resolve()
	k, ordinal, ok := n.find()
	if !ok {
		if c.TrainBF16 {
			return nil, fmt.Errorf("devices: the CPU does not multiply in bfloat16 when it trains")
		}
		if c.ActPlanes == 1 {
			return nil, fmt.Errorf("devices: one plane of activations is for GPUs: the CPU has one way to multiply bf16 weights")
		}
		return OpenCPU(c)
	}
	if c.ActBits == 8 {
		return nil, fmt.Errorf("devices: activations of 8 bits are for the CPU, %s has 16", n)
	}
	if c.Weights == compute.BF16DP {
		return nil, fmt.Errorf("devices: weights as bf16dp are for the CPU, %s has bf16", n)
	}
	if c.ActPlanes == 1 && c.Weights != compute.BF16 {
		return nil, hint.Errorf("{dtype} bf16 makes them so", "devices: one plane of activations is for weights in bf16")
	}
	return k.open(ordinal, c)
}

// OpenCPU opens the CPU.
func OpenCPU(c Config) (*cpu.Device, error) {
	cfg := cpu.Default()
	if c.Threads > 0 {
		cfg.Threads = c.Threads
	}
	cfg.ActBits = c.ActBits
	d, err := cpu.New(cfg)
	if err != nil {
		return nil, fmt.Errorf("open the CPU device: %w", err)
	}
	if c.Weights == compute.BF16DP && d.Pairs() == "" && c.Log != nil {
		c.Log.Warn("weights as bf16dp are multiplied in plain Go here, many times slower than bf16: no instruction of this processor, or of the class that "+kern.EnvClass+" names, computes their bits", "device", d.Name())
	}
	return d, nil
}
