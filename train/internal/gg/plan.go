package gg

import (
	"fmt"
	"slices"

	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// A store is memory that values are laid out in. Stores whose lives do not
// overlap on the tape share memory.
type store struct {
	size        int
	fixed       bool // the caller's memory
	keep        bool // readable after Run
	first, last int  // tape positions
	used        bool
	f           []float32
}

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
	var free [][]float32
	for i := range order {
		for _, s := range starts[i] {
			best := -1
			for j, f := range free {
				if cap(f) >= s.size && (best < 0 || cap(f) < cap(free[best])) {
					best = j
				}
			}
			// A much larger block is kept for a store of its own size.
			if best >= 0 && cap(free[best]) <= 2*s.size {
				s.f = free[best][:s.size]
				free = slices.Delete(free, best, best+1)
			} else {
				s.f = make([]float32, s.size)
			}
		}
		for _, s := range ends[i] {
			if !s.keep {
				free = append(free, s.f[:cap(s.f)])
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
		if v.store.f == nil {
			v.store.f = make([]float32, size)
		}
		f := v.store.f[:size]
		v.t = tensor.New(tensor.WithShape(v.known()...), tensor.WithBacking(f))
		if v.buf == nil {
			v.buf = g.ops.Host(f, v.shape...)
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
	seen := make(map[*float32]int)
	for _, v := range g.values {
		if f := v.store.f; len(f) > 0 && !v.store.fixed {
			seen[&f[0]] = max(seen[&f[0]], cap(f))
		}
	}
	sum := 0
	for _, n := range seen {
		sum += 4 * n
	}
	return sum
}
