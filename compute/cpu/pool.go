package cpu

import (
	"context"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"talf/compute/cpu/kern"
	"talf/internal/slab"
)

// A task is an operation cut into parts that may run in any order, on any
// worker, at the same time. The cut fixes what is summed where, so results do
// not depend on the number of workers.
type task interface {
	run(w *worker, part int)
}

// A worker is one thread of a pool. Number 0 is the goroutine that calls run.
type worker struct {
	k       *kern.Funcs
	scratch [4][]float32
	one     []float32
	half    []uint16
	raw     []byte
	blocks  []byte

	// next counts up to end through this worker's share of the parts. Workers that have
	// finished their own share take from the others'.
	_    [64]byte
	next atomic.Int64
	end  int64
	_    [64]byte

	parked atomic.Bool
	wake   chan struct{}
}

// buf returns scratch i with n elements, contents undefined. It allocates only when it
// must grow.
func (w *worker) buf(i, n int) []float32 {
	if cap(w.scratch[i]) < n {
		w.scratch[i] = make([]float32, n+n/4)
	}
	return w.scratch[i][:n]
}

// stored returns scratch for a row of n integers of 8 or 4 bits and for its scales, contents undefined.
func (w *worker) stored(n, scales int) (ints, d []byte) {
	w.raw = slab.Resize(w.raw, n+scales)
	return w.raw[:n:n], w.raw[n:]
}

// unpacked returns scratch for kern's GemmCompact.
func (w *worker) unpacked() []byte {
	w.blocks = slab.Resize(w.blocks, kern.CompactScratch)
	return w.blocks
}

// ones returns n ones.
func (w *worker) ones(n int) []float32 {
	for len(w.one) < n {
		w.one = append(w.one, 1)
	}
	return w.one[:n]
}

// gemm is kern's Gemm for any number of rows, cut evenly.
func (w *worker) gemm(c []float32, ldc int, a []float32, ars, aks int, b []float32, ldb, rows, k int, acc bool) {
	f, most := w.k.Gemm, w.k.MaxRows
	for r := 0; r < rows; {
		left := (rows - r + most - 1) / most
		m := (rows - r + left - 1) / left
		f(c[r*ldc:], ldc, a[r*ars:], ars, aks, b, ldb, m, k, acc)
		r += m
	}
}

// gemmBF16 is kern's GemmBF16 for any number of rows, cut evenly.
func (w *worker) gemmBF16(c []float32, ldc int, a []float32, ars, aks int, b []uint16, rows, k int, acc bool) {
	f, most := w.k.GemmBF16, w.k.MaxRowsBF16
	for r := 0; r < rows; {
		left := (rows - r + most - 1) / most
		m := (rows - r + left - 1) / left
		f(c[r*ldc:], ldc, a[r*ars:], ars, aks, b, m, k, acc)
		r += m
	}
}

// The pool's state is one word: the number of the current job in the upper half,
// whether it accepts helpers, whether the caller sleeps until they are done, and how
// many are working on it. A helper enters by compare-and-swap, so a late one finds the
// job closed and never touches the next job's parts.
const (
	jobOpen   = 1 << 31
	jobSleeps = 1 << 30
	jobInside = jobSleeps - 1
)

// A pool runs tasks on a fixed set of workers, one task at a time.
type pool struct {
	mu      sync.Mutex // held while a task runs
	workers []*worker
	task    task
	until   context.Context // of the task, or nil
	_       [128]byte
	state   atomic.Uint64 // in a cache line of its own: idle workers poll it
	_       [128]byte
	done    chan struct{} // wakes the sleeping caller
	stopped atomic.Bool
	failed  atomic.Pointer[failure]
}

// A failure is a panic on a helper, handed to the caller.
type failure struct{ value any }

func newPool(threads int, k *kern.Funcs) *pool {
	p := &pool{workers: make([]*worker, threads), done: make(chan struct{}, 1)}
	for i := range p.workers {
		p.workers[i] = &worker{k: k, wake: make(chan struct{}, 1)}
	}
	for _, w := range p.workers[1:] {
		go p.help(w)
	}
	return p
}

