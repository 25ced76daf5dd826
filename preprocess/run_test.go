package preprocess_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"talf/compute/cpu"
	"talf/compute/cpu/kern"
	"talf/data"
	"talf/data/corpus"
	"talf/internal/await"
	"talf/model"
	"talf/model/modeltest"
	"talf/preprocess"
)

// problems returns JSONL of random ids with answers. A few lines are bad, some texts
// are too short, and one is longer than a pass.
func problems(n int, vocab int32) string {
	rng := rand.New(rand.NewPCG(11, 2))
	ids := func(n int) string {
		var b strings.Builder
		for range n {
			fmt.Fprintf(&b, "%d ", rng.Int32N(vocab))
		}
		return b.String()
	}
	var b strings.Builder
	for i := range n {
		switch {
		case i%17 == 5:
			b.WriteString("{\"q\": }\n")
		case i%13 == 7:
			fmt.Fprintf(&b, "{\"q\":%q,\"a\":%q}\n", "3", "4")
		case i == 9:
			fmt.Fprintf(&b, "{\"q\":%q,\"a\":%q}\n", ids(70), ids(60))
		case i == 10:
			fmt.Fprintf(&b, "{\"q\":%q,\"a\":%q}\n", ids(150), ids(2))
		default:
			fmt.Fprintf(&b, "{\"q\":%q,\"a\":%q}\n", ids(1+rng.IntN(12)), ids(1+rng.IntN(20)))
		}
	}
	return b.String()
}

func config(t testing.TB, file string) preprocess.Config {
	c := preprocess.Default()
	c.Files, c.Out = []string{file}, t.TempDir()
	c.Load.Format, c.Load.Template, c.Load.AnswerField = corpus.JSONL, "{q}", "a"
	c.TopK, c.Shard, c.MaxLen = 6, 9, 120
	return c
}

func sameSet(t *testing.T, a, b string) {
	t.Helper()
	if d := cmp.Diff(hashes(t, a), hashes(t, b)); d != "" {
		t.Fatalf("another set: %s", d)
	}
}

// hashes returns the files of a set with hashes of their contents.
func hashes(t testing.TB, dir string) []string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "*.*"))
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, n := range names {
		raw, err := os.ReadFile(n)
		if err != nil {
			t.Fatal(err)
		}
		if filepath.Base(n) != ".lock" {
			out = append(out, fmt.Sprintf("%s %x", filepath.Base(n), sum(raw)))
		}
	}
	return out
}

func sum(b []byte) uint64 { // FNV-1a
	h := uint64(14695981039346656037)
	for _, c := range b {
		h = (h ^ uint64(c)) * 1099511628211
	}
	return h
}

func TestEveryWayToRunGivesTheSameBytes(t *testing.T) {
	dir := modeltest.Random(t, modeltest.Default(), 5)
	file := write(t, "in.jsonl", problems(40, 97))
	limit, badLines := 0, 3
	if testing.Short() {
		limit, badLines = 12, 1
	}
	var first string
	for _, x := range []struct {
		class         kern.Class
		threads       int
		rows, tokens  int
		maxRows       int
		labels        data.LabelMode
		newLabelsWant bool
	}{
		{kern.Portable, 1, 512, 2048, 512, data.TopK, false},
		{kern.Portable, 3, 4, 1, 3, data.TopK, false},
		{kern.Best(), 1, 37, 100, 512, data.TopK, false},
		{kern.Best(), 2, 64, 5000, 50, data.TopK, false},
		{kern.Best(), 3, 1000, 300, 512, data.TopK, false},
		{kern.Portable, 1, 512, 2048, 512, data.Full, true},
		{kern.Best(), 2, 5, 50, 7, data.Full, false},
	} {
		m := target(t, dir, cpu.Config{Class: x.class, Threads: x.threads}, model.Options{MaxRows: x.maxRows})
		c := config(t, file)
		c.Rows, c.Tokens, c.Labels, c.Load.Limit = x.rows, x.tokens, x.labels, limit
		var bad []corpus.BadLine
		st, err := preprocess.Run(context.Background(), c, preprocess.Inputs{
			Target: m, Tokenizer: numbers{1}, TokenizerHash: "numbers",
			Bad: func(b corpus.BadLine) { bad = append(bad, b) },
		})
		if err != nil {
			t.Fatal(err)
		}
		want := map[string]int{"bad line": badLines, "no answer token before the length limit": 1}
		if d := cmp.Diff(want, st.Dropped); d != "" || len(bad) != badLines || bad[0].Line != 6 {
			t.Fatalf("%s, bad lines %v", d, bad)
		}
		if used := m.KV().Used; used != 0 {
			t.Fatalf("%d KV blocks are still held", used)
		}
		if first == "" || x.newLabelsWant {
			first = c.Out
		}
		sameSet(t, first, c.Out)
	}
}

