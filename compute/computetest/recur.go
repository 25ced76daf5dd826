package computetest

import (
	"fmt"
	"math"

	"talf/compute"
)

// recurAgrees compares the nodes of a tree with the gated delta rule in float64 along their paths, and the bits of
// a pass over all of them with those of two passes, of a chain that is advanced node by node, and of two trees
// beside each other.
func recurAgrees(b *bench) {
	rec := b.q.Abilities().Recur
	if rec == nil {
		b.Skip("the device has no recurrent layers")
	}
	gatesAgree(b, rec)
	for _, d := range []compute.DeltaShape{
		{KeyHeads: 2, ValueHeads: 4, KeyDim: 6, ValueDim: 7, Kernel: 3},
		{KeyHeads: 1, ValueHeads: 1, KeyDim: 16, ValueDim: 32, Kernel: 2},
		{KeyHeads: 3, ValueHeads: 3, KeyDim: 33, ValueDim: 5, Kernel: 5},
	} {
		const layers = 2
		c, values := d.Channels(), d.ValueHeads*d.ValueDim
		var deltas []compute.Delta
		for range layers {
			decay := b.random(d.ValueHeads)
			for i, x := range decay {
				decay[i] = -float32(math.Exp(float64(x)))
			}
			deltas = append(deltas, compute.Delta{
				DeltaShape: d, Conv: b.buffer(b.random(d.Kernel*c), d.Kernel, c), Decay: b.buffer(decay, d.ValueHeads),
				Step: b.buffer(b.random(d.ValueHeads), d.ValueHeads), Norm: &compute.Norm{Weight: b.buffer(b.random(d.ValueDim), d.ValueDim), Eps: 1e-6},
			})
		}
		up := []int32{-1, 0, 0, 1, -1, 3, 1, 5} // two trees of one state
		n := len(up)
		state := b.buffer(b.random(layers*d.State()), layers, d.State())
		x, gates := b.random(n*(c+values)), b.random(n*2*d.ValueHeads)
		// run computes nodes [from, n) in a slot each.
		run := func(log compute.Buffer, layer, from, beside int) []float32 {
			dst := b.buffer(make([]float32, (n-from+beside)*values), n-from+beside, values)
			f := compute.Fork{State: state, Log: log, Slots: n}
			for i := range n {
				node := compute.ForkNode{Node: int32(i), Row: int32(i - from + beside), Up: up[i], From: up[i], To: int32(i)}
				if i < from {
					node.Row = -1
				}
				f.Nodes = append(f.Nodes, node)
			}
			forks := []compute.Fork{f}
			in, g := append(make([]float32, beside*(c+values)), x[from*(c+values):]...), append(make([]float32, beside*2*d.ValueHeads), gates[from*2*d.ValueHeads:]...)
			if beside > 0 {
				other := compute.Fork{State: state, Log: newLog(b, n, layers, d), Slots: 1, Nodes: []compute.ForkNode{{Up: -1, From: -1}}}
				forks = append([]compute.Fork{other}, f)
			}
			rec.DeltaRule(dst, b.buffer(in, len(in)/(c+values), c+values), b.buffer(g, len(g)/(2*d.ValueHeads), 2*d.ValueHeads), &deltas[layer], layer, forks)
			return b.read(dst, (n-from+beside)*values)[beside*values:]
		}
		log := newLog(b, n, layers, d)
		for layer := range layers {
			what := fmt.Sprintf("DeltaRule of %+v, layer %d", d, layer)
			got := run(log, layer, 0, 0)
			for i := range n {
				b.near(fmt.Sprintf("%s, node %d", what, i), got[i*values:][:values], deltaRef(b, &deltas[layer], state, layer, layers, up, x, gates, i), 2e-5)
			}
			b.same(what+", from node 3 on", run(log, layer, 3, 0), got[3*values:])
			b.same(what+", beside another tree", run(newLog(b, n, layers, d), layer, 0, 1), got)
		}
		// A path that is advanced in one piece, in two, and in place gives the same state.
		path := []compute.ForkNode{{Node: 0, Up: -1, From: -1}, {Node: 1, Up: 0}, {Node: 3, Up: 1}, {Node: 5, Up: 2}}
		size := layers * d.State()
		whole, half := b.buffer(make([]float32, size), layers, d.State()), b.buffer(make([]float32, size), layers, d.State())
		rec.Advance(whole, deltas, &compute.Fork{State: state, Log: log, Nodes: path, Slots: 1})
		rec.Advance(half, deltas, &compute.Fork{State: state, Log: log, Nodes: path[:1], Slots: 1})
		rec.Advance(half, deltas, &compute.Fork{State: half, Log: log, Nodes: []compute.ForkNode{{Node: 1, Up: -1, From: -1}, {Node: 3, Up: 0}, {Node: 5, Up: 1}}, Slots: 1})
		b.same(fmt.Sprintf("Advance of %+v in two pieces", d), b.read(half, size), b.read(whole, size))
		// And what follows it has the bits of the tree.
		tree := run(log, 0, 7, 0)
		was := state
		state = whole
		up[7] = -1
		alone := newLog(b, n, layers, d)
		dst := b.buffer(make([]float32, values), 1, values)
		rec.DeltaRule(dst, b.buffer(x[7*(c+values):], 1, c+values), b.buffer(gates[7*2*d.ValueHeads:], 1, 2*d.ValueHeads), &deltas[0], 0,
			[]compute.Fork{{State: state, Log: alone, Slots: 1, Nodes: []compute.ForkNode{{Node: 0, Row: 0, Up: -1, From: -1}}}})
		b.same(fmt.Sprintf("DeltaRule of %+v after Advance", d), b.read(dst, values), tree)
		rec.Advance(half, deltas, &compute.Fork{State: was, Log: log})
		b.same("Advance without nodes", b.read(half, size), b.read(was, size))
	}
}

