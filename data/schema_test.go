package data_test

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"talf/data"
	"talf/model/identity"
)

// shards writes the shards of a part from the next one up to n, with metadata m.
func shards(t *testing.T, dir string, m data.Meta, p data.Stripe, n int) *data.Writer {
	t.Helper()
	w, err := data.Create(dir, m, p, data.DefaultWriter())
	if err != nil {
		t.Fatal(err)
	}
	kept := w.Meta()
	for i := len(w.Shards()); p.Shard(i) < n && !w.Complete(); i++ {
		if err := w.Append(record(rand.New(rand.NewPCG(1, uint64(p.Shard(i)))), &kept, 3)); err != nil {
			t.Fatal(err)
		}
		if err := w.Cut(1, nil, nil, "a text"); err != nil {
			t.Fatal(err)
		}
	}
	return w
}

// A set that an earlier release began is finished in its schema, alone or in parts, wherever it
// stopped: the bytes are those of a set that it made alone.
func TestASetKeepsItsSchema(t *testing.T) {
	m := meta(data.TopK, data.BF16)
	m.Function = &identity.Function{Model: identity.Model{Tensors: "u", DerivedFrom: "t"}, Weights: "q8"}
	old := m.Old("t")
	for _, whole := range []data.Meta{m, old} {
		want := t.TempDir()
		closeWriter(t, shards(t, want, whole, data.Whole(), 4))
		for _, made := range []int{1, 2, 4} {
			dir := t.TempDir()
			shards(t, dir, whole, data.Whole(), made).Abort()
			if made == 1 { // as if killed between the shard and its manifest
				if err := os.Remove(filepath.Join(dir, data.ManifestName)); err != nil {
					t.Fatal(err)
				}
			}
			w := shards(t, dir, m, data.Whole(), 4)
			if got := w.Meta(); got.Schema != whole.Schema || (got.Uncovered() == "") != (whole.Schema == data.SchemaVersion) {
				t.Errorf("continued with %+v", got)
			}
			closeWriter(t, w)
			sameFiles(t, want, dir)
		}
		parts := t.TempDir()
		closeWriter(t, shards(t, parts, whole, data.Stripe{Index: 1, Count: 2}, 4))
		closeWriter(t, shards(t, parts, m, data.Stripe{Index: 0, Count: 2}, 4))
		sameFiles(t, want, parts)

		s := open(t, want)
		if got, say := s.Shards()[0].Text, whole.Schema > 1; (got == "a text") != say {
			t.Errorf("schema %d: a shard's text is %q", whole.Schema, got)
		}
		if tie := s.Meta(); tie.Tie().Base() != "t" {
			t.Errorf("schema %d: made by %v", whole.Schema, tie.Tie())
		}
		if meta := s.Meta(); !strings.HasPrefix(meta.Made(), "talf-fn-1:") && meta.Made() != "t" {
			t.Errorf("schema %d: made by %q", whole.Schema, meta.Made())
		}
	}
	for want, other := range map[string]*identity.Function{
		`target: "t", want "x"`: {Model: identity.Model{Tensors: "x"}},
		`target: "t", want "y"`: {Model: identity.Model{Tensors: "t", DerivedFrom: "y"}},
	} {
		dir := t.TempDir()
		shards(t, dir, old, data.Whole(), 1).Abort()
		n := m
		n.Function = other
		if _, err := data.Create(dir, n, data.Whole(), data.DefaultWriter()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}
