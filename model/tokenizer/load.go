package tokenizer

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	sugar "github.com/sugarme/tokenizer"
	"golang.org/x/text/unicode/norm"
)

// maxID bounds token ids, so that a broken file cannot ask for any amount of memory.
const maxID = 1 << 22

// object is a JSON object of which every member must be accounted for.
type object struct {
	path string
	m    map[string]json.RawMessage
}

func newObject(raw json.RawMessage, path string) (object, error) {
	o := object{path: path}
	if err := json.Unmarshal(raw, &o.m); err != nil {
		return o, fmt.Errorf("%s: %w", path, err)
	}
	if o.m == nil {
		return o, fmt.Errorf("%s: an object is expected", path)
	}
	return o, nil
}

// null reports whether a member is absent or null.
func (o object) null(key string) bool {
	raw, ok := o.m[key]
	return !ok || string(bytes.TrimSpace(raw)) == "null"
}

// get decodes a member into v, which keeps its value where the member is absent or null.
func (o object) get(key string, v any) error {
	if o.null(key) {
		return nil
	}
	if err := json.Unmarshal(o.m[key], v); err != nil {
		return fmt.Errorf("%s.%s: %w", o.path, key, err)
	}
	return nil
}

// need is get for a member that must be there.
func (o object) need(key string, v any) error {
	if o.null(key) {
		return fmt.Errorf("%s.%s is missing", o.path, key)
	}
	return o.get(key, v)
}

// only refuses members that are not null and not listed.
func (o object) only(keys ...string) error {
	var names []string
	for k := range o.m {
		if !slices.Contains(keys, k) && !o.null(k) {
			names = append(names, k)
		}
	}
	if len(names) == 0 {
		return nil
	}
	slices.Sort(names)
	return fmt.Errorf("%s.%s is not supported", o.path, names[0])
}

// typed opens a component and reads its type.
func typed(raw json.RawMessage, path string) (object, string, error) {
	o, err := newObject(raw, path)
	if err != nil {
		return o, "", err
	}
	var kind string
	if err := o.need("type", &kind); err != nil {
		return o, "", err
	}
	return o, kind, nil
}

func (o object) refuse(kind string) error {
	return fmt.Errorf("%s: type %q is not supported", o.path, kind)
}

// Parse reads the text of a tokenizer.json. It keeps b.
func Parse(b []byte) (*Tokenizer, error) {
	root, err := newObject(b, "tokenizer")
	if err != nil {
		return nil, err
	}
	if err := root.only("version", "added_tokens", "normalizer", "pre_tokenizer", "post_processor", "decoder", "model"); err != nil {
		return nil, err
	}
	t := &Tokenizer{file: "tokenizer.json", source: b, bos: -1, eos: -1, pad: -1, added: map[string]int32{}}
	if root.null("model") {
		return nil, errors.New("tokenizer.model is missing")
	}
	pairs, err := t.parseModel(root.m["model"])
	if err != nil {
		return nil, err
	}
	if !root.null("normalizer") {
		if t.norms, err = parseNormalizer(root.m["normalizer"], "normalizer"); err != nil {
			return nil, err
		}
	}
	t.mark = newMarkNorm(t.norms)
	byteLevel := false
	if !root.null("pre_tokenizer") {
		if t.steps, byteLevel, err = parsePreTokenizer(root.m["pre_tokenizer"], "pre_tokenizer"); err != nil {
			return nil, err
		}
	}
	if len(t.steps) == 1 {
		if st, ok := t.steps[0].(scanStep); ok {
			t.scan = st.scanner
		}
	}
	t.model.finish(byteLevel)
	if !byteLevel {
		t.model.findCut('\u2581', pairs)
	}
	if err := t.parseAdded(root); err != nil {
		return nil, err
	}
	if !root.null("post_processor") {
		if err := t.parsePost(root.m["post_processor"], "post_processor"); err != nil {
			return nil, err
		}
	}
	var dec json.RawMessage
	if !root.null("decoder") {
		dec = root.m["decoder"]
	}
	if err := t.parseDecoder(dec); err != nil {
		return nil, err
	}
	return t, nil
}

