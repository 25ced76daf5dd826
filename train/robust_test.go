package train

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"talf/checkpoints"
	"talf/data"
	"talf/model"
	"talf/model/safetensors"
	"talf/train/mix"
)

// rewrite copies a set with every record changed by edit.
func rewrite(t testing.TB, set *data.Set, edit func(i int, r *data.Record)) *data.Set {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "copy")
	opt := data.DefaultWriter()
	w, err := data.Create(dir, set.Meta(), data.Whole(), opt)
	if err != nil {
		t.Fatal(err)
	}
	r, err := set.Sequential(data.Everything())
	if err != nil {
		t.Fatal(err)
	}
	for i := range set.Len() {
		rec, err := r.Next()
		if err != nil {
			t.Fatal(err)
		}
		c := *rec
		c.Features = append([]byte(nil), rec.Features...)
		edit(i, &c)
		if err := w.Append(&c); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	out, err := data.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { out.Close() })
	return out
}

// A run that meets infinities or NaNs says where they come from and leaves the earlier
// checkpoints alone.
func TestNotANumberStopsTheRun(t *testing.T) {
	dev := device(t, 1)
	target := tinyTarget(t, dev)
	set := tinyData(t, target, 40, data.BF16)
	const bad = 17
	poisoned := rewrite(t, set, func(i int, r *data.Record) {
		if i == bad {
			data.AppendBF16(r.Features[:6], []float32{float32(math.Inf(-1))})
		}
	})
	cfg := tinyConfig()
	cfg.Steps, cfg.SaveEvery, cfg.EvalEvery = 30, 1, 0
	for _, c := range []struct {
		name string
		set  *data.Set
		lr   float64
		want []string
	}{
		{"in the data", poisoned, 1e-3, []string{"first in the input feature, row ", "-Inf", fmt.Sprintf(".parquet, row %d of the set", bad), "preprocess the text again"}},
		{"of a learning rate", set, 10, []string{" is ", "the run has diverged; try a smaller lr"}},
	} {
		cfg.LR, cfg.Decay = c.lr, 0
		if c.lr > 1 {
			cfg.Clip = 0
		}
		for _, lossName := range []string{"talf", "hass:top=2", "eagle", "lk", "eal"} {
			cfg.Loss = lossName
			out := t.TempDir()
			res, err := Head(context.Background(), cfg, HeadJob{Target: target, Data: mix.Only(c.set), Out: out})
			if err == nil && c.lr > 1 {
				continue // this loss tolerates it
			}
			for _, want := range append(c.want, fmt.Sprintf("step %d:", res.Step+1)) {
				if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
					t.Errorf("%s, %s: %v, want %q in it", c.name, lossName, err, want)
				}
			}
			if res.Step == 0 {
				continue // nothing was saved before
			}
			dir, err := checkpoints.Find(out)
			if err != nil {
				t.Fatal(err)
			}
			s, err := checkpoints.Open(t.Context(), dir)
			if err != nil || s.Manifest.Step != res.Step {
				t.Fatalf("%s: the last checkpoint: %+v, %v", c.name, s, err)
			}
			for _, name := range s.Weights.Names() {
				x, err := s.Weights.Get(name)
				if err != nil {
					t.Fatal(err)
				}
				f, err := x.Float32s()
				if err != nil {
					t.Fatal(err)
				}
				for _, v := range f {
					if v-v != 0 {
						t.Fatalf("%s: a checkpoint was saved with %v in %s", c.name, v, name)
					}
				}
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// Held-out sequences are data too: infinities and NaNs in them are named, and no figure of the
// log is computed from them.
func TestNotANumberStopsAnEvaluation(t *testing.T) {
	dev := device(t, 1)
	target := tinyTarget(t, dev)
	const bad = 38 // of 40 sequences, of which the last are held out
	poisoned := rewrite(t, tinyData(t, target, 40, data.BF16), func(i int, r *data.Record) {
		if i == bad {
			data.AppendBF16(r.Features[:6], []float32{float32(math.NaN())})
		}
	})
	cfg := tinyConfig()
	cfg.Steps, cfg.SaveEvery, cfg.EvalEvery, cfg.EvalSeqs = 4, 1, 3, 0
	out := t.TempDir()
	_, err := Head(context.Background(), cfg, HeadJob{Target: target, Data: mix.Only(poisoned), Out: out})
	for _, want := range []string{"evaluate at step 3:", fmt.Sprintf(".parquet, row %d of the set", bad), "NaN"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q in it", err, want)
		}
	}
	if dir, err := checkpoints.Find(out); err != nil || filepath.Base(dir) != "step-00000002" {
		t.Errorf("the last checkpoint: %s, %v", dir, err)
	}
	if n := len(logOf(t, out)); n != 2 {
		t.Errorf("%d steps in the log, want 2", n)
	}
}

// A language model whose weights spoil only the held-out documents stops with an error that
// names the document, not with a figure that is NaN.
func TestNotANumberStopsALanguageModelsEvaluation(t *testing.T) {
	dev := device(t, 1)
	docs := make([][]int32, 12)
	for i := range docs {
		docs[i] = []int32{1, 2, 3, 4, 5, 6, 7}
	}
	docs[11][4] = 9 // of the three that are held out, in windows of 4 inputs: its last input
	cfg := tinyConfig()
	cfg.Rows, cfg.Accum, cfg.Held = 16, 1, 0.25
	spec := *tinySpec()
	spec.Tied = false // or token 9 spoils every prediction
	l, tr, err := newLMTask(cfg, LMJob{Device: dev, Spec: &spec, Docs: docs, Window: 4, Out: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer tr.store.Close()
	l.params.Init(1)
	for _, p := range l.params.Tensors() {
		if p.Name == "embed" {
			for i := 9 * 16; i < 10*16; i++ { // of token 9, hidden size 16
				p.Data[i] = float32(math.Inf(1))
			}
		}
	}
	if err := tr.beginStage(0); err != nil {
		t.Fatal(err)
	}
	_, err = tr.evaluate(context.Background())
	for _, want := range []string{"document 11, tokens 4 to 6: the loss is ", "first in the weights embed, row 9: +Inf"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q in it", err, want)
		}
	}
}

// If the weights are too large, and not the data, the first operation that overflows is named;
// NaN weights are named themselves.
func TestTheOperationThatOverflowsIsNamed(t *testing.T) {
	dev := device(t, 1)
	target := tinyTarget(t, dev)
	set := tinyData(t, target, 40, data.BF16)
	for _, c := range []struct {
		weight string
		value  float32
		want   string
	}{
		{"layers.0.gate_up", 1e38, "first in the operation linear of layers.0.gate_up, row "},
		{"layers.0.q", float32(math.NaN()), "weight layers.0.q[0] is NaN since the step before"},
		{"", 0, "first in the frozen tensor embed, row 3: NaN: the target holds it"},
	} {
		job := HeadJob{Target: target, Data: mix.Only(set), Out: t.TempDir()}
		if c.weight == "" {
			ts := tinyTensors()
			row := ts[0].Data[3*64 : 4*64] // of 16 numbers
			for i := 0; i < len(row); i += 4 {
				binary.LittleEndian.PutUint32(row[i:], math.Float32bits(float32(math.NaN())))
			}
			opt := model.Default()
			opt.AllowNonFinite = true
			bad, err := model.New(tinySpec(), safetensors.Of("a target that holds no numbers", ts...), dev, opt)
			if err != nil {
				t.Fatal(err)
			}
			defer bad.Close()
			job.Target, job.Force = bad, true
		}
		h, tr, err := newHeadTask(tinyConfig(), job)
		if err != nil {
			t.Fatal(err)
		}
		h.params.Init(4)
		for _, p := range h.params.Tensors() {
			for i := range p.Data {
				if p.Name == c.weight {
					p.Data[i] = c.value
				}
			}
		}
		if err := tr.beginStage(0); err != nil {
			t.Fatal(err)
		}
		if _, err := tr.makeStep(context.Background()); err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "step 1: ") {
			t.Errorf("%v, want %q in it", err, c.want)
		}
		if tr.opt.Step() != 0 {
			t.Error("the step was made all the same")
		}
		tr.store.Close()
	}
}

// A run never continues from a checkpoint of another kind, and says what differs.
func TestForeignCheckpointsAreRefused(t *testing.T) {
	dev := device(t, 1)
	target := tinyTarget(t, dev)
	set := tinyData(t, target, 20, data.BF16)
	cfg := tinyConfig()
	cfg.Steps = 2
	good := t.TempDir()
	if _, err := Head(context.Background(), cfg, HeadJob{Target: target, Data: mix.Only(set), Out: good}); err != nil {
		t.Fatal(err)
	}
	ts := tinyTensors()
	ts[0].Data[5] ^= 1
	other, err := model.New(tinySpec(), safetensors.Of("another target", ts...), dev, model.Default())
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	// change saves the run's last step again with changes.
	change := func(edit func(c *checkpoints.Checkpoint)) string {
		t.Helper()
		dir, err := checkpoints.Find(good)
		if err != nil {
			t.Fatal(err)
		}
		s, err := checkpoints.Open(t.Context(), dir)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		c := &checkpoints.Checkpoint{Manifest: *s.Manifest, State: s.Trainer, Config: []byte("{}")}
		for _, w := range []struct {
			from *safetensors.Set
			to   *[]safetensors.Tensor
		}{{s.Weights, &c.Weights}, {s.Optimizer, &c.Optimizer}} {
			for _, name := range w.from.Names() {
				x, err := w.from.Get(name)
				if err != nil {
					t.Fatal(err)
				}
				*w.to = append(*w.to, x)
			}
		}
		edit(c)
		out := t.TempDir()
		store, err := checkpoints.NewStore(out, 0)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := store.Save(c); err != nil {
			t.Fatal(err)
		}
		if err := store.Close(); err != nil {
			t.Fatal(err)
		}
		return out
	}
	state := func(edit func(m map[string]any)) func(*checkpoints.Checkpoint) {
		return func(c *checkpoints.Checkpoint) {
			var m map[string]any
			if err := json.Unmarshal(c.State, &m); err != nil {
				t.Fatal(err)
			}
			edit(m)
			var err error
			if c.State, err = json.Marshal(m); err != nil {
				t.Fatal(err)
			}
		}
	}
	// Fields that an older release did not know have their defaults.
	old := change(state(func(m map[string]any) { delete(m["config"].(map[string]any), "layers") }))
	if res, err := Head(context.Background(), cfg, HeadJob{Target: target, Data: mix.Only(set), Out: old}); err != nil || !res.Done {
		t.Errorf("a checkpoint of before: %+v, %v", res, err)
	}
	for _, c := range []struct {
		name   string
		edit   func(*checkpoints.Checkpoint)
		target *model.Model
		want   string
	}{
		{"another target", func(*checkpoints.Checkpoint) {}, other, "another target"},
		{"bf16 moments", func(c *checkpoints.Checkpoint) {
			x := c.Optimizer[0]
			f, err := x.Float32s()
			if err != nil {
				t.Fatal(err)
			}
			c.Optimizer[0] = safetensors.BF16(x.Name, f, x.Shape...)
		}, target, "is BF16"},
		{"a tensor of another shape", func(c *checkpoints.Checkpoint) {
			for i, x := range c.Weights {
				if strings.Contains(x.Name, "k_proj") {
					f, err := x.Float32s()
					if err != nil {
						t.Fatal(err)
					}
					c.Weights[i] = safetensors.F32(x.Name, f, x.Shape[1], x.Shape[0])
				}
			}
		}, target, "k_proj.weight\" has shape [16 8], want [8 16]"},
		{"no such step", state(func(m map[string]any) { m["step"] = 99 }), target, "no such place in the run"},
		{"no such stage", state(func(m map[string]any) { m["stage"] = 1 }), target, "no such place in the run"},
		{"a weight that is missing", func(c *checkpoints.Checkpoint) {
			c.Weights = slices.DeleteFunc(c.Weights, func(x safetensors.Tensor) bool { return strings.Contains(x.Name, "v_proj") })
		}, target, "no tensor"},
	} {
		out := change(c.edit)
		job := HeadJob{Target: c.target, Data: mix.Only(set), Out: out, Force: true}
		if _, err := Head(context.Background(), cfg, job); err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, want %q in it", c.name, err, c.want)
		}
	}
}

// Features are the same bits wherever they come from, and stored ones must exist if asked for.
func TestStoredFeaturesMayBeRecomputed(t *testing.T) {
	dev := device(t, 1)
	target := tinyTarget(t, dev)
	set := tinyData(t, target, 40, data.BF16)
	cfg := tinyConfig()
	var first []byte
	for _, from := range []Features{"", FeaturesStored, FeaturesRecompute} {
		res, err := Head(context.Background(), cfg, HeadJob{Target: target, Data: mix.Only(set), Out: t.TempDir(), Features: from})
		if err != nil {
			t.Fatal(err)
		}
		if w := weights(t, res.Dir); first == nil {
			first = w
		} else if string(w) != string(first) {
			t.Error("recomputed features give other weights")
		}
	}
	bare := HeadJob{Target: target, Data: mix.Only(tinyData(t, target, 20, data.None)), Out: t.TempDir(), Features: FeaturesStored}
	if _, err := Head(t.Context(), cfg, bare); err == nil || !strings.Contains(err.Error(), "the data hold no features") {
		t.Errorf("stored features that are not there: %v", err)
	}
	bare.Features = "fresh"
	if _, err := Head(t.Context(), cfg, bare); err == nil || !strings.Contains(err.Error(), `features is "fresh", want auto, stored or recompute`) {
		t.Errorf("an unknown source of features: %v", err)
	}
}
