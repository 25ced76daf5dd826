package gguf

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"unsafe"

	"talf/internal/mapped"
	"talf/internal/texts"
)

// Kinds of tokens in tokenizer.ggml.token_type, which are those of sentencepiece_model.proto.
const (
	tokenNormal  = 1
	tokenUnknown = 2
	tokenControl = 3
	tokenUser    = 4
	tokenUnused  = 5
	tokenByte    = 6
)

// The models of tokenizer.ggml.model that are read.
const (
	spm       = "llama" // SentencePiece BPE
	byteLevel = "gpt2"  // byte-level BPE
)

// maxTokens bounds a vocabulary, as package tokenizer does.
const maxTokens = 1 << 22

const keyTokens = "tokenizer.ggml.tokens"

// tokenCount returns the size of the vocabulary, 0 if there is none.
func (k *reader) tokenCount() int {
	v, ok := k.f.keys[keyTokens]
	if !ok {
		return 0
	}
	if !v.array || v.kind != kindString || v.n < 1 || v.n > maxTokens {
		k.bad(keyTokens, "an array of 1 to %d texts", maxTokens)
		return 0
	}
	return int(v.n)
}

// A Vocabulary is the tokenizer of a file as it lies there: making the file that a directory would have of it, and reading
// that, takes several times as long.
type Vocabulary struct {
	Tokens *texts.Packed
	Index  texts.Index // of all tokens
	// JSON is tokenizer.json without its vocabulary and merges, and Merges are the tokens that each merge joins and what
	// they become, of a byte-level tokenizer.
	JSON   []byte
	Merges [][3]int32
	// Pieces is set of a tokenizer with scores.
	Pieces *Pieces
}

// Pieces are the tokens of a SentencePiece model of type BPE.
type Pieces struct {
	Scores        []float32
	Kinds         []byte // as in sentencepiece_model.proto
	Bytes         bool   // byte_fallback
	Prefix        bool   // add_dummy_prefix
	BOS, EOS, Pad int    // −1 for none
	unknown       int
}

// ReadVocabulary returns what ReadAs makes tokenizer.json or tokenizer.model of.
func ReadVocabulary(path, pre string) (v *Vocabulary, warnings []string, err error) {
	defer mapped.Guard(&err)()
	f, err := Open(path)
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = f.Close() }() // read only
	k := f.reader()
	k.pre = pre
	v = &Vocabulary{}
	kind := k.string("tokenizer.ggml.model")
	if _, err := k.file("tokenizer.json"); err != nil && kind != spm {
		return nil, nil, err
	}
	if kind == spm {
		var tokens *vocab
		tokens, v.Pieces = k.pieces()
		v.Tokens, v.Index = tokens.tokens, tokens.index
		return v, k.warnings, k.err
	}
	tokens, t := k.byteLevel()
	if k.err != nil {
		return nil, nil, k.err
	}
	v.Tokens, v.Index, v.Merges = tokens.tokens, tokens.index, k.merges(tokens)
	if k.err == nil {
		v.JSON, k.err = json.Marshal(t)
	}
	return v, k.warnings, k.err
}

// object is one of JSON.
type object = map[string]any

// tokenizerJSON returns tokenizer.json of a byte-level tokenizer.
func (k *reader) tokenizerJSON() ([]byte, error) {
	v, t := k.byteLevel()
	if k.err != nil {
		return nil, k.err
	}
	list := v.tokens.List()
	ids := make(map[string]int, len(list))
	for id, s := range list {
		ids[s] = id
	}
	merges := k.merges(v)
	if k.err != nil {
		return nil, k.err
	}
	pairs := make([][2]string, len(merges))
	for i, m := range merges {
		pairs[i] = [2]string{list[m[0]], list[m[1]]}
	}
	model, _ := t["model"].(object)
	model["vocab"], model["merges"] = ids, pairs
	return json.Marshal(t)
}

