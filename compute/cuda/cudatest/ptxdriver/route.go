//go:build gpu && linux && cgo

package ptxdriver

/*
#cgo LDFLAGS: -ldl
#include "route.h"
*/
import "C"

import (
	"errors"
	"fmt"
	"io"
	"sync"
	"time"
	"unsafe"

	"talf/compute/cuda/ptxtest"
)

// Options are how launches run.
type Options struct {
	Seed     uint64
	Truncate bool
	// Edit changes the PTX before it is read, if it is not nil.
	Edit func(ptx string) string
	// Compare runs every launch in the emulated driver as well, and results must have equal bits. It is of
	// no use together with Truncate.
	Compare bool
	// Faults is where errors are written, a line each.
	Faults io.Writer
}

// A Count is what a kernel has done.
type Count struct {
	Launches int
	Steps    int64 // instructions of warps
	Time     time.Duration
}

var state struct {
	sync.Mutex
	Options
	device *ptxtest.Device
	module *ptxtest.Module
	counts map[string]Count
}

// Install begins to run launches in package ptxtest. It is called before a device is opened, and once.
func Install(o Options) error {
	state.Lock()
	defer state.Unlock()
	if state.device != nil {
		return errors.New("the PTX is run already")
	}
	state.Options = o
	state.device = ptxtest.NewDevice(o.Seed)
	state.device.Truncate, state.device.Keep = o.Truncate, o.Compare
	state.counts = map[string]Count{}
	if C.talf_ptx_install() != 0 {
		return errors.New("libcuda.so.1 is not the emulated driver")
	}
	return nil
}

// Counts returns what every kernel that was launched has done.
func Counts() map[string]Count {
	state.Lock()
	defer state.Unlock()
	return state.counts
}

// The driver calls these one at a time.

//export talfPTXEvent
func talfPTXEvent(kind C.int, at, from, n C.uint64_t) C.int {
	state.Lock()
	defer state.Unlock()
	d := state.device
	switch kind {
	case 0:
		memory := *(**byte)(unsafe.Pointer(&at)) // C's, which does not move
		return failure(d.Map(uint64(at), unsafe.Slice(memory, int(n))))
	case 1:
		d.Unmap(uint64(at))
	case 2:
		return failure(d.Written(uint64(at), int(n)))
	case 3:
		return failure(d.Copied(uint64(at), uint64(from), int(n)))
	case 4:
		return failure(d.Read(uint64(at), int(n)))
	}
	return 0
}

//export talfPTXImage
func talfPTXImage(ptx *C.char) C.int {
	state.Lock()
	defer state.Unlock()
	if state.module != nil {
		return 0
	}
	text := C.GoString(ptx)
	if state.Edit != nil {
		text = state.Edit(text)
	}
	var err error
	state.module, err = ptxtest.Parse(text)
	return failure(err)
}

//export talfPTXLaunch
func talfPTXLaunch(name *C.char, args unsafe.Pointer, size C.uint64_t, grid *C.int, threads, behind C.int, native unsafe.Pointer) C.int {
	state.Lock()
	defer state.Unlock()
	k := state.module.Kernel(C.GoString(name))
	if k == nil {
		return failure(fmt.Errorf("there is no kernel %s", C.GoString(name)))
	}
	began, steps := time.Now(), state.device.Steps()
	g := unsafe.Slice(grid, 3)
	launch := state.device.Launch
	if behind != 0 {
		launch = state.device.LaunchBehind
	}
	err := launch(k, [3]int{int(g[0]), int(g[1]), int(g[2])}, int(threads), C.GoBytes(args, C.int(size)))
	c := state.counts[k.Name]
	state.counts[k.Name] = Count{c.Launches + 1, c.Steps + state.device.Steps() - steps, c.Time + time.Since(began)}
	if err == nil && state.Compare {
		ran := C.int(0)
		err = state.device.Compare(k, func() { ran = C.talf_ptx_native(native) })
		if ran != 0 {
			err = fmt.Errorf("%s fails in the emulated driver", k.Name)
		}
	}
	return failure(err)
}

// failure reports an error and returns what tells the driver of it.
func failure(err error) C.int {
	if err == nil {
		return 0
	}
	fmt.Fprintln(state.Faults, "ptx:", err)
	return 1
}
