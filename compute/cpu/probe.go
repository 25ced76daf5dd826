package cpu

import (
	"context"
	"math/rand/v2"
	"runtime"
	"time"

	"talf/compute/cpu/kern"
)

// A Probe measures the peak speeds of a device's threads. Run it between the
// measurements that it is compared with, because machines change their speed.
type Probe struct {
	dev  *Device
	read readTask
	peak peakTask
}

// NewProbe returns a probe that reads size bytes, at least 1 MiB. Give it the size of
// the weights that it is compared with, so that both are in the same cache or memory.
func (d *Device) NewProbe(size int) *Probe {
	p := &Probe{dev: d}
	x, mem := hugeAlloc[float32](&d.mem, max(size/4, 1<<18))
	p.read = readTask{x: x, mem: mem}
	for i := range p.read.x {
		p.read.x[i] = float32(i & 1023) // zeroed pages would all be one
	}
	p.read.per = max(1<<14, len(p.read.x)/(16*len(d.pool.workers)))
	r := rand.New(rand.NewPCG(1, 1))
	for range kern.Panel * peakDepth {
		p.peak.b = append(p.peak.b, r.Float32()-0.5)
	}
	p.peak.rows = d.k.MaxRows
	for range p.peak.rows * peakDepth {
		p.peak.a = append(p.peak.a, r.Float32()-0.5)
	}
	return p
}

// Read reads the probe's memory once with all threads and returns bytes per
// second.
func (p *Probe) Read() float64 {
	since := time.Now()
	p.dev.pool.run(context.Background(), &p.read, parts(len(p.read.x), p.read.per))
	runtime.KeepAlive(p)
	return float64(4*len(p.read.x)) / time.Since(since).Seconds()
}

// Peak multiplies operands that lie in the first-level cache with all threads
// and returns f32 operations per second, a multiply-add being two.
func (p *Probe) Peak() float64 {
	n := 4 * len(p.dev.pool.workers)
	since := time.Now()
	p.dev.pool.run(context.Background(), &p.peak, n)
	ops := 2 * float64(n) * peakReps * float64(p.peak.rows) * kern.Panel * peakDepth
	return ops / time.Since(since).Seconds()
}

type readTask struct {
	x   []float32
	per int
	mem *share // that x lies in, or nil
}

func (t *readTask) run(w *worker, part int) {
	w.buf(0, 1)[0] = w.k.Max(t.x[part*t.per : min(len(t.x), (part+1)*t.per)])
}

// peakDepth keeps a panel and its rows in 32 KiB.
const (
	peakDepth = 128
	peakReps  = 200
)

type peakTask struct {
	a, b []float32
	rows int
}

func (t *peakTask) run(w *worker, _ int) {
	c := w.buf(0, t.rows*kern.Panel)
	for range peakReps {
		w.k.Gemm(c, kern.Panel, t.a, peakDepth, 1, t.b, kern.Panel, t.rows, peakDepth, false)
	}
}
