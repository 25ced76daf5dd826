//go:build gpu && linux && cgo

package cuda

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"gorgonia.org/cu"

	"talf/compute"
	"talf/compute/cuda/internal/driver"
)

// joined are devices whose buffers NCCL sums. One thread makes all calls, because NCCL makes the contexts of the
// devices current in turn.
type joined struct {
	devs   []*device
	clique *driver.Clique
	by     string
	work   chan func()
	broken error // the first failure of a sum; later sums are refused with it
}

// Join implements compute.Joiner by NCCL.
func (d *device) Join(devices []compute.Device) (compute.Sums, error) {
	j := &joined{work: make(chan func())}
	var ordinals []int
	for _, other := range devices {
		o, ok := other.(*device)
		if !ok {
			return nil, fmt.Errorf("cuda: NCCL sums buffers of CUDA devices, not of %s", other.Name())
		}
		j.devs, ordinals = append(j.devs, o), append(ordinals, o.cfg.Device)
	}
	go func() {
		runtime.LockOSThread() // the thread ends with the goroutine, and so does the context that NCCL left current
		for f := range j.work {
			f()
		}
	}()
	err := j.do(func() (err error) {
		if j.clique, err = driver.NewClique(ordinals); err == nil {
			j.by = "NCCL " + j.clique.Version()
		}
		return err
	})
	if err != nil {
		close(j.work)
		return nil, err
	}
	return j, nil
}

var errParted = errors.New("the devices are joined no more")

// do runs f on the thread.
func (j *joined) do(f func() error) error {
	if j.work == nil {
		return errParted
	}
	done := make(chan error)
	j.work <- func() { done <- caught(f) }
	return <-done
}

// By is, for example, "NCCL 2.27.3".
func (j *joined) By() string { return j.by }

// Sum implements compute.Sums.
func (j *joined) Sum(ctx context.Context, bufs [][]compute.Buffer) error {
	const op = "Sum"
	check(len(bufs) == len(j.devs), op, "devices", len(bufs), len(j.devs))
	of := make([][]driver.Operand, len(bufs))
	for d, bs := range bufs {
		check(len(bs) == len(bufs[0]), op, "buffers", len(bs), len(bufs[0]))
		for i, b := range bs {
			own := j.devs[d].bufferOf(op, b, compute.F32, 0)
			first := bufs[0][i].(*buffer)
			check(own.n == first.n, op, "elements of a buffer", own.n, first.n)
			if own.n > 0 {
				of[d] = append(of[d], driver.Operand{At: own.mem.ptr, N: own.n, Stream: j.devs[d].stream})
			}
		}
	}
	if len(of[0]) == 0 {
		return nil
	}
	err := j.do(func() error {
		if j.broken == nil {
			if j.broken = j.sum(ctx, of); j.broken != nil {
				_ = j.clique.Close(true) // the first error counts
				j.clique = nil
			}
		}
		return j.broken
	})
	runtime.KeepAlive(bufs)
	return err
}

// Waiting for a sum is polling at growing intervals. After an interrupt it goes on for a while, because the step may
// still end. That time is shorter than ranks then wait for each other (dist.Peers), so a sum has ended before any of
// them closes its device.
const (
	firstLook = 20 * time.Microsecond
	lastLook  = time.Millisecond
	sumGrace  = 5 * time.Second
)

// sum runs on the thread. It polls all devices until they are done: if one is lost, the others would never end.
func (j *joined) sum(ctx context.Context, of [][]driver.Operand) error {
	if err := j.clique.Sum(of); err != nil {
		return err
	}
	var deadline time.Time
	for pause := firstLook; ; pause = min(2*pause, lastLook) {
		busy := false
		for i, dev := range j.devs {
			still, err := j.look(i)
			if err != nil {
				return fmt.Errorf("device %d: %w", dev.cfg.Device, err)
			}
			busy = busy || still
		}
		switch {
		case !busy:
			return nil
		case ctx.Err() == nil:
		case deadline.IsZero():
			deadline = time.Now().Add(sumGrace)
		case time.Now().After(deadline):
			return fmt.Errorf("not done %v after an interruption: %w", sumGrace, context.Cause(ctx))
		}
		time.Sleep(pause)
	}
}

// look reports whether device i is busy.
func (j *joined) look(i int) (busy bool, _ error) {
	if err := j.clique.Failed(i); err != nil {
		return false, err
	}
	dev := j.devs[i]
	if err := cu.SetCurrentContext(dev.ctx); err != nil {
		return false, driver.Wrap(err)
	}
	err := driver.Wrap(dev.stream.Query())
	if errors.Is(err, driver.NotReady) {
		return true, nil
	}
	if err != nil {
		dev.fail(fmt.Errorf("sum over devices: %w", err))
	}
	return false, err
}

// Close disconnects the devices, of which none is closed.
func (j *joined) Close() error {
	if j.work == nil {
		return nil
	}
	err := j.do(func() error {
		if j.clique == nil {
			return nil
		}
		failed := false
		for _, d := range j.devs {
			failed = failed || d.failure() != nil
		}
		return j.clique.Close(failed)
	})
	close(j.work)
	j.work = nil
	return err
}
