package ptxtest

import (
	"bytes"
	"fmt"
	"math/bits"
	"math/rand/v2"
	"slices"
)

// A Device runs kernels.
type Device struct {
	Memory
	// Resident is how many blocks run at a time; by default 3.
	Resident int
	// Truncate makes products of tensor cores drop what lies far below the largest term and round toward zero.
	// Otherwise their sums are calculated in float64 and rounded once.
	Truncate bool
	// Keep holds what a launch overwrites until the next, for [Device.Compare].
	Keep bool

	rng   *rand.Rand
	steps int64
	dirty []place
	args  []byte // of the last launch
}

// A place is a page of an allocation.
type place struct {
	a    *allocation
	page int
}

// NewDevice returns a device whose random decisions come from a seed.
func NewDevice(seed uint64) *Device {
	return &Device{Resident: 3, rng: rand.New(rand.NewPCG(seed, 0x70747874657374))}
}

// Steps returns how many instructions warps have run.
func (d *Device) Steps() int64 { return d.steps }

// A Fault is what a kernel did wrong.
type Fault struct {
	Kernel string
	Line   int // of the PTX
	Text   string
	Block  [3]int
	Thread int
	What   string
}

func (f *Fault) Error() string {
	return fmt.Sprintf("%s, line %d, block (%d,%d,%d), thread %d: %s: %s", f.Kernel, f.Line, f.Block[0], f.Block[1], f.Block[2], f.Thread, f.Text, f.What)
}

// A clock says how much of other blocks is visible: of a block, the epochs before one; of a thread,
// under ownKey, those up to and with one.
type clock map[int]int

func ownKey(block, tid int) int { return -1 - (block<<tidBits | tid) }

func (c clock) covers(s stamp) bool {
	return len(c) > 0 && (s.epoch() < c[s.block()] || s.epoch() < c[ownKey(s.block(), s.tid())])
}

func (c *clock) merge(o clock) {
	if len(o) > 0 && *c == nil {
		*c = clock{}
	}
	for b, e := range o {
		(*c)[b] = max((*c)[b], e)
	}
}

// A thread is what one lane has besides registers.
type thread struct {
	groups  [][]copy16 // committed
	open    []copy16   // not committed yet
	release clock      // what its last fence made visible
	heard   clock      // from atomic operations, for its next fence
	seen    clock
	waited  bool // for the kernels in front
}

// A copy16 is a copy to shared memory that is on its way.
type copy16 struct {
	to   int
	from uint64
	ok   bool
	done bool
}

// A warp is 32 threads.
type warp struct {
	b    *block
	k    *Kernel
	base int // its first thread

	r32                []([32]uint32)
	r64                []([32]uint64)
	pred               []uint32
	bad32, bad64, bad1 []uint32

	pc      [32]int
	alive   uint32
	blocked uint32 // lanes that wait for the rest of the warp
	waiting bool   // at a barrier
	at      int    // the instruction that runs
	threads [32]thread
}

// A block is one that runs.
type block struct {
	d      *Device
	k      *Kernel
	at     [3]int
	index  int
	grid   [3]int
	args   []byte
	mem    *allocation // shared, at offset 0
	warps  []*warp
	epoch  int
	seen   clock
	launch *launch

	stores []pending      // that other blocks cannot see yet
	stored map[uint64]int // their places, by address
}

// A pending store has some bytes of a word.
type pending struct {
	at   uint64
	data [4]byte
	mask uint8
	bad  uint8 // bytes that are poison
}

type launch struct {
	tickets map[uint64]clock // what atomic operations at an address make visible
}

// Launch runs a kernel, of which every thread gets args, with blocks of n threads, once those in front have ended. Behind
// another kernel with griddepcontrol.wait, one that has it must be fit for [Device.LaunchBehind] nevertheless.
func (d *Device) Launch(k *Kernel, grid [3]int, n int, args []byte) error {
	if d.behind = k.waits && d.waits; !d.behind {
		d.chain++
	}
	return d.run(k, grid, n, args)
}

// LaunchBehind runs a kernel that may begin before those in front have ended (programmatic dependent launch), back to the last one
// that may not. The kernel runs here when they have ended, but what it does before griddepcontrol.wait would be the same at any time
// since that one began: it is a fault if a thread stores to global memory, or loads what one of them stores, before it has waited, or if
// it ends without having waited, for then those behind would not know that all in front have ended.
func (d *Device) LaunchBehind(k *Kernel, grid [3]int, n int, args []byte) error {
	d.behind = true
	return d.run(k, grid, n, args)
}

