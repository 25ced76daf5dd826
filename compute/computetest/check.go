package computetest

import (
	"math"

	"talf/compute"
)

// choosableAgrees checks that CheckRows tells the rows of logits from which no token can be chosen
// from all others, and that on any device the sum of a row shows numbers that are not finite.
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
			// A device without the ability sums the rows: the sum is finite only if all elements are.
			ones := make([]float32, v)
			for i := range ones {
				ones[i] = 1
			}
			sums := b.alloc(compute.F32, len(rows), 1)
			b.q.Linear(sums, logits, &compute.Linear{W: b.weight(ones, 1, v)}, compute.Store, len(rows))
			got := b.read(sums, len(rows))
			for i, r := range rows {
				all := true
				for _, e := range x[i*v:][:v] {
					all = all && e-e == 0
				}
				if s := got[i]; !all && s-s == 0 {
					b.Errorf("%d logits, %s at %d: their sum is %v", v, r.name, at, s)
				}
			}
		}
	}
}
