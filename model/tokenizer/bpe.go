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
	wide   []int32          // id → bytes of a piece that the token stands for, as a rule
	known  []bool           // id is in vocab
	merges *mergeTable
	ranks  uint32 // above every rank

	byteLevel    bool // pieces are raw bytes; the alphabet of the file is mapped at load
	ignoreMerges bool
	byteFallback bool
	fuseUnk      bool
	unk          int32 // id of the unknown token, or -1: characters without a token vanish

	prefix, suffix string // continuing_subword_prefix, end_of_word_suffix

	// First symbols by character: for byte-level models by byte, for the others
	// by code point of the Basic Multilingual Plane; the rest go through vocab.
	// -1: see symbols.
	first []int32
	// The tokens of byte_fallback, or -1.
	bytes [256]int32
	// whole maps a piece (raw bytes where byteLevel) to its id, for ignore_merges.
	whole map[string]int32
	// cutMark is the rune before which a text may be cut without changing its
	// encoding when the rune before is another one, or 0: no merge joins
	// something else to it. SentencePiece-style vocabularies have U+2581 here.
	cutMark rune
	seams   seams
}

// What one character starts as.
const (
	symUnk   = iota // the unknown token, or nothing
	symKnown        // one token
	symBytes        // byte_fallback: one token a byte
)

// symbols looks a character (as the file spells it) up.
func (m *bpe) symbols(s string) (id int32, kind int) {
	if id, ok := m.vocab[s]; ok {
		return id, symKnown
	}
	if !m.byteFallback {
		return -1, symUnk
	}
	for i := range len(s) {
		if m.bytes[s[i]] < 0 {
			return -1, symUnk
		}
	}
	return -1, symBytes
}