// Rows have the right contents: the text's tokens, loss only on answers and their end
// token, nothing longer than the limit, and top labels that continue the tree.
func TestRowsContainTheText(t *testing.T) {
	m := target(t, modeltest.Random(t, modeltest.Default(), 5), cpu.Default(), model.Default())
	file := write(t, "in.jsonl", `{"q":"5 6 7","a":"8 9"}`+"\n"+`{"q":"`+strings.Repeat("4 ", 118)+`","a":"10 11 12"}`)
	c := config(t, file)
	if _, err := preprocess.Run(context.Background(), c, preprocess.Inputs{Target: m, Tokenizer: numbers{1}}); err != nil {
		t.Fatal(err)
	}
	meta, got := rows(t, c.Out)
	if d := cmp.Diff([]int32{1, 5, 6, 7, 8, 9, 2}, got[0].Tokens); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff([]bool{false, false, false, false, true, true, true}, got[0].LossMask); d != "" {
		t.Error(d)
	}
	if n := len(got[1].Tokens); n != 120 || got[1].Tokens[119] != 10 || !got[1].LossMask[119] || got[1].LossMask[118] {
		t.Errorf("%d tokens, the last is %d", n, got[1].Tokens[119])
	}
	for _, r := range got {
		for p := range r.Tokens {
			for n := range 9 {
				i := p*9 + n
				parent := r.TreeParents[i]
				if n == 0 {
					if r.TreeTokens[i] != r.Tokens[p] {
						t.Fatalf("position %d: root %d, want %d", p, r.TreeTokens[i], r.Tokens[p])
					}
					continue
				}
				labels := r.LabelIDs[(p*9+int(parent))*meta.K:][:4]
				if !slices.Contains(labels, r.TreeTokens[i]) {
					t.Fatalf("position %d, node %d: token %d is not among its parent's best %v", p, n, r.TreeTokens[i], labels)
				}
			}
		}
	}
}

func TestPlainTextIsCutIntoWindows(t *testing.T) {
	m := target(t, modeltest.Random(t, modeltest.Default(), 5), cpu.Default(), model.Default())
	c := preprocess.Default()
	c.Files, c.Out = []string{write(t, "in.txt", "3 4 5 6 7 8 9\n\n3\n\n4 5 6")}, t.TempDir()
	c.MaxLen, c.EOS = 5, preprocess.EOSAlways
	st, err := preprocess.Run(context.Background(), c, preprocess.Inputs{Target: m, Tokenizer: numbers{1}})
	if err != nil {
		t.Fatal(err)
	}
	_, got := rows(t, c.Out)
	var tokens [][]int32
	for _, r := range got {
		tokens = append(tokens, r.Tokens)
		if slices.Contains(r.LossMask, false) {
			t.Errorf("%v: %v, want loss everywhere", r.Tokens, r.LossMask)
		}
	}
	want := [][]int32{{1, 3, 4, 5, 6}, {1, 7, 8, 9, 2}, {1, 3, 2}, {1, 4, 5, 6, 2}}
	if d := cmp.Diff(want, tokens); d != "" {
		t.Error(d)
	}
	if st.Sequences != 4 || st.Tokens != 18 || len(st.Dropped) > 0 {
		t.Errorf("%+v", st)
	}
}

