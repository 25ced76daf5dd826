package loop_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"talf/infer"
	"talf/infer/draft/drafttest"
	"talf/infer/loop"
	"talf/infer/prefix"
	"talf/infer/verify"
	"talf/model"
)

var errPlanted = errors.New("planted")

// A world is a table as a target, with a pool of blocks of four positions, and hooks.
type world struct {
	*drafttest.Target
	total int // blocks; 0: no bound
	used  map[infer.SeqID]int
	score func(jobs []infer.Job) error // before a pass
}

func newWorld(total int) *world {
	return &world{
		Target: &drafttest.Target{Table: drafttest.Table{Seed: 4, Vocab: 9, Order: 3, Sharp: 2}, MaxLen: 500},
		total:  total, used: map[infer.SeqID]int{},
	}
}

const blockTokens = 4

func (w *world) Abilities() infer.Abilities { return infer.Abilities{Tenants: w} }

func (w *world) KV() model.KVStats {
	s := model.KVStats{BlockTokens: blockTokens, Total: w.total}
	for _, n := range w.used {
		s.Used += n
	}
	s.Free = s.Total - s.Used
	return s
}

func (w *world) Score(ctx context.Context, jobs []infer.Job) ([]infer.Rows, error) {
	if w.score != nil {
		if err := w.score(jobs); err != nil {
			return nil, err
		}
	}
	if w.total > 0 {
		after, sum := map[infer.SeqID]int{}, 0
		for id, n := range w.used {
			after[id] = n
		}
		for _, j := range jobs {
			after[j.ID] = (len(w.Tokens(j.ID)) + j.Tree.Len() + blockTokens - 1) / blockTokens
		}
		for _, n := range after {
			sum += n
		}
		if sum > w.total {
			return nil, model.ErrKVFull
		}
		w.used = after
	}
	return w.Target.Score(ctx, jobs)
}

func (w *world) Match([]int32) int { return 0 }

func (w *world) MatchOf(prefix.Owner, []int32) int { return 0 }

func (w *world) OpenOf(id infer.SeqID, _ prefix.Owner, prompt []int32, keep int) error {
	return w.Open(id, prompt, keep)
}

func (w *world) Close(id infer.SeqID) {
	w.Target.Close(id)
	w.Forget()
	delete(w.used, id)
}

func start(t testing.TB, target infer.Target, c loop.Config) *loop.Loop {
	t.Helper()
	l, err := loop.New(&infer.Engine{Target: target, Config: infer.Default()}, c)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// running runs a loop in a goroutine of its own, until the test ends.
func running(t testing.TB, l *loop.Loop) {
	t.Helper()
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := l.Run(context.Background()); !errors.Is(err, loop.ErrClosed) && !errors.Is(err, loop.ErrBroken) {
			t.Errorf("Run ended with %v", err)
		}
	})
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		wg.Wait()
	})
}

func request(t testing.TB, n int, prompt ...int32) infer.Request {
	t.Helper()
	v, err := verify.New("", 0)
	if err != nil {
		t.Fatal(err)
	}
	return infer.Request{Prompt: prompt, MaxTokens: n, NoEOS: true, Verifier: v, Processor: drafttest.Plain{}}
}

