package draft_test

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"talf/infer"
	"talf/infer/draft"
	"talf/infer/draft/drafttest"
	"talf/infer/verify"
)

// answers returns a function that decodes another answer of 96 tokens with every call, where no draft ever pays. Passes take no time but
// are said to take 150 µs.
func answers(t testing.TB, method string, source bool) func() {
	const prompt, answer = 64, 96
	mk, _, err := draft.Open(method, draft.Env{Source: source})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = mk.Close() })
	w := &stopwatch{c: &course{
		pass: func(n int) float64 { return 0.15 * (1 + 0.25*float64(n-1)) }, prompt: 0.03, step: 0.02, node: 0.005, read: 0.003,
		right: acceptance["never"],
	}}
	l := &line{stopwatch: w}
	begun := w.shown
	e := &infer.Engine{Target: l, Config: infer.Default(), Clock: func() time.Time { return time.Now().Add(w.shown.Sub(begun)) }}
	tokens := make([]int32, prompt)
	return func() {
		l.seed++
		for at := range tokens {
			tokens[at] = lineToken(l.seed, at)
		}
		req := infer.Request{Prompt: tokens, MaxTokens: answer, Drafter: mk.New(), Verifier: new(verify.Greedy), Processor: drafttest.Plain{}}
		if source {
			req.Source = &guesser{stopwatch: w, l: l, prompt: prompt, of: answer}
		}
		if _, err := e.Generate(t.Context(), req); err != nil {
			t.Fatal(err)
		}
	}
}

// An answer by auto allocates little more than one by plain decoding: garbage would have to be collected while others are decoded.
func TestAutoAllocatesHardlyMoreThanPlainDecoding(t *testing.T) {
	const runs = 100
	measure := func(method string, source bool) (allocs, bytes float64) {
		next := answers(t, method, source)
		for range 8 {
			next() // the first ones make tables
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for range runs {
			next()
		}
		runtime.ReadMemStats(&after)
		return float64(after.Mallocs-before.Mallocs) / runs, float64(after.TotalAlloc-before.TotalAlloc) / runs
	}
	allocs, bytes := measure("ar", false)
	for _, source := range []bool{false, true} {
		a, b := measure("auto", source)
		t.Logf("%.0f allocations of %.0f bytes, with plain decoding %.0f of %.0f", a, b, allocs, bytes)
		if a > allocs+48 || b > bytes+6<<10 {
			t.Errorf("draft model %v: an answer takes %.0f allocations of %.0f bytes, plain decoding %.0f of %.0f", source, a, b, allocs, bytes)
		}
	}
}

// BenchmarkAnswers measures what answers take beside passes: ar is what plain decoding has, and auto what is added to it.
func BenchmarkAnswers(b *testing.B) {
	for _, x := range []struct {
		method string
		source bool
	}{{"ar", false}, {"auto", false}, {"auto", true}} {
		b.Run(fmt.Sprintf("%s,draft model %v", x.method, x.source), func(b *testing.B) {
			next := answers(b, x.method, x.source)
			b.ReportAllocs()
			for b.Loop() {
				next()
			}
		})
	}
}
