package source_test

import (
	"context"
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
	"talf/model/draftvocab"
	"talf/model/head"
	"talf/model/modeltest"
	"talf/tree"
)

// The networks of heads that tests run: EAGLE-1's, EAGLE-3's with an LM head of its own or rows of
// the target's, and a block drafter with those.
var networks = map[string]func(target *arch.Spec) *arch.Spec{
	"EAGLE": func(target *arch.Spec) *arch.Spec { return target.DraftFor(false) },
	"EAGLE-3": func(target *arch.Spec) *arch.Spec {
		return target.Eagle3For([]int{target.Layers, 0, 1}, 0)
	},
	"EAGLE-3 with the target's LM head": func(target *arch.Spec) *arch.Spec {
		s := target.Eagle3For([]int{0, target.Layers}, 0)
		s.Eagle3.TargetLMHead, s.Eagle3.NormOutput, s.Eagle3.FCNorm, s.Layers = true, true, true, 2
		return s
	},
	"block": func(target *arch.Spec) *arch.Spec {
		return target.BlockFor(arch.Block{Size: 4, Taps: []int{1, 0}, Mask: 1, Shift: true, Markov: arch.GatedMarkov, Rank: 5}, 2, 0)
	},
	"linear block": func(target *arch.Spec) *arch.Spec {
		return target.BlockFor(arch.Block{Size: 4, Taps: []int{target.Layers}, Shift: true, Linear: true, Markov: arch.VanillaMarkov, Rank: 5}, 0, 0)
	},
}

// sourceOf returns a head as a source that keeps no sequences.
func sourceOf(h *head.Head) infer.Source {
	if h.Spec().Block.On {
		return source.NewBlock(h, 0)
	}
	return source.NewHead(h, 0)
}

// narrow returns a random target of vocab tokens and a head that predicts only ids.
func narrow(t testing.TB, network string, vocab int, ids []int32, seed uint64) (*model.Model, *head.Head) {
	t.Helper()
	dev, err := cpu.New(cpu.Config{Class: cpu.Default().Class, Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dev.Close() })
	conf := modeltest.Default()
	conf.Vocab, conf.EOS = vocab, -1
	target, err := model.Load(modeltest.Random(t, conf, seed), dev, model.Default())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { target.Close() })
	spec := networks[network](target.Spec())
	spec.DraftVocab = len(ids)
	h, err := head.FromTensors(spec, target, head.Default(), append(draftvocab.Tensors(ids, vocab), modeltest.Tensors(spec, false, seed)[1:]...)...)
	if err != nil {
		t.Fatal(err)
	}
	return target, h
}

// rowsOf runs a head as a source on a text of two tokens, and returns its distributions by
// path, root first.
func rowsOf(t testing.TB, target *model.Model, h *head.Head, root int32, depth int) verifytest.Rows {
	t.Helper()
	ctx, vocab := context.Background(), target.Spec().Vocab
	text := []int32{1, root}
	src := sourceOf(h)
	if err := src.Open(1, text, 0); err != nil {
		t.Fatal(err)
	}
	seq := target.NewSeq()
	defer seq.Close()
	o, err := seq.Append(ctx, text[:1], nil, model.WantNone)
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
	if err := src.Commit(1, infer.Proposal{Tree: tree.New(1, 1)}, infer.Verdict{Path: []int{0}, Next: root}, given{store: store}); err != nil {
		t.Fatal(err)
	}
	work := tree.New(root, 200)
	var dists []infer.Dist
	for from := 0; from < work.Len(); {
		rows, err := src.Rows(ctx, []infer.Ask{{ID: 1, Tree: work, From: from, Width: vocab, Full: true}})
		if err != nil {
			t.Fatal(err)
		}
		n := work.Len()
		for _, r := range rows {
			if len(r.Logits) != vocab || len(r.Tokens) != h.Outputs() {
				t.Fatalf("%d logits and %d tokens, want %d and %d", len(r.Logits), len(r.Tokens), vocab, h.Outputs())
			}
			d, sum := make(infer.Dist, vocab), 0.0
			for i, x := range r.Logits {
				d[i] = math.Exp(float64(x))
				sum += d[i]
			}
			for i := range d {
				d[i] /= sum
			}
			for i, id := range r.Tokens {
				if !slices.Contains(h.DraftVocab(), id) || math.Abs(math.Log(d[id])-float64(r.LogProb[i])) > 1e-5 {
					t.Fatalf("token %d has probability %v by its logits and %v by its row", id, d[id], math.Exp(float64(r.LogProb[i])))
				}
			}
			dists = append(dists, d)
		}
		for at := from; at < n && work.Depth(at) < depth; at++ {
			for x := range int32(vocab) {
				work.Add(at, x)
			}
		}
		from = n
	}
	return func(path []int32) infer.Dist {
		at := 0
		for _, x := range path[1:] {
			at = work.Child(at, x)
		}
		return dists[at]
	}
}

