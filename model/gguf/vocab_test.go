package gguf_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"slices"
	"strings"
	"testing"

	"golang.org/x/text/unicode/norm"

	"talf/internal/golden"
	"talf/internal/limits"
	"talf/internal/mapped"
	"talf/internal/zoo"
	"talf/model/arch"
	"talf/model/gguf"
	"talf/model/gguf/gguftest"
	"talf/text/tokenizer"
)

// A special is a file with more tokens, of some type, and what is found in it. The ends are those of llama.cpp on the
// same file, but that it takes token 11 for the end where none is named, whatever that is, takes any of several tokens
// for repositories, and does not load a file with equal tokens.
type special struct {
	name     string
	more     []string
	kind     int32
	change   func(f *gguftest.File)
	ends     []string // the first one is that of eos_token_id
	control  []string // which tokens with these texts in a text are special
	warnings []string // parts of them, in order
}

var specials = []special{
	{name: "as it is", ends: []string{"<|end_of_text|>", "<|eot_id|>"}, control: []string{"<|x|>"}},
	{
		name: "normal tokens that end texts", kind: 1, more: []string{"<|im_end|>", "<end_of_turn>", "</s>", "[e~[", "<|other|>"},
		ends:    []string{"<|end_of_text|>", "<|eot_id|>", "<|im_end|>", "<end_of_turn>", "</s>", "[e~["},
		control: []string{"<|im_end|>", "<end_of_turn>", "</s>", "[e~["},
	},
	{
		name: "fill-in-the-middle", kind: 4, more: []string{"<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>", "<|fim_pad|>", "<|repo_name|>", "<reponame>", "<|file_sep|>"},
		ends:    []string{"<|end_of_text|>", "<|eot_id|>", "<|fim_pad|>", "<|repo_name|>", "<|file_sep|>"},
		control: []string{"<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>", "<|fim_pad|>", "<|repo_name|>", "<|file_sep|>"},
	},
	{
		name: "a named separator of files", kind: 3, more: []string{"<|file_sep|>", "<sep>"}, change: set("tokenizer.ggml.fim_sep_token_id", uint32(267)),
		ends: []string{"<|end_of_text|>", "<|eot_id|>", "<sep>"},
	},
	{
		name: "harmony", kind: 3, more: []string{"<|end|>", "<|return|>", "<|call|>"},
		ends: []string{"<|end_of_text|>", "<|eot_id|>", "<|return|>", "<|call|>"}, control: []string{"<|end|>"},
	},
	{
		name: "an end and a call alone", kind: 3, more: []string{"<|end|>", "<|call|>"},
		ends: []string{"<|end_of_text|>", "<|eot_id|>", "<|end|>", "<|call|>"},
	},
	{
		name: "an </s> that is struck out", kind: 3, more: []string{"</s>", "<|tool_response>"},
		ends: []string{"<|end_of_text|>", "<|eot_id|>", "<|tool_response>"},
	},
	{
		name: "no eos", change: drop("tokenizer.ggml.eos_token_id"), ends: []string{"<|end_of_text|>", "<|eot_id|>"},
	},
	{
		name: "an eos beyond the tokens", change: set("tokenizer.ggml.eos_token_id", uint32(266)), ends: []string{"<|end_of_text|>", "<|eot_id|>"},
		warnings: []string{`key "tokenizer.ggml.eos_token_id" is 266, want a token below 266: there is none then`},
	},
	{
		name: "an eos of −1", change: set("tokenizer.ggml.eos_token_id", uint32(math.MaxUint32)), ends: []string{"<|end_of_text|>", "<|eot_id|>"},
		warnings: []string{`is 4294967295, want a token below 266`},
	},
	{
		name: "no end", change: func(f *gguftest.File) {
			tokens := f.Get("tokenizer.ggml.tokens").([]string)
			tokens[263], tokens[264] = "<|y|>", "<|z|>"
			f.Drop("tokenizer.ggml.eos_token_id")
		}, warnings: []string{"no token ends a text"},
	},
	{
		name: "another eos", change: set("tokenizer.ggml.eos_token_id", uint32(265)), ends: []string{"<|x|>", "<|end_of_text|>", "<|eot_id|>"},
	},
	{
		name: "Falcon's usual eos", change: func(f *gguftest.File) {
			f.Get("tokenizer.ggml.token_type").([]int32)[11] = 3
			f.Drop("tokenizer.ggml.eos_token_id")
		}, ends: []string{"ċ", "<|end_of_text|>", "<|eot_id|>"},
	},
	{
		name: "a text twice, and none", kind: 1, more: []string{"!", "", ""}, ends: []string{"<|end_of_text|>", "<|eot_id|>"},
		warnings: []string{`token 33 is "!", as token 266 is: no text becomes it (tokens like it: 3)`},
	},
	{
		name: "pieces without eos", change: func(f *gguftest.File) { f.ScorePieces(); f.Drop("tokenizer.ggml.eos_token_id") }, ends: []string{"</s>"},
	},
	{
		name: "pieces with an eos beyond them", change: func(f *gguftest.File) { f.ScorePieces(); f.Set("tokenizer.ggml.eos_token_id", uint32(1000)) }, ends: []string{"</s>"},
		warnings: []string{`is 1000, want a token below 269: 2 is taken, "</s>"`},
	},
}

