package infer_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"talf/compute/cpu"
	"talf/infer"
	"talf/infer/draft"
	"talf/infer/draft/drafttest"
	"talf/infer/source"
	"talf/model"
	"talf/model/modeltest"
)

var errGone = errors.New("nobody waits for it")

// Requests come and go at any round, any set of them makes up a round, and some rounds are
// interrupted: every sequence emits what plain decoding of its prompt emits, up to where it was
// cancelled, and nothing remains of those that were closed.
func TestCancelledSequencesLeaveTheOthersAsTheyWere(t *testing.T) {
	trials := 24
	if testing.Short() {
		trials = 6
	}
	methods := []string{"", "beam:N=12,k=4,depth=3", "salf:N=20,th=0", "salf:th=0.1,N=30"}
	cancelled, ended, cut := 0, 0, 0
	for trial := range trials {
		rng := rand.New(rand.NewPCG(uint64(trial), 21))
		n := newNets(t, 1+trial%2, uint64(trial))
		temperature := float64(trial % 2)
		prefixes := trial % 3 // kept of closed sequences, for later prompts
		e := &infer.Engine{Target: infer.NewTarget(n.target, prefixes), Config: infer.Config{PrefillChunk: 16, MaxNodes: 64}}
		src := source.NewHead(n.head, prefixes)
		plain := &infer.Engine{Target: infer.NewTarget(n.target, 0), Config: infer.Default()}
		token := func() int32 { return rng.Int32N(int32(n.target.Spec().Vocab)) }
		shared := make([]int32, 20)
		for i := range shared {
			shared[i] = token()
		}
		want := map[*infer.Sequence][]int32{}
		open := func() *infer.Sequence {
			prompt := slices.Clone(shared[:rng.IntN(len(shared))])
			for range 1 + rng.IntN(30) {
				prompt = append(prompt, token())
			}
			req := infer.Request{
				Prompt: prompt, MaxTokens: 1 + rng.IntN(25), Seed: rng.Uint64(), NoEOS: true,
				Verifier: verifier(t, temperature), Processor: drafttest.Plain{Temperature: temperature},
			}
			alone, err := plain.Generate(t.Context(), req)
			if err != nil {
				t.Fatal(err)
			}
			if spec := methods[rng.IntN(len(methods))]; spec != "" {
				d, _, err := draft.New(spec)
				if err != nil {
					t.Fatal(err)
				}
				req.Drafter, req.Source, req.Verifier = d, src, verifier(t, temperature)
			}
			s, err := e.Open(req)
			if err != nil {
				t.Fatal(err)
			}
			want[s] = slices.Clone(alone.Tokens())
			return s
		}
		leave := func(s *infer.Sequence) {
			e.Close(s)
			if rng.IntN(2) == 0 {
				e.Close(s)
			}
			switch r, _ := s.Done(); r {
			case infer.Length:
				ended++
				if !slices.Equal(s.Tokens(), want[s]) {
					t.Fatalf("trial %d: %v, plain decoding gives %v", trial, s.Tokens(), want[s])
				}
			case infer.Cancelled:
				cancelled++
				if k := len(s.Tokens()); s.Err() == nil || k > len(want[s]) || !slices.Equal(s.Tokens(), want[s][:k]) {
					t.Fatalf("trial %d: cancelled with %v after %v, plain decoding gives %v", trial, s.Err(), s.Tokens(), want[s])
				}
			default:
				t.Fatalf("trial %d: reason %q, error %v", trial, r, s.Err())
			}
		}
		var seqs []*infer.Sequence
		for opened := 0; opened < 12 || len(seqs) > 0; {
			for opened < 12 && (len(seqs) == 0 || rng.IntN(3) == 0) {
				seqs = append(seqs, open())
				opened++
			}
			some := slices.DeleteFunc(slices.Clone(seqs), func(*infer.Sequence) bool { return rng.IntN(4) == 0 })
			ctx := context.Context(t.Context())
			if rng.IntN(3) == 0 {
				ctx = endLate(ctx, rng.IntN(60))
			}
			if err := e.Step(ctx, some); err != nil {
				if !errors.Is(err, context.Canceled) {
					t.Fatal(err)
				}
				cut++
			}
			seqs = slices.DeleteFunc(seqs, func(s *infer.Sequence) bool {
				_, done := s.Done()
				switch {
				case done && rng.IntN(2) == 0: // or it stays for some more rounds
				case rng.IntN(40) == 0:
					s.Cancel(errGone)
					s.Cancel(errors.New("again"))
					if r, _ := s.Done(); r == infer.Cancelled && !errors.Is(s.Err(), errGone) {
						t.Fatalf("cancelled with %v", s.Err())
					}
					return false
				case rng.IntN(60) == 0: // closed without being cancelled
				default:
					return false
				}
				leave(s)
				return true
			})
		}
		if used := n.target.KV().Used; prefixes == 0 && used != 0 {
			t.Fatalf("trial %d: %d blocks are in use after all is closed", trial, used)
		}
		if used := n.head.KV().Used; prefixes == 0 && used != 0 {
			t.Fatalf("trial %d: %d of the head's blocks are in use after all is closed", trial, used)
		}
	}
	t.Logf("%d sequences ended, %d were cancelled, %d rounds were cut short", ended, cancelled, cut)
	if ended < trials || cancelled < trials || cut < trials {
		t.Error("too few of one of them")
	}
}

