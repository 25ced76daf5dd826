//go:build gpu && linux && cgo

package driver

/*
#cgo CFLAGS: -I${SRCDIR}/include
#cgo LDFLAGS: -L${SRCDIR}/lib -ldl
#include "include/cuda.h"

const char *talf_driver_failure(void);
CUresult talf_driver_initialised(void);
const char *talf_driver_missing(int);

// A kernel takes one structure, whose bytes are at args.
static CUresult talf_launch(CUfunction f, unsigned x, unsigned y, unsigned z, unsigned threads, CUstream s, void *args) {
  void *params[1] = {args};
  return cuLaunchKernel(f, x, y, z, threads, 1, 1, 0, s, params, 0);
}

// It may begin before the one in front has ended.
static CUresult talf_launch_dependent(CUfunction f, unsigned x, unsigned y, unsigned z, unsigned threads, CUstream s, void *args) {
  CUlaunchAttribute early = {CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION};
  early.value.programmaticStreamSerializationAllowed = 1;
  CUlaunchConfig config = {x, y, z, threads, 1, 1, 0, s, &early, 1};
  void *params[1] = {args};
  return cuLaunchKernelEx(&config, f, params, 0);
}
*/
import "C"

import (
	"fmt"
	"reflect"
	"slices"
	"unsafe"

	"gorgonia.org/cu"
)

// An Error is an error code of the driver.
type Error int

// The results that callers distinguish.
const (
	OutOfMemory  Error = C.CUDA_ERROR_OUT_OF_MEMORY
	NotReady     Error = C.CUDA_ERROR_NOT_READY
	NotSupported Error = C.CUDA_ERROR_NOT_SUPPORTED
)

// meanings are the errors that users can do something about, in plain words.
var meanings = map[Error]string{
	OutOfMemory:                       "the device is out of memory",
	C.CUDA_ERROR_NO_DEVICE:            "there is no CUDA device",
	C.CUDA_ERROR_INVALID_DEVICE:       "there is no such CUDA device",
	C.CUDA_ERROR_NO_BINARY_FOR_GPU:    "the kernels are not for this device",
	C.CUDA_ERROR_INVALID_PTX:          "the driver does not understand the kernels, which are PTX 7.8: it is older than CUDA 11.8, or the device is",
	C.CUDA_ERROR_INVALID_SOURCE:       "the driver does not understand the kernels",
	NotSupported:                      "the driver lacks an entry point",
	C.CUDA_ERROR_ILLEGAL_ADDRESS:      "a kernel read or wrote outside its memory: the device is lost until the program ends",
	C.CUDA_ERROR_LAUNCH_FAILED:        "a kernel failed: the device is lost until the program ends",
	C.CUDA_ERROR_ECC_UNCORRECTABLE:    "the device's memory failed: the device is lost until the program ends",
	C.CUDA_ERROR_SYSTEM_NOT_READY:     "the system is not ready to use CUDA",
	C.CUDA_ERROR_NOT_INITIALIZED:      "the driver did not start",
	C.CUDA_ERROR_CONTEXT_IS_DESTROYED: "the device was closed",
}

// Error returns the meaning and the number.
func (e Error) Error() string {
	m, ok := meanings[e]
	if !ok {
		m = "the driver failed"
	}
	return fmt.Sprintf("%s (CUDA error %d)", m, int(e))
}

// Wrap turns an error of gorgonia.org/cu, which is the driver's number, into an
// Error.
func Wrap(err error) error {
	if v := reflect.ValueOf(err); v.Kind() == reflect.Int {
		return Error(v.Int())
	}
	return err
}

// Failure says why there is no driver, or returns "".
func Failure() string {
	if f := C.GoString(C.talf_driver_failure()); f != "" {
		return f
	}
	if r := Error(C.talf_driver_initialised()); r != 0 {
		return "cuInit: " + r.Error()
	}
	return ""
}

// Missing returns those of names that the driver lacks; without names, everything that it lacks.
func Missing(names ...string) []string {
	var m []string
	for k := 0; ; k++ {
		p := C.talf_driver_missing(C.int(k))
		if p == nil {
			return m
		}
		if n := C.GoString(p); len(names) == 0 || slices.Contains(names, n) {
			m = append(m, n)
		}
	}
}

