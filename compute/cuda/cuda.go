// Package cuda runs compute's operations on an NVIDIA GPU through the driver alone.
// Kernels are embedded as PTX, and nothing of NVIDIA's is needed to build. Programs
// include it if they are built for Linux with the tag gpu and cgo; in others New and
// Examine report that they do not.
//
// One goroutine owns the device's context and its one stream, and queues hand it
// their work, so an operation returns long before the device has run it. Weights are
// stored in the order in which tensor cores read them. Activations have two bfloat16 planes, 16
// bits; Config.Planes can reduce those of BF16 weights to one. F32 weights are multiplied in f32.
//
// The order of every reduction depends only on the weight's shape and the row's length,
// so a row's bits do not depend on the other rows. They differ from the CPU's.
package cuda

import (
	"errors"
	"fmt"
	"log/slog"
)

// OverlapVariable names the environment variable whose value "1" sets Config.Overlap for every device.
const OverlapVariable = "TALF_CUDA_OVERLAP"

// A Config says which device to use.
type Config struct {
	Device   int  // ordinal
	NoGraphs bool // launch every kernel by itself
	// Overlap lets a kernel of a pass begin before its predecessors have ended, from compute capability 9.0
	// on; the kernel itself waits for them (programmatic dependent launch). The bits are the same. It is off by
	// default because it has not run on a real driver yet.
	Overlap bool
	// Log, unless nil, gets a warning if the driver lacks what makes decoding fast.
	Log *slog.Logger
	// BF16 rounds the factors of training's products, and of its attention, to bfloat16, for tensor cores; sums are in
	// f32. Decoding follows its weights' types.
	BF16 bool
	// NoCopies makes such products round floats on every load instead of keeping bfloat16 copies of weights,
	// activations and gradients. That is slower and saves the copies' memory, half of the originals'. The bits are
	// the same.
	NoCopies bool
	// BLAS lets cuBLAS compute large products of training where the library is found, which
	// compute.DeviceAbilities.Training reports. Their last bits are then the library's. With BF16 it multiplies the
	// copies.
	BLAS bool
	// BLASFrom is the fewest multiplications of a product that cuBLAS computes; 0 stands for 2²⁰.
	BLASFrom int64
	// Planes is the number of bfloat16 planes of the activations that BF16 weights are multiplied by: 2 (or 0) for
	// 16 bits, 1 for 8 bits and half of the tensor cores' work. It holds for all rows of all passes, so that a row's
	// bits do not depend on other rows. Other weights, attention and training always use their own precision.
	Planes int
}

// Default returns the first device.
func Default() Config { return Config{} }

// Validate reports what New would refuse whatever the machine.
func (c Config) Validate() error {
	if c.Device < 0 {
		return fmt.Errorf("cuda: device %d, want 0 or more", c.Device)
	}
	if c.Planes < 0 || c.Planes > 2 {
		return fmt.Errorf("cuda: %d planes of activations, want 1 or 2", c.Planes)
	}
	if c.BLAS && c.BF16 && c.NoCopies {
		return errors.New("cuda: no copies in bfloat16, which cuBLAS multiplies")
	}
	return nil
}

// A Report is what Examine finds.
type Report struct {
	Built   bool     // this program was built with the tag gpu
	Driver  string   // version of CUDA that the driver speaks, "" without one
	Missing []string // entry points that are needed and missing
	Reason  string   // why there are no devices, "" if there are some
	Devices []Info
}

// Info describes a device.
type Info struct {
	Name         string
	Major, Minor int // compute capability
	SMs          int // streaming multiprocessors
	Memory       int64
	Reason       string // why the device cannot be used, "" if it can
}

// Arithmetic returns the Arithmetic of a device that i describes.
func (i *Info) Arithmetic() string { return fmt.Sprintf("cuda sm_%d%d", i.Major, i.Minor) }
