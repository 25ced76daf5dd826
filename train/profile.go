package train

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"talf/compute"
	"talf/train/internal/meter"
)

// The files of a profile.
const (
	ProfileCPU  = "cpu.pprof"  // for go tool pprof: where processors were, evaluations and checkpoints included
	ProfileHeap = "heap.pprof" // what was allocated and what is still held
	ProfileText = "ops.txt"
	ProfileJSON = "ops.json"
)

// A StepProfile is ops.json: what the steps of a run spent their time on. The first
// step, which makes the memory, does not count unless it is the only one.
type StepProfile struct {
	Device  string   `json:"device"`
	Steps   int      `json:"steps"` // that counted
	Seconds float64  `json:"seconds_per_step"`
	SGEMM   float64  `json:"sgemm_gflops"` // best of products of 1024 × 1024 × 1024 before and after the run
	Memory  float64  `json:"memory_gbs"`   // GB/s, best of additions of 32 MiB to 32 MiB
	Ops     []OpCost `json:"ops"`          // longest first
}

// An OpCost is one operation of a step: of the graph, on a weight, forwards or (.d0,
// .d1, …: of the first input, the second, …) the gradient, all levels together; or
// of the optimiser; or "read", "pack" (the batch) and "other".
type OpCost struct {
	Op      string  `json:"op"`
	Calls   float64 `json:"calls"` // these and the following: per step
	Seconds float64 `json:"seconds"`
	Share   float64 `json:"share"` // of the step
	FLOP    float64 `json:"flop"`
	Bytes   float64 `json:"bytes"` // operands, each once
	GFLOPS  float64 `json:"gflops"`
	// Roofline is the time that the operation needs at SGEMM's speed and at memory's,
	// the longer of the two, over the time that it took. What the caches hold is
	// faster than memory, so that it can be above 1.
	Roofline float64 `json:"roofline"`
}

// kind is the operation without the weight.
func (c OpCost) kind() string {
	k, _, _ := strings.Cut(c.Op, " ")
	return k
}

// A profile is one in progress; nil measures nothing.
type profile struct {
	dir   string
	name  string // the device's
	cpu   *os.File
	queue compute.Queue
	meter *meter.Meter

	begun, steps  int
	wall          time.Duration
	since         time.Time
	sgemm, memory float64
}

// newProfile returns the profile of a run on dev, for start, and the queue that the
// run must use for it; dir "" means none. q must be able to train.
func newProfile(dir string, dev compute.Device, q compute.Queue) (*profile, compute.Queue, error) {
	if dir == "" {
		return nil, q, nil
	}
	if q.Abilities().Remote != nil {
		return nil, nil, fmt.Errorf("profile: operations of %s run on while they are timed: only the CPU's are", dev.Name())
	}
	p := &profile{dir: dir, name: dev.Name(), queue: q, meter: meter.New()}
	return p, meter.Watch(q, p.meter), nil
}

// start begins the measuring.
func (p *profile) start() error {
	if p == nil {
		return nil
	}
	if err := os.MkdirAll(p.dir, 0o777); err != nil {
		return fmt.Errorf("profile: %w", err)
	}
	f, err := os.Create(filepath.Join(p.dir, ProfileCPU))
	if err != nil {
		return fmt.Errorf("profile: %w", err)
	}
	p.speeds()
	if err := pprof.StartCPUProfile(f); err != nil {
		return fmt.Errorf("profile: %w", errors.Join(err, f.Close()))
	}
	p.cpu = f
	return nil
}

// begin begins a step, the last of the run if last.
func (p *profile) begin(last bool) {
	if p == nil {
		return
	}
	p.begun++
	p.meter.Switch(p.begun > 1 || last)
	p.since = time.Now()
}

// end ends the step.
func (p *profile) end(last bool) {
	if p == nil {
		return
	}
	if p.begun > 1 || last {
		p.steps++
		p.wall += time.Since(p.since)
	}
	p.meter.Switch(false)
}

// span measures f, which is not the device's, under a name.
func (p *profile) span(name string, f func() error) error {
	if p == nil {
		return f()
	}
	p.meter.Begin(name)
	defer p.meter.End()
	return f()
}

// speeds measures what the device does best.
func (p *profile) speeds() {
	const n, long = 1024, 1 << 23
	ops := p.queue.Abilities().Train
	host := func(n int) compute.Buffer {
		f := make([]float32, n)
		for i := range 17 {
			f[i] = float32(i) / 16
		}
		for at := 17; at < n; at *= 2 {
			copy(f[at:], f[:at])
		}
		return ops.Host(f, n)
	}
	mat := func() compute.Mat { return compute.Mat{Buf: host(n * n), Rows: n, Cols: n, Stride: n} }
	a, b, c := mat(), mat(), mat()
	p.sgemm = max(p.sgemm, p.best(8, 2*n*n*n, func() { ops.Gemm(c, a, b, 0) }))
	x, y := host(long), host(long)
	p.memory = max(p.memory, p.best(4, 12*long, func() { ops.Add(x, x, y, long) }))
}

