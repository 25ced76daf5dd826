package gg

import (
	"fmt"
	"hash"
	"hash/fnv"
	"runtime/debug"

	"github.com/chewxy/hm"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// base is the common part of this package's operations. It tells Gorgonia that an operation
// owns its output, does not work in place, and equals no other operation.
type base struct {
	g    *Graph
	name string
	uid  uint64
	in   []*value // nil: the constant 1
	out  *value
	run  func()

	before, after []func() // around run: restore stashed values, or stash them
	grads         []int    // parameters whose gradients it completes
}

func (g *Graph) base(name string, in []*value, out *value, run func()) base {
	return base{g: g, name: name, uid: uids.Add(1), in: in, out: out, run: run}
}

func typeOf(v *value) hm.Type {
	if v == nil || len(v.shape) == 0 {
		return tensor.Float32
	}
	return G.TensorType{Dims: len(v.shape), Of: tensor.Float32}
}

func (b *base) Arity() int { return len(b.in) }

// Type makes a new type each time, because Gorgonia returns it to a pool.
func (b *base) Type() hm.Type {
	ts := make([]hm.Type, 0, len(b.in)+1)
	for _, v := range b.in {
		ts = append(ts, typeOf(v))
	}
	return hm.NewFnType(append(ts, typeOf(b.out))...)
}

func (b *base) InferShape(...G.DimSizer) (tensor.Shape, error) {
	return tensor.Shape(b.out.shape).Clone(), nil
}
func (b *base) ReturnsPtr() bool      { return true }
func (b *base) CallsExtern() bool     { return false } // true would make the tape allocate
func (b *base) OverwritesInput() int  { return -1 }
func (b *base) WriteHash(h hash.Hash) { fmt.Fprintf(h, "%s#%d", b.name, b.uid) }
func (b *base) String() string        { return fmt.Sprintf("%s#%d", b.name, b.uid) }

func (b *base) Hashcode() uint32 {
	h := fnv.New32a()
	b.WriteHash(h)
	return h.Sum32()
}

// Do runs the operation. The tape calls it on another goroutine, where a panic would end
// the process, so Do turns it into an error.
func (b *base) Do(in ...G.Value) (out G.Value, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%s: %v\n%s", b, r, debug.Stack())
		}
	}()
	if err := b.g.ctx.Err(); err != nil {
		return nil, err
	}
	if len(in) != len(b.in) {
		return nil, fmt.Errorf("%s: %d inputs, want %d", b, len(in), len(b.in))
	}
	for i, v := range b.in {
		switch {
		case v == nil:
			// Losses fold their weights into the rows' scales, so the gradient of a
			// loss term can only be 1.
			if one, ok := in[i].(*G.F32); !ok || float32(*one) != 1 {
				return nil, fmt.Errorf("%s: the gradient of a loss is %v, want 1", b, in[i])
			}
		case len(v.shape) == 0:
			if in[i] != G.Value(v.num) {
				return nil, fmt.Errorf("%s: input %d is not the memory it was built with", b, i)
			}
		default:
			if in[i] != v.t {
				return nil, fmt.Errorf("%s: input %d is not the memory it was built with", b, i)
			}
		}
	}
	for _, f := range b.before {
		f()
	}
	b.run()
	if b.g.watch != nil {
		b.g.look(b)
	}
	for _, f := range b.after {
		f()
	}
	if f := b.g.onGrad; f != nil {
		for _, i := range b.grads {
			f(i)
		}
	}
	if len(b.out.shape) == 0 {
		return b.out.num, nil
	}
	return b.out.t, nil
}

// A piece is one backward operation: the gradients that one kernel computes.
type piece struct {
	of    []int // inputs whose gradients it computes
	reads []int // inputs it reads; -1 is the output
	// run writes the gradients dx, or adds to those whose acc is set. dx and acc are parallel to
	// of; dx[i] is nil if no gradient is wanted.
	run func(dx []*value, acc []bool, dy *value)
	// writes says that run can only write: acc is never set then, and
	// contributions that must be added go through temporary memory.
	writes bool
	// give may return a value in which the forward pass has left the gradient of input
	// of[0]. If that is the first contribution to the gradient, it becomes the gradient.
	give func() *value
}

// forward is an operation of the forward pass.
type forward struct {
	base
	x      []*Node
	y      *Node
	extra  []*value // by-products for the backward pass
	pieces []piece
	held   []bool // inputs whose gradient a later link of the chain carries
}

// backward is the operation that a piece became.
type backward struct {
	base
	touch []*value
}

// A part is one more gradient of a backward operation that has several.
type part struct{ base }

func (f *forward) touches() []*value {
	t := append([]*value{f.out}, f.extra...)
	for _, x := range f.x {
		t = append(t, x.val)
	}
	return t
}
func (b *backward) touches() []*value { return b.touch }
func (p *part) touches() []*value     { return append([]*value{p.out}, p.in...) }

