package auto_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"talf/infer"
	"talf/infer/draft"
	"talf/infer/draft/auto"
	"talf/infer/draft/drafttest"
	"talf/infer/loop"
	"talf/infer/verify"
	"talf/tree"
)

// A machine is what passes cost in a simulation, in microseconds: those of the target and of the
// draft model, and each of their rows.
type machine struct {
	name                  string
	pass, row, step, node float64
}

var machines = []machine{
	{"rows cost little", 1000, 10, 100, 1},
	{"rows cost much", 1000, 250, 150, 25},
	{"rows cost all", 50, 500, 20, 60},
}

// A world is a machine with a target and a draft model that agree on a share of all contexts.
type world struct {
	machine
	agree  func() float64 // now
	global bool
	text   int32
	order  int // tokens that decide the next one: with 2, texts soon run in loops
}

// run answers requests side by side. It returns tokens per simulated second, and what was drafted.
func (w *world) run(t testing.TB, method string, requests, tokens int) (float64, *loop.Drafting) {
	t.Helper()
	us := func(x float64) time.Duration { return time.Duration(x * float64(time.Microsecond)) }
	costs := &drafttest.Costs{
		Pass: func(rows int) time.Duration { return us(w.pass + w.row*float64(rows)) },
		Step: func(rows int) time.Duration { return us(w.step + w.node*float64(rows)) },
	}
	target := &drafttest.Target{Table: drafttest.Table{Seed: 3, Vocab: 24, Order: max(w.order, 2), Sharp: 3}, MaxLen: 1 << 16}
	draws := &drafttest.Source{Target: target}
	draws.Fail = func() bool { draws.Agree = w.agree(); return false }
	src := costs.Source(draws)
	c := loop.Offline()
	c.Global = w.global
	l, err := loop.New(&infer.Engine{Target: costs.Target(target), Config: infer.Default(), Clock: costs.Now}, c)
	if err != nil {
		t.Fatal(err)
	}
	mk, line, err := draft.Open(method, draft.Env{Source: true})
	if err != nil {
		t.Fatal(err)
	}
	var reqs []infer.Request
	for i := range requests {
		v, err := verify.New("", 0)
		if err != nil {
			t.Fatal(err)
		}
		r := infer.Request{
			Prompt: []int32{int32(i % 24), int32(i / 24 % 24), 1 + w.text}, MaxTokens: tokens, NoEOS: true,
			Method: method, Drafter: mk.New(), Verifier: v, Processor: drafttest.Plain{},
		}
		if line.Source || line.May {
			r.Source = src
		}
		reqs = append(reqs, r)
	}
	begin := costs.Now()
	seqs, err := l.All(t.Context(), reqs)
	if err != nil {
		t.Fatal(err)
	}
	rate := float64(requests*tokens) / costs.Now().Sub(begin).Seconds()
	r := reqs[requests-1]
	r.Drafter, r.Source = nil, nil
	plain, err := (&infer.Engine{Target: target, Config: infer.Default()}).Generate(t.Context(), r)
	if err != nil || !slices.Equal(plain.Tokens(), seqs[requests-1].Tokens()) {
		t.Fatalf("%s: an answer is not plain decoding's, error %v", method, err)
	}
	return rate, l.Stats().Methods[method]
}

func always(x float64) func() float64 { return func() float64 { return x } }

// At every load, on every machine, and with good and bad draft models, trees by the rule are
// about as fast as the best of plain decoding and the same method's whole trees. What is missing
// is what learning takes.
func TestTheRuleIsAboutTheBestChoiceAtEveryLoad(t *testing.T) {
	const texts = 3
	for _, m := range machines {
		for _, x := range []struct {
			requests, tokens, order int
			share                   float64 // of the best alternative's speed
		}{
			{1, 600, 6, 0.98},
			{1, 600, 2, 0.79}, // a text runs in a loop, at some places of which chains are always right: it matters where one begins
			{8, 120, 2, 0.92},
			{64, 24, 2, 0.91},
		} {
			for _, agree := range []float64{0, 0.7} {
				name := fmt.Sprintf("%s, %d requests, order %d, agreement %.1f", m.name, x.requests, x.order, agree)
				// What a short text teaches is a matter of luck, so there are several.
				run := func(method string, global bool) (rate float64) {
					for text := range int32(texts) {
						w := &world{machine: m, agree: always(agree), global: global, text: text, order: x.order}
						r, _ := w.run(t, method, x.requests, x.tokens)
						rate += r / texts
					}
					return rate
				}
				plain := run("ar", false)
				for _, method := range []string{"linear:K=4", "beam:N=16,k=3,depth=3"} {
					fixed, got := run(method, false), run(method, true)
					if best := max(plain, fixed); got < x.share*best {
						t.Errorf("%s, %s: %.0f tokens/s, plain decoding has %.0f, the whole trees %.0f", name, method, got, plain, fixed)
					}
				}
			}
		}
	}
}

