//go:build gpu

package main

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"testing"

	"talf/compute"
	"talf/compute/cuda"
	"talf/compute/cuda/cudatest"
	"talf/model"
	"talf/model/modeltest"
	"talf/tree"
)

// onEmulatedDevice makes the children of this test find the emulated device's
// driver, and reports whether this process has it, which needs one of its own.
func onEmulatedDevice(t *testing.T) bool {
	t.Helper()
	const env = "TALF_TEST_ON_FAKE"
	if os.Getenv(env) != "" {
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
	c.Env = append(cudatest.Environ(os.Environ(), dir), env+"=1")
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return false
}

// TestTreesOnACUDADeviceHaveTheBitsOfPlainDecoding compares the logits of every
// node of random trees with those of plain decoding of its path.
func TestTreesOnACUDADeviceHaveTheBitsOfPlainDecoding(t *testing.T) {
	if !onEmulatedDevice(t) {
		return
	}
	ctx := context.Background()
	dir := t.TempDir()
	if err := modeltest.Write(dir, modeltest.Default(), 3); err != nil {
		t.Fatal(err)
	}
	for _, opt := range []model.Options{
		{DType: compute.F32, MaxRows: 512},
		{DType: compute.BF16, KV: compute.BF16, MaxRows: 512},
		{DType: compute.Q8, MaxRows: 512},
	} {
		dev, err := cuda.New(cuda.Default())
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
		seq := m.NewSeq()
		if _, err := seq.Append(ctx, prompt, nil, model.WantNone); err != nil {
			t.Fatal(err)
		}
		var tr tree.Tree
		tr.Reset(token(), 64)
		for tr.Len() < 24 {
			tr.Add(r.IntN(tr.Len()), token())
		}
		b := seq.Branch(seq.Len())
		out, err := m.Forward(ctx, []model.Segment{{Rows: b, Tree: &tr, Want: model.WantAll}})
		if err != nil {
			t.Fatal(err)
		}
		got := make([][]float32, tr.Len())
		for n := range got {
			got[n] = make([]float32, v)
			out.ReadLogits(got[n], out.LogitsRow(0, n))
		}
		b.Drop()
		want := make([]float32, v)
		for n := 0; n < tr.Len(); n += 4 {
			plain := seq.Fork()
			for _, node := range tr.AppendPath(nil, n) {
				o, err := plain.Append(ctx, []int32{tr.Token(node)}, nil, model.WantLast)
				if err != nil {
					t.Fatal(err)
				}
				o.ReadLogits(want, o.LogitsRow(0, o.LastNode(0)))
			}
			plain.Close()
			for i := range want {
				if math.Float32bits(got[n][i]) != math.Float32bits(want[i]) {
					t.Fatalf("%v: logit %d of node %d is %g, plain decoding's %g", opt.DType, i, n, got[n][i], want[i])
				}
			}
		}
		if err := errors.Join(m.Close(), dev.Close()); err != nil {
			t.Fatal(err)
		}
	}
}

// TestGenerateOnACUDADevice decodes with drafted trees and plainly.
func TestGenerateOnACUDADevice(t *testing.T) {
	if !onEmulatedDevice(t) {
		return
	}
	dir := tinyModel(t, tinyConfig(), 1)
	head := tinyHead(t, dir, 2)
	run := func(args ...string) string {
		return ok(t, "", append([]string{"generate", "--model", dir, "--prompt", "Tom has 3 apples.", "--max-tokens", "12"}, args...)...)
	}
	plain := run("--device", "cuda:0", "--method", "ar")
	if got := run("--device", "auto", "--head", head, "--method", "beam"); got != plain {
		t.Errorf("decoded with trees:\n%s\nplainly:\n%s", got, plain)
	}
	if out := ok(t, "", "doctor"); !strings.Contains(out, "emulated device") || !strings.Contains(out, "used by --device cuda:0") {
		t.Errorf("doctor does not show the device:\n%s", out)
	}
	talf(t, "", "generate", "--model", dir, "--prompt", "x", "--device", "cuda:3").refuses(t, 1, "no device 3")
}
