package source_test

import (
	"context"
	"encoding/binary"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"

	"talf/compute/cpu"
	"talf/infer"
	"talf/infer/draft/search"
	"talf/infer/source"
	"talf/internal/golden"
	"talf/model"
	"talf/model/arch"
	"talf/model/head"
	"talf/model/modeltest"
	"talf/model/safetensors"
	"talf/tree"
)

// A file reads tensors of a golden file as float64, whatever their type.
type file struct {
	t *testing.T
	*safetensors.Set
}

func openFile(t *testing.T, path string) file {
	set, err := safetensors.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { set.Close() })
	return file{t, set}
}

func (f file) ints(name string) []int {
	x, err := f.Get(name)
	if err != nil {
		f.t.Fatal(err)
	}
	ids, err := x.Int32s()
	if err != nil {
		f.t.Fatal(err)
	}
	out := make([]int, len(ids))
	for i, v := range ids {
		out[i] = int(v)
	}
	return out
}

func (f file) tokens(name string) []int32 {
	var out []int32
	for _, v := range f.ints(name) {
		out = append(out, int32(v))
	}
	return out
}

func (f file) f64(name string) []float64 {
	x, err := f.Get(name)
	if err != nil {
		f.t.Fatal(err)
	}
	if x.DType != "F64" {
		f.t.Fatalf("%s is %s, want F64", name, x.DType)
	}
	out := make([]float64, len(x.Data)/8)
	for i := range out {
		out[i] = math.Float64frombits(binary.LittleEndian.Uint64(x.Data[8*i:]))
	}
	return out
}

func (f file) f32(name string) []float32 {
	x, err := f.Get(name)
	if err != nil {
		f.t.Fatal(err)
	}
	v, err := x.Float32s()
	if err != nil {
		f.t.Fatal(err)
	}
	return v
}

// eagleHead loads a reference head. Its target is only an embedding and an LM head; the random
// layers between them are never run.
func eagleHead(t *testing.T, dir string) *head.Head {
	t.Helper()
	spec, err := arch.LoadDraft(dir)
	if err != nil {
		t.Fatal(err)
	}
	ref := openFile(t, filepath.Join(dir, "target.safetensors"))
	ts := arch.Llama()
	ts.Vocab, ts.Hidden, ts.Layers, ts.Heads, ts.KVHeads = spec.Vocab, spec.Hidden, 1, spec.Heads, spec.KVHeads
	ts.HeadDim, ts.FFN, ts.MaxPos = spec.HeadDim, spec.FFN, spec.MaxPos
	tensors := modeltest.Tensors(ts, false, 1)
	for i := range tensors {
		if tensors[i].Name == "model.embed_tokens.weight" || tensors[i].Name == "lm_head.weight" {
			x, err := ref.Get(tensors[i].Name)
			if err != nil {
				t.Fatal(err)
			}
			tensors[i] = x
		}
	}
	dev, err := cpu.New(cpu.Default())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dev.Close() })
	target, err := model.New(ts, safetensors.Of("target", tensors...), dev, model.Default())
	if err != nil {
		t.Fatal(err)
	}
	h, err := head.Load(dir, target, head.Default())
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// A given chain is scored, with hidden states from a file.
type given struct {
	infer.Scores
	store *model.Store
}

func (g given) Hidden(n int) model.Feature { return g.store.At(n) }

// drive runs a search with the head after the given true inputs.
func drive(t *testing.T, h *head.Head, tokens []int32, features []float32, s search.Search) {
	t.Helper()
	n := len(tokens) - 1
	src := source.NewHead(h, 0)
	if err := src.Open(1, tokens, 0); err != nil {
		t.Fatal(err)
	}
	defer src.Close(1)
	store, err := h.NewInputStore(n)
	if err != nil {
		t.Fatal(err)
	}
	if err := store.Load(0, features); err != nil {
		t.Fatal(err)
	}
	chain, path := tree.New(tokens[0], n), []int{0}
	for i := 1; i < n; i++ {
		path = append(path, chain.Add(i-1, tokens[i]))
	}
	if err := src.Commit(1, infer.Proposal{Tree: chain}, infer.Verdict{Path: path, Next: tokens[n]}, given{store: store}); err != nil {
		t.Fatal(err)
	}
	s.Start(tokens[n], 1000)
	ran := 0
	for ask := s.Grow(nil); len(ask) > 0; {
		rows, err := src.Rows(context.Background(), []infer.Ask{{ID: 1, Tree: s.Work(), From: ran, Width: s.Width()}})
		if err != nil {
			t.Fatal(err)
		}
		ran = s.Work().Len()
		ask = s.Grow(rows)
	}
}

