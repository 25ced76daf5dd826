//go:build gpu && linux && cgo

package cuda_test

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"talf/compute"
	"talf/compute/cpu"
	"talf/compute/cuda"
)

func TestTheRateOfACopyIsMeasured(t *testing.T) {
	d := device(t)
	defer d.Close()
	before, err := d.Abilities().Plan.Free()
	if err != nil {
		t.Fatal(err)
	}
	rate, err := cuda.CopyRate(d)
	if err != nil || !(rate > 1e6) {
		t.Errorf("%g bytes a second, %v", rate, err)
	}
	if after, err := d.Abilities().Plan.Free(); err != nil || after != before {
		t.Errorf("%d bytes are free, before it were %d; %v", after, before, err)
	}
	host, err := cpu.New(cpu.Default())
	if err != nil {
		t.Fatal(err)
	}
	defer host.Close()
	if _, err := cuda.CopyRate(host); err == nil || !strings.Contains(err.Error(), "of CUDA devices alone") {
		t.Errorf("of the CPU: %v", err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := cuda.CopyRate(d); err == nil || !strings.Contains(err.Error(), "the device is closed") {
		t.Errorf("of a closed device: %v", err)
	}
}

func TestTheRoomiestDeviceIsFound(t *testing.T) {
	needsEmulated(t)
	for _, c := range []struct {
		devices, busy, compute string
		want                   int
	}{
		{"0", "", "90", -1},
		{"2", "", "75", -1},
		{"1", "900000000", "90", 0},
		{"3", "", "90", 0},
		{"3", "5000,3000,4000", "90", 1},
		{"3", "5000,3000,3000", "90", 1},
		{"4", "5000,3000,4000", "90", 3},
	} {
		t.Setenv("TALF_FAKE_DEVICES", c.devices)
		t.Setenv("TALF_FAKE_BUSY", c.busy)
		t.Setenv("TALF_FAKE_COMPUTE", c.compute)
		if got := cuda.Roomiest(); got != c.want {
			t.Errorf("%+v: device %d", c, got)
		}
	}
}

// One device may be opened several times: neither work on one of them nor closing it affects the
// others.
func TestADeviceIsOpenedTwice(t *testing.T) {
	a, b := device(t), device(t)
	x := make([]float32, 64*1024)
	r := rand.New(rand.NewPCG(1, 2))
	for i := range x {
		x[i] = float32(r.NormFloat64())
	}
	run := func(d compute.Device) (y []float32, err error) {
		in, err := d.Alloc(compute.F32, 64, 1024)
		if err != nil {
			return nil, err
		}
		out, err := d.Alloc(compute.F32, 64, 512)
		if err != nil {
			return nil, err
		}
		q := d.Queue()
		q.Write(in, x)
		q.SwiGLU(out, in, 64)
		y = make([]float32, 64*512)
		q.Read(y, out, 0)
		return y, q.Sync(t.Context())
	}
	want, err := run(a)
	if err != nil {
		t.Fatal(err)
	}
	same := func(what string, devices ...compute.Device) {
		done := make(chan bool)
		for _, d := range devices {
			go func() {
				for range 3 {
					if got, err := run(d); err != nil || !slices.Equal(got, want) {
						t.Errorf("%s: %v", what, err)
					}
				}
				done <- true
			}()
		}
		for range devices {
			<-done
		}
	}
	same("side by side", a, b, a, b)
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	same("after the other was closed", b)
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	c := device(t)
	defer c.Close()
	same("opened again", c)
}
