package cpu_test

import (
	"fmt"
	"math"
	"testing"
	"time"

	"talf/compute"
	"talf/compute/cpu"
	"talf/compute/cpu/kern"
)

// trainDevice returns the default device and its queue for training.
func trainDevice(b *testing.B, threads int) (compute.Device, compute.TrainOps) {
	d := device(b, cpu.Default().Class, threads)
	b.Cleanup(func() { d.Close() })
	return d, d.Queue().Abilities().Train
}

// flops reports the rate of n floating-point operations per iteration.
func flops(b *testing.B, n float64) {
	b.ReportMetric(n*float64(b.N)/b.Elapsed().Seconds()/1e9, "GFLOP/s")
}

// BenchmarkLinear streams 64 MiB of weights, beyond a core's L2, and a small
// matrix that stays in it.
func BenchmarkLinear(b *testing.B) {
	for _, size := range []struct {
		name    string
		out, in int
	}{{"L2", 512, 512}, {"memory", 16384, 1024}} {
		for _, n := range []int{1, 8, 16, 60} {
			for _, threads := range []int{1, 2} {
				b.Run(fmt.Sprintf("%s/n=%d/threads=%d", size.name, n, threads), func(b *testing.B) {
					d, _ := trainDevice(b, threads)
					x, dst, w, q := buf(b, d, n, size.in), buf(b, d, n, size.out), weight(b, d, size.out, size.in), d.Queue()
					l := &compute.Linear{W: w}
					b.SetBytes(int64(4 * size.out * size.in))
					for b.Loop() {
						q.Linear(dst, x, l, compute.Store, n)
					}
					flops(b, 2*float64(n)*float64(size.out)*float64(size.in))
				})
			}
		}
	}
}

// BenchmarkLayer is a decoder layer of hidden 512, ffn 1376 over 500 positions.
func BenchmarkLayer(b *testing.B) {
	for _, class := range kern.Available() {
		for _, n := range []int{1, 60, 256} {
			b.Run(fmt.Sprintf("%v/n=%d", class, n), func(b *testing.B) {
				d := device(b, class, 2)
				defer d.Close()
				l := newLayer(b, d, n, 500)
				for b.Loop() {
					l.run()
				}
			})
		}
	}
}

// BenchmarkAttend is the attention of 12 layers of 12 heads of 64 over trees after a prefix,
// each layer after a product that evicts its keys and values from the nearest caches. Only the
// attention counts, with the best of its rounds.
func BenchmarkAttend(b *testing.B) {
	const layers, heads, hd = 12, 12, 64
	for _, prefix := range []int{256, 2048} {
		for _, n := range []int{1, 8, 16, 64} {
			b.Run(fmt.Sprintf("prefix=%d/n=%d", prefix, n), func(b *testing.B) {
				d := device(b, cpu.Default().Class, 2)
				defer d.Close()
				q := d.Queue()
				kv, err := d.NewKV(compute.KVConfig{Layers: layers, KVHeads: heads, HeadDim: hd})
				if err == nil {
					err = kv.Grow((prefix + n + compute.BlockLen) / compute.BlockLen)
				}
				if err != nil {
					b.Fatal(err)
				}
				a := compute.Attention{Rope: buf(b, d, prefix+n, hd), RotDim: hd}
				const most = 64
				qkv, o := buf(b, d, most, 3*heads*hd), buf(b, d, most, heads*hd)
				// attend adds a binary tree of n nodes at position at.
				attend := func(layer, at, n int) time.Duration {
					p := compute.Span{N: n, Prefix: at, Stride: 1, Anc: make([]uint64, n)}
					for i := range (at + n + compute.BlockLen - 1) / compute.BlockLen {
						p.Blocks = append(p.Blocks, int32(i))
					}
					s := compute.Step{Rows: n, Heads: heads}
					for i := range n {
						s.Pos, s.Slot = append(s.Pos, int32(at+i)), append(s.Slot, int32(at+i))
						for a := i; ; a = (a - 1) / 2 {
							p.Anc[i] |= 1 << a
							if a == 0 {
								break
							}
						}
					}
					p.Own = s.Slot
					s.Spans = []compute.Span{p}
					since := time.Now()
					q.Attend(o, qkv, kv, layer, &a, &s)
					return time.Since(since)
				}
				for at := 0; at < prefix; at += most {
					for l := range layers {
						attend(l, at, most)
					}
				}
				x, y := buf(b, d, 1, 1024), buf(b, d, 1, 8192)
				between := compute.Linear{W: weight(b, d, 8192, 1024)}
				best := time.Duration(math.MaxInt64)
				for b.Loop() {
					var sum time.Duration
					for l := range layers {
						q.Linear(y, x, &between, compute.Store, 1)
						sum += attend(l, prefix, n)
					}
					best = min(best, sum)
				}
				b.ReportMetric(best.Seconds()*1e3, "ms")
				b.ReportMetric(float64(8*layers*heads*hd*(prefix+n))/best.Seconds()/1e9, "GB/s")
				b.ReportMetric(0, "ns/op")
			})
		}
	}
}

