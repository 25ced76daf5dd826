package bench_test

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"talf/infer"
	"talf/infer/bench"
	"talf/infer/bench/benchtest"
	"talf/infer/draft/drafttest"
	"talf/internal/table"
)

// slow is a target whose commits take time.
type slow struct {
	infer.Target
	costs *drafttest.Costs
	last  *string
}

func (slow) Abilities() infer.Abilities { return infer.Abilities{} }

func (s slow) Open(id infer.SeqID, prompt []int32, keep int) error {
	*s.last = ""
	return s.Target.Open(id, prompt, keep)
}

func (s slow) Commit(id infer.SeqID, path []int) error {
	s.costs.Advance(3 * time.Millisecond)
	return s.Target.Commit(id, path)
}

type opened struct {
	infer.Source
	last *string
}

func (opened) Abilities() infer.Abilities { return infer.Abilities{} }

func (o opened) Open(id infer.SeqID, prompt []int32, keep int) error {
	*o.last = ""
	return o.Source.Open(id, prompt, keep)
}

// world is a virtual clock in which a pass takes longer after one of the other model, and, with
// jitter, every pass takes some extra milliseconds that no other pass takes.
func world(jitter bool) (*infer.Engine, *drafttest.Target, infer.Source) {
	last, calls := "", 0
	extra := func(who string, cold int) time.Duration {
		n := 0
		if last != who && last != "" {
			n = cold
		}
		last = who
		if calls++; jitter {
			n += calls * 7 % 11
		}
		return time.Duration(n) * time.Millisecond
	}
	costs := &drafttest.Costs{
		Pass: func(rows int) time.Duration {
			return time.Duration(100+rows)*time.Millisecond + extra("target", 50)
		},
		Step: func(rows int) time.Duration {
			return time.Duration(10+rows)*time.Millisecond + extra("draft", 5)
		},
	}
	target := &drafttest.Target{Table: drafttest.Table{Vocab: 20, Order: 2, Sharp: 2}, MaxLen: 200}
	e := &infer.Engine{Target: slow{costs.Target(target), costs, &last}, Config: infer.Default(), Clock: costs.Now}
	return e, target, opened{costs.Source(&drafttest.Source{Target: target, Agree: 0.8}), &last}
}

// partsRun decodes with a chain of three and returns what was kept.
func partsRun(t *testing.T, repeat int, jitter bool) (*bench.Report, []bench.Measurement) {
	t.Helper()
	e, _, src := world(jitter)
	c := bench.Default()
	c.Methods = []bench.Method{{Spec: "static:chain-3", Source: src}}
	c.Sets = []bench.Set{{Prompts: benchtest.Prompts(3, 20)}}
	c.Warmup, c.MaxTokens, c.Repeat, c.Parts = 0, 20, repeat, true
	var got []bench.Measurement
	c.Keep = func(m *bench.Measurement) error { got = append(got, *m); return nil }
	r, err := bench.Run(t.Context(), e, c)
	if err != nil {
		t.Fatal(err)
	}
	return r, got
}

