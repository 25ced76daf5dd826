// Package gg has Gorgonia order and differentiate fused operations that a compute device runs.
// Gorgonia supplies the graph, the gradients (Grad) and the tape; every node of a step is one of
// the operations of this package, so a step allocates no tensor and runs no stock kernel.
//
// Gradients of a value that is used several times are not summed by Gorgonia (ReduceAdd would
// insert stock additions): the backward operations form a chain in which the first writes the
// value's gradient and the others add to it in place. See (*forward).SymDiff.
//
// A matrix has a fixed maximum number of rows and, per batch, a number of live rows: a graph is
// built once and no operation touches rows beyond the live ones.
//
// A Graph belongs to one goroutine.
package gg

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"runtime"
	"strings"
	"sync/atomic"

	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"talf/compute"
)

// uids numbers every operation of the process. Gorgonia merges nodes whose
// hashes are equal, so no two operations may share a name.
var uids atomic.Uint64

// Rows is a row dimension: at most Max, N of them live in the current batch.
type Rows struct{ Max, N int }

// A Tensor is parameter memory that several graphs (training, evaluation) share.
type Tensor struct {
	Name  string
	Shape []int
	// Data are the values, or nil if only Buf, a weight packed by a device, has them. If the
	// device has its own memory, Pull copies them from there, and Push back.
	Data []float32
	Buf  compute.Buffer
	far  compute.Queue             // of a device with its own memory; nil: Buf is Data
	host func() ([]float32, error) // reads the values if Data is nil
}

// Packed returns a frozen tensor [rows][cols] that a device holds as w, or nil if the
// device's operations do not take weights as buffers. host reads the values, for messages.
func Packed(name string, w compute.Weight, host func() ([]float32, error)) *Tensor {
	b, ok := w.(compute.Buffer)
	if !ok {
		return nil
	}
	return &Tensor{Name: name, Shape: []int{w.Out(), w.In()}, Buf: b, host: host}
}

// NewTensor makes data, row-major, available to operations on q. It keeps data.
func NewTensor(q compute.Queue, name string, data []float32, shape ...int) (*Tensor, error) {
	ops := q.Abilities().Train
	if ops == nil {
		return nil, errors.New("gg: the device cannot train")
	}
	size := 1
	for _, s := range shape {
		size *= s
	}
	if size != len(data) {
		return nil, fmt.Errorf("gg: tensor %s: %d values for shape %v", name, len(data), shape)
	}
	t := &Tensor{Name: name, Shape: shape, Data: data}
	far := q.Abilities().Remote
	if far == nil {
		t.Buf = ops.Host(data, shape...)
		return t, nil
	}
	var err error
	if t.Buf, err = far.Alloc(compute.F32, shape...); err != nil {
		return nil, fmt.Errorf("tensor %s: %w", name, err)
	}
	t.far = q
	t.Push()
	return t, nil
}

// Pull copies the device's values to Data. If that fails, the queue's next Sync returns
// the error.
func (t *Tensor) Pull() {
	if t.far != nil {
		t.far.Read(t.Data, t.Buf, 0)
	}
}

// Push copies Data to the device.
func (t *Tensor) Push() {
	if t.far != nil {
		t.far.Write(t.Buf, t.Data)
	}
}

// Matrix returns a copy of a matrix's data in the form that devices pack.
func (t *Tensor) Matrix() compute.Matrix {
	raw := make([]byte, 0, 4*len(t.Data))
	for _, x := range t.Data {
		raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(x))
	}
	return compute.Matrix{Rows: t.Shape[0], Cols: t.Shape[1], Type: compute.F32, Data: raw}
}

// A value is the memory of a node or of a gradient. Matrices with a row
// dimension get theirs when the graph is compiled.
type value struct {
	rows  *Rows // nil: all of shape is live
	shape []int
	store *store
	t     G.Value // what the tape passes on: a tensor, or a handle to a device's memory
	buf   compute.Buffer
	input bool                      // store is the host's memory, which Run copies to a device with its own memory
	fixed bool                      // no operation writes it: store is a device's memory
	copy  []float32                 // host's copy of such memory
	num   *G.F32                    // scalars only; shape is empty
	host  func() ([]float32, error) // of a packed tensor, which has no memory here
}

// known returns the shape that Gorgonia is given: one row of a packed tensor, since it allocates
// memory of that shape.
func (v *value) known() []int {
	if v.host != nil {
		return []int{1, v.width()}
	}
	return v.shape
}

