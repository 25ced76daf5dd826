package gg

import (
	"fmt"
	"slices"
	"unsafe"

	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"talf/compute"
	"talf/internal/slab"
)

// A store is memory for values. Stores whose lifetimes do not overlap on the tape share memory.
type store struct {
	size        int
	fixed       bool // the caller's memory
	keep        bool // readable after Run
	exact       bool // never rounded
	first, last int  // tape positions
	used        bool
	f           []float32 // unless the device has memory of its own
	m           *memory   // f's, or the device's

	// Of a value of the forward pass: its last use there, its first use after that (0:
	// none), and the operation that fills it.
	out, in int
	val     *value
}

// A memory is shared by stores, one after another.
type memory struct {
	size  int
	lives [][2]int // first and last operation of each use
	f     []float32
	buf   compute.Buffer // of a device with its own memory
}

func (g *Graph) memory(size int) (*memory, error) {
	m := &memory{size: size}
	if g.far == nil {
		m.f = slab.Floats(size)
		return m, nil
	}
	var err error
	if m.buf, err = g.far.Alloc(compute.F32, size); err != nil {
		return nil, fmt.Errorf("gg: make room for values: %w", err)
	}
	return m, nil
}

func (s *store) take(m *memory) {
	if s.m = m; m.f != nil {
		s.f = m.f[:s.size]
	}
}

// A handle stands for a device's own memory on the tape.
type handle struct{ v *value }

func (h *handle) Shape() tensor.Shape        { return tensor.Shape(h.v.known()) }
func (h *handle) Size() int                  { return h.Shape().TotalSize() }
func (h *handle) Data() interface{}          { return h.v.buf }
func (h *handle) Dtype() tensor.Dtype        { return tensor.Float32 }
func (h *handle) Uintptr() uintptr           { return 0 }
func (h *handle) MemSize() uintptr           { return uintptr(4 * h.Size()) }
func (h *handle) Pointer() unsafe.Pointer    { return nil }
func (h *handle) Format(s fmt.State, _ rune) { fmt.Fprintf(s, "%v on a device", h.v.shape) }

// touch records a use, by the forward pass or by the backward pass.
func (s *store) touch(at int, forwards bool) {
	if !s.used {
		s.first, s.used = at, true
	}
	s.last = max(s.last, at)
	switch {
	case forwards:
		s.out = at
	case s.in == 0:
		s.in = at
	}
}

// stashable reports whether the store holds rows of activations that no operation reads for
// long enough that others can use the memory. Rounding narrow rows would save too little.
func (s *store) stashable(least int) bool {
	const narrow = 4 // columns
	return !s.keep && !s.exact && s.val != nil && s.val.rows != nil && s.val.width() >= narrow && s.out > s.first && s.in-s.out > least
}

// stash makes the operation at s.out round s to bfloat16 and the one at s.in restore it. In
// between, others use the memory.
func (g *Graph) stash(s *store, order []*G.Node) {
	v, h := s.val, g.stasher.Stash(s.size)
	g.stashed += 2 * s.size
	out, in := order[s.out].Op().(op).common(), order[s.in].Op().(op).common()
	out.after = append(out.after, func() { g.stasher.Narrow(h, v.buf, v.live()) })
	in.before = append(in.before, func() { g.stasher.Widen(v.buf, h, v.live()) })
}

// free reports whether nothing uses the memory during lives.
func (m *memory) free(lives [][2]int) bool {
	for _, x := range m.lives {
		for _, y := range lives {
			if x[0] <= y[1] && y[0] <= x[1] {
				return false
			}
		}
	}
	return true
}

// op is implemented by the operations.
type op interface{ common() *base }

func (b *base) common() *base { return b }

// toucher is implemented by the operations: the values they read or write.
type toucher interface{ touches() []*value }

// plan gives every store memory. It reuses the memory of stores that are dead by then, in the
// order of the tape, which is Gorgonia's.
func (g *Graph) plan() error {
	order, err := G.Sort(g.eg) // roots first
	if err != nil {
		return fmt.Errorf("gg: order the tape: %w", err)
	}
	slices.Reverse(order)
	var all []*store
	for i, n := range order {
		switch b := n.Op().(type) {
		case *backward:
			g.gradOrder = append(g.gradOrder, b.grads...)
		case *part:
			g.gradOrder = append(g.gradOrder, b.grads...)
		}
		t, ok := n.Op().(toucher)
		if !ok {
			continue
		}
		_, forwards := t.(*forward)
		for _, v := range t.touches() {
			s := v.store
			if s.fixed {
				continue
			}
			if !s.used {
				all = append(all, s)
			}
			size := 1
			for _, d := range v.shape {
				size *= d
			}
			s.size = max(s.size, size)
			if len(v.shape) == 2 && (s.val == nil || v.width() > s.val.width()) {
				s.val = v
			}
			s.touch(i, forwards)
		}
	}
	var blocks []*memory
	for _, s := range all { // in the order of their first uses
		if s.keep {
			s.last = len(order) - 1
		}
		lives := [][2]int{{s.first, s.last}}
		if g.stasher != nil && s.stashable(len(order)/4) {
			lives = [][2]int{{s.first, s.out}, {s.in, s.last}}
			g.stash(s, order)
		}
		var best *memory
		for _, m := range blocks {
			// Keep a much larger block for a store of its size.
			if m.size >= s.size && m.size <= 2*s.size && (best == nil || m.size < best.size) && m.free(lives) {
				best = m
			}
		}
		if best == nil {
			if best, err = g.memory(s.size); err != nil {
				return err
			}
			blocks = append(blocks, best)
		}
		best.lives = append(best.lives, lives...)
		s.take(best)
	}
	for _, v := range g.values {
		if len(v.shape) == 0 {
			continue
		}
		size := 1
		for _, d := range v.known() {
			size *= d
		}
		// Values that nothing on the tape uses, and one row for a packed tensor.
		if s := v.store; s.m == nil && s.f == nil && (!s.fixed || g.far == nil) {
			s.size = size
			m, err := g.memory(size)
			if err != nil {
				return err
			}
			s.take(m)
		}
		switch {
		case g.far == nil:
			f := v.store.f[:size]
			v.t = tensor.New(tensor.WithShape(v.known()...), tensor.WithBacking(f))
			if v.buf == nil {
				v.buf = g.ops.Host(f, v.shape...)
			}
		default:
			v.t = &handle{v}
			if v.buf == nil {
				v.buf = g.far.View(v.store.m.buf, v.shape...)
			}
		}
	}
	for _, n := range g.leaves {
		if err := G.Let(n.node, n.val.t); err != nil {
			return fmt.Errorf("gg: bind %s: %w", n.node.Name(), err)
		}
	}
	g.identity(g.maxRows)
	return nil
}

// Bytes returns the memory of values and gradients that plan laid out, each
// block counted once.
func (g *Graph) Bytes() int {
	seen := make(map[*memory]bool)
	sum := g.stashed
	for _, v := range g.values {
		if m := v.store.m; m != nil && !seen[m] {
			seen[m] = true
			sum += 4 * m.size
		}
	}
	return sum
}
