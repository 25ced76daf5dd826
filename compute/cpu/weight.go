package cpu

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"talf/compute"
	"talf/compute/cpu/kern"
)

// A weight is a matrix in panels of 32 outputs, in one of four formats.
type weight struct {
	out, in int
	packed

	dots bool // with half: products are those of pairs, BF16DP

	// back is the transposed packing for gradients, in panels over inputs. It is built on first
	// use.
	once sync.Once
	back packed
}

// packed are the panels of a matrix. Exactly one of the first four is set.
type packed struct {
	panels []float32 // [⌈out/32⌉][in][32]
	half   []uint16  // kern's bfloat16 panels
	q8     []byte    // kern's q8 panels
	mixed  *mixed
	plain  bool   // packed as Stored: panels of floating-point numbers are multiplied by f32 rows
	mem    *share // that holds them, or nil
}

func (w *weight) Out() int { return w.out }
func (w *weight) In() int  { return w.in }

// Bytes returns the memory that a product reads.
func (w *weight) Bytes() int { return 4*len(w.panels) + 2*len(w.half) + len(w.q8) + w.mixed.bytes() }

// row widens output o to dst [in].
func (w *weight) row(dst []float32, o int) {
	switch {
	case w.half != nil:
		kern.UnpackBF16(dst, w.half, o)
	case w.q8 != nil:
		kern.UnpackQ8(dst, w.q8, o)
	case w.mixed != nil:
		w.mixed.row(dst, o)
	default:
		src := w.panels[o/panel*w.in*panel+o%panel:]
		for i := range dst {
			dst[i] = src[i*panel]
		}
	}
}

func weightOf(op string, w compute.Weight) *weight {
	p, ok := w.(*weight)
	if !ok {
		panic("cpu: " + op + ": a weight of another device")
	}
	return p
}

// Pack packs parts, stacked, as F32, BF16, BF16DP, Q8, Q4 or Stored.
func (d *Device) Pack(as compute.DType, parts ...compute.Matrix) (compute.Weight, error) {
	if len(parts) == 0 {
		return nil, fmt.Errorf("cpu: pack: no matrix")
	}
	w := &weight{in: parts[0].Cols}
	for i, m := range parts {
		if m.Rows < 1 || m.Cols < 1 || m.Cols != w.in {
			return nil, fmt.Errorf("cpu: pack: part %d is [%d][%d], the first [%d][%d]", i, m.Rows, m.Cols, parts[0].Rows, w.in)
		}
		size := m.Type.Size()
		switch m.Type {
		case compute.F32, compute.F16, compute.BF16:
		case compute.Blocks:
			if err := m.CheckBlocks(); err != nil {
				return nil, fmt.Errorf("cpu: pack: part %d: %w", i, err)
			}
			w.out += m.Rows
			continue
		case compute.Q8:
			size = 1
			if n := m.Rows * kern.Q8Blocks(m.Cols) * 2; len(m.Scales) != n {
				return nil, fmt.Errorf("cpu: pack: part %d has %d bytes of scales, want %d for Q8 [%d][%d]", i, len(m.Scales), n, m.Rows, m.Cols)
			}
		default:
			return nil, fmt.Errorf("cpu: pack: part %d is %v, want F32, F16, BF16, Q8 or blocks", i, m.Type)
		}
		if n, err := elements([]int{m.Rows, m.Cols}); err != nil || len(m.Data) != n*size {
			return nil, fmt.Errorf("cpu: pack: part %d has %d bytes, want %d for %v [%d][%d]",
				i, len(m.Data), n*size, m.Type, m.Rows, m.Cols)
		}
		w.out += m.Rows
	}
	var m *mixed
	if as == compute.Q4 || as == compute.Stored {
		m = plan(parts, as, w.out, w.in)
		w.plain = as == compute.Stored
		if t, ok := m.uniform(); ok {
			as = t
		}
	}
	switch as {
	case compute.F32:
		w.panels, w.mem = hugeAlloc[float32](&d.mem, kern.PanelLen(w.out, w.in))
	case compute.BF16, compute.BF16DP:
		w.dots = as == compute.BF16DP
		w.half, w.mem = hugeAlloc[uint16](&d.mem, kern.BF16Len(w.out, w.in))
	case compute.Q8:
		w.q8, w.mem = hugeAlloc[byte](&d.mem, kern.Q8Len(w.out, w.in))
	case compute.Q4, compute.Stored:
		w.mixed = m
		m.mem, w.mem = hugeAlloc[byte](&d.mem, m.bytes())
	default:
		return nil, fmt.Errorf("cpu: pack as %v: want F32, BF16, BF16DP, Q8, Q4 or Stored", as)
	}
	t := &packTask{dst: w.packed, parts: parts, out: w.out, in: w.in}
	d.pool.run(context.Background(), t, t.cut(len(d.pool.workers)))
	if err := t.ended.Load(); err != nil {
		return nil, *err
	}
	return w, nil
}