func TestSpecialTokens(t *testing.T) {
	for _, c := range specials {
		t.Run(c.name, func(t *testing.T) {
			f := gguftest.Tiny(1)
			f.Set("tokenizer.ggml.tokens", append(f.Get("tokenizer.ggml.tokens").([]string), c.more...))
			f.Set("tokenizer.ggml.token_type", append(f.Get("tokenizer.ggml.token_type").([]int32), slices.Repeat([]int32{c.kind}, len(c.more))...))
			if c.change != nil {
				c.change(f)
			}
			path := f.Write(t, "x.gguf")
			spec, err := arch.Load(path)
			if err != nil {
				t.Fatal(err)
			}
			tok, err := tokenizer.Load(path)
			if err != nil {
				t.Fatal(err)
			}
			var ends []string
			for _, id := range spec.EOS {
				s, _ := tok.Token(id)
				ends = append(ends, s)
			}
			if !slices.Equal(ends, c.ends) {
				t.Errorf("texts end at %q, want %q", ends, c.ends)
			}
			for _, s := range c.control {
				if ids := encode(t, tok, "a"+s+"b", false); len(ids) != 3 || !tok.Special(ids[1]) {
					t.Errorf("%q in a text: %v", s, ids)
				}
			}
			w := tok.Warnings()
			if len(w) != len(c.warnings) {
				t.Errorf("warnings %q, want %d", w, len(c.warnings))
			}
			for i, want := range c.warnings {
				if i < len(w) && (!strings.Contains(w[i], want) || !strings.HasPrefix(w[i], path+": ")) {
					t.Errorf("warning %q, want %q", w[i], want)
				}
			}
		})
	}
}