// parseModel reads the BPE model and returns its merges.
func (t *Tokenizer) parseModel(raw json.RawMessage) ([][2]string, error) {
	o, err := newObject(raw, "model")
	if err != nil {
		return nil, err
	}
	kind := "BPE" // older files leave it out
	if err := o.get("type", &kind); err != nil {
		return nil, err
	}
	if kind != "BPE" {
		return nil, o.refuse(kind)
	}
	if err := o.only("type", "dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix",
		"fuse_unk", "byte_fallback", "ignore_merges", "vocab", "merges"); err != nil {
		return nil, err
	}
	m := &bpe{unk: -1}
	var dropout float64
	if err := errors.Join(o.get("dropout", &dropout), o.get("continuing_subword_prefix", &m.prefix),
		o.get("end_of_word_suffix", &m.suffix), o.get("fuse_unk", &m.fuseUnk),
		o.get("byte_fallback", &m.byteFallback), o.get("ignore_merges", &m.ignoreMerges),
		o.need("vocab", &m.vocab)); err != nil {
		return nil, err
	}
	if dropout != 0 {
		return nil, fmt.Errorf("model.dropout %v is not supported: it makes encoding random", dropout)
	}
	if !o.null("unk_token") {
		var unk string
		if err := o.get("unk_token", &unk); err != nil {
			return nil, err
		}
		id, ok := m.vocab[unk]
		if !ok {
			return nil, fmt.Errorf("model.unk_token %q is not in the vocabulary", unk)
		}
		m.unk = id
	}
	size := int32(0)
	for tok, id := range m.vocab {
		if id < 0 || id >= maxID {
			return nil, fmt.Errorf("model.vocab: token %q has id %d, expected 0 to %d", tok, id, maxID-1)
		}
		size = max(size, id+1)
	}
	m.tokens, m.known = make([]string, size), make([]bool, size)
	for tok, id := range m.vocab {
		if m.known[id] {
			a, b := min(tok, m.tokens[id]), max(tok, m.tokens[id])
			return nil, fmt.Errorf("model.vocab: tokens %q and %q have the same id %d", a, b, id)
		}
		m.tokens[id], m.known[id] = tok, true
	}
	pairs, err := parseMerges(o)
	if err != nil {
		return nil, err
	}
	m.merges = newMergeTable(len(pairs))
	m.ranks = uint32(len(pairs))
	for rank, p := range pairs {
		a, okA := m.vocab[p[0]]
		b, okB := m.vocab[p[1]]
		if !okA || !okB {
			return nil, fmt.Errorf("model.merges[%d]: %q and %q are not both in the vocabulary", rank, p[0], p[1])
		}
		right, ok := strings.CutPrefix(p[1], m.prefix)
		if !ok {
			return nil, fmt.Errorf("model.merges[%d]: %q does not begin with continuing_subword_prefix", rank, p[1])
		}
		id, ok := m.vocab[p[0]+right]
		if !ok {
			return nil, fmt.Errorf("model.merges[%d]: %q is not in the vocabulary", rank, p[0]+right)
		}
		m.merges.put(a, b, uint32(rank), id)
	}
	t.model = m
	return pairs, nil
}

// parseMerges reads merges in either form: ["a b", …] or [["a","b"], …].
func parseMerges(o object) ([][2]string, error) {
	var pairs [][]string
	if err := o.need("merges", &pairs); err == nil {
		out := make([][2]string, len(pairs))
		for i, p := range pairs {
			if len(p) != 2 {
				return nil, fmt.Errorf("model.merges[%d]: %d parts, expected 2", i, len(p))
			}
			out[i] = [2]string{p[0], p[1]}
		}
		return out, nil
	}
	var lines []string
	if err := o.need("merges", &lines); err != nil {
		return nil, err
	}
	out := make([][2]string, 0, len(lines))
	for i, l := range lines {
		if strings.HasPrefix(l, "#version") {
			continue
		}
		a, b, ok := strings.Cut(l, " ")
		if !ok || strings.Contains(b, " ") {
			return nil, fmt.Errorf("model.merges[%d]: %q is not two tokens with a space between", i, l)
		}
		out = append(out, [2]string{a, b})
	}
	return out, nil
}