// A draft model that is always wrong is given up, which is counted and said; when it becomes good,
// it is used again.
func TestABadDraftModelIsGivenUpAndTriedAgain(t *testing.T) {
	w := &world{machine: machines[0], agree: always(0), global: true}
	rate, d := w.run(t, "beam:N=16,k=3,depth=3", 4, 300)
	if without := d.Fallbacks[infer.FallbackBudget]; without < d.Rounds*8/10 || without == d.Rounds || d.Rounds-without < d.Drafts {
		t.Errorf("%d of %d rounds had no draft because of the budget, %d had one", without, d.Rounds, d.Drafts)
	}
	calls := 0
	w.agree = func() float64 {
		if calls++; calls < 40 {
			return 0
		}
		return 0.9
	}
	better, d := w.run(t, "beam:N=16,k=3,depth=3", 4, 1500)
	if calls < 400 || better < 1.15*rate || d.Accepted < d.Rounds/4 {
		t.Errorf("%.0f tokens/s after %d passes of a draft model that became good, %.0f with a bad one; %d of %d tokens accepted", better, calls, rate, d.Accepted, d.Tokens)
	}
}

// bids returns trees at random.
func bids(rng *rand.Rand, n int) (out []*infer.Bid, most int) {
	for range n {
		b := &infer.Bid{Method: []string{"a", "b"}[rng.IntN(2)]}
		if rng.IntN(5) > 0 {
			b.Tree = tree.New(1, 64)
			b.LogV = []float64{0}
			for b.Tree.Len() < 2+rng.IntN(40) {
				up := rng.IntN(b.Tree.Len())
				b.Tree.Add(up, rng.Int32N(9))
				b.LogV = append(b.LogV, b.LogV[up]-rng.ExpFloat64())
			}
			if b.Live = b.Tree.Len(); rng.IntN(6) == 0 {
				b.Live = 1 + rng.IntN(b.Live)
			}
			if rng.IntN(3) == 0 {
				b.LogV = nil
			}
			most += b.Tree.Len() - 1
		}
		out = append(out, b)
	}
	return out, most
}

// What is kept are trees with their roots, and of trees that are partly only scored all or none. Cheap rows keep more.
func TestWhatIsKeptAreTrees(t *testing.T) {
	rng := rand.New(rand.NewPCG(2, 9))
	kept := map[bool]int{}
	for trial := range 300 {
		for _, cheap := range []bool{false, true} {
			all, most := bids(rng, 1+trial%7)
			c := auto.New()
			row := time.Duration(200) * time.Microsecond
			if cheap {
				row = time.Microsecond
			}
			for _, n := range []int{len(all), len(all) + most} {
				c.Begin(nil, n)
				c.Learn(nil, &infer.Pass{Rows: n, Trees: n, Verify: time.Millisecond + time.Duration(n)*row, Took: 2 * time.Millisecond})
			}
			c.Begin(all, len(all))
			c.Cut(all, len(all))
			for _, b := range all {
				if b.Tree == nil {
					continue
				}
				if len(b.Keep) != b.Tree.Len() || !b.Keep[0] {
					t.Fatalf("trial %d: keeps %v of %d nodes", trial, b.Keep, b.Tree.Len())
				}
				n := 0
				for m := 1; m < b.Tree.Len(); m++ {
					if b.Keep[m] {
						if n++; !b.Keep[b.Tree.Parent(m)] {
							t.Fatalf("trial %d: keeps node %d without its parent", trial, m)
						}
					}
				}
				if b.Live < b.Tree.Len() && n > 0 && n < b.Tree.Len()-1 {
					t.Fatalf("trial %d: keeps %d of %d nodes, of which %d are live", trial, n, b.Tree.Len(), b.Live)
				}
				kept[cheap] += n
			}
		}
	}
	if kept[true] < 2*kept[false] || kept[false] == 0 {
		t.Errorf("%d nodes are kept where rows are cheap, %d where they are dear", kept[true], kept[false])
	}
}
