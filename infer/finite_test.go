package infer_test

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"

	"talf/compute/cpu"
	"talf/infer"
	"talf/infer/draft/drafttest"
	"talf/model"
	"talf/model/modeltest"
	"talf/model/safetensors"
)

// planted returns a random model with x as element i of its embedding.
func planted(t testing.TB, conf modeltest.Config, i int, x float32) *model.Model {
	t.Helper()
	tensors := modeltest.Tensors(conf.Spec(), false, 3)
	modeltest.Plant(tensors, "model.embed_tokens.weight", i, x)
	dev, err := cpu.New(cpu.Default())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dev.Close() })
	opt := model.Default()
	opt.AllowNonFinite = true
	m, err := model.New(conf.Spec(), safetensors.Of("planted", tensors...), dev, opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return m
}

// A poisoner drafts a token whose embedding is infinite, beside one that is not.
type poisoner struct{ faulty }

func (poisoner) Grow(p *infer.Proposal, _ []infer.Row, _ infer.Chance) ([]int, error) {
	if p.Tree.Len() < p.MaxNodes {
		p.Tree.Add(0, 42)
	}
	if p.Tree.Len() < p.MaxNodes {
		p.Tree.Add(0, 7)
	}
	return nil, nil
}

// A sequence whose numbers are not finite ends where plain decoding ends, with an error that names
// the weight, and the others of its batch go on. Drafts that make them so cost only themselves.
func TestNumbersThatAreNotFiniteEndOneSequence(t *testing.T) {
	conf := modeltest.Default()
	m := planted(t, conf, 42*conf.Hidden+1, float32(math.Inf(1)))
	for _, temperature := range []float64{0, 1} {
		request := func(i int, d infer.Drafter) infer.Request {
			prompt := []int32{1, 2, int32(10 + i)}
			if i == 2 {
				prompt[1] = 42
			}
			return infer.Request{
				Prompt: prompt, MaxTokens: 30, Seed: uint64(i), NoEOS: true, Drafter: d,
				Verifier: verifier(t, temperature), Processor: drafttest.Plain{Temperature: temperature},
			}
		}
		decode := func(d infer.Drafter) (seqs []*infer.Sequence) {
			e := &infer.Engine{Target: infer.NewTarget(m, 0), Config: infer.Default()}
			for i := range 12 {
				s, err := e.Open(request(i, d))
				if err != nil {
					t.Fatal(err)
				}
				seqs = append(seqs, s)
			}
			for slices.ContainsFunc(seqs, func(s *infer.Sequence) bool { _, done := s.Done(); return !done }) {
				if err := e.Step(t.Context(), seqs); err != nil {
					t.Fatal(err)
				}
			}
			for _, s := range seqs {
				e.Close(s)
			}
			return seqs
		}
		plain, drafted := decode(nil), decode(poisoner{})
		ended, broken := 0, 0
		for i, s := range drafted {
			want, why := plain[i].Done()
			got, _ := s.Done()
			if got != want || !why || !slices.Equal(s.Tokens(), plain[i].Tokens()) {
				t.Errorf("temperature %v, sequence %d: %s %v, plain decoding %s %v", temperature, i, got, s.Tokens(), want, plain[i].Tokens())
			}
			if s.Stats().Undrafted == 0 && len(s.Tokens()) > 1 {
				t.Errorf("temperature %v, sequence %d: no round went without its drafts", temperature, i)
			}
			switch got {
			case infer.Length:
				ended++
			default:
				broken++
				var e *model.NonFiniteError
				if !errors.As(s.Err(), &e) || e.Weight == nil || fmt.Sprint(e.Weight.Index) != "[42 1]" {
					t.Errorf("temperature %v, sequence %d: error %v, want one that names element [42 1]", temperature, i, s.Err())
				}
			}
		}
		t.Logf("temperature %v: %d sequences ended, %d were broken", temperature, ended, broken)
		if ended < 3 || broken < 1 {
			t.Error("too few of one of them")
		}
	}
	if used := m.KV().Used; used != 0 {
		t.Errorf("%d blocks are in use at the end", used)
	}
}
