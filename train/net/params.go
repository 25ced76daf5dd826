// Package net builds the training graphs of draft heads and of small language models, and holds
// their weights under the names that checkpoints use.
//
// model/head and model run the same networks for decoding; a test ties the two forward passes
// together.
package net

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"talf/compute"
	"talf/internal/slab"
	"talf/model/arch"
	"talf/model/safetensors"
	"talf/train/internal/gg"
)

// Params are the trainable weights of one network. Two graphs (training,
// evaluation) may share them.
type Params struct {
	Spec *arch.Spec

	// Draft heads: fc over [embedding; feature] as its two halves, so that the
	// feature half is computed once for all children of a node.
	fcE, fcF, fcBias *gg.Tensor
	e3               eagle3
	block            map[place]*gg.Tensor // what only block heads have
	// Language models; the latter two of EAGLE-3 heads, too, and final norms of block heads.
	embed, finalNorm, lmHead *gg.Tensor

	layers []layer
	list   []*gg.Tensor
}

type layer struct {
	inNorm, q, k, v, o, postNorm, gu, down *gg.Tensor

	qNorm, kNorm *gg.Tensor // of every head; nil: none
}

// New allocates the weights of spec, all zero. It refuses specs that cannot be trained:
// those with biases other than fc's, and architectures other than Llama's.
func New(q compute.Queue, spec *arch.Spec) (*Params, error) {
	if err := spec.Validate(); err != nil {
		return nil, fmt.Errorf("network: %w", err)
	}
	if spec.Arch != "llama" && !spec.Block.On {
		return nil, fmt.Errorf("network: model_type is %q, want \"llama\": training supports no other", spec.Arch)
	}
	if err := checkBlock(spec); err != nil {
		return nil, err
	}
	if spec.QKVBias || spec.OBias || spec.MLPBias {
		return nil, fmt.Errorf("network: attention_bias or mlp_bias: training supports neither")
	}
	p := &Params{Spec: spec, block: make(map[place]*gg.Tensor)}
	var err error
	add := func(name string, shape ...int) *gg.Tensor {
		n := 1
		for _, s := range shape {
			n *= s
		}
		t, e := gg.NewTensor(q, name, slab.Floats(n), shape...)
		if e != nil && err == nil {
			err = e
		}
		p.list = append(p.list, t)
		return t
	}
	p.layers = make([]layer, spec.Layers)
	for _, t := range spec.Tensors() {
		n := func(name string) string { return fmt.Sprintf("layers.%d.%s", t.Layer, name) }
		var l *layer
		if t.Layer >= 0 && t.Role != arch.TapNorm && t.Role != arch.RowMap {
			l = &p.layers[t.Layer]
		}
		// wide adds the halves of a projection of an EAGLE-3 head's first layer.
		wide := func(name string, own, hidden **gg.Tensor) {
			if !spec.Eagle3.On || t.Layer > 0 {
				*own = add(n(name), t.Rows, t.Cols)
				return
			}
			*own, *hidden = add(n(name+".embedding"), t.Rows, t.Cols/2), add(n(name+".hidden"), t.Rows, t.Cols/2)
		}
		if blockRole(&t, spec) {
			p.block[placeOf(&t)] = add(t.Name, t.Shape()...)
			continue
		}
		switch t.Role {
		case arch.Embed:
			if !t.Optional { // a head's is its target's
				p.embed = add("embed", t.Rows, t.Cols)
			}
		case arch.FC:
			switch {
			case t.Bias:
				p.fcBias = add("fc.bias", t.Rows)
			case spec.Eagle3.FCNorm:
				for i := range spec.Eagle3.Count() {
					p.e3.fc = append(p.e3.fc, add(fmt.Sprintf("fc.%d", i), t.Rows, spec.TargetHidden()))
				}
			case spec.Eagle3.On:
				p.e3.fc = append(p.e3.fc, add("fc", t.Rows, t.Cols))
			default:
				p.fcE, p.fcF = add("fc.embedding", t.Rows, t.Cols/2), add("fc.feature", t.Rows, t.Cols/2)
			}
		case arch.TapsNorm:
			p.e3.tapsNorm = add("taps_norm", t.Rows)
		case arch.TapNorm:
			p.e3.tapNorms = append(p.e3.tapNorms, add(fmt.Sprintf("tap_norm.%d", t.Layer), t.Rows))
		case arch.FuseNorm:
			p.e3.fuseNorm = add("fuse_norm", t.Rows)
		case arch.InputNorm:
			l.inNorm = add(n("in_norm"), t.Rows)
		case arch.Q:
			wide("q", &l.q, &p.e3.q)
		case arch.K:
			wide("k", &l.k, &p.e3.k)
		case arch.V:
			wide("v", &l.v, &p.e3.v)
		case arch.QNorm:
			l.qNorm = add(n("q_norm"), t.Rows)
		case arch.KNorm:
			l.kNorm = add(n("k_norm"), t.Rows)
		case arch.O:
			l.o = add(n("o"), t.Rows, t.Cols)
		case arch.PostNorm:
			l.postNorm = add(n("post_norm"), t.Rows)
		case arch.Gate:
			l.gu = add(n("gate_up"), 2*t.Rows, t.Cols)
		case arch.Up: // the second half of gate_up
		case arch.Down:
			l.down = add(n("down"), t.Rows, t.Cols)
		case arch.FinalNorm:
			p.finalNorm = add("final_norm", t.Rows)
		case arch.LMHead:
			p.lmHead = add("lm_head", t.Rows, t.Cols)
		default:
			return nil, fmt.Errorf("network: tensor %q: training has no %s", t.Name, t.Role)
		}
	}
	return p, err
}