// Wrong tokenizers are refused with the file, the key and what was expected.
func TestWrongTokenizers(t *testing.T) {
	token := func(i int, s string) func(f *gguftest.File) {
		return func(f *gguftest.File) { f.Get("tokenizer.ggml.tokens").([]string)[i] = s }
	}
	pieces := func(change func(f *gguftest.File)) func(f *gguftest.File) {
		return func(f *gguftest.File) { f.ScorePieces(); change(f) }
	}
	for name, c := range map[string]struct {
		change func(f *gguftest.File)
		want   string // "": it loads
	}{
		"an eos of −1 in 32 bits":   {set("tokenizer.ggml.eos_token_id", int32(-1)), ""},
		"a text for an eos":         {set("tokenizer.ggml.eos_token_id", "2"), `key "tokenizer.ggml.eos_token_id" is "2", want a token below 266`},
		"two ends":                  {set("tokenizer.ggml.eos_token_id", []uint32{1, 2}), `key "tokenizer.ggml.eos_token_id" is an array of 2 u32, want a token below 266`},
		"a fraction":                {set("tokenizer.ggml.fim_pad_token_id", float32(2.5)), `key "tokenizer.ggml.fim_pad_token_id" is 2.5, want a token below 266`},
		"types of f32":              {set("tokenizer.ggml.token_type", make([]float32, 266)), `is an array of 266 f32, want an array of 266 integers`},
		"a type too many":           {set("tokenizer.ggml.token_type", slices.Repeat([]int32{1}, 267)), `is an array of 267 i32, want an array of 266 integers`},
		"merges of u32":             {set("tokenizer.ggml.merges", []uint32{1}), `key "tokenizer.ggml.merges" is an array of 1 u32, want an array of texts`},
		"merges that are no UTF-8":  {set("tokenizer.ggml.merges", []string{"\xff \xfe"}), `merge 0 is "\xff \xfe", want tokens, of which "\xff" is none`},
		"a merge twice":             {set("tokenizer.ggml.merges", []string{"Ġ t", "Ġ t"}), ""},
		"pre of u32":                {set("tokenizer.ggml.pre", uint32(1)), `key "tokenizer.ggml.pre" is 1, want a text`},
		"model gemma4":              {set("tokenizer.ggml.model", "gemma4"), `key "tokenizer.ggml.model" is "gemma4", want "llama" or "gpt2"`},
		"model t5":                  {set("tokenizer.ggml.model", "t5"), `key "tokenizer.ggml.model" is "t5", want "llama" or "gpt2"`},
		"a control token of none":   {token(265, ""), ""},
		"a line feed that is one":   {token(265, "\n"), ""},
		"pieces: no UTF-8":          {pieces(func(f *gguftest.File) { token(261, "\xff\xfe")(f); token(262, "\xfe\xff")(f) }), ""},
		"pieces: none":              {pieces(token(261, "")), ""},
		"pieces: a byte twice":      {pieces(token(20, "<0x01>")), `key "tokenizer.ggml.tokens": no token <0x11> of type 6`},
		"pieces: two unknown":       {pieces(token(265, "<unk>")), ""},
		"pieces: infinite":          {pieces(func(f *gguftest.File) { f.Get("tokenizer.ggml.scores").([]float32)[262] = float32(math.Inf(1)) }), ""},
		"pieces: a byte is unknown": {pieces(set("tokenizer.ggml.unknown_token_id", uint32(13))), `key "tokenizer.ggml.unknown_token_id": token 13 "<0x0A>" is a byte`},
		"pieces: unknown beyond":    {pieces(set("tokenizer.ggml.unknown_token_id", uint32(5000))), ""},
	} {
		f := gguftest.Tiny(1)
		c.change(f)
		path := f.Write(t, "x.gguf")
		tok, err := tokenizer.Load(path)
		check(t, path, err, c.want)
		if err != nil {
			continue
		}
		for _, text := range []string{"the cat \xff\x00 in\n<|x|> [TOKEN_265] ü", "<0x01>\ufffd\u2581 <unk>"} {
			ids, err := tok.Encode(text, true)
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
			tok.Decode(ids, false)
		}
	}
}

// Transformers 4 takes a tokenizer without a class for that of the model's type, and Llama's adds a BOS token of its own.
func TestTheConfigurationOfAByteLevelTokenizerNamesItsClass(t *testing.T) {
	for _, x := range []struct {
		pieces bool
		want   any
	}{{false, "PreTrainedTokenizerFast"}, {true, nil}} {
		f := gguftest.Tiny(1)
		if x.pieces {
			f.ScorePieces()
		}
		b, _, err := gguf.ReadAs(f.Write(t, "x.gguf"), "tokenizer_config.json", "", limits.TokenizerBytes)
		if err != nil {
			t.Fatal(err)
		}
		var c map[string]any
		if err := json.Unmarshal(b, &c); err != nil {
			t.Fatal(err)
		}
		if c["tokenizer_class"] != x.want {
			t.Errorf("with scores: %v: class %v, want %v", x.pieces, c["tokenizer_class"], x.want)
		}
	}
}

