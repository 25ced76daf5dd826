package cpu

import (
	"fmt"
	"math"

	"talf/compute"
	"talf/compute/cpu/kern"
)

// A sequence is consecutive rows that share their level-0 keys: rows [from,to) see at most keys
// [first, first+keys).
type sequence struct{ from, to, first, keys int }

// treeAttendTask computes one (sequence, KV head) per part, so no two parts add to the
// same memory.
type treeAttendTask struct {
	g              *compute.TrainAttention
	seqs           []sequence
	o, lse, q      []float32
	do, dq         []float32
	k, v, dk, dv   [][]float32
	hd, hp, group  int // head size, the same in whole panels, query heads of a KV head
	ldq, ldk, deep int // row lengths; levels below the first
	scale          float32
	grad           bool
}

// prepare fills t and returns the number of parts.
func (t *treeAttendTask) prepare(op string, g *compute.TrainAttention, o, lse, q compute.Buffer, k, v []compute.Buffer) int {
	check(g.KVHeads > 0 && g.Heads%g.KVHeads == 0, op, "query heads modulo KV heads", g.Heads%max(1, g.KVHeads), 0)
	n := len(g.First)
	check(len(g.Last) == n, op, "len(Last)", len(g.Last), n)
	check(len(k) == len(g.Anc)+1, op, "levels of keys", len(k), len(g.Anc)+1)
	check(len(v) == len(k), op, "levels of values", len(v), len(k))
	t.g, t.hd, t.hp, t.group = g, g.HeadDim, panels(g.HeadDim)*panel, g.Heads/g.KVHeads
	t.ldq, t.ldk, t.deep = g.Heads*g.HeadDim, g.KVHeads*g.HeadDim, len(g.Anc)
	t.scale = float32(1 / math.Sqrt(float64(g.HeadDim)))
	t.o, t.lse, t.q = f32(op, o, n*t.ldq), f32(op, lse, n*g.Heads), f32(op, q, n*t.ldq)
	t.k, t.v = slices(op, t.k[:0], k), slices(op, t.v[:0], v)

	rows := min(len(t.k[0]), len(t.v[0])) / max(1, t.ldk)
	t.seqs = t.seqs[:0]
	for r := range n {
		f, l := int(g.First[r]), int(g.Last[r])
		if f < 0 || l < f || l >= rows {
			panic(fmt.Sprintf("cpu: %s: row %d sees keys [%d,%d] of %d", op, r, f, l, rows))
		}
		if i := len(t.seqs) - 1; i >= 0 && f >= t.seqs[i].first && f < t.seqs[i].first+t.seqs[i].keys {
			t.seqs[i].to, t.seqs[i].keys = r+1, max(t.seqs[i].keys, l+1-t.seqs[i].first)
		} else {
			t.seqs = append(t.seqs, sequence{r, r + 1, f, l - f + 1})
		}
	}
	for j, a := range g.Anc {
		check(len(a) == n, op, "rows of ancestors", len(a), n)
		rows := min(len(t.k[j+1]), len(t.v[j+1])) / max(1, t.ldk)
		for r, i := range a {
			if i < -1 || int(i) >= rows {
				panic(fmt.Sprintf("cpu: %s: row %d's ancestor %d on level %d of %d rows", op, r, i, j+1, rows))
			}
		}
	}
	return len(t.seqs) * g.KVHeads
}

func slices(op string, dst [][]float32, bs []compute.Buffer) [][]float32 {
	for _, b := range bs {
		dst = append(dst, f32(op, b, 0))
	}
	return dst
}

// TreeAttend computes the attention of one level.
func (q *Queue) TreeAttend(o, lse, qs compute.Buffer, k, v []compute.Buffer, g *compute.TrainAttention) {
	t := &q.train.attend
	n := t.prepare("TreeAttend", g, o, lse, qs, k, v)
	t.grad = false
	q.run(t, n)
}

// TreeAttendGrad computes dq and adds to dk and dv.
func (q *Queue) TreeAttendGrad(dq compute.Buffer, dk, dv []compute.Buffer, do, o, lse, qs compute.Buffer, k, v []compute.Buffer, g *compute.TrainAttention) {
	const op = "TreeAttendGrad"
	t := &q.train.attend
	n := t.prepare(op, g, o, lse, qs, k, v)
	check(len(dk) == len(k), op, "levels of dk", len(dk), len(k))
	check(len(dv) == len(k), op, "levels of dv", len(dv), len(k))
	rows := len(g.First)
	t.do, t.dq = f32(op, do, rows*t.ldq), f32(op, dq, rows*t.ldq)
	t.dk, t.dv = slices(op, t.dk[:0], dk), slices(op, t.dv[:0], dv)
	for j := range k {
		check(len(t.dk[j]) >= len(t.k[j]), op, "elements of dk", len(t.dk[j]), len(t.k[j]))
		check(len(t.dv[j]) >= len(t.v[j]), op, "elements of dv", len(t.dv[j]), len(t.v[j]))
	}
	t.grad = true
	q.run(t, n)
}

