package plan

import (
	"testing"

	"talf/compute"
)

// other is a device whose products have last bits of their own, unless it is "".
type other struct {
	compute.Device
	name string
}

func (b other) Arithmetic() string { return b.name }

func TestOnlyArithmeticUnlikeTheCPUsIsNamed(t *testing.T) {
	for name, want := range map[string]string{"": "", "cuda sm_90": "cuda sm_90 bf16"} {
		if got := Arithmetic(other{name: name}, "bf16", 1); got != want {
			t.Errorf("device %q: %q, want %q", name, got, want)
		}
		if want != "" {
			want += ", 4 devices"
		}
		if got := Arithmetic(other{name: name}, "bf16", 4); got != want {
			t.Errorf("four devices %q: %q, want %q", name, got, want)
		}
	}
}
