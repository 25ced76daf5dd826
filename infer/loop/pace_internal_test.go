package loop

import (
	"math"
	"testing"
	"time"

	"talf/infer"
	"talf/infer/draft/cost"
	"talf/infer/experts"
)

// A pass over n rows takes 10 ms and 1 ms more for each row but the first; the rest of a round
// takes 1 ms a sequence.
func passOf(rows, sequences int, draft time.Duration) infer.Pass {
	verify := time.Duration(9+rows) * time.Millisecond
	return infer.Pass{
		Rows: rows, Trees: sequences, Draft: draft, Verify: verify, Took: verify + draft + time.Duration(sequences)*time.Millisecond,
	}
}

func costsOfPasses() *cost.Model {
	m := &cost.Model{}
	for range 50 {
		for rows := 1; rows <= 64; rows *= 2 {
			m.AddTarget(rows, experts.Read{}, float64(9+rows)/1000)
		}
		for n := 1; n <= 4; n++ {
			m.AddRest(n, float64(n)/1000)
		}
	}
	return m
}

func TestDraftsLoseWhenPlainDecodingIsFaster(t *testing.T) {
	m := costsOfPasses()
	for _, x := range []struct {
		name      string
		pass      infer.Pass
		tokens    int
		drafts    int
		tau, even float64 // of a round
		losing    bool
	}{
		// 33 + 5 + 1 = 39 ms against 11.
		{"a good head", passOf(24, 1, 5*time.Millisecond), 5, 1, 5, 39.0 / 11, false},
		{"a head that is always wrong", passOf(24, 1, 5*time.Millisecond), 1, 1, 1, 39.0 / 11, true},
		{"one that almost pays", passOf(24, 1, 5*time.Millisecond), 3, 1, 3, 39.0 / 11, true},
		// 41 + 5 + 4 = 50 ms against 13 + 4 = 17, for four.
		{"four sequences", passOf(32, 4, 5*time.Millisecond), 16, 4, 4, 50.0 / 17, false},
		{"plain decoding", passOf(1, 1, 0), 1, 0, 1, 1, false},
		// No draft, and no alarm: nothing was drafted that could be accepted.
		{"drafts asked for in vain", passOf(1, 1, 5*time.Millisecond), 1, 0, 1, 16.0 / 11, false},
	} {
		var p pacer
		for i := range 2 * paceWindow {
			if got := p.pace(); i < paceLeast/2 && got != (Pace{}) {
				t.Fatalf("%s: %+v after %d passes", x.name, got, i)
			}
			p.add(&x.pass, x.tokens, x.drafts, m)
			if i%8 == 0 { // the machine does something else meanwhile
				slow := x.pass
				slow.Took, slow.Verify = slow.Took+time.Second, slow.Verify+time.Second
				p.add(&slow, x.tokens, x.drafts, m)
			}
			prompt := x.pass // changes nothing
			prompt.Prompt, prompt.Took = 100, time.Second
			p.add(&prompt, 1, 0, m)
		}
		got := p.pace()
		if math.Abs(got.Tau-x.tau) > 1e-9 || math.Abs(got.Even-x.even) > 0.05*x.even || got.Losing != x.losing {
			t.Errorf("%s: %+v, want τ %.2f, even at %.2f, losing: %v", x.name, got, x.tau, x.even, x.losing)
		}
	}
}

// The alarm goes on once and off once while acceptance falls and recovers, and noise about the
// place where drafts are even moves it not at all.
func TestTheAlarmDoesNotFlutter(t *testing.T) {
	m := costsOfPasses()
	var p pacer
	pass := passOf(24, 1, 5*time.Millisecond)
	changes, was := 0, false
	run := func(passes int, tokens func(i int) int) {
		for i := range passes {
			p.add(&pass, tokens(i), 1, m)
			if got := p.pace().Losing; got != was {
				changes, was = changes+1, got
			}
		}
	}
	run(1000, func(int) int { return 5 })
	run(1000, func(int) int { return 1 })
	if changes != 1 || !was {
		t.Fatalf("%d changes, losing: %v", changes, was)
	}
	run(1000, func(i int) int { return 3 + i%2 }) // 3.5 of 3.55: not enough to call it off
	if changes != 1 {
		t.Fatalf("%d changes at the threshold", changes)
	}
	run(1000, func(int) int { return 5 })
	if changes != 2 || was {
		t.Fatalf("%d changes, losing: %v", changes, was)
	}
	run(1000, func(i int) int { return 3 + i%2 })
	if changes != 2 {
		t.Fatalf("%d changes at the threshold", changes)
	}
}

func TestAnUnknownCostHasNoPace(t *testing.T) {
	var p pacer
	pass := passOf(24, 1, 0)
	for range 2 * paceLeast {
		p.add(&pass, 5, 1, &cost.Model{})
	}
	if got := p.pace(); got != (Pace{}) || got.Speedup() != 0 {
		t.Errorf("%+v", got)
	}
}