// A plain tree search that runs every path as a separate text must find the same trees
// with the same bits: the labels do not depend on tree attention.
func TestTreesEqualPlainDecoding(t *testing.T) {
	m := target(t, modeltest.Random(t, modeltest.Default(), 8), cpu.Default(), model.Default())
	c := config(t, write(t, "in.jsonl", `{"q":"5 6 7 8 9 10","a":"11 12 13 14"}`))
	c.TopK, c.EOS, c.K, c.Depth = 5, preprocess.EOSNever, 3, 4
	if _, err := preprocess.Run(context.Background(), c, preprocess.Inputs{Target: m, Tokenizer: numbers{1}}); err != nil {
		t.Fatal(err)
	}
	meta, got := rows(t, c.Out)
	r := &got[0]
	for p := range r.Tokens {
		for n := range meta.Nodes() {
			var path []int32
			for i := n; i > 0; i = int(r.TreeParents[p*meta.Nodes()+i]) {
				path = append(path, r.TreeTokens[p*meta.Nodes()+i])
			}
			slices.Reverse(path)
			s := m.NewSeq()
			out, err := s.Append(context.Background(), slices.Concat(r.Tokens[:p+1], path), nil, model.WantLast)
			if err != nil {
				t.Fatal(err)
			}
			ids, logp := make([]int32, 5), make([]float32, 5)
			out.TopK(ids, logp, 0, 1, 5)
			s.Close()
			at := (p*meta.Nodes() + n) * 5
			if d := cmp.Diff(ids, r.LabelIDs[at:at+5]); d != "" {
				t.Fatalf("position %d, node %d: %s", p, n, d)
			}
			for i, lp := range logp {
				if q := r.LabelProbs[at+i]; q != preprocess.Exp(lp) {
					t.Fatalf("position %d, node %d: probability %v of label %d, plain decoding gives %v", p, n, q, i, preprocess.Exp(lp))
				}
			}
		}
	}
}

// Labels of a model whose numbers overflow are refused with the layer where that happens, however
// deep the trees are.
func TestNumbersThatAreNotFiniteAreNotLabels(t *testing.T) {
	dev, err := cpu.New(cpu.Default())
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	conf := modeltest.Default()
	m, err := model.New(conf.Spec(), modeltest.Overflowing(conf, 8), dev, model.Default())
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	for _, depth := range []int{1, 3} {
		c := config(t, write(t, "in.jsonl", `{"q":"5 6 7 8 9 10","a":"11 12 13 14"}`))
		c.Depth = depth
		_, err := preprocess.Run(context.Background(), c, preprocess.Inputs{Target: m, Tokenizer: numbers{1}})
		var e *model.NonFiniteError
		if !errors.As(err, &e) || e.Layer != 0 {
			t.Errorf("depth %d: error %v, want one that names layer 0", depth, err)
		}
	}
}

// parrot answers with the prompt's length and seed.
type parrot struct{ err error }

func (g parrot) Generate(ctx context.Context, prompts []preprocess.Prompt) ([][]int32, error) {
	var out [][]int32
	for _, p := range prompts {
		a := []int32{int32(len(p.Tokens)), int32(p.Seed % 90), 2}
		out = append(out, a[:min(len(a), p.Max)])
	}
	return out, g.err
}

