package suffix_test

import (
	"slices"
	"testing"

	"talf/infer"
	"talf/infer/draft/suffix"
	"talf/tree"
)

func config() suffix.Config {
	return suffix.Config{MaxTreeDepth: 8, MaxSpecTokens: 8, MaxSpecFactor: 2, MinTokenProb: 0.1}
}

// grow returns what d drafts after token last at position pos.
func grow(t *testing.T, d *suffix.Drafter, last int32, pos int) []int32 {
	t.Helper()
	p := infer.Proposal{Tree: tree.New(last, 20), Pos: pos, MaxNodes: 20, MaxDepth: 19}
	if _, err := d.Grow(&p, nil, nil); err != nil {
		t.Fatal(err)
	}
	if len(p.LogV) != p.Tree.Len() {
		t.Fatalf("%d log probabilities of %d nodes", len(p.LogV), p.Tree.Len())
	}
	return slices.Clone(p.Tree.Tokens()[1:])
}

// say makes d decode an answer token by token.
func say(t *testing.T, d *suffix.Drafter, prompt []int32, answer ...int32) {
	t.Helper()
	if err := d.Start(prompt); err != nil {
		t.Fatal(err)
	}
	last, pos := prompt[len(prompt)-1], len(prompt)-1
	for _, next := range answer {
		p := infer.Proposal{Tree: tree.New(last, 1), Pos: pos}
		if err := d.Observe(p, infer.Verdict{Path: []int{0}, Next: next}, nil); err != nil {
			t.Fatal(err)
		}
		last, pos = next, pos+1
	}
}

// Outputs serve later requests while there is room for them; prompts serve their own request alone.
func TestOutputsAreShared(t *testing.T) {
	cache := suffix.NewCache(config(), 2)
	first := suffix.New(config(), cache)
	say(t, first, []int32{40, 41, 42, 43}, 1, 2, 3, 4, 5)
	first.Traits().End()

	second := suffix.New(config(), cache)
	say(t, second, []int32{9}, 1, 2)
	if got, want := grow(t, second, 2, 2), []int32{3, 4, 5}; !slices.Equal(got, want) {
		t.Errorf("after an earlier output's tokens: %v, want %v", got, want)
	}
	alone := suffix.New(config(), nil)
	say(t, alone, []int32{9}, 1, 2)
	if got := grow(t, alone, 2, 2); len(got) != 0 {
		t.Errorf("without earlier outputs: %v", got)
	}
	say(t, second, []int32{9}, 40, 41)
	if got := grow(t, second, 41, 2); len(got) != 0 {
		t.Errorf("after tokens of another request's prompt: %v", got)
	}
	// Two newer outputs leave no room for the first one.
	say(t, second, []int32{9}, 7, 1, 2)
	if got := grow(t, second, 2, 3); len(got) != 0 {
		t.Errorf("after tokens of an output that was let go: %v", got)
	}
}
