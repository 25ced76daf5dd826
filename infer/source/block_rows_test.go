package source_test

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"talf/compute/cpu"
	"talf/infer"
	"talf/infer/draft"
	"talf/infer/draft/drafttest"
	"talf/infer/source"
	"talf/infer/verify"
	"talf/infer/verify/verifytest"
	"talf/model"
	"talf/model/arch"
	"talf/model/head"
	"talf/model/modeltest"
	"talf/tree"
)

// A blockMirror compares every row of a block drafter with what the head says of the whole text at once, on networks of its
// own.
type blockMirror struct {
	t      *testing.T
	inner  *source.Block
	target *model.Model
	head   *head.Head
	tokens map[infer.SeqID][]int32
	asked  int
	stumble
}

func (w *blockMirror) Match(prompt []int32) int   { return w.inner.Match(prompt) }
func (w *blockMirror) Close(id infer.SeqID)       { w.inner.Close(id) }
func (*blockMirror) Abilities() infer.Abilities   { return infer.Abilities{} }
func (w *blockMirror) Backlog(id infer.SeqID) int { return w.inner.Backlog(id) }
func (w *blockMirror) Open(id infer.SeqID, prompt []int32, keep int) error {
	w.tokens[id] = slices.Clone(prompt[:keep+1])
	return w.inner.Open(id, prompt, keep)
}

func (w *blockMirror) Commit(id infer.SeqID, p infer.Proposal, v infer.Verdict, s infer.Scores) error {
	for _, n := range v.Path[1:] {
		w.tokens[id] = append(w.tokens[id], p.Tree.Token(n))
	}
	w.tokens[id] = append(w.tokens[id], v.Next)
	return w.inner.Commit(id, p, v, s)
}

func (w *blockMirror) Rows(ctx context.Context, asks []infer.Ask) ([]infer.Row, error) {
	rows, err := w.inner.Rows(w.stumble.pass(ctx), asks)
	if err != nil {
		return nil, err
	}
	at := 0
	for _, a := range asks {
		if a.Tree == nil {
			continue
		}
		text := w.tokens[a.ID]
		if text[len(text)-1] != a.Tree.Token(0) {
			w.t.Fatalf("the root is %d after a text that ends with %d", a.Tree.Token(0), text[len(text)-1])
		}
		state, out := w.block(text)
		for n := a.From; n < a.Tree.Len(); n++ {
			r := rows[at]
			at++
			path := pathOf(a.Tree, n)
			if len(path) > w.head.Spec().Block.Drafts() || state == nil {
				if len(r.Tokens) != 0 || len(r.Logits) != 0 {
					w.t.Fatalf("a row of %d tokens at depth %d, where the block predicts nothing", len(r.Tokens), len(path)-1)
				}
				continue
			}
			want := w.row(state, out, path)
			if a.Full && !slices.Equal(r.Logits, want) {
				w.t.Fatalf("other logits after %v than of the whole text", path)
			}
			for i, id := range r.Tokens {
				if i > 0 && want[id] > want[r.Tokens[i-1]] || math.IsInf(float64(want[id]), 0) || i == 0 && want[id] != slices.Max(want) {
					w.t.Fatalf("after %v: tokens %v, with logits out of order", path, r.Tokens)
				}
			}
			w.asked++
		}
	}
	return rows, nil
}

func pathOf(t *tree.Tree, n int) (path []int32) {
	for _, m := range t.AppendPath(nil, n) {
		path = append(path, t.Token(m))
	}
	return path
}

// block runs the block after a text; nil if the head has no positions for it.
func (w *blockMirror) block(text []int32) (*model.BlockState, *model.Output) {
	context := text[:len(text)-1]
	if len(context)+w.head.Spec().Block.Size > w.head.Spec().MaxPos {
		return nil, nil
	}
	g := model.BlockSegment{Seq: w.head.NewSeq(), Anchor: text[len(text)-1]}
	defer g.Seq.Close()
	if len(context) > 0 {
		seq := w.target.NewSeq()
		defer seq.Close()
		out, err := seq.Append(w.t.Context(), context, nil, model.WantNone)
		w.check(err)
		for i := range context {
			g.Feat = append(g.Feat, out.Feature(0, i))
		}
	}
	out, err := w.head.ForwardBlocks(w.t.Context(), []model.BlockSegment{g})
	w.check(err)
	s, err := w.head.NewBlockState()
	w.check(err)
	out.Keep(0, s)
	return s, out
}

