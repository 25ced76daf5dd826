package gg

import (
	"fmt"
	"slices"
	"unsafe"

	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"talf/compute"
)

// A store is memory that values are laid out in. Stores whose lives do not
// overlap on the tape share memory.
type store struct {
	size        int
	fixed       bool // the caller's memory
	keep        bool // readable after Run
	first, last int  // tape positions
	used        bool
	f           []float32 // unless the device has memory of its own
	m           *memory   // f's, or the device's
}

// A memory is what stores share, one after the other.
type memory struct {
	size int
	f    []float32
	buf  compute.Buffer // a device's of its own
}

func (g *Graph) memory(size int) (*memory, error) {
	m := &memory{size: size}
	if g.far == nil {
		m.f = make([]float32, size)
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

// A handle is what the tape hands on in place of memory that is a device's.
type handle struct{ v *value }

func (h *handle) Shape() tensor.Shape        { return tensor.Shape(h.v.known()) }
func (h *handle) Size() int                  { return h.Shape().TotalSize() }
func (h *handle) Data() interface{}          { return h.v.buf }
func (h *handle) Dtype() tensor.Dtype        { return tensor.Float32 }
func (h *handle) Uintptr() uintptr           { return 0 }
func (h *handle) MemSize() uintptr           { return uintptr(4 * h.Size()) }
func (h *handle) Pointer() unsafe.Pointer    { return nil }
func (h *handle) Format(s fmt.State, _ rune) { fmt.Fprintf(s, "%v on a device", h.v.shape) }

func (s *store) touch(at int) {
	if !s.used {
		s.first, s.used = at, true
	}
	s.last = max(s.last, at)
}

// toucher is implemented by the operations: the values they read or write.
type toucher interface{ touches() []*value }

// plan gives every store memory, reusing that of stores which are dead on the
// tape's order, which is Gorgonia's own.
func (g *Graph) plan() error {
	order, err := G.Sort(g.eg) // roots first
	if err != nil {
		return fmt.Errorf("gg: order the tape: %w", err)
	}
	slices.Reverse(order)
	starts := make([][]*store, len(order))
	ends := make([][]*store, len(order))
	var all []*store
	for i, n := range order {
		switch op := n.Op().(type) {
		case *backward:
			g.gradOrder = append(g.gradOrder, op.grads...)
		case *part:
			g.gradOrder = append(g.gradOrder, op.grads...)
		}
		t, ok := n.Op().(toucher)
		if !ok {
			continue
		}
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
			s.touch(i)
		}
	}
	for _, s := range all {
		if s.keep {
			s.last = len(order) - 1
		}
		starts[s.first] = append(starts[s.first], s)
		ends[s.last] = append(ends[s.last], s)
	}
	var free []*memory
	for i := range order {
		for _, s := range starts[i] {
			best := -1
			for j, m := range free {
				if m.size >= s.size && (best < 0 || m.size < free[best].size) {
					best = j
				}
			}
			// A much larger block is kept for a store of its own size.
			if best >= 0 && free[best].size <= 2*s.size {
				s.take(free[best])
				free = slices.Delete(free, best, best+1)
				continue
			}
			m, err := g.memory(s.size)
			if err != nil {
				return err
			}
			s.take(m)
		}
		for _, s := range ends[i] {
			if !s.keep {
				free = append(free, s.m)
			}
		}
	}
	for _, v := range g.values {
		if len(v.shape) == 0 {
			continue
		}
		size := 1
		for _, d := range v.known() {
			size *= d
		}
		// What nothing on the tape needs, and one row for a packed tensor.
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
	sum := 0
	for _, v := range g.values {
		if m := v.store.m; m != nil && !seen[m] {
			seen[m] = true
			sum += 4 * m.size
		}
	}
	return sum
}
