package gguf

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
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

// tokenizerJSON returns tokenizer.json of a byte-level tokenizer.
func (k *reader) tokenizerJSON() ([]byte, error) {
	v := k.vocab()
	split := k.splitter()
	ids := make(map[string]int, len(v.tokens))
	for id, s := range v.tokens {
		ids[s] = id
	}
	merges := k.merges(ids)
	before, after := k.frame(v, split.BOS)
	space := k.bool("tokenizer.ggml.add_space_prefix", false)
	if k.err != nil {
		return nil, k.err
	}
	type object = map[string]any
	var added []object
	for id, s := range v.tokens {
		switch v.types[id] {
		case tokenUnknown, tokenControl, tokenUser:
			added = append(added, object{
				"id": id, "content": s, "special": v.types[id] != tokenUser,
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
		s := v.tokens[id]
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
		"model": object{
			"type": "BPE", "vocab": ids, "merges": merges, "ignore_merges": split.IgnoreMerges,
			"fuse_unk": false, "byte_fallback": false,
		},
	}
	if split.NFC {
		t["normalizer"] = object{"type": "NFC"}
	}
	if len(single) > 1 {
		t["post_processor"] = object{"type": "TemplateProcessing", "single": single, "special_tokens": around}
	}
	return json.Marshal(t)
}

// merges returns the pairs of tokenizer.ggml.merges, which are tokens, and so is what they become. A pair
// is split at the first space behind its first character, because that may be one.
func (k *reader) merges(tokens map[string]int) [][2]string {
	const key = "tokenizer.ggml.merges"
	v, ok := k.f.keys[key]
	if !ok || !v.array || v.kind != kindString {
		k.bad(key, "an array of texts, the pairs that are merged")
		return nil
	}
	all := make([][2]string, 0, v.n)
	wrong := func(i int, s, want string) bool {
		if k.err == nil {
			k.err = fmt.Errorf("%s: key %q: merge %d is %.40q, want %s", k.f.Path, key, i, s, want)
		}
		return false
	}
	v.texts(func(i int, b []byte) bool {
		s := string(b)
		at := -1
		if len(s) > 1 {
			at = strings.IndexByte(s[1:], ' ') + 1
		}
		if at < 1 || at == len(s)-1 {
			return wrong(i, s, "two tokens with a space between")
		}
		pair := [2]string{s[:at], s[at+1:]}
		for _, token := range []string{pair[0], pair[1], pair[0] + pair[1]} {
			if _, ok := tokens[token]; !ok {
				return wrong(i, s, fmt.Sprintf("tokens, of which %.40q is none", token))
			}
		}
		all = append(all, pair)
		return true
	})
	return all
}

// tokenizerModel returns tokenizer.model, a SentencePiece model of type BPE
// (sentencepiece_model.proto), of a tokenizer with scores.
func (k *reader) tokenizerModel() ([]byte, error) {
	const keyScores = "tokenizer.ggml.scores"
	v := k.vocab()
	scores, ok := k.f.keys[keyScores]
	if k.err == nil && (!ok || !scores.array || scores.kind != kindF32 || scores.n != uint64(len(v.tokens))) {
		k.bad(keyScores, "an array of %d f32, one for each token", len(v.tokens))
	}
	_, _ = k.frame(v, true)                         // tokenizer_config.json says so
	ids := [4]int{max(v.id("unknown_token_id"), 0)} // without one, token 0 stands for it
	for i, key := range []string{"bos_token_id", "eos_token_id", "padding_token_id"} {
		ids[i+1] = v.id(key)
	}
	prefix := k.bool("tokenizer.ggml.add_space_prefix", true)
	if k.err == nil && v.types[ids[0]] == tokenByte {
		k.err = fmt.Errorf("%s: key \"tokenizer.ggml.unknown_token_id\": token %d %q is a byte, want one for what is unknown", k.f.Path, ids[0], v.tokens[ids[0]])
	}
	k.byteTokens(v)
	if k.err != nil {
		return nil, k.err
	}
	var model []byte
	bytes, normal, equal := false, 0, true
	first := math.NaN()
	for id, s := range v.tokens {
		score := math.Float32frombits(binary.LittleEndian.Uint32(scores.raw[4*id:]))
		kind := v.types[id]
		if kind == tokenNormal && score != score {
			return nil, fmt.Errorf("%s: key %q: that of token %d %.40q is not a number", k.f.Path, keyScores, id, s)
		}
		switch {
		case id == ids[0] && kind != tokenByte:
			kind = tokenUnknown
		case kind == tokenUnknown: // a second one
			kind = tokenControl
		case kind == tokenNormal:
			if normal++; normal == 1 {
				first = float64(score)
			}
			equal = equal && float64(score) == first
		}
		bytes = bytes || kind == tokenByte
		var piece []byte
		piece = field(piece, 1, []byte(s))
		piece = binary.LittleEndian.AppendUint32(append(piece, 2<<3|wireFixed32), math.Float32bits(score))
		piece = number(piece, 3, int(kind))
		model = field(model, 1, piece)
	}
	if normal > 1 && equal {
		return nil, fmt.Errorf("%s: key %q: all %d normal tokens have the score %v, so the order of merges is lost: the model was converted without its tokenizer.model", k.f.Path, keyScores, normal, first)
	}
	trainer := number(nil, 3, 2) // model_type BPE
	trainer = number(trainer, 35, flag(bytes))
	for i, id := range ids {
		trainer = number(trainer, 40+i, id)
	}
	model = field(model, 2, trainer)
	normalizer := number(nil, 3, flag(prefix))
	normalizer = number(normalizer, 4, 0)
	normalizer = number(normalizer, 5, 1)
	return field(model, 3, normalizer), nil
}

// byteTokens checks that tokens of type 6, if there are some, stand for each byte, such as <0x0A>.
func (k *reader) byteTokens(v *vocab) {
	if k.err != nil || !slices.Contains(v.types, tokenByte) {
		return
	}
	have := make(map[string]bool)
	for id, s := range v.tokens {
		have[s] = have[s] || v.types[id] == tokenByte
	}
	for b := range 256 {
		if s := fmt.Sprintf("<0x%02X>", b); !have[s] && k.err == nil {
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
func field(b []byte, n int, v []byte) []byte {
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
				c[s.name] = v.tokens[id]
			}
		}
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
