package train

import (
	"bytes"
	"context"
	"math"
	"os"
	"strings"
	"testing"

	"talf/data"
	"talf/model"
	"talf/model/arch"
	"talf/model/safetensors"
	"talf/train/mix"
)

// exactRuns are runs whose labels come from the target's features.
func exactRuns() map[string]func() (Config, HeadJob) {
	staged := func(stages ...string) Config {
		cfg := tinyConfig()
		cfg.Noise, cfg.SaveEvery = 0.2, 1
		for _, s := range stages {
			cfg.Stages = append(cfg.Stages, Stage{Loss: s, Steps: 2, LR: 1e-2, Warmup: 1})
		}
		return cfg
	}
	return map[string]func() (Config, HeadJob){
		"all tokens": func() (Config, HeadJob) {
			return staged("eagle:labels=full", "hass:labels=full,top=10", "eagle:labels=full,temp=2"), HeadJob{}
		},
		"a draft vocabulary": func() (Config, HeadJob) {
			return staged("eagle:labels=full", "hass:labels=full,outside=renorm,top=3"), HeadJob{Vocab: everySecond()}
		},
		"an EAGLE-3 head": func() (Config, HeadJob) {
			cfg := staged("eagle3:labels=full,steps=2")
			cfg.Network = tinyEagle3
			return cfg, HeadJob{Vocab: everySecond()}
		},
	}
}

// changedTarget returns tinyTarget with another function of the same weights.
func changedTarget(t *testing.T, change func(*arch.Spec)) *model.Model {
	t.Helper()
	spec := tinySpec()
	change(spec)
	m, err := model.New(spec, safetensors.Of("changed target", tinyTensors()...), device(t, 1), model.Default())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return m
}

// No bit depends on threads, on where the features come from, or on where the run was stopped.
func TestLabelsFromFeaturesDoNotChangeABit(t *testing.T) {
	for name, of := range exactRuns() {
		t.Run(name, func(t *testing.T) {
			var want []byte
			for _, c := range []struct {
				threads  int
				features data.FeatureMode
				stop     int
			}{{1, data.BF16, 0}, {3, data.None, 0}, {2, data.Taps, 1}} {
				cfg, job := of()
				target := tinyTarget(t, device(t, c.threads))
				job.Target, job.Data, job.Out = target, mix.Only(tinyData(t, target, 24, c.features)), t.TempDir()
				if c.stop > 0 {
					stopped := job
					var ctx context.Context
					ctx, stopped.Report = stopAfter(c.stop)
					if _, err := Head(ctx, cfg, stopped); err == nil {
						t.Fatal("the run was not stopped")
					}
				}
				res, err := Head(t.Context(), cfg, job)
				if err != nil {
					t.Fatal(err)
				}
				if got := weights(t, res.Dir); want == nil {
					want = got
				} else if !bytes.Equal(got, want) {
					t.Errorf("%d threads, features %s, stopped at %d: other weights", c.threads, c.features, c.stop)
				}
			}
		})
	}
}

