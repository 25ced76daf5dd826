//go:build gpu && linux && cgo

package cuda

import (
	"fmt"
	"hash/maphash"
	"slices"
	"unsafe"

	"gorgonia.org/cu"

	"talf/compute"
	"talf/compute/cuda/internal/driver"
)

// A pass is the work queued since Pass. The owner runs it when a caller waits for it:
// one copy of all arguments, then the kernels, as a graph if exactly the same launches
// have run before.
//
// Rows are launched in buckets, and attention's items and chunks in powers of two.
// Their actual numbers, and everything else that changes from pass to pass, are stored
// at addresses that do not change. So passes of one bucket are the same launches,
// whatever their rows, tokens, lengths and masks, until lengths double.
type pass struct {
	on     bool // launches are collected
	sent   bool // the arguments of a pass may still be in transit
	pinned []byte
	twin   *block
	at     int

	counts [countSlots]count
	filled int
	reads  []passRead
	late   []late
	keep   []*block // replaced since the launches that use them were collected

	// What was collected: the first launches of like, or list.
	like *graph
	n    int // launches of like that matched
	list []launched

	graphs []*graph        // those used last come first
	seen   map[uint64]bool // hashes of passes that were seen once
}

// A launched is a launch of a kernel. Equal ones do the same to the same memory.
type launched struct {
	kernel  kernel
	grid    [3]uint32
	threads uint32
	args    [maxArgs]uint64
}

// A count is a number of rows or items that is in the arguments only, not in a launch.
type count struct {
	items bool
	n     int
}

// A passRead is a part of the pass's memory that comes back, and where it goes.
type passRead struct {
	at, n int
	dst   []byte // at most n
}

// A late slice is one whose elements a Choice decides; operations read them on the device.
type late struct {
	host unsafe.Pointer
	at   int // in the pass's memory
	n    int // bytes
}

// A graph is a pass that the driver keeps.
type graph struct {
	list []launched
	hash uint64
	exec driver.Graph
}

const (
	// passRows is the most rows of a pass that is collected. A larger pass starts before
	// it is complete.
	passRows = 512
	// countSlots is how many different counts a pass has, each in countBytes: the count
	// remaining at every launch of a product.
	countSlots = 16
	countBytes = 8 * (passRows / linearRows)
	// mostGraphs bounds the graphs of a queue; the least recently used one is dropped.
	mostGraphs = 64
	// mostSeen bounds the hashes of passes that were seen once.
	mostSeen = 1024
	// readGap is the most bytes between two reads that are copied along, rather than copying twice.
	readGap = 1 << 10
)

// bucket returns the rows that are launched for n.
func bucket(n int) int {
	for _, b := range [...]int{1, 8, 16, 32} {
		if n <= b {
			return b
		}
	}
	return (n + 63) / 64 * 64
}

// power returns the least power of two that is at least n and least.
func power(n, least int) int {
	for least < n {
		least *= 2
	}
	return least
}

// Pass begins a pass of the given number of rows: operations that follow are collected and
// run when a caller waits for them.
func (q *queue) Pass(rows int) {
	p := &q.pass
	if p.on || p.sent {
		if q.wait() != nil {
			return
		}
	}
	if rows > passRows || q.bulk.allowed(rows) || q.dev.failure() != nil {
		return
	}
	if p.pinned == nil && !q.passMemory(pinnedSize) {
		return
	}
	clear(q.steps)
	q.steps = q.steps[:0]
	p.on, p.at, p.filled = true, countSlots*countBytes, 0
	p.reads, p.late = p.reads[:0], p.late[:0]
	p.begin()
}

// begin drops the collected launches.
func (p *pass) begin() {
	p.list, p.like, p.n = p.list[:0], nil, 0
	if len(p.graphs) > 0 {
		p.like = p.graphs[0]
	}
}

