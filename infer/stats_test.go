package infer_test

import (
	"reflect"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"talf/infer"
)

// fill sets every number below v to a different one.
func fill(t *testing.T, v reflect.Value, next *int64, length int) {
	switch v.Kind() {
	case reflect.Int, reflect.Int64:
		*next++
		v.SetInt(*next)
	case reflect.Struct:
		for i := range v.NumField() {
			fill(t, v.Field(i), next, length)
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), length, length))
		for i := range length {
			fill(t, v.Index(i), next, length)
		}
	default:
		t.Fatalf("a statistic is a %v: how are two added?", v.Kind())
	}
}

// plus returns the expected sum of the statistics a and b: all numbers add up, including those
// that only one of two histograms has.
func plus(a, b reflect.Value) reflect.Value {
	out := reflect.New(a.Type()).Elem()
	switch a.Kind() {
	case reflect.Struct:
		for i := range a.NumField() {
			out.Field(i).Set(plus(a.Field(i), b.Field(i)))
		}
	case reflect.Slice:
		for i := range max(a.Len(), b.Len()) {
			x, y := reflect.Zero(a.Type().Elem()), reflect.Zero(a.Type().Elem())
			if i < a.Len() {
				x = a.Index(i)
			}
			if i < b.Len() {
				y = b.Index(i)
			}
			out = reflect.Append(out, plus(x, y))
		}
	default:
		out.SetInt(a.Int() + b.Int())
	}
	return out
}

// No statistic may be forgotten when those of several sequences are added.
func TestAllStatisticsAddUp(t *testing.T) {
	for _, lengths := range [][2]int{{3, 3}, {2, 4}, {4, 2}, {0, 3}} {
		var a, b infer.Stats
		next := int64(0)
		fill(t, reflect.ValueOf(&a).Elem(), &next, lengths[0])
		fill(t, reflect.ValueOf(&b).Elem(), &next, lengths[1])
		want := plus(reflect.ValueOf(a), reflect.ValueOf(b)).Interface()
		a.Add(&b)
		if d := cmp.Diff(want, a); d != "" {
			t.Errorf("sums of histograms of %v (-want +got):\n%s", lengths, d)
		}
	}
}

func TestRatesOfNothingAreZero(t *testing.T) {
	var s infer.Stats
	if s.Tau() != 0 || s.TPOT() != 0 || (infer.Rate{}).Value() != 0 {
		t.Errorf("nothing was decoded: τ = %v, %v per token, rate %v; want 0", s.Tau(), s.TPOT(), infer.Rate{}.Value())
	}
	s = infer.Stats{Tokens: 6, Passes: 4, Decode: 3 * time.Second}
	if s.Tau() != 1.5 || s.TPOT() != time.Second/2 || (infer.Rate{Tried: 4, Kept: 1}).Value() != 0.25 {
		t.Errorf("τ = %v, %v per token, rate %v; want 1.5, 500ms, 0.25", s.Tau(), s.TPOT(), infer.Rate{Tried: 4, Kept: 1}.Value())
	}
}

// window drafts one token that is right, and nodes that are only scored: another child of the
// root, and a child of the right one.
type window int32

func (window) Start([]int32) error { return nil }

func (d window) Grow(p *infer.Proposal, _ []infer.Row, _ infer.Chance) ([]int, error) {
	right := p.Tree.Add(0, int32(d))
	p.Live = p.Tree.Len()
	p.Tree.Add(0, (int32(d)+1)%9)
	p.Tree.Add(right, 1)
	return nil, nil
}

func (window) Observe(infer.Proposal, infer.Verdict, infer.Scores) error { return nil }

func (window) Traits() infer.Traits { return infer.Traits{} }

// Nodes that cannot be accepted were neither tried nor kept, even if they are siblings, or the
// only children, of nodes that were.
func TestNodesThatAreOnlyScoredAreNoTrials(t *testing.T) {
	e := tableEngine(9)
	free, err := e.Generate(t.Context(), plainRequest(t, 1, 2))
	if err != nil {
		t.Fatal(err)
	}
	req := plainRequest(t, 1, 2)
	req.MaxTokens, req.Drafter = 3, window(free.Tokens()[0])
	s, err := e.Generate(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	once := infer.Rate{Tried: 1, Kept: 1}
	want := infer.Stats{
		Prompt: 2, Tokens: 3, Passes: 2, Drafted: 3, Emitted: []int{0, 1, 1}, // the last token is not drafted
		Depth: []infer.Rate{{}, once}, Rank: []infer.Rate{{}, once}, Ranked: []int{0, 2, 1},
	}
	if d := cmp.Diff(want, counts(s.Stats())); d != "" {
		t.Errorf("statistics (-want +got):\n%s", d)
	}
}

// counts returns the counts of rounds.
func counts(s *infer.Stats) infer.Stats {
	return infer.Stats{
		Prompt: s.Prompt, Tokens: s.Tokens, Passes: s.Passes, Drafted: s.Drafted,
		Emitted: s.Emitted, Depth: s.Depth, Rank: s.Rank, Ranked: s.Ranked,
	}
}
