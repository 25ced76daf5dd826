package tokenizer

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"talf/internal/limits"
	"talf/text/tokenizer/internal/regex"
)

// piece is a part of a text that is being encoded.
type piece struct {
	s     string
	first bool // it begins at the start of the input
}

// splitStep is one pre-tokenizer: it appends the pieces of p to dst, none empty. The texts that
// it makes and its work are charged to m.
type splitStep interface {
	apply(dst []piece, p piece, m *limits.Meter) ([]piece, error)
	// align is apply with the origin of the pieces' bytes.
	align(dst []alignedPiece, p alignedPiece, m *limits.Meter) ([]alignedPiece, error)
}

// span is a part of a text and whether the pattern matched it.
type span struct {
	start, end int
	match      bool
}

// spanBytes is the size of a span. A text has at most two a byte, and one more.
const spanBytes = 24

// finder lists the matches of a pattern and the gaps between them, in order,
// covering s.
type finder interface {
	spans(s string, m *limits.Meter) ([]span, error)
}

// scanStep cuts with a scanner. A scanner's pieces cover the text, so every behaviour
// except Removed would equal Isolated.
type scanStep struct{ scanner }

func (st scanStep) apply(dst []piece, p piece, _ *limits.Meter) ([]piece, error) {
	for i := 0; i < len(p.s); {
		j := st.next(p.s, i)
		dst = append(dst, piece{p.s[i:j], p.first && i == 0})
		i = j
	}
	return dst, nil
}

// prefixStep implements add_prefix_space.
type prefixStep struct{}

func (prefixStep) apply(dst []piece, p piece, m *limits.Meter) ([]piece, error) {
	if !strings.HasPrefix(p.s, " ") {
		if err := m.Alloc(len(p.s) + 1); err != nil {
			return nil, err
		}
		p.s = " " + p.s
	}
	return append(dst, p), nil
}

// patternStep implements Split, Digits and the split of Metaspace.
type patternStep struct {
	find     finder
	behavior string
	invert   bool
}

const (
	removed      = "Removed"
	isolated     = "Isolated"
	contiguous   = "Contiguous"
	withPrevious = "MergedWithPrevious"
	withNext     = "MergedWithNext"
)

func (st patternStep) apply(dst []piece, p piece, m *limits.Meter) ([]piece, error) {
	spans, err := st.cuts(p.s, m)
	if err != nil {
		return nil, err
	}
	for _, sp := range spans {
		if sp.end > sp.start {
			dst = append(dst, piece{p.s[sp.start:sp.end], p.first && sp.start == 0})
		}
	}
	return dst, nil
}

// cuts returns the pieces of s as spans, some of which may be empty.
func (st patternStep) cuts(s string, m *limits.Meter) ([]span, error) {
	in, err := st.find.spans(s, m)
	if err != nil {
		return nil, err
	}
	if st.invert {
		for i := range in {
			in[i].match = !in[i].match
		}
	}
	if err := m.Alloc(spanBytes * len(in)); err != nil {
		return nil, err
	}
	defer m.Free(spanBytes * len(in)) // what is returned is charged as pieces
	out := in[:0:0]
	switch st.behavior {
	case removed:
		for _, sp := range in {
			if !sp.match {
				out = append(out, sp)
			}
		}
	case isolated:
		out = in
	case contiguous:
		for _, sp := range in {
			if n := len(out); n > 0 && out[n-1].match == sp.match {
				out[n-1].end = sp.end
			} else {
				out = append(out, sp)
			}
		}
	case withPrevious:
		previous := false
		for _, sp := range in {
			if n := len(out); sp.match && !previous && n > 0 {
				out[n-1].end = sp.end
			} else {
				out = append(out, sp)
			}
			previous = sp.match
		}
	case withNext:
		// From the right: a match joins the text after it unless that is a match too.
		previous := false
		for i := len(in) - 1; i >= 0; i-- {
			sp := in[i]
			if n := len(out); sp.match && !previous && n > 0 {
				out[n-1].start = sp.start
			} else {
				out = append(out, sp)
			}
			previous = sp.match
		}
		for i, j := 0, len(out)-1; i < j; i, j = i+1, j-1 {
			out[i], out[j] = out[j], out[i]
		}
	}
	return out, nil
}