// byteLevel returns the vocabulary of a byte-level tokenizer, and its tokenizer.json without vocabulary and merges.
func (k *reader) byteLevel() (*vocab, object) {
	v := k.vocab()
	split := k.splitter()
	before, after := k.frame(v, split.BOS)
	space := k.bool("tokenizer.ggml.add_space_prefix", false)
	if k.err != nil {
		return v, nil
	}
	var added []object
	for id, kind := range v.types {
		switch kind {
		case tokenUnknown, tokenControl, tokenUser:
			added = append(added, object{
				"id": id, "content": v.text(id), "special": kind != tokenUser,
				"normalized": false, "single_word": false, "lstrip": false, "rstrip": false,
			})
		}
	}
	var steps []object
	for _, p := range split.Patterns {
		steps = append(steps, object{"type": "Split", "pattern": object{"Regex": p}, "behavior": "Isolated", "invert": false})
	}
	steps = append(steps, object{"type": "ByteLevel", "add_prefix_space": space, "trim_offsets": false, "use_regex": false})
	single := []object{{"Sequence": object{"id": "A", "type_id": 0}}}
	around := object{}
	special := func(id int) object {
		s := v.text(id)
		around[s] = object{"id": s, "ids": []int{id}, "tokens": []string{s}}
		return object{"SpecialToken": object{"id": s, "type_id": 0}}
	}
	if before >= 0 {
		single = append([]object{special(before)}, single...)
	}
	if after >= 0 {
		single = append(single, special(after))
	}
	t := object{
		"version": "1.0", "added_tokens": added,
		"pre_tokenizer": object{"type": "Sequence", "pretokenizers": steps},
		"decoder":       object{"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": false},
		"model":         object{"type": "BPE", "ignore_merges": split.IgnoreMerges, "fuse_unk": false, "byte_fallback": false},
	}
	if split.NFC {
		t["normalizer"] = object{"type": "NFC"}
	}
	if len(single) > 1 {
		t["post_processor"] = object{"type": "TemplateProcessing", "single": single, "special_tokens": around}
	}
	return v, t
}

// merges returns the pairs of tokenizer.ggml.merges, which are tokens, and so is what they become, by their numbers. A pair
// is split at the first space behind its first character, because that may be one.
func (k *reader) merges(v *vocab) [][3]int32 {
	const key = "tokenizer.ggml.merges"
	m, ok := k.f.keys[key]
	if !ok || !m.array || m.kind != kindString {
		k.bad(key, "an array of texts, the pairs that are merged")
		return nil
	}
	all := make([][3]int32, 0, m.n)
	wrong := func(i int, b []byte, want string) bool {
		if k.err == nil {
			k.err = fmt.Errorf("%s: key %q: merge %d is %.40q, want %s", k.f.Path, key, i, b, want)
		}
		return false
	}
	var joint []byte
	m.texts(func(i int, b []byte) bool {
		at := -1
		if len(b) > 1 {
			at = bytes.IndexByte(b[1:], ' ') + 1
		}
		if at < 1 || at == len(b)-1 {
			return wrong(i, b, "two tokens with a space between")
		}
		left, right := b[:at], b[at+1:]
		joint = append(append(joint[:0], left...), right...)
		var ids [3]int32
		for j, token := range [][]byte{left, right, joint} {
			id, ok := v.index.Find(unsafe.String(unsafe.SliceData(token), len(token))) // which keeps nothing of it
			if !ok {
				return wrong(i, b, fmt.Sprintf("tokens, of which %.40q is none", token))
			}
			ids[j] = id
		}
		all = append(all, ids)
		return true
	})
	return all
}

// pieces returns the tokens of a tokenizer with scores, as a SentencePiece model of type BPE has them.
func (k *reader) pieces() (*vocab, *Pieces) {
	const keyScores = "tokenizer.ggml.scores"
	v := k.vocab()
	n := v.tokens.Len()
	scores, ok := k.f.keys[keyScores]
	if k.err == nil && (!ok || !scores.array || scores.kind != kindF32 || scores.n != uint64(n)) {
		k.bad(keyScores, "an array of %d f32, one for each token", n)
	}
	_, _ = k.frame(v, true) // tokenizer_config.json says so
	p := &Pieces{
		Scores: make([]float32, n), Kinds: slices.Clone(v.types), Prefix: k.bool("tokenizer.ggml.add_space_prefix", true),
		unknown: max(v.id("unknown_token_id"), 0), // without one, token 0 stands for it
		BOS:     v.id("bos_token_id"), EOS: v.id("eos_token_id"), Pad: v.id("padding_token_id"),
	}
	if k.err == nil && v.types[p.unknown] == tokenByte {
		k.err = fmt.Errorf("%s: key \"tokenizer.ggml.unknown_token_id\": token %d %q is a byte, want one for what is unknown", k.f.Path, p.unknown, v.text(p.unknown))
	}
	k.byteTokens(v)
	if k.err != nil {
		return v, nil
	}
	normal, equal := 0, true
	first := math.NaN()
	for id, kind := range p.Kinds {
		score := math.Float32frombits(binary.LittleEndian.Uint32(scores.raw[4*id:]))
		p.Scores[id] = score
		if kind == tokenNormal && score != score {
			k.err = fmt.Errorf("%s: key %q: that of token %d %.40q is not a number", k.f.Path, keyScores, id, v.text(id))
			return v, nil
		}
		switch {
		case id == p.unknown && kind != tokenByte:
			kind = tokenUnknown
		case kind == tokenUnknown: // a second one
			kind = tokenControl
		case kind == tokenNormal:
			if normal++; normal == 1 {
				first = float64(score)
			}
			equal = equal && float64(score) == first
		}
		p.Bytes = p.Bytes || kind == tokenByte
		p.Kinds[id] = kind
	}
	if normal > 1 && equal {
		k.err = fmt.Errorf("%s: key %q: all %d normal tokens have the score %v, so the order of merges is lost: the model was converted without its tokenizer.model", k.f.Path, keyScores, normal, first)
	}
	return v, p
}