// live returns the number of live elements.
func (v *value) live() int {
	n := 1
	for _, s := range v.shape {
		n *= s
	}
	if v.rows != nil {
		n = n / v.rows.Max * v.rows.N
	}
	return n
}

func (v *value) width() int { return v.shape[len(v.shape)-1] }

// n returns the number of live rows.
func (v *value) n() int {
	if v.rows != nil {
		return v.rows.N
	}
	return v.shape[0]
}

// A Node is a matrix [rows][width], a vector or a scalar in a graph.
type Node struct {
	g     *Graph
	node  *G.Node
	val   *value
	grad  *value // set by the first backward operation that contributes
	needs bool   // depends on a parameter

	uses    int     // consumers that contribute to the gradient of the loss
	given   int     // of those, how many have their backward operation
	pending *G.Node // the last link of the chain so far
}

// Width returns the length of a row.
func (n *Node) Width() int { return n.val.width() }

// Rows returns the row dimension, or nil for parameters.
func (n *Node) Rows() *Rows { return n.val.rows }

// Data returns the live rows, [N][width]. The output of an operation is valid after Run,
// and only if the node was passed to Keep before compiling. If the device has its own
// memory, Data copies from there.
func (n *Node) Data() []float32 { return n.g.host(n.val) }

// Buffer returns the memory as the device sees it, under the terms of Data.
func (n *Node) Buffer() compute.Buffer { return n.val.buf }

// Scalar returns the value of a scalar after Run.
func (n *Node) Scalar() float32 { return float32(*n.val.num) }

// Grad returns the gradient of a parameter after Run: a copy, if the device has its own
// memory.
func (n *Node) Grad() []float32 { return n.g.host(n.grad) }

// GradBuffer returns the gradient of a parameter as the device sees it.
func (n *Node) GradBuffer() compute.Buffer { return n.grad.buf }

// A Graph is built once, compiled, and then run once per batch.
type Graph struct {
	eg  *G.ExprGraph
	q   compute.Queue
	can compute.Abilities // q's
	ops compute.TrainOps
	far compute.Remote // nil: values are in the host's memory
	vm  G.VM
	ctx context.Context // of the Run in progress

	leaves    []*Node
	forwards  []*forward
	values    []*value
	late      []func()        // of the Run in progress: reads losses once the device is done
	watch     *string         // receives the first operation whose output is not finite
	onGrad    func(int)       // see OnGrad
	stasher   compute.Stasher // nil: activations are not rounded
	stashed   int             // bytes of activations that are rounded
	gradOrder []int
	heads     map[*Node]*headLoss
	iota      []int32 // 0,1,2,… for copies
	maxRows   int
}

// New returns an empty graph whose operations run on q. It fails if q
// cannot train.
func New(q compute.Queue) (*Graph, error) {
	can := q.Abilities()
	if can.Train == nil {
		return nil, errors.New("gg: the device cannot train")
	}
	return &Graph{eg: G.NewGraph(), q: q, can: can, ops: can.Train, far: can.Remote}, nil
}

// host returns the live elements of v: a copy, if they are in a device's memory.
func (g *Graph) host(v *value) []float32 {
	n := v.live()
	if g.far == nil || v.input || v.fixed {
		return v.store.f[:n]
	}
	if cap(v.copy) < n {
		v.copy = make([]float32, n)
	}
	v.copy = v.copy[:n]
	g.q.Read(v.copy, v.buf, 0)
	return v.copy
}

// Stash makes a graph that is not compiled yet keep activations in bfloat16 from the
// forward pass to the backward pass: gradients are computed from rounded activations,
// outputs do not change. Nodes passed to Keep, queries, keys and what losses store of each
// row are not rounded.
func (g *Graph) Stash() error {
	s := g.q.Abilities().Stash
	if s == nil {
		return errors.New("gg: the device keeps no values in bfloat16")
	}
	g.stasher = s
	return nil
}

func (g *Graph) node(v *value, needs bool) *Node {
	g.values = append(g.values, v)
	if v.rows != nil {
		g.maxRows = max(g.maxRows, v.rows.Max)
	}
	return &Node{g: g, val: v, needs: needs}
}

// leaf returns an input node with a unique name: Gorgonia would merge two leaves with the same
// name, type and shape.
func (g *Graph) leaf(name string, v *value, needs bool) *Node {
	n := g.node(v, needs)
	n.node = G.NewTensor(g.eg, tensor.Float32, len(v.shape), G.WithShape(v.known()...),
		G.WithName(fmt.Sprintf("%s#%d", name, uids.Add(1))))
	g.leaves = append(g.leaves, n)
	return n
}

