// Package profile measures what the steps of a training run spend their time on: which
// operations, how far they are from what the machine can do, and where the processors spent
// their time.
package profile

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"talf/compute"
	"talf/internal/durable"
	"talf/train/internal/gg"
	"talf/train/internal/meter"
)

// The files of a profile.
const (
	CPUFile  = "cpu.pprof"  // for go tool pprof: processor time, including evaluations and checkpoints
	HeapFile = "heap.pprof" // for go tool pprof: memory allocated, and memory still in use
	TextFile = "ops.txt"
	JSONFile = "ops.json"
)

// A Report is the contents of ops.json: what the steps of a run spent their time on.
// The first step, which allocates memory, is left out unless it is the only one.
type Report struct {
	Device  string  `json:"device"`
	Steps   int     `json:"steps"` // measured
	Seconds float64 `json:"seconds_per_step"`
	SGEMM   float64 `json:"sgemm_gflops"` // best of 1024 × 1024 × 1024 products before and after the run
	Memory  float64 `json:"memory_gbs"`   // GB/s, best of additions of 32 MiB to 32 MiB
	Ops     []Op    `json:"ops"`          // longest first
}

// An Op is one operation of a step, summed over all levels: an operation of the graph
// with the weight it is applied to (a suffix .d0, .d1, … marks the gradient of the
// first input, the second, …), one of the optimiser's, or "read" (the data), "pack"
// (the batch) and "other".
type Op struct {
	Op      string  `json:"op"`
	Calls   float64 `json:"calls"` // these and the following: per step
	Seconds float64 `json:"seconds"`
	Share   float64 `json:"share"` // of the step
	FLOP    float64 `json:"flop"`
	Bytes   float64 `json:"bytes"` // operands, each once
	GFLOPS  float64 `json:"gflops"`
	// Roofline is the time the operation needs at SGEMM's speed or at memory's,
	// whichever is longer, over the time it took. It can exceed 1, because caches are
	// faster than memory.
	Roofline float64 `json:"roofline"`
}

// kind is the operation without the weight.
func (o Op) kind() string {
	k, _, _ := strings.Cut(o.Op, " ")
	return k
}

// A Recorder measures one run. A nil Recorder measures nothing.
type Recorder struct {
	dir   string
	name  string // the device's
	cpu   *durable.File
	queue compute.Queue
	meter *meter.Meter

	started, steps int
	wall           time.Duration
	since          time.Time
	sgemm, memory  float64
}

// New returns a recorder that writes to dir, and the queue that the run must use instead of q, a
// queue of dev that can train. If dir is empty, there is no recorder, and the queue is q.
func New(dir string, dev compute.Device, q compute.Queue) (*Recorder, compute.Queue, error) {
	if dir == "" {
		return nil, q, nil
	}
	if q.Abilities().Remote != nil {
		return nil, nil, fmt.Errorf("profile: %s runs operations asynchronously, so they cannot be timed one by one: train on the CPU", dev.Name())
	}
	p := &Recorder{dir: dir, name: dev.Name(), queue: q, meter: meter.New()}
	return p, meter.Watch(q, p.meter), nil
}

// Start starts measuring.
func (p *Recorder) Start() error {
	if p == nil {
		return nil
	}
	if err := durable.MakeDirs(p.dir); err != nil {
		return fmt.Errorf("profile: %w", err)
	}
	f, err := durable.Create(filepath.Join(p.dir, CPUFile))
	if err != nil {
		return fmt.Errorf("profile: %w", err)
	}
	p.Speeds()
	if err := pprof.StartCPUProfile(f); err != nil {
		return fmt.Errorf("profile: %w", errors.Join(err, f.Discard()))
	}
	p.cpu = f
	return nil
}

// Watch measures the operations of g.
func (p *Recorder) Watch(g *gg.Graph) {
	if p != nil {
		g.Watch(p.meter)
	}
}

// BeginStep begins a step; last says that it is the run's last.
func (p *Recorder) BeginStep(last bool) {
	if p == nil {
		return
	}
	p.started++
	p.meter.Switch(p.started > 1 || last)
	p.since = time.Now()
}

// EndStep ends the step.
func (p *Recorder) EndStep(last bool) {
	if p == nil {
		return
	}
	if p.started > 1 || last {
		p.steps++
		p.wall += time.Since(p.since)
	}
	p.meter.Switch(false)
}

