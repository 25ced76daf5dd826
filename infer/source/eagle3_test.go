package source_test

import (
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"gonum.org/v1/gonum/stat/distuv"

	"talf/checkpoints"
	"talf/compute/cpu"
	"talf/infer"
	"talf/infer/draft"
	"talf/infer/draft/drafttest"
	"talf/infer/source"
	"talf/infer/verify"
	"talf/internal/golden"
	"talf/model"
	"talf/model/head"
	"talf/model/sample"
)

// eagle3Head loads a reference head of data/eagle3 and its target.
func eagle3Head(t *testing.T, name string) (*head.Head, *model.Model) {
	t.Helper()
	targets := map[string]string{"plain": "llama", "norms": "qwen3", "targetlm": "llama", "narrow": "llama"}
	dev, err := cpu.New(cpu.Default())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dev.Close() })
	target, err := model.Load(golden.File(t, "eagle3/targets/"+targets[name]), dev, model.Default())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { target.Close() })
	h, err := checkpoints.LoadHead(golden.File(t, "eagle3/"+name+"/eagle"), target, head.Default())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.Close() })
	return h, target
}

var eagle3Names = []string{"plain", "norms", "targetlm", "narrow"}

// Tokens of the trees are the target's; log-probabilities are over the draft vocabulary.
func TestEagle3TreesEqualTheReferenceNodeForNode(t *testing.T) {
	for _, name := range eagle3Names {
		h, _ := eagle3Head(t, name)
		dir := golden.File(t, "eagle3/"+name+"/trees")
		files, err := filepath.Glob(filepath.Join(dir, "*.safetensors"))
		if err != nil || len(files) != 6 {
			t.Fatalf("%d trees in %s, want 6: %v", len(files), dir, err)
		}
		for _, path := range files {
			t.Run(name+"/"+filepath.Base(path), func(t *testing.T) {
				openFile(t, path).growsEqual(h, "taps")
			})
		}
	}
}

// Whole decodings: the root, the tree and the number of accepted nodes of every round, and the text.
func TestEagle3DecodingIsTheReferences(t *testing.T) {
	for _, name := range eagle3Names {
		t.Run(name, func(t *testing.T) {
			h, target := eagle3Head(t, name)
			f := openFile(t, golden.File(t, "eagle3/"+name+"/decode.safetensors"))
			prompt, ids := f.tokens("prompt"), f.tokens("ids")
			roots, accepted, tokens, parents := f.ints("root_positions"), f.ints("accepted"), f.ints("tokens"), f.ints("parents")
			size := len(tokens) / len(roots)
			d, _, err := draft.New("beam:N=20,k=4,depth=3")
			if err != nil {
				t.Fatal(err)
			}
			round := 0
			// The reference's last round may add more tokens than were asked for, and a round's tree is
			// not cut short by a limit that is far.
			req := infer.Request{
				Prompt: prompt, MaxTokens: 40, NoEOS: true, Source: source.NewHead(h, 0), Drafter: d,
				Verifier: new(verify.Greedy), Processor: drafttest.Plain{},
			}
			req.Trace = func(r infer.Round) error {
				if round >= len(roots) {
					return nil
				}
				var got nodes
				for n := range r.Proposal.Tree.Len() {
					got.Tokens = append(got.Tokens, int(r.Proposal.Tree.Token(n)))
					got.Parents = append(got.Parents, r.Proposal.Tree.Parent(n))
				}
				want := nodes{Tokens: tokens[round*size:][:size], Parents: parents[round*size:][:size]}
				if d := cmp.Diff(want, got); d != "" {
					t.Errorf("round %d (-reference +got)\n%s", round, d)
				}
				if r.Proposal.Pos != roots[round] || len(r.Verdict.Path)-1 != accepted[round] {
					t.Errorf("round %d: root at %d, %d accepted, want %d and %d", round, r.Proposal.Pos, len(r.Verdict.Path)-1, roots[round], accepted[round])
				}
				round++
				return nil
			}
			e := &infer.Engine{Target: infer.NewTarget(target, 0), Config: infer.Default()}
			s, err := e.Generate(t.Context(), req)
			if err != nil {
				t.Fatal(err)
			}
			text := slices.Concat(prompt, s.Tokens())
			if round < len(roots) || !slices.Equal(text[:len(ids)], ids) {
				t.Errorf("%d rounds of %d; text %v, want %v", round, len(roots), text, ids)
			}
		})
	}
}

