//go:build gpu && linux && cgo

package cuda_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"talf/compute"
	"talf/compute/cpu"
	"talf/compute/cuda"
	"talf/compute/cuda/cudatest"
)

// withNCCL reports whether this process has the emulated NCCL and so many devices; if it has not, it runs the test in one that has.
func withNCCL(t *testing.T, devices int) bool {
	t.Helper()
	needsEmulated(t)
	const env = "TALF_CUDA_TEST_NCCL"
	if os.Getenv(env) != "" {
		return true
	}
	dir, err := cudatest.NCCL()
	if err != nil {
		t.Fatal(err)
	}
	out, err := again(t, t.Name(), dir, env+"=1", fmt.Sprint("TALF_FAKE_DEVICES=", devices))
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Log(out)
	return false
}

// devicesOf opens the first n devices and joins them.
func devicesOf(t *testing.T, n int) ([]compute.Device, compute.Sums) {
	t.Helper()
	var devs []compute.Device
	for i := range n {
		c := cuda.Default()
		c.Device, c.BF16 = i, true
		d, err := cuda.New(c)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { d.Close() })
		devs = append(devs, d)
	}
	sums, err := devs[0].Abilities().Join.Join(devs)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { sums.Close() })
	return devs, sums
}

// floatsOf returns buffers of these sizes on every device, and what is in them.
func floatsOf(t *testing.T, devs []compute.Device, sizes ...int) (bufs [][]compute.Buffer, in [][][]float32) {
	t.Helper()
	for d, dev := range devs {
		q := dev.Queue()
		var bs []compute.Buffer
		var xs [][]float32
		for i, n := range sizes {
			x := make([]float32, n)
			for e := range x {
				x[e] = float32(1+e%97+i) / float32(3+7*d+e%5)
			}
			bs, xs = append(bs, q.Abilities().Train.Host(x, n)), append(xs, x)
		}
		if err := q.Sync(t.Context()); err != nil {
			t.Fatal(err)
		}
		bufs, in = append(bufs, bs), append(in, xs)
	}
	return bufs, in
}

func readFloats(t *testing.T, dev compute.Device, b compute.Buffer) []float32 {
	t.Helper()
	x := make([]float32, b.Shape()[0])
	q := dev.Queue()
	q.Read(x, b, 0)
	if err := q.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	return x
}

// TestDevicesSumWithoutTheHost compares sums of devices with the host's: those of two have its bits, those of three another order's.
// Copies in bfloat16 of what is summed are stale.
func TestDevicesSumWithoutTheHost(t *testing.T) {
	if !withNCCL(t, 3) {
		return
	}
	for _, n := range []int{2, 3} {
		devs, sums := devicesOf(t, n)
		if sums.By() != "NCCL 2.27.3" {
			t.Errorf("by %q", sums.By())
		}
		sizes := []int{1, 64 * 64, 0, 1001}
		bufs, in := floatsOf(t, devs, sizes...)
		q := devs[0].Queue()
		m := compute.Mat{Buf: bufs[0][1], Rows: 64, Cols: 64, Stride: 64}
		c := q.Abilities().Train.Host(make([]float32, 64*64), 64, 64)
		q.Abilities().Train.Gemm(compute.Mat{Buf: c, Rows: 64, Cols: 64, Stride: 64}, m, m, 0)
		if err := q.Sync(t.Context()); err != nil || cuda.Halved(bufs[0][1]) == 0 {
			t.Fatalf("no copy in bfloat16: %v", err)
		}
		if err := sums.Sum(t.Context(), bufs); err != nil {
			t.Fatal(err)
		}
		if cuda.Halved(bufs[0][1]) != 0 {
			t.Error("a copy in bfloat16 outlives the sum")
		}
		same := true
		for i, size := range sizes {
			if size == 0 {
				continue
			}
			want := append([]float32(nil), in[0][i]...)
			for _, x := range in[1:] {
				for e, v := range x[i] {
					want[e] += v
				}
			}
			first := readFloats(t, devs[0], bufs[0][i])
			for d := range devs {
				if got := readFloats(t, devs[d], bufs[d][i]); !sameBits(got, first) {
					t.Errorf("%d devices, buffer %d: device %d has another sum", n, i, d)
				}
			}
			for e, v := range first {
				if diff := v - want[e]; diff > 1e-5*want[e] || -diff > 1e-5*want[e] {
					t.Fatalf("%d devices, buffer %d: element %d is %g, want %g", n, i, e, v, want[e])
				}
			}
			same = same && sameBits(first, want)
		}
		if same != (n == 2) {
			t.Errorf("%d devices: the bits of sums in the order of the devices: %v", n, same)
		}
	}
}

// A sum that fails, that a device is lost in, or that never ends is an error, which names the device if the library does; devices that
// are left can be used, and nothing is summed any more.
func TestSumsOfDevicesFail(t *testing.T) {
	if !withNCCL(t, 2) {
		return
	}
	for _, c := range []struct {
		kind, want string
		lost       int // −1: none
	}{
		{"f1,0", "NCCL: unhandled cuda error (result 1)", -1},
		{"h1,1", "device 1: NCCL: remote process exited", -1},
		{"l1,1", "device 1: ", 1}, // to the end of the process
	} {
		t.Setenv("TALF_FAKE_NCCL_PLANT", c.kind)
		devs, sums := devicesOf(t, 2)
		bufs, _ := floatsOf(t, devs, 100)
		for range 2 {
			if err := sums.Sum(t.Context(), bufs); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: %v, want %q", c.kind, err, c.want)
			}
		}
		for d := range devs {
			q := devs[d].Queue()
			q.Abilities().Remote.Clear(bufs[d][0], 100)
			if err := q.Sync(t.Context()); (err != nil) != (d == c.lost) {
				t.Errorf("%s: device %d: %v", c.kind, d, err)
			}
		}
		if err := sums.Close(); err != nil {
			t.Errorf("%s: close: %v", c.kind, err)
		}
	}
}

// Without the library, or where it does not start, there is a reason.
func TestDevicesThatAreNotJoined(t *testing.T) {
	needsEmulated(t)
	host, err := cpu.New(cpu.Default())
	if err != nil {
		t.Fatal(err)
	}
	defer host.Close()
	d := device(t)
	defer d.Close()
	if _, err := d.Abilities().Join.Join([]compute.Device{d}); err == nil || !strings.Contains(err.Error(), "there is no libnccl.so.2") {
		t.Errorf("without the library: %v", err)
	}
	if _, err := d.Abilities().Join.Join([]compute.Device{d, host}); err == nil || !strings.Contains(err.Error(), "of CUDA devices, not of") {
		t.Errorf("with the CPU: %v", err)
	}
}

func TestNCCLThatDoesNotStart(t *testing.T) {
	if !withNCCL(t, 2) {
		return
	}
	d := device(t)
	defer d.Close()
	t.Setenv("TALF_FAKE_NCCL_INIT", "2")
	if _, err := d.Abilities().Join.Join([]compute.Device{d}); err == nil || !strings.Contains(err.Error(), "NCCL: another error (result 2)") {
		t.Errorf("%v", err)
	}
	t.Setenv("TALF_FAKE_NCCL_INIT", "0")
	if _, err := d.Abilities().Join.Join([]compute.Device{d, d}); err == nil || !strings.Contains(err.Error(), "NCCL: another error (result 5)") {
		t.Errorf("one device twice: %v", err)
	}
}
