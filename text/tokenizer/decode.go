package tokenizer

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"talf/internal/limits"
	"talf/internal/texts"
)

// decoding turns ids into text. Everything that depends on only one token is computed
// on loading: text and fallback have an entry for every id.
type decoding struct {
	text     *texts.Packed
	fallback []int16 // byte that a byte_fallback token stands for, or -1
	// head, if not nil, returns the text of a token in first place (Metaspace).
	head func(id int32) string
	// raw means that the texts are bytes of a stream that is read as UTF-8 at the end;
	// invalid UTF-8 becomes U+FFFD.
	raw bool
	// strip is removed from the front of the whole text, at most stripN times.
	strip  rune
	stripN int
	// sep joins the tokens of a tokenizer without a decoder.
	sep string
}

// Stream decodes ids as they come. The text that it has returned so far is always a
// prefix of what Decode returns for all ids, and it ends between characters; Flush
// returns the rest. The tokenizer may be shared; the Stream is for one goroutine.
//
// Text is held back as long as later ids can change it: an incomplete UTF-8 sequence,
// or a run of byte-fallback tokens, which is text only if the whole run is valid.
type Stream struct {
	t    *Tokenizer
	skip bool
	n    int // number of tokens not skipped
	left int // strips still to be done
	pend []byte
}

// NewStream returns a streaming decoder. skipSpecial omits special tokens.
func (t *Tokenizer) NewStream(skipSpecial bool) *Stream {
	return &Stream{t: t, skip: skipSpecial, left: t.dec.stripN}
}

// Push takes the next id and returns the text that is now certain. The text is "" for
// an id that only starts a character or that is not in the vocabulary.
func (st *Stream) Push(id int32) string { return string(st.push(nil, id)) }

// Flush ends the text and returns what Push held back. The Stream can then be
// used for another text.
func (st *Stream) Flush() string {
	s := string(st.flush(nil))
	st.n, st.left = 0, st.t.dec.stripN
	return s
}

func (st *Stream) push(dst []byte, id int32) []byte {
	t, d := st.t, &st.t.dec
	if !t.Known(id) || st.skip && t.special[id] {
		return dst
	}
	text := d.text.At(id)
	if st.n == 0 && d.head != nil {
		text = d.head(id)
	}
	if st.n > 0 && d.sep != "" {
		dst = append(dst, d.sep...)
	}
	st.n++
	if d.raw {
		if len(st.pend) > 0 {
			st.pend = append(st.pend, text...)
			rest := appendValid(&dst, st.pend)
			st.pend = st.pend[:copy(st.pend, rest)]
			return dst
		}
		if utf8.ValidString(text) {
			return append(dst, text...)
		}
		st.pend = append(st.pend, appendValid(&dst, []byte(text))...)
		return dst
	}
	if d.fallback != nil {
		if b := d.fallback[id]; b >= 0 {
			st.pend = append(st.pend, byte(b))
			return dst
		}
		dst = st.endRun(dst)
	}
	return st.emit(dst, text)
}

// endRun writes the byte-fallback tokens held back: as text if they form valid UTF-8,
// otherwise as one U+FFFD per byte.
func (st *Stream) endRun(dst []byte) []byte {
	if len(st.pend) == 0 {
		return dst
	}
	if utf8.Valid(st.pend) {
		dst = st.emit(dst, string(st.pend))
	} else {
		for range st.pend {
			dst = st.emit(dst, "\uFFFD")
		}
	}
	st.pend = st.pend[:0]
	return dst
}

// emit writes text, stripping the front of the whole text.
func (st *Stream) emit(dst []byte, text string) []byte {
	for st.left > 0 && text != "" {
		r, w := utf8.DecodeRuneInString(text)
		if r != st.t.dec.strip {
			st.left = 0
			break
		}
		text = text[w:]
		st.left--
	}
	return append(dst, text...)
}

