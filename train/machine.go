package train

import (
	"errors"
	"fmt"

	"talf/checkpoints"
	"talf/compute"
	"talf/model/arch"
	"talf/train/dist"
	"talf/train/profile"
)

// A machine is what a run computes on.
type machine struct {
	queue compute.Queue
	ops   compute.TrainOps // the queue's
	peers *dist.Peers
	prof  *profile.Recorder // nil: not measured
}

// newMachine refuses a device and ranks that cannot run cfg. profileDir is "" for a run
// that is not profiled.
func newMachine(cfg Config, dev compute.Device, peers *dist.Peers, profileDir string) (machine, error) {
	m := machine{peers: peers}
	if n := peers.Size(); cfg.Accum%n != 0 {
		return m, fmt.Errorf("train: accum is %d, want a multiple of the %d ranks: the batches of a step are of all ranks together", cfg.Accum, n)
	}
	q := dev.Queue()
	if q.Abilities().Train == nil {
		return m, fmt.Errorf("device %s cannot train", dev.Name())
	}
	var err error
	if m.prof, m.queue, err = profile.New(profileDir, dev, q); err != nil {
		return m, err
	}
	remote := m.queue.Abilities().Remote != nil
	switch m.ops = m.queue.Abilities().Train; {
	case remote && !peers.Alone():
		return m, errors.New("train: several ranks train on CPUs: their gradients are added in the host's memory")
	case remote && cfg.DType == BF16:
		return m, errors.New("train: dtype is bf16, want f32 on a CUDA device, whose products alone may be in bfloat16 (--math)")
	}
	return m, nil
}

// trainer returns the trainer of a task. It opens the checkpoints in out on rank 0.
func (m machine) trainer(cfg Config, out string) (*trainer, error) {
	t := &trainer{machine: m, cfg: cfg, stages: cfg.Plan()}
	if m.peers.Rank() != 0 {
		return t, nil
	}
	var err error
	t.store, err = checkpoints.NewStore(out, cfg.Keep)
	return t, err
}

// fits refuses a head for which there is no memory, before any of it is taken: in float32 its weights, their gradients
// and two moments. What else a step needs depends on its batch and comes on top.
func fits(spec *arch.Spec, dev compute.Device) error {
	p := dev.Abilities().Plan
	if p == nil {
		p = dev.Abilities().Account
	}
	if p == nil {
		return nil
	}
	free, err := p.Free()
	if err != nil {
		return fmt.Errorf("train: %w", err)
	}
	weights := int64(0)
	for _, t := range spec.Tensors() {
		if !t.Optional { // the target's
			weights += int64(t.Rows) * int64(max(1, t.Cols))
		}
	}
	if need := 16 * weights; need > free {
		const gib = 1 << 30
		return fmt.Errorf("train: a head of %d weights takes %.1f GiB with gradients and moments, but %s has %.1f GiB free: want fewer layers, a smaller draft vocabulary or more memory",
			weights, float64(need)/gib, dev.Name(), float64(free)/gib)
	}
	return nil
}