// Tensors returns the weights in the order in which they were allocated, which is that of the
// optimiser's state.
func (p *Params) Tensors() []*gg.Tensor { return p.list }

// pull copies the tensors' values from the device, and push copies them to it.
func (p *Params) pull() {
	for _, t := range p.list {
		t.Pull()
	}
}

func (p *Params) push() {
	for _, t := range p.list {
		t.Push()
	}
}

// Count returns the number of weights.
func (p *Params) Count() int {
	n := 0
	for _, t := range p.list {
		n += len(t.Data)
	}
	return n
}

// Init draws the weights from seed: normal with deviation 1/√inputs, the
// projections back into the residual stream divided by √(2·layers); norms 1, biases 0.
func (p *Params) Init(seed uint64) {
	defer p.push()
	r := rand.New(rand.NewPCG(seed, 0x74616c66))
	for _, t := range p.list {
		if p.initBlock(t) {
			continue
		}
		switch len(t.Shape) {
		case 1:
			v := float32(1)
			if t == p.fcBias {
				v = 0
			}
			for i := range t.Data {
				t.Data[i] = v
			}
		default:
			in := t.Shape[1]
			if t == p.fcE || t == p.fcF {
				in *= 2
			}
			in *= p.pieces(t)
			std := 1 / math.Sqrt(float64(in))
			for _, l := range p.layers {
				if t == l.o || t == l.down {
					std /= math.Sqrt(2 * float64(len(p.layers)))
				}
			}
			for i := range t.Data {
				t.Data[i] = float32(r.NormFloat64() * std)
			}
		}
	}
}

// pieces returns of how many pieces side by side an EAGLE-3 head's matrix is one.
func (p *Params) pieces(t *gg.Tensor) int {
	if !p.Spec.Eagle3.On {
		return 1
	}
	l := &p.layers[0]
	switch {
	case slices.Contains(p.e3.fc, t):
		return len(p.e3.fc)
	case slices.Contains([]*gg.Tensor{l.q, l.k, l.v, p.e3.q, p.e3.k, p.e3.v}, t):
		return 2
	}
	return 1
}

