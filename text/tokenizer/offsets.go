package tokenizer

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"talf/internal/limits"
)

// A Span is a range of bytes in a text: text[Start:End].
type Span struct{ Start, End int }

// EncodeOffsets is Encode with the range of bytes of text that each id stands for. The
// spans follow the reference's offsets, which count characters. They cover whole
// characters, so tokens that share a character overlap. Ids that the post-processor
// adds have both ends 0. White space at the ends is excluded if the post-processor has
// trim_offsets. A character composed by a normalizer belongs to the first of its parts.
// EncodeOffsets takes several times as long as Encode.
func (t *Tokenizer) EncodeOffsets(text string, addSpecial bool) ([]int32, []Span, error) {
	return t.encodeOffsets(text, nil, addSpecial)
}

func (t *Tokenizer) encodeOffsets(text string, literal literals, addSpecial bool) ([]int32, []Span, error) {
	e := offsetEncoder{t: t, text: text, sc: t.scratch.get(), meter: encodeMeter(len(text))}
	e.ids, e.spans = make([]int32, 0, len(text)/3+8), make([]Span, 0, len(text)/3+8)
	defer t.scratch.put(e.sc)
	if addSpecial {
		e.outside(t.pre)
	}
	first := len(e.ids)
	given := literal.veto(&t.raw, func(i, j int) Span { return Span{i, j} })
	for _, seg := range t.raw.segments(nil, text, given) {
		if seg.id >= 0 {
			e.add(seg.id, Span{seg.start, seg.end})
			continue
		}
		a := alignedTo(text[seg.start:seg.end], seg.start)
		if err := e.meter.Alloc(fromBytes * len(a.at)); err != nil {
			return nil, nil, err
		}
		for _, n := range t.norms {
			was := len(a.at)
			var err error
			if a, err = n.part.align(a, e.meter); err == nil {
				err = e.meter.Alloc(fromBytes * len(a.at))
			}
			if err != nil {
				return nil, nil, t.fault(n.path, err)
			}
			e.meter.Free(fromBytes * was)
		}
		for _, sub := range t.normalized.segments(nil, a.s, literal.veto(&t.normalized, a.span)) {
			b := a.slice(sub.start, sub.end)
			if sub.id >= 0 {
				e.add(sub.id, b.span(0, len(b.s)))
				continue
			}
			if err := e.plain(alignedPiece{b, seg.start == 0 && sub.start == 0}); err != nil {
				return nil, nil, err
			}
		}
		e.meter.Free(fromBytes * len(a.at))
	}
	if t.trim {
		e.trim(first)
	}
	if addSpecial {
		e.outside(t.post)
	}
	return e.ids, e.spans, nil
}

type offsetEncoder struct {
	t     *Tokenizer
	text  string
	sc    *scratch
	meter *limits.Meter
	ids   []int32
	spans []Span
	ws    []int // widths in bytes of a piece's ids
}

func (e *offsetEncoder) add(id int32, s Span) {
	e.ids, e.spans = append(e.ids, id), append(e.spans, s)
}

func (e *offsetEncoder) outside(ids []int32) {
	for _, id := range ids {
		e.add(id, Span{})
	}
}

// plain encodes normalized text without added tokens.
func (e *offsetEncoder) plain(p alignedPiece) error {
	in := []alignedPiece{p}
	charged := 0 // pieces
	for _, st := range e.t.steps {
		var out []alignedPiece
		for _, q := range in {
			n := len(out)
			var err error
			if out, err = st.part.align(out, q, e.meter); err == nil {
				err = e.meter.Alloc(alignedBytes * (len(out) - n))
			}
			if err != nil {
				return e.t.fault(st.path, err)
			}
		}
		e.meter.Free(alignedBytes * charged)
		in, charged = out, len(out)
	}
	defer func() { e.meter.Free(alignedBytes * charged) }()
	m := e.t.model
	for _, q := range in {
		n := len(e.ids)
		e.ids = m.encodeCut(e.ids, q.s, e.sc)
		at := 0
		e.ws = m.widths(e.ws[:0], e.ids[n:], q.s, e.sc)
		for _, w := range e.ws {
			e.spans = append(e.spans, q.span(at, at+w))
			at += w
		}
	}
	return nil
}

