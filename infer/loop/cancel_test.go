package loop_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"talf/infer"
	"talf/infer/draft/drafttest"
	"talf/infer/loop"
)

// Hooks are called in the phases of a request, by whoever owns the loop.
type hooks struct {
	infer.Drafter
	infer.Verifier
	at func(phase string)
}

type hookedDrafter struct{ *hooks }

func (h hookedDrafter) Start(prompt []int32) error {
	h.at("admit")
	return h.Drafter.Start(prompt)
}

func (h hookedDrafter) Grow(p *infer.Proposal, rows []infer.Row, c infer.Chance) ([]int, error) {
	h.at("draft")
	return h.Drafter.Grow(p, rows, c)
}

func (h hookedDrafter) Observe(p infer.Proposal, v infer.Verdict, s infer.Scores) error {
	h.at("observe")
	return h.Drafter.Observe(p, v, s)
}

type hookedVerifier struct{ *hooks }

func (h hookedVerifier) Fits(d infer.Choice, chain bool) error { return h.Verifier.Fits(d, chain) }

func (h hookedVerifier) Verify(p infer.Proposal, s infer.Scores, c infer.Chance) (infer.Verdict, error) {
	h.at("verify")
	return h.Verifier.Verify(p, s, c)
}

// hooked returns a request that calls at in each of its phases.
func hooked(t testing.TB, seed uint64, at func(phase string), tokens int, prompt ...int32) (r infer.Request, want []int32) {
	t.Helper()
	r = request(t, tokens, prompt...)
	want = plain(t, r)
	h := &hooks{at: at, Verifier: r.Verifier}
	h.Drafter = &drafttest.Oracle{Truth: slices.Concat(prompt, want), Vocab: 9, Depth: 3, Nodes: 6, Rand: rand.New(rand.NewPCG(seed, 1))}
	r.Drafter, r.Verifier = hookedDrafter{h}, hookedVerifier{h}
	r.Trace = func(infer.Round) error { at("trace"); return nil }
	return r, want
}

// attentive is a world whose passes end when they are cut.
type attentive struct {
	*world
	at func(phase string)
}

func (a *attentive) Score(ctx context.Context, jobs []infer.Job) ([]infer.Rows, error) {
	a.at("score")
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return a.world.Score(ctx, jobs)
}

