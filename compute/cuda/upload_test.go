//go:build gpu && linux && cgo

package cuda_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"talf/compute"
	"talf/compute/cuda"
)

// TestProductsOfUploads writes more than a piece at a time, and multiplies it: every bit arrives, floats that bfloat16 has as
// half of their bytes, whether or not those before them are such, and memory on its way is not used again too early. If the last
// float is none that bfloat16 has, there are no such bytes.
func TestProductsOfUploads(t *testing.T) {
	const piece = 1 << 20 // floats
	sizes := []struct{ n, odd, want int }{
		{70_000, -1, 140_000},
		{70_001, 5, 280_016},
		{70_001, 70_000, 0},
		{70_003, -1, 140_016},
		{3*piece + 5, piece + 7, 2*piece + 4*piece + 2*piece + 16},
		{24 * piece, 5, 0}, // more than all memory that uploads have
	}
	if *runPTX || testing.Short() {
		sizes = sizes[:4]
	}
	d := device(t)
	defer d.Close()
	q := d.Queue()
	r := rand.New(rand.NewPCG(4, 2))
	var all []compute.Buffer
	var want [][]float32
	for _, s := range sizes {
		x := make([]float32, s.n)
		for i := range x {
			x[i] = math.Float32frombits(r.Uint32() &^ 0xffff) // NaN, infinities and numbers below the normal ones, too
		}
		if s.odd >= 0 {
			x[s.odd] = math.Float32frombits(0x3f800001)
		}
		b, err := d.Alloc(compute.F32, s.n)
		if err != nil {
			t.Fatal(err)
		}
		if err := q.Sync(t.Context()); err != nil {
			t.Fatal(err)
		}
		q.Write(b, x)
		if got := cuda.Uploading(q); s.n < 24*piece && got != s.want {
			t.Errorf("%d floats: %d bytes, want %d", s.n, got, s.want)
		}
		q.Write(b, x) // behind the first: it goes elsewhere
		clone := append([]float32(nil), x...)
		clear(x) // the caller's memory is free
		all, want = append(all, b), append(want, clone)
	}
	for i, b := range all {
		got := make([]float32, len(want[i]))
		q.Read(got, b, 0)
		if err := q.Sync(t.Context()); err != nil {
			t.Fatal(err)
		}
		if !sameBits(got, want[i]) {
			t.Errorf("%d floats: other bits arrive", len(got))
		}
	}
}