func TestRegeneratedAnswersReplaceTheText(t *testing.T) {
	m := target(t, modeltest.Random(t, modeltest.Default(), 5), cpu.Default(), model.Default())
	file := write(t, "in.jsonl", `{"turns":["5 6","7 8 9"]}`+"\n"+`{"prompt":"10"}`+"\n"+`{"prompt":"`+strings.Repeat("4 ", 30)+`"}`)
	in := preprocess.Inputs{Target: m, Tokenizer: numbers{1}, Generator: parrot{}, Sampling: "parrot"}
	c := preprocess.Default()
	c.Files, c.Out, c.MaxLen, c.Seed = []string{file}, t.TempDir(), 20, 3
	st, err := preprocess.Run(context.Background(), c, in)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(map[string]int{"prompt leaves no room for an answer": 1}, st.Dropped); d != "" {
		t.Error(d)
	}
	meta, got := rows(t, c.Out)
	if meta.Sampling != "parrot" || meta.Seed != 3 {
		t.Errorf("%+v", meta)
	}
	show := func(r data.Record) string {
		var b strings.Builder
		for i, id := range r.Tokens {
			if r.LossMask[i] {
				fmt.Fprintf(&b, "[%d]", id)
			} else {
				fmt.Fprintf(&b, " %d ", id)
			}
		}
		return b.String()
	}
	if s := show(got[0]); !strings.HasPrefix(s, " 1  5  6 [3][") || !strings.Contains(s, "] 7  8  9 [8][") || !strings.HasSuffix(s, "[2]") || strings.Count(s, "[2]") != 1 {
		t.Error(s)
	}
	if s := show(got[1]); !strings.HasPrefix(s, " 1  10 [2][") {
		t.Error(s)
	}
	if got[0].Tokens[4] == got[1].Tokens[3] && got[0].Tokens[4] == got[0].Tokens[9] {
		t.Error("all prompts have the same seed")
	}
	// Neither the batch nor a second run may change the answer to a prompt.
	again := c
	again.Out, again.Tokens, again.Prompts = t.TempDir(), 1, 2
	if _, err := preprocess.Run(context.Background(), again, in); err != nil {
		t.Fatal(err)
	}
	sameSet(t, c.Out, again.Out)

	in.Generator = parrot{errors.New("out of ideas")}
	again.Out = t.TempDir()
	if _, err := preprocess.Run(context.Background(), again, in); err == nil || !strings.Contains(err.Error(), "regenerate: out of ideas") {
		t.Errorf("%v", err)
	}
}

// ended reports goroutines that were not running before and do not stop.
func ended(t *testing.T, before int) {
	t.Helper()
	await.Until(t, fmt.Sprintf("%d goroutines, as before", before), func() bool { return runtime.NumGoroutine() <= before })
}

// Cancelling after any number of batches and running again, each time with different
// additional copies of the target, gives the bytes of an uninterrupted run, redoes no
// finished shard and leaves nothing running.
func TestACancelledRunContinues(t *testing.T) {
	dir := modeltest.Random(t, modeltest.Default(), 5)
	m := target(t, dir, cpu.Default(), model.Default())
	var beside []preprocess.Worker
	for range 2 {
		beside = append(beside, preprocess.Worker{Target: target(t, dir, cpu.Config{Class: cpu.Default().Class, Threads: 1}, model.Default())})
	}
	file := write(t, "in.jsonl", problems(40, 97))
	in := preprocess.Inputs{Target: m, Tokenizer: numbers{1}, TokenizerHash: "numbers"}
	want := config(t, file)
	want.Tokens = 60
	whole, err := preprocess.Run(context.Background(), want, in)
	if err != nil {
		t.Fatal(err)
	}
	c := config(t, file)
	c.Tokens = 60
	for stop := 1; ; stop += 2 {
		ctx, cancel := context.WithCancel(context.Background())
		calls := 0
		var last preprocess.Progress
		in.Progress = func(p preprocess.Progress) {
			if calls++; calls == stop {
				cancel()
			}
			if p.Sequences < last.Sequences || p.Sequences > p.AllSequences || p.Shards < last.Shards {
				t.Errorf("progress goes backwards: %+v after %+v", p, last)
			}
			last = p
		}
		in.Beside = beside[:stop%3]
		before := runtime.NumGoroutine()
		st, err := preprocess.Run(ctx, c, in)
		cancel()
		ended(t, before)
		if err == nil {
			if st.Resumed == 0 {
				t.Error("the last run found no finished shard")
			}
			st.Resumed = whole.Resumed
			if d := cmp.Diff(whole, st); d != "" {
				t.Error(d)
			}
			break
		}
		if !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		for _, k := range append(beside, preprocess.Worker{Target: m}) {
			if used := k.Target.KV().Used; used != 0 {
				t.Fatalf("%d KV blocks are still held", used)
			}
		}
		if left, _ := filepath.Glob(filepath.Join(c.Out, "*.tmp")); len(left) > 0 {
			t.Fatalf("left behind: %v", left)
		}
	}
	sameSet(t, want.Out, c.Out)
	st, err := preprocess.Run(context.Background(), c, in)
	if err != nil || st.Resumed != whole.Shards || st.Tokens != whole.Tokens {
		t.Fatalf("running a finished set again: %+v, %v", st, err)
	}
}