// launch collects a launch. Nearly every pass repeats an earlier one, so launches are compared with
// those of a graph as they come, and recorded only when no graph begins like this.
func (p *pass) launch(k kernel, grid [3]uint32, args []uint64) {
	if g := p.like; g != nil {
		if p.n < len(g.list) && g.list[p.n].is(k, grid, args) {
			p.n++
			return
		}
		for _, o := range p.graphs {
			if p.n < len(o.list) && o.list[p.n].is(k, grid, args) && slices.Equal(o.list[:p.n], g.list[:p.n]) {
				p.like = o
				p.n++
				return
			}
		}
		p.write()
	}
	p.list = append(p.list, launched{kernel: k, grid: grid, threads: kernels[k].threads})
	copy(p.list[len(p.list)-1].args[:], args)
}

// write copies the matched launches to a list of this pass's own.
func (p *pass) write() {
	p.list = append(p.list[:0], p.like.list[:p.n]...)
	p.like, p.n = nil, 0
}

// is reports whether l launches k with these arguments.
func (l *launched) is(k kernel, grid [3]uint32, args []uint64) bool {
	return l.kernel == k && l.grid == grid && slices.Equal(l.args[:len(args)], args)
}

// passMemory allocates the memory of a pass's arguments.
func (q *queue) passMemory(size int) bool {
	p := &q.pass
	err := q.dev.do(func() (err error) {
		p.pinned, err = q.dev.host(p.pinned, size)
		return err
	})
	if err == nil {
		p.twin, err = q.dev.alloc("arguments of a pass", int64(size), false)
	}
	if err != nil {
		q.dev.fail(fmt.Errorf("make room for a pass: %w", err))
	}
	return err == nil
}

// counted returns how many rows or items to launch for n, and the device address of n,
// or 0 if exactly n are launched.
func (q *queue) counted(n int, items bool) (launch int, live uint64) {
	p := &q.pass
	if !p.on || !items && n > passRows {
		return n, 0
	}
	launch = bucket(n)
	if items {
		launch = power(n, 16)
	}
	i := slices.Index(p.counts[:p.filled], count{items, n})
	if i < 0 {
		if i = p.filled; i == countSlots {
			return n, 0
		}
		p.counts[i], p.filled = count{items, n}, i+1
		at := bytesAs[int64](p.pinned[i*countBytes:][:countBytes])
		for j := range at {
			at[j] = int64(n - j*linearRows)
		}
	}
	return launch, p.twin.ptr + uint64(i*countBytes)
}

// padded returns the bytes that n elements of a size take in a pass's arguments, if
// their number changes from pass to pass.
func (q *queue) padded(n, size int) int {
	if q.pass.on {
		n = power(n, 256)
	}
	return (n*size + 15) / 16 * 16
}

// flush sends what a pass has collected and ends it.
func (q *queue) flush() {
	if !q.pass.on {
		return
	}
	_ = q.dev.do(func() error { q.play(); return nil })
}

// play runs a pass. It runs on the owner.
func (q *queue) play() {
	p, d := &q.pass, q.dev
	p.on, p.sent = false, true
	if d.lost.Load() != nil || p.n+len(p.list) == 0 {
		return
	}
	err := driver.Wrap(cu.MemcpyHtoDAsync(cu.DevicePtr(p.twin.ptr), unsafe.Pointer(&p.pinned[0]), int64(p.at), d.stream))
	if err != nil {
		d.fail(fmt.Errorf("copy a pass's arguments: %w", err))
		return
	}
	q.launchAll()
	for i := 0; i < len(p.reads); {
		// Adjacent reads take one copy, and so do reads with a gap that costs less than a copy.
		at, end := p.reads[i].at, 0
		for ; i < len(p.reads) && (end == 0 || p.reads[i].at-end < readGap); i++ {
			end = p.reads[i].at + p.reads[i].n
		}
		err := cu.MemcpyDtoHAsync(unsafe.Pointer(&p.pinned[at]), cu.DevicePtr(p.twin.ptr+uint64(at)), int64(end-at), d.stream)
		if err != nil {
			d.fail(fmt.Errorf("copy a pass's results: %w", driver.Wrap(err)))
			return
		}
	}
}

// launchAll launches a pass's kernels, as a graph if they were launched before.
func (q *queue) launchAll() {
	p, d := &q.pass, q.dev
	g := p.like
	if g != nil && p.n < len(g.list) {
		g = nil
		p.write()
	}
	if g == nil && d.graphs {
		g = q.known()
	}
	if g == nil {
		for i := range p.list {
			if !d.launchBehind(&p.list[i], i > 0) {
				return
			}
		}
		return
	}
	i := slices.Index(p.graphs, g)
	copy(p.graphs[1:], p.graphs[:i])
	p.graphs[0] = g
	if err := g.exec.Launch(d.stream); err != nil {
		d.fail(fmt.Errorf("launch a graph of %d kernels: %w", len(g.list), err))
	}
}

