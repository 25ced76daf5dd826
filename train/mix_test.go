package train

import (
	"context"
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"

	"talf/data"
)

// A mixture keeps its shares to within a sequence at any time, goes on from any
// place, and is the reader itself when there is one set.
func TestAMixtureKeepsItsShares(t *testing.T) {
	dev := device(t, 1)
	target := tinyTarget(t, dev)
	a, b := tinyData(t, target, 40, data.BF16), tinyData(t, target, 23, data.BF16)
	shares := []Share{{a, 0.7}, {b, 0.2}, {a, 0.1}}
	const limit = 64
	open := func(s []Share) *mixture {
		m, err := newMixture(s, 5, data.Split{Part: data.Train, Fraction: 0.1}, limit)
		if err != nil {
			t.Fatal(err)
		}
		return &m
	}
	m := open(shares)
	var spent [3]float64
	total := 0.0
	for n := range 300 {
		raw, err := m.place()
		if err != nil {
			t.Fatal(err)
		}
		s, err := m.next()
		if err != nil {
			t.Fatal(err)
		}
		if n%7 == 0 { // what is put back comes again
			m.back(s)
			if raw, err = m.place(); err != nil {
				t.Fatal(err)
			}
			if s, err = m.next(); err != nil {
				t.Fatal(err)
			}
		}
		if n%7 < 2 {
			other := open(shares)
			if err := other.seek(raw); err != nil {
				t.Fatal(err)
			}
			if o, err := other.next(); err != nil || o.set != s.set || o.place != s.place {
				t.Fatalf("sequence %d after seeking: %v of set %d, want %v of set %d, %v", n, o.place, o.set, s.place, s.set, err)
			}
		}
		got := float64(span(s.Record, limit))
		spent[s.set], total = spent[s.set]+got, total+got
		for i, w := range []float64{0.7, 0.2, 0.1} {
			if off := math.Abs(spent[i] - w*total); off > 3*26 {
				t.Fatalf("after %d sequences set %d gave %v of %v positions", n+1, i, spent[i], total)
			}
		}
	}
	one := open(Only(b))
	r, err := b.Shuffled(5, data.Split{Part: data.Train, Fraction: 0.1})
	if err != nil {
		t.Fatal(err)
	}
	for range 100 {
		s, err := one.next()
		if err != nil {
			t.Fatal(err)
		}
		for {
			rec, err := r.Next()
			if err != nil {
				continue // the end of an epoch
			}
			if span(rec, limit) > 0 {
				if r.Last() != s.place {
					t.Fatalf("%v, want %v", s.place, r.Last())
				}
				break
			}
		}
	}
}

func TestARunOnSeveralSetsGoesOnWithTheSameBits(t *testing.T) {
	dev := device(t, 1)
	target := tinyTarget(t, dev)
	// One of the sets holds no features: they are made of the target.
	shares := []Share{{tinyData(t, target, 40, data.BF16), 3}, {tinyData(t, target, 15, data.None), 1}}
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
	job.Data = []Share{shares[0], {shares[1].Set, 2}}
	if _, err := Head(context.Background(), cfg, job); err == nil || !strings.Contains(err.Error(), "other data") {
		t.Errorf("another weight: %v", err)
	}
	job.Data = []Share{shares[0], {shares[1].Set, 0}}
	if _, err := Head(context.Background(), cfg, job); err == nil || !strings.Contains(err.Error(), "weight 0") {
		t.Errorf("no weight: %v", err)
	}
}

// Sequences that are packed into one batch do not see each other: what is trained
// on one is the same, to the bit, whatever lies beside it.
func TestPackedSequencesDoNotSeeEachOther(t *testing.T) {
	dev := device(t, 1)
	target := tinyTarget(t, dev)
	set := tinyData(t, target, 12, data.BF16)
	for _, lossName := range []string{"eagle", "hass:top=3,feed=flow", "talf"} {
		cfg := tinyConfig()
		cfg.Rows, cfg.Loss = 300, lossName
		h, tr, err := newHeadTask(cfg, HeadJob{Target: target, Data: Only(set), Out: t.TempDir()})
		if err != nil {
			t.Fatal(err)
		}
		h.params.Init(4)
		if err := tr.beginStage(0); err != nil {
			t.Fatal(err)
		}
		var all []sample
		for range 8 {
			s, err := h.source.next()
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, s)
		}
		h.count = 1
		run := func(s []sample) (rows [][]float32) {
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
			for l, rows := range run([]sample{s}) {
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
