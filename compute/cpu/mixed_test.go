package cpu_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"

	"talf/compute"
	"talf/compute/cpu"
	"talf/compute/cpu/kern"
)

// blocks4 are blocks of 256 elements in 256+40 bytes, of either kind: an integer a byte, then the
// scales as compute.Kept has them.
type blocks4 struct{ kind compute.Kept }

const blocks4Len = 256 + 40

func (blocks4) Elements() int        { return 256 }
func (blocks4) Bytes() int           { return blocks4Len }
func (b blocks4) Kept() compute.Kept { return b.kind }

func (b blocks4) scales() int {
	return map[compute.Kept]int{compute.KeptQ4_0: 16, compute.KeptQ4_K: 20, compute.KeptQ6_K: 18}[b.kind]
}

func (b blocks4) Integers(q, scales, src []byte) {
	for ; len(src) > 0; src = src[blocks4Len:] {
		copy(q[:256], src)
		copy(scales[:b.scales()], src[256:])
		q, scales = q[256:], scales[b.scales():]
	}
}

func (b blocks4) Float32s(dst []float32, src []byte) {
	for ; len(dst) > 0; dst, src = dst[256:], src[blocks4Len:] {
		s := src[256:]
		for i := range 256 {
			switch b.kind {
			case compute.KeptQ4_0:
				dst[i] = half(s[i/32*2:]) * (float32(src[i]) - 8)
			case compute.KeptQ6_K:
				dst[i] = half(s) * float32(int8(s[2+i/16])) * (float32(src[i]) - 32)
			default:
				dst[i] = half(s)*float32(s[4+i/32])*float32(src[i]) - half(s[2:])*float32(s[12+i/32])
			}
		}
	}
}

func (b blocks4) Q8(q, d, src []byte) bool {
	for i := 0; b.kind == compute.KeptQ4_0 && i < len(src)/blocks4Len; i++ {
		for j, v := range src[i*blocks4Len:][:256] {
			q[256*i+j] = v - 8
		}
		copy(d[16*i:], src[i*blocks4Len+256:][:16])
	}
	return b.kind == compute.KeptQ4_0
}

func half(b []byte) float32 {
	var x [1]float32
	kern.FromF16(x[:], b[:2])
	return x[0]
}

// random4 returns a matrix in blocks of a kind.
func random4(r *rand.Rand, rows, cols int, kind compute.Kept) compute.Matrix {
	m := compute.Matrix{Rows: rows, Cols: cols, Type: compute.Blocks, Block: blocks4{kind}, Data: make([]byte, rows*cols/256*blocks4Len)}
	for b := m.Data; len(b) > 0; b = b[blocks4Len:] {
		for i := range 256 {
			b[i] = byte(r.IntN(16))
			if kind == compute.KeptQ6_K {
				b[i] = byte(r.IntN(64))
			}
		}
		for i := 256; i < 256+16; i += 2 {
			binary.LittleEndian.PutUint16(b[i:], uint16(r.IntN(2)<<15|(8+r.IntN(4))<<10|r.IntN(1024)))
		}
		if kind == compute.KeptQ4_K {
			for i := 260; i < 276; i++ {
				b[i] = byte(r.IntN(64))
			}
		}
		for i := 258; kind == compute.KeptQ6_K && i < 274; i++ {
			b[i] = byte(r.Uint32())
		}
	}
	return m
}

