package computetest

import (
	"encoding/binary"
	"fmt"
	"math"

	"talf/compute"
)

// A keptReader reads blocks of 256 elements: an integer a byte, then scales as compute.Kept has them.
type keptReader struct {
	kind   compute.Kept
	scales int // bytes of them
	most   int // of integers, exclusive
	// value returns that of integer q which is element i, with the float16 at byte k as half(k).
	value func(s []byte, half func(k int) float64, i int, q byte) float64
	eight func(q byte) (int8, bool) // the int8 of Q8 with the same scale, or false
}

// Sixteen values of each table.
var (
	levels = [16]int8{-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113}
	fp4    = [16]int8{0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12}
)

// keptReaders are of all kinds. Scales of 32 elements are 16 bytes for a float16, and those of two 32.
func keptReaders() []*keptReader {
	never := func(byte) (int8, bool) { return 0, false }
	minimum := func(_ []byte, half func(int) float64, i int, q byte) float64 {
		return half(i/32*4)*float64(q) + half(i/32*4+2)
	}
	shared := func(s []byte, half func(int) float64, i int, q byte) float64 {
		return half(0)*float64(s[4+i/32])*float64(q) - half(2)*float64(s[12+i/32])
	}
	centred := func(by int) *keptReader {
		return &keptReader{
			scales: 16, most: 2 * by,
			value: func(_ []byte, half func(int) float64, i int, q byte) float64 {
				return half(i/32*2) * (float64(q) - float64(by))
			},
			eight: func(q byte) (int8, bool) { return int8(q) - int8(by), true },
		}
	}
	q4, q5 := centred(8), centred(16)
	q4.kind, q5.kind = compute.KeptQ4_0, compute.KeptQ5_0
	return []*keptReader{
		q4, q5,
		{compute.KeptQ4_1, 32, 16, minimum, never},
		{compute.KeptQ5_1, 32, 32, minimum, never},
		{compute.KeptQ4_K, 20, 16, shared, never},
		{compute.KeptQ5_K, 20, 32, shared, never},
		{compute.KeptQ6_K, 18, 64, func(s []byte, half func(int) float64, i int, q byte) float64 {
			return half(0) * float64(int8(s[2+i/16])) * (float64(q) - 32)
		}, never},
		{compute.KeptIQ4_NL, 16, 16, func(_ []byte, half func(int) float64, i int, q byte) float64 {
			return half(i/32*2) * float64(levels[q])
		}, func(q byte) (int8, bool) { return levels[q], true }},
		{compute.KeptIQ4_XS, 10, 16, func(s []byte, half func(int) float64, i int, q byte) float64 {
			return half(0) * float64(int8(s[2+i/32])) * float64(levels[q])
		}, never},
		{compute.KeptMXFP4, 16, 16, func(s []byte, _ func(int) float64, i int, q byte) float64 {
			return float64(math.Float32frombits(uint32(binary.LittleEndian.Uint16(s[i/32*2:]))<<16)) * float64(fp4[q])
		}, never},
	}
}

func (*keptReader) Elements() int        { return 256 }
func (r *keptReader) Bytes() int         { return 256 + r.scales }
func (r *keptReader) Kept() compute.Kept { return r.kind }

func (r *keptReader) Float32s(dst []float32, src []byte) {
	for i := range dst {
		b := src[i/256*r.Bytes():][:r.Bytes()]
		s := b[256:]
		half := func(k int) float64 { return halfOf(binary.LittleEndian.Uint16(s[k:])) }
		dst[i] = float32(r.value(s, half, i%256, b[i%256]))
	}
}

func (r *keptReader) Q8(q, d, src []byte) bool {
	for ; len(src) > 0; q, d, src = q[256:], d[16:], src[r.Bytes():] {
		for i, v := range src[:256] {
			x, ok := r.eight(v)
			if !ok {
				return false
			}
			q[i] = byte(x)
		}
		copy(d[:16], src[256:])
	}
	return true
}

