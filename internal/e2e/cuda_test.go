//go:build gpu && linux && cgo

package e2e

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"testing"

	"talf/compute"
	"talf/compute/cpu"
	"talf/compute/cuda"
	"talf/compute/cuda/cudatest"
	"talf/compute/devices"
	"talf/internal/e2e/talftest"
	"talf/model"
	"talf/model/arch"
	"talf/model/modeltest"
	"talf/model/safetensors"
	"talf/tree"
)

// envOnFake is set in test processes that have the device.
const envOnFake = "TALF_TEST_ON_FAKE"

// onEmulatedDevice makes the children of this test find the emulated device's driver, and
// reports whether this process has it, which needs a process of its own.
func onEmulatedDevice(t *testing.T) bool {
	t.Helper()
	if os.Getenv(envOnFake) != "" {
		return true
	}
	dir, err := cudatest.Driver(cudatest.Kernels())
	if errors.Is(err, cudatest.ErrNoCompiler) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	c := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	c.Env = append(cudatest.Environ(os.Environ(), dir), envOnFake+"=1")
	out, err := c.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Logf("%s", out)
	return false
}

// TestTreesOnACUDADeviceHaveTheBitsOfPlainDecoding compares the logits and tapped
// states of nodes of a random tree with those of plain decoding of its path, and with
// the CPU's.
func TestTreesOnACUDADeviceHaveTheBitsOfPlainDecoding(t *testing.T) {
	if !onEmulatedDevice(t) {
		return
	}
	dir := t.TempDir()
	if err := modeltest.Write(dir, modeltest.Default(), 3); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		model.Options
		// Relative to the largest logit: both multiply bfloat16 and q8 weights by activations of
		// 16 bits, and keys halfway between two bfloat16 may round to either. One plane has 8 bits.
		tol    float64
		planes int
	}{
		{model.Options{DType: compute.F32, MaxRows: 512}, 1e-5, 2},
		{model.Options{DType: compute.BF16, KV: compute.BF16, MaxRows: 512}, 1e-2, 2},
		{model.Options{DType: compute.BF16, KV: compute.BF16, MaxRows: 512}, 2e-2, 1},
		{model.Options{DType: compute.BF16, MaxRows: 512}, 2e-2, 1},
		{model.Options{DType: compute.Q8, MaxRows: 512}, 2e-4, 2},
	} {
		treesOnCUDA(t, dir, c.Options, c.planes, c.tol)
	}
}

// treesOnCUDA does so for a model, loaded with opt on a device with so many planes of activations. tol is relative to the largest logit.
func treesOnCUDA(t *testing.T, dir string, opt model.Options, planes int, tol float64) {
	t.Helper()
	ctx := context.Background()
	dev, err := cuda.New(cuda.Config{Planes: planes})
	if err != nil {
		t.Fatal(err)
	}
	m, err := model.Load(dir, dev, opt)
	if err != nil {
		t.Fatal(err)
	}
	v := m.Spec().Vocab
	r := rand.New(rand.NewPCG(5, 7))
	token := func() int32 { return r.Int32N(int32(v)) }
	prompt := make([]int32, 140) // more than one chunk of attention
	for i := range prompt {
		prompt[i] = token()
	}
	var tr tree.Tree
	tr.Reset(token(), 64)
	for tr.Len() < 24 {
		tr.Add(r.IntN(tr.Len()), token())
	}
	seq, got := logitsOf(t, m, prompt, &tr)
	compareWithCPU(t, dir, opt, tol, prompt, &tr, got)
	want := make([]float32, len(got[0]))
	for n := 0; n < tr.Len(); n += 4 {
		plain := seq.Fork()
		for _, node := range tr.AppendPath(nil, n) {
			o, err := plain.Append(ctx, []int32{tr.Token(node)}, nil, model.WantLast)
			if err != nil {
				t.Fatal(err)
			}
			o.ReadLogits(want[:v], o.LogitsRow(0, o.LastNode(0)))
			o.ReadTaps(want[v:], o.HiddenRow(0, o.LastNode(0)))
		}
		plain.Close()
		for i := range want {
			if math.Float32bits(got[n][i]) != math.Float32bits(want[i]) {
				t.Fatalf("%v: value %d of node %d is %g, plain decoding's %g", opt.DType, i, n, got[n][i], want[i])
			}
		}
	}
	if err := errors.Join(m.Close(), dev.Close()); err != nil {
		t.Fatal(err)
	}
}

// logitsOf returns a sequence of a prompt and, for each node of a tree after it, the logits and
// the tapped states of the first and the last boundary.
func logitsOf(t *testing.T, m *model.Model, prompt []int32, tr *tree.Tree) (*model.Seq, [][]float32) {
	t.Helper()
	ctx := context.Background()
	if err := m.Tap(0, m.Spec().Layers); err != nil {
		t.Fatal(err)
	}
	seq := m.NewSeq()
	if _, err := seq.Append(ctx, prompt, nil, model.WantNone); err != nil {
		t.Fatal(err)
	}
	b := seq.Branch(seq.Len())
	defer b.Drop()
	out, err := m.Forward(ctx, []model.Segment{{Rows: b, Tree: tr, Want: model.WantAll}})
	if err != nil {
		t.Fatal(err)
	}
	rows := make([][]float32, tr.Len())
	for n := range rows {
		v := m.Spec().Vocab
		rows[n] = make([]float32, v+2*m.Spec().Hidden)
		out.ReadLogits(rows[n][:v], out.LogitsRow(0, n))
		out.ReadTaps(rows[n][v:], out.HiddenRow(0, n))
	}
	return seq, rows
}

