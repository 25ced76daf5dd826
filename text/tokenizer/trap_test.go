package tokenizer

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"testing"
)

func atoi(t testing.TB, s string) int32 {
	t.Helper()
	n, err := strconv.Atoi(s)
	if err != nil {
		t.Fatal(err)
	}
	return int32(n)
}

// textOf returns the text of a tokenizer's file.
func textOf(t testing.TB, tok *Tokenizer) []byte {
	t.Helper()
	b, err := tok.written()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// withoutSpaces reloads a tokenizer without those of its added tokens that are not
// special.
func withoutSpaces(t testing.TB, tok *Tokenizer) *Tokenizer {
	t.Helper()
	var d map[string]json.RawMessage
	var added, kept []map[string]any
	if err := json.Unmarshal(textOf(t, tok), &d); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(d["added_tokens"], &added); err != nil {
		t.Fatal(err)
	}
	for _, a := range added {
		if a["special"] == true {
			kept = append(kept, a)
		}
	}
	d["added_tokens"] = marshal(t, kept)
	out, err := Parse(marshal(t, d))
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// Llama 2's special tokens are normalized: they are found where the normalizer would
// have put a mark in front, that is, at the start of a segment or after a space, but
// not inside a word.
func TestNormalizedSpecialTokens(t *testing.T) {
	tok := load(t, "tokenizers/llama2")
	for _, c := range []struct {
		text  string
		found bool
	}{{"<s>", true}, {"<s>x", true}, {"a <s>", true}, {"a<s>", false}, {"a</s>b", false}} {
		ids := encode(t, tok, c.text, false)
		if got := slices.Contains(ids, 1) || slices.Contains(ids, 2); got != c.found {
			t.Errorf("%q: special token found: %v, want %v (%v)", c.text, got, c.found, ids)
		}
	}
}

// Phi-3's special tokens swallow the white space after them.
func TestPhi3StripsAfterSpecialTokens(t *testing.T) {
	tok := load(t, "tokenizers/phi3")
	a := encode(t, tok, "<|user|>\n  \u00a0\u3000 Hello", false)
	b := encode(t, tok, "<|user|>Hello", false)
	if !slices.Equal(a, b) {
		t.Errorf("with white space %v, without %v", a, b)
	}
	if a, b := encode(t, tok, " <|user|>", false), encode(t, tok, "<|user|>", false); slices.Equal(a, b) {
		t.Error("white space before the token is also lost")
	}
	if a := encode(t, tok, "<|user|><|end|>\n<|assistant|>", false); len(a) != 3 {
		t.Errorf("%v", a)
	}
}

// U+00A0 is a character of its own: a token of Llama 2's vocabulary, white space to the
// split patterns, but not a space to a normalizer.
func TestNoBreakSpace(t *testing.T) {
	t.Run("token", func(t *testing.T) {
		tok := load(t, "tokenizers/llama2")
		id, ok := tok.TokenID("\u00a0")
		if !ok || id != 30081 {
			t.Fatalf("U+00A0 has id %d, %v", id, ok)
		}
		if got := encode(t, tok, "a\u00a0b", false); !slices.Contains(got, 30081) {
			t.Errorf("%v", got)
		}
	})
	withEach(t, families, func(t *testing.T, tok *Tokenizer, dir string) {
		for _, text := range []string{"\u00a0", "a\u00a0b", "\u00a0 \u00a0x", "x \u00a0"} {
			if got := tok.Decode(encode(t, tok, text, false), false); got != text {
				t.Errorf("%s: %q becomes %q", dir, text, got)
			}
		}
	})
	s := gpt2Scanner{classes()}
	if n := s.next("\u00a0\u00a0x", 0); n != 2 {
		t.Errorf("the run of white space ends at %d", n)
	}
}

// A token of the vocabulary that no merge produces is still found if a piece is the
// whole token.
func TestIgnoreMerges(t *testing.T) {
	tok := load(t, "tokenizers/llama3-style")
	made := map[string]bool{}
	var file struct {
		Model struct {
			Vocab  map[string]int32 `json:"vocab"`
			Merges [][2]string      `json:"merges"`
		} `json:"model"`
	}
	if err := json.Unmarshal(textOf(t, tok), &file); err != nil {
		t.Fatal(err)
	}
	for _, m := range file.Model.Merges {
		made[m[0]+m[1]] = true
	}
	n := 0
	for s, id := range file.Model.Vocab {
		raw, ok := unmapBytes(nil, s)
		if !ok || made[s] || len(raw) < 2 {
			continue
		}
		n++
		if got := encode(t, tok, string(raw), false); !slices.Equal(got, []int32{id}) {
			t.Errorf("%q: %v, want %d", raw, got, id)
		}
	}
	if n != 12 {
		t.Errorf("%d tokens without merges, want 12", n)
	}
}

// Streaming holds back a broken run of byte tokens until its end.
func TestStreamOfFallbackBytes(t *testing.T) {
	tok := load(t, "tokenizers/llama2")
	id := func(s string) int32 {
		i, ok := tok.TokenID(s)
		if !ok {
			t.Fatalf("no token %q", s)
		}
		return i
	}
	st := tok.NewStream(false)
	var got []string
	for _, s := range []string{"▁Hi", "<0xF0>", "<0x9F>", "<0x98>", "<0x80>", "!", "<0xF0>", "<0x41>", "▁x"} {
		got = append(got, st.Push(id(s)))
	}
	got = append(got, st.Flush())
	if want := []string{"Hi", "", "", "", "", "😀!", "", "", "\uFFFD\uFFFD x", ""}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if s := st.Push(id("▁again")); strings.HasPrefix(s, " ") {
		t.Error("Flush does not reset the stream")
	}
}

// An added token of white space is not a token if its neighbour's rstrip took it, as in
// the reference (its components.json: added-byte-6).
func TestAddedTokenSwallowedWhole(t *testing.T) {
	f := readComponents(t)
	for i, c := range f.Configs {
		if c.Name != "added-byte-6" {
			continue
		}
		tok, err := Parse(f.build(t, i))
		if err != nil {
			t.Fatal(err)
		}
		if got, want := encode(t, tok, "m\u4e2d  ing\u00e9", false), []int32{77, 405, 400, 166}; !slices.Equal(got, want) {
			t.Errorf("ids %v, want %v", got, want)
		}
		return
	}
	t.Error("the configuration is gone")
}
