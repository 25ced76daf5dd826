package cpu

import (
	"context"
	"fmt"
	"math"
	"runtime"

	"talf/compute"
	"talf/compute/cpu/kern"
	"talf/internal/slab"
)

// softCE is the state of SoftCE: logits of one chunk of rows at a time.
type softCE struct {
	z    []float32 // [rows][v] logits, then their gradients
	rows ceTask

	probs probsTask
}

// ceLogits is how many logits a chunk holds and ceRows how many rows at most:
// enough rows to pay for passing over w, few enough that the logits stay in the
// last level of cache. Each chunk packs a w that is no weight anew: then it has ceLeast rows or more.
const (
	ceLogits = 1 << 22
	ceRows   = 512
	ceLeast  = 256
)

// A ceHead is w [v][hidden]: in panels of v, for logits, and in panels of hidden, for gradients; or rows that may have
// changed, which are packed where they are multiplied.
type ceHead struct {
	forward, back packed
	rows          []float32
	v, hidden     int
}

// chunk is the number of rows whose logits are computed at once.
func (h *ceHead) chunk() int {
	least := 16
	if h.rows != nil {
		least = ceLeast
	}
	return max(least, min(ceRows, ceLogits/h.v/16*16))
}

// logits computes z = x·wᵀ for m rows x.
func (q *Queue) logits(h *ceHead, z, x []float32, m int) {
	q.mul = mulTask{
		c: z, ldc: h.v, a: x, ars: h.hidden, aks: 1, b: h.forward, raw: rawRight{b: h.rows, stride: h.hidden, trans: true},
		m: m, n: h.v, k: h.hidden,
	}
	q.pool.run(q.until, &q.mul, q.mul.cut(q.pool))
}

// unlogits computes dx = z·w for m rows z.
func (q *Queue) unlogits(h *ceHead, dx, z []float32, m int) {
	q.mul = mulTask{
		c: dx, ldc: h.hidden, a: z, ars: h.v, aks: 1, b: h.back, raw: rawRight{b: h.rows, stride: h.hidden},
		m: m, n: h.hidden, k: h.v,
	}
	q.pool.run(q.until, &q.mul, q.mul.cut(q.pool))
}

// SoftCE computes losses and gradients of soft labels, chunk by chunk: logits,
// the loss and its gradient in their place, then dh and dw.
func (q *Queue) SoftCE(loss, dh, dw, h, w compute.Buffer, labels *compute.SoftLabels, scale []float32, n int) {
	const op = "SoftCE"
	hidden := width(h)
	v := w.Shape()[0]
	check(w.Shape()[1] == hidden, op, "columns of w", w.Shape()[1], hidden)
	check(len(scale) >= n, op, "len(scale)", len(scale), n)
	ls, dhs, hs := f32(op, loss, n), f32(op, dh, n*hidden), f32(op, h, n*hidden)
	checkLabels(labels, v, n)
	var dws []float32
	if dw != nil {
		dws = f32(op, dw, v*hidden)
	}
	head := q.head(op, w, v, hidden, true)

	s := &q.train.ce
	chunk := head.chunk()
	s.z = slab.Resize(s.z, min(chunk, n)*v)
	for r := 0; r < n; r += chunk {
		m := min(chunk, n-r)
		q.logits(&head, s.z, hs[r*hidden:], m)
		s.rows = ceTask{z: s.z, loss: ls, scale: scale, l: labels, v: v, row: r}
		q.run(&s.rows, m)
		q.unlogits(&head, dhs[r*hidden:], s.z, m)
		if dws != nil {
			q.packB(hs[r*hidden:], hidden, m, hidden, false)
			q.mul = mulTask{
				c: dws, ldc: hidden, a: s.z, ars: 1, aks: v, b: packed{panels: q.train.packed},
				m: v, n: hidden, k: m, chain: true,
			}
			q.pool.run(q.until, &q.mul, q.mul.cut(q.pool))
		}
	}
	runtime.KeepAlive(w)
}

// Probs computes probabilities in the chunks of SoftCE.
func (q *Queue) Probs(dst []float32, h, w compute.Buffer, n int) {
	v := w.Shape()[0]
	check(len(dst) >= n*v, "Probs", "len(dst)", len(dst), n*v)
	q.probs("Probs", h, w, n, probsTask{dst: dst, v: v})
}

