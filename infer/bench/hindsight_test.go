package bench_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"talf/infer"
	"talf/infer/bench"
	"talf/infer/bench/benchtest"
	"talf/internal/table"
)

// timed are measurements of answers of 10 tokens: seconds by method, prompt and repetition, half of them
// before the first token.
func timed(prompts []bench.Prompt, seconds map[string][][]float64) (got []bench.Measurement) {
	for method, all := range seconds {
		for i, repeats := range all {
			for n, s := range repeats {
				m := bench.Measurement{Method: method, Prompt: prompts[i].Name, Repeat: n, Total: time.Duration(s * 1e9)}
				m.Stats = infer.Stats{Tokens: 10, Passes: 10, Decode: m.Total / 2}
				got = append(got, m)
			}
		}
	}
	return got
}

func TestWhatTheBestOfEachPromptIsTheOtherRepetitionsSay(t *testing.T) {
	c := bench.Default()
	c.Warmup, c.Repeat = 0, 3
	c.Methods = []bench.Method{{Spec: "auto"}, {Spec: "pld"}, {Spec: "goose"}, {Spec: "salf", SourceName: "lm"}}
	c.Sets = []bench.Set{{Prompts: benchtest.Prompts(2, 20)}}
	seconds := map[string][][]float64{
		"ar":      {{10, 10, 10}, {10, 10, 10}},
		"auto":    {{8, 8, 8}, {8, 8, 8}},
		"pld":     {{4, 4, 20}, {12, 12, 12}},
		"goose":   {{6, 6, 6}, {20, 20, 20}},
		"salf lm": {{1, 1, 1}, {1, 1, 1}}, // has a draft model, which the others lack
	}
	r := c.Report(timed(c.Sets[0].Prompts, seconds))
	// On the first prompt goose in the first two repetitions, and pld, which looks the fastest there, in the
	// third; plain decoding on the second.
	auto := r.Row("auto", "", 0)
	h := auto.Hindsight
	if h == nil || math.Abs(h.Each.Value-(6+6+20+30)/48.0) > 1e-12 || h.Best != "ar" || math.Abs(h.One.Value-60/48.0) > 1e-12 || !(h.Each.Low < h.Each.Value && h.Each.Value < h.Each.High) {
		t.Errorf("auto beside the best of each prompt: %+v", h)
	}
	// salf may be held against all of them.
	if h := r.Row("salf lm", "", 0).Hindsight; h == nil || h.Best != "auto" || h.One.Value != 8 || math.Abs(h.Each.Value-(6+6+20+24)/6.0) > 1e-12 {
		t.Errorf("salf beside the best of each prompt: %+v", h)
	}
	if by := auto.ByPrompt; len(by) != 2 || by[0].EndToEnd != 1.25 || by[1].Decoding != 1.25 || by[0].Prompt != c.Sets[0].Prompts[0].Name {
		t.Errorf("speed-ups by prompt %+v", auto.ByPrompt)
	}
	var b strings.Builder
	if err := table.Write(&b, r.Tables(), false); err != nil || !strings.Contains(b.String(), "best of each prompt") {
		t.Errorf("%v: no column in\n%s", err, &b)
	}

	// Without repetitions nothing says which is the best.
	for method, all := range seconds {
		for i := range all {
			seconds[method][i] = all[i][:1]
		}
	}
	c.Repeat = 1
	if h := c.Report(timed(c.Sets[0].Prompts, seconds)).Row("auto", "", 0).Hindsight; h != nil {
		t.Errorf("one repetition: %+v", h)
	}
}

// One repetition that other work interrupted changes a prompt's speed, but not that of the medians.
func TestMediansOfAPromptLeaveInterruptionsOut(t *testing.T) {
	c := bench.Default()
	c.Warmup, c.Repeat = 0, 3
	c.Sets = []bench.Set{{Prompts: benchtest.Prompts(1, 20)}}
	c.Methods = []bench.Method{{Spec: "pld"}}
	r := c.Report(timed(c.Sets[0].Prompts, map[string][][]float64{"ar": {{1, 1.1, 0.9}}, "pld": {{0.8, 7, 0.7}}})).Row("pld", "", 0)
	x := r.ByPrompt[0]
	if math.Abs(x.MedianEnd-1.25) > 1e-6 || math.Abs(x.MedianDecoding-1.25) > 1e-6 || x.Decoding > 0.4 {
		t.Errorf("%+v, want medians of 1.25", x)
	}
	for i, want := range []float64{1 / 0.8, 1.1 / 7, 0.9 / 0.7} {
		if len(x.Decodings) != 3 || math.Abs(x.Decodings[i]-want) > 1e-6 {
			t.Fatalf("by repetition %v, want the ratio to plain decoding of the same one, %v of the %dth", x.Decodings, want, i+1)
		}
	}
}

// Of methods that differ by noise alone, the best of each prompt is no better than the others.
func TestNoiseDoesNotChooseTheBestOfEachPrompt(t *testing.T) {
	c := bench.Default()
	c.Warmup, c.Repeat = 0, 3
	c.Sets = []bench.Set{{Prompts: benchtest.Prompts(200, 20)}}
	names := []string{"ar"}
	for n := range 6 {
		m := bench.Method{Spec: fmt.Sprintf("pld:K=%d", n+1)}
		c.Methods = append(c.Methods, m)
		names = append(names, m.Spec)
	}
	rng := rand.New(rand.NewPCG(1, 2))
	seconds := map[string][][]float64{}
	for _, name := range names {
		for range c.Sets[0].Prompts {
			repeats := make([]float64, c.Repeat)
			for i := range repeats {
				repeats[i] = 1 + 0.5*rng.Float64()
			}
			seconds[name] = append(seconds[name], repeats)
		}
	}
	h := c.Report(timed(c.Sets[0].Prompts, seconds)).Row("pld:K=1", "", 0).Hindsight
	if h == nil || math.Abs(h.Each.Value-1) > 0.04 { // four standard errors; the luckiest copies are 1.2 times as fast
		t.Errorf("a method among its copies is at %+v of the best of each prompt, want about 1", h)
	}
}
