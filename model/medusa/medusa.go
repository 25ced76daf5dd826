// Package medusa runs Medusa heads (Cai et al. 2024, §2.1.1): small networks side by side on a
// target's last hidden state, of which head k predicts the token k+2 positions after the one that the
// state is of. The token after it is the target's own. A head knows the text only by that state, so its
// distribution is the same after every token that the heads before it may propose.
//
// A head is some blocks x + SiLU(Wx + b) and an LM head of its own.
package medusa

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"

	"talf/compute"
	"talf/internal/mapped"
	"talf/model"
	"talf/model/identity"
	"talf/model/safetensors"
)

// Bounds of what files may ask for.
const (
	MaxHeads  = 64
	MaxLayers = 64 // blocks of a head
)

// A Spec says what heads there are.
type Spec struct {
	Heads  int
	Layers int // blocks of each head
	Hidden int // elements of the target's hidden state
	Vocab  int // tokens of the target
}

// Weight and Bias name the linear layer of a block, and LMHead the LM head, as the authors' code
// saves them. Biases may be missing.
func (s *Spec) Weight(head, layer int) string { return fmt.Sprintf("%d.%d.linear.weight", head, layer) }

func (s *Spec) Bias(head, layer int) string { return fmt.Sprintf("%d.%d.linear.bias", head, layer) }
func (s *Spec) LMHead(head int) string      { return fmt.Sprintf("%d.%d.weight", head, s.Layers) }

// Validate reports a number that is out of bounds.
func (s *Spec) Validate() error {
	switch {
	case s.Heads < 1 || s.Heads > MaxHeads:
		return fmt.Errorf("%d Medusa heads, want 1..%d", s.Heads, MaxHeads)
	case s.Layers < 0 || s.Layers > MaxLayers:
		return fmt.Errorf("heads of %d blocks, want 0..%d", s.Layers, MaxLayers)
	case s.Hidden < 1 || s.Vocab < 1:
		return fmt.Errorf("heads for a hidden size of %d and %d tokens, want positive numbers", s.Hidden, s.Vocab)
	}
	return nil
}

// Heads are Medusa heads on their target's device. One goroutine at a time may use them, and none while
// the target runs.
type Heads struct {
	spec     Spec
	set      *safetensors.Set
	target   *model.Model
	dev      compute.Device
	q        compute.Queue
	heads    []network
	packed   map[stored]compute.Weight // while they are loaded
	flaw     error
	function *identity.Function

	// Of a pass. x and y take turns as a block's input and output.
	cap    int            // rows of the buffers
	x, y   compute.Buffer // [cap][Hidden]
	logits compute.Buffer // [cap][Vocab]
	part   compute.Buffer // [cap][Vocab]: logits of one of several heads
	iota   []int32        // [cap]
	rows   []int32        // of the states of a pass
	n      int            // rows of the newest pass
	top    top
}

// stored is a matrix of a file, which heads may share: its first byte, its rows and its type.
type stored struct {
	data  *byte
	rows  int
	dtype string
}

type network struct {
	blocks []compute.Linear
	lm     compute.Linear
}

// A top is memory for the likeliest tokens of rows.
type top struct {
	k, cap    int
	ids, logp compute.Buffer // [cap][k]
}

// New loads heads for a target from a set that names tensors as Spec does. The heads close the set; if
// New fails, it stays open. They must not outlive the target, whose type of weights they have.
func New(spec Spec, set *safetensors.Set, target *model.Model) (h *Heads, err error) {
	defer mapped.Guard(&err)()
	t := target.Spec()
	switch err := spec.Validate(); {
	case err != nil:
		return nil, fmt.Errorf("%s: %w", set.Name, err)
	case spec.Hidden != t.Hidden:
		return nil, fmt.Errorf("%s: Medusa heads for a hidden size of %d, but the target's is %d", set.Name, spec.Hidden, t.Hidden)
	case spec.Vocab != t.Vocab:
		return nil, fmt.Errorf("%s: Medusa heads of %d tokens, but the target's vocabulary is %d", set.Name, spec.Vocab, t.Vocab)
	}
	h = &Heads{
		spec: spec, set: set, target: target, dev: target.Device(), q: target.Device().Queue(), packed: map[stored]compute.Weight{},
	}
	for head := range spec.Heads {
		var n network
		for layer := range spec.Layers {
			b := compute.Linear{Act: compute.SiLU}
			if b.W, err = h.pack(spec.Weight(head, layer), spec.Hidden, spec.Hidden); err != nil {
				return nil, err
			}
			if name := spec.Bias(head, layer); has(set, name) {
				if b.Bias, err = h.vector(name, spec.Hidden); err != nil {
					return nil, err
				}
			}
			n.blocks = append(n.blocks, b)
		}
		if n.lm.W, err = h.pack(spec.LMHead(head), spec.Vocab, spec.Hidden); err != nil {
			return nil, err
		}
		h.heads = append(h.heads, n)
	}
	h.packed = nil
	if err := h.q.Sync(context.Background()); err != nil {
		return nil, fmt.Errorf("%s: %w", set.Name, err)
	}
	return h, nil
}

