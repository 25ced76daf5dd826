package cpu

import (
	"fmt"

	"talf/compute"
	"talf/compute/cpu/kern"
)

// columns are compute.Columns ready for use: element i of head h of row r is x[r·ld + col + h·step + i].
type columns struct {
	x             []float32
	ld, col, step int
}

// columnsOf checks that n rows have width columns for every head.
func columnsOf(op string, c compute.Columns, heads, width_, n int) columns {
	ld := width(c.Buf)
	if c.Col < 0 || c.Step < 0 || heads > 0 && c.Col+(heads-1)*c.Step+width_ > ld {
		panic(fmt.Sprintf("cpu: %s: %d columns of each of %d heads from %d on, %d apart, in rows of %d", op, width_, heads, c.Col, c.Step, ld))
	}
	return columns{x: f32(op, c.Buf, n*ld), ld: ld, col: c.Col, step: c.Step}
}

// at returns the elements from row r of head h on.
func (c *columns) at(r, h int) []float32 { return c.x[r*c.ld+c.col+h*c.step:] }

// headsTask multiplies some rows of one head per part.
type headsTask struct {
	dst, x columns
	w      []compute.Weight
	n      int
	blocks int // of rows
}

// headRows is the most rows of a part, whose products read a weight once.
const headRows = 64

func (t *headsTask) run(w *worker, part int) {
	h, r := part/t.blocks, part%t.blocks*headRows
	m := min(headRows, t.n-r)
	b := t.w[h].(*weight)
	a, out := t.x.at(r, h), t.dst.at(r, h)
	for p := range panels(b.out) {
		n := min(panel, b.out-p*panel)
		c, ldc := out[p*panel:], t.dst.ld
		if n < panel { // a product writes whole panels
			c, ldc = w.buf(0, m*panel), panel
		}
		if b.half != nil {
			w.k.GemmBF16(c, ldc, a, t.x.ld, 1, b.half[p*kern.BF16PanelLen(b.in):], m, b.in, false)
		} else {
			w.k.Gemm(c, ldc, a, t.x.ld, 1, b.panels[p*b.in*panel:], panel, m, b.in, false)
		}
		if n < panel {
			for i := range m {
				copy(out[i*t.dst.ld+p*panel:][:n], c[i*panel:])
			}
		}
	}
}

// LinearHeads multiplies the columns of every head by a weight of its own.
func (q *Queue) LinearHeads(dst, x compute.Columns, w []compute.Weight, n int) {
	const op = "LinearHeads"
	if len(w) == 0 || n == 0 {
		return
	}
	first := weightOf(op, w[0])
	for _, o := range w {
		b := weightOf(op, o)
		check(b.out == first.out && b.in == first.in, op, "elements of a head's weight", b.out*b.in, first.out*first.in)
		if b.half == nil && b.panels == nil || b.dots {
			panic("cpu: " + op + ": a weight as " + b.DType().String() + ", want F32 or BF16")
		}
	}
	if x.Buf == dst.Buf {
		panic("cpu: " + op + ": the destination is the source")
	}
	t := &q.heads
	*t = headsTask{
		dst: columnsOf(op, dst, len(w), first.out, n), x: columnsOf(op, x, len(w), first.in, n),
		w: w, n: n, blocks: parts(n, headRows),
	}
	count := len(w) * t.blocks
	if work := float64(len(w)) * float64(first.out) * float64(first.in); nanos(float64(n)*work, 4*work) < inline {
		q.pool.alone(t, count)
	} else {
		q.run(t, count)
	}
}

// copyTask copies the columns of some rows.
type copyTask struct {
	dst, x          columns
	heads, width, n int
	per             int
}

func (t *copyTask) run(_ *worker, part int) {
	for r := part * t.per; r < min(t.n, (part+1)*t.per); r++ {
		for h := range t.heads {
			copy(t.dst.at(r, h)[:t.width], t.x.at(r, h))
		}
	}
}

// CopyHeads copies the columns of every head.
func (q *Queue) CopyHeads(dst, x compute.Columns, heads, width, n int) {
	const op = "CopyHeads"
	t := &q.copies
	*t = copyTask{
		dst: columnsOf(op, dst, heads, width, n), x: columnsOf(op, x, heads, width, n),
		heads: heads, width: width, n: n, per: rowsPerPart(n, heads*width/4),
	}
	q.run(t, parts(n, t.per))
}
