// Package benchtest holds what the tests of bench's packages share.
package benchtest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"talf/compute/cpu"
	"talf/infer"
	"talf/infer/bench"
	"talf/infer/draft/drafttest"
)

// Prompts returns n prompts of 3 to 22 random tokens, the same ones in every run. A token counts as a
// character.
func Prompts(n, vocab int) (out []bench.Prompt) {
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range n {
		p := bench.Prompt{Name: fmt.Sprint("p", i)}
		for range 3 + rng.IntN(20) {
			p.Tokens = append(p.Tokens, rng.Int32N(int32(vocab)))
		}
		p.First = func(_ context.Context, chars int) ([]int32, error) { return p.Tokens[:min(chars, len(p.Tokens))], nil }
		out = append(out, p)
	}
	return out
}

// Sets returns two sets of prompts for the target of Engine, of three and of two.
func Sets() []bench.Set {
	return []bench.Set{{Name: "a", Prompts: Prompts(3, 20)}, {Name: "b", Prompts: Prompts(2, 20)}}
}

// CPU returns a device that lives as long as the test.
func CPU(t testing.TB) *cpu.Device {
	t.Helper()
	dev, err := cpu.New(cpu.Default())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = dev.Close() })
	return dev
}

// Engine returns an engine whose target is a table of 20 tokens.
func Engine() (*infer.Engine, *drafttest.Target) {
	target := &drafttest.Target{Table: drafttest.Table{Vocab: 20, Order: 2, Sharp: 2}, MaxLen: 200}
	return &infer.Engine{Target: target, Config: infer.Default()}, target
}

// Counts returns what two runs of the same methods must share: everything but times.
func Counts(r *bench.Report) (out [][]any) {
	for _, x := range r.Rows {
		out = append(out, []any{x.Method, x.Set, x.Temperature, x.Tokens, x.Passes, x.Drafted, x.Emitted, x.Outputs, x.Equal, x.Looping})
	}
	return out
}
