package gg

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"talf/compute"
	"talf/compute/cpu"
)

func queue(t testing.TB) compute.Queue {
	t.Helper()
	dev, err := cpu.New(cpu.Default())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dev.Close() })
	return dev.Queue()
}

type maker struct {
	t testing.TB
	q compute.Queue
	g *Graph
	r *rand.Rand
	p []*Node
	v []*Tensor
}

func newMaker(t testing.TB) *maker {
	q := queue(t)
	g, err := New(q)
	if err != nil {
		t.Fatal(err)
	}
	return &maker{t: t, q: q, g: g, r: rand.New(rand.NewPCG(1, 2))}
}

func (m *maker) floats(n int, std float64) []float32 {
	f := make([]float32, n)
	for i := range f {
		f[i] = float32(m.r.NormFloat64() * std)
	}
	return f
}

func (m *maker) tensor(name string, std float64, shape ...int) *Tensor {
	n := 1
	for _, s := range shape {
		n *= s
	}
	x, err := NewTensor(m.q, name, m.floats(n, std), shape...)
	if err != nil {
		m.t.Fatal(err)
	}
	return x
}

// param adds a trainable tensor. By default all have the same name: names must not matter.
func (m *maker) param(std float64, shape ...int) *Node {
	x := m.tensor("p", std, shape...)
	n := m.g.Param(x)
	m.p, m.v = append(m.p, n), append(m.v, x)
	return n
}

func (m *maker) compile(loss *Node) {
	m.t.Helper()
	if err := m.g.Compile(loss, m.p...); err != nil {
		m.t.Fatal(err)
	}
}

func (m *maker) run() {
	m.t.Helper()
	if err := m.g.Run(context.Background()); err != nil {
		m.t.Fatal(err)
	}
}

func fill(rows *Rows, n int) []int32 {
	rows.N = n
	return make([]int32, n)
}

// layer builds a small network that uses every operation: two levels of a tree below n
// positions, weights shared by the levels, values used several times.
func (m *maker) layer(n int) (loss *Node, scale *[]float32) {
	const h, heads, hd, ff, v = 8, 2, 4, 6, 10
	top, low := &Rows{Max: n + 3}, &Rows{Max: 2*n + 3}
	ids, kids := fill(top, n), fill(low, 2*n)
	geo := &compute.TrainAttention{Heads: heads, KVHeads: 1, HeadDim: hd}
	geo1 := &compute.TrainAttention{Heads: heads, KVHeads: 1, HeadDim: hd, Anc: make([][]int32, 1)}
	pos, pos1, from := make([]int32, n), make([]int32, 2*n), make([]int32, 2*n)
	for i := range ids {
		ids[i], pos[i] = int32(m.r.IntN(v)), int32(i)
		geo.First, geo.Last = append(geo.First, 0), append(geo.Last, int32(i))
	}
	for i := range kids {
		kids[i], pos1[i], from[i] = int32(m.r.IntN(v)), int32(i/2+1), int32(i/2)
		geo1.First, geo1.Last = append(geo1.First, 0), append(geo1.Last, int32(i/2))
		geo1.Anc[0] = append(geo1.Anc[0], int32(i))
	}
	table := m.param(1, v, h)
	we, wf, bias := m.param(0.5, h, h), m.param(0.5, h, h), m.param(0.5, h)
	wq, wk, wv, wo := m.param(0.4, heads*hd, h), m.param(0.4, hd, h), m.param(0.4, hd, h), m.param(0.4, h, heads*hd)
	norm, gu, down := m.param(1, h), m.param(0.4, 2*ff, h), m.param(0.4, h, ff)
	rope := m.q.Abilities().Train.Host(m.ropeTable(hd, n+2), n+2, hd)
	feat := m.g.Input("feature", top, h)
	copy(feat.val.store.f, m.floats(n*h, 1))

	var ks, vs []*Node
	block := func(u *Node, geo *compute.TrainAttention, pos *[]int32) *Node {
		q := m.g.Rope(m.g.Linear(u, wq, nil), hd, rope, pos)
		ks = append(ks, m.g.Rope(m.g.Linear(u, wk, nil), hd, rope, pos))
		vs = append(vs, m.g.Linear(u, wv, nil))
		x := m.g.LinearAdd(m.g.Attend(q, ks, vs, geo), wo, u, nil)
		return m.g.LinearAdd(m.g.SwiGLU(m.g.Linear(m.g.Norm(x, norm, 1e-5), gu, nil)), down, x, nil)
	}
	e := m.g.Embed(table, &ids, top)
	f0 := block(m.g.LinearAdd(e, we, m.g.Linear(feat, wf, bias), nil), geo, &pos)
	e1 := m.g.Embed(table, &kids, low)
	f1 := block(m.g.LinearAdd(e1, we, m.g.Linear(f0, wf, bias), &from), geo1, &pos1)

	s0, s1 := make([]float32, n), make([]float32, 2*n)
	for i := range s0 {
		s0[i] = 0.1
	}
	for i := range s1 {
		s1[i] = 0.05
	}
	label := func(rows int) *compute.SoftLabels {
		l := &compute.SoftLabels{K: 2}
		for range rows {
			a := int32(m.r.IntN(v - 1))
			l.IDs = append(l.IDs, a, a+1)
			l.Prob = append(l.Prob, 0.6, 0.3)
			l.Tail = append(l.Tail, 0.1)
		}
		return l
	}
	target := m.g.Input("target", top, h)
	copy(target.val.store.f, m.floats(n*h, 1))
	total := m.g.Total(
		m.g.SoftCE(f0, table, label(n), &s0),
		m.g.SmoothL1(f0, target, &s0, false),
		m.g.SoftCE(f1, m.g.Frozen(m.tensor("lm", 1, v, h)), label(2*n), &s1),
	)
	return total, &s0
}

