package model

import (
	"fmt"
	"slices"

	"talf/compute"
)

// Tap makes later passes record the residual stream of every row that runs at the given
// boundaries, in the given order. A call without boundaries stops this, after which
// passes have no extra cost. Boundary j is the input of layer j before any norm, that
// is, the output of layer j−1. Boundary 0 is the embedding, and boundary Spec().Layers
// is the input of the final norm.
//
// EAGLE-3 heads read these states (Li et al. 2025, arXiv 2503.01840, section 3.1), by
// default at 2, Layers/2 and Layers−3. transformers calls them hidden_states[j]; only
// its last one is normed.
func (m *Model) Tap(boundaries ...int) error {
	if m.spec.Draft {
		return fmt.Errorf("model: tap %v: a draft head has no taps, want its target", boundaries)
	}
	for _, b := range boundaries {
		if b < 0 || b > m.spec.Layers {
			return fmt.Errorf("model: tap boundary %d, want 0..%d", b, m.spec.Layers)
		}
	}
	m.taps = slices.Clone(boundaries)
	return nil
}

// Taps returns the boundaries that Tap set.
func (m *Model) Taps() []int { return slices.Clone(m.taps) }

// keepTaps copies rows [r,r+n) of the residual stream at a boundary.
func (m *Model) keepTaps(o *Output, boundary, r, n int) {
	if m.probe != nil {
		m.probe.look(m, boundary, r, n)
	}
	for i, b := range m.taps {
		if b == boundary {
			m.q.Gather(o.Taps, r, i*m.spec.Hidden, m.act.x, m.act.iota[:n])
		}
	}
}

// growTaps makes room for a pass.
func (m *Model) growTaps(o *Output, rows int) error {
	width := len(m.taps) * m.spec.Hidden
	if width == 0 {
		o.Taps = nil
		return nil
	}
	if o.Taps != nil {
		if s := o.Taps.Shape(); s[0] >= rows && s[1] == width {
			return nil
		}
	}
	b, err := m.dev.Alloc(compute.F32, roundUp(rows), width)
	if err != nil {
		return fmt.Errorf("taps of %d rows: %w", rows, err)
	}
	o.Taps = b
	return nil
}

// Tapped returns the tapped states of f's row as a reference to one row of a buffer
// [rows][taps·Hidden]. Its Buf is nil if the pass had no taps.
func (f Feature) Tapped() Feature { return Feature{Buf: f.Taps, Row: f.Row} }

// ReadTaps copies rows [row, row+len(dst)/(taps·Hidden)) of the taps to dst. It panics
// if the pass had no taps.
func (o *Output) ReadTaps(dst []float32, row int) {
	if o.Taps == nil {
		panic("model: the pass had no taps; call Tap before it")
	}
	w := o.Taps.Shape()[1]
	o.check("tap", row, (len(dst)+w-1)/w, o.rows)
	o.m.read(dst, o.Taps, row*w)
}