// Matrices of several kinds, stacked at any row, give what each gives alone: those in blocks that Q4 keeps
// by their integers, the others as in Q8. Where a panel holds outputs of two kinds, all are in Q8.
func TestStackedMatricesKeepTheirIntegers(t *testing.T) {
	const in = 512
	r := rand.New(rand.NewPCG(51, 1))
	floats := make([]float32, 64*in)
	for i := range floats {
		floats[i] = float32(r.NormFloat64())
	}
	plain := compute.Matrix{Rows: 64, Cols: in, Type: compute.F32}
	for _, v := range floats {
		plain.Data = binary.LittleEndian.AppendUint32(plain.Data, math.Float32bits(v))
	}
	x := make([]float32, 70*in)
	for i := range x {
		x[i] = float32(r.NormFloat64())
	}
	d, err := cpu.New(cpu.Config{Class: kern.Best(), Threads: 2, ActBits: 8})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	q := d.Queue()
	run := func(as compute.DType, n int, parts ...compute.Matrix) (y, rows []float32, w compute.Weight) {
		t.Helper()
		w, err := d.Pack(as, parts...)
		if err != nil {
			t.Fatal(err)
		}
		buffer := func(n, width int) compute.Buffer {
			b, err := d.Alloc(compute.F32, n, width)
			if err != nil {
				t.Fatal(err)
			}
			return b
		}
		src, dst, all := buffer(n, in), buffer(n, w.Out()), buffer(w.Out(), in)
		q.Write(src, x[:n*in])
		q.Linear(dst, src, &compute.Linear{W: w}, compute.Store, n)
		ids := make([]int32, w.Out())
		for i := range ids {
			ids[i] = int32(i)
		}
		q.Embed(all, 0, w, ids)
		y, rows = make([]float32, n*w.Out()), make([]float32, w.Out()*in)
		q.Read(y, dst, 0)
		q.Read(rows, all, 0)
		return y, rows, w
	}
	a, b, c := random4(r, 96, in, compute.KeptQ4_K), random4(r, 64, in, compute.KeptQ4_0), random4(r, 32, in, compute.KeptQ6_K)
	for _, m := range []compute.Matrix{a, b, c} { // Embed gives the exact values
		_, rows, _ := run(compute.Q4, 1, m)
		want := make([]float32, m.Rows*in)
		m.Block.Float32s(want, m.Data)
		if !slices.Equal(rows, want) {
			t.Error("rows are not the values of their blocks")
		}
	}
	for _, n := range []int{1, 5, 17, 70} {
		all, _, w := run(compute.Q4, n, a, plain, b, c)
		for i, m := range []compute.Matrix{a, plain, b, c} {
			alone, _, _ := run(compute.Q4, n, m)
			at := []int{0, 96, 160, 224}[i]
			for row := range n {
				if got, want := all[row*256+at:][:m.Rows], alone[row*m.Rows:][:m.Rows]; !slices.Equal(got, want) {
					t.Fatalf("%d rows: matrix %d is not what it is alone", n, i)
				}
			}
		}
		if want := 3*kern.Q4KBlockLen*2 + 2*kern.Q8PanelLen(in) + 2*kern.Q4BlockLen*16 + kern.Q6KBlockLen*2; w.Bytes() != want {
			t.Errorf("%d bytes, want %d", w.Bytes(), want)
		}
		asQ8, _, _ := run(compute.Q8, n, plain)
		if alone, _, _ := run(compute.Q4, n, plain); !slices.Equal(alone, asQ8) {
			t.Errorf("%d rows: a matrix of F32 is not what it is in Q8", n)
		}
		eight, _, _ := run(compute.Q8, n, b)
		if four, _, _ := run(compute.Q4, n, b); !slices.Equal(four, eight) {
			t.Errorf("%d rows: blocks without minima have other bits than in Q8", n)
		}
		// The border between two kinds lies in a panel: rows 32 to 63 are in Q8.
		some := a
		some.Rows, some.Data = 40, a.Data[:40*in/256*blocks4Len]
		var done atomic.Int64
		some.Done = func(lo, hi int) error { done.Add(int64(hi - lo)); return nil }
		cut, _, _ := run(compute.Q4, n, some, b)
		if int(done.Load()) != len(some.Data) {
			t.Errorf("%d bytes are reported as packed, want %d", done.Load(), len(some.Data))
		}
		some.Done = nil
		kept, _, _ := run(compute.Q4, n, some)
		rounded, _, _ := run(compute.Q8, n, some)
		for row := range n {
			got := cut[row*104:][:104]
			if !slices.Equal(got[:32], kept[row*40:][:32]) || !slices.Equal(got[32:40], rounded[row*40+32:][:8]) || !slices.Equal(got[40:], four(eight, row)) {
				t.Fatalf("%d rows: a border in a panel changes what is beside it", n)
			}
		}
	}
}

