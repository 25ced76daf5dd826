package cpu

import (
	"talf/compute"
	"talf/compute/cpu/kern"
)

const (
	panel = kern.Panel

	// depth is how many k of a panel a large product multiplies at once:
	// 256·32 floats stay in L1 from one group of rows to the next.
	depth = 256
	// skinny is the largest number of rows of a pass that streams each weight through once.
	skinny = 64
	// tall and wide are the rows and panels of a large product's part: a
	// [tall][depth] block of the left side stays in L2 while wide panels pass.
	tall = 128
	wide = 16
	// few is the largest number of rows of a product whose right side is packed where it is multiplied, but for an LM
	// head that learns, which always is; fewTall and fewWide are the rows and panels of its part: every row of the right side is read once for fewTall
	// rows. fewPack is how many panels are packed at once: [depth][fewPack·panel] stays in L2 beside the left side.
	few     = 384
	fewTall = 256
	fewWide = 32
	fewPack = 8
	// grain is the bytes of weights, times rows, of a part of a skinny product: a
	// few microseconds.
	grain = 64 << 10
	// inline is the nanoseconds up to which an operation is not worth sharing with other
	// workers: they start half a microsecond late, and what they read and write travels
	// between cores.
	inline = 2000
	// least is the fewest nanoseconds of a skinny product's part.
	least = 250
)

// nanos estimates how long a core takes for multiply-adds on bytes of weights, keys or values
// that are not in its own caches.
func nanos(adds, bytes float64) float64 { return max(adds/64, bytes/20) }

// mulTask computes c (+)= act(a·b + bias) for b in panels, or the gated
// act(a·b + bias)·(a·up + upBias). Element (r,i) of a is a[r·ars+i·aks].
type mulTask struct {
	c        []float32
	ldc      int
	a        []float32
	ars, aks int
	b        packed    // [n][k] in panels
	raw      rawRight  // b as it lies, if it is not packed: then there are neither form nor gate
	form     *form     // of the rounded rows that b is multiplied by, or nil
	acts     []uint32  // rows of a in that form; then chain is not set
	lda      int       // between rows of acts
	planes   int       // parts of an element of acts
	bias     []float32 // [n] or nil
	m, n, k  int
	chain    bool // chains start from c instead of zero
	add      bool // c + act(chain + bias) instead of act(chain + bias)
	act      compute.Activation
	limit    float32 // of act
	up       packed  // like b, or empty
	gated    bool    // up is not empty
	upBias   []float32
	peaks    []float32 // [m][panels(n)] largest of each panel of a row, or nil

	rows, group int // rows and panels of a part
	cols        int // groups of panels
}

// A rawRight is a right side of a product that is not packed: element (k,j) is b[k·stride+j], or b[j·stride+k] if trans
// is set.
type rawRight struct {
	b      []float32 // nil: it is packed
	stride int
	trans  bool
}

// pack packs n columns from column j of rows k to k+s into panels in the worker's memory: [⌈n/panel⌉][s][panel].
func (r *rawRight) pack(w *worker, j, n, k, s int) []float32 {
	at := k*r.stride + j
	if r.trans {
		at = j*r.stride + k
	}
	t := packBTask{dst: w.buf(3, kern.PanelLen(n, s)), b: r.b[at:], k: s, n: n, stride: r.stride, trans: r.trans}
	for i := range t.parts() {
		t.run(w, i)
	}
	return t.dst
}

// cut divides the product into parts for the workers of p and returns how many there are.
func (t *mulTask) cut(p *pool) int {
	if t.m == 0 || t.n == 0 {
		return 0
	}
	np, threads := panels(t.n), len(p.workers)
	work := float64(t.m) * float64(t.n) * float64(t.k)
	switch {
	case t.raw.b != nil:
		t.rows, t.group = fewTall, fewWide
		for n := parts(t.m, t.rows); (t.group > fewPack && n*parts(np, t.group) < 4*threads) ||
			(t.group > 2 && n*parts(np, t.group) < 2*threads); {
			t.group /= 2
		}
	case t.m <= skinny:
		t.rows, t.group = t.m, np
		if nanos(work, float64(t.bytes())*float64(np)) > inline {
			// Enough parts to make up for workers that the system delays, and small ones:
			// the others wait for the last.
			t.group = max(1, min(np/(8*threads), grain/(t.bytes()*t.m)))
			for t.group < np && nanos(float64(t.group*t.m*t.k*panel), float64(t.group*t.bytes())) < least {
				t.group *= 2
			}
		}
	default:
		t.rows, t.group = tall, min(wide, np)
		// A part copies its rows of a once for all of its panels, so parts are narrow only
		// if there would otherwise be too few.
		for n := parts(t.m, t.rows); (t.group > wide/2 && n*parts(np, t.group) < 4*threads) ||
			(t.group > 2 && n*parts(np, t.group) < 2*threads); {
			t.group /= 2
		}
	}
	t.cols = parts(np, t.group)
	return parts(t.m, t.rows) * t.cols
}

