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
	for i := len(w.Shards()); p.Shard(i) < n && !w.Complete(); i++ {
		if err := w.Append(record(rand.New(rand.NewPCG(1, uint64(p.Shard(i)))), &m, 3)); err != nil {
			t.Fatal(err)
		}
		if err := w.Cut(1, nil, nil, "a text"); err != nil {
			t.Fatal(err)
		}
	}
	return w
}

// A set that was interrupted is finished, alone or in parts, wherever it stopped: the bytes are those of one that was not.
func TestASetGoesOnWhereItStopped(t *testing.T) {
	m := meta(data.TopK, data.BF16)
	m.Function = &identity.Function{Model: identity.Model{Tensors: "u", DerivedFrom: "t"}, Weights: "q8"}
	want := t.TempDir()
	closeWriter(t, shards(t, want, m, data.Whole(), 4))
	for _, made := range []int{1, 2, 4} {
		dir := t.TempDir()
		shards(t, dir, m, data.Whole(), made).Abort()
		if made == 1 { // as if killed between the shard and its manifest
			if err := os.Remove(filepath.Join(dir, data.ManifestName)); err != nil {
				t.Fatal(err)
			}
		}
		closeWriter(t, shards(t, dir, m, data.Whole(), 4))
		sameFiles(t, want, dir)
	}
	parts := t.TempDir()
	closeWriter(t, shards(t, parts, m, data.Stripe{Index: 1, Count: 2}, 4))
	closeWriter(t, shards(t, parts, m, data.Stripe{Index: 0, Count: 2}, 4))
	sameFiles(t, want, parts)

	s := open(t, want)
	if got := s.Shards()[0].Text; got != "a text" {
		t.Errorf("a shard's text is %q", got)
	}
	if meta := s.Meta(); meta.Tie().Base() != "t" {
		t.Errorf("made by %v", meta.Tie())
	}
	dir := t.TempDir()
	shards(t, dir, m, data.Whole(), 1).Abort()
	m.Function = &identity.Function{Model: identity.Model{Tensors: "x"}, Weights: "q8"}
	if _, err := data.Create(dir, m, data.Whole(), data.DefaultWriter()); err == nil || !strings.Contains(err.Error(), "labels of another function") {
		t.Errorf("another function: %v", err)
	}
}