func four(y []float32, row int) []float32 { return y[row*64:][:64] }

// Rows are what they are in a matrix of whole panels, for any number of rows, and whatever the memory of the last panel held.
func TestALastPanelOf6BitsMayBeShort(t *testing.T) {
	const in, n = 512, 19
	r := rand.New(rand.NewPCG(53, 1))
	whole := random4(r, 128, in, compute.KeptQ6_K)
	x := make([]float32, n*in)
	for i := range x {
		x[i] = float32(r.NormFloat64())
	}
	for _, threads := range []int{1, 2, 3} {
		d, err := cpu.New(cpu.Config{Class: kern.Best(), Threads: threads, ActBits: 16})
		if err != nil {
			t.Fatal(err)
		}
		q := d.Queue()
		run := func(rows int) []float32 {
			m := whole
			m.Rows, m.Data = rows, m.Data[:rows*in/256*blocks4Len]
			w, err := d.Pack(compute.Q4, m)
			if err != nil {
				t.Fatal(err)
			}
			src, err1 := d.Alloc(compute.F32, n, in)
			dst, err2 := d.Alloc(compute.F32, n, rows)
			if err1 != nil || err2 != nil {
				t.Fatal(err1, err2)
			}
			q.Write(src, x)
			q.Linear(dst, src, &compute.Linear{W: w}, compute.Store, n)
			y := make([]float32, n*rows)
			q.Read(y, dst, 0)
			return y
		}
		want := run(whole.Rows)
		for _, rows := range []int{1, 31, 33, 63, 97} {
			got := run(rows)
			for i := range n {
				if !slices.Equal(got[i*rows:][:rows], want[i*whole.Rows:][:rows]) {
					t.Errorf("%d threads, %d outputs: row %d is not that of whole panels", threads, rows, i)
				}
			}
		}
		d.Close()
	}
}

// Zeros, infinite and NaN scales reach the products of their own output alone.
func TestScalesThatAreNotNumbersStayInTheirOutput(t *testing.T) {
	const in = 256
	r := rand.New(rand.NewPCG(52, 1))
	for _, kind := range []compute.Kept{compute.KeptQ4_0, compute.KeptQ4_K, compute.KeptQ6_K} {
		for _, class := range classes() {
			t.Run(fmt.Sprint(class, kind), func(t *testing.T) {
				d := device(t, class, 1)
				defer d.Close()
				m := random4(r, 32, in, kind)
				bad := m
				bad.Data = slices.Clone(m.Data)
				binary.LittleEndian.PutUint16(bad.Data[3*blocks4Len+256:], 0x7e00)  // NaN
				binary.LittleEndian.PutUint16(bad.Data[20*blocks4Len+256:], 0x7c00) // +Inf
				var got [2][]float32
				for i, m := range []compute.Matrix{m, bad} {
					w, err := d.Pack(compute.Q4, m)
					if err != nil {
						t.Fatal(err)
					}
					src, err := d.Alloc(compute.F32, 1, in)
					if err != nil {
						t.Fatal(err)
					}
					dst, err := d.Alloc(compute.F32, 1, 32)
					if err != nil {
						t.Fatal(err)
					}
					x := make([]float32, in)
					for i := range x {
						x[i] = float32(i%7) - 3
					}
					q := d.Queue()
					q.Write(src, x)
					q.Linear(dst, src, &compute.Linear{W: w}, compute.Store, 1)
					got[i] = make([]float32, 32)
					q.Read(got[i], dst, 0)
				}
				for j, v := range got[1] {
					if j == 3 || j == 20 {
						if !math.IsNaN(float64(v)) && !math.IsInf(float64(v), 0) {
							t.Errorf("output %d is %v", j, v)
						}
					} else if v != got[0][j] {
						t.Errorf("output %d is %v, want %v", j, v, got[0][j])
					}
				}
			})
		}
	}
}
