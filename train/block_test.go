package train

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"talf/checkpoints"
	"talf/compute"
	"talf/data"
	"talf/model/head"
	"talf/train/mix"
)

// tinyBlocks are networks for the tiny target and losses that train them.
var tinyBlocks = []struct{ network, loss, second string }{
	{"block:size=4,taps=0+1,confidence=on", "dflash:gamma=2", "talf:reach=target"},
	{"block:size=4,taps=1,causal=on", "dflash:labels=tail,gamma=0", "talf:path=on"},
	{"block:size=3,taps=0+1,shift=on,markov=vanilla,rank=6,confidence=on", "dspark", "eal"},
	{"block:size=3,taps=0+1,shift=on,markov=gated,rank=6,confidence=on", "talf", "tv"},
	{"block:size=4,taps=1+0,markov=vanilla,rank=5", "dpace", "lk"},
	{"block:size=4,taps=0,conv=4,selector=6,top=5", "dflash", "talf"},
	{"block:size=3,linear=on,markov=vanilla,rank=6", "dflash:labels=tail,gamma=0", "talf"},
	{"block:size=3,linear=on,taps=0+2,markov=gated,rank=5,confidence=on", "dspark", "eal"},
}

// Every kind of block head is trained along the text and over trees, by all of its losses: a run that was
// interrupted and resumed ends in the same bytes, and its checkpoint is read as the same head.
func TestTrainingABlockHeadResumesExactly(t *testing.T) {
	dev := device(t, 2)
	target := tinyTarget(t, dev)
	set := tinyData(t, target, 24, data.None)
	for i, c := range tinyBlocks {
		t.Run(c.network, func(t *testing.T) {
			cfg := tinyConfig()
			cfg.Network, cfg.Layers, cfg.DType = c.network, 2, []string{F32, BF16}[i%2]
			cfg.Stages = []Stage{{Loss: c.loss, Steps: 4, LR: 3e-3, Warmup: 1}, {Loss: c.second, Steps: 3, LR: 1e-3}}
			cfg.EvalEvery, cfg.SaveEvery = 2, 1
			job := func(dir string) HeadJob {
				j := HeadJob{Target: target, Data: mix.Only(set), Out: dir}
				if !strings.Contains(c.network, "selector") { // which scores all tokens
					j.Vocab = everySecond()
				}
				return j
			}
			whole := resumesExactly(t, cfg, job)
			h, err := checkpoints.LoadHead(whole, target, head.Default())
			if err != nil {
				t.Fatal(err)
			}
			defer h.Close()
			s := h.Spec()
			if got := s.Block; !got.On || strings.Contains(c.network, "markov") != (got.Markov != "") || len(got.Taps) == 0 {
				t.Errorf("the checkpoint is read as %+v", got)
			}
			// Another run may start from it, whose network is the head's, however much of that is asked for.
			cfg.Layers, cfg.Stages = 1, cfg.Stages[1:]
			for _, network := range []string{"", "block", c.network} {
				cfg.Network = network
				from := job(t.TempDir())
				from.Init, from.Vocab = whole, nil
				if _, err := Head(context.Background(), cfg, from); err != nil {
					t.Errorf("network %q: %v", network, err)
				}
			}
			cfg.Network = "block:size=9,taps=0"
			from := job(t.TempDir())
			from.Init, from.Vocab = whole, nil
			if _, err := Head(context.Background(), cfg, from); err == nil || !strings.Contains(err.Error(), "not block:size=9,taps=0 as asked") {
				t.Errorf("another network: %v", err)
			}
		})
	}
}