func (d *Device) run(k *Kernel, grid [3]int, n int, args []byte) (err error) {
	blocks := grid[0] * grid[1] * grid[2]
	switch {
	case n != k.Threads:
		return fmt.Errorf("%s: blocks of %d threads, want %d", k.Name, n, k.Threads)
	case len(args) != k.Params:
		return fmt.Errorf("%s: %d bytes of arguments, want %d", k.Name, len(args), k.Params)
	case blocks < 1 || blocks >= 1<<blockBits || n >= 1<<tidBits:
		return fmt.Errorf("%s: a grid of %v", k.Name, grid)
	}
	defer func() {
		if r := recover(); r != nil {
			f, ok := r.(*Fault)
			if !ok {
				panic(r)
			}
			err = f
		}
	}()
	d.launch++
	d.waits = k.waits
	d.dirty, d.args = d.dirty[:0], args
	order := d.rng.Perm(blocks)
	l := &launch{tickets: map[uint64]clock{}}
	var running []*block
	for len(order) > 0 || len(running) > 0 {
		for len(running) < d.Resident && len(order) > 0 {
			running = append(running, d.block(l, k, grid, order[0], args))
			order = order[1:]
		}
		i := d.rng.IntN(len(running))
		b := running[i]
		if b.step() {
			b.flush(1)
			running = slices.Delete(running, i, i+1)
		}
	}
	return nil
}

func (d *Device) block(l *launch, k *Kernel, grid [3]int, i int, args []byte) *block {
	b := &block{
		d: d, k: k, grid: grid, index: i, args: args, launch: l,
		at:  [3]int{i % grid[0], i / grid[0] % grid[1], i / grid[0] / grid[1]},
		mem: newAllocation(0, make([]byte, k.bytes)), stored: map[uint64]int{},
	}
	for i := range b.mem.data {
		b.mem.data[i] = 0xff // NaN
	}
	for base := 0; base < k.Threads; base += 32 {
		w := &warp{
			b: b, k: k, base: base, alive: all,
			r32: make([][32]uint32, k.narrow), r64: make([][32]uint64, k.wide), pred: make([]uint32, k.preds),
			bad32: filled(k.narrow), bad64: filled(k.wide), bad1: filled(k.preds),
		}
		for r, v := range k.consts32 {
			w.constant(r, func(int) uint32 { return v })
		}
		for r, v := range k.consts64 {
			for l := range 32 {
				w.r64[r][l] = v
			}
			w.bad64[r] = 0
		}
		for r, name := range k.specials {
			w.constant(r, func(l int) uint32 {
				switch name {
				case "%tid.x":
					return uint32(base + l)
				case "%ctaid.x":
					return uint32(b.at[0])
				case "%ctaid.y":
					return uint32(b.at[1])
				case "%ctaid.z":
					return uint32(b.at[2])
				}
				return uint32(grid[0])
			})
		}
		b.warps = append(b.warps, w)
	}
	return b
}

func filled(n int) []uint32 { // uninitialised registers are poison
	return slices.Repeat([]uint32{all}, n)
}

func (w *warp) constant(r int, f func(l int) uint32) {
	for l := range 32 {
		w.r32[r][l] = f(l)
	}
	w.bad32[r] = 0
}

// step lets a warp run for a while. It reports whether the block has ended.
func (b *block) step() bool {
	var ready []*warp
	ended := 0
	for _, w := range b.warps {
		switch {
		case w.alive == 0:
			ended++
		case !w.waiting:
			ready = append(ready, w)
		}
	}
	if len(ready) == 0 {
		if ended == len(b.warps) {
			return true
		}
		for _, w := range b.warps {
			if w.alive != all { // all of it has ended
				w.fault(b.barrier(), all, "other threads wait at a barrier that this one does not reach")
			}
		}
		b.epoch++
		if b.epoch >= 1<<epochBits {
			panic(fmt.Sprintf("ptxtest: %s has more than %d barriers", b.k.Name, 1<<epochBits))
		}
		for _, w := range b.warps {
			w.waiting, w.blocked = false, 0
			for l := range w.threads {
				w.pc[l]++
				b.seen.merge(w.threads[l].seen)
			}
		}
		return false
	}
	w := ready[b.d.rng.IntN(len(ready))]
	b.arrive(w)
	if len(b.stores) > 0 {
		b.flush(0.1)
	}
	w.run(1 << b.d.rng.IntN(10))
	return false
}

// barrier returns where a warp waits.
func (b *block) barrier() int {
	i := slices.IndexFunc(b.warps, func(w *warp) bool { return w.waiting })
	return b.warps[i].pc[0]
}

