package plan

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"talf/compute"
	"talf/compute/devices"
	"talf/internal/hint"
	"talf/internal/launch"
)

// F32 and BF16 are the types of Place.Math and Place.DType.
const F32, BF16 = "f32", "bf16"

// A Place says what a run trains on.
type Place struct {
	Devices    devices.Names
	Math       string // type in which devices multiply
	DType      string // of the activations that wait for the backward pass
	CUBLAS     bool   // may compute large products on CUDA devices
	NCCL       bool   // may sum gradients of several CUDA devices
	Online     bool   // texts are labelled while training reads them
	Unresolved bool   // nothing will run, so the devices need not be there
}

// Check refuses what the devices cannot do, before anything is read.
func (p *Place) Check() error {
	switch {
	case p.Math != F32 && p.Math != BF16:
		return fmt.Errorf("math is %q, want %s or %s", p.Math, F32, BF16)
	case p.DType != F32 && p.DType != BF16:
		return fmt.Errorf("dtype is %q, want %s or %s", p.DType, F32, BF16)
	case p.Math == BF16 && p.Devices.String() == string(devices.CPU):
		return hint.Errorf("{device} names one", "math bf16 is for CUDA devices")
	case p.Unresolved:
		return nil
	}
	on, err := p.Devices.Resolve()
	if err != nil {
		return fmt.Errorf("device: %w", err)
	}
	switch d := on[0]; {
	case p.Math == BF16 && !d.Remote():
		return errors.New("math bf16 is for CUDA devices, and none was found")
	case p.DType == BF16 && d.Remote():
		return hint.Errorf("{math} bf16 multiplies in bfloat16 there", "dtype bf16 is for the CPU, not for %s", d)
	}
	return nil
}

// On returns the devices that each of the ranks trains on, at least one. One process trains on all that there are. Of
// several ranks, which a launcher started with env, each has one: the device whose place among p's is the rank's among
// those of its machine. auto selects CPUs for them.
func (p *Place) On(ranks int, env launch.Env) (devices.Names, error) {
	first := append(slices.Clone(p.Devices), devices.CPU)[0]
	switch {
	case ranks > 1 && p.Online:
		return nil, fmt.Errorf("labelling while training: each of %d ranks would label all of the text: use preprocess, or start one process", ranks)
	case ranks > 1 && (first == devices.Auto || first == devices.CPU):
		if p.Math == BF16 {
			return nil, hint.Errorf("{device} names CUDA devices for them", "math %s is for CUDA devices, and with device %s %d ranks train on CPUs", p.Math, &p.Devices, ranks)
		}
		return devices.Names{devices.CPU}, nil
	}
	on, err := p.Devices.Resolve()
	switch {
	case err != nil:
		return nil, fmt.Errorf("device: %w", err)
	case ranks == 1 && len(on) > 1 && p.Online:
		return nil, fmt.Errorf("labelling while training: each of %d devices would label all of the text: use preprocess, or take one device", len(on))
	case ranks == 1:
		return on, nil
	}
	at, found, err := launch.Local(env)
	switch {
	case err != nil:
		return nil, err
	case !found:
		return nil, fmt.Errorf("device %s: the launcher does not tell ranks their places on their machine, by which they share devices out: Open MPI, MPICH and Slurm do", &p.Devices)
	case at >= len(on):
		return nil, fmt.Errorf("device %s: there is no device for rank %d of this machine, counted from 0: start as many ranks on a machine as devices are named", &p.Devices, at)
	}
	return on[at : at+1], nil
}

// Log logs what computes large products on a device that may have a library for them.
func (p *Place) Log(log *slog.Logger, dev compute.Device) {
	library := dev.Abilities().Training
	if library == nil {
		return
	}
	by, why := library.TrainsWith()
	switch {
	case !p.CUBLAS:
		by = "the device's own: cuBLAS is turned off"
	case why != nil:
		by = "the device's own: " + why.Error()
	}
	log.Info("training", "device", dev.Name(), "math", p.Math, "products", by)
}

// Joined returns what a run of several devices tells what sums their gradients; nil: the host is to sum them.
func (p *Place) Joined(log *slog.Logger) func(by string, why error) {
	if !p.NCCL {
		return nil
	}
	return func(by string, why error) {
		if why != nil {
			by = "the host: " + why.Error()
		}
		log.Info("training", "devices", p.Devices.String(), "gradients", by)
	}
}
