// Package costtest checks what reading an input costs: tests and fuzz targets fail if it takes
// too much processor time or memory, whatever the result. Times are compared with a yardstick of
// the same run, so that no machine's speed decides.
package costtest

import (
	"context"
	"iter"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"runtime/metrics"
	"slices"
	"strconv"
	"testing"
	"time"
)

// A Bound is what one input may cost. Processor time is in yards: a yard takes about ten
// milliseconds on a laptop.
type Bound struct {
	Yards float64 // of the process while f runs
	Look  float64 // of f's thread between two looks at its context; 0: it need not look
	Bytes uint64  // of the heap, above what was there before
}

// Default is the bound for every kind of untrusted file.
var Default = Bound{Yards: 256, Bytes: 256 << 20}

const (
	tries    = 4               // how often f runs if it costs too much: something else may have disturbed it
	hopeless = 16              // times b.Yards, after which f is not waited for
	hang     = 5 * time.Minute // by the clock, after which f is not waited for on the busiest machine
)

// Check runs f, which reads an input called name, and fails t if that costs more than b, however
// often it is tried: so each run does all the work anew. If f hangs, Check fails without waiting for it. Other work of the process counts, so tests
// that call Check do not run in parallel. The context that f gets is a [Watch], and f is locked to its
// thread; it does not end: the bound has to hold without its help.
func Check(t testing.TB, name string, b Bound, f func(ctx context.Context)) {
	t.Helper()
	c, unit := once(t, name, b, first(), f), first()
	for range tries - 1 {
		if c.within(b, unit) {
			break
		}
		before := yard()
		c = once(t, name, b, before, f)
		unit = max(before, yard())
	}
	all, look := float64(c.all)/float64(unit), float64(c.look)/float64(unit)
	if all >= 1 {
		t.Logf("%s: %.1f yards of processor time, %.2f between looks, %d MB of memory", name, all, look, c.bytes>>20)
	}
	if all > b.Yards {
		t.Errorf("%s: %.1f yards of processor time, want at most %v (a yard takes %v)", name, all, b.Yards, unit)
	}
	if b.Look > 0 && look > b.Look {
		t.Errorf("%s: %.2f yards of processor time without a look at the context, want at most %v (a yard takes %v)", name, look, b.Look, unit)
	}
	if c.bytes > b.Bytes {
		t.Errorf("%s: %d MB of memory, want at most %d", name, c.bytes>>20, b.Bytes>>20)
	}
}

// A cost is what f cost once: processor time of the process, that of its thread between two looks,
// and bytes of the heap.
type cost struct {
	all, look time.Duration
	bytes     uint64
}

func (c *cost) within(b Bound, unit time.Duration) bool {
	return float64(c.all) <= b.Yards*float64(unit) && (b.Look == 0 || float64(c.look) <= b.Look*float64(unit)) && c.bytes <= b.Bytes
}

// once runs f once.
func once(t testing.TB, name string, b Bound, unit time.Duration, f func(ctx context.Context)) (c cost) {
	t.Helper()
	before, start := heap(), cpu()
	done, stop := make(chan struct{}), make(chan struct{})
	peak := make(chan uint64)
	go func() {
		var most uint64
		tick := time.NewTicker(2 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-stop:
				peak <- max(most, heap())
				return
			case <-tick.C:
				most = max(most, heap())
			}
		}
	}()
	var panicked any
	go func() {
		defer close(done)
		defer func() { panicked = recover() }()
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		w := NewWatch(context.Background())
		defer func() { _, c.look = w.Times() }()
		f(w)
	}()
	look := time.NewTicker(time.Second)
	defer look.Stop()
	for begun, ended := time.Now(), false; !ended; {
		select {
		case <-done:
			ended = true
		case <-look.C:
			if took := cpu() - start; float64(took) > hopeless*b.Yards*float64(unit) || time.Since(begun) > hang {
				close(stop)
				<-peak
				t.Fatalf("%s: not back after %v of processor time, in %v", name, took, time.Since(begun))
			}
		}
	}
	c.all = cpu() - start
	close(stop)
	if most := <-peak; most > before {
		c.bytes = most - before
	}
	if panicked != nil {
		t.Fatalf("%s: panic: %v", name, panicked)
	}
	return c
}