// A tokenizer that was made of a file's tokens is that of the file that a directory would have, with the same hash.
func TestATokenizerOfAFileIsThatOfItsText(t *testing.T) {
	paths := map[string]func(t *testing.T) string{
		"byte-level": func(t *testing.T) string { return gguftest.Tiny(1).Write(t, "x.gguf") },
		"twice": func(t *testing.T) string {
			f := gguftest.Tiny(1)
			f.Get("tokenizer.ggml.tokens").([]string)[265] = "a"
			return f.Write(t, "x.gguf")
		},
		"pieces": func(t *testing.T) string {
			f := gguftest.Tiny(1)
			f.ScorePieces()
			return f.Write(t, "x.gguf")
		},
	}
	for _, name := range []string{zoo.SmolLM2, zoo.Gemma3, zoo.Qwen05} {
		paths[name] = func(t *testing.T) string { return zoo.Path(t, name) }
	}
	texts := []string{"", " ", "a<|eot_id|>b</s>", "  the  cat\n\tsat\x00 on <0x0A> é\u0301 日本語 \U0001f600\xff▁▁x▁", strings.Repeat("the cat sat, on 12345 mats. ", 2000)}
	for name, path := range paths {
		t.Run(name, func(t *testing.T) {
			path := path(t)
			tok, err := tokenizer.Load(path)
			if err != nil {
				t.Fatal(err)
			}
			parse := tokenizer.Parse
			b, _, err := gguf.ReadAs(path, "tokenizer.json", "", limits.TokenizerBytes)
			if errors.Is(err, fs.ErrNotExist) {
				parse = tokenizer.ParseSentencePiece
				b, _, err = gguf.ReadAs(path, "tokenizer.model", "", limits.TokenizerBytes)
			}
			if err != nil {
				t.Fatal(err)
			}
			want, err := parse(b)
			if err != nil {
				t.Fatal(err)
			}
			if tok.Hash() != want.Hash() || tok.VocabSize() != want.VocabSize() {
				t.Errorf("hash %s of %d tokens, want %s of %d", tok.Hash(), tok.VocabSize(), want.Hash(), want.VocabSize())
			}
			for id := range int32(want.VocabSize()) {
				a, okA := tok.Token(id)
				b, okB := want.Token(id)
				x, okX := tok.Bytes(id)
				y, okY := want.Bytes(id)
				back, _ := tok.TokenID(b)
				if a != b || okA != okB || tok.Special(id) != want.Special(id) || !bytes.Equal(x, y) || okX != okY || back != id {
					t.Fatalf("token %d is %q of bytes %q, found as %d, want %q of %q", id, a, x, back, b, y)
				}
			}
			for _, text := range texts {
				if got, want := encode(t, tok, text, false), encode(t, want, text, false); !slices.Equal(got, want) {
					t.Errorf("%.40q: %v, want %v", text, got, want)
				}
			}
		})
	}
}

