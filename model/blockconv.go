package model

import (
	"talf/compute"
	"talf/internal/slab"
)

// A conv is a convolution of DFlash 2 around a layer's attention or feed-forward network. With x the rows of a
// block, before its first row zeros, the network's input becomes
//
//	y_t = (base_0 + k_t0)⊙x_t + (base_1 + k_t1)⊙x_{t−1}
//
// where k are products of x_t, of which Group channels share each; so does its output, with other bases and
// k, also of the input.
type conv struct {
	kernel compute.Linear // [2·2·Hidden/Group][Hidden]: before and after, of this row and the one before
	base   []float32      // [2][2][Hidden] likewise
}

// A convolution is memory for them. No device multiplies rows by rows: they are multiplied on the host.
type convolution struct {
	out  compute.Buffer // [rows][Hidden]
	coef compute.Buffer // [rows][2·2·Hidden/Group]
	k, x []float32      // on the host
}

// before convolves n rows of what a network reads, a.norm, if there is a convolution.
func (v *convolution) before(m *Model, c *conv, n int) {
	if c == nil {
		return
	}
	m.q.Linear(v.coef, m.act.norm, &c.kernel, compute.Store, n)
	v.k = slab.Resize(v.k, n*c.kernel.W.Out())
	m.read(v.k, v.coef, 0)
	v.convolve(m, m.act.norm, c, 0, n)
}

// convolve convolves n rows of x, before (0) or after (1) a network, with the coefficients that before computed.
func (v *convolution) convolve(m *Model, x compute.Buffer, c *conv, part, n int) {
	width, group, size := m.spec.Hidden, m.spec.Block.Group, m.spec.Block.Size
	groups := width / group
	v.x = slab.Resize(v.x, n*width)
	m.read(v.x, x, 0)
	base := c.base[part*2*width:][:2*width]
	for t := n - 1; t >= 0; t-- {
		k := v.k[(t*2+part)*2*groups:][:2*groups]
		row := v.x[t*width:][:width]
		for i := range row {
			y := float32((base[i] + k[i/group]) * row[i])
			if t%size > 0 {
				y += float32((base[width+i] + k[groups+i/group]) * v.x[(t-1)*width+i])
			}
			row[i] = y
		}
	}
	m.q.Write(x, v.x)
}
