package draft_test

import (
	"fmt"
	"testing"
	"time"

	"talf/infer"
	"talf/infer/draft"
	"talf/infer/draft/auto"
	"talf/infer/draft/drafttest"
	"talf/infer/verify"
)

// A price list defines what passes cost, in units of a plain one.
type prices struct {
	name              string
	row               float64 // of the target's pass, on top of the 1 that a pass takes
	step, node, agree float64 // of a draft pass
}

// decode decodes two sequences of a world with these prices with each of several drafters and returns the
// units per token.
func (x prices) decode(t *testing.T, spec string, drafters int) (mean float64) {
	t.Helper()
	for i := range drafters {
		mean += x.pair(t, spec, uint64(2*i)) / float64(drafters)
	}
	return mean
}

// pair decodes two sequences with one drafter.
func (x prices) pair(t *testing.T, spec string, first uint64) float64 {
	t.Helper()
	us := func(units float64) time.Duration { return time.Duration(units * 1e6) }
	costs := &drafttest.Costs{
		Pass: func(rows int) time.Duration { return us(1 + x.row*float64(rows)) },
		Step: func(rows int) time.Duration { return us(x.step + x.node*float64(rows)) },
	}
	mk, _, err := draft.Open(spec, draft.Env{})
	if err != nil {
		t.Fatal(err)
	}
	defer mk.Close()
	d := mk.New()
	tokens := 0
	begin := costs.Now()
	control := auto.New()
	for seed := first; seed < first+2; seed++ {
		world := &drafttest.Target{Table: drafttest.Table{Seed: seed, Vocab: 40, Order: 3, Sharp: 2.5}, MaxLen: 2000}
		e := &infer.Engine{Target: costs.Target(world), Config: infer.Default(), Clock: costs.Now, Control: control}
		s, err := e.Generate(t.Context(), infer.Request{
			Prompt: []int32{1}, MaxTokens: 200, Drafter: d, Source: costs.Source(&drafttest.Source{Target: world, Agree: x.agree}),
			Verifier: new(verify.Greedy), Processor: drafttest.Plain{},
		})
		if err != nil {
			t.Fatal(err)
		}
		tokens += len(s.Tokens())
	}
	return costs.Now().Sub(begin).Seconds() * 1e3 / float64(tokens)
}

// Without parameters, decoding is about as fast as with the threshold and tree size that are best for
// the prices, whatever they are: also if no tree at all is best.
func TestDefaultsAreNearTheBestConstants(t *testing.T) {
	if testing.Short() {
		t.Skip("decodes some ten thousand tokens")
	}
	for _, x := range []prices{
		{"free", 0, 0, 0, 0.9},
		{"a large target", 0.001, 0.02, 0.001, 0.9},
		{"dear drafts", 0.001, 0.3, 0.001, 0.9},
		{"dear rows", 0.05, 0.05, 0.01, 0.9},
		{"dear nodes", 0.002, 0.02, 0.03, 0.9},
		{"a bad draft", 0.01, 0.1, 0.001, 0.4},
		{"a useless draft", 0.1, 0.5, 0.1, 0.1},
	} {
		best, which := x.decode(t, "ar", 1), "ar"
		for _, th := range []string{"0", "0.2", "0.4", "0.7"} {
			for _, n := range []int{60, 8} {
				spec := fmt.Sprintf("salf:th=%s,N=%d", th, n)
				if c := x.decode(t, spec, 1); c < best {
					best, which = c, spec
				}
			}
		}
		for spec, c := range map[string]struct {
			most     float64
			drafters int
		}{
			"salf": {1.1, 1},
			"beam": {1.25, 1},
			// Where its trees hardly pay, little decides: one drafter says little.
			"optimal": {1.25, 4},
		} {
			best, auto := x.decode(t, which, c.drafters), x.decode(t, spec, c.drafters)
			t.Logf("%-16s %.3f a token with %s, %.3f with the best constants, %s", x.name, auto, spec, best, which)
			if auto > c.most*best {
				t.Errorf("%s: %s takes %.3f a token, %s %.3f", x.name, spec, auto, which, best)
			}
		}
	}
}
