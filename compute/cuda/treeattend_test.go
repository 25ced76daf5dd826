//go:build gpu && linux && cgo

package cuda_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"talf/compute"
	"talf/compute/cuda"
)

// TestTreeAttentionOnTensorCores compares attention of training in bfloat16, and its gradient, with f32's of the same
// numbers, which bfloat16 has. What is rounded besides are weights and their gradients, to 8 bits: a result is to be within 2⁻⁸ of its norm.
// What lies behind the keys that are there is not finite, and stays as it is. Heads that are no multiple of 8 have f32's bits.
func TestTreeAttentionOnTensorCores(t *testing.T) {
	type shape struct {
		heads, kvHeads, dim, levels int
		sequences                   []int
	}
	long := []int{5, 1, 70}
	shapes := []shape{
		{4, 2, 8, 0, long},
		{4, 2, 8, 2, long},
		{3, 1, 40, 1, long},
		{2, 2, 128, 2, long},
		{8, 1, 64, 1, []int{33, 2}},
		{2, 1, 24, 0, []int{200}},
		{2, 1, 6, 1, []int{5, 3}},
	}
	if *runPTX { // takes long
		shapes = []shape{{4, 2, 8, 2, []int{5, 1, 34}}, {2, 1, 120, 1, []int{9, 2}}, {2, 1, 24, 0, []int{70}}}
	}
	plain, tensor := device(t), func() compute.Device {
		d, err := cuda.New(cuda.Config{BF16: true})
		if err != nil {
			t.Fatal(err)
		}
		return d
	}()
	defer plain.Close()
	defer tensor.Close()
	for _, s := range shapes {
		t.Run(fmt.Sprintf("%d heads %d of keys %d elements level %d", s.heads, s.kvHeads, s.dim, s.levels), func(t *testing.T) {
			const width, more, was = 4, 3, 0.5
			r := rand.New(rand.NewPCG(8, uint64(s.dim)))
			random := func(n int) []float32 {
				x := make([]float32, n)
				for i := range x {
					x[i] = math.Float32frombits(math.Float32bits(float32(r.NormFloat64())) &^ 0xffff)
				}
				return x
			}
			g := compute.TrainAttention{Heads: s.heads, KVHeads: s.kvHeads, HeadDim: s.dim, Anc: make([][]int32, s.levels)}
			first := 0
			for _, n := range s.sequences {
				for p := range n {
					for i := range max(1, min(s.levels, 1)*width) {
						g.First, g.Last = append(g.First, int32(first)), append(g.Last, int32(first+p))
						for l := range s.levels {
							a := (first+p)*width + r.IntN(width)
							if l == s.levels-1 {
								a = (first+p)*width + i
							}
							g.Anc[l] = append(g.Anc[l], int32(a))
						}
					}
				}
				first += n
			}
			rows, ldq, ldk := len(g.First), s.heads*s.dim, s.kvHeads*s.dim
			q, do := random(rows*ldq), random(rows*ldq)
			keys := make([][]float32, 2*(s.levels+1))
			for l := range keys {
				n := first
				if l/2 > 0 {
					n *= width
				}
				keys[l] = random(n * ldk)
				for range more * ldk {
					keys[l] = append(keys[l], float32(math.NaN()))
				}
			}
			run := func(d compute.Device, o, lse []float32) (out [][]float32) {
				queue := d.Queue()
				ops := queue.Abilities().Train
				read := func(b compute.Buffer, n int) {
					x := make([]float32, n)
					queue.Read(x, b, 0)
					out = append(out, x)
				}
				var k, v, dk, dv []compute.Buffer
				for l, x := range keys {
					grad := make([]float32, len(x))
					for i := range grad {
						grad[i] = was
					}
					b, gb := ops.Host(x, len(x)/ldk, ldk), ops.Host(grad, len(x)/ldk, ldk)
					if l%2 == 0 {
						k, dk = append(k, b), append(dk, gb)
					} else {
						v, dv = append(v, b), append(dv, gb)
					}
				}
				qb, ob, lb := ops.Host(q, rows, ldq), ops.Host(make([]float32, rows*ldq), rows, ldq), ops.Host(make([]float32, rows*s.heads), rows, s.heads)
				ops.TreeAttend(ob, lb, qb, k, v, &g)
				read(ob, rows*ldq)
				read(lb, rows*s.heads)
				if o != nil { // the same for both devices
					queue.Write(ob, o)
					queue.Write(lb, lse)
				}
				dq := ops.Host(make([]float32, rows*ldq), rows, ldq)
				ops.TreeAttendGrad(dq, dk, dv, ops.Host(do, rows, ldq), ob, lb, qb, k, v, &g)
				read(dq, rows*ldq)
				for l := range k {
					read(dk[l], len(keys[2*l]))
					read(dv[l], len(keys[2*l]))
				}
				if err := queue.Sync(t.Context()); err != nil {
					t.Fatal(err)
				}
				return out
			}
			want := run(plain, nil, nil)
			got := run(tensor, want[0], want[1])
			for i := range want {
				what := []string{"o", "lse", "dq"}[min(i, 2)]
				n := len(want[i])
				if i > 2 {
					what = fmt.Sprintf("%s[%d]", []string{"dk", "dv"}[(i-3)%2], (i-3)/2)
					n -= more * ldk
				}
				var diff, norm float64
				for j, w := range want[i][:n] {
					if i > 2 {
						w -= was
					}
					d := float64(got[i][j]) - float64(want[i][j])
					diff, norm = diff+d*d, norm+float64(w)*float64(w)
				}
				bound := 1.0 / 256
				if what == "lse" {
					bound = 1e-6
				}
				off := math.Sqrt(diff / norm)
				if t.Logf("%s: off by %.2g of its norm", what, off); !(off <= bound) {
					t.Errorf("%s: off by %g of its norm, want at most %g", what, off, bound)
				}
				if (what == "o" || what == "dq") && (off == 0) != (s.dim%8 != 0) {
					t.Errorf("%s: off by %g: not what was to compute it", what, off)
				}
				for j, x := range got[i][n:] {
					if x != was {
						t.Fatalf("%s: element %d behind the end is %g, want %g", what, j, x, was)
					}
				}
			}
		})
	}
}