// plain returns what plain decoding answers.
func plain(t testing.TB, r infer.Request) []int32 {
	t.Helper()
	r.Drafter, r.Source = nil, nil
	s, err := (&infer.Engine{Target: newWorld(0), Config: infer.Default()}).Generate(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	return s.Tokens()
}

// read reads a request to its end.
func read(ctx context.Context, h *loop.Handle) (tokens []int32, reason infer.Reason, err error) {
	for {
		d, err := h.Next(ctx)
		if err == io.EOF {
			return tokens, reason, nil
		}
		if err != nil {
			return tokens, reason, err
		}
		tokens, reason = append(tokens, d.Tokens...), d.Reason
	}
}

// Requests that come and go at any time, from any goroutine, with any priority, tenant and amount
// of memory, are each answered as plain decoding answers them, up to where they were cancelled.
func TestAnswersAreThoseOfPlainDecoding(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(r, "seed"), 3))
		w := newWorld([]int{0, 30, 60}[rng.IntN(3)])
		l := start(t, w, loop.Config{MaxRunning: 1 + rng.IntN(8), MaxQueue: 1000, Stretch: []float64{0, 2}[rng.IntN(2)]})
		leading := rng.IntN(2) == 0
		var wg sync.WaitGroup
		if !leading {
			wg.Go(func() { _ = l.Run(context.Background()) })
		}
		var readers sync.WaitGroup
		fail := make(chan string, 100)
		for i := range 1 + rng.IntN(20) {
			req := request(t, 1+rng.IntN(40))
			for range 1 + rng.IntN(60) {
				req.Prompt = append(req.Prompt, rng.Int32N(9))
			}
			want := plain(t, req)
			if rng.IntN(2) == 0 {
				req.Drafter = &drafttest.Oracle{Truth: slices.Concat(req.Prompt, want), Vocab: 9, Depth: 5, Nodes: 12, Rand: rand.New(rand.NewPCG(rng.Uint64(), 1))}
			}
			opt := loop.Options{Priority: rng.IntN(3)}
			req.Tenant = fmt.Sprint(rng.IntN(3))
			stop := -1
			if rng.IntN(4) == 0 {
				stop = rng.IntN(10)
			}
			readers.Go(func() {
				ctx, cancel := context.WithCancel(context.Background())
				defer cancel()
				h, err := l.Submit(ctx, req, opt)
				if err != nil {
					fail <- err.Error()
					return
				}
				var got []int32
				var reason infer.Reason
				seen := func(d infer.Delta) error {
					got, reason = append(got, d.Tokens...), d.Reason
					if len(got) >= stop && stop >= 0 {
						cancel()
					}
					return nil
				}
				if leading {
					_, err = h.Wait(seen)
				} else {
					for {
						d, err := h.Next(context.Background())
						if err != nil {
							break
						}
						_ = seen(d)
					}
					_, err = h.Result()
				}
				switch {
				case reason == infer.Length && err == nil && slices.Equal(got, want):
				case stop >= 0 && reason == infer.Cancelled && errors.Is(err, context.Canceled) && len(got) <= len(want) && slices.Equal(got, want[:len(got)]):
				default:
					fail <- fmt.Sprintf("request %d: reason %q, error %v, %v; want %v, cancelled after %d", i, reason, err, got, want, stop)
				}
			})
		}
		readers.Wait()
		st := l.Stats()
		if err := l.Close(); err != nil {
			r.Fatal(err)
		}
		wg.Wait()
		close(fail)
		for f := range fail {
			r.Fatal(f)
		}
		if st.Running+st.Waiting > 0 || st.Ended[infer.Length]+st.Ended[infer.Cancelled] != st.Submitted {
			r.Fatalf("at the end: %+v", st)
		}
		if len(w.used) > 0 {
			r.Fatalf("blocks in use at the end: %v", w.used)
		}
	})
}

// A reader that is never there holds up nobody, and one that comes late finds everything.
func TestASlowReaderLosesNothing(t *testing.T) {
	l := start(t, newWorld(0), loop.Default())
	running(t, l)
	var hs []*loop.Handle
	for i := range 5 {
		h, err := l.Submit(t.Context(), request(t, 100, int32(i)), loop.Options{})
		if err != nil {
			t.Fatal(err)
		}
		hs = append(hs, h)
	}
	for _, h := range hs {
		<-h.Done() // although nobody has read a token
	}
	for i, h := range hs {
		if got, reason, err := read(t.Context(), h); err != nil || reason != infer.Length || !slices.Equal(got, plain(t, request(t, 100, int32(i)))) {
			t.Errorf("request %d: %v, reason %q, %v", i, got, reason, err)
		}
		if _, err := h.Next(t.Context()); err != io.EOF {
			t.Errorf("after the end: %v", err)
		}
		if tm := h.Times(); tm.Admitted.Before(tm.Submitted) || tm.First.Before(tm.Admitted) || tm.Last.Before(tm.First) {
			t.Errorf("times %+v", tm)
		}
	}
}

