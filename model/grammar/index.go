package grammar

// An index finds things by a hash: an open hash table, which is what most steps of a machine wait for.
type index[T any] struct {
	slots []slot[T] // a power of two of them, at most half full
	count int
}

type slot[T any] struct {
	hash uint64
	p    *T // nil: free
}

// find returns the thing of a hash for which is holds, nil if there is none.
func (x *index[T]) find(hash uint64, is func(p *T) bool) *T {
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

// add puts in a thing that is not there.
func (x *index[T]) add(hash uint64, p *T) {
	if x.count++; 2*x.count > len(x.slots) {
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

func (x *index[T]) put(s slot[T]) {
	last := uint64(len(x.slots) - 1)
	at := s.hash & last
	for x.slots[at].p != nil {
		at = (at + 1) & last
	}
	x.slots[at] = s
}

// mix goes on with a hash (Steele, Lea and Flood 2014, variant 13 of the finalizer).
func mix(hash, x uint64) uint64 {
	z := hash*0x9E3779B97F4A7C15 + x
	z = (z ^ z>>30) * 0xBF58476D1CE4E5B9
	z = (z ^ z>>27) * 0x94D049BB133111EB
	return z ^ z>>31
}
