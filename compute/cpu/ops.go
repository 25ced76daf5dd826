package cpu

import (
	"fmt"
	"math"
	"runtime"
	"runtime/debug"

	"talf/compute"
)

// rowsPerPart returns how many of n rows of cost units of work each form a part,
// so that operations of less than about a microsecond stay on the calling goroutine.
func rowsPerPart(n, cost int) int {
	const part = 1 << 10
	return max(1, min(n, part/max(1, cost)))
}

func parts(n, per int) int {
	if per == 0 {
		return 0
	}
	return (n + per - 1) / per
}

type embedTask struct {
	dst     []float32
	ld, col int
	w       rows
	ids     []int32
	per     int
}

// rows are what Embed reads: a weight, or a table.
type rows interface {
	compute.Weight
	row(dst []float32, o int)
}

func (t *embedTask) run(_ *worker, part int) {
	for r := part * t.per; r < min(len(t.ids), (part+1)*t.per); r++ {
		id := int(t.ids[r])
		dst := t.dst[r*t.ld+t.col:][:t.w.In()]
		t.w.row(dst, id)
	}
}

// A table is a matrix for Embed alone, which is decoded where it lies.
type table struct{ m compute.Matrix }

func newTable(m compute.Matrix) (compute.Weight, error) {
	if m.Type != compute.Blocks {
		return nil, fmt.Errorf("cpu: a table of %v, want blocks", m.Type)
	}
	if err := m.CheckBlocks(); err != nil {
		return nil, fmt.Errorf("cpu: table: %w", err)
	}
	return &table{m}, nil
}

func (t *table) Out() int   { return t.m.Rows }
func (t *table) In() int    { return t.m.Cols }
func (t *table) Bytes() int { return len(t.m.Data) }

// row makes a fault in a mapped file a panic of whoever runs the queue, as helpers do.
func (t *table) row(dst []float32, o int) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	decode(dst, &t.m, o, 0)
}

// Embed sets dst[r][col:col+In] to row ids[r] of table.
func (q *Queue) Embed(dst compute.Buffer, col int, table compute.Weight, ids []int32) {
	w, ok := table.(rows)
	if !ok {
		panic("cpu: Embed: a weight of another device")
	}
	t := &q.embed
	*t = embedTask{dst: f32("Embed", dst, 0), ld: width(dst), col: col, w: w, ids: ids, per: rowsPerPart(len(ids), w.In())}
	f32("Embed", dst, len(ids)*t.ld)
	if col < 0 || col+w.In() > t.ld {
		panic(fmt.Sprintf("cpu: Embed: columns [%d,%d) of rows of %d", col, col+w.In(), t.ld))
	}
	for _, id := range ids {
		if id < 0 || int(id) >= w.Out() {
			panic(fmt.Sprintf("cpu: Embed: id %d, want 0..%d", id, w.Out()-1))
		}
	}
	q.run(t, parts(len(ids), t.per))
	runtime.KeepAlive(w)
}

type gatherTask struct {
	dst, src     []float32
	ld, col, lds int
	rows         []int32
	per          int
}

func (t *gatherTask) run(_ *worker, part int) {
	for r := part * t.per; r < min(len(t.rows), (part+1)*t.per); r++ {
		copy(t.dst[r*t.ld+t.col:][:t.lds], t.src[int(t.rows[r])*t.lds:])
	}
}

// Gather copies rows of src to rows of dst from row, at column col.
func (q *Queue) Gather(dst compute.Buffer, row, col int, src compute.Buffer, rows []int32) {
	ld, lds := width(dst), width(src)
	d, s := f32("Gather", dst, (row+len(rows))*ld), f32("Gather", src, 0)
	if row < 0 || col < 0 || col+lds > ld {
		panic(fmt.Sprintf("cpu: Gather: row %d, columns [%d,%d) of rows of %d", row, col, col+lds, ld))
	}
	for _, r := range rows {
		if r < 0 || (int(r)+1)*lds > len(s) {
			panic(fmt.Sprintf("cpu: Gather: row %d of a source of shape %v", r, src.Shape()))
		}
	}
	t := &q.gather
	*t = gatherTask{dst: d[row*ld:], src: s, ld: ld, col: col, lds: lds, rows: rows, per: rowsPerPart(len(rows), lds/8)}
	q.run(t, parts(len(rows), t.per))
}

type swigluTask struct {
	dst, gu   []float32
	n, f, per int
}