func (m *maker) ropeTable(hd, n int) []float32 {
	f := make([]float32, 0, n*hd)
	for p := range n {
		for i := range hd / 2 {
			f = append(f, float32(math.Cos(float64(p)/float64(i+1))))
		}
		for i := range hd / 2 {
			f = append(f, float32(math.Sin(float64(p)/float64(i+1))))
		}
	}
	return f
}

func TestGradientsOfEveryOperationAreCentralDifferences(t *testing.T) {
	m := newMaker(t)
	loss, _ := m.layer(5)
	m.differences(loss)
}

// differences compares the gradients of all parameters with central differences.
func (m *maker) differences(loss *Node) {
	t := m.t
	t.Helper()
	m.compile(loss)
	if s := m.g.Stock(); len(s) > 0 {
		t.Fatalf("stock operations on the tape: %v", s)
	}
	m.run()
	grads := make([][]float32, len(m.p))
	for i, p := range m.p {
		grads[i] = append([]float32(nil), p.Grad()...)
	}
	// Along a direction d per parameter, the gradient's own and a random one mixed: (L(θ+hd) −
	// L(θ−hd))/2h = g·d. The losses sum to about 10, which float32 represents to 1e-6, and so a
	// difference of two over 2h = 0.02 to some 1e-4.
	const h = 1e-2
	for i, x := range m.v {
		d := m.floats(len(x.Data), 1/math.Sqrt(float64(len(x.Data))))
		norm := 0.0
		for _, v := range grads[i] {
			norm += float64(v) * float64(v)
		}
		for j, v := range grads[i] {
			d[j] += v / float32(math.Sqrt(norm))
		}
		old := append([]float32(nil), x.Data...)
		at := func(s float32) float64 {
			for j := range d {
				x.Data[j] = old[j] + s*d[j]
			}
			m.run()
			return float64(loss.Scalar())
		}
		num := (at(h) - at(-h)) / (2 * h)
		copy(x.Data, old)
		want := 0.0
		for j := range d {
			want += float64(grads[i][j]) * float64(d[j])
		}
		if math.Abs(num-want) > 3e-4+2e-3*math.Abs(want) {
			t.Errorf("parameter %d: gradient along a direction %v, by differences %v", i, want, num)
		}
	}
	m.run()
	for i, p := range m.p { // the same bits again, whatever ran between
		for j, g := range p.Grad() {
			if g != grads[i][j] {
				t.Fatalf("parameter %d, element %d: %v, then %v", i, j, grads[i][j], g)
			}
		}
	}
}