// LabelProbs computes probabilities in the chunks of SoftCE.
func (q *Queue) LabelProbs(dst, rest []float32, h, w compute.Buffer, ids []int32, k, n int) {
	const op = "LabelProbs"
	v := w.Shape()[0]
	check(len(dst) >= n*k, op, "len(dst)", len(dst), n*k)
	check(len(ids) >= n*k, op, "len(ids)", len(ids), n*k)
	check(len(rest) >= n, op, "len(rest)", len(rest), n)
	for i, id := range ids[:n*k] {
		if int(id) >= v {
			panic(fmt.Sprintf("cpu: %s: row %d: id %d, vocabulary of %d", op, i/k, id, v))
		}
	}
	q.probs(op, h, w, n, probsTask{dst: dst, rest: rest, ids: ids, k: k, v: v})
}

// probs runs task, whose logits and first row it sets, on n rows.
func (q *Queue) probs(op string, h, w compute.Buffer, n int, task probsTask) {
	hidden, v := width(h), task.v
	check(w.Shape()[1] == hidden, op, "columns of w", w.Shape()[1], hidden)
	hs := f32(op, h, n*hidden)
	head := q.head(op, w, v, hidden, false)
	s := &q.train.ce
	chunk := head.chunk()
	s.z = slab.Resize(s.z, min(chunk, n)*v)
	for r := 0; r < n; r += chunk {
		m := min(chunk, n-r)
		q.logits(&head, s.z, hs[r*hidden:], m)
		s.probs = task
		s.probs.z, s.probs.row = s.z, r
		q.run(&s.probs, m)
	}
	runtime.KeepAlive(w)
}

// probsTask turns one row of logits into probabilities per part: all, or those of its labels and
// of the rest, if there are ids.
type probsTask struct {
	z, dst, rest []float32
	ids          []int32
	k, v, row    int
}

func (t *probsTask) run(w *worker, part int) {
	z := t.z[part*t.v:][:t.v]
	if t.ids != nil {
		t.labels(w, z, t.row+part)
		return
	}
	dst := t.dst[(t.row+part)*t.v:][:t.v]
	w.k.Scale(dst, 1/w.k.ExpSum(dst, z, w.k.Max(z)))
}

func (t *probsTask) labels(w *worker, z []float32, r int) {
	ids, dst := t.ids[r*t.k:][:t.k], t.dst[r*t.k:][:t.k]
	top := w.k.Max(z)
	for i, id := range ids {
		dst[i] = float32(math.Inf(-1))
		if id >= 0 {
			dst[i] = z[id] - top
		}
	}
	for _, id := range ids {
		if id >= 0 {
			z[id] = float32(math.Inf(-1))
		}
	}
	rest := float64(w.k.ExpSum(z, z, top))
	w.k.Exp(dst, dst)
	sum := rest
	for _, x := range dst {
		sum += float64(x)
	}
	for i, x := range dst {
		dst[i] = float32(float64(x) / sum)
	}
	t.rest[r] = float32(rest / sum)
}

// checkLabels panics if l lacks something for n rows of a vocabulary of v.
func checkLabels(l *compute.SoftLabels, v, n int) {
	if err := l.Check(v, n); err != nil {
		panic("cpu: SoftCE: " + err.Error())
	}
}

// head returns w, with what gradients need if there are any. A weight keeps its panels.
func (q *Queue) head(op string, w compute.Buffer, v, hidden int, gradients bool) ceHead {
	h := ceHead{v: v, hidden: hidden}
	t, ok := w.(*weight)
	switch {
	case !ok:
		h.rows = f32(op, w, v*hidden)
		return h
	case t.q8 != nil || t.mixed != nil || t.dots:
		panic(fmt.Sprintf("cpu: %s: the weight is %v", op, t.DType()))
	case gradients:
		h.back = t.backward(q)
	}
	h.forward = t.packed
	return h
}

// DType and Shape make a weight usable as SoftCE's buffer [Out][In].
func (w *weight) DType() compute.DType {
	switch {
	case w.plain:
		return compute.Stored
	case w.dots:
		return compute.BF16DP
	case w.half != nil:
		return compute.BF16
	case w.q8 != nil:
		return compute.Q8
	case w.mixed != nil:
		return compute.Q4
	}
	return compute.F32
}
func (w *weight) Shape() []int { return []int{w.out, w.in} }

// backward returns w in panels over its inputs, in the format of w, f32 or bfloat16.
func (w *weight) backward(q *Queue) packed {
	w.once.Do(func() {
		if w.half != nil {
			w.back.half, w.back.mem = hugeAlloc[uint16](&q.dev.mem, kern.BF16Len(w.in, w.out))
		} else {
			w.back.panels, w.back.mem = hugeAlloc[float32](&q.dev.mem, kern.PanelLen(w.in, w.out))
		}
		q.pool.run(context.Background(), &turnTask{w}, panels(w.in))
	})
	return w.back
}