// Sequences may be cancelled and closed after a round, and from within one by whoever traces it.
func TestSequencesAreCancelledFromWithinARound(t *testing.T) {
	for _, closes := range []bool{false, true} {
		for _, trace := range []bool{false, true} {
			for victim := range 3 {
				t.Run(fmt.Sprintf("close %v, in Trace %v, sequence %d", closes, trace, victim), func(t *testing.T) {
					n := newNets(t, 1, 3)
					e := &infer.Engine{Target: infer.NewTarget(n.target, 0), Config: infer.Default()}
					src := source.NewHead(n.head, 0)
					var seqs []*infer.Sequence
					var seen [3]int // tokens that were read
					var read [3]infer.Reader
					rounds := 0
					strike := func() {
						if rounds++; rounds != 3 {
							return
						}
						if closes {
							e.Close(seqs[victim])
						} else {
							seqs[victim].Cancel(errGone)
						}
					}
					prompts := [][]int32{{1, 2}, {3, 4, 5}, {6}}
					for i, p := range prompts {
						d, _, err := draft.New("beam:N=12,k=4,depth=3")
						if err != nil {
							t.Fatal(err)
						}
						req := plainRequest(t, p...)
						req.Drafter, req.Source, req.NoEOS = d, src, true
						if i == 1 && trace {
							req.Trace = func(infer.Round) error { strike(); return nil }
						}
						s, err := e.Open(req)
						if err != nil {
							t.Fatal(err)
						}
						seqs = append(seqs, s)
					}
					for range 40 {
						if err := e.Step(t.Context(), seqs); err != nil {
							t.Fatal(err)
						}
						for i, s := range seqs {
							now := s.Snapshot()
							if d, ok := read[i].Next(&now); ok {
								if seen[i] += len(d.Tokens); i == 1 && !trace {
									strike()
								}
							}
						}
					}
					for i, s := range seqs {
						alone := plainRequest(t, prompts[i]...)
						alone.NoEOS = true
						plain, err := (&infer.Engine{Target: infer.NewTarget(n.target, 0), Config: infer.Default()}).Generate(t.Context(), alone)
						if err != nil {
							t.Fatal(err)
						}
						r, _ := s.Done()
						switch k := len(s.Tokens()); {
						case i == victim && (r != infer.Cancelled || k >= len(plain.Tokens()) || !slices.Equal(s.Tokens(), plain.Tokens()[:k])):
							t.Errorf("the cancelled sequence: reason %q, error %v, %v; plain decoding gives %v", r, s.Err(), s.Tokens(), plain.Tokens())
						case k != seen[i]:
							t.Errorf("sequence %d: %d tokens, %d were read", i, k, seen[i])
						case i != victim && (r != infer.Length || !slices.Equal(s.Tokens(), plain.Tokens())):
							t.Errorf("sequence %d: reason %q, error %v, %v; plain decoding gives %v", i, r, s.Err(), s.Tokens(), plain.Tokens())
						}
						e.Close(s)
					}
					if used := n.target.KV().Used; used != 0 {
						t.Errorf("%d blocks are in use after all is closed", used)
					}
					if used := n.head.KV().Used; used != 0 {
						t.Errorf("%d of the head's blocks are in use after all is closed", used)
					}
				})
			}
		}
	}
}

