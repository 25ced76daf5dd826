package cpu_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"talf/compute"
	"talf/compute/cpu"
)

// An LM head that learns is packed where it is multiplied, and in chunks of more rows than a weight: both have the same
// bits, of its gradient too.
func TestSoftCEOfRowsHasTheBitsOfAWeight(t *testing.T) {
	const h, k = 256, 3
	r := rand.New(rand.NewPCG(3, 3))
	d := device(t, cpu.Default().Class, 2)
	defer d.Close()
	ops := d.Queue().Abilities().Train
	random := func(n int) []float32 {
		f := make([]float32, n)
		for i := range f {
			f[i] = float32(r.NormFloat64())
		}
		return f
	}
	for _, s := range []struct{ n, v int }{
		{3, 4097},
		{70, 8224},
		{260, 16400}, // chunks of 240 rows with a weight, 256 without
	} {
		raw, x := random(s.v*h), random(s.n*h)
		w, err := d.Pack(compute.F32, (&matrixOf{s.v, h, raw}).matrix())
		if err != nil {
			t.Fatal(err)
		}
		l := &compute.SoftLabels{K: k}
		scale := make([]float32, s.n)
		for i := range scale {
			scale[i] = 0.5
			at := r.IntN(s.v)
			for j := range k {
				l.IDs, l.Prob = append(l.IDs, int32((at+j)%s.v)), append(l.Prob, 0.3)
			}
			l.Tail = append(l.Tail, 0.1)
		}
		var want [3][]float32
		for i, w := range []compute.Buffer{w.(compute.Buffer), ops.Host(raw, s.v, h)} {
			got := [3][]float32{make([]float32, s.n), make([]float32, s.n*h), make([]float32, s.v*h)}
			ops.SoftCE(ops.Host(got[0], s.n, 1), ops.Host(got[1], s.n, h), ops.Host(got[2], s.v, h), ops.Host(x, s.n, h), w, l, scale, s.n)
			if i == 0 {
				want = got
				continue
			}
			for j, name := range []string{"loss", "dh", "dw"} {
				for e, x := range got[j] {
					if math.Float32bits(x) != math.Float32bits(want[j][e]) {
						t.Fatalf("%+v: element %d of %s is %v, want %v", s, e, name, x, want[j][e])
					}
				}
			}
		}
	}
}
