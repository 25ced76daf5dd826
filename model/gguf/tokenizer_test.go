package gguf_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/text/unicode/norm"

	"talf/internal/golden"
	"talf/model/arch"
	"talf/text/chat"
	"talf/text/tokenizer"
)

// tokenized is a line of the goldens: a text and its tokens by Hugging Face and by llama.cpp, which
// has no more than the file.
type tokenized struct {
	Text     string  `json:"text"`
	HF       []int32 `json:"ids"`
	Special  []int32 `json:"ids_special"`
	LlamaCpp []int32 `json:"llamacpp_special"`
	Decoded  string  `json:"decoded"`
	Same     bool    `json:"same"`
}

// summary is what the goldens say of each file.
type summary struct {
	File     string `json:"file"`
	LlamaCpp struct {
		EOG []int32 `json:"eog"`
	} `json:"llamacpp"`
	Chat []struct {
		Messages json.RawMessage `json:"messages"`
		Generate bool            `json:"add_generation_prompt"`
		Text     string          `json:"text"`
		IDs      []int32         `json:"ids"`
	} `json:"chat"`
}

// eachTokenizer calls f for the repository's goldens and for gsm10m, whose file is not part of them.
func eachTokenizer(t *testing.T, f func(t *testing.T, name string, s summary)) {
	for name, s := range summaries(t, golden.File(t, "gguf/tokenizer/summary.json")) {
		t.Run(name, func(t *testing.T) { f(t, name, s) })
	}
	t.Run("gsm10m", func(t *testing.T) {
		f(t, "gsm10m", summaries(t, golden.Shared(t, "data/gguf/tokenizer/summary.json"))["gsm10m"])
	})
}

func summaries(t *testing.T, path string) map[string]summary {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var all map[string]summary
	if err := json.Unmarshal(raw, &all); err != nil {
		t.Fatal(err)
	}
	return all
}

// stored is the path of a golden, which for gsm10m is a shared file.
func stored(t *testing.T, name string) string {
	t.Helper()
	if strings.HasPrefix(filepath.Base(name), "gsm10m") {
		return golden.Shared(t, "data/gguf/"+name)
	}
	return golden.File(t, "gguf/"+name)
}

func encode(t *testing.T, tok *tokenizer.Tokenizer, text string, special bool) []int32 {
	t.Helper()
	ids, err := tok.Encode(text, special)
	if err != nil {
		t.Fatal(err)
	}
	return ids
}

func TestTokenizersFromFilesAlone(t *testing.T) {
	eachTokenizer(t, func(t *testing.T, name string, s summary) {
		tok, err := tokenizer.Load(stored(t, s.File))
		if err != nil {
			t.Fatal(err)
		}
		f, err := os.Open(stored(t, "tokenizer/"+name+".jsonl"))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		before, after := tok.Added()
		same, hf := 0, 0
		lines := bufio.NewScanner(f)
		lines.Buffer(nil, 1<<20)
		n := 0
		for ; lines.Scan(); n++ {
			var x tokenized
			if err := json.Unmarshal(lines.Bytes(), &x); err != nil {
				t.Fatal(err)
			}
			got := encode(t, tok, x.Text, false)
			want := slices.Concat(before, got, after)
			switch asLlamaCpp, asHF := match(x.LlamaCpp, got, want), match(x.Special, got, want); {
			case x.Same && !asLlamaCpp:
				t.Errorf("%q: %v, want %v", x.Text, got, x.LlamaCpp)
			case !asLlamaCpp && !asHF:
				t.Errorf("%q: %v, want %v as llama.cpp or %v as Hugging Face", x.Text, got, x.LlamaCpp, x.Special)
			case x.Same:
				same++
			case asHF:
				hf++
			}
			if x.Same && norm.NFC.IsNormalString(x.Text) && x.Decoded == x.Text {
				if back := tok.Decode(got, false); back != x.Text {
					t.Errorf("%q decodes to %q", x.Text, back)
				}
			}
		}
		if err := lines.Err(); err != nil || n != 126 {
			t.Fatalf("%d texts, %v, want 126", n, err)
		}
		t.Logf("%d texts on which both agree; of the other %d, %d as Hugging Face", same, n-same, hf)
	})
}

// match reports whether want is the tokens of a text, alone or with those around it.
func match(want, alone, framed []int32) bool {
	return slices.Equal(want, alone) || slices.Equal(want, framed)
}

func TestChatTemplatesAndEndsFromFilesAlone(t *testing.T) {
	eachTokenizer(t, func(t *testing.T, name string, s summary) {
		path := stored(t, s.File)
		spec, err := arch.Load(path)
		if err != nil {
			t.Fatal(err)
		}
		ends := slices.Sorted(slices.Values(spec.EOS))
		if !slices.Equal(ends, s.LlamaCpp.EOG) {
			t.Errorf("texts end at %v, want %v", ends, s.LlamaCpp.EOG)
		}
		if len(s.Chat) == 0 {
			return
		}
		tok, err := tokenizer.Load(path)
		if err != nil {
			t.Fatal(err)
		}
		template, err := chat.Load(path)
		if err != nil {
			t.Fatal(err)
		}
		for i, c := range s.Chat {
			conversation, err := chat.ParseConversation(fmt.Appendf(nil, `{"messages": %s}`, c.Messages))
			if err != nil {
				t.Fatal(err)
			}
			r, err := template.WithControlTokens().Render(context.Background(), conversation.WithGenerationPrompt(c.Generate))
			if err != nil {
				t.Fatal(err)
			}
			if r.Text != c.Text {
				t.Errorf("conversation %d is %q, want %q", i, r.Text, c.Text)
			}
			if name == "mistral" {
				continue // the file does not say that its prefix goes before the first word alone
			}
			if ids := encode(t, tok, r.Text, false); !slices.Equal(ids, c.IDs) {
				t.Errorf("conversation %d: %v, want %v", i, ids, c.IDs)
			}
		}
	})
}

func TestSplitPatternsByName(t *testing.T) {
	raw, err := os.ReadFile(golden.File(t, "gguf/pre/pre.json"))
	if err != nil {
		t.Fatal(err)
	}
	var all struct {
		Texts []string `json:"texts"`
		Pre   map[string]struct {
			File     string             `json:"file"`
			LlamaCpp [][]int32          `json:"llamacpp"`
			Differ   map[string][]int32 `json:"differ_from_published"`
		} `json:"pre"`
	}
	if err := json.Unmarshal(raw, &all); err != nil {
		t.Fatal(err)
	}
	for name, p := range all.Pre {
		t.Run(name, func(t *testing.T) {
			tok, err := tokenizer.Load(stored(t, p.File))
			if err != nil {
				t.Fatal(err)
			}
			for i, text := range all.Texts {
				want := p.LlamaCpp[i]
				if name == "qwen2" { // Qwen's tokenizer normalises, which llama.cpp does not
					text = norm.NFC.String(text)
					if text != all.Texts[i] {
						if got := encode(t, tok, all.Texts[i], false); !slices.Equal(got, encode(t, tok, text, false)) {
							t.Errorf("text %d is not normalised: %v", i, got)
						}
						continue
					}
				}
				if published, ok := p.Differ[itoa(i)]; ok {
					want = published
				}
				if got := encode(t, tok, text, false); !slices.Equal(got, want) {
					t.Errorf("text %d, %q: %v, want %v", i, text, got, want)
				}
			}
		})
	}
}

func itoa(i int) string {
	b, _ := json.Marshal(i) // an integer
	return string(b)
}
