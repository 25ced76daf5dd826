//go:build gpu && linux && cgo

package cuda_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	"talf/compute"
	"talf/compute/cuda"
	"talf/compute/cuda/cudatest"
)

const envVictim = "TALF_CUDA_VICTIM"

// TestVictim is the process that TestFailuresAreClear plants failures in. It
// opens the device, takes memory, computes, and prints the first errors.
func TestVictim(t *testing.T) {
	if os.Getenv(envVictim) == "" {
		t.Skip("runs in processes of other tests")
	}
	d, err := cuda.New(cuda.Default())
	if err != nil {
		fmt.Println("new:", err)
		return
	}
	defer d.Close()
	q := d.Queue()
	x, err := d.Alloc(compute.F32, 64, 1024)
	if err != nil {
		fmt.Println("alloc:", err)
		return
	}
	for range 3 {
		q.SwiGLU(x, x, 4)
	}
	if err := q.Sync(context.Background()); err != nil {
		fmt.Println("sync:", err)
	}
	// Operations after a failure fail as well, and do not hang.
	host := []float32{42}
	q.Write(x, host)
	q.Read(host, x, 0)
	fmt.Println("again:", q.Sync(context.Background()), host)
	_, err = d.Alloc(compute.F32, 8)
	fmt.Println("more:", err)
}

func TestFailuresAreClear(t *testing.T) {
	needsEmulated(t)
	old, err := cudatest.Driver(cudatest.Kernels(), "-O0", "-DOLD_DRIVER")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		dir  string
		env  string
		want []string
	}{
		{"no driver", "", "LD_LIBRARY_PATH=", []string{"new: cuda: libcuda.so.1: cannot open"}},
		{"an old driver", old, "", []string{"new: cuda: the driver, for CUDA 12.8, is too old: it lacks cuMemHostAlloc"}},
		{"a driver that does not start", "", "TALF_FAKE_INIT=802", []string{"new: cuda: cuInit: the system is not ready to use CUDA (CUDA error 802)"}},
		{"no device", "", "TALF_FAKE_DEVICES=0", []string{"new: cuda: the driver finds no device"}},
		{"an old device", "", "TALF_FAKE_COMPUTE=75", []string{"new: cuda: device 0, emulated device: compute capability 7.5, want 8.0 or more"}},
		{"kernels that the driver does not know", "", "TALF_FAKE_IMAGE=218", []string{"load the kernels: the driver does not understand the kernels", "CUDA error 218"}},
		{"too little memory", "", "TALF_FAKE_MEMORY=200000", []string{
			"alloc: cuda: a buffer of F32 [64 1024] need 262144 bytes, but 200000 bytes of 200000 bytes of the device are free",
		}},
		{"a device that is lost", "", "TALF_FAKE_LOST=2", []string{
			"sync: cuda: launch swiglu: a kernel read or wrote outside its memory: the device is lost until the program ends (CUDA error 700)",
			"again: cuda: launch swiglu", "[42]", "more: cuda: launch swiglu",
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			out, err := again(t, "TestVictim", c.dir, envVictim+"=1", c.env)
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			if c.name == "no driver" && strings.Contains(out, "more:") {
				t.Skip("this machine has a driver")
			}
			for _, want := range c.want {
				if !strings.Contains(out, want) {
					t.Errorf("printed\n%s\nwithout %q", out, want)
				}
			}
		})
	}
}

func TestNewRefusesDevicesThatAreNotThere(t *testing.T) {
	for device, want := range map[int]string{-1: "want 0 or more", 99: "no device 99"} {
		if _, err := cuda.New(cuda.Config{Device: device}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("device %d: %v, want %q", device, err, want)
		}
	}
}

func TestMemoryThatNobodyRefersToIsTakenBack(t *testing.T) {
	needsEmulated(t) // whose size is known
	d := device(t)
	defer d.Close()
	// 64 MiB per piece, 2 GiB in total, on a device of 1 GiB.
	for range 32 {
		if _, err := d.Alloc(compute.F32, 16<<20); err != nil {
			t.Fatal(err)
		}
	}
}
