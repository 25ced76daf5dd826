package computetest

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math"
	"slices"
	"testing"

	"talf/compute"
)

// Same runs one program of operations on devices that promise equal results with weights
// packed as formats, and compares raw bits with the reference's. The program is large
// enough to be split between threads.
func Same(t *testing.T, formats []compute.DType, newDevices map[string]func() compute.Device, reference func() compute.Device) {
	program := func(b *bench) []result {
		return slices.Concat(program(b, formats), variantsProgram(b), blockProgram(b))
	}
	want := program(newBench(t, reference()))
	for name, newDevice := range newDevices {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, newDevice())
			got := program(b)
			if len(got) != len(want) {
				t.Fatalf("%d results, want %d", len(got), len(want))
			}
			for i := range want {
				b.same(want[i].name, got[i].x, want[i].x)
			}
		})
	}
}

// Digest runs Same's program and returns the SHA-256 of its results' bits, in
// hex: a device whose bits are the same on every platform pins it.
func Digest(t *testing.T, formats []compute.DType, newDevice func() compute.Device) string {
	return digest(program(newBench(t, newDevice()), formats))
}

// VariantsDigest is Digest for the operations of queues with Variants.
func VariantsDigest(t *testing.T, newDevice func() compute.Device) string {
	return digest(variantsProgram(newBench(t, newDevice())))
}

// BlockDigest is Digest for the operations of queues with Block.
func BlockDigest(t *testing.T, newDevice func() compute.Device) string {
	return digest(blockProgram(newBench(t, newDevice())))
}

func digest(results []result) string {
	h := sha256.New()
	for _, r := range results {
		for _, x := range r.x {
			var b [4]byte
			binary.LittleEndian.PutUint32(b[:], math.Float32bits(x))
			h.Write(b[:])
		}
	}
	return hex.EncodeToString(h.Sum(nil))
}

// A result is one output of the program.
type result struct {
	name string
	x    []float32
}

func program(b *bench, formats []compute.DType) []result {
	return append(llamaProgram(b, formats), otherProgram(b)...)
}