// Param adds a trainable tensor.
func (g *Graph) Param(t *Tensor) *Node {
	return g.leaf(t.Name, &value{shape: t.Shape, store: &store{f: t.Data, fixed: true}, buf: t.Buf}, true)
}

// Frozen adds a tensor that gets no gradient.
func (g *Graph) Frozen(t *Tensor) *Node {
	return g.leaf(t.Name, &value{shape: t.Shape, store: &store{f: t.Data, fixed: true}, buf: t.Buf, fixed: true, host: t.host}, false)
}

// Input adds a matrix [rows][width] that the caller fills through Data before
// each Run.
func (g *Graph) Input(name string, rows *Rows, width int) *Node {
	f := make([]float32, rows.Max*width)
	v := &value{rows: rows, shape: []int{rows.Max, width}, store: &store{f: f, fixed: true}, buf: g.ops.Host(f, rows.Max, width), input: true}
	return g.leaf(name, v, false)
}

// Keep makes the values of nodes readable after Run.
func (g *Graph) Keep(nodes ...*Node) {
	for _, n := range nodes {
		n.val.store.keep = true
	}
}

// Compile fixes the loss and differentiates it by params, each of which must
// contribute to it. After Run their gradients can be read.
func (g *Graph) Compile(loss *Node, params ...*Node) (err error) {
	if g.vm != nil {
		return errors.New("gg: the graph is compiled already")
	}
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("gg: compile: %v", r)
		}
	}()
	g.count(loss)
	wrt := make([]*G.Node, len(params))
	for i, p := range params {
		if p.uses == 0 {
			return fmt.Errorf("gg: parameter %s does not contribute to the loss", p.node.Name())
		}
		wrt[i] = p.node
	}
	if _, err := G.Grad(loss.node, wrt...); err != nil {
		return fmt.Errorf("gg: differentiate: %w", err)
	}
	for i, p := range params {
		p.grad.store.keep = true
		// The chain's last link completes the gradient.
		switch op := p.pending.Op().(type) {
		case *backward:
			op.grads = append(op.grads, i)
		case *part:
			op.grads = append(op.grads, i)
		}
	}
	return g.compile()
}

// OnGrad sets a function that Run calls as soon as the gradient of Compile's i-th parameter
// is complete, while the backward pass is still running; nil: none. The order of the calls
// is GradOrder's.
func (g *Graph) OnGrad(f func(i int)) { g.onGrad = f }

// GradOrder returns Compile's parameters in the order in which their gradients become
// complete. It is the same in every process that builds the same graph.
func (g *Graph) GradOrder() []int { return g.gradOrder }

// CompileForward compiles a graph without gradients.
func (g *Graph) CompileForward() (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("gg: compile: %v", r)
		}
	}()
	return g.compile()
}

func (g *Graph) compile() error {
	if err := g.unique(); err != nil {
		return err
	}
	if err := g.plan(); err != nil {
		return err
	}
	g.vm = G.NewTapeMachine(g.eg)
	// Its finalizer does nothing without Gorgonia's own CUDA code. But operations refer to g, and
	// what refers to itself and has a finalizer is never collected.
	runtime.SetFinalizer(g.vm, nil)
	return nil
}

// count finds how many gradient contributions every value will receive: one per
// consumer that the loss depends on.
func (g *Graph) count(loss *Node) {
	reached := map[*Node]bool{loss: true}
	for i := len(g.forwards) - 1; i >= 0; i-- {
		f := g.forwards[i]
		if !reached[f.y] {
			continue
		}
		for j, d := range f.DiffWRT(len(f.x)) {
			reached[f.x[j]] = true
			if d {
				f.x[j].uses++
			}
		}
	}
}

// unique refuses graphs in which two nodes have the same 32-bit hash: the tape would run
// only one of them.
func (g *Graph) unique() error {
	seen := make(map[uint32]*G.Node)
	for _, n := range g.eg.AllNodes() {
		h := n.Hashcode()
		if o := seen[h]; o != nil {
			return fmt.Errorf("gg: nodes %s and %s have the same hash", o.Name(), n.Name())
		}
		seen[h] = n
	}
	return nil
}

