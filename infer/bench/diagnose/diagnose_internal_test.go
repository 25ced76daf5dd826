package diagnose

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"talf/infer/bench/benchtest"
	"talf/infer/bench/heads"
	"talf/model"
	"talf/model/head"
	"talf/model/modeltest"
)

// guessesRight are n guesses, of which those from one to another are right.
func guessesRight(n, from, to int) []bool {
	all := make([]bool, n)
	for i := from; i < to; i++ {
		all[i] = true
	}
	return all
}

// Each cause is named where it is planted, and only there: not where a difference is small, or where few guesses could
// have made it.
func TestCausesAreNamedBeyondDoubt(t *testing.T) {
	sound := func() seen {
		return seen{right: guessesRight(1000, 0, 400), inside: Share{1000, 1000}, early: Share{400, 1000}}
	}
	for name, c := range map[string]struct {
		plant  func(s *seen)
		causes []string
		loss   float64 // of the first
		text   string
	}{
		"a sound head": {func(*seen) {}, nil, 0, ""},
		"other weights": {
			func(s *seen) { s.tie = errors.New("trained for another target") },
			[]string{Weights},
			1, "trained for another target",
		},
		"taps off by one": {
			func(s *seen) {
				s.trials = []trial{{cause: Taps, right: guessesRight(1000, 0, 380), with: "one below"}, {cause: Taps, right: guessesRight(1000, 0, 500), with: "one above"}}
			},
			[]string{Taps},
			0.1, "50.0% are right one above",
		},
		"as many by chance": { // 270 guesses are right only as it is and 310 only otherwise: 40, of a deviation of 24
			func(s *seen) {
				s.trials = []trial{{cause: Taps, right: guessesRight(1000, 270, 710)}}
			},
			nil, 0, "",
		},
		"better, but by little": {
			func(s *seen) {
				s.trials = []trial{{cause: Type, right: guessesRight(1000, 0, 429)}}
			},
			nil, 0, "",
		},
		"rounded weights": {
			func(s *seen) {
				s.trials = []trial{{cause: Type, right: guessesRight(1000, 0, 431), with: "in f32"}}
			},
			[]string{Type},
			0.031, "43.1% are right in f32",
		},
		"another form of the text": {
			func(s *seen) { s.trials = []trial{{cause: Template, share: Share{300, 500}, with: "as plain text"}} },
			[]string{Template},
			0.2, "60.0% are right as plain text",
		},
		"another form, few answers": {
			func(s *seen) { s.trials = []trial{{cause: Template, share: Share{6, 10}}} },
			nil, 0, "",
		},
		"an empty form": {
			func(s *seen) { s.trials = []trial{{cause: Template}} },
			nil, 0, "",
		},
		"longer texts than trained on": {
			func(s *seen) { s.trained, s.early, s.late = 512, Share{380, 800}, Share{20, 200} },
			[]string{Length},
			0.375, "47.5% are right up to position 512, to which the head was trained, and 10.0% behind it",
		},
		"right behind what it was trained on, too": {
			func(s *seen) { s.trained, s.early, s.late = 512, Share{330, 800}, Share{70, 200} },
			nil, 0, "",
		},
		"a small vocabulary": {
			func(s *seen) { s.vocab, s.inside = 40, Share{930, 1000} },
			[]string{Vocabulary},
			0.07, "7.0% of the answers' tokens are outside the head's vocabulary of 40",
		},
		"a vocabulary that lacks little": {
			func(s *seen) { s.vocab, s.inside = 40, Share{951, 1000} },
			nil, 0, "",
		},
		"other prompts": {
			func(s *seen) { s.expect = 0.6 },
			[]string{Domain},
			0.2, "60.0% were right on text held out of training",
		},
		"other prompts, but a cause that says more": {
			func(s *seen) { s.expect, s.tie = 0.6, errors.New("another") },
			[]string{Weights},
			1, "another",
		},
		"several": {
			func(s *seen) {
				s.inside = Share{900, 1000}
				s.trials = []trial{{cause: Type, right: guessesRight(1000, 0, 450)}, {cause: Taps, right: guessesRight(1000, 0, 700)}}
			},
			[]string{Taps, Vocabulary, Type},
			0.3, "70.0%",
		},
	} {
		s := sound()
		c.plant(&s)
		var causes []string
		found := s.findings()
		for _, f := range found {
			causes = append(causes, f.Cause)
		}
		if !slices.Equal(causes, c.causes) {
			t.Errorf("%s: %+v, want %q", name, found, c.causes)
			continue
		}
		if len(found) > 0 && (max(found[0].Loss-c.loss, c.loss-found[0].Loss) > 1e-9 || !strings.Contains(found[0].Text, c.text)) {
			t.Errorf("%s: %+v, want %v and %q", name, found[0], c.loss, c.text)
		}
	}
}

// A text that a head wrote, but for every third token, is guessed but for these.
func TestGuessesAreOfTheTokenAfterTheNext(t *testing.T) {
	c := modeltest.Default()
	m, err := model.Load(modeltest.Random(t, c, 1), benchtest.CPU(t), model.Default())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.Close() }) // only read
	spec := m.Spec().DraftFor(false)
	h, err := head.FromTensors(spec, m, head.Default(), head.Random(spec, 2)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = h.Close() }) // only read
	tokens := []int32{3, 9}
	var want []bool
	for i := range 2 * chunk {
		ranks, err := heads.ByRank(t.Context(), m, h, []heads.Text{{Tokens: tokens}}, 1)
		if err != nil {
			t.Fatal(err)
		}
		next := ranks[0][len(ranks[0])-1].Token
		if i%3 == 2 {
			next = (next + 1) % int32(m.Spec().Vocab)
		}
		tokens, want = append(tokens, next), append(want, i%3 != 2)
	}
	for _, from := range []int{0, 1, chunk - 1, chunk, chunk + 5} {
		var got []bool
		if err := each(t.Context(), m, h, []heads.Text{{Tokens: tokens, From: from}, {Tokens: tokens[:2]}}, func(g guess) {
			if at := from + len(got) + 2; g.at != at || g.token != tokens[at] || !(g.logp < 0) {
				t.Errorf("from %d: %+v, want token %d of position %d", from, g, tokens[at], at)
			}
			got = append(got, g.right)
		}); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(got, want[from:]) {
			t.Errorf("from %d: %v, want %v", from, got, want[from:])
		}
	}
}
