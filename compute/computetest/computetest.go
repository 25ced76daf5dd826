// Package computetest is the conformance suite of compute devices: a device's
// test is one call of Run, and one of Same for every pair that promises equal
// bits.
//
// The reference is plain float64 code of this package, and gradients are compared with
// central differences of that reference, so nothing is shared with what is tested.
package computetest

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"sync"
	"testing"

	"talf/compute"
)

// Run checks the devices that newDevice makes: agreement with the reference,
// batch invariance in raw bits and, where the queue has TrainOps, gradients.
// Each subtest gets a device of its own and closes it.
func Run(t *testing.T, newDevice func() compute.Device) {
	run(t, newDevice, formats)
	run(t, newDevice, operations)
	d := newDevice()
	trains := d.Queue().Abilities().Train != nil
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	if trains {
		run(t, newDevice, training)
	}
}

// RunFormat is the part of Run about products with weights of one format, for devices that differ in nothing else from
// one that passes all of it.
func RunFormat(t *testing.T, newDevice func() compute.Device, as compute.DType) {
	run(t, newDevice, formats, as)
}

// A check is a part of the suite.
type check struct {
	name string
	f    func(*bench)
}

// run runs checks, those that go through the formats of weights with only some of them, if there are any.
func run(t *testing.T, newDevice func() compute.Device, checks []check, only ...compute.DType) {
	for _, c := range checks {
		t.Run(c.name, func(t *testing.T) {
			b := newBench(t, newDevice())
			b.only = only
			c.f(b)
		})
	}
}

var (
	formats = []check{ // of weights
		{"Linear agrees with the reference for every format of weights", formatsAgree},
		{"Linear has the same bits for any number of rows", linearInvariant},
		{"a fused Linear has the bits of its pieces", linearFused},
		{"weights in blocks have the bits of what they stand for", blocksAgree},
	}
	operations = []check{
		{"Linear agrees with the reference", linearAgrees},
		{"blocks that are kept have their values, and Q8's bits where that has them", keptAgrees},
		{"floating-point numbers as stored have the bits of F32", storedAgrees},
		{"passes without rows do nothing", emptyPasses},
		{"queues of several goroutines do not disturb each other", queuesSideBySide},
		{"Embed and Gather copy rows", rowsAreCopied},
		{"Pack refuses what does not fit", packRefuses},
		{"Norm and SwiGLU agree with the reference", pointwiseAgrees},
		{"LayerNorm agrees with the reference", layerNormAgrees},
		{"activations agree with the reference", activationsAgree},
		{"operations of variants agree with the reference", variantsAgree},
		{"operations of latent attention agree with the reference", absorbersAgree},
		{"recurrent layers agree with the reference", recurAgrees},
		{"TopK agrees with the reference", topKAgrees},
		{"peaks find what TopK finds", peaksAgree},
		{"rows from which no token can be chosen are found", choosableAgrees},
		{"Attend agrees with the reference", func(b *bench) { attendAgrees(b, variation{}) }},
		{"Attend of wide heads agrees with the reference", func(b *bench) { attendAgrees(b, variation{wide: true}) }},
		{"Attend with norms, windows, partial rotation and variants agrees with the reference", func(b *bench) { b.varied(attendAgrees) }},
		{"a prompt has the same bits in chunks of any size", func(b *bench) { chunksInvariant(b, variation{}) }},
		{"a prompt has the same bits in chunks of any size, with norms, windows, partial rotation and variants", func(b *bench) { b.varied(chunksInvariant) }},
		{"tree nodes have the bits of plain decoding", func(b *bench) { treesInvariant(b, variation{}) }},
		{"tree nodes have the bits of plain decoding, with norms, windows, partial rotation and variants", func(b *bench) { b.varied(treesInvariant) }},
		{"rows of a block see one another", func(b *bench) { b.varied(bothWays) }},
		{"MoveKV moves keys and values", moveInvariant},
	}
	training = []check{
		{"Gemm agrees with the reference", gemmAgrees},
		{"sums and biases agree with the reference", sumsAgree},
		{"NormGrad is Norm's derivative", normGrad},
		{"Rope rotates there and back", ropeTurns},
		{"SwiGLUGrad is SwiGLU's derivative", swigluGrad},
		{"TreeAttend agrees with the reference", treeAttendAgrees},
		{"TreeAttendGrad is TreeAttend's derivative", treeAttendGrad},
		{"SoftCE agrees with the reference and its derivative", softCEAgrees},
		{"Probs agrees with the reference", probsAgree},
		{"SmoothL1 agrees with the reference and its derivative", smoothL1Agrees},
		{"AdamW agrees with the reference", adamWAgrees},
		{"attention in blocks agrees with the reference and its derivative", blockAttendAgrees},
		{"Gate agrees with the reference and its derivative", gateAgrees},
		{"Logistic agrees with the reference and its derivative", logisticAgrees},
		{"Convolve agrees with the reference and its derivative", convolveAgrees},
		{"CandidateCE agrees with the reference and its derivative", candidatesAgree},
	}
)