func (t *mulTask) run(w *worker, part int) {
	r0, p0 := part/t.cols*t.rows, part%t.cols*t.group
	m, g := min(t.rows, t.m-r0), min(t.group, panels(t.n)-p0)
	if t.m <= skinny && t.raw.b == nil {
		for p := p0; p < p0+g; p++ {
			t.skinny(w, r0, m, p)
			t.peak(w, r0, m, p)
		}
		return
	}
	t.block(w, r0, m, p0, g)
	for p := p0; p < p0+g; p++ {
		t.peak(w, r0, m, p)
	}
}

// peak stores the largest element of panel p for each of m rows from r0, which were
// just computed.
func (t *mulTask) peak(w *worker, r0, m, p int) {
	if t.peaks == nil {
		return
	}
	c, d, ldd := t.c[r0*t.ldc+p*panel:], t.peaks[r0*panels(t.n)+p:], panels(t.n)
	if n := t.n - p*panel; n < panel {
		for r := range m {
			d[r*ldd] = w.k.Max(c[r*t.ldc:][:n])
		}
		return
	}
	w.k.Peaks(d, ldd, c, t.ldc, m)
}

// bytes returns the bytes of one panel's weights.
func (t *mulTask) bytes() (n int) {
	switch {
	case t.b.q8 != nil:
		n = kern.Q8PanelLen(t.k)
	case t.b.mixed != nil:
		n = t.b.mixed.bytes() / len(t.b.mixed.layout)
	case t.b.half != nil:
		n = 2 * kern.BF16PanelLen(t.k)
	default:
		n = 4 * panel * t.k
	}
	if t.gated {
		n *= 2
	}
	return max(n, 1)
}

// direct reports whether panel p's outputs can be computed in place.
func (t *mulTask) direct(p int) bool { return !t.add && (p+1)*panel <= t.n }

// done reports whether a product computed in place is already the result.
func (t *mulTask) done() bool { return t.bias == nil && t.act == compute.Identity && !t.gated }

// skinny computes one panel for m rows from r0.
func (t *mulTask) skinny(w *worker, r0, m, p int) {
	c, ldc := t.c[r0*t.ldc+p*panel:], t.ldc
	direct := t.direct(p)
	if !direct {
		c, ldc = w.buf(0, m*panel), panel
		if t.chain {
			t.load(c, ldc, r0, m, p)
		}
	}
	t.panel(w, c, ldc, &t.b, r0, m, p)
	if direct && t.done() {
		return
	}
	var u []float32
	if t.gated {
		u = w.buf(2, m*panel)
		t.panel(w, u, panel, &t.up, r0, m, p)
	}
	t.finish(w, c, ldc, u, panel, direct, r0, m, p)
}

// panel computes the chains of panel p of b for m rows from r0 into c. The kernel
// takes all rows at once: it reads the panel from memory while it computes.
func (t *mulTask) panel(w *worker, c []float32, ldc int, b *packed, r0, m, p int) {
	if b.mixed != nil {
		b.mixed.gemm(t, w, c, ldc, r0, m, p)
		return
	}
	if t.form != nil && !b.plain {
		t.form.gemm(w.k, c, ldc, t.acts[r0*t.lda:], t.lda, b, p, m, t.k, t.planes)
		return
	}
	a := t.a[r0*t.ars:]
	if b.half != nil {
		w.k.GemmBF16(c, ldc, a, t.ars, t.aks, b.half[p*kern.BF16PanelLen(t.k):], m, t.k, t.chain)
		return
	}
	w.k.Gemm(c, ldc, a, t.ars, t.aks, b.panels[p*t.k*panel:], panel, m, t.k, t.chain)
}

// gemm multiplies m rows by k from at to at+s of panel p, f32 or bfloat16; in is
// the depth of the whole panel.
func (b *packed) gemm(w *worker, c []float32, ldc int, a []float32, ars, aks, in, p, at, m, s int, acc bool) {
	if b.half != nil {
		w.gemmBF16(c, ldc, a, ars, aks, b.half[p*kern.BF16PanelLen(in)+kern.BF16PanelLen(at):], m, s, acc)
		return
	}
	w.gemm(c, ldc, a, ars, aks, b.panels[(p*in+at)*panel:], panel, m, s, acc)
}

