package tokenizer

import (
	"fmt"
	"hash/maphash"
	"math/bits"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// mergeTable maps a pair of token ids to the rank of its merge and the merged
// id: open addressing, linear probing, never more than half full. Slots hold
// the key (left<<32 | right, plus one so that zero means empty) and the value
// (rank<<32 | merged).
type mergeTable struct {
	slots []mergeSlot
	shift uint
}

type mergeSlot struct{ key, val uint64 }

const noMerge = ^uint64(0)

func newMergeTable(n int) *mergeTable {
	log := uint(4)
	for 1<<log < 2*n {
		log++
	}
	return &mergeTable{slots: make([]mergeSlot, 1<<log), shift: 64 - log}
}

func pairKey(a, b int32) uint64 { return uint64(uint32(a))<<32 | uint64(uint32(b)) }

// put stores a merge; a later merge of the same pair replaces an earlier one,
// as in the reference implementation's map.
func (t *mergeTable) put(a, b int32, rank uint32, merged int32) {
	k := pairKey(a, b) + 1
	mask := uint64(len(t.slots) - 1)
	i := k * 0x9E3779B97F4A7C15 >> t.shift
	for t.slots[i].key != 0 && t.slots[i].key != k {
		i = (i + 1) & mask
	}
	t.slots[i] = mergeSlot{k, uint64(rank)<<32 | uint64(uint32(merged))}
}

// get returns rank<<32 | merged id, or noMerge. Ranks in the high half make the
// smaller value the earlier merge.
func (t *mergeTable) get(a, b int32) uint64 {
	k := pairKey(a, b) + 1
	mask := uint64(len(t.slots) - 1)
	i := k * 0x9E3779B97F4A7C15 >> t.shift
	for {
		s := &t.slots[i&mask]
		if s.key == k {
			return s.val
		}
		if s.key == 0 {
			return noMerge
		}
		i++
	}
}

// bpe is a byte-pair-encoding model. It is read-only after loading.
type bpe struct {
	vocab  map[string]int32 // token as written in the file → id
	tokens []string         // id → token; ids may have gaps
	known  []bool           // id is in vocab
	merges *mergeTable

	byteLevel    bool // pieces are raw bytes; the alphabet of the file is mapped at load
	ignoreMerges bool
	byteFallback bool
	fuseUnk      bool
	unk          int32 // id of the unknown token, or -1: characters without a token vanish

	prefix, suffix string // continuing_subword_prefix, end_of_word_suffix

	// First symbols by character. For byte-level models indexed by byte, for
	// the others by code point below 128; the rest go through vocab.
	first [256]symbolSet
	// whole maps a piece (raw bytes where byteLevel) to its id, for ignore_merges.
	whole map[string]int32
	// cutMark is the rune before which a text may be cut without changing its
	// encoding when the rune before is another one, or 0: no merge joins
	// something else to it. SentencePiece-style vocabularies have U+2581 here.
	cutMark rune
}

// symbolSet is what one character starts as.
type symbolSet struct {
	kind uint8
	id   int32   // symKnown
	ids  []int32 // symBytes
}

const (
	symUnk   uint8 = iota // the unknown token, or nothing
	symKnown              // one token
	symBytes              // byte_fallback: one token a byte
)

// symbols looks a character (as the file spells it) up.
func (m *bpe) symbols(s string) symbolSet {
	if id, ok := m.vocab[s]; ok {
		return symbolSet{kind: symKnown, id: id}
	}
	if m.byteFallback {
		ids := make([]int32, 0, utf8.UTFMax)
		for i := range len(s) {
			id, ok := m.vocab[fmt.Sprintf("<0x%02X>", s[i])]
			if !ok {
				return symbolSet{}
			}
			ids = append(ids, id)
		}
		return symbolSet{kind: symBytes, ids: ids}
	}
	return symbolSet{}
}

// finish builds the tables that depend on how the model is used.
func (m *bpe) finish(byteLevel bool) {
	m.byteLevel = byteLevel
	if byteLevel {
		for b := range 256 {
			m.first[b] = m.symbols(byteRunes[b])
		}
	} else {
		for b := range 128 {
			m.first[b] = m.symbols(string(rune(b)))
		}
	}
	if m.ignoreMerges {
		m.whole = make(map[string]int32, len(m.vocab))
		for tok, id := range m.vocab {
			if !byteLevel {
				m.whole[tok] = id
			} else if raw, ok := unmapBytes(tok); ok {
				m.whole[raw] = id
			}
		}
	}
}

// width is the number of bytes of a piece that a token stands for.
func (m *bpe) width(id int32) int {
	tok := m.tokens[id]
	if m.byteLevel {
		return utf8.RuneCountInString(tok)
	}
	if m.byteFallback && fallbackByte(tok) >= 0 {
		return 1
	}
	return len(tok)
}

// fallbackByte returns the byte that a token like <0x0A> stands for, or -1.
func fallbackByte(tok string) int16 {
	if len(tok) != 6 || tok[:3] != "<0x" || tok[5] != '>' {
		return -1
	}
	b, err := strconv.ParseUint(strings.TrimPrefix(tok[3:5], "+"), 16, 8)
	if err != nil {
		return -1
	}
	return int16(b)
}

// findCut sets cutMark if mark qualifies. Call it with the merges as strings.
func (m *bpe) findCut(mark rune, merges [][2]string) {
	// Where characters can vanish, marks from both sides of one may meet. And
	// the mark must be a token: an unknown one could fuse with what precedes.
	if _, ok := m.vocab[string(mark)]; !ok || m.unk < 0 {
		return
	}
	for _, p := range merges {
		r, _ := utf8.DecodeRuneInString(p[1])
		l, _ := utf8.DecodeLastRuneInString(p[0])
		if r == mark && l != mark {
			return
		}
	}
	m.cutMark = mark
}

// Pieces up to cacheKey bytes whose encoding has up to cacheIDs tokens are
// remembered: an entry is one cache line.
const (
	cacheKey  = 22
	cacheIDs  = 10
	cacheBits = 14
)

type cacheEntry struct {
	ids  [cacheIDs]int32
	klen uint8 // 0: empty
	n    uint8
	key  [cacheKey]byte
}

// scratch is the working memory of one encoding at a time.
type scratch struct {
	seed  maphash.Seed
	cache []cacheEntry // 1<<cacheBits, direct-mapped
	ids   []int32
	val   []uint64
	alive []uint64
	heap  []uint64

	segs, subs []segment
	pieces     []piece
}

// trim gives back what an unusually long text needed.
func (sc *scratch) trim() {
	const most = 1 << 16
	if cap(sc.ids) > most {
		sc.ids, sc.alive, sc.heap = nil, nil, nil
	}
	if cap(sc.pieces) > most {
		sc.pieces = nil
	}
	if cap(sc.segs) > most || cap(sc.subs) > most {
		sc.segs, sc.subs = nil, nil
	}
}

func newScratch() *scratch {
	return &scratch{seed: maphash.MakeSeed(), cache: make([]cacheEntry, 1<<cacheBits)}
}

// encode appends the ids of one piece to dst.
func (m *bpe) encode(dst []int32, piece string, sc *scratch) []int32 {
	if piece == "" {
		return dst
	}
	if len(piece) > cacheKey {
		return m.encodePiece(dst, piece, sc)
	}
	e := &sc.cache[maphash.String(sc.seed, piece)>>(64-cacheBits)]
	if int(e.klen) == len(piece) && string(e.key[:e.klen]) == piece {
		return append(dst, e.ids[:e.n]...)
	}
	start := len(dst)
	dst = m.encodePiece(dst, piece, sc)
	if got := dst[start:]; len(got) <= cacheIDs {
		e.klen, e.n = uint8(len(piece)), uint8(len(got))
		copy(e.key[:], piece)
		copy(e.ids[:], got)
	}
	return dst
}

// encodeCut encodes a long piece, cutting it where no merge can reach across.
func (m *bpe) encodeCut(dst []int32, s string, sc *scratch) []int32 {
	if m.cutMark == 0 || m.ignoreMerges || m.prefix != "" || m.suffix != "" {
		return m.encode(dst, s, sc)
	}
	var enc [utf8.UTFMax]byte
	mark := string(enc[:utf8.EncodeRune(enc[:], m.cutMark)])
	start := 0
	for i := 0; i < len(s); {
		// The end of a run of marks, then the next mark.
		for i < len(s) && s[i] == mark[0] && len(s)-i >= len(mark) && s[i:i+len(mark)] == mark {
			i += len(mark)
		}
		for i < len(s) && !(s[i] == mark[0] && len(s)-i >= len(mark) && s[i:i+len(mark)] == mark) {
			i++
		}
		dst = m.encode(dst, s[start:i], sc)
		start = i
	}
	return dst
}

// start splits a piece into first symbols.
func (m *bpe) start(dst []int32, piece string) []int32 {
	if m.byteLevel && m.prefix == "" && m.suffix == "" {
		plain := true
		for i := range len(piece) {
			f := &m.first[piece[i]]
			if f.kind != symKnown {
				plain = false
				break
			}
			dst = append(dst, f.id)
		}
		if plain {
			return dst
		}
		dst = dst[:0]
	}
	pending := int32(-1) // an unknown token not yet written, so that the next can fuse with it
	for i := 0; i < len(piece); {
		w := 1
		var set symbolSet
		if m.byteLevel {
			if m.prefix == "" && m.suffix == "" {
				set = m.first[piece[i]]
			} else {
				set = m.symbols(m.affixed(byteRunes[piece[i]], i == 0, i+1 == len(piece)))
			}
		} else {
			if piece[i] >= utf8.RuneSelf {
				_, w = utf8.DecodeRuneInString(piece[i:])
			}
			if w == 1 && piece[i] < utf8.RuneSelf && m.prefix == "" && m.suffix == "" {
				set = m.first[piece[i]]
			} else {
				set = m.symbols(m.affixed(piece[i:i+w], i == 0, i+w == len(piece)))
			}
		}
		switch {
		case set.kind == symKnown:
			if pending >= 0 {
				dst = append(dst, pending)
				pending = -1
			}
			dst = append(dst, set.id)
		case set.kind == symBytes:
			// The reference writes the bytes before a pending unknown token.
			dst = append(dst, set.ids...)
		case m.unk >= 0:
			if pending >= 0 && !m.fuseUnk {
				dst = append(dst, pending)
			}
			pending = m.unk
		}
		i += w
	}
	if pending >= 0 {
		dst = append(dst, pending)
	}
	return dst
}

func (m *bpe) affixed(s string, first, last bool) string {
	if !first {
		s = m.prefix + s
	}
	if last {
		s += m.suffix
	}
	return s
}

// scanMax is the number of symbols up to which repeated scanning for the best
// merge beats a heap.
const scanMax = 48

func (m *bpe) encodePiece(dst []int32, piece string, sc *scratch) []int32 {
	if m.ignoreMerges {
		if id, ok := m.whole[piece]; ok {
			return append(dst, id)
		}
	}
	sc.ids = m.start(sc.ids[:0], piece)
	if len(sc.ids) > scanMax {
		return m.mergeHeap(dst, sc)
	}
	return append(dst, m.mergeScan(sc)...)
}

// mergeScan merges sc.ids in place: the lowest rank first, the leftmost of
// equals. val[i] is the merge of ids[i] and ids[i+1].
func (m *bpe) mergeScan(sc *scratch) []int32 {
	ids := sc.ids
	if len(ids) < 2 {
		return ids
	}
	val := sc.val[:0]
	for i := range len(ids) - 1 {
		val = append(val, m.merges.get(ids[i], ids[i+1]))
	}
	sc.val = val
	for len(val) > 0 {
		best, at := noMerge>>32, -1
		for i, v := range val {
			if v>>32 < best {
				best, at = v>>32, i
			}
		}
		if at < 0 {
			break
		}
		ids[at] = int32(uint32(val[at]))
		copy(ids[at+1:], ids[at+2:])
		ids = ids[:len(ids)-1]
		copy(val[at:], val[at+1:])
		val = val[:len(val)-1]
		if at < len(val) {
			val[at] = m.merges.get(ids[at], ids[at+1])
		}
		if at > 0 {
			val[at-1] = m.merges.get(ids[at-1], ids[at])
		}
	}
	return ids
}

// mergeHeap is mergeScan for long pieces, in O(n log n). It keeps its memory
// small, because a line of a megabyte must not fall out of the caches: a heap
// item is rank<<32 | position, the symbols stay where they started, and a bitmap
// tells which are still there.
func (m *bpe) mergeHeap(dst []int32, sc *scratch) []int32 {
	ids := sc.ids
	words := len(ids)/64 + 1
	alive := slices.Grow(sc.alive[:0], words)[:words]
	clear(alive)
	heap := sc.heap[:0]
	for i := range ids {
		alive[i/64] |= 1 << (i % 64)
		if i > 0 {
			if v := m.merges.get(ids[i-1], ids[i]); v != noMerge {
				heap = append(heap, v>>32<<32|uint64(i-1))
			}
		}
	}
	for i := len(heap)/heapWays + 1; i >= 0; i-- {
		siftDown(heap, i)
	}
	for len(heap) > 0 {
		top := heap[0]
		last := len(heap) - 1
		heap[0] = heap[last]
		heap = heap[:last]
		siftDown(heap, 0)
		at := int(uint32(top))
		if alive[at/64]>>(at%64)&1 == 0 {
			continue
		}
		next := nextSet(alive, at+1)
		if next < 0 {
			continue
		}
		// An item is stale unless the pair at its place has its rank: an equal
		// rank is an equal place in the order, whichever item it came from.
		v := m.merges.get(ids[at], ids[next])
		if v == noMerge || v>>32 != top>>32 {
			continue
		}
		ids[at] = int32(uint32(v))
		alive[next/64] &^= 1 << (next % 64)
		if next = nextSet(alive, next+1); next >= 0 {
			if v := m.merges.get(ids[at], ids[next]); v != noMerge {
				heap = push(heap, v>>32<<32|uint64(at))
			}
		}
		if prev := prevSet(alive, at-1); prev >= 0 {
			if v := m.merges.get(ids[prev], ids[at]); v != noMerge {
				heap = push(heap, v>>32<<32|uint64(prev))
			}
		}
	}
	for w, set := range alive {
		for ; set != 0; set &= set - 1 {
			dst = append(dst, ids[w*64+bits.TrailingZeros64(set)])
		}
	}
	sc.alive, sc.heap = alive, heap
	return dst
}

// nextSet returns the first bit set at or after i, or -1.
func nextSet(set []uint64, i int) int {
	w := i / 64
	if w >= len(set) {
		return -1
	}
	for v := set[w] >> (i % 64) << (i % 64); ; v = set[w] {
		if v != 0 {
			return w*64 + bits.TrailingZeros64(v)
		}
		if w++; w == len(set) {
			return -1
		}
	}
}

// prevSet returns the last bit set at or before i, or -1.
func prevSet(set []uint64, i int) int {
	if i < 0 {
		return -1
	}
	w := i / 64
	for v := set[w] << (63 - i%64) >> (63 - i%64); ; v = set[w] {
		if v != 0 {
			return w*64 + 63 - bits.LeadingZeros64(v)
		}
		if w--; w < 0 {
			return -1
		}
	}
}

// heapWays is the number of children of a heap node: a shallow heap misses the
// caches less often.
const heapWays = 4

func siftDown(h []uint64, i int) {
	if i >= len(h) {
		return
	}
	v := h[i]
	for {
		c := heapWays*i + 1
		if c >= len(h) {
			break
		}
		least := c
		for k := c + 1; k < min(c+heapWays, len(h)); k++ {
			if h[k] < h[least] {
				least = k
			}
		}
		if h[least] >= v {
			break
		}
		h[i] = h[least]
		i = least
	}
	h[i] = v
}

func push(h []uint64, v uint64) []uint64 {
	h = append(h, v)
	i := len(h) - 1
	for i > 0 {
		p := (i - 1) / heapWays
		if h[p] <= v {
			break
		}
		h[i] = h[p]
		i = p
	}
	h[i] = v
	return h
}

// byteRunes spells every byte as the printable character that byte-level
// vocabularies use for it; runeBytes is the way back (-1: not in the alphabet).
var byteRunes, runeBytes = byteAlphabet()

func byteAlphabet() (out [256]string, back [512]int16) {
	for i := range back {
		back[i] = -1
	}
	next := rune(256)
	for b := range rune(256) {
		r := b
		// Printable Latin-1 stands for itself, the rest is moved above 255.
		if !(b >= '!' && b <= '~' || b >= 0xA1 && b <= 0xAC || b >= 0xAE) {
			r = next
			next++
		}
		out[b] = string(r)
		back[r] = int16(b)
	}
	return out, back
}

// unmapBytes turns a byte-level token into the bytes it stands for; false when
// a character is not of the alphabet.
func unmapBytes(tok string) (string, bool) {
	raw := make([]byte, 0, len(tok))
	for _, r := range tok {
		if int(r) >= len(runeBytes) || runeBytes[r] < 0 {
			return "", false
		}
		raw = append(raw, byte(runeBytes[r]))
	}
	return string(raw), true
}