// Span measures f, which runs on the host, under name.
func (p *Recorder) Span(name string, f func() error) error {
	if p == nil {
		return f()
	}
	p.meter.Begin(name)
	defer p.meter.End()
	return f()
}

// Speeds measures the device's best speeds: of a product, and of memory.
func (p *Recorder) Speeds() {
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

// best runs f a few times, fewer if it takes long, and returns the highest rate in
// units per nanosecond. The first run is not measured.
func (p *Recorder) best(runs int, units float64, f func()) (best float64) {
	start := time.Now()
	for i := 0; i < 2 || i <= runs && time.Since(start) < 200*time.Millisecond; i++ {
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

// Abandon stops measuring a run that could not start.
func (p *Recorder) Abandon() {
	if p == nil || p.cpu == nil {
		return
	}
	pprof.StopCPUProfile()
	_ = p.cpu.Discard() // not needed
}

// Stop stops measuring and writes the files.
func (p *Recorder) Stop() error {
	if p == nil {
		return nil
	}
	pprof.StopCPUProfile()
	if err := p.cpu.Commit(); err != nil {
		return fmt.Errorf("profile: %w", err)
	}
	heap := new(bytes.Buffer)
	runtime.GC() // the heap profile is that of the last collection
	if err := pprof.Lookup("heap").WriteTo(heap, 0); err != nil {
		return fmt.Errorf("profile: %w", err)
	}
	p.Speeds()
	s := p.Report()
	js, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return fmt.Errorf("profile: %w", err)
	}
	for _, f := range []struct {
		name string
		data []byte
	}{{HeapFile, heap.Bytes()}, {JSONFile, append(js, '\n')}, {TextFile, []byte(s.String())}} {
		if err := durable.WriteFile(filepath.Join(p.dir, f.name), f.data); err != nil {
			return fmt.Errorf("profile: %w", err)
		}
	}
	return nil
}

// Report returns what was measured so far.
func (p *Recorder) Report() *Report {
	s := &Report{Device: p.name, Steps: p.steps, SGEMM: p.sgemm, Memory: p.memory}
	if p.steps == 0 {
		return s
	}
	n := float64(p.steps)
	s.Seconds = p.wall.Seconds() / n
	rest := s.Seconds
	for _, name := range p.meter.Names() {
		c := p.meter.Cost(name)
		o := Op{Op: name, Calls: float64(c.Calls) / n, Seconds: c.Time.Seconds() / n, FLOP: c.FLOP / n, Bytes: c.Bytes / n}
		rest -= o.Seconds
		s.Ops = append(s.Ops, o)
	}
	s.Ops = append(s.Ops, Op{Op: "other", Calls: 1, Seconds: max(0, rest)})
	s.derive(s.Ops)
	return s
}

// derive computes the fields of ops that follow from others, and sorts by time.
func (s *Report) derive(ops []Op) {
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
	slices.SortStableFunc(ops, func(a, b Op) int { return cmp.Compare(b.Seconds, a.Seconds) })
}

// Kinds sums operations of one kind over all weights.
func (s *Report) Kinds() []Op {
	var kinds []Op
	for _, o := range s.Ops {
		i := slices.IndexFunc(kinds, func(k Op) bool { return k.Op == o.kind() })
		if i < 0 {
			i = len(kinds)
			kinds = append(kinds, Op{Op: o.kind()})
		}
		k := &kinds[i]
		k.Calls, k.Seconds, k.FLOP, k.Bytes = k.Calls+o.Calls, k.Seconds+o.Seconds, k.FLOP+o.FLOP, k.Bytes+o.Bytes
	}
	s.derive(kinds)
	return kinds
}

// String returns the contents of ops.txt.
func (s *Report) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n%d steps of %.1f ms; SGEMM %.1f GFLOP/s, memory %.1f GB/s\n", s.Device, s.Steps, 1e3*s.Seconds, s.SGEMM, s.Memory)
	table := func(ops []Op) {
		b.WriteByte('\n')
		w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
		fmt.Fprintf(w, "calls\tms\tshare\tGFLOP\tGFLOP/s\tof SGEMM\tMB\troofline\t op\n")
		for _, o := range ops {
			if o.Seconds < 5e-6 && o.FLOP == 0 {
				continue // a view of another operation's output
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
