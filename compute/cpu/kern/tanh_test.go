package kern

import (
	"math"
	"testing"
)

func TestGELUTanhIsWithinItsBound(t *testing.T) {
	for _, class := range Available() {
		f, err := For(class)
		if err != nil {
			t.Fatal(err)
		}
		var x []float32
		for v := float32(-12); v < 12; v += 1.0 / 257 {
			x = append(x, v)
		}
		y := make([]float32, len(x))
		f.GELUTanh(y, x, make([]float32, len(x)))
		for i, v := range x {
			e := float64(v)
			want := e / 2 * (1 + math.Tanh(math.Sqrt(2/math.Pi)*(e+0.044715*e*e*e)))
			if d := math.Abs(float64(y[i]) - want); !(d <= 3e-7*max(1, math.Abs(want))) {
				t.Fatalf("%v: GELUTanh(%v) = %v, want %v", class, v, y[i], want)
			}
		}
		inf := float32(math.Inf(1))
		ends := []float32{0, inf, 1e30, -1e30, math.MaxFloat32, -math.MaxFloat32}
		want := []float32{0, inf, 1e30, 0, math.MaxFloat32, 0}
		f.GELUTanh(ends, ends, make([]float32, len(ends)))
		for i, w := range want {
			if !(math.Abs(float64(ends[i]-w)) <= 3e-7*math.Abs(float64(w))) && ends[i] != w {
				t.Errorf("%v: GELUTanh gives %v, want %v", class, ends[i], w)
			}
		}
	}
}

func TestTanhCapIsWithinItsBound(t *testing.T) {
	for _, class := range Available() {
		f, err := For(class)
		if err != nil {
			t.Fatal(err)
		}
		for _, limit := range []float32{1, 20, 50} {
			var x []float32
			for v := float32(-4); v < 4; v += 1.0 / 509 {
				x = append(x, v*limit)
			}
			y := append([]float32(nil), x...)
			f.TanhCap(y, 0.5, limit, make([]float32, len(y)))
			for i, v := range x {
				want := float64(limit) * math.Tanh(0.5*float64(v)/float64(limit))
				if d := math.Abs(float64(y[i]) - want); d > 3e-7*float64(limit) {
					t.Fatalf("%v: TanhCap of %v to %v is %v, want %v", class, v, limit, y[i], want)
				}
			}
		}
		inf, nan := float32(math.Inf(1)), float32(math.NaN())
		y := []float32{inf, -inf, math.MaxFloat32, nan, 0}
		f.TanhCap(y, 1, 30, make([]float32, len(y)))
		if y[0] != 30 || y[1] != -30 || y[2] != 30 || y[3] == y[3] || y[4] != 0 {
			t.Errorf("%v: TanhCap of infinities and NaN to 30 gives %v", class, y)
		}
	}
}