// Used are the entry points that package cuda requires.
var Used = []string{
	"cuDeviceGet", "cuDeviceGetName", "cuDeviceGetAttribute", "cuDeviceTotalMem_v2", "cuDevicePrimaryCtxRetain",
	"cuDevicePrimaryCtxRelease_v2", "cuCtxSetCurrent", "cuMemGetInfo_v2", "cuMemAlloc_v2", "cuMemFree_v2",
	"cuMemHostAlloc", "cuMemFreeHost", "cuMemcpyHtoDAsync_v2", "cuMemcpyDtoHAsync_v2", "cuMemcpyDtoDAsync_v2",
	"cuMemsetD8Async", "cuModuleLoadData", "cuModuleUnload", "cuModuleGetFunction", "cuStreamCreate",
	"cuStreamSynchronize", "cuStreamDestroy_v2", "cuLaunchKernel", "cuEventCreate", "cuEventRecord",
	"cuEventSynchronize", "cuEventElapsedTime", "cuEventDestroy_v2",
}

// Graphs are the entry points that graphs need in addition to Used.
var Graphs = []string{
	"cuStreamBeginCapture_v2", "cuStreamEndCapture", "cuGraphInstantiateWithFlags", "cuGraphLaunch", "cuGraphDestroy", "cuGraphExecDestroy",
}

// Dependent are the entry points that LaunchDependent needs in addition to Used.
var Dependent = []string{"cuLaunchKernelEx"}

// A Graph is a set of launches that the driver keeps and starts in one call.
type Graph struct{ exec C.CUgraphExec }

// Capture records a graph of what f does on s, without running it. Work of other threads in the
// meantime is not part of it.
func Capture(s cu.Stream, f func() error) (Graph, error) {
	stream := *(*C.CUstream)(unsafe.Pointer(&s))
	if r := C.cuStreamBeginCapture_v2(stream, C.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL); r != 0 {
		return Graph{}, fmt.Errorf("begin to capture a graph: %w", Error(r))
	}
	err := f()
	var captured C.CUgraph
	r := C.cuStreamEndCapture(stream, &captured)
	if captured != nil {
		defer C.cuGraphDestroy(captured)
	}
	switch {
	case err != nil:
		return Graph{}, fmt.Errorf("capture a graph: %w", err)
	case r != 0:
		return Graph{}, fmt.Errorf("capture a graph: %w", Error(r))
	}
	var g Graph
	if r := C.cuGraphInstantiateWithFlags(&g.exec, captured, 0); r != 0 {
		return Graph{}, fmt.Errorf("make a graph: %w", Error(r))
	}
	return g, nil
}

// Launch starts everything in g, in order.
func (g Graph) Launch(s cu.Stream) error {
	if r := C.cuGraphLaunch(g.exec, *(*C.CUstream)(unsafe.Pointer(&s))); r != 0 {
		return Error(r)
	}
	return nil
}

// Destroy frees g, which may be running.
func (g Graph) Destroy() error {
	if r := C.cuGraphExecDestroy(g.exec); r != 0 {
		return Error(r)
	}
	return nil
}

// Launch starts a kernel that takes one structure by value. Its fields are args,
// which are copied before Launch returns.
func Launch(f cu.Function, grid [3]uint32, threads uint32, s cu.Stream, args []uint64) error {
	r := C.talf_launch(*(*C.CUfunction)(unsafe.Pointer(&f)), C.uint(grid[0]), C.uint(grid[1]), C.uint(grid[2]), C.uint(threads),
		*(*C.CUstream)(unsafe.Pointer(&s)), unsafe.Pointer(&args[0]))
	if r != 0 {
		return Error(r)
	}
	return nil
}

// LaunchDependent is Launch of a kernel that may begin before the one in front of it on the stream has ended, and waits for that itself
// (programmatic dependent launch).
func LaunchDependent(f cu.Function, grid [3]uint32, threads uint32, s cu.Stream, args []uint64) error {
	r := C.talf_launch_dependent(*(*C.CUfunction)(unsafe.Pointer(&f)), C.uint(grid[0]), C.uint(grid[1]), C.uint(grid[2]), C.uint(threads),
		*(*C.CUstream)(unsafe.Pointer(&s)), unsafe.Pointer(&args[0]))
	if r != 0 {
		return Error(r)
	}
	return nil
}

// HostAlloc returns n bytes of page-locked memory outside the Go heap, which copies to and from
// the device need not stage.
func HostAlloc(n int) ([]byte, error) {
	var p unsafe.Pointer
	if r := C.cuMemHostAlloc(&p, C.size_t(n), 0); r != 0 {
		return nil, Error(r)
	}
	return unsafe.Slice((*byte)(p), n), nil
}

// HostFree frees what HostAlloc returned.
func HostFree(b []byte) error {
	if r := C.cuMemFreeHost(unsafe.Pointer(&b[0])); r != 0 {
		return Error(r)
	}
	return nil
}