func (r *keptReader) Integers(q, scales, src []byte) {
	for ; len(src) > 0; q, scales, src = q[256:], scales[r.scales:], src[r.Bytes():] {
		copy(q[:256], src)
		copy(scales[:r.scales], src[256:])
	}
}

// halfOf widens a float16 that is an ordinary number.
func halfOf(h uint16) float64 {
	x := math.Ldexp(1+float64(h&1023)/1024, int(h>>10&31)-15)
	if h>>15 == 1 {
		return -x
	}
	return x
}

// blocks returns a random matrix.
func (r *keptReader) blocks(b *bench, rows, cols int) compute.Matrix {
	m := compute.Matrix{Rows: rows, Cols: cols, Type: compute.Blocks, Block: r}
	for range rows * cols / 256 {
		block := make([]byte, r.Bytes())
		for i := range 256 {
			block[i] = byte(b.r.IntN(r.most))
		}
		s := block[256:]
		halves := len(s)
		switch r.kind {
		case compute.KeptQ4_K, compute.KeptQ5_K:
			halves = 4
		case compute.KeptQ6_K, compute.KeptIQ4_XS:
			halves = 2
		}
		for i := range s {
			s[i] = byte(b.r.IntN(64)) // the kinds' scales of six bits
		}
		for i := 0; i < halves; i += 2 {
			h := uint16(b.r.IntN(2)<<15 | (8+b.r.IntN(4))<<10 | b.r.IntN(1024))
			if r.kind == compute.KeptMXFP4 {
				h = uint16(120+b.r.IntN(8)) << 7
			}
			binary.LittleEndian.PutUint16(s[i:], h)
		}
		m.Data = append(m.Data, block...)
	}
	return m
}

// keptAgrees compares weights in blocks that the device keeps with what they stand for.
func keptAgrees(b *bench) {
	keeps := b.dev.Abilities().Keeps
	if keeps == nil {
		b.Skip("the device keeps no blocks")
	}
	types := []compute.DType{compute.Q4}
	if b.dev.Abilities().Stored {
		types = append(types, compute.Stored)
	}
	const in, n = 512, 70
	values := b.random(n * in)
	x := b.buffer(values, n, in)
	for _, reader := range keptReaders() {
		if !keeps(reader.kind) {
			continue
		}
		for _, out := range []int{1, 70} {
			m := reader.blocks(b, out, in)
			w := make([]float32, out*in)
			reader.Float32s(w, m.Data)
			b.tableAgrees(fmt.Sprintf("a table of %d rows of %v", out, reader.kind), m, w)
			for _, as := range types {
				what := fmt.Sprintf("%d rows of %v as %v", out, reader.kind, as)
				p, err := b.dev.Pack(as, m)
				if err != nil {
					b.Fatalf("%s: %v", what, err)
				}
				table, ids := b.alloc(compute.F32, out, in), make([]int32, out)
				for i := range ids {
					ids[i] = int32(i)
				}
				b.q.Embed(table, 0, p, ids)
				b.same(what+", rows", b.read(table, out*in), w)
				product := func(p compute.Weight, rows int) []float32 {
					y := b.alloc(compute.F32, rows, out)
					b.q.Linear(y, x, &compute.Linear{W: p}, compute.Store, rows)
					return b.read(y, rows*out)
				}
				want := make([]float64, n*out)
				for r := range n {
					for o := range out {
						for i := range in {
							want[r*out+o] += float64(values[r*in+i]) * float64(w[o*in+i])
						}
					}
				}
				all := product(p, n)
				b.near(what, all, want, 2e-2)
				for _, rows := range []int{1, 5, 17} {
					b.same(fmt.Sprintf("%s, the first %d of %d", what, rows, n), product(p, rows), all[:rows*out])
				}
				if _, ok := reader.eight(0); !ok {
					continue
				}
				if q8, err := b.dev.Pack(compute.Q8, m); err != nil {
					b.Fatal(err)
				} else if round := b.dev.Abilities().Rounding; round == nil || round(compute.Q8) == round(as) {
					b.same(what+", as Q8", all, product(q8, n))
				}
			}
		}
	}
}

