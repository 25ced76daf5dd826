package model

import (
	"fmt"
	"math"
	"strings"

	"talf/compute"
	"talf/model/arch"
	"talf/model/internal/kvpool"
)

// A Footprint is a model's use of device memory, in bytes.
type Footprint struct {
	Weights   int64
	KV        int64 // for Positions
	Work      int64 // activations, logits, and the buffers that products and attention share
	Positions int
}

// Total returns the sum.
func (f Footprint) Total() int64 { return f.Weights + f.KV + f.Work }

// planRows is the largest number of rows that have logits at one time in decoding: the
// nodes of a tree.
const planRows = 64

// Plan returns the memory that a model will take on a device of limited memory if it is
// loaded with opt. It does the same sums as loading, before anything is loaded. A draft
// head's embedding, and an LM head that is not its own, are not counted, because they
// belong to its target.
func Plan(spec *arch.Spec, dev compute.Planner, opt Options) Footprint {
	f := Footprint{Positions: opt.Positions}
	stacked := 0 // rows of queries, keys and values, which are packed together
	for _, t := range spec.Tensors() {
		switch {
		case t.Cols == 0 || t.Optional:
		case t.Role == arch.Q || t.Role == arch.K:
			stacked += t.Rows
		case t.Role == arch.V:
			f.Weights += dev.WeightBytes(opt.packed(t.Name), stacked+t.Rows, t.Cols)
			stacked = 0
		default:
			f.Weights += dev.WeightBytes(opt.packed(t.Name), t.Rows, t.Cols)
		}
	}
	h, q, kv := spec.Hidden, spec.Heads*spec.HeadDim, spec.KVHeads*spec.HeadDim
	f.KV = dev.KVBytes(kvConfig(spec, opt), nblocks(opt.Positions))
	rows := int64(opt.MaxRows)
	// The residual stream, its norm and two passes' hidden states; projections,
	// attention and the feed-forward network; a head's inputs.
	f.Work = 4 * rows * int64(4*h+2*q+2*kv+spec.FFN)
	if spec.Draft {
		f.Work += 4 * rows * int64(2*h)
	}
	if spec.Eagle3.On {
		f.Work += 4 * rows * int64(spec.FeatureSize()+h+spec.TargetHidden())
	}
	f.Work += 4 * planRows * int64(spec.Vocab)
	width := max(h, spec.FFN, q)
	if !spec.Draft { // sums of logits
		f.Weights += dev.WeightBytes(compute.F32, 1, spec.Vocab)
		width = max(width, spec.Vocab)
	}
	f.Work += dev.WorkBytes(kvConfig(spec, opt), spec.Heads, width, planRows, opt.Positions)
	return f
}

// packed returns the type that a matrix takes memory as.
func (o *Options) packed(name string) compute.DType {
	if o.DType == compute.Q4 && !o.four[name] {
		return compute.Q8
	}
	return o.DType
}

func kvConfig(spec *arch.Spec, opt Options) compute.KVConfig {
	return compute.KVConfig{Layers: spec.Layers, KVHeads: spec.KVHeads, HeadDim: spec.HeadDim, Type: opt.KV}
}

// shortText is the number of positions that a model must have memory for on a device that reserves
// none.
const shortText = 256

// poolOf returns the capacity of a model's KV pool in blocks if its options set none: half of the
// memory that the model leaves, but enough for a short text. Other models and the heap share the
// other half. It returns 0, no bound, if the device does not know its memory or reserves positions.
func poolOf(spec *arch.Spec, dev compute.Device, opt Options) int {
	p := dev.Abilities().Account
	if p == nil {
		return 0
	}
	free, err := p.Free()
	if err != nil || free == math.MaxInt64 {
		return 0
	}
	opt.Positions = 0
	left := (free - Plan(spec, p, opt).Total()) / 2
	blocks := left / p.KVBytes(kvConfig(spec, opt), 1)
	return int(min(max(blocks, int64(nblocks(min(shortText, spec.MaxPos)))), kvpool.Unbounded))
}

// fits refuses a model that is too large for its device before anything is loaded, and
// says which settings would fit.
func fits(name string, spec *arch.Spec, dev compute.Device, opt Options) error {
	p := dev.Abilities().Plan
	if p != nil && opt.Positions == 0 {
		return nil
	}
	if p == nil {
		if p = dev.Abilities().Account; p == nil {
			return nil
		}
		// Memory is taken as needed, but a model that cannot run a short text is of no use.
		opt.Positions = max(opt.Positions, min(shortText, spec.MaxPos))
	}
	free, err := p.Free()
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	f := Plan(spec, p, opt)
	if f.Total() <= free {
		return nil
	}
	var would []string
	// most returns the number of positions that fit, in steps of 256.
	most := func(opt Options) int {
		n := 0
		for step := 1 << 30; step >= 256; step /= 2 {
			opt.Positions = n + step
			if opt.Positions <= spec.MaxPos && Plan(spec, p, opt).Total() <= free {
				n += step
			}
		}
		return n
	}
	if n := most(opt); n > 0 {
		would = append(would, fmt.Sprintf("%d positions", n))
	}
	for _, as := range []compute.DType{compute.BF16, compute.Q8, compute.Q4} {
		o := opt
		o.DType = as
		// A device that reserves memory has no Q4.
		if as == opt.DType || as == compute.Q4 && (len(opt.four) == 0 || dev.Abilities().Plan != nil) || Plan(spec, p, o).Weights >= f.Weights {
			continue
		}
		switch n := most(o); {
		case Plan(spec, p, o).Total() <= free:
			would = append(would, fmt.Sprintf("weights as %v", as))
		case n > 0:
			would = append(would, fmt.Sprintf("weights as %v and %d positions", as, n))
		}
	}
	o := opt
	if o.KV = compute.BF16; opt.KV == compute.F32 && Plan(spec, p, o).Total() <= free {
		would = append(would, "keys and values as BF16")
	}
	what := "nothing smaller would"
	if len(would) > 0 {
		what = "what would: " + strings.Join(would, "; or ")
	}
	return fmt.Errorf("%s does not fit: %s of weights as %v, %s of keys and values as %v of %d positions and %s to work with are %s, but %s of %s are free; %s",
		name, mib(f.Weights), opt.DType, mib(f.KV), opt.KV, opt.Positions, mib(f.Work), mib(f.Total()), mib(free), dev.Name(), what)
}

func mib(n int64) string {
	if n >= 1<<30 {
		return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30))
	}
	return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
}

// setAside reserves all memory that decoding needs, so that nothing is allocated later.
func (m *Model) setAside() error {
	if m.dev.Abilities().Plan == nil || m.opt.Positions == 0 {
		return nil
	}
	if err := m.blocks.Grow(nblocks(m.opt.Positions)); err != nil {
		return err
	}
	if err := m.growRope(min(m.opt.Positions, m.spec.MaxPos)); err != nil {
		return err
	}
	return m.grow(m.opt.MaxRows, planRows)
}
