// Package experts says what passes read of a model in whose layers a router chooses experts for each
// row.
package experts

import "talf/model"

// A Read is what a pass has read of a model's experts; zero for a model without.
type Read struct {
	Of, Top  int     // experts of a layer, and of these those that a row chooses
	Layers   int     // that have experts
	Share    float64 // of an expert in the bytes of weights that a pass of one row reads
	Distinct int     // that any row of the pass chose, summed over layers
}

// A Target says what its last pass read.
type Target interface{ Experts() Read }

// Last returns what t's last pass read, if t says so.
func Last(t any) (r Read) {
	if x, ok := t.(Target); ok {
		r = x.Experts()
	}
	return r
}

// A Meter measures passes of a model one by one.
type Meter struct {
	last   Read
	before int
}

// Begin is called before a pass of m.
func (p *Meter) Begin(m *model.Model) {
	r := m.Experts()
	p.before = r.Total()
}

// End is called after the pass.
func (p *Meter) End(m *model.Model) {
	r := m.Experts()
	if r.Experts == 0 {
		return
	}
	if p.last.Of == 0 {
		p.last = Read{Of: r.Experts, Top: r.Top, Layers: r.Sparse, Share: float64(r.Bytes) / float64(max(1, m.WeightBytes()))}
	}
	p.last.Distinct = r.Total() - p.before
}

// Experts returns what the last pass read.
func (p *Meter) Experts() Read { return p.last }
