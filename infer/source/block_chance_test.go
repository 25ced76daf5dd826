package source_test

import (
	"testing"

	"gonum.org/v1/gonum/stat/distuv"

	"talf/infer"
	"talf/infer/draft"
	"talf/infer/draft/drafttest"
	"talf/infer/source"
	"talf/infer/verify"
	"talf/model"
	"talf/model/head"
)

// The joint distribution of the first two tokens over many seeds, through the engine with a block drafter and its target, by a
// χ² test. A correct engine fails with probability 1e-5 at most over all pairs together; seeds are fixed. A verifier that
// rejects nothing is found out.
func TestSampledTokensFollowTheTargetUnderBlockDrafters(t *testing.T) {
	const vocab, falseAlarm = 5, 1e-5
	target, h := smallBlock(t, vocab, 64)
	seeds := 4000
	if testing.Short() {
		seeds = 1000
	}
	pairs := []struct{ verify, method string }{
		{"target", "salf:N=8,th=0"},
		{"block", "linear:K=3,draw=distinct"},
		{"rrs", "static:binary-2,draw=repeated"},
		{"rrsw", "static:kary-2-2,draw=distinct"},
		{"traversal", "static:binary-2,draw=distinct"},
	}
	limit := func(cells int) float64 {
		return distuv.ChiSquared{K: float64(cells - 1)}.Quantile(1 - falseAlarm/float64(len(pairs)))
	}
	want := pairsOf(t, target, vocab)
	for _, p := range pairs {
		stat, cells, st := counted(t, target, h, want, p.method, seeds, func() infer.Verifier {
			v, err := verify.New(p.verify, 1)
			if err != nil {
				t.Fatal(err)
			}
			return v
		})
		t.Logf("%s, %s: χ² = %.1f over %d cells, limit %.1f; τ = %.2f", p.verify, p.method, stat, cells, limit(cells), st.Tau())
		if stat > limit(cells) || st.Tau() < 1.1 || st.Tau() > 3.9 {
			t.Errorf("%s, %s: χ² = %.1f over %d cells, τ = %.2f", p.verify, p.method, stat, cells, st.Tau())
		}
	}
	if stat, cells, _ := counted(t, target, h, want, "linear:K=3,draw=distinct", seeds, func() infer.Verifier { return credulous{} }); stat <= limit(cells) {
		t.Errorf("a verifier that keeps every draft: χ² = %.1f over %d cells", stat, cells)
	}
}

// credulous keeps all of a chain.
type credulous struct{}

func (credulous) Fits(infer.Choice, bool) error { return nil }
func (credulous) Verify(p infer.Proposal, s infer.Scores, c infer.Chance) (infer.Verdict, error) {
	path := []int{0}
	for n := p.Tree.FirstChild(0); n >= 0; n = p.Tree.FirstChild(n) {
		path = append(path, n)
	}
	return infer.Verdict{Path: path, Next: c.Draw(p.Pos+len(path), s.Dist(path[len(path)-1]))}, nil
}

var chancePrompt = []int32{1, 3, 0}

// pairsOf returns the target's probability of each two tokens after the prompt.
func pairsOf(t *testing.T, target *model.Model, vocab int) (want []float64) {
	t.Helper()
	row := func(ctx ...int32) infer.Dist {
		seq := target.NewSeq()
		defer seq.Close()
		out, err := seq.Append(t.Context(), ctx, nil, model.WantLast)
		if err != nil {
			t.Fatal(err)
		}
		logits, d := make([]float32, vocab), make(infer.Dist, vocab)
		out.ReadLogits(logits, 0)
		drafttest.Plain{Temperature: 1}.Dist(d, logits, nil)
		return d
	}
	for a, p := range row(chancePrompt...) {
		for _, q := range row(append(append([]int32{}, chancePrompt...), int32(a))...) {
			want = append(want, p*q)
		}
	}
	return want
}

// counted compares counts of the first two tokens with what is expected. Outcomes expected fewer than five times share a cell.
func counted(t *testing.T, target *model.Model, h *head.Head, want []float64, method string, seeds int, v func() infer.Verifier) (stat float64, cells int, st infer.Stats) {
	t.Helper()
	vocab := target.Spec().Vocab
	mk, _, err := draft.Open(method, draft.Env{Vocab: vocab, Temperature: 1, Source: true})
	if err != nil {
		t.Fatal(err)
	}
	e := &infer.Engine{Target: infer.NewTarget(target, 1), Config: infer.Default()}
	src, d := source.NewBlock(h, 1), mk.New()
	count := make([]float64, vocab*vocab)
	for seed := range seeds {
		s, err := e.Generate(t.Context(), infer.Request{
			Prompt: chancePrompt, MaxTokens: 5, NoEOS: true, Seed: uint64(seed), Drafter: d, Source: src, Verifier: v(),
			Processor: drafttest.Plain{Temperature: 1},
		})
		if err != nil {
			t.Fatal(err)
		}
		x := s.Tokens()
		count[int(x[0])*vocab+int(x[1])]++
		st.Add(s.Stats())
	}
	var rareWant, rareGot float64
	for i, p := range want {
		if w := p * float64(seeds); w < 5 {
			rareWant, rareGot = rareWant+w, rareGot+count[i]
		} else {
			stat += (count[i] - w) * (count[i] - w) / w
			cells++
		}
	}
	if rareWant > 0 {
		stat += (rareGot - rareWant) * (rareGot - rareWant) / rareWant
		cells++
	}
	return stat, cells, st
}