// Every pass is repeated as it was, without the other model's passes in between, and time that
// is neither model's counts as the rest.
func TestPassesAreRunAgainAlone(t *testing.T) {
	r, got := partsRun(t, 1, false)
	const ms = time.Millisecond
	var plain, alone, loop, both time.Duration
	tokens := 0
	for _, m := range got {
		if len(m.Rounds) != m.Stats.Passes {
			t.Fatalf("%s: %d rounds, %d passes", m.Method, len(m.Rounds), m.Stats.Passes)
		}
		at := m.Rounds[0].Target.At
		for i, x := range m.Rounds {
			asked := len(x.Draft) > 0
			want := time.Duration(100+x.Target.Rows) * ms
			if x.Target.Alone != want {
				t.Errorf("%s, round %d: a pass of %d rows took %v alone, want %v", m.Method, i, x.Target.Rows, x.Target.Alone, want)
			}
			if asked {
				want += 50 * ms
			}
			if x.Target.Loop != want || x.Other != 3*ms {
				t.Errorf("%s, round %d: %v within decoding and %v for the rest, want %v and 3ms", m.Method, i, x.Target.Loop, x.Other, want)
			}
			for k, d := range x.Draft {
				want := time.Duration(10+d.Rows) * ms
				if d.Alone != want || d.At != x.Target.At {
					t.Errorf("round %d: draft pass %d took %v alone at %d, want %v at %d", i, k, d.Alone, d.At, want, x.Target.At)
				}
				prefix := m.Stats.Cached == m.Stats.Prompt-1 // no pass over the prompt
				if k == 0 && !(i == 0 && prefix) {
					want += 5 * ms
				}
				if d.Loop != want {
					t.Errorf("round %d: draft pass %d took %v, want %v", i, k, d.Loop, want)
				}
			}
			if x.Target.At < at {
				t.Errorf("round %d at position %d after one at %d", i, x.Target.At, at)
			}
			at = x.Target.At
			if m.Method == bench.Baseline {
				plain, alone = plain+x.Target.Loop+x.Other, alone+x.Target.Alone
				continue
			}
			loop, both = loop+x.Target.Loop+x.Other, both+x.Target.Alone
			for _, d := range x.Draft {
				loop, both = loop+d.Loop, both+d.Alone
			}
		}
		if m.Method != bench.Baseline {
			tokens += m.Stats.Tokens
		}
	}
	p := r.Rows[1].Parts
	if p == nil || r.Rows[0].Parts.Of != 1 {
		t.Fatal("no parts, or plain decoding is not as fast as it is")
	}
	speedup, allowed := plain.Seconds()/loop.Seconds(), alone.Seconds()/both.Seconds()
	if math.Abs(p.Speedup-speedup) > 1e-9 || math.Abs(p.Allowed-allowed) > 1e-9 || math.Abs(p.Of-speedup/allowed) > 1e-9 {
		t.Errorf("speed-up %v of %v: %v, want %v of %v", p.Speedup, p.Allowed, p.Of, speedup, allowed)
	}
	if p.Rounds != r.Rows[1].Passes || tokens != r.Rows[1].Tokens || math.Abs(p.Speedup-r.Rows[1].Speedup.Mean) > 0.2 {
		t.Errorf("%d rounds of %d passes; speed-up %v by parts, %v by the clock", p.Rounds, r.Rows[1].Passes, p.Speedup, r.Rows[1].Speedup.Mean)
	}
	var text strings.Builder
	if err := table.Write(&text, r.Tables(), true); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(text.String(), "By parts") {
		t.Errorf("no table of the parts:\n%s", &text)
	}
}

// Each part of repeated rounds counts with its shortest time.
func TestRepeatedRoundsCountWithTheirBest(t *testing.T) {
	r, got := partsRun(t, 3, true)
	type place struct {
		method, prompt string
		round          int
	}
	loop, alone := map[place]time.Duration{}, map[place]time.Duration{}
	differ := false
	for _, m := range got {
		for i, x := range m.Rounds {
			k := place{m.Method, m.Prompt, i}
			old, ok := loop[k]
			differ = differ || ok && old != x.Target.Loop
			if !ok || x.Target.Loop < old {
				loop[k] = x.Target.Loop
			}
			if old, ok := alone[k]; !ok || x.Target.Alone < old {
				alone[k] = x.Target.Alone
			}
		}
	}
	if !differ {
		t.Fatal("all repetitions took the same time")
	}
	for _, row := range r.Rows {
		var l, a float64
		n := 0
		for k := range loop {
			if k.method == row.Method {
				l, a, n = l+loop[k].Seconds(), a+alone[k].Seconds(), n+1
			}
		}
		l, a = l/float64(n), a/float64(n)
		if p := row.Parts; p.Rounds != n || math.Abs(p.Target-l) > 1e-9 || math.Abs(p.TargetAlone-a) > 1e-9 {
			t.Errorf("%s: %d rounds, passes of %v, %v alone, want %d, %v and %v", row.Method, p.Rounds, p.Target, p.TargetAlone, n, l, a)
		}
	}
}

