package train

import (
	"context"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"talf/checkpoints"
	"talf/data"
	"talf/model/head"
	"talf/train/internal/batch"
	"talf/train/loss"
	"talf/train/mix"
)

// Heads with several layers and with a bias can be trained, continued, loaded and used to
// decode.
func TestLargerHeadsTrainAndLoad(t *testing.T) {
	dev := device(t, 1)
	target := tinyTarget(t, dev)
	set := tinyData(t, target, 40, data.BF16)
	for _, name := range []string{"hass:top=3", "talf"} {
		cfg := tinyConfig()
		cfg.Loss, cfg.Layers, cfg.FCBias = name, 2, true
		cfg.Steps, cfg.LR, cfg.EvalEvery, cfg.SaveEvery = 40, 5e-3, 0, 0
		out := t.TempDir()
		res, err := Head(context.Background(), cfg, HeadJob{Target: target, Data: mix.Only(set), Out: out})
		if err != nil {
			t.Fatal(err)
		}
		if log := logOf(t, out); log[39].Loss >= log[0].Loss {
			t.Errorf("%s: the loss went from %v to %v", name, log[0].Loss, log[39].Loss)
		}
		h, err := checkpoints.LoadHead(out, target, head.Default())
		if err != nil {
			t.Fatal(err)
		}
		if s := h.Spec(); s.Layers != 2 || !s.FCBias {
			t.Errorf("%s: loaded with %d layers and bias %v", name, s.Layers, s.FCBias)
		}
		// Another head starts from it; one of another shape does not.
		cfg.Steps = 1
		job := HeadJob{Target: target, Data: mix.Only(set), Out: t.TempDir(), Init: res.Dir}
		if _, err := Head(context.Background(), cfg, job); err != nil {
			t.Error(err)
		}
		cfg.Layers, job.Out = 1, t.TempDir()
		if _, err := Head(context.Background(), cfg, job); err == nil || !strings.Contains(err.Error(), "num_hidden_layers is 2, want 1") {
			t.Errorf("%v", err)
		}
		cfg.Layers, cfg.FCBias, job.Out = 2, false, t.TempDir()
		if _, err := Head(context.Background(), cfg, job); err == nil || !strings.Contains(err.Error(), "has no fc bias") {
			t.Errorf("%v", err)
		}
		job.Out = out
		if _, err := Head(context.Background(), cfg, job); err == nil || !strings.Contains(err.Error(), "fc_bias was true, is not given") {
			t.Errorf("%v", err)
		}
	}
}

// The noise on features is EAGLE's: uniform, (U − ½)·width·512/T for T tokens, different for
// every sequence of every step, and equal for equal keys.
func TestNoiseIsAsWideAsEAGLEs(t *testing.T) {
	draw := func(tokens int, key ...uint64) (x []float32) {
		x = make([]float32, 4000)
		batch.Noise(x, tokens, 0.2, key...)
		return x
	}
	for _, tokens := range []int{1, 64, 512} {
		half := 0.5 * 0.2 * 512 / float64(tokens)
		sum, most := 0.0, 0.0
		for _, v := range draw(tokens, 1, 2, 3) {
			sum, most = sum+float64(v), max(most, math.Abs(float64(v)))
		}
		// The standard deviation of the mean of 4000 is half/√12000.
		if mean := sum / 4000; math.Abs(mean) > 5*half/math.Sqrt(12000) || most > half || most < 0.99*half {
			t.Errorf("%d tokens: mean %v, at most %v, want 0 and %v", tokens, mean, most, half)
		}
	}
	if !slices.Equal(draw(64, 1, 2, 3), draw(64, 1, 2, 3)) {
		t.Error("other numbers for the same sequence")
	}
	for _, key := range [][]uint64{{2, 2, 3}, {1, 3, 3}, {1, 2, 4}, {3, 2, 1}} {
		if slices.Equal(draw(64, 1, 2, 3), draw(64, key...)) {
			t.Errorf("the same numbers for seed, step and sequence %v", key)
		}
	}
}

// A loss of another module is used, continued and recorded by its name.
func TestALossOfAnotherModuleTrains(t *testing.T) {
	target := tinyTarget(t, device(t, 1))
	set := tinyData(t, target, 20, data.BF16)
	own, err := loss.Parse("talf:decay=0.5")
	if err != nil {
		t.Fatal(err)
	}
	run := func(name string, losses map[string]loss.Loss) string {
		cfg, out := tinyConfig(), t.TempDir()
		cfg.Loss = name
		if _, err := Head(t.Context(), cfg, HeadJob{Target: target, Data: mix.Only(set), Out: out, Losses: losses}); err != nil {
			t.Fatal(err)
		}
		return out
	}
	same, mine := run("talf:decay=0.5", nil), run("mine", map[string]loss.Loss{"mine": own})
	if diff := cmp.Diff(weightsOf(t, same), weightsOf(t, mine)); diff != "" {
		t.Errorf("weights (-of the table's loss +of the same loss under another name):\n%s", diff)
	}
	dir, err := checkpoints.Find(mine)
	if err != nil {
		t.Fatal(err)
	}
	if m, err := checkpoints.ReadManifest(dir); err != nil || m.Loss != "mine" {
		t.Errorf("manifest %+v, %v", m, err)
	}
	cfg := tinyConfig()
	cfg.Loss = "mine"
	if _, err := Head(t.Context(), cfg, HeadJob{Target: target, Data: mix.Only(set), Out: t.TempDir()}); err == nil || !strings.Contains(err.Error(), `unknown loss "mine"`) {
		t.Errorf("without the loss: %v", err)
	}
}