// heap returns the bytes that the heap holds, garbage included: what an input makes counts even
// if the collector is quick.
func heap() uint64 {
	s := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(s)
	return s[0].Value.Uint64()
}

// Files returns the files that match pattern, to mutate: there are some, and parse accepts each.
func Files(t testing.TB, pattern string, parse func(name string, b []byte) error) [][]byte {
	t.Helper()
	names, err := filepath.Glob(pattern)
	if err != nil || len(names) == 0 {
		t.Fatalf("no files %s: %v", pattern, err)
	}
	var out [][]byte
	for _, name := range names {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := parse(name, b); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		out = append(out, b)
	}
	return out
}

// Mutations yields n variants of the inputs in corpus, the same for the same seed. Besides bytes
// they change what costs: chunks are repeated many times or nested, and numbers become large.
func Mutations(seed uint64, corpus [][]byte, n int) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		for range n {
			in := slices.Clone(corpus[rnd.IntN(len(corpus))])
			for range 1 + rnd.IntN(4) {
				in = mutate(rnd, in, corpus)
			}
			if !yield(in) {
				return
			}
		}
	}
}

// Inputs that grow beyond this are cut: the limits on sizes have tests of their own.
const most = 1 << 20

func mutate(rnd *rand.Rand, in []byte, corpus [][]byte) []byte {
	if len(in) == 0 {
		return []byte{byte(rnd.IntN(256))}
	}
	// A range, most often a short one.
	from := rnd.IntN(len(in))
	to := min(len(in), from+1+rnd.IntN(1<<rnd.IntN(11)))
	part := slices.Clone(in[from:to])
	switch rnd.IntN(9) {
	case 0: // a bit
		in[from] ^= 1 << rnd.IntN(8)
	case 1: // a byte
		in[from] = byte(rnd.IntN(256))
	case 2: // less
		in = slices.Delete(in, from, to)
	case 3: // the same again, often
		times := min(1<<rnd.IntN(15), most/len(part))
		in = slices.Insert(in, from, slices.Repeat(part, max(times, 1))...)
	case 4: // moved
		in = slices.Delete(in, from, to)
		in = slices.Insert(in, rnd.IntN(len(in)+1), part...)
	case 5: // a piece of another
		other := corpus[rnd.IntN(len(corpus))]
		if len(other) > 0 {
			a := rnd.IntN(len(other))
			in = slices.Insert(in, from, other[a:min(len(other), a+1+rnd.IntN(1<<rnd.IntN(11)))]...)
		}
	case 6: // a large number in place of one
		if i, j := number(in, from); i < j {
			values := []int64{0, -1, 1 << 16, 1 << 31, 1 << 40, 1<<63 - 1, rnd.Int64N(1 << 20)}
			in = slices.Replace(in, i, j, []byte(strconv.FormatInt(values[rnd.IntN(len(values))], 10))...)
		}
	case 7: // little-endian sizes, as binary formats have them
		for i := range min(len(in)-from, []int{1, 2, 4, 8}[rnd.IntN(4)]) {
			in[from+i] = []byte{0, 0xff, 0x7f, 0x80}[rnd.IntN(4)]
		}
	case 8: // brackets around it, many deep
		pairs := [][2]string{{"[", "]"}, {"{", "}"}, {"(", ")"}, {`{"a":`, "}"}, {"((", ")+)+"}}
		p := pairs[rnd.IntN(len(pairs))]
		deep := 1 << rnd.IntN(13)
		part = slices.Concat(slices.Repeat([]byte(p[0]), deep), part, slices.Repeat([]byte(p[1]), deep))
		in = slices.Replace(in, from, to, part...)
	}
	return in[:min(len(in), most)]
}

// number returns the first decimal number in in at or after from.
func number(in []byte, from int) (i, j int) {
	digit := func(b byte) bool { return b >= '0' && b <= '9' }
	i = from + slices.IndexFunc(in[from:], digit)
	if i < from {
		return 0, 0
	}
	for j = i; j < len(in) && digit(in[j]); j++ {
	}
	return i, j
}