func (st *Stream) flush(dst []byte) []byte {
	if st.t.dec.raw {
		for len(st.pend) > 0 {
			n, _ := sequence(st.pend)
			dst = append(dst, "\uFFFD"...)
			st.pend = st.pend[n:]
		}
		st.pend = nil
		return dst
	}
	return st.endRun(dst)
}

// appendValid writes b to dst as UTF-8, with one U+FFFD for every maximal part of a
// sequence that cannot continue (Unicode Standard, section 3.9, "U+FFFD Substitution of
// Maximal Subparts"). It returns the incomplete sequence at the end of b, if any.
func appendValid(dst *[]byte, b []byte) (rest []byte) {
	for len(b) > 0 {
		if b[0] < utf8.RuneSelf {
			*dst = append(*dst, b[0])
			b = b[1:]
			continue
		}
		n, state := sequence(b)
		switch state {
		case seqWhole:
			*dst = append(*dst, b[:n]...)
		case seqPart:
			return b
		default:
			*dst = append(*dst, "\uFFFD"...)
		}
		b = b[n:]
	}
	return nil
}

const (
	seqWhole  = iota // b starts with a complete character of n bytes
	seqPart          // b is the beginning of a character
	seqBroken        // the first n bytes cannot be a character
)

// sequence looks at the UTF-8 sequence at the start of b (Unicode Standard,
// table 3-7).
func sequence(b []byte) (n, state int) {
	lo, hi := byte(0x80), byte(0xBF)
	size := 0
	switch c := b[0]; {
	case c < 0x80:
		return 1, seqWhole
	case c >= 0xC2 && c <= 0xDF:
		size = 2
	case c >= 0xE0 && c <= 0xEF:
		size = 3
		if c == 0xE0 {
			lo = 0xA0
		} else if c == 0xED {
			hi = 0x9F
		}
	case c >= 0xF0 && c <= 0xF4:
		size = 4
		if c == 0xF0 {
			lo = 0x90
		} else if c == 0xF4 {
			hi = 0x8F
		}
	default:
		return 1, seqBroken
	}
	for i := 1; i < size; i++ {
		if i == len(b) {
			return i, seqPart
		}
		if b[i] < lo || b[i] > hi {
			return i, seqBroken
		}
		lo, hi = 0x80, 0xBF
	}
	return size, seqWhole
}

// Decode returns the text of ids; skipSpecial omits special tokens. Ids that are not in
// the vocabulary have no text, as in the reference. Bytes of a byte-level vocabulary
// that are not UTF-8 become U+FFFD; see DecodeBytes.
func (t *Tokenizer) Decode(ids []int32, skipSpecial bool) string {
	st := Stream{t: t, skip: skipSpecial, left: t.dec.stripN}
	dst := make([]byte, 0, 4*len(ids)+16)
	for _, id := range ids {
		dst = st.push(dst, id)
	}
	return string(st.flush(dst))
}

// DecodeBytes returns the bytes that ids stand for, valid UTF-8 or not. It is the exact
// inverse of Encode for a byte-level vocabulary without a normalizer. For other
// vocabularies it equals Decode.
func (t *Tokenizer) DecodeBytes(ids []int32, skipSpecial bool) []byte {
	if !t.dec.raw {
		return []byte(t.Decode(ids, skipSpecial))
	}
	var dst []byte
	for _, id := range ids {
		if t.Known(id) && !(skipSpecial && t.special[id]) {
			dst = append(dst, t.dec.text.At(id)...)
		}
	}
	return dst
}

// Bytes returns the bytes that id stands for inside a text; at the start of one, a
// decoder may drop a space. It returns false if id has no text of its own because it is
// unknown or special.
func (t *Tokenizer) Bytes(id int32) ([]byte, bool) {
	if !t.Known(id) || t.special[id] {
		return nil, false
	}
	if f := t.dec.fallback; f != nil && f[id] >= 0 {
		return []byte{byte(f[id])}, true
	}
	return append([]byte(t.dec.sep), t.dec.text.At(id)...), true
}

