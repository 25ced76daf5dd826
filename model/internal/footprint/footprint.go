// Package footprint says how much of a device's memory a model takes, and refuses one that is too
// large before anything is loaded.
package footprint

import (
	"cmp"
	"fmt"
	"math"
	"strings"

	"talf/compute"
	"talf/model/arch"
	"talf/model/internal/kvpool"
	"talf/model/internal/mla"
	"talf/model/internal/recur"
)

// Options are what a model's use of memory depends on beside its specification.
type Options struct {
	Weights   compute.DType            // of packed weights
	Kept      map[string]compute.Kept  // matrices that Q4 and Stored keep; they take the others as Q8
	Floats    map[string]compute.DType // but those that Stored takes as they are
	Table     int64                    // bytes of an embedding that is not packed
	KV        compute.DType            // of keys and values
	MaxRows   int                      // rows of one internal pass
	Positions int                      // of keys and values
	LogitRows int                      // rows that have logits at one time; 0: PlanRows
}

// Blocks returns the blocks for Positions: of one text, or in labelling, which begins trees at all positions
// and so gives nothing back, of all texts.
func (o Options) Blocks(l *kvpool.Layout) int {
	if o.LogitRows > 0 {
		return len(l.Windows) * kvpool.Blocks(o.Positions)
	}
	return l.Takes(0, o.Positions, min(o.Positions, o.MaxRows))
}

// A layout is what a device packs a matrix as.
type layout struct {
	as   compute.DType // not Stored
	kept compute.Kept  // of Q4
}

// layout returns that of a matrix.
func (o *Options) layout(name string) layout {
	switch kept := o.Kept[name]; {
	case o.Weights != compute.Stored:
		return layout{o.Weights, kept}
	case kept != compute.NotKept:
		return layout{compute.Q4, kept}
	}
	if as, ok := o.Floats[name]; ok {
		return layout{as: as}
	}
	return layout{as: compute.Q8}
}

// logitRows returns the rows that have logits at one time.
func (o *Options) logitRows() int { return cmp.Or(o.LogitRows, PlanRows) }

// A Footprint is a model's use of device memory, in bytes.
type Footprint struct {
	Weights   int64
	KV        int64 // for Positions
	Work      int64 // activations, logits, and the buffers that products and attention share
	Positions int
}

// Total returns the sum.
func (f Footprint) Total() int64 { return f.Weights + f.KV + f.Work }

// PlanRows is the largest number of rows that have logits at one time in decoding: the
// nodes of a tree.
const PlanRows = 64

// Of returns the memory that a model will take on a device of limited memory if it is
// loaded with opt. It does the same sums as loading, before anything is loaded. A draft
// head's embedding, and an LM head that is not its own, are not counted, because they
// belong to its target.
func Of(spec *arch.Spec, dev compute.Planner, opt Options) Footprint {
	f := Footprint{Positions: opt.Positions}
	latent := mla.Type(opt.Weights)
	stacked, last := 0, layout{} // rows of queries, keys and values, which are packed together, and their layout
	for _, t := range spec.Tensors() {
		switch {
		case t.Cols == 0 || t.Optional:
		case t.Role == arch.Q || t.Role == arch.K || t.Role == arch.V:
			if l := opt.layout(t.Name); stacked > 0 && l != last {
				f.Weights += dev.WeightBytes(last.as, last.kept, stacked, t.Cols)
				stacked = 0
			}
			stacked, last = stacked+t.Rows, opt.layout(t.Name)
			if t.Role == arch.V {
				f.Weights += dev.WeightBytes(last.as, last.kept, stacked, t.Cols)
				stacked = 0
			}
		case t.Role == arch.KVUp:
			f.Weights += int64(spec.Heads) * (dev.WeightBytes(latent, compute.NotKept, spec.Latent.KVRank, spec.Latent.Nope) + dev.WeightBytes(latent, compute.NotKept, spec.Latent.ValueDim, spec.Latent.KVRank))
		case t.Role == arch.KeyUp || t.Role == arch.ValueUp:
			f.Weights += int64(spec.Heads) * dev.WeightBytes(latent, compute.NotKept, t.Rows/spec.Heads, t.Cols)
		case t.Role == arch.Embed && opt.Table > 0:
			f.Weights += opt.Table
		default:
			l := opt.layout(t.Name)
			f.Weights += dev.WeightBytes(l.as, l.kept, t.Rows, t.Cols)
		}
	}
	h, q := spec.Hidden, spec.Heads*spec.HeadDim
	shape := KVConfig(spec, opt.KV)
	layout, _ := Layout(spec)
	f.KV = dev.KVBytes(shape, opt.Blocks(&layout)) + 8*int64(spec.Delta.StateElements()) // of one sequence, and before it
	rows := int64(opt.MaxRows)
	// The residual stream, its norm and two passes' hidden states; projections,
	// attention and the feed-forward network; a head's inputs.
	f.Work = 4 * rows * int64(4*h+spec.FFN)
	f.Work += rows * recur.RowBytes(spec)
	if spec.Latent.On() {
		f.Work += rows * mla.RowBytes(spec)
	} else {
		f.Work += 4 * rows * int64(shape.Projection(spec.Heads)+q)
	}
	if spec.Draft {
		f.Work += 4 * rows * int64(2*h)
	}
	if spec.Eagle3.On {
		f.Work += 4 * rows * int64(spec.FeatureSize()+h+spec.TargetHidden())
	}
	if spec.Block.On {
		f.Work += 4 * rows * int64(spec.FeatureSize()+shape.Projection(spec.Heads))
	}
	f.Work += 4 * int64(opt.logitRows()) * int64(spec.Vocab)
	width := max(h, spec.FFN, q)
	if !spec.Draft { // sums of logits
		f.Weights += dev.WeightBytes(compute.F32, compute.NotKept, 1, spec.Vocab)
		width = max(width, spec.Vocab)
	}
	f.Work += dev.WorkBytes(shape, spec.Heads, width, PlanRows, opt.Positions)
	return f
}

