package cpu

import (
	"unsafe"

	"talf/compute"
	"talf/compute/cpu/kern"
)

// A mixed weight is one packed as Q4 or Stored. Each of its panels has the layout that its outputs allow: if all of them are
// stored alike, that which keeps what is stored. Otherwise it is q8, or f32 in a weight as Stored, which rounds nothing.
type mixed struct {
	in     int
	mem    []byte
	layout []layout // of each panel
	at     []int    // where each panel begins, and where the last one ends
	ints   bool     // some panel is multiplied by rounded activations
}

// A layout is how a panel lies in memory.
type layout struct {
	as   compute.DType // F32, F16, BF16, Q8, or Q4, which stands for blocks of a kind
	kept compute.Kept
}

// layoutOf returns the layout of a matrix alone in a weight packed as as.
func layoutOf(m *compute.Matrix, as compute.DType) layout {
	switch {
	case m.Type == compute.Blocks && m.Block.Kept() != compute.NotKept:
		return layout{compute.Q4, m.Block.Kept()}
	case m.Type == compute.Q8 || m.Type == compute.Blocks || as == compute.Q4:
		return layout{as: compute.Q8}
	}
	return layout{as: m.Type}
}

// plan lays out the panels of stacked matrices.
func plan(parts []compute.Matrix, as compute.DType, out, in int) *mixed {
	b := &mixed{in: in, layout: make([]layout, panels(out)), at: make([]int, panels(out)+1)}
	t := packTask{parts: parts}
	for p := range b.layout {
		t.each(p, min(kern.Panel, out-p*kern.Panel), func(j int, m *compute.Matrix, _ int) {
			switch l := layoutOf(m, as); {
			case j == 0:
				b.layout[p] = l
			case l == b.layout[p]:
			case as == compute.Q4:
				b.layout[p] = layout{as: compute.Q8}
			default:
				b.layout[p] = layout{as: compute.F32}
			}
		})
		b.at[p+1] = b.at[p] + b.layout[p].bytes(in)
		b.ints = b.ints || b.layout[p].ints()
	}
	return b
}

// uniform returns the type that all panels have if it is F32 or BF16, which have weights of their own.
func (b *mixed) uniform() (compute.DType, bool) {
	first := b.layout[0]
	for _, l := range b.layout {
		if l != first {
			return 0, false
		}
	}
	return first.as, first.as == compute.F32 || first.as == compute.BF16
}

// ints reports whether a panel is multiplied by rounded activations.
func (l layout) ints() bool { return l.as == compute.Q8 || l.as == compute.Q4 }

// compact returns the format of a panel that products unpack, or nil.
func (l layout) compact() *kern.Compact {
	switch l.kept {
	case compute.KeptQ4_1:
		return kern.Q4_1
	case compute.KeptQ5_0:
		return kern.Q5_0
	case compute.KeptQ5_1:
		return kern.Q5_1
	case compute.KeptQ5_K:
		return kern.Q5K
	case compute.KeptIQ4_NL:
		return kern.IQ4NL
	case compute.KeptIQ4_XS:
		return kern.IQ4XS
	case compute.KeptMXFP4:
		return kern.MXFP4
	}
	return nil
}

// bytes returns the bytes of a panel of depth in.
func (l layout) bytes(in int) int {
	switch l.as {
	case compute.F32:
		return 4 * kern.Panel * in
	case compute.F16:
		return 2 * kern.Panel * in
	case compute.BF16:
		return 2 * kern.BF16PanelLen(in)
	case compute.Q8:
		return kern.Q8PanelLen(in)
	}
	switch l.kept {
	case compute.KeptQ4_0:
		return in / kern.Q8Block * kern.Q4BlockLen
	case compute.KeptQ4_K:
		return in / kern.Q4KBlock * kern.Q4KBlockLen
	case compute.KeptQ6_K:
		return in / kern.Q6KBlock * kern.Q6KBlockLen
	}
	return l.compact().PanelLen(in)
}

// bytes returns the bytes of all panels.
func (b *mixed) bytes() int {
	if b == nil {
		return 0
	}
	return b.at[len(b.layout)]
}

// panel returns the memory of panel p.
func (b *mixed) panel(p int) []byte { return b.mem[b.at[p]:b.at[p+1]] }

// words returns memory as numbers of another type. Panels begin at multiples of 64 bytes.
func words[T float32 | uint16](b []byte) []T {
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/int(unsafe.Sizeof(*new(T))))
}

// row widens output o to dst [in].
func (b *mixed) row(dst []float32, o int) {
	p, j := o/kern.Panel, o%kern.Panel
	u, l := b.panel(p), b.layout[p]
	switch l.as {
	case compute.F32:
		for i, x := range words[float32](u)[j:] {
			if i%kern.Panel == 0 {
				dst[i/kern.Panel] = x
			}
		}
		return
	case compute.F16:
		for i := range dst {
			kern.FromF16(dst[i:i+1], u[2*(i*kern.Panel+j):])
		}
		return
	case compute.BF16:
		kern.UnpackBF16(dst, words[uint16](u), j)
		return
	case compute.Q8:
		kern.UnpackQ8(dst, u, j)
		return
	}
	switch l.kept {
	case compute.KeptQ4_0:
		kern.UnpackQ4(dst, u, j)
	case compute.KeptQ4_K:
		kern.UnpackQ4K(dst, u, j)
	case compute.KeptQ6_K:
		kern.UnpackQ6K(dst, u, j)
	default:
		l.compact().Unpack(dst, u, j)
	}
}