// Text is Bytes without added tokens, special or not: it returns the bytes that a token of the
// model adds to a text.
func (t *Tokenizer) Text(id int32) ([]byte, bool) {
	if !t.Known(id) {
		return nil, false
	}
	if at, ok := t.added[t.tokens.At(id)]; ok && at == id {
		return nil, false
	}
	return t.Bytes(id)
}

// FirstText is Text for the first token of a text: the bytes that a Stream makes of it there.
func (t *Tokenizer) FirstText(id int32) ([]byte, bool) {
	text, ok := t.Text(id)
	d := &t.dec
	if !ok || d.raw {
		return text, ok
	}
	if text = text[len(d.sep):]; d.head != nil {
		text = []byte(d.head(id))
	}
	for range d.stripN {
		r, w := utf8.DecodeRune(text)
		if len(text) == 0 || r != d.strip {
			break
		}
		text = text[w:]
	}
	return text, true
}

// tokenStep rewrites the text of one token; i is its index among the tokens. What it makes is
// charged to m.
type tokenStep func(s string, i int, m *limits.Meter) (string, error)

func replaceStep(find finder, with string) tokenStep {
	return func(s string, _ int, m *limits.Meter) (string, error) {
		return regexNorm{find, with}.normalize(s, m)
	}
}

func metaspaceText(mark string, drop bool) tokenStep {
	return func(s string, i int, _ *limits.Meter) (string, error) {
		if i == 0 && drop {
			return strings.ReplaceAll(s, mark, ""), nil
		}
		return strings.ReplaceAll(s, mark, " "), nil // a mark has at least as many bytes
	}
}

func stripText(c rune, start, stop int) tokenStep {
	return func(s string, _ int, _ *limits.Meter) (string, error) {
		for range start {
			r, w := utf8.DecodeRuneInString(s)
			if s == "" || r != c {
				break
			}
			s = s[w:]
		}
		for range stop {
			r, w := utf8.DecodeLastRuneInString(s)
			if s == "" || r != c {
				break
			}
			s = s[:len(s)-w]
		}
		return s, nil
	}
}

// parseDecoder builds t.dec; raw is nil if the file has no decoder. What the decoder makes of all
// tokens is charged to m.
func (t *Tokenizer) parseDecoder(raw json.RawMessage, m *limits.Meter) error {
	d := &t.dec
	if raw == nil {
		d.text = t.tokens
		d.sep = " "
		return nil
	}
	p := decoderParser{d: d}
	if err := p.parse(raw, "decoder"); err != nil {
		return err
	}
	apply := func(s string, i int, m *limits.Meter) (string, error) {
		for _, st := range p.steps {
			var err error
			if s, err = st.part(s, i, m); err != nil {
				return "", fmt.Errorf("%s: %w", st.path, err)
			}
		}
		return s, nil
	}
	if p.bytes {
		d.fallback = make([]int16, t.tokens.Len())
	}
	var failed error
	d.text = t.tokens.Map(func(dst []byte, id int32, tok string) []byte {
		if d.raw { // there are no steps
			dst, ok := unmapBytes(dst, tok)
			if !ok {
				dst = append(dst, tok...)
			}
			return dst
		}
		// Index 1 stands for every token but the first.
		text, err := apply(tok, 1, m)
		switch n := len(text); {
		case failed != nil:
		case err != nil:
			failed = fmt.Errorf("token %.100q: %w", tok, err)
		case n > maxText(tok):
			failed = fmt.Errorf("decoder: %d bytes of text for token %.100q, expected at most %d", n, tok, maxText(tok))
		}
		if failed != nil {
			return dst
		}
		if p.bytes {
			d.fallback[id] = fallbackByte(text)
		}
		return append(dst, text...)
	})
	if failed != nil {
		return failed
	}
	if d.raw && t.model.byteLevel && t.model.whole != nil {
		t.model.whole.Share(d.text) // the same texts, where they are found
	}
	if p.first {
		d.head = func(id int32) string {
			tok := t.tokens.At(id)
			text, err := apply(tok, 0, encodeMeter(len(tok)))
			if err != nil || len(text) > maxText(tok) {
				return d.text.At(id) // which is not too long
			}
			return text
		}
	}
	return nil
}

