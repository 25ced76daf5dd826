package datastore

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"hash/crc32"
	"index/suffixarray"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
)

var hash = strings.Repeat("0123456789abcdef", 4)

// build returns a file of the documents.
func build(tb testing.TB, vocab int, documents ...[]int32) []byte {
	tb.Helper()
	b, err := NewBuilder(vocab, hash)
	if err != nil {
		tb.Fatal(err)
	}
	for _, d := range documents {
		if err := b.Add(d); err != nil {
			tb.Fatal(err)
		}
	}
	var w bytes.Buffer
	if _, err := b.WriteTo(&w); err != nil {
		tb.Fatal(err)
	}
	return w.Bytes()
}

func parse(tb testing.TB, file []byte) *Store {
	tb.Helper()
	s, err := Parse("test", file)
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

// randomText repeats itself as text does: half of it is copied.
func randomText(rng *rand.Rand, n, vocab int) []int32 {
	var ids []int32
	for len(ids) < n {
		if len(ids) > 4 && rng.IntN(2) == 0 {
			from := rng.IntN(len(ids))
			ids = append(ids, ids[from:min(len(ids), from+1+rng.IntN(20))]...)
		} else {
			ids = append(ids, rng.Int32N(int32(vocab)))
		}
	}
	return ids[:n]
}

func TestSuffixesAreInOrder(t *testing.T) {
	for seed := range uint64(2000) {
		rng := rand.New(rand.NewPCG(seed, 1))
		vocab := 1 + rng.IntN(5)
		s := randomText(rng, rng.IntN(200), vocab)
		want := make([]int32, len(s))
		for i := range want {
			want[i] = int32(i)
		}
		slices.SortFunc(want, func(a, b int32) int { return slices.Compare(s[a:], s[b:]) })
		if got := suffixArray(s, int32(vocab-1)); !slices.Equal(got, want) {
			t.Fatalf("seed %d: %v: %v, want %v", seed, s, got, want)
		}
	}
}

// At a size where a slow sort would never finish, the standard library's index of the bytes
// finds the same occurrences of a token pair as the suffix array.
func TestSuffixesAgreeWithTheStandardLibrary(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 3))
	text := randomText(rng, 100_000, 256)
	b := make([]byte, len(text))
	for i, x := range text {
		b[i] = byte(x)
	}
	std, s := suffixarray.New(b), parse(t, build(t, 256, text))
	if err := s.Check(); err != nil {
		t.Fatal(err)
	}
	for range 2000 {
		from := rng.IntN(len(text) - 12)
		n := 1 + rng.IntN(12)
		m := s.Find(text[from : from+n])
		var got []int
		for i := m.lo; i < m.hi; i++ {
			got = append(got, int(s.sa[i]))
		}
		want := std.Lookup(b[from:from+n], -1)
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Fatalf("%v stands at %v, want %v", text[from:from+n], got, want)
		}
	}
}

// count walks over the documents.
func count(documents [][]int32, context []int32) (places int, next map[int32]int) {
	next = map[int32]int{}
	for _, d := range documents {
		for i := 0; i+len(context) <= len(d); i++ {
			if slices.Equal(d[i:i+len(context)], context) {
				places++
				if j := i + len(context); j < len(d) {
					next[d[j]]++
				}
			}
		}
	}
	return places, next
}

func TestLookUpsEqualAWalkOverTheText(t *testing.T) {
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 5))
		vocab := 1 + rng.IntN(6)
		var documents [][]int32
		for range 1 + rng.IntN(4) {
			documents = append(documents, randomText(rng, 1+rng.IntN(60), vocab))
		}
		s := parse(t, build(t, vocab, documents...))
		if err := s.Check(); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		for range 30 {
			context := randomText(rng, 1+rng.IntN(8), vocab+1)
			least, most := 1+rng.IntN(3), 1+rng.IntN(8)
			n := min(most, len(context))
			places := 0
			var next map[int32]int
			for ; n >= least; n-- {
				if places, next = count(documents, context[len(context)-n:]); places > 0 {
					break
				}
			}
			m := s.Longest(context, least, most)
			if m.Count() != places || places > 0 && m.Len() != n {
				t.Fatalf("seed %d: an end of %d of %v stands %d times, want %d and %d", seed, m.Len(), context, m.Count(), n, places)
			}
			if places == 0 {
				continue
			}
			type pair struct {
				Token int32
				Count int
			}
			var want, got []pair
			for tok, c := range next {
				want = append(want, pair{tok, c})
			}
			slices.SortFunc(want, func(a, b pair) int { return cmp.Or(b.Count-a.Count, int(a.Token-b.Token)) })
			k := 1 + rng.IntN(4)
			want = want[:min(k, len(want))]
			for _, x := range s.Append([]Next{{Token: 99}}, m, k)[1:] {
				got = append(got, pair{x.Token, x.Count()})
				if y := s.Find(append(slices.Clone(context[len(context)-n:]), x.Token)); y != x.Match {
					t.Fatalf("seed %d: the match of token %d is %v, Find says %v", seed, x.Token, x.Match, y)
				}
			}
			if d := gocmp.Diff(want, got); d != "" && places <= samples {
				t.Fatalf("seed %d: what follows %v: %s", seed, context[len(context)-n:], d)
			}
		}
	}
}

