package draft_test

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"talf/infer"
	"talf/infer/draft"
	"talf/infer/draft/drafttest"
	"talf/infer/lookup/datastore"
	"talf/tree"
)

var storeHash = strings.Repeat("ab", 32)

// storeFile writes a datastore.
func storeFile(tb testing.TB, vocab int, documents ...[]int32) string {
	tb.Helper()
	b, err := datastore.NewBuilder(vocab, storeHash)
	if err != nil {
		tb.Fatal(err)
	}
	for _, d := range documents {
		if err := b.Add(d); err != nil {
			tb.Fatal(err)
		}
	}
	f, err := os.Create(filepath.Join(tb.TempDir(), "store.idx"))
	if err != nil {
		tb.Fatal(err)
	}
	defer f.Close()
	if _, err := b.WriteTo(f); err != nil {
		tb.Fatal(err)
	}
	return f.Name()
}

// coins returns texts over two tokens, which every model of the suite has.
func coins(n int) []int32 {
	rng := rand.New(rand.NewPCG(9, 9))
	var ids []int32
	for range n {
		ids = append(ids, rng.Int32N(2))
	}
	return ids
}

// open returns the maker of a specification, and closes it at the end of the test.
func open(tb testing.TB, spec string, e draft.Env) *draft.Maker {
	tb.Helper()
	mk, _, err := draft.Open(spec, e)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := mk.Close(); err != nil {
			tb.Error(err)
		}
	})
	return mk
}

func TestRetrievalConforms(t *testing.T) {
	file := storeFile(t, 2, coins(300), coins(5))
	for _, params := range []string{"", ",set=full", ",N=7,depth=2,min=2,max=3", ",N=1", ",set=full,N=200,max=1,depth=30", ",min=1,thin=off,hits=9", ",fill=on"} {
		t.Run(params, func(t *testing.T) {
			mk := open(t, "rest:"+file+params, draft.Env{})
			drafttest.Run(t, mk.New)
		})
	}
}

// grow returns the tree that a drafter proposes after a sequence.
func grow(tb testing.TB, d infer.Drafter, seen []int32, nodes, depth int) *tree.Tree {
	tb.Helper()
	if err := d.Start(seen); err != nil {
		tb.Fatal(err)
	}
	last := len(seen) - 1
	p := infer.Proposal{Tree: tree.New(seen[last], nodes), Pos: last, MaxNodes: nodes, MaxDepth: depth}
	if _, err := d.Grow(&p, nil, nil); err != nil {
		tb.Fatal(err)
	}
	return p.Tree
}

// paths lists the tokens of every path to a leaf, children in their order.
func paths(t *tree.Tree) (out [][]int32) {
	var walk func(n int, at []int32)
	walk = func(n int, at []int32) {
		if t.FirstChild(n) < 0 && n > 0 {
			out = append(out, slices.Clone(at))
		}
		for c := t.FirstChild(n); c >= 0; c = t.NextSibling(c) {
			walk(c, append(at, t.Token(c)))
		}
	}
	walk(0, nil)
	return out
}

// The longest suffix of the sequence that occurs counts, then the most frequent prefixes;
// shorter suffixes fill the rest.
func TestRetrievalDraftsTheMostFrequentContinuations(t *testing.T) {
	file := storeFile(
		t, 50,
		[]int32{1, 2, 10, 11, 12},
		[]int32{1, 2, 10, 11, 13},
		[]int32{1, 2, 10, 14},
		[]int32{1, 2, 20, 21},
		[]int32{3, 2, 30, 31},
		[]int32{2, 30, 31},
	)
	for _, c := range []struct {
		params string
		nodes  int
		want   [][]int32
	}{
		{",set=full", 64, [][]int32{{10, 11, 12}, {10, 11, 13}, {10, 14}, {20, 21}, {30, 31}}},
		{"", 64, [][]int32{{10, 11, 12}, {10, 11, 13}, {10, 14}, {20, 21}}},
		{",set=full,depth=1", 64, [][]int32{{10}, {20}, {30}}},
		{",set=full,N=4", 64, [][]int32{{10, 11}, {20}}}, // counts 3, 2, 1; ties to the earlier
		{",set=full", 3, [][]int32{{10, 11}}},
		// Of the four places 10 takes 1, 10 11 takes 2, 20 takes 1, and 10 14 would take 2.
		{",N=5", 64, [][]int32{{10, 11}, {20}}},
		{",hits=2", 64, [][]int32{{10, 11, 12}, {10, 11, 13}}}, // the first two in order
	} {
		mk := open(t, "rest:"+file+c.params, draft.Env{Vocab: 50, Tokenizer: func() string { return storeHash }})
		got := paths(grow(t, mk.New(), []int32{7, 1, 2}, c.nodes, 20))
		if !slices.EqualFunc(got, c.want, slices.Equal) {
			t.Errorf("%q with %d nodes: %v, want %v", c.params, c.nodes, got, c.want)
		}
	}
}

func TestRetrievalRefusesOtherModelsFiles(t *testing.T) {
	file := storeFile(t, 50, []int32{1, 2, 3})
	for want, c := range map[string]struct {
		spec string
		env  draft.Env
	}{
		"it needs a datastore":                  {"rest", draft.Env{}},
		"no such file":                          {"rest:" + file + "x", draft.Env{}},
		"build it again with this model":        {"rest:" + file, draft.Env{Tokenizer: func() string { return strings.Repeat("cd", 32) }}},
		"a vocabulary of 50, the model's is 49": {"rest:" + file, draft.Env{Vocab: 49}},
		"N is 0, want 1..1024":                  {"rest:N=0,file=" + file, draft.Env{}},
		"depth is 0":                            {"rest:depth=0,file=" + file, draft.Env{}},
		"hits is -1":                            {"rest:hits=-1,file=" + file, draft.Env{}},
		"min is 3 and max 2":                    {"rest:min=3,max=2,file=" + file, draft.Env{}},
		`N is "few", want a whole number`:       {"rest:N=few,file=" + file, draft.Env{}},
		`unknown parameter "n" (did you mean N?): known are file, set, N`: {"rest:" + file + ",n=3", draft.Env{}},
	} {
		if _, _, err := draft.Open(c.spec, c.env); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want one that says %q", c.spec, err, want)
		}
	}
}

// steady runs rounds on a random model until a drafter has seen its largest
// sequence, then counts what a round allocates.
func steady(tb testing.TB, d infer.Drafter, seen []int32) {
	tb.Helper()
	if err := d.Start(seen); err != nil {
		tb.Fatal(err)
	}
	p := infer.Proposal{}
	tr := tree.New(0, 64)
	last := len(seen) - 1
	round := func() {
		tr.Reset(seen[last], 64)
		p = infer.Proposal{Tree: tr, Pos: last, MaxNodes: 64, MaxDepth: 20}
		if _, err := d.Grow(&p, nil, nil); err != nil {
			tb.Fatal(err)
		}
	}
	round()
	if n := testing.AllocsPerRun(20, round); n != 0 {
		tb.Errorf("%v allocations a round, want 0", n)
	}
}

func TestRetrievalDoesNotAllocate(t *testing.T) {
	mk := open(t, "rest:"+storeFile(t, 2, coins(3000)), draft.Env{})
	steady(t, mk.New(), coins(40))
}