// apply adds the operation and returns its output [rows][width].
func (g *Graph) apply(f *forward) *Node {
	for i, x := range f.x {
		if x.g != g {
			panic(fmt.Sprintf("gg: input %d of %s belongs to another graph", i, f.name))
		}
		for _, o := range f.x[:i] {
			if o == x {
				panic(fmt.Sprintf("gg: %s uses one value twice", f.name))
			}
		}
		f.in = append(f.in, x.val)
		f.y.needs = f.y.needs || x.needs
	}
	children := make([]*G.Node, len(f.x))
	for i, x := range f.x {
		children[i] = x.node
	}
	f.held = make([]bool, len(f.x))
	f.y.node = G.Must(G.ApplyOp(f, children...))
	g.forwards = append(g.forwards, f)
	g.values = append(g.values, f.extra...)
	for _, v := range f.extra {
		v.store.exact = true
	}
	return f.y
}

// matrix returns a value for an operation's output or a by-product.
func matrix(rows *Rows, width int) *value {
	return &value{rows: rows, shape: []int{rows.Max, width}, store: new(store)}
}

// DiffWRT says which inputs get a gradient from this operation. During Grad it leaves out
// inputs whose gradient a later link of the chain carries.
func (f *forward) DiffWRT(int) []bool {
	d := make([]bool, len(f.x))
	for _, p := range f.pieces {
		for _, i := range p.of {
			d[i] = f.x[i].needs && !f.held[i]
		}
	}
	if f.pieces == nil { // a sum of losses
		for i := range d {
			d[i] = f.x[i].needs
		}
	}
	return d
}

// SymDiff adds the backward operations. An input that several operations use has one gradient
// buffer; each operation's contribution is a link of a chain that starts with a write and
// continues with additions. Only the last link is given to Gorgonia, which therefore never has
// two gradients to add: it calls DiffWRT after SymDiff and does not count inputs that are left
// out there.
func (f *forward) SymDiff(in G.Nodes, y, dy *G.Node) (G.Nodes, error) {
	ret := make(G.Nodes, len(f.x))
	if f.pieces == nil {
		for i := range ret {
			ret[i] = dy
		}
		return ret, nil
	}
	g := f.g
	for _, p := range f.pieces {
		dx, acc := make([]*value, len(p.of)), make([]bool, len(p.of))
		lead := -1
		var children []*G.Node
		var vals, touch []*value
		add := func(n *G.Node, v *value) {
			for _, c := range children {
				if c == n {
					return
				}
			}
			children, vals = append(children, n), append(vals, v)
		}
		grad := f.y.grad // nil if the output is a loss
		add(dy, grad)
		if grad != nil {
			touch = append(touch, grad)
		}
		for _, r := range p.reads {
			if r < 0 {
				add(f.y.node, f.out)
				touch = append(touch, f.out)
			} else {
				add(f.x[r].node, f.x[r].val)
				touch = append(touch, f.x[r].val)
			}
		}
		for j, i := range p.of {
			x := f.x[i]
			if !x.needs {
				continue
			}
			if lead < 0 {
				lead = j
			}
			if x.pending != nil {
				acc[j] = true
				add(x.pending, x.grad)
			} else if v := p.given(j); v != nil {
				x.grad = v
			} else {
				x.grad = &value{rows: x.val.rows, shape: x.val.shape, store: new(store)}
				g.values = append(g.values, x.grad)
			}
			dx[j] = x.grad
			touch = append(touch, x.grad)
		}
		if lead < 0 {
			continue
		}
		touch = append(touch, f.extra...)
		dst, add2 := dx, acc
		if p.writes {
			dst, add2 = make([]*value, len(dx)), make([]bool, len(dx))
			for j, v := range dx {
				if dst[j] = v; acc[j] {
					dst[j] = &value{rows: v.rows, shape: v.shape, store: new(store)}
					g.values = append(g.values, dst[j])
					touch = append(touch, dst[j])
				}
			}
		}
		run := func() {
			p.run(dst, add2, grad)
			for j, v := range dst {
				if v != dx[j] {
					g.ops.Add(dx[j].buf, dx[j].buf, v.buf, v.live())
				}
			}
		}
		op := &backward{base: g.base(fmt.Sprintf("%s.d%d", f.name, p.of[lead]), vals, dx[lead], run), touch: touch}
		n, err := G.ApplyOp(op, children...)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", op, err)
		}
		for j, i := range p.of {
			x := f.x[i]
			if !x.needs {
				continue
			}
			link := n
			if j != lead {
				po := &part{g.base(fmt.Sprintf("%s.d%d", f.name, i), []*value{dx[lead]}, dx[j], func() {})}
				if link, err = G.ApplyOp(po, n); err != nil {
					return nil, fmt.Errorf("%s: %w", po, err)
				}
			}
			x.pending = link
			x.given++
			if x.given == x.uses {
				ret[i] = link
			} else {
				f.held[i] = true
			}
		}
	}
	return ret, nil
}

func (p *piece) given(j int) *value {
	if j != 0 || p.give == nil {
		return nil
	}
	return p.give()
}
