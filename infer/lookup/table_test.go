package lookup_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"talf/infer/lookup"
)

func row(r *rand.Rand, n int) []lookup.Successor {
	next := make([]lookup.Successor, n)
	for i := range next {
		next[i] = lookup.Successor{Token: r.Int32N(100), Score: r.Float32()}
	}
	return next
}

// As long as there is room, a table is a map.
func TestATableRemembersUntilItIsFull(t *testing.T) {
	const k = 4
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 1))
		tab := lookup.NewTable(k, 1<<20)
		want := map[lookup.Key][]lookup.Successor{}
		keys := func() lookup.Key {
			if r.IntN(2) == 0 {
				return lookup.After(r.Int32N(200))
			}
			return lookup.AfterTwo(r.Int32N(40), r.Int32N(40))
		}
		for step := range 4000 {
			if step == 3000 {
				tab.Reset()
				clear(want)
			}
			key := keys()
			if next := row(r, r.IntN(k+2)); r.IntN(3) > 0 {
				tab.Put(key, next)
				want[key] = next[:min(k, len(next))]
			}
			if key = keys(); !slices.Equal(tab.Get(key), want[key]) {
				t.Fatalf("seed %d, step %d: after %x: %v, want %v", seed, step, key, tab.Get(key), want[key])
			}
		}
		if tab.Len() != len(want) {
			t.Errorf("seed %d: %d rows, want %d", seed, tab.Len(), len(want))
		}
	}
}

// A full table stays within its memory, keeps the rows in use and never returns another key's row.
func TestAFullTableForgetsWhatIsNotUsed(t *testing.T) {
	const bytes = 1 << 18
	tab := lookup.NewTable(3, bytes)
	r := rand.New(rand.NewPCG(3, 3))
	of := func(key lookup.Key) []lookup.Successor {
		return []lookup.Successor{{Token: int32(key), Score: 1}, {Token: int32(key >> 32)}}
	}
	hot := lookup.AfterTwo(7, 7)
	tab.Put(hot, of(hot))
	known := 0
	for i := range 40000 {
		key := lookup.AfterTwo(r.Int32N(500), r.Int32N(500))
		if next := tab.Get(key); len(next) > 0 {
			known++
			if !slices.Equal(next, of(key)) {
				t.Fatalf("after %x: %v, want %v", key, next, of(key))
			}
		}
		tab.Put(key, of(key))
		if i%7 == 0 && !slices.Equal(tab.Get(key), of(key)) {
			t.Fatalf("step %d: %x is forgotten at once", i, key)
		}
		if i%100 == 0 && len(tab.Get(hot)) == 0 {
			t.Fatalf("step %d: a row that is used all the time is forgotten", i)
		}
		if tab.Bytes() > bytes {
			t.Fatalf("%d rows take %d bytes, want at most %d", tab.Len(), tab.Bytes(), bytes)
		}
	}
	if tab.Bytes() < bytes/2 || known == 0 {
		t.Errorf("%d rows take %d of %d bytes; %d keys were known", tab.Len(), tab.Bytes(), bytes, known)
	}
}

// Full tables stay within 64 MB and allocate nothing, whatever the vocabulary.
func TestTransitionsAreBounded(t *testing.T) {
	if testing.Short() {
		t.Skip("fills the tables")
	}
	for _, vocab := range []int32{32000, 152000, 1 << 20} {
		tr := lookup.NewTransitions(10, true)
		r := rand.New(rand.NewPCG(1, uint64(vocab)))
		next := row(r, 10)
		learn := func() { tr.Learn(r.Int32N(vocab), r.Int32N(vocab), next) }
		for range 700_000 {
			learn()
		}
		if n := tr.Bytes(); n > 64e6 {
			t.Errorf("vocabulary of %d: %d bytes, want at most 64 MB", vocab, n)
		}
		if n := testing.AllocsPerRun(1000, learn); n != 0 {
			t.Errorf("vocabulary of %d: %v allocations", vocab, n)
		}
		t.Logf("vocabulary of %d: %.1f MB", vocab, float64(tr.Bytes())/1e6)
	}
}

func TestTwoTokensSayMoreThanOne(t *testing.T) {
	a, b, c := []lookup.Successor{{Token: 1}}, []lookup.Successor{{Token: 2}}, []lookup.Successor{{Token: 3}}
	tr := lookup.NewTransitions(2, true)
	tr.Learn(4, 5, a)
	tr.Learn(6, 5, b)
	tr.Learn(-1, 7, c)
	for _, x := range []struct {
		before, token int32
		want          []lookup.Successor
	}{{4, 5, a}, {6, 5, b}, {8, 5, b}, {-1, 5, b}, {0, 7, c}, {5, 4, nil}} {
		if got := tr.Next(x.before, x.token); !slices.Equal(got, x.want) {
			t.Errorf("after %d, %d: %v, want %v", x.before, x.token, got, x.want)
		}
	}
	one := lookup.NewTransitions(2, false)
	one.Learn(4, 5, a)
	one.Learn(6, 5, b)
	if got := one.Next(4, 5); !slices.Equal(got, b) {
		t.Errorf("without bigrams the newest counts: %v, want %v", got, b)
	}
	tr.Reset()
	if got := tr.Next(4, 5); len(got) > 0 {
		t.Errorf("after Reset: %v", got)
	}
}

func BenchmarkTransitions(b *testing.B) {
	tr := lookup.NewTransitions(10, true)
	r := rand.New(rand.NewPCG(1, 1))
	next := row(r, 10)
	for range 100_000 {
		tr.Learn(r.Int32N(1000), r.Int32N(1000), next)
	}
	b.Run("learn", func(b *testing.B) {
		for b.Loop() {
			tr.Learn(r.Int32N(1000), r.Int32N(1000), next)
		}
	})
	b.Run("next", func(b *testing.B) {
		for b.Loop() {
			tr.Next(r.Int32N(1000), r.Int32N(1000))
		}
	})
}
