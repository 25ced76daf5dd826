package tokenizer

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// What is packed is found as in a map, and what is not is not found.
func TestPackedTextsAreThoseOfAMap(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 7))
	for range 200 {
		ids, list, known := map[string]int32{}, []string{}, []bool{}
		for range r.IntN(100) {
			s := strings.Repeat(string(rune('a'+r.IntN(3))), r.IntN(4)) + fmt.Sprint(r.IntN(60))
			_, dup := ids[s]
			if has := !dup && r.IntN(4) > 0; has {
				ids[s] = int32(len(list))
				known = append(known, true)
			} else {
				known = append(known, false) // the text of an id that has none is never found
			}
			list = append(list, s)
		}
		p := pack(list)
		x := newIndex(&p, func(id int32) bool { return known[id] })
		if x.n != len(ids) || p.len() != len(list) {
			t.Fatalf("%d texts of %d ids, want %d of %d", x.n, p.len(), len(ids), len(list))
		}
		for id, s := range list {
			if got := p.at(int32(id)); got != s {
				t.Fatalf("id %d is %q, want %q", id, got, s)
			}
			want, has := ids[s]
			if got, ok := x.find(s); ok != has || ok && got != want {
				t.Fatalf("%q is found at %d (%v), want %d (%v)", s, got, ok, want, has)
			}
		}
		if _, ok := x.find("nowhere"); ok {
			t.Fatal("a text that is not there is found")
		}
	}
	if _, ok := new(index).find(""); ok {
		t.Error("an empty index finds a text")
	}
}

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
