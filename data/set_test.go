package data_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/parquet-go/parquet-go"

	"talf/data"
	"talf/internal/vfs/vfstest"
	"talf/model/identity"
)

func meta(labels data.LabelMode, features data.FeatureMode) data.Meta {
	m := data.Meta{
		Schema: data.SchemaVersion, Function: &identity.Function{Arithmetic: "t"}, Tokenizer: "k", Hidden: 6, Vocab: 40,
		Branch: 4, Depth: 3, Labels: labels, Features: features, Seed: 1<<63 + 1, Source: "s",
	}
	if labels == data.TopK {
		m.K = 5
	}
	if features == data.Taps {
		m.Taps = []int{2, 0, 7}
	}
	return m
}

// record makes a row of t random tokens. Parents are random too: the schema does not
// know how trees are searched.
func record(rng *rand.Rand, m *data.Meta, t int) *data.Record {
	n := t * m.Nodes()
	r := &data.Record{}
	for range t {
		r.Tokens = append(r.Tokens, rng.Int32N(int32(m.Vocab)))
		r.LossMask = append(r.LossMask, rng.IntN(2) == 0)
		for j := range m.Nodes() {
			r.TreeTokens = append(r.TreeTokens, rng.Int32N(int32(m.Vocab)))
			p := int32(-1)
			if j > 0 {
				p = rng.Int32N(int32(j))
			}
			r.TreeParents = append(r.TreeParents, p)
		}
	}
	if m.Labels == data.TopK {
		for range n {
			for range m.K {
				r.LabelIDs = append(r.LabelIDs, rng.Int32N(int32(m.Vocab)))
				r.LabelProbs = append(r.LabelProbs, rng.Float32())
			}
			r.Tail = append(r.Tail, rng.Float32())
		}
	} else {
		for range n * m.Vocab {
			r.LabelFull = append(r.LabelFull, rng.Float32())
		}
	}
	if n := m.FeatureSize(); n > 0 {
		h := make([]float32, t*n)
		for i := range h {
			h[i] = rng.Float32() - 0.5
		}
		r.Features = data.AppendBF16(nil, h)
	}
	return r
}