// A weight is a tensor of a checkpoint in terms of the network's tensors.
type weight struct {
	name  string
	shape []int
	parts []*gg.Tensor // side by side: fc.weight is [embedding half | feature half]
	off   int          // first element in parts[0]
}

// weights lists the checkpoint's tensors.
func (p *Params) weights() []weight {
	var ws []weight
	for _, t := range p.Spec.Tensors() {
		w := weight{name: t.Name, shape: t.Shape()}
		if w.parts, w.off = p.of(&t); w.parts != nil {
			ws = append(ws, w)
		}
	}
	return ws
}

// of returns where a checkpoint's tensor is: the network's tensors that hold its columns side by
// side, and its first element in a single one. A head's embedding is not in the network.
func (p *Params) of(t *arch.Tensor) (parts []*gg.Tensor, off int) {
	one := func(t *gg.Tensor) ([]*gg.Tensor, int) { return []*gg.Tensor{t}, 0 }
	switch {
	case t.Optional:
		return nil, 0
	case blockRole(t, p.Spec):
		return one(p.block[placeOf(t)])
	case t.Role == arch.FC && t.Bias:
		return one(p.fcBias)
	case t.Role == arch.FC && p.Spec.Eagle3.On:
		return p.e3.fc, 0
	case t.Role == arch.FC:
		return []*gg.Tensor{p.fcE, p.fcF}, 0
	case t.Role == arch.TapsNorm:
		return one(p.e3.tapsNorm)
	case t.Role == arch.TapNorm:
		return one(p.e3.tapNorms[t.Layer])
	case t.Role == arch.FuseNorm:
		return one(p.e3.fuseNorm)
	case t.Role == arch.Embed:
		return one(p.embed)
	case t.Role == arch.FinalNorm:
		return one(p.finalNorm)
	case t.Role == arch.LMHead:
		return one(p.lmHead)
	}
	l := &p.layers[t.Layer]
	wide := func(own, hidden *gg.Tensor) ([]*gg.Tensor, int) {
		if p.Spec.Eagle3.On && t.Layer == 0 {
			return []*gg.Tensor{own, hidden}, 0
		}
		return one(own)
	}
	switch t.Role {
	case arch.InputNorm:
		return one(l.inNorm)
	case arch.Q:
		return wide(l.q, p.e3.q)
	case arch.K:
		return wide(l.k, p.e3.k)
	case arch.V:
		return wide(l.v, p.e3.v)
	case arch.QNorm:
		return one(l.qNorm)
	case arch.KNorm:
		return one(l.kNorm)
	case arch.O:
		return one(l.o)
	case arch.PostNorm:
		return one(l.postNorm)
	case arch.Gate:
		return one(l.gu)
	case arch.Up:
		return []*gg.Tensor{l.gu}, t.Rows * t.Cols
	case arch.Down:
		return one(l.down)
	}
	panic("net: " + t.Name + " has no place in the network") // New refuses such a spec
}

// each copies between a checkpoint tensor's elements and the network's, row by
// row: f gets the tensor's offset and the network's memory there.
func (w *weight) each(of func(*gg.Tensor) []float32, f func(at int, mem []float32)) {
	rows, cols := w.shape[0], 1
	for _, n := range w.shape[1:] {
		cols *= n
	}
	if len(w.parts) == 1 {
		f(0, of(w.parts[0])[w.off:w.off+rows*cols])
		return
	}
	at := 0
	for r := range rows {
		for _, t := range w.parts {
			c := t.Shape[1]
			f(at, of(t)[r*c:(r+1)*c])
			at += c
		}
	}
}

// Export returns copies of the checkpoint's tensors by name: of the weights or, if of is
// not nil, of another array of each tensor's size, such as its gradient. If copying the
// weights from a device fails, the queue's next Sync returns the error.
func (p *Params) Export(of func(*gg.Tensor) []float32) []Array {
	if of == nil {
		p.pull()
		of = func(t *gg.Tensor) []float32 { return t.Data }
	}
	var out []Array
	for _, w := range p.weights() {
		n := 1
		for _, s := range w.shape {
			n *= s
		}
		a := Array{Name: w.name, Shape: w.shape, Data: make([]float32, n)}
		w.each(of, func(at int, mem []float32) { copy(a.Data[at:], mem) })
		out = append(out, a)
	}
	return out
}

