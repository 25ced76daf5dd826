//go:build gpu && linux && cgo

package cuda_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"talf/compute"
)

// On the emulated device benchmarks use the smaller of two sizes: there it only matters that
// they run.
func size(real, small int) int {
	if emulated() {
		return small
	}
	return real
}

// repeats is how many operations a benchmark waits for at a time.
func repeats() int { return size(32, 1) }

// sync waits for what a benchmark queued.
func sync(b *testing.B, q compute.Queue) {
	b.Helper()
	if err := q.Sync(b.Context()); err != nil {
		b.Fatal(err)
	}
}

func alloc(b *testing.B, d compute.Device, t compute.DType, shape ...int) compute.Buffer {
	b.Helper()
	x, err := d.Alloc(t, shape...)
	if err != nil {
		b.Fatal(err)
	}
	return x
}

// BenchmarkCopy moves memory, reading and writing: the weight bytes per second of
// BenchmarkLinear are compared with it.
func BenchmarkCopy(b *testing.B) {
	d := device(b)
	defer d.Close()
	rows, width := size(4096, 4), size(1<<16, 64)
	q, dst, src := d.Queue(), alloc(b, d, compute.F32, rows, width), alloc(b, d, compute.F32, rows, width)
	order := make([]int32, rows)
	for i := range order {
		order[i] = int32(i)
	}
	b.SetBytes(int64(2 * 4 * rows * width))
	for b.Loop() {
		q.Gather(dst, 0, 0, src, order)
		sync(b, q)
	}
}

// BenchmarkLinear multiplies matrices that do not fit into a cache together, one after another;
// bytes are those of weights.
func BenchmarkLinear(b *testing.B) {
	for _, s := range []struct{ out, in int }{{4096, 4096}, {14336, 4096}, {4096, 14336}} {
		for _, as := range []string{"BF16", "Q8", "F32", "Q4_0", "Q4_K", "Q6_K"} {
			out, in := size(s.out, s.out/64), size(s.in, 256)
			d := device(b)
			r := rand.New(rand.NewPCG(1, 2))
			t, ok := map[string]compute.DType{"BF16": compute.BF16, "Q8": compute.Q8, "F32": compute.F32}[as]
			m := compute.Matrix{Rows: out, Cols: in, Type: compute.BF16}
			if !ok {
				t, m = compute.Q4, fourBlocks(r, as, out, in)
			} else {
				for range out * in {
					m.Data = binary.LittleEndian.AppendUint16(m.Data, uint16(math.Float32bits(float32(r.NormFloat64()))>>16))
				}
			}
			var all []compute.Linear
			for n := 0; n == 0 || n < size(512<<20, 1); {
				w, err := d.Pack(t, m)
				if err != nil {
					b.Fatal(err)
				}
				all = append(all, compute.Linear{W: w})
				n += w.Bytes()
			}
			for _, rows := range []int{1, 8, 16, 32, 64, 256} {
				if emulated() && rows > 8 {
					continue
				}
				b.Run(fmt.Sprintf("%v/%dx%d/%d", as, s.out, s.in, rows), func(b *testing.B) {
					q, x, y := d.Queue(), alloc(b, d, compute.F32, rows, in), alloc(b, d, compute.F32, rows, out)
					b.SetBytes(int64(repeats() * all[0].W.Bytes()))
					for b.Loop() {
						for i := range repeats() {
							q.Linear(y, x, &all[i%len(all)], compute.Store, rows)
						}
						sync(b, q)
					}
				})
			}
			if err := d.Close(); err != nil {
				b.Fatal(err)
			}
		}
	}
}

// BenchmarkAttend runs a chain of rows after a prefix, 32 heads of 128 elements over 8 of keys;
// bytes are those of the prefix's keys and values.
func BenchmarkAttend(b *testing.B) {
	heads, kvHeads, dim := size(32, 4), size(8, 2), size(128, 16)
	for _, prefix := range []int{256, 4096, 32768} {
		for _, rows := range []int{1, 16, 64} {
			if emulated() && prefix*rows > 256 {
				continue
			}
			b.Run(fmt.Sprintf("%d+%d", prefix, rows), func(b *testing.B) {
				d := device(b)
				defer d.Close()
				kv, err := d.NewKV(compute.KVConfig{Layers: 1, KVHeads: kvHeads, HeadDim: dim, Type: compute.BF16})
				if err != nil {
					b.Fatal(err)
				}
				blocks := (prefix + rows + compute.BlockLen - 1) / compute.BlockLen
				if err := kv.Grow(blocks); err != nil {
					b.Fatal(err)
				}
				words := (rows + 63) / 64
				sp := compute.Span{N: rows, Prefix: prefix, Anc: make([]uint64, rows*words), Stride: words}
				s := &compute.Step{Rows: rows, Heads: heads}
				for i := range blocks {
					sp.Blocks = append(sp.Blocks, int32(i))
				}
				for i := range rows {
					s.Pos, s.Slot = append(s.Pos, int32(i)), append(s.Slot, int32(prefix+i))
					for a := range i + 1 {
						sp.Anc[i*words+a/64] |= 1 << (a % 64)
					}
				}
				sp.Own = s.Slot
				s.Spans = []compute.Span{sp}
				q := d.Queue()
				qkv, dst := alloc(b, d, compute.F32, rows, (heads+2*kvHeads)*dim), alloc(b, d, compute.F32, rows, heads*dim)
				a := &compute.Attention{Rope: alloc(b, d, compute.F32, rows, dim), RotDim: dim}
				b.SetBytes(int64(repeats() * 2 * 2 * prefix * kvHeads * dim))
				for b.Loop() {
					for range repeats() {
						q.Attend(dst, qkv, kv, 0, a, s)
					}
					sync(b, q)
				}
			})
		}
	}
}
