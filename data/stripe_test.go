package data_test

import (
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"talf/data"
)

// stripe writes the shards of one of count writers, for a set with the given number of
// shards of one row each. The shard's number determines its row.
func stripe(t testing.TB, dir string, p data.Stripe, shards int) *data.Writer {
	t.Helper()
	m := meta(data.TopK, data.BF16)
	w, err := data.Create(dir, m, p, data.DefaultWriter())
	if err != nil {
		t.Fatal(err)
	}
	for i := len(w.Shards()); p.Shard(i) < shards && !w.Complete(); i++ {
		if err := w.Append(record(rand.New(rand.NewPCG(1, uint64(p.Shard(i)))), &m, 3)); err != nil {
			t.Fatal(err)
		}
		if err := w.Cut(1, nil, nil, ""); err != nil {
			t.Fatal(err)
		}
	}
	return w
}

func closeWriter(t testing.TB, w *data.Writer) {
	t.Helper()
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
}

// copyInto copies the files that are not hidden.
func copyInto(t testing.TB, to, from string) {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(from, "[^.]*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range names {
		b, err := os.ReadFile(n)
		if err == nil {
			err = os.WriteFile(filepath.Join(to, filepath.Base(n)), b, 0o666)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func missing(err error) []int {
	var e *data.MissingError
	if errors.As(err, &e) {
		return e.Indices
	}
	return nil
}

func TestStripesMergeIntoTheSetOfOneWriter(t *testing.T) {
	for _, c := range []struct {
		shards int
		order  []int // in which the writers finish
	}{
		{5, []int{0, 1}},
		{4, []int{1, 0}},
		{7, []int{2, 0, 1}},
		{2, []int{4, 3, 2, 1, 0}}, // more writers than shards
		{0, []int{1, 0}},
	} {
		one, many := t.TempDir(), t.TempDir()
		closeWriter(t, stripe(t, one, data.Whole(), c.shards))
		var left []int
		for i, index := range c.order {
			left = c.order[i:]
			_, err := data.Open(many)
			if err == nil || i > 0 && len(missing(err)) != len(left) {
				t.Fatalf("%v: with %v to come: %v", c.order, left, err)
			}
			w := stripe(t, many, data.Stripe{Index: index, Count: len(c.order)}, c.shards)
			closeWriter(t, w)
			if w.Merged() != (len(left) == 1) {
				t.Errorf("%v: merged %v with %v to come", c.order, w.Merged(), left[1:])
			}
		}
		sameFiles(t, one, many)
		// Any writer may run again.
		for index := range c.order {
			w := stripe(t, many, data.Stripe{Index: index, Count: len(c.order)}, c.shards)
			closeWriter(t, w)
			if !w.Merged() || len(w.Shards()) != c.shards {
				t.Errorf("%v: index %d again: merged %v, %d shards", c.order, index, w.Merged(), len(w.Shards()))
			}
		}
		if err := data.Merge(many); err != nil {
			t.Error(err)
		}
		sameFiles(t, one, many)
	}
}

// A writer that was lost at any point is run again, even if its newest shard or its
// manifest did not reach the disk, or a half-written file is left.
func TestALostWriterIsRunAgain(t *testing.T) {
	one := t.TempDir()
	closeWriter(t, stripe(t, one, data.Whole(), 7))
	p := data.Stripe{Index: 1, Count: 3}
	for name, lose := range map[string]func(dir string){
		"after two shards":     func(string) {},
		"without its manifest": func(dir string) { os.Remove(filepath.Join(dir, "part-00001-of-00003.json")) },
		"while writing": func(dir string) {
			os.WriteFile(filepath.Join(dir, ".shard-00007.parquet.tmp"), []byte("half"), 0o666)
			os.WriteFile(filepath.Join(dir, ".part-00001-of-00003.json.tmp"), []byte("half"), 0o666)
		},
	} {
		dir := t.TempDir()
		w := stripe(t, dir, p, 5)
		w.Abort()
		lose(dir)
		other := filepath.Join(dir, ".shard-00003.parquet.tmp") // index 0 is writing it
		if err := os.WriteFile(other, []byte("x"), 0o666); err != nil {
			t.Fatal(err)
		}
		for _, i := range []int{2, 1} {
			closeWriter(t, stripe(t, dir, data.Stripe{Index: i, Count: 3}, 7))
		}
		if _, err := os.Stat(other); err != nil {
			t.Errorf("%s: what another index is writing: %v", name, err)
		}
		if err := os.Remove(other); err != nil {
			t.Fatal(err)
		}
		closeWriter(t, stripe(t, dir, data.Stripe{Index: 0, Count: 3}, 7))
		sameFiles(t, one, dir)
	}
}

func TestStripesWrittenElsewhereAreMergedByHand(t *testing.T) {
	one, all := t.TempDir(), t.TempDir()
	closeWriter(t, stripe(t, one, data.Whole(), 5))
	for i := range 2 {
		dir := t.TempDir()
		closeWriter(t, stripe(t, dir, data.Stripe{Index: i, Count: 2}, 5))
		if i == 1 {
			if err := data.Merge(all); len(missing(err)) != 1 || missing(err)[0] != 1 || !strings.Contains(err.Error(), "of which 1 have not finished") {
				t.Errorf("merged without index 1: %v", err)
			}
		}
		copyInto(t, all, dir)
	}
	if err := data.Merge(all); err != nil {
		t.Fatal(err)
	}
	sameFiles(t, one, all)
}

func TestWritersThatFinishTogetherMergeOnce(t *testing.T) {
	one, many := t.TempDir(), t.TempDir()
	closeWriter(t, stripe(t, one, data.Whole(), 16))
	const count = 8
	var ws []*data.Writer
	for i := range count {
		ws = append(ws, stripe(t, many, data.Stripe{Index: i, Count: count}, 16))
	}
	var wg sync.WaitGroup
	for _, w := range ws {
		wg.Go(func() {
			if err := w.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	sameFiles(t, one, many)
}

func TestMismatchedStripesAreRefused(t *testing.T) {
	m := meta(data.TopK, data.BF16)
	create := func(dir string, index, count int) error {
		w, err := data.Create(dir, m, data.Stripe{Index: index, Count: count}, data.DefaultWriter())
		if err == nil {
			w.Abort()
		}
		return err
	}
	refuses := func(err error, want string) {
		t.Helper()
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q in it", err, want)
		}
	}
	refuses(create(t.TempDir(), 2, 2), "index 2 of 2")
	refuses(create(t.TempDir(), 0, 0), "index 0 of 0")

	dir := t.TempDir()
	w := stripe(t, dir, data.Stripe{Index: 0, Count: 2}, 3)
	refuses(create(dir, 0, 2), "another run")
	refuses(create(dir, 1, 3), "split between 2 indices")
	refuses(create(dir, 0, 1), "2 indices make this set")
	w.Abort()
	m.Seed++
	refuses(create(dir, 0, 2), "seed")
	m.Seed--

	alone := t.TempDir()
	stripe(t, alone, data.Whole(), 1).Abort()
	refuses(create(alone, 0, 2), "a run without an index")
	refuses(data.Merge(alone), "not finished")
	refuses(data.Merge(t.TempDir()), "manifests of parts")

	// Parts of different sets, of different splits, or with a missing shard.
	parts := func() string {
		dir := t.TempDir()
		for i := range 2 {
			one := t.TempDir()
			closeWriter(t, stripe(t, one, data.Stripe{Index: i, Count: 2}, 4))
			copyInto(t, dir, one)
		}
		return dir
	}
	edit := func(path, from, to string) {
		t.Helper()
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(b), from) {
			t.Fatalf("%s: no %q", path, from)
		}
		if err := os.WriteFile(path, []byte(strings.Replace(string(b), from, to, 1)), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	dir = parts()
	part := filepath.Join(dir, "part-00001-of-00002.json")
	raw, err := os.ReadFile(part)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(part, otherTarget(t, raw), 0o666); err != nil {
		t.Fatal(err)
	}
	refuses(data.Merge(dir), "different sets")
	dir = parts()
	edit(filepath.Join(dir, "part-00001-of-00002.json"), `"index": 1`, `"index": 0`)
	refuses(data.Merge(dir), "part-00001-of-00002.json")
	dir = parts()
	if err := os.Remove(filepath.Join(dir, "shard-00002.parquet")); err != nil {
		t.Fatal(err)
	}
	refuses(data.Merge(dir), "shard-00002.parquet")
	dir = parts()
	if err := os.Truncate(filepath.Join(dir, "shard-00003.parquet"), 100); err != nil {
		t.Fatal(err)
	}
	refuses(data.Merge(dir), "shard-00003.parquet: 100 bytes")

	odd := t.TempDir() // index 0 saw fewer shards than index 1
	closeWriter(t, stripe(t, odd, data.Stripe{Index: 0, Count: 2}, 1))
	w = stripe(t, odd, data.Stripe{Index: 1, Count: 2}, 4)
	refuses(w.Close(), "want shard-00002.parquet as well")
}

// A directory's name does not matter: brackets are not a pattern.
func TestPartsAreFoundInDirectoriesOfAnyName(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "set[1]")
	closeWriter(t, stripe(t, dir, data.Stripe{Index: 0, Count: 2}, 4))
	if !data.HasParts(dir) {
		t.Error("a part is not seen")
	}
	if _, err := data.Open(dir); len(missing(err)) != 1 {
		t.Errorf("opened with one part: %v", err)
	}
	half := filepath.Join(dir, ".shard-00001.parquet.tmp")
	if err := os.WriteFile(half, []byte("half"), 0o666); err != nil {
		t.Fatal(err)
	}
	w := stripe(t, dir, data.Stripe{Index: 1, Count: 2}, 0)
	if _, err := os.Stat(half); err == nil {
		t.Error("a half-written file of a lost run is still there")
	}
	w.Abort()
	w = stripe(t, dir, data.Stripe{Index: 1, Count: 2}, 4)
	closeWriter(t, w)
	if !w.Merged() || data.HasParts(dir) {
		t.Errorf("merged %v, parts left: %v", w.Merged(), data.HasParts(dir))
	}
}

func TestADamagedPartIsNamed(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "part-00000-of-00002.json"), []byte("{"), 0o666); err != nil {
		t.Fatal(err)
	}
	if _, err := data.Open(dir); err == nil || !strings.Contains(err.Error(), "part-00000-of-00002.json") {
		t.Errorf("opened: %v", err)
	}
}

func TestStripeNumbersShards(t *testing.T) {
	p := data.Stripe{Index: 2, Count: 5}
	var got []int
	for i := range 3 {
		got = append(got, p.Shard(i))
	}
	if d := cmp.Diff([]int{2, 7, 12}, got); d != "" || !p.Owns(12) || p.Owns(11) {
		t.Error(d)
	}
}
