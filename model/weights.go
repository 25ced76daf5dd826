package model

import (
	"bytes"
	"fmt"
	"math"

	"talf/compute"
	"talf/model/safetensors"
)

// A part is a tensor that is stacked with others, and its rows.
type part struct {
	name string
	rows int
}

// A loader moves tensors to the device and keeps the first error.
type loader struct {
	m   *Model
	err error
	dry bool // only check what is there
}

func (l *loader) fail(format string, args ...any) {
	if l.err == nil {
		l.err = fmt.Errorf("%s: %w", l.m.set.Name, fmt.Errorf(format, args...))
	}
}

// done ends loading.
func (l *loader) done() error {
	if l.err != nil {
		return l.err
	}
	return l.m.setAside()
}

// get returns a tensor of the given shape and a floating-point type.
func (l *loader) get(name string, shape ...int) (t safetensors.Tensor, dt compute.DType) {
	t, ok := l.m.set.Tensor(name)
	if !ok {
		l.fail("no tensor %q, want one of shape %v", name, shape)
		return
	}
	switch t.DType {
	case "F32":
		dt = compute.F32
	case "F16":
		dt = compute.F16
	case "BF16":
		dt = compute.BF16
	case "I8":
		if dt = compute.Q8; len(shape) == 2 {
			break
		}
		fallthrough
	default:
		l.fail("tensor %q is %s, want F32, F16 or BF16", name, t.DType)
	}
	same := len(t.Shape) == len(shape)
	for i := 0; same && i < len(shape); i++ {
		same = t.Shape[i] == shape[i]
	}
	if !same {
		l.fail("tensor %q has shape %v, want %v from the configuration", name, t.Shape, shape)
	}
	return t, dt
}

// pack stacks matrices [rows][cols], named without ".weight".
func (l *loader) pack(cols int, parts ...part) compute.Weight {
	var ms []compute.Matrix
	for _, p := range parts {
		t, dt := l.get(p.name+".weight", p.rows, cols)
		if l.err != nil {
			return nil
		}
		ms = append(ms, l.rows(&t, dt, 0, p.rows))
	}
	w := l.matrices(parts[0].name, ms)
	for _, p := range parts {
		l.release(p.name + ".weight")
	}
	return w
}

// rows returns rows [from, from+n) of a stored matrix. Their pages are released
// once they are packed.
func (l *loader) rows(t *safetensors.Tensor, dt compute.DType, from, n int) compute.Matrix {
	cols, size := t.Shape[1], len(t.Data)/t.Shape[0]
	off := from * size
	m := compute.Matrix{
		Rows: n, Cols: cols, Type: dt, Data: t.Data[off:][:n*size],
		Done: func(lo, hi int) { l.m.set.Release(t.Name, off+lo, off+hi) },
	}
	if dt == compute.Q8 {
		s := l.scales(t.Name, t.Shape[0], cols)
		if l.err != nil {
			return compute.Matrix{}
		}
		size = len(s) / t.Shape[0]
		m.Scales = s[from*size:][:n*size]
	}
	return m
}

// release releases the pages that pieces of a tensor shared.
func (l *loader) release(name string) {
	if t, ok := l.m.set.Tensor(name); ok {
		l.m.set.Release(name, 0, len(t.Data))
	}
}

// matrices packs stacked matrices; name is for errors.
func (l *loader) matrices(name string, ms []compute.Matrix) compute.Weight {
	return l.as(l.m.opt.DType, name, ms)
}

// as packs stacked matrices as t.
func (l *loader) as(t compute.DType, name string, ms []compute.Matrix) compute.Weight {
	if l.err != nil || l.dry {
		return nil
	}
	w, err := l.m.dev.Pack(t, ms...)
	if err != nil {
		l.fail("pack %q: %w", name, err)
		return nil
	}
	return w
}

// floats returns vectors, named in full, one behind the other.
func (l *loader) floats(parts ...part) []float32 {
	var x []float32
	for _, p := range parts {
		t, _ := l.get(p.name, p.rows)
		if l.err != nil {
			return nil
		}
		v, err := t.Float32s()
		if err != nil {
			l.fail("%w", err)
			return nil
		}
		x = append(x, v...)
	}
	return x
}

// buffer moves x to the device; name is for errors.
func (l *loader) buffer(name string, x []float32) compute.Buffer {
	if l.err != nil || l.dry {
		return nil
	}
	b, err := l.m.dev.Alloc(compute.F32, len(x))
	if err != nil {
		l.fail("load %q: %w", name, err)
		return nil
	}
	l.m.q.Write(b, x)
	return b
}

// vector concatenates vectors, named in full, into one buffer.
func (l *loader) vector(parts ...part) compute.Buffer {
	return l.buffer(parts[0].name, l.floats(parts...))
}

// headOrder returns the rows, in units of HeadDim, of a fused projection
// [head][q, k, v] in the order [q | k | v].
func headOrder(heads int) []int {
	var rows []int
	for kind := range 3 {
		for h := range heads {
			rows = append(rows, 3*h+kind)
		}
	}
	return rows
}

