package tokenizer

import (
	"bufio"
	"bytes"
	"encoding/json"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"unicode/utf8"

	"talf/internal/golden"

	"pgregory.net/rapid"
)

// families are the tokenizers with conformance cases. Only llama3-style, which was
// trained for this project, is always present; the others are published.
var families = []string{"tokenizers/gpt2", "tokenizers/gpt-neox", "tokenizers/llama2", "tokenizers/llama3-style", "tokenizers/phi3"}

type conformance struct {
	Text       string  `json:"text"`
	IDs        []int32 `json:"ids"`
	IDsSpecial []int32 `json:"ids_special"`
	Decoded    string  `json:"decoded"`
	DecodedSS  string  `json:"decoded_skip_special"`
}

func readCases(t testing.TB, family string) []conformance {
	t.Helper()
	var out []conformance
	sc := bufio.NewScanner(bytes.NewReader(golden.Read(t, family+"/cases.jsonl")))
	sc.Buffer(nil, 1<<26)
	for sc.Scan() {
		var c conformance
		if err := json.Unmarshal(sc.Bytes(), &c); err != nil {
			t.Fatal(err)
		}
		out = append(out, c)
	}
	if err := sc.Err(); err != nil {
		t.Fatal(err)
	}
	return out
}

// directory returns the path of a tokenizer.
func directory(t testing.TB, name string) string {
	t.Helper()
	switch name {
	case "tokenizers/gpt2", "tokenizers/gpt-neox", "tokenizers/llama2", "tokenizers/phi3", "hf/stories260K":
		return golden.Shared(t, "data/"+name)
	}
	return golden.File(t, name)
}

// loaded caches tokenizers: some take a quarter of a second to load.
var loaded sync.Map

// withEach runs f as a subtest for each tokenizer, so that a missing one skips only its
// own subtest.
func withEach(t *testing.T, names []string, f func(t *testing.T, tok *Tokenizer, name string)) {
	t.Helper()
	for _, name := range names {
		t.Run(filepath.Base(name), func(t *testing.T) { f(t, load(t, name), name) })
	}
}

func load(t testing.TB, name string) *Tokenizer {
	t.Helper()
	if tok, ok := loaded.Load(name); ok {
		return tok.(*Tokenizer)
	}
	tok, err := Load(directory(t, name))
	if err != nil {
		t.Fatal(err)
	}
	text := textOf(t, tok) // whose directory goes with the test
	tok.source = func() ([]byte, error) { return text, nil }
	loaded.Store(name, tok)
	return tok
}

func encode(t testing.TB, tok *Tokenizer, text string, special bool) []int32 {
	t.Helper()
	ids, err := tok.Encode(text, special)
	if err != nil {
		t.Fatalf("encode %q: %v", text, err)
	}
	return ids
}

func TestConformanceCases(t *testing.T) {
	withEach(t, families, func(t *testing.T, tok *Tokenizer, f string) {
		cases := readCases(t, f)
		bad := 0
		for i, c := range cases {
			ids, special := encode(t, tok, c.Text, false), encode(t, tok, c.Text, true)
			dec, skip := tok.Decode(c.IDsSpecial, false), tok.Decode(c.IDsSpecial, true)
			switch {
			case !slices.Equal(ids, c.IDs):
				t.Errorf("case %d: %q: ids %v, want %v", i, c.Text, ids, c.IDs)
			case !slices.Equal(special, c.IDsSpecial):
				t.Errorf("case %d: %q: ids with special tokens %v, want %v", i, c.Text, special, c.IDsSpecial)
			case dec != c.Decoded:
				t.Errorf("case %d: decoded %q, want %q", i, dec, c.Decoded)
			case skip != c.DecodedSS:
				t.Errorf("case %d: decoded without special tokens %q, want %q", i, skip, c.DecodedSS)
			default:
				continue
			}
			bad++
		}
		t.Logf("%d of %d cases pass", len(cases)-bad, len(cases))
	})
}

