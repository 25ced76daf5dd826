package computetest

import (
	"math"

	"talf/compute"
)

// choosableAgrees checks that a row of logits from which no token can be chosen is told from all
// others, by CheckRows if the device has it, and by the log-softmax values of TopK: they are NaN
// in such rows and in no other.
func choosableAgrees(b *bench) {
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	rows := []struct {
		name string
		ok   bool
		x    map[int]float32 // elements that are replaced; −1: all
	}{
		{"ordinary", true, nil},
		{"NaN", false, map[int]float32{-2: nan}},
		{"+Inf", false, map[int]float32{-2: inf}},
		{"−Inf", true, map[int]float32{-2: -inf}},
		{"−Inf and NaN", false, map[int]float32{0: -inf, -2: nan}},
		{"all −Inf", false, map[int]float32{-1: -inf}},
		{"all NaN", false, map[int]float32{-1: nan}},
		{"all −Inf but one", true, map[int]float32{-1: -inf, -2: 3}},
		{"huge", true, map[int]float32{-2: 3e38}},
		{"huge and negative", true, map[int]float32{0: -3e38, -2: -2e38}},
		{"huge and NaN", false, map[int]float32{0: 3e38, -2: nan}},
	}
	for _, v := range []int{1, 7, 32, 97, 600} {
		places := []int{0, v / 2, v - 1}
		for _, at := range places {
			x := b.random(len(rows) * v)
			for i, r := range rows {
				row := x[i*v:][:v]
				if all, ok := r.x[-1]; ok {
					for j := range row {
						row[j] = all
					}
				}
				if first, ok := r.x[0]; ok {
					row[0] = first
				}
				if one, ok := r.x[-2]; ok {
					row[at] = one
				}
			}
			// What the cases come to in short rows, where elements coincide.
			want := make([]bool, len(rows))
			for i := range rows {
				finite := false
				want[i] = true
				for _, e := range x[i*v:][:v] {
					want[i] = want[i] && e == e && e <= math.MaxFloat32
					finite = finite || math.Abs(float64(e)) <= math.MaxFloat32
				}
				if want[i] = want[i] && finite; v > 1 && at > 0 && want[i] != rows[i].ok {
					b.Fatalf("%s: the case is not what it says", rows[i].name)
				}
			}
			logits := b.buffer(x, len(rows), v)
			if c := b.q.Abilities().Check; c != nil {
				got := make([]bool, len(rows))
				c.CheckRows(got, logits, len(rows))
				for i, r := range rows {
					if got[i] != want[i] {
						b.Errorf("%d logits, %s at %d: CheckRows says %v, want %v", v, r.name, at, got[i], want[i])
					}
				}
			}
			for _, k := range []int{1, min(4, v)} {
				ids, logp := b.alloc(compute.I32, len(rows), k), b.alloc(compute.F32, len(rows), k)
				b.q.TopK(ids, logp, logits, k, len(rows))
				got := make([]float32, len(rows)*k)
				b.q.Read(got, logp, 0)
				for i, r := range rows {
					if p := got[i*k]; (p == p) != want[i] {
						b.Errorf("%d logits, %s at %d: the best of %d has log-softmax %v", v, r.name, at, k, p)
					}
				}
			}
		}
	}
}
