package predict_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"talf/infer"
	"talf/infer/draft"
	"talf/infer/draft/drafttest"
	"talf/infer/draft/predict"
	"talf/infer/verify"
)

var methods = []string{
	"ar", "pld", "goose", "recycle", "lookahead", "beam:N=12,k=4,depth=3", "salf:paper", "salf", "static", "dynatree", "auto",
}

func open(t *testing.T, method string) *draft.Maker {
	t.Helper()
	mk, _, err := draft.Open(method, draft.Env{Source: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { mk.Close() })
	return mk
}

// Every method drafts as well with a prediction, whatever that says.
func TestMethodsTakePredictions(t *testing.T) {
	for _, method := range methods {
		t.Run(method, func(t *testing.T) {
			mk, rng := open(t, method), rand.New(rand.NewPCG(1, 2))
			drafttest.Run(t, func() infer.Drafter {
				text := make([]int32, rng.IntN(60)) // of tokens that every vocabulary has
				for i := range text {
					text[i] = rng.Int32N(2)
				}
				return predict.Wrap(mk.New(), predict.New(text))
			})
		})
	}
}

// A world writes texts without repetitions.
var world = &drafttest.Target{Table: drafttest.Table{Seed: 3, Vocab: 500, Order: 9, Sharp: 6}, MaxLen: 400}

// answer decodes 120 tokens, or fewer, with a prediction, nil for none.
func answer(t *testing.T, method string, most int, text []int32, temperature float64) (*infer.Sequence, *predict.Drafter) {
	t.Helper()
	v, err := verify.New("", temperature)
	if err != nil {
		t.Fatal(err)
	}
	req := infer.Request{
		Prompt: []int32{1, 2, 3}, MaxTokens: most, Seed: 7, Verifier: v, Processor: drafttest.Plain{Temperature: temperature},
		Source: &drafttest.Source{Target: world, Agree: 0.5},
	}
	var d *predict.Drafter
	if text != nil {
		d = predict.Wrap(open(t, method).New(), predict.New(text))
		req.Drafter = d
	}
	e := &infer.Engine{Target: world, Config: infer.Default()}
	s, err := e.Generate(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	return s, d
}

// What is predicted right is drafted in long spines, and what follows an edit is found again. The
// counts are exact: tokens of the prediction that the answer has, and those that were drafted in
// vain.
func TestPredictionsAreFollowed(t *testing.T) {
	s, _ := answer(t, "ar", 120, nil, 0)
	truth := s.Tokens()
	edit := func(at, without int, with ...int32) []int32 {
		return slices.Concat(truth[:at], with, truth[at+without:])
	}
	other := func(n int) (out []int32) { // tokens that the answer does not have
		for id := int32(0); len(out) < n; id++ {
			if !slices.Contains(truth, id) {
				out = append(out, id)
			}
		}
		return out
	}
	for _, x := range []struct {
		name               string
		most               int
		text               []int32
		accepted, rejected int // -1: some
		passes             int // at most
	}{
		{"right", 120, truth, 120, 0, 12},
		{"the beginning alone", 120, truth[:60], 60, 0, 70},
		{"the end alone", 120, truth[60:], -1, -1, 72},
		{"more than there are tokens for", 50, truth, 50, 0, 8},
		{"one token is another", 120, edit(50, 1, other(1)...), 118, -1, 18},
		{"five tokens too many", 120, edit(50, 0, other(5)...), 119, -1, 18},
		{"five tokens too few", 120, edit(50, 5), -1, -1, 24},
		{"all wrong", 120, other(60), 0, 1, 120},
		{"empty", 120, []int32{}, 0, 0, 120},
	} {
		s, d := answer(t, "ar", x.most, x.text, 0)
		if !slices.Equal(s.Tokens(), truth[:x.most]) {
			t.Errorf("%s: the answer is another", x.name)
		}
		accepted, rejected := d.Counts()
		t.Logf("%s: %d accepted, %d rejected, %d passes, τ = %.1f", x.name, accepted, rejected, s.Stats().Passes, s.Stats().Tau())
		if x.accepted >= 0 && accepted != x.accepted || x.rejected >= 0 && rejected != x.rejected || accepted+rejected > len(x.text) {
			t.Errorf("%s: %d accepted and %d rejected of %d, want %d and %d", x.name, accepted, rejected, len(x.text), x.accepted, x.rejected)
		}
		if n := s.Stats().Passes; n > x.passes {
			t.Errorf("%s: %d passes, want %d at most", x.name, n, x.passes)
		}
	}
}

// With every method, and at every temperature, the text is that of plain decoding, and a good
// prediction takes fewer passes than none.
func TestTheTextStaysTheSame(t *testing.T) {
	for _, temperature := range []float64{0, 1} {
		plain, _ := answer(t, "ar", 120, nil, temperature)
		truth := plain.Tokens()
		text := slices.Concat(truth[:40], []int32{0, 0, 0}, truth[42:])
		for _, method := range methods {
			s, d := answer(t, method, 120, text, temperature)
			if !slices.Equal(s.Tokens(), truth) {
				t.Errorf("%s, temperature %v: the answer is another", method, temperature)
			}
			if accepted, _ := d.Counts(); accepted < 100 || s.Stats().Passes > 40 {
				t.Errorf("%s, temperature %v: %d accepted in %d passes", method, temperature, accepted, s.Stats().Passes)
			}
		}
	}
}

// Nodes have the origin that they were drafted from.
func TestOriginsTellThePrediction(t *testing.T) {
	plain, _ := answer(t, "ar", 60, nil, 0)
	truth := plain.Tokens()
	for _, method := range []string{"ar", "goose"} {
		d := predict.Wrap(open(t, method).New(), predict.New(truth))
		from := d.Traits().Origins
		if got := from.Names[len(from.Names)-1]; got != "prediction" {
			t.Errorf("%s: the last origin is %q", method, got)
		}
		v, err := verify.New("", 0)
		if err != nil {
			t.Fatal(err)
		}
		seen := 0
		e := &infer.Engine{Target: world, Config: infer.Default()}
		if _, err := e.Generate(t.Context(), infer.Request{
			Prompt: []int32{1, 2, 3}, MaxTokens: 60, Drafter: d, Verifier: v, Processor: drafttest.Plain{},
			Trace: func(r infer.Round) error {
				for n := 1; n < r.Proposal.Tree.Len(); n++ {
					if from.Names[from.Of(n)] == "prediction" {
						seen++
					}
				}
				return nil
			},
		}); err != nil {
			t.Fatal(err)
		}
		if seen < 50 {
			t.Errorf("%s: %d nodes are from the prediction", method, seen)
		}
	}
}

// A tree that is the spine alone says how likely its nodes are, also where the prediction is not yet
// trusted and a method without a draft was asked.
func TestASpineAloneSaysHowLikelyItIs(t *testing.T) {
	plain, _ := answer(t, "ar", 60, nil, 0)
	v, err := verify.New("", 0)
	if err != nil {
		t.Fatal(err)
	}
	drafts := 0
	e := &infer.Engine{Target: world, Config: infer.Default()}
	if _, err := e.Generate(t.Context(), infer.Request{
		Prompt: []int32{1, 2, 3}, MaxTokens: 60, Drafter: predict.Wrap(open(t, "ar").New(), predict.New(plain.Tokens())),
		Verifier: v, Processor: drafttest.Plain{},
		Trace: func(r infer.Round) error {
			p := r.Proposal
			if p.Tree.Len() == 1 {
				return nil
			}
			if drafts++; len(p.LogV) != p.Tree.Len() || p.LogV[0] != 0 {
				t.Fatalf("draft %d: %v for %d nodes", drafts, p.LogV, p.Tree.Len())
			}
			for n := 1; n < p.Tree.Len(); n++ {
				if q := p.LogV[n] - p.LogV[n-1]; !(q < 0 && q > math.Log(0.2)) {
					t.Errorf("draft %d: the log probability of node %d after its parent is %v", drafts, n, q)
				}
			}
			return nil
		},
	}); err != nil {
		t.Fatal(err)
	}
	if drafts < 3 {
		t.Errorf("%d drafts", drafts)
	}
}
