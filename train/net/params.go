// Package net builds the training graphs of draft heads and of small language
// models, and holds their weights under the names that checkpoints use.
//
// model/head and model run the same networks for decoding; a test pins the two
// forward passes to each other.
package net

import (
	"fmt"
	"math"
	"math/rand/v2"

	"talf/compute"
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
	// Language models.
	embed, finalNorm, lmHead *gg.Tensor

	layers []layer
	list   []*gg.Tensor
}

type layer struct {
	inNorm, q, k, v, o, postNorm, gu, down *gg.Tensor
}

// New allocates the weights of spec, all zero. It refuses what training cannot
// do: biases other than fc's, and architectures other than Llama's.
func New(q compute.Queue, spec *arch.Spec) (*Params, error) {
	if err := spec.Validate(); err != nil {
		return nil, fmt.Errorf("network: %w", err)
	}
	if spec.Arch != "llama" {
		return nil, fmt.Errorf("network: model_type is %q, want \"llama\": training supports no other", spec.Arch)
	}
	if spec.QKVBias || spec.OBias || spec.MLPBias {
		return nil, fmt.Errorf("network: attention_bias or mlp_bias: training supports neither")
	}
	p := &Params{Spec: spec}
	var err error
	add := func(name string, shape ...int) *gg.Tensor {
		n := 1
		for _, s := range shape {
			n *= s
		}
		t, e := gg.NewTensor(q, name, make([]float32, n), shape...)
		if e != nil && err == nil {
			err = e
		}
		p.list = append(p.list, t)
		return t
	}
	h, qd, kv, f := spec.Hidden, spec.Heads*spec.HeadDim, spec.KVHeads*spec.HeadDim, spec.FFN
	if spec.Draft {
		p.fcE, p.fcF = add("fc.embedding", h, h), add("fc.feature", h, h)
		if spec.FCBias {
			p.fcBias = add("fc.bias", h)
		}
	} else {
		p.embed = add("embed", spec.Vocab, h)
	}
	for i := range spec.Layers {
		n := func(s string) string { return fmt.Sprintf("layers.%d.%s", i, s) }
		var l layer
		if !spec.Draft || i > 0 { // a head's first layer follows fc as it is
			l.inNorm = add(n("in_norm"), h)
		}
		l.q, l.k, l.v, l.o = add(n("q"), qd, h), add(n("k"), kv, h), add(n("v"), kv, h), add(n("o"), h, qd)
		l.postNorm = add(n("post_norm"), h)
		l.gu, l.down = add(n("gate_up"), 2*f, h), add(n("down"), h, f)
		p.layers = append(p.layers, l)
	}
	if !spec.Draft {
		p.finalNorm = add("final_norm", h)
		if !spec.Tied {
			p.lmHead = add("lm_head", spec.Vocab, h)
		}
	}
	return p, err
}

// Tensors returns the weights in the order of their making: the order of the
// optimiser's state.
func (p *Params) Tensors() []*gg.Tensor { return p.list }

// pull makes the tensors' data what the device holds, and push the reverse.
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

// A weight is one tensor of a checkpoint as rows of the network's own tensors.
type weight struct {
	name  string
	shape []int
	parts []*gg.Tensor // side by side: fc.weight is [embedding half | feature half]
	off   int          // first element in parts[0]
}

// weights lists the checkpoint's tensors.
func (p *Params) weights() []weight {
	s, n := p.Spec, &p.Spec.Names
	var ws []weight
	one := func(name string, t *gg.Tensor) {
		ws = append(ws, weight{name: name, shape: t.Shape, parts: []*gg.Tensor{t}})
	}
	if s.Draft {
		ws = append(ws, weight{name: n.FC + ".weight", shape: []int{s.Hidden, 2 * s.Hidden}, parts: []*gg.Tensor{p.fcE, p.fcF}})
		if p.fcBias != nil {
			one(n.FC+".bias", p.fcBias)
		}
	} else {
		one(n.Embed+".weight", p.embed)
	}
	for i, l := range p.layers {
		in := func(name string) string { return n.In(i, name) + ".weight" }
		if l.inNorm != nil {
			one(in(n.InputNorm), l.inNorm)
		}
		one(in(n.Q), l.q)
		one(in(n.K), l.k)
		one(in(n.V), l.v)
		one(in(n.O), l.o)
		one(in(n.PostNorm), l.postNorm)
		half := []int{s.FFN, s.Hidden}
		ws = append(ws, weight{name: in(n.Gate), shape: half, parts: []*gg.Tensor{l.gu}},
			weight{name: in(n.Up), shape: half, parts: []*gg.Tensor{l.gu}, off: s.FFN * s.Hidden})
		one(in(n.Down), l.down)
	}
	if !s.Draft {
		one(n.FinalNorm+".weight", p.finalNorm)
		if p.lmHead != nil {
			one(n.LMHead+".weight", p.lmHead)
		}
	}
	return ws
}

// each copies between a checkpoint tensor's elements and the network's, row by
// row: f gets the tensor's offset and the network's memory there.
func (w *weight) each(of func(*gg.Tensor) []float32, f func(at int, mem []float32)) {
	rows, cols := w.shape[0], 1
	if len(w.shape) == 2 {
		cols = w.shape[1]
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

// Export returns copies of the checkpoint's tensors by name, of the weights or,
// if of is not nil, of another array of each tensor's size: a gradient, a moment.
// What fails in copying the weights from a device shows at its queue's next Sync.
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

// ImportLayers sets the layers of a draft head to the last layers of a target of
// the same sizes, named by names. The head's first layer has no norm before it: the
// norm's weights are multiplied into what follows it, W·(x∘g) = (W·diag g)·x.
func (p *Params) ImportLayers(set *safetensors.Set, names *arch.Names, layers int) error {
	p.pull()
	defer p.push()
	h := p.Spec.Hidden
	for i, l := range p.layers {
		at := layers - len(p.layers) + i
		if at < 0 {
			return fmt.Errorf("%s: %d layers, want at least %d", set.Name, layers, len(p.layers))
		}
		get := func(to []float32, name string) error {
			t, err := set.Get(names.In(at, name) + ".weight")
			if err != nil {
				return err
			}
			if t.Len() != len(to) {
				return fmt.Errorf("%s: tensor %q has shape %v, want %d elements", set.Name, t.Name, t.Shape, len(to))
			}
			f, err := t.Float32s()
			if err != nil {
				return fmt.Errorf("%s: %w", set.Name, err)
			}
			copy(to, f)
			return nil
		}
		norm := make([]float32, h)
		half := len(l.gu.Data) / 2
		for _, w := range []struct {
			to   []float32
			name string
		}{
			{norm, names.InputNorm},
			{l.q.Data, names.Q},
			{l.k.Data, names.K},
			{l.v.Data, names.V},
			{l.o.Data, names.O},
			{l.postNorm.Data, names.PostNorm},
			{l.gu.Data[:half], names.Gate},
			{l.gu.Data[half:], names.Up},
			{l.down.Data, names.Down},
		} {
			if err := get(w.to, w.name); err != nil {
				return err
			}
		}
		if l.inNorm != nil {
			copy(l.inNorm.Data, norm)
			continue
		}
		for _, t := range []*gg.Tensor{l.q, l.k, l.v} {
			for j := range t.Data {
				t.Data[j] *= norm[j%h]
			}
		}
	}
	return nil
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
		if t, ok := set.Tensor(p.Spec.Names.FC + ".bias"); ok {
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