// nodes are the nodes of a tree as the golden files list them.
type nodes struct{ Tokens, Parents, Depths, Ranks []int }

func listed(t *tree.Tree, ranks []int) (n nodes) {
	for i := range t.Len() {
		n.Tokens = append(n.Tokens, int(t.Token(i)))
		n.Parents = append(n.Parents, t.Parent(i))
		n.Depths = append(n.Depths, t.Depth(i))
	}
	n.Ranks = ranks
	return n
}

func (f file) nodes(prefix string) nodes {
	return nodes{f.ints(prefix + "tokens"), f.ints(prefix + "parents"), f.ints(prefix + "depths"), f.ints(prefix + "ranks")}
}

// near compares sums of log-probabilities: f32 rows differ from the reference by
// about 1e-6 per level, and the smallest gap between two nodes is 3e-5.
func near(t *testing.T, what string, got, want []float64) {
	t.Helper()
	if len(got) != len(want) {
		t.Errorf("%s: %d values, want %d", what, len(got), len(want))
		return
	}
	for i := range got {
		if math.Abs(got[i]-want[i]) > 2e-5 {
			t.Errorf("%s %d: %v, want %v", what, i, got[i], want[i])
		}
	}
}

func TestTreesEqualTheReferenceNodeForNode(t *testing.T) {
	dir := golden.File(t, "reference/beam_tree")
	names, err := filepath.Glob(filepath.Join(dir, "*.safetensors"))
	if err != nil || len(names) == 0 {
		t.Fatalf("no trees in %s: %v", dir, err)
	}
	heads := map[string]*head.Head{}
	for _, name := range names {
		f := openFile(t, name)
		of := f.Metadata()["head"]
		h := heads[of]
		if h == nil {
			h = eagleHead(t, golden.File(t, "reference/eagle_head/"+of))
			heads[of] = h
		}
		t.Run(filepath.Base(name), func(t *testing.T) {
			f.t = t
			f.growsEqual(h, "features")
		})
	}
	if t.Failed() {
		return
	}
	if !slices.Contains(names, filepath.Join(dir, "bias_salf_N60_B10_th0.6.safetensors")) {
		t.Error("the paper's own setting is not among the trees")
	}
}

// growsEqual grows the tree of the file with its method and compares it with the file's, node for node.
// input names the tensor with what the head reads of its target.
func (f file) growsEqual(h *head.Head, input string) {
	f.t.Helper()
	t, meta := f.t, f.Metadata()
	num := func(key string) int {
		n, err := strconv.Atoi(meta[key])
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	tokens, features := f.tokens("token_ids"), f.f32(input)
	if meta["method"] == "beam" {
		b, err := search.NewBeam(search.BeamConfig{N: num("total_tokens"), K: num("top_k"), Depth: num("depth")})
		if err != nil {
			t.Fatal(err)
		}
		drive(t, h, tokens, features, b)
		if d := cmp.Diff(f.nodes(""), listed(b.Tree(), b.Ranks())); d != "" {
			t.Errorf("(-reference +got)\n%s", d)
		}
		near(t, "log V", b.LogV(), f.f64("scores"))
		return
	}
	th, err := strconv.ParseFloat(meta["th"], 64)
	if err != nil {
		t.Fatal(err)
	}
	for finish, prefix := range []string{"topn.", "fill.", "literal."} {
		if _, ok := f.Tensor(prefix + "tokens"); !ok && prefix == "topn." {
			prefix = "fill." // the file has one copy if the two agree
		}
		s, err := search.NewSALF(search.SALFConfig{N: num("N"), B: num("B"), Th: th, Finish: search.Finish(finish)})
		if err != nil {
			t.Fatal(err)
		}
		drive(t, h, tokens, features, s)
		if d := cmp.Diff(f.nodes(prefix), listed(s.Tree(), s.Ranks())); d != "" {
			t.Errorf("%s (-reference +got)\n%s", prefix, d)
		}
		near(t, prefix+"log V", s.LogV(), f.f64(prefix+"scores"))
		near(t, "S", s.Sums(), f.f64("S"))
		rounds := f.ints("expanded_per_round")
		var expanded int
		for _, n := range rounds {
			expanded += n
		}
		if s.Work().Len() != expanded || len(s.Sums()) != len(rounds)+1 {
			t.Errorf("%d nodes expanded in %d rounds, want %d in %d", s.Work().Len(), len(s.Sums())-1, expanded, len(rounds))
		}
	}
}