func (t *swigluTask) run(w *worker, part int) {
	for r := part * t.per; r < min(t.n, (part+1)*t.per); r++ {
		gu := t.gu[2*r*t.f:][:2*t.f]
		w.k.SiLUMul(t.dst[r*t.f:][:t.f], gu[:t.f], gu[t.f:])
	}
}

// SwiGLU computes silu(g)·u.
func (q *Queue) SwiGLU(dst, gu compute.Buffer, n int) {
	f := width(dst)
	t := &q.swiglu
	*t = swigluTask{dst: f32("SwiGLU", dst, n*f), gu: f32("SwiGLU", gu, 2*n*f), n: n, f: f, per: rowsPerPart(n, f)}
	q.run(t, parts(n, t.per))
}

type topkTask struct {
	ids       []int32
	logp, src []float32 // logp may be nil
	peaks     []float32 // [n][panels(v)] largest of each panel, or nil
	v, k      int
	n, per    int
}

// expBlock is the number of exponentials that are summed in float32; blocks are
// added in ascending order.
const expBlock = 2048

func (t *topkTask) run(w *worker, part int) {
	for r := part * t.per; r < min(t.n, (part+1)*t.per); r++ {
		t.row(w, r)
	}
}

func (t *topkTask) row(w *worker, r int) {
	x, ids := t.src[r*t.v:][:t.v], t.ids[r*t.k:][:t.k]
	var best []float32
	if t.logp != nil {
		best = t.logp[r*t.k:][:t.k]
	} else {
		best = w.buf(0, t.k)
	}
	var top float32
	switch {
	case t.peaks != nil:
		np := panels(t.v)
		peaks := t.peaks[r*np:][:np]
		if t.k == 1 {
			// The first of the largest is in the first panel whose peak is as large.
			p := w.k.ArgMax(peaks)
			if top = peaks[p]; top > float32(math.Inf(-1)) {
				from := p * panel
				ids[0], best[0] = int32(from+w.k.ArgMax(x[from:min(from+panel, len(x))])), top
				break
			}
		}
		top = selectTop(w, ids, best, x, peaks, panel)
	case t.k == 1:
		top = w.k.Max(x)
		ids[0], best[0] = int32(w.k.ArgMax(x)), top
	default:
		most := w.buf(1, parts(len(x), topBlock))
		for b := range most {
			most[b] = w.k.Max(x[b*topBlock : min((b+1)*topBlock, len(x))])
		}
		top = selectTop(w, ids, best, x, most, topBlock)
	}
	if t.logp == nil {
		return
	}
	sum := 0.0
	for i := 0; i < len(x); i += expBlock {
		n := min(expBlock, len(x)-i)
		sum += float64(w.k.ExpTotal(x[i:i+n], top))
	}
	lse := float64(top) + logOf(sum)
	for i := range best {
		best[i] = float32(float64(best[i]) - lse)
	}
}

// topBlock is the number of elements whose largest is computed first, if there are no
// peaks.
const topBlock = 256

// topGroup is the number of maxima whose largest is computed first in turn.
const topGroup = 16

// selectTop writes the len(ids) = k largest of x, best first, ties to the lower id and NaNs
// last, and returns the largest. most has the largest of every block of elements.
//
// The k-th largest block maximum is a lower bound of what can be selected, so little
// more than k blocks are searched element by element. The maxima are searched in the same
// way, by the largest of every few of them.
func selectTop(w *worker, ids []int32, best, x, most []float32, block int) float32 {
	k := len(ids)
	groups := w.buf(2, parts(len(most), topGroup))
	for g := range groups {
		groups[g] = w.k.Max(most[g*topGroup : min((g+1)*topGroup, len(most))])
	}
	n := 0
	for g, top := range groups {
		if n == k && !(top > best[k-1]) {
			continue
		}
		for _, m := range most[g*topGroup : min((g+1)*topGroup, len(most))] {
			if n < k || m > best[k-1] {
				place(best, n, m)
				n = min(n+1, k)
			}
		}
	}
	bound := float32(math.Inf(-1))
	if n == k {
		bound = best[k-1]
	}
	n = 0
	for g, top := range groups {
		// An equal element with a higher id never displaces a selected one.
		if top < bound || n == k && !(top > best[k-1]) {
			continue
		}
		for b := g * topGroup; b < min((g+1)*topGroup, len(most)); b++ {
			if m := most[b]; m < bound || n == k && !(m > best[k-1]) {
				continue
			}
			for i, end := b*block, min((b+1)*block, len(x)); i < end; i++ {
				if v := x[i]; v >= bound && (n < k || v > best[k-1]) { // and no NaN
					at := place(best, n, v)
					copy(ids[at+1:], ids[at:])
					ids[at] = int32(i)
					n = min(n+1, k)
				}
			}
		}
	}
	for i := 0; n < k; i++ { // all numbers are selected
		if v := x[i]; v != v {
			ids[n], best[n] = int32(i), v
			n++
		}
	}
	return w.k.Max(groups)
}