// literalFinder finds a string.
type literalFinder string

func (f literalFinder) spans(s string, _ *limits.Meter) ([]span, error) {
	if f == "" {
		return []span{{0, len(s), false}}, nil
	}
	var out []span
	at := 0
	for {
		i := strings.Index(s[at:], string(f))
		if i < 0 {
			break
		}
		if i > 0 {
			out = append(out, span{at, at + i, false})
		}
		out = append(out, span{at + i, at + i + len(f), true})
		at += i + len(f)
	}
	if at < len(s) {
		out = append(out, span{at, len(s), false})
	}
	return out, nil
}

// runeFinder finds single characters.
type runeFinder func(rune) bool

func (f runeFinder) spans(s string, _ *limits.Meter) ([]span, error) {
	var out []span
	at := 0
	for i := 0; i < len(s); {
		r, w := utf8.DecodeRuneInString(s[i:])
		if f(r) {
			if at < i {
				out = append(out, span{at, i, false})
			}
			out = append(out, span{i, i + w, true})
			at = i + w
		}
		i += w
	}
	if at < len(s) {
		out = append(out, span{at, len(s), false})
	}
	return out, nil
}

// regexFinder finds a regex.
type regexFinder struct{ *regex.Pattern }

func (f regexFinder) spans(s string, m *limits.Meter) ([]span, error) {
	if s == "" {
		return nil, nil
	}
	var out []span
	at := 0
	err := f.Each(s, m, func(start, end int) {
		if start > at {
			out = append(out, span{at, start, false})
		}
		out = append(out, span{start, end, true})
		at = end
	})
	if err != nil {
		return nil, fmt.Errorf("find %.200q: %w", f, err)
	}
	if at < len(s) {
		out = append(out, span{at, len(s), false})
	}
	return out, nil
}

// metaspaceStep is the Metaspace pre-tokenizer.
type metaspaceStep struct {
	mark   string
	scheme string // first, always, never
	split  bool
}

func (st metaspaceStep) apply(dst []piece, p piece, m *limits.Meter) ([]piece, error) {
	s, err := literalNorm{" ", st.mark}.normalize(p.s, m)
	if err == nil && st.marks(s, p.first) {
		s, err = prependNorm(st.mark).normalize(s, m)
	}
	if err != nil {
		return nil, err
	}
	p.s = s
	if !st.split {
		return append(dst, p), nil
	}
	return st.pattern().apply(dst, p, m)
}

// marks reports whether a mark is put before s.
func (st metaspaceStep) marks(s string, first bool) bool {
	return (st.scheme == "always" || st.scheme == "first" && first) && !strings.HasPrefix(s, st.mark)
}

func (st metaspaceStep) pattern() patternStep {
	return patternStep{find: literalFinder(st.mark), behavior: withNext}
}

// isNumeric is the reference's test for the Digits pre-tokenizer.
func isNumeric(r rune) bool { return unicode.IsNumber(r) }