func parseNormalizer(raw json.RawMessage, path string) ([]normalizer, error) {
	o, kind, err := typed(raw, path)
	if err != nil {
		return nil, err
	}
	one := func(n normalizer, err error, keys ...string) ([]normalizer, error) {
		if err := errors.Join(err, o.only(append(keys, "type")...)); err != nil {
			return nil, err
		}
		return []normalizer{n}, nil
	}
	switch kind {
	case "Sequence":
		var list []json.RawMessage
		if err := errors.Join(o.need("normalizers", &list), o.only("type", "normalizers")); err != nil {
			return nil, err
		}
		var out []normalizer
		for i, raw := range list {
			n, err := parseNormalizer(raw, fmt.Sprintf("%s.normalizers[%d]", path, i))
			if err != nil {
				return nil, err
			}
			out = append(out, n...)
		}
		return out, nil
	case "NFC":
		return one(formNorm{norm.NFC}, nil)
	case "NFD":
		return one(formNorm{norm.NFD}, nil)
	case "NFKC":
		return one(formNorm{norm.NFKC}, nil)
	case "NFKD":
		return one(formNorm{norm.NFKD}, nil)
	case "Lowercase":
		return one(lowerNorm{}, nil)
	case "Prepend":
		var s string
		err := o.need("prepend", &s)
		return one(prependNorm(s), err, "prepend")
	case "Strip":
		n := stripNorm{true, true}
		err := errors.Join(o.get("strip_left", &n.left), o.get("strip_right", &n.right))
		return one(n, err, "strip_left", "strip_right")
	case "Replace":
		var to string
		find, lit, err := parsePattern(o)
		err = errors.Join(err, o.need("content", &to))
		if lit != nil {
			return one(literalNorm{*lit, to}, err, "pattern", "content")
		}
		return one(regexNorm{find, to}, err, "pattern", "content")
	}
	return nil, o.refuse(kind)
}

// parsePattern reads the member pattern, {"String": …} or {"Regex": …}. The
// literal is returned too where it is one.
func parsePattern(o object) (finder, *string, error) {
	var p map[string]string
	if err := o.need("pattern", &p); err != nil {
		return nil, nil, err
	}
	if len(p) == 1 {
		if s, ok := p["String"]; ok {
			return literalFinder(s), &s, nil
		}
		if s, ok := p["Regex"]; ok {
			f, err := newRegex(s)
			if err != nil {
				return nil, nil, fmt.Errorf("%s.pattern: %w", o.path, err)
			}
			return f, nil, nil
		}
	}
	return nil, nil, fmt.Errorf(`%s.pattern: expected {"String": …} or {"Regex": …}`, o.path)
}

// parsePreTokenizer returns the steps and whether they end in the byte-level alphabet.
func parsePreTokenizer(raw json.RawMessage, path string) (steps []splitStep, byteLevel bool, err error) {
	o, kind, err := typed(raw, path)
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
			var more []splitStep
			if more, byteLevel, err = parsePreTokenizer(raw, fmt.Sprintf("%s.pretokenizers[%d]", path, i)); err != nil {
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
			steps = append(steps, prefixStep{})
		}
		if regex {
			steps = append(steps, scanStep{knownScanner(patternGPT2)})
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
			return []splitStep{scanStep(sc)}, false, nil
		}
		st.find = find
		return []splitStep{st}, false, nil
	case "Digits":
		single := false
		if err := errors.Join(o.get("individual_digits", &single), o.only("type", "individual_digits")); err != nil {
			return nil, false, err
		}
		st := patternStep{find: runeFinder(isNumeric), behavior: contiguous}
		if single {
			st.behavior = isolated
		}
		return []splitStep{st}, false, nil
	case "Metaspace":
		st := metaspaceStep{split: true}
		if err := errors.Join(metaspace(o, &st.mark, &st.scheme), o.get("split", &st.split),
			o.only("type", "replacement", "prepend_scheme", "add_prefix_space", "split", "str_rep")); err != nil {
			return nil, false, err
		}
		return []splitStep{st}, false, nil
	}
	return nil, false, o.refuse(kind)
}

