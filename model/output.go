package model

import (
	"context"
	"fmt"
	"slices"

	"talf/compute"
	"talf/model/draftvocab"
)

// An Output is the result of a pass, on the device.
type Output struct {
	Hidden compute.Buffer // [rows][Hidden]: after the final norm, or what a head's next level reads
	Logits compute.Buffer // [wanted rows][Outputs]: columns are draft ids if there is a draft vocabulary
	Taps   *Taps          // nil unless the model is tapped

	m     *Model
	rows  int
	cap   int // rows of Hidden
	seg   []outSeg
	want  []int32 // hidden row of every logits row
	ok    []bool  // whether a token can be chosen from a logits row; empty until it is known
	best  likely
	drawn drawn
	stale bool // the peaks are not of these logits
}

// An outSeg says where a segment's results are.
type outSeg struct {
	row, from, n int
	logit        int // first logits row
	want         Want
	in           Segment
}

func (o *Output) at(seg, n int) *outSeg {
	g := &o.seg[seg]
	if n < g.from || n >= g.from+g.n {
		panic(fmt.Sprintf("model: node %d of segment %d did not run: [%d,%d) did", n, seg, g.from, g.from+g.n))
	}
	return g
}

// LastNode returns the last node of segment seg.
func (o *Output) LastNode(seg int) int { return o.seg[seg].from + o.seg[seg].n - 1 }

// HiddenRow returns the hidden row of node n of segment seg.
func (o *Output) HiddenRow(seg, n int) int {
	g := o.at(seg, n)
	return g.row + n - g.from
}

// Feature returns a reference to the hidden state of node n of segment seg.
func (o *Output) Feature(seg, n int) Feature {
	return Feature{Buf: o.Hidden, Row: int32(o.HiddenRow(seg, n)), Taps: o.Taps}
}

// LogitsRow returns the logits row of node n of segment seg. It panics if the row
// was not wanted.
func (o *Output) LogitsRow(seg, n int) int {
	g := o.at(seg, n)
	switch {
	case g.want == WantAll:
		return g.logit + n - g.from
	case g.want == WantLast && n == g.from+g.n-1:
		return g.logit
	}
	panic(fmt.Sprintf("model: the pass did not ask for the logits of node %d of segment %d", n, seg))
}

// Rows returns the number of rows of hidden states and of logits.
func (o *Output) Rows() (hidden, logits int) { return o.rows, len(o.want) }

func (o *Output) check(what string, row, n, have int) {
	if row < 0 || n < 0 || row+n > have {
		panic(fmt.Sprintf("model: %s rows [%d,%d) of %d", what, row, row+n, have))
	}
}

// ReadLogits copies rows [row, row+len(dst)/Vocab) of the logits to dst. Columns are
// target ids; tokens outside a draft vocabulary get −∞.
func (o *Output) ReadLogits(dst []float32, row int) {
	v := o.m.spec.Vocab
	n := (len(dst) + v - 1) / v
	o.check("logits", row, n, len(o.want))
	if o.m.ids == nil {
		o.m.read(dst, o.Logits, row*v)
		return
	}
	w := len(o.m.ids)
	a := &o.m.act
	a.narrow = slices.Grow(a.narrow[:0], n*w)[:n*w]
	o.m.read(a.narrow, o.Logits, row*w)
	draftvocab.Spread(dst, a.narrow, o.m.ids, v)
}

// ReadHidden copies rows [row, row+len(dst)/Hidden) of the hidden states to dst.
func (o *Output) ReadHidden(dst []float32, row int) {
	h := o.m.spec.Hidden
	o.check("hidden", row, (len(dst)+h-1)/h, o.rows)
	o.m.read(dst, o.Hidden, row*h)
}

// read copies elements [off, off+len(dst)) of b to dst without allocating.
func (m *Model) read(dst []float32, b compute.Buffer, off int) {
	m.act.host = dst
	m.q.Read(&m.act.host, b, off)
	m.act.host = nil
}

// Reading ahead is bounded: after a larger pass, a separate read costs little by
// comparison.
const mostAhead, mostAheadRows = 64, 512

// readAhead makes a pass read as many likely tokens per row as callers asked for after
// earlier passes, unless the last pass was not asked about.
func (o *Output) readAhead(q compute.Replayer) {
	a := &o.m.act
	last := &a.out[1].best
	if last.k > 0 && !last.used {
		a.ahead = 0
	}
	k := a.ahead
	if o.drawn.any() {
		k = max(k, 1) // which shows whether rows are finite, for less than what else would
	}
	if n := len(o.want); k > 0 && n > 0 && n <= mostAheadRows {
		o.best.read(q, o.Logits, k, n)
	}
}