// A gate holds passes back until it is opened.
type gate struct {
	*world
	in, open chan struct{}
}

func newGate(total int) *gate {
	g := &gate{world: newWorld(total), in: make(chan struct{}), open: make(chan struct{})}
	g.score = func([]infer.Job) error {
		g.in <- struct{}{}
		<-g.open
		return nil
	}
	return g
}

// pass lets one pass through.
func (g *gate) pass() { <-g.in; g.open <- struct{}{} }

// The queue has a bound, an end, and a time limit; cancelled requests leave it at once.
func TestTheQueueIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(0)
		l := start(t, g, loop.Config{MaxRunning: 1, MaxQueue: 2})
		running(t, l)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		submit := func(ctx context.Context, opt loop.Options) (*loop.Handle, error) {
			return l.Submit(ctx, request(t, 2, 1), opt)
		}
		first, err := submit(t.Context(), loop.Options{})
		if err != nil {
			t.Fatal(err)
		}
		<-g.in
		second, err := submit(ctx, loop.Options{})
		if err != nil {
			t.Fatal(err)
		}
		third, err := submit(t.Context(), loop.Options{MaxWait: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		full := func() {
			t.Helper()
			if _, err := submit(t.Context(), loop.Options{}); !errors.Is(err, loop.ErrQueueFull) || !strings.Contains(err.Error(), "2 requests wait, 1 run") {
				t.Errorf("a request too many: %v", err)
			}
		}
		full()
		if st := l.Stats(); st.Running != 1 || st.Waiting != 2 || st.Refused != 1 {
			t.Errorf("statistics: %+v", st)
		}
		time.Sleep(time.Minute - 1)
		synctest.Wait()
		full()
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		if st := l.Stats(); st.Running != 1 || st.Waiting != 1 || st.Expired != 1 {
			t.Errorf("statistics after a minute: %+v", st)
		}
		if _, err := third.Result(); !errors.Is(err, loop.ErrQueueTimeout) {
			t.Errorf("a request that waited too long: %v", err)
		}
		cancel()
		if s, err := second.Result(); s != nil || !errors.Is(err, context.Canceled) {
			t.Errorf("a request cancelled in the queue: %v", err)
		}
		fourth, err := submit(t.Context(), loop.Options{})
		if err != nil {
			t.Fatal(err)
		}
		drained := make(chan error)
		go func() { drained <- l.Drain(t.Context()) }()
		synctest.Wait()
		if _, err := submit(t.Context(), loop.Options{}); !errors.Is(err, loop.ErrDraining) {
			t.Errorf("a request while others are waited for: %v", err)
		}
		go func() {
			g.open <- struct{}{}
			for {
				select {
				case <-g.in:
					g.open <- struct{}{}
				case <-t.Context().Done():
					return
				}
			}
		}()
		if err := <-drained; err != nil {
			t.Error(err)
		}
		for i, h := range []*loop.Handle{first, fourth} {
			if s, err := h.Result(); err != nil || !slices.Equal(s.Tokens(), plain(t, request(t, 2, 1))) {
				t.Errorf("request %d: %v", i, err)
			}
		}
		if st := l.Stats(); st.Expired != 1 || st.Running+st.Waiting != 0 {
			t.Errorf("statistics: %+v", st)
		}
	})
}

// Higher priorities go first, and tenants share.
func TestWhoGoesFirst(t *testing.T) {
	g := newGate(0)
	l := start(t, g, loop.Config{MaxRunning: 2, MaxQueue: 100})
	var order []string
	var mu sync.Mutex
	var all []*loop.Handle
	submit := func(name, tenant string, opt loop.Options) {
		req := request(t, 1, 1)
		req.Tenant = tenant
		req.Trace = func(infer.Round) error {
			mu.Lock()
			defer mu.Unlock()
			order = append(order, name)
			return nil
		}
		h, err := l.Submit(t.Context(), req, opt)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, h)
	}
	for i := range 3 {
		submit(fmt.Sprint("a", i), "a", loop.Options{})
	}
	submit("b0", "b", loop.Options{})
	submit("c0", "a", loop.Options{Priority: 1})
	running(t, l)
	go func() {
		for {
			select {
			case <-g.in:
				g.open <- struct{}{}
			case <-t.Context().Done():
				return
			}
		}
	}()
	for _, h := range all {
		<-h.Done()
	}
	// Two run at once: c0 with b0, since a has one running already; then a's in their order.
	if got := strings.Join(order, " "); got != "c0 b0 a0 a1 a2" {
		t.Errorf("order %s", got)
	}
}

