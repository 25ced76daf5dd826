package write

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"talf/internal/ijson"
	"talf/internal/limits"
	"talf/model/gguf"
)

// Kinds of tokens in tokenizer.ggml.token_type.
const (
	tokenNormal  = 1
	tokenUnknown = 2
	tokenControl = 3
	tokenUser    = 4
	tokenUnused  = 5
	tokenByte    = 6
)

const keyTokens = "tokenizer.ggml.tokens"

// tokens returns the number of tokens of a tokenizer's keys.
func tokens(keys []gguf.Raw) int {
	for _, k := range keys {
		if k.Name == keyTokens && k.Type == kindArray && len(k.Value) >= 12 {
			return int(binary.LittleEndian.Uint64(k.Value[4:]))
		}
	}
	return 0
}

// Tokenizer returns the keys of the tokenizer of the model in dir, which has vocab tokens. Those of
// a GGUF file are copied. Of a directory, byte-level tokenizers in tokenizer.json are converted as
// llama.cpp's converter does, if they cut texts in a way that has a name in tokenizer.ggml.pre, and SentencePiece
// tokenizers of type BPE in tokenizer.json or tokenizer.model.
func Tokenizer(dir string, vocab int) ([]gguf.Raw, error) {
	if gguf.Is(dir) {
		return gguf.Tokenizer(dir)
	}
	name := "tokenizer.json"
	keys, err := fromJSON(dir, vocab)
	if errors.Is(err, errNoFile) {
		raw, missing := limits.ReadFile(filepath.Join(dir, "tokenizer.model"), limits.TokenizerBytes)
		if !errors.Is(missing, fs.ErrNotExist) {
			name, err = "tokenizer.model", missing
		}
		if missing == nil {
			keys, err = fromModel(dir, raw, vocab)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w; a GGUF file of the target can be given in its place: its tokenizer is copied", filepath.Join(dir, name), err)
	}
	return keys, nil
}

// A file is what is read of a tokenizer.json.
type file struct {
	Added      []added    `json:"added_tokens"`
	Normalizer *component `json:"normalizer"`
	Pre        *component `json:"pre_tokenizer"`
	Post       *component `json:"post_processor"`
	Model      struct {
		Type         string            `json:"type"`
		Vocab        map[string]int    `json:"vocab"`
		Merges       []json.RawMessage `json:"merges"`
		IgnoreMerges bool              `json:"ignore_merges"`
		ByteFallback bool              `json:"byte_fallback"`
		Unk          string            `json:"unk_token"`
	} `json:"model"`
}

// An added is a token beside the model's.
type added struct {
	ID      int    `json:"id"`
	Content string `json:"content"`
	Special bool   `json:"special"`
}

// A component is a step of a tokenizer, or several.
type component struct {
	Type          string      `json:"type"`
	Pretokenizers []component `json:"pretokenizers"`
	Normalizers   []component `json:"normalizers"`
	Processors    []component `json:"processors"`
	Behavior      string      `json:"behavior"`
	Invert        bool        `json:"invert"`
	UseRegex      *bool       `json:"use_regex"`
	Prefix        bool        `json:"add_prefix_space"`
	Replacement   string      `json:"replacement"` // of Metaspace
	Scheme        string      `json:"prepend_scheme"`
	Split         *bool       `json:"split"`
	Prepend       string      `json:"prepend"` // of Prepend
	Content       string      `json:"content"` // of Replace
	Pattern       struct {
		Regex  string `json:"Regex"`
		String string `json:"String"`
	} `json:"pattern"`
	Single []struct {
		Special *struct {
			ID string `json:"id"`
		} `json:"SpecialToken"`
	} `json:"single"`
}

// steps returns the steps of a component, in order.
func (c *component) steps(of func(*component) []component) []component {
	switch {
	case c == nil:
		return nil
	case c.Type == "Sequence":
		return of(c)
	}
	return []component{*c}
}

var errNoFile = errors.New("there is no such file, and no tokenizer.model")

func fromJSON(dir string, vocab int) ([]gguf.Raw, error) {
	raw, err := limits.ReadFile(filepath.Join(dir, "tokenizer.json"), limits.TokenizerBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, errNoFile
	} else if err != nil {
		return nil, err
	}
	var t file
	if err := ijson.Unmarshal(raw, &t); err != nil {
		return nil, err
	}
	switch {
	case t.Model.Type != "BPE":
		return nil, fmt.Errorf("model.type is %.40q, want BPE", t.Model.Type)
	case t.Model.ByteFallback:
		return t.sentencePiece(dir, vocab)
	}
	pre, err := t.splitter()
	if err != nil {
		return nil, err
	}
	words, kinds, err := t.words(vocab)
	if err != nil {
		return nil, err
	}
	merges, err := t.merges()
	if err != nil {
		return nil, err
	}
	keys := []gguf.Raw{
		Text("tokenizer.ggml.model", "gpt2"), Text("tokenizer.ggml.pre", pre),
		texts(keyTokens, words), numbers("tokenizer.ggml.token_type", kinds), texts("tokenizer.ggml.merges", merges),
	}
	return t.special(dir, keys, vocab)
}

// splitter returns the name of the way in which the tokenizer cuts texts.
func (t *file) splitter() (string, error) {
	nfc := false
	for _, n := range t.Normalizer.steps(func(c *component) []component { return c.Normalizers }) {
		if n.Type != "NFC" {
			return "", fmt.Errorf("normalizer is %.40q, want NFC or none", n.Type)
		}
		nfc = true
	}
	var patterns []string
	bytes := false
	for _, p := range t.Pre.steps(func(c *component) []component { return c.Pretokenizers }) {
		switch {
		case p.Type == "Split" && p.Behavior == "Isolated" && !p.Invert && p.Pattern.Regex != "":
			patterns = append(patterns, p.Pattern.Regex)
		case p.Type == "Digits":
			patterns = append(patterns, `\p{N}`)
		case p.Type == "ByteLevel" && !p.Prefix:
			if bytes = true; p.UseRegex == nil || *p.UseRegex {
				patterns = append(patterns, gguf.GPT2Pattern)
			}
		default:
			return "", fmt.Errorf("pre_tokenizer has the step %.40q, want Split, Digits or ByteLevel as byte-level tokenizers have them", p.Type)
		}
	}
	name, ok := gguf.Splitter(patterns, t.Model.IgnoreMerges, nfc)
	if !ok || !bytes {
		return "", fmt.Errorf("pre_tokenizer cuts texts by %.200q, which has no name in tokenizer.ggml.pre", patterns)
	}
	return name, nil
}

// words returns the texts of vocab tokens and their kinds. Ids that no token has get texts that none
// produces.
func (t *file) words(vocab int) (words []string, kinds []int, err error) {
	words, kinds = make([]string, vocab), make([]int, vocab)
	for i := range words {
		words[i], kinds[i] = fmt.Sprintf("[PAD%d]", i), tokenUnused
	}
	set := func(id int, s string, kind int) {
		if id < 0 || id >= vocab {
			err = fmt.Errorf("token %.40q has the id %d, but the model has %d tokens", s, id, vocab)
			return
		}
		words[id], kinds[id] = s, kind
	}
	for s, id := range t.Model.Vocab {
		set(id, s, tokenNormal)
	}
	for _, a := range t.Added {
		kind, s := addedKind(a)
		set(a.ID, s, kind)
	}
	return words, kinds, err
}

// merges returns the pairs as texts with a space between. A space in a token is written as bytes
// are: Ġ.
func (t *file) merges() ([]string, error) {
	all := make([]string, 0, len(t.Model.Merges))
	for i, raw := range t.Model.Merges {
		var s string
		var pair []string
		switch {
		case json.Unmarshal(raw, &s) == nil:
		case json.Unmarshal(raw, &pair) == nil && len(pair) == 2:
			s = strings.ReplaceAll(pair[0], " ", "Ġ") + " " + strings.ReplaceAll(pair[1], " ", "Ġ")
		default:
			return nil, fmt.Errorf("model.merges[%d] is %.40s, want two tokens", i, raw)
		}
		all = append(all, s)
	}
	return all, nil
}

// specials are the special tokens by their names in tokenizer_config.json and in keys.
var specials = [][2]string{{"bos", "bos"}, {"eos", "eos"}, {"unk", "unknown"}, {"sep", "seperator"}, {"pad", "padding"}, {"mask", "mask"}}

// special adds the special tokens, those that go around a text, and the chat template.
func (t *file) special(dir string, keys []gguf.Raw, vocab int) ([]gguf.Raw, error) {
	conf, err := object(dir, "tokenizer_config.json")
	if err != nil {
		return nil, err
	}
	model, err := object(dir, "config.json")
	if err != nil {
		return nil, err
	}
	names := map[string]string{} // contents of bos and eos
	for _, s := range specials {
		content := textOf(conf[s[0]+"_token"])
		if content == "" && s[0] == "unk" && t.Model.ByteFallback {
			content = t.Model.Unk
		}
		if names[s[0]] = content; content == "" {
			names[s[0]] = "\x00" // no token
		}
		id := slices.IndexFunc(t.Added, func(a added) bool { return a.Content == content })
		if id >= 0 {
			id = t.Added[id].ID
		} else if json.Unmarshal(model[s[0]+"_token_id"], &id) != nil {
			id = -1
		}
		if id >= 0 && id < vocab {
			keys = append(keys, number("tokenizer.ggml."+s[1]+"_token_id", id))
		}
	}
	around := map[string]*bool{"bos": nil, "eos": nil}
	for _, p := range t.Post.steps(func(c *component) []component { return c.Processors }) {
		switch {
		case p.Type == "ByteLevel":
			for k, v := range around {
				if v == nil {
					around[k] = new(bool)
				}
			}
		case p.Type == "TemplateProcessing" && len(p.Single) > 1:
			if s := p.Single[0].Special; s != nil {
				if names["bos"] == "\x00" {
					names["bos"] = s.ID
				}
				is := s.ID == names["bos"]
				around["bos"] = &is
			}
			if s := p.Single[len(p.Single)-1].Special; s != nil {
				is := s.ID == names["eos"]
				around["eos"] = &is
			}
		}
	}
	for _, k := range []string{"bos", "eos"} {
		v := around[k]
		if v == nil && json.Unmarshal(conf["add_"+k+"_token"], &v) != nil {
			v = nil
		}
		if v == nil && t.Model.ByteFallback { // files without the key begin texts with bos
			v = new(bool)
		}
		if v != nil {
			keys = append(keys, truth("tokenizer.ggml.add_"+k+"_token", *v))
		}
	}
	template := textOf(conf["chat_template"])
	if raw, err := limits.ReadFile(filepath.Join(dir, "chat_template.jinja"), limits.ConfigBytes); template == "" && err == nil {
		template = string(raw)
	}
	if template != "" {
		keys = append(keys, Text("tokenizer.chat_template", template))
	}
	return keys, nil
}

// object reads a file with a JSON object; a missing one is empty.
func object(dir, name string) (o map[string]json.RawMessage, err error) {
	raw, err := limits.ReadFile(filepath.Join(dir, name), limits.ConfigBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	if err := ijson.Unmarshal(raw, &o); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return o, nil
}

// textOf returns a text, or the content of a token.
func textOf(raw json.RawMessage) string {
	var s string
	var token struct {
		Content string `json:"content"`
	}
	if json.Unmarshal(raw, &s) != nil && json.Unmarshal(raw, &token) == nil {
		return token.Content
	}
	return s
}
