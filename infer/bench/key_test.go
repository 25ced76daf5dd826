package bench_test

import (
	"os"
	"path/filepath"
	"testing"

	"talf/infer/bench"
	"talf/infer/bench/benchtest"
)

// Whatever determines a measurement is in its key: the seed, the temperature, the repetition,
// the prompt, and what is in the files that a method names.
func TestKeysTellMeasurementsApart(t *testing.T) {
	shape := filepath.Join(t.TempDir(), "shape.json")
	keys := map[string]int{}
	for run, paths := range []string{`[[0]]`, `[[0],[1]]`, `[[0]]`} {
		if err := os.WriteFile(shape, []byte(paths), 0o600); err != nil {
			t.Fatal(err)
		}
		e, target := benchtest.Engine()
		c := matrix(target)
		c.Methods[0].Spec = "static:file=" + shape
		c.Seeds, c.Temperatures = []uint64{1, 2}, []float64{0, 1}
		measured := 0
		c.Keep = func(m *bench.Measurement) error {
			measured++
			if m.Method == bench.Baseline {
				return nil
			}
			if first, ok := keys[m.Key]; ok != (run == 2) || first == 1 {
				t.Errorf("run %d: key %q was there: %v, since run %d", run, m.Key, ok, first)
			}
			if run < 2 {
				keys[m.Key] = run
			}
			return nil
		}
		if _, err := bench.Run(t.Context(), e, c); err != nil {
			t.Fatal(err)
		}
		if measured == 0 {
			t.Error("nothing was measured")
		}
	}
}
