package model

import (
	"fmt"
	"slices"
	"sync"

	"talf/compute"
	"talf/model/arch"
	"talf/model/ggml"
	"talf/model/internal/mla"
	"talf/model/internal/recur"
	"talf/model/safetensors"
)

// A loader copies tensors to the device and keeps the first error.
type loader struct {
	m      *Model
	err    error
	dry    bool                  // only check that the tensors exist
	expert int                   // that roles of experts stand for
	list   map[place]arch.Tensor // tensors of the inventory that have not been taken yet

	mu         sync.Mutex
	read, size int64 // bytes of matrices that are packed, of all
}

// A place is a point where the network uses a tensor.
type place struct {
	role   arch.Role
	layer  int
	expert int
	bias   bool
}

// noLayer is the layer of tensors that occur once in a model.
const noLayer = -1

func newLoader(m *Model, dry bool) *loader {
	l := &loader{m: m, dry: dry, list: make(map[place]arch.Tensor)}
	for _, t := range m.spec.Tensors() {
		l.list[place{t.Role, t.Layer, t.Expert, t.Bias}] = t
		if t.Cols > 0 {
			l.size += int64(m.set.Size(t.Name))
		}
	}
	return l
}

// packed reports bytes as packed to whoever watches. It may be called from several goroutines at once.
func (l *loader) packed(bytes int) error {
	if l.m.opt.Watch == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.read += int64(bytes)
	return l.m.opt.Watch(Loading, l.read, l.size)
}

// take returns the tensor of a place, if the model has one there, and marks it as used.
func (l *loader) take(role arch.Role, layer int, bias bool) (arch.Tensor, bool) {
	p := place{role, layer, l.expert, bias}
	t, ok := l.list[p]
	delete(l.list, p)
	return t, ok
}

func (l *loader) fail(format string, args ...any) {
	if l.err == nil {
		l.err = fmt.Errorf("%s: %w", l.m.set.Name, fmt.Errorf(format, args...))
	}
}

// done finishes loading. A tensor that was never taken belongs to a network that this
// package cannot compute.
func (l *loader) done() error {
	for _, t := range l.m.spec.Tensors() {
		if _, left := l.list[place{t.Role, t.Layer, t.Expert, t.Bias}]; left && !t.Optional {
			l.fail("tensor %q: a model with such a tensor (%s) cannot be run", t.Name, t.Role)
		}
	}
	if l.err != nil || l.dry {
		return l.err
	}
	l.m.looked = true
	if l.packOnes(); l.err != nil {
		return l.err
	}
	l.m.set.ReleaseAll()
	return l.m.setAside()
}

// get returns a stored tensor, which must have the inventory's shape and a
// floating-point type, and finite values.
func (l *loader) get(want arch.Tensor) (t safetensors.Tensor, dt compute.DType) {
	t, dt = l.fetch(want)
	l.look(want, dt)
	return t, dt
}

// fetch is get without a look at the values.
func (l *loader) fetch(want arch.Tensor) (t safetensors.Tensor, dt compute.DType) {
	shape := want.Shape()
	read := l.m.set.Tensor
	if l.dry && len(shape) == 2 {
		read = l.m.set.Describe // its values are not looked at
	}
	t, ok := read(want.Name)
	if !ok {
		l.fail("no tensor %q, want one of shape %v", want.Name, shape)
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
		if dt = compute.Blocks; ggml.Blocks(t.DType) == nil {
			l.fail("tensor %q is %s, want F32, F16 or BF16", t.Name, t.DType)
		}
	}
	if !slices.Equal(t.Shape, shape) {
		l.fail("tensor %q has shape %v, want %v from the configuration", t.Name, t.Shape, shape)
	}
	return t, dt
}