func newLog(b *bench, n, layers int, d compute.DeltaShape) compute.Buffer {
	return b.buffer(make([]float32, n*layers*d.Log()), n, layers*d.Log())
}

// gatesAgree compares GateSigmoid with the reference.
func gatesAgree(b *bench, rec compute.Recurrer) {
	for _, h := range []int{1, 30, 333} {
		const n = 5
		x, gate := b.random(n*h), b.random(n*h)
		gate[0] = -100
		var want []float64
		for i := range x {
			want = append(want, float64(x[i])/(1+math.Exp(-float64(gate[i]))))
		}
		buf := b.buffer(x, n, h)
		rec.GateSigmoid(buf, b.buffer(gate, n, h), n)
		b.near(fmt.Sprintf("GateSigmoid of rows of %d", h), b.read(buf, n*h), want, 4e-6)
	}
}

// deltaRef computes node n along its path, as compute.Delta says.
func deltaRef(b *bench, l *compute.Delta, state compute.Buffer, layer, layers int, up []int32, x, gates []float32, n int) []float64 {
	d := l.DeltaShape
	c, values := d.Channels(), d.ValueHeads*d.ValueDim
	all := b.read(state, layers*d.State())[layer*d.State():][:d.State()]
	size := d.KeyDim * d.ValueDim
	inputs := wide(all[d.ValueHeads*size:]) // of the convolution, the oldest first
	var path []int
	for i := int32(n); i >= 0; i = up[i] {
		path = append([]int{int(i)}, path...)
	}
	conv, decay, step := wide(b.read(l.Conv, d.Kernel*c)), wide(b.read(l.Decay, d.ValueHeads)), wide(b.read(l.Step, d.ValueHeads))
	out := make([]float64, values)
	states := wide(all[:d.ValueHeads*size])
	silu := func(x float64) float64 { return x / (1 + math.Exp(-x)) }
	for _, i := range path {
		row := wide(x[i*(c+values):][:c+values])
		inputs = append(inputs, row[:c]...)
		mixed := make([]float64, c)
		for j := range mixed {
			for t := range d.Kernel {
				mixed[j] += conv[t*c+j] * inputs[len(inputs)-(d.Kernel-t)*c+j]
			}
			mixed[j] = silu(mixed[j])
		}
		unit := func(x []float64, scale float64) []float64 {
			sum := 1e-6
			for _, e := range x {
				sum += e * e
			}
			y := make([]float64, len(x))
			for i, e := range x {
				y[i] = e / math.Sqrt(sum) * scale
			}
			return y
		}
		for h := range d.ValueHeads {
			key := h / (d.ValueHeads / d.KeyHeads)
			q := unit(mixed[key*d.KeyDim:][:d.KeyDim], 1/math.Sqrt(float64(d.KeyDim)))
			k := unit(mixed[(d.KeyHeads+key)*d.KeyDim:][:d.KeyDim], 1)
			v := mixed[2*d.KeyHeads*d.KeyDim+h*d.ValueDim:][:d.ValueDim]
			g := gates[i*2*d.ValueHeads:]
			keep := math.Exp(decay[h] * math.Log1p(math.Exp(float64(g[d.ValueHeads+h])+step[h])))
			write := 1 / (1 + math.Exp(-float64(g[h])))
			s := states[h*size:][:size]
			y := make([]float64, d.ValueDim)
			for j := range y {
				read := 0.0
				for m := range k {
					s[m*d.ValueDim+j] *= keep
					read += s[m*d.ValueDim+j] * k[m]
				}
				for m := range k {
					s[m*d.ValueDim+j] += k[m] * write * (v[j] - read)
					y[j] += s[m*d.ValueDim+j] * q[m]
				}
			}
			y = normRef(y, wide(b.read(l.Norm.Weight, d.ValueDim)), float64(float32(1e-6)))
			for j, e := range y {
				out[h*d.ValueDim+j] = e * silu(row[c+h*d.ValueDim+j])
			}
		}
	}
	return out
}