// gemmShapes are cubes, and the products of a training step of hidden 512, ffn
// 1376 on 1024 rows.
var gemmShapes = []struct {
	m, n, k int
	ta, tb  bool
}{
	{512, 512, 512, false, false},
	{1024, 1024, 1024, false, false},
	{2048, 2048, 2048, false, false},
	{1024, 1024, 1024, false, true},
	{1024, 1024, 1024, true, false},
	{1024, 1376, 512, false, true},
	{1024, 512, 1376, false, false},
	{1376, 512, 1024, true, false},
}

func shapeName(i int) string {
	s := gemmShapes[i]
	op := func(t bool) string {
		if t {
			return "T"
		}
		return "N"
	}
	return fmt.Sprintf("%dx%dx%d%s%s", s.m, s.n, s.k, op(s.ta), op(s.tb))
}

func BenchmarkGemm(b *testing.B) {
	for i, s := range gemmShapes {
		for _, threads := range []int{1, 2} {
			b.Run(fmt.Sprintf("%s/threads=%d", shapeName(i), threads), func(b *testing.B) {
				d, ops := trainDevice(b, threads)
				mat := func(rows, cols int, t bool) compute.Mat {
					stride := cols
					if t {
						stride = rows
					}
					return compute.Mat{Buf: buf(b, d, rows*cols), Rows: rows, Cols: cols, Stride: stride, T: t}
				}
				c, x, y := mat(s.m, s.n, false), mat(s.m, s.k, s.ta), mat(s.k, s.n, s.tb)
				for b.Loop() {
					ops.Gemm(c, x, y, 0)
				}
				flops(b, 2*float64(s.m)*float64(s.n)*float64(s.k))
			})
		}
	}
}

// BenchmarkSoftCE is the loss of 1024 rows, hidden 512, over 8192 tokens.
func BenchmarkSoftCE(b *testing.B) {
	const n, h, v, k = 1024, 512, 8192, 32
	d, ops := trainDevice(b, 2)
	l := &compute.SoftLabels{K: k, IDs: make([]int32, n*k), Prob: make([]float32, n*k), Tail: make([]float32, n)}
	scale := make([]float32, n)
	for r := range n {
		scale[r] = 1
		l.Tail[r] = 0.1
		for i := range k {
			l.IDs[r*k+i], l.Prob[r*k+i] = int32((r*31+i*97)%v), 0.9/k
		}
	}
	x, dh, loss, w := buf(b, d, n, h), buf(b, d, n, h), buf(b, d, n), weight(b, d, v, h).(compute.Buffer)
	for b.Loop() {
		ops.SoftCE(loss, dh, nil, x, w, l, scale, n)
	}
	flops(b, 4*n*h*v)
}