// tokenizerModel returns tokenizer.model, a SentencePiece model of type BPE
// (sentencepiece_model.proto), of a tokenizer with scores.
func (k *reader) tokenizerModel() ([]byte, error) {
	v, p := k.pieces()
	if k.err != nil {
		return nil, k.err
	}
	var model, piece []byte
	for id, score := range p.Scores {
		piece = field(piece[:0], 1, v.text(id))
		piece = binary.LittleEndian.AppendUint32(append(piece, 2<<3|wireFixed32), math.Float32bits(score))
		piece = number(piece, 3, int(p.Kinds[id]))
		model = field(model, 1, piece)
	}
	trainer := number(nil, 3, 2) // model_type BPE
	trainer = number(trainer, 35, flag(p.Bytes))
	for i, id := range []int{p.unknown, p.BOS, p.EOS, p.Pad} {
		trainer = number(trainer, 40+i, id)
	}
	model = field(model, 2, trainer)
	normalizer := number(nil, 3, flag(p.Prefix))
	normalizer = number(normalizer, 4, 0)
	normalizer = number(normalizer, 5, 1)
	return field(model, 3, normalizer), nil
}

// byteTokens checks that tokens of type 6, if there are some, stand for each byte, such as <0x0A>.
func (k *reader) byteTokens(v *vocab) {
	if k.err != nil || !slices.Contains(v.types, tokenByte) {
		return
	}
	for b := range 256 {
		s := fmt.Sprintf("<0x%02X>", b)
		if id, ok := v.find(s); (!ok || v.types[id] != tokenByte) && k.err == nil {
			k.err = fmt.Errorf("%s: key %q: no token %s of type %d, want one for each byte", k.f.Path, keyTokens, s, tokenByte)
		}
	}
}

// Types of fields in protocol buffers.
const (
	wireVarint  = 0
	wireBytes   = 2
	wireFixed32 = 5
)

// field appends field n of a message, a text or a message.
func field[T string | []byte](b []byte, n int, v T) []byte {
	b = binary.AppendUvarint(b, uint64(n)<<3|wireBytes)
	return append(binary.AppendUvarint(b, uint64(len(v))), v...)
}

// number appends field n of a message, an integer.
func number(b []byte, n, v int) []byte {
	b = binary.AppendUvarint(b, uint64(n)<<3|wireVarint)
	return binary.AppendUvarint(b, uint64(int64(v)))
}

func flag(b bool) int {
	if b {
		return 1
	}
	return 0
}

// tokenizerConfig returns tokenizer_config.json: special tokens and the chat template.
func (k *reader) tokenizerConfig() ([]byte, error) {
	c := map[string]any{}
	if k.tokenCount() > 0 {
		v := k.vocab()
		for _, s := range specialKeys {
			if id := v.id(s.key); id >= 0 && s.name != "" && k.err == nil {
				c[s.name] = v.text(id)
			}
		}
	}
	if k.string("tokenizer.ggml.model") == byteLevel {
		// Without a class, transformers 4 takes the model's own, and Llama's adds a BOS token that tokenizer.json does not.
		c["tokenizer_class"] = "PreTrainedTokenizerFast"
	}
	if k.string("tokenizer.ggml.model") == spm {
		c["add_bos_token"] = k.bool("tokenizer.ggml.add_bos_token", true)
		c["add_eos_token"] = k.bool("tokenizer.ggml.add_eos_token", false)
	}
	const key = "tokenizer.chat_template"
	if template := k.string(key); k.has(key) {
		c["chat_template"] = template
		if tools := k.string(key + ".tool_use"); tools != "" {
			c["chat_template"] = []map[string]string{{"name": "default", "template": template}, {"name": "tool_use", "template": tools}}
		}
	}
	if k.err != nil {
		return nil, k.err
	}
	return json.Marshal(c)
}