// flush makes some of a block's stores visible to others.
func (b *block) flush(part float64) {
	for i := 0; i < len(b.stores); {
		if part < 1 && b.d.rng.Float64() >= part {
			i++
			continue
		}
		b.publish(i)
	}
}

func (b *block) publish(i int) {
	p := &b.stores[i]
	a, off := b.d.find(p.at, 1)
	b.d.keep(a, off)
	for j := range 4 {
		if p.mask>>j&1 != 0 {
			a.data[off+j] = p.data[j]
			a.set(off+j, 1, p.bad>>j&1 == 0)
		}
	}
	delete(b.stored, p.at)
	last := len(b.stores) - 1
	if i < last {
		b.stores[i] = b.stores[last]
		b.stored[b.stores[i].at] = i
	}
	b.stores = b.stores[:last]
}

// arrive lets some of a warp's copies land.
func (b *block) arrive(w *warp) {
	some := func(g []copy16) {
		for i := range g {
			if !g[i].done && b.d.rng.IntN(4) == 0 {
				b.land(&g[i])
			}
		}
	}
	for l := range w.threads {
		for _, g := range w.threads[l].groups {
			some(g)
		}
		some(w.threads[l].open)
	}
}

func (b *block) land(c *copy16) {
	c.done = true
	to := b.mem
	if !c.ok {
		clear(to.data[c.to : c.to+16])
		to.set(c.to, 16, true)
		return
	}
	a, off := b.d.find(c.from, 16)
	copy(to.data[c.to:], a.data[off:off+16])
	for i := range 16 {
		to.set(c.to+i, 1, a.has(off+i, 1))
	}
}

// fault ends the launch on behalf of the first lane in mask.
func (w *warp) fault(pc int, mask uint32, format string, args ...any) {
	f := &Fault{Kernel: w.k.Name, Block: w.b.at, Thread: w.base + bits.TrailingZeros32(mask)&31, What: fmt.Sprintf(format, args...)}
	if pc < len(w.k.code) {
		f.Line, f.Text = w.k.code[pc].line, w.k.code[pc].text
	}
	panic(f)
}

// run executes about n instructions. Of lanes at different places those farthest behind
// usually go first, so that they meet the others again.
func (w *warp) run(n int) {
	d := w.b.d
	for n > 0 && w.alive != 0 && !w.waiting {
		ready := w.alive &^ w.blocked
		if ready == 0 {
			w.fault(w.pc[bits.TrailingZeros32(w.blocked)&31], w.blocked, "only lanes %#x of the warp get here", w.blocked)
		}
		pc, stop := w.group(ready)
		mask := uint32(0)
		for m := ready; m != 0; m &= m - 1 {
			if l := bits.TrailingZeros32(m) & 31; w.pc[l] == pc {
				mask |= 1 << l
			}
		}
		left := w.straight(pc, stop, mask, n)
		d.steps += int64(n - left)
		n = left
	}
}

// group returns where the lanes are that run next, and where others wait for them.
func (w *warp) group(ready uint32) (pc, stop int) {
	pc, stop = len(w.k.code), len(w.k.code)
	for m := ready; m != 0; m &= m - 1 {
		pc = min(pc, w.pc[bits.TrailingZeros32(m)&31])
	}
	if w.b.d.rng.IntN(64) == 0 {
		pc = w.pc[w.pick(ready)]
	}
	for m := w.alive; m != 0; m &= m - 1 {
		if p := w.pc[bits.TrailingZeros32(m)&31]; p > pc {
			stop = min(stop, p)
		}
	}
	return pc, stop
}

func (w *warp) pick(mask uint32) int {
	for range w.b.d.rng.IntN(bits.OnesCount32(mask)) {
		mask &= mask - 1
	}
	return bits.TrailingZeros32(mask) & 31
}