// scanFinder is a scanner as a finder: its pieces are all matches.
type scanFinder struct{ scanner }

func (f scanFinder) spans(s string) ([]span, error) {
	var out []span
	for i := 0; i < len(s); {
		j := f.next(s, i)
		out = append(out, span{i, j, true})
		i = j
	}
	return out, nil
}

// parsePatternStep is parsePattern with the scanners for the regexes they stand for.
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

// metaspace reads what the Metaspace pre-tokenizer and decoder share. Files
// from before prepend_scheme have add_prefix_space, of which only the sense
// "always" is unambiguous.
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

// parseAdded reads added_tokens. Their ids must be those the reference gives
// them: a token of the vocabulary keeps its id, others follow in order.
func (t *Tokenizer) parseAdded(root object) error {
	var list []json.RawMessage
	if err := root.get("added_tokens", &list); err != nil {
		return err
	}
	t.tokens = slices.Clone(t.model.tokens)
	t.known = slices.Clone(t.model.known)
	highest := int64(-1)
	seen := map[string]bool{}
	for i, raw := range list {
		path := fmt.Sprintf("added_tokens[%d]", i)
		o, err := newObject(raw, path)
		if err != nil {
			return err
		}
		var tok addedToken
		id := int64(-1)
		tok.AddedToken = sugar.DefaultAddedToken()
		if err := errors.Join(o.need("content", &tok.Content), o.need("id", &id), o.get("special", &tok.special),
			o.get("single_word", &tok.SingleWord), o.get("lstrip", &tok.LStrip), o.get("rstrip", &tok.RStrip),
			o.get("normalized", &tok.Normalized),
			o.only("id", "content", "special", "single_word", "lstrip", "rstrip", "normalized")); err != nil {
			return err
		}
		if tok.Content == "" {
			continue
		}
		if seen[tok.Content] {
			return fmt.Errorf("%s: %q is listed twice", path, tok.Content)
		}
		seen[tok.Content] = true
		want, ok := t.model.vocab[tok.Content]
		if !ok {
			want = int32(max(int64(len(t.model.vocab)), highest+1))
		}
		if id != int64(want) {
			return fmt.Errorf("%s: %q has id %d, but its place in the list gives it %d", path, tok.Content, id, want)
		}
		if id >= maxID {
			return fmt.Errorf("%s: id %d, expected less than %d", path, id, maxID)
		}
		highest = max(highest, id)
		tok.id = want
		for int64(len(t.tokens)) <= id {
			t.tokens = append(t.tokens, "")
			t.known = append(t.known, false)
		}
		if t.known[id] && t.tokens[id] != tok.Content {
			return fmt.Errorf("%s: %q has id %d, which %q has too", path, tok.Content, id, t.tokens[id])
		}
		t.tokens[id], t.known[id] = tok.Content, true
		t.added[tok.Content] = tok.id
		t.order = append(t.order, tok)
	}
	t.special = make([]bool, len(t.tokens))
	// The reference looks for special tokens first where two read the same.
	for _, special := range []bool{true, false} {
		for _, tok := range t.order {
			if tok.special != special {
				continue
			}
			t.special[tok.id] = tok.special
			if !tok.Normalized {
				t.raw.add(tok.Content, tok)
				continue
			}
			text, err := t.normalize(tok.Content)
			if err != nil {
				return fmt.Errorf("added token %q: %w", tok.Content, err)
			}
			if text == "" {
				return fmt.Errorf("added token %q: nothing is left of it after normalization, which is not supported", tok.Content)
			}
			t.normalized.add(text, tok)
		}
	}
	return nil
}

