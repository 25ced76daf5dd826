//go:build gpu && linux && cgo

package cuda_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"

	"talf/compute"
	"talf/model/ggml"
)

// fourBlocks returns a matrix of random blocks of a GGUF type.
func fourBlocks(r *rand.Rand, kind string, rows, cols int) compute.Matrix {
	b := ggml.Blocks(kind)
	m := compute.Matrix{Rows: rows, Cols: cols, Type: compute.Blocks, Block: b, Data: make([]byte, rows*cols/b.Elements()*b.Bytes())}
	for p := m.Data; len(p) > 0; p = p[b.Bytes():] {
		for i := range b.Bytes() {
			p[i] = byte(r.Uint32())
		}
		half := func(at int) {
			binary.LittleEndian.PutUint16(p[at:], uint16(r.IntN(2)<<15|(6+r.IntN(3))<<10|r.IntN(1024)))
		}
		switch kind {
		case "Q4_0":
			half(0)
		case "Q4_K":
			half(0)
			half(2)
		case "Q6_K":
			half(208)
		}
	}
	return m
}

// elementsOf returns the elements of a matrix of blocks, each rounded once.
func elementsOf(m compute.Matrix) []float32 {
	x := make([]float32, m.Rows*m.Cols)
	m.Block.Float32s(x, m.Data)
	return x
}

// A fourBench multiplies on a device.
type fourBench struct {
	*testing.T
	d compute.Device
	q compute.Queue
}

func (b *fourBench) buffer(x []float32, shape ...int) compute.Buffer {
	b.Helper()
	m, err := b.d.Alloc(compute.F32, shape...)
	if err != nil {
		b.Fatal(err)
	}
	b.q.Write(m, x)
	return m
}

func (b *fourBench) read(m compute.Buffer, n int) []float32 {
	b.Helper()
	x := make([]float32, n)
	b.q.Read(x, m, 0)
	if err := b.q.Sync(b.Context()); err != nil {
		b.Fatal(err)
	}
	return x
}

func (b *fourBench) pack(as compute.DType, parts ...compute.Matrix) compute.Weight {
	b.Helper()
	w, err := b.d.Pack(as, parts...)
	if err != nil {
		b.Fatal(err)
	}
	return w
}

// rows returns the elements of a weight.
func (b *fourBench) rows(w compute.Weight) []float32 {
	b.Helper()
	ids := make([]int32, w.Out())
	for i := range ids {
		ids[i] = int32((7*i + 3) % w.Out())
	}
	all := b.buffer(nil, w.Out(), w.In())
	b.q.Embed(all, 0, w, ids)
	x, sorted := b.read(all, w.Out()*w.In()), make([]float32, w.Out()*w.In())
	for i, id := range ids {
		copy(sorted[int(id)*w.In():][:w.In()], x[i*w.In():])
	}
	return sorted
}

// linear returns a product of the first n rows of x, added to what old has.
func (b *fourBench) linear(l compute.Linear, x, old []float32, n int) []float32 {
	b.Helper()
	out := l.W.Out()
	dst, epi := b.buffer(nil, n, out), compute.Store
	if old != nil {
		b.q.Write(dst, old[:n*out])
		epi = compute.Accumulate
	}
	b.q.Linear(dst, b.buffer(x[:n*l.W.In()], n, l.W.In()), &l, epi, n)
	return b.read(dst, n*out)
}

func newFourBench(t *testing.T) *fourBench {
	d := device(t)
	t.Cleanup(func() { d.Close() })
	return &fourBench{t, d, d.Queue()}
}

func normal(r *rand.Rand, n int) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(r.NormFloat64())
	}
	return x
}