func (t *treeAttendTask) run(w *worker, part int) {
	s, head := &t.seqs[part/t.g.KVHeads], part%t.g.KVHeads
	if t.grad {
		t.backward(w, s, head)
	} else {
		t.forward(w, s, head)
	}
}

// carve cuts a buffer into pieces.
type carve []float32

func (c *carve) take(n int) []float32 {
	s := (*c)[:n:n]
	*c = (*c)[n:]
	return s
}

// lines returns how many rows (tokens) a block of queries has.
func (t *treeAttendTask) lines() int { return max(1, attendRows/t.group) }

// load copies rows [r,r+m)'s queries of one KV head from x to dst [m·group][hp].
func (t *treeAttendTask) load(dst, x []float32, r, m, head int) {
	for i := range m {
		src := x[(r+i)*t.ldq+head*t.group*t.hd:]
		for j := range t.group {
			d := dst[(i*t.group+j)*t.hp:][:t.hp]
			clear(d[copy(d, src[j*t.hd:][:t.hd]):])
		}
	}
}

// row returns one KV head of row i of a level.
func (t *treeAttendTask) row(x []float32, i int32, head int) []float32 {
	return x[int(i)*t.ldk+head*t.hd:][:t.hd]
}

// dot returns the product of q with one KV head of row i of a level, −∞ if there is no such row.
func (t *treeAttendTask) dot(w *worker, q, level []float32, i int32, head int) float32 {
	if i < 0 {
		return float32(math.Inf(-1))
	}
	return w.k.Dot(q, t.row(level, i, head))
}

// hide sets the scores of keys before row r's first to −∞.
func (t *treeAttendTask) hide(scores []float32, s *sequence, r int) {
	for i := range scores[:int(t.g.First[r])-s.first] {
		scores[i] = float32(math.Inf(-1))
	}
}

// seen returns the most keys that any of rows [r,r+m) sees, which is the last one's.
func (t *treeAttendTask) seen(s *sequence, r, m int) int {
	n := 0
	for _, l := range t.g.Last[r : r+m] {
		n = max(n, int(l)+1-s.first)
	}
	return n
}

// scores computes scaled scores [rows][ld] over keys [0,n), in panels.
func (t *treeAttendTask) scores(w *worker, s []float32, ld int, q, k []float32, rows, n int) {
	for p := range panels(n) {
		w.gemm(s[p*panel:], ld, q, t.hp, 1, k[p*t.hd*panel:], panel, rows, t.hd, false)
	}
}

func (t *treeAttendTask) forward(w *worker, s *sequence, head int) {
	var (
		lines = min(t.lines(), s.to-s.from)
		rows  = lines * t.group
		cols  = panels(s.keys) * panel
		ld    = cols + panels(t.deep)*panel
		kp    = kern.PanelLen(s.keys, t.hd)
		vp    = kern.PanelLen(t.hd, s.keys)
	)
	mem := carve(w.buf(0, kp+vp+rows*(2*t.hp+ld+t.deep)))
	keys, vals := mem.take(kp), mem.take(vp)
	q, o, sc, deep := mem.take(rows*t.hp), mem.take(rows*t.hp), mem.take(rows*ld), mem.take(rows*t.deep)
	base := s.first*t.ldk + head*t.hd
	kern.PackRows(keys, t.k[0][base:], s.keys, t.hd, t.ldk)
	kern.PackCols(vals, t.v[0][base:], s.keys, t.hd, t.ldk)

	for r := s.from; r < s.to; r += lines {
		m := min(lines, s.to-r)
		rows := m * t.group
		t.load(q, t.q, r, m, head)
		w.k.Scale(q[:rows*t.hp], t.scale)
		n := t.seen(s, r, m)
		t.scores(w, sc, ld, q, keys, rows, n)
		for i := range m {
			own := int(t.g.Last[r+i]) + 1 - s.first
			for j := range t.group {
				at := i*t.group + j
				x := sc[at*ld:][:ld]
				for l := range t.deep {
					x[own+l] = t.dot(w, q[at*t.hp:][:t.hd], t.k[l+1], t.g.Anc[l][r+i], head)
				}
				all := x[:own+t.deep]
				t.hide(all, s, r+i)
				top := w.k.Max(all)
				sum := w.k.ExpSum(all, all, top)
				t.lse[(r+i)*t.g.Heads+head*t.group+j] = float32(float64(top) + logOf(float64(sum)))
				w.k.Scale(all, 1/sum)
				copy(deep[at*t.deep:][:t.deep], all[own:])
				clear(x[own:max(n, own)])
			}
		}
		for c := 0; c < t.hp; c += panel {
			w.gemm(o[c:], t.hp, sc, ld, 1, vals[c*s.keys:], panel, rows, n, false)
		}
		for i := range m {
			for j := range t.group {
				at := i*t.group + j
				x := o[at*t.hp:][:t.hd]
				for l := range t.deep {
					if a := t.g.Anc[l][r+i]; a >= 0 {
						w.k.Axpy(x, deep[at*t.deep+l], t.row(t.v[l+1], a, head))
					}
				}
				copy(t.o[(r+i)*t.ldq+(head*t.group+j)*t.hd:], x)
			}
		}
	}
}

