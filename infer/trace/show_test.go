package trace_test

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"talf/infer/trace"
)

func TestShowSumsUpAllRoundsAndShowsSome(t *testing.T) {
	var file strings.Builder
	out := json.NewEncoder(&file)
	if err := out.Encode(trace.Header{Version: trace.Version, Method: "salf", Verify: "greedy", Temperature: 0.5}); err != nil {
		t.Fatal(err)
	}
	tokens := 0
	for range 5 {
		s := step()
		tokens += s.Kept
		if err := out.Encode(s); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		from, n int
		want    []int
	}{
		{1, 0, []int{1, 2, 3, 4, 5}},
		{1, 2, []int{1, 2}},
		{4, 20, []int{4, 5}},
		{6, 0, nil},
	} {
		var shown []int
		got, err := trace.Show(strings.NewReader(file.String()), c.from, c.n, func(_ *trace.Step, round int) error {
			shown = append(shown, round)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(shown, c.want) || got.Shown != len(c.want) || got.Rounds != 5 || got.Tokens != tokens {
			t.Errorf("from %d, %d rounds: showed %v, %+v", c.from, c.n, shown, got)
		}
	}
	stop := errors.New("stop")
	got, err := trace.Show(strings.NewReader(file.String()), 2, 0, func(*trace.Step, int) error { return stop })
	if !errors.Is(err, stop) || got.Rounds != 2 {
		t.Errorf("stopped at round 2: %+v, %v", got, err)
	}
	s := trace.Summary{Header: trace.Header{Method: "salf", Verify: "greedy", Temperature: 0.5}, Rounds: 4, Tokens: 10, Shown: 3}
	if want := "salf, verified by greedy, temperature 0.5: 10 tokens in 4 rounds, τ 2.50; 3 shown"; s.String() != want {
		t.Errorf("%q, want %q", s, want)
	}
}
