package train

import (
	"bytes"
	"context"
	"errors"
	"math"
	"path/filepath"
	"strings"
	"testing"

	"talf/data"
	"talf/model"
	"talf/model/safetensors"
	"talf/train/mix"
)

// The gradients of a bf16 step are those of an f32 step to within 1% of every
// parameter's own norm, at the same weights.
func TestHalfActivationsGiveNearlyTheSameGradients(t *testing.T) {
	dev := device(t, 2)
	target := tinyTarget(t, dev)
	set := tinyData(t, target, 40, data.BF16)
	for _, name := range []string{"eagle", "hass:top=2", "talf", "eal"} {
		var grads [2][][]float32
		var losses [2]float64
		var size [2]int
		for i, dtype := range []string{F32, BF16} {
			cfg := tinyConfig()
			cfg.Loss, cfg.DType = name, dtype
			h, tr, err := newHeadTask(cfg, HeadJob{Target: target, Data: mix.Only(set), Out: t.TempDir()})
			if err != nil {
				t.Fatal(err)
			}
			h.params.Init(4)
			if err := tr.beginStage(0); err != nil {
				t.Fatal(err)
			}
			if _, _, err := h.readStep(); err != nil {
				t.Fatal(err)
			}
			if err := h.fill(context.Background(), 0, 1); err != nil {
				t.Fatal(err)
			}
			if err := tr.graph.Run(context.Background()); err != nil {
				t.Fatal(err)
			}
			losses[i], size[i] = float64(tr.total.Scalar()), tr.graph.Bytes()
			for _, n := range tr.nodes {
				grads[i] = append(grads[i], append([]float32(nil), n.Grad()...))
			}
			tr.store.Close()
		}
		if d := math.Abs(losses[1]-losses[0]) / losses[0]; !(d <= 1e-3) {
			t.Errorf("%s: the loss is %v, in f32 %v", name, losses[1], losses[0])
		}
		if name != "eagle" && size[1] >= size[0] { // one level leaves little to save
			t.Errorf("%s: %d bytes, in f32 %d", name, size[1], size[0])
		}
		rounded := false
		for i, want := range grads[0] {
			var diff, norm float64
			for j, w := range want {
				d := float64(grads[1][i][j]) - float64(w)
				diff, norm = diff+d*d, norm+float64(w)*float64(w)
			}
			rounded = rounded || diff > 0
			if e := math.Sqrt(diff / norm); !(e <= 0.01) {
				t.Errorf("%s: gradient %d differs by %v of its norm", name, i, e)
			}
		}
		if !rounded {
			t.Errorf("%s: nothing was rounded", name)
		}
	}
}

// A run in bf16 has the same bits on any number of threads and wherever it was
// stopped, its checkpoints are like any other's, and it is not continued in f32.
func TestAHalfRunIsExactToo(t *testing.T) {
	var first map[string][]byte
	for threads := 1; threads <= 2; threads++ {
		dev := device(t, threads)
		target := tinyTarget(t, dev)
		set := tinyData(t, target, 40, data.BF16)
		cfg := tinyConfig()
		cfg.DType, cfg.SaveEvery = BF16, 0
		out := t.TempDir()
		if threads == 2 { // stopped on the way
			ctx, report := stopAfter(cfg.Steps / 2)
			if _, err := Head(ctx, cfg, HeadJob{Target: target, Data: mix.Only(set), Out: out, Report: report}); !errors.Is(err, context.Canceled) {
				t.Fatal(err)
			}
			other := cfg
			other.DType = F32
			if _, err := Head(context.Background(), other, HeadJob{Target: target, Data: mix.Only(set), Out: out}); err == nil || !strings.Contains(err.Error(), "dtype was bf16, is not given") {
				t.Errorf("continued in f32: %v", err)
			}
		}
		res, err := Head(context.Background(), cfg, HeadJob{Target: target, Data: mix.Only(set), Out: out})
		if err != nil {
			t.Fatal(err)
		}
		got := files(t, res.Dir)
		if first == nil {
			first = got
			continue
		}
		for name, b := range first {
			if !bytes.Equal(b, got[name]) {
				t.Errorf("%s differs", filepath.Base(name))
			}
		}
	}
}

func TestUnknownTypesAreRefused(t *testing.T) {
	cfg := Default()
	cfg.DType = "f16"
	if err := cfg.Validate(); err == nil || !strings.Contains(err.Error(), `dtype is "f16"`) {
		t.Error(err)
	}
}

// If the target's weights are bfloat16, its LM head is unchanged, and the loss of the first step
// has the bits of float32's: the forward pass rounds nothing.
func TestTheForwardPassOfAHalfRunRoundsNothing(t *testing.T) {
	dev := device(t, 1)
	ts := tinyTensors()
	for i, x := range ts {
		f, err := x.Float32s()
		if err != nil {
			t.Fatal(err)
		}
		ts[i] = safetensors.BF16(x.Name, f, x.Shape...)
	}
	target, err := model.New(tinySpec(), safetensors.Of("tiny target", ts...), dev, model.Default())
	if err != nil {
		t.Fatal(err)
	}
	defer target.Close()
	set := tinyData(t, target, 40, data.BF16)
	cfg := tinyConfig()
	cfg.Steps, cfg.EvalEvery = 1, 0
	var losses [2]float64
	for i, dtype := range []string{F32, BF16} {
		cfg.DType = dtype
		res, err := Head(context.Background(), cfg, HeadJob{Target: target, Data: mix.Only(set), Out: t.TempDir()})
		if err != nil {
			t.Fatal(err)
		}
		losses[i] = res.Loss
	}
	if losses[0] != losses[1] {
		t.Errorf("the loss of the first step is %v, in f32 %v", losses[1], losses[0])
	}
}