func panels(n int) int { return (n + kern.Panel - 1) / kern.Panel }

// packTask packs panels.
type packTask struct {
	dst     packed
	parts   []compute.Matrix
	out, in int
	group   int                   // panels of a part
	ended   atomic.Pointer[error] // of a part's Done: no more panels are packed
}

// packBytes is how many bytes are packed before Done is told: what it looks at is in the second level of the cache then, and
// giving fewer pages back at once takes longer.
const packBytes = 256 << 10

// cut divides the panels into parts for some workers and returns how many there are.
func (t *packTask) cut(workers int) int {
	n, size := panels(t.out), 0
	for i := range t.parts {
		size += len(t.parts[i].Data)
	}
	t.group = max(1, min(packBytes*n/max(size, 1), n/(4*workers)))
	return parts(n, t.group)
}

func (t *packTask) run(w *worker, part int) {
	if t.ended.Load() != nil {
		return
	}
	from, to := part*t.group, min((part+1)*t.group, panels(t.out))
	defer t.done(from*kern.Panel, min(to*kern.Panel, t.out))
	for p := from; p < to; p++ {
		t.pack(w, p)
	}
}

// pack packs a panel.
func (t *packTask) pack(w *worker, part int) {
	const step = 256 // a multiple of every format's block of k
	n := min(kern.Panel, t.out-part*kern.Panel)
	wide, half, q8 := t.panel(part)
	switch {
	case t.dst.mixed != nil && t.dst.mixed.layout[part].as == compute.Q4:
		t.packKept(w, part, n)
		return
	case t.dst.mixed != nil && t.dst.mixed.layout[part].as == compute.F16:
		t.packHalf(part, n)
		return
	case q8 != nil && t.stored():
		t.copyQ8(q8, part, n)
		return
	case q8 != nil && (t.dst.mixed != nil || t.inBlocks()):
		t.packBlocks(q8, w, part, n)
		return
	}
	if m, row := t.whole(part, n); m != nil && half != nil && m.Type == compute.BF16 {
		kern.PackBF16Stored(half, m.Data[row*t.in*2:], n, t.in)
		return
	}
	buf := w.buf(0, kern.Panel*step)
	for k := 0; k < t.in; k += step {
		s := min(step, t.in-k)
		t.each(part, n, func(j int, m *compute.Matrix, row int) { decode(buf[j*step:][:s], m, row, k) })
		// The packing kernels zero the rest of a last panel that is not full.
		switch {
		case wide != nil:
			kern.PackRows(wide[k*kern.Panel:][:s*kern.Panel], buf, n, s, step)
		case half != nil:
			kern.PackBF16(half[kern.BF16PanelLen(k):], buf, n, s, step)
		default:
			kern.PackQ8(q8[kern.Q8PanelLen(k):], buf, n, s, step)
		}
	}
}

// panel returns the memory of a panel that becomes f32, bfloat16 or q8.
func (t *packTask) panel(p int) (wide []float32, half []uint16, q8 []byte) {
	d := &t.dst
	switch {
	case d.panels != nil:
		return d.panels[p*t.in*kern.Panel:][:t.in*kern.Panel], nil, nil
	case d.half != nil:
		return nil, d.half[p*kern.BF16PanelLen(t.in):][:kern.BF16PanelLen(t.in)], nil
	case d.q8 != nil:
		return nil, nil, d.q8[p*kern.Q8PanelLen(t.in):][:kern.Q8PanelLen(t.in)]
	}
	switch u := d.mixed.panel(p); d.mixed.layout[p].as {
	case compute.F32:
		return words[float32](u), nil, nil
	case compute.BF16:
		return nil, words[uint16](u), nil
	case compute.Q8:
		return nil, nil, u
	}
	return nil, nil, nil
}

