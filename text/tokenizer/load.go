package tokenizer

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"talf/internal/limits"
	"talf/internal/texts"
	"talf/model/gguf"
)

// maxID bounds token ids, so that a broken file cannot make the loader allocate any
// amount of memory.
const maxID = 1 << 22

// Bounds of what a file may ask for, besides those of package limits.
const (
	maxParts  = 32      // components of a pipeline, sequences included; published files have up to 6
	maxAffix  = 64      // bytes of continuing_subword_prefix and end_of_word_suffix
	maxToken  = 8 << 10 // bytes of a token; GPT-NeoX has one of 1,024
	maxAdded  = 512     // bytes of an added token: a text is compared with them from every place
	maxTrie   = 1 << 20 // bytes of all added tokens
	maxAround = 256     // ids that the post-processor puts around a text
	// Ids may have gaps, but a small file must not ask for large tables.
	gapIDs = 1 << 16
	// What loading makes and does, per byte of the file.
	loadBytes = 16
	loadSteps = 256
	loadFloor = 256 << 10
)

// parts counts the components of a pipeline. Sequences in sequences count each, which bounds how
// often their text is read.
type parts int

func (p *parts) take(path string) error {
	if *p++; *p > maxParts {
		if len(path) > 100 {
			path = path[:100] + "…"
		}
		return fmt.Errorf("%s: more than %d components", path, maxParts)
	}
	return nil
}

// object is a JSON object whose members must all be accounted for.
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
		return o, fmt.Errorf("%s: expected an object", path)
	}
	return o, nil
}

// null reports whether a member is absent or null.
func (o object) null(key string) bool {
	raw, ok := o.m[key]
	return !ok || string(bytes.TrimSpace(raw)) == "null"
}

// get decodes a member into v, which keeps its value if the member is absent or null.
func (o object) get(key string, v any) error {
	if o.null(key) {
		return nil
	}
	if err := json.Unmarshal(o.m[key], v); err != nil {
		return fmt.Errorf("%s.%s: %w", o.path, key, err)
	}
	return nil
}

// need is get for a required member.
func (o object) need(key string, v any) error {
	if o.null(key) {
		return fmt.Errorf("%s.%s is missing", o.path, key)
	}
	return o.get(key, v)
}

// only refuses members that are neither null nor listed.
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

// Parse reads the text of a tokenizer.json. It retains b.
func Parse(b []byte) (*Tokenizer, error) {
	t, err := parse(b, nil)
	if err == nil {
		t.text(b)
	}
	return t, err
}

// parse is Parse without the hash; the vocabulary and the merges are given, or else the text's.
func parse(b []byte, given *gguf.Vocabulary) (*Tokenizer, error) {
	root, err := newObject(b, "tokenizer")
	if err != nil {
		return nil, err
	}
	if err := root.only("version", "added_tokens", "normalizer", "pre_tokenizer", "post_processor", "decoder", "model"); err != nil {
		return nil, err
	}
	t := &Tokenizer{file: "tokenizer.json", bos: -1, eos: -1, pad: -1, added: map[string]int32{}}
	if root.null("model") {
		return nil, errors.New("tokenizer.model is missing")
	}
	size := int64(len(b))
	if given != nil {
		size += int64(given.Tokens.Bytes())
	}
	m := limits.NewMeter(context.Background(), limits.Budget{Steps: loadFloor + loadSteps*size, Bytes: loadFloor + loadBytes*size})
	pairs, err := t.parseModel(root.m["model"], given)
	if err != nil {
		return nil, err
	}
	if !root.null("normalizer") {
		if t.norms, err = parseNormalizer(root.m["normalizer"], "normalizer", new(parts)); err != nil {
			return nil, err
		}
	}
	t.mark = newMarkNorm(t.norms)
	byteLevel := false
	if !root.null("pre_tokenizer") {
		if t.steps, byteLevel, err = parsePreTokenizer(root.m["pre_tokenizer"], "pre_tokenizer", new(parts)); err != nil {
			return nil, err
		}
	}
	if len(t.steps) == 1 {
		if st, ok := t.steps[0].part.(scanStep); ok {
			t.scan = st.scanner
		}
	}
	t.charged = len(t.norms) > 0 && t.mark == nil || len(t.steps) > 0 && t.scan == nil
	t.model.finish(byteLevel)
	if !byteLevel {
		t.model.findCut('\u2581', func(yield func(left, right string) bool) {
			for _, p := range pairs {
				if !yield(p[0], p[1]) {
					return
				}
			}
		})
	}
	if err := t.parseAdded(root, m); err != nil {
		return nil, err
	}
	if !root.null("post_processor") {
		if err := t.parsePost(root.m["post_processor"], "post_processor", new(parts)); err != nil {
			return nil, err
		}
	}
	var dec json.RawMessage
	if !root.null("decoder") {
		dec = root.m["decoder"]
	}
	if err := t.parseDecoder(dec, m); err != nil {
		return nil, err
	}
	return t, nil
}