// Weights as Q4 are the file's own: rows that are embedded have the bits of its elements, and products are those with float64 of
// them, gated ones and blocks that share inputs included. Any number of rows has the same bits.
func TestProductsOfFourBits(t *testing.T) {
	for _, c := range []struct {
		kind         string
		out, in, max int
		fewer        []int
	}{
		{"Q4_0", 33, 96, 34, []int{1, 8, 9, 17, 33}},
		{"Q4_0", 290, 96, 34, []int{9, 17}},
		{"Q4_K", 33, 256, 34, []int{1, 8, 9, 17, 33}},
		{"Q4_K", 290, 256, 34, []int{9, 17}},
		{"Q6_K", 33, 256, 34, []int{1, 8, 9, 17, 33}},
		{"Q6_K", 290, 256, 34, []int{9, 17}},
		{"Q4_0", 33, 4192, 36, []int{1, 33}},
		{"Q4_K", 33, 4352, 36, []int{1, 33}},
		{"Q6_K", 33, 4352, 36, []int{1, 33}},
	} {
		t.Run(fmt.Sprintf("%s %d %d", c.kind, c.out, c.in), func(t *testing.T) {
			if *runPTX && c.in > 4000 {
				t.Skip("takes long")
			}
			b, r := newFourBench(t), rand.New(rand.NewPCG(61, uint64(c.out)))
			l := compute.Linear{Bias: b.buffer(normal(r, c.out), c.out), Act: compute.SiLU}
			var stored [2][]float32
			for i, w := range []*compute.Weight{&l.W, &l.Up} {
				m := fourBlocks(r, c.kind, c.out, c.in)
				*w, stored[i] = b.pack(compute.Q4, m), elementsOf(m)
				if got := b.rows(*w); !slices.Equal(got, stored[i]) {
					t.Fatal("rows are not the elements of the blocks")
				}
			}
			bias := b.read(l.Bias, c.out)
			x, old := normal(r, c.max*c.in), normal(r, c.max*c.out)
			all := b.linear(l, x, old, c.max)
			for row := 0; row < c.max; row += 5 {
				for o := range c.out {
					gate, up, size := float64(bias[o]), 0.0, [2]float64{}
					for k := range c.in {
						v := [2]float64{float64(x[row*c.in+k]) * float64(stored[0][o*c.in+k]), float64(x[row*c.in+k]) * float64(stored[1][o*c.in+k])}
						gate, up = gate+v[0], up+v[1]
						size[0], size[1] = size[0]+v[0]*v[0], size[1]+v[1]*v[1]
					}
					s := gate / (1 + math.Exp(-gate))
					want := float64(old[row*c.out+o]) + s*up
					// 16 bits of activations: of sums of random signs, and of what is made of them.
					near := 3e-5 * (1 + math.Abs(up)*math.Sqrt(size[0])*1.1 + math.Abs(s)*math.Sqrt(size[1]))
					if got := float64(all[row*c.out+o]); !(math.Abs(got-want) <= near) {
						t.Fatalf("row %d, output %d is %g, want %g within %g", row, o, got, want, near)
					}
				}
			}
			for _, n := range c.fewer {
				if got := b.linear(l, x[(c.max-n)*c.in:], old[(c.max-n)*c.out:], n); !slices.Equal(got, all[(c.max-n)*c.out:]) {
					t.Errorf("%d rows have other bits than they have among %d", n, c.max)
				}
			}
		})
	}
}

