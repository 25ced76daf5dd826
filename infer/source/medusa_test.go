package source_test

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	reader "talf/checkpoints/medusa"
	"talf/compute/cpu"
	"talf/infer"
	"talf/infer/draft"
	"talf/infer/draft/drafttest"
	"talf/infer/source"
	"talf/infer/verify"
	"talf/infer/verify/verifytest"
	"talf/internal/golden"
	"talf/model"
	"talf/model/medusa"
	"talf/model/modeltest"
	"talf/model/safetensors"
	"talf/tree"
)

// randomHeads returns a random target and random Medusa heads of one block for it.
func randomHeads(t testing.TB, conf modeltest.Config, heads int, seed uint64) (*model.Model, *medusa.Heads) {
	t.Helper()
	dev, err := cpu.New(cpu.Config{Class: cpu.Default().Class, Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dev.Close() })
	target, err := model.Load(modeltest.Random(t, conf, seed), dev, model.Default())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { target.Close() })
	s := medusa.Spec{Heads: heads, Layers: 1, Hidden: conf.Hidden, Vocab: conf.Vocab}
	rng := rand.New(rand.NewPCG(seed, 5))
	var ts []safetensors.Tensor
	add := func(name string, scale float64, shape ...int) {
		n := 1
		for _, x := range shape {
			n *= x
		}
		x := make([]float32, n)
		for i := range x {
			x[i] = float32(scale * rng.NormFloat64())
		}
		ts = append(ts, safetensors.F32(name, x, shape...))
	}
	for h := range heads {
		add(s.Weight(h, 0), 0.2, s.Hidden, s.Hidden)
		add(s.Bias(h, 0), 0.2, s.Hidden)
		add(s.LMHead(h), 0.6, s.Vocab, s.Hidden)
	}
	h, err := medusa.New(s, safetensors.Of("random heads", ts...), target)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.Close() })
	return target, h
}

