package gguf

import (
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"talf/internal/hint"
	"talf/internal/texts"
)

// A vocab is the vocabulary of a file with its special tokens as llama.cpp finds them.
type vocab struct {
	tokens *texts.Packed // they differ from each other
	index  texts.Index   // of them
	types  []byte        // kinds
	ids    map[string]int
	ends   []int // the tokens that end a text, that of eos_token_id first
}

// text returns the text of a token.
func (v *vocab) text(id int) string { return v.tokens.At(int32(id)) }

// find returns the token of a text.
func (v *vocab) find(text string) (id int, ok bool) {
	at, ok := v.index.Find(text)
	return int(at), ok
}

// id returns the special token that a key of specialKeys names, -1 for none.
func (v *vocab) id(key string) int {
	if id, ok := v.ids[key]; ok {
		return id
	}
	return -1
}

// vocab returns the vocabulary, which is read once.
func (k *reader) vocab() *vocab {
	v, says := k.f.vocab()
	k.warnings = append(k.warnings, says.warnings...)
	if k.err == nil {
		k.err = says.err
	}
	return v
}

func (k *reader) readVocab() (*vocab, *reader) {
	n := k.tokenCount()
	if n == 0 && k.err == nil {
		k.bad(keyTokens, "the texts of the tokens")
	}
	v := &vocab{tokens: texts.Pack(nil), ids: map[string]int{}}
	if k.err != nil {
		return v, k
	}
	list := make([]string, 0, n)
	unnamed := map[int]string{} // tokens that no text is, and why
	raw := k.f.keys[keyTokens].raw
	for all := string(raw); len(all) > 0; { // one copy of all
		end := 8 + int(binary.LittleEndian.Uint64(raw))
		s := all[8:end]
		if !utf8.ValidString(s) { // it belongs to no byte-level alphabet: it is never produced
			s = strings.ToValidUTF8(s, "\ufffd")
		}
		if s == "" {
			unnamed[len(list)] = "is empty"
		}
		list = append(list, s)
		all, raw = all[end:], raw[end:]
	}
	pack := func() {
		v.tokens = texts.Pack(list)
		v.index = texts.NewIndex(v.tokens, func(id int32) bool { return list[id] != "" }, func(id, before int32) { // the last one counts, as in llama.cpp's table
			unnamed[int(before)] = fmt.Sprintf("is %.40q, as token %d is", list[id], id)
		})
	}
	pack()
	if len(unnamed) > 0 {
		order := slices.Sorted(maps.Keys(unnamed))
		named := map[string]bool{}
		for _, i := range order {
			name := fmt.Sprintf("[TOKEN_%d]", i)
			for _, ok := v.find(name); ok || named[name]; _, ok = v.find(name) {
				name += "]"
			}
			list[i], named[name] = name, true
		}
		k.warn("key %q: token %d %s: no text becomes it (tokens like it: %d)", keyTokens, order[0], unnamed[order[0]], len(unnamed))
		pack()
	}
	v.types = k.tokenTypes(n)
	for i := range unnamed {
		v.types[i] = tokenUnused
	}
	if k.err == nil {
		k.special(v)
	}
	return v, k
}

// warn records what is odd about a file that is read all the same.
func (k *reader) warn(format string, args ...any) {
	k.warnings = append(k.warnings, fmt.Sprintf("%s: "+format, append([]any{k.f.Path}, args...)...))
}

// tokenTypes returns the kinds of n tokens. Without the key, those that other keys name are control
// tokens.
func (k *reader) tokenTypes(n int) []byte {
	const key = "tokenizer.ggml.token_type"
	types := slices.Repeat([]byte{tokenNormal}, n)
	v, ok := k.f.keys[key]
	if !ok {
		for _, s := range specialKeys {
			if id, ok := k.f.keys["tokenizer.ggml."+s.key].int(); ok && 0 <= id && id < int64(n) {
				types[id] = tokenControl
			}
		}
		return types
	}
	if _, ok := v.at0(); !v.array || !ok || v.n != uint64(n) {
		k.bad(key, "an array of %d integers, one for each token", n)
		return types
	}
	for i := range types {
		x, _ := v.at(i)
		if x < tokenNormal || x > tokenByte {
			if k.err == nil {
				k.err = fmt.Errorf("%s: key %q: token %d has type %d, want 1 to %d", k.f.Path, key, i, x, tokenByte)
			}
			return types
		}
		types[i] = byte(x)
	}
	return types
}