// For a large match, frequent tokens are always found and counts are exact.
func TestFrequentTokensOfALargeMatchAreFound(t *testing.T) {
	for seed := range uint64(50) {
		rng := rand.New(rand.NewPCG(seed, 6))
		var text []int32
		for range 5000 {
			text = append(text, 0, 1+int32(rng.ExpFloat64()*8)%100)
		}
		s := parse(t, build(t, 101, text))
		m := s.Find([]int32{0})
		_, next := count([][]int32{text}, []int32{0})
		found := map[int32]int{}
		for _, x := range s.Append(nil, m, 1000) {
			found[x.Token] = x.Count()
		}
		for tok, c := range next {
			got, ok := found[tok]
			if ok && got != c || !ok && c > m.Count()/samples {
				t.Fatalf("seed %d: token %d: %d, want %d of %d", seed, tok, got, c, m.Count())
			}
		}
	}
}

func TestDamagedFilesAreRefused(t *testing.T) {
	good := build(t, 10, []int32{1, 2, 3, 1, 2, 4}, []int32{9, 9})
	if s := parse(t, good); s.Info() != (Info{Tokens: 8, Documents: 2, Vocab: 10, Tokenizer: hash}) {
		t.Fatalf("header says %+v", s.Info())
	}
	seal := func(b []byte) []byte { // with valid checksums
		if len(b) >= headerSize {
			binary.LittleEndian.PutUint32(b[36:], crc32.Checksum(b[headerSize:], castagnoli))
			binary.LittleEndian.PutUint32(b[124:], crc32.Checksum(b[:124], castagnoli))
		}
		return b
	}
	put := func(at int, v uint32) []byte {
		b := slices.Clone(good)
		binary.LittleEndian.PutUint32(b[at:], v)
		return b
	}
	for want, b := range map[string][]byte{
		`"PK\x03\x04ab", want "talfsa\r\n"`: []byte("PK\x03\x04ab"),
		"want a header of 128":              good[:100],
		"it is truncated":                   good[:len(good)-1],
		"something follows its end":         append(slices.Clone(good), 0),
		"version 2, want 1":                 put(8, 2),
		"the header's checksum":             put(32, 11),
		"the checksum of its contents":      put(headerSize, 7),
		"a header of 64 bytes":              seal(put(12, 64)),
		"0 entries":                         seal(put(16, 0)),
		"0 documents":                       seal(put(24, 0)),
		"9 documents in 10 entries":         seal(put(24, 9)),
		"a vocabulary of 0":                 seal(put(32, 0)),
		"which no tokenizer has":            seal(put(32, 1<<30)),
		"entry 0 is token 10, want -1..9":   seal(put(headerSize, 10)),
		"2 ends of documents, want 1":       seal(put(24, 1)),
		"suffix 0 starts at 10, want 0..9":  seal(put(headerSize+40, 10)),
	} {
		if _, err := Parse("words.idx", b); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "words.idx") {
			t.Errorf("error %v, want one that names the file and says %q", err, want)
		}
	}
	if err := parse(t, seal(put(headerSize+40, 0))).Check(); err == nil {
		t.Error("suffixes out of order pass the check")
	}
}

func TestFilesOfOtherTokenizersAreRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "words.idx")
	if err := os.WriteFile(path, build(t, 10, []int32{1, 2, 3}), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := Open(path, hash)
	if err != nil {
		t.Fatal(err)
	}
	if n := s.Find([]int32{2, 3}).Count(); n != 1 {
		t.Errorf("found %d times, want once", n)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if err := s.Close(); err != nil {
		t.Errorf("closed again: %v", err)
	}
	other := strings.Repeat("f", 64)
	if _, err := Open(path, other); err == nil || !strings.Contains(err.Error(), "ffffffffffff…") || !strings.Contains(err.Error(), path) {
		t.Errorf("error %v, want one that names file and tokenizer", err)
	}
	if _, err := Open(filepath.Join(t.TempDir(), "none"), ""); err == nil {
		t.Error("a missing file opens")
	}
}

func TestBuildersRefuseWhatNoFileCanHold(t *testing.T) {
	if _, err := NewBuilder(0, hash); err == nil {
		t.Error("an empty vocabulary is taken")
	}
	if _, err := NewBuilder(10, "abc"); err == nil {
		t.Error("a short hash is taken")
	}
	b, err := NewBuilder(10, hash)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Add([]int32{3, 10}); err == nil || !strings.Contains(err.Error(), "token 1 is 10, want 0..9") {
		t.Errorf("error %v, want one that names the token", err)
	}
	if err := b.Add(nil); err != nil {
		t.Error(err)
	}
	if _, err := b.WriteTo(new(bytes.Buffer)); err == nil {
		t.Error("a file without tokens is written")
	}
}

// Any bytes are refused or safe to search, even if their checksums are valid.
func FuzzParse(f *testing.F) {
	good := build(f, 10, []int32{1, 2, 3, 1, 2, 4}, []int32{9, 9})
	f.Add(good, true)
	f.Add(good[:60], false)
	f.Fuzz(func(t *testing.T, b []byte, seal bool) {
		if seal && len(b) >= headerSize {
			b = slices.Clone(b)
			binary.LittleEndian.PutUint32(b[36:], crc32.Checksum(b[headerSize:], castagnoli))
			binary.LittleEndian.PutUint32(b[124:], crc32.Checksum(b[:124], castagnoli))
		}
		s, err := Parse("fuzz", b)
		if err != nil {
			return
		}
		_ = s.Check()
		for _, context := range [][]int32{{1, 2}, {9}, {0}, {-1, 3}, {1 << 30}} {
			var next []Next
			for m := s.Longest(context, 1, 4); m.Count() > 0 && m.Len() < 8; m = next[0].Match {
				for _, x := range s.Append(next[:0], m, 3) {
					if x.Token < 0 || int(x.Token) >= s.Info().Vocab {
						t.Fatalf("token %d of a vocabulary of %d", x.Token, s.Info().Vocab)
					}
				}
				if next = s.Append(next[:0], m, 3); len(next) == 0 {
					break
				}
			}
		}
	})
}

func TestLookUpsDoNotAllocate(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	text := randomText(rng, 5000, 50)
	s := parse(t, build(t, 50, text))
	next := make([]Next, 0, 16)
	if n := testing.AllocsPerRun(100, func() {
		m := s.Longest(text[100:116], 1, 16)
		next = s.Append(next[:0], m, 8)
	}); n != 0 {
		t.Errorf("%v allocations a look-up, want 0", n)
	}
}

var large = 10_000_000

// zipf returns tokens that are as skewed as words and repeat themselves.
func zipf(n int) []int32 {
	rng := rand.New(rand.NewPCG(1, 1))
	z := rand.NewZipf(rng, 1.1, 4, 31_999)
	ids := make([]int32, 0, n)
	for len(ids) < n {
		if len(ids) > 1000 && rng.IntN(20) == 0 {
			from := rng.IntN(len(ids) - 500)
			ids = append(ids, ids[from:from+rng.IntN(200)]...)
		} else {
			ids = append(ids, int32(z.Uint64()))
		}
	}
	return ids[:n]
}

func BenchmarkSort(b *testing.B) {
	text := zipf(large)
	for b.Loop() {
		suffixArray(text, 31_999)
	}
	b.ReportMetric(b.Elapsed().Seconds()/float64(b.N), "s/10Mtokens")
}

func BenchmarkLookUp(b *testing.B) {
	text := zipf(large)
	s := parse(b, build(b, 32_000, text))
	rng := rand.New(rand.NewPCG(2, 2))
	next := make([]Next, 0, 16)
	context := make([]int32, 16)
	for b.Loop() {
		from := rng.IntN(large - 16)
		copy(context, text[from:])
		context[rng.IntN(16)] = 5
		m := s.Longest(context, 1, 16)
		next = s.Append(next[:0], m, 10)
	}
}
