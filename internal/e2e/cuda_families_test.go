//go:build gpu && linux && cgo

package e2e

import (
	"errors"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"talf/compute"
	"talf/compute/cuda"
	"talf/internal/e2e/talftest"
	"talf/model"
	"talf/model/arch"
	"talf/model/modeltest"
	"talf/tree"
)

// notOnDevices are the architectures that CUDA devices refuse, with what they lack; docs/models.md says so, too.
var notOnDevices = map[string]string{
	"qwen3_next": "recurrent layers", "deepseek_v3": "multi-head latent attention",
}

// TestArchitecturesOnACUDADevice runs a random model of every architecture, with all of its special features, or finds it refused by
// name. Logits and tapped states are within 1e-5 of the CPU's, and those of a tree's nodes have the bits of plain decoding.
func TestArchitecturesOnACUDADevice(t *testing.T) {
	if !onEmulatedDevice(t) {
		return
	}
	opt := model.Options{DType: compute.F32, MaxRows: 512}
	half := model.Options{DType: compute.BF16, KV: compute.BF16, MaxRows: 512}
	for _, name := range arch.Supported() {
		t.Run(name, func(t *testing.T) {
			if what := notOnDevices[name]; what != "" {
				dev, err := cuda.New(cuda.Default())
				if err != nil {
					t.Fatal(err)
				}
				defer dev.Close()
				_, err = model.Load(modeltest.Random(t, modeltest.Of(name), 3), dev, opt)
				if err == nil || !strings.Contains(err.Error(), name+" models have "+what+", which ") || !strings.Contains(err.Error(), "use the CPU") {
					t.Errorf("%v, want that it is refused for %s", err, what)
				}
				return
			}
			onBoth(t, modeltest.Of(name), opt, 1e-5)
		})
	}
	wide := modeltest.Of("gemma2")
	wide.HeadDim = 160
	t.Run("gemma2 with wide heads", func(t *testing.T) { onBoth(t, wide, opt, 1e-5) })
	t.Run("gemma2 with wide heads in bf16", func(t *testing.T) { onBoth(t, wide, half, 2e-2) })
	t.Run("gpt_oss in bf16", func(t *testing.T) { onBoth(t, modeltest.Of("gpt_oss"), half, 2e-2) })
}

// onBoth compares a random model's logits on a CUDA device with the CPU's, and with those of plain decoding on the device.
func onBoth(t *testing.T, conf modeltest.Config, opt model.Options, tol float64) {
	t.Helper()
	dir := modeltest.Random(t, conf, 3)
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
	prompt := make([]int32, 135) // more than one chunk of attention
	for i := range prompt {
		prompt[i] = token()
	}
	var tr tree.Tree
	tr.Reset(token(), 64)
	for tr.Len() < 13 {
		tr.Add(r.IntN(tr.Len()), token())
	}
	seq, got := logitsOf(t, m, prompt, &tr)
	compareWithCPU(t, dir, opt, tol, prompt, &tr, got)
	want := make([]float32, len(got[0]))
	for n := 0; n < tr.Len(); n += 3 {
		plain := seq.Fork()
		for _, node := range tr.AppendPath(nil, n) {
			o, err := plain.Append(t.Context(), []int32{tr.Token(node)}, nil, model.WantLast)
			if err != nil {
				t.Fatal(err)
			}
			o.ReadLogits(want[:v], o.LogitsRow(0, o.LastNode(0)))
			o.ReadTaps(want[v:], o.HiddenRow(0, o.LastNode(0)))
		}
		plain.Close()
		for i := range want {
			if math.Float32bits(got[n][i]) != math.Float32bits(want[i]) {
				t.Fatalf("value %d of node %d is %g, plain decoding's %g", i, n, got[n][i], want[i])
			}
		}
	}
	if err := errors.Join(m.Close(), dev.Close()); err != nil {
		t.Fatal(err)
	}
}

// TestFamiliesGenerateOnACUDADevice decodes a Gemma with wide heads and a mixture with drafted trees and plainly, and drafts with a mixture.
func TestFamiliesGenerateOnACUDADevice(t *testing.T) {
	if !onEmulatedDevice(t) {
		return
	}
	tiny := talftest.TinyConfig()
	models := map[string]string{}
	for _, name := range []string{"gemma2", "mixtral"} {
		c := modeltest.Of(name)
		c.Vocab, c.EOS, c.MaxPos = tiny.Vocab, tiny.EOS, tiny.MaxPos
		if name == "gemma2" {
			c.HeadDim = 136
		}
		models[name] = talftest.TinyModel(t, c, 1)
	}
	for name, dir := range models {
		for _, dtype := range []string{"f32", "bf16"} {
			run := func(args ...string) string {
				return talftest.OK(t, "", append([]string{
					"generate", "--model", dir, "--prompt", "Tom has 3 apples.", "--max-tokens", "12", "--dtype", dtype, "--kv-dtype", dtype, "--device", "cuda:0",
				}, args...)...)
			}
			plain := run("--method", "ar")
			if got := run("--method", "goose"); got != plain {
				t.Errorf("%s in %s, with copies and guesses:\n%s\nplainly:\n%s", name, dtype, got, plain)
			}
			if got := run("--draft", models["mixtral"], "--method", "beam"); got != plain {
				t.Errorf("%s in %s, with a mixture's drafts:\n%s\nplainly:\n%s", name, dtype, got, plain)
			}
		}
	}
}

// TestWaitsOfMixturesOnACUDADevice counts how often decoding one token waits for the device: once for the router of each layer with
// experts and once for the gate of a shared one more than with a dense model, which waits when its logits are read.
func TestWaitsOfMixturesOnACUDADevice(t *testing.T) {
	if !onEmulatedDevice(t) {
		return
	}
	meter := newMeter(t)
	dense := 0
	for _, c := range []struct {
		name string
		more int
	}{{"gemma2", 0}, {"mixtral", 2}, {"qwen2_moe", 1 + 1}} { // two layers with experts, and one
		dev, err := cuda.New(cuda.Default())
		if err != nil {
			t.Fatal(err)
		}
		conf := modeltest.Of(c.name)
		m, err := model.Load(modeltest.Random(t, conf, 3), dev, model.Options{DType: compute.F32, MaxRows: 64})
		if err != nil {
			t.Fatal(err)
		}
		seq := m.NewSeq()
		row := make([]float32, conf.Vocab)
		for i := range 4 {
			meter.take(dev)
			o, err := seq.Append(t.Context(), []int32{int32(i)}, nil, model.WantLast)
			if err != nil {
				t.Fatal(err)
			}
			o.ReadLogits(row, o.LogitsRow(0, 0))
			got := meter.take(dev).calls["synchronize"]
			if i < 3 {
				continue // allocates memory, builds graphs
			}
			if c.more == 0 {
				dense = got
			}
			if got != dense+c.more {
				t.Errorf("%s waits %d times for a token, want %d", c.name, got, dense+c.more)
			}
		}
		seq.Close()
		if err := errors.Join(m.Close(), dev.Close()); err != nil {
			t.Fatal(err)
		}
	}
}