// at0 is at of the first element, if there is one.
func (v value) at0() (int64, bool) {
	if len(v.raw) == 0 {
		return 0, false
	}
	return v.at(0)
}

// specialKeys are the keys of special tokens and their names in tokenizer_config.json; "" if it has
// none.
var specialKeys = []struct{ key, name string }{
	{"bos_token_id", "bos_token"},
	{"eos_token_id", "eos_token"},
	{"unknown_token_id", "unk_token"},
	{"padding_token_id", "pad_token"},
	{"seperator_token_id", "sep_token"}, // spelt so in files
	{"mask_token_id", "mask_token"},
	{"eot_token_id", ""},
	{"eom_token_id", ""},
	// Of fill-in-the-middle, by the names of CodeLlama's configuration; the older keys first.
	{"prefix_token_id", "prefix_token"},
	{"suffix_token_id", "suffix_token"},
	{"middle_token_id", "middle_token"},
	{"fim_pre_token_id", "prefix_token"},
	{"fim_suf_token_id", "suffix_token"},
	{"fim_mid_token_id", "middle_token"},
}

// usual are the tokens of files that do not name them, by tokenizer.ggml.model, as in llama.cpp: those of Llama and of
// Falcon. Unlike there, they must be control tokens.
var usual = map[string]map[string]int{
	spm:       {"bos_token_id": 1, "eos_token_id": 2},
	byteLevel: {"bos_token_id": 11, "eos_token_id": 11},
}

// endTexts are the texts of tokens that end a text, of which files name one only: those that
// llama.cpp looks for.
var endTexts = []string{
	"<|eot_id|>", "<|eom_id|>", "<|im_end|>", "<|end|>", "<|return|>", "<|call|>", "<|flush|>", "<|calls|>", "<end_of_turn>", "<turn|>",
	"<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>", "<EOT>", "_<EOT>", "[EOT]", "[EOS]", "<｜end▁of▁sentence｜>",
	"<end_of_utterance>", "<|tool_response>", "[e~[",
}

// fims are the tokens of fill-in-the-middle, one of each: the keys that name it, or else its texts. A
// model that writes one of those that end a text goes on with another file.
var fims = []struct {
	keys, texts []string
	ends        bool
}{
	{
		[]string{"fim_pre_token_id", "prefix_token_id"},
		[]string{"<|fim_prefix|>", "<fim-prefix>", "<fim_prefix>", "<｜fim▁begin｜>", "<PRE>", "▁<PRE>", "<|code_prefix|>", "<|prefix|>"},
		false,
	},
	{
		[]string{"fim_suf_token_id", "suffix_token_id"},
		[]string{"<|fim_suffix|>", "<fim-suffix>", "<fim_suffix>", "<｜fim▁hole｜>", "<SUF>", "▁<SUF>", "<|code_suffix|>", "<|suffix|>"},
		false,
	},
	{
		[]string{"fim_mid_token_id", "middle_token_id"},
		[]string{"<|fim_middle|>", "<fim-middle>", "<fim_middle>", "<｜fim▁end｜>", "<MID>", "▁<MID>", "<|code_middle|>", "<|middle|>"},
		false,
	},
	{[]string{"fim_pad_token_id"}, []string{"<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]"}, true},
	{[]string{"fim_rep_token_id"}, []string{"<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>"}, true},
	{[]string{"fim_sep_token_id"}, []string{"<|file_sep|>"}, true},
}

