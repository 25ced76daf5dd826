//go:build gpu && linux && cgo

package e2e

import (
	"path/filepath"
	"slices"
	"testing"

	"talf/cmd/talf/command"
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
		// Labels of both devices are alike, and no set mixes them. The CPU rounds activations beside q4 weights to 8 bits.
		near := map[string]float64{"q4": 2e-2, "q8": 1e-3}[as]
		var sets [2]string
		text := talftest.Write(t, filepath.Join(t.TempDir(), "texts.txt"), "Tom has 3 apples.\n\nA cat ran home.\n")
		label := func(out, device string) talftest.Result {
			return talftest.Run(t, "", "preprocess", "--model", file, "--dtype", as, "--device", device, "--data", text, "--out", out, "--k", "4", "--max-len", "10", "--shard", "1")
		}
		for i, device := range []string{"cpu", "cuda:0"} {
			sets[i] = filepath.Join(t.TempDir(), "set")
			if r := label(sets[i], device); r.Code != command.ExitOK {
				t.Fatalf("%s: %s", name, r.Err)
			}
		}
		if apart := labelsApart(t, sets[0], sets[1]); !(apart <= near) {
			t.Errorf("%s: labels are %g from the CPU's", name, apart)
		} else {
			t.Logf("%s: labels are at most %.2g from the CPU's", name, apart)
		}
		label(sets[0], "cuda:0").Refuses(t, command.ExitFailure, "arithmetic")
		talftest.OK(t, `{"ids":[1,7,3,5]}`, "score", "--model", file, "--dtype", as, "--device", "cuda:0", "--out", filepath.Join(t.TempDir(), "scores.safetensors"))
	}
}
