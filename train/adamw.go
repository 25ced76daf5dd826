package train

import (
	"fmt"
	"math"

	"talf/compute"
	"talf/model/safetensors"
	"talf/train/internal/gg"
)

// An optimiser is AdamW (Loshchilov and Hutter 2019) with global-norm clipping:
//
//	c = min(1, clip/(‖g‖ + 1e-6)),  θ ← θ·(1 − lr·decay)
//	m ← β₁m + (1−β₁)cg,  v ← β₂v + (1−β₂)(cg)²,  θ ← θ − lr·m̂/(√v̂ + eps)
//
// Decay applies to all weights, norms and biases included, as in data/reference.
type optimiser struct {
	cfg    Config
	ops    compute.TrainOps
	q      compute.Queue
	params []*gg.Tensor
	m, v   []*gg.Tensor
	sum    []*gg.Tensor // gradients of several micro-batches or ranks; nil if there is one
	zeros  []float32
	step   int
}

func newOptimiser(cfg Config, q compute.Queue, params []*gg.Tensor) (*optimiser, error) {
	o := &optimiser{cfg: cfg, ops: q.Abilities().Train, q: q, params: params}
	like := func(prefix string) (out []*gg.Tensor, err error) {
		for _, p := range params {
			t, err := gg.NewTensor(q, prefix+p.Name, make([]float32, len(p.Data)), p.Shape...)
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
	if cfg.Accum > 1 {
		sum, err := like("sum.")
		if err != nil {
			return nil, err
		}
		o.gatherIn(sum)
	}
	return o, nil
}

// gatherIn makes sum the memory in which gradients are gathered.
func (o *optimiser) gatherIn(sum []*gg.Tensor) {
	o.sum = sum
	for _, s := range sum {
		if len(o.zeros) < len(s.Data) {
			o.zeros = make([]float32, len(s.Data))
		}
	}
}

// gather takes the gradients of micro-batch i of the step.
func (o *optimiser) gather(i int, nodes []*gg.Node) {
	for j := range o.sum {
		o.gatherOne(i, j, nodes)
	}
}

// gatherOne is gather of parameter j alone.
func (o *optimiser) gatherOne(i, j int, nodes []*gg.Node) {
	s := o.sum[j]
	n := len(s.Data)
	switch far := o.q.Abilities().Remote; {
	case i > 0:
	case far != nil:
		far.Clear(s.Buf, n)
	default:
		o.q.Write(s.Buf, o.zeros[:n])
	}
	o.ops.Add(s.Buf, s.Buf, nodes[j].GradBuffer(), n)
}

// update makes one step at learning rate lr with the gathered gradients and
// returns their norm before clipping. If that is not finite it changes nothing
// and is not ok.
func (o *optimiser) update(nodes []*gg.Node, lr float64) (norm float64, ok bool) {
	grad := func(i int) compute.Buffer {
		if o.sum != nil {
			return o.sum[i].Buf
		}
		return nodes[i].GradBuffer()
	}
	all := make([]compute.Buffer, len(o.params))
	for i := range all {
		all[i] = grad(i)
	}
	if norm = math.Sqrt(o.ops.SumSquares(all...)); !finite(norm) {
		return norm, false
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
	for i, p := range o.params {
		o.ops.AdamW(p.Buf, grad(i), o.m[i].Buf, o.v[i].Buf, h)
	}
	return norm, true
}

// tensors returns the moments for a checkpoint.
func (o *optimiser) tensors() []safetensors.Tensor {
	var out []safetensors.Tensor
	for i := range o.params {
		for _, t := range []*gg.Tensor{o.m[i], o.v[i]} {
			t.Pull()
			out = append(out, safetensors.F32(t.Name, t.Data, t.Shape...))
		}
	}
	return out
}

// restore reads the moments of a checkpoint.
func (o *optimiser) restore(set *safetensors.Set, step int) error {
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
