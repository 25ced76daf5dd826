package draft_test

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"talf/infer"
	"talf/infer/draft"
	"talf/infer/draft/auto"
	"talf/infer/draft/drafttest"
	"talf/infer/verify"
)

func TestAutoConforms(t *testing.T) {
	for _, source := range []bool{false, true} {
		mk, _, err := draft.Open("auto", draft.Env{Source: source})
		if err != nil {
			t.Fatal(err)
		}
		defer mk.Close()
		drafttest.Run(t, mk.New)
	}
}

// A controller is any as far as the output goes: it decides from what passes cost.
func TestTheControllerConforms(t *testing.T) {
	for _, spec := range []string{"auto", "salf", "beam", "optimal", "goose", "static:chain-3", "lookahead", "suffix"} {
		mk := open(t, spec, draft.Env{Source: true})
		rng := rand.New(rand.NewPCG(4, 4))
		drafttest.RunWith(t, mk.New, func() (infer.Controller, func() time.Time) {
			var now time.Time
			return auto.New(), func() time.Time {
				now = now.Add(time.Duration(rng.ExpFloat64() * 1e6))
				return now
			}
		})
	}
}

// A scene is a target, the costs of passes, and optionally a draft model.
type scene struct {
	// noise returns the time that a pass takes, given its cost; nil means the cost.
	noise  func() float64
	name   string
	prices prices
	order  int     // of the target's table: low orders run into loops
	sharp  float64 // of its logits
	source bool
}

// A sameSource is one draft model in all worlds.
type sameSource struct{ infer.Source }

// speeds decodes prompts one after another with one maker and returns each one's time per token
// in units.
func (x scene) speeds(t *testing.T, spec string, prompts int) []float64 {
	t.Helper()
	us := func(units float64) time.Duration {
		if x.noise != nil {
			units *= x.noise()
		}
		return time.Duration(units * 1e6)
	}
	costs := &drafttest.Costs{
		Pass: func(rows int) time.Duration { return us(1 + x.prices.row*float64(rows-1)) },
		Step: func(rows int) time.Duration { return us(x.prices.step + x.prices.node*float64(rows)) },
	}
	mk, m, err := draft.Open(spec, draft.Env{Source: x.source})
	if err != nil {
		t.Fatal(err)
	}
	defer mk.Close()
	var out []float64
	control, src := auto.New(), new(sameSource)
	for seed := range uint64(prompts) {
		world := &drafttest.Target{Table: drafttest.Table{Seed: seed / 2, Vocab: 40, Order: x.order, Sharp: x.sharp}, MaxLen: 2000}
		e := &infer.Engine{Target: costs.Target(world), Config: infer.Default(), Clock: costs.Now, Control: control}
		req := infer.Request{
			Prompt: []int32{int32(seed), 1, 2}, MaxTokens: 128, Drafter: mk.New(),
			Verifier: new(verify.Greedy), Processor: drafttest.Plain{},
		}
		if m.Source || m.May && x.source {
			src.Source = costs.Source(&drafttest.Source{Target: world, Agree: x.prices.agree})
			req.Source = src
		}
		s, err := e.Generate(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, s.Stats().Decode.Seconds()*1e3/float64(len(s.Tokens())))
	}
	return out
}