// backward recomputes the probabilities P from lse. With D = do·o and e = P∘(do·vᵀ − D),
//
//	dq = e·k·scale, dk = eᵀ·q·scale, dv = Pᵀ·do
//
// (Dao, FlashAttention-2, 2023, §3.1.2).
func (t *treeAttendTask) backward(w *worker, s *sequence, head int) {
	var (
		lines = min(t.lines(), s.to-s.from)
		rows  = lines * t.group
		cols  = panels(s.keys) * panel
		ld    = cols + panels(t.deep)*panel
		byKey = kern.PanelLen(s.keys, t.hd)
		byDim = kern.PanelLen(t.hd, s.keys)
	)
	mem := carve(w.buf(0, 2*byKey+byDim+2*s.keys*t.hp+rows*(3*t.hp+2*ld)+rows*2*t.deep))
	keys, vals, turned := mem.take(byKey), mem.take(byKey), mem.take(byDim)
	dk, dv := mem.take(s.keys*t.hp), mem.take(s.keys*t.hp)
	q, do, dq := mem.take(rows*t.hp), mem.take(rows*t.hp), mem.take(rows*t.hp)
	prob, e := mem.take(rows*ld), mem.take(rows*ld)
	deep := mem.take(rows * t.deep)
	base := s.first*t.ldk + head*t.hd
	kern.PackRows(keys, t.k[0][base:], s.keys, t.hd, t.ldk)
	kern.PackRows(vals, t.v[0][base:], s.keys, t.hd, t.ldk)
	kern.PackCols(turned, t.k[0][base:], s.keys, t.hd, t.ldk)
	clear(dk)
	clear(dv)

	for r := s.from; r < s.to; r += lines {
		m := min(lines, s.to-r)
		rows := m * t.group
		t.load(q, t.q, r, m, head)
		w.k.Scale(q[:rows*t.hp], t.scale)
		t.load(do, t.do, r, m, head)
		n := t.seen(s, r, m)
		t.scores(w, prob, ld, q, keys, rows, n)
		t.scores(w, e, ld, do, vals, rows, n)
		for i := range m {
			own := int(t.g.Last[r+i]) + 1 - s.first
			for j := range t.group {
				at, h := i*t.group+j, head*t.group+j
				p, d := prob[at*ld:][:ld], e[at*ld:][:ld]
				qr, dor := q[at*t.hp:][:t.hd], do[at*t.hp:][:t.hd]
				for l := range t.deep {
					a := t.g.Anc[l][r+i]
					p[own+l] = t.dot(w, qr, t.k[l+1], a, head)
					if d[own+l] = 0; a >= 0 {
						d[own+l] = t.dot(w, dor, t.v[l+1], a, head)
					}
				}
				all := p[:own+t.deep]
				t.hide(all, s, r+i)
				w.k.ExpSum(all, all, t.lse[(r+i)*t.g.Heads+h])
				mean := w.k.Dot(dor, t.o[(r+i)*t.ldq+h*t.hd:][:t.hd])
				w.k.Mul(d[:len(all)], d[:len(all)], all)
				w.k.Axpy(d[:len(all)], -mean, all)
				for l := range t.deep {
					if a := t.g.Anc[l][r+i]; a >= 0 {
						w.k.Axpy(t.row(t.dk[l+1], a, head), d[own+l], qr)
						w.k.Axpy(t.row(t.dv[l+1], a, head), p[own+l], dor)
					}
				}
				copy(deep[at*t.deep:][:t.deep], d[own:])
				clear(p[own:max(n, own)])
				clear(d[own:max(n, own)])
			}
		}
		for c := 0; c < t.hp; c += panel {
			w.gemm(dq[c:], t.hp, e, ld, 1, turned[c*s.keys:], panel, rows, n, false)
			w.gemm(dk[c:], t.hp, e, 1, ld, q[c:], t.hp, n, rows, true)
			w.gemm(dv[c:], t.hp, prob, 1, ld, do[c:], t.hp, n, rows, true)
		}
		for i := range m {
			for j := range t.group {
				at := i*t.group + j
				x := dq[at*t.hp:][:t.hd]
				for l := range t.deep {
					if a := t.g.Anc[l][r+i]; a >= 0 {
						w.k.Axpy(x, deep[at*t.deep+l], t.row(t.k[l+1], a, head))
					}
				}
				w.k.Scale(x, t.scale)
				copy(t.dq[(r+i)*t.ldq+(head*t.group+j)*t.hd:], x)
			}
		}
	}
	for i := range s.keys {
		a := int32(s.first + i)
		x := t.row(t.dk[0], a, head)
		w.k.Add(x, x, dk[i*t.hp:])
		x = t.row(t.dv[0], a, head)
		w.k.Add(x, x, dv[i*t.hp:])
	}
}