// The folders of models, with the special tokens that their files name.
func TestModelFolders(t *testing.T) {
	for _, c := range []struct {
		dir      string
		size     int
		bos, eos int32
		prefix   []int32
	}{
		{"hf/stories260K", 512, 1, 2, []int32{1}},
		{"tokenizers/gsm10m", 4096, 0, 1, []int32{0}},
		{"hf/llama-gqa", 272, 1, 2, []int32{1}},
		{"hf/mistral-swa", 264, 1, 2, []int32{1}},
		{"hf/qwen2", 280, -1, 2, nil},
		{"hf/qwen3", 300, -1, 2, nil},
		{"hf/gpt-neox-parallel", 276, 0, 0, nil},
	} {
		t.Run(filepath.Base(c.dir), func(t *testing.T) {
			tok := load(t, c.dir)
			bos, _ := tok.BOS()
			eos, _ := tok.EOS()
			pre, post := tok.Added()
			if tok.VocabSize() != c.size || bos != c.bos || eos != c.eos || !slices.Equal(pre, c.prefix) || post != nil {
				t.Errorf("%s: %d ids, bos %d, eos %d, added %v %v", c.dir, tok.VocabSize(), bos, eos, pre, post)
			}
			const text = "Once upon a time, there was a café.\n\n  12345 naïve \u00a0 \U0001F600!"
			ids := encode(t, tok, text, true)
			if got := tok.Decode(ids, true); got != text {
				t.Errorf("%s: %q becomes %q", c.dir, text, got)
			}
			if len(tok.Hash()) != 64 {
				t.Errorf("%s: hash %q", c.dir, tok.Hash())
			}
		})
	}
}

// For any ids, and wherever they stop, the text that a stream has returned is a prefix
// of the whole text and ends between characters. With Flush it is the whole text.
func TestStreamEqualsDecode(t *testing.T) {
	for _, dir := range []string{"tokenizers/gpt2", "tokenizers/gpt-neox", "tokenizers/llama2", "tokenizers/phi3", "tokenizers/llama3-style", "hf/llama-gqa", "hf/stories260K", "tokenizers/gsm10m"} {
		t.Run(filepath.Base(dir), func(t *testing.T) {
			tok := load(t, dir)
			rapid.Check(t, func(rt *rapid.T) {
				// Bytes are short ids: make broken sequences frequent.
				id := rapid.OneOf(rapid.Int32Range(0, int32(tok.VocabSize())), rapid.Int32Range(-1, 260))
				ids := rapid.SliceOfN(id, 0, 40).Draw(rt, "ids")
				skip := rapid.Bool().Draw(rt, "skip")
				want := tok.Decode(ids, skip)
				st := tok.NewStream(skip)
				got := ""
				for i, id := range ids {
					part := st.Push(id)
					if !utf8.ValidString(part) {
						rt.Fatalf("token %d: half a character: %q", i, part)
					}
					got += part
					// Flushing here gives the whole text of the ids so far.
					end := *st
					end.pend = slices.Clone(st.pend)
					if got+end.Flush() != tok.Decode(ids[:i+1], skip) {
						rt.Fatalf("after %d tokens the stream and Decode differ", i+1)
					}
				}
				if got += st.Flush(); got != want {
					rt.Fatalf("stream %q, whole %q", got, want)
				}
			})
		})
	}
}

// sugarme's own pipeline with the parts of this package gives the same ids.
func TestSugarmePipeline(t *testing.T) {
	withEach(t, families, func(t *testing.T, tok *Tokenizer, f string) {
		s := tok.Sugarme()
		for _, c := range readCases(t, f) {
			if c.Text == "" {
				continue // its Encoding of nothing has no fields to compare
			}
			e, err := s.EncodeSingle(c.Text, true)
			if err != nil {
				t.Fatalf("%s: %q: %v", f, c.Text, err)
			}
			got := make([]int32, len(e.Ids))
			for i, id := range e.Ids {
				got[i] = int32(id)
			}
			if !slices.Equal(got, c.IDsSpecial) {
				t.Errorf("%s: %q: ids %v, want %v", f, c.Text, got, c.IDsSpecial)
			}
			if dec := s.Decode(e.Ids, false); dec != c.Decoded {
				t.Errorf("%s: decoded %q, want %q", f, dec, c.Decoded)
			}
			for i, o := range e.Offsets {
				if len(o) != 2 || o[0] < 0 || o[0] > o[1] || o[1] > len(c.Text) {
					t.Errorf("%s: %q: token %d has offsets %v", f, c.Text, i, o)
				}
			}
		}
	})
}
