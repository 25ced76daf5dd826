package plan

import (
	"errors"
	"testing"

	"talf/compute"
	"talf/train/dist"
)

// other is a device whose products have last bits of their own, unless it is "".
type other struct {
	compute.Device
	name    string
	library string
}

func (b other) Arithmetic() string { return b.name }

func (b other) Abilities() compute.DeviceAbilities { return compute.DeviceAbilities{Training: b} }

func (b other) TrainsWith() (string, error) {
	if b.library == "" {
		return "", errors.New("there is none")
	}
	return b.library, nil
}

// world is a group of processes.
type world struct{ *dist.Member }

func (world) By() string { return "MPI" }

func TestOnlyArithmeticUnlikeTheCPUsIsNamed(t *testing.T) {
	for _, c := range []struct{ name, library, math, want string }{
		{"", "", "f32", ""},
		{"", "", "bf16", ""},
		{"cuda sm_90", "", "f32", "cuda sm_90 f32"},
		{"cuda sm_90", "cuBLAS 12.8.4", "f32", "cuda sm_90 f32, cuBLAS 12.8.4"},
		{"cuda sm_90", "cuBLAS 12.8.4", "bf16", "cuda sm_90 bf16 (version 2), cuBLAS 12.8.4"},
		// "cuda sm_90 bf16" has other bits: attention was in f32.
		{"cuda sm_90", "", "bf16", "cuda sm_90 bf16 (version 2)"},
	} {
		if got := Arithmetic(other{name: c.name, library: c.library}, c.math, dist.Alone{}); got != c.want {
			t.Errorf("device %q, %s: %q, want %q", c.name, c.math, got, c.want)
		}
		if c.want != "" {
			c.want += ", 4 devices"
		}
		if got := Arithmetic(other{name: c.name, library: c.library}, c.math, dist.Local(4, nil)[2]); got != c.want {
			t.Errorf("four devices %q, %s: %q, want %q", c.name, c.math, got, c.want)
		}
		if c.want != "" {
			c.want += ", MPI"
		}
		if got := Arithmetic(other{name: c.name, library: c.library}, c.math, world{dist.Local(4, nil)[1]}); got != c.want {
			t.Errorf("four processes with devices %q, %s: %q, want %q", c.name, c.math, got, c.want)
		}
	}
}
