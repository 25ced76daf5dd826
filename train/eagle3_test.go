package train

import (
	"bytes"
	"context"
	"errors"
	"math"
	"os"
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

// tinyEagle3 is a network for the tiny target, which has too few layers for the usual taps.
const tinyEagle3 = "eagle3:taps=0+2+1"

func eagle3Config(loss string) Config {
	cfg := tinyConfig()
	cfg.Network, cfg.Loss = tinyEagle3, loss
	return cfg
}

// Training-time test, TALF's loss and the expected accepted length train an EAGLE-3 head: a run that was
// interrupted and resumed ends in the same bytes.
func TestTrainingAnEAGLE3HeadResumesExactly(t *testing.T) {
	dev := device(t, 2)
	target := tinyTarget(t, dev)
	set := tinyData(t, target, 24, data.None)
	cfg := eagle3Config("eagle3:steps=3")
	cfg.Stages = []Stage{
		{Loss: "eagle3:steps=3", Steps: 4, LR: 3e-3, Warmup: 1},
		{Loss: "talf:outside=mask", Steps: 3, LR: 1e-3},
		{Loss: "eal", Steps: 2, LR: 1e-3},
	}
	cfg.EvalEvery, cfg.SaveEvery = 2, 1
	resumesExactly(t, cfg, func(dir string) HeadJob {
		return HeadJob{Target: target, Data: mix.Only(set), Out: dir, Vocab: everySecond()}
	})
}

// A checkpoint is a head that other systems' layout describes in full, and that a further run may
// start from: the weights are the same, and so are network, taps and draft vocabulary.
func TestACheckpointOfAnEAGLE3HeadIsItsNetwork(t *testing.T) {
	dev := device(t, 1)
	target := tinyTarget(t, dev)
	set := tinyData(t, target, 24, data.None)
	dir := t.TempDir()
	cfg := eagle3Config("eagle3:steps=2")
	cfg.Network += ",fc_norm=on,norm_output=on"
	cfg.Steps = 2
	first, err := Head(context.Background(), cfg, HeadJob{Target: target, Data: mix.Only(set), Out: filepath.Join(dir, "first"), Vocab: everySecond()})
	if err != nil {
		t.Fatal(err)
	}
	d, err := checkpoints.OpenDraft(first.Dir)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	e := d.Spec.Eagle3
	if !e.On || !slices.Equal(e.Taps, []int{0, 2, 1}) || !e.FCNorm || !e.NormOutput || e.TargetLMHead || d.Spec.DraftVocab != 20 {
		t.Errorf("the checkpoint's network is %+v, draft vocabulary %d", e, d.Spec.DraftVocab)
	}
	if !slices.Equal(d.Vocab, everySecond()) {
		t.Errorf("draft vocabulary %v", d.Vocab)
	}
	if _, ok := d.Tensor("embed_tokens.weight"); ok {
		t.Error("the target's embedding is in the checkpoint")
	}
	next := tinyConfig()
	next.Loss, next.Steps, next.LR = "talf", 1, 0
	second, err := Head(context.Background(), next, HeadJob{Target: target, Data: mix.Only(set), Out: filepath.Join(dir, "second"), Init: filepath.Join(dir, "first")})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"model.safetensors", "config.json"} {
		a, err := os.ReadFile(filepath.Join(first.Dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if b, err := os.ReadFile(filepath.Join(second.Dir, name)); err != nil || !bytes.Equal(a, b) {
			t.Errorf("%s differs after a step at learning rate 0 (%v)", name, err)
		}
	}
	next.Network = "eagle3:taps=0+1+2"
	if _, err := Head(context.Background(), next, HeadJob{Target: target, Data: mix.Only(set), Out: filepath.Join(dir, "third"), Init: first.Dir}); err == nil || !strings.Contains(err.Error(), "taps=0+2+1,fc_norm=on,norm_output=on, not eagle3:taps=0+1+2") {
		t.Errorf("another network than the initial head's: %v", err)
	}
}

// A new head begins with the target's LM head and final norm, so that before the first step its
// logits already are the target's way to read a hidden state.
func TestANewEAGLE3HeadHasItsTargetsLMHead(t *testing.T) {
	target := tinyTarget(t, device(t, 1))
	set := tinyData(t, target, 12, data.None)
	h, _ := entered(t, eagle3Config("eagle3"), HeadJob{Target: target, Data: mix.Only(set), Out: t.TempDir(), Vocab: everySecond()})
	lm, err := target.HostLMHead()
	if err != nil {
		t.Fatal(err)
	}
	hid := h.spec.Hidden
	for i, id := range everySecond() {
		if got := h.params.OwnLMHead().Data[i*hid : (i+1)*hid]; !slices.Equal(got, lm[int(id)*hid:(int(id)+1)*hid]) {
			t.Fatalf("row %d is not the target's of token %d", i, id)
		}
	}
}

// The head reads the target's states before the given layers, rounded to bfloat16.
func TestTapsAreTheTargetsStates(t *testing.T) {
	target := tinyTarget(t, device(t, 1))
	set := tinyData(t, target, 12, data.None)
	h, _ := entered(t, eagle3Config("eagle3"), HeadJob{Target: target, Data: mix.Only(set), Out: t.TempDir()})
	s, err := h.source.Next()
	if err != nil {
		t.Fatal(err)
	}
	got, err := h.features(context.Background(), s.Record, false)
	if err != nil {
		t.Fatal(err)
	}
	if len(target.Taps()) != 0 {
		t.Errorf("the target still keeps its states at %v", target.Taps())
	}
	embed, err := target.HostEmbed()
	if err != nil {
		t.Fatal(err)
	}
	hid := target.Spec().Hidden
	for p, id := range s.Tokens {
		want := make([]float32, hid)
		data.DecodeBF16(want, data.AppendBF16(nil, embed[int(id)*hid:(int(id)+1)*hid]))
		row := got[p*3*hid : (p+1)*3*hid]
		if !slices.Equal(row[:hid], want) { // boundary 0 is the embedding
			t.Fatalf("position %d: tap 0 is %v, want %v", p, row[:3], want[:3])
		}
		if slices.Equal(row[hid:2*hid], row[2*hid:]) || math.IsNaN(float64(row[hid])) {
			t.Fatalf("position %d: taps 2 and 1 are equal", p)
		}
	}
}

// Stored states and those of another run of the target give the same head, and what the data hold
// decides the taps if nobody names them.
func TestStoredAndRecomputedTapsTrainTheSameHead(t *testing.T) {
	target := tinyTarget(t, device(t, 1))
	var want []byte
	for _, c := range []struct {
		stored   data.FeatureMode
		features Features
		network  string
		warns    int
	}{
		{data.None, FeaturesAuto, tinyEagle3, 0},
		{data.Taps, FeaturesStored, "eagle3", 0},
		{data.Taps, FeaturesRecompute, tinyEagle3, 0},
		{data.BF16, FeaturesAuto, tinyEagle3, 1},
	} {
		set := tinyData(t, target, 12, c.stored)
		cfg := eagle3Config("eagle3:steps=2")
		cfg.Network, cfg.Steps = c.network, 2
		warns := 0
		res, err := Head(context.Background(), cfg, HeadJob{
			Target: target, Data: mix.Only(set), Out: t.TempDir(), Features: c.features, Warn: func(string) { warns++ },
		})
		if err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(filepath.Join(res.Dir, "model.safetensors"))
		if err != nil {
			t.Fatal(err)
		}
		if want == nil {
			want = got
		}
		if !bytes.Equal(got, want) || warns != c.warns {
			t.Errorf("%s features, %s: other weights: %v; %d warnings, want %d", c.stored, c.features, !bytes.Equal(got, want), warns, c.warns)
		}
	}
	set := tinyData(t, target, 12, data.Taps)
	if _, err := Head(context.Background(), tinyConfig(), HeadJob{Target: target, Data: mix.Only(set), Out: t.TempDir(), Features: FeaturesStored}); err == nil || !strings.Contains(err.Error(), "no features for this head") {
		t.Errorf("an EAGLE-1 head on the states of EAGLE-3: %v", err)
	}
}

// A head that reads some of the layers whose states the data hold, in an order of its own, takes those, and has the bits of
// one for which the target ran again. Sets that hold the states of different layers do not mix.
func TestAHeadReadsSomeOfTheStoredTaps(t *testing.T) {
	target := tinyTarget(t, device(t, 1))
	head := func(network string, features Features, sets ...*data.Set) (weights []byte, warns int, err error) {
		cfg := eagle3Config("eagle3:steps=2")
		cfg.Network, cfg.Steps = network, 2
		var mixed mix.Shares
		for _, s := range sets {
			mixed = append(mixed, mix.Share{Set: s, Weight: 1})
		}
		res, err := Head(context.Background(), cfg, HeadJob{Target: target, Data: mixed, Out: t.TempDir(), Features: features, Warn: func(string) { warns++ }})
		if err != nil {
			return nil, warns, err
		}
		weights, err = os.ReadFile(filepath.Join(res.Dir, "model.safetensors"))
		return weights, warns, err
	}
	set, other := tinyData(t, target, 12, data.Taps), tinyDataIn(t, filepath.Join(t.TempDir(), "other"), target, 12, data.Taps, 2, 0)
	for _, network := range []string{"eagle3:taps=2", "eagle3:taps=2+0", "eagle3:taps=0+2+1"} {
		want, _, err := head(network, FeaturesRecompute, set)
		if err != nil {
			t.Fatal(err)
		}
		if got, warns, err := head(network, FeaturesStored, set); err != nil || warns != 0 || !bytes.Equal(got, want) {
			t.Errorf("%s of stored states: other weights: %v; %d warnings (%v), want none", network, !bytes.Equal(got, want), warns, err)
		}
	}
	if _, _, err := head("eagle3:taps=2", FeaturesStored, set, other); err == nil || !strings.Contains(err.Error(), "set 2 of the data hold no features for this head") {
		t.Errorf("sets with the states of different layers: %v", err)
	}
	want, _, err := head("eagle3:taps=2", FeaturesRecompute, set, other)
	if err != nil {
		t.Fatal(err)
	}
	if got, warns, err := head("eagle3:taps=2", FeaturesAuto, set, other); err != nil || warns != 1 || !bytes.Equal(got, want) {
		t.Errorf("sets with the states of different layers: other weights: %v; %d warnings (%v), want 1", !bytes.Equal(got, want), warns, err)
	}
}

func TestWhatAnEAGLE3HeadCannotDoIsRefused(t *testing.T) {
	dev := device(t, 1)
	target := tinyTarget(t, dev)
	set := tinyData(t, target, 12, data.BF16)
	for _, c := range []struct {
		change func(*Config, *HeadJob)
		want   string
	}{
		{func(c *Config, _ *HeadJob) { c.Loss = "eagle" }, "predicts no features: want w_reg=0"},
		{func(c *Config, _ *HeadJob) { c.Loss, c.Network = "eagle3", "" }, "2 layers, want at least 7"},
		{func(c *Config, _ *HeadJob) { c.Network = "eagle3:taps=0+1+3" }, "only 2 layers"},
		{func(c *Config, _ *HeadJob) { c.Network = "eagle3:taps=0+0" }, "different layers"},
		{func(c *Config, _ *HeadJob) { c.Network = "eagle3:taps=1+2" }, "begins with 1"},
		{func(c *Config, _ *HeadJob) { c.Network += ",fc_norm=on,norm_before_fc=on" }, "want one of them"},
		{func(c *Config, _ *HeadJob) { c.Network = "medusa" }, `unknown network "medusa"`},
		{func(_ *Config, j *HeadJob) { j.Linear = true }, "cannot start as a linear prediction"},
		{func(_ *Config, j *HeadJob) { j.Features = FeaturesStored }, "no features for this head"},
	} {
		cfg, job := eagle3Config("eagle3"), HeadJob{Target: target, Data: mix.Only(set), Out: t.TempDir()}
		c.change(&cfg, &job)
		if _, err := Head(context.Background(), cfg, job); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, want %q in it", err, c.want)
		}
	}
	// Layers that come from the data are no different, and are refused before there is anything to lose.
	cfg, out := eagle3Config("eagle3"), t.TempDir()
	cfg.Network = "eagle3"
	first := tinyDataIn(t, filepath.Join(t.TempDir(), "data"), target, 12, data.Taps, 1, 2)
	if _, err := Head(t.Context(), cfg, HeadJob{Target: target, Data: mix.Only(first), Out: out}); err == nil || !strings.Contains(err.Error(), "network eagle3:taps=1+2: taps [1 2]: other systems read a list that begins with 1") {
		t.Errorf("layers of the data: %v", err)
	}
	if files, err := os.ReadDir(out); err != nil || len(files) > 0 {
		t.Errorf("the run has begun: %v, %v", files, err)
	}
}

// Whatever kind of head a run begins with, it is this target's and undamaged.
func TestAnInitialHeadIsTheTargetsAndWhole(t *testing.T) {
	dev := device(t, 1)
	target := tinyTarget(t, dev)
	set := tinyData(t, target, 12, data.None)
	ts := tinyTensors()
	ts[0].Data = bytes.Clone(ts[0].Data)
	ts[0].Data[1] ^= 1
	other, err := model.New(tinySpec(), safetensors.Of("another target", ts...), dev, model.Default())
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	for _, network := range []string{"eagle", tinyEagle3} {
		cfg := tinyConfig()
		cfg.Network, cfg.Loss, cfg.Steps = network, "talf", 1
		first, err := Head(t.Context(), cfg, HeadJob{Target: target, Data: mix.Only(set), Out: filepath.Join(t.TempDir(), "first")})
		if err != nil {
			t.Fatal(err)
		}
		begin := func(init string, target *model.Model, force bool) error {
			_, err := Head(t.Context(), cfg, HeadJob{Target: target, Data: mix.Only(tinyData(t, target, 12, data.None)), Out: t.TempDir(), Init: init, Force: force})
			return err
		}
		if err := begin(first.Dir, target, false); err != nil {
			t.Errorf("%s: %v", network, err)
		}
		if err := begin(first.Dir, other, false); err == nil || !strings.Contains(err.Error(), "initial head: "+first.Dir+": trained for another target") {
			t.Errorf("%s of another target: %v", network, err)
		}
		if err := begin(first.Dir, other, true); err != nil {
			t.Errorf("%s of another target, forced: %v", network, err)
		}
		path := filepath.Join(first.Dir, checkpoints.WeightsFile)
		raw, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		raw[len(raw)-1] ^= 1
		if err := os.WriteFile(path, raw, 0o644); err != nil {
			t.Fatal(err)
		}
		if err := begin(first.Dir, target, false); !errors.Is(err, checkpoints.ErrDamaged) {
			t.Errorf("%s with a damaged file: %v", network, err)
		}
		// Without its manifest it is a head as other systems store it, whose file may still name the target.
		if err := os.Remove(filepath.Join(first.Dir, checkpoints.ManifestFile)); err != nil {
			t.Fatal(err)
		}
		if err := begin(first.Dir, other, false); err == nil || !strings.Contains(err.Error(), "trained for another target") {
			t.Errorf("%s of another target, without a manifest: %v", network, err)
		}
	}
}