// parseModel reads the BPE model and returns its merges, unless they are given.
func (t *Tokenizer) parseModel(raw json.RawMessage, given *gguf.Vocabulary) ([][2]string, error) {
	o, err := newObject(raw, "model")
	if err != nil {
		return nil, err
	}
	kind := "BPE" // older files omit it
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
	t.model = m
	var dropout float64
	if err := errors.Join(o.get("dropout", &dropout), o.get("continuing_subword_prefix", &m.prefix),
		o.get("end_of_word_suffix", &m.suffix), o.get("fuse_unk", &m.fuseUnk),
		o.get("byte_fallback", &m.byteFallback), o.get("ignore_merges", &m.ignoreMerges)); err != nil {
		return nil, err
	}
	if n := max(len(m.prefix), len(m.suffix)); n > maxAffix {
		return nil, fmt.Errorf("model: continuing_subword_prefix or end_of_word_suffix of %d bytes, expected at most %d", n, maxAffix)
	}
	if dropout != 0 {
		return nil, fmt.Errorf("model.dropout %v is not supported: it makes encoding random", dropout)
	}
	if given != nil {
		return nil, m.take(given)
	}
	return m.read(o)
}

// take sets the vocabulary and the merges to those of a GGUF file, in which all ids have tokens.
func (m *bpe) take(v *gguf.Vocabulary) error {
	for id := range int32(v.Tokens.Len()) {
		if tok := v.Tokens.At(id); len(tok) > maxToken {
			return fmt.Errorf("model.vocab: token %.100q has %d bytes, expected at most %d", tok, len(tok), maxToken)
		}
	}
	m.tokens, m.vocab, m.known = v.Tokens, v.Index, slices.Repeat([]bool{true}, v.Tokens.Len())
	table := newMergeTable(len(v.Merges))
	for rank, ids := range v.Merges {
		table.put(ids[0], ids[1], uint32(rank), ids[2])
	}
	m.merges.made.Store(table)
	m.ranks = uint32(len(v.Merges))
	return nil
}

// read reads the vocabulary and the merges, which it returns.
func (m *bpe) read(o object) ([][2]string, error) {
	var vocab map[string]int32
	if err := o.need("vocab", &vocab); err != nil {
		return nil, err
	}
	if !o.null("unk_token") {
		var unk string
		if err := o.get("unk_token", &unk); err != nil {
			return nil, err
		}
		id, ok := vocab[unk]
		if !ok {
			return nil, fmt.Errorf("model.unk_token %q is not in the vocabulary", unk)
		}
		m.unk = id
	}
	size := int32(0)
	for tok, id := range vocab {
		if most := min(maxID, 2*len(vocab)+gapIDs); id < 0 || int(id) >= most {
			return nil, fmt.Errorf("model.vocab: token %.100q has id %d, expected 0 to %d in a vocabulary of %d", tok, id, most-1, len(vocab))
		}
		if len(tok) > maxToken {
			return nil, fmt.Errorf("model.vocab: token %.100q has %d bytes, expected at most %d", tok, len(tok), maxToken)
		}
		size = max(size, id+1)
	}
	tokens, known := make([]string, size), make([]bool, size)
	for tok, id := range vocab {
		if known[id] {
			a, b := min(tok, tokens[id]), max(tok, tokens[id])
			return nil, fmt.Errorf("model.vocab: tokens %q and %q have the same id %d", a, b, id)
		}
		tokens[id], known[id] = tok, true
	}
	m.tokens, m.known = texts.Pack(tokens), known
	m.vocab = texts.NewIndex(m.tokens, func(id int32) bool { return known[id] }, nil)
	pairs, err := parseMerges(o)
	if err != nil {
		return nil, err
	}
	table := newMergeTable(len(pairs))
	m.ranks = uint32(len(pairs))
	for rank, p := range pairs {
		a, okA := vocab[p[0]]
		b, okB := vocab[p[1]]
		if !okA || !okB {
			return nil, fmt.Errorf("model.merges[%d]: %q and %q are not both in the vocabulary", rank, p[0], p[1])
		}
		right, ok := strings.CutPrefix(p[1], m.prefix)
		if !ok {
			return nil, fmt.Errorf("model.merges[%d]: %q does not begin with continuing_subword_prefix", rank, p[1])
		}
		id, ok := vocab[p[0]+right]
		if !ok {
			return nil, fmt.Errorf("model.merges[%d]: %q is not in the vocabulary", rank, p[0]+right)
		}
		table.put(a, b, uint32(rank), id)
	}
	m.merges.made.Store(table)
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

// parsePost reads the ids that the post-processor puts before and after a text.
func (t *Tokenizer) parsePost(raw json.RawMessage, path string, left *parts) error {
	o, kind, err := typed(raw, path)
	if err == nil {
		err = left.take(path)
	}
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
			if err := t.parsePost(raw, fmt.Sprintf("%s.processors[%d]", path, i), left); err != nil {
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
				if n := len(t.pre) + len(t.post) + len(pre) + len(post) + len(s.IDs); n > maxAround {
					return fmt.Errorf("%s: more than %d special tokens", path, maxAround)
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
