package cpu

import (
	"talf/compute"
	"talf/compute/cpu/kern"
)

// panels4 are the panels of a weight packed as Q4, each in the format that its outputs allow: a
// panel keeps its integers if all of its outputs are blocks of one kind, and is q8 otherwise.
type panels4 struct {
	in   int
	mem  []byte
	kind []compute.Kept // of each panel
	at   []int          // where each panel begins, and where the last one ends
}

// plan4 lays out the panels of stacked matrices.
func plan4(parts []compute.Matrix, out, in int) *panels4 {
	b := &panels4{in: in, kind: make([]compute.Kept, panels(out)), at: make([]int, panels(out)+1)}
	t := packTask{parts: parts}
	for p := range b.kind {
		t.each(p, min(kern.Panel, out-p*kern.Panel), func(j int, m *compute.Matrix, _ int) {
			kind := compute.NotKept
			if m.Type == compute.Blocks {
				kind = m.Block.Kept()
			}
			if j == 0 {
				b.kind[p] = kind
			} else if kind != b.kind[p] {
				b.kind[p] = compute.NotKept
			}
		})
		b.at[p+1] = b.at[p] + b.length(b.kind[p])
	}
	return b
}

// length returns the bytes of a panel.
func (b *panels4) length(kind compute.Kept) int {
	switch kind {
	case compute.Centred:
		return b.in / kern.Q8Block * kern.Q4BlockLen
	case compute.WithMinima:
		return b.in / kern.Q4KBlock * kern.Q4KBlockLen
	case compute.SixBit:
		return b.in / kern.Q6KBlock * kern.Q6KBlockLen
	}
	return kern.Q8PanelLen(b.in)
}

// bytes returns the bytes of all panels.
func (b *panels4) bytes() int {
	if b == nil {
		return 0
	}
	return b.at[len(b.kind)]
}

// panel returns the memory of panel p.
func (b *panels4) panel(p int) []byte { return b.mem[b.at[p]:b.at[p+1]] }

// row widens output o to dst [in].
func (b *panels4) row(dst []float32, o int) {
	p, j := o/kern.Panel, o%kern.Panel
	switch b.kind[p] {
	case compute.Centred:
		kern.UnpackQ4(dst, b.panel(p), j)
	case compute.WithMinima:
		kern.UnpackQ4K(dst, b.panel(p), j)
	case compute.SixBit:
		kern.UnpackQ6K(dst, b.panel(p), j)
	default:
		kern.UnpackQ8(dst, b.panel(p), j)
	}
}

// gemm multiplies m rows of rounded activations, lda apart, by panel p.
func (b *panels4) gemm(f *kern.Funcs, c []float32, ldc int, a []uint32, lda, p, m, planes int) {
	switch u := b.panel(p); b.kind[p] {
	case compute.Centred:
		f.GemmQ4(c, ldc, a, lda, u, m, b.in/kern.Q8Block, planes, false)
	case compute.WithMinima:
		f.GemmQ4K(c, ldc, a, lda, u, m, b.in/kern.Q4KBlock, planes, false)
	case compute.SixBit:
		f.GemmQ6K(c, ldc, a, lda, u, m, b.in/kern.Q6KBlock, planes, false)
	default:
		f.GemmQ8(c, ldc, a, lda, u, m, kern.Q8Blocks(b.in), planes, false)
	}
}

// pack4 packs n outputs of one panel from blocks whose integers it keeps.
func (t *packTask) pack4(w *worker, panel, n int) {
	dst, kind := t.dst.q4.panel(panel), t.dst.q4.kind[panel]
	q, scales := w.stored(t.in, t.in/8)
	t.each(panel, n, func(j int, m *compute.Matrix, row int) {
		m.Block.Integers(q, scales, m.Row(row, 0, t.in))
		switch kind {
		case compute.Centred:
			kern.PackQ4Row(dst, j, q, scales)
		case compute.SixBit:
			kern.PackQ6KRow(dst, j, q, scales)
		default:
			kern.PackQ4KRow(dst, j, q, scales)
		}
	})
}