// block computes g panels from p0 for m rows from r0, many rows.
func (t *mulTask) block(w *worker, r0, m, p0, g int) {
	direct := t.direct(p0 + g - 1)
	c, ldc := t.c[r0*t.ldc+p0*panel:], t.ldc
	if !direct {
		ldc = g * panel
		c = w.buf(0, m*ldc)
		if t.chain {
			for p := range g {
				t.load(c[p*panel:], ldc, r0, m, p0+p)
			}
		}
	}
	ldu := g * panel
	var u []float32
	if t.gated {
		u = w.buf(2, m*ldu)
	}
	if t.form != nil || t.b.mixed != nil || t.up.mixed != nil {
		for p := range g {
			t.panel(w, c[p*panel:], ldc, &t.b, r0, m, p0+p)
			if u != nil {
				t.panel(w, u[p*panel:], ldu, &t.up, r0, m, p0+p)
			}
		}
	} else {
		t.chunks(w, c, ldc, u, ldu, r0, m, p0, g)
	}
	if direct && t.done() {
		return
	}
	for p := range g {
		t.finish(w, c[p*panel:], ldc, u[min(p*panel, len(u)):], ldu, direct, r0, m, p0+p)
	}
}

// chunks computes the chains of g panels from p0 into c, and into u if the product is gated:
// depth k of all panels, then the next depth.
func (t *mulTask) chunks(w *worker, c []float32, ldc int, u []float32, ldu, r0, m, p0, g int) {
	// An odd number of cache lines between rows spreads them over the cache's sets.
	const pad = 16
	abuf := w.buf(1, m*(depth+pad))
	if t.k == 0 && !t.chain {
		for r := range m {
			clear(c[r*ldc:][:g*panel])
			if u != nil {
				clear(u[r*ldu:][:ldu])
			}
		}
	}
	for k := 0; k < t.k; k += depth {
		s := min(depth, t.k-k)
		a, ars, aks := t.a[r0*t.ars+k*t.aks:], t.ars, t.aks
		switch {
		case aks == 1:
			for r := range m {
				copy(abuf[r*(depth+pad):][:s], a[r*ars:])
			}
			a, ars = abuf, depth+pad
		case ars == 1:
			for i := range s {
				copy(abuf[i*m:][:m], a[i*aks:])
			}
			a, aks = abuf, m
		}
		if t.raw.b != nil {
			for p := 0; p < g; p += fewPack {
				n := min(fewPack, g-p)
				b := t.raw.pack(w, (p0+p)*panel, min(n*panel, t.n-(p0+p)*panel), k, s)
				for i := range n {
					w.gemm(c[(p+i)*panel:], ldc, a, ars, aks, b[i*s*panel:], panel, m, s, t.chain || k > 0)
				}
			}
			continue
		}
		for p := range g {
			t.b.gemm(w, c[p*panel:], ldc, a, ars, aks, t.k, p0+p, k, m, s, t.chain || k > 0)
		}
		if u == nil {
			continue
		}
		for p := range g {
			t.up.gemm(w, u[p*panel:], ldu, a, ars, aks, t.k, p0+p, k, m, s, k > 0)
		}
	}
}

// load copies panel p's part of the destination to c.
func (t *mulTask) load(c []float32, ldc, r0, m, p int) {
	n := min(panel, t.n-p*panel)
	for r := range m {
		row := c[r*ldc:][:panel]
		clear(row[copy(row, t.c[(r0+r)*t.ldc+p*panel:][:n]):])
	}
}

// finish turns panel p's chains in c, and in u if the product is gated, into
// results and, unless they are in place, stores them or adds them to the
// destination.
func (t *mulTask) finish(w *worker, c []float32, ldc int, u []float32, ldu int, direct bool, r0, m, p int) {
	n := min(panel, t.n-p*panel)
	for r := range m {
		s := c[r*ldc:][:n]
		if t.bias != nil {
			w.k.Add(s, s, t.bias[p*panel:][:n])
		}
		var g []float32
		if t.gated {
			g = u[r*ldu:][:n]
			if t.upBias != nil {
				w.k.Add(g, g, t.upBias[p*panel:][:n])
			}
		}
		activate(w, t.act, t.limit, s, g)
		if direct {
			continue
		}
		d := t.c[(r0+r)*t.ldc+p*panel:][:n]
		if t.add {
			w.k.Add(d, d, s)
		} else {
			copy(d, s)
		}
	}
}

// activate sets x to act(x), multiplied by u unless that is nil. It may change u.
func activate(w *worker, act compute.Activation, limit float32, x, u []float32) {
	if act == compute.SiLU && u != nil {
		w.k.SiLUMul(x, x, u)
		return
	}
	switch act {
	case compute.SiLU:
		w.k.SiLUMul(x, x, w.ones(len(x)))
	case compute.GELU:
		w.k.GELU(x, x)
	case compute.GELUTanh:
		w.k.GELUTanh(x, x, w.buf(3, len(x)))
	case compute.ClampedSwiGLU:
		w.k.ClampedSwiGLU(x, u, limit)
		return
	}
	if u != nil {
		w.k.Mul(x, x, u)
	}
}
