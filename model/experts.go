package model

import (
	"talf/compute"
	"talf/model/arch"
	"talf/model/internal/moe"
)

// experts loads the feed-forward network of a layer with experts. The router stays in float32:
// it is small, and what it chooses must not depend on the type of the other weights.
func (l *loader) experts(layer int) *moe.Layer {
	s := l.m.spec
	y := &moe.Layer{Index: layer, Router: compute.Linear{W: l.single(arch.Router, layer)}, Norm: l.norm(arch.PostNorm, layer, s.LayerNorm)}
	if t, ok := l.take(arch.Router, layer, true); ok {
		y.Router.Bias = l.vector(t)
	}
	if t, ok := l.take(arch.RouterOffset, layer, false); ok {
		y.Offset = l.floats(t)
	}
	for e := range s.Mixture.Experts {
		l.expert = e
		y.Experts = append(y.Experts, l.network(layer, arch.ExpertGate, arch.ExpertUp, arch.ExpertDown))
	}
	l.expert = 0
	if s.Mixture.Shared == 0 {
		return y
	}
	shared := l.network(layer, arch.SharedGate, arch.SharedUp, arch.SharedDown)
	if y.Shared = &shared; s.Mixture.Gated {
		y.Gate.W = l.single(arch.SharedRouter, layer)
	}
	return y
}

// network loads one expert.
func (l *loader) network(layer int, gate, up, down arch.Role) (e moe.Expert) {
	e.GateUp = l.linear(layer, gate)
	u := l.linear(layer, up)
	e.GateUp.Up, e.GateUp.UpBias, e.GateUp.Act, e.GateUp.Limit = u.W, u.Bias, l.m.spec.Act, l.m.spec.ActLimit
	e.Down = l.linear(layer, down)
	return e
}

// single packs a matrix as float32.
func (l *loader) single(role arch.Role, layer int) compute.Weight {
	p, _ := l.take(role, layer, false)
	t, dt := l.get(p)
	if l.err != nil {
		return nil
	}
	w := l.as(compute.F32, t.Name, []compute.Matrix{l.rows(&t, dt, 0, p.Rows)})
	l.release(t.Name)
	return w
}

// Experts returns what passes have read of the model's experts so far, nothing if it has none.
func (m *Model) Experts() moe.Reads { return m.moe.Reads() }
