package model

import (
	"fmt"
	"slices"

	"talf/model/internal/states"
)

// These belong to passes; see package states.
type (
	Feature = states.Feature
	Taps    = states.Taps
	Store   = states.Store
)

// NewStore returns a store of the given number of rows for m's hidden size: a draft head's
// f̂ for nodes whose children run later, or features from the host.
func (m *Model) NewStore(rows int) (*Store, error) {
	return states.NewStore(m.dev, m.q, m.can.Replay != nil, m.spec.Hidden, rows)
}

// Tap makes later passes record the residual stream of every row that runs at the given
// boundaries, in the given order. A call without boundaries stops this, after which
// passes have no extra cost.
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

// Taps returns the boundaries that are tapped.
func (m *Model) Taps() []int { return slices.Clone(m.taps) }

// keepTaps copies rows [r,r+n) of the residual stream at a boundary.
func (m *Model) keepTaps(o *Output, boundary, r, n int) {
	if m.probe != nil {
		m.probe.look(m, boundary, r, n)
	}
	for i, b := range m.taps {
		if b == boundary {
			m.q.Gather(o.Taps.Rows[i], r, 0, m.act.x, m.act.iota[:n])
		}
	}
}

// growTaps makes room for a pass.
func (m *Model) growTaps(o *Output, rows int) error {
	if len(m.taps) == 0 {
		o.Taps = nil
		return nil
	}
	if t := o.Taps; t != nil && slices.Equal(t.At, m.taps) && t.Rows[0].Shape()[0] >= rows {
		return nil
	}
	t, err := states.NewTaps(m.dev, m.taps, m.spec.Hidden, roundUp(rows))
	if err == nil {
		o.Taps = t
	}
	return err
}

// ReadTaps copies rows [row, row+len(dst)/(taps·Hidden)) of the taps to dst, those of a
// row side by side. It panics if the pass had no taps.
func (o *Output) ReadTaps(dst []float32, row int) {
	if o.Taps == nil {
		panic("model: the pass had no taps; call Tap before it")
	}
	h := o.m.spec.Hidden
	w := len(o.Taps.At) * h
	n := (len(dst) + w - 1) / w
	o.check("tap", row, n, o.rows)
	one := slices.Grow(o.m.act.narrow[:0], n*h)[:n*h]
	o.m.act.narrow = one
	for i, b := range o.Taps.Rows {
		o.m.read(one, b, row*h)
		for r := 0; r*w+i*h < len(dst); r++ {
			copy(dst[r*w+i*h:], one[r*h:][:h])
		}
	}
}