// A request of higher priority takes the place of a running one, which goes on afterwards as if
// nothing had happened.
func TestAHigherPriorityTakesThePlace(t *testing.T) {
	g := newGate(0)
	l := start(t, g, loop.Config{MaxRunning: 1, MaxQueue: 100})
	running(t, l)
	low, err := l.Submit(t.Context(), request(t, 30, 1, 2, 3), loop.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for range 6 {
		g.pass()
	}
	<-g.in
	high, err := l.Submit(t.Context(), request(t, 3, 4), loop.Options{Priority: 1})
	if err != nil {
		t.Fatal(err)
	}
	g.open <- struct{}{}
	for range 3 {
		g.pass()
	}
	if s, err := high.Result(); err != nil || !slices.Equal(s.Tokens(), plain(t, request(t, 3, 4))) {
		t.Errorf("the higher priority: %v", err)
	}
	select {
	case <-low.Done():
		t.Error("the lower priority ended first")
	default:
	}
	go func() {
		for {
			select {
			case <-g.in:
				g.open <- struct{}{}
			case <-t.Context().Done():
				return
			}
		}
	}()
	s, err := low.Result()
	if err != nil || !slices.Equal(s.Tokens(), plain(t, request(t, 30, 1, 2, 3))) || s.Stats().Preempted != 1 {
		t.Errorf("the lower priority: %v, preempted %d times", err, s.Stats().Preempted)
	}
}

// A request that no pool could hold is refused at once; those that it can hold end, however many
// there are, and the one that came first is never preempted.
func TestTheFirstIsNeverPreempted(t *testing.T) {
	w := newWorld(12)
	l := start(t, w, loop.Default())
	running(t, l)
	if _, err := l.Submit(t.Context(), request(t, 48, 1, 2), loop.Options{}); !errors.Is(err, loop.ErrTooLarge) {
		t.Errorf("a request of 49 positions for 48: %v", err)
	}
	var hs []*loop.Handle
	for i := range 12 {
		h, err := l.Submit(t.Context(), request(t, 40+i%3, 1, int32(i%9)), loop.Options{})
		if err != nil {
			t.Fatal(err)
		}
		hs = append(hs, h)
	}
	for i, h := range hs {
		s, err := h.Result()
		if err != nil || !slices.Equal(s.Tokens(), plain(t, request(t, 40+i%3, 1, int32(i%9)))) {
			t.Errorf("request %d: %v", i, err)
		}
		if i == 0 && s.Stats().Preempted > 0 {
			t.Errorf("the first was preempted %d times", s.Stats().Preempted)
		}
	}
	if st := l.Stats(); st.Preemptions == 0 || st.KV.Used != 0 {
		t.Errorf("statistics: %+v", st)
	}
}

// A cancelled request is left out of the next pass; a pass in which all are cancelled ends.
func TestCancellingEndsAPassThatNobodyWaitsFor(t *testing.T) {
	w := newWorld(0)
	in := make(chan context.Context)
	l := start(t, &waits{w, in}, loop.Default())
	running(t, l)
	ctx, cancel := context.WithCancelCause(t.Context())
	one, err := l.Submit(ctx, request(t, 50, 1), loop.Options{})
	if err != nil {
		t.Fatal(err)
	}
	pass := <-in
	cancel(errPlanted)
	<-pass.Done() // or the test hangs
	if s, err := one.Result(); !errors.Is(err, errPlanted) {
		t.Errorf("error %v of %v", err, s)
	} else if r, _ := s.Done(); r != infer.Cancelled {
		t.Errorf("reason %q", r)
	}
	// Two in a pass: it goes on for the second.
	ctx, cancel = context.WithCancelCause(t.Context())
	l2 := start(t, &waits{newWorld(0), in}, loop.Default())
	a, err := l2.Submit(ctx, request(t, 50, 1), loop.Options{})
	if err != nil {
		t.Fatal(err)
	}
	b, err := l2.Submit(t.Context(), request(t, 50, 2), loop.Options{})
	if err != nil {
		t.Fatal(err)
	}
	running(t, l2)
	pass = <-in
	cancel(errPlanted)
	for l2.Stats().Waiting > 0 { // until both are in
		runtime.Gosched()
	}
	if pass.Err() != nil {
		t.Error("the pass was cut short though somebody waits for it")
	}
	b.Cancel(nil)
	<-pass.Done()
	for _, h := range []*loop.Handle{a, b} {
		if _, err := h.Result(); err == nil {
			t.Error("no error of a cancelled request")
		}
	}
}

// A request that is cancelled in the very step that ends it leaves no pass cut short behind.
func TestARequestMayEndInTheStepInWhichItIsCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := start(t, newWorld(0), loop.Default())
		running(t, l)
		var h *loop.Handle
		submitted := make(chan struct{})
		req := request(t, 3, 1)
		req.Processor = cancels{last: 3, now: func() { <-submitted; h.Cancel(nil) }}
		h, err := l.Submit(t.Context(), req, loop.Options{})
		if err != nil {
			t.Fatal(err)
		}
		close(submitted)
		if s, err := h.Result(); err != nil || len(s.Tokens()) != 3 {
			t.Errorf("%v, %d tokens", err, len(s.Tokens()))
		}
		h, err = l.Submit(t.Context(), request(t, 3, 2), loop.Options{})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		if _, reason, err := read(ctx, h); err != nil || reason != infer.Length {
			t.Errorf("the next request: reason %q, %v", reason, err)
		}
	})
}

