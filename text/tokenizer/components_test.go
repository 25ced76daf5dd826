package tokenizer

import (
	"encoding/json"
	"maps"
	"os"
	"slices"
	"testing"
)

type componentFile struct {
	Base    map[string]map[string]json.RawMessage `json:"base"`
	Configs []struct {
		Name  string                     `json:"name"`
		Base  string                     `json:"base"`
		Model map[string]json.RawMessage `json:"model"`
		Set   map[string]json.RawMessage `json:"set"`
		Cases []struct {
			Text       string  `json:"text"`
			IDs        []int32 `json:"ids"`
			IDsSpecial []int32 `json:"ids_special"`
			Tokens     []int32 `json:"tokens"`
			Decoded    string  `json:"decoded"`
			DecodedSS  string  `json:"decoded_skip_special"`
		} `json:"cases"`
	} `json:"configs"`
}

func readComponents(t testing.TB) componentFile {
	t.Helper()
	b, err := os.ReadFile("testdata/components.json")
	if err != nil {
		t.Fatal(err)
	}
	var f componentFile
	if err := json.Unmarshal(b, &f); err != nil {
		t.Fatal(err)
	}
	return f
}

// build applies a configuration's changes to its base.
func (f componentFile) build(t testing.TB, i int) []byte {
	t.Helper()
	c := f.Configs[i]
	d := maps.Clone(f.Base[c.Base])
	maps.Copy(d, c.Set)
	var m map[string]json.RawMessage
	if err := json.Unmarshal(d["model"], &m); err != nil {
		t.Fatal(err)
	}
	for k, v := range c.Model {
		if k != "drop" {
			m[k] = v
			continue
		}
		var name string
		var vocab map[string]int32
		if err := json.Unmarshal(v, &name); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(m["vocab"], &vocab); err != nil {
			t.Fatal(err)
		}
		delete(vocab, name)
		m["vocab"] = marshal(t, vocab)
	}
	d["model"] = marshal(t, m)
	return marshal(t, d)
}

func marshal(t testing.TB, v any) []byte {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// Every component, alone or combined with others, does what the reference does
// (testdata/make.py).
func TestComponents(t *testing.T) {
	f := readComponents(t)
	for i, c := range f.Configs {
		tok, err := Parse(f.build(t, i))
		if err != nil {
			t.Errorf("%s: %v", c.Name, err)
			continue
		}
		for _, k := range c.Cases {
			if got := encode(t, tok, k.Text, false); !slices.Equal(got, k.IDs) {
				t.Errorf("%s: %+q: ids %v, want %v", c.Name, k.Text, got, k.IDs)
			}
			if got := encode(t, tok, k.Text, true); !slices.Equal(got, k.IDsSpecial) {
				t.Errorf("%s: %+q: ids with special tokens %v, want %v", c.Name, k.Text, got, k.IDsSpecial)
			}
			if got := tok.Decode(k.Tokens, false); got != k.Decoded {
				t.Errorf("%s: %v: decoded %q, want %q", c.Name, k.Tokens, got, k.Decoded)
			}
			if got := tok.Decode(k.Tokens, true); got != k.DecodedSS {
				t.Errorf("%s: %v: decoded without special tokens %q, want %q", c.Name, k.Tokens, got, k.DecodedSS)
			}
		}
	}
}