// run runs all parts of t and returns when they are done. Once until, unless nil, has ended, it begins no more of them.
func (p *pool) run(until context.Context, t task, parts int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if parts > 1 && len(p.workers) > 1 && !p.stopped.Load() {
		p.open(until, t, parts)
		defer p.join()
		p.work(0)
		return
	}
	for i := range parts {
		if until != nil && until.Err() != nil {
			return
		}
		t.run(p.workers[0], i)
	}
}

// alone runs all parts on the calling goroutine, for work that costs less than waking
// other workers.
func (p *pool) alone(t task, parts int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range parts {
		t.run(p.workers[0], i)
	}
}

// open divides t among the workers and wakes them.
func (p *pool) open(until context.Context, t task, parts int) {
	p.task, p.until = t, until
	n := len(p.workers)
	for i, w := range p.workers {
		w.next.Store(int64(parts * i / n))
		w.end = int64(parts * (i + 1) / n)
	}
	job := (p.state.Load()>>32 + 1) << 32
	p.state.Store(job | jobOpen)
	for _, w := range p.workers[1:min(n, parts)] {
		if w.parked.CompareAndSwap(true, false) {
			w.wake <- struct{}{}
		}
	}
}

// join closes the job and waits for its helpers, even if the caller's own part
// panicked.
func (p *pool) join() {
	for i := 1; ; i++ {
		s := p.state.Load()
		if s&jobOpen != 0 {
			p.state.CompareAndSwap(s, s&^jobOpen)
			continue
		}
		if s&jobInside == 0 {
			break
		}
		// The whole word is swapped, so the last helper to leave has seen the sleeper.
		if i >= joinSpins && p.state.CompareAndSwap(s, s|jobSleeps) {
			<-p.done
			break
		}
		if i%1024 == 0 {
			runtime.Gosched()
		}
	}
	p.task, p.until = nil, nil
	if f := p.failed.Swap(nil); f != nil {
		panic(f.value)
	}
}

// work runs parts until none is left, worker i's own first.
func (p *pool) work(i int) {
	me, t, until, n := p.workers[i], p.task, p.until, len(p.workers)
	for v := range n {
		w := p.workers[(i+v)%n]
		for {
			part := w.next.Add(1) - 1
			if part >= w.end {
				break
			}
			if until != nil && until.Err() != nil {
				return
			}
			t.run(me, int(part))
		}
	}
}

// help is the main loop of a worker other than the caller.
func (p *pool) help(w *worker) {
	debug.SetPanicOnFault(true) // weights are packed from mapped files: see internal/mapped
	me := 0
	for i := range p.workers {
		if p.workers[i] == w {
			me = i
		}
	}
	var last uint64
	for {
		job, ok := p.enter(w, last)
		if !ok {
			return
		}
		last = job
		p.guarded(me)
		if s := p.state.Add(^uint64(0)); s&jobSleeps != 0 && s&jobInside == 0 {
			p.done <- struct{}{}
		}
	}
}

func (p *pool) guarded(i int) {
	defer func() {
		if v := recover(); v != nil {
			p.failed.CompareAndSwap(nil, &failure{v})
		}
	}()
	p.work(i)
}

// enter waits for an open job other than last and joins it. It reports false
// when the pool has stopped.
func (p *pool) enter(w *worker, last uint64) (uint64, bool) {
	since := time.Now()
	for i := 1; ; i++ {
		s := p.state.Load()
		if s&jobOpen != 0 && s>>32 != last {
			if p.state.CompareAndSwap(s, s+1) {
				return s >> 32, true
			}
			continue
		}
		if p.stopped.Load() {
			return 0, false
		}
		if i%looks != 0 {
			continue
		}
		runtime.Gosched()
		if time.Since(since) < spin {
			continue
		}
		// Whoever opens a job reads parked afterwards, and this reads the state after
		// setting parked: at least one of them sees the other's write.
		w.parked.Store(true)
		if s := p.state.Load(); (s&jobOpen != 0 && s>>32 != last) || p.stopped.Load() {
			if w.parked.CompareAndSwap(true, false) {
				continue
			}
		}
		<-w.wake
		since = time.Now()
	}
}

// stop stops the workers. Afterwards run does all work on the caller's goroutine.
func (p *pool) stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stopped.Swap(true) {
		return
	}
	for _, w := range p.workers[1:] {
		if w.parked.CompareAndSwap(true, false) {
			w.wake <- struct{}{}
		}
	}
}