// Draws reports whether the device draws tokens, so that Segment.Draws are of use.
func (m *Model) Draws() bool { return m.can.Draw != nil && m.can.Replay != nil && m.ids == nil }

// Drawn returns the token that d asks for from a row of logits, if the pass was asked for just that and the device has drawn it. It
// is the token of package sample's Quantile, bit for bit.
func (o *Output) Drawn(row int, d compute.Draw) (token int32, ok bool) {
	o.check("logits", row, 1, len(o.want))
	return o.drawn.at(row, d)
}

// topBest answers TopK from the tokens that were read ahead, and reads more if they are
// too few. It returns false if they cannot be read.
func (o *Output) topBest(ids []int32, logp []float32, row, n, k int) bool {
	m := o.m
	q := m.can.Replay
	if q == nil || k > mostAhead || len(o.want) > mostAheadRows {
		return false
	}
	b := &o.best
	if k > b.k {
		b.read(q, o.Logits, k, len(o.want))
		if m.q.Sync(context.Background()) != nil {
			b.k = 0
			return false // the next call reports the failure
		}
		m.act.ahead = k
	}
	b.copyTo(ids, logp, row, n, k)
	m.global(ids[:n*k])
	return true
}

// global maps ids of a draft vocabulary to the target's ids.
func (m *Model) global(ids []int32) {
	if m.ids != nil {
		for i, d := range ids {
			ids[i] = m.ids[d]
		}
	}
}

// topBuf holds the results of a TopK on the device.
type topBuf struct {
	k, cap    int
	ids, logp compute.Buffer // [cap][k]
}

// TopK writes the k most likely tokens of logits rows [row,row+n), best first, ties by
// lower id, with log-softmax values at temperature 1: [n][k] each. Ids are the
// target's; k is at most Outputs. With a nil logp it finds only the tokens, which is
// cheaper. It panics if the device has no memory for n rows, which cannot happen if the
// device has run that many.
func (o *Output) TopK(ids []int32, logp []float32, row, n, k int) {
	m, a := o.m, &o.m.act
	o.check("logits", row, n, len(o.want))
	if k < 1 || k > m.Outputs() || len(ids) < n*k || logp != nil && len(logp) < n*k {
		panic(fmt.Sprintf("model: TopK of %d×%d into %d ids and %d values", n, k, len(ids), len(logp)))
	}
	if n == 0 || o.topBest(ids, logp, row, n, k) {
		return
	}
	must := func(b compute.Buffer, err error) compute.Buffer {
		if err != nil {
			panic(fmt.Sprintf("model: TopK of %d rows: %v", n, err))
		}
		return b
	}
	t := a.top(k)
	if n > t.cap {
		c := roundUp(n)
		t.ids, t.logp, t.cap = must(m.dev.Alloc(compute.I32, c, k)), must(m.dev.Alloc(compute.F32, c, k)), c
	}
	if p := m.can.Peaks; p != nil && !o.stale {
		values := t.logp
		if logp == nil {
			values = nil
		}
		p.TopPeaks(t.ids, values, o.Logits, a.peaks, row, k, n)
	} else {
		m.q.TopK(t.ids, t.logp, o.topRows(must, row, n), k, n)
	}
	a.hostIDs = ids[:n*k]
	m.q.Read(&a.hostIDs, t.ids, 0)
	a.hostIDs = nil
	m.global(ids[:n*k])
	if logp != nil {
		m.read(logp[:n*k], t.logp, 0)
	}
}

// topRows returns logits rows [row,row+n) as a separate buffer.
func (o *Output) topRows(must func(compute.Buffer, error) compute.Buffer, row, n int) compute.Buffer {
	m, a := o.m, &o.m.act
	if row == 0 {
		return o.Logits
	}
	if n > a.topCap {
		a.topRow, a.topCap = must(m.dev.Alloc(compute.F32, roundUp(n), m.Outputs())), roundUp(n)
	}
	a.count(row + n)
	m.q.Gather(a.topRow, 0, 0, o.Logits, a.iota[row:row+n])
	return a.topRow
}

func (a *activations) top(k int) *topBuf {
	for i := range a.tops {
		if a.tops[i].k == k {
			return &a.tops[i]
		}
	}
	a.tops = append(a.tops, topBuf{k: k})
	return &a.tops[len(a.tops)-1]
}

// ReadHiddenBF16 copies rows [row, row+len(dst)/(2·Hidden)) of the hidden states to
// dst as bfloat16, and reports whether the device can.
func (o *Output) ReadHiddenBF16(dst []byte, row int) bool {
	q := o.m.can.BF16
	if q == nil {
		return false
	}
	h := o.m.spec.Hidden
	o.check("hidden", row, (len(dst)/2+h-1)/h, o.rows)
	q.ReadBF16(dst, o.Hidden, row*h)
	return true
}
