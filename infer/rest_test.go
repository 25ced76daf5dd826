package infer_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"talf/infer"
	"talf/infer/draft/drafttest"
)

// A rester drafts nothing and sits out some rounds after each. It writes down what it is told.
type rester struct {
	rounds int // that it sits out
	took   func()
	asked  int
	tokens []int32
	work   []time.Duration // of each round or rest
	ends   int
}

func (d *rester) Start(prompt []int32) error {
	d.tokens = append(d.tokens[:0], prompt...)
	return nil
}

func (d *rester) Grow(*infer.Proposal, []infer.Row, infer.Chance) ([]int, error) {
	d.asked++
	return nil, nil
}

func (d *rester) Observe(p infer.Proposal, v infer.Verdict, _ infer.Scores) error {
	if p.Pos == len(d.tokens)-1 {
		d.tokens = append(d.tokens, v.Next)
	}
	return nil
}

func (d *rester) Traits() infer.Traits {
	return infer.Traits{
		Defers: true,
		Took: func(t infer.Timing) {
			d.work = append(d.work, t.Drafting)
			if d.took != nil {
				d.took()
			}
		},
		Rest: func() int { return d.rounds },
		Rested: func(pos int, tokens []int32, work time.Duration) {
			if pos == len(d.tokens)-1 && tokens[0] == d.tokens[pos] {
				d.tokens = append(d.tokens, tokens[1:]...)
			}
			d.work = append(d.work, work)
		},
		End: func() { d.ends = len(d.tokens) },
	}
}

// A lazy source postpones its reading, and counts the passes that nobody asked for.
type lazy struct {
	drafttest.Source
	passes int
}

func (*lazy) Postpone(bool)           {}
func (*lazy) Backlog(infer.SeqID) int { return 0 }
func (*lazy) Read() int               { return 0 }
func (l *lazy) Rows(ctx context.Context, asks []infer.Ask) ([]infer.Row, error) {
	if len(asks) == 0 {
		l.passes++
	}
	return l.Source.Rows(ctx, asks)
}