// finish builds the tables that depend on how the model is used.
func (m *bpe) finish(byteLevel bool) {
	m.byteLevel = byteLevel
	for b := range m.bytes {
		m.bytes[b] = -1
		if id, ok := m.vocab[fmt.Sprintf("<0x%02X>", b)]; ok {
			m.bytes[b] = id
		}
	}
	m.wide = make([]int32, len(m.tokens))
	for id, tok := range m.tokens {
		switch {
		case byteLevel:
			m.wide[id] = int32(utf8.RuneCountInString(tok))
		case m.byteFallback && fallbackByte(tok) >= 0:
			m.wide[id] = 1
		default:
			m.wide[id] = int32(len(tok))
		}
	}
	if byteLevel {
		m.first = make([]int32, 256)
		for b := range m.first {
			m.first[b], _ = m.symbols(byteRunes[b])
		}
	} else {
		m.first = slices.Repeat([]int32{-1}, 1<<16)
		for tok, id := range m.vocab {
			if r, w := utf8.DecodeRuneInString(tok); w > 0 && w == len(tok) && r < 1<<16 {
				m.first[r] = id
			}
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
	seed   maphash.Seed
	cache  []cacheEntry // 1<<cacheBits, direct-mapped
	ids    []int32
	val    []uint64
	merger merger

	segs, subs []segment
	pieces     []piece
	text       []byte // normalized text
}

// trim gives back what an unusually long text needed. Memory for a million
// symbols is kept: for the system to give it anew takes as long as the work.
func (sc *scratch) trim() {
	const most, mostPieces = 2 << 20, 1 << 16
	if cap(sc.ids) > most {
		sc.ids, sc.merger = nil, merger{}
	}
	if cap(sc.text) > most {
		sc.text = nil
	}
	if cap(sc.pieces) > mostPieces {
		sc.pieces = nil
	}
	if cap(sc.segs) > mostPieces || cap(sc.subs) > mostPieces {
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

// start appends a piece's first symbols to dst.
func (m *bpe) start(dst []int32, piece string) []int32 {
	from, i := len(dst), 0
	switch {
	case m.prefix != "" || m.suffix != "":
	case m.byteLevel:
		for ; i < len(piece); i++ {
			id := m.first[piece[i]]
			if id < 0 {
				break
			}
			dst = append(dst, id)
		}
	default:
		for i < len(piece) {
			r, w := rune(piece[i]), 1
			if r >= utf8.RuneSelf {
				r, w = utf8.DecodeRuneInString(piece[i:])
			}
			if r >= 1<<16 || m.first[r] < 0 || r == utf8.RuneError && w == 1 {
				break
			}
			dst = append(dst, m.first[r])
			i += w
		}
	}
	if i == len(piece) {
		return dst
	}
	return m.startWidths(dst[:from], nil, piece)
}

// startWidths is start in general; it appends the number of bytes of piece that
// each symbol stands for to widths, if there is one.
func (m *bpe) startWidths(dst []int32, widths *[]int, piece string) []int32 {
	pending, wide := int32(-1), 0 // an unknown token not yet written, so that the next can fuse with it
	put := func(id int32, w int) {
		dst = append(dst, id)
		if widths != nil {
			*widths = append(*widths, w)
		}
	}
	for i := 0; i < len(piece); {
		w, s := 1, ""
		if m.byteLevel {
			s = byteRunes[piece[i]]
		} else {
			if piece[i] >= utf8.RuneSelf {
				_, w = utf8.DecodeRuneInString(piece[i:])
			}
			s = piece[i : i+w]
		}
		s = m.affixed(s, i == 0, i+w == len(piece))
		id, kind := m.symbols(s)
		switch {
		case kind == symKnown:
			if pending >= 0 {
				put(pending, wide)
				pending = -1
			}
			put(id, w)
		case kind == symBytes:
			// The reference writes the bytes before a pending unknown token.
			for j := range len(s) {
				put(m.bytes[s[j]], 1)
			}
		case m.unk >= 0:
			if pending >= 0 && m.fuseUnk {
				wide += w
				break
			}
			if pending >= 0 {
				put(pending, wide)
			}
			pending, wide = m.unk, w
		}
		i += w
	}
	if pending >= 0 {
		put(pending, wide)
	}
	return dst
}

func (m *bpe) affixed(s string, first, last bool) string {
	if !first && m.prefix != "" {
		s = m.prefix + s
	}
	if last && m.suffix != "" {
		s += m.suffix
	}
	return s
}

// scanMax is the number of symbols up to which repeated scanning for the best
// merge beats lists by rank, which must be cleared first.
const scanMax = 256

func (m *bpe) encodePiece(dst []int32, piece string, sc *scratch) []int32 {
	if m.ignoreMerges {
		if id, ok := m.whole[piece]; ok {
			return append(dst, id)
		}
	}
	if len(piece) > longRun {
		return m.encodeLong(dst, piece, sc)
	}
	sc.ids = m.start(sc.ids[:0], piece)
	if len(sc.ids) > scanMax {
		return m.mergeBuckets(dst, sc.ids, sc)
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

// merger merges the symbols of a long piece. Symbols stay where they started,
// and a bitmap tells which are still there. That keeps the memory small: a line
// of a megabyte must not fall out of the caches.
type merger struct {
	merges *mergeTable
	ids    []int32
	alive  []uint64
	// Merges to be done, by rank, then place. Those of a rank above the
	// current one are lists in nodes (heads: index of the first by rank, 0 for
	// none; filled: which are not empty), the others a heap of rank<<32 | place:
	// there are few, since a merge seldom makes a better one possible.
	rank   uint32
	heads  []uint32
	filled []uint64
	nodes  []mergeNode
	free   uint32 // list of unused nodes
	urgent []uint64
	todo   []uint32
}

type mergeNode struct{ at, next uint32 }

func zeroed[T any](s []T, n int) []T {
	s = slices.Grow(s[:0], n)[:n]
	clear(s)
	return s
}

// mergeBuckets is mergeScan for long pieces, in time about linear.
func (m *bpe) mergeBuckets(dst, ids []int32, sc *scratch) []int32 {
	if len(ids) == 0 {
		return dst
	}
	q := &sc.merger
	q.merges, q.ids = m.merges, ids
	q.alive = zeroed(q.alive, len(q.ids)/64+1)
	q.heads = zeroed(q.heads, int(m.ranks))
	q.filled = zeroed(q.filled, int(m.ranks)/64+1)
	q.nodes = append(slices.Grow(q.nodes[:0], len(q.ids)+1), mergeNode{})
	q.free = 0
	q.rank = 0
	// From the right, so that the lists begin at the left.
	for i := len(q.ids) - 1; i >= 0; i-- {
		q.alive[i/64] |= 1 << (i % 64)
		if i+1 < len(q.ids) {
			if v := m.merges.get(q.ids[i], q.ids[i+1]); v != noMerge {
				q.add(uint32(v>>32), i)
			}
		}
	}
	for r := nextSet(q.filled, 0); r >= 0; r = nextSet(q.filled, r) {
		q.rank = uint32(r)
		pairs := 0
		for n := q.heads[r]; n != 0; n = q.nodes[n].next {
			pairs++
		}
		q.todo = slices.Grow(q.todo[:0], pairs)
		for n := q.heads[r]; n != 0; {
			q.todo = append(q.todo, q.nodes[n].at)
			n, q.nodes[n].next, q.free = q.nodes[n].next, q.free, n
		}
		q.heads[r] = 0
		q.filled[r/64] &^= 1 << (r % 64)
		slices.Sort(q.todo)
		for _, at := range q.todo {
			q.hurry(uint64(r)<<32 | uint64(at))
			q.merge(uint32(r), int(at))
		}
		q.hurry(noMerge)
	}
	for w, set := range q.alive {
		for ; set != 0; set &= set - 1 {
			dst = append(dst, q.ids[w*64+bits.TrailingZeros64(set)])
		}
	}
	q.ids = nil
	return dst
}

func (q *merger) add(rank uint32, at int) {
	n := q.free
	if n != 0 {
		q.free = q.nodes[n].next
	} else {
		n = uint32(len(q.nodes))
		q.nodes = append(q.nodes, mergeNode{})
	}
	q.nodes[n] = mergeNode{uint32(at), q.heads[rank]}
	q.heads[rank] = n
	q.filled[rank/64] |= 1 << (rank % 64)
}

// found files the merge, if there is one, of the symbols at two places.
func (q *merger) found(at, next int) {
	if at < 0 || next < 0 {
		return
	}
	v := q.merges.get(q.ids[at], q.ids[next])
	switch rank := uint32(v >> 32); {
	case v == noMerge:
	case rank > q.rank:
		q.add(rank, at)
	default:
		q.urgent = push(q.urgent, uint64(rank)<<32|uint64(at))
	}
}

// hurry does the urgent merges that come before the given one.
func (q *merger) hurry(before uint64) {
	for len(q.urgent) > 0 && q.urgent[0] < before {
		top := q.urgent[0]
		last := len(q.urgent) - 1
		q.urgent[0] = q.urgent[last]
		q.urgent = q.urgent[:last]
		siftDown(q.urgent, 0)
		q.merge(uint32(top>>32), int(uint32(top)))
	}
}

// merge does a merge that was found earlier, unless it is stale: then the pair
// at its place has another rank. An equal rank is an equal place in the order,
// whichever pair it came from.
func (q *merger) merge(rank uint32, at int) {
	if q.alive[at/64]>>(at%64)&1 == 0 {
		return
	}
	next := nextSet(q.alive, at+1)
	if next < 0 {
		return
	}
	v := q.merges.get(q.ids[at], q.ids[next])
	if v == noMerge || uint32(v>>32) != rank {
		return
	}
	q.ids[at] = int32(uint32(v))
	q.alive[next/64] &^= 1 << (next % 64)
	q.found(at, nextSet(q.alive, next+1))
	q.found(prevSet(q.alive, at-1), at)
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