// parsePost reads the post-processor into the ids before and after a text.
func (t *Tokenizer) parsePost(raw json.RawMessage, path string) error {
	o, kind, err := typed(raw, path)
	if err != nil {
		return err
	}
	switch kind {
	case "ByteLevel": // offsets only
		t.trim, t.trimPrefix = true, true
		return errors.Join(o.get("trim_offsets", &t.trim), o.get("add_prefix_space", &t.trimPrefix),
			o.only("type", "add_prefix_space", "trim_offsets", "use_regex"))
	case "Sequence":
		var list []json.RawMessage
		if err := errors.Join(o.need("processors", &list), o.only("type", "processors")); err != nil {
			return err
		}
		for i, raw := range list {
			if err := t.parsePost(raw, fmt.Sprintf("%s.processors[%d]", path, i)); err != nil {
				return err
			}
		}
		return nil
	case "TemplateProcessing":
		var single []map[string]struct {
			ID string `json:"id"`
		}
		var special map[string]struct {
			IDs []int32 `json:"ids"`
		}
		if err := errors.Join(o.need("single", &single), o.get("special_tokens", &special),
			o.only("type", "single", "pair", "special_tokens")); err != nil {
			return err
		}
		var pre, post []int32
		seen := false
		for i, p := range single {
			tok, isTok := p["SpecialToken"]
			seq, isSeq := p["Sequence"]
			switch {
			case len(p) == 1 && isSeq && seq.ID == "A" && !seen:
				seen = true
			case len(p) == 1 && isTok:
				s, ok := special[tok.ID]
				if !ok {
					return fmt.Errorf("%s.single[%d]: special token %q is not in special_tokens", path, i, tok.ID)
				}
				for _, id := range s.IDs {
					if !t.Known(id) {
						return fmt.Errorf("%s.special_tokens: %q has id %d, which is not in the vocabulary", path, tok.ID, id)
					}
				}
				if seen {
					post = append(post, s.IDs...)
				} else {
					pre = append(pre, s.IDs...)
				}
			default:
				return fmt.Errorf("%s.single[%d]: expected a special token or, once, sequence A", path, i)
			}
		}
		if !seen {
			return fmt.Errorf("%s.single: no sequence A", path)
		}
		t.pre = append(pre, t.pre...)
		t.post = append(t.post, post...)
		return nil
	}
	return o.refuse(kind)
}

// parseDecoder builds t.dec; raw is nil where the file has no decoder.
func (t *Tokenizer) parseDecoder(raw json.RawMessage) error {
	d := &t.dec
	d.text = slices.Clone(t.tokens)
	if raw == nil {
		d.sep = " "
		return nil
	}
	p := decoderParser{d: d}
	if err := p.parse(raw, "decoder"); err != nil {
		return err
	}
	apply := func(s string, i int) string {
		for _, st := range p.steps {
			s = st(s, i)
		}
		return s
	}
	if p.bytes {
		d.fallback = make([]int16, len(d.text))
	}
	for id, tok := range t.tokens {
		// Index 1 stands for every token but the first.
		d.text[id] = apply(tok, 1)
		if p.bytes {
			d.fallback[id] = fallbackByte(d.text[id])
		}
		if d.raw {
			if b, ok := unmapBytes(tok); ok {
				d.text[id] = b
			}
		}
	}
	if p.first {
		d.head = func(id int32) string { return apply(t.tokens[id], 0) }
	}
	return nil
}

type decoderParser struct {
	d     *decoding
	steps []tokenStep
	first bool // a step treats the first token differently
	bytes bool // ByteFallback was seen
	fused bool
	done  bool // nothing may follow
}

// parse takes a decoder's parts in the only order for which a token can be
// decoded without the others: what rewrites single tokens, ByteFallback, Fuse,
// Strip of the start of the whole; or ByteLevel alone.
func (p *decoderParser) parse(raw json.RawMessage, path string) error {
	o, kind, err := typed(raw, path)
	if err != nil {
		return err
	}
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
		return fmt.Errorf("%s: %s at this place of a decoder is not supported", path, kind)
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
		p.steps = append(p.steps, replaceStep(find, to))
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
		p.steps = append(p.steps, metaspaceText(mark, scheme != "never"))
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
			p.steps = append(p.steps, stripText(r, start, stop))
		case p.fused && stop == 0:
			p.d.strip, p.d.stripN, p.done = r, start, true
		default:
			return late()
		}
		return nil
	}
	return o.refuse(kind)
}
