package tokenizer

import "sync"

// seams knows where a long run of symbols can be cut before merging without
// changing the result: where no merge ever has its seam. A merge of tokens a and
// b has its seam between the last symbol of a and the first of b; with the
// symbols beside those, where the tokens have more than one, that rules most
// places out. Pieces short enough for the caches are merged several times faster
// than a megabyte at once.
type seams struct {
	once sync.Once
	// set holds a hash for each seam: an accidental match only makes a place
	// look unsafe.
	set map[uint64]struct{}
	off bool
}

// Runs longer than longRun symbols are cut into parts of about partLen.
const (
	longRun = 24 << 10
	partLen = 8 << 10
)

// seamKey hashes a seam: the symbols beside it and those next to them, or -1.
func seamKey(z, a, b, c int32) uint64 {
	const p = 0x9E3779B97F4A7C15
	h := uint64(uint32(z + 1))
	h = h*p + uint64(uint32(a+1))
	h ^= h >> 29
	h = h*p + uint64(uint32(b+1))
	h ^= h >> 32
	return h*p + uint64(uint32(c+1))
}

func (m *bpe) buildSeams() {
	s := &m.seams
	s.set = make(map[uint64]struct{}, len(m.merges.slots)/2)
	if m.prefix != "" || m.suffix != "" {
		s.off = true
		return
	}
	var syms []int32
	for _, slot := range m.merges.slots {
		if slot.key == 0 {
			continue
		}
		var part [2][]int32
		for i, id := range [2]int32{int32((slot.key - 1) >> 32), int32(uint32(slot.key - 1))} {
			text, ok := m.tokens[id], true
			if m.byteLevel {
				text, ok = unmapBytes(text)
			}
			// A token that stands for something else than its text has other
			// symbols than its text has.
			if !ok || id == m.unk || m.byteFallback && fallbackByte(text) >= 0 {
				s.off = true
				return
			}
			n := len(syms)
			syms = m.start(syms, text)
			part[i] = syms[n:]
			if len(part[i]) == 0 {
				s.off = true
				return
			}
		}
		a, b := part[0], part[1]
		z, c := int32(-1), int32(-1)
		if len(a) > 1 {
			z = a[len(a)-2]
		}
		if len(b) > 1 {
			c = b[1]
		}
		s.set[seamKey(z, a[len(a)-1], b[0], c)] = struct{}{}
		syms = syms[:0]
	}
}

// safe reports whether ids can be cut before ids[p].
func (s *seams) safe(ids []int32, p int) bool {
	z, c := int32(-1), int32(-1)
	if p > 1 {
		z = ids[p-2]
	}
	if p+1 < len(ids) {
		c = ids[p+1]
	}
	for _, k := range [4]uint64{
		seamKey(-1, ids[p-1], ids[p], -1), seamKey(z, ids[p-1], ids[p], -1),
		seamKey(-1, ids[p-1], ids[p], c), seamKey(z, ids[p-1], ids[p], c),
	} {
		if _, ok := s.set[k]; ok {
			return false
		}
	}
	return true
}

// mergeLong merges any number of symbols.
func (m *bpe) mergeLong(dst []int32, sc *scratch) []int32 {
	ids := sc.ids
	if len(ids) > longRun {
		m.seams.once.Do(m.buildSeams)
		for !m.seams.off && len(ids) > longRun {
			p := partLen
			for p < len(ids) && !m.seams.safe(ids, p) {
				p++
			}
			dst = m.mergeBuckets(dst, ids[:p], sc)
			ids = ids[p:]
		}
	}
	return m.mergeBuckets(dst, ids, sc)
}