// Rounds that a drafter sits out are plain decoding, and it is told of all that they emitted before its next call, also
// if the sequence is preempted among them, and at the end.
func TestADrafterThatRestsIsToldOfItAfterwards(t *testing.T) {
	const rests, tokens = 5, 200
	for _, preempts := range []bool{false, true} {
		world := &drafttest.Target{Table: drafttest.Table{Seed: 4, Vocab: 9, Order: 2, Sharp: 2}, MaxLen: 500}
		e := &infer.Engine{Target: world, Config: infer.Default()}
		d := &rester{rounds: rests}
		src := &lazy{Source: drafttest.Source{Target: world}}
		req := plainRequest(t, 1, 2, 3)
		req.MaxTokens = tokens
		plain, err := e.Generate(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		req.Drafter, req.Source = d, src
		s, err := e.Open(req)
		if err != nil {
			t.Fatal(err)
		}
		for steps := 0; ; steps++ {
			if _, done := s.Done(); done {
				break
			}
			if preempts && steps%41 == 17 {
				e.Preempt(s)
			}
			if err := e.Step(t.Context(), []*infer.Sequence{s}); err != nil {
				t.Fatal(err)
			}
		}
		if d.asked > tokens/(rests+1)+1 {
			t.Errorf("preempted %v: asked in %d rounds of %d, want one of %d", preempts, d.asked, tokens, rests+1)
		}
		e.Close(s)
		if want := append(slices.Clone(req.Prompt), plain.Tokens()...); !slices.Equal(d.tokens, want) || d.ends != len(want) {
			t.Errorf("preempted %v: the drafter knows\n%v, %d tokens at the end; want\n%v", preempts, d.tokens, d.ends, want)
		}
		if !preempts && src.passes > 1+tokens/32 {
			t.Errorf("a source that may read later had %d passes that nobody asked for in %d rounds", src.passes, tokens)
		}
	}
}

// How long a drafter takes over a timing is in the next one.
func TestTheTimeOfTookIsTheDraftersOwn(t *testing.T) {
	costs := &drafttest.Costs{
		Pass: func(int) time.Duration { return 100 * time.Millisecond },
		Step: func(int) time.Duration { return 10 * time.Millisecond },
	}
	world := &drafttest.Target{Table: drafttest.Table{Seed: 4, Vocab: 9, Order: 2, Sharp: 2}, MaxLen: 500}
	e := &infer.Engine{Target: costs.Target(world), Config: infer.Default(), Clock: costs.Now}
	for rests, want := range [][]time.Duration{
		{0, time.Millisecond, time.Millisecond, time.Millisecond},
		{0, time.Millisecond, 0, time.Millisecond}, // a round, a rest, a round, a rest
	} {
		d := &rester{rounds: rests, took: func() { costs.Advance(time.Millisecond) }}
		req := plainRequest(t, 1, 2, 3)
		req.MaxTokens, req.Drafter = 4, d
		if _, err := e.Generate(t.Context(), req); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(d.work, want) {
			t.Errorf("%d rounds of rest: own work %v, want %v", rests, d.work, want)
		}
	}
}

// A hoarding source postpones its reading until more than bound tokens wait, and then reads one sequence's, 40 tokens a pass.
type hoarding struct {
	drafttest.Source
	waits       map[infer.SeqID]int
	bound, most int // tokens that may wait, and that did
	read        int
}

func (*hoarding) Postpone(bool)                {}
func (h *hoarding) Backlog(id infer.SeqID) int { return h.waits[id] }
func (h *hoarding) Read() int                  { return h.read }

func (h *hoarding) waiting() (id infer.SeqID, n int) {
	for i, w := range h.waits {
		if n += w; w > h.waits[id] || w == h.waits[id] && i < id {
			id = i
		}
	}
	return id, n
}

func (h *hoarding) Commit(id infer.SeqID, p infer.Proposal, v infer.Verdict, s infer.Scores) error {
	h.waits[id] += len(v.Path)
	_, n := h.waiting()
	h.most = max(h.most, n)
	return h.Source.Commit(id, p, v, s)
}

func (h *hoarding) Rows(ctx context.Context, asks []infer.Ask) ([]infer.Row, error) {
	h.read = 0
	if id, n := h.waiting(); n > h.bound {
		h.read = min(40, h.waits[id])
		h.waits[id] -= h.read
	}
	return h.Source.Rows(ctx, asks)
}

// A source that postpones its reading keeps its own bound on what waits, however many sequences share it: while a pass
// that nobody asked for has something to read, the next step has one, too.
func TestWhatWaitsForASourceIsBounded(t *testing.T) {
	const many, tokens = 12, 400
	world := &drafttest.Target{Table: drafttest.Table{Seed: 4, Vocab: 9, Order: 2, Sharp: 2}, MaxLen: 500}
	e := &infer.Engine{Target: world, Config: infer.Default()}
	src := &hoarding{Source: drafttest.Source{Target: world}, waits: map[infer.SeqID]int{}, bound: 100}
	var seqs []*infer.Sequence
	for i := range many {
		req := plainRequest(t, int32(i%9), 2, 3)
		req.MaxTokens, req.NoEOS, req.Drafter, req.Source = tokens, true, &rester{rounds: 31}, src
		s, err := e.Open(req)
		if err != nil {
			t.Fatal(err)
		}
		seqs = append(seqs, s)
	}
	for range tokens + 8 {
		if err := e.Step(t.Context(), seqs); err != nil {
			t.Fatal(err)
		}
	}
	for _, s := range seqs {
		if s.Err() != nil || len(s.Tokens()) != tokens {
			t.Fatalf("%d tokens, %v", len(s.Tokens()), s.Err())
		}
		e.Close(s)
	}
	// Between two passes there are 64 steps.
	if most := src.bound + 65*many; src.most > most {
		t.Errorf("%d tokens waited, want at most %d", src.most, most)
	}
}

// A keeper is a drafter whose method keeps something for later sequences.
type keeper struct {
	rester
	idle infer.Releaser
}

func (d *keeper) Traits() infer.Traits {
	t := d.rester.Traits()
	t.Idle = d.idle
	return t
}

// A count counts releases, and panics if it is to.
type count struct {
	n    int
	fail bool
}

func (c *count) Release() {
	if c.n++; c.fail {
		panic("no")
	}
}

// What drafters keep for later sequences is given back once for each method that was used since the last time.
func TestWhatDraftersKeepIsGivenBack(t *testing.T) {
	world := &drafttest.Target{Table: drafttest.Table{Seed: 1, Vocab: 20, Order: 2, Sharp: 2}, MaxLen: 100}
	e := &infer.Engine{Target: world, Config: infer.Default()}
	broken, sound := &count{fail: true}, new(count)
	ask := func(idle infer.Releaser) {
		t.Helper()
		req := plainRequest(t, 1, 2)
		req.MaxTokens, req.Drafter = 3, &keeper{idle: idle}
		if _, err := e.Generate(t.Context(), req); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		ask(broken)
		ask(sound)
		ask(nil)
	}
	e.ReleaseKV()
	e.ReleaseKV()
	if broken.n != 1 || sound.n != 1 {
		t.Errorf("%d and %d releases, want one of each", broken.n, sound.n)
	}
	ask(sound)
	e.ReleaseKV()
	if broken.n != 1 || sound.n != 2 {
		t.Errorf("%d and %d releases after another request, want 1 and 2", broken.n, sound.n)
	}
}
