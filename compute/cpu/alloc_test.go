package cpu_test

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"testing"

	"talf/compute"
	"talf/compute/cpu"
)

// A layer is the buffers of one decoder layer for n rows, for tests and benchmarks of speed.
type layer struct {
	q                                           compute.Queue
	x, qkv, att, act                            compute.Buffer
	in, o, gateUp, down                         compute.Linear
	attn                                        compute.Attention
	logits, ids, logp                           compute.Buffer
	kv                                          compute.KV
	step                                        compute.Step
	hidden, heads, kvHeads, headDim, ffn, vocab int
}

func newLayer(t testing.TB, d compute.Device, n, prefix int) *layer {
	t.Helper()
	l := &layer{q: d.Queue(), hidden: 512, heads: 8, kvHeads: 4, headDim: 64, ffn: 1376, vocab: 4096}
	width := (l.heads + 2*l.kvHeads) * l.headDim
	l.x = buf(t, d, n, l.hidden)
	l.qkv, l.att = buf(t, d, n, width), buf(t, d, n, l.heads*l.headDim)
	l.act = buf(t, d, n, l.ffn)
	norm := &compute.Norm{Weight: buf(t, d, l.hidden), Eps: 1e-5}
	l.attn = compute.Attention{Rope: buf(t, d, prefix+n, l.headDim), RotDim: l.headDim}
	l.in = compute.Linear{Norm: norm, W: weight(t, d, width, l.hidden)}
	l.o = compute.Linear{W: weight(t, d, l.hidden, l.heads*l.headDim)}
	l.gateUp = compute.Linear{Norm: norm, W: weight(t, d, l.ffn, l.hidden), Up: weight(t, d, l.ffn, l.hidden), Act: compute.SiLU}
	l.down = compute.Linear{W: weight(t, d, l.hidden, l.ffn)}
	l.logits, l.logp = buf(t, d, n, l.vocab), buf(t, d, n, 10)
	var err error
	if l.ids, err = d.Alloc(compute.I32, n, 10); err != nil {
		t.Fatal(err)
	}
	if l.kv, err = d.NewKV(compute.KVConfig{Layers: 1, KVHeads: l.kvHeads, HeadDim: l.headDim}); err != nil {
		t.Fatal(err)
	}
	blocks := (prefix+n)/compute.BlockLen + 1
	if err := l.kv.Grow(blocks); err != nil {
		t.Fatal(err)
	}
	span := compute.Span{N: n, Prefix: prefix, Stride: (n + 63) / 64}
	for b := range blocks {
		span.Blocks = append(span.Blocks, int32(b))
	}
	span.Anc = make([]uint64, n*span.Stride)
	for i := range n {
		l.step.Pos = append(l.step.Pos, int32(prefix+i))
		l.step.Slot = append(l.step.Slot, int32(prefix+i))
		for a := i; ; a = (a - 1) / 2 { // a binary tree
			span.Anc[i*span.Stride+a/64] |= 1 << (a % 64)
			if a == 0 {
				break
			}
		}
	}
	span.Own = l.step.Slot
	l.step.Rows, l.step.Heads, l.step.Spans = n, l.heads, []compute.Span{span}
	return l
}

func (l *layer) run() {
	n := l.step.Rows
	l.q.Linear(l.qkv, l.x, &l.in, compute.Store, n)
	l.q.Attend(l.att, l.qkv, l.kv, 0, &l.attn, &l.step)
	l.q.Linear(l.x, l.att, &l.o, compute.Accumulate, n)
	l.q.Linear(l.act, l.x, &l.gateUp, compute.Store, n)
	l.q.Linear(l.x, l.act, &l.down, compute.Accumulate, n)
}

func random(n int) []float32 {
	r, x := rand.New(rand.NewPCG(1, uint64(n))), make([]float32, n)
	for i := range x {
		x[i] = r.Float32() - 0.5
	}
	return x
}

func buf(t testing.TB, d compute.Device, shape ...int) compute.Buffer {
	t.Helper()
	b, err := d.Alloc(compute.F32, shape...)
	if err != nil {
		t.Fatal(err)
	}
	n := 1
	for _, s := range shape {
		n *= s
	}
	d.Queue().Write(b, random(n))
	return b
}

func weight(t testing.TB, d compute.Device, out, in int) compute.Weight {
	t.Helper()
	data := make([]byte, 0, 4*out*in)
	for _, v := range random(out * in) {
		data = binary.LittleEndian.AppendUint32(data, math.Float32bits(v/8))
	}
	w, err := d.Pack(compute.F32, compute.Matrix{Rows: out, Cols: in, Type: compute.F32, Data: data})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func TestDecodingAllocatesNothing(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	d := device(t, cpu.Default().Class, 2)
	defer d.Close()
	for _, n := range []int{1, 60, 100} {
		l := newLayer(t, d, n, 70)
		all := make([]int32, n)
		move := []int32{1}
		to := buf(t, d, n, l.hidden)
		peaker, peaks := l.q.Abilities().Peaks, buf(t, d, n, l.vocab/compute.PeakLen)
		lm := &compute.Linear{W: weight(t, d, l.vocab, l.hidden)}
		step := func() {
			l.q.Embed(l.x, 0, l.o.W, all)
			l.run()
			l.q.Gather(to, 0, 0, l.x, all)
			l.q.TopK(l.ids, l.logp, l.logits, 10, n)
			peaker.LinearPeaks(l.logits, peaks, l.x, lm, n)
			peaker.TopPeaks(l.ids, nil, l.logits, peaks, 0, 10, n)
			l.q.MoveKV(l.kv, move, move)
			if err := l.q.Sync(t.Context()); err != nil {
				t.Error(err)
			}
		}
		if a := testing.AllocsPerRun(20, step); a != 0 {
			t.Errorf("a pass of %d rows allocates %g times", n, a)
		}
	}
}
