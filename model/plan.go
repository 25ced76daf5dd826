package model

import (
	"talf/compute"
	"talf/model/arch"
	"talf/model/internal/footprint"
)

// A Footprint is a model's use of device memory, in bytes.
type Footprint = footprint.Footprint

// Plan returns the memory that a model will take on a device of limited memory if it is
// loaded with opt. It does the same sums as loading, before anything is loaded. A draft
// head's embedding, and an LM head that is not its own, are not counted, because they
// belong to its target.
func Plan(spec *arch.Spec, dev compute.Planner, opt Options) Footprint {
	return footprint.Of(spec, dev, opt.footprint())
}

func (o *Options) footprint() footprint.Options {
	return footprint.Options{Weights: o.DType, Four: o.four, KV: o.KV, MaxRows: o.MaxRows, Positions: o.Positions, LogitRows: o.LogitRows}
}

// setAside reserves all memory that decoding needs, so that nothing is allocated later.
func (m *Model) setAside() error {
	if m.dev.Abilities().Plan == nil || m.opt.Positions == 0 {
		return nil
	}
	if err := m.blocks.Grow(m.layout.Takes(0, m.opt.Positions, min(m.opt.Positions, m.opt.MaxRows))); err != nil {
		return err
	}
	if err := m.growRope(min(m.opt.Positions, m.spec.MaxPos)); err != nil {
		return err
	}
	return m.grow(m.opt.MaxRows, footprint.PlanRows)
}