// compareWithCPU compares logits with those of the CPU.
func compareWithCPU(t *testing.T, dir string, opt model.Options, tol float64, prompt []int32, tr *tree.Tree, got [][]float32) {
	t.Helper()
	dev, err := devices.OpenCPU(devices.Config{Threads: 1, ActBits: 16})
	if err != nil {
		t.Fatal(err)
	}
	m, err := model.Load(dir, dev, opt)
	if err != nil {
		t.Fatal(err)
	}
	_, want := logitsOf(t, m, prompt, tr)
	big, off := 0.0, 0.0
	for n := range want {
		for i, w := range want[n] {
			big, off = max(big, math.Abs(float64(w))), max(off, math.Abs(float64(w)-float64(got[n][i])))
		}
	}
	t.Logf("%v: off the CPU's logits by %.2g of the largest", opt.DType, off/big)
	if !(off <= tol*big) {
		t.Errorf("%v: off the CPU's logits by %g, of %g the largest; allowed are %g", opt.DType, off, big, tol*big)
	}
	if err := errors.Join(m.Close(), dev.Close()); err != nil {
		t.Fatal(err)
	}
}

// TestGenerateOnACUDADevice decodes with drafted trees and plainly.
func TestGenerateOnACUDADevice(t *testing.T) {
	if !onEmulatedDevice(t) {
		return
	}
	dir := talftest.TinyModel(t, talftest.TinyConfig(), 1)
	run := func(args ...string) string {
		return talftest.OK(t, "", append([]string{"generate", "--model", dir, "--prompt", "Tom has 3 apples.", "--max-tokens", "12"}, args...)...)
	}
	plain := run("--device", "cuda:0", "--method", "ar")
	m := talftest.OpenModel(t, dir)
	block := m.Spec().BlockFor(arch.Block{Size: 3, Taps: []int{m.Spec().Layers}, Shift: true, Linear: true, Markov: arch.VanillaMarkov, Rank: 4}, 0, 0)
	for _, head := range []string{talftest.TinyHead(t, dir, 2), talftest.WriteHead(t, m, block, 3)} {
		if got := run("--device", "auto", "--head", head, "--method", "beam"); got != plain {
			t.Errorf("decoded with trees:\n%s\nplainly:\n%s", got, plain)
		}
	}
	talftest.Run(t, "", "generate", "--model", dir, "--prompt", "x", "--device", "cuda:3").Refuses(t, 1, "no device 3")
}

// TestLogitsOfACUDADeviceThatAreNotFiniteAreFound plants weights and compares which passes fail
// with the CPU's. The first pass of a model finds flaws by sums of logits, later ones, which have
// read the likely tokens ahead, by these.
func TestLogitsOfACUDADeviceThatAreNotFiniteAreFound(t *testing.T) {
	if !onEmulatedDevice(t) {
		return
	}
	ctx := context.Background()
	c := modeltest.Default()
	const last = 42 // the token of the third pass
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	for _, p := range []struct {
		name string
		at   int
		x    float32
		want []bool // which passes fail
	}{
		{"lm_head.weight", 13*c.Hidden + 5, nan, []bool{true, true, true}},
		{"lm_head.weight", 13*c.Hidden + 5, inf, nil},
		{"lm_head.weight", 13*c.Hidden + 5, -inf, nil},
		{"model.embed_tokens.weight", last*c.Hidden + 2, nan, []bool{false, false, true}},
		{"model.embed_tokens.weight", last*c.Hidden + 2, inf, []bool{false, false, true}},
		{"model.norm.weight", 3, 1e38, nil},
	} {
		failed := func(dev compute.Device) (out []bool) {
			tensors := modeltest.Tensors(c.Spec(), false, 1)
			modeltest.Plant(tensors, p.name, p.at, p.x)
			opt := model.Default()
			opt.AllowNonFinite = true
			m, err := model.New(c.Spec(), safetensors.Of("planted", tensors...), dev, opt)
			if err != nil {
				t.Fatal(err)
			}
			for _, id := range []int32{3, 4, last} {
				seq := m.NewSeq()
				var one tree.Tree
				one.Reset(id, 1)
				o, err := m.Forward(ctx, []model.Segment{{Rows: seq.Branch(0), Tree: &one, Want: model.WantLast}})
				if err != nil {
					t.Fatal(err)
				}
				var e *model.NonFiniteError
				if err = o.Err(0); err != nil && !errors.As(err, &e) {
					t.Fatal(err)
				}
				out = append(out, err != nil)
				var ids [2]int32
				o.TopK(ids[:], nil, 0, 1, 2)
				seq.Close()
			}
			if err := errors.Join(m.Close(), dev.Close()); err != nil {
				t.Fatal(err)
			}
			return out
		}
		dev, err := cuda.New(cuda.Default())
		if err != nil {
			t.Fatal(err)
		}
		host, err := cpu.New(cpu.Config{Threads: 1})
		if err != nil {
			t.Fatal(err)
		}
		got, want := failed(dev), failed(host)
		if !slices.Equal(got, want) || p.want != nil && !slices.Equal(got, p.want) {
			t.Errorf("%s[%d] = %v: passes that failed: %v, the CPU's %v, want %v", p.name, p.at, p.x, got, want, p.want)
		}
	}
}