// tableAgrees compares rows of a matrix that stays where it is with their values, if the device has such tables.
func (b *bench) tableAgrees(what string, m compute.Matrix, want []float32) {
	table := b.dev.Abilities().Table
	if table == nil {
		return
	}
	w, err := table(m)
	if err != nil {
		b.Fatalf("%s: %v", what, err)
	}
	if w.Out() != m.Rows || w.In() != m.Cols || w.Bytes() != len(m.Data) {
		b.Errorf("%s is [%d][%d] of %d bytes", what, w.Out(), w.In(), w.Bytes())
	}
	got, ids := b.alloc(compute.F32, m.Rows, m.Cols), make([]int32, m.Rows)
	for i := range ids {
		ids[i] = int32(m.Rows - 1 - i)
	}
	b.q.Embed(got, 0, w, ids)
	back := b.read(got, len(want))
	for i, id := range ids {
		b.same(fmt.Sprintf("%s, row %d", what, id), back[i*m.Cols:][:m.Cols], want[int(id)*m.Cols:][:m.Cols])
	}
	m.Data = m.Data[1:]
	if _, err := table(m); err == nil {
		b.Errorf("%s without a byte is none", what)
	}
	if _, err := table(compute.Matrix{Rows: 1, Cols: 1, Type: compute.F32, Data: make([]byte, 4)}); err == nil {
		b.Error("a table of float32s is none")
	}
}

// storedAgrees compares floating-point numbers as Stored, beside others and beside blocks, with the same as F32.
func storedAgrees(b *bench) {
	if !b.dev.Abilities().Stored {
		b.Skip("the device has no weights as Stored")
	}
	const in, n = 256, 67
	x := b.buffer(b.random(n*in), n, in)
	product := func(l *compute.Linear, rows int) []float32 {
		y := b.alloc(compute.F32, rows, l.W.Out())
		b.q.Linear(y, x, l, compute.Store, rows)
		return b.read(y, rows*l.W.Out())
	}
	pack := func(as compute.DType, parts ...compute.Matrix) compute.Weight {
		b.Helper()
		w, err := b.dev.Pack(as, parts...)
		if err != nil {
			b.Fatal(err)
		}
		return w
	}
	blocks := keptReaders()[0].blocks(b, 40, in)
	var floats []compute.Matrix
	for _, t := range []compute.DType{compute.F32, compute.F16, compute.BF16} {
		values := b.random(40 * in)
		for i := range values { // numbers that all types have
			values[i] = float32(math.Round(float64(values[i]*32)) / 64)
		}
		floats = append(floats, matrix(values, 40, in, t))
	}
	for _, rows := range []int{1, 5, n} {
		for _, m := range floats {
			want := product(&compute.Linear{W: pack(compute.F32, m)}, rows)
			b.same(fmt.Sprintf("%v, %d rows", m.Type, rows), product(&compute.Linear{W: pack(compute.Stored, m)}, rows), want)
			// Whatever is beside it: its first panel, and all of it where none holds outputs of two kinds.
			for _, other := range append(floats, blocks) {
				mixed := product(&compute.Linear{W: pack(compute.Stored, m, other)}, rows)
				for r := range rows {
					some := 32
					if other.Type != compute.Blocks {
						some = 40
					}
					b.same(fmt.Sprintf("%v beside %v, row %d of %d", m.Type, other.Type, r, rows), mixed[r*80:][:some], want[r*40:][:some])
				}
				gated := product(&compute.Linear{W: pack(compute.Stored, m), Up: pack(compute.Stored, other)}, rows)
				up := product(&compute.Linear{W: pack(compute.Stored, other)}, rows)
				for i, v := range up {
					up[i] = want[i] * v
				}
				b.same(fmt.Sprintf("%v times %v, %d rows", m.Type, other.Type, rows), gated, up)
			}
		}
	}
}