// special finds the special tokens, which it makes control tokens, and those that end a text.
func (k *reader) special(v *vocab) {
	for _, s := range specialKeys {
		if id := k.named(v, s.key); id >= 0 {
			v.ids[s.key] = id
		}
	}
	ends := map[int]bool{}
	control := func(id int) { v.types[id] = tokenControl } // for its text, whatever the file says
	for _, f := range fims {
		id := -1
		for _, key := range f.keys {
			id = max(id, k.named(v, key))
		}
		if id < 0 {
			if id = v.first(f.texts); id >= 0 {
				control(id)
			}
		}
		if f.ends && id >= 0 {
			ends[id] = true
		}
	}
	has := func(text string) bool { id, ok := v.find(text); return ok && ends[id] }
	for _, text := range endTexts {
		if id, ok := v.find(text); ok {
			ends[id] = true
			control(id)
		}
	}
	var order []int
	for _, key := range []string{"eos_token_id", "eot_token_id", "eom_token_id"} {
		if id := v.id(key); id >= 0 {
			ends[id] = true
			order = append(order, id)
		}
	}
	// Some models go on behind tokens that end the texts of others.
	if has("<|end|>") && (has("<|return|>") && (has("<|call|>") || has("<|calls|>")) || has("<|flush|>") && (has("<|call|>") || has("<|calls|>"))) {
		id, _ := v.find("<|end|>")
		delete(ends, id)
	}
	if has("</s>") && (has("<|tool_response>") || has("<|plamo:eos|>")) {
		id, _ := v.find("</s>")
		delete(ends, id)
		v.types[id] = tokenNormal
	}
	for _, id := range append(order, slices.Sorted(maps.Keys(ends))...) {
		if ends[id] {
			v.ends = append(v.ends, id)
			delete(ends, id)
		}
	}
	if len(v.ends) == 0 {
		k.warn("no token ends a text: neither does \"tokenizer.ggml.eos_token_id\" name one nor is there one of the usual texts")
	}
}

// first returns the lowest token that is one of the texts, -1 if there is none.
func (v *vocab) first(texts []string) int {
	least := -1
	for _, s := range texts {
		if id, ok := v.find(s); ok && (least < 0 || id < least) {
			least = id
		}
	}
	return least
}

// named returns the token that a key names, or else the usual one, or −1.
func (k *reader) named(v *vocab, key string) int {
	id := -1
	if d, ok := usual[k.string("tokenizer.ggml.model")][key]; ok && d < v.tokens.Len() && v.types[d] == tokenControl {
		id = d
	}
	key = "tokenizer.ggml." + key
	if !k.has(key) {
		return id
	}
	switch n, ok := k.f.keys[key].int(); {
	case !ok:
		k.bad(key, "a token below %d", v.tokens.Len())
	case n < 0 || n >= int64(v.tokens.Len()):
		instead := "there is none then"
		if id >= 0 {
			instead = fmt.Sprintf("%d is taken, %q", id, v.text(id))
		}
		k.warn("key %q is %v, want a token below %d: %s", key, k.f.keys[key], v.tokens.Len(), instead)
	default:
		id = int(n)
	}
	return id
}

// frame returns the tokens that go before and after a text, −1 for none.
func (k *reader) frame(v *vocab, bosByDefault bool) (before, after int) {
	before, after = -1, -1
	if k.bool("tokenizer.ggml.add_bos_token", bosByDefault) {
		if before = v.id("bos_token_id"); before < 0 && k.has("tokenizer.ggml.add_bos_token") {
			k.bad("tokenizer.ggml.add_bos_token", "false without bos_token_id")
		}
	}
	if k.bool("tokenizer.ggml.add_eos_token", false) {
		if after = v.id("eos_token_id"); after < 0 {
			k.bad("tokenizer.ggml.add_eos_token", "false without eos_token_id")
		}
	}
	return before, after
}

// splitter returns how the file's byte-level tokenizer cuts a text.
func (k *reader) splitter() *splitter {
	const key = "tokenizer.ggml.pre"
	name := k.pre
	if name == "" {
		if name = k.string(key); name == "" || name == "default" {
			name = "default"
			k.warn("key %q is %v: how texts are split before they are merged is not known; llama.cpp's default is taken, which is wrong for most models; the option pre names the right way", key, k.f.keys[key])
		}
	}
	s, ok := byName[name]
	switch {
	case ok || k.err != nil:
	case slices.Contains(rawNames, name):
		k.err = fmt.Errorf("%s: key %q: %q is a way to split texts of architectures that are not read", k.f.Path, key, name)
	default:
		k.err = hint.Errorf("{pre} names one", "%s: key %q: how %.40q splits texts is not known, want one of %s", k.f.Path, key, name, strings.Join(Splitters(), ", "))
	}
	if s == nil {
		s = &splitter{}
	}
	return s
}