// turnTask writes one panel of w.back per part.
type turnTask struct{ w *weight }

func (t *turnTask) run(_ *worker, part int) {
	in, out := t.w.in, t.w.out
	n := min(panel, in-part*panel)
	if half := t.w.half; half != nil {
		const line = 2 * panel // a pair of k
		dst := t.w.back.half[part*kern.BF16PanelLen(out):][:kern.BF16PanelLen(out)]
		for o := range out {
			src := half[o/panel*kern.BF16PanelLen(in)+o%panel*2:]
			d := dst[o/2*line+o%2:]
			for j := range n {
				i := part*panel + j
				d[2*j] = src[i/2*line+i%2]
			}
		}
		return
	}
	dst := t.w.back.panels[part*out*panel:][:out*panel]
	for o := range out {
		src := t.w.panels[(o/panel*in+part*panel)*panel+o%panel:]
		d := dst[o*panel:][:panel]
		for j := range n {
			d[j] = src[j*panel]
		}
	}
}

// ceTask turns one row of logits into its loss and gradient per part.
type ceTask struct {
	z, loss, scale []float32
	l              *compute.SoftLabels
	v, row         int
}

func (t *ceTask) run(w *worker, part int) {
	r, z := t.row+part, t.z[part*t.v:][:t.v]
	if t.l.Full != nil {
		t.full(w, z, r)
	} else {
		t.topK(w, z, r)
	}
	if t.scale[r] == 0 {
		clear(z)
	}
}

// full computes Σ p·(lse − z) and scale·(q·Σp − p).
func (t *ceTask) full(w *worker, z []float32, r int) {
	p := t.l.Full[r*t.v:][:t.v]
	top := w.k.Max(z)
	mass, cross := 0.0, 0.0
	for i, x := range p {
		if x != 0 {
			mass += float64(x)
			cross += float64(float64(x) * float64(z[i]-top))
		}
	}
	sum := float64(w.k.ExpSum(z, z, top))
	t.loss[r] = float32(float64(mass*logOf(sum)) - cross)
	w.k.Scale(z, float32(mass/sum*float64(t.scale[r])))
	w.k.Axpy(z, -t.scale[r], p)
}

// topK computes the loss and gradient of K labels and a tail bucket. With q the
// softmax, S = Σ_topK q, P = Σ p and t the tail's mass:
//
//	loss      = −Σ p·log q − t·log(1−S)
//	∂loss/∂z  = q·(P+t) − p              on the labels
//	          = q·(P − t·S/(1−S))        elsewhere
//
// 1−S is summed from the other tokens, never subtracted: it may be tiny.
func (t *ceTask) topK(w *worker, z []float32, r int) {
	k := t.l.K
	ids, p := t.l.IDs[r*k:][:k], t.l.Prob[r*k:][:k]
	top := w.k.Max(z)
	e := w.buf(0, k)
	for i, id := range ids {
		e[i] = float32(math.Inf(-1))
		if id >= 0 {
			e[i] = z[id] - top
		}
	}
	mass, cross := 0.0, 0.0
	for i, x := range p {
		if x != 0 {
			mass += float64(x)
			cross += float64(float64(x) * float64(e[i]))
		}
	}
	for _, id := range ids {
		if id >= 0 {
			z[id] = float32(math.Inf(-1))
		}
	}
	rest := float64(w.k.ExpSum(z, z, top))
	w.k.Exp(e, e)
	labels := 0.0
	for _, x := range e {
		labels += float64(x)
	}
	sum := labels + rest
	loss := float64(mass*logOf(sum)) - cross
	tail, coef := 0.0, mass/sum
	if t.l.Tail != nil {
		tail = float64(t.l.Tail[r])
	}
	if tail != 0 {
		// Almost no mass is left outside the labels: the bucket counts as smallest, and
		// no token is there to push up.
		loss += float64(tail * (logOf(sum) - logOf(max(rest, smallest))))
		if rest >= smallest {
			coef -= float64(tail * labels / sum / rest)
		}
	}
	t.loss[r] = float32(loss)
	g := float64(t.scale[r])
	w.k.Scale(z, float32(coef*g))
	for i, id := range ids {
		if id >= 0 {
			z[id] = float32((float64(float64(e[i])/sum*(mass+tail)) - float64(p[i])) * g)
		}
	}
}

// smallest is the least mass outside the labels, relative to the largest logit's 1,
// that is distinguished from none. Its inverse is far from overflowing.
const smallest = 0x1p-100
