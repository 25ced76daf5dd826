package tokenizer

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"talf/internal/zoo"
)

// A full table of merges wraps around its end.
func TestMergeTableKeepsAllPairs(t *testing.T) {
	for _, n := range []int{0, 1, 7, 8, 9, 1000, 12_345} {
		m := newMergeTable(n)
		for i := range n {
			m.put(int32(i%97), int32(i), uint32(i), int32(3*i))
		}
		for i := range n {
			if got, want := m.get(int32(i%97), int32(i)), uint64(i)<<32|uint64(3*i); got != want {
				t.Fatalf("%d merges: merge %d is %#x, want %#x", n, i, got, want)
			}
			if got := m.get(int32(i%97)+1, int32(i)); got != noMerge {
				t.Fatalf("%d merges: a pair that does not merge has %#x", n, got)
			}
		}
	}
}

// What the texts of a SentencePiece model's tokens say of merges is what a table of all merges says, which follows when
// many symbols were looked up.
func TestMergesByTextsAreThoseOfTheTable(t *testing.T) {
	for name, load := range map[string]func(t *testing.T) (*Tokenizer, error){
		"llama2": func(t *testing.T) (*Tokenizer, error) {
			b, err := os.ReadFile(filepath.Join(directory(t, "tokenizers/llama2"), "tokenizer.model"))
			if err != nil {
				t.Fatal(err)
			}
			return ParseSentencePiece(b)
		},
		zoo.Gemma3: func(t *testing.T) (*Tokenizer, error) { return Load(zoo.Path(t, zoo.Gemma3)) },
	} {
		t.Run(name, func(t *testing.T) {
			tok, err := load(t)
			if err != nil {
				t.Fatal(err)
			}
			m := tok.model
			table := m.tabulate()
			n := int32(m.tokens.Len())
			merges, crossing := 0, false
			for _, s := range table.slots {
				if s.key == 0 {
					continue
				}
				merges++
				a, b := int32((s.key-1)>>32), int32(uint32(s.key-1))
				if got := m.merge(a, b); got != s.val {
					t.Fatalf("tokens %d and %d merge to %#x, want %#x", a, b, got, s.val)
				}
				crossing = crossing || strings.HasPrefix(m.tokens.At(b), spaceMark) && !strings.HasSuffix(m.tokens.At(a), spaceMark)
			}
			for i := range int64(500_000) {
				a, b := int32(i*7919%int64(n)), int32(i*104729%int64(n))
				if got, want := m.merge(a, b), table.get(a, b); got != want {
					t.Fatalf("tokens %d and %d merge to %#x, want %#x", a, b, got, want)
				}
			}
			if merges < 30_000 || crossing != (m.cutMark == 0) {
				t.Errorf("%d merges, one crosses a mark: %v, where to cut: %q", merges, crossing, m.cutMark)
			}
			if m.merges.made.Load() != nil {
				t.Error("there is a table already")
			}
			text := strings.Repeat("the cat sat ", 100)
			want := encode(t, tok, text, false)
			encode(t, tok, strings.Repeat(text, 100), false)
			for range tableAt {
				m.merges.looked(1)
			}
			if got := encode(t, tok, text, false); !slices.Equal(got, want) || m.merges.made.Load() == nil {
				t.Errorf("with a table: %v, want %v", got, want)
			}
		})
	}
}

// The text of a tokenizer is read again when it is saved, and must be the same.
func TestSaveRefusesAnotherText(t *testing.T) {
	from := directory(t, "tokenizers/llama3-style")
	b, err := os.ReadFile(filepath.Join(from, "tokenizer.json"))
	if err != nil {
		t.Fatal(err)
	}
	dir, to := t.TempDir(), t.TempDir()
	path := filepath.Join(dir, "tokenizer.json")
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	tok, err := Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := (&Model{tok}).Save(to); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(filepath.Join(to, "tokenizer.json")); err != nil || string(got) != string(b) {
		t.Fatalf("%d bytes were saved (%v), want the %d of the file", len(got), err, len(b))
	}
	if err := os.WriteFile(path, append(b, '\n'), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := (&Model{tok}).Save(to); err == nil || !strings.Contains(err.Error(), "is not what it was") {
		t.Errorf("%v, want an error about another text", err)
	}
}