// build writes rows of random lengths in shards of perShard rows.
func build(t testing.TB, dir string, m data.Meta, rows, perShard int, opt data.WriterOptions) []data.Record {
	t.Helper()
	w, err := data.Create(dir, m, data.Whole(), opt)
	if err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(7, 7))
	var all []data.Record
	for i := range rows {
		r := record(rng, &m, 1+rng.IntN(20))
		r.Tokens[0] = int32(i) % int32(m.Vocab)
		all = append(all, *r)
		if err := w.Append(r); err != nil {
			t.Fatal(err)
		}
		if (i+1)%perShard == 0 {
			if err := w.Cut(perShard+1, map[string]int{"short": 1}, nil, ""); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return all
}

func readAll(t testing.TB, r *data.Reader) []data.Record {
	t.Helper()
	var out []data.Record
	for {
		rec, err := r.Next()
		if err == io.EOF {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, *rec)
	}
}

func open(t testing.TB, path string) *data.Set {
	t.Helper()
	s, err := data.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func TestRowsReadBackAsWritten(t *testing.T) {
	for _, m := range []data.Meta{meta(data.TopK, data.BF16), meta(data.TopK, data.None), meta(data.TopK, data.Taps), meta(data.Full, data.BF16), meta(data.Full, data.None)} {
		t.Run(fmt.Sprint(m.Labels, m.Features), func(t *testing.T) {
			dir := t.TempDir()
			want := build(t, dir, m, 23, 9, data.WriterOptions{RowGroup: 20_000})
			s := open(t, dir)
			if s.Len() != 23 || !s.Complete() || !cmp.Equal(s.Meta(), m) || len(s.Shards()) != 3 {
				t.Fatalf("set of %d rows in %d shards, complete %v, meta %+v", s.Len(), len(s.Shards()), s.Complete(), s.Meta())
			}
			r, err := s.Sequential(data.Everything())
			if err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(want, readAll(t, r)) {
				t.Fatal("other rows")
			}
			one := open(t, filepath.Join(dir, s.Shards()[1].File))
			if one.Len() != 9 || one.Shards()[0].Units != 10 || one.Shards()[0].Dropped["short"] != 1 {
				t.Fatalf("one shard: %d rows, %+v", one.Len(), one.Shards()[0])
			}
		})
	}
}

func TestEqualRowsGiveEqualBytes(t *testing.T) {
	a, b := t.TempDir(), t.TempDir()
	m := meta(data.TopK, data.BF16)
	build(t, a, m, 30, 10, data.DefaultWriter())
	build(t, b, m, 30, 10, data.DefaultWriter())
	sameFiles(t, a, b)
}

// The bytes do not depend on the processor, its class, or the purego tag either: this
// hash was recorded once. A release of the Parquet or zstd library that writes other
// bytes changes it, which belongs in the changelog.
func TestBytesAreTheSameEverywhere(t *testing.T) {
	const want = "5bc714322fcabcc9484f977ea72780b30fdc5151ff4830b36a5c6334eeab6de1"
	h := sha256.New()
	for _, m := range []data.Meta{meta(data.TopK, data.BF16), meta(data.Full, data.None)} {
		dir := t.TempDir()
		build(t, dir, m, 8, 8, data.WriterOptions{RowGroup: 20_000})
		raw, err := os.ReadFile(filepath.Join(dir, "shard-00000.parquet"))
		if err != nil {
			t.Fatal(err)
		}
		h.Write(raw)
	}
	if got := hex.EncodeToString(h.Sum(nil)); got != want {
		t.Errorf("SHA-256 of the shards: %s, want %s", got, want)
	}
}

func sameFiles(t *testing.T, a, b string) {
	t.Helper()
	read := func(dir string) map[string]string {
		out := map[string]string{}
		names, err := filepath.Glob(filepath.Join(dir, "*.*"))
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range names {
			raw, err := os.ReadFile(n)
			if err != nil {
				t.Fatal(err)
			}
			out[filepath.Base(n)] = string(raw)
		}
		return out
	}
	x, y := read(a), read(b)
	if len(x) != len(y) {
		t.Fatalf("%d files, want %d", len(y), len(x))
	}
	for n := range x {
		if x[n] != y[n] {
			t.Errorf("%s differs", n)
		}
	}
}

func TestStatsAreTheSumsOfTheRows(t *testing.T) {
	dir := t.TempDir()
	m := meta(data.TopK, data.BF16)
	all := build(t, dir, m, 12, 6, data.DefaultWriter())
	var tokens, sum int64
	var mass float64
	for _, r := range all {
		tokens += int64(len(r.Tokens))
		for _, x := range r.Tokens {
			sum += int64(x)
		}
		for _, p := range r.LabelProbs {
			mass += float64(p)
		}
	}
	st, err := open(t, dir).Stats()
	if err != nil {
		t.Fatal(err)
	}
	if st.Rows != 12 || st.Tokens != tokens || st.TokenSum != sum || math.Abs(st.LabelMass-mass) > 1e-12*mass || st.Labels != tokens*9 || st.Dropped["short"] != 2 || st.Units != 14 {
		t.Fatalf("%+v, want %d tokens, sum %d, mass %v", st, tokens, sum, mass)
	}
}

// A reader that is resumed anywhere, twice in an epoch and across its end, must yield
// the same rows as an uninterrupted one.
func TestResumeContinuesTheOrder(t *testing.T) {
	dir := t.TempDir()
	build(t, dir, meta(data.TopK, data.None), 61, 20, data.WriterOptions{RowGroup: 8_000})
	s := open(t, dir)
	s.SetWindow(20_000)
	for _, sp := range []data.Split{data.Everything(), {Part: data.Train, Fraction: 0.1}, {Part: data.Held, Fraction: 0.1}} {
		first, err := s.Shuffled(3, sp)
		if err != nil {
			t.Fatal(err)
		}
		type step struct {
			at  data.State
			rec *data.Record
			err error
		}
		var steps []step
		for range 150 {
			at := first.State()
			rec, err := first.Next()
			steps = append(steps, step{at, rec, err})
		}
		for i := 0; i < len(steps); i += 11 {
			r, err := s.Resume(steps[i].at)
			if err != nil {
				t.Fatal(err)
			}
			for _, want := range steps[i:min(i+15, len(steps))] {
				if r.State() != want.at {
					t.Fatalf("state %+v, want %+v", r.State(), want.at)
				}
				rec, err := r.Next()
				if err != want.err || !reflect.DeepEqual(rec, want.rec) {
					t.Fatalf("%v from row %d: another row after resuming", sp, steps[i].at.Row)
				}
			}
		}
	}
	st := data.State{Set: "other", Split: data.Everything()}
	if _, err := s.Resume(st); err == nil || !strings.Contains(err.Error(), "other") {
		t.Fatalf("resuming with another set's state: %v", err)
	}
}

func TestShuffleVisitsEveryRowOnceInADifferentOrderEachEpoch(t *testing.T) {
	dir := t.TempDir()
	m := meta(data.TopK, data.None)
	m.Vocab = 1000
	build(t, dir, m, 300, 100, data.WriterOptions{RowGroup: 30_000})
	s := open(t, dir)
	s.SetWindow(100_000)
	order := func(seed uint64, epochs int) (out [][]int32) {
		r, err := s.Shuffled(seed, data.Everything())
		if err != nil {
			t.Fatal(err)
		}
		for range epochs {
			var ids []int32
			for _, rec := range readAll(t, r) {
				ids = append(ids, rec.Tokens[0])
			}
			out = append(out, ids)
		}
		return out
	}
	a := order(1, 2)
	b := order(2, 1)
	for _, ids := range append(a, b...) {
		sorted := slices.Clone(ids)
		slices.Sort(sorted)
		for i, id := range sorted {
			if id != int32(i) {
				t.Fatalf("row %d is read as %d", i, id)
			}
		}
	}
	if slices.Equal(a[0], a[1]) || slices.Equal(a[0], b[0]) {
		t.Fatal("two epochs or two seeds have the same order")
	}
	if d := cmp.Diff(a, order(1, 2)); d != "" {
		t.Fatal(d)
	}
}

func TestSplitsPartitionTheRows(t *testing.T) {
	dir := t.TempDir()
	all := build(t, dir, meta(data.TopK, data.None), 21, 8, data.DefaultWriter())
	s := open(t, dir)
	for _, f := range []float64{0, 0.05, 0.5, 0.999} {
		var got []data.Record
		for _, p := range []data.Part{data.Train, data.Held} {
			r, err := s.Sequential(data.Split{Part: p, Fraction: f})
			if err != nil {
				t.Fatal(err)
			}
			part := readAll(t, r)
			if n, _ := s.Count(data.Split{Part: p, Fraction: f}); n != len(part) {
				t.Fatalf("%s: %d rows, Count says %d", p, len(part), n)
			}
			if p == data.Train && len(part) == 0 {
				t.Fatalf("fraction %v leaves nothing to train on", f)
			}
			got = append(got, part...)
		}
		if !reflect.DeepEqual(all, got) {
			t.Fatalf("fraction %v: the parts are not the rows", f)
		}
	}
	if _, err := s.Sequential(data.Split{Part: data.Train, Fraction: 1}); err == nil {
		t.Fatal("a fraction of 1 is accepted")
	}
}

// After a run that stops at any row, or between a shard's rename and its manifest, a
// new run must produce the same bytes without redoing a finished shard.
func TestUnfinishedSetIsContinued(t *testing.T) {
	want := t.TempDir()
	m := meta(data.TopK, data.BF16)
	rows := build(t, want, m, 18, 6, data.DefaultWriter())
	for _, stop := range []int{0, 1, 5, 6, 7, 12, 17} {
		for _, lost := range []bool{false, true} {
			dir := t.TempDir()
			write := func(upTo int) int {
				w, err := data.Create(dir, m, data.Whole(), data.DefaultWriter())
				if err != nil {
					t.Fatal(err)
				}
				from := 6 * len(w.Shards())
				for i := from; i < upTo; i++ {
					if err := w.Append(&rows[i]); err != nil {
						t.Fatal(err)
					}
					if (i+1)%6 == 0 {
						if err := w.Cut(7, map[string]int{"short": 1}, nil, ""); err != nil {
							t.Fatal(err)
						}
					}
				}
				if upTo == len(rows) {
					if err := w.Close(); err != nil {
						t.Fatal(err)
					}
				} else {
					w.Abandon(t)
				}
				return from
			}
			write(stop)
			if lost {
				os.Remove(filepath.Join(dir, data.ManifestName))
			}
			if from := write(len(rows)); from != stop/6*6 {
				t.Fatalf("stopped at %d: continued from %d", stop, from)
			}
			sameFiles(t, want, dir)
		}
	}
}

func TestFullDiskNamesTheFileAndLosesOnlyTheOpenShard(t *testing.T) {
	m := meta(data.TopK, data.BF16)
	want := t.TempDir()
	rows := build(t, want, m, 18, 6, data.DefaultWriter())
	size := 0
	for _, s := range open(t, want).Shards() {
		size += int(s.Bytes)
	}
	for room := 0; room < size; room += size / 6 {
		dir := t.TempDir()
		w, err := data.Create(dir, m, data.Whole(), data.DefaultWriter())
		if err != nil {
			t.Fatal(err)
		}
		stop := vfstest.FullDisk(t, room, false)
		var failure error
		for i := range rows {
			if failure = w.Append(&rows[i]); failure == nil && (i+1)%6 == 0 {
				failure = w.Cut(7, map[string]int{"short": 1}, nil, "")
			}
			if failure != nil {
				break
			}
		}
		if failure == nil {
			failure = w.Close()
		}
		if !errors.Is(failure, syscall.ENOSPC) || !strings.Contains(failure.Error(), dir) {
			t.Fatalf("room for %d bytes: %v", room, failure)
		}
		if err := w.Append(&rows[0]); !errors.Is(err, syscall.ENOSPC) {
			t.Fatalf("after the failure: %v", err)
		}
		w.Abort()
		stop()
		if left, _ := filepath.Glob(filepath.Join(dir, ".*.*")); len(left) > 0 {
			t.Fatalf("left behind: %v", left)
		}
		w, err = data.Create(dir, m, data.Whole(), data.DefaultWriter())
		if err != nil {
			t.Fatal(err)
		}
		for i := 6 * len(w.Shards()); i < len(rows); i++ {
			if err := w.Append(&rows[i]); err != nil {
				t.Fatal(err)
			}
			if (i+1)%6 == 0 {
				if err := w.Cut(7, map[string]int{"short": 1}, nil, ""); err != nil {
					t.Fatal(err)
				}
			}
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		sameFiles(t, want, dir)
	}
}

func TestTwoWritersOfOneDirectoryAreRefused(t *testing.T) {
	dir := t.TempDir()
	w, err := data.Create(dir, meta(data.TopK, data.None), data.Whole(), data.DefaultWriter())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := data.Create(dir, meta(data.TopK, data.None), data.Whole(), data.DefaultWriter()); err == nil || !strings.Contains(err.Error(), "another run") {
		t.Fatalf("second writer: %v", err)
	}
	w.Abort()
	if w, err = data.Create(dir, meta(data.TopK, data.None), data.Whole(), data.DefaultWriter()); err != nil {
		t.Fatal(err)
	}
	w.Abort()
}

// otherTarget returns a manifest with the target replaced.
func otherTarget(t *testing.T, raw []byte) []byte {
	t.Helper()
	m, err := data.ParseManifest(raw)
	if err != nil {
		t.Fatal(err)
	}
	m.Meta.Function = &identity.Function{Arithmetic: "u"}
	raw, err = json.MarshalIndent(m, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// Every kind of damage to a set gives one error that names the file and what was
// expected.
func TestDamageIsReported(t *testing.T) {
	m := meta(data.TopK, data.BF16)
	shard := "shard-00001.parquet"
	edit := func(name string, f func([]byte) []byte) func(t *testing.T, dir string) {
		return func(t *testing.T, dir string) {
			p := filepath.Join(dir, name)
			raw, err := os.ReadFile(p)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(p, f(raw), 0o666); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, c := range []struct {
		name   string
		damage func(t *testing.T, dir string)
		want   []string
	}{
		{"a truncated shard", edit(shard, func(b []byte) []byte { return b[:len(b)/2] }), []string{shard, "bytes, want"}},
		{"a flipped bit in a page", edit(shard, func(b []byte) []byte { b[len(b)/3] ^= 4; return b }), []string{shard, "SHA-256"}},
		{"a flipped bit in the footer", edit(shard, func(b []byte) []byte { b[len(b)-1] ^= 4; return b }), []string{shard, "Parquet"}},
		{"a missing shard", func(t *testing.T, dir string) { os.Remove(filepath.Join(dir, shard)) }, []string{shard, "no such file"}},
		{"a manifest cut short", edit(data.ManifestName, func(b []byte) []byte { return b[:len(b)/2] }), []string{data.ManifestName, "JSON"}},
		{"a newer manifest", edit(data.ManifestName, func(b []byte) []byte {
			return []byte(strings.Replace(string(b), `"schema": 2`, `"schema": 3, "more": []`, 1))
		}), []string{data.ManifestName, "schema: version 3, want 2"}},
		{"another format", edit(data.ManifestName, func(b []byte) []byte { return []byte("{}") }), []string{data.ManifestName, "format"}},
		{
			"a manifest of another target", edit(data.ManifestName, func(b []byte) []byte { return otherTarget(t, b) }),
			[]string{"shard-00000.parquet", "function: the arithmetic is t, want u as in the manifest"},
		},
		{"a manifest whose target is not its hash", edit(data.ManifestName, func(b []byte) []byte {
			return []byte(strings.Replace(string(b), `"arithmetic": "t"`, `"arithmetic": "u"`, 1))
		}), []string{data.ManifestName, "id: \"talf-fn-1:"}},
		{"no manifest", func(t *testing.T, dir string) { os.Remove(filepath.Join(dir, data.ManifestName)) }, []string{"no manifest.json"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			build(t, dir, m, 12, 6, data.DefaultWriter())
			c.damage(t, dir)
			s, err := data.Open(dir)
			if err == nil {
				_, err = s.Stats()
				s.Close()
			}
			if err == nil {
				t.Fatal("no error")
			}
			for _, w := range append(c.want, dir) {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("%v\nwant it to say %q", err, w)
				}
			}
			if strings.Count(err.Error(), "\n") > 0 {
				t.Errorf("more than one line: %v", err)
			}
		})
	}
}

// A single file has no manifest, so its own metadata must be enough.
func TestForeignFilesAreRefused(t *testing.T) {
	dir := t.TempDir()
	m := meta(data.TopK, data.BF16)
	build(t, dir, m, 4, 4, data.DefaultWriter())
	shard, err := os.ReadFile(filepath.Join(dir, "shard-00000.parquet"))
	if err != nil {
		t.Fatal(err)
	}
	edit := func(old, new string) []byte {
		if strings.Count(string(shard), old) != 1 {
			t.Fatalf("%q occurs %d times in a shard", old, strings.Count(string(shard), old))
		}
		return []byte(strings.Replace(string(shard), old, new, 1))
	}
	var plain bytes.Buffer
	if err := parquet.Write(&plain, []struct{ X int }{{1}}); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		raw  []byte
		want string
	}{
		{"not Parquet", []byte("PAR1, or so it says"), "no whole Parquet file"},
		{"empty", nil, "no whole Parquet file"},
		{"another program's Parquet", plain.Bytes(), "talf.schema: missing"},
		{"a newer schema", edit("talf.schema\x18\x012", "talf.schema\x18\x013"), `talf.schema: version "3", want 2`},
		{"a field that this release does not know", edit(`"seed":`, `"sead":`), `talf.meta: json: unknown field "sead"`},
		{"an impossible field", edit(`"top_k":5`, `"top_k":0`), "talf.meta: top_k: 0, want 1..40"},
		{"other columns", edit(`"hidden":6`, `"hidden":7`), "columns"},
		// LZ4_RAW in place of ZSTD: its decoder took unbounded memory.
		{"another codec", edit("label_tail\x04list\x07element\x15\x0c", "label_tail\x04list\x07element\x15\x0e"), "row group 0: codec LZ4_RAW, want ZSTD"},
		{"other rows", edit(`{"rows":4`, `{"rows":5`), "rows: 4 in the row groups, want 5"},
	} {
		p := filepath.Join(t.TempDir(), "x.parquet")
		if err := os.WriteFile(p, c.raw, 0o666); err != nil {
			t.Fatal(err)
		}
		_, err := data.Open(p)
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), p) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, want it to say %q", c.name, err, c.want)
		}
	}
}

func TestMetaNamesTheInvalidField(t *testing.T) {
	for _, c := range []struct {
		want   string
		change func(m *data.Meta)
	}{
		{"schema: version 3, want 2", func(m *data.Meta) { m.Schema = 3 }},
		{"schema: version 1, want 2", func(m *data.Meta) { m.Schema = 1 }},
		{"function: missing", func(m *data.Meta) { m.Function = nil }},
		{"hidden: 0", func(m *data.Meta) { m.Hidden = 0 }},
		{"vocab: -1", func(m *data.Meta) { m.Vocab = -1 }},
		{"depth: 17", func(m *data.Meta) { m.Depth = 17 }},
		{"k: 41, want 1..40", func(m *data.Meta) { m.Branch = 41 }},
		{`labels: "all"`, func(m *data.Meta) { m.Labels = "all" }},
		{"top_k: 41, want 1..40", func(m *data.Meta) { m.K = 41 }},
		{"top_k: 5, want 0", func(m *data.Meta) { m.Labels = data.Full }},
		{`features: "f32"`, func(m *data.Meta) { m.Features = "f32" }},
		{`taps: [] with features "taps"`, func(m *data.Meta) { m.Features = data.Taps }},
		{`taps: [2] with features "bf16"`, func(m *data.Meta) { m.Taps = []int{2} }},
		{`taps: [2 -1], want boundaries`, func(m *data.Meta) { m.Features, m.Taps = data.Taps, []int{2, -1} }},
	} {
		m := meta(data.TopK, data.BF16)
		c.change(&m)
		_, err := data.Create(t.TempDir(), m, data.Whole(), data.DefaultWriter())
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, want it to say %q", err, c.want)
		}
	}
}

func TestCreateRefusesAnotherSet(t *testing.T) {
	dir := t.TempDir()
	m := meta(data.TopK, data.None)
	build(t, dir, m, 3, 3, data.DefaultWriter())
	m.Seed++
	_, err := data.Create(dir, m, data.Whole(), data.DefaultWriter())
	if err == nil || !strings.Contains(err.Error(), "seed: 9223372036854775809, want 9223372036854775810") {
		t.Fatal(err)
	}
	dir, m = t.TempDir(), meta(data.TopK, data.Taps)
	build(t, dir, m, 3, 3, data.DefaultWriter())
	m.Taps = []int{2, 0, 6}
	if _, err := data.Create(dir, m, data.Whole(), data.DefaultWriter()); err == nil || !strings.Contains(err.Error(), "taps: \"[2 0 7]\", want \"[2 0 6]\"") {
		t.Fatal(err)
	}
}

func TestAppendRefusesRowsThatBreakTheSchema(t *testing.T) {
	m := meta(data.TopK, data.BF16)
	for _, c := range []struct {
		field  string
		damage func(r *data.Record)
	}{
		{"tokens", func(r *data.Record) { r.Tokens = nil }},
		{"tokens", func(r *data.Record) { r.Tokens[1] = 40 }},
		{"loss_mask", func(r *data.Record) { r.LossMask = r.LossMask[1:] }},
		{"tree_token", func(r *data.Record) { r.TreeTokens[3] = -1 }},
		{"tree_parent", func(r *data.Record) { r.TreeParents[9] = 0 }},
		{"tree_parent", func(r *data.Record) { r.TreeParents[10] = 1 }},
		{"label_id", func(r *data.Record) { r.LabelIDs = append(r.LabelIDs, 1) }},
		{"label_prob", func(r *data.Record) { r.LabelProbs[0] = 1.01 }},
		{"label_tail", func(r *data.Record) { r.Tail[0] = -1e-9 }},
		{"label_full", func(r *data.Record) { r.LabelFull = []float32{1} }},
		{"feature", func(r *data.Record) { r.Features = r.Features[:8] }},
	} {
		w, err := data.Create(t.TempDir(), m, data.Whole(), data.DefaultWriter())
		if err != nil {
			t.Fatal(err)
		}
		r := record(rand.New(rand.NewPCG(1, 1)), &m, 4)
		c.damage(r)
		if err := w.Append(r); err == nil || !strings.Contains(err.Error(), c.field) {
			t.Errorf("%s: %v", c.field, err)
		}
		w.Abort()
	}
}

func TestBF16RoundsToNearestEven(t *testing.T) {
	in := []float32{1, 1 + 1.0/256, 1 + 3.0/256, 1 + 1.0/256 + 1.0/65536, -1 - 1.0/256, 0}
	want := []float32{1, 1, 1 + 4.0/256, 1 + 2.0/256, -1, 0}
	got := make([]float32, len(in))
	data.DecodeBF16(got, data.AppendBF16(nil, in))
	if d := cmp.Diff(want, got); d != "" {
		t.Fatal(d)
	}
}

// The shards record what became of each input, so the record survives a lost manifest.
func TestCountsOfInputsAddUp(t *testing.T) {
	dir, m := t.TempDir(), meta(data.TopK, data.None)
	inputs := []data.Input{{Input: 1, Rows: 1, Conversations: 7, Turns: 12, Cut: 1, Tokens: 30, Loss: 8, Dropped: map[string]int{"short": 1}}}
	w, err := data.Create(dir, m, data.Whole(), data.DefaultWriter())
	if err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(7, 7))
	for range 2 {
		if err := w.Append(record(rng, &m, 30)); err != nil {
			t.Fatal(err)
		}
		if err := w.Cut(7, map[string]int{"short": 1}, inputs, ""); err != nil {
			t.Fatal(err)
		}
	}
	w.Abort()
	if err := os.Remove(filepath.Join(dir, data.ManifestName)); err != nil {
		t.Fatal(err)
	}
	if w, err = data.Create(dir, m, data.Whole(), data.DefaultWriter()); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	st, err := open(t, dir).Stats()
	if err != nil {
		t.Fatal(err)
	}
	want := []data.Input{{Input: 1, Rows: 2, Conversations: 14, Turns: 24, Cut: 2, Tokens: 60, Loss: 16, Dropped: map[string]int{"short": 2}}}
	if d := cmp.Diff(want, st.Inputs); d != "" {
		t.Error(d)
	}
	sums := data.AddInputs(data.AddInputs(nil, inputs), []data.Input{{Input: 3, Rows: 1}, {Input: 0, Rows: 2}})
	if len(sums) != 3 || sums[0].Rows != 2 || sums[1].Turns != 12 || sums[2].Input != 3 {
		t.Errorf("%+v", sums)
	}
	raw, err := os.ReadFile(filepath.Join(dir, data.ManifestName))
	if err != nil {
		t.Fatal(err)
	}
	for old, bad := range map[string]string{`"input": 1`: `"input": -1`, `"loss_tokens": 8`: `"loss_tokens": 31`, `"turns": 12`: `"turns": -12`} {
		broken := strings.Replace(string(raw), old, bad, 1)
		if broken == string(raw) {
			t.Fatalf("no %s in the manifest", old)
		}
		if _, err := data.ParseManifest([]byte(broken)); err == nil || !strings.Contains(err.Error(), "shards[0].inputs[0]") {
			t.Errorf("%s: %v", bad, err)
		}
	}
}