// qkv loads the projection to queries, keys and values, [q | k | v].
func (l *loader) qkv(in func(string) string) (y compute.Linear) {
	s := l.m.spec
	n, hd := &s.Names, s.HeadDim
	q, kv := s.Heads*hd, s.KVHeads*hd
	if n.QKV == "" {
		y.W = l.pack(s.Hidden, part{in(n.Q), q}, part{in(n.K), kv}, part{in(n.V), kv})
		if s.QKVBias {
			y.Bias = l.vector(part{in(n.Q) + ".bias", q}, part{in(n.K) + ".bias", kv}, part{in(n.V) + ".bias", kv})
		}
		return y
	}
	t, dt := l.get(in(n.QKV)+".weight", 3*q, s.Hidden)
	if l.err != nil {
		return y
	}
	var ms []compute.Matrix
	for _, r := range headOrder(s.Heads) {
		ms = append(ms, l.rows(&t, dt, r*hd, hd))
	}
	y.W = l.matrices(t.Name, ms)
	l.release(t.Name)
	if s.QKVBias {
		b := l.floats(part{in(n.QKV) + ".bias", 3 * q})
		if l.err != nil {
			return y
		}
		var x []float32
		for _, r := range headOrder(s.Heads) {
			x = append(x, b[r*hd:][:hd]...)
		}
		y.Bias = l.buffer(in(n.QKV)+".bias", x)
	}
	return y
}

// norm loads a norm over the residual stream, named without ".weight".
func (l *loader) norm(name string) *compute.Norm {
	s := l.m.spec
	n := &compute.Norm{Weight: l.vector(part{name + ".weight", s.Hidden}), Eps: s.NormEps, Center: s.LayerNorm}
	if s.LayerNorm {
		n.Bias = l.vector(part{name + ".bias", s.Hidden})
	}
	return n
}

// headNorm loads a norm over one head.
func (l *loader) headNorm(name string) *compute.Norm {
	return &compute.Norm{Weight: l.vector(part{name + ".weight", l.m.spec.HeadDim}), Eps: l.m.spec.NormEps}
}

// linear loads a product from cols to rows, named without ".weight".
func (l *loader) linear(name string, rows, cols int, bias bool) (y compute.Linear) {
	y.W = l.pack(cols, part{name, rows})
	if bias {
		y.Bias = l.vector(part{name + ".bias", rows})
	}
	return y
}

func (l *loader) layers() {
	s := l.m.spec
	n := &s.Names
	for i := range s.Layers {
		if l.err != nil {
			return
		}
		in := func(name string) string { return n.In(i, name) }
		y := layer{qkv: l.qkv(in), attn: compute.Attention{RotDim: s.Rotated(), Window: s.Window(i)}}
		if !s.Draft || i > 0 {
			y.qkv.Norm = l.norm(in(n.InputNorm))
		}
		if s.QKNorm {
			y.attn.QNorm, y.attn.KNorm = l.headNorm(in(n.QNorm)), l.headNorm(in(n.KNorm))
		}
		y.o = l.linear(in(n.O), s.Hidden, s.Heads*s.HeadDim, s.OBias)
		y.gateUp = l.linear(in(n.Up), s.FFN, s.Hidden, s.MLPBias)
		if s.Gated {
			gate := l.linear(in(n.Gate), s.FFN, s.Hidden, s.MLPBias)
			gate.Up, gate.UpBias = y.gateUp.W, y.gateUp.Bias
			y.gateUp = gate
		}
		y.gateUp.Act, y.gateUp.Norm = s.Act, l.norm(in(n.PostNorm))
		y.down = l.linear(in(n.Down), s.Hidden, s.FFN, s.MLPBias)
		l.m.layers = append(l.m.layers, y)
	}
	// Tensors that no architecture names are ignored, as the published files of
	// some need it; a whole layer too many is another model's weights.
	if name := n.In(s.Layers, n.PostNorm) + ".weight"; l.err == nil {
		if _, ok := l.m.set.Tensor(name); ok {
			l.fail("tensor %q is of a layer too many, want num_hidden_layers = %d", name, s.Layers)
		}
	}
}

// sameValues reports whether two floating-point tensors of any storage type
// hold equal values. It compares in pieces: embeddings are large.
func sameValues(a, b *safetensors.Tensor) bool {
	if a.Len() != b.Len() {
		return false
	}
	if a.DType == b.DType {
		return bytes.Equal(a.Data, b.Data)
	}
	const piece = 1 << 16
	n := a.Len()
	for i := 0; i < n; i += piece {
		x, err1 := slice(a, i, min(n, i+piece)).Float32s()
		y, err2 := slice(b, i, min(n, i+piece)).Float32s()
		if err1 != nil || err2 != nil {
			return false
		}
		for j := range x {
			if math.Float32bits(x[j]) != math.Float32bits(y[j]) {
				return false
			}
		}
	}
	return true
}

// slice returns elements [from, to) of t as a vector.
func slice(t *safetensors.Tensor, from, to int) *safetensors.Tensor {
	size := len(t.Data) / t.Len()
	return &safetensors.Tensor{Name: t.Name, DType: t.DType, Shape: []int{to - from}, Data: t.Data[from*size : to*size]}
}