// The joint distribution of the first two tokens over many seeds, drawn through the engine with a head
// that knows 3 of 5 tokens, by a χ² test. A correct engine fails with probability 1e-5 at most.
func TestSampledTokensUnderAnEagle3HeadFollowTheTarget(t *testing.T) {
	const vocab, falseAlarm = 5, 1e-5
	seeds := 3000
	if testing.Short() {
		seeds = 1000
	}
	target, h := narrow(t, "EAGLE-3", vocab, []int32{0, 2, 3}, 11)
	prompt := []int32{1, 4, 2}
	dist := func(ctx ...int32) infer.Dist {
		seq := target.NewSeq()
		defer seq.Close()
		o, err := seq.Append(t.Context(), ctx, nil, model.WantLast)
		if err != nil {
			t.Fatal(err)
		}
		logits, d := make([]float32, vocab), make(infer.Dist, vocab)
		o.ReadLogits(logits, 0)
		drafttest.Plain{Temperature: 1}.Dist(d, logits, nil)
		return d
	}
	pairs := [][2]string{{"target", "static:binary-2"}, {"rrs", "static:binary-2,draw=repeated"}, {"traversal", "static:binary-2,draw=distinct"}}
	limit := distuv.ChiSquared{K: vocab*vocab - 1}.Quantile(1 - falseAlarm/float64(len(pairs)))
	for _, p := range pairs {
		e := &infer.Engine{Target: infer.NewTarget(target, 4), Config: infer.Default()}
		src := source.NewHead(h, 4)
		var count [vocab][vocab]float64
		var all infer.Stats
		for seed := range seeds {
			v, err := verify.New(p[0], 1)
			if err != nil {
				t.Fatal(err)
			}
			mk, _, err := draft.Open(p[1], draft.Env{Vocab: vocab, Temperature: 1, Source: true})
			if err != nil {
				t.Fatal(err)
			}
			proc, err := infer.NewSampling(sample.Params{Temperature: 1, TopP: 1, RepetitionPenalty: 1}, 0)
			if err != nil {
				t.Fatal(err)
			}
			s, err := e.Generate(t.Context(), infer.Request{
				Prompt: prompt, MaxTokens: 3, NoEOS: true, Seed: uint64(seed), Drafter: mk.New(), Source: src, Verifier: v, Processor: proc,
			})
			if err != nil {
				t.Fatal(err)
			}
			count[s.Tokens()[0]][s.Tokens()[1]]++
			all.Add(s.Stats())
		}
		var chi2 float64
		for a, pa := range dist(prompt...) {
			for b, pb := range dist(append(slices.Clone(prompt), int32(a))...) {
				want := float64(seeds) * pa * pb
				chi2 += (count[a][b] - want) * (count[a][b] - want) / want
			}
		}
		t.Logf("%s, %s: χ² = %.1f over %d cells, limit %.1f; τ = %.2f", p[0], p[1], chi2, vocab*vocab, limit, all.Tau())
		if chi2 > limit {
			t.Errorf("%s, %s: χ² = %.1f, want at most %.1f", p[0], p[1], chi2, limit)
		}
		if all.Tau() < 1.05 || len(all.Fallbacks) > 0 {
			t.Errorf("%s, %s: τ = %.2f, rounds without a draft %v, want drafts that are accepted", p[0], p[1], all.Tau(), all.Fallbacks)
		}
	}
}
