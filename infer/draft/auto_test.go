package draft_test

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"talf/infer"
	"talf/infer/draft"
	"talf/infer/draft/chooser"
	"talf/infer/draft/drafttest"
	"talf/infer/verify"
	"talf/tree"
)

func TestAutoConforms(t *testing.T) {
	for spec, source := range map[string]bool{
		"auto:try=": true, "auto:pld": false, "auto:salf": true, "auto:pld+salf:N=9;th=0.2+dynatree": true,
		"auto:lookahead+pld:lo=1+recycle": false, "auto:linear:K=3+isotropic": true,
	} {
		t.Run(spec, func(t *testing.T) {
			mk, _, err := draft.Open(spec, draft.Env{Source: source})
			if err != nil {
				t.Fatal(err)
			}
			defer mk.Close()
			drafttest.Run(t, mk.New)
		})
	}
}

func TestCandidatesThatMakeNoSenseAreRefused(t *testing.T) {
	for spec, want := range map[string]string{
		"auto:salf":              "salf asks a draft model, and there is none",
		"auto:pld+auto":          "auto does not choose itself",
		"auto:pld+ar":            "leave ar out",
		"auto:pld+slaf":          `unknown method "slaf"`,
		"auto:goose:B=many":      "unknown parameter",
		"auto:pld:lo=9":          "lo",
		"auto:pld,try=goose":     "given twice",
		"auto:linear:draw=maybe": "draw is",
	} {
		if _, _, err := draft.Open(spec, draft.Env{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, want one that says %q", spec, err, want)
		}
	}
	_, _, err := draft.Open("auto:static:draw=distinct", draft.Env{Temperature: 1, Source: true})
	if err == nil || !strings.Contains(err.Error(), "draws children at random") {
		t.Errorf("drawn children: error %v", err)
	}
}

// Answers at temperature 0 and above it do not learn from each other: what greedy decoding accepts, sampling seldom does.
func TestAutoKeepsTemperaturesApart(t *testing.T) {
	mk, _, err := draft.Open("auto", draft.Env{})
	if err != nil {
		t.Fatal(err)
	}
	defer mk.Close()
	if mk.At == nil {
		t.Fatal("it is the same at all temperatures")
	}
	one, other := mk.At(0.3), mk.At(1)
	if one.Draw != infer.Chosen || !one.Learns || other.New == nil {
		t.Errorf("above temperature 0 it is %+v", one)
	}
	fixed, _, err := draft.Open("auto", draft.Env{Temperature: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer fixed.Close()
	if fixed.At != nil {
		t.Error("opened above temperature 0, it offers another maker for that")
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
	for seed := range uint64(prompts) {
		world := &drafttest.Target{Table: drafttest.Table{Seed: seed / 2, Vocab: 40, Order: x.order, Sharp: x.sharp}, MaxLen: 2000}
		e := &infer.Engine{Target: costs.Target(world), Config: infer.Default(), Clock: costs.Now}
		req := infer.Request{
			Prompt: []int32{int32(seed), 1, 2}, MaxTokens: 128, Drafter: mk.New(),
			Verifier: new(verify.Greedy), Processor: drafttest.Plain{},
		}
		if m.Source || m.May && x.source {
			req.Source = costs.Source(&drafttest.Source{Target: world, Agree: x.prices.agree})
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
		singles := []string{"ar", "pld", "goose:harvest=rounds", "recycle:rows,harvest=rounds"}
		if x.source {
			singles = append(singles, "salf:th=auto")
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
		// Both decode under the same noise on average; the sum over prompts distinguishes them.
		busy := func() func() float64 {
			rng, load := rand.New(rand.NewPCG(5, 6)), 1.0
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
			x.noise = busy()
			for _, v := range x.speeds(t, spec, prompts)[first:] {
				units += v
			}
			return units
		}
		plain, got := sum("ar"), sum("auto")
		t.Logf("%-20s %.3f of plain decoding's speed", x.name, plain/got)
		if plain/got < 0.9 {
			t.Errorf("%s: %.3f of plain decoding's speed", x.name, plain/got)
		}
		if best := sum(map[bool]string{false: "pld", true: "salf:th=auto"}[x.source]); best/got < 0.85 {
			t.Errorf("%s: %.3f of the speed of a method alone", x.name, best/got)
		}
	}
}

// unscored are the scores of a replay that lacks all rows.
type unscored struct{ infer.Scores }

func (unscored) TopK(int, int) []infer.Candidate    { return nil }
func (unscored) Rank(dst []int32, _, _ int) []int32 { return dst }

// first draws what comes first.
type first struct{ infer.Chance }

func (first) Draw(int, infer.Dist) int32 { return 0 }

// A counted drafter counts how often it is asked.
type counted struct {
	infer.Drafter
	asked *int
}

func (d counted) Grow(p *infer.Proposal, rows []infer.Row, c infer.Chance) ([]int, error) {
	*d.asked++
	return d.Drafter.Grow(p, rows, c)
}

// A round that is begun again, after a preemption, may be one that candidates sleep through although they grew trees
// for it at first: what another request's rounds cost has changed how seldom trees are grown.
func TestCandidatesMaySleepThroughARoundThatIsBegunAgain(t *testing.T) {
	asked := 0
	var all []chooser.Candidate
	for _, spec := range []string{"recycle", "lookahead", "fuse", "goose", "isotropic", "pld", "suffix"} {
		mk := open(t, spec, draft.Env{})
		all = append(all, chooser.Candidate{Name: spec, New: func() infer.Drafter { return counted{mk.New(), &asked} }})
	}
	of := chooser.New(all, false)
	one, other := of(), of()
	begin := func(d infer.Drafter, token int32, pos int) *infer.Proposal {
		p := &infer.Proposal{Tree: tree.New(token, 9), Pos: pos, MaxNodes: 9, MaxDepth: 99, Prefill: time.Millisecond}
		if ask, err := d.Grow(p, nil, first{}); err != nil || len(ask) > 0 {
			t.Fatal(ask, err)
		}
		return p
	}
	end := func(d infer.Drafter, p *infer.Proposal, next int32, drafting time.Duration) {
		if err := d.Observe(*p, infer.Verdict{Path: []int{0}, Next: next}, unscored{}); err != nil {
			t.Fatal(err)
		}
		n := p.Tree.Len()
		d.Traits().Took(infer.Timing{Rows: n, Nodes: n, Verify: time.Duration(9+n) * 100 * time.Microsecond, Overhead: drafting, Drafting: drafting})
	}
	if err := one.Start([]int32{1}); err != nil {
		t.Fatal(err)
	}
	if err := other.Start([]int32{1}); err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(5, 3))
	token, slept, at := int32(1), 0, 0
	for pos := range 1500 {
		before := asked
		begin(one, token, pos)
		grew := asked > before
		drafting := time.Duration(rng.IntN(2)) * 50 * time.Microsecond
		for range 8 {
			end(other, begin(other, 1, at), 1, drafting)
			at++
		}
		before = asked
		p := begin(one, token, pos)
		if grew && asked == before {
			slept++
		}
		token = rng.Int32N(8)
		end(one, p, token, drafting)
	}
	if slept == 0 {
		t.Error("candidates slept through no round that they had grown trees for")
	}
}

// alike are scores of which every row has the same tokens.
type alike struct{ infer.Scores }

func (alike) TopK(_, k int) []infer.Candidate {
	all := make([]infer.Candidate, k)
	for i := range all {
		all[i] = infer.Candidate{Token: int32(i), LogProb: -1}
	}
	return all
}

func (alike) Rank(dst []int32, _, k int) []int32 {
	for i := range k {
		dst = append(dst, int32(i))
	}
	return dst
}

// Drafters with tables say how large these are, but for those that all requests share: auto keeps none that are large for another request.
func TestDraftersSayHowLargeTheirTablesAre(t *testing.T) {
	const rounds = 3000
	prompt := make([]int32, 2000)
	for i := range prompt {
		prompt[i] = int32(i)
	}
	for spec, want := range map[string]int{ // bytes, at least
		"pld": 4 * rounds, "suffix": 4 * rounds, "lookahead:prompt=on": 4 * rounds,
		"recycle:rows": 64 * rounds, "goose:harvest=rounds": 2 * 80 * rounds, "isotropic": 64 * rounds, "fuse": 2 * 80 * rounds,
		"goose:table=keep": 4 * rounds,
	} {
		d := open(t, spec, draft.Env{}).New()
		sized, ok := d.(interface{ Bytes() int })
		if !ok {
			t.Errorf("%s does not say how large it is", spec)
			continue
		}
		if err := d.Start(prompt); err != nil {
			t.Fatal(err)
		}
		for i := range rounds {
			at := len(prompt) - 1 + i
			p := infer.Proposal{Tree: tree.New(int32(at), 1), Pos: at, MaxNodes: 9, MaxDepth: 9}
			if err := d.Observe(p, infer.Verdict{Path: []int{0}, Next: int32(at + 1)}, alike{}); err != nil {
				t.Fatal(spec, err)
			}
		}
		if n := sized.Bytes(); n < want || strings.Contains(spec, "keep") && n > 2*80*rounds {
			t.Errorf("%s: %d bytes after %d rounds, want %d or more, and not those of a table that is kept", spec, n, rounds, want)
		}
	}
}
