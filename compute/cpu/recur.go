package cpu

import (
	"fmt"
	"math"

	"talf/compute"
	"talf/internal/detmath"
)

// gateTask multiplies rows by sigmoids.
type gateTask struct {
	x, gate []float32
	h       int
	n, per  int
}

func (t *gateTask) run(w *worker, part int) {
	for r := part * t.per; r < min(t.n, (part+1)*t.per); r++ {
		s := w.buf(0, t.h)
		for i, z := range t.gate[r*t.h:][:t.h] {
			s[i] = -z
		}
		w.k.Exp(s, s)
		x := t.x[r*t.h:][:t.h]
		for i, e := range s {
			x[i] /= 1 + e
		}
	}
}

// GateSigmoid multiplies rows of x by the sigmoids of gate.
func (q *Queue) GateSigmoid(x, gate compute.Buffer, n int) {
	const op = "GateSigmoid"
	h := width(x)
	check(width(gate) == h, op, "elements of a gate", width(gate), h)
	t := &q.gate
	*t = gateTask{x: f32(op, x, n*h), gate: f32(op, gate, n*h), h: h, n: n, per: rowsPerPart(n, h)}
	q.run(t, parts(n, t.per))
}

// A forked is a compute.Fork ready for use.
type forked struct {
	state []float32 // of all layers
	log   []float32
	ld    int // of the log
	nodes []compute.ForkNode
	slots int
}

func forkOf(op string, f *compute.Fork) forked {
	return forked{state: f32(op, f.State, 0), log: f32(op, f.Log, 0), ld: width(f.Log), nodes: f.Nodes, slots: f.Slots}
}

// input returns what is kept of node i in a layer.
func (f *forked) input(d *compute.DeltaShape, layer, i int) []float32 {
	return f.log[int(f.nodes[i].Node)*f.ld+layer*d.Log():][:d.Log()]
}

// before returns the convolution's input of the token that many steps before node i, 0 being its own.
func (f *forked) before(d *compute.DeltaShape, layer, i, steps int) []float32 {
	c := d.Channels()
	for ; steps > 0 && i >= 0; steps-- {
		i = int(f.nodes[i].Up)
	}
	if i >= 0 {
		return f.input(d, layer, i)[:c]
	}
	window := f.state[layer*d.State()+d.ValueHeads*d.KeyDim*d.ValueDim:]
	return window[(d.Kernel-2-steps)*c:][:c]
}

// logTask copies the inputs of rows to the logs of their nodes.
type logTask struct {
	x, gates []float32
	ld       int // of x
	d        *compute.DeltaShape
	layer    int
	forks    []forked
}

func (t *logTask) run(_ *worker, part int) {
	f, c, g := &t.forks[part], t.d.Channels(), 2*t.d.ValueHeads
	for i := range f.nodes {
		if r := int(f.nodes[i].Row); r >= 0 {
			to := f.input(t.d, t.layer, i)
			copy(to[:c], t.x[r*t.ld:])
			copy(to[c:], t.gates[r*g:][:g])
		}
	}
}

// deltaTask computes the nodes of a fork in one value head of a layer per part.
type deltaTask struct {
	layers   []deltaLayer
	first    int // index of the first layer in states and logs
	forks    []forked
	dst, x   []float32 // x: rows of Channels and then output gates; nil if only states are wanted
	ldd, ldx int
	last     []float32 // state after the last node of the one fork, of all layers, or nil
}

// A deltaLayer is a compute.Delta ready for use.
type deltaLayer struct {
	*compute.Delta
	conv, decay, step []float32
	norm              normRow
}

func deltaOf(op string, d *compute.Delta) deltaLayer {
	return deltaLayer{
		Delta: d, conv: f32(op, d.Conv, d.Kernel*d.Channels()), decay: f32(op, d.Decay, d.ValueHeads), step: f32(op, d.Step, d.ValueHeads),
		norm: normOf(op, d.Norm, d.ValueDim),
	}
}

