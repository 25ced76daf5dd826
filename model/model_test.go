package model_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"talf/compute/cpu"
	"talf/compute/cpu/kern"
	"talf/internal/golden"
	"talf/model"
	"talf/model/arch"
	"talf/model/modeltest"
	"talf/model/safetensors"
	"talf/tree"
)

// device returns a CPU device that is closed when the test finishes.
func device(t testing.TB, class kern.Class, threads int) *cpu.Device {
	t.Helper()
	d, err := cpu.New(cpu.Config{Class: class, Threads: threads})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

func load(t testing.TB, dir string, dev *cpu.Device, opt model.Options) *model.Model {
	t.Helper()
	m, err := model.Load(dir, dev, opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return m
}

// fixtures are models of every architecture with transformers' results.
var fixtures = []string{
	"hf/llama-gqa", "hf/llama-llama3rope", "demo", "hf/mistral-swa",
	"hf/qwen2", "hf/qwen3", "hf/gpt-neox-parallel", "hf/gpt-neox-sequential",
}

// fixture returns a model's directory and the results that transformers computes with
// it.
func fixture(t testing.TB, name string) (dir string, want *safetensors.Set) {
	t.Helper()
	switch {
	case name == "demo": // the trained model that the program embeds
		return filepath.Join("..", "internal", "demo", "target"), open(t, golden.File(t, "demo/golden.safetensors"))
	case strings.HasPrefix(name, "data/"):
		dir = golden.Shared(t, name)
	default:
		dir = golden.File(t, name)
	}
	return dir, open(t, filepath.Join(dir, "golden.safetensors"))
}

// small returns a random model on this machine's best kernels.
func small(t testing.TB) *model.Model {
	return load(t, modeltest.Random(t, modeltest.Default(), 1), device(t, kern.Best(), 2), model.Default())
}

// classes are the classes of kernels that this machine can run.
func classes() []kern.Class { return kern.Available() }

func open(t testing.TB, path string) *safetensors.Set {
	t.Helper()
	s, err := safetensors.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func floats(t testing.TB, s *safetensors.Set, name string) []float32 {
	t.Helper()
	x, err := s.Get(name)
	if err != nil {
		t.Fatal(err)
	}
	v, err := x.Float32s()
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func ints(t testing.TB, s *safetensors.Set, name string) []int32 {
	t.Helper()
	x, err := s.Get(name)
	if err != nil {
		t.Fatal(err)
	}
	v, err := x.Int32s()
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// tolerance comes from the fixtures: at least five times the distance between
// transformers in float32 and in float64, and a fifth of the change that the smallest
// deliberate mistake causes (golden.json in each fixture's directory).
const tolerance = 2e-4

func close32(t testing.TB, what string, got, want []float32) {
	t.Helper()
	within(t, what, got, want, tolerance)
}

func within(t testing.TB, what string, got, want []float32, tolerance float64) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%s: %d values, want %d", what, len(got), len(want))
	}
	var worst float64
	for i := range want {
		d := math.Abs(float64(got[i]) - float64(want[i]))
		if !(d <= tolerance) {
			t.Fatalf("%s: element %d is %v, want %v ± %v", what, i, got[i], want[i], tolerance)
		}
		worst = max(worst, d)
	}
	t.Logf("%s: largest difference %.2g", what, worst)
}

func sameBits(got, want []float32) error {
	if len(got) != len(want) {
		return fmt.Errorf("%d values, want %d", len(got), len(want))
	}
	for i := range want {
		if math.Float32bits(got[i]) != math.Float32bits(want[i]) {
			return fmt.Errorf("element %d is %v (%#x), want %v (%#x)", i, got[i], math.Float32bits(got[i]), want[i], math.Float32bits(want[i]))
		}
	}
	return nil
}

func must[T any](t testing.TB) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func argmax(x []float32) int32 {
	best := 0
	for i, v := range x {
		if v > x[best] {
			best = i
		}
	}
	return int32(best)
}

// greedy continues prompt greedily by n tokens, one at a time.
func greedy(t testing.TB, m *model.Model, prompt []int32, n int) []int32 {
	t.Helper()
	s := m.NewSeqOf(len(prompt))
	defer func() { s.Close() }()
	row := make([]float32, m.Spec().Vocab)
	var out []int32
	in := prompt
	for len(out) < n {
		if text := slices.Concat(prompt, out); m.Spec().Long(len(text)) && !s.Long() {
			s.Close()
			s, in = m.NewSeqOf(len(text)), text
		}
		o, err := s.Append(context.Background(), in, nil, model.WantLast)
		if err != nil {
			t.Fatal(err)
		}
		o.ReadLogits(row, o.LogitsRow(0, o.LastNode(0)))
		in = []int32{argmax(row)}
		out = append(out, in[0])
	}
	return out
}

func TestAgreesWithTransformers(t *testing.T) {
	for _, c := range []struct {
		dir    string
		trees  bool
		greedy [][2]string // names of the prompts and their continuations
	}{
		{"hf/llama-gqa", true, [][2]string{{"greedy_prompt", "greedy_ids"}}},
		{"hf/llama-llama3rope", true, [][2]string{{"greedy_prompt", "greedy_ids"}}},
		{"hf/mistral-swa", true, [][2]string{{"greedy_prompt", "greedy_ids"}}},
		{"hf/qwen2", true, [][2]string{{"greedy_prompt", "greedy_ids"}}},
		{"hf/qwen3", true, [][2]string{{"greedy_prompt", "greedy_ids"}}},
		{"hf/gpt-neox-parallel", true, [][2]string{{"greedy_prompt", "greedy_ids"}}},
		{"hf/gpt-neox-sequential", true, [][2]string{{"greedy_prompt", "greedy_ids"}}},
		{"demo", false, numbered("greedy%d_prompt", "greedy%d_ids")},
		{"data/hf/stories260K", false, numbered("prompt%d_ids", "greedy%d_ids")},
	} {
		t.Run(filepath.Base(c.dir), func(t *testing.T) {
			dir, want := fixture(t, c.dir)
			m := load(t, dir, device(t, kern.Best(), 2), model.Default())
			ids := ints(t, want, "input_ids")
			logits, hidden := run(t, m, ids, len(ids))
			close32(t, "logits", logits, floats(t, want, "logits"))
			if _, ok := want.Tensor("hidden"); ok {
				close32(t, "hidden", hidden, floats(t, want, "hidden"))
			}

			for _, name := range []string{"tree10", "tree30"} {
				if !c.trees {
					break
				}
				prefix := ints(t, want, name+"_prefix")
				tr := treeOf(ints(t, want, name+"_tokens"), ints(t, want, name+"_parents"))
				s := m.NewSeq()
				must[*model.Output](t)(s.Append(context.Background(), prefix, nil, model.WantNone))
				b := s.Branch(s.Len())
				o := must[*model.Output](t)(m.Forward(context.Background(), []model.Segment{{Rows: b, Tree: tr, Want: model.WantAll}}))
				got := make([]float32, tr.Len()*m.Spec().Vocab)
				o.ReadLogits(got, 0)
				close32(t, name+"_logits", got, floats(t, want, name+"_logits"))
				close32(t, name+"_logits_mask", got, floats(t, want, name+"_logits_mask"))
				s.Close()
			}
			if testing.Short() {
				c.greedy = c.greedy[:1]
			}
			for _, g := range c.greedy {
				ids := ints(t, want, g[1])
				if got := greedy(t, m, ints(t, want, g[0]), len(ids)); fmt.Sprint(got) != fmt.Sprint(ids) {
					t.Errorf("%s: continuation %v, want %v", g[1], got, ids)
				}
			}
		})
	}
}

// numbered returns five pairs of tensor names.
func numbered(prompt, ids string) (out [][2]string) {
	for i := range 5 {
		out = append(out, [2]string{fmt.Sprintf(prompt, i), fmt.Sprintf(ids, i)})
	}
	return out
}

func treeOf(tokens, parents []int32) *tree.Tree {
	t := tree.New(tokens[0], len(tokens))
	for i := 1; i < len(tokens); i++ {
		t.Add(int(parents[i]), tokens[i])
	}
	return t
}

// run returns the logits [T][V] and hidden states [T][H] of ids, computed in chunks.
func run(t testing.TB, m *model.Model, ids []int32, chunk int) (logits, hidden []float32) {
	t.Helper()
	s := m.NewSeqOf(len(ids))
	defer s.Close()
	v, h := m.Spec().Vocab, m.Spec().Hidden
	for i := 0; i < len(ids); i += chunk {
		n := min(chunk, len(ids)-i)
		o, err := s.Append(context.Background(), ids[i:i+n], nil, model.WantAll)
		if err != nil {
			t.Fatal(err)
		}
		l, x := make([]float32, n*v), make([]float32, n*h)
		o.ReadLogits(l, 0)
		o.ReadHidden(x, 0)
		logits, hidden = append(logits, l...), append(hidden, x...)
	}
	return logits, hidden
}

func TestChunksClassesAndThreadsGiveTheSameBits(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	ids := make([]int32, 150)
	for i := range ids {
		ids[i] = r.Int32N(int32(modeltest.Default().Vocab))
	}
	biased := modeltest.Default()
	biased.AttnBias, biased.MLPBias, biased.Tied = true, true, true
	configs := []modeltest.Config{biased, modeltest.Default()}
	for _, name := range arch.Supported()[1:] {
		configs = append(configs, modeltest.Of(name))
	}
	for i, c := range configs {
		// One configuration shows that threads and blocks of rows do not matter. The
		// others show that no architecture's own operations break this.
		brief := i > 1 || i == 1 && testing.Short()
		dir := modeltest.Random(t, c, 3)
		var logits, hidden []float32
		for _, class := range classes() {
			for threads := 1; threads <= 3; threads++ {
				if (brief || testing.Short() && class == kern.Portable) && threads != 3 || brief && testing.Short() && class == kern.Portable {
					continue
				}
				dev := device(t, class, threads)
				for _, maxRows := range []int{1, 13, 512} {
					if brief && maxRows == 1 {
						continue
					}
					m := load(t, dir, dev, model.Options{MaxRows: maxRows})
					for _, chunk := range []int{1, 7, 64, len(ids)} {
						l, h := run(t, m, ids, chunk)
						if logits == nil {
							logits, hidden = l, h
						}
						if err := errors.Join(sameBits(l, logits), sameBits(h, hidden)); err != nil {
							t.Fatalf("%s, %v, %d threads, MaxRows %d, chunks of %d: %v", c.Arch, class, threads, maxRows, chunk, err)
						}
					}
				}
			}
		}
	}
}

// randomTree returns a tree of n nodes, some of them added later.
func randomTree(r *rand.Rand, vocab, n int) *tree.Tree {
	t := tree.New(r.Int32N(int32(vocab)), n)
	for t.Len() < n {
		p := r.IntN(t.Len())
		if r.IntN(2) == 0 {
			p = t.Len() - 1
		}
		t.Add(p, r.Int32N(int32(vocab)))
	}
	return t
}

// TestTreeNodesHaveTheBitsOfPlainDecoding runs random trees in random passes, at the
// end and at past positions of forked and extended sequences. It commits random paths
// and compares every node with a plain run of its own path.
func TestTreeNodesHaveTheBitsOfPlainDecoding(t *testing.T) {
	rounds, others := 100, 12
	if testing.Short() {
		rounds, others = 12, 3
	}
	// One model is compared with plain Go's bits, the others with those of the same
	// kernels: other tests show that classes have the same bits.
	t.Run("random", func(t *testing.T) {
		treesHaveThePlainBits(t, modeltest.Random(t, modeltest.Default(), 1), kern.Portable, rounds)
	})
	for _, name := range arch.Supported()[1:] {
		t.Run("random "+name, func(t *testing.T) {
			treesHaveThePlainBits(t, modeltest.Random(t, modeltest.Of(name), 1), kern.Best(), others)
		})
	}
	for _, name := range fixtures {
		t.Run(filepath.Base(name), func(t *testing.T) {
			dir, _ := fixture(t, name)
			treesHaveThePlainBits(t, dir, kern.Best(), others)
		})
	}
}

// loadLong loads a model with more positions than its configuration allows.
func loadLong(t *testing.T, dir string, dev *cpu.Device, opt model.Options) *model.Model {
	t.Helper()
	spec := must[*arch.Spec](t)(arch.Load(dir))
	spec.MaxPos = max(spec.MaxPos, 512)
	m := must[*model.Model](t)(model.New(spec, must[*safetensors.Set](t)(safetensors.OpenDir(dir)), dev, opt))
	t.Cleanup(func() { m.Close() })
	return m
}

func treesHaveThePlainBits(t *testing.T, dir string, class kern.Class, rounds int) {
	ctx := context.Background()
	m := loadLong(t, dir, device(t, kern.Best(), 2), model.Default())
	v := m.Spec().Vocab
	// plain has its own model: other slots, other buffers, one token per pass.
	plain := loadLong(t, dir, device(t, class, 1), model.Options{MaxRows: 1})
	for seed := range uint64(rounds) {
		r := rand.New(rand.NewPCG(seed, 9))
		fail := func(format string, args ...any) {
			t.Helper()
			t.Fatalf("seed %d: %s", seed, fmt.Sprintf(format, args...))
		}
		// check runs only the path to node n after the prefix, token by token.
		var done *model.Seq
		var doneIDs []int32
		check := func(prefix []int32, tr *tree.Tree, n int, got []float32) {
			t.Helper()
			if done == nil || !slices.Equal(prefix, doneIDs) {
				if done != nil {
					done.Close()
				}
				done, doneIDs = plain.NewSeqOf(m.Spec().MaxPos), slices.Clone(prefix)
				done.KeepPast()
				if len(prefix) > 0 {
					must[*model.Output](t)(done.Append(ctx, prefix, nil, model.WantNone))
				}
			}
			want := make([]float32, v)
			for _, p := range tr.AppendPath(nil, n) {
				o := must[*model.Output](t)(done.Append(ctx, []int32{tr.Token(p)}, nil, model.WantLast))
				o.ReadLogits(want, 0)
			}
			done.Truncate(len(prefix))
			if err := sameBits(got, want); err != nil {
				fail("node %d after %d tokens: %v", n, len(prefix), err)
			}
		}
		type live struct {
			s   *model.Seq
			ids []int32
		}
		ids := make([]int32, 1+r.IntN(70))
		for i := range ids {
			ids[i] = r.Int32N(int32(v))
		}
		first := &live{m.NewSeqOf(m.Spec().MaxPos), ids}
		first.s.KeepPast()
		must[*model.Output](t)(first.s.Append(ctx, ids, nil, model.WantNone))
		seqs := []*live{first}
		for range 4 {
			// Two trees per round, one at the end and one at a past position. Sometimes
			// a fork adds a sequence, sometimes one is truncated.
			if r.IntN(2) == 0 {
				o := seqs[r.IntN(len(seqs))]
				seqs = append(seqs, &live{o.s.Fork(), slices.Clone(o.ids)})
			}
			if l := seqs[r.IntN(len(seqs))]; r.IntN(3) == 0 {
				n := r.IntN(l.s.Len() + 1)
				l.s.Truncate(n)
				l.ids = l.ids[:n]
			}
			l := seqs[r.IntN(len(seqs))]
			end := l.s.Branch(l.s.Len())
			at := r.IntN(l.s.Len() + 1)
			var past *model.Branch
			if at < l.s.Len() {
				past = l.s.Branch(at)
			}
			full, side := randomTree(r, v, 1+r.IntN(40)), randomTree(r, v, 1+r.IntN(9))
			// Build the first tree in two passes.
			cut := 1 + r.IntN(full.Len())
			part := tree.New(full.Token(0), full.Len())
			for i := 1; i < cut; i++ {
				part.Add(full.Parent(i), full.Token(i))
			}
			for from := 0; from < full.Len(); {
				for i := part.Len(); from > 0 && i < full.Len(); i++ {
					part.Add(full.Parent(i), full.Token(i))
				}
				batch := []model.Segment{{Rows: end, Tree: part, From: from, Want: model.WantAll}}
				if past != nil && from == 0 {
					batch = append(batch, model.Segment{Rows: past, Tree: side, Want: model.WantLast})
				}
				o := must[*model.Output](t)(m.Forward(ctx, batch))
				row := make([]float32, v)
				for n := from; n < part.Len(); n++ {
					o.ReadLogits(row, o.LogitsRow(0, n))
					check(l.ids, part, n, row)
				}
				if len(batch) == 2 {
					n := side.Len() - 1
					o.ReadLogits(row, o.LogitsRow(1, n))
					check(l.ids[:at], side, n, row)
				}
				from = part.Len()
				if r.IntN(4) == 0 { // while nodes have rows in the shared block
					seqs = append(seqs, &live{l.s.Fork(), slices.Clone(l.ids)})
				}
			}
			if past != nil {
				past.Drop()
			}
			if r.IntN(4) == 0 {
				end.Drop()
				continue
			}
			path := full.AppendPath(nil, r.IntN(full.Len()))
			if err := end.Commit(path); err != nil {
				fail("%v", err)
			}
			for _, p := range path {
				l.ids = append(l.ids, full.Token(p))
			}
			if l.s.Len() != len(l.ids) {
				fail("%d positions after the commit, want %d", l.s.Len(), len(l.ids))
			}
		}
		for _, l := range seqs {
			l.s.Close()
		}
		if used := m.KV().Used; used != 0 {
			fail("%d blocks in use after everything is closed", used)
		}
	}
}

func TestBlocksAreSharedAndGivenBack(t *testing.T) {
	ctx := context.Background()
	m := small(t)
	ids := make([]int32, 70) // three blocks, the last one partly filled
	s := m.NewSeq()
	must[*model.Output](t)(s.Append(ctx, ids, nil, model.WantNone))
	want := func(n int) {
		t.Helper()
		if used := m.KV().Used; used != n {
			t.Fatalf("%d blocks in use, want %d", used, n)
		}
	}
	want(3)
	f := s.Fork()
	want(3)
	must[*model.Output](t)(f.Append(ctx, ids[:1], nil, model.WantNone)) // copies the tail
	want(4)
	g := f.Fork()
	g.Truncate(40)
	must[*model.Output](t)(g.Append(ctx, ids[:1], nil, model.WantNone)) // block 1 is shared by three
	want(5)
	b := s.Branch(10)
	must[*model.Output](t)(m.Forward(ctx, []model.Segment{{Rows: b, Tree: tree.New(1, 1)}}))
	want(6)
	b.Drop()
	want(5)
	e := s.Branch(s.Len())
	must[*model.Output](t)(m.Forward(ctx, []model.Segment{{Rows: e, Tree: randomTree(rand.New(rand.NewPCG(1, 1)), 9, 64)}}))
	want(7)
	if err := e.Commit([]int{0}); err != nil {
		t.Fatal(err)
	}
	want(5)
	s.Close()
	want(4)
	f.Close()
	want(2)
	g.Branch(g.Len()) // closing the sequence drops an open branch
	g.Close()
	g.Close()
	want(0)
}

func TestBranchLastReusesTheCommittedRow(t *testing.T) {
	ctx := context.Background()
	m := small(t)
	v := m.Spec().Vocab
	r := rand.New(rand.NewPCG(2, 2))
	for _, n := range []int{1, 31, 32, 33, 64} {
		ids := make([]int32, n)
		for i := range ids {
			ids[i] = r.Int32N(int32(v))
		}
		s := m.NewSeq()
		must[*model.Output](t)(s.Append(ctx, ids, nil, model.WantNone))
		other := s.Fork() // so that the last block is shared
		tr := randomTree(r, v, 12)
		tr2 := tree.New(ids[n-1], 12)
		for i := 1; i < tr.Len(); i++ {
			tr2.Add(tr.Parent(i), tr.Token(i))
		}
		b := s.BranchLast()
		o := must[*model.Output](t)(m.Forward(ctx, []model.Segment{{Rows: b, Tree: tr2, From: 1, Want: model.WantAll}}))
		got := make([]float32, 11*v)
		o.ReadLogits(got, 0)
		path := tr2.AppendPath(nil, 11)
		if err := b.Commit(path); err != nil {
			t.Fatal(err)
		}
		all := append([]int32(nil), ids...)
		for _, p := range path[1:] {
			all = append(all, tr2.Token(p))
		}
		if s.Len() != len(all) {
			t.Fatalf("%d positions, want %d", s.Len(), len(all))
		}
		next := must[*model.Output](t)(s.Append(ctx, []int32{3}, nil, model.WantLast))
		row := make([]float32, v)
		next.ReadLogits(row, 0)
		want, _ := run(t, m, append(all, 3), 5)
		if err := sameBits(row, want[len(want)-v:]); err != nil {
			t.Errorf("after the commit at %d: %v", n, err)
		}
		for k := 1; k < tr2.Len(); k++ {
			ids := append([]int32(nil), ids...)
			for _, p := range tr2.AppendPath(nil, k)[1:] {
				ids = append(ids, tr2.Token(p))
			}
			want, _ := run(t, m, ids, len(ids))
			if err := sameBits(got[(k-1)*v:k*v], want[len(want)-v:]); err != nil {
				t.Errorf("node %d at %d: %v", k, n, err)
			}
		}
		must[*model.Output](t)(other.Append(ctx, []int32{3}, nil, model.WantLast))
		other.Close()
		s.Close()
	}
	if used := m.KV().Used; used != 0 {
		t.Errorf("%d blocks in use", used)
	}
}

func TestTopKAndOutputRows(t *testing.T) {
	m := small(t)
	v := m.Spec().Vocab
	s := m.NewSeq()
	o := must[*model.Output](t)(s.Append(context.Background(), []int32{1, 5, 9, 2, 7}, nil, model.WantAll))
	if h, l := o.Rows(); h != 5 || l != 5 {
		t.Fatalf("%d hidden and %d logits rows, want 5", h, l)
	}
	const k = 4
	for _, c := range []struct{ row, n int }{{0, 5}, {2, 2}, {4, 1}, {0, 1}} {
		ids, logp := make([]int32, c.n*k), make([]float32, c.n*k)
		o.TopK(ids, logp, c.row, c.n, k)
		for i := range c.n {
			row := make([]float32, v)
			o.ReadLogits(row, c.row+i)
			var sum float64
			for _, x := range row {
				sum += math.Exp(float64(x))
			}
			for j := range k {
				id := argmax(row)
				// Float32 log-softmax over 97 values of size 10: about 10 ulp.
				want := float64(row[id]) - math.Log(sum)
				if ids[i*k+j] != id || math.Abs(float64(logp[i*k+j])-want) > 1e-5 {
					t.Errorf("row %d rank %d: %d %v, want %d %v", c.row+i, j, ids[i*k+j], logp[i*k+j], id, want)
				}
				row[id] = float32(math.Inf(-1))
			}
		}
	}
}

func TestModelsShareADevice(t *testing.T) {
	dev := device(t, kern.Best(), 3)
	dir := modeltest.Random(t, modeltest.Default(), 1)
	ids := []int32{3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9}
	want, _ := run(t, load(t, dir, dev, model.Default()), ids, len(ids))
	var wg sync.WaitGroup
	for g := range 4 {
		m := load(t, dir, dev, model.Default())
		wg.Go(func() {
			for range 5 {
				s := m.NewSeq()
				got := make([]float32, m.Spec().Vocab)
				for _, id := range ids {
					o, err := s.Append(context.Background(), []int32{id}, nil, model.WantLast)
					if err != nil {
						t.Error(err)
						return
					}
					o.ReadLogits(got, 0)
				}
				if err := sameBits(got, want[len(want)-len(got):]); err != nil {
					t.Errorf("goroutine %d: %v", g, err)
				}
				s.Close()
			}
		})
	}
	wg.Wait()
}

func TestForwardDoesNotAllocate(t *testing.T) {
	for _, name := range arch.Supported() {
		t.Run(name, func(t *testing.T) {
			forwardDoesNotAllocate(t, load(t, modeltest.Random(t, modeltest.Of(name), 1), device(t, kern.Best(), 2), model.Default()))
		})
	}
}

func forwardDoesNotAllocate(t *testing.T, m *model.Model) {
	ctx := context.Background()
	s := m.NewSeq()
	defer s.Close()
	must[*model.Output](t)(s.Append(ctx, make([]int32, 40), nil, model.WantNone))
	tr := randomTree(rand.New(rand.NewPCG(1, 1)), 90, 30)
	batch := make([]model.Segment, 2)
	path := tr.AppendPath(nil, 5)
	other, recurrent := s, s.Resume(7) != 7 // so it only grows, and the second tree is of another
	if recurrent {
		other = m.NewSeq()
		defer other.Close()
		must[*model.Output](t)(other.Append(ctx, make([]int32, 7), nil, model.WantNone))
	}
	round := func() {
		b, past := s.Branch(s.Len()), other.Branch(7)
		batch[0] = model.Segment{Rows: b, Tree: tr, Want: model.WantAll}
		batch[1] = model.Segment{Rows: past, Tree: tr, Want: model.WantLast}
		if _, err := m.Forward(ctx, batch); err != nil {
			t.Fatal(err)
		}
		past.Drop()
		if err := b.Commit(path); err != nil {
			t.Fatal(err)
		}
		if !recurrent {
			s.Truncate(40)
		}
	}
	warm := 3
	if recurrent {
		warm = 24 // then the sequence has the few earlier states that it keeps
	}
	for range warm {
		round()
	}
	if n := testing.AllocsPerRun(20, round); n != 0 {
		t.Errorf("%v allocations per pass, want none", n)
	}
}

func TestBadInputIsRefused(t *testing.T) {
	ctx := context.Background()
	dev := device(t, kern.Best(), 1)
	c := modeltest.Default()
	c.MaxPos = 20
	dir := modeltest.Random(t, c, 1)
	m := load(t, dir, dev, model.Default())
	s := m.NewSeq()
	if _, err := s.Append(ctx, make([]int32, 21), nil, model.WantNone); !errors.Is(err, model.ErrContext) {
		t.Errorf("21 tokens of 20: %v, want ErrContext", err)
	}
	if _, err := s.Append(ctx, []int32{97}, nil, model.WantNone); err == nil || !strings.Contains(err.Error(), "97") {
		t.Errorf("token 97 of 97: %v", err)
	}
	if _, err := s.Append(ctx, make([]int32, 20), nil, model.WantNone); err != nil {
		t.Errorf("20 tokens of 20: %v", err)
	}
	past := s.Branch(3)
	if err := past.Commit([]int{0}); err == nil {
		t.Error("a branch in the past was committed")
	}
	past.Drop()
	s.Truncate(10)
	b := s.Branch(10)
	if err := b.Commit([]int{0}); err == nil {
		t.Error("a node that has not run was committed")
	}
	tr := treeOf([]int32{1, 2, 3}, []int32{-1, 0, 0})
	must[*model.Output](t)(m.Forward(ctx, []model.Segment{{Rows: b, Tree: tr}}))
	if err := b.Commit([]int{0, 1, 2}); err == nil {
		t.Error("a path of siblings was committed")
	}
	b.Drop()
	stopped, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := s.Append(stopped, []int32{1}, nil, model.WantNone); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	s.Close()
	if used := m.KV().Used; used != 0 {
		t.Errorf("%d blocks in use after errors", used)
	}

	// Damaged files: each error names the file and the fault.
	weights := filepath.Join(dir, "model.safetensors")
	whole, err := os.ReadFile(weights)
	if err != nil {
		t.Fatal(err)
	}
	tensors := modeltest.Tensors(c.Spec(), false, 1)
	for _, bad := range []struct {
		name, want string
		write      func(path string) error
	}{
		{"truncated", "truncated", func(p string) error { return os.WriteFile(p, whole[:len(whole)-100], 0o644) }},
		{"half a header", "header", func(p string) error { return os.WriteFile(p, whole[:60], 0o644) }},
		{"a tensor missing", `no tensor "model.norm.weight"`, func(p string) error {
			var some []safetensors.Tensor
			for _, x := range tensors {
				if x.Name != "model.norm.weight" {
					some = append(some, x)
				}
			}
			return safetensors.WriteFile(p, nil, some...)
		}},
		{"another model's weights", "shape", func(p string) error {
			c := c
			c.Hidden = 48
			return safetensors.WriteFile(p, nil, modeltest.Tensors(c.Spec(), false, 1)...)
		}},
		{"a layer too many", "num_hidden_layers = 2", func(p string) error {
			c := c
			c.Layers = 3
			return safetensors.WriteFile(p, nil, modeltest.Tensors(c.Spec(), false, 1)...)
		}},
		{"no file", "model.safetensors", os.Remove},
	} {
		if err := bad.write(weights); err != nil {
			t.Fatal(err)
		}
		_, err := model.Load(dir, dev, model.Default())
		if err == nil || !strings.Contains(err.Error(), dir) || !strings.Contains(err.Error(), bad.want) {
			t.Errorf("%s: error %q, want it to name %s and %q", bad.name, err, dir, bad.want)
		}
	}
}

func TestHashIsOfTheWeights(t *testing.T) {
	dev := device(t, kern.Best(), 1)
	c := modeltest.Default()
	a := load(t, modeltest.Random(t, c, 1), dev, model.Default()).Identity().Tensors
	b := load(t, modeltest.Random(t, c, 1), dev, model.Default()).Identity().Tensors
	d := load(t, modeltest.Random(t, c, 2), dev, model.Default()).Identity().Tensors
	if a != b || a == d || len(a) != 64 {
		t.Errorf("hashes %s, %s of equal weights and %s of others", a, b, d)
	}
}