// Layout returns how the blocks of a model's KV pool divide its layers with keys and values, and where
// those of each layer are.
func Layout(spec *arch.Spec) (kvpool.Layout, []kvpool.Place) {
	windows, layers := make([]int, 0, spec.Layers), make([]int, 0, spec.Layers)
	for i := range spec.Layers {
		if spec.Delta.On(i) {
			continue
		}
		layers = append(layers, i)
		w := spec.Window(i)
		if w >= spec.MaxPos {
			w = 0 // which no text fills
		}
		windows = append(windows, w)
	}
	layout, of := kvpool.Arrange(windows)
	places := make([]kvpool.Place, spec.Layers)
	for i, p := range of {
		places[layers[i]] = p
	}
	return layout, places
}

// KVConfig returns the shape of a model's keys and values in blocks of its Layout.
func KVConfig(spec *arch.Spec, as compute.DType) compute.KVConfig {
	l, _ := Layout(spec)
	c := compute.KVConfig{Layers: l.Layers, KVHeads: spec.KVHeads, HeadDim: spec.HeadDim, Type: as}
	if spec.Latent.On() {
		c.KVHeads, c.HeadDim, c.Latent = mla.Shape(spec)
	}
	return c
}

// shortText is the number of positions that a model must have memory for on a device that reserves
// none.
const shortText = 256

// Pool returns the capacity of a model's KV pool in blocks if its options set none: half of the
// memory that the model leaves, but enough for a short text. Other models and the heap share the
// other half. It returns 0, no bound, if the device does not know its memory or reserves positions.
func Pool(spec *arch.Spec, dev compute.Device, opt Options) int {
	p := dev.Abilities().Account
	if p == nil {
		return 0
	}
	free, err := p.Free()
	if err != nil || free == math.MaxInt64 {
		return 0
	}
	opt.Positions = 0
	left := (free - Of(spec, p, opt).Total()) / 2
	blocks := left / p.KVBytes(KVConfig(spec, opt.KV), 1)
	layout, _ := Layout(spec)
	return int(min(max(blocks, int64(layout.Keeps(min(shortText, spec.MaxPos), true))), kvpool.Unbounded))
}

// Check refuses a model that is too large for its device before anything is loaded, and
// says which settings would fit.
func Check(name string, spec *arch.Spec, dev compute.Device, opt Options) error {
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
	f := Of(spec, p, opt)
	if f.Total() <= free {
		return nil
	}
	var would []string
	// most returns the number of positions that fit, in steps of 256.
	most := func(opt Options) int {
		n := 0
		for step := 1 << 30; step >= 256; step /= 2 {
			opt.Positions = n + step
			if opt.Positions <= spec.MaxPos && Of(spec, p, opt).Total() <= free {
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
		o.Weights = as
		if as == opt.Weights || as == compute.Q4 && len(opt.Kept) == 0 || Of(spec, p, o).Weights >= f.Weights {
			continue
		}
		switch n := most(o); {
		case Of(spec, p, o).Total() <= free:
			would = append(would, fmt.Sprintf("weights as %v", as))
		case n > 0:
			would = append(would, fmt.Sprintf("weights as %v and %d positions", as, n))
		}
	}
	o := opt
	if o.KV = compute.BF16; opt.KV == compute.F32 && Of(spec, p, o).Total() <= free {
		would = append(would, "keys and values as BF16")
	}
	for o := opt; o.LogitRows > PlanRows; {
		o.LogitRows /= 2
		if o.MaxRows = min(o.MaxRows, o.LogitRows); Of(spec, p, o).Total() <= free {
			would = append(would, fmt.Sprintf("passes of %d rows", o.LogitRows))
			break
		}
	}
	what := "nothing smaller would"
	if len(would) > 0 {
		what = "what would: " + strings.Join(would, "; or ")
	}
	return fmt.Errorf("%s does not fit: %s of weights as %v, %s of keys and values as %v of %d positions and %s to work with are %s, but %s of %s are free; %s",
		name, mib(f.Weights), opt.Weights, mib(f.KV), opt.KV, opt.Positions, mib(f.Work), mib(f.Total()), mib(free), dev.Name(), what)
}

func mib(n int64) string {
	if n >= 1<<30 {
		return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30))
	}
	return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
}