// maxText bounds the decoded text of a token, so that a text is not much longer than its tokens.
// Published decoders put one character in place of another, or of nothing.
func maxText(tok string) int { return 64 + 16*len(tok) }

type decoderParser struct {
	d     *decoding
	steps []placed[tokenStep]
	left  parts
	first bool // a step treats the first token differently
	bytes bool // ByteFallback has been seen
	fused bool
	done  bool // nothing may follow
}

// parse accepts a decoder's parts only in the order in which each token can be decoded
// on its own: steps that rewrite single tokens, ByteFallback, Fuse, Strip of the start
// of the whole text; or ByteLevel alone.
func (p *decoderParser) parse(raw json.RawMessage, path string) error {
	o, kind, err := typed(raw, path)
	if err == nil {
		err = p.left.take(path)
	}
	if err != nil {
		return err
	}
	step := func(st tokenStep) { p.steps = append(p.steps, placed[tokenStep]{st, path}) }
	if kind == "Sequence" {
		var list []json.RawMessage
		if err := errors.Join(o.need("decoders", &list), o.only("type", "decoders")); err != nil {
			return err
		}
		for i, raw := range list {
			if err := p.parse(raw, fmt.Sprintf("%s.decoders[%d]", path, i)); err != nil {
				return err
			}
		}
		return nil
	}
	late := func() error {
		return fmt.Errorf("%s: %s in this place of a decoder is not supported", path, kind)
	}
	if p.done {
		return late()
	}
	switch kind {
	case "ByteLevel":
		if len(p.steps) > 0 || p.bytes || p.fused {
			return late()
		}
		p.d.raw, p.done = true, true
		return o.only("type", "add_prefix_space", "trim_offsets", "use_regex")
	case "Replace":
		if p.bytes || p.fused {
			return late()
		}
		var to string
		find, _, err := parsePattern(o)
		if err := errors.Join(err, o.need("content", &to), o.only("type", "pattern", "content")); err != nil {
			return err
		}
		step(replaceStep(find, to))
		return nil
	case "Metaspace":
		if p.bytes || p.fused {
			return late()
		}
		var mark, scheme string
		if err := errors.Join(metaspace(o, &mark, &scheme),
			o.only("type", "replacement", "prepend_scheme", "add_prefix_space", "split", "str_rep")); err != nil {
			return err
		}
		step(metaspaceText(mark, scheme != "never"))
		p.first = scheme != "never"
		return nil
	case "ByteFallback":
		if p.bytes || p.fused {
			return late()
		}
		if p.first {
			return fmt.Errorf("%s: ByteFallback after Metaspace is not supported", path)
		}
		p.bytes = true
		return o.only("type")
	case "Fuse":
		p.fused = true
		return o.only("type")
	case "Strip":
		var c string
		var start, stop int
		if err := errors.Join(o.need("content", &c), o.need("start", &start), o.need("stop", &stop),
			o.only("type", "content", "start", "stop")); err != nil {
			return err
		}
		if utf8.RuneCountInString(c) != 1 || start < 0 || stop < 0 {
			return fmt.Errorf("%s: expected one character as content, start and stop not negative", path)
		}
		r, _ := utf8.DecodeRuneInString(c)
		switch {
		case !p.fused && !p.bytes:
			step(stripText(r, start, stop))
		case p.fused && stop == 0:
			p.d.strip, p.d.stripN, p.done = r, start, true
		default:
			return late()
		}
		return nil
	}
	return o.refuse(kind)
}