// What has a file open and what opens it again share its contents, unless the file is another one by then.
func TestAFileThatIsOpenIsReadOnce(t *testing.T) {
	one, two := gguftest.Tiny(1), gguftest.Tiny(2)
	one.Set("talf.x", "one")
	two.Set("talf.x", "two")
	path := one.Write(t, "x.gguf")
	open := func(want string) *gguf.File {
		t.Helper()
		f, err := gguf.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		if got := f.Texts("talf.")["talf.x"]; got != want {
			t.Errorf("the file is %q, want %q", got, want)
		}
		return f
	}
	shut := func(files ...*gguf.File) {
		t.Helper()
		for _, f := range files {
			if err := f.Close(); err != nil {
				t.Error(err)
			}
		}
	}
	a := open("one")
	b := open("one")
	if &a.Headers()[0][0] != &b.Headers()[0][0] {
		t.Error("a file that is open is read again")
	}
	if err := os.Rename(two.Write(t, "y.gguf"), path); err != nil {
		t.Fatal(err)
	}
	c := open("two")
	shut(a)
	if string(b.Headers()[0][:4]) != "GGUF" || b.Texts("talf.")["talf.x"] != "one" {
		t.Error("a file that was closed elsewhere is gone")
	}
	d := open("two")
	if &c.Headers()[0][0] != &d.Headers()[0][0] || &b.Headers()[0][0] == &c.Headers()[0][0] {
		t.Error("the wrong files are shared")
	}
	shut(b, c, d)
	e := open("two")
	shut(e)
}

// The hash of a file that is another one by now is not that of the tokenizer.
func TestTheHashOfAFileThatWasReplaced(t *testing.T) {
	path := gguftest.Tiny(1).Write(t, "x.gguf")
	tok, err := tokenizer.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(gguftest.Tiny(2).Write(t, "y.gguf"), path); err != nil {
		t.Fatal(err)
	}
	hash := func() (s string, err error) {
		defer mapped.Guard(&err)()
		return tok.Hash(), nil
	}
	if s, err := hash(); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("%s, %v, want an error that names the file", s, err)
	}
}

// Of tokens with the same text the last one is found, and all have some text.
func TestTokensWithTheSameText(t *testing.T) {
	f := gguftest.Tiny(1)
	tokens := f.Get("tokenizer.ggml.tokens").([]string)
	tokens[265] = "a"
	tok, err := tokenizer.Load(f.Write(t, "x.gguf"))
	if err != nil {
		t.Fatal(err)
	}
	if got := encode(t, tok, "a<|eot_id|>", false); !slices.Equal(got, []int32{265, 264}) {
		t.Errorf("%v", got)
	}
	if s, ok := tok.Token('a'); !ok || s != "[TOKEN_97]" {
		t.Errorf("token %d is %q", 'a', s)
	}
}

// Real models' tokenizers have llama.cpp's ids, and end texts where llama.cpp does.
func TestRealTokenizers(t *testing.T) {
	for model, name := range map[string]string{zoo.SmolLM2: zoo.SmolLM2, zoo.Gemma3: zoo.Gemma3, zoo.Qwen05: zoo.Qwen05, zoo.Qwen15: zoo.Qwen05} {
		t.Run(model, func(t *testing.T) {
			path := zoo.Path(t, model)
			var want struct {
				Ends  []int32
				Texts []string
				IDs   [][]int32
			}
			if err := json.Unmarshal(golden.Read(t, fmt.Sprintf("gguf/ids/%s.json", name)), &want); err != nil {
				t.Fatal(err)
			}
			tok, err := tokenizer.Load(path)
			if err != nil {
				t.Fatal(err)
			}
			spec, err := arch.Load(path)
			if err != nil {
				t.Fatal(err)
			}
			if ends := slices.Sorted(slices.Values(spec.EOS)); !slices.Equal(ends, want.Ends) {
				t.Errorf("texts end at %v, want %v", ends, want.Ends)
			}
			normalized := 0
			for i, text := range want.Texts {
				if name == zoo.Qwen05 && !norm.NFC.IsNormalString(text) { // llama.cpp does not normalise
					normalized++
					continue
				}
				if got := encode(t, tok, text, false); !slices.Equal(got, want.IDs[i]) {
					t.Errorf("text %d, %q: %v, want %v", i, text, got, want.IDs[i])
				}
			}
			if n := len(want.Texts) - normalized; n < 300 {
				t.Errorf("%d texts, want 300", n)
			}
		})
	}
}
