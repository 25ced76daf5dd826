package tokenizer

import (
	"fmt"
	"hash/maphash"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"talf/internal/limits"
	"talf/internal/texts"
)

// bpe is a byte-pair-encoding model. It is read-only after loading.
type bpe struct {
	tokens *texts.Packed // id → token as spelt in the file; ids may have gaps
	vocab  texts.Index   // of the known ones, and maybe of others
	known  []bool        // text may become id
	wide   []int32       // id → bytes of a piece that the token usually stands for
	merges merges
	ranks  uint32 // greater than every rank

	byteLevel    bool // pieces are raw bytes; the file's alphabet is mapped on loading
	ignoreMerges bool
	byteFallback bool
	fuseUnk      bool
	unk          int32 // id of the unknown token, or -1: characters without a token are dropped

	prefix, suffix string // continuing_subword_prefix, end_of_word_suffix

	// The first symbol of each character: indexed by byte in byte-level models, and in
	// others by code point of the Basic Multilingual Plane; the rest are looked up in
	// vocab. -1: see symbols.
	first []int32
	// The tokens of byte_fallback, or -1.
	bytes [256]int32
	// whole finds a piece (raw bytes where byteLevel), for ignore_merges.
	whole *texts.Index
	// A text may be cut before cutMark wherever the preceding rune is a different one,
	// without changing the encoding, because no merge joins something else to it.
	// SentencePiece-style vocabularies have U+2581 here. 0: there is no such rune.
	cutMark rune
	seams   seams
}

// The kinds of symbols that one character can start as.
const (
	symUnk   = iota // the unknown token, or nothing
	symKnown        // one token
	symBytes        // byte_fallback: one token per byte
)

// symbols looks up a character as spelt in the file.
func (m *bpe) symbols(s string) (id int32, kind int) {
	if id, ok := m.find(s); ok {
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

// finish builds the lookup tables, which depend on the pre-tokenizer.
func (m *bpe) finish(byteLevel bool) {
	m.byteLevel = byteLevel
	for b := range m.bytes {
		m.bytes[b] = -1
		if id, ok := m.find(fmt.Sprintf("<0x%02X>", b)); ok {
			m.bytes[b] = id
		}
	}
	m.wide = make([]int32, m.tokens.Len())
	for id := range m.wide {
		switch tok := m.tokens.At(int32(id)); {
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
		for id := range int32(m.tokens.Len()) {
			tok := m.tokens.At(id)
			if r, w := utf8.DecodeRuneInString(tok); m.known[id] && w > 0 && w == len(tok) && r < 1<<16 {
				m.first[r] = id
			}
		}
	}
	switch {
	case !m.ignoreMerges:
	case byteLevel:
		stands := make([]bool, m.tokens.Len())
		raw := m.tokens.Map(func(dst []byte, id int32, tok string) []byte {
			dst, stands[id] = unmapBytes(dst, tok)
			return dst
		})
		whole := texts.NewIndex(raw, func(id int32) bool { return m.known[id] && stands[id] }, nil)
		m.whole = &whole
	default:
		m.whole = &m.vocab
	}
}

// find returns the token that a text may become; false if there is none.
func (m *bpe) find(s string) (int32, bool) {
	id, ok := m.vocab.Find(s)
	return id, ok && m.known[id]
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

// findCut sets cutMark if mark qualifies. merges calls its argument with all merges that may join something to a mark.
func (m *bpe) findCut(mark rune, merges func(yield func(left, right string) bool)) {
	// Where characters can be dropped, the marks on both sides of one may meet. And the
	// mark must be a token, because an unknown character could fuse with what precedes
	// it.
	if _, ok := m.find(string(mark)); !ok || m.unk < 0 {
		return
	}
	for left, right := range merges {
		r, _ := utf8.DecodeRuneInString(right)
		l, _ := utf8.DecodeLastRuneInString(left)
		if r == mark && l != mark {
			return
		}
	}
	m.cutMark = mark
}

// Encodings of up to cacheIDs tokens are cached for pieces of up to cacheKey bytes. An
// entry is one cache line.
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

// scratch is working memory for one encoding at a time.
type scratch struct {
	seed   maphash.Seed
	cache  []cacheEntry // 1<<cacheBits, direct-mapped
	ids    []int32
	val    []uint64
	merger merger

	segs, subs []segment
	pieces     []piece
	text       []byte // normalized text
	budget     limits.Meter
	meter      *limits.Meter // &budget, or nil if nothing is charged
}

// trim gives back the memory that an unusually long text needed. Memory for a million
// symbols is kept, because getting it from the system again takes as long as the work.
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

// encodeCut encodes a long piece, cutting it where no merge can reach across the cut.
func (m *bpe) encodeCut(dst []int32, s string, sc *scratch) []int32 {
	if m.cutMark == 0 || m.ignoreMerges || m.prefix != "" || m.suffix != "" {
		return m.encode(dst, s, sc)
	}
	var enc [utf8.UTFMax]byte
	mark := string(enc[:utf8.EncodeRune(enc[:], m.cutMark)])
	start := 0
	for i := 0; i < len(s); {
		// Find the end of a run of marks, then the next mark.
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

// startWidths is start in its general form. It appends the number of bytes of piece
// that each symbol stands for to widths, unless widths is nil.
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
			// The reference writes these bytes before a pending unknown token.
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

func (m *bpe) encodePiece(dst []int32, piece string, sc *scratch) []int32 {
	if m.ignoreMerges {
		if id, ok := m.whole.Find(piece); ok {
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