// halfDepth is how many k of a panel of float16 are widened at once: they stay in the first level of the cache.
const halfDepth = 64

// gemm computes the outputs of panel p for m rows from r0 of t into c.
func (b *mixed) gemm(t *mulTask, w *worker, c []float32, ldc, r0, m, p int) {
	f, u, l := w.k, b.panel(p), b.layout[p]
	if l.ints() {
		a := t.acts[r0*t.lda:]
		switch {
		case l.as == compute.Q8:
			f.GemmQ8(c, ldc, a, t.lda, u, m, kern.Q8Blocks(b.in), t.planes, false)
		case l.kept == compute.KeptQ4_0:
			f.GemmQ4(c, ldc, a, t.lda, u, m, b.in/kern.Q8Block, t.planes, false)
		case l.kept == compute.KeptQ4_K:
			f.GemmQ4K(c, ldc, a, t.lda, u, m, b.in/kern.Q4KBlock, t.planes, false)
		case l.kept == compute.KeptQ6_K:
			f.GemmQ6K(c, ldc, a, t.lda, u, m, b.in/kern.Q6KBlock, t.planes, false)
		default:
			f.GemmCompact(l.compact(), c, ldc, a, t.lda, b.mem[b.at[p]:], m, b.in, t.planes, w.unpacked())
		}
		return
	}
	a := t.a[r0*t.ars:]
	switch l.as {
	case compute.F32:
		f.Gemm(c, ldc, a, t.ars, t.aks, words[float32](u), kern.Panel, m, b.in, false)
	case compute.BF16:
		f.GemmBF16(c, ldc, a, t.ars, t.aks, words[uint16](u), m, b.in, false)
	default:
		wide := w.buf(1, halfDepth*kern.Panel)
		for k := 0; k < b.in; k += halfDepth {
			n := min(halfDepth, b.in-k)
			kern.FromF16(wide[:n*kern.Panel], u[2*k*kern.Panel:])
			f.Gemm(c, ldc, a[k*t.aks:], t.ars, t.aks, wide, kern.Panel, m, n, k > 0)
		}
	}
}

// packDepth is how many k of all rows of a panel are unpacked at once: they stay in the first level of the cache with what they
// are packed to. It is a multiple of every format's block.
const packDepth = 512

// packKept packs n outputs of one panel from blocks whose integers it keeps.
func (t *packTask) packKept(w *worker, panel, n int) {
	dst, l := t.dst.mixed.panel(panel), t.dst.mixed.layout[panel]
	block, size := l.scales()
	q, scales := w.stored(kern.Panel*packDepth, kern.Panel*packDepth/block*size)
	for k := 0; k < t.in; k += packDepth {
		d := min(packDepth, t.in-k)
		ns := d / block * size
		q, scales, to := q[:kern.Panel*d], scales[:kern.Panel*ns], dst[l.bytes(k):]
		clear(q[n*d:])
		clear(scales[n*ns:])
		t.each(panel, n, func(j int, m *compute.Matrix, row int) {
			m.Block.Integers(q[j*d:][:d], scales[j*ns:][:ns], m.Row(row, k, d))
		})
		switch l.kept {
		case compute.KeptQ4_0:
			kern.PackQ4Rows(to, d, q, scales)
		case compute.KeptQ4_K:
			kern.PackQ4KRows(to, d, q, scales)
		case compute.KeptQ6_K:
			for j := range n {
				kern.PackQ6KRow(to, j, q[j*d:][:d], scales[j*ns:][:ns])
			}
		default:
			l.compact().PackRows(to, d, q, scales)
		}
	}
}

// scales returns the elements of a row that share scales, as kern's formats have them, and the bytes of these.
func (l layout) scales() (block, size int) {
	switch l.kept {
	case compute.KeptQ4_0:
		return kern.Q8Block, 2
	case compute.KeptQ4_K:
		return kern.Q4KBlock, kern.Q4KScales
	case compute.KeptQ6_K:
		return kern.Q6KBlock, kern.Q6KScales
	}
	return l.compact().Block, l.compact().Scales
}

// packHalf packs n outputs of one panel of float16, [in][32].
func (t *packTask) packHalf(panel, n int) {
	dst := t.dst.mixed.panel(panel)
	t.each(panel, n, func(j int, m *compute.Matrix, row int) {
		src := m.Data[2*row*t.in:][:2*t.in]
		for i := 0; i < len(src); i += 2 {
			copy(dst[i*kern.Panel+2*j:][:2], src[i:])
		}
	})
}