// A bench is a device under test and a source of random values. Each subtest starts
// with the same seed, so a failure repeats.
type bench struct {
	*testing.T
	dev   compute.Device
	q     compute.Queue
	r     *rand.Rand
	only  []compute.DType // formats of weights; none: all that the device has
	worst float64         // difference that near has seen, of the largest value or of 1
}

func newBench(t *testing.T, d compute.Device) *bench {
	b := &bench{T: t, dev: d, q: d.Queue(), r: rand.New(rand.NewPCG(7, 11))}
	t.Cleanup(func() {
		if b.worst > 0 {
			t.Logf("within %.2g of the largest value", b.worst)
		}
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return b
}

func (b *bench) train() compute.TrainOps { return b.q.Abilities().Train }

// random returns n values of a normal distribution.
func (b *bench) random(n int) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(b.r.NormFloat64())
	}
	return x
}

func (b *bench) alloc(t compute.DType, shape ...int) compute.Buffer {
	b.Helper()
	buf, err := b.dev.Alloc(t, shape...)
	if err != nil {
		b.Fatal(err)
	}
	return buf
}

// buffer returns a new buffer that holds x.
func (b *bench) buffer(x []float32, shape ...int) compute.Buffer {
	b.Helper()
	buf := b.alloc(compute.F32, shape...)
	b.q.Write(buf, x)
	return buf
}

// read waits for and returns the first n elements.
func (b *bench) read(buf compute.Buffer, n int) []float32 {
	b.Helper()
	x := make([]float32, n)
	b.q.Read(x, buf, 0)
	if err := b.q.Sync(b.Context()); err != nil {
		b.Fatal(err)
	}
	return x
}

// formats returns the types that weights are packed as: those that every device has, and BF16DP where this one
// has it.
func (b *bench) formats() []compute.DType {
	if len(b.only) > 0 {
		return b.only
	}
	all := []compute.DType{compute.F32, compute.BF16, compute.Q8}
	if _, err := b.dev.Pack(compute.BF16DP, matrix([]float32{1}, 1, 1, compute.F32)); err == nil {
		all = append(all, compute.BF16DP)
	}
	return all
}

func (b *bench) weight(w []float32, out, in int) compute.Weight {
	b.Helper()
	return b.packed(compute.F32, w, out, in)
}

func (b *bench) packed(as compute.DType, w []float32, out, in int) compute.Weight {
	b.Helper()
	p, err := b.dev.Pack(as, matrix(w, out, in, compute.F32))
	if err != nil {
		b.Fatal(err)
	}
	return p
}

// matrix encodes w as a checkpoint would.
func matrix(w []float32, rows, cols int, t compute.DType) compute.Matrix {
	var data []byte
	for _, v := range w {
		switch t {
		case compute.BF16:
			data = binary.LittleEndian.AppendUint16(data, uint16(math.Float32bits(v)>>16))
		case compute.F16:
			data = binary.LittleEndian.AppendUint16(data, half(v))
		default:
			data = binary.LittleEndian.AppendUint32(data, math.Float32bits(v))
		}
	}
	return compute.Matrix{Rows: rows, Cols: cols, Type: t, Data: data}
}