func TestRunRefusesInvalidOptions(t *testing.T) {
	m := target(t, modeltest.Random(t, modeltest.Default(), 5), cpu.Default(), model.Default())
	file := write(t, "in.jsonl", problems(5, 97))
	done := config(t, file)
	in := preprocess.Inputs{Target: m, Tokenizer: numbers{1}}
	if _, err := preprocess.Run(context.Background(), done, in); err != nil {
		t.Fatal(err)
	}
	for _, x := range []struct {
		want   string
		change func(c *preprocess.Config)
	}{
		{"no input files", func(c *preprocess.Config) { c.Files = nil }},
		{"no output directory", func(c *preprocess.Config) { c.Out = "" }},
		{"levels", func(c *preprocess.Config) { c.K = 0 }},
		{"depth", func(c *preprocess.Config) { c.Depth = 0 }},
		{`labels is "some"`, func(c *preprocess.Config) { c.Labels = "some" }},
		{"label-k is 0", func(c *preprocess.Config) { c.TopK = 0 }},
		{"label-k is 98, want at most the target's vocabulary of 97", func(c *preprocess.Config) { c.TopK = 98 }},
		{`features is "f64"`, func(c *preprocess.Config) { c.Features = "f64" }},
		{"max-len is 2", func(c *preprocess.Config) { c.MaxLen = 2 }},
		{`eos is ""`, func(c *preprocess.Config) { c.EOS = "" }},
		{"shard is 0", func(c *preprocess.Config) { c.Shard = 0 }},
		{"rows is 3", func(c *preprocess.Config) { c.Rows = 3 }},
		{"0 prompts", func(c *preprocess.Config) { c.Prompts = 0 }},
		{"tokens is 0", func(c *preprocess.Config) { c.Tokens = 0 }},
		{"row groups", func(c *preprocess.Config) { c.Writer.RowGroup = 65 << 20 }},
		{"template", func(c *preprocess.Config) { c.Load.Template = "{" }},
		{"no such file", func(c *preprocess.Config) { c.Files = []string{"/none.txt"} }},
		{"no text in", func(c *preprocess.Config) { c.Files = []string{os.DevNull} }},
		{"all bad", func(c *preprocess.Config) { c.Load.AnswerField = "b" }},
		{"not the target's", func(c *preprocess.Config) { c.Files = []string{write(t, "x.jsonl", `{"q":"97 3","a":"1"}`)} }},
		{"top_k: 6, want 7", func(c *preprocess.Config) { c.Out, c.TopK = done.Out, 7 }},
		{"source", func(c *preprocess.Config) { c.Out, c.MaxLen = done.Out, 50 }},
	} {
		c := config(t, file)
		x.change(&c)
		if _, err := preprocess.Run(context.Background(), c, in); err == nil || !strings.Contains(err.Error(), x.want) {
			t.Errorf("%v, want it to say %q", err, x.want)
		}
	}
}

// wordy is a tokenizer that puts four tokens before every text.
type wordy struct{ numbers }

func (w wordy) Encode(text string, addSpecial bool) ([]int32, error) {
	ids, err := w.numbers.Encode(text, false)
	if addSpecial {
		ids = append([]int32{1, 2, 3, 4}, ids...)
	}
	return ids, err
}

// If the tokens before every text leave no room for the text itself, a text could be
// divided into endless windows.
func TestSequencesHaveRoomForText(t *testing.T) {
	m := target(t, modeltest.Random(t, modeltest.Default(), 5), cpu.Default(), model.Default())
	for n, want := range map[int]string{3: "want more than the 4 that", 4: "want more than the 4 that", 5: ""} {
		c := config(t, write(t, "in.txt", "5 6 7 8"))
		c.Load.Format, c.Load.Template, c.Load.AnswerField, c.MaxLen = corpus.Paragraphs, "", "", n
		st, err := preprocess.Run(context.Background(), c, preprocess.Inputs{Target: m, Tokenizer: wordy{}})
		if want == "" && (err != nil || st.Sequences != 4) || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%d tokens: %d sequences, %v, want %q", n, st.Sequences, err, want)
		}
	}
}

