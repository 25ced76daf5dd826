// Package optim updates weights: AdamW over the gradients of a step, which may be accumulated
// over several micro-batches, and summed over several ranks while the backward pass runs.
package optim

import (
	"fmt"
	"math"
	"slices"

	"talf/compute"
	"talf/internal/slab"
	"talf/model/safetensors"
	"talf/train/internal/gg"
)

// A Config configures the optimiser.
type Config struct {
	Beta1, Beta2, Eps float64
	Decay             float64 // decoupled weight decay
	Clip              float64 // largest global gradient norm; 0: no clipping
	// Gather says that the gradients of a step are accumulated before the update.
	Gather bool
}

// An AdamW is AdamW (Loshchilov and Hutter 2019) with global-norm clipping:
//
//	c = min(1, clip/(‖g‖ + 1e-6)),  θ ← θ·(1 − lr·decay)
//	m ← β₁m + (1−β₁)cg,  v ← β₂v + (1−β₂)(cg)²,  θ ← θ − lr·m̂/(√v̂ + eps)
//
// Decay applies to all weights, norms and biases included, as in data/reference.
type AdamW struct {
	cfg    Config
	ops    compute.TrainOps
	q      compute.Queue
	params []*gg.Tensor
	m, v   []*gg.Tensor
	sum    []*gg.Tensor // accumulated gradients; nil if they are not accumulated
	step   int
}

// New returns an optimiser of params, whose operations run on q.
func New(cfg Config, q compute.Queue, params []*gg.Tensor) (*AdamW, error) {
	o := &AdamW{cfg: cfg, ops: q.Abilities().Train, q: q, params: params}
	like := func(prefix string) (out []*gg.Tensor, err error) {
		for _, p := range params {
			t, err := gg.NewTensor(q, prefix+p.Name, slab.Floats(len(p.Data)), p.Shape...)
			if err != nil {
				return nil, err
			}
			out = append(out, t)
		}
		return out, nil
	}
	var err error
	if o.m, err = like("m."); err != nil {
		return nil, err
	}
	if o.v, err = like("v."); err != nil {
		return nil, err
	}
	if cfg.Gather {
		sum, err := like("sum.")
		if err != nil {
			return nil, err
		}
		o.GatherIn(sum)
	}
	return o, nil
}

// Step returns how many updates were made.
func (o *AdamW) Step() int { return o.step }

// Moments returns the first and the second moments of all parameters.
func (o *AdamW) Moments() []*gg.Tensor { return slices.Concat(o.m, o.v) }

// GatherIn makes sum the memory in which gradients are accumulated.
func (o *AdamW) GatherIn(sum []*gg.Tensor) { o.sum = sum }

// Gather adds the gradients of micro-batch i of the step.
func (o *AdamW) Gather(i int, nodes []*gg.Node) {
	for j := range o.sum {
		o.GatherOne(i, j, nodes)
	}
}

// GatherOne is Gather for parameter j alone.
func (o *AdamW) GatherOne(i, j int, nodes []*gg.Node) {
	s := o.sum[j]
	n := len(s.Data)
	switch far := o.q.Abilities().Remote; {
	case i > 0:
	case far != nil:
		far.Clear(s.Buf, n)
	default:
		clear(s.Data) // the buffer's own memory
	}
	o.ops.Add(s.Buf, s.Buf, nodes[j].GradBuffer(), n)
}

// Update makes one step at learning rate lr with the gradients of nodes, or the accumulated
// ones, and returns their norm before clipping. If that is not finite, Update changes nothing
// and ok is false.
func (o *AdamW) Update(nodes []*gg.Node, lr float64) (norm float64, ok bool) {
	norm = o.Norm(nodes)
	return norm, o.Apply(nodes, lr, norm)
}

// Gradients returns the gradients of nodes, or the accumulated ones, by parameter.
func (o *AdamW) Gradients(nodes []*gg.Node) []compute.Buffer {
	all := make([]compute.Buffer, len(o.params))
	for i := range all {
		if o.sum != nil {
			all[i] = o.sum[i].Buf
		} else {
			all[i] = nodes[i].GradBuffer()
		}
	}
	return all
}

// Norm returns the norm of the gradients, before clipping. It waits for the device.
func (o *AdamW) Norm(nodes []*gg.Node) float64 {
	return math.Sqrt(o.ops.SumSquares(o.Gradients(nodes)...))
}

// Apply is Update with the norm that Norm returned.
func (o *AdamW) Apply(nodes []*gg.Node, lr, norm float64) (ok bool) {
	if math.IsNaN(norm) || math.IsInf(norm, 0) {
		return false
	}
	scale := 1.0
	if o.cfg.Clip > 0 {
		scale = min(1, o.cfg.Clip/(norm+1e-6))
	}
	o.step++
	h := compute.AdamW{
		LR: float32(lr), Beta1: float32(o.cfg.Beta1), Beta2: float32(o.cfg.Beta2),
		Eps: float32(o.cfg.Eps), Decay: float32(o.cfg.Decay), Scale: float32(scale), Step: o.step,
	}
	for i, g := range o.Gradients(nodes) {
		o.ops.AdamW(o.params[i].Buf, g, o.m[i].Buf, o.v[i].Buf, h)
	}
	return true
}

// Tensors returns the moments for a checkpoint.
func (o *AdamW) Tensors() []safetensors.Tensor {
	var out []safetensors.Tensor
	for i := range o.params {
		for _, t := range []*gg.Tensor{o.m[i], o.v[i]} {
			t.Pull()
			out = append(out, safetensors.F32(t.Name, t.Data, t.Shape...))
		}
	}
	return out
}

// SetStep continues after step updates.
func (o *AdamW) SetStep(step int) { o.step = step }

// Restore reads the moments of a checkpoint that was written after step updates.
func (o *AdamW) Restore(set *safetensors.Set, step int) error {
	for i := range o.params {
		for _, t := range []*gg.Tensor{o.m[i], o.v[i]} {
			s, err := set.Get(t.Name)
			if err != nil {
				return err
			}
			if fmt.Sprint(s.Shape) != fmt.Sprint(t.Shape) || s.DType != "F32" {
				return fmt.Errorf("%s: tensor %q is %s %v, want F32 %v", set.Name, t.Name, s.DType, s.Shape, t.Shape)
			}
			f, err := s.Float32s()
			if err != nil {
				return err
			}
			copy(t.Data, f)
			t.Push()
		}
	}
	o.step = step
	return nil
}
