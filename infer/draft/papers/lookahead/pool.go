package lookahead

import "slices"

// poolKeys bounds the first tokens of a pool, so that its memory does not grow with the text.
const poolKeys = 1 << 13

// A pool holds the newest n-grams of each first token. When it is full, a new first token takes the
// place of the one that was new longest ago.
type pool struct {
	most, size int             // n-grams of a first token; tokens after it
	slots      map[int32]int32 // by first token
	keys       []int32         // by slot
	n          []int32         // by slot: n-grams there
	grams      []int32         // [slot][most][size], oldest first
	hand       int             // the slot to give up next
}

func (q *pool) init(most, size int) { q.most, q.size, q.slots = most, size, map[int32]int32{} }

func (q *pool) clear() {
	clear(q.slots)
	q.keys, q.n, q.grams, q.hand = q.keys[:0], q.n[:0], q.grams[:0], 0
}

// bytes returns about how much memory q uses: up to 16 bytes of a map for a first token, half of them free.
func (q *pool) bytes() int { return 4*(cap(q.keys)+cap(q.n)+cap(q.grams)) + 32*len(q.slots) }

// count returns how many n-grams begin with first.
func (q *pool) count(first int32) int {
	if s, ok := q.slots[first]; ok {
		return int(q.n[s])
	}
	return 0
}

// newest returns what follows first in its i-th newest n-gram.
func (q *pool) newest(first int32, i int) []int32 {
	s := q.slots[first]
	return q.gram(s, int(q.n[s])-1-i)
}

func (q *pool) gram(slot int32, i int) []int32 {
	at := (int(slot)*q.most + i) * q.size
	return q.grams[at : at+q.size]
}

// put makes first and rest the newest n-gram of first. If there are too many, the oldest is forgotten.
func (q *pool) put(first int32, rest []int32) {
	s, ok := q.slots[first]
	if !ok {
		s = q.take(first)
	}
	i := 0
	for i < int(q.n[s]) && !slices.Equal(q.gram(s, i), rest) {
		i++
	}
	switch {
	case i < int(q.n[s]): // known: the ones after it move down
	case i < q.most:
		q.n[s]++
	default:
		i = 0
	}
	from, to := (int(s)*q.most+i)*q.size, (int(s)*q.most+int(q.n[s]))*q.size
	copy(q.grams[from:to], q.grams[from+q.size:to])
	copy(q.grams[to-q.size:to], rest)
}

// take returns an empty slot for a first token.
func (q *pool) take(first int32) int32 {
	s := int32(len(q.keys))
	if len(q.keys) < poolKeys {
		q.keys, q.n = append(q.keys, first), append(q.n, 0)
		q.grams = slices.Grow(q.grams, q.most*q.size)[:len(q.grams)+q.most*q.size]
	} else {
		s = int32(q.hand)
		q.hand = (q.hand + 1) % poolKeys
		delete(q.slots, q.keys[s])
		q.keys[s], q.n[s] = first, 0
	}
	q.slots[first] = s
	return s
}