// With LossOnly, positions that are trained on keep all values and the others are
// blank.
func TestLossOnlyOmitsTreesThatAreNotTrainedOn(t *testing.T) {
	m := target(t, modeltest.Random(t, modeltest.Default(), 5), cpu.Default(), model.Default())
	for _, mode := range []data.LabelMode{data.TopK, data.Full} {
		all := config(t, write(t, "in.jsonl", problems(12, 97)))
		all.Labels = mode
		some := all
		some.Out, some.LossOnly, some.Rows = t.TempDir(), true, 40
		for _, c := range []preprocess.Config{all, some} {
			if _, err := preprocess.Run(context.Background(), c, preprocess.Inputs{Target: m, Tokenizer: numbers{1}}); err != nil {
				t.Fatal(err)
			}
		}
		_, want := rows(t, all.Out)
		meta, got := rows(t, some.Out)
		if !meta.LossOnly {
			t.Error("the shards do not record it")
		}
		blank := 0
		for i := range want {
			a, b := &want[i], &got[i]
			for p := range a.Tokens {
				for n := range 9 {
					x := p*9 + n
					if n == 0 || p+1 < len(a.Tokens) && a.LossMask[p+1] {
						if a.TreeTokens[x] != b.TreeTokens[x] || a.TreeParents[x] != b.TreeParents[x] ||
							!slices.Equal(part(a.LabelIDs, x, meta.K), part(b.LabelIDs, x, meta.K)) ||
							!slices.Equal(part(a.LabelProbs, x, meta.K), part(b.LabelProbs, x, meta.K)) ||
							!slices.Equal(part(a.LabelFull, x, meta.Vocab), part(b.LabelFull, x, meta.Vocab)) {
							t.Fatalf("row %d, position %d, node %d differs", i, p, n)
						}
						continue
					}
					blank++
					if b.TreeTokens[x] != b.Tokens[p] || a.TreeParents[x] < 0 || mode == data.TopK && (b.Tail[x] != 1 || b.LabelProbs[x*meta.K] != 0) {
						t.Fatalf("row %d, position %d, node %d is not blank", i, p, n)
					}
				}
			}
			if !slices.Equal(a.Features, b.Features) {
				t.Fatalf("row %d: other features", i)
			}
		}
		if blank == 0 {
			t.Error("nothing was blanked")
		}
	}
}

// With TreeShare the last sequences have all that they would have else, and those before the labels of their own tokens
// and no trees, however the run is cut into shards.
func TestOnlyTheLastSequencesHaveTrees(t *testing.T) {
	m := target(t, modeltest.Random(t, modeltest.Default(), 5), cpu.Default(), model.Default())
	all := config(t, write(t, "in.jsonl", problems(12, 97)))
	some := all
	some.Out, some.TreeShare, some.Shard = t.TempDir(), 0.2, 5
	for _, c := range []preprocess.Config{all, some} {
		if _, err := preprocess.Run(context.Background(), c, preprocess.Inputs{Target: m, Tokenizer: numbers{1}}); err != nil {
			t.Fatal(err)
		}
	}
	_, want := rows(t, all.Out)
	meta, got := rows(t, some.Out)
	if meta.TreeShare != 0.2 || len(got) != len(want) {
		t.Errorf("share %v of %d sequences, want 0.2 of %d", meta.TreeShare, len(got), len(want))
	}
	bare := len(want) - (len(want)+4)/5
	nodes := meta.Nodes()
	for i := range want {
		a, b := &want[i], &got[i]
		if i >= bare {
			if d := cmp.Diff(a, b); d != "" {
				t.Errorf("sequence %d of %d: %s", i, len(want), d)
			}
			continue
		}
		for x := range len(a.Tokens) * nodes {
			if x%nodes == 0 {
				if !slices.Equal(part(a.LabelIDs, x, meta.K), part(b.LabelIDs, x, meta.K)) || !slices.Equal(part(a.LabelProbs, x, meta.K), part(b.LabelProbs, x, meta.K)) {
					t.Fatalf("sequence %d: other labels of its own tokens", i)
				}
			} else if b.Tail[x] != 1 || b.LabelProbs[x*meta.K] != 0 {
				t.Fatalf("sequence %d: a tree", i)
			}
		}
	}
}

func part[T any](x []T, i, n int) []T {
	if len(x) == 0 {
		return nil
	}
	return x[i*n : (i+1)*n]
}