// Tokens outside a draft vocabulary have probability 0 in the distributions that children are
// drawn from, and every verifier stays lossless: all outcomes of the production drafters on the
// rows of a production head are enumerated.
func TestVerifiersAreLosslessUnderADraftVocabulary(t *testing.T) {
	for name := range networks {
		t.Run(name, func(t *testing.T) { losslessUnderADraftVocabulary(t, name) })
	}
}

func losslessUnderADraftVocabulary(t *testing.T, network string) {
	rows := map[int]verifytest.Rows{}
	inside := map[int][]int32{2: {1}, 3: {0, 2}, 4: {1, 3}}
	for vocab, ids := range inside {
		target, h := narrow(t, network, vocab, ids, uint64(vocab))
		rows[vocab] = rowsOf(t, target, h, 0, 3)
	}
	drafted := 0
	over := func(s verifytest.Scheme) verifytest.Scheme {
		grow := s.Grow
		s.Grow = func(p *infer.Proposal, q verifytest.Rows, c infer.Chance, rng *rand.Rand) {
			vocab := len(q([]int32{p.Tree.Token(0)}))
			grow(p, rows[vocab], c, rng)
			for n := 1; n < p.Tree.Len(); n++ {
				if drafted++; !slices.Contains(inside[vocab], p.Tree.Token(n)) {
					t.Fatalf("%s drafts token %d of %d, outside %v", s.Name, p.Tree.Token(n), vocab, inside[vocab])
				}
			}
		}
		return s
	}
	cases := 40
	if testing.Short() {
		cases = 8
	}
	pairs := 0
	for _, m := range verify.Methods() {
		if m.Greedy {
			continue
		}
		for _, s := range []verifytest.Scheme{
			verifytest.Drafting("linear:K=3,draw=distinct"), verifytest.Drafting("static:kary-3-2,draw=distinct"),
			verifytest.Drafting("static:binary-2,draw=repeated"),
			verifytest.Drawn("trees drawn without replacement", infer.Distinct, false),
		} {
			if !m.Fits(s.Draw, s.Chain) {
				continue
			}
			pairs++
			if err := verifytest.Check(m.New, over(s), false, cases); err != nil {
				t.Errorf("%s: %v", m.Name, err)
			}
		}
	}
	if pairs < 5 || drafted == 0 {
		t.Errorf("%d pairs, %d drafted tokens: too little was tested", pairs, drafted)
	}
}

// Greedy text is the target's own, whatever the head cannot predict.
func TestGreedyTextUnderADraftVocabularyIsPlain(t *testing.T) {
	for name := range networks {
		t.Run(name, func(t *testing.T) { greedyUnderADraftVocabulary(t, name) })
	}
}

func greedyUnderADraftVocabulary(t *testing.T, network string) {
	const vocab = 97
	var ids []int32
	for id := int32(0); id < vocab; id += 3 {
		ids = append(ids, id)
	}
	target, h := narrow(t, network, vocab, ids, 5)
	e := &infer.Engine{Target: infer.NewTarget(target, 0), Config: infer.Config{PrefillChunk: 8, MaxNodes: 32}}
	outside, accepted := 0, 0
	for seed := range uint64(6) {
		rng := rand.New(rand.NewPCG(seed, 3))
		prompt := make([]int32, 3+rng.IntN(6))
		for i := range prompt {
			prompt[i] = rng.Int32N(vocab)
		}
		req := infer.Request{Prompt: prompt, MaxTokens: 40, Verifier: new(verify.Greedy), Processor: drafttest.Plain{}}
		plain, err := e.Generate(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		for _, spec := range []string{"salf:N=14,B=3,th=0", "beam:N=12,k=3,depth=3"} {
			d, _, err := draft.New(spec)
			if err != nil {
				t.Fatal(err)
			}
			req.Source, req.Verifier, req.Drafter = sourceOf(h), new(verify.Greedy), d
			got, err := e.Generate(t.Context(), req)
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(got.Tokens(), plain.Tokens()) {
				t.Errorf("seed %d, %s: %v, plain %v", seed, spec, got.Tokens(), plain.Tokens())
			}
			st := got.Stats()
			accepted += st.Tokens - st.Passes
		}
		for _, x := range plain.Tokens() {
			if !slices.Contains(ids, x) {
				outside++
			}
		}
	}
	if outside == 0 {
		t.Error("the head could predict all of the text")
	}
	t.Logf("%d tokens outside the draft vocabulary, %d drafted ones accepted", outside, accepted)
}