// What was read of a prompt when its request was cancelled, or preempted and then cancelled, is there for the same prompt, and for
// another that begins alike where the model's layers can go on after any token. The answers are those of plain decoding.
func TestWhatACancelledPromptReadIsKept(t *testing.T) {
	const chunk, chunks = 16, 3
	for _, kind := range []string{"llama", "gemma3_text", "qwen3_next", "head", "eagle3"} {
		t.Run(kind, func(t *testing.T) {
			var m *model.Model
			var src infer.Source
			switch kind {
			case "head", "eagle3":
				n := newNets(t, 1, 7)
				if kind == "eagle3" {
					n = newEagle3Nets(t, 1, 7)
				}
				m, src = n.target, source.NewHead(n.head, 4)
			default:
				m = small(t, kind)
			}
			e := &infer.Engine{Target: infer.NewTarget(m, 4), Config: infer.Config{PrefillChunk: chunk, MaxNodes: 64}}
			rng := rand.New(rand.NewPCG(1, 2))
			prompt := make([]int32, chunk*(chunks+2)+5)
			for i := range prompt {
				prompt[i] = rng.Int32N(int32(m.Spec().Vocab))
			}
			ask := func(prompt []int32) infer.Request {
				req := plainRequest(t, prompt...)
				req.NoEOS = true
				return req
			}
			drafted := func(prompt []int32) infer.Request {
				req := ask(prompt)
				if src == nil {
					return req
				}
				d, _, err := draft.New("beam:N=12,k=4,depth=3")
				if err != nil {
					t.Fatal(err)
				}
				req.Drafter, req.Source = d, src
				return req
			}
			s, err := e.Open(drafted(prompt))
			if err != nil {
				t.Fatal(err)
			}
			for range chunks {
				if err := e.Step(t.Context(), []*infer.Sequence{s}); err != nil {
					t.Fatal(err)
				}
			}
			if kind == "llama" {
				e.Preempt(s)
			}
			s.Cancel(errGone)
			e.Close(s)
			other := slices.Clone(prompt)
			other[chunk+3]++
			for _, x := range []struct {
				prompt []int32
				kept   int // at least
			}{{prompt, chunk * chunks}, {other, map[string]int{"llama": chunk + 3}[kind]}} {
				want, err := (&infer.Engine{Target: infer.NewTarget(m, 0), Config: infer.Default()}).Generate(t.Context(), ask(x.prompt))
				if err != nil {
					t.Fatal(err)
				}
				got, err := e.Generate(t.Context(), drafted(x.prompt))
				if err != nil || !slices.Equal(got.Tokens(), want.Tokens()) {
					t.Errorf("%v, error %v; plain decoding gives %v", got.Tokens(), err, want.Tokens())
				}
				if n := got.Stats().Cached; n < x.kept {
					t.Errorf("%d tokens were kept of %d that had been read", n, chunk*chunks)
				}
			}
		})
	}
}

// small returns a model of a family with random weights.
func small(t *testing.T, family string) *model.Model {
	t.Helper()
	dev, err := cpu.New(cpu.Config{Class: cpu.Default().Class, Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dev.Close() })
	conf := modeltest.Of(family)
	conf.EOS = -1
	m, err := model.Load(modeltest.Random(t, conf, 3), dev, model.Default())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return m
}
