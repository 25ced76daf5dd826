package model_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"talf/compute"
	"talf/compute/cpu"
	"talf/model"
	"talf/model/arch"
	"talf/model/modeltest"
	"talf/model/safetensors"
)

// rssChild is the environment variable that turns the test binary into a process that
// loads a model. Its value is the path of the weights and a type.
const rssChild = "TALF_TEST_LOAD"

// largeSpec is a model of 33 million parameters, large in comparison with the memory
// that a process needs for itself.
func largeSpec() *arch.Spec {
	s := arch.Llama()
	s.Vocab, s.Hidden, s.Layers, s.Heads, s.KVHeads, s.HeadDim, s.FFN, s.MaxPos, s.Tied = 16000, 512, 8, 8, 8, 64, 1376, 64, true
	return s
}

func TestLoadingTakesLittleMoreThanTheWeights(t *testing.T) {
	if job := os.Getenv(rssChild); job != "" {
		loadAndTell(t, job)
		return
	}
	if testing.Short() {
		t.Skip("writes 130 MB")
	}
	path := filepath.Join(t.TempDir(), "model.safetensors")
	if err := safetensors.WriteFile(path, nil, modeltest.Tensors(largeSpec(), false, 1)...); err != nil {
		t.Fatal(err)
	}
	for _, dt := range dtypes {
		c := exec.Command(os.Args[0], "-test.run", "^TestLoadingTakesLittleMoreThanTheWeights$", "-test.v")
		c.Env = append(os.Environ(), fmt.Sprintf("%s=%s,%d", rssChild, path, dt))
		out, err := c.CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		var weights, before, peak int
		_, rest, _ := strings.Cut(string(out), "LOADED ")
		if _, err := fmt.Sscan(rest, &weights, &before, &peak); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		t.Logf("%v: weights %d KiB, before %d KiB, peak %d KiB: growth of %.2f times the weights", dt, weights, before, peak, float64(peak-before)/float64(weights))
		// The workers' buffers and the rest of the heap take 6 MiB or less.
		if limit := weights*115/100 + before + 6<<10; peak > limit {
			t.Errorf("%v: loading %d KiB of weights took %d KiB, want at most %d", dt, weights, peak, limit)
		}
	}
}

func loadAndTell(t *testing.T, job string) {
	var dt int
	path, kind, _ := strings.Cut(job, ",")
	if _, err := fmt.Sscan(kind, &dt); err != nil {
		t.Fatal(err)
	}
	dev, err := cpu.New(cpu.Default())
	if err != nil {
		t.Fatal(err)
	}
	set, err := safetensors.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	before := statusKiB(t, "VmRSS:")
	m, err := model.New(largeSpec(), set, dev, model.Options{DType: compute.DType(dt), MaxRows: 64})
	if err != nil {
		t.Fatal(err)
	}
	fmt.Printf("LOADED %d %d %d\n", m.WeightBytes()>>10, before, statusKiB(t, "VmHWM:"))
	if err := errors.Join(m.Close(), dev.Close()); err != nil {
		t.Error(err)
	}
}

// statusKiB returns a field of the process's status.
func statusKiB(t *testing.T, field string) (kib int) {
	b, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(b), field)
	if _, err := fmt.Sscan(rest, &kib); !ok || err != nil {
		t.Fatalf("no %s in the process's status: %v", field, err)
	}
	return kib
}
