package train

import (
	"fmt"

	"talf/checkpoints"
	"talf/compute"
	"talf/internal/hint"
	"talf/train/dist"
)

// A machine is what a run computes on.
type machine struct {
	dev   compute.Device
	queue compute.Queue
	ops   compute.TrainOps // the queue's
	peers *dist.Peers
	// remote says that the device has memory of its own, to and from which values are copied.
	remote bool
}

// newMachine refuses a device and ranks that cannot run cfg.
func newMachine(cfg Config, dev compute.Device, peers *dist.Peers) (machine, error) {
	m := machine{dev: dev, peers: peers}
	if n := peers.Size(); cfg.Accum%n != 0 {
		return m, fmt.Errorf("train: accum is %d, want a multiple of the %d ranks: the batches of a step are of all ranks together", cfg.Accum, n)
	}
	m.queue = dev.Queue()
	if m.queue.Abilities().Train == nil {
		return m, fmt.Errorf("device %s cannot train", dev.Name())
	}
	m.ops, m.remote = m.queue.Abilities().Train, m.queue.Abilities().Remote != nil
	if m.remote && cfg.DType == BF16 {
		return m, hint.Errorf("{math} bf16 makes them so", "train: dtype is bf16, want f32 on a CUDA device, whose products alone may be in bfloat16")
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
