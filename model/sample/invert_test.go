package sample

import (
	"math"
	"math/rand/v2"
	"testing"
)

// Invert returns the first token whose cumulative mass exceeds the quantile. Masses are multiples of a power of
// two, so that sums are exact in any order.
func TestInvertIsTheQuantile(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 15))
	for trial := range 3000 {
		d := make([]float64, 1+r.IntN(4*Bin))
		total, last := 0.0, int32(0)
		for i := range d {
			if r.IntN(1+trial%40) == 0 { // from all tokens to few
				d[i] = float64(1+r.IntN(1<<10)) / (1 << 20)
				total, last = total+d[i], int32(i)
			}
		}
		for _, u := range []float64{0, 1 - 0x1p-53, r.Float64(), r.Float64()} {
			want, left := last, u*total
			for i, p := range d {
				if left -= p; left < 0 {
					want = int32(i)
					break
				}
			}
			got := Invert(d, u)
			if got != want {
				t.Fatalf("trial %d: token %d of %d at %v, want %d", trial, got, len(d), u, want)
			}
			if total > 0 && d[got] == 0 {
				t.Fatalf("trial %d: token %d at %v has no mass", trial, got, u)
			}
		}
	}
	// Sums that round leave the quantile beyond the last mass.
	for _, n := range []int{1, Bin - 1, Bin, Bin + 1, 5*Bin + 3} {
		d := make([]float64, n+2*Bin)
		for i := range n {
			d[i] = 1.0 / 3
		}
		if got := Invert(d, math.Nextafter(1, 0)); int(got) != n-1 {
			t.Errorf("the end of %d equal masses is token %d", n, got)
		}
	}
}