// each calls f for each output j < n of a panel, with the matrix that it comes from and
// its row there.
func (t *packTask) each(panel, n int, f func(j int, m *compute.Matrix, row int)) {
	i, first := 0, 0
	for j := range n {
		row := panel*kern.Panel + j
		for row >= first+t.parts[i].Rows {
			first += t.parts[i].Rows
			i++
		}
		f(j, &t.parts[i], row-first)
	}
}

// whole returns the matrix that all n outputs of a panel come from and the row of the
// first, or nil if they come from several.
func (t *packTask) whole(panel, n int) (*compute.Matrix, int) {
	row := panel * kern.Panel
	for i := range t.parts {
		m := &t.parts[i]
		if row < m.Rows {
			if row+n > m.Rows {
				return nil, 0
			}
			return m, row
		}
		row -= m.Rows
	}
	return nil, 0
}

// stored reports whether all parts are Q8 already.
func (t *packTask) stored() bool {
	for i := range t.parts {
		if t.parts[i].Type != compute.Q8 {
			return false
		}
	}
	return true
}

// copyQ8 packs n outputs of one panel from stored integers and scales, unchanged.
func (t *packTask) copyQ8(dst []byte, panel, n int) {
	blocks := kern.Q8Blocks(t.in)
	t.each(panel, n, func(j int, m *compute.Matrix, row int) {
		q, d := m.Data[row*t.in:][:t.in], m.Scales[row*blocks*2:]
		kern.PackQ8Row(dst, j, q, d)
	})
}

// inBlocks reports whether some part is in Blocks.
func (t *packTask) inBlocks() bool {
	for i := range t.parts {
		if t.parts[i].Type == compute.Blocks {
			return true
		}
	}
	return false
}

// packBlocks packs n outputs of one panel as q8. A row that is in q8, or in blocks which q8 has
// exactly, keeps its integers; the others are quantised.
func (t *packTask) packBlocks(dst []byte, w *worker, panel, n int) {
	blocks := kern.Q8Blocks(t.in)
	ints, scales := w.stored(packDepth, 2*packDepth/kern.Q8Block)
	x := w.buf(0, packDepth)
	var rounded [kern.Panel]bool // rows of which q8 does not have all blocks
	var put func(j int, m *compute.Matrix, row, k int)
	put = func(j int, m *compute.Matrix, row, k int) {
		depth := min(packDepth, t.in-k)
		q, d := ints[:depth], scales
		switch {
		case m.Type == compute.Q8:
			q, d = m.Data[row*t.in+k:][:depth], m.Scales[(row*blocks+k/kern.Q8Block)*2:]
		case m.Type == compute.Blocks && !rounded[j]:
			if m.Block.Q8(q, d, m.Row(row, k, depth)) {
				break
			}
			rounded[j] = true
			for before := 0; before < k; before += packDepth {
				put(j, m, row, before)
			}
			fallthrough
		default:
			decode(x[:depth], m, row, k)
			kern.QuantQ8(q, d, x[:depth])
		}
		kern.PackQ8Row(dst[kern.Q8PanelLen(k):], j, q, d)
	}
	for k := 0; k < t.in; k += packDepth { // of all rows: what they are packed to stays in the first level of the cache
		t.each(panel, n, func(j int, m *compute.Matrix, row int) { put(j, m, row, k) })
	}
}

// done reports rows [lo,hi) of the stack as packed to the matrices that have them.
func (t *packTask) done(lo, hi int) {
	for i := range t.parts {
		m := &t.parts[i]
		if from, to := max(lo, 0), min(hi, m.Rows); from < to && m.Done != nil {
			size := len(m.Data) / m.Rows
			if err := m.Done(from*size, to*size); err != nil {
				t.ended.CompareAndSwap(nil, &err)
			}
		}
		lo, hi = lo-m.Rows, hi-m.Rows
	}
}

// decode returns the elements of a row from k on.
func decode(dst []float32, m *compute.Matrix, row, k int) {
	if m.Type == compute.Q8 {
		kern.DequantQ8(dst, m.Data[row*m.Cols:], m.Scales[row*kern.Q8Blocks(m.Cols)*2:], k)
		return
	}
	if m.Type == compute.Blocks {
		m.Block.Float32s(dst, m.Row(row, k, len(dst)))
		return
	}
	src := m.Data[(row*m.Cols+k)*m.Type.Size():]
	switch m.Type {
	case compute.F16:
		kern.FromF16(dst, src)
	case compute.BF16:
		kern.FromBF16(dst, src)
	default:
		kern.FromF32(dst, src)
	}
}