// An Array is one named float32 tensor.
type Array struct {
	Name  string
	Shape []int
	Data  []float32
}

// Linear makes an EAGLE-1/2 head the linear map fc [Hidden][2·Hidden], of [embedding | feature]: the last products of its
// layers become zero, so that these add nothing to what comes in.
func (p *Params) Linear(fc func(out, in int) float32) {
	p.pull()
	defer p.push()
	w := p.Spec.Hidden
	for i := range p.fcE.Data {
		out, in := i/w, i%w
		p.fcE.Data[i], p.fcF.Data[i] = fc(out, in), fc(out, w+in)
	}
	for i := range p.layers {
		clear(p.layers[i].o.Data)
		clear(p.layers[i].down.Data)
	}
}

// LinearRows makes a linear block head the maps [Hidden][2·Hidden] of [embedding | g], one for each row, where g is
// what it reads last of the target's states under a norm. A Markov head adds nothing yet.
func (p *Params) LinearRows(norm []float32, maps func(row, out, in int) float32) {
	p.pull()
	defer p.push()
	w := p.Spec.Hidden
	for at, t := range p.block {
		switch at.role {
		case arch.FC:
			clear(t.Data)
			for i := range w {
				t.Data[i*t.Shape[1]+t.Shape[1]-w+i] = 1
			}
		case arch.FuseNorm:
			copy(t.Data, norm)
		case arch.RowMap:
			for i := range t.Data {
				t.Data[i] = maps(at.layer, i/(2*w), i%(2*w))
			}
		case arch.MarkovOut:
			clear(t.Data)
		}
	}
}

// SetMarkov sets the first columns of the embeddings W1 [Vocab][Rank] and W2 [draft tokens][Rank] of a Markov head.
func (p *Params) SetMarkov(in, out []float32, columns int) {
	p.pull()
	defer p.push()
	for role, x := range map[arch.Role][]float32{arch.MarkovIn: in, arch.MarkovOut: out} {
		t := p.block[place{role, -1, false}]
		for i := range t.Shape[0] {
			copy(t.Data[i*t.Shape[1]:], x[i*columns:][:columns])
		}
	}
}

// Import sets the weights from a checkpoint. fc.bias may be missing (it is zero
// then); one that the network has no room for must be zero.
func (p *Params) Import(set *safetensors.Set) error {
	defer p.push()
	for _, w := range p.weights() {
		t, ok := set.Tensor(w.name)
		if !ok {
			if p.fcBias != nil && w.parts[0] == p.fcBias {
				clear(p.fcBias.Data)
				continue
			}
			return fmt.Errorf("%s: no tensor %q", set.Name, w.name)
		}
		if fmt.Sprint(t.Shape) != fmt.Sprint(w.shape) {
			return fmt.Errorf("%s: tensor %q has shape %v, want %v", set.Name, w.name, t.Shape, w.shape)
		}
		f, err := t.Float32s()
		if err != nil {
			return fmt.Errorf("%s: %w", set.Name, err)
		}
		w.each(func(t *gg.Tensor) []float32 { return t.Data }, func(at int, mem []float32) { copy(mem, f[at:]) })
	}
	if p.Spec.Draft && p.fcBias == nil {
		if t, ok := set.Tensor(p.Spec.Bias(arch.FC, 0)); ok {
			f, err := t.Float32s()
			if err != nil {
				return fmt.Errorf("%s: %w", set.Name, err)
			}
			for _, v := range f {
				if v != 0 {
					return fmt.Errorf("%s: tensor %q is not zero, but this head has no fc bias", set.Name, t.Name)
				}
			}
		}
	}
	return nil
}
