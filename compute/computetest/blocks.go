package computetest

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"

	"talf/compute"
)

// blocksOf64 reads blocks of two float16 scales and two times 32 int8s.
type blocksOf64 struct{ exact bool } // whether Q8 keeps them

func (blocksOf64) Elements() int { return 64 }
func (blocksOf64) Bytes() int    { return 68 }

func (blocksOf64) Float32s(dst []float32, src []byte) {
	for i := range dst {
		block := src[i/64*68:]
		dst[i] = scaleOf(block[i%64/32*2:]) * float32(int8(block[4+i%64]))
	}
}

func (r blocksOf64) Q8(q, d, src []byte) bool {
	for i := 0; r.exact && i < len(src)/68; i++ {
		copy(d[4*i:], src[68*i:][:4])
		copy(q[64*i:], src[68*i+4:][:64])
	}
	return r.exact
}

func (blocksOf64) Kept() compute.Kept             { return compute.NotKept }
func (blocksOf64) Integers(_, _ []byte, _ []byte) { panic("not kept") }

// scaleOf reads one of the powers of two that blocksAgree writes as a float16.
func scaleOf(b []byte) float32 {
	return 1 / float32(int(1)<<(15-binary.LittleEndian.Uint16(b)>>10))
}

// blocksAgree compares the bits of products with weights in blocks and with the same weights
// stored as what they are packed as.
func blocksAgree(b *bench) {
	const in, n = 320, 5
	x := b.buffer(b.random(n*in), n, in)
	product := func(as compute.DType, parts ...compute.Matrix) []float32 {
		b.Helper()
		w, err := b.dev.Pack(as, parts...)
		if err != nil {
			b.Fatal(err)
		}
		y := b.alloc(compute.F32, n, w.Out())
		b.q.Linear(y, x, &compute.Linear{W: w}, compute.Store, n)
		return b.read(y, n*w.Out())
	}
	for _, out := range []int{1, 70} {
		m := compute.Matrix{Rows: out, Cols: in, Type: compute.Blocks}
		q8 := compute.Matrix{Rows: out, Cols: in, Type: compute.Q8}
		for range out * in / 64 {
			var block [68]byte
			for i := range 2 {
				binary.LittleEndian.PutUint16(block[2*i:], uint16(5+b.r.IntN(6))<<10)
			}
			for i := range 64 {
				block[4+i] = byte(b.r.IntN(256))
			}
			m.Data = append(m.Data, block[:]...)
			q8.Scales, q8.Data = append(q8.Scales, block[:4]...), append(q8.Data, block[4:]...)
		}
		values := make([]float32, out*in)
		blocksOf64{}.Float32s(values, m.Data)
		f32, other := matrix(values, out, in, compute.F32), matrix(b.random(30*in), 30, in, compute.F32)
		for _, exact := range []bool{true, false} {
			m.Block = blocksOf64{exact}
			for _, as := range b.formats() {
				stored := f32
				if as == compute.Q8 && exact {
					stored = q8
				}
				what := fmt.Sprintf("%d rows of blocks as %v, exact in q8: %v", out, as, exact)
				want := product(as, stored)
				b.same(what, product(as, m), want)
				// Stacked with others, in front and behind.
				var done atomic.Int64
				m.Done = func(lo, hi int) error { done.Add(int64(hi - lo)); return nil }
				got, beside := product(as, other, m, other), product(as, other)
				m.Done = nil
				for r := range n {
					row := got[r*(60+out):][:60+out]
					b.same(what+", stacked", row[30:30+out], want[r*out:][:out])
					b.same(what+", what is stacked before", row[:30], beside[r*30:][:30])
					b.same(what+", what is stacked behind", row[30+out:], beside[r*30:][:30])
				}
				if int(done.Load()) != len(m.Data) {
					b.Errorf("%s: %d bytes are reported as packed, want %d", what, done.Load(), len(m.Data))
				}
			}
		}
		// What reports progress may end it.
		many := m
		many.Rows, many.Data = 64*out, bytes.Repeat(m.Data, 64)
		var calls atomic.Int64
		stop := errors.New("planted")
		many.Done = func(int, int) error { calls.Add(1); return stop }
		if w, err := b.dev.Pack(compute.Q8, many); !errors.Is(err, stop) || w != nil {
			b.Errorf("packing that Done ends returns %v, %v", w, err)
		}
		if n := calls.Load(); n > int64(2*runtime.GOMAXPROCS(0)) { // of one panel a worker, or those of a piece of a device's
			b.Errorf("%d panels were packed after the end", n)
		}
		for what, bad := range map[string]compute.Matrix{
			"nothing reads": {Rows: out, Cols: in, Type: compute.Blocks, Data: m.Data},
			"a byte short":  {Rows: out, Cols: in, Type: compute.Blocks, Data: m.Data[1:], Block: m.Block},
			"half a block":  {Rows: out, Cols: in - 32, Type: compute.Blocks, Data: m.Data, Block: m.Block},
		} {
			if _, err := b.dev.Pack(compute.Q8, bad); err == nil {
				b.Errorf("packs blocks: %s", what)
			}
		}
	}
}
