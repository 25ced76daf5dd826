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
}

func (l *loader) fail(format string, args ...any) {
	if l.err == nil {
		l.err = fmt.Errorf("%s: %w", l.m.set.Name, fmt.Errorf(format, args...))
	}
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
		ms = append(ms, compute.Matrix{Rows: p.rows, Cols: cols, Type: dt, Data: t.Data})
	}
	if l.err != nil {
		return nil
	}
	w, err := l.m.dev.Pack(l.m.opt.DType, ms...)
	if err != nil {
		l.fail("pack %q: %w", parts[0].name, err)
	}
	return w
}

// vector concatenates vectors, named in full, into one buffer.
func (l *loader) vector(parts ...part) compute.Buffer {
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
	b, err := l.m.dev.Alloc(compute.F32, len(x))
	if err != nil {
		l.fail("load %q: %w", parts[0].name, err)
		return nil
	}
	l.m.q.Write(b, x)
	return b
}

// norm loads a norm over the residual stream, named without ".weight".
func (l *loader) norm(name string) *compute.Norm {
	return &compute.Norm{Weight: l.vector(part{name + ".weight", l.m.spec.Hidden}), Eps: l.m.spec.NormEps}
}

func (l *loader) layers() {
	s := l.m.spec
	n := &s.Names
	q, kv := s.Heads*s.HeadDim, s.KVHeads*s.HeadDim
	for i := range s.Layers {
		if l.err != nil {
			return
		}
		in := func(name string) string { return n.In(i, name) }
		var y layer
		if !s.Draft || i > 0 {
			y.qkv.Norm = l.norm(in(n.InputNorm))
		}
		y.gateUp.Norm = l.norm(in(n.PostNorm))
		y.qkv.W = l.pack(s.Hidden, part{in(n.Q), q}, part{in(n.K), kv}, part{in(n.V), kv})
		y.o.W = l.pack(q, part{in(n.O), s.Hidden})
		y.gateUp.W, y.gateUp.Act = l.pack(s.Hidden, part{in(n.Gate), s.FFN}), compute.SiLU
		y.gateUp.Up = l.pack(s.Hidden, part{in(n.Up), s.FFN})
		y.down.W = l.pack(s.FFN, part{in(n.Down), s.Hidden})
		if s.AttnBias {
			y.qkv.Bias = l.vector(part{in(n.Q) + ".bias", q}, part{in(n.K) + ".bias", kv}, part{in(n.V) + ".bias", kv})
			y.o.Bias = l.vector(part{in(n.O) + ".bias", s.Hidden})
		}
		if s.MLPBias {
			y.gateUp.Bias = l.vector(part{in(n.Gate) + ".bias", s.FFN})
			y.gateUp.UpBias = l.vector(part{in(n.Up) + ".bias", s.FFN})
			y.down.Bias = l.vector(part{in(n.Down) + ".bias", s.Hidden})
		}
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