// row returns the logits after a path.
func (w *blockMirror) row(s *model.BlockState, out *model.Output, path []int32) []float32 {
	x := &w.head.Spec().Block
	vocab, d := w.head.Spec().Vocab, len(path)-1
	row := make([]float32, vocab)
	if k := x.SelectorTop; k > 0 {
		ids, scores := make([]int32, k), make([]float32, k)
		out.TopK(ids, scores, d, 1, k)
		w.check(w.head.SelectAfter(w.t.Context(), []model.After{{Block: s, Depth: d, Token: path[d]}}, ids, scores))
		for i := range row {
			row[i] = float32(math.Inf(-1))
		}
		for i, id := range ids {
			row[id] = scores[i]
		}
		return row
	}
	var before []float32
	for depth, token := range path {
		at := []model.After{{Block: s, Depth: depth, Token: token, Before: before, State: make([]float32, x.Rank)}}
		o, err := w.head.ForwardAfter(w.t.Context(), at)
		w.check(err)
		if before = at[0].State; depth == d {
			o.ReadLogits(row, 0)
		}
	}
	return row
}

func (w *blockMirror) check(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// Every method that asks a draft model writes plain decoding's text with block drafters, in batches whose sequences begin and
// end at different times and share prefixes, and although passes are cancelled.
func TestBlockTextIsPlain(t *testing.T) {
	methods := []string{
		"linear:K=5", "static:medusa", "static:binary-3,draw=distinct", "beam:N=12,k=3,depth=4", "optimal:N=14,B=3", "salf:N=14,B=3,th=0",
		"jetspec:N=14,k=3", "dynatree", "sequoia", "auto",
	}
	for _, name := range []string{"dflash/a", "dflash2/a", "dspark/a", "dspark/b", "jetspec/b", "small"} {
		t.Run(name, func(t *testing.T) {
			nets := func() (*model.Model, *head.Head) { return blockNets(t, name, model.Default()) }
			if name == "small" {
				nets = func() (*model.Model, *head.Head) { return smallBlock(t, 97, 40) }
			}
			target, h := nets()
			otherTarget, other := nets()
			rng := rand.New(rand.NewPCG(3, 1))
			some := methods
			if testing.Short() {
				some = []string{methods[rng.IntN(len(methods))], methods[rng.IntN(len(methods))]}
			}
			asked, accepted := 0, 0
			for _, method := range some {
				w := &blockMirror{t: t, inner: source.NewBlock(h, 4), target: otherTarget, head: other, tokens: map[infer.SeqID][]int32{}}
				w.rng = rng
				accepted += w.decode(target, method, rng)
				asked += w.asked
			}
			t.Logf("%d rows, %d drafted tokens accepted", asked, accepted)
			if asked < 100 || accepted < 1 {
				t.Errorf("%d rows, %d drafted tokens accepted: too little was tested", asked, accepted)
			}
		})
	}
}

// decode decodes some prompts with a method and compares them with plain decoding. It returns how many drafted tokens were
// accepted.
func (w *blockMirror) decode(target *model.Model, method string, rng *rand.Rand) (accepted int) {
	t, vocab := w.t, target.Spec().Vocab
	e := &infer.Engine{Target: infer.NewTarget(target, 4), Config: infer.Config{PrefillChunk: 5, MaxNodes: 24}}
	var running []*infer.Sequence
	want := map[*infer.Sequence][]int32{}
	first := make([]int32, 12)
	for i := range first {
		first[i] = rng.Int32N(int32(vocab))
	}
	for started := 0; started < 6 || len(running) > 0; {
		if started < 6 && len(running) < 3 {
			prompt := append(slices.Clone(first[:1+rng.IntN(len(first))]), rng.Int32N(int32(vocab)))
			if started == 0 {
				prompt = prompt[:1] // its first block has no context
			}
			mk, _, err := draft.Open(method, draft.Env{Vocab: vocab, Source: true})
			w.check(err)
			req := infer.Request{Prompt: prompt, MaxTokens: 10 + rng.IntN(20), NoEOS: true, Verifier: new(verify.Greedy), Processor: drafttest.Plain{}}
			plain, err := (&infer.Engine{Target: infer.NewTarget(target, 0), Config: infer.Config{PrefillChunk: 64, MaxNodes: 2}}).Generate(t.Context(), req)
			w.check(err)
			req.Verifier, req.Drafter, req.Source = new(verify.Greedy), mk.New(), w
			s, err := e.Open(req)
			w.check(err)
			want[s] = plain.Tokens()
			running = append(running, s)
			started++
		}
		_ = w.stumble.step(t.Context(), e, running) // a cancelled step is repeated
		running = slices.DeleteFunc(running, func(s *infer.Sequence) bool {
			if _, done := s.Done(); !done {
				return false
			}
			if !slices.Equal(s.Tokens(), want[s]) || s.Err() != nil {
				t.Errorf("%s: %v, %v; plain %v", method, s.Tokens(), s.Err(), want[s])
			}
			accepted += s.Stats().Tokens - s.Stats().Passes
			e.Close(s)
			return true
		})
	}
	return accepted
}

// smallBlock returns a random target of a vocabulary and a block drafter with a recurrent Markov head and half of it, for texts of so
// many tokens.
func smallBlock(t testing.TB, vocab, positions int) (*model.Model, *head.Head) {
	t.Helper()
	dev, err := cpu.New(cpu.Config{Class: cpu.Default().Class, Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dev.Close() })
	conf := modeltest.Default()
	conf.Vocab, conf.EOS = vocab, -1
	target, err := model.Load(modeltest.Random(t, conf, 9), dev, model.Default())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { target.Close() })
	b := arch.Block{Size: 4, Taps: []int{1, 0}, Mask: 1, Shift: true, Markov: arch.RNNMarkov, Rank: 6, Causal: []bool{true, false}}
	spec := target.Spec().BlockFor(b, 2, 0)
	spec.MaxPos, spec.Windows = positions, []int{6, 3}
	ts := modeltest.Tensors(spec, false, uint64(vocab))
	h, err := head.FromTensors(spec, target, head.Default(), ts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.Close() })
	return target, h
}

