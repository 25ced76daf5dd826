//go:build gpu && linux && cgo

package e2e

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"talf/cmd/talf/command"
	"talf/compute/cuda/cudatest"
	"talf/internal/e2e/talftest"
)

// TestOnePlaneOnACUDADevice decodes and labels with activations rounded to bfloat16. Trees have the text of plain decoding, labels
// the bytes of any division of the work, and no set mixes one plane and two.
func TestOnePlaneOnACUDADevice(t *testing.T) {
	if !onEmulatedDevice(t) {
		return
	}
	dir, text := talftest.TinyModel(t, talftest.TinyConfig(), 1), fewTexts(t)
	bf16 := []string{"--device", "cuda:0", "--dtype", "bf16"}
	args := func(name string, more ...string) []string {
		return slices.Concat([]string{name, "--model", dir}, bf16, more)
	}

	head := talftest.TinyHead(t, dir, 2)
	decode := func(more ...string) string {
		return talftest.OK(t, "", args("generate", append([]string{"--prompt", "Tom has 3 apples.", "--max-tokens", "12", "--act-planes", "1"}, more...)...)...)
	}
	if plain, got := decode("--method", "ar"), decode("--method", "beam", "--head", head); got != plain {
		t.Errorf("decoded with trees:\n%s\nplainly:\n%s", got, plain)
	}

	labelTo := func(out string, more ...string) talftest.Result {
		return talftest.Run(t, "", args("preprocess", append([]string{"--data", text, "--out", out, "--k", "4", "--depth", "2", "--max-len", "10", "--shard", "2"}, more...)...)...)
	}
	label := func(more ...string) string {
		out := filepath.Join(t.TempDir(), "set")
		if r := labelTo(out, more...); r.Code != command.ExitOK {
			t.Fatalf("exit %d\n%s", r.Code, r.Err)
		}
		return out
	}
	two, one := label(), label("--act-planes", "1")
	if apart := labelsApart(t, two, one); !(apart > 0) || !(apart <= 1e-2) {
		t.Errorf("labels with one plane are %g from those with two", apart)
	} else {
		t.Logf("labels with one plane are at most %.2g from those with two", apart)
	}
	sameFiles(t, one, label("--act-planes", "1", "--tokens", "20", "--rows", "7"))
	sameFiles(t, two, label("--act-planes", "2"))
	labelTo(two, "--act-planes", "1").Refuses(t, command.ExitFailure, "the type of activations in products is bf16, the labels were made with none")
	labelTo(one).Refuses(t, command.ExitFailure, "the type of activations in products is none, the labels were made with bf16")

	// cuBLAS computes with the device's planes.
	blas, err := cudatest.BLAS()
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("LD_LIBRARY_PATH", blas+string(os.PathListSeparator)+os.Getenv("LD_LIBRARY_PATH"))
	library := label("--act-planes", "1")
	if apart := labelsApart(t, one, library); !(apart <= 1e-2) {
		t.Errorf("labels with cuBLAS are %g from those without", apart)
	}
	labelTo(library).Refuses(t, command.ExitFailure, "made with bf16")
	labelTo(library, "--act-planes", "1", "--cublas=false").Refuses(t, command.ExitFailure, "arithmetic: of cuda sm_90 bf16, activations bf16, cuBLAS 12.8.4 on 4 multiprocessors", "want of cuda sm_90 bf16, activations bf16")

	run := func(more ...string) talftest.Result {
		return talftest.Run(t, "", append([]string{"generate", "--model", dir, "--prompt", "x", "--act-planes", "1"}, more...)...)
	}
	run("--device", "cpu").Refuses(t, command.ExitFailure, "one plane of activations is for GPUs")
	run("--device", "cuda:0", "--dtype", "q8").Refuses(t, command.ExitFailure, "one plane of activations is for weights in bf16: --dtype bf16 makes them so")
	run("--device", "cuda:0").Refuses(t, command.ExitFailure, "--dtype bf16")
	run("--device", "cuda:0", "--act-planes", "3").Refuses(t, command.ExitUsage, "want 1 or 2")
}

// labelsApart returns the largest difference between labels of two sets, among nodes of equal trees.
func labelsApart(t *testing.T, a, b string) (apart float64) {
	t.Helper()
	m, x := records(t, a)
	_, y := records(t, b)
	if len(x) != len(y) {
		t.Fatalf("%d rows and %d", len(x), len(y))
	}
	nodes, same := m.Nodes(), 0
	for i := range x {
		for p := range x[i].Tokens {
			at := p * nodes
			if !slices.Equal(x[i].TreeTokens[at:at+nodes], y[i].TreeTokens[at:at+nodes]) || !slices.Equal(x[i].TreeParents[at:at+nodes], y[i].TreeParents[at:at+nodes]) {
				continue
			}
			same++
			for n := at; n < at+nodes; n++ {
				apart = max(apart, labelsDiffer(&m, &x[i], &y[i], n))
			}
		}
	}
	if same < 6 {
		t.Fatalf("%d trees are equal", same)
	}
	return apart
}
