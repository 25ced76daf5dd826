package trace_test

import (
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"talf/infer"
	"talf/infer/draft"
	"talf/infer/draft/drafttest"
	"talf/infer/trace"
	"talf/infer/verify"
	"talf/internal/limits"
	"talf/model"
	"talf/tree"
)

func spell(id int32) string { return string(rune('a' + id%26)) }

// uniform are scores of a target that has no preference.
type uniform struct{}

func (uniform) Argmax(int) int32                   { return 1 }
func (uniform) Dist(int) infer.Dist                { return infer.Dist{0.5, 0.5} }
func (uniform) TopK(int, int) []infer.Candidate    { return []infer.Candidate{{Token: 1, LogProb: -1}} }
func (uniform) Rank(dst []int32, _, _ int) []int32 { return append(dst, 1) }
func (uniform) Hidden(int) (none model.Feature)    { return none }
func (uniform) round(nodes int) (r infer.Round)    { return uniform{}.at(new(tree.Tree), nodes) }

func (u uniform) at(t *tree.Tree, nodes int) infer.Round {
	t.Reset(0, nodes)
	for n := 1; n < nodes; n++ {
		t.Add(n-1, 1)
	}
	return infer.Round{Proposal: &infer.Proposal{Tree: t}, Scores: u, Verdict: infer.Verdict{Path: []int{0}, Next: 1}, Kept: 1}
}

// A reader that does not come costs a bounded number of nodes, and learns how many rounds it has
// missed and which.
func TestSlowReadersMissRounds(t *testing.T) {
	b := trace.NewBuffer(trace.Recorder{Text: spell, Path: true})
	const nodes = 1000
	add := func(n int) {
		for range n {
			if err := b.Round(uniform{}.round(nodes)); err != nil {
				t.Fatal(err)
			}
		}
	}
	add(20)
	held := 0
	var numbers []int
	var last time.Duration
	take := func() {
		for _, r := range b.Take() {
			if r.After < last {
				t.Errorf("round %d is after %v, the one before after %v", r.Round, r.After, last)
			}
			last = r.After
			held += len(r.Step.Nodes)
			numbers = append(numbers, r.Round)
		}
	}
	take()
	if fit := limits.TraceNodes / nodes; held != fit*nodes || b.Dropped() != 20-fit {
		t.Errorf("%d nodes held, %d rounds dropped", held, b.Dropped())
	}
	add(2)
	take()
	if diff := cmp.Diff([]int{1, 2, 3, 4, 5, 6, 7, 8, 21, 22}, numbers); diff != "" {
		t.Errorf("rounds (-want +got):\n%s", diff)
	}
	if rest := b.Take(); rest != nil {
		t.Errorf("%d rounds are there twice", len(rest))
	}
}

// A round is taken once, whoever takes it and whenever.
func TestABufferIsForTwoGoroutines(t *testing.T) {
	const rounds = 500
	b := trace.NewBuffer(trace.Recorder{Text: spell, Path: true})
	var wg sync.WaitGroup
	done := make(chan struct{})
	wg.Go(func() {
		defer close(done)
		for range rounds {
			if err := b.Round(uniform{}.round(3)); err != nil {
				t.Error(err)
			}
		}
	})
	last := 0
	read := func() {
		for _, r := range b.Take() {
			if r.Round != last+1 {
				t.Errorf("round %d after %d", r.Round, last)
			}
			last = r.Round
		}
	}
	for open := true; open; {
		select {
		case <-done:
			open = false
		default:
		}
		read()
	}
	wg.Wait()
	if read(); last != rounds || b.Dropped() != 0 {
		t.Errorf("%d rounds, %d dropped", last, b.Dropped())
	}
}

// Without the probabilities off the path a step is the same, and its slices are its own.
func TestStepsOfThePathAlone(t *testing.T) {
	for _, temperature := range []float64{0, 0.7} {
		target := &drafttest.Target{Table: drafttest.Table{Seed: 3, Vocab: 8, Order: 2, Sharp: 2}, MaxLen: 60}
		mk, _, err := draft.Open("static:binary-3", draft.Env{Vocab: 8, Temperature: temperature})
		if err != nil {
			t.Fatal(err)
		}
		v, err := verify.New("", temperature)
		if err != nil {
			t.Fatal(err)
		}
		var steps, alone []*trace.Step
		all := trace.Recorder{Text: spell, Temperature: temperature}
		path := trace.Recorder{Text: spell, Temperature: temperature, Path: true}
		e := &infer.Engine{Target: target, Config: infer.Default()}
		_, err = e.Generate(t.Context(), infer.Request{
			Prompt: []int32{1, 2}, MaxTokens: 25, Seed: 4, Drafter: mk.New(), Source: &drafttest.Source{Target: target, Agree: 0.6},
			Verifier: v, Processor: drafttest.Plain{Temperature: temperature}, Trace: func(r infer.Round) error {
				steps, alone = append(steps, all.Step(r)), append(alone, path.Step(r))
				return nil
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		left := 0
		for _, s := range steps {
			for n := 1; n < len(s.Nodes); n++ {
				if x := &s.Nodes[n]; x.P == nil {
					t.Errorf("node %d has no p", n)
				} else if !slices.Contains(s.Path, x.Parent) {
					x.P = nil
					left++
				}
			}
		}
		if diff := cmp.Diff(steps, alone); diff != "" || left == 0 {
			t.Errorf("temperature %v, %d nodes off the path (-all +path):\n%s", temperature, left, diff)
		}
	}
}
