package model

import (
	"talf/compute"
	"talf/model/arch"
	"talf/model/internal/mla"
	"talf/model/safetensors"
)

// latent loads the latent attention of a layer.
func (l *loader) latent(layer int) *mla.Layer {
	s := l.m.spec
	y := &mla.Layer{Down: l.reordered(arch.KVDown, layer, s.Latent.KVRank+s.RotDim), Norm: l.latentNorm(arch.KVDownNorm, layer)}
	if s.Latent.QRank > 0 {
		y.QDown = l.linear(layer, arch.QDown)
	}
	y.Q = l.reordered(arch.QUp, layer, s.HeadDim)
	y.Q.Norm = l.latentNorm(arch.QDownNorm, layer)
	y.Keys, y.Vals = l.expansion(layer)
	return y
}

// latentNorm loads a norm of something compressed, or returns nil if the model has none in this place.
func (l *loader) latentNorm(role arch.Role, layer int) *compute.Norm {
	n := l.norm(role, layer, false)
	if n != nil {
		n.Eps = arch.LatentEps
	}
	return n
}

// reordered loads a product whose rows, those of heads of the given size, are put into the order in
// which they are rotated.
func (l *loader) reordered(role arch.Role, layer, head int) (y compute.Linear) {
	p, _ := l.take(role, layer, false)
	order := l.order(p, func(rows int) []int32 { return l.m.spec.RotatedFirst(rows, head) })
	y.W = l.matrices(p.Name, []compute.Matrix{l.some(p, order)})
	if b, ok := l.take(role, layer, true); ok {
		if x := l.floats(b); l.err == nil {
			bias := make([]float32, len(order))
			for i, from := range order {
				bias[i] = x[from]
			}
			y.Bias = l.buffer(b.Name, bias)
		}
	}
	return y
}

// expansion loads the parts of the up-projection of every head: for keys, transposed, and for values.
func (l *loader) expansion(layer int) (keys, values []compute.Weight) {
	s := l.m.spec
	as, rank, nope, vals := mla.Type(l.m.opt.DType), s.Latent.KVRank, s.Latent.Nope, s.Latent.ValueDim
	if s.Has(arch.KeyUp) { // in two parts
		part := func(role arch.Role, rows int) (all []compute.Weight) {
			l.heads(role, layer, func(t *safetensors.Tensor, dt compute.DType, h int) {
				all = append(all, l.as(as, t.Name, []compute.Matrix{l.rows(t, dt, h*rows, rows)}))
			})
			return all
		}
		return part(arch.KeyUp, rank), part(arch.ValueUp, vals)
	}
	var x []float32
	l.heads(arch.KVUp, layer, func(t *safetensors.Tensor, dt compute.DType, h int) {
		if x == nil {
			var err error
			if x, err = t.Float32s(); err != nil {
				l.fail("%w", err)
				return
			}
		}
		first := h * (nope + vals)
		keys = append(keys, l.as(as, t.Name, []compute.Matrix{{Rows: rank, Cols: nope, Type: compute.F32, Data: mla.Turned(x[first*rank:], nope, rank)}}))
		values = append(values, l.as(as, t.Name, []compute.Matrix{l.rows(t, dt, first+nope, vals)}))
	})
	return keys, values
}

// heads calls f for each head with a tensor of up-projections.
func (l *loader) heads(role arch.Role, layer int, f func(t *safetensors.Tensor, dt compute.DType, h int)) {
	p, _ := l.take(role, layer, false)
	t, dt := l.get(p)
	if l.err == nil && dt == compute.Q8 {
		l.fail("tensor %q is I8, want F32, F16, BF16 or blocks", t.Name)
	}
	for h := 0; h < l.m.spec.Heads && l.err == nil && !l.dry; h++ {
		f(&t, dt, h)
	}
	l.release(t.Name)
}
