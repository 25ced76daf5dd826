package train

import (
	"bytes"
	"context"
	"math"
	"strings"
	"testing"

	"talf/data"
	"talf/model"
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
// to the rounding of the stored features to bfloat16; with a draft vocabulary, the part inside.
func TestLabelsFromFeaturesAreTheTargets(t *testing.T) {
	for name, of := range exactRuns() {
		t.Run(name, func(t *testing.T) {
			cfg, job := of()
			target := tinyTarget(t, device(t, 1))
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
