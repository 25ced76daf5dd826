package ptxtest

import (
	"math/bits"
)

// inVariable returns what is wrong unless n bytes at an offset are one shared variable's.
func (w *warp) inVariable(at uint64, n int) string {
	for _, v := range w.k.shared {
		if at >= uint64(v.at) && at+uint64(n) <= uint64(v.at+v.size) {
			return ""
		}
	}
	for _, v := range w.k.shared {
		if end := uint64(v.at + v.size); at+uint64(n) > end && at < end+gap && at >= uint64(v.at) {
			return "beyond the end of shared variable " + v.name
		}
	}
	return "outside of shared variables"
}

// locate returns the memory of one lane's access of n bytes, after all checks.
func (w *warp) locate(in *instruction, l int, at uint64, n int, write bool, flags stamp) (*allocation, int) {
	lane := uint32(1) << l
	what := "load"
	if write {
		what = "store"
	}
	if at%uint64(n) != 0 {
		w.fault(w.at, lane, "%s of %d bytes at %#x, which is no multiple of that", what, n, at)
	}
	var a *allocation
	var off int
	if in.space == shared {
		if bad := w.inVariable(at, n); bad != "" {
			w.fault(w.at, lane, "%s of %d bytes at offset %#x of shared memory, %s", what, n, at, bad)
		}
		a, off = w.b.mem, int(at)
	} else if a, off = w.b.d.find(at, n); a == nil {
		w.fault(w.at, lane, "%s of %d bytes at %#x: %s", what, n, at, w.b.d.near(at))
	}
	w.order(a, off, n, l, write, flags)
	return a, off
}

// order records an access of n bytes and looks for others that it has no order with.
func (w *warp) order(a *allocation, off, n, l int, write bool, flags stamp) {
	x := access{me: newStamp(w.b.index, w.base+l, w.b.epoch) | flags, block: w.b, lane: &w.threads[l]}
	if a != w.b.mem {
		w.early(a, off, n, l, write)
	}
	p := a.page(off, w.b.d.launch)
	i := off / 4 % pageWords
	if n < 4 {
		if c := x.touch(&p.words[i], (1<<n-1)<<(off&3), write); c != nil {
			w.race(l, off, c)
		}
		return
	}
	for j := range n / 4 { // aligned to n, which divides a page
		if c := x.touch(&p.words[i+j], 15, write); c != nil {
			w.race(l, off+4*j, c)
		}
	}
}

// early records a store to global memory, and looks for accesses that have to wait for the kernels in front.
func (w *warp) early(a *allocation, off, n, l int, write bool) {
	d := w.b.d
	before := d.behind && !w.threads[l].waited
	switch {
	case before && write:
		w.fault(w.at, 1<<l, "byte %d of an allocation: a store before the wait for the kernels in front", off)
	case write:
		a.page(off, d.launch).mark(off, n, d.chain)
	case before && a.page(off, d.launch).marked(off, n, d.chain):
		w.fault(w.at, 1<<l, "byte %d of an allocation: a load before the wait for the kernels in front, of which one stores to it", off)
	}
}

// waitForGrids waits for the kernels in front (griddepcontrol.wait).
func (w *warp) waitForGrids(_ *instruction, mask uint32) {
	for m := mask; m != 0; m &= m - 1 {
		w.threads[bits.TrailingZeros32(m)&31].waited = true
	}
}

// prefetch does nothing, but what it names must be there.
func (w *warp) prefetch(in *instruction, mask uint32) {
	at := w.addresses(in, mask)
	for m := mask; m != 0; m &= m - 1 {
		l := bits.TrailingZeros32(m) & 31
		if a, _ := w.b.d.find(at[l], 1); a == nil {
			w.fault(w.at, 1<<l, "prefetch at %#x: %s", at[l], w.b.d.near(at[l]))
		}
	}
}

func (w *warp) race(l, off int, c *conflict) {
	w.fault(w.at, 1<<l, "byte %d of an allocation or of shared memory: %s, by %s", off, c.what, c.other)
}

// addresses returns those of the lanes in mask.
func (w *warp) addresses(in *instruction, mask uint32) *[32]uint64 {
	a := in.args[0]
	if bad := w.bad64[a.reg] & mask; bad != 0 {
		w.fault(w.at, bad, "the address comes from uninitialised memory")
	}
	at := w.r64[a.reg]
	for l := range at {
		at[l] += uint64(a.off)
	}
	return &at
}