// Whatever the phase in which requests are cancelled, by themselves or by others, all end, those that
// are not cancelled with the answer of plain decoding; no pass is cut while somebody waits for it, and
// the loop goes on.
func TestRequestsMayBeCancelledInEveryPhase(t *testing.T) {
	trials := 60
	if testing.Short() {
		trials = 20
	}
	seen := map[string]int{}
	cuts := 0
	for trial := range trials {
		rng := rand.New(rand.NewPCG(uint64(trial), 5))
		var mu sync.Mutex // of what follows
		dice := rand.New(rand.NewPCG(uint64(trial), 6))
		var all []*loop.Handle
		cancelled := map[*loop.Handle]bool{}
		anchored := trial%2 == 0 // the first request is never cancelled
		due, failed := 0, 0
		act := func(phase string) {
			mu.Lock()
			var gone []*loop.Handle
			if due--; due <= 0 && len(all) > 0 {
				due = dice.IntN(12)
				switch i := dice.IntN(len(all)); {
				case anchored && i == 0:
				case !anchored && dice.IntN(10) == 0:
					gone = slices.Clone(all)
				default:
					gone = all[i : i+1]
				}
			}
			for _, h := range gone {
				cancelled[h] = true
				seen[phase]++
			}
			mu.Unlock()
			for _, h := range gone {
				h.Cancel(errPlanted)
			}
		}
		w := &attentive{newWorld([]int{0, 60}[rng.IntN(2)]), act}
		l := start(t, w, loop.Config{MaxRunning: 1 + rng.IntN(5), MaxQueue: 100, Global: rng.IntN(2) == 0})
		var wg sync.WaitGroup
		leading := rng.IntN(2) == 0
		var readers sync.WaitGroup
		fail := make(chan string, 100)
		late := rng.IntN(2) == 0 // nothing runs until all are in the queue
		begin := make(chan struct{})
		if !leading {
			wg.Go(func() {
				<-begin
				_ = l.Run(context.Background())
			})
		}
		if !late {
			close(begin)
		}
		for i := range 12 {
			tokens := 1 + rng.IntN(20)
			if anchored && i == 0 {
				tokens = 80
			}
			prompt := make([]int32, 1+rng.IntN(20))
			for j := range prompt {
				prompt[j] = rng.Int32N(9)
			}
			req, want := hooked(t, rng.Uint64(), act, tokens, prompt...)
			if anchored && i == 0 {
				req.Trace = func(infer.Round) error {
					act("trace")
					failed = max(failed, l.Stats().Failed)
					return nil
				}
			}
			h, err := l.Submit(t.Context(), req, loop.Options{Priority: map[bool]int{true: 1}[i == 0]})
			if err != nil {
				t.Fatal(err)
			}
			mu.Lock()
			all = append(all, h)
			mu.Unlock()
			act("queue")
			readers.Go(func() {
				<-begin
				if leading {
					_, _ = h.Wait(func(infer.Delta) error { act("emit"); return nil })
				}
				s, err := h.Result()
				act("end") // which may cancel what has ended
				var got []int32
				reason := infer.Cancelled
				if s != nil {
					got = s.Tokens()
					reason, _ = s.Done()
				}
				mu.Lock()
				defer mu.Unlock()
				switch {
				case reason == infer.Length && err == nil && slices.Equal(got, want):
				case reason == infer.Cancelled && errors.Is(err, errPlanted) && cancelled[h] && len(got) < len(want) && slices.Equal(got, want[:len(got)]):
				default:
					fail <- fmt.Sprintf("trial %d, request %d: reason %q, error %v, %v; want %v", trial, i, reason, err, got, want)
				}
			})
		}
		if late {
			close(begin)
		}
		readers.Wait()
		mu.Lock()
		all = nil // nobody is cancelled from here on
		mu.Unlock()
		close(fail)
		for f := range fail {
			t.Error(f)
		}
		if failed > 0 {
			t.Errorf("trial %d: %d passes failed while somebody waited for all of them", trial, failed)
		}
		before := l.Stats()
		cuts += before.Failed
		req := request(t, 5, 2)
		s, err := l.Answer(t.Context(), req, nil)
		if err != nil || !slices.Equal(s.Tokens(), plain(t, req)) {
			t.Errorf("trial %d: the next request: %v", trial, err)
		}
		if st := l.Stats(); st.Failed != before.Failed || st.Running+st.Waiting > 0 || st.Ended[infer.Length]+st.Ended[infer.Cancelled] != st.Submitted {
			t.Errorf("trial %d: at the end: %+v", trial, st)
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		wg.Wait()
		if len(w.used) > 0 {
			t.Errorf("trial %d: blocks in use at the end: %v", trial, w.used)
		}
	}
	for _, phase := range []string{"queue", "admit", "draft", "score", "verify", "observe", "trace", "emit", "end"} {
		if seen[phase] == 0 {
			t.Errorf("nothing was cancelled in phase %q", phase)
		}
	}
	if cuts == 0 {
		t.Error("no pass was cut")
	}
	t.Logf("cancelled by phase: %v; %d passes were cut", seen, cuts)
}

// A cancellation between two passes cuts no pass: those that were admitted since the last are not
// counted yet.
func TestACancellationBetweenPassesCutsNone(t *testing.T) {
	l := start(t, &attentive{newWorld(0), func(string) {}}, loop.Config{MaxRunning: 9, MaxQueue: 9})
	var second, third *loop.Handle
	nothing := func(string) {}
	onThird, want3 := hooked(t, 1, func(phase string) {
		if phase == "admit" {
			second.Cancel(nil) // which has been admitted
		}
	}, 9, 3)
	onSecond, _ := hooked(t, 2, nothing, 9, 2)
	first, want1 := hooked(t, 3, nothing, 9, 1)
	first.Trace = func(infer.Round) (err error) {
		if second == nil {
			if second, err = l.Submit(t.Context(), onSecond, loop.Options{}); err == nil {
				third, err = l.Submit(t.Context(), onThird, loop.Options{})
			}
		}
		return err
	}
	s, err := l.Answer(t.Context(), first, nil)
	if err != nil || !slices.Equal(s.Tokens(), want1) {
		t.Errorf("the first request: %v", err)
	}
	if s, err = third.Wait(nil); err != nil || !slices.Equal(s.Tokens(), want3) {
		t.Errorf("the third request: %v", err)
	}
	if _, err := second.Result(); !errors.Is(err, context.Canceled) {
		t.Errorf("the second request: %v", err)
	}
	if n := l.Stats().Failed; n > 0 {
		t.Errorf("%d passes were cut", n)
	}
}

// A drafter may cancel other requests as its own ends, whether that is answered or cancelled itself.
func TestADrafterThatEndsCancelsAnotherRequest(t *testing.T) {
	for name, early := range map[string]bool{"answered": false, "cancelled": true} {
		t.Run(name, func(t *testing.T) {
			l := start(t, newWorld(0), loop.Default())
			var first, second *loop.Handle
			ends, _ := hooked(t, 1, func(phase string) {
				if early && phase == "verify" {
					first.Cancel(errPlanted)
				}
			}, 3, 1)
			ends.Drafter = ending{ends.Drafter, func() { second.Cancel(errPlanted) }}
			first, err := l.Submit(t.Context(), ends, loop.Options{})
			if err == nil {
				second, err = l.Submit(t.Context(), request(t, 50, 2), loop.Options{})
			}
			if err != nil {
				t.Fatal(err)
			}
			running(t, l)
			if _, err := first.Result(); errors.Is(err, errPlanted) != early {
				t.Errorf("the request that ends: %v", err)
			}
			if _, err := second.Result(); !errors.Is(err, errPlanted) {
				t.Errorf("the other: %v", err)
			}
		})
	}
}

// ending is a drafter that calls end as its sequence is closed.
type ending struct {
	infer.Drafter
	end func()
}

func (e ending) Traits() infer.Traits {
	t := e.Drafter.Traits()
	t.End = e.end
	return t
}

// A target that panics in a pass that nobody waits for any more is as broken as in any other.
func TestAPanicInAPassThatIsCutEndsTheLoop(t *testing.T) {
	w := &breaking{world: newWorld(0)}
	l := start(t, w, loop.Default())
	h, err := l.Submit(t.Context(), request(t, 9, 1), loop.Options{})
	if err != nil {
		t.Fatal(err)
	}
	w.score = func([]infer.Job) error { h.Cancel(nil); panic(errPlanted) }
	if _, err := h.Wait(nil); !errors.Is(err, loop.ErrBroken) {
		t.Errorf("error %v", err)
	}
	if _, err := l.Submit(t.Context(), request(t, 9, 1), loop.Options{}); !errors.Is(err, loop.ErrBroken) {
		t.Errorf("a later request: %v", err)
	}
}

// breaking is a world that panics when so many sequences have been closed.
type breaking struct {
	*world
	left int
}

func (b *breaking) Close(id infer.SeqID) {
	if b.left--; b.left == 0 {
		panic(errPlanted)
	}
	b.world.Close(id)
}

// A target that panics when it closes a sequence ends the loop, and every request: those that it has
// answered with their answers.
func TestAPanicWhileRequestsAreClosedEndsThemAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, x := range map[string]struct {
			left  int
			admit bool // the last request is cancelled while it is admitted
			all   bool // all are cancelled
		}{
			"the first of those that are done":    {left: 1},
			"the last":                            {left: 3},
			"the second of those cancelled":       {left: 2, all: true},
			"one cancelled while it was admitted": {left: 1, admit: true},
		} {
			w := &breaking{newWorld(0), x.left}
			l := start(t, w, loop.Default())
			var hs []*loop.Handle
			var wants [][]int32
			// The second goes on longer than the others.
			for i, tokens := range []int{3, 9, 3, 3} {
				req, want := hooked(t, uint64(i), func(phase string) {
					switch {
					case phase == "admit" && x.admit && i == 3:
						hs[i].Cancel(nil)
					case phase == "verify" && x.all && i == 0:
						for _, h := range hs {
							h.Cancel(nil)
						}
					}
				}, tokens, int32(i))
				req.Drafter.(hookedDrafter).Drafter.(*drafttest.Oracle).Depth = 1
				h, err := l.Submit(t.Context(), req, loop.Options{})
				if err != nil {
					t.Fatal(err)
				}
				hs, wants = append(hs, h), append(wants, want)
			}
			running(t, l)
			for i, h := range hs {
				select {
				case <-h.Done():
				case <-time.After(20 * time.Second):
					t.Fatalf("%s: request %d does not end", name, i)
				}
				s, err := h.Result()
				var reason infer.Reason
				if s != nil {
					reason, _ = s.Done()
				}
				switch {
				case err == nil && reason == infer.Length && slices.Equal(s.Tokens(), wants[i]):
				case errors.Is(err, context.Canceled) && (x.all || x.admit && i == 3):
				case errors.Is(err, loop.ErrBroken) && errors.Is(err, errPlanted) && (s == nil || reason == infer.Failed):
				default:
					t.Errorf("%s: request %d: reason %q, error %v", name, i, reason, err)
				}
			}
			if _, err := l.Submit(t.Context(), request(t, 9, 1), loop.Options{}); !errors.Is(err, loop.ErrBroken) {
				t.Errorf("%s: a later request: %v", name, err)
			}
		}
	})
}
