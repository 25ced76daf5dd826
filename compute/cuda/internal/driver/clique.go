//go:build gpu && linux && cgo

package driver

/*
#include "clique.h"
*/
import "C"

import (
	"errors"
	"fmt"
	"unsafe"

	"gorgonia.org/cu"
)

// A Clique is NCCL's communicators of several devices, in the order in which they were given. One thread uses it.
type Clique struct{ comms []unsafe.Pointer }

// An Operand is n floats of a device, which has work on a stream.
type Operand struct {
	At     uint64
	N      int
	Stream cu.Stream
}

func ncclError(r C.int) error {
	if r == 0 {
		return nil
	}
	return fmt.Errorf("NCCL: %s (result %d)", C.GoString(C.talf_nccl_error(r)), int(r))
}

// NewClique binds the library, unless it is bound already, and connects the devices with these ordinals.
func NewClique(devices []int) (*Clique, error) {
	loading.Lock()
	why := C.talf_nccl_load()
	loading.Unlock()
	if why != nil {
		return nil, errors.New(C.GoString(why))
	}
	list := make([]C.int, len(devices))
	for i, d := range devices {
		list[i] = C.int(d)
	}
	c := &Clique{comms: make([]unsafe.Pointer, len(devices))}
	if err := ncclError(C.talf_nccl_open(&c.comms[0], C.int(len(list)), &list[0])); err != nil {
		return nil, err
	}
	return c, nil
}

// Version returns, for example, "2.27.3".
func (c *Clique) Version() string {
	var v C.int
	C.talf_nccl_version(&v)
	// Until 2.8, a version had a digit less.
	if v < 10000 {
		return fmt.Sprintf("%d.%d.%d", v/1000, v/100%10, v%100)
	}
	return fmt.Sprintf("%d.%d.%d", v/10000, v/100%100, v%100)
}

// Sum queues, for every i, the replacement of operands of[d][i] of all devices d by their sum, all in one group. Every
// device has the same number of operands, of the same lengths.
func (c *Clique) Sum(of [][]Operand) error {
	if err := ncclError(C.talf_nccl_start()); err != nil {
		return err
	}
	var first error
	for i := range of[0] {
		for d, comm := range c.comms {
			o := of[d][i]
			if err := ncclError(C.talf_nccl_sum(comm, C.ulonglong(o.At), C.size_t(o.N), *(*unsafe.Pointer)(unsafe.Pointer(&o.Stream)))); err != nil && first == nil {
				first = err
			}
		}
	}
	// A group that was started has to end, whatever is in it.
	if err := ncclError(C.talf_nccl_end()); first == nil {
		first = err
	}
	return first
}

// Failed returns the error of what device d has in progress, nil if there is none so far.
func (c *Clique) Failed(d int) error { return ncclError(C.talf_nccl_async(c.comms[d])) }

// Close disconnects the devices. What is in progress is waited for or, with abort, ended.
func (c *Clique) Close(abort bool) error {
	how := C.int(0)
	if abort {
		how = 1
	}
	var errs []error
	for _, comm := range c.comms {
		errs = append(errs, ncclError(C.talf_nccl_close(comm, how)))
	}
	c.comms = nil
	return errors.Join(errs...)
}