func (t *deltaTask) run(w *worker, part int) {
	heads := t.layers[0].ValueHeads
	h, part := part%heads, part/heads
	l := &t.layers[part%len(t.layers)]
	f := &t.forks[part/len(t.layers)]
	layer := t.first + part%len(t.layers)
	size, dk, dv := l.KeyDim*l.ValueDim, l.KeyDim, l.ValueDim
	at := layer*l.State() + h*size
	slots := w.buf(0, f.slots*size)
	tmp := w.buf(1, 2*dk+3*dv+2*max(dk, dv))
	q, k, v, out, tmp := tmp[:dk], tmp[dk:2*dk], tmp[2*dk:2*dk+dv], tmp[2*dk+dv:2*dk+2*dv], tmp[2*dk+2*dv:]
	for i := range f.nodes {
		n := &f.nodes[i]
		s := slots[int(n.To)*size:][:size]
		switch {
		case n.From < 0:
			copy(s, f.state[at:])
		case n.From != n.To:
			copy(s, slots[int(n.From)*size:])
		}
		key := h / (heads / l.KeyHeads)
		t.convolve(w, l, f, layer, i, q, key*dk, tmp)
		t.convolve(w, l, f, layer, i, k, (l.KeyHeads+key)*dk, tmp)
		t.convolve(w, l, f, layer, i, v, 2*l.KeyHeads*dk+h*dv, tmp)
		unit(w, q, float32(1/math.Sqrt(float64(dk))))
		unit(w, k, 1)
		gates := f.input(&l.DeltaShape, layer, i)[l.Channels():]
		l.update(w, h, s, k, v, gates, tmp[:dv])
		if n.Row < 0 || t.dst == nil {
			continue
		}
		clear(out)
		for j, e := range q {
			w.k.Axpy(out, e, s[j*dv:][:dv])
		}
		l.norm.run(w, out, out)
		z := t.x[int(n.Row)*t.ldx+l.Channels()+h*dv:][:dv]
		w.k.SiLUMul(t.dst[int(n.Row)*t.ldd+h*dv:][:dv], z, out)
	}
	if t.last != nil {
		copy(t.last[at:][:size], slots[int(f.nodes[len(f.nodes)-1].To)*size:])
	}
}

// convolve sets x to what the convolution and SiLU make of node i's channels from c on.
func (t *deltaTask) convolve(w *worker, l *deltaLayer, f *forked, layer, i int, x []float32, c int, tmp []float32) {
	clear(x)
	tmp = tmp[:len(x)]
	for j := range l.Kernel {
		w.k.Mul(tmp, f.before(&l.DeltaShape, layer, i, l.Kernel-1-j)[c:][:len(x)], l.conv[j*l.Channels()+c:])
		w.k.Add(x, x, tmp)
	}
	w.k.SiLUMul(x, x, w.ones(len(x)))
}

// unit divides x by √(Σx²+1e-6) and multiplies it by scale.
func unit(w *worker, x []float32, scale float32) {
	w.k.Scale(x, float32(1/math.Sqrt(float64(w.k.Dot(x, x)+1e-6))))
	if scale != 1 {
		w.k.Scale(x, scale)
	}
}

// update makes the state s of head h after a token from that before it.
func (l *deltaLayer) update(w *worker, h int, s, k, v, gates, tmp []float32) {
	dv := l.ValueDim
	write := float32(1 / (1 + detmath.Exp(-float64(gates[h]))))
	a := float64(gates[l.ValueHeads+h] + l.step[h])
	if a < 20 { // softplus; beyond it is a, in float32
		a = detmath.Log(1 + detmath.Exp(a))
	}
	w.k.Scale(s, float32(detmath.Exp(float64(l.decay[h]*float32(a)))))
	clear(tmp)
	for j, e := range k {
		w.k.Axpy(tmp, e, s[j*dv:][:dv])
	}
	for j, e := range tmp {
		tmp[j] = write * float32(v[j]-e)
	}
	for j, e := range k {
		w.k.Axpy(s[j*dv:][:dv], e, tmp)
	}
}

