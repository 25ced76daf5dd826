package cpu

import (
	"fmt"
	"runtime"

	"talf/compute"
	"talf/compute/cpu/kern"
)

// block is the number of positions in a KV block, which is one panel of keys.
const block = compute.BlockLen

// A kvStore keeps, for each (block, layer, kvHead), keys [headDim][32] followed
// by values [⌈valueDim/32⌉][32 positions][32], or in bfloat16 keys
// [headDim/2][32][2] and values [⌈valueDim/32⌉][16][32][2]: pairs of what products
// run over, as kern's bfloat16 panels have them. Values that are parts of keys are kept
// beside them, in the order that their products read.
type kvStore struct {
	c      compute.KVConfig
	unit   int // elements of one (block, layer, kvHead)
	val    int // where its values begin
	per    int // blocks of a chunk
	blocks int
	dev    *Device
	chunks [][]float32
	halves [][]uint16 // instead of chunks, if bfloat16
	mem    []*share   // that hold them
}

// NewKV returns an empty store of F32 or BF16.
func (d *Device) NewKV(c compute.KVConfig) (compute.KV, error) {
	if c.Layers < 1 || c.KVHeads < 1 || c.HeadDim < 2 || c.HeadDim%2 != 0 {
		return nil, fmt.Errorf("cpu: KV of %d layers, %d heads of %d", c.Layers, c.KVHeads, c.HeadDim)
	}
	if c.Latent < 0 || c.Latent > c.HeadDim {
		return nil, fmt.Errorf("cpu: KV with values of %d elements of keys of %d", c.Latent, c.HeadDim)
	}
	if c.Type != compute.F32 && c.Type != compute.BF16 {
		return nil, fmt.Errorf("cpu: KV of %v, want F32 or BF16", c.Type)
	}
	kv := &kvStore{c: c, val: c.HeadDim * block, unit: unitOf(c), dev: d}
	// About a million elements and at least one block: memory grows with use and never
	// moves.
	const chunk = 1 << 20
	kv.per = max(1, chunk/(kv.unit*c.Layers*c.KVHeads))
	return kv, nil
}

// unitOf returns the elements of one (block, layer, kvHead).
func unitOf(c compute.KVConfig) int { return c.HeadDim*block + panels(c.ValueDim())*block*panel }

func (kv *kvStore) Config() compute.KVConfig { return kv.c }
func (kv *kvStore) Blocks() int              { return kv.blocks }

// Grow makes at least this many blocks available. Existing blocks do not move.
func (kv *kvStore) Grow(blocks int) error {
	if blocks < 0 || blocks > maxElements/(kv.unit*kv.c.Layers*kv.c.KVHeads) {
		return fmt.Errorf("cpu: grow KV to %d blocks", blocks)
	}
	for kv.blocks < blocks {
		n := kv.per * kv.c.Layers * kv.c.KVHeads * kv.unit
		var mem *share
		if kv.c.Type == compute.BF16 {
			var h []uint16
			h, mem = hugeAlloc[uint16](&kv.dev.mem, n)
			kv.halves = append(kv.halves, h)
		} else {
			var f []float32
			f, mem = hugeAlloc[float32](&kv.dev.mem, n)
			kv.chunks = append(kv.chunks, f)
		}
		kv.mem = append(kv.mem, mem)
		kv.blocks += kv.per
	}
	return nil
}

// Chunk returns the number of blocks of a chunk.
func (d *Device) Chunk(kv compute.KV) int { return kvOf("Chunk", kv).per }

// Release gives the memory of a chunk back to the system. Its blocks read as zeros until they are
// written.
func (d *Device) Release(kv compute.KV, chunk int) {
	s := kvOf("Release", kv)
	switch {
	case chunk*s.per >= s.blocks || s.mem[chunk] == nil: // small chunks belong to the Go heap
	case s.c.Type == compute.BF16:
		discard(s.halves[chunk])
	default:
		discard(s.chunks[chunk])
	}
}

// A kvUnit is the keys and values of one (block, layer, kvHead), in one of two
// types.
type kvUnit struct {
	f []float32
	h []uint16
}

// at returns the keys and values of one (block, layer, kvHead).
func (kv *kvStore) at(b, layer, head int) kvUnit {
	i := ((b%kv.per*kv.c.Layers+layer)*kv.c.KVHeads + head) * kv.unit
	if kv.c.Type == compute.BF16 {
		return kvUnit{h: kv.halves[b/kv.per][i:][:kv.unit]}
	}
	return kvUnit{f: kv.chunks[b/kv.per][i:][:kv.unit]}
}

// keys returns the keys of a block and values its values, for prefetching.
func (kv *kvStore) keys(u kvUnit) kvUnit { return u.from(0, kv.val) }

func (kv *kvStore) vals(u kvUnit) kvUnit { return u.from(kv.val, kv.unit) }

