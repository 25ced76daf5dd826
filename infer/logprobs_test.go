package infer_test

import (
	"bytes"
	"errors"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"talf/infer"
	"talf/infer/draft"
	"talf/infer/draft/drafttest"
	"talf/infer/score"
	"talf/infer/source"
	"talf/model"
	"talf/model/modeltest"
	"talf/model/safetensors"
	"talf/model/sample"
)

// scored returns what package score's logits say of ids but the first.
func scored(t *testing.T, m *model.Model, ids []int32, top int) (out []infer.Logged) {
	t.Helper()
	var file bytes.Buffer
	if err := score.Write(t.Context(), &file, m, nil, []score.Input{{IDs: ids}}, nil); err != nil {
		t.Fatal(err)
	}
	set, err := safetensors.Parse("scores", file.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	tensor, err := set.Get("0.logits")
	if err != nil {
		t.Fatal(err)
	}
	rows, err := tensor.Float32s()
	if err != nil {
		t.Fatal(err)
	}
	vocab := m.Spec().Vocab
	for i, id := range ids[1:] {
		own, likely := sample.LogProbs(nil, rows[i*vocab:(i+1)*vocab], id, top)
		out = append(out, infer.Logged{Likely: own, Top: likely})
	}
	return out
}

// The log probabilities of a prompt are the bits of those that score writes and that decoding gives
// the same tokens, whatever the chunks, the method, the others of the batch, kept prefixes and
// preemptions.
func TestPromptsHaveTheLogProbabilitiesOfDecoding(t *testing.T) {
	trials := 24
	if testing.Short() {
		trials = 8
	}
	for trial := range trials {
		rng := rand.New(rand.NewPCG(uint64(trial), 16))
		n := newNets(t, 1+trial%3, uint64(trial))
		e := &infer.Engine{Target: infer.NewTarget(n.target, 3), Config: infer.Config{PrefillChunk: []int{1, 5, 90, 256}[trial%4], MaxNodes: 64}}
		req := infer.Request{
			Prompt: []int32{1}, MaxTokens: 20 + rng.IntN(80), NoEOS: true, Seed: uint64(trial), Verifier: verifier(t, 1),
			Processor: drafttest.Plain{Temperature: 1}, LogProbs: true, Top: trial % 3,
		}
		decoded, err := e.Generate(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		want := decoded.Snapshot().Logged
		ids := append([]int32{1}, decoded.Tokens()...)
		if got := scored(t, n.target, ids, req.Top); !reflect.DeepEqual(got, want) {
			t.Fatalf("trial %d: score and decoding have other log probabilities", trial)
		}
		src := source.NewHead(n.head, 2)
		var seqs []*infer.Sequence
		for i, method := range []string{"ar", "salf:paper,N=12", "goose:N=8", "ar"} {
			x := req
			x.Prompt, x.MaxTokens, x.PromptLogProbs = ids, 1+rng.IntN(6), i < 3
			x.Verifier = verifier(t, 1)
			d, m, err := draft.New(method)
			if err != nil {
				t.Fatal(err)
			}
			if x.Drafter = d; m.Source {
				x.Source = src
			}
			s, err := e.Open(x)
			if err != nil {
				t.Fatal(err)
			}
			defer e.Close(s)
			seqs = append(seqs, s)
		}
		readers := make([]infer.Reader, len(seqs))
		got := make([][]infer.Logged, len(seqs))
		for slices.ContainsFunc(seqs, func(s *infer.Sequence) bool { _, done := s.Done(); return !done }) {
			if rng.IntN(3) == 0 {
				e.Preempt(seqs[rng.IntN(len(seqs))])
			}
			if err := e.Step(t.Context(), seqs); err != nil {
				t.Fatal(err)
			}
			for i, s := range seqs {
				now := s.Snapshot()
				if d, ok := readers[i].Next(&now); ok {
					got[i] = append(got[i], d.Prompt...)
				}
			}
		}
		for i, s := range seqs {
			switch {
			case s.Err() != nil:
				t.Fatal(s.Err())
			case i == 3 && got[i] != nil:
				t.Errorf("trial %d: log probabilities that nobody asked for", trial)
			case i < 3 && !reflect.DeepEqual(got[i], want):
				t.Errorf("trial %d, sequence %d: %d log probabilities differ from the %d of decoding", trial, i, len(got[i]), len(want))
			case i < 3 && s.Stats().Cached > 0:
				t.Errorf("trial %d, sequence %d: %d tokens are from a kept prefix, which has no log probabilities", trial, i, s.Stats().Cached)
			}
		}
	}
}

// A prompt whose numbers are not finite has no log probabilities: asked for them, the request ends
// before its first token. Without them the prompt is read on, and the numbers end the first round.
func TestPromptsThatAreNotFiniteHaveNoLogProbabilities(t *testing.T) {
	conf := modeltest.Default()
	e := &infer.Engine{Target: infer.NewTarget(planted(t, conf, 42*conf.Hidden+1, float32(math.Inf(1))), 0), Config: infer.Default()}
	for _, x := range []struct {
		prompt       []int32
		logged, fine bool
		read         int // tokens of the prompt that the target keeps
	}{
		{[]int32{1, 2, 3, 4}, true, true, 3},
		{[]int32{1, 42, 3, 4}, true, false, 0},
		{[]int32{1, 42, 3, 4}, false, false, 3},
	} {
		s, err := e.Open(infer.Request{
			Prompt: x.prompt, MaxTokens: 1, Verifier: verifier(t, 0), Processor: drafttest.Plain{}, PromptLogProbs: x.logged,
		})
		if err != nil {
			t.Fatal(err)
		}
		step := func() {
			if err := e.Step(t.Context(), []*infer.Sequence{s}); err != nil {
				t.Fatal(err)
			}
		}
		step()
		if got := len(x.prompt) - 1 - s.Pending(); got != x.read {
			t.Errorf("%v, log probabilities %v: %d tokens were read, want %d; error %v", x.prompt, x.logged, got, x.read, s.Err())
		}
		step()
		var odd *model.NonFiniteError
		if x.fine != (s.Err() == nil) || !x.fine && !errors.As(s.Err(), &odd) {
			t.Errorf("%v, log probabilities %v: error %v", x.prompt, x.logged, s.Err())
		}
		e.Close(s)
	}
}
