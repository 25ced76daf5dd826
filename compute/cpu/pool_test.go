package cpu

import (
	"context"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"talf/compute/cpu/kern"
	"talf/internal/await"
)

// countTask counts how often each part runs, and panics at one if configured to.
type countTask struct {
	runs  []atomic.Int32
	panic int
	pause time.Duration
}

func (t *countTask) run(_ *worker, part int) {
	if part == t.panic {
		panic("part of a task")
	}
	t.runs[part].Add(1)
	if t.pause > 0 {
		time.Sleep(t.pause)
	}
}

func testPool(t *testing.T, threads int) *pool {
	t.Helper()
	k, err := kern.For(kern.Portable)
	if err != nil {
		t.Fatal(err)
	}
	p := newPool(threads, k)
	t.Cleanup(p.stop)
	return p
}

func TestPoolRunsEveryPartOnce(t *testing.T) {
	for _, threads := range []int{1, 2, 3, 9} {
		p := testPool(t, threads)
		for round := range 300 {
			task := &countTask{runs: make([]atomic.Int32, round%41), panic: -1}
			if round%50 == 0 {
				time.Sleep(3 * spin) // long enough for the helpers to park
			}
			if round%60 == 1 {
				task.pause = spin / 4 // keeps the helpers busy
			}
			p.run(context.Background(), task, len(task.runs))
			for i := range task.runs {
				if n := task.runs[i].Load(); n != 1 {
					t.Fatalf("%d threads, round %d: part %d ran %d times", threads, round, i, n)
				}
			}
		}
	}
}

func TestPoolTakesTasksFromManyGoroutines(t *testing.T) {
	p := testPool(t, 3)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for round := range 200 {
				task := &countTask{runs: make([]atomic.Int32, 1+round%7), panic: -1}
				p.run(context.Background(), task, len(task.runs))
				for i := range task.runs {
					if n := task.runs[i].Load(); n != 1 {
						t.Errorf("part %d ran %d times", i, n)
					}
				}
			}
		})
	}
	wg.Wait()
}

func TestPoolHandsAPanicToTheCallerAndContinues(t *testing.T) {
	p := testPool(t, 3)
	for part := range 12 {
		task := &countTask{runs: make([]atomic.Int32, 12), panic: part, pause: time.Microsecond}
		func() {
			defer func() {
				if v, _ := recover().(string); !strings.Contains(v, "part of a task") {
					t.Errorf("recovered %q", v)
				}
			}()
			p.run(context.Background(), task, len(task.runs))
		}()
		after := &countTask{runs: make([]atomic.Int32, 5), panic: -1}
		p.run(context.Background(), after, 5)
		for i := range after.runs {
			if after.runs[i].Load() != 1 {
				t.Fatalf("after a panic part %d ran %d times", i, after.runs[i].Load())
			}
		}
	}
}

// endTask ends a context in one of its parts. Parts that begin later last until it has ended.
type endTask struct {
	runs  atomic.Int32
	at    int32
	end   context.CancelFunc
	ended <-chan struct{}
}

func (t *endTask) run(*worker, int) {
	switch n := t.runs.Add(1); {
	case n == t.at:
		t.end()
	case n > t.at:
		<-t.ended
	}
}

func TestPoolBeginsNoPartAfterTheEnd(t *testing.T) {
	for _, threads := range []int{1, 2, 5} {
		p := testPool(t, threads)
		for _, at := range []int32{1, 13, 100} {
			ctx, end := context.WithCancel(t.Context())
			task := &endTask{at: at, end: end, ended: ctx.Done()}
			p.run(ctx, task, 100)
			if n := task.runs.Load(); n < at || n >= at+int32(threads) {
				t.Errorf("%d threads: %d parts ran, want %d and what the others had begun", threads, n, at)
			}
			p.run(context.Background(), task, 7)
			if n := task.runs.Load(); n < at+7 {
				t.Errorf("%d threads: a task without an end did not run", threads)
			}
		}
	}
}

func TestPoolParksAndStops(t *testing.T) {
	p := testPool(t, 4)
	p.run(context.Background(), &countTask{runs: make([]atomic.Int32, 9), panic: -1}, 9)
	for _, w := range p.workers[1:] {
		await.Until(t, "a helper without work to park", w.parked.Load)
	}
	p.stop()
	task := &countTask{runs: make([]atomic.Int32, 9), panic: -1}
	p.run(context.Background(), task, 9)
	for i := range task.runs {
		if task.runs[i].Load() != 1 {
			t.Fatalf("after stop part %d ran %d times", i, task.runs[i].Load())
		}
	}
}

// TestLogOf compares logOf with the library's logarithm: both are within an ulp.
func TestLogOf(t *testing.T) {
	for x := 1e-30; x < 1e30; x *= 1.00731 {
		got, want := logOf(x), math.Log(x)
		if d := got - want; d > 4e-16*max(1, want, -want) || -d > 4e-16*max(1, want, -want) {
			t.Fatalf("logOf(%g) = %.17g, want %.17g", x, got, want)
		}
	}
	if logOf(1) != 0 {
		t.Fatalf("logOf(1) = %g", logOf(1))
	}
}