// The labels of a row are the target's own distribution after the token that the row is fed, up
// to the rounding of the stored features to bfloat16; with a draft vocabulary, the part inside. That
// target multiplies its logits.
func TestLabelsFromFeaturesAreTheTargets(t *testing.T) {
	for name, of := range exactRuns() {
		t.Run(name, func(t *testing.T) {
			cfg, job := of()
			target := changedTarget(t, func(s *arch.Spec) { s.LogitScale = 3 })
			job.Target, job.Data, job.Out = target, mix.Only(tinyData(t, target, 24, data.BF16)), t.TempDir()
			h, _, err := newHeadTask(cfg, job)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := h.build(0); err != nil {
				t.Fatal(err)
			}
			if _, _, err := h.readStep(); err != nil {
				t.Fatal(err)
			}
			if err := h.fill(t.Context(), 0, 1); err != nil {
				t.Fatal(err)
			}
			v := target.Spec().Vocab
			size := v
			if h.vocab != nil {
				size = len(h.vocab.IDs)
			}
			at, logits := 0, make([]float32, v)
			for _, s := range h.micro[0] {
				seq := target.NewSeq()
				n := mix.Span(s.Record, h.limit, h.early)
				for i := range n + 1 {
					out, err := seq.Append(t.Context(), s.Record.Tokens[i:i+1], nil, model.WantAll)
					if err != nil {
						t.Fatal(err)
					}
					if i == 0 {
						continue
					}
					if h.vocab.Draft(h.batch.Top[0][at]) < 0 && strings.HasPrefix(h.stages[0].Loss, "eagle3") {
						at++ // the row does not count
						continue
					}
					out.ReadLogits(logits, out.LogitsRow(0, 0))
					p, sum, inside := make([]float64, v), 0.0, 1.0
					for x, z := range logits {
						p[x] = math.Exp(float64(z))
						sum += p[x]
					}
					if strings.HasPrefix(h.stages[0].Loss, "eagle3") { // outside=mask: those inside get all the mass
						inside = 0
						for _, x := range h.vocab.IDs {
							inside += p[x] / sum
						}
					}
					for d := range size {
						x := d
						if h.vocab != nil {
							x = int(h.vocab.IDs[d])
						}
						if got, want := float64(h.batch.Labels[0].Full[at*size+d]), p[x]/sum/inside; math.Abs(got-want) > 0.01 {
							t.Fatalf("row %d, token %d: %v, want %v", i-1, x, got, want)
						}
					}
					at++
				}
				seq.Close()
			}
			if at != h.batch.Head.Levels[0].Rows.N {
				t.Errorf("%d rows, want %d", h.batch.Head.Levels[0].Rows.N, at)
			}
		})
	}
}

// What the target's LM head and features cannot give is refused before the first stage, of whichever
// stage it is.
func TestLabelsThatFeaturesDoNotGiveAreRefused(t *testing.T) {
	dev := device(t, 1)
	capped := changedTarget(t, func(s *arch.Spec) { s.LogitCap = 30 })
	for _, c := range []struct {
		target   *model.Model
		network  string
		data     data.FeatureMode
		features Features
		loss     string
		want     string // "": accepted
	}{
		{capped, "eagle", data.BF16, FeaturesAuto, "eagle:labels=full", "loss eagle:labels=full: labels=full: the target caps its logits"},
		{capped, "eagle", data.BF16, FeaturesAuto, "eagle", ""},
		{tinyTarget(t, dev), "eagle", data.None, FeaturesStored, "eagle:labels=full", "no features for this head"},
		{tinyTarget(t, dev), "eagle", data.BF16, FeaturesStored, "eagle:labels=full", ""},
		{tinyTarget(t, dev), tinyEagle3, data.Taps, FeaturesStored, "eagle3:labels=full", `loss eagle3:labels=full: labels=full of a head that reads states of layers needs the target's last hidden states, which data with its features do not hold: features is "stored", want auto or recompute`},
		{tinyTarget(t, dev), tinyEagle3, data.Taps, FeaturesStored, "eagle3", ""},
	} {
		cfg := tinyConfig()
		cfg.Network = c.network
		cfg.Stages = []Stage{{Loss: "talf", Steps: 1, LR: 1e-2}, {Loss: c.loss, Steps: 1, LR: 1e-2}}
		job := HeadJob{Target: c.target, Data: mix.Only(tinyData(t, c.target, 12, c.data)), Out: t.TempDir(), Features: c.features}
		_, err := Head(t.Context(), cfg, job)
		if c.want == "" {
			if err != nil {
				t.Errorf("%s, features %s: %v", c.loss, c.features, err)
			}
			continue
		}
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s, features %s: %v, want %q in it", c.loss, c.features, err, c.want)
		}
		if files, err := os.ReadDir(job.Out); err != nil || len(files) > 0 {
			t.Errorf("%s, features %s: the run has begun: %v, %v", c.loss, c.features, files, err)
		}
	}
}