// cancels calls now when a token is chosen after so many others.
type cancels struct {
	greedy drafttest.Plain
	last   int
	now    func()
}

func (cancels) Abilities() infer.ProcessorAbilities { return infer.ProcessorAbilities{} }

func (cancels) Plain() bool { return false }

func (c cancels) Dist(dst infer.Dist, logits []float32, context []int32) {
	c.greedy.Dist(dst, logits, context)
}

func (c cancels) Argmax(logits []float32, context []int32) int32 {
	if len(context) == c.last {
		c.now()
	}
	return c.greedy.Argmax(logits, context)
}

// waits shows the context of each pass and waits for its end.
type waits struct {
	*world
	in chan context.Context
}

func (w *waits) Score(ctx context.Context, _ []infer.Job) ([]infer.Rows, error) {
	w.in <- ctx
	<-ctx.Done()
	return nil, ctx.Err()
}

// A sequence that makes every pass fail is found out; the others go on.
func TestASequenceThatMakesPassesFailIsFound(t *testing.T) {
	w := newWorld(0)
	w.score = func(jobs []infer.Job) error {
		for _, j := range jobs {
			if j.Tree.Token(0) == 7 {
				return errPlanted
			}
		}
		return nil
	}
	l := start(t, w, loop.Default())
	var hs []*loop.Handle
	for i := range 9 {
		h, err := l.Submit(t.Context(), request(t, 6, int32(i)), loop.Options{})
		if err != nil {
			t.Fatal(err)
		}
		hs = append(hs, h)
	}
	running(t, l)
	for i, h := range hs {
		s, err := h.Result()
		want := plain(t, request(t, 6, int32(i)))
		if i == 7 || slices.Contains(want[:5], 7) {
			if !errors.Is(err, errPlanted) {
				t.Errorf("request %d: error %v", i, err)
			}
		} else if err != nil || !slices.Equal(s.Tokens(), want) {
			t.Errorf("request %d: %v, error %v; want %v", i, s.Tokens(), err, want)
		}
	}
}