// The authors' code decodes the same: with the heads of the golden, the tree of every round has its
// nodes in its order, as many are accepted, and the text is the same.
func TestMedusaDecodingIsTheAuthors(t *testing.T) {
	dev, err := cpu.New(cpu.Default())
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	target, err := model.Load(golden.File(t, "eagle3/targets/llama"), dev, model.Default())
	if err != nil {
		t.Fatal(err)
	}
	defer target.Close()
	dir := golden.File(t, "medusa")
	h, err := reader.Load(dir, target)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	f := openFile(t, dir+"/golden.safetensors")
	prompt, ids := f.tokens("prompt"), f.tokens("ids")
	roots, accepted, tokens, parents := f.ints("root_positions"), f.ints("accepted"), f.ints("tokens"), f.ints("parents")
	size := len(tokens) / len(roots)
	d, _, err := draft.New("static:medusa")
	if err != nil {
		t.Fatal(err)
	}
	round, drafted := 0, 0
	e := &infer.Engine{Target: infer.NewTarget(target, 0), Config: infer.Default()}
	s, err := e.Generate(t.Context(), infer.Request{
		Prompt: prompt, MaxTokens: len(ids) - len(prompt) + 8, NoEOS: true, Source: source.NewMedusa(h), Drafter: d,
		Verifier: new(verify.Greedy), Processor: drafttest.Plain{},
		Trace: func(r infer.Round) error {
			if round >= len(roots) {
				return nil
			}
			var got nodes
			for n := range r.Proposal.Tree.Len() {
				got.Tokens = append(got.Tokens, int(r.Proposal.Tree.Token(n)))
				got.Parents = append(got.Parents, r.Proposal.Tree.Parent(n))
			}
			if d := cmp.Diff(nodes{Tokens: tokens[round*size:][:size], Parents: parents[round*size:][:size]}, got); d != "" {
				t.Errorf("round %d (-authors +got)\n%s", round, d)
			}
			if r.Proposal.Pos != roots[round] || len(r.Verdict.Path)-1 != accepted[round] {
				t.Errorf("round %d: root at %d, %d accepted, want %d and %d", round, r.Proposal.Pos, len(r.Verdict.Path)-1, roots[round], accepted[round])
			}
			drafted += accepted[round]
			round++
			return nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	text := slices.Concat(prompt, s.Tokens())
	if round != len(roots) || drafted == 0 || !slices.Equal(text[:len(ids)], ids) {
		t.Errorf("%d rounds of %d, %d tokens accepted; text %v, want %v", round, len(roots), drafted, text, ids)
	}
}

// A watched source compares every row with that of another source, which has heard only of the state
// before the root and answers one node at a time.
type watched struct {
	t     *testing.T
	inner *source.Medusa
	m     *medusa.Heads
	state map[infer.SeqID]*model.Store
	asked int
	stumble
}

func (w *watched) Match(prompt []int32) int { return w.inner.Match(prompt) }
func (w *watched) Close(id infer.SeqID)     { w.inner.Close(id); delete(w.state, id) }

func (*watched) Abilities() infer.Abilities { return infer.Abilities{} }

func (w *watched) Backlog(id infer.SeqID) int { return w.inner.Backlog(id) }
func (w *watched) Open(id infer.SeqID, prompt []int32, keep int) error {
	return w.inner.Open(id, prompt, keep)
}

func (w *watched) Commit(id infer.SeqID, p infer.Proposal, v infer.Verdict, s infer.Scores) error {
	st, err := w.m.Target().NewStore(1)
	if err != nil {
		w.t.Fatal(err)
	}
	if err := st.Put(0, s.Hidden(v.Path[len(v.Path)-1])); err != nil {
		w.t.Fatal(err)
	}
	w.state[id] = st
	return w.inner.Commit(id, p, v, s)
}

func (w *watched) Rows(ctx context.Context, asks []infer.Ask) ([]infer.Row, error) {
	rows, err := w.inner.Rows(w.stumble.pass(ctx), asks)
	if err != nil {
		return nil, err
	}
	spec := w.m.Spec()
	at := 0
	for _, a := range asks {
		for n := a.From; n < a.Tree.Len(); n++ {
			r := rows[at]
			at++
			head, st := a.Tree.Depth(n), w.state[a.ID]
			if st == nil || head >= spec.Heads {
				if len(r.Tokens) != 0 || len(r.Logits) != 0 {
					w.t.Fatalf("a row of %d tokens at depth %d, where no head predicts", len(r.Tokens), head)
				}
				continue
			}
			logits := make([]float32, spec.Vocab)
			w.read(st, head, logits)
			if a.Full && !slices.Equal(r.Logits, logits) {
				w.t.Fatalf("other logits at depth %d than alone", head)
			}
			var sum float64
			for _, x := range logits {
				sum += math.Exp(float64(x))
			}
			k := min(a.Width, spec.Vocab)
			order := make([]int32, spec.Vocab)
			for i := range order {
				order[i] = int32(i)
			}
			slices.SortStableFunc(order, func(x, y int32) int { return cmpFloat(logits[y], logits[x]) })
			if !slices.Equal(r.Tokens, order[:k]) {
				w.t.Fatalf("depth %d: tokens %v, want %v", head, r.Tokens, order[:k])
			}
			for i, id := range r.Tokens {
				if want := float64(logits[id]) - math.Log(sum); math.Abs(want-float64(r.LogProb[i])) > 1e-4 {
					w.t.Fatalf("depth %d: token %d has log probability %v, want %v", head, id, r.LogProb[i], want)
				}
			}
			w.asked++
		}
	}
	return rows, nil
}

func cmpFloat(x, y float32) int {
	switch {
	case x < y:
		return -1
	case x > y:
		return 1
	}
	return 0
}

// read runs a head by itself, on the heads that the source uses, whose rows it has read.
func (w *watched) read(st *model.Store, head int, logits []float32) {
	if err := w.m.Forward(context.Background(), []medusa.Row{{Head: head, State: st.At(0)}}); err != nil {
		w.t.Fatal(err)
	}
	w.m.Logits(logits, 0)
}

// Every method that asks a draft model writes plain decoding's text with Medusa heads, in batches whose
// sequences begin and end at different times and share prefixes, and although passes are cancelled.
func TestMedusaTextIsPlain(t *testing.T) {
	conf := modeltest.Default()
	conf.EOS = -1
	target, h := randomHeads(t, conf, 3, 9)
	methods := []string{
		"linear:K=5", "static:medusa", "static:binary-3,draw=distinct", "beam:N=12,k=3,depth=4", "optimal:N=14,B=3", "salf:N=14,B=3,th=0",
		"dynatree", "fixed", "sequoia", "auto",
	}
	if testing.Short() {
		methods = methods[1:6]
	}
	rng := rand.New(rand.NewPCG(3, 1))
	var asked, accepted int
	for _, method := range methods {
		w := &watched{t: t, inner: source.NewMedusa(h), m: h, state: map[infer.SeqID]*model.Store{}}
		w.rng = rng
		e := &infer.Engine{Target: infer.NewTarget(target, 4), Config: infer.Config{PrefillChunk: 5, MaxNodes: 24}}
		var running []*infer.Sequence
		want := map[*infer.Sequence][]int32{}
		first := make([]int32, 12)
		for i := range first {
			first[i] = rng.Int32N(int32(conf.Vocab))
		}
		for started := 0; started < 6 || len(running) > 0; {
			if started < 6 && len(running) < 3 {
				prompt := slices.Clone(first[:1+rng.IntN(len(first))])
				prompt = append(prompt, rng.Int32N(int32(conf.Vocab)))
				if started == 0 {
					prompt = prompt[:1] // its first root has no state before it
				}
				mk, _, err := draft.Open(method, draft.Env{Vocab: conf.Vocab, Source: true})
				if err != nil {
					t.Fatal(err)
				}
				req := infer.Request{Prompt: prompt, MaxTokens: 10 + rng.IntN(20), NoEOS: true, Verifier: new(verify.Greedy), Processor: drafttest.Plain{}}
				plain, err := (&infer.Engine{Target: infer.NewTarget(target, 0), Config: infer.Config{PrefillChunk: 64, MaxNodes: 2}}).Generate(t.Context(), req)
				if err != nil {
					t.Fatal(err)
				}
				req.Verifier, req.Drafter, req.Source = new(verify.Greedy), mk.New(), w
				s, err := e.Open(req)
				if err != nil {
					t.Fatal(err)
				}
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
		asked += w.asked
	}
	t.Logf("%d rows, %d drafted tokens accepted", asked, accepted)
	if asked < 100 || accepted < 1 {
		t.Errorf("%d rows, %d drafted tokens accepted: too little was tested", asked, accepted)
	}
}

// All outcomes of verifiers over trees drawn from Medusa heads, whose distributions do not depend on
// the drafted tokens, are enumerated: the output follows the target.
func TestVerifiersAreLosslessUnderMedusaHeads(t *testing.T) {
	rows := map[int]verifytest.Rows{}
	for _, vocab := range []int{2, 3, 4} {
		conf := modeltest.Default()
		conf.Vocab, conf.EOS = vocab, -1
		target, h := randomHeads(t, conf, 2, uint64(vocab))
		rows[vocab] = medusaRows(t, target, h)
	}
	cases := 24
	if testing.Short() {
		cases = 6
	}
	for _, p := range [][2]string{{"rrs", "static:binary-2,draw=repeated"}, {"traversal", "static:kary-3-2,draw=distinct"}, {"target", "static:binary-2"}} {
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

// medusaRows returns the distributions that heads have as a source after a text, by path.
func medusaRows(t *testing.T, target *model.Model, h *medusa.Heads) verifytest.Rows {
	t.Helper()
	seq := target.NewSeq()
	defer seq.Close()
	o, err := seq.Append(t.Context(), []int32{1}, nil, model.WantNone)
	if err != nil {
		t.Fatal(err)
	}
	store, err := target.NewStore(1)
	if err != nil {
		t.Fatal(err)
	}
	if err := store.Put(0, o.Feature(0, 0)); err != nil {
		t.Fatal(err)
	}
	src := source.NewMedusa(h)
	if err := src.Open(1, []int32{1, 0}, 0); err != nil {
		t.Fatal(err)
	}
	if err := src.Commit(1, infer.Proposal{Tree: tree.New(1, 1)}, infer.Verdict{Path: []int{0}}, given{store: store}); err != nil {
		t.Fatal(err)
	}
	var dists []infer.Dist
	work := tree.New(0, 8)
	for d := range h.Spec().Heads {
		got, err := src.Rows(t.Context(), []infer.Ask{{ID: 1, Tree: work, From: d, Width: 1, Full: true}})
		if err != nil {
			t.Fatal(err)
		}
		dist, sum := make(infer.Dist, len(got[0].Logits)), 0.0
		for i, x := range got[0].Logits {
			dist[i] = math.Exp(float64(x))
			sum += dist[i]
		}
		for i := range dist {
			dist[i] /= sum
		}
		dists = append(dists, dist)
		work.Add(d, 0)
	}
	return func(path []int32) infer.Dist {
		if len(path) > len(dists) {
			panic(fmt.Sprintf("a row at depth %d", len(path)-1))
		}
		return dists[len(path)-1]
	}
}