// Whatever passes cost and however good the draft is, no prompt is decoded at less than 0.97 of
// plain decoding's speed, and all together reach at least 0.95 of the best candidate's.
func TestAutoIsNeverMuchSlowerThanPlainDecodingAndNearTheBest(t *testing.T) {
	if testing.Short() {
		t.Skip("decodes some ten thousand tokens")
	}
	const first, prompts = 1, 16 // the first prompt's costs are not known
	mean := func(x []float64) (sum float64) {
		for _, v := range x[first:] {
			sum += v / float64(len(x)-first)
		}
		return sum
	}
	for _, x := range []scene{
		{nil, "loops, cheap rows", prices{row: 0.005}, 1, 2, false},
		{nil, "loops, dear rows", prices{row: 0.3}, 1, 2, false},
		{nil, "no loops, dear rows", prices{row: 0.2}, 6, 2, false},
		{nil, "no loops, impossible rows", prices{row: 1}, 6, 2, false},
		{nil, "a good draft", prices{row: 0.01, step: 0.05, node: 0.001, agree: 0.9}, 6, 2.5, true},
		{nil, "a good draft, dear rows", prices{row: 0.1, step: 0.05, node: 0.001, agree: 0.9}, 6, 2.5, true},
		{nil, "a bad draft", prices{row: 0.02, step: 0.1, node: 0.001, agree: 0.1}, 6, 2.5, true},
		{nil, "a dear draft", prices{row: 0.02, step: 0.8, node: 0.01, agree: 0.8}, 6, 2.5, true},
		{nil, "loops and a good draft", prices{row: 0.02, step: 0.1, node: 0.001, agree: 0.9}, 1, 2, true},
	} {
		singles := []string{"ar", "pld", "suffix", "goose:harvest=rounds"}
		if x.source {
			singles = append(singles, "salf")
		}
		best, which := 1e9, ""
		var plain []float64
		for _, spec := range singles {
			s := x.speeds(t, spec, prompts)
			if spec == "ar" {
				plain = s
			}
			if m := mean(s); m < best {
				best, which = m, spec
			}
		}
		got := x.speeds(t, "auto", prompts)
		worst := 1e9
		for i := first; i < prompts; i++ {
			worst = min(worst, plain[i]/got[i])
		}
		t.Logf("%-26s %.3f a token, plain %.3f, best %.3f (%s); slowest prompt at %.3f of plain", x.name, mean(got), mean(plain), best, which, worst)
		if worst < 0.97 {
			t.Errorf("%s: a prompt is decoded at %.3f of plain decoding's speed", x.name, worst)
		}
		if best/mean(got) < 0.95 {
			t.Errorf("%s: at %.3f of the speed of %s", x.name, best/mean(got), which)
		}
	}
}

// On a machine whose other load varies, the choice is still right: no method is much slower than
// plain decoding because a pass took long by chance.
func TestAutoChoosesOnABusyMachine(t *testing.T) {
	if testing.Short() {
		t.Skip("decodes some thousand tokens")
	}
	const first, prompts = 1, 8
	for _, x := range []scene{
		{nil, "loops", prices{row: 0.05}, 1, 2, false},
		{nil, "no loops, dear rows", prices{row: 0.3}, 6, 2, false},
		{nil, "a good draft", prices{row: 0.05, step: 0.05, node: 0.001, agree: 0.9}, 6, 2.5, true},
		{nil, "a bad draft", prices{row: 0.1, step: 0.2, node: 0.001, agree: 0.1}, 6, 2.5, true},
	} {
		// Both decode under the same noise on average; sums over prompts and seeds distinguish them.
		busy := func(seed uint64) func() float64 {
			rng, load := rand.New(rand.NewPCG(seed, 6)), 1.0
			return func() float64 {
				if rng.Float64() < 0.03 {
					load = 1 + rng.Float64()
				}
				f := load * math.Exp(0.15*rng.NormFloat64())
				if rng.Float64() < 0.01 {
					f *= 4
				}
				return f
			}
		}
		sum := func(spec string) (units float64) {
			for seed := range uint64(8) {
				x.noise = busy(seed)
				for _, v := range x.speeds(t, spec, prompts)[first:] {
					units += v
				}
			}
			return units
		}
		plain, got := sum("ar"), sum("auto")
		if plain/got < 0.92 {
			t.Errorf("%s: %.3f of plain decoding's speed", x.name, plain/got)
		}
		best := sum(map[bool]string{false: "pld", true: "salf"}[x.source])
		t.Logf("%-20s %.3f of plain decoding's speed, %.3f of a method's alone", x.name, plain/got, best/got)
		if best/got < 0.9 {
			t.Errorf("%s: %.3f of the speed of a method alone", x.name, best/got)
		}
	}
}
