package train

import (
	"context"
	"errors"
	"reflect"
	"strings"
	"testing"

	"talf/data"
	"talf/train/mix"
)

func TestARunOnSeveralSetsContinuesWithTheSameBits(t *testing.T) {
	dev := device(t, 1)
	target := tinyTarget(t, dev)
	// One of the sets has no features: they are computed from the target.
	shares := mix.Shares{{Set: tinyData(t, target, 40, data.BF16), Weight: 3}, {Set: tinyData(t, target, 15, data.None), Weight: 1}}
	cfg := tinyConfig()
	job := HeadJob{Target: target, Data: shares, Out: t.TempDir()}
	want, err := Head(context.Background(), cfg, job)
	if err != nil {
		t.Fatal(err)
	}
	job.Out = t.TempDir()
	ctx, report := stopAfter(3)
	stopped := job
	stopped.Report = report
	if _, err := Head(ctx, cfg, stopped); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	res, err := Head(context.Background(), cfg, job)
	if err != nil {
		t.Fatal(err)
	}
	sameFiles(t, "two sets", files(t, want.Dir), files(t, res.Dir))
	if !reflect.DeepEqual(res.Eval, want.Eval) {
		t.Errorf("evaluation %+v, want %+v", res.Eval, want.Eval)
	}
	job.Data = mix.Shares{shares[0], {Set: shares[1].Set, Weight: 2}}
	if _, err := Head(context.Background(), cfg, job); err == nil || !strings.Contains(err.Error(), "other data") {
		t.Errorf("another weight: %v", err)
	}
	job.Data = mix.Shares{shares[0], {Set: shares[1].Set, Weight: 0}}
	if _, err := Head(context.Background(), cfg, job); err == nil || !strings.Contains(err.Error(), "weight 0") {
		t.Errorf("no weight: %v", err)
	}
}

// Sequences that are packed into one batch do not see each other: the training on one of them is
// the same, to the bit, whatever else is in the batch.
func TestPackedSequencesDoNotSeeEachOther(t *testing.T) {
	dev := device(t, 1)
	target := tinyTarget(t, dev)
	set := tinyData(t, target, 12, data.BF16)
	for _, lossName := range []string{"eagle", "hass:top=3,feed=flow", "talf", "lk", "eal:w_cls=1"} {
		cfg := tinyConfig()
		cfg.Rows, cfg.Loss = 300, lossName
		h, tr, err := newHeadTask(cfg, HeadJob{Target: target, Data: mix.Only(set), Out: t.TempDir()})
		if err != nil {
			t.Fatal(err)
		}
		h.params.Init(4)
		if err := tr.beginStage(0); err != nil {
			t.Fatal(err)
		}
		var all []mix.Sample
		for range 8 {
			s, err := h.source.Next()
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, s)
		}
		h.count = 1
		run := func(s []mix.Sample) (rows [][]float32) {
			if err := h.pack(context.Background(), s, 1, 0); err != nil {
				t.Fatal(err)
			}
			if err := h.graph.Run(context.Background()); err != nil {
				t.Fatal(err)
			}
			for i := range h.terms {
				rows = append(rows, append([]float32(nil), h.terms[i].RowLoss()...))
			}
			return rows
		}
		packed := run(all)
		at := make([]int, len(packed))
		for i, s := range all {
			for l, rows := range run([]mix.Sample{s}) {
				for j, x := range rows {
					if got := packed[l][at[l]+j]; got != x {
						t.Fatalf("%s: sequence %d, term %d, row %d: loss %v among others, %v alone", lossName, i, l, j, got, x)
					}
				}
				at[l] += len(rows)
			}
		}
		tr.store.Close()
	}
}