// from returns elements [i,j), or none if there is no unit.
func (u kvUnit) from(i, j int) kvUnit {
	if u.h != nil {
		return kvUnit{h: u.h[i:j]}
	}
	if u.f != nil {
		return kvUnit{f: u.f[i:j]}
	}
	return u
}

// scores multiplies rows of queries q [rows][headDim] by the 32 keys from offset
// off on, into s, whose rows are ld apart. It prefetches next, which is as long as the
// keys of a block or empty.
func (kv *kvStore) scores(w *worker, s []float32, ld int, q []float32, u kvUnit, off, rows int, next kvUnit) {
	hd := kv.c.HeadDim
	if u.h != nil {
		w.k.GemmBF16Next(s, ld, q, hd, 1, u.h[2*off:], rows, hd, false, next.h)
		return
	}
	w.k.GemmNext(s, ld, q, hd, 1, u.f[off:], rows, hd, false, next.f)
}

// values adds the values of n positions from off on, weighted by s, to o
// [rows][hp]. In bfloat16, off is even. It prefetches n positions of next, which is the
// values of a block or empty.
func (kv *kvStore) values(w *worker, o []float32, hp int, s []float32, ld int, u kvUnit, off, rows, n int, acc bool, next kvUnit) {
	for c := 0; c < hp; c += panel {
		v := c*block + off*panel
		if u.h != nil {
			w.k.GemmBF16Next(o[c:], hp, s, ld, 1, u.h[kv.val+v:], rows, n, acc, next.h[min(v, len(next.h)):])
		} else {
			w.k.GemmNext(o[c:], hp, s, ld, 1, u.f[kv.val+v:], rows, n, acc, next.f[min(v, len(next.f)):])
		}
	}
}

func kvOf(op string, kv compute.KV) *kvStore {
	s, ok := kv.(*kvStore)
	if !ok {
		panic("cpu: " + op + ": a KV of another device")
	}
	return s
}

func (kv *kvStore) checkSlot(op string, slot int32) {
	if slot < 0 || int(slot) >= kv.blocks*block {
		panic(fmt.Sprintf("cpu: %s: slot %d of %d blocks", op, slot, kv.blocks))
	}
}

// put writes keys and values of m positions from slot off of a block on. Row i's key is at
// x[i·ld:], its value gap elements after it.
func (kv *kvStore) put(u kvUnit, off, m int, x []float32, ld, gap int) {
	hd := kv.c.HeadDim
	if u.h != nil {
		kv.putHalf(u.h, off, m, x, ld, gap)
		return
	}
	// Row by row, each element of a key would go to a different cache line.
	for d := range hd {
		line := u.f[d*block+off:][:m]
		for i := range line {
			line[i] = x[i*ld+d]
		}
	}
	vd := kv.c.ValueDim()
	for i := range m {
		v := x[i*ld+gap:][:vd]
		for d := 0; d < vd; d += panel {
			copy(u.f[kv.val+d*block+(off+i)*panel:][:panel], v[d:])
		}
	}
}

func (kv *kvStore) putHalf(h []uint16, off, m int, x []float32, ld, gap int) {
	hd := kv.c.HeadDim
	for d := 0; d < hd; d += 2 {
		line := h[d*block+2*off:][:2*m]
		for i := range m {
			line[2*i], line[2*i+1] = kern.BF16(x[i*ld+d]), kern.BF16(x[i*ld+d+1])
		}
	}
	for i := range m {
		for d, v := range x[i*ld+gap:][:kv.c.ValueDim()] {
			h[kv.valueAt(off+i, d)] = kern.BF16(v)
		}
	}
}

// valueAt returns the place of element d of the value at offset off in bfloat16.
func (kv *kvStore) valueAt(off, d int) int {
	return kv.val + d/panel*panel*block + (off/2*panel+d%panel)*2 + off%2
}

// move copies the key and the value at offset f of u to offset to of dst.
func (kv *kvStore) move(dst kvUnit, to int, u kvUnit, f int) {
	hd := kv.c.HeadDim
	if u.h != nil {
		for d := 0; d < hd; d += 2 {
			copy(dst.h[d*block+2*to:][:2], u.h[d*block+2*f:][:2])
		}
		for d := range kv.c.ValueDim() {
			dst.h[kv.valueAt(to, d)] = u.h[kv.valueAt(f, d)]
		}
		return
	}
	for d := range hd {
		dst.f[d*block+to] = u.f[d*block+f]
	}
	for v := kv.val; v < kv.unit; v += block * panel {
		copy(dst.f[v+to*panel:][:panel], u.f[v+f*panel:][:panel])
	}
}

// A prepareTask prepares queries and keys from a projection and stores keys and values. A part
// is one KV head with its queries, and at most prepareRows rows.
type prepareTask struct {
	qkv, rope []float32
	rot       int // rotated elements of a head
	qn, kn    normRow
	kv        *kvStore
	layer, h  int
	s         *compute.Step
}

