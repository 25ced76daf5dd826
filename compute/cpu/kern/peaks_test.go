package kern

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

func TestPeaksAreTheMaximaOfRows(t *testing.T) {
	for _, c := range Available() {
		f, err := For(c)
		if err != nil {
			t.Fatal(err)
		}
		r := rand.New(rand.NewPCG(21, 22))
		for name, next := range sources(r) {
			for rows := range 9 {
				ldx, ldd := Panel+r.IntN(40), 1+r.IntN(5)
				x, dst := newGuarded(r, rows*ldx), newGuarded(r, rows*ldd)
				for i := range x.x {
					x.x[i] = next()
				}
				for i := range dst.x {
					dst.x[i] = canary
				}
				f.Peaks(dst.x, ldd, x.x, ldx, rows)
				what := fmt.Sprintf("%v Peaks, %s, %d rows %d and %d apart", c, name, rows, ldx, ldd)
				dst.check(t, what)
				for i, v := range dst.x {
					want := float32(canary)
					if i%ldd == 0 {
						want = portable.Max(x.x[i/ldd*ldx:][:Panel])
					}
					if !sameBits(v, want) {
						t.Fatalf("%s: element %d is %v, want %v", what, i, v, want)
					}
				}
			}
		}
	}
}
