package tokenizer

import (
	"math/bits"
	"slices"
	"sync"
	"unicode/utf8"
)

// seams records where a long run of symbols can be cut before merging without changing
// the result: at places where no merge ever has its seam. The seam of a merge of tokens
// a and b lies between the last symbol of a and the first of b. The neighbouring
// symbols are checked as well where the tokens have them, which leaves few places where
// a seam is possible. Pieces short enough for the caches are merged several times
// faster than a megabyte at once.
type seams struct {
	once sync.Once
	// set has a bit for the hash of each seam: an accidental match only makes a
	// place look unsafe.
	set   []uint64
	shift uint // 64 minus the logarithm of the number of bits
	off   bool
}

// A run of more than longRun bytes is encoded in parts of about partLen symbols.
const (
	longRun = 24 << 10
	partLen = 8 << 10
)

// seamKey hashes a seam: the two symbols at it and their outer neighbours, or -1.
func seamKey(z, a, b, c int32) uint64 {
	const p = 0x9E3779B97F4A7C15
	h := uint64(uint32(z + 1))
	h = h*p + uint64(uint32(a+1))
	h ^= h >> 29
	h = h*p + uint64(uint32(b+1))
	h ^= h >> 32
	h = h*p + uint64(uint32(c+1))
	return (h ^ h>>32) * p
}

func (m *bpe) buildSeams() {
	s, table := &m.seams, m.table()
	// At least 16 bits per merge.
	s.shift = 64 - 3 - uint(bits.Len(uint(len(table.slots)-1)))
	s.set = make([]uint64, 1<<(64-s.shift)/64)
	if m.prefix != "" || m.suffix != "" {
		s.off = true
		return
	}
	var syms []int32
	for _, slot := range table.slots {
		if slot.key == 0 {
			continue
		}
		var part [2][]int32
		for i, id := range [2]int32{int32((slot.key - 1) >> 32), int32(uint32(slot.key - 1))} {
			text, ok := m.tokens.At(id), true
			if m.byteLevel {
				var raw []byte
				raw, ok = unmapBytes(nil, text)
				text = string(raw)
			}
			// A token that does not stand for its text has other symbols than the text
			// has.
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
		k := seamKey(z, a[len(a)-1], b[0], c) >> s.shift
		s.set[k/64] |= 1 << (k % 64)
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
		k >>= s.shift
		if s.set[k/64]>>(k%64)&1 != 0 {
			return false
		}
	}
	return true
}

// encodeLong encodes a piece of any length part by part, in constant memory.
func (m *bpe) encodeLong(dst []int32, piece string, sc *scratch) []int32 {
	m.seams.once.Do(m.buildSeams)
	if m.seams.off {
		sc.ids = m.start(sc.ids[:0], piece)
		return m.mergeBuckets(dst, sc.ids, sc)
	}
	ids := sc.ids[:0]
	p := partLen
	for at := 0; ; {
		for at < len(piece) && len(ids) < p+partLen {
			end := m.blockEnd(piece, at)
			if n := len(ids) + end - at; n > cap(ids) {
				ids = slices.Grow(ids, max(n, 2*cap(ids))-len(ids))
			}
			ids = m.start(ids, piece[at:end])
			at = end
		}
		// The second symbol after a cut must be known.
		for p+1 < len(ids) && !m.seams.safe(ids, p) {
			p++
		}
		if p+1 < len(ids) {
			dst = m.mergeBuckets(dst, ids[:p], sc)
			ids = ids[:copy(ids, ids[p:])]
			p = partLen
		} else if at == len(piece) {
			break
		}
	}
	dst = m.mergeBuckets(dst, ids, sc)
	sc.ids = ids
	return dst
}

// blockEnd returns a place about partLen after at where first symbols end: after a
// character that is a token, so that no unknown token reaches across.
func (m *bpe) blockEnd(piece string, at int) int {
	for end := at + partLen; end < len(piece); end++ {
		switch {
		case m.byteLevel:
			if m.first[piece[end-1]] >= 0 {
				return end
			}
		case utf8.RuneStart(piece[end]):
			_, w := utf8.DecodeLastRuneInString(piece[:end])
			if _, kind := m.symbols(piece[end-w : end]); kind == symKnown {
				return end
			}
		}
	}
	return len(piece)
}