// pack stacks matrices of equal width.
func (l *loader) pack(parts ...arch.Tensor) compute.Weight {
	var ms []compute.Matrix
	looks := make([]*passing, len(parts))
	for i, p := range parts {
		t, dt := l.fetch(p)
		if l.err != nil {
			return nil
		}
		m := l.rows(&t, dt, 0, p.Rows)
		if looks[i] = l.inPassing(p, &m); looks[i] == nil {
			l.look(p, dt)
		}
		ms = append(ms, m)
	}
	w := l.matrices(parts[0].Name, ms)
	for i, at := range looks {
		if l.judge(parts[i], at); l.err != nil {
			return nil
		}
	}
	for _, p := range parts {
		l.release(p.Name)
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
		Done: func(lo, hi int) error {
			l.m.set.Release(t.Name, off+lo, off+hi)
			return l.packed(hi - lo)
		},
	}
	if dt == compute.Blocks {
		m.Block = ggml.Blocks(t.DType)
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

// release releases the pages at the borders between the pieces of a tensor.
func (l *loader) release(name string) {
	l.m.set.Release(name, 0, l.m.set.Size(name))
}

// matrices packs stacked matrices; name is for errors.
func (l *loader) matrices(name string, ms []compute.Matrix) compute.Weight {
	return l.as(l.m.opt.DType, name, ms)
}

// as packs stacked matrices as type t.
func (l *loader) as(t compute.DType, name string, ms []compute.Matrix) compute.Weight {
	if l.err != nil || l.dry {
		return nil
	}
	w, err := l.m.dev.Pack(t, ms...)
	if err != nil {
		l.fail("pack %q: %w", name, err)
		return nil
	}
	for _, x := range ms {
		l.m.held.File += int64(len(x.Data) + len(x.Scales))
	}
	l.m.held.Memory += int64(w.Bytes())
	return w
}

// embedding loads one of which passes read a few rows alone. These stay in the file if packing would keep its blocks.
func (l *loader) embedding() compute.Weight {
	m := l.m
	if l.dry || m.opt.table == 0 {
		return l.linear(noLayer, arch.Embed).W
	}
	p, _ := l.take(arch.Embed, noLayer, false)
	t, dt := l.fetch(p)
	if l.err != nil {
		return nil
	}
	x := l.rows(&t, dt, 0, p.Rows)
	at := l.inPassing(p, &x)
	w, err := m.dev.Abilities().Table(x)
	const piece = 512 // rows that are looked at at once
	for row, size := 0, len(x.Data)/p.Rows; row < p.Rows && err == nil; row += piece {
		err = x.Done(row*size, min(row+piece, p.Rows)*size)
	}
	if err != nil {
		l.fail("table %q: %w", t.Name, err)
	}
	if l.judge(p, at); l.err != nil {
		return nil
	}
	m.held.File += int64(len(x.Data))
	m.held.Memory += int64(len(x.Data))
	return w
}

// floats returns the concatenated values of vectors.
func (l *loader) floats(parts ...arch.Tensor) []float32 {
	var x []float32
	for _, p := range parts {
		t, _ := l.get(p)
		if l.err != nil {
			return nil
		}
		v, err := t.Float32s()
		if err != nil {
			l.fail("%w", err)
			return nil
		}
		l.release(p.Name)
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

// vector concatenates vectors into one buffer.
func (l *loader) vector(parts ...arch.Tensor) compute.Buffer {
	return l.buffer(parts[0].Name, l.floats(parts...))
}

// fused loads a projection to queries, keys and values that is stored as one
// tensor, in the order [q | k | v].
func (l *loader) fused(layer int) (y compute.Linear) {
	hd, order := l.m.spec.HeadDim, recur.Grouped(3*l.m.spec.Heads, []int{1, 1, 1}, 0, 1, 2) // in units of HeadDim
	p, _ := l.take(arch.QKV, layer, false)
	t, dt := l.get(p)
	if l.err != nil {
		return y
	}
	var ms []compute.Matrix
	for _, r := range order {
		ms = append(ms, l.rows(&t, dt, int(r)*hd, hd))
	}
	y.W = l.matrices(t.Name, ms)
	l.release(t.Name)
	if p, ok := l.take(arch.QKV, layer, true); ok {
		b := l.floats(p)
		if l.err != nil {
			return y
		}
		var x []float32
		for _, r := range order {
			x = append(x, b[int(r)*hd:][:hd]...)
		}
		y.Bias = l.buffer(p.Name, x)
	}
	return y
}

// norm loads a norm, or returns nil if the model has none in this place. center says
// whether the norm subtracts the mean.
func (l *loader) norm(role arch.Role, layer int, center bool) *compute.Norm {
	w, ok := l.take(role, layer, false)
	if !ok {
		return nil
	}
	n := &compute.Norm{Weight: l.gain(w), Eps: l.m.spec.NormEps, Center: center}
	if b, ok := l.take(role, layer, true); ok {
		n.Bias = l.vector(b)
	}
	return n
}

// gain loads what a norm multiplies by.
func (l *loader) gain(w arch.Tensor) compute.Buffer {
	x := l.floats(w)
	if l.m.spec.NormOffset {
		x = slices.Clone(x)
		for i := range x {
			x[i]++
		}
	}
	return l.buffer(w.Name, x)
}

// order returns what of makes of the rows of a tensor. It is nil if the file does not have the tensor with this
// shape, so that no list is as long as the configuration alone says.
func (l *loader) order(p arch.Tensor, of func(rows int) []int32) []int32 {
	if t, ok := l.m.set.Describe(p.Name); !ok || !slices.Equal(t.Shape, p.Shape()) {
		return nil
	}
	return of(p.Rows)
}

// inPairs loads a projection to queries, keys and values whose rotation turns neighbours. Rows of
// queries and keys are put into the order in which it turns halves: scores are the same sums.
func (l *loader) inPairs(layer int) (y compute.Linear) {
	var ms []compute.Matrix
	var bias []float32
	name := ""
	for _, r := range []arch.Role{arch.Q, arch.K, arch.V} {
		p, _ := l.take(r, layer, false)
		name = p.Name
		var order []int32
		if r != arch.V {
			order = l.order(p, l.m.spec.Halves)
		}
		ms = append(ms, l.some(p, order))
		b, ok := l.take(r, layer, true)
		if l.err != nil || !ok {
			continue
		}
		x := l.floats(b)
		if l.err != nil {
			return y
		}
		if order == nil {
			bias = append(bias, x...)
		}
		for _, i := range order {
			bias = append(bias, x[i])
		}
	}
	y.W = l.matrices(name, ms)
	if bias != nil {
		y.Bias = l.buffer(name, bias)
	}
	return y
}

// gateUp loads a gated product that is stored as one matrix.
func (l *loader) gateUp(layer int) (y compute.Linear) {
	p, _ := l.take(arch.GateUp, layer, false)
	t, dt := l.get(p)
	if l.err != nil {
		return y
	}
	n := p.Rows / 2
	y.W = l.matrices(t.Name, []compute.Matrix{l.rows(&t, dt, 0, n)})
	y.Up = l.matrices(t.Name, []compute.Matrix{l.rows(&t, dt, n, n)})
	l.release(t.Name)
	return y
}

// linear loads the stacked matrices of the given roles, and their biases, as one
// product.
func (l *loader) linear(layer int, roles ...arch.Role) (y compute.Linear) {
	var weights, biases []arch.Tensor
	for _, r := range roles {
		if t, ok := l.take(r, layer, false); ok {
			weights = append(weights, t)
		}
		if t, ok := l.take(r, layer, true); ok {
			biases = append(biases, t)
		}
	}
	if len(weights) != len(roles) || len(biases) != 0 && len(biases) != len(roles) {
		l.fail("layer %d: %d weights and %d biases, want %d weights and the same number of biases or none for %v", layer, len(weights), len(biases), len(roles), roles)
		return y
	}
	y.W = l.pack(weights...)
	if len(biases) > 0 {
		y.Bias = l.vector(biases...)
	}
	return y
}

func (l *loader) layers() {
	s := l.m.spec
	for i := range s.Layers {
		if l.err != nil {
			return
		}
		y := layer{kv: l.m.places[i], attn: compute.Attention{RotDim: s.RotatedIn(i), Window: s.Window(i), Scale: s.AttnScale, Cap: s.AttnCap}}
		switch {
		case s.Block.On:
			y.block = l.blockLayer(i, &y)
		case s.Delta.On(i):
			y.rec = l.recurrent(i)
		case s.Has(arch.QGated):
			y.qkv, y.gate = l.gated(i)
		case s.Latent.On():
			y.mla = l.latent(i)
			y.attn.Scale = mla.Scale(s)
		case s.Has(arch.QKV):
			y.qkv = l.fused(i)
		case s.Has(arch.QKVRows):
			y.qkv = l.linear(i, arch.QKVRows)
		case s.RopePairs:
			y.qkv = l.inPairs(i)
		default:
			y.qkv = l.linear(i, arch.Q, arch.K, arch.V)
		}
		switch in := l.norm(arch.InputNorm, i, s.LayerNorm); {
		case y.mla != nil:
			y.mla.ReadThrough(in)
		case y.rec != nil:
			y.rec.In.Norm, y.rec.Gates.Norm = in, in
		default:
			y.qkv.Norm, y.gate.Norm = in, in
		}
		qn, kn := l.norm(arch.QNorm, i, false), l.norm(arch.KNorm, i, false)
		if s.NormsHeads() {
			y.attn.QNorm, y.attn.KNorm = qn, kn
		} else {
			y.qNorm, y.kNorm = qn, kn
		}
		if p, ok := l.take(arch.Sinks, i, false); ok {
			y.attn.Sinks = l.vector(p)
		}
		out := arch.O
		if y.rec != nil {
			out = arch.DeltaOut
		}
		y.o, y.oNorm = l.linear(i, out), l.norm(arch.AttnOutNorm, i, s.LayerNorm)
		if s.Mixture.Sparse(i) {
			y.moe = l.experts(i)
			l.m.layers = append(l.m.layers, y)
			continue
		}
		switch {
		case s.Has(arch.GateUp):
			y.gateUp = l.gateUp(i)
		case s.Has(arch.Gate):
			up := l.linear(i, arch.Up)
			y.gateUp = l.linear(i, arch.Gate)
			y.gateUp.Up, y.gateUp.UpBias = up.W, up.Bias
		default:
			y.gateUp = l.linear(i, arch.Up)
		}
		y.gateUp.Act, y.gateUp.Norm = s.Act, l.norm(arch.PostNorm, i, s.LayerNorm)
		if y.block != nil && y.block.ffn != nil {
			y.block.post, y.gateUp.Norm = y.gateUp.Norm, nil
		}
		if s.Parallel && !s.Has(arch.PostNorm) {
			y.gateUp.Norm = y.qkv.Norm
		}
		y.down, y.downNorm = l.linear(i, arch.Down), l.norm(arch.FFNOutNorm, i, s.LayerNorm)
		l.m.layers = append(l.m.layers, y)
	}
	// Tensors that no architecture names are ignored, because some published files contain them. A whole
	// extra layer that does not predict further tokens (MTP) means the weights of another model.
	has := func(name string) bool { _, ok := l.m.set.Describe(name); return ok }
	if name := s.Weight(arch.O, s.Layers); l.err == nil && !s.MTP && !s.HasMTP(has) && has(name) {
		l.fail("tensor %q belongs to an extra layer, want num_hidden_layers = %d", name, s.Layers)
	}
}