// best returns the most units in a nanosecond of some runs of f after the first, of
// fewer if they take long.
func (p *profile) best(runs int, units float64, f func()) (best float64) {
	begun := time.Now()
	for i := 0; i < 2 || i <= runs && time.Since(begun) < 200*time.Millisecond; i++ {
		t := time.Now()
		f()
		if err := p.queue.Sync(context.Background()); err != nil {
			return 0
		}
		if i > 0 {
			best = max(best, units/float64(max(1, time.Since(t))))
		}
	}
	return best
}

// abandon ends the measuring of a run that does not begin.
func (p *profile) abandon() {
	if p == nil || p.cpu == nil {
		return
	}
	pprof.StopCPUProfile()
	_ = p.cpu.Close() // of no use
}

// stop ends the measuring and writes the files.
func (p *profile) stop() error {
	if p == nil {
		return nil
	}
	pprof.StopCPUProfile()
	if err := p.cpu.Close(); err != nil {
		return fmt.Errorf("profile: %w", err)
	}
	heap := new(bytes.Buffer)
	runtime.GC() // what is held is counted up to the last collection
	if err := pprof.Lookup("heap").WriteTo(heap, 0); err != nil {
		return fmt.Errorf("profile: %w", err)
	}
	p.speeds()
	s := p.result()
	js, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return fmt.Errorf("profile: %w", err)
	}
	for _, f := range []struct {
		name string
		data []byte
	}{{ProfileHeap, heap.Bytes()}, {ProfileJSON, append(js, '\n')}, {ProfileText, []byte(s.String())}} {
		if err := os.WriteFile(filepath.Join(p.dir, f.name), f.data, 0o666); err != nil {
			return fmt.Errorf("profile: %w", err)
		}
	}
	return nil
}

// result is what was measured so far.
func (p *profile) result() *StepProfile {
	s := &StepProfile{Device: p.name, Steps: p.steps, SGEMM: p.sgemm, Memory: p.memory}
	if p.steps == 0 {
		return s
	}
	n := float64(p.steps)
	s.Seconds = p.wall.Seconds() / n
	rest := s.Seconds
	for _, name := range p.meter.Names() {
		c := p.meter.Cost(name)
		o := OpCost{Op: name, Calls: float64(c.Calls) / n, Seconds: c.Time.Seconds() / n, FLOP: c.FLOP / n, Bytes: c.Bytes / n}
		rest -= o.Seconds
		s.Ops = append(s.Ops, o)
	}
	s.Ops = append(s.Ops, OpCost{Op: "other", Calls: 1, Seconds: max(0, rest)})
	s.derive(s.Ops)
	return s
}

// derive fills in what follows from the other fields and sorts.
func (s *StepProfile) derive(ops []OpCost) {
	for i := range ops {
		o := &ops[i]
		if o.Seconds == 0 {
			continue
		}
		o.Share, o.GFLOPS = o.Seconds/s.Seconds, o.FLOP/o.Seconds/1e9
		if s.SGEMM > 0 && s.Memory > 0 {
			o.Roofline = max(o.FLOP/s.SGEMM, o.Bytes/s.Memory) / 1e9 / o.Seconds
		}
	}
	slices.SortStableFunc(ops, func(a, b OpCost) int { return cmp.Compare(b.Seconds, a.Seconds) })
}

// Kinds adds up the operations of a kind, whatever weight they are on.
func (s *StepProfile) Kinds() []OpCost {
	var kinds []OpCost
	for _, o := range s.Ops {
		i := slices.IndexFunc(kinds, func(k OpCost) bool { return k.Op == o.kind() })
		if i < 0 {
			i = len(kinds)
			kinds = append(kinds, OpCost{Op: o.kind()})
		}
		k := &kinds[i]
		k.Calls, k.Seconds, k.FLOP, k.Bytes = k.Calls+o.Calls, k.Seconds+o.Seconds, k.FLOP+o.FLOP, k.Bytes+o.Bytes
	}
	s.derive(kinds)
	return kinds
}

// String is ops.txt.
func (s *StepProfile) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n%d steps of %.1f ms; SGEMM %.1f GFLOP/s, memory %.1f GB/s\n", s.Device, s.Steps, 1e3*s.Seconds, s.SGEMM, s.Memory)
	table := func(ops []OpCost) {
		b.WriteByte('\n')
		w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
		fmt.Fprintf(w, "calls\tms\tshare\tGFLOP\tGFLOP/s\tof SGEMM\tMB\troofline\t op\n")
		for _, o := range ops {
			if o.Seconds < 5e-6 && o.FLOP == 0 {
				continue // hands on what another has made
			}
			peak := 0.0
			if s.SGEMM > 0 {
				peak = o.GFLOPS / s.SGEMM
			}
			fmt.Fprintf(w, "%.4g\t%.2f\t%.1f%%\t%.3f\t%.1f\t%.1f%%\t%.1f\t%.1f%%\t %s\n",
				o.Calls, 1e3*o.Seconds, 100*o.Share, o.FLOP/1e9, o.GFLOPS, 100*peak, o.Bytes/1e6, 100*o.Roofline, o.Op)
		}
		_ = w.Flush() // to memory
	}
	table(s.Kinds())
	table(s.Ops)
	return b.String()
}