// DeltaRule computes a layer with the gated delta rule.
func (q *Queue) DeltaRule(dst, x, gates compute.Buffer, d *compute.Delta, layer int, forks []compute.Fork) {
	const op = "DeltaRule"
	lx, lg := d.Channels()+d.ValueHeads*d.ValueDim, 2*d.ValueHeads
	check(width(x) == lx, op, "elements of a row", width(x), lx)
	check(width(gates) == lg, op, "gates of a row", width(gates), lg)
	check(width(dst) == d.ValueHeads*d.ValueDim, op, "elements of a result", width(dst), d.ValueHeads*d.ValueDim)
	rows := 0
	logs := &q.logs
	*logs = logTask{x: f32(op, x, 0), gates: f32(op, gates, 0), ld: lx, d: &d.DeltaShape, layer: layer, forks: logs.forks[:0]}
	for i := range forks {
		f := forkOf(op, &forks[i])
		f.check(op, &d.DeltaShape, layer)
		for _, n := range f.nodes {
			rows = max(rows, int(n.Row)+1)
		}
		logs.forks = append(logs.forks, f)
	}
	f32(op, x, rows*lx)
	f32(op, gates, rows*lg)
	q.run(logs, len(logs.forks))
	t := &q.delta
	*t = deltaTask{layers: append(t.layers[:0], deltaOf(op, d)), first: layer, forks: logs.forks, dst: f32(op, dst, rows*width(dst)), x: logs.x, ldd: width(dst), ldx: lx}
	q.run(t, len(t.forks)*d.ValueHeads)
}

// check panics if the fork's state or log is too small, or a node comes before its parent.
func (f *forked) check(op string, d *compute.DeltaShape, layer int) {
	check(len(f.state) >= (layer+1)*d.State(), op, "elements of a state", len(f.state), (layer+1)*d.State())
	for i, n := range f.nodes {
		if int(n.Up) >= i || int(n.To) >= f.slots || n.To < 0 || (int(n.Node)+1)*f.ld > len(f.log) || f.ld < (layer+1)*d.Log() {
			panic(fmt.Sprintf("cpu: %s: node %d is %+v, with %d slots and a log of %d rows", op, i, n, f.slots, len(f.log)/max(1, f.ld)))
		}
	}
}

// windowTask moves the windows of the convolutions on, one layer per part.
type windowTask struct {
	dst    []float32
	layers []deltaLayer
	fork   *forked
}

func (t *windowTask) run(_ *worker, part int) {
	d := &t.layers[part].DeltaShape
	c, at := d.Channels(), part*d.State()+d.ValueHeads*d.KeyDim*d.ValueDim
	for j := range d.Kernel - 1 { // the oldest first: with dst the state itself, none is overwritten before it has moved
		copy(t.dst[at+j*c:][:c], t.fork.before(d, part, len(t.fork.nodes)-1, d.Kernel-2-j))
	}
}

// Advance makes the state after a chain of nodes.
func (q *Queue) Advance(dst compute.Buffer, layers []compute.Delta, f *compute.Fork) {
	const op = "Advance"
	if len(f.Nodes) == 0 {
		from := f32(op, f.State, 0)
		copy(f32(op, dst, len(from)), from)
		return
	}
	logs := &q.logs
	logs.forks = append(logs.forks[:0], forkOf(op, f))
	fork := &logs.forks[0]
	last := len(layers) - 1
	fork.check(op, &layers[last].DeltaShape, last)
	t := &q.delta
	*t = deltaTask{layers: t.layers[:0], forks: logs.forks, last: f32(op, dst, len(layers)*layers[0].State())}
	for i := range layers {
		t.layers = append(t.layers, deltaOf(op, &layers[i]))
	}
	q.run(t, len(layers)*layers[0].ValueHeads)
	q.windows = windowTask{dst: t.last, layers: t.layers, fork: fork}
	q.run(&q.windows, len(layers))
}
