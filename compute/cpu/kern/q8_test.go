package kern

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"testing"
)

// Every weight of a packed matrix is within half of its block's scale of the original, whatever
// the magnitude, and is where the format puts it.
func TestPackedQ8IsNearTheWeights(t *testing.T) {
	r := rand.New(rand.NewPCG(31, 1))
	for range 200 {
		outs, k, pad := 1+r.IntN(70), 1+r.IntN(100), r.IntN(4)
		scale := float32(math.Ldexp(1, -40+r.IntN(62)))
		w := fill(r, outs*(k+pad))
		for i := range w {
			w[i] *= scale
		}
		b := make([]byte, Q8Len(outs, k))
		for i := range b {
			b[i] = 0xaa
		}
		PackQ8(b, w, outs, k, k+pad)
		row := make([]float32, k)
		for o := range (outs + Panel - 1) / Panel * Panel {
			UnpackQ8(row, b, o)
			for i, got := range row {
				u := b[o/Panel*Q8PanelLen(k)+i/Q8Block*Q8BlockLen:]
				d := fromF16(binary.LittleEndian.Uint16(u[2*(o%Panel):]))
				q := int8(u[2*Panel+i%Q8Block/4*4*Panel+o%Panel*4+i%4])
				if float32(q)*d != got {
					t.Fatalf("output %d, k=%d: %v is not %d·%v", o, i, got, q, d)
				}
				if o >= outs {
					if got != 0 {
						t.Fatalf("output %d of %d is not zero", o, outs)
					}
					continue
				}
				want := w[o*(k+pad)+i]
				// w/d is rounded twice before it is rounded to an integer: 127·2⁻²³.
				if e := math.Abs(float64(want) - float64(got)); e > float64(d)*(0.5+127*0x1p-23) {
					t.Fatalf("output %d, k=%d: %v becomes %v, scale %v", o, i, want, got, d)
				}
				if a := float64(absMax(w[o*(k+pad)+i/Q8Block*Q8Block:][:min(Q8Block, k-i/Q8Block*Q8Block)])); a > 0 &&
					(float64(d) < a/127.5 || float64(d) > a/127*(1+0x1p-10)+0x1p-24) {
					t.Fatalf("output %d, k=%d: scale %v for a largest weight of %v", o, i, d, a)
				}
			}
		}
	}
}

func TestScalesOfExtremeWeights(t *testing.T) {
	for _, c := range []struct {
		amax float32
		want uint16
	}{
		{0, 0},
		{math.SmallestNonzeroFloat32, 1},
		{127.5 * 0x1p-24, 1},
		{127.51 * 0x1p-24, 2},
		{127, 0x3c00},
		{127 * 65504, 0x7bff},
		{1e30, 0x7bff},
		{math.MaxFloat32, 0x7bff},
		{float32(math.Inf(1)), 0x7e00},
		{float32(math.NaN()), 0x7e00},
	} {
		if got, _ := q8Scale(c.amax); got != c.want {
			t.Errorf("scale of largest weight %v is %#04x, want %#04x", c.amax, got, c.want)
		}
	}
}

func TestEveryFiniteHalfIsItsOwnNearest(t *testing.T) {
	for u := range uint16(0x7c00) {
		x := fromF16(u)
		if got := f16(x); got != u {
			t.Fatalf("f16(fromF16(%#04x)) = %#04x", u, got)
		}
		if u == 0x7bff {
			continue
		}
		mid := (x + fromF16(u+1)) / 2
		for d, want := range map[float32]uint16{
			mid:                            u + u&1,
			math.Nextafter32(mid, 0):       u,
			math.Nextafter32(mid, mid*2+1): u + 1,
		} {
			if got := f16(d); got != want {
				t.Fatalf("f16(%v) = %#04x, want %#04x", d, got, want)
			}
		}
	}
}
