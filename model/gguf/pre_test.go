package gguf_test

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"testing"

	"golang.org/x/text/unicode/norm"

	"talf/internal/golden"
	"talf/model/gguf"
	"talf/model/gguf/gguftest"
	"talf/text/tokenizer"
)

// showsCuts returns a vocabulary of bytes, pairs of bytes, some words that nothing merges to, and <s>:
// that of tools/goldens/ids.py.
func showsCuts() *gguftest.File {
	var shown [256]string // the byte-level alphabet
	next := rune(256)
	for b := range shown {
		switch {
		case 33 <= b && b <= 126, 161 <= b && b <= 172, 174 <= b:
			shown[b] = string(rune(b))
		default:
			shown[b] = string(next)
			next++
		}
	}
	tokens := slices.Clone(shown[:])
	plain := func(b int) bool { return b == 9 || b == 10 || b == 13 || 32 <= b && b < 127 }
	var merges []string
	for a := range 256 {
		for b := range 256 {
			if plain(a) && plain(b) || a >= 128 && b >= 128 && (a+b)%4 == 0 || a == ' ' && b >= 128 || a >= 128 && (b == '\n' || b == '\'') {
				tokens, merges = append(tokens, shown[a]+shown[b]), append(merges, shown[a]+" "+shown[b])
			}
		}
	}
	tokens = append(tokens, "Ġriver", "WINTER", "ĠStone", "candle", "12345", "<s>")
	types := slices.Repeat([]int32{1}, len(tokens))
	types[len(types)-1] = 3
	f := &gguftest.File{Magic: "GGUF", Version: 3, Align: 32}
	f.Set("general.architecture", "llama")
	f.Set("tokenizer.ggml.model", "gpt2")
	f.Set("tokenizer.ggml.tokens", tokens)
	f.Set("tokenizer.ggml.merges", merges)
	f.Set("tokenizer.ggml.token_type", types)
	f.Set("tokenizer.ggml.bos_token_id", uint32(len(tokens)-1))
	return f
}

// Every name that llama.cpp knows splits texts as it does there, but where its own patterns are an
// approximation of the published ones.
func TestEveryNameSplitsAsInLlamaCpp(t *testing.T) {
	var want struct {
		Texts []string
		Same  map[string]string // another name with the same ids
		BOS   []string
		IDs   map[string][][]int32
	}
	if err := json.Unmarshal(golden.Read(t, "gguf/ids/splits.json"), &want); err != nil {
		t.Fatal(err)
	}
	// There, letters beyond ASCII have no case, or none has, and marks are left out; digits in front of letters are
	// groups of three, too; and white space beyond ASCII is in no range of characters.
	cases := regexp.MustCompile(`\p{M}|[\p{Ll}\p{Lo}\p{Lm}][\p{Lu}\p{Lt}]`)
	exempt := map[string]*regexp.Regexp{
		"tekken": cases, "gpt-4o": cases, "kimi-k2": cases, "youtu": cases, "granite-embed-multi-97m": cases,
		"tiny_aya":     regexp.MustCompile(`\p{Nd}{2,}[\p{L}_]|` + cases.String()),
		"deepseek-llm": regexp.MustCompile(`[\x{2028}\x{3000}]`),
	}
	path := showsCuts().Write(t, "cuts.gguf")
	names := gguf.Splitters()
	if len(names) != len(want.Same) {
		t.Errorf("%d names, want %d", len(names), len(want.Same))
	}
	for _, name := range names {
		same, ok := want.Same[name]
		if !ok {
			t.Errorf("%s is no name of llama.cpp's", name)
			continue
		}
		if testing.Short() && name != same {
			continue
		}
		tok, err := tokenizer.LoadAs(path, name)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if before, _ := tok.Added(); (len(before) > 0) != slices.Contains(want.BOS, name) {
			t.Errorf("%s: %v goes before a text", name, before)
		}
		differ := 0
		for i, text := range want.Texts {
			if name == "qwen2" && !norm.NFC.IsNormalString(text) { // it is normalised
				continue
			}
			switch got := encode(t, tok, text, false); {
			case slices.Equal(got, want.IDs[same][i]):
			case exempt[same] != nil && exempt[same].MatchString(text):
				differ++
			default:
				t.Errorf("%s, text %d, %q: %v, want %v", name, i, text, got, want.IDs[same][i])
			}
		}
		if exempt[name] != nil && differ == 0 {
			t.Errorf("%s: no text differs", name)
		}
	}
}

func TestWaysToSplitAreNamed(t *testing.T) {
	f := showsCuts()
	path := f.Write(t, "x.gguf")
	tok, err := tokenizer.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	if w := tok.Warnings(); len(w) != 2 || !strings.Contains(w[0], path) || !strings.Contains(w[0], "no token ends a text") || !strings.Contains(w[1], "the option pre") {
		t.Errorf("without a name: %q, want warnings of the guess, and of no end", w)
	}
	if tok, err = tokenizer.LoadAs(path, "llama3"); err != nil || len(tok.Warnings()) != 1 {
		t.Errorf("named: %v, %q", err, tok.Warnings())
	}
	for name, want := range map[string]string{"unheard-of": "not known, want one of a.x-4.0, afmoe, ", "gemma4": "architectures that are not read"} {
		f.Set("tokenizer.ggml.pre", name)
		path := f.Write(t, "x.gguf")
		_, err := tokenizer.Load(path)
		check(t, path, err, want)
		if _, err := tokenizer.LoadAs(path, "gpt-2"); err != nil {
			t.Errorf("--pre does not go before the file's own: %v", err)
		}
	}
	spm := golden.File(t, "gguf/spm-Q8_0.gguf")
	if _, err := tokenizer.LoadAs(spm, "gpt-2"); err == nil || !strings.Contains(err.Error(), "byte-level") {
		t.Errorf("a SentencePiece tokenizer: %v", err)
	}
}
