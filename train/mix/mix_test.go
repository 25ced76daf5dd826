package mix_test

import (
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"talf/data"
	"talf/model/identity"
	"talf/train/mix"
)

// draw writes a set of random sequences over 40 tokens.
func draw(t testing.TB, seqs int, seed uint64) *data.Set {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "data")
	w, err := data.Create(dir, data.Meta{
		Schema: data.SchemaVersion, Function: &identity.Function{}, Tokenizer: "none", Hidden: 4, Vocab: 40,
		Branch: 1, Depth: 1, Labels: data.TopK, K: 1, Features: data.None, Seed: seed, Source: "test",
	}, data.Whole(), data.DefaultWriter())
	if err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(seed, 2))
	for range seqs {
		rec := &data.Record{}
		for p := range 6 + r.IntN(20) {
			tok := int32(min(r.IntN(40), r.IntN(40))) // some are frequent
			rec.Tokens, rec.LossMask = append(rec.Tokens, tok), append(rec.LossMask, p > 2 && r.IntN(4) > 0)
			rec.TreeTokens, rec.TreeParents = append(rec.TreeTokens, tok), append(rec.TreeParents, -1)
			rec.LabelIDs, rec.LabelProbs, rec.Tail = append(rec.LabelIDs, tok), append(rec.LabelProbs, 0.9), append(rec.Tail, 0.1)
		}
		if err := w.Append(rec); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	set, err := data.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { set.Close() })
	return set
}

