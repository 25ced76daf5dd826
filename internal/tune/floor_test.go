package main

import (
	"math"
	"strings"
	"testing"

	"talf/infer/bench"
	"talf/infer/draft/constants"
)

// What auto paid and won is all of the difference to plain decoding, with every draft model; the price of reading is
// part of it; and cold answers are told from warm ones.
func TestBillsAddUp(t *testing.T) {
	l, err := open([]string{recorded(t)}, "costs.json,f32.json,steep.json,cached.json")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range l.curves {
		c.set(l.all[0])
		for k := range l.all[0].Channels {
			plain := 0.0 // seconds of a pass
			if costs := l.all[0].Channels[0].Costs; len(costs) > 0 {
				plain = costs[0].Seconds
			}
			read, drafts, colds := 0.0, 0.0, 0
			err := l.bills(t.Context(), l.all[0], k, constants.Fitted(), func(x *bench.Measurement, cold bool, b bill) {
				want := plain * float64(x.Stats.Tokens) / x.Stats.Decode.Seconds()
				if got := b.speed(); math.Abs(got/want-1) > 1e-6 {
					t.Errorf("%s, draft model %d, %s: %.6f of plain decoding's speed by the bill %+v, %.6f by time", c.Name, k, x.Prompt, got, b, want)
				}
				if b.Rows < -1e-9 || b.Drafts < -1e-9 || b.Reading < -1e-9 || b.Won < -1e-9 {
					t.Errorf("%s, draft model %d, %s: the bill %+v has negative parts", c.Name, k, x.Prompt, b)
				}
				read, drafts = read+b.Reading, drafts+b.Drafts
				if cold {
					colds++
				}
			})
			if err != nil {
				t.Fatal(err)
			}
			if (k > 0) != (read > 0) || (k > 0) != (drafts > 0) {
				t.Errorf("%s, draft model %d: reading is %.3f, drafts %.3f", c.Name, k, read, drafts)
			}
			if colds == 0 {
				t.Errorf("%s, draft model %d: no answer is cold", c.Name, k)
			}
		}
	}
}

// On a machine that others use, clocks are wrong and bills are not: plain decoding costs what it costs, and the shown
// time of what is decoded is another.
func TestBillsOfABusyMachine(t *testing.T) {
	l, err := open([]string{recorded(t)}, "costs.json")
	if err != nil {
		t.Fatal(err)
	}
	l.busy = true
	l.curves[0].set(l.all[0])
	plain, wrong := l.all[0].Channels[0].Costs[0].Seconds, 0
	err = l.bills(t.Context(), l.all[0], 0, constants.Fitted(), func(x *bench.Measurement, _ bool, b bill) {
		if least := float64(x.Stats.Passes) / float64(x.Stats.Tokens); 1/b.speed() < least-1e-9 {
			t.Errorf("%s: %.3f of plain decoding's time, less than its passes take, %.3f", x.Prompt, 1/b.speed(), least)
		}
		if shown := x.Stats.Decode.Seconds() / plain / float64(x.Stats.Tokens); math.Abs(shown*b.speed()-1) > 0.02 {
			wrong++
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if wrong == 0 {
		t.Error("all clocks were right")
	}
}

// A table has a line for each draft model, curve, temperature and what is known, and says how many answers were slow.
func TestFloors(t *testing.T) {
	l, err := open([]string{recorded(t)}, "costs.json")
	if err != nil {
		t.Fatal(err)
	}
	all, err := l.floors(t.Context(), constants.Fitted())
	if err != nil {
		t.Fatal(err)
	}
	if want := 2 * 2 * 3 * 2; len(all) != want || strings.Count(all.String(), "\n") != want+2 {
		t.Errorf("%d cells, want %d:\n%s", len(all), want, all)
	}
	for _, f := range all {
		if f.Answers != l.prompts() || f.Early > f.Below || f.Slowest > f.Mean || math.Abs(f.Worst.speed()-f.Slowest) > 1e-9 {
			t.Errorf("%+v", f)
		}
	}
	f := floor{Slowest: math.Inf(1)}
	f.take(bill{Rows: 0.04}, 100)
	f.take(bill{Rows: 0.05}, 10)
	f.take(bill{Rows: 0.02}, 10)
	if f.Below != 2 || f.Early != 1 || f.Worst.Rows != 0.05 {
		t.Errorf("%+v, want 2 answers below, 1 of them short", f)
	}
}
