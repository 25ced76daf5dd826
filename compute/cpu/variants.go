package cpu

import (
	"fmt"

	"talf/compute"
)

// addScaledTask adds scaled rows to others.
type addScaledTask struct {
	dst, x []float32
	norm   normRow // no weight: none
	scale  float32
	h      int
	n, per int
}

func (t *addScaledTask) run(w *worker, part int) {
	for r := part * t.per; r < min(t.n, (part+1)*t.per); r++ {
		d, x := t.dst[r*t.h:][:t.h], t.x[r*t.h:][:t.h]
		if t.norm.weight != nil {
			y := w.buf(0, t.h)
			t.norm.run(w, y, x)
			x = y
		}
		if t.scale == 1 {
			w.k.Add(d, d, x)
		} else {
			w.k.Axpy(d, t.scale, x)
		}
	}
}

// AddScaled adds scale·norm(x) to dst.
func (q *Queue) AddScaled(dst, x compute.Buffer, norm *compute.Norm, scale float32, n int) {
	const op = "AddScaled"
	h := width(dst)
	t := &q.blend
	*t = addScaledTask{dst: f32(op, dst, n*h), x: f32(op, x, n*h), scale: scale, h: h, n: n, per: rowsPerPart(n, h/4)}
	if norm != nil {
		t.norm = normOf(op, norm, h)
	}
	q.run(t, parts(n, t.per))
}

// capTask scales rows of logits and keeps them within a limit.
type capTask struct {
	x, peaks     []float32 // peaks may be nil
	scale, limit float32
	v, n         int
}

// capWidth is the number of elements of a part: whole panels.
const capWidth = 64 * panel

func (t *capTask) run(w *worker, part int) {
	per := parts(t.v, capWidth)
	r, c := part/per, part%per*capWidth
	x := t.x[r*t.v:][c:min(c+capWidth, t.v)]
	if t.limit == 0 {
		w.k.Scale(x, t.scale)
	} else {
		w.k.TanhCap(x, t.scale, t.limit, w.buf(3, len(x)))
	}
	if t.peaks == nil {
		return
	}
	p := t.peaks[r*panels(t.v)+c/panel:]
	for i := 0; i < len(x); i += panel {
		p[i/panel] = w.k.Max(x[i:min(i+panel, len(x))])
	}
}

// ScaleCap multiplies by scale and keeps the results within limit.
func (q *Queue) ScaleCap(x, peaks compute.Buffer, scale, limit float32, n int) {
	const op = "ScaleCap"
	v := width(x)
	t := &q.cap
	*t = capTask{x: f32(op, x, n*v), scale: scale, limit: limit, v: v, n: n}
	if peaks != nil {
		t.peaks = f32(op, peaks, n*panels(v))
	}
	q.run(t, n*parts(v, capWidth))
}

// scatterTask adds weighted rows to others.
type scatterTask struct {
	dst, src, weights []float32
	rows              []int32
	h, per            int
}

func (t *scatterTask) run(w *worker, part int) {
	for i := part * t.per; i < min(len(t.rows), (part+1)*t.per); i++ {
		w.k.Axpy(t.dst[int(t.rows[i])*t.h:][:t.h], t.weights[i], t.src[i*t.h:][:t.h])
	}
}

// ScatterAdd adds weighted rows of src to rows of dst.
func (q *Queue) ScatterAdd(dst, src compute.Buffer, rows []int32, weights []float32) {
	const op = "ScatterAdd"
	h, n := width(dst), len(rows)
	t := &q.scatter
	*t = scatterTask{dst: f32(op, dst, 0), src: f32(op, src, n*h), weights: weights, rows: rows, h: h, per: rowsPerPart(n, h/4)}
	check(len(weights) >= n, op, "weights", len(weights), n)
	for _, r := range rows {
		if r < 0 || (int(r)+1)*h > len(t.dst) {
			panic(fmt.Sprintf("cpu: %s: row %d of a destination of shape %v", op, r, dst.Shape()))
		}
	}
	q.run(t, parts(n, t.per))
}

// columnsTask normalises the same columns of rows.
type columnsTask struct {
	x          []float32
	norm       normRow
	ld, col, h int
	n, per     int
}

func (t *columnsTask) run(w *worker, part int) {
	for r := part * t.per; r < min(t.n, (part+1)*t.per); r++ {
		x := t.x[r*t.ld+t.col:][:t.h]
		t.norm.run(w, x, x)
	}
}

// NormColumns normalises columns of x in place.
func (q *Queue) NormColumns(x compute.Buffer, col int, norm *compute.Norm, n int) {
	const op = "NormColumns"
	h, ld := len(f32(op, norm.Weight, 1)), width(x)
	check(col >= 0 && col+h <= ld, op, "the last column", col+h, ld)
	t := &q.columns
	*t = columnsTask{x: f32(op, x, n*ld), norm: normOf(op, norm, h), ld: ld, col: col, h: h, n: n, per: rowsPerPart(n, h/4)}
	q.run(t, parts(n, t.per))
}

// weigh turns the scores of the positions that a row sees into exponentials and returns what
// they are divided by.
func (t *attendTask) weigh(w *worker, seen []float32, head int) float32 {
	if t.limit != 0 {
		w.k.TanhCap(seen, 1, t.limit, w.buf(3, len(seen)))
	}
	top := w.k.Max(seen)
	if t.sinks == nil {
		return w.k.ExpSum(seen, seen, top)
	}
	top = max(top, t.sinks[head])
	sum := w.k.ExpSum(seen, seen, top)
	sink := w.buf(3, 1)
	sink[0] = t.sinks[head]
	return sum + w.k.ExpSum(sink, sink, top)
}
