package budget_test

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"

	"talf/infer"
	"talf/infer/draft"
	"talf/infer/draft/drafttest"
	"talf/infer/loop"
	"talf/infer/verify"
)

// A reader is a source that has to read what is committed before it drafts, as heads do: with its
// sequence's next ask, or once lag tokens wait, unless that is postponed.
type reader struct {
	*drafttest.Source
	costs     *drafttest.Costs
	token     time.Duration
	pending   map[infer.SeqID]int
	postponed bool
	read      int
}

const lag = 64

func (r *reader) Open(id infer.SeqID, prompt []int32, keep int) error {
	r.pending[id] = 0
	return r.Source.Open(id, prompt, keep)
}

func (r *reader) Commit(id infer.SeqID, p infer.Proposal, v infer.Verdict, s infer.Scores) error {
	r.pending[id] += len(v.Path)
	return r.Source.Commit(id, p, v, s)
}

func (r *reader) Close(id infer.SeqID) {
	delete(r.pending, id)
	r.Source.Close(id)
}

func (r *reader) Postpone(on bool) { r.postponed = on }

func (r *reader) Read() int { return r.read }

func (r *reader) Backlog(id infer.SeqID) int { return r.pending[id] }

func (r *reader) Rows(ctx context.Context, asks []infer.Ask) ([]infer.Row, error) {
	r.read = 0
	nodes := 0
	for _, a := range asks {
		r.read += r.pending[a.ID]
		r.pending[a.ID] = 0
		nodes += a.Tree.Len() - a.From
	}
	for id, n := range r.pending {
		if n >= lag && !r.postponed {
			r.read += n
			r.pending[id] = 0
		}
	}
	if nodes > 0 || r.read > 0 {
		r.costs.Advance(r.costs.Step(nodes) + time.Duration(r.read)*r.token)
	}
	return r.Source.Rows(ctx, asks)
}

// A station serves requests of one method with a draft model that has to read, in simulated time.
type station struct {
	*loop.Loop
	costs *drafttest.Costs
	src   *reader
	maker *draft.Maker
	line  draft.Method
	name  string
}

func newStation(t testing.TB, m machine, method string, global bool) *station {
	t.Helper()
	us := func(x float64) time.Duration { return time.Duration(x * float64(time.Microsecond)) }
	costs := &drafttest.Costs{
		Pass: func(rows int) time.Duration { return us(m.pass + m.row*float64(rows)) },
		Step: func(rows int) time.Duration { return us(m.step + m.node*float64(rows)) },
	}
	target := &drafttest.Target{Table: drafttest.Table{Seed: 3, Vocab: 24, Order: 2, Sharp: 3}, MaxLen: 1 << 16}
	st := &station{costs: costs, name: method}
	st.src = &reader{Source: &drafttest.Source{Target: target, Agree: 0.8}, costs: costs, token: us(m.node), pending: map[infer.SeqID]int{}}
	c := loop.Default()
	c.MaxRunning, c.Global = 64, global
	var err error
	if st.Loop, err = loop.New(&infer.Engine{Target: costs.Target(target), Config: infer.Default(), Clock: costs.Now}, c); err != nil {
		t.Fatal(err)
	}
	if err := st.Calibrate(t.Context(), st.src, time.Hour); err != nil {
		t.Fatal(err)
	}
	if st.maker, st.line, err = draft.Open(method, draft.Env{Source: true}); err != nil {
		t.Fatal(err)
	}
	return st
}

func (st *station) request(t testing.TB, tokens int, prompt []int32) infer.Request {
	t.Helper()
	v, err := verify.New("", 0)
	if err != nil {
		t.Fatal(err)
	}
	r := infer.Request{
		Prompt: prompt, MaxTokens: tokens, NoEOS: true,
		Method: st.name, Drafter: thinker{st.maker.New(), st.costs}, Verifier: v, Processor: drafttest.Plain{},
	}
	if st.line.Source || st.line.May {
		r.Source = st.src
	}
	return r
}

// A thinker is a drafter that takes time.
type thinker struct {
	infer.Drafter
	costs *drafttest.Costs
}

func (d thinker) Grow(p *infer.Proposal, rows []infer.Row, c infer.Chance) ([]int, error) {
	d.costs.Advance(20 * time.Microsecond)
	return d.Drafter.Grow(p, rows, c)
}

// A request that goes on when the others have ended has drafts at once where these pay for one
// that is alone, though they did not pay beside the others, and though its draft model has not read
// what came meanwhile.
func TestDraftsAreBackAsSoonAsTheLoadFalls(t *testing.T) {
	const busy, rounds, texts = 200, 20, 4
	quiet := 0
	for _, m := range []machine{{"a pass costs eight rows", 600, 60, 100, 5}, machines[0], machines[1]} {
		for _, method := range []string{"salf:paper", "linear:K=4", "recycle"} {
			beside, drafted, all, soon := 0, 0, 0, 0 // rounds, and those with a draft
			for text := range int32(texts) {
				st := newStation(t, m, method, true)
				var reqs []infer.Request
				for i := range 32 {
					reqs = append(reqs, st.request(t, busy, []int32{int32(i % 24), int32(i / 24), 1 + text}))
				}
				alone := 0
				reqs[0].MaxTokens = 6 * busy
				reqs[0].Trace = func(x infer.Round) error {
					drafts := 0
					if x.Proposal.Tree.Len() > 1 {
						drafts = 1
					}
					if st.Stats().Running > 1 {
						beside, drafted = beside+1, drafted+drafts
					} else if alone < rounds {
						alone, soon = alone+1, soon+drafts
					}
					return nil
				}
				if _, err := st.All(t.Context(), reqs); err != nil {
					t.Fatal(err)
				}
				all += alone
			}
			if drafted*2 < beside {
				quiet++
			}
			// Where drafts hardly pay, some rounds go without, and after a few bad ones many of a text may.
			if all != texts*rounds || soon < all*3/4 {
				t.Errorf("%s, %s: %d of %d rounds had drafts beside others, %d of the first %d alone", m.name, method, drafted, beside, soon, all)
			}
		}
	}
	if quiet == 0 {
		t.Error("drafts paid at every load")
	}
}

// One client that sends a request after another has its drafts: what the draft model has to read of
// a new prompt costs none of them.
func TestOneClientHasItsDrafts(t *testing.T) {
	for _, m := range []machine{{"a pass costs fifty rows", 3000, 60, 400, 20}, machines[0]} {
		for _, method := range []string{"salf:paper", "salf"} {
			serve := func(global bool) (seconds float64, d *loop.Drafting) {
				st := newStation(t, m, method, global)
				rng := rand.New(rand.NewPCG(7, 7))
				begin := st.costs.Now()
				for range 12 {
					prompt := make([]int32, 100+rng.IntN(300))
					for i := range prompt {
						prompt[i] = rng.Int32N(24)
					}
					if _, err := st.Answer(t.Context(), st.request(t, 60, prompt), nil); err != nil {
						t.Fatal(err)
					}
				}
				return st.costs.Now().Sub(begin).Seconds(), st.Stats().Methods[method]
			}
			without, _ := serve(false)
			with, d := serve(true)
			if n := d.Fallbacks[infer.FallbackBudget]; n > d.Rounds/50 || with > 1.01*without {
				t.Errorf("%s, %s: %d of %d rounds without drafts; %.3f s with a budget, %.3f s without", m.name, method, n, d.Rounds, with, without)
			}
		}
	}
}
