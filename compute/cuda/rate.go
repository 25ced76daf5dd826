//go:build gpu && linux && cgo

package cuda

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"

	"gorgonia.org/cu"

	"talf/compute"
	"talf/compute/cuda/internal/driver"
)

// Sizes and times of CopyRate. A piece is larger than any cache unless the device is
// slow or full, and a sample has so many copies that the final wait hardly counts.
const (
	leastPiece  = 1 << 20
	mostPiece   = 256 << 20
	copies      = 16
	samples     = 3
	longSample  = 20 * time.Millisecond
	shareOfFree = 4 // that two pieces take at most
)

// CopyRate returns the bytes per second that the driver reads and writes in a copy within the
// memory of a device of this package, the best of a few samples. It is the bound with which
// products that read weights are compared. It allocates memory and frees it again.
func CopyRate(dev compute.Device) (float64, error) {
	d, ok := dev.(*device)
	if !ok {
		return 0, errors.New("cuda: the rate of a copy: of CUDA devices alone")
	}
	var rate float64
	err := d.do(func() (err error) {
		if err := d.failure(); err != nil {
			return err
		}
		rate, err = d.copyRate()
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("cuda: measure a copy on device %d: %w", d.cfg.Device, err)
	}
	return rate, nil
}

// copyRate runs on the owner.
func (d *device) copyRate() (float64, error) {
	free, _, err := cu.MemInfo()
	if err != nil {
		return 0, driver.Wrap(err)
	}
	for size := int64(leastPiece); ; size *= 4 {
		seconds, err := d.copySeconds(size)
		if err != nil {
			return 0, err
		}
		if 4*size > mostPiece || 2*4*size > free/shareOfFree || seconds > longSample.Seconds() {
			return 2 * copies * float64(size) / seconds, nil
		}
	}
}

// copySeconds returns the shortest time in seconds of a sample of copies of size bytes.
func (d *device) copySeconds(size int64) (least float64, err error) {
	var b [2]block
	for i := range b {
		b[i].size = size
		if err := d.take(&b[i], true); err != nil {
			return 0, err
		}
		defer d.free(b[i].ptr)
	}
	for i := range samples + 1 { // the first warms up
		since := time.Now()
		for range copies {
			if err := cu.MemcpyDtoDAsync(cu.DevicePtr(b[1].ptr), cu.DevicePtr(b[0].ptr), size, d.stream); err != nil {
				return 0, driver.Wrap(err)
			}
		}
		if err := driver.Wrap(d.stream.Synchronize()); err != nil {
			d.fail(fmt.Errorf("copy: %w", err))
			return 0, err
		}
		if s := time.Since(since).Seconds(); i == 1 || i > 1 && s < least {
			least = s
		}
	}
	return least, nil
}

// Roomiest returns the ordinal of the usable device with the most free memory, the first among
// equals, or −1 if none can be used. The memory of a single device is not queried.
func Roomiest() int {
	r := Examine()
	if r.Reason != "" {
		return -1
	}
	var usable []int
	for i := range r.Devices {
		if r.Devices[i].Reason == "" {
			usable = append(usable, i)
		}
	}
	switch len(usable) {
	case 0:
		return -1
	case 1:
		return usable[0]
	}
	// Free memory is known only within a device's context, which takes a while to create.
	free := make([]int64, len(usable))
	var asked sync.WaitGroup
	for i, n := range usable {
		asked.Go(func() { free[i] = freeOf(n) })
	}
	asked.Wait()
	best := 0
	for i := range free {
		if free[i] > free[best] {
			best = i
		}
	}
	return usable[best]
}

// freeOf returns the free memory of device n, or −1 if it cannot be queried: another
// process may own the device exclusively.
func freeOf(n int) int64 {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	dev, err := cu.GetDevice(n)
	if err != nil {
		return -1
	}
	ctx, err := dev.RetainPrimaryCtx()
	if err != nil {
		return -1
	}
	defer func() { _ = dev.ReleasePrimaryCtx() }()
	if err := cu.SetCurrentContext(ctx); err != nil {
		return -1
	}
	free, _, err := cu.MemInfo()
	if err != nil {
		return -1
	}
	return free
}
