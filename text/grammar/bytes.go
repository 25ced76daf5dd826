package grammar

import (
	"encoding/binary"
	"slices"
	"unicode/utf8"
)

// A ByteSet is a set of bytes.
type ByteSet [4]uint64

// Add adds a byte.
func (s *ByteSet) Add(c byte) { s[c>>6] |= 1 << (c & 63) }

// AddRange adds the bytes from lo to hi.
func (s *ByteSet) AddRange(lo, hi byte) {
	for c := int(lo); c <= int(hi); c++ {
		s.Add(byte(c))
	}
}

// Has reports whether a byte is in the set.
func (s *ByteSet) Has(c byte) bool { return s[c>>6]>>(c&63)&1 != 0 }

// A Range is a range of code points, both ends included.
type Range struct{ Lo, Hi rune }

// Normal returns the code points of ranges in order, without overlaps and without surrogates,
// which UTF-8 cannot encode.
func Normal(ranges []Range) []Range {
	var in []Range
	for _, r := range ranges {
		r.Lo, r.Hi = max(r.Lo, 0), min(r.Hi, utf8.MaxRune)
		if r.Lo < 0xE000 && r.Hi > 0xD7FF {
			in = append(in, Range{r.Lo, 0xD7FF}, Range{0xE000, r.Hi})
		} else {
			in = append(in, r)
		}
	}
	slices.SortFunc(in, func(a, b Range) int { return int(a.Lo) - int(b.Lo) })
	out := in[:0]
	for _, r := range in {
		if r.Lo > r.Hi {
			continue
		}
		if n := len(out); n > 0 && r.Lo <= out[n-1].Hi+1 && out[n-1].Hi != 0xD7FF {
			out[n-1].Hi = max(out[n-1].Hi, r.Hi)
			continue
		}
		out = append(out, r)
	}
	return out
}

// Invert returns the code points that are not in ranges.
func Invert(ranges []Range) []Range {
	var out []Range
	next := rune(0)
	for _, r := range Normal(ranges) {
		if next < r.Lo {
			out = append(out, Range{next, r.Lo - 1})
		}
		next = r.Hi + 1
	}
	return Normal(append(out, Range{next, utf8.MaxRune}))
}

// AnyRune are all code points.
func AnyRune() []Range { return Normal([]Range{{0, utf8.MaxRune}}) }

// Runes matches the UTF-8 encoding of one code point of ranges.
func (b *Builder) Runes(ranges []Range) Expr {
	ranges = Normal(ranges)
	var key []byte
	for _, r := range ranges {
		key = binary.LittleEndian.AppendUint64(key, uint64(r.Lo)<<32|uint64(r.Hi))
	}
	if e, ok := b.runes[string(key)]; ok {
		return e
	}
	var one ByteSet
	var alts []Expr
	for _, r := range ranges {
		for lo := r.Lo; lo <= r.Hi; {
			// The part of the range whose encodings have one length.
			hi := r.Hi
			for _, last := range []rune{0x7F, 0x7FF, 0xFFFF} {
				if lo <= last {
					hi = min(hi, last)
					break
				}
			}
			if hi < utf8.RuneSelf {
				one.AddRange(byte(lo), byte(hi))
			} else {
				alts = b.encodings(alts, nil, utf8.AppendRune(nil, lo), utf8.AppendRune(nil, hi))
			}
			lo = hi + 1
		}
	}
	if one != (ByteSet{}) {
		alts = append(alts, b.Bytes(one))
	}
	e := b.Alt(alts...)
	b.runes[string(key)] = e
	return e
}

// encodings appends expressions for the encodings from lo to hi, which have one length; before are
// the sets of the bytes before them. A range of encodings is divided where its first byte changes.
func (b *Builder) encodings(dst, before []Expr, lo, hi []byte) []Expr {
	set := func(lo, hi byte) Expr {
		var s ByteSet
		s.AddRange(lo, hi)
		return b.Bytes(s)
	}
	with := func(e Expr) []Expr { return append(slices.Clip(before), e) }
	if len(lo) == 1 {
		return append(dst, b.Seq(with(set(lo[0], hi[0]))...))
	}
	first, last := make([]byte, len(lo)-1), make([]byte, len(lo)-1)
	for i := range first {
		first[i], last[i] = 0x80, 0xBF
	}
	if lo[0] == hi[0] {
		return b.encodings(dst, with(set(lo[0], lo[0])), lo[1:], hi[1:])
	}
	from, to := lo[0], hi[0]
	if !slices.Equal(lo[1:], first) {
		dst = b.encodings(dst, with(set(from, from)), lo[1:], last)
		from++
	}
	if !slices.Equal(hi[1:], last) {
		to--
	}
	if from <= to {
		dst = b.encodings(dst, with(set(from, to)), first, last)
	}
	if to != hi[0] {
		dst = b.encodings(dst, with(set(hi[0], hi[0])), first, hi[1:])
	}
	return dst
}