func has(set *safetensors.Set, name string) bool { _, ok := set.Describe(name); return ok }

// types are the element types that weights may have.
var types = map[string]compute.DType{"F32": compute.F32, "F16": compute.F16, "BF16": compute.BF16}

// get returns a tensor of a shape.
func (h *Heads) get(name string, shape ...int) (safetensors.Tensor, error) {
	t, err := h.set.Get(name)
	if err != nil {
		return t, err
	}
	if !slices.Equal(t.Shape, shape) {
		return t, fmt.Errorf("%s: tensor %q has shape %v, want %v", h.set.Name, name, t.Shape, shape)
	}
	if _, ok := types[t.DType]; !ok {
		return t, fmt.Errorf("%s: tensor %q is %s, want F32, F16 or BF16", h.set.Name, name, t.DType)
	}
	if h.flaw == nil {
		h.flaw = h.set.Finite(name, float32(math.Inf(1)))
	}
	return t, nil
}

// pack moves a matrix to the device, unless it is there.
func (h *Heads) pack(name string, rows, cols int) (compute.Weight, error) {
	t, err := h.get(name, rows, cols)
	if err != nil {
		return nil, err
	}
	at := stored{&t.Data[0], rows, t.DType}
	if w := h.packed[at]; w != nil {
		return w, nil
	}
	w, err := h.dev.Pack(h.target.Options().DType, compute.Matrix{
		Rows: rows, Cols: cols, Type: types[t.DType], Data: t.Data,
		Done: func(lo, hi int) error { h.set.Release(name, lo, hi); return nil },
	})
	if err != nil {
		return nil, fmt.Errorf("%s: pack %q: %w", h.set.Name, name, err)
	}
	h.packed[at] = w
	return w, nil
}

// vector moves a vector to the device.
func (h *Heads) vector(name string, n int) (compute.Buffer, error) {
	t, err := h.get(name, n)
	if err != nil {
		return nil, err
	}
	x, err := t.Float32s()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", h.set.Name, err)
	}
	b, err := h.dev.Alloc(compute.F32, n)
	if err != nil {
		return nil, fmt.Errorf("%s: load %q: %w", h.set.Name, name, err)
	}
	h.q.Write(b, x)
	return b, nil
}

// Spec says what heads there are.
func (h *Heads) Spec() Spec { return h.spec }

// Flaw returns a *safetensors.ValueError for the first weight that is not finite, or nil if there is none.
// What such heads draft is useless, but does not change what their target makes of it.
func (h *Heads) Flaw() error { return h.flaw }

// Target returns the model that the heads draft for.
func (h *Heads) Target() *model.Model { return h.target }

// Close closes the weights' file.
func (h *Heads) Close() error { return h.set.Close() }

// weights returns what model.Model.Weights does of the heads, whose weights are floating-point numbers.
func (h *Heads) weights() (string, compute.DType) {
	as := h.target.Options().DType
	if as == compute.Stored {
		as = compute.F32
	}
	return strings.ToLower(as.String()), as
}

// Function identifies what the heads compute. The first call reads all weights.
func (h *Heads) Function() *identity.Function {
	if h.function == nil {
		spec := identity.Spec{"model_type": json.RawMessage(`"medusa"`)}
		for name, n := range map[string]int{
			"medusa_num_heads": h.spec.Heads, "medusa_num_layers": h.spec.Layers, "hidden_size": h.spec.Hidden, "vocab_size": h.spec.Vocab,
		} {
			spec[name] = json.RawMessage(fmt.Sprint(n))
		}
		weights, as := h.weights()
		origin, _ := model.OriginOf(h.set, nil) // which nothing ends
		f := &identity.Function{
			Model:      identity.Model{Spec: spec, Tensors: origin},
			Weights:    weights,
			Arithmetic: cmp.Or(h.dev.Arithmetic(), "cpu"),
		}
		if rounding := h.dev.Abilities().Rounding; rounding != nil {
			f.Activations = rounding(as)
		}
		h.function = f
	}
	return h.function
}