// What does not fit a block head is refused before any work is done.
func TestWhatDoesNotFitABlockHeadIsRefused(t *testing.T) {
	dev := device(t, 1)
	target := tinyTarget(t, dev)
	set := tinyData(t, target, 8, data.None)
	for _, c := range []struct{ network, loss, want string }{
		{"eagle", "dflash", "it is for block heads"},
		{"block:size=4,taps=0", "eagle", "predicts no features"},
		{"block:size=4,taps=0", "hass:w_reg=0,top=2", "its own features"},
		{"block:size=4,taps=0", "talf:path=on", "path=on is for causal block heads"},
		{"block:size=4,taps=0,causal=on,markov=vanilla,rank=2", "talf:path=on", "path=on is for heads without a Markov head"},
		{"block:size=2,taps=0", "talf:levels=2", "a block has 1"},
		{"block:size=4,taps=2", "dflash", "want layers before its last"},
		{"block:size=4", "dflash", "want layers before its last"},
		{"block:size=4,taps=0,rank=3", "dflash", "rank is of a Markov head"},
		{"block:size=4,taps=0,shift=on,conv=4", "dflash", "want one family's"},
		{"block:size=4,taps=0,causal=on,conv=4", "talf:path=on", "path=on is for heads without convolutions"},
		{"block:size=4,taps=0,mask=40", "dflash", "mask_token_id is 40"},
		{"block:size=4,taps=0,top=5", "dflash", "top is of a selector"},
		{"block:size=4,linear=on,causal=on", "dflash", "linear is of rows that predict the token after"},
		{"block:size=4,linear=on,shift=off", "dflash", "want no shift=off"},
		{"block:size=4,linear=on,taps=3", "dflash", "the input of the target's layer 3, want at most 2"},
		{"block:size=4,linear=on", "talf:levels=2", "it teaches 2 rows of a linear block, whose 4 share no weights: want size=2, or trees as deep"},
		{"block:size=2,linear=on", "talf:path=on", "path=on is for heads with layers"},
		{"block:size=4,taps=0,confidence=on", "dflash:labels=ignore", "learns from all of the target's probability"},
		{"block:size=4,taps=0,confidence=on", "dflash:labels=full,temp=2", "a confidence head: want 1"},
	} {
		cfg := tinyConfig()
		cfg.Network, cfg.Loss = c.network, c.loss
		_, err := Head(context.Background(), cfg, HeadJob{Target: target, Data: mix.Only(set), Out: t.TempDir()})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s with %s: %v, want %q", c.network, c.loss, err, c.want)
		}
	}
	cfg := tinyConfig()
	cfg.Network, cfg.Loss, cfg.FCBias = "block:size=4,taps=0", "dflash", true
	if _, err := Head(context.Background(), cfg, HeadJob{Target: target, Data: mix.Only(set), Out: t.TempDir()}); err == nil || !strings.Contains(err.Error(), "fc has no bias") {
		t.Errorf("with a bias: %v", err)
	}
	// A start as linear prediction needs rows of maps, and what the target's LM head reads.
	for network, want := range map[string]string{
		"block:size=4,taps=0":           "a block head with layers predicts no hidden states",
		"block:size=4,linear=on,taps=1": "the linear start reads the output of the target's last layer: the taps end with 1, want 2",
	} {
		cfg.Network, cfg.Loss, cfg.FCBias = network, "dflash", false
		_, err := Head(t.Context(), cfg, HeadJob{Target: target, Data: mix.Only(set), Out: t.TempDir(), Linear: true})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s from a linear start: %v, want %q", network, err, want)
		}
	}
}

