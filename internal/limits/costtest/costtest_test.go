package costtest_test

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"talf/internal/limits/costtest"
)

// A recorder is a test that collects its failures.
type recorder struct {
	testing.TB
	failures []string
}

func (r *recorder) Helper()                   {}
func (r *recorder) Errorf(f string, a ...any) { r.failures = append(r.failures, fmt.Sprintf(f, a...)) }
func (r *recorder) Fatalf(f string, a ...any) { r.Errorf(f, a...); panic(r) }
func (r *recorder) check(b costtest.Bound, f func(context.Context)) string {
	defer func() { _ = recover() }() // Fatalf
	costtest.Check(r, "input", b, f)
	return ""
}

// spin works until a clock has gone on by d. It is one of processor time: on a busy machine, time
// passes without work.
func spin(clock func() time.Duration, d time.Duration) {
	for end := clock() + d; clock() < end; {
	}
}

func TestCostsBeyondTheBoundFail(t *testing.T) {
	b := costtest.Bound{CPU: 50 * time.Millisecond, Bytes: 8 << 20}
	var sink [][]byte
	for name, c := range map[string]struct {
		want string
		f    func(context.Context)
	}{
		"cheap": {"", func(context.Context) {}},
		"slow": {"processor time", func(context.Context) {
			spin(costtest.CPU, 60*time.Millisecond)
		}},
		"large":  {"MB of memory", func(context.Context) { sink = append(sink, make([]byte, 32<<20)) }},
		"panics": {"panic: oh", func(context.Context) { panic("oh") }},
		"hangs":  {"not back", func(context.Context) { select {} }},
	} {
		runtime.GC() // what is freed while the input is read would be taken off
		r := &recorder{TB: t}
		r.check(b, c.f)
		if got := strings.Join(r.failures, "; "); (c.want == "") != (got == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s: failed with %q, want %q", name, got, c.want)
		}
	}
	_ = sink
}

func TestAWatchMeasuresTheTimeBetweenLooks(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	ctx, cancel := context.WithCancel(t.Context())
	w := costtest.NewWatch(ctx)
	spin(costtest.ThreadTime, 30*time.Millisecond)
	if err := w.Err(); err != nil {
		t.Error(err)
	}
	cancel()
	spin(costtest.ThreadTime, 60*time.Millisecond)
	if all, longest := w.Times(); longest < 60*time.Millisecond || all < longest+30*time.Millisecond {
		t.Errorf("%v, the longest %v, want at least 90 ms and 60 ms: the end counts", all, longest)
	}
	if w.Err() == nil {
		t.Error("no error after the end of the context")
	}
}

func TestMutationsAreReproducible(t *testing.T) {
	corpus := [][]byte{[]byte(`{"a": [1, 2, 30]}`), []byte("text")}
	a := slices.Collect(costtest.Mutations(1, corpus, 200))
	if !slices.EqualFunc(a, slices.Collect(costtest.Mutations(1, corpus, 200)), slices.Equal) {
		t.Error("the same seed gives other inputs")
	}
	changed := 0
	for _, in := range a {
		if !slices.ContainsFunc(corpus, func(c []byte) bool { return slices.Equal(c, in) }) {
			changed++
		}
	}
	if changed < 180 {
		t.Errorf("%d of 200 inputs were changed", changed)
	}
}
