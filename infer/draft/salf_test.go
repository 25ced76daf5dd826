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
	noise             float64 // of the draft's logits
	block             int     // tokens that a round's first draft pass says all about; 0: no more than of those asked for
	after             float64 // of a node of a later one
}

// decode decodes two sequences of a world with these prices with each of several drafters and returns the
// units per token.
func (x prices) decode(t *testing.T, spec string, drafters int) (mean float64) {
	t.Helper()
	for i := range drafters {
		mean += x.some(t, spec, uint64(2*i), 0, 2) / float64(drafters)
	}
	return mean
}

// some decodes sequences with one drafter, of which those from count on count.
func (x prices) some(t *testing.T, spec string, first uint64, count, sequences int) float64 {
	t.Helper()
	us := func(units float64) time.Duration { return time.Duration(units * 1e6) }
	costs := &drafttest.Costs{
		Pass: func(rows int) time.Duration { return us(1 + x.row*float64(rows)) },
		Step: func(rows int) time.Duration { return us(x.step + x.node*float64(rows)) },
	}
	if x.block > 0 {
		costs.After = func(rows int) time.Duration { return us(x.after * float64(rows)) }
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
	for i := range sequences {
		seed := first + uint64(i)
		if i == count {
			tokens, begin = 0, costs.Now()
		}
		world := &drafttest.Target{Table: drafttest.Table{Seed: seed, Vocab: 40, Order: 3, Sharp: 2.5}, MaxLen: 2000}
		e := &infer.Engine{Target: costs.Target(world), Config: infer.Default(), Clock: costs.Now, Control: control}
		s, err := e.Generate(t.Context(), infer.Request{
			Prompt: []int32{1}, MaxTokens: 200, Drafter: d, Source: costs.Source(&drafttest.Source{Target: world, Agree: x.agree, Noise: x.noise, Block: x.block}),
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
		{name: "free", row: 0, step: 0, node: 0, agree: 0.9},
		{name: "a large target", row: 0.001, step: 0.02, node: 0.001, agree: 0.9},
		{name: "dear drafts", row: 0.001, step: 0.3, node: 0.001, agree: 0.9},
		{name: "dear rows", row: 0.05, step: 0.05, node: 0.01, agree: 0.9},
		{name: "dear nodes", row: 0.002, step: 0.02, node: 0.03, agree: 0.9},
		{name: "a bad draft", row: 0.01, step: 0.1, node: 0.001, agree: 0.4},
		{name: "a useless draft", row: 0.1, step: 0.5, node: 0.1, agree: 0.1},
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

// Trees over the distributions of a block drafter are about as fast as its chain and its N likeliest nodes, whatever
// passes cost: one pass brings all of the block, so it is not one level that has to pay for it. What is missing where
// drafts hardly pay is that they have to save more than they cost.
func TestTreesOfBlocksAreNearTheBestConstants(t *testing.T) {
	if testing.Short() {
		t.Skip("decodes some ten thousand tokens")
	}
	for _, x := range []prices{
		{name: "cheap rows", row: 0.002, step: 0.3, agree: 0.9, noise: 1, block: 8},
		{name: "cheap rows, a dear block", row: 0.002, step: 0.8, agree: 0.9, noise: 1, block: 8},
		{name: "dear rows", row: 0.05, step: 0.3, agree: 0.9, noise: 1, block: 8},
		{name: "dearer rows, a dear block", row: 0.1, step: 0.6, agree: 0.9, noise: 1, block: 8},
		{name: "a Markov head", row: 0.02, step: 0.3, agree: 0.9, noise: 1, block: 8, after: 0.005},
		{name: "a dear Markov head", row: 0.02, step: 0.3, agree: 0.9, noise: 1, block: 8, after: 0.02},
		{name: "a sure block", row: 0.05, step: 0.3, agree: 1, noise: 1, block: 6},
		{name: "an unsure block", row: 0.02, step: 0.3, agree: 0.5, noise: 1, block: 6},
		{name: "a useless block", row: 0.05, step: 0.5, agree: 0.1, noise: 1, block: 8},
	} {
		decode := func(spec string) float64 { return x.some(t, spec, 0, 2, 10) }
		best, which := decode("ar"), "ar"
		for _, spec := range []string{fmt.Sprintf("linear:K=%d", x.block), "optimal:N=8", "optimal:N=16", "optimal:N=60"} {
			if c := decode(spec); c < best {
				best, which = c, spec
			}
		}
		got := decode("salf")
		t.Logf("%-26s %.3f a token with salf, %.3f with the best constants, %s: %.3f", x.name, got, best, which, got/best)
		if got > 1.05*best {
			t.Errorf("%s: salf takes %.3f a token, %s %.3f", x.name, got, which, best)
		}
	}
}
