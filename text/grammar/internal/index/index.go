// Package index finds things by their hash.
package index

// An Index finds things by a hash: an open hash table, which is what most steps of a machine wait for.
type Index[T any] struct {
	slots []slot[T] // a power of two of them, at most half full
	Len   int       // how many things there are
}

type slot[T any] struct {
	hash uint64
	p    *T // nil: free
}

// Find returns the thing of a hash for which is holds, nil if there is none.
func (x *Index[T]) Find(hash uint64, is func(p *T) bool) *T {
	if len(x.slots) == 0 {
		return nil
	}
	last := uint64(len(x.slots) - 1)
	for at := hash & last; ; at = (at + 1) & last {
		switch s := &x.slots[at]; {
		case s.p == nil:
			return nil
		case s.hash == hash && is(s.p):
			return s.p
		}
	}
}

// Add puts in a thing that is not there.
func (x *Index[T]) Add(hash uint64, p *T) {
	if x.Len++; 2*x.Len > len(x.slots) {
		old := x.slots
		x.slots = make([]slot[T], max(64, 2*len(old)))
		for _, s := range old {
			if s.p != nil {
				x.put(s)
			}
		}
	}
	x.put(slot[T]{hash, p})
}

func (x *Index[T]) put(s slot[T]) {
	last := uint64(len(x.slots) - 1)
	at := s.hash & last
	for x.slots[at].p != nil {
		at = (at + 1) & last
	}
	x.slots[at] = s
}

// All calls do for each thing.
func (x *Index[T]) All(do func(p *T)) {
	for _, s := range x.slots {
		if s.p != nil {
			do(s.p)
		}
	}
}

// Mix goes on with a hash (Steele, Lea and Flood 2014, variant 13 of the finalizer).
func Mix(hash, x uint64) uint64 {
	z := hash*0x9E3779B97F4A7C15 + x
	z = (z ^ z>>30) * 0xBF58476D1CE4E5B9
	z = (z ^ z>>27) * 0x94D049BB133111EB
	return z ^ z>>31
}