// If the repetitions ran different passes, means over all of them are compared.
func TestRoundsThatDifferCountWithTheirMean(t *testing.T) {
	e, _, src := world(true)
	c := bench.Default()
	c.Methods = []bench.Method{{Spec: "salf:th=auto", Source: src}}
	c.Sets = []bench.Set{{Prompts: benchtest.Prompts(2, 20)}}
	c.Warmup, c.MaxTokens, c.Repeat, c.Parts = 0, 20, 3, true
	loop, alone, rounds := map[string]time.Duration{}, map[string]time.Duration{}, map[string]int{}
	c.Keep = func(m *bench.Measurement) error {
		for _, x := range m.Rounds {
			loop[m.Method] += x.Target.Loop + x.Other
			alone[m.Method] += x.Target.Alone
			rounds[m.Method]++
			for _, d := range x.Draft {
				loop[m.Method] += d.Loop
				alone[m.Method] += d.Alone
			}
		}
		return nil
	}
	r, err := bench.Run(t.Context(), e, c)
	if err != nil {
		t.Fatal(err)
	}
	plain, row := &r.Rows[0], &r.Rows[1]
	if !plain.Parts.Best || row.Parts.Best {
		t.Fatalf("the best of plain decoding: %v; of trees that follow the clock: %v", plain.Parts.Best, row.Parts.Best)
	}
	// Both emit the same tokens.
	speedup := loop[plain.Method].Seconds() / loop[row.Method].Seconds()
	allowed := alone[plain.Method].Seconds() / alone[row.Method].Seconds()
	p := row.Parts
	if one := alone[plain.Method].Seconds() / float64(rounds[plain.Method]); math.Abs(p.PlainAlone-one) > 1e-9 {
		t.Errorf("a plain pass alone takes %v, want %v", p.PlainAlone, one)
	}
	if p.Rounds != rounds[row.Method] || math.Abs(p.Speedup-speedup) > 1e-9 || math.Abs(p.Allowed-allowed) > 1e-9 {
		t.Errorf("%d rounds, speed-up %v of %v, want %d, %v of %v", p.Rounds, p.Speedup, p.Allowed, rounds[row.Method], speedup, allowed)
	}
}

func TestPassesThatFailTheSecondTimeAreReported(t *testing.T) {
	e, target, _ := world(false)
	passes := 0
	target.Fail = func() bool { passes++; return passes > 22 } // one over the prompt and 20 of the first decoding
	c := bench.Default()
	c.Sets = []bench.Set{{Prompts: benchtest.Prompts(1, 20)}}
	c.Warmup, c.MaxTokens, c.Parts = 0, 20, true
	if _, err := bench.Run(t.Context(), e, c); !errors.Is(err, drafttest.ErrPass) || !strings.Contains(err.Error(), "run its passes again") {
		t.Errorf("error %v", err)
	}
}

// A reader counts what a source is to read although nobody asks.
type reader struct {
	infer.Source
	read int
}

func (*reader) Abilities() infer.Abilities { return infer.Abilities{} }

func (r *reader) Rows(ctx context.Context, asks []infer.Ask) ([]infer.Row, error) {
	for _, a := range asks {
		if a.Tree == nil {
			r.read += a.Width
		}
	}
	return r.Source.Rows(ctx, asks)
}

// Passes that are run again read what they read.
func TestPassesThatAreRunAgainReadWhatTheyRead(t *testing.T) {
	read := func(parts bool) int {
		e, _, src := world(false)
		e.Config.PrefillChunk = 70
		r := &reader{Source: src}
		c := bench.Default()
		c.Methods = []bench.Method{{Spec: "static:chain-3", Source: r}}
		c.Sets = []bench.Set{{Prompts: []bench.Prompt{{Name: "p", Tokens: make([]int32, 150)}}}}
		c.Warmup, c.MaxTokens, c.Parts = 0, 20, parts
		if _, err := bench.Run(t.Context(), e, c); err != nil {
			t.Fatal(err)
		}
		return r.read
	}
	once := read(false)
	if again := read(true); once == 0 || again != 2*once {
		t.Errorf("%d tokens were read, and %d with those of passes that were run again", once, again)
	}
}