// trim removes white space from the spans from index first on, as the ByteLevel
// post-processor does.
func (e *offsetEncoder) trim(first int) {
	blank := func(r rune) bool { return r == 'Ġ' || unicode.IsSpace(r) }
	for i := first; i < len(e.ids); i++ {
		tok, s := e.t.tokens.At(e.ids[i]), e.spans[i]
		left := utf8.RuneCountInString(tok[:len(tok)-len(strings.TrimLeftFunc(tok, blank))])
		right := utf8.RuneCountInString(tok[len(strings.TrimRightFunc(tok, blank)):])
		// A space inserted by add_prefix_space is not in the text.
		if left > 0 && e.t.trimPrefix && (i == first || s.Start == 0) {
			left--
		}
		for ; left > 0 && s.Start < s.End; left-- {
			_, w := utf8.DecodeRuneInString(e.text[s.Start:])
			s.Start = min(s.Start+w, s.End)
		}
		if utf8.RuneCountInString(e.text[:min(s.End, utf8.UTFMax*right)]) >= right {
			for ; right > 0 && s.End > s.Start; right-- {
				_, w := utf8.DecodeLastRuneInString(e.text[:s.End])
				s.End = max(s.End-w, s.Start)
			}
		}
		e.spans[i] = s
	}
}

// widths appends the number of bytes of a piece that each of its ids stands for to ws.
func (m *bpe) widths(ws []int, ids []int32, piece string, sc *scratch) []int {
	if m.ignoreMerges {
		if _, ok := m.whole.Find(piece); ok {
			return append(ws, len(piece))
		}
	}
	sum, plain, start := 0, m.prefix == "" && m.suffix == "", len(ws)
	for _, id := range ids {
		w := int(m.wide[id])
		ws = append(ws, w)
		sum += w
		plain = plain && id != m.unk
	}
	if plain && sum == len(piece) {
		return ws
	}
	// Some tokens have texts that do not show their widths: merge once more and see
	// which first symbols became one.
	var sym []int
	sc.ids = m.startWidths(sc.ids[:0], &sym, piece)
	m.mergeBuckets(nil, sc.ids, sc)
	ws = ws[:start]
	for i, w := range sym {
		if sc.merger.alive[i/64]>>(i%64)&1 != 0 {
			ws = append(ws, 0)
		}
		ws[len(ws)-1] += w
	}
	return ws
}

// aligned is a text that is being encoded, with the origin of each byte.
type aligned struct {
	s  string
	at []from // one per byte of s; the bytes of a character have the same one
}

// The sizes of a from and of an alignedPiece.
const (
	fromBytes    = 8
	alignedBytes = 48
)

// from is the part of the input that a byte stands for.
type from struct{ start, end int32 }

type alignedPiece struct {
	aligned
	first bool // it begins at the start of the input
}

// alignedTo returns a part of the input that starts at a given place.
func alignedTo(s string, start int) aligned {
	a := aligned{s, make([]from, len(s))}
	for i := 0; i < len(s); {
		_, w := utf8.DecodeRuneInString(s[i:])
		for j := range w {
			a.at[i+j] = from{int32(start + i), int32(start + i + w)}
		}
		i += w
	}
	return a
}

func (a aligned) slice(i, j int) aligned { return aligned{a.s[i:j], a.at[i:j:j]} }

// span is the part of the input that a.s[i:j] stands for.
func (a aligned) span(i, j int) Span {
	if i >= j || j > len(a.at) {
		return Span{i, j} // only for tokens without text
	}
	return Span{int(a.at[i].start), int(a.at[j-1].end)}
}

// last returns the origin of text inserted before byte i: that of the preceding byte.
func (a aligned) last(i int) from {
	if i == 0 {
		return from{}
	}
	return a.at[i-1]
}

// prepend puts text in front, which then stands for the first character.
func (a aligned) prepend(s string, m *limits.Meter) (aligned, error) {
	if a.s == "" {
		return a, nil
	}
	if err := m.Alloc(len(s) + len(a.s)); err != nil {
		return a, err
	}
	at := make([]from, 0, len(s)+len(a.at))
	for range len(s) {
		at = append(at, a.at[0])
	}
	return aligned{s + a.s, append(at, a.at...)}, nil
}

