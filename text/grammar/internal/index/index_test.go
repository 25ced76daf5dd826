package index

import (
	"math"
	"math/rand/v2"
	"testing"
)

// Both tables hold what a map holds, with hashes that differ in nothing but their upper half, or that are equal.
func TestTablesAreMaps(t *testing.T) {
	hashes := map[string]func(k int) uint64{
		"mixed":  func(k int) uint64 { return Mix(7, uint64(k)) },
		"upper":  func(k int) uint64 { return uint64(k) << 32 },
		"few":    func(k int) uint64 { return uint64(k % 5) },
		"at end": func(k int) uint64 { return math.MaxUint64 - uint64(k%3) }, // chains wrap around
	}
	for name, hash := range hashes {
		r := rand.New(rand.NewPCG(3, 9))
		var x Index[int]
		have := map[int]*int{}
		for range 2_000 {
			k := r.IntN(700)
			p := x.Find(hash(k), func(p *int) bool { return *p == k })
			if p != have[k] {
				t.Fatalf("%s: %d is found at %p, want %p", name, k, p, have[k])
			}
			if p == nil {
				have[k] = &k
				x.Add(hash(k), &k)
			}
		}
		n := 0
		x.All(func(p *int) {
			if n++; have[*p] != p {
				t.Errorf("%s: %d is not what was put in", name, *p)
			}
		})
		if n != len(have) || x.Len != n {
			t.Errorf("%s: %d things, and a length of %d, want %d", name, n, x.Len, len(have))
		}

		var s Scratch[int, int]
		for round := range 40 {
			s.Clear(1 << (6 + round%5))
			want := map[int]int{}
			for range r.IntN(400) {
				k := r.IntN(300)
				p := s.At(hash(k), k)
				if *p != want[k] {
					t.Fatalf("%s, round %d: %d is %d, want %d", name, round, k, *p, want[k])
				}
				*p += 1 + r.IntN(9)
				want[k] = *p
			}
			if s.Len != len(want) {
				t.Fatalf("%s, round %d: %d keys, want %d", name, round, s.Len, len(want))
			}
		}
	}
}

// After 2^32 times the first of them comes again: what was in use at none is not taken for in use.
func TestTimesBeginAnew(t *testing.T) {
	var s Scratch[int, int]
	s.Clear(64)
	*s.At(5, 1) = 3
	s.time = math.MaxUint32
	s.Clear(64)
	if x := *s.At(9, 0); x != 0 || s.Len != 1 {
		t.Errorf("a key that was put in has %d, and there are %d", x, s.Len)
	}
	if x := *s.At(5, 1); x != 0 || s.Len != 2 {
		t.Errorf("a key of another time has %d, and there are %d", x, s.Len)
	}
}