// BenchmarkTreeAttend is TALF's attention, 4 sequences of 256 positions with 8 heads of 64, by
// level: levels below the first have 4 rows per position.
func BenchmarkTreeAttend(b *testing.B) {
	const seqs, length, heads, hd = 4, 256, 8, 64
	for level := range 3 {
		d, ops := trainDevice(b, 2)
		per, g := 1, &compute.TrainAttention{Heads: heads, KVHeads: heads, HeadDim: hd, Anc: make([][]int32, level)}
		if level > 0 {
			per = 4
		}
		for p := range seqs * length {
			for i := range per {
				g.First, g.Last = append(g.First, int32(p/length*length)), append(g.Last, int32(p))
				for l := range level {
					g.Anc[l] = append(g.Anc[l], int32(p*4+i))
				}
			}
		}
		n := len(g.First)
		var k, v, dk, dv []compute.Buffer
		for l := range level + 1 {
			rows := seqs * length
			if l > 0 {
				rows *= 4
			}
			for _, s := range []*[]compute.Buffer{&k, &v, &dk, &dv} {
				*s = append(*s, buf(b, d, rows, heads*hd))
			}
		}
		q, o, lse := buf(b, d, n, heads*hd), buf(b, d, n, heads*hd), buf(b, d, n, heads)
		do, dq := buf(b, d, n, heads*hd), buf(b, d, n, heads*hd)
		b.Run(fmt.Sprintf("level=%d/forward", level), func(b *testing.B) {
			for b.Loop() {
				ops.TreeAttend(o, lse, q, k, v, g)
			}
		})
		b.Run(fmt.Sprintf("level=%d/backward", level), func(b *testing.B) {
			for b.Loop() {
				ops.TreeAttendGrad(dq, dk, dv, do, o, lse, q, k, v, g)
			}
		})
	}
}

// BenchmarkRest is the other operations of a training step, on 1024 rows of 512.
func BenchmarkRest(b *testing.B) {
	const n, h, f = 1024, 512, 1376
	d, ops := trainDevice(b, 2)
	x, y, w, dx, dw := buf(b, d, n, h), buf(b, d, n, h), buf(b, d, h), buf(b, d, n, h), buf(b, d, h)
	gu, dgu, act := buf(b, d, n, 2*f), buf(b, d, n, 2*f), buf(b, d, n, f)
	scale, q := make([]float32, n), d.Queue()
	norm := &compute.Norm{Weight: w, Eps: 1e-5}
	p, g, m, v := buf(b, d, 4<<20), buf(b, d, 4<<20), buf(b, d, 4<<20), buf(b, d, 4<<20)
	for _, c := range []struct {
		name string
		f    func()
	}{
		{"Norm", func() { q.Norm(dx, x, norm, n) }},
		{"NormGrad", func() { ops.NormGrad(dx, dw, y, x, w, 1e-5, n) }},
		{"SwiGLU", func() { q.SwiGLU(act, gu, n) }},
		{"SwiGLUGrad", func() { ops.SwiGLUGrad(dgu, act, gu, n) }},
		{"SmoothL1", func() { ops.SmoothL1(dw, dx, x, y, scale[:h], false, h) }},
		{"SumRows", func() { ops.SumRows(dw, x, n) }},
		{"AdamW4M", func() { ops.AdamW(p, g, m, v, compute.AdamW{LR: 1e-9, Beta1: 0.9, Beta2: 0.95, Eps: 1e-8, Step: 1}) }},
		{"SumSquares4M", func() { ops.SumSquares(g) }},
	} {
		b.Run(c.name, func(b *testing.B) {
			for b.Loop() {
				c.f()
			}
		})
	}
}

// BenchmarkTopK is the ten largest of 32000 logits in 60 rows.
func BenchmarkTopK(b *testing.B) {
	const n, v = 60, 32000
	d := device(b, cpu.Default().Class, 2)
	defer d.Close()
	x, logp, q := buf(b, d, n, v), buf(b, d, n, 10), d.Queue()
	ids, err := d.Alloc(compute.I32, n, 10)
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		q.TopK(ids, logp, x, 10, n)
	}
}

// BenchmarkTopPeaks is the largest of the logits of one row by the peaks of their product, as a plain round finds them.
func BenchmarkTopPeaks(b *testing.B) {
	const v, in = 4096, 8
	d := device(b, cpu.Default().Class, 2)
	defer d.Close()
	q := d.Queue()
	p, x, logits, peaks := q.Abilities().Peaks, buf(b, d, 1, in), buf(b, d, 1, v), buf(b, d, 1, v/compute.PeakLen)
	p.LinearPeaks(logits, peaks, x, &compute.Linear{W: weight(b, d, v, in)}, 1)
	for _, k := range []int{1, 8, 16} {
		b.Run(fmt.Sprint(k), func(b *testing.B) {
			ids, err := d.Alloc(compute.I32, 1, k)
			if err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				p.TopPeaks(ids, nil, logits, peaks, 0, k, 1)
			}
		})
	}
}