// A target that panics ends the loop, and everybody learns why.
func TestAPanicOfTheTargetEndsTheLoop(t *testing.T) {
	w := newWorld(0)
	passes := 0
	w.score = func([]infer.Job) error {
		if passes++; passes == 3 {
			panic(errPlanted)
		}
		return nil
	}
	l := start(t, w, loop.Config{MaxRunning: 1, MaxQueue: 9})
	var hs []*loop.Handle
	for range 3 {
		h, err := l.Submit(t.Context(), request(t, 6, 1), loop.Options{})
		if err != nil {
			t.Fatal(err)
		}
		hs = append(hs, h)
	}
	running(t, l)
	for _, h := range hs {
		var p *infer.PanicError
		if _, err := h.Result(); !errors.Is(err, loop.ErrBroken) || !errors.Is(err, errPlanted) || !errors.As(err, &p) {
			t.Errorf("error %v", err)
		}
	}
	if _, err := l.Submit(t.Context(), request(t, 6, 1), loop.Options{}); !errors.Is(err, loop.ErrBroken) {
		t.Errorf("a later request: %v", err)
	}
}

// Close ends everything, whoever runs the loop, and leaves no goroutine: the bubble would say so.
func TestCloseEndsEverything(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, leading := range []bool{false, true} {
			w := newWorld(0)
			l := start(t, w, loop.Config{MaxRunning: 2, MaxQueue: 9})
			var wg sync.WaitGroup
			if !leading {
				wg.Go(func() { _ = l.Run(context.Background()) })
			}
			var hs []*loop.Handle
			for range 6 {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				req := request(t, 400, 1)
				req.Trace = func(infer.Round) error { time.Sleep(time.Millisecond); return nil } // none ends by itself
				h, err := l.Submit(ctx, req, loop.Options{MaxWait: time.Hour})
				if err != nil {
					t.Fatal(err)
				}
				hs = append(hs, h)
				if leading {
					wg.Go(func() { _, _ = h.Wait(nil) })
				}
			}
			time.Sleep(10 * time.Millisecond)
			if l.Stats().Passes == 0 {
				t.Error("nothing runs")
			}
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
			wg.Wait()
			for i, h := range hs {
				if _, err := h.Result(); !errors.Is(err, loop.ErrClosed) {
					t.Errorf("request %d: %v", i, err)
				}
			}
			if _, err := l.Submit(t.Context(), request(t, 1, 1), loop.Options{}); !errors.Is(err, loop.ErrClosed) {
				t.Errorf("a later request: %v", err)
			}
			if err := l.Close(); err != nil {
				t.Error(err)
			}
		}
	})
}

// An error of emit cancels its request and is what Wait returns.
func TestAnEmitErrorCancels(t *testing.T) {
	l := start(t, newWorld(0), loop.Default())
	n := 0
	s, err := l.Answer(t.Context(), request(t, 50, 1), func(infer.Delta) error {
		if n++; n == 3 {
			return errPlanted
		}
		return nil
	})
	if r, _ := s.Done(); !errors.Is(err, errPlanted) || err.Error() != "emit: planted" || r != infer.Cancelled || n != 3 {
		t.Errorf("error %v, reason %q, %d calls", err, r, n)
	}
	if _, err := l.Answer(t.Context(), request(t, 0, 1), nil); err == nil {
		t.Error("a request for no tokens was taken")
	}
}

// A request knows how much of its prompt has been read, pass by pass.
func TestPromptsAreReadInSight(t *testing.T) {
	var h *loop.Handle
	var seen []int
	w := newWorld(0)
	w.score = func([]infer.Job) error {
		seen = append(seen, h.PromptRead())
		return nil
	}
	e := &infer.Engine{Target: w, Config: infer.Config{PrefillChunk: 16, MaxNodes: 64}}
	l, err := loop.New(e, loop.Default())
	if err != nil {
		t.Fatal(err)
	}
	req := request(t, 2, make([]int32, 40)...)
	if h, err = l.Submit(t.Context(), req, loop.Options{}); err != nil {
		t.Fatal(err)
	}
	if _, err = h.Wait(nil); err != nil {
		t.Fatal(err)
	}
	if want := []int{0, 16, 32, 39, 40}; !slices.Equal(seen, want) || h.PromptRead() != 40 {
		t.Errorf("read before each pass: %d, want %d", seen, want)
	}
}