// A head to start from that cannot be read, or is none of the network's, is refused: training must not begin with random
// weights in its place.
func TestABlockHeadStartsFromNoOtherHead(t *testing.T) {
	target := tinyTarget(t, device(t, 1))
	set := tinyData(t, target, 8, data.None)
	cfg := tinyConfig()
	cfg.Steps = 1
	make := func(loss string) string {
		if cfg.Loss, cfg.Network = loss, ""; loss == "dflash" {
			cfg.Network = "block:size=4,taps=0"
		}
		c, err := Head(t.Context(), cfg, HeadJob{Target: target, Data: mix.Only(set), Out: t.TempDir()})
		if err != nil {
			t.Fatal(err)
		}
		return c.Dir
	}
	edited := func(dir, name string, edit func([]byte) []byte) string {
		to := t.TempDir()
		for _, f := range []string{checkpoints.ConfigFile, checkpoints.WeightsFile} {
			raw, err := os.ReadFile(filepath.Join(dir, f))
			if err != nil {
				t.Fatal(err)
			}
			if f == name {
				raw = edit(raw)
			}
			if err := os.WriteFile(filepath.Join(to, f), raw, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		return to
	}
	eagle, block := make("eagle"), make("dflash")
	for name, c := range map[string]struct{ init, want string }{
		"no directory":      {filepath.Join(t.TempDir(), "none"), "none: "},
		"a head of EAGLE's": {eagle, " is of EAGLE-1's or 2's kind, not block:"},
		"truncated":         {edited(block, checkpoints.WeightsFile, func(b []byte) []byte { return b[:len(b)-8] }), "model.safetensors: tensor "},
		"no block size": {edited(block, checkpoints.ConfigFile, func(b []byte) []byte {
			return bytes.Replace(b, []byte(`"block_size"`), []byte(`"block_sighs"`), 1)
		}), "config.json: block_size is missing"},
	} {
		cfg.Loss, cfg.Network = "dflash", "block:size=4,taps=0"
		_, err := Head(t.Context(), cfg, HeadJob{Target: target, Data: mix.Only(set), Out: t.TempDir(), Init: c.init})
		if err == nil || !strings.Contains(err.Error(), "initial head: ") || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

// Every loss trains every part of a block head, also those that it has no term for.
func TestEveryLossTrainsEveryPartOfABlockHead(t *testing.T) {
	dev := device(t, 1)
	target := tinyTarget(t, dev)
	set := tinyData(t, target, 8, data.None)
	cfg := tinyConfig()
	cfg.Decay = 0 // what has no gradient stays as it is
	for _, network := range []string{
		"block:size=4,taps=0,confidence=on",
		"block:size=4,taps=0,markov=vanilla,rank=3,confidence=on",
		"block:size=4,taps=0,conv=4,selector=3,top=4",
	} {
		for _, loss := range []string{
			"dflash", "dflash:labels=tail", "dflash:labels=full", "dpace", "dspark", "dspark:w_l1=0", "dspark:labels=full",
			"talf", "talf:reach=target", "eal", "tv", "lk",
		} {
			cfg.Network, cfg.Loss = network, loss
			h, tr := entered(t, cfg, HeadJob{Target: target, Data: mix.Only(set), Out: t.TempDir()})
			var before [][]float32
			for _, x := range h.params.Tensors() {
				before = append(before, slices.Clone(x.Data))
			}
			for range 2 { // a selector's C is 0 at first, and what is multiplied with it has no gradient
				if _, err := tr.makeStep(t.Context()); err != nil {
					t.Fatalf("%s with %s: %v", network, loss, err)
				}
			}
			for i, x := range h.params.Tensors() {
				if slices.Equal(before[i], x.Data) {
					t.Errorf("%s with %s: %s stays as it was", network, loss, x.Name)
				}
			}
		}
	}
}

// plain hides a device's ability to train block heads, plainQueue its queue's.
type (
	plain      struct{ compute.Device }
	plainQueue struct{ compute.Queue }
)

func (d plain) Queue() compute.Queue { return plainQueue{d.Device.Queue()} }

func (q plainQueue) Abilities() compute.Abilities {
	can := q.Queue.Abilities()
	can.Block = nil
	return can
}

// A device that lacks what block heads take trains other heads and linear blocks, and refuses the rest before it writes anything.
func TestADeviceWithoutBlocksRefusesBlockHeads(t *testing.T) {
	target := tinyTarget(t, plain{device(t, 1)})
	set := tinyData(t, target, 8, data.None)
	cfg := tinyConfig()
	cfg.Steps = 1
	for network, refused := range map[string]bool{
		"": false, "block:size=3,linear=on,markov=vanilla,rank=4": false,
		"block:size=4,taps=0": true, "block:size=3,linear=on,markov=gated,rank=4": true, "block:size=3,linear=on,confidence=on": true,
	} {
		if cfg.Network, cfg.Loss = network, "dflash"; network == "" {
			cfg.Loss = "eagle"
		}
		out := filepath.Join(t.TempDir(), "out")
		_, err := Head(t.Context(), cfg, HeadJob{Target: target, Data: mix.Only(set), Out: out})
		if !refused {
			if err != nil {
				t.Errorf("%s: %v", network, err)
			}
			continue
		}
		if err == nil || !strings.Contains(err.Error(), "block heads are trained on the CPU, not on ") {
			t.Errorf("%s: %v", network, err)
		}
		if _, err := os.Stat(out); !os.IsNotExist(err) {
			t.Errorf("%s: the directory of checkpoints: %v", network, err)
		}
	}
}