// All outcomes of verifiers over trees drawn from a block drafter, whose distributions depend on all drafted tokens above, are
// enumerated: the output follows the target.
func TestVerifiersAreLosslessUnderBlockDrafters(t *testing.T) {
	rows := map[int]verifytest.Rows{}
	for _, vocab := range []int{2, 3, 4} {
		target, h := smallBlock(t, vocab, 64)
		rows[vocab] = blockRows(t, target, h)
	}
	cases := 24
	if testing.Short() {
		cases = 6
	}
	for _, p := range [][2]string{
		{"rrs", "static:binary-2,draw=repeated"},
		{"rrsw", "static:kary-3-2,draw=distinct"},
		{"traversal", "static:kary-3-2,draw=distinct"},
		{"block", "linear:K=2,draw=distinct"},
		{"target", "static:binary-2"},
	} {
		s := verifytest.Drafting(p[1])
		grow := s.Grow
		s.Grow = func(prop *infer.Proposal, q verifytest.Rows, c infer.Chance, rng *rand.Rand) {
			grow(prop, rows[len(q([]int32{prop.Tree.Token(0)}))], c, rng)
		}
		if err := verifytest.Check(func() infer.Verifier {
			v, err := verify.New(p[0], 1)
			if err != nil {
				t.Fatal(err)
			}
			return v
		}, s, false, cases); err != nil {
			t.Errorf("%v: %v", p, err)
		}
	}
}

// blockRows returns the distributions that a head has as a source after a text of one token, by path.
func blockRows(t *testing.T, target *model.Model, h *head.Head) verifytest.Rows {
	seq := target.NewSeq()
	defer seq.Close()
	o, err := seq.Append(t.Context(), []int32{1}, nil, model.WantNone)
	if err != nil {
		t.Fatal(err)
	}
	store, err := h.NewInputStore(1)
	if err != nil {
		t.Fatal(err)
	}
	if err := store.Put(0, o.Feature(0, 0)); err != nil {
		t.Fatal(err)
	}
	known := map[string]infer.Dist{}
	src, id := source.NewBlock(h, 0), infer.SeqID(0)
	return func(path []int32) infer.Dist {
		key := fmt.Sprint(path)
		if d := known[key]; d != nil {
			return d
		}
		id++
		if err := src.Open(id, []int32{1, path[0]}, 0); err != nil {
			t.Fatal(err)
		}
		defer src.Close(id)
		if err := src.Commit(id, infer.Proposal{Tree: tree.New(1, 1)}, infer.Verdict{Path: []int{0}, Next: path[0]}, given{store: store}); err != nil {
			t.Fatal(err)
		}
		work := tree.New(path[0], 8)
		for i, token := range path[1:] {
			work.Add(i, token)
		}
		rows, err := src.Rows(context.Background(), []infer.Ask{{ID: id, Tree: work, Width: 1, Full: true}})
		if err != nil {
			t.Fatal(err)
		}
		logits := rows[len(path)-1].Logits
		d, sum := make(infer.Dist, len(logits)), 0.0
		for i, x := range logits {
			d[i] = math.Exp(float64(x))
			sum += d[i]
		}
		for i := range d {
			d[i] /= sum
		}
		known[key] = d
		return d
	}
}