// llamaProgram is what training and decoding a Llama needs.
func llamaProgram(b *bench, formats []compute.DType) []result {
	var out []result
	put := func(name string, buf compute.Buffer) {
		n := 1
		for _, s := range buf.Shape() {
			n *= s
		}
		out = append(out, result{name, b.read(buf, n)})
	}
	for _, s := range []struct{ n, out, in int }{{1, 500, 300}, {9, 97, 64}, {40, 170, 260}, {140, 330, 300}} {
		w, bias := b.weight(b.random(s.out*s.in), s.out, s.in), b.buffer(b.random(s.out), s.out)
		dst := b.buffer(b.random(s.n*s.out), s.n, s.out)
		b.q.Linear(dst, b.buffer(b.random(s.n*s.in), s.n, s.in), &compute.Linear{W: w, Bias: bias}, compute.Accumulate, s.n)
		put(fmt.Sprintf("Linear of %d rows", s.n), dst)
		norm := b.alloc(compute.F32, s.n, s.out)
		b.q.Norm(norm, dst, &compute.Norm{Weight: bias, Eps: 1e-5}, s.n)
		put("Norm", norm)
		act := b.alloc(compute.F32, s.n, s.out/2)
		if s.out%2 == 0 {
			b.q.SwiGLU(act, norm, s.n)
			put("SwiGLU", act)
		}
		ids, logp := b.alloc(compute.I32, s.n, 7), b.alloc(compute.F32, s.n, 7)
		b.q.TopK(ids, logp, dst, 7, s.n)
		put("TopK", logp)
	}
	for _, g := range geometries {
		w := newWorld(b, g, g.heads%2 == 0, variation{})
		text := w.text(90)
		out = append(out, result{fmt.Sprintf("prompt %v", g), w.run(w.chain(text, 0, 90))})
		a, c := w.tree(90, 60, 0.5, w.free), w.tree(13, 30, 0.3, w.free[60:])
		out = append(out, result{fmt.Sprintf("trees %v", g), w.run(a, c)})
	}
	for _, as := range formats {
		for _, s := range []struct{ n, out, in int }{{1, 500, 300}, {9, 97, 65}, {40, 170, 260}, {140, 330, 300}} {
			dst := b.alloc(compute.F32, s.n, s.out)
			b.q.Linear(dst, b.buffer(b.random(s.n*s.in), s.n, s.in),
				&compute.Linear{W: b.packed(as, b.random(s.out*s.in), s.out, s.in)}, compute.Store, s.n)
			put(fmt.Sprintf("Linear of %d rows with %v weights", s.n, as), dst)
		}
	}
	if b.q.Abilities().Train == nil {
		return out
	}
	ops := b.train()
	for mode := range 4 {
		m, n, k := 150, 140, 290
		mat := func(rows, cols int, t bool) compute.Mat {
			stride := cols
			if t {
				stride = rows
			}
			return compute.Mat{Buf: b.buffer(b.random(rows*cols), rows*cols), Rows: rows, Cols: cols, Stride: stride, T: t}
		}
		c := mat(m, n, false)
		ops.Gemm(c, mat(m, k, mode&1 != 0), mat(k, n, mode&2 != 0), 1)
		put("Gemm", c.Buf)
	}
	const n, h = 150, 200
	x, dy, w := b.buffer(b.random(n*h), n, h), b.buffer(b.random(n*h), n, h), b.buffer(b.random(h), h)
	dx, dw := b.alloc(compute.F32, n, h), b.alloc(compute.F32, h)
	ops.NormGrad(dx, dw, dy, x, w, 1e-5, n)
	put("dx of Norm", dx)
	put("dw of Norm", dw)
	ops.SumRows(dw, x, n)
	put("SumRows", dw)
	gu := b.buffer(b.random(2*n*h), n, 2*h)
	dgu := b.alloc(compute.F32, n, 2*h)
	ops.SwiGLUGrad(dgu, dy, gu, n)
	put("dgu", dgu)
	out = append(out, result{"SumSquares", []float32{float32(ops.SumSquares(gu))}})
	p, m, v := b.buffer(b.random(n*h), n*h), b.alloc(compute.F32, n*h), b.alloc(compute.F32, n*h)
	ops.AdamW(p, dy, m, v, compute.AdamW{LR: 1e-3, Beta1: 0.9, Beta2: 0.95, Eps: 1e-8, Decay: 0.1, Scale: 0.3, Step: 3})
	put("AdamW", p)

	for mode := range 3 {
		const v = 333
		l, scale := b.labels(mode, n, v, 6), make([]float32, n)
		for i := range scale {
			scale[i] = 0.25
		}
		loss, dwb := b.alloc(compute.F32, n), b.alloc(compute.F32, v, h)
		ops.SoftCE(loss, dx, dwb, x, b.buffer(b.random(v*h), v, h), l, scale, n)
		put("SoftCE loss", loss)
		put("SoftCE dh", dx)
		put("SoftCE dw", dwb)
	}
	ops.SmoothL1(b.alloc(compute.F32, n), dx, x, dy, make([]float32, n), false, n)
	put("SmoothL1", dx)
	for levels := range 3 {
		t := newTreeBatch(b, []int{40, 3, 20}, levels, 4, 4, 2, 20)
		rows := len(t.g.First)
		q, k, v := t.buffers(b)
		o, lse := b.alloc(compute.F32, rows, 80), b.alloc(compute.F32, rows, 4)
		ops.TreeAttend(o, lse, q, k, v, &t.g)
		put("TreeAttend", o)
		put("TreeAttend lse", lse)
		dq := b.alloc(compute.F32, rows, 80)
		var dk, dv []compute.Buffer
		for l := range k {
			dk = append(dk, b.alloc(compute.F32, k[l].Shape()...))
			dv = append(dv, b.alloc(compute.F32, k[l].Shape()...))
		}
		ops.TreeAttendGrad(dq, dk, dv, b.buffer(b.random(rows*80), rows, 80), o, lse, q, k, v, &t.g)
		put("dq", dq)
		for l := range k {
			put("dk", dk[l])
			put("dv", dv[l])
		}
	}
	const vocab = 333
	probs, rest, ids := make([]float32, n*vocab), make([]float32, n), make([]int32, n*2)
	for i := range ids {
		ids[i] = int32(i * 7 % vocab)
	}
	head := b.buffer(b.random(vocab*h), vocab, h)
	ops.Probs(probs, x, head, n)
	out = append(out, result{"Probs", slices.Clone(probs)})
	ops.LabelProbs(probs, rest, x, head, ids, 2, n)
	return append(out, result{"LabelProbs", append(probs[:2*n:2*n], rest...)})
}

// otherProgram is what other architectures do instead.
func otherProgram(b *bench) []result {
	var out []result
	for _, s := range []struct{ n, out, in int }{{1, 500, 300}, {9, 97, 64}, {140, 330, 300}} {
		norm := b.layerNorm(s.in)
		x := b.buffer(b.random(s.n*s.in), s.n, s.in)
		dst := b.alloc(compute.F32, s.n, s.in)
		b.q.Norm(dst, x, norm, s.n)
		out = append(out, result{"LayerNorm", b.read(dst, s.n*s.in)})
		for _, act := range []compute.Activation{compute.SiLU, compute.GELU} {
			l := &compute.Linear{Norm: norm, W: b.weight(b.random(s.out*s.in), s.out, s.in), Bias: b.buffer(b.random(s.out), s.out), Act: act}
			dst := b.alloc(compute.F32, s.n, s.out)
			b.q.Linear(dst, x, l, compute.Store, s.n)
			out = append(out, result{fmt.Sprintf("%d rows with activation %d", s.n, act), b.read(dst, s.n*s.out)})
		}
	}
	for _, v := range variations {
		g := geometries[2]
		w := newWorld(b, g, false, v)
		out = append(out, result{fmt.Sprintf("prompt with %+v", v), w.run(w.chain(w.text(90), 0, 90))})
		a, c := w.tree(90, 60, 0.5, w.free), w.tree(13, 30, 0.8, w.free[60:])
		out = append(out, result{fmt.Sprintf("trees with %+v", v), w.run(a, c)})
	}
	return out
}