const prepareRows = 64

func (t *prepareTask) parts() int { return parts(t.s.Rows, prepareRows) * t.kv.c.KVHeads }

func (t *prepareTask) run(w *worker, part int) {
	r := part / t.kv.c.KVHeads * prepareRows
	t.head(w, part%t.kv.c.KVHeads, r, min(r+prepareRows, t.s.Rows))
}

// head prepares rows [r0,r1) for one KV head.
func (t *prepareTask) head(w *worker, head, r0, r1 int) {
	hd, kvh := t.kv.c.HeadDim, t.kv.c.KVHeads
	g, ld := t.h/kvh, t.kv.c.Projection(t.h)
	key, gap := (t.h+head)*hd, kvh*hd
	if l := t.kv.c.Latent; l != 0 {
		gap = hd - l
	}
	for r := r0; r < r1; r++ {
		x := t.qkv[r*ld:][:ld]
		angles := t.rope[int(t.s.Pos[r])*t.rot:][:t.rot]
		turn := func(x []float32, n *normRow) {
			if n.weight != nil {
				n.run(w, x, x)
			}
			w.k.Rope(x[:t.rot], angles[:t.rot/2], angles[t.rot/2:])
		}
		for h := head * g; h < (head+1)*g; h++ {
			turn(x[h*hd:][:hd], &t.qn)
		}
		turn(x[key:][:hd], &t.kn)
	}
	for r := r0; r < r1; {
		slot, n := int(t.s.Slot[r]), 1
		for r+n < r1 && int(t.s.Slot[r+n]) == slot+n && (slot+n)%block != 0 {
			n++
		}
		t.kv.put(t.kv.at(slot/block, t.layer, head), slot%block, n, t.qkv[r*ld+key:], ld, gap)
		r += n
	}
}

// prepare returns the task that normalises and rotates queries and keys, and
// stores keys and values.
func (q *Queue) prepare(qkv compute.Buffer, kv compute.KV, layer int, a *compute.Attention, s *compute.Step) *prepareTask {
	const op = "Attend"
	st := kvOf(op, kv)
	hd := st.c.HeadDim
	ld := st.c.Projection(s.Heads)
	if a.RotDim < 0 || a.RotDim > hd || a.RotDim%2 != 0 {
		panic(fmt.Sprintf("cpu: %s: %d of %d elements of a head are rotated", op, a.RotDim, hd))
	}
	t := &q.rope
	*t = prepareTask{
		qkv: f32(op, qkv, s.Rows*ld), rope: f32(op, a.Rope, 0), rot: a.RotDim, kv: st, layer: layer, h: s.Heads, s: s,
	}
	if a.QNorm != nil {
		t.qn = normOf(op, a.QNorm, hd)
	}
	if a.KNorm != nil {
		t.kn = normOf(op, a.KNorm, hd)
	}
	check(len(s.Pos) >= s.Rows && len(s.Slot) >= s.Rows, op, "the shorter of Pos and Slot", min(len(s.Pos), len(s.Slot)), s.Rows)
	if layer < 0 || layer >= st.c.Layers {
		panic(fmt.Sprintf("cpu: %s: layer %d of %d", op, layer, st.c.Layers))
	}
	for r := range s.Rows {
		st.checkSlot(op, s.Slot[r])
		if p := s.Pos[r]; p < 0 || (int(p)+1)*t.rot > len(t.rope) {
			panic(fmt.Sprintf("cpu: %s: position %d, the table has %d", op, p, len(t.rope)/max(1, t.rot)))
		}
	}
	return t
}

// moveTask copies slots in one (layer, kvHead) per part.
type moveTask struct {
	kv       *kvStore
	dst, src []int32
}

func (t *moveTask) run(_ *worker, part int) {
	layer, head := part/t.kv.c.KVHeads, part%t.kv.c.KVHeads
	for i, s := range t.src {
		d := int(t.dst[i])
		t.kv.move(t.kv.at(d/block, layer, head), d%block, t.kv.at(int(s)/block, layer, head), int(s)%block)
	}
}

// MoveKV copies slots in every layer, in order.
func (q *Queue) MoveKV(kv compute.KV, dst, src []int32) {
	st := kvOf("MoveKV", kv)
	check(len(dst) == len(src), "MoveKV", "len(dst)", len(dst), len(src))
	for i := range src {
		st.checkSlot("MoveKV", src[i])
		st.checkSlot("MoveKV", dst[i])
	}
	t := &q.move
	*t = moveTask{kv: st, dst: dst, src: src}
	n := st.c.Layers * st.c.KVHeads
	if len(src)*st.c.HeadDim*n < 1<<13 {
		for i := range n {
			t.run(nil, i)
		}
	} else {
		q.run(t, n)
	}
	runtime.KeepAlive(kv)
}
