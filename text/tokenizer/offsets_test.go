package tokenizer

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// Offsets equal those of the reference (testdata/offsets.py) for every component and
// every conformance case.
func TestOffsets(t *testing.T) {
	var want struct {
		Components [][][]int          `json:"components"`
		Families   map[string][][]int `json:"families"`
	}
	b, err := os.ReadFile("testdata/offsets.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, &want); err != nil {
		t.Fatal(err)
	}
	check := func(t *testing.T, name string, tok *Tokenizer, text string, want []int) {
		t.Helper()
		ids, spans, err := tok.EncodeOffsets(text, true)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(ids, encode(t, tok, text, true)) {
			t.Errorf("%s: %+q: ids %v, want %v", name, text, ids, encode(t, tok, text, true))
		}
		var got []int
		for _, s := range spans {
			got = append(got, s.Start, s.End)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %+q: offsets %v, want %v", name, text, got, want)
		}
	}
	f := readComponents(t)
	for i, c := range f.Configs {
		tok, err := Parse(f.build(t, i))
		if err != nil {
			t.Fatal(err)
		}
		for j, k := range c.Cases {
			check(t, c.Name, tok, k.Text, want.Components[i][j])
		}
	}
	withEach(t, families, func(t *testing.T, tok *Tokenizer, name string) {
		cases := readCases(t, name)
		want := want.Families[filepath.Base(name)]
		if len(cases) != len(want) {
			t.Fatalf("%s: %d cases, offsets for %d", name, len(cases), len(want))
		}
		for i, c := range cases {
			check(t, name, tok, c.Text, want[i])
		}
	})
}

// For any text, the spans lie within it and the ids are Encode's.
func TestOffsetsOfAnyText(t *testing.T) {
	withEach(t, families, func(t *testing.T, tok *Tokenizer, name string) {
		rapid.Check(t, func(rt *rapid.T) {
			text := drawText(rt)
			if rapid.Bool().Draw(rt, "broken") {
				text = string(rapid.SliceOfN(rapid.Byte(), 0, 60).Draw(rt, "bytes"))
			}
			ids, spans, err := tok.EncodeOffsets(text, false)
			if err != nil {
				rt.Fatal(err)
			}
			if !slices.Equal(ids, encode(t, tok, text, false)) || len(spans) != len(ids) {
				rt.Fatalf("%s: %q: ids %v, spans %v", name, text, ids, spans)
			}
			for _, s := range spans {
				if s.Start < 0 || s.Start > s.End || s.End > len(text) {
					rt.Fatalf("%s: %q: spans %v", name, text, spans)
				}
			}
		})
	})
}

// A character made of several tokens belongs to each of them.
func TestOffsetsOfSplitCharacters(t *testing.T) {
	tok := load(t, "tokenizers/llama2")
	ids, spans, err := tok.EncodeOffsets("a "+strings.Repeat("𓀀", 2), false)
	if err != nil {
		t.Fatal(err)
	}
	want := []Span{{0, 1}, {1, 2}, {2, 6}, {2, 6}, {2, 6}, {2, 6}, {6, 10}, {6, 10}, {6, 10}, {6, 10}}
	if !slices.Equal(spans, want) {
		t.Errorf("ids %v, spans %v, want %v", ids, spans, want)
	}
}