// The same small network built from stock operations is the oracle for whole gradient vectors:
// without SmoothL1, one level, causal attention through a mask.
func TestFusedGradientsAgreeWithStockOperations(t *testing.T) {
	const n, h, heads, hd, ff, v = 6, 8, 2, 4, 10, 12
	m := newMaker(t)
	rows := &Rows{Max: n, N: n}
	x := m.g.Input("x", rows, h)
	copy(x.val.store.f, m.floats(n*h, 1))
	wq, wk, wv, wo := m.param(0.4, heads*hd, h), m.param(0.4, heads*hd, h), m.param(0.4, heads*hd, h), m.param(0.4, h, heads*hd)
	norm, gu, down, lm := m.param(1, h), m.param(0.4, 2*ff, h), m.param(0.4, h, ff), m.param(0.5, v, h)
	u := m.param(0.5, h, h)
	geo := &compute.TrainAttention{Heads: heads, KVHeads: heads, HeadDim: hd}
	labels := &compute.SoftLabels{Full: make([]float32, n*v)}
	scale := make([]float32, n)
	for i := range n {
		geo.First, geo.Last = append(geo.First, 0), append(geo.Last, int32(i))
		scale[i] = 1.0 / n
		sum := float32(0)
		for j := range v {
			p := m.r.Float32()
			labels.Full[i*v+j] = p
			sum += p
		}
		for j := range v {
			labels.Full[i*v+j] /= sum
		}
	}
	x0 := m.g.Linear(x, u, nil)
	q := m.g.Linear(x0, wq, nil)
	a := m.g.Attend(q, []*Node{m.g.Linear(x0, wk, nil)}, []*Node{m.g.Linear(x0, wv, nil)}, geo)
	x1 := m.g.LinearAdd(a, wo, x0, nil)
	x2 := m.g.LinearAdd(m.g.SwiGLU(m.g.Linear(m.g.Norm(x1, norm, 1e-5), gu, nil)), down, x1, nil)
	loss := m.g.SoftCE(x2, lm, labels, &scale)
	m.compile(loss.Node)
	m.run()

	g := G.NewGraph()
	leaf := func(name string, f []float32, shape ...int) *G.Node {
		d := tensor.New(tensor.WithShape(shape...), tensor.WithBacking(append([]float32(nil), f...)))
		return G.NewTensor(g, tensor.Float32, len(shape), G.WithShape(shape...), G.WithName(name), G.WithValue(d))
	}
	must := G.Must
	var ps []*G.Node
	for i, p := range m.v {
		shape := p.Shape
		if len(shape) == 1 {
			shape = []int{1, shape[0]}
		}
		ps = append(ps, leaf(fmt.Sprint("p", i), p.Data, shape...))
	}
	lin := func(x, w *G.Node) *G.Node { return must(G.Mul(x, must(G.Transpose(w, 1, 0)))) }
	sx0 := lin(leaf("x", x.Data(), n, h), ps[8])
	mask := make([]float32, n*n)
	for i := range n {
		for j := i + 1; j < n; j++ {
			mask[i*n+j] = -1e9
		}
	}
	sm := leaf("mask", mask, n, n)
	sq, sk, sv := lin(sx0, ps[0]), lin(sx0, ps[1]), lin(sx0, ps[2])
	var outs []*G.Node
	for i := range heads {
		cut := func(z *G.Node) *G.Node { return must(G.Slice(z, nil, G.S(i*hd, (i+1)*hd))) }
		s := must(G.Mul(must(G.Mul(cut(sq), must(G.Transpose(cut(sk), 1, 0)))), G.NewConstant(float32(1/math.Sqrt(hd)))))
		p := must(G.SoftMax(must(G.Add(s, sm)), 1))
		outs = append(outs, must(G.Mul(p, cut(sv))))
	}
	// Heads side by side: the sum over heads of each one's part of W_o.
	sx1 := sx0
	for i, o := range outs {
		sx1 = must(G.Add(sx1, must(G.Mul(o, must(G.Transpose(must(G.Slice(ps[3], nil, G.S(i*hd, (i+1)*hd))), 1, 0))))))
	}
	ms := must(G.Add(must(G.Mean(must(G.Square(sx1)), 1)), G.NewConstant(float32(1e-5))))
	inv := must(G.Reshape(must(G.Inverse(must(G.Sqrt(ms)))), tensor.Shape{n, 1}))
	nrm := must(G.BroadcastHadamardProd(must(G.BroadcastHadamardProd(sx1, inv, nil, []byte{1})), ps[4], nil, []byte{0}))
	sgu := lin(nrm, ps[5])
	gate, up := must(G.Slice(sgu, nil, G.S(0, ff))), must(G.Slice(sgu, nil, G.S(ff, 2*ff)))
	act := must(G.HadamardProd(must(G.HadamardProd(gate, must(G.Sigmoid(gate)))), up))
	sx2 := must(G.Add(sx1, lin(act, ps[6])))
	logp := must(G.Log(must(G.SoftMax(lin(sx2, ps[7]), 1))))
	sloss := must(G.Mul(must(G.Sum(must(G.HadamardProd(logp, leaf("labels", labels.Full, n, v))))), G.NewConstant(float32(-1.0/n))))
	grads, err := G.Grad(sloss, ps...)
	if err != nil {
		t.Fatal(err)
	}
	if err := G.NewTapeMachine(g).RunAll(); err != nil {
		t.Fatal(err)
	}
	if got, want := float64(loss.Scalar()), float64(sloss.Value().Data().(float32)); math.Abs(got-want) > 1e-5 {
		t.Errorf("loss %v, stock %v", got, want)
	}
	for i, p := range m.p {
		want := grads[i].Value().Data().([]float32)
		diff, top := 0.0, 0.0
		for j, g := range p.Grad() {
			diff, top = max(diff, math.Abs(float64(g-want[j]))), max(top, math.Abs(float64(want[j])))
		}
		if !(diff <= 1e-5*top) {
			t.Errorf("gradient %d is off by %g of its largest element", i, diff/top)
		}
	}
}

