package texts_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"talf/internal/texts"
)

// What is packed is found as in a map, and what is not is not found.
func TestPackedTextsAreThoseOfAMap(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 7))
	for range 200 {
		ids, list, known := map[string]int32{}, []string{}, []bool{}
		before := map[[2]int32]bool{}
		for range r.IntN(100) {
			s := strings.Repeat(string(rune('a'+r.IntN(3))), r.IntN(4)) + fmt.Sprint(r.IntN(60))
			has := r.IntN(4) > 0 // the text of an id that has none is never found
			if has {
				if id, dup := ids[s]; dup {
					before[[2]int32{int32(len(list)), id}] = true
				}
				ids[s] = int32(len(list))
			}
			list, known = append(list, s), append(known, has)
		}
		p := texts.Pack(list)
		x := texts.NewIndex(p, func(id int32) bool { return known[id] }, func(id, first int32) {
			if !before[[2]int32{id, first}] {
				t.Fatalf("%d and %d are said to be equal: %q, %q", id, first, list[id], list[first])
			}
			delete(before, [2]int32{id, first})
		})
		if x.Len() != len(ids) || p.Len() != len(list) || p.Bytes() != len(strings.Join(list, "")) || len(before) > 0 {
			t.Fatalf("%d texts of %d ids in %d bytes, want %d of %d; not told: %v", x.Len(), p.Len(), p.Bytes(), len(ids), len(list), before)
		}
		for id, s := range p.List() {
			if got := p.At(int32(id)); got != list[id] || s != got {
				t.Fatalf("id %d is %q or %q, want %q", id, got, s, list[id])
			}
			want, has := ids[s]
			if got, ok := x.Find(s); ok != has || ok && got != want {
				t.Fatalf("%q is found at %d (%v), want %d (%v)", s, got, ok, want, has)
			}
		}
		if _, ok := x.Find("nowhere"); ok {
			t.Fatal("a text that is not there is found")
		}
	}
	if _, ok := new(texts.Index).Find(""); ok {
		t.Error("an empty index finds a text")
	}
}
