package regex

import (
	"cmp"
	"slices"
	"sync"
	"unicode"
	"unicode/utf8"
)

// A span is a range of characters, both ends included.
type span struct{ lo, hi rune }

// ranges are characters; most functions take sorted ranges that do not touch.
type ranges []span

// sorted returns rs in order, with neighbours joined.
func (rs ranges) sorted() ranges {
	rs = slices.Clone(rs)
	slices.SortFunc(rs, func(a, b span) int { return cmp.Compare(a.lo, b.lo) })
	out := rs[:0]
	for _, r := range rs {
		if n := len(out); n > 0 && r.lo <= out[n-1].hi+1 {
			out[n-1].hi = max(out[n-1].hi, r.hi)
		} else {
			out = append(out, r)
		}
	}
	return out
}

// complement returns the characters that are not in rs, which need not be sorted.
func (rs ranges) complement() ranges {
	var out ranges
	at := rune(0)
	for _, r := range rs.sorted() {
		if r.lo > at {
			out = append(out, span{at, r.lo - 1})
		}
		at = r.hi + 1
	}
	if at <= unicode.MaxRune {
		out = append(out, span{at, unicode.MaxRune})
	}
	return out
}

// cased are the characters that differ from another only in case.
var cased = sync.OnceValue(func() []rune {
	var out []rune
	for r := range rune(unicode.MaxRune) {
		if unicode.SimpleFold(r) != r {
			out = append(out, r)
		}
	}
	return out
})

// folded adds what differs from a character of rs only in case (simple case folding).
func (rs ranges) folded() ranges {
	in := rs.sorted()
	out := slices.Clone(in)
	for _, r := range cased() {
		if in.has(r) {
			for x := unicode.SimpleFold(r); x != r; x = unicode.SimpleFold(x) {
				out = append(out, span{x, x})
			}
		}
	}
	return out.sorted()
}

// within returns the parts of sorted ranges from lo to hi.
func (rs ranges) within(lo, hi rune) ranges {
	var out ranges
	i, _ := slices.BinarySearchFunc(rs, lo, func(r span, lo rune) int { return cmp.Compare(r.hi, lo) })
	for ; i < len(rs) && rs[i].lo <= hi; i++ {
		out = append(out, span{max(lo, rs[i].lo), min(hi, rs[i].hi)})
	}
	return out
}

func (rs ranges) has(r rune) bool {
	i, _ := slices.BinarySearchFunc(rs, r, func(s span, r rune) int { return cmp.Compare(s.hi, r) })
	return i < len(rs) && rs[i].lo <= r
}

func rangesOf(t *unicode.RangeTable) ranges {
	var out ranges
	add := func(lo, hi, stride rune) {
		if stride == 1 {
			out = append(out, span{lo, hi})
			return
		}
		for ; lo <= hi; lo += stride {
			out = append(out, span{lo, lo})
		}
	}
	for _, r := range t.R16 {
		add(rune(r.Lo), rune(r.Hi), rune(r.Stride))
	}
	for _, r := range t.R32 {
		add(rune(r.Lo), rune(r.Hi), rune(r.Stride))
	}
	return out.sorted()
}

// words are the characters of \w.
var words = []*unicode.RangeTable{unicode.L, unicode.Mn, unicode.Nd, unicode.Pc, unicode.Join_Control}

func wordRanges() ranges {
	var out ranges
	for _, t := range words {
		out = append(out, rangesOf(t)...)
	}
	return out.sorted()
}

func isWord(r rune) bool { return unicode.In(r, words...) }

// A set is what one character of a pattern may be.
type set struct {
	ascii  [2]uint64
	plane  *[1 << 10]uint64 // of the Basic Multilingual Plane, if there are many ranges
	ranges ranges
}

// fewRanges is how many ranges are searched as fast as a table of the plane.
const fewRanges = 4

func newSet(rs ranges) *set {
	s := &set{ranges: rs.sorted()}
	for _, r := range s.ranges.within(0, utf8.RuneSelf-1) {
		for x := r.lo; x <= r.hi; x++ {
			s.ascii[x/64] |= 1 << (x % 64)
		}
	}
	if len(s.ranges) > fewRanges {
		s.plane = new([1 << 10]uint64)
		for _, r := range s.ranges.within(0, 1<<16-1) {
			for x := r.lo; x <= r.hi; x++ {
				s.plane[x/64] |= 1 << (x % 64)
			}
		}
	}
	return s
}

func (s *set) has(r rune) bool {
	switch {
	case r < utf8.RuneSelf:
		return s.ascii[r>>6]>>(r&63)&1 != 0
	case r < 1<<16 && s.plane != nil:
		return s.plane[r>>6]>>(r&63)&1 != 0
	}
	return s.ranges.has(r)
}

// lead marks the bytes that characters of s begin with. A byte that is not UTF-8 counts as
// U+FFFD.
func (s *set) lead(bytes *[256]bool) {
	for b := range utf8.RuneSelf {
		bytes[b] = bytes[b] || s.has(rune(b))
	}
	for _, r := range s.ranges.within(utf8.RuneSelf, unicode.MaxRune) {
		for b := first(r.lo); ; b++ {
			bytes[b] = true
			if b == first(r.hi) {
				break
			}
		}
	}
	if s.has(utf8.RuneError) {
		for b := utf8.RuneSelf; b < len(bytes); b++ {
			bytes[b] = true
		}
	}
}

// first returns the first byte of a character in UTF-8.
func first(r rune) byte {
	if r >= 0xD800 && r <= 0xDFFF {
		return 0xED // surrogates have no encoding; this keeps the order
	}
	return string(r)[0]
}