// straight executes instructions of lanes in mask until they part, or stop, or n have run. It moves
// the lanes and returns what is left of n.
func (w *warp) straight(pc, stop int, mask uint32, n int) int {
	for n > 0 && pc != stop {
		if pc >= len(w.k.code) {
			w.fault(pc, mask, "the kernel ends without ret")
		}
		in := &w.k.code[pc]
		n--
		on := mask
		if in.guard >= 0 {
			if bad := w.bad1[in.guard] & mask; bad != 0 {
				w.fault(pc, bad, "the predicate comes from uninitialised memory")
			}
			if in.not {
				on &^= w.pred[in.guard]
			} else {
				on &= w.pred[in.guard]
			}
		}
		switch in.kind {
		case plain:
			if on != 0 {
				w.at = pc
				in.run(w, in, on)
			}
			pc++
			continue
		case branch:
			switch on {
			case 0:
				pc++
				continue
			case mask:
				if stop == len(w.k.code) && mask == w.alive {
					pc = in.n // nobody else is anywhere
					continue
				}
				w.move(mask, in.n)
				return n
			}
			w.move(on, in.n)
			w.move(mask&^on, pc+1)
			return n
		case exit:
			if w.b.d.behind {
				for m := on; m != 0; m &= m - 1 {
					if l := bits.TrailingZeros32(m) & 31; !w.threads[l].waited {
						w.fault(pc, 1<<l, "it ends without having waited for the kernels in front")
					}
				}
			}
			w.alive &^= on
			w.move(mask&^on, pc+1)
			return n
		case whole, barrier:
			if on == 0 {
				pc++
				continue
			}
			if on != mask || mask != all {
				// The rest may come yet, unless it has ended.
				if in.guard >= 0 || w.alive != all {
					w.fault(pc, on, "only lanes %#x of the warp get here", on)
				}
				w.move(mask, pc)
				w.blocked |= mask
				if w.together(pc) {
					w.blocked = 0
					mask, stop = all, len(w.k.code)
				} else {
					return n
				}
			}
			if in.kind == barrier {
				w.move(all, pc)
				w.waiting = true
				return n
			}
			w.at = pc
			in.run(w, in, all)
			pc++
		}
	}
	w.move(mask, pc)
	return n
}

// together reports whether all lanes are blocked at one place.
func (w *warp) together(pc int) bool {
	if w.blocked != all {
		return false
	}
	for _, p := range w.pc {
		if p != pc {
			return false
		}
	}
	return true
}

func (w *warp) move(mask uint32, pc int) {
	for m := mask; m != 0; m &= m - 1 {
		w.pc[bits.TrailingZeros32(m)&31] = pc
	}
}

// keep saves what a launch is about to overwrite, if it may be undone.
func (d *Device) keep(a *allocation, off int) {
	if !d.Keep {
		return
	}
	p := a.page(off, d.launch)
	if p.old != nil {
		return
	}
	i := off / (4 * pageWords)
	p.old = append([]byte{}, a.data[i*4*pageWords:min((i+1)*4*pageWords, len(a.data))]...)
	d.dirty = append(d.dirty, place{a, i})
}

// Compare runs again, which repeats the last launch in another way on the memory as it was before, and returns
// an error unless the results are equal, bit for bit. NaNs are equal, and uninitialised bytes are ignored.
// What again alone stores is found in allocations that the launch's arguments point to.
func (d *Device) Compare(k *Kernel, again func()) error {
	pages := append(slices.Clone(d.dirty), d.untouched()...)
	results := make([][]byte, len(pages))
	for i, p := range pages {
		data := p.a.data[p.page*4*pageWords:]
		results[i] = slices.Clone(data[:min(4*pageWords, len(data))])
		if i < len(d.dirty) {
			copy(data, p.a.pages[p.page].old)
		}
	}
	again()
	for i, p := range pages {
		from := p.page * 4 * pageWords
		data := p.a.data[from:]
		if bytes.Equal(data[:len(results[i])], results[i]) {
			continue
		}
		for j := range results[i] {
			if data[j] == results[i][j] || !p.a.has(from+j, 1) {
				continue
			}
			if w := j &^ 3; w+4 <= len(results[i]) {
				got, want := f32(order.Uint32(results[i][w:])), f32(order.Uint32(data[w:]))
				if got != got && want != want {
					continue
				}
				return fmt.Errorf("%s: byte %d of an allocation of %d bytes: %#x, a float of %g, want %#x, %g",
					k.Name, from+j, len(p.a.data), order.Uint32(results[i][w:]), got, order.Uint32(data[w:]), want)
			}
			return fmt.Errorf("%s: byte %d of an allocation of %d bytes: %d, want %d", k.Name, from+j, len(p.a.data), results[i][j], data[j])
		}
	}
	return nil
}

// untouched are the pages to which the last launch stored nothing, though its arguments point to their allocations.
// Pages without a written byte are left out.
func (d *Device) untouched() (out []place) {
	seen := map[*allocation]bool{nil: true}
	for at := 0; at+8 <= len(d.args); at += 8 {
		a, _ := d.find(order.Uint64(d.args[at:]), 1)
		if seen[a] {
			continue
		}
		seen[a] = true
		for i, p := range a.pages {
			if stored := p != nil && p.launch == d.launch && p.old != nil; !stored && a.hasSome(i) {
				out = append(out, place{a, i})
			}
		}
	}
	return out
}