// Products with blocks of Q4_0 have the bits that they have in Q8, which keeps the same integers. Where a stack has matrices of several
// kinds, borders may be anywhere, also where the other weight of a gated product has another one; what is not kept is in Q8.
func TestProductsOfFourBitsInAStack(t *testing.T) {
	const in, n = 512, 20
	b, r := newFourBench(t), rand.New(rand.NewPCG(62, 1))
	plain := compute.Matrix{Rows: 30, Cols: in, Type: compute.F32}
	for _, v := range normal(r, 30*in) {
		plain.Data = binary.LittleEndian.AppendUint32(plain.Data, math.Float32bits(v))
	}
	x := normal(r, n*in)
	rows := []int{1, n}
	if *runPTX {
		rows = []int{n}
	}
	parts := []compute.Matrix{fourBlocks(r, "Q4_K", 70, in), fourBlocks(r, "Q4_K", 3, in), fourBlocks(r, "Q4_0", 40, in), plain, fourBlocks(r, "Q6_K", 33, in)}
	var done atomic.Int64
	size := 0
	for i := range parts {
		size += len(parts[i].Data)
		parts[i].Done = func(lo, hi int) error { done.Add(int64(hi - lo)); return nil }
	}
	stack := b.pack(compute.Q4, parts...)
	if int(done.Load()) != size {
		t.Errorf("%d bytes are reported as packed, want %d", done.Load(), size)
	}
	out := stack.Out()
	bias := normal(r, out)
	var want []float32
	for i, m := range parts {
		if i == 3 {
			want = append(want, b.rows(b.pack(compute.Q8, m))...)
		} else {
			want = append(want, elementsOf(m)...)
		}
	}
	// The plan of memory says what they take, each kind by itself.
	plan, sum := b.d.Abilities().Plan, int64(0)
	for _, run := range []struct {
		kept compute.Kept
		rows int
	}{{compute.KeptQ4_K, 73}, {compute.KeptQ4_0, 40}, {compute.NotKept, 30}, {compute.KeptQ6_K, 33}} {
		sum += plan.WeightBytes(compute.Q4, run.kept, run.rows, in)
	}
	if int64(stack.Bytes()) != sum {
		t.Errorf("%d bytes, planned are %d", stack.Bytes(), sum)
	}
	if got := b.rows(stack); !slices.Equal(got, want) {
		t.Error("rows of a stack are not those of its matrices")
	}
	for _, n := range rows {
		all := b.linear(compute.Linear{W: stack, Bias: b.buffer(bias, out)}, x, nil, n)
		at := 0
		for i, m := range parts {
			alone := b.linear(compute.Linear{W: b.pack(compute.Q4, m), Bias: b.buffer(bias[at:][:m.Rows], m.Rows)}, x, nil, n)
			for row := range n {
				if !slices.Equal(all[row*out+at:][:m.Rows], alone[row*m.Rows:][:m.Rows]) {
					t.Fatalf("%d rows: matrix %d is not what it is alone", n, i)
				}
			}
			at += m.Rows
		}
		asQ8 := b.linear(compute.Linear{W: b.pack(compute.Q8, parts[2], plain)}, x, nil, n)
		if got := b.linear(compute.Linear{W: b.pack(compute.Q4, parts[2], plain)}, x, nil, n); !slices.Equal(got, asQ8) {
			t.Errorf("%d rows: blocks without minima have other bits than in Q8", n)
		}
		// A gated product: one after the other, if the two are in different formats.
		for _, old := range [][]float32{nil, normal(r, n*out)} {
			turned := slices.Clone(parts)
			slices.Reverse(turned)
			up := b.pack(compute.Q4, turned...)
			l := compute.Linear{W: stack, Bias: b.buffer(bias, out), Act: compute.SiLU, Up: up, UpBias: b.buffer(bias, out)}
			got := b.linear(l, x, old, n)
			l.Up = nil
			gate := b.linear(l, x, nil, n)
			ups := b.linear(compute.Linear{W: up, Bias: l.Bias}, x, nil, n)
			for i := range got {
				want := gate[i] * ups[i]
				if old != nil {
					want += old[i]
				}
				if got[i] != want {
					t.Fatalf("%d rows: element %d of a gated product is %g, want %g", n, i, got[i], want)
				}
			}
			clamped := l
			clamped.Up, clamped.Act, clamped.Limit = up, compute.ClampedSwiGLU, 0.5
			got = b.linear(clamped, x, old, n)
			clamped.Up = nil
			gates := b.linear(clamped, x, nil, n)
			for i := range got {
				want := gates[i] * (min(max(ups[i], -0.5), 0.5) + 1)
				if old != nil {
					want += old[i]
				}
				if got[i] != want {
					t.Fatalf("%d rows: element %d of a clamped gated product is %g, want %g", n, i, got[i], want)
				}
			}
			l.W, l.Up = stack, stack
			got = b.linear(l, x, old, n)
			ups = b.linear(compute.Linear{W: stack, Bias: l.Bias}, x, nil, n)
			for i := range got {
				want := gate[i] * ups[i]
				if old != nil {
					want += old[i]
				}
				if got[i] != want {
					t.Fatalf("%d rows: element %d of a gated product of stacks that are alike is %g, want %g", n, i, got[i], want)
				}
			}
		}
	}
}

// Scales that are not finite reach their own output alone.
func TestProductsOfFourBitsWithScalesThatAreNotNumbers(t *testing.T) {
	const in, n = 256, 10
	b, r := newFourBench(t), rand.New(rand.NewPCG(63, 1))
	x := normal(r, n*in)
	for kind, at := range map[string]int{"Q4_0": 0, "Q4_K": 0, "Q6_K": 208} {
		m := fourBlocks(r, kind, 40, in)
		want := b.linear(compute.Linear{W: b.pack(compute.Q4, m)}, x, nil, n)
		row := len(m.Data) / m.Rows
		binary.LittleEndian.PutUint16(m.Data[3*row+at:], 0x7e00)  // NaN
		binary.LittleEndian.PutUint16(m.Data[20*row+at:], 0x7c00) // +Inf
		got := b.linear(compute.Linear{W: b.pack(compute.Q4, m)}, x, nil, n)
		for i, v := range got {
			if o := i % m.Rows; o == 3 || o == 20 {
				if !math.IsNaN(float64(v)) && !math.IsInf(float64(v), 0) {
					t.Errorf("%s: output %d is %v", kind, o, v)
				}
			} else if v != want[i] {
				t.Errorf("%s: output %d is %v, want %v", kind, o, v, want[i])
			}
		}
	}
}
