package train

import (
	"strings"
	"testing"

	"talf/compute"
	"talf/data"
	"talf/train/mix"
)

// other is a device whose products have last bits of their own, unless it is "".
type other struct {
	compute.Device
	name string
}

func (b other) Arithmetic() string { return b.name }

func TestOnlyArithmeticUnlikeTheCPUsIsNamed(t *testing.T) {
	for name, want := range map[string]string{"": "", "cuda sm_90": "cuda sm_90 bf16"} {
		if got := Arithmetic(other{name: name}, "bf16"); got != want {
			t.Errorf("device %q: %q, want %q", name, got, want)
		}
	}
}

// A run continues only with the arithmetic that it started with.
func TestARunKeepsItsArithmetic(t *testing.T) {
	target := tinyTarget(t, device(t, 1))
	cfg := tinyConfig()
	cfg.Steps = 2
	job := HeadJob{Target: target, Data: mix.Only(tinyData(t, target, 20, data.BF16)), Out: t.TempDir(), Arithmetic: "cuda"}
	for _, c := range []struct{ now, want string }{
		{"cuda", ""},
		{"cuda-bf16", "began with the arithmetic of cuda, now of cuda-bf16"},
		{"", "began with the arithmetic of cuda, now of the CPU"},
		{"cuda", ""},
	} {
		job.Arithmetic = c.now
		_, err := Head(t.Context(), cfg, job)
		if (err != nil) != (c.want != "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("with %q: error %v, want %q", c.now, err, c.want)
		}
	}
}