// Run evaluates the graph, including gradients, for the batch in its inputs. When ctx ends,
// it stops before the next operation, or within one where the device can, and returns ctx's
// error; only values and gradients have changed then.
func (g *Graph) Run(ctx context.Context) error {
	if g.vm == nil {
		return errors.New("gg: the graph is not compiled")
	}
	g.ctx = ctx
	defer func() { g.ctx = nil }()
	g.can.Until(ctx)
	defer g.can.Until(context.Background())
	if g.far != nil {
		for _, l := range g.leaves {
			if l.val.input {
				g.q.Write(l.val.buf, g.host(l.val))
			}
		}
	}
	g.vm.Reset() // without it a second RunAll does nothing
	err := g.vm.RunAll()
	if err == nil {
		for _, f := range g.late {
			f()
		}
	}
	g.late = g.late[:0]
	if serr := g.q.Sync(ctx); err == nil && serr != nil {
		err = serr
	}
	if err != nil {
		if cerr := ctx.Err(); cerr != nil {
			return cerr
		}
		return fmt.Errorf("gg: run: %w", err)
	}
	return nil
}

// Prefixes of FirstNonFinite's result if an input, not an operation, is not finite.
const (
	InputPrefix  = "the input "
	FrozenPrefix = "the frozen tensor "
)

// FirstNonFinite runs the graph again on the batch in its inputs and names the first operation
// whose result contains an infinity or a NaN; "" if there is none.
func (g *Graph) FirstNonFinite(ctx context.Context) (string, error) {
	var first string
	for _, n := range g.leaves {
		if r, x := g.nonFinite(n.val); r >= 0 {
			what := "the weights "
			if n.val.rows != nil {
				what = InputPrefix
			} else if !n.needs {
				what = FrozenPrefix
			}
			return fmt.Sprintf("%s%s, row %d: %v", what, bare(n.node.Name()), r, x), nil
		}
	}
	calls := g.onGrad
	g.watch, g.onGrad = &first, nil
	defer func() { g.watch, g.onGrad = nil, calls }()
	err := g.Run(ctx)
	return first, err
}

// nonFinite returns the first row of v that contains an infinity or a NaN, and that value; −1 if
// there is none.
func (g *Graph) nonFinite(v *value) (row int, x float32) {
	if v.num != nil {
		if x := float32(*v.num); x-x != 0 {
			return 0, x
		}
		return -1, 0
	}
	var f []float32
	if v.host != nil {
		var err error
		if f, err = v.host(); err != nil {
			return -1, 0 // reading it failed: Sync returns that error
		}
	} else {
		f = g.host(v)
	}
	for i, x := range f[:v.live()] {
		if x-x != 0 {
			return i / v.width(), x
		}
	}
	return -1, 0
}

// bare returns a node's name without the number that makes it unique.
func bare(name string) string {
	name, _, _ = strings.Cut(name, "#")
	return name
}

// look records the first operation whose output is not finite.
func (g *Graph) look(b *base) {
	if *g.watch != "" {
		return
	}
	row, x := g.nonFinite(b.out)
	if row < 0 {
		return
	}
	*g.watch = "the operation " + b.name
	for _, v := range b.in {
		for _, l := range g.leaves {
			if v == l.val {
				*g.watch += " of " + bare(l.node.Name())
			}
		}
	}
	*g.watch += fmt.Sprintf(", row %d: %v", row, x)
}

// Stock names the operations of the tape that are not from this package, except for the constant
// 1, the gradient of the loss with respect to itself.
func (g *Graph) Stock() []string {
	var names []string
	ones := 0
	for _, n := range g.eg.AllNodes() {
		switch n.Op().(type) {
		case nil, *forward, *backward, *part:
		default:
			if v, ok := n.Value().(*G.F32); ok && n.Op().Arity() == 0 && float32(*v) == 1 && ones == 0 {
				ones++
				continue
			}
			names = append(names, n.Name())
		}
	}
	return names
}

// when runs f, which waits for the device: at once or, if the device has its own memory,
// after the whole tape has been queued.
func (g *Graph) when(f func()) {
	if g.far == nil || g.watch != nil {
		f()
		return
	}
	g.late = append(g.late, f)
}

// zero clears v's live elements.
func (g *Graph) zero(v *value) {
	n := v.live()
	if g.far != nil {
		g.far.Clear(v.buf, n)
		return
	}
	clear(v.store.f[:n])
}

// identity returns [0,n).
func (g *Graph) identity(n int) []int32 {
	for len(g.iota) < n {
		g.iota = append(g.iota, int32(len(g.iota)))
	}
	return g.iota[:n]
}