func (w *warp) load(in *instruction, mask uint32) {
	at := w.addresses(in, mask)
	flags := stamp(0)
	if in.cache == "nc" {
		flags = readOnly
	}
	n := in.size * in.n
	var poison [4]uint32
	for m := mask; m != 0; m &= m - 1 {
		l := bits.TrailingZeros32(m) & 31
		a, off := w.locate(in, l, at[l], n, false, flags)
		for e := range in.n {
			v, ok := a.load(off+e*in.size, in.size), a.has(off+e*in.size, in.size)
			if len(w.b.stores) > 0 && in.space == global {
				v, ok = w.b.latest(a, off+e*in.size, in.size, v, ok)
			}
			if in.sign {
				shift := 64 - 8*in.size
				v = uint64(int64(v<<shift) >> shift)
			}
			if in.wide {
				w.r64[in.args[1+e].reg][l] = v
			} else {
				w.r32[in.args[1+e].reg][l] = uint32(v)
			}
			if !ok {
				poison[e] |= 1 << l
			}
		}
	}
	for e := range in.n {
		if in.wide {
			w.set64(in.args[1+e].reg, poison[e], mask)
		} else {
			w.set32(in.args[1+e].reg, poison[e], mask)
		}
	}
}

// latest returns what the block itself sees of size bytes.
func (b *block) latest(a *allocation, off, size int, v uint64, ok bool) (uint64, bool) {
	at := a.at + uint64(off)
	changed := false
	for i := range uint64(size) {
		if _, is := b.stored[(at+i)&^3]; is {
			changed = true
		}
	}
	if !changed {
		return v, ok
	}
	ok = true
	for i := range size {
		j, is := b.stored[(at+uint64(i))&^3]
		k := (at + uint64(i)) & 3
		if is && b.stores[j].mask>>k&1 != 0 {
			v = v&^(0xff<<(8*i)) | uint64(b.stores[j].data[k])<<(8*i)
			ok = ok && b.stores[j].bad>>k&1 == 0
		} else {
			ok = ok && a.has(off+i, 1)
		}
	}
	return v, ok
}

func (w *warp) store(in *instruction, mask uint32) {
	at := w.addresses(in, mask)
	n := in.size * in.n
	for m := mask; m != 0; m &= m - 1 {
		l := bits.TrailingZeros32(m) & 31
		a, off := w.locate(in, l, at[l], n, true, 0)
		for e := range in.n {
			var v uint64
			var bad bool
			if r := in.args[1+e].reg; in.wide {
				v, bad = w.r64[r][l], w.bad64[r]>>l&1 != 0
			} else {
				v, bad = uint64(w.r32[r][l]), w.bad32[r]>>l&1 != 0
			}
			if in.space == global && w.k.atoms {
				w.b.delay(at[l]+uint64(e*in.size), in.size, v, bad)
				continue
			}
			if in.space == global {
				w.b.d.keep(a, off)
			}
			a.store(off+e*in.size, in.size, v)
			a.set(off+e*in.size, in.size, !bad)
		}
	}
}

// delay keeps a store from other blocks.
func (b *block) delay(at uint64, size int, v uint64, bad bool) {
	for i := range size {
		word, k := (at+uint64(i))&^3, (at+uint64(i))&3
		j, ok := b.stored[word]
		if !ok {
			j = len(b.stores)
			b.stored[word] = j
			b.stores = append(b.stores, pending{at: word})
		}
		p := &b.stores[j]
		p.data[k] = byte(v >> (8 * i))
		p.mask |= 1 << k
		p.bad &^= 1 << k
		if bad {
			p.bad |= 1 << k
		}
	}
}

func (w *warp) loadParam(in *instruction, mask uint32) {
	at := w.addresses(in, mask)
	r := in.args[1].reg
	for m := mask; m != 0; m &= m - 1 {
		l := bits.TrailingZeros32(m) & 31
		off := at[l] - paramBase
		if at[l] < paramBase || off+uint64(in.size) > uint64(len(w.b.args)) || off%uint64(in.size) != 0 || in.n != 1 {
			w.fault(w.at, 1<<l, "load of %d bytes at offset %d of %d of parameters", in.size, off, len(w.b.args))
		}
		if in.wide {
			w.r64[r][l] = order.Uint64(w.b.args[off:])
		} else {
			w.r32[r][l] = order.Uint32(w.b.args[off:])
		}
	}
	if in.wide {
		w.set64(r, 0, mask)
	} else {
		w.set32(r, 0, mask)
	}
}

// fence makes what the lanes know visible to those who hear of it, and what they heard visible to them.
// Stores of the same thread and epoch that come after the fence count as before it.
func (w *warp) fence(_ *instruction, mask uint32) {
	b := w.b
	b.flush(1)
	for m := mask; m != 0; m &= m - 1 {
		l := bits.TrailingZeros32(m) & 31
		t := &w.threads[l]
		t.seen.merge(t.heard)
		t.release = clock{b.index: b.epoch, ownKey(b.index, w.base+l): b.epoch + 1}
		t.release.merge(b.seen)
		t.release.merge(t.seen)
	}
}

