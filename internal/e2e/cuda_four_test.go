//go:build gpu && linux && cgo

package e2e

import (
	"slices"
	"testing"

	"talf/compute"
	"talf/internal/e2e/talftest"
	"talf/internal/golden"
	"talf/model"
)

// TestFourBitFilesOnACUDADevice holds files in 4 bits, of one kind of blocks and of several with Q6_K, to the promise of trees, and to
// the CPU's logits with activations of 16 bits.
func TestFourBitFilesOnACUDADevice(t *testing.T) {
	if !onEmulatedDevice(t) {
		return
	}
	for _, name := range []string{"llama3-Q4_K_M", "qwen2-Q4_0"} {
		treesOnCUDA(t, golden.File(t, "gguf/"+name+".gguf"), model.Options{DType: compute.Q4, MaxRows: 512}, 2, 5e-4)
	}
}

// TestFourBitCommandsOnACUDADevice decodes, scores and labels a file in 4 bits, and one in 8, by the command line.
func TestFourBitCommandsOnACUDADevice(t *testing.T) {
	if !onEmulatedDevice(t) {
		return
	}
	for name, as := range map[string]string{"llama3-Q4_K_M": "q4", "spm-Q8_0": "q8"} {
		file := golden.File(t, "gguf/"+name+".gguf")
		generate := func(more ...string) string {
			args := []string{"generate", "--model", file, "--dtype", as, "--device", "cuda:0", "--prompt", "Tom has 3 apples.", "--max-tokens", "8", "--ignore-eos"}
			return talftest.OK(t, "", slices.Concat(args, more)...)
		}
		plain := generate("--method", "ar")
		if got := generate("--draft", file, "--method", "fixed"); got != plain || plain == "" {
			t.Errorf("%s: decoded with trees:\n%s\nplainly:\n%s", name, got, plain)
		}
	}
}