func TestAStepAllocatesAlmostNothing(t *testing.T) {
	m := newMaker(t)
	loss, _ := m.layer(40)
	m.compile(loss)
	for range 3 {
		m.run()
	}
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	const runs = 20
	for range runs {
		m.run()
	}
	runtime.ReadMemStats(&after)
	// The tape allocates a few words per operation: inputs, a goroutine, channels. One matrix of
	// this net alone is 40·8·4 bytes, and there are hundreds.
	if per := (after.TotalAlloc - before.TotalAlloc) / runs; per > 48<<10 {
		t.Errorf("%d bytes allocated per run", per)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > 64<<10 {
		t.Errorf("the heap grew by %d bytes", grown)
	}
}

// broken panics in an operation.
// An unable queue has no abilities.
type unable struct{ compute.Queue }

func (unable) Abilities() compute.Abilities { return compute.Abilities{} }

// A broken queue trains, but its products panic.
type broken struct{ compute.Queue }

func (b broken) Abilities() compute.Abilities {
	can := b.Queue.Abilities()
	can.Train = brokenOps{can.Train}
	return can
}

type brokenOps struct{ compute.TrainOps }

func (brokenOps) Gemm(compute.Mat, compute.Mat, compute.Mat, float32) { panic("planted") }

func TestAPanicInAnOperationIsAnError(t *testing.T) {
	q := queue(t)
	g, err := New(broken{q})
	if err != nil {
		t.Fatal(err)
	}
	m := &maker{t: t, q: q, g: g, r: rand.New(rand.NewPCG(1, 2))}
	loss, _ := m.layer(2)
	m.compile(loss)
	for range 2 {
		if err := g.Run(context.Background()); err == nil || !strings.Contains(err.Error(), "planted") || !strings.Contains(err.Error(), "linear#") {
			t.Fatalf("error %v", err)
		}
	}
	if _, err := New(unable{q}); err == nil {
		t.Error("a queue that cannot train is accepted")
	}
}

func TestARunEndsWithItsContext(t *testing.T) {
	m := newMaker(t)
	loss, _ := m.layer(2)
	m.compile(loss)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := m.g.Run(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	m.run() // and the graph still works
}

// A countdown is a context that ends when it has been looked at so often.
type countdown struct {
	context.Context
	left atomic.Int64
}

func (c *countdown) Err() error {
	if c.left.Add(-1) >= 0 {
		return nil
	}
	return context.Canceled
}

// Wherever a run is cut off, inside an operation too, it says so, and the next one has the bits that it would have had.
func TestARunThatWasCutOffLeavesNothingBehind(t *testing.T) {
	m := newMaker(t)
	loss, _ := m.layer(2)
	m.compile(loss)
	all := &countdown{Context: t.Context()}
	all.left.Store(math.MaxInt64)
	if err := m.g.Run(all); err != nil {
		t.Fatal(err)
	}
	grads := func() (all []float32) {
		for _, p := range m.p {
			all = append(all, p.Grad()...)
		}
		return append(all, loss.Scalar())
	}
	want, looks := slices.Clone(grads()), math.MaxInt64-all.left.Load()
	for at := int64(0); at < looks; at += 1 + looks/50 {
		ctx := &countdown{Context: t.Context()}
		ctx.left.Store(at)
		if err := m.g.Run(ctx); !errors.Is(err, context.Canceled) {
			t.Fatalf("cut off at look %d of %d: %v", at, looks, err)
		}
		m.run()
		if got := grads(); !slices.Equal(got, want) {
			t.Fatalf("after a run that was cut off at look %d of %d, gradients differ", at, looks)
		}
	}
}

// Traps: equal names, types and shapes are one node to Gorgonia; RunAll without
// Reset does nothing; inputs are kept by reference.
func TestEqualNamesStayApartAndEveryRunCounts(t *testing.T) {
	m := newMaker(t)
	rows := &Rows{Max: 4, N: 2}
	x := m.g.Input("x", rows, 3)
	a, b := m.param(1, 3, 3), m.param(1, 3, 3)
	y := m.g.LinearAdd(x, a, m.g.Linear(x, b, nil), nil)
	target := m.g.Input("x", rows, 3)
	scale := []float32{1, 1}
	loss := m.g.SmoothL1(y, target, &scale, true)
	m.compile(loss.Node)
	copy(x.Data(), []float32{1, 2, 3, 4, 5, 6})
	m.run()
	first := loss.Scalar()
	want := 0.0
	for r := range 2 {
		for o := range 3 {
			s := 0.0
			for k := range 3 {
				s += float64(x.Data()[r*3+k]) * float64(m.v[0].Data[o*3+k]+m.v[1].Data[o*3+k])
			}
			want += math.Abs(s) / 3
		}
	}
	if math.Abs(float64(first)-want) > 1e-4*want {
		t.Errorf("loss %v, want %v", first, want)
	}
	rows.N = 1
	scale = scale[:1]
	m.run()
	if second := loss.Scalar(); second >= first {
		t.Errorf("a run over half the rows gives %v after %v", second, first)
	}
}

func TestWhatDoesNotTrainIsRefused(t *testing.T) {
	m := newMaker(t)
	loss, _ := m.layer(2)
	m.param(1, 2, 2)
	if err := m.g.Compile(loss, m.p...); err == nil || !strings.Contains(err.Error(), "does not contribute") {
		t.Errorf("a parameter that nothing uses: %v", err)
	}
	if err := m.g.Run(context.Background()); err == nil {
		t.Error("a graph that is not compiled runs")
	}
}

// Memory of dead values is reused: evaluation of a chain of n layers needs less than n times the
// memory of one.
func TestEvaluationReusesMemory(t *testing.T) {
	bytes := func(layers int) int {
		m := newMaker(t)
		rows := &Rows{Max: 100, N: 100}
		x := m.g.Input("x", rows, 16)
		y := x
		for range layers {
			y = m.g.Linear(y, m.param(1, 16, 16), nil)
		}
		m.g.Keep(y)
		if err := m.g.CompileForward(); err != nil {
			t.Fatal(err)
		}
		m.run()
		return m.g.Bytes()
	}
	if one, many := bytes(2), bytes(20); many > 2*one {
		t.Errorf("2 layers take %d bytes, 20 take %d", one, many)
	}
}

// A gradient that is handed out is final, each is handed out once, and equal graphs hand them
// out in the same order.
func TestGradientsAreHandedOutWhenTheyAreComplete(t *testing.T) {
	var orders [][]int
	for range 2 {
		m := newMaker(t)
		loss, _ := m.layer(5)
		m.compile(loss)
		for range 2 {
			var order []int
			early := make([][]float32, len(m.p))
			m.g.OnGrad(func(i int) {
				order = append(order, i)
				early[i] = slices.Clone(m.p[i].Grad())
			})
			m.run()
			if len(order) != len(m.p) || !slices.Equal(order, m.g.GradOrder()) {
				t.Fatalf("%d gradients were handed out, want %d: %v, announced %v", len(order), len(m.p), order, m.g.GradOrder())
			}
			for i, p := range m.p {
				if !slices.Equal(early[i], p.Grad()) {
					t.Errorf("the gradient of parameter %d was not complete", i)
				}
			}
			orders = append(orders, order)
		}
		m.g.OnGrad(func(int) { t.Error("called while looking for what is not finite") })
		if _, err := m.g.FirstNonFinite(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	for _, o := range orders {
		if !slices.Equal(o, orders[0]) {
			t.Errorf("orders %v", orders)
		}
	}
}

// A keeper stashes values without rounding them.
type keeper struct{ ops compute.TrainOps }

func (k keeper) Stash(n int) compute.Buffer { return k.ops.Host(make([]float32, n), n) }

func (k keeper) Narrow(dst, src compute.Buffer, n int) { k.Widen(dst, src, n) }

func (k keeper) Widen(dst, src compute.Buffer, n int) {
	z := k.ops.Host(make([]float32, n), n)
	k.ops.Add(dst, src, z, n)
}

// Activations in bfloat16 change no value of the forward pass, and gradients only slightly. No
// memory is read that others use in between; otherwise gradients would not be equal when nothing
// is rounded.
func TestStashedActivationsChangeGradientsByLittle(t *testing.T) {
	type result struct {
		loss  float32
		grads [][]float32
	}
	run := func(stash, exact bool) (r result) {
		m := newMaker(t)
		if stash {
			if err := m.g.Stash(); err != nil {
				t.Fatal(err)
			}
		}
		if exact {
			m.g.stasher = keeper{m.g.ops}
		}
		loss, _ := m.layer(40)
		m.compile(loss)
		if stash && m.g.stashed == 0 {
			t.Fatal("nothing is stashed")
		}
		for range 2 { // memory that was used before holds others' values
			m.run()
		}
		for _, p := range m.p {
			r.grads = append(r.grads, append([]float32(nil), p.Grad()...))
		}
		r.loss = loss.Scalar()
		return r
	}
	full, kept, half := run(false, false), run(true, true), run(true, false)
	if full.loss != half.loss || full.loss != kept.loss {
		t.Errorf("losses %v and %v, want %v", half.loss, kept.loss, full.loss)
	}
	rounded := false
	for i, want := range full.grads {
		var diff, norm float64
		for j, w := range want {
			if kept.grads[i][j] != w {
				t.Fatalf("gradient %d[%d] is %v where nothing is rounded, want %v", i, j, kept.grads[i][j], w)
			}
			d := float64(half.grads[i][j]) - float64(w)
			diff, norm = diff+d*d, norm+float64(w)*float64(w)
		}
		rounded = rounded || diff > 0
		// A rounding moves a value by 2⁻⁹ of itself at most; rows of 8 average little,
		// and weights of deviation 0.4 and more amplify on the way through two levels.
		if e := math.Sqrt(diff / norm); !(e <= 0.06) {
			t.Errorf("gradient %d differs by %v of its norm", i, e)
		}
	}
	if !rounded {
		t.Error("nothing was rounded")
	}
}
