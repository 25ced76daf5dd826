package budget_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"talf/infer"
	"talf/infer/budget"
	"talf/infer/draft"
	"talf/infer/draft/cost"
	"talf/infer/draft/drafttest"
	"talf/infer/experts"
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
}

// run answers requests side by side. It returns tokens per simulated second, and what was drafted.
func (w *world) run(t testing.TB, method string, requests, tokens int) (float64, *loop.Drafting) {
	t.Helper()
	us := func(x float64) time.Duration { return time.Duration(x * float64(time.Microsecond)) }
	costs := &drafttest.Costs{
		Pass: func(rows int) time.Duration { return us(w.pass + w.row*float64(rows)) },
		Step: func(rows int) time.Duration { return us(w.step + w.node*float64(rows)) },
	}
	target := &drafttest.Target{Table: drafttest.Table{Seed: 3, Vocab: 24, Order: 2, Sharp: 3}, MaxLen: 1 << 16}
	draws := &drafttest.Source{Target: target}
	draws.Fail = func() bool { draws.Agree = w.agree(); return false }
	src := costs.Source(draws)
	c := loop.Offline()
	c.Global = w.global
	l, err := loop.New(&infer.Engine{Target: costs.Target(target), Config: infer.Default(), Clock: costs.Now}, c)
	if err != nil {
		t.Fatal(err)
	}
	if w.global {
		if err := l.Calibrate(t.Context(), src, time.Hour); err != nil {
			t.Fatal(err)
		}
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

// At every load, on every machine, and with good and bad draft models, trees within the budget are
// about as fast as the best of plain decoding and the same method without a budget. What is missing
// is what learning takes.
func TestTheBudgetIsAboutTheBestChoiceAtEveryLoad(t *testing.T) {
	const texts = 3
	for _, m := range machines {
		for _, x := range []struct {
			requests, tokens int
			share            float64 // of the best alternative's speed
		}{{1, 600, 0.90}, {8, 120, 0.92}, {64, 24, 0.91}} {
			for _, agree := range []float64{0, 0.7} {
				name := fmt.Sprintf("%s, %d requests, agreement %.1f", m.name, x.requests, agree)
				// What a short text teaches is a matter of luck, so there are several.
				run := func(method string, global bool) (rate float64) {
					for text := range int32(texts) {
						w := &world{machine: m, agree: always(agree), global: global, text: text}
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

// A method that follows costs itself decides for a request that is alone as if there were no budget,
// and only then.
func TestAMethodThatFollowsCostsIsFreeIfAlone(t *testing.T) {
	for requests, free := range map[int]bool{1: true, 2: false} {
		w := &world{machine: machines[1], agree: always(0.5)}
		_, want := w.run(t, "salf:th=auto", requests, 200)
		w.global = true
		_, got := w.run(t, "salf:th=auto", requests, 200)
		if same := got.Counts == want.Counts && got.Fallbacks == [infer.NumFallbacks]int{}; same != free {
			t.Errorf("%d requests: %+v and fallbacks %v with a budget, %+v without", requests, got.Counts, got.Fallbacks, want.Counts)
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
		if calls++; calls < 150 {
			return 0
		}
		return 0.9
	}
	better, d := w.run(t, "beam:N=16,k=3,depth=3", 4, 1500)
	if calls < 500 || better < 1.15*rate || d.Accepted < d.Rounds/4 {
		t.Errorf("%.0f tokens/s after %d passes of a draft model that became good, %.0f with a bad one; %d of %d tokens accepted", better, calls, rate, d.Accepted, d.Tokens)
	}
}

// bids returns trees at random.
func bids(rng *rand.Rand, n int) (out []*infer.Bid, most int) {
	for range n {
		b := &infer.Bid{Method: []string{"a", "b"}[rng.IntN(2)], Rows: 1}
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
			b.Rows = b.Tree.Len()
		}
		most += b.Rows - 1
		out = append(out, b)
	}
	return out, most
}

// What is kept are trees with their roots, no more nodes than a pass may have, and of trees that are
// partly only scored all or none; every sequence keeps its own row. Cheap rows keep more.
func TestWhatIsKeptAreTreesWithinTheBound(t *testing.T) {
	rng := rand.New(rand.NewPCG(2, 9))
	for trial := range 300 {
		kept := map[bool]int{}
		seed := rng.Uint64()
		for _, cheap := range []bool{true, false} {
			row := 1e-3
			if cheap {
				row = 1e-7
			}
			var m cost.Model
			for rows := 1; rows < 4096; rows *= 2 {
				for range 10 {
					m.AddTarget(rows, experts.Read{}, 1e-3+row*float64(rows))
				}
			}
			const bound = 50
			u := budget.New(&m, bound)
			r := rand.New(rand.NewPCG(seed, 0))
			for range 3 {
				all, drafted := bids(r, 1+r.IntN(12))
				u.Begin(all)
				u.Cut(all)
				rows := 0
				for _, b := range all {
					if b.Tree == nil {
						continue
					}
					if len(b.Keep) != b.Tree.Len() || !b.Keep[0] {
						t.Fatalf("trial %d: %v of %d nodes", trial, b.Keep, b.Tree.Len())
					}
					mine := 0
					for n := 1; n < b.Tree.Len(); n++ {
						if b.Keep[n] {
							mine++
							if !b.Keep[b.Tree.Parent(n)] {
								t.Fatalf("trial %d: node %d is kept without its parent", trial, n)
							}
						}
					}
					if b.Live < b.Tree.Len() && mine != 0 && mine != b.Tree.Len()-1 {
						t.Errorf("trial %d: %d nodes of a tree of %d with %d live ones", trial, mine, b.Tree.Len(), b.Live)
					}
					rows += mine
				}
				if rows > min(bound, drafted) {
					t.Errorf("trial %d: %d nodes are kept of %d, want at most %d", trial, rows, drafted, bound)
				}
				kept[cheap] += rows
				for _, b := range all {
					u.Learn(b, []int32{1, 2})
				}
				u.End(&infer.Pass{Trees: len(all), Rows: len(all) + rows})
			}
		}
		if kept[true] < kept[false] {
			t.Errorf("trial %d: %d nodes are kept if rows cost nothing, %d if they cost much", trial, kept[true], kept[false])
		}
	}
}

// Of two methods that claim the same, the one that is right gets the rows.
func TestRowsGoToWhoIsRight(t *testing.T) {
	var m cost.Model
	for rows := 1; rows <= 64; rows *= 2 {
		for range 10 {
			m.AddTarget(rows, experts.Read{}, 1e-3+2e-4*float64(rows))
		}
	}
	u := budget.New(&m, 0)
	good, bad := &infer.Bid{Method: "good"}, &infer.Bid{Method: "bad"}
	all := []*infer.Bid{good, bad}
	for range 60 {
		u.Begin(all)
		for _, b := range all {
			b.Tree, b.LogV, b.Live, b.Keep = tree.New(0, 4), []float64{0, math.Log(0.8)}, 2, b.Keep[:0]
			b.Tree.Add(0, 1)
			b.Rows = 2
		}
		u.Cut(all)
		u.Learn(good, []int32{1, 5})
		u.Learn(bad, []int32{5})
		u.End(&infer.Pass{Trees: 2, Rows: 4})
	}
	if !good.Keep[1] || bad.Keep[1] {
		t.Errorf("kept are %v of the method that is right and %v of the one that is wrong", good.Keep, bad.Keep)
	}
	if now, plain := u.Rate(); now < 1.05*plain {
		t.Errorf("%.0f tokens/s are expected, %.0f without drafts", now, plain)
	}
}

// Where the drafts of a method are not worth the time that its drafters take, one of sixteen rounds has
// drafts; when they are again, all have. At a load that is new nothing is assumed.
func TestDraftersThatCostMoreThanTheyBringRest(t *testing.T) {
	var m cost.Model
	for rows := 1; rows <= 128; rows *= 2 {
		for range 10 {
			m.AddTarget(rows, experts.Read{}, 1e-3+1e-4*float64(rows))
		}
	}
	u := budget.New(&m, 0)
	bids := make([]*infer.Bid, 32)
	for i := range bids {
		bids[i] = &infer.Bid{Method: "a"}
	}
	rounds := func(n, rounds int, right bool) (drafts int, least int) {
		of := make([]int, n)
		for range rounds {
			for _, b := range bids[:n] {
				b.Keep, b.Tree, b.LogV, b.Rows, b.Grown = b.Keep[:0], nil, nil, 1, 0
			}
			u.Begin(bids[:n])
			for i, b := range bids[:n] {
				if b.Most == 1 {
					continue
				}
				of[i]++
				drafts++
				b.Grown, b.Rows, b.Live = 5*time.Microsecond, 2, 2
				b.Tree = tree.New(0, 2)
				b.Tree.Add(0, 1)
			}
			u.Cut(bids[:n])
			rows := 0
			for _, b := range bids[:n] {
				tokens := []int32{5}
				rows++
				if b.Tree != nil && right {
					tokens = []int32{1, 5}
				}
				if b.Tree != nil && b.Keep[1] {
					rows++
				} else {
					tokens = tokens[:1]
				}
				u.Learn(b, tokens)
			}
			u.End(&infer.Pass{Trees: n, Rows: rows})
		}
		return drafts, slices.Min(of)
	}
	rounds(32, 200, false)
	if drafts, least := rounds(32, 320, false); drafts > 32*320/15 || least < 320/20 {
		t.Errorf("%d drafts of 32 sequences in 320 rounds, at least %d of each: want a sixteenth", drafts, least)
	}
	for _, b := range bids {
		b.State = nil // new sequences
	}
	if drafts, _ := rounds(3, 20, false); drafts < 3*20 {
		t.Errorf("%d drafts of 3 sequences in 20 rounds at a load that is new", drafts)
	}
	rounds(32, 1200, true)
	if drafts, _ := rounds(32, 100, true); drafts < 32*90 {
		t.Errorf("%d drafts of 32 sequences in 100 rounds, though they pay", drafts)
	}
}