// A reader of several sets keeps their shares to within a sequence at any time, continues from
// any place, and is the set's own reader if there is only one.
func TestAReaderKeepsItsShares(t *testing.T) {
	a, b := draw(t, 40, 1), draw(t, 23, 1)
	shares := mix.Shares{{Set: a, Weight: 0.7}, {Set: b, Weight: 0.2}, {Set: a, Weight: 0.1}}
	const limit = 64
	open := func(s mix.Shares) *mix.Reader {
		m, err := mix.NewReader(s, 5, data.Split{Part: data.Train, Fraction: 0.1}, limit, 0)
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	m := open(shares)
	var spent [3]float64
	total := 0.0
	for n := range 300 {
		raw, err := m.Place()
		if err != nil {
			t.Fatal(err)
		}
		s, err := m.Next()
		if err != nil {
			t.Fatal(err)
		}
		if n%7 == 0 { // a sequence that is put back is returned again
			m.Back(s)
			if raw, err = m.Place(); err != nil {
				t.Fatal(err)
			}
			if s, err = m.Next(); err != nil {
				t.Fatal(err)
			}
		}
		if n%7 < 2 {
			other := open(shares)
			if err := other.Seek(raw); err != nil {
				t.Fatal(err)
			}
			if o, err := other.Next(); err != nil || o.Set != s.Set || o.Place != s.Place {
				t.Fatalf("sequence %d after seeking: %v of set %d, want %v of set %d, %v", n, o.Place, o.Set, s.Place, s.Set, err)
			}
		}
		got := float64(mix.Span(s.Record, limit, 0))
		spent[s.Set], total = spent[s.Set]+got, total+got
		for i, w := range []float64{0.7, 0.2, 0.1} {
			if off := math.Abs(spent[i] - w*total); off > 3*26 {
				t.Fatalf("after %d sequences set %d gave %v of %v positions", n+1, i, spent[i], total)
			}
		}
	}
	one := open(mix.Only(b))
	r, err := b.Shuffled(5, data.Split{Part: data.Train, Fraction: 0.1})
	if err != nil {
		t.Fatal(err)
	}
	for range 100 {
		s, err := one.Next()
		if err != nil {
			t.Fatal(err)
		}
		for {
			rec, err := r.Next()
			if err != nil {
				continue // the end of an epoch
			}
			if mix.Span(rec, limit, 0) > 0 {
				if r.Last() != s.Place {
					t.Fatalf("%v, want %v", s.Place, r.Last())
				}
				break
			}
		}
	}
}

// The vocabulary is counted only in the training part, by weight; among equally frequent tokens,
// lower ids come first.
func TestAVocabularyIsCounted(t *testing.T) {
	a, b := draw(t, 20, 1), draw(t, 7, 2)
	sp := data.Split{Part: data.Train, Fraction: 0.1}
	shares := mix.Shares{{Set: a, Weight: 1}, {Set: b, Weight: 3}}
	score := make([]float64, 40)
	for _, s := range shares {
		n, counts := 0, make([]int, 40)
		rows, err := s.Set.Count(sp)
		if err != nil {
			t.Fatal(err)
		}
		r, err := s.Set.Sequential(sp)
		if err != nil {
			t.Fatal(err)
		}
		for range rows {
			rec, err := r.Next()
			if err != nil {
				t.Fatal(err)
			}
			for i, x := range rec.Tokens {
				if rec.LossMask[i] {
					counts[x]++
					n++
				}
			}
		}
		for id, c := range counts {
			score[id] += s.Weight * float64(c) / float64(n) / 4
		}
	}
	for _, size := range []int{1, 7, 39, 40} {
		ids, share, err := mix.CountVocab(shares, sp, size)
		if err != nil {
			t.Fatal(err)
		}
		if len(ids) != size || !slices.IsSorted(ids) {
			t.Fatalf("%v, want %d ascending", ids, size)
		}
		least, sum := math.Inf(1), 0.0
		for _, id := range ids {
			least, sum = min(least, score[id]), sum+score[id]
		}
		for id, s := range score {
			if s > least+1e-12 && !slices.Contains(ids, int32(id)) {
				t.Errorf("%d tokens without %d, which is more frequent than another", size, id)
			}
		}
		again, err := mix.VocabShare(shares, sp, ids)
		if err != nil || math.Abs(share-sum) > 1e-9 || math.Abs(again-sum) > 1e-9 {
			t.Errorf("%d tokens are %v and %v of the text, want %v (%v)", size, share, again, sum, err)
		}
	}
	for _, size := range []int{0, 41} {
		if _, _, err := mix.CountVocab(shares, sp, size); err == nil || !strings.Contains(err.Error(), "want 1 to") {
			t.Errorf("%d tokens: %v", size, err)
		}
	}
}

// With mass: the vocabulary covers at least as much of the labels as one of the same size that is
// counted in the text, and no swap of two tokens would cover more.
func TestAVocabularyIsChosenByTheMassOfLabels(t *testing.T) {
	set := draw(t, 20, 1)
	const held = 0.1
	sp := data.Split{Part: data.Train, Fraction: held}
	covered := func(ids []int32) (sum float64) {
		c, err := set.Cover(sp, ids)
		if err != nil {
			t.Fatal(err)
		}
		if len(c.Levels) != 1 { // else the levels' totals would be needed, too
			t.Fatalf("%d levels", len(c.Levels))
		}
		return c.Levels[0]
	}
	ids, _, err := mix.Vocab("mass:7", mix.Only(set), held)
	if err != nil || len(ids) != 7 || !slices.IsSorted(ids) {
		t.Fatal(ids, err)
	}
	counted, _, err := mix.Vocab("7", mix.Only(set), held)
	if err != nil {
		t.Fatal(err)
	}
	best := covered(ids)
	if best < covered(counted) {
		t.Errorf("%v cover %v of the labels, %v %v", ids, best, counted, covered(counted))
	}
	for i := range ids {
		for id := range int32(40) {
			if slices.Contains(ids, id) {
				continue
			}
			other := slices.Clone(ids)
			if other[i] = id; covered(other) > best+1e-9 {
				t.Errorf("%v cover more than %v", other, ids)
			}
		}
	}
	for text, want := range map[string]string{"mass:x": "want mass: and a number", "mass:41": "want 1 to the target's 40", "mass:0": "want 1 to"} {
		if _, _, err := mix.Vocab(text, mix.Only(set), held); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func TestSharesOfData(t *testing.T) {
	dir := t.TempDir()
	odd := filepath.Join(dir, "set=2")
	if err := os.Mkdir(odd, 0o777); err != nil {
		t.Fatal(err)
	}
	for s, want := range map[string]float64{filepath.Join(dir, "a"): 1, filepath.Join(dir, "a") + "=0.7": 0.7, odd: 1, odd + "=3": 3} {
		got, w, err := mix.ParseShare(s)
		if err != nil || w != want || got != strings.TrimSuffix(strings.TrimSuffix(s, "=0.7"), "=3") {
			t.Errorf("%s: %s with %v, %v", s, got, w, err)
		}
	}
	for _, s := range []string{"a=x", "a=0", "a=-1", "a=NaN", "a=1e9"} {
		if _, _, err := mix.ParseShare(s); err == nil || !strings.Contains(err.Error(), "DIR=WEIGHT") {
			t.Errorf("%s: %v", s, err)
		}
	}
}
