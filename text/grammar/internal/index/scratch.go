package index

// A Scratch holds values of keys in an open hash table that is emptied without touching what it holds.
type Scratch[K comparable, V any] struct {
	keys  []K // a power of two of them, at most half full
	sums  []uint64
	times []uint32
	of    []V
	time  uint32 // the entries with it are in use
	Len   int    // how many these are
}

// Clear empties s, and lets go of room for more than most keys.
func (s *Scratch[K, V]) Clear(most int) {
	if s.time++; s.time == 0 || len(s.keys) > most {
		*s = Scratch[K, V]{time: 1}
	}
	s.Len = 0
}

// At returns the value of a key with a hash, at first a zero one, until the next call. Clear comes before the first.
func (s *Scratch[K, V]) At(hash uint64, key K) *V {
	if 2*s.Len >= len(s.keys) {
		old := *s
		n := max(64, 2*len(old.keys))
		*s = Scratch[K, V]{keys: make([]K, n), sums: make([]uint64, n), times: make([]uint32, n), of: make([]V, n), time: old.time}
		for i, k := range old.keys {
			if old.times[i] == old.time {
				*s.At(old.sums[i], k) = old.of[i]
			}
		}
	}
	last := uint64(len(s.keys) - 1)
	for i := hash & last; ; i = (i + 1) & last {
		if s.times[i] != s.time {
			s.keys[i], s.sums[i], s.times[i] = key, hash, s.time
			clear(s.of[i : i+1])
			s.Len++
			return &s.of[i]
		}
		if s.keys[i] == key {
			return &s.of[i]
		}
	}
}
