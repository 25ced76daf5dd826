package slab_test

import (
	"slices"
	"testing"

	"talf/internal/slab"
)

func TestMemoryIsUsedAgain(t *testing.T) {
	s := []int{1, 2, 3, 4}
	for _, n := range []int{0, 2, 4} {
		if got := slab.Resize(s, n); !slices.Equal(got, s[:n]) || n > 0 && &got[0] != &s[0] {
			t.Errorf("%d elements: %v, want those that were there", n, got)
		}
	}
	if got := slab.Resize(s, 9); len(got) != 9 || &got[0] == &s[0] {
		t.Errorf("9 elements: %v", got)
	}
	if got := slab.Zeros(s, 3); !slices.Equal(got, make([]int, 3)) || &got[0] != &s[0] || s[3] != 4 {
		t.Errorf("three zeros: %v of %v", got, s)
	}
	if got := slab.Zeros(s, 9); !slices.Equal(got, make([]int, 9)) {
		t.Errorf("nine zeros: %v", got)
	}
	*slab.At(&s, 6) += 5
	*slab.At(&s, 6)++
	*slab.At(&s, 3)++
	if want := []int{0, 0, 0, 5, 0, 0, 6}; !slices.Equal(s, want) {
		t.Errorf("%v, want %v", s, want)
	}
}

func TestFloatsAreZeroWhateverTheirNumber(t *testing.T) {
	for _, n := range []int{0, 1, 1 << 20, 1<<21 + 3} {
		f := slab.Floats(n)
		if len(f) != n || slices.ContainsFunc(f, func(x float32) bool { return x != 0 }) {
			t.Errorf("Floats(%d) are %d, or not all zero", n, len(f))
		}
		if n > 0 { // to its end it can be written
			f[0], f[n-1] = 1, 1
		}
	}
}