// known returns the graph of a pass's list, which it makes when a list comes for the second time, or nil.
func (q *queue) known() *graph {
	p := &q.pass
	h := maphash.Bytes(q.dev.seed, bytesOf(p.list))
	for _, g := range p.graphs {
		if g.hash == h && slices.Equal(g.list, p.list) {
			return g
		}
	}
	if p.seen[h] {
		return q.capture(h)
	}
	if len(p.seen) >= mostSeen || p.seen == nil {
		p.seen = map[uint64]bool{}
	}
	p.seen[h] = true
	return nil
}

// capture records a graph of a pass's launches, or returns nil if the driver refuses.
func (q *queue) capture(h uint64) *graph {
	p, d := &q.pass, q.dev
	record := func() error {
		for i := range p.list {
			if err := d.enqueue(&p.list[i], i > 0); err != nil {
				return err
			}
		}
		return nil
	}
	exec, err := driver.Capture(d.stream, record)
	if err != nil && d.overlap { // old drivers may not capture that
		d.overlap = false
		var again error
		if exec, again = driver.Capture(d.stream, record); again == nil {
			d.withoutOverlap(err)
			err = nil
		} else {
			d.overlap = true
		}
	}
	if err != nil {
		d.withoutGraphs(err)
		return nil
	}
	if last := len(p.graphs) - 1; last+1 >= mostGraphs {
		_ = p.graphs[last].exec.Destroy()
		p.graphs = p.graphs[:last]
	}
	g := &graph{list: slices.Clone(p.list), hash: h, exec: exec}
	p.graphs = append(p.graphs, g)
	return g
}

// arrived delivers what a pass read.
func (p *pass) arrived() {
	for _, r := range p.reads {
		copy(r.dst, p.pinned[r.at:])
	}
	clear(p.reads)
	p.reads = p.reads[:0]
}

// ReadTopK writes the k largest of each row to the host. They are valid after Sync. If
// that fails, ids and logp are unchanged.
func (q *queue) ReadTopK(ids []int32, logp []float32, logits compute.Buffer, k, n int) {
	const op = "ReadTopK"
	v := q.dev.bufferOf(op, logits, compute.F32, 0).width()
	if k < 1 || k > v {
		panic(fmt.Sprintf("cuda: ReadTopK: %d of %d logits", k, v))
	}
	check(len(ids) == n*k, op, "len(ids)", len(ids), n*k)
	check(len(logp) == n*k, op, "len(logp)", len(logp), n*k)
	x := q.dev.bufferOf(op, logits, compute.F32, n*v)
	if n == 0 {
		return
	}
	if !q.pass.on {
		q.Pass(n)
	}
	rows, live := q.counted(n, false)
	if !q.reserve(8 * rows * k) {
		return
	}
	at := q.room(8 * rows * k)
	q.topK(at, at+uint64(4*rows*k), x, k, rows, live)
	if q.pass.on {
		p := &q.pass
		first := int(at - p.twin.ptr)
		p.reads = append(p.reads, passRead{first, 4 * rows * k, bytesOf(ids)}, passRead{first + 4*rows*k, 4 * rows * k, bytesOf(logp)})
		p.late = append(p.late, late{unsafe.Pointer(unsafe.SliceData(ids)), first, 4 * len(ids)},
			late{unsafe.Pointer(unsafe.SliceData(logp)), first + 4*rows*k, 4 * len(logp)})
		return
	}
	// Too many rows, or results, for a pass.
	out := make([]byte, 8*rows*k)
	q.readAt(at, out)
	if q.dev.failure() == nil {
		copy(bytesOf(ids), out)
		copy(bytesOf(logp), out[4*rows*k:])
	}
}

// bytesAs is the reverse of bytesOf.
func bytesAs[T any](b []byte) []T {
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/int(unsafe.Sizeof(*new(T))))
}