// half encodes a v that binary16 holds exactly as a normal number.
func half(v float32) uint16 {
	u := math.Float32bits(v)
	if u<<1 == 0 {
		return uint16(u >> 16)
	}
	return uint16(u>>16&0x8000 | (u>>23&0xff-112)<<10 | u>>13&0x3ff)
}

// near fails unless each |got−want| ≤ tol·max(1, largest |want|).
func (b *bench) near(what string, got []float32, want []float64, tol float64) {
	b.Helper()
	if len(got) != len(want) {
		b.Fatalf("%s: %d values, want %d", what, len(got), len(want))
	}
	big := 1.0
	for _, w := range want {
		big = max(big, math.Abs(w))
	}
	for i, w := range want {
		d := math.Abs(float64(got[i]) - w)
		b.worst = max(b.worst, d/big)
		if !(d <= tol*big) {
			b.Fatalf("%s[%d] = %g, want %g: off by %.2g, allowed %.2g", what, i, got[i], w, d, tol*big)
		}
	}
}

// same fails unless a and c are equal as raw bits.
func (b *bench) same(what string, got, want []float32) {
	b.Helper()
	if len(got) != len(want) {
		b.Fatalf("%s: %d values, want %d", what, len(got), len(want))
	}
	for i := range want {
		if g, w := math.Float32bits(got[i]), math.Float32bits(want[i]); g != w {
			b.Fatalf("%s[%d] = %g (%08x), want %g (%08x)", what, i, got[i], g, want[i], w)
		}
	}
}

func wide(x []float32) []float64 {
	y := make([]float64, len(x))
	for i, v := range x {
		y[i] = float64(v)
	}
	return y
}

func emptyPasses(b *bench) {
	w := newWorld(b, geometry{4, 2, 8}, false, variation{})
	keep := b.random(12)
	buf := b.buffer(keep, 3, 4)
	pw := b.weight(b.random(16), 4, 4)
	b.q.Embed(buf, 0, pw, nil)
	b.q.Gather(buf, 0, 0, buf, nil)
	b.q.Linear(buf, buf, &compute.Linear{W: pw}, compute.Store, 0)
	b.q.Norm(buf, buf, &compute.Norm{Weight: b.buffer(keep[:4], 4), Eps: 1e-5}, 0)
	b.q.SwiGLU(buf, b.alloc(compute.F32, 3, 8), 0)
	b.q.TopK(b.alloc(compute.I32, 1, 2), buf, buf, 2, 0)
	b.q.MoveKV(w.kv, nil, nil)
	s := &compute.Step{Heads: 4, Spans: []compute.Span{{Prefix: 7, Blocks: w.blocks[:1]}}}
	b.q.Attend(buf, buf, w.kv, 0, &w.attn, s)
	b.same("a buffer after passes without rows", b.read(buf, 12), keep)

	// A span without rows among others takes nothing and changes nothing.
	text := w.text(9)
	want := w.run(w.chain(text, 0, 9))
	none := w.chain(text, 0, 5)
	none.from = 5
	b.same("rows next to a span without any", w.run(none, w.chain(text, 0, 9), none), want)
}

func queuesSideBySide(b *bench) {
	const goroutines, rounds, n, out, in = 4, 20, 9, 200, 96
	x, pw := b.random(n*in), b.weight(b.random(out*in), out, in)
	dst := b.alloc(compute.F32, n, out)
	b.q.Linear(dst, b.buffer(x, n, in), &compute.Linear{W: pw}, compute.Store, n)
	want := b.read(dst, n*out)
	var wg sync.WaitGroup
	for range goroutines {
		xb, dst, q := b.buffer(x, n, in), b.alloc(compute.F32, n, out), b.dev.Queue()
		wg.Go(func() {
			got := make([]float32, n*out)
			for range rounds {
				q.Linear(dst, xb, &compute.Linear{W: pw}, compute.Store, n)
				q.Read(got, dst, 0)
				if err := q.Sync(b.Context()); err != nil {
					b.Error(err)
					return
				}
				for i := range want {
					if math.Float32bits(got[i]) != math.Float32bits(want[i]) {
						b.Errorf("output %d is %g next to other queues, %g alone", i, got[i], want[i])
						return
					}
				}
			}
		})
	}
	wg.Wait()
}