// place inserts v into best, of which n are set, after all that are not less, and
// returns its place. If all are set, the last one drops out.
func place(best []float32, n int, v float32) int {
	at := min(n, len(best)-1)
	for ; at > 0 && v > best[at-1]; at-- {
		best[at] = best[at-1]
	}
	best[at] = v
	return at
}

// TopK writes the k largest of each row.
func (q *Queue) TopK(ids, logp, logits compute.Buffer, k, n int) {
	v := width(logits)
	if k < 1 || k > v {
		panic(fmt.Sprintf("cpu: TopK: %d of %d logits", k, v))
	}
	t := &q.topk
	*t = topkTask{ids: i32("TopK", ids, n*k), logp: f32("TopK", logp, n*k), src: f32("TopK", logits, n*v), v: v, k: k, n: n, per: rowsPerPart(n, v)}
	q.run(t, parts(n, t.per))
}

// TopPeaks writes the k largest of rows [row,row+n) by the peaks of the product
// that made them.
func (q *Queue) TopPeaks(ids, logp, logits, peaks compute.Buffer, row, k, n int) {
	const op = "TopPeaks"
	v := width(logits)
	np := panels(v)
	if k < 1 || k > v || row < 0 || n < 0 {
		panic(fmt.Sprintf("cpu: %s: %d of %d logits in %d rows from %d", op, k, v, n, row))
	}
	t := &q.topk
	*t = topkTask{
		ids: i32(op, ids, n*k), src: f32(op, logits, (row+n)*v)[row*v:], peaks: f32(op, peaks, (row+n)*np)[row*np:],
		v: v, k: k, n: n, per: rowsPerPart(n, np),
	}
	if logp != nil {
		t.logp, t.per = f32(op, logp, n*k), rowsPerPart(n, v)
	}
	q.run(t, parts(n, t.per))
}

// A checkTask finds the rows from which no token can be chosen.
type checkTask struct {
	ok     []bool
	x      []float32
	v      int
	n, per int
}

func (t *checkTask) run(w *worker, part int) {
	for r := part * t.per; r < min(t.n, (part+1)*t.per); r++ {
		t.ok[r] = choosable(w, t.x[r*t.v:][:t.v])
	}
}

// choosable reports whether x has no NaN and no +Inf, and a finite element. The sum of squares
// says so for nearly every row at the speed of a product: it is finite only if all elements are.
func choosable(w *worker, x []float32) bool {
	if s := w.k.Dot(x, x); s-s == 0 {
		return true
	}
	finite := false
	for _, v := range x {
		if v != v || v > math.MaxFloat32 {
			return false
		}
		finite = finite || v >= -math.MaxFloat32
	}
	return finite
}

// CheckRows checks rows [0,n) of logits.
func (q *Queue) CheckRows(ok []bool, logits compute.Buffer, n int) {
	v := width(logits)
	check(len(ok) >= n, "CheckRows", "len(ok)", len(ok), n)
	t := &q.check
	*t = checkTask{ok: ok, x: f32("CheckRows", logits, n*v), v: v, n: n, per: rowsPerPart(n, v/16)}
	q.run(t, parts(n, t.per))
}

// logOf returns the natural logarithm of a positive normal x, to within about one unit
// in the last place, with the same bits everywhere. The standard library's differs
// between architectures.
//
// With x = m·2^e, m in [√½, √2), and s = (m−1)/(m+1): log m = 2·atanh(s).
func logOf(x float64) float64 {
	if !(x > 0) || math.IsInf(x, 1) {
		return math.Log(x)
	}
	m, e := math.Frexp(x)
	if m < math.Sqrt2/2 {
		m *= 2
		e--
	}
	s := (m - 1) / (m + 1)
	z := float64(s * s)
	// Σ z^i/(2i+1): |s| ≤ 0.1716, so 12 terms leave less than 2⁻⁶².
	p := 0.0
	for i := 12; i >= 0; i-- {
		p = float64(p*z) + 1/float64(2*i+1)
	}
	const hi, lo = 6.93147180369123816490e-01, 1.90821492927058770002e-10 // ln 2
	f := float64(e)
	return float64(f*hi) + (float64(f*lo) + float64(2*s*p))
}
