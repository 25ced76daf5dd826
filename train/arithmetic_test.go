package train

import (
	"strings"
	"testing"

	"talf/data"
	"talf/train/mix"
)

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