// parsePreTokenizer returns the steps and whether they end in the byte-level alphabet.
func parsePreTokenizer(raw json.RawMessage, path string, left *parts) (steps []placed[splitStep], byteLevel bool, err error) {
	o, kind, err := typed(raw, path)
	if err == nil {
		err = left.take(path)
	}
	if err != nil {
		return nil, false, err
	}
	switch kind {
	case "Sequence":
		var list []json.RawMessage
		if err := errors.Join(o.need("pretokenizers", &list), o.only("type", "pretokenizers")); err != nil {
			return nil, false, err
		}
		for i, raw := range list {
			if byteLevel {
				return nil, false, fmt.Errorf("%s: a pre-tokenizer after ByteLevel is not supported", path)
			}
			var more []placed[splitStep]
			if more, byteLevel, err = parsePreTokenizer(raw, fmt.Sprintf("%s.pretokenizers[%d]", path, i), left); err != nil {
				return nil, false, err
			}
			steps = append(steps, more...)
		}
		return steps, byteLevel, nil
	case "ByteLevel":
		prefix, regex := true, true
		if err := errors.Join(o.get("add_prefix_space", &prefix), o.get("use_regex", &regex),
			o.only("type", "add_prefix_space", "use_regex", "trim_offsets")); err != nil {
			return nil, false, err
		}
		if prefix {
			steps = append(steps, placed[splitStep]{prefixStep{}, path})
		}
		if regex {
			steps = append(steps, placed[splitStep]{scanStep{knownScanner(patternGPT2)}, path})
		}
		return steps, true, nil
	case "Split":
		st := patternStep{}
		find, _, err := parsePatternStep(o)
		if err := errors.Join(err, o.need("behavior", &st.behavior), o.get("invert", &st.invert),
			o.only("type", "pattern", "behavior", "invert")); err != nil {
			return nil, false, err
		}
		if !slices.Contains([]string{removed, isolated, contiguous, withPrevious, withNext}, st.behavior) {
			return nil, false, fmt.Errorf("%s.behavior %q is not supported", path, st.behavior)
		}
		if sc, ok := find.(scanFinder); ok && st.behavior == isolated {
			return []placed[splitStep]{{scanStep(sc), path}}, false, nil
		}
		st.find = find
		return []placed[splitStep]{{st, path}}, false, nil
	case "Digits":
		single := false
		if err := errors.Join(o.get("individual_digits", &single), o.only("type", "individual_digits")); err != nil {
			return nil, false, err
		}
		st := patternStep{find: runeFinder(isNumeric), behavior: contiguous}
		if single {
			st.behavior = isolated
		}
		return []placed[splitStep]{{st, path}}, false, nil
	case "Metaspace":
		st := metaspaceStep{split: true}
		if err := errors.Join(metaspace(o, &st.mark, &st.scheme), o.get("split", &st.split),
			o.only("type", "replacement", "prepend_scheme", "add_prefix_space", "split", "str_rep")); err != nil {
			return nil, false, err
		}
		return []placed[splitStep]{{st, path}}, false, nil
	}
	return nil, false, o.refuse(kind)
}

// scanFinder is a finder made from a scanner: its pieces are all matches.
type scanFinder struct{ scanner }

func (f scanFinder) spans(s string, _ *limits.Meter) ([]span, error) {
	var out []span
	for i := 0; i < len(s); {
		j := f.next(s, i)
		out = append(out, span{i, j, true})
		i = j
	}
	return out, nil
}

// parsePatternStep is parsePattern, but uses a scanner where one exists for the regex.
func parsePatternStep(o object) (finder, *string, error) {
	var p map[string]string
	if err := o.need("pattern", &p); err != nil {
		return nil, nil, err
	}
	if s, ok := p["Regex"]; ok && len(p) == 1 {
		if sc := knownScanner(s); sc != nil {
			return scanFinder{sc}, nil, nil
		}
	}
	return parsePattern(o)
}

// metaspace reads the members that the Metaspace pre-tokenizer and decoder share. Files
// older than prepend_scheme have add_prefix_space, which is unambiguous only as
// "always".
func metaspace(o object, mark, scheme *string) error {
	*scheme = "always"
	prefix := true
	if err := errors.Join(o.need("replacement", mark), o.get("prepend_scheme", scheme), o.get("add_prefix_space", &prefix)); err != nil {
		return err
	}
	if utf8.RuneCountInString(*mark) != 1 {
		return fmt.Errorf("%s.replacement %q is not one character", o.path, *mark)
	}
	if !slices.Contains([]string{"first", "always", "never"}, *scheme) {
		return fmt.Errorf("%s.prepend_scheme %q is not supported", o.path, *scheme)
	}
	if !prefix && *scheme != "never" {
		return fmt.Errorf("%s: add_prefix_space false with prepend_scheme %q is not supported", o.path, *scheme)
	}
	return nil
}