// A Row asks for the logits of a head at a hidden state of the target, after its final norm.
type Row struct {
	Head  int
	State model.Feature
}

// Forward computes the logits of rows, those of a head side by side. They may be read until the next
// Forward, and have the same bits whatever else is in the pass.
func (h *Heads) Forward(ctx context.Context, rows []Row) error {
	h.n, h.rows = 0, h.rows[:0]
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := h.grow(rows); err != nil {
		return fmt.Errorf("run %d rows of Medusa heads: %w", len(rows), err)
	}
	for i := 0; i < len(rows); {
		j := i + 1
		for j < len(rows) && rows[j].Head == rows[i].Head {
			j++
		}
		h.run(rows[i:j], i, len(rows))
		i = j
	}
	if err := h.q.Sync(ctx); err != nil {
		return fmt.Errorf("run Medusa heads: %w", err)
	}
	h.n = len(rows)
	return nil
}

// run computes the logits of rows of one head, which are rows at, at+1, … of all in the pass.
func (h *Heads) run(rows []Row, at, all int) {
	n, net := len(rows), &h.heads[rows[0].Head]
	x, y := h.x, h.y
	for i := 0; i < n; {
		j := i + 1
		for j < n && rows[j].State.Buf == rows[i].State.Buf {
			j++
		}
		from := len(h.rows)
		for _, r := range rows[i:j] {
			h.rows = append(h.rows, r.State.Row)
		}
		h.q.Gather(x, i, 0, rows[i].State.Buf, h.rows[from:])
		i = j
	}
	for l := range net.blocks {
		h.q.Gather(y, 0, 0, x, h.iota[:n])
		h.q.Linear(y, x, &net.blocks[l], compute.Accumulate, n)
		x, y = y, x
	}
	if n == all {
		h.q.Linear(h.logits, x, &net.lm, compute.Store, n)
		return
	}
	h.q.Linear(h.part, x, &net.lm, compute.Store, n)
	h.q.Gather(h.logits, at, 0, h.part, h.iota[:n])
}

// grow makes room for a pass.
func (h *Heads) grow(rows []Row) error {
	n := len(rows)
	if n <= h.cap {
		return nil
	}
	size := (n + 15) / 16 * 16
	var err error
	alloc := func(b *compute.Buffer, cols int) {
		if err == nil {
			*b, err = h.dev.Alloc(compute.F32, size, cols)
		}
	}
	alloc(&h.x, h.spec.Hidden)
	alloc(&h.y, h.spec.Hidden)
	alloc(&h.logits, h.spec.Vocab)
	alloc(&h.part, h.spec.Vocab)
	if err != nil {
		h.cap = 0
		return err
	}
	h.cap = size
	for len(h.iota) < size {
		h.iota = append(h.iota, int32(len(h.iota)))
	}
	return nil
}

// TopK writes the k most likely tokens of each row of the newest pass, best first, ties to the lower id,
// and their log-softmax values at temperature 1: [rows][k] each.
func (h *Heads) TopK(ids []int32, logp []float32, k int) error {
	if k < 1 || k > h.spec.Vocab || len(ids) != h.n*k || len(logp) != h.n*k {
		panic(fmt.Sprintf("medusa: the %d best of %d rows into %d ids and %d values", k, h.n, len(ids), len(logp)))
	}
	t := &h.top
	if k != t.k || h.n > t.cap {
		*t = top{}
		var err error
		if t.ids, err = h.dev.Alloc(compute.I32, h.cap, k); err == nil {
			t.logp, err = h.dev.Alloc(compute.F32, h.cap, k)
		}
		if err != nil {
			return fmt.Errorf("the %d best tokens of %d rows: %w", k, h.n, err)
		}
		t.k, t.cap = k, h.cap
	}
	h.q.TopK(t.ids, t.logp, h.logits, k, h.n)
	h.q.Read(ids, t.ids, 0)
	h.q.Read(logp, t.logp, 0)
	return h.q.Sync(context.Background())
}

// Logits copies row r of the newest pass to dst, [Vocab].
func (h *Heads) Logits(dst []float32, r int) {
	if r < 0 || r >= h.n || len(dst) != h.spec.Vocab {
		panic(fmt.Sprintf("medusa: row %d of %d into %d logits", r, h.n, len(dst)))
	}
	h.q.Read(dst, h.logits, r*h.spec.Vocab)
}