func (w *warp) atomicAdd(in *instruction, mask uint32) {
	at := w.addresses(in, mask)
	d, v := in.args[1].reg, in.args[2].reg
	if bad := w.bad32[v] & mask; bad != 0 {
		w.fault(w.at, bad, "the number to be added comes from uninitialised memory")
	}
	for m := mask; m != 0; m &= m - 1 {
		l := bits.TrailingZeros32(m) & 31
		a, off := w.locate(in, l, at[l], 4, true, atomic)
		if i, ok := w.b.stored[at[l]]; ok {
			w.b.publish(i)
		}
		if !a.has(off, 4) {
			w.fault(w.at, 1<<l, "the memory that is added to is uninitialised")
		}
		w.b.d.keep(a, off)
		old := uint32(a.load(off, 4))
		a.store(off, 4, uint64(old+w.r32[v][l]))
		w.r32[d][l] = old
		t, ticket := &w.threads[l], w.b.launch.tickets[at[l]]
		t.heard.merge(ticket)
		ticket.merge(t.release)
		w.b.launch.tickets[at[l]] = ticket
	}
	w.set32(d, 0, mask)
}

// copyAsync begins copies of 16 bytes, or of zeros where the third operand is 0.
func (w *warp) copyAsync(in *instruction, mask uint32) {
	to, from, size := in.args[0], in.args[1], in.args[2].reg
	if bad := (w.bad32[to.reg] | w.bad32[size]) & mask; bad != 0 {
		w.fault(w.at, bad, "the address or the size comes from uninitialised memory")
	}
	for m := mask; m != 0; m &= m - 1 {
		l := bits.TrailingZeros32(m) & 31
		n := w.r32[size][l]
		if n != 0 && n != 16 {
			w.fault(w.at, 1<<l, "a copy of %d bytes", n)
		}
		c := copy16{to: int(w.r32[to.reg][l]) + int(to.off), from: w.r64[from.reg][l] + uint64(from.off), ok: n == 16}
		in := *in
		if c.ok {
			if w.bad64[from.reg]>>l&1 != 0 {
				w.fault(w.at, 1<<l, "the address comes from uninitialised memory")
			}
			in.space = global
			w.locate(&in, l, c.from, 16, false, 0)
		}
		in.space = shared
		w.locate(&in, l, uint64(c.to), 16, true, onItsWay)
		t := &w.threads[l]
		t.open = append(t.open, c)
		if w.b.d.rng.IntN(3) == 0 {
			w.b.land(&t.open[len(t.open)-1])
		}
	}
}

func (w *warp) commitCopies(_ *instruction, mask uint32) {
	for m := mask; m != 0; m &= m - 1 {
		t := &w.threads[bits.TrailingZeros32(m)&31]
		t.groups = append(t.groups, t.open)
		t.open = nil
	}
}

// waitCopies ends all but the last n groups. What they wrote is the thread's own store, now.
func (w *warp) waitCopies(in *instruction, mask uint32) {
	for m := mask; m != 0; m &= m - 1 {
		l := bits.TrailingZeros32(m) & 31
		t := &w.threads[l]
		for len(t.groups) > in.n {
			for i := range t.groups[0] {
				c := &t.groups[0][i]
				if !c.done {
					w.b.land(c)
				}
				p := w.b.mem.page(c.to, w.b.d.launch)
				for j := range 4 {
					p.words[c.to/4%pageWords+j].stored(newStamp(w.b.index, w.base+l, w.b.epoch))
				}
			}
			t.groups = t.groups[1:]
		}
	}
}

// shuffle exchanges values of lanes whose numbers differ by a mask (shfl.sync.bfly).
func (w *warp) shuffle(in *instruction, mask uint32) {
	d, a, b, c := in.args[0].reg, in.args[1].reg, in.args[2].reg, in.args[3].reg
	if bad := w.bad32[b] | w.bad32[c]; bad != 0 {
		w.fault(w.at, bad, "the lane comes from uninitialised memory")
	}
	from, poison := w.r32[a], uint32(0)
	for l := range uint32(32) {
		seg := w.r32[c][l] >> 8 & 31
		most := l&seg | w.r32[c][l]&31&^seg
		j := l ^ w.r32[b][l]&31
		if j > most {
			j = l
		}
		w.r32[d][l] = from[j]
		poison |= w.bad32[a] >> j & 1 << l
	}
	w.set32(d, poison, mask)
}