// replace puts text in place of the matched spans.
func (a aligned) replace(spans []span, with string, m *limits.Meter) (aligned, error) {
	size := replacedLen(spans, with)
	if err := m.Alloc(spanBytes*len(spans) + size); err != nil {
		return a, err
	}
	defer m.Free(spanBytes * len(spans))
	var b strings.Builder
	b.Grow(size)
	at := make([]from, 0, size)
	for _, sp := range spans {
		if !sp.match {
			b.WriteString(a.s[sp.start:sp.end])
			at = append(at, a.at[sp.start:sp.end]...)
			continue
		}
		b.WriteString(with)
		for range len(with) {
			at = append(at, a.last(sp.end))
		}
	}
	return aligned{b.String(), at}, nil
}

func (n prependNorm) align(a aligned, m *limits.Meter) (aligned, error) {
	return a.prepend(string(n), m)
}

func (n literalNorm) align(a aligned, m *limits.Meter) (aligned, error) {
	return regexNorm{literalFinder(n.old), n.new}.align(a, m)
}

func (n regexNorm) align(a aligned, m *limits.Meter) (aligned, error) {
	spans, err := n.find.spans(a.s, m)
	if err != nil {
		return a, err
	}
	return a.replace(spans, n.new, m)
}

func (n lowerNorm) align(a aligned, m *limits.Meter) (aligned, error) {
	var b strings.Builder
	at := make([]from, 0, len(a.at))
	for i := 0; i < len(a.s); {
		_, w := utf8.DecodeRuneInString(a.s[i:])
		low, err := n.normalize(a.s[i:i+w], m)
		if err != nil {
			return a, err
		}
		b.WriteString(low)
		for range len(low) {
			at = append(at, a.at[i])
		}
		i += w
	}
	return aligned{b.String(), at}, nil
}

func (n stripNorm) align(a aligned, _ *limits.Meter) (aligned, error) {
	i, j := 0, len(a.s)
	if n.left {
		i = j - len(strings.TrimLeftFunc(a.s, unicode.IsSpace))
	}
	if n.right {
		j = max(i, len(strings.TrimRightFunc(a.s, unicode.IsSpace)))
	}
	return a.slice(i, j), nil
}

func (n formNorm) align(a aligned, m *limits.Meter) (aligned, error) {
	if n.form.IsNormalString(a.s) {
		return a, nil
	}
	if err := m.Alloc(formCharBytes * len(a.s)); err != nil {
		return a, err
	}
	defer m.Free(formCharBytes * len(a.s))
	var b strings.Builder
	at := make([]from, 0, len(a.at))
	i := 0 // bytes of a.s replaced so far
	for _, c := range formChars(a.s, n.form) {
		f := a.last(i)
		if c.change <= 0 {
			f = a.at[i]
			for range 1 - c.change {
				_, w := utf8.DecodeRuneInString(a.s[i:])
				i += w
			}
		}
		was := b.Len()
		c.write(&b)
		for range b.Len() - was {
			at = append(at, f)
		}
	}
	return aligned{b.String(), at}, m.Alloc(b.Len())
}

// cuts turns spans into pieces.
func (p alignedPiece) cuts(dst []alignedPiece, spans []span) []alignedPiece {
	for _, sp := range spans {
		if sp.end > sp.start {
			dst = append(dst, alignedPiece{p.slice(sp.start, sp.end), p.first && sp.start == 0})
		}
	}
	return dst
}

func (st scanStep) align(dst []alignedPiece, p alignedPiece, m *limits.Meter) ([]alignedPiece, error) {
	spans, err := scanFinder(st).spans(p.s, m)
	return p.cuts(dst, spans), err
}

func (st prefixStep) align(dst []alignedPiece, p alignedPiece, m *limits.Meter) ([]alignedPiece, error) {
	if !strings.HasPrefix(p.s, " ") {
		var err error
		if p.aligned, err = p.prepend(" ", m); err != nil {
			return nil, err
		}
	}
	return append(dst, p), nil
}

func (st patternStep) align(dst []alignedPiece, p alignedPiece, m *limits.Meter) ([]alignedPiece, error) {
	spans, err := st.cuts(p.s, m)
	if err != nil {
		return nil, err
	}
	return p.cuts(dst, spans), nil
}

func (st metaspaceStep) align(dst []alignedPiece, p alignedPiece, m *limits.Meter) ([]alignedPiece, error) {
	a, err := literalNorm{" ", st.mark}.align(p.aligned, m)
	if err == nil && st.marks(a.s, p.first) {
		a, err = a.prepend(st.mark, m)
	}
	if err != nil {
		return nil, err
	}
	p.aligned = a
	if !st.split {
		return append(dst, p), nil
	}
	return st.pattern().align(dst, p, m)
}
