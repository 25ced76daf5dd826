package loop_test

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"talf/infer"
	"talf/infer/draft"
	"talf/infer/draft/drafttest"
	"talf/infer/loop"
	"talf/infer/source"
)

// releasing counts how often memory was given back.
type releasing struct {
	*world
	times atomic.Int32
	fail  bool
}

func (r *releasing) Abilities() infer.Abilities { return infer.Abilities{Tenants: r, Release: r} }

func (r *releasing) ReleaseKV() {
	if r.times.Add(1); r.fail {
		panic(errPlanted)
	}
}

// pooled is a source that counts too.
type pooled struct {
	*drafttest.Source
	times atomic.Int32
	fail  bool
	lost  bool // in its first pass
}

func (p *pooled) Rows(ctx context.Context, asks []infer.Ask) ([]infer.Row, error) {
	if p.lost {
		panic(errPlanted)
	}
	return p.Source.Rows(ctx, asks)
}

func (p *pooled) Abilities() infer.Abilities { return infer.Abilities{Release: p} }

func (p *pooled) ReleaseKV() {
	if p.times.Add(1); p.fail {
		panic(errPlanted)
	}
}

// A loop gives memory back once it has had nothing to do for a while, to every source that it
// has used, and not again before there was something to do.
func TestAnIdleLoopGivesMemoryBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &releasing{world: newWorld(0)}
		c := loop.Default()
		c.Global = false
		l := start(t, w, c)
		running(t, l)
		table := func() *drafttest.Source { return &drafttest.Source{Target: w.Target, Agree: 0.5} }
		first, second, third := &pooled{Source: table()}, &pooled{Source: table(), fail: true}, &pooled{Source: table(), lost: true}
		ask := func(src infer.Source) {
			t.Helper()
			req := request(t, 9, 1)
			want := plain(t, req)
			d, _, err := draft.New("beam:N=12,k=4,depth=3")
			if err != nil {
				t.Fatal(err)
			}
			req.Drafter, req.Source = d, src
			s, err := l.Answer(t.Context(), req, nil)
			if err != nil || !slices.Equal(s.Tokens(), want) {
				t.Fatalf("%v, error %v; want %v", s.Tokens(), err, want)
			}
		}
		count := func(target, one, two int32) {
			t.Helper()
			synctest.Wait()
			if third.times.Load() > 0 {
				t.Error("a source that has panicked was called again")
			}
			if a, b, c := w.times.Load(), first.times.Load(), second.times.Load(); a != target || b != one || c != two {
				t.Errorf("memory was given back %d, %d and %d times, want %d, %d and %d", a, b, c, target, one, two)
			}
		}
		for range 20 { // requests one after another
			ask(first)
			ask(second)
			ask(third)
			time.Sleep(time.Second)
		}
		count(0, 0, 0)
		time.Sleep(time.Minute)
		count(1, 1, 1) // in which the second panics
		time.Sleep(time.Hour)
		count(1, 1, 1)
		ask(first)
		ask(second) // without drafts: it is broken
		time.Sleep(time.Minute)
		count(2, 2, 1)
		// A request that is only cancelled counts as something to do.
		ctx, cancel := context.WithCancel(t.Context())
		req := request(t, 400, 1)
		req.Trace = func(infer.Round) error {
			cancel()
			time.Sleep(time.Second) // until the loop knows
			return nil
		}
		if _, err := l.Answer(ctx, req, nil); !errors.Is(err, context.Canceled) {
			t.Errorf("error %v", err)
		}
		time.Sleep(time.Minute)
		count(3, 2, 1)
		// A target that panics ends the loop here as in a pass.
		w.fail = true
		ask(first)
		time.Sleep(time.Minute)
		var p *infer.PanicError
		if _, err := l.Submit(t.Context(), request(t, 6, 1), loop.Options{}); !errors.Is(err, loop.ErrBroken) || !errors.As(err, &p) {
			t.Errorf("after a panic: %v", err)
		}
	})
}

// What models hold for later passes, the target and the draft head, is the system's again when a
// loop is idle, and later answers are the same.
func TestAnIdleLoopHoldsNoBlocks(t *testing.T) {
	m, h := nets(t, 0)
	target, src := infer.NewTarget(m, 0), source.NewHead(h, 0)
	e := &infer.Engine{Target: target, Config: infer.Default()}
	q := &question{prompt: make([]int32, 300), max: 20}
	var want []int32
	for i := range 3 {
		s, err := e.Generate(t.Context(), q.request(t, "beam:N=12,k=4,depth=3", src))
		if err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			want = s.Tokens()
		}
		if !slices.Equal(s.Tokens(), want) {
			t.Errorf("after a release: %v, want %v", s.Tokens(), want)
		}
		if m.KV().Held == 0 || h.KV().Held == 0 {
			t.Errorf("%+v and %+v are held after a request, want some of both", m.KV(), h.KV())
		}
		e.ReleaseKV()
		if m.KV().Held != 0 || h.KV().Held != 0 {
			t.Errorf("%+v and %+v are held, want none", m.KV(), h.KV())
		}
	}
}
