package preprocess_test

import (
	"testing"

	"talf/compute"
	"talf/compute/cpu"
	"talf/model"
	"talf/model/modeltest"
	"talf/preprocess"
)

func TestOnlyLastBitsOfItsOwnAreNamed(t *testing.T) {
	dir := modeltest.Random(t, modeltest.Default(), 5) // stored as f32
	for _, c := range []struct {
		dtype  compute.DType
		chosen bool
		want   string
	}{
		{compute.F32, false, ""},
		{compute.F32, true, ""},
		{compute.Q8, true, "cpu q8"},
		{compute.BF16, true, "cpu bf16"},
		{compute.BF16, false, ""}, // chosen by the device
	} {
		opt := model.Default()
		opt.DType = c.dtype
		if got := preprocess.Arithmetic(target(t, dir, cpu.Default(), opt), c.chosen); got != c.want {
			t.Errorf("%v, chosen %v: %q, want %q", c.dtype, c.chosen, got, c.want)
		}
	}
}
