package suffix

import (
	"math/rand/v2"
	"slices"
	"testing"

	"talf/infer"
	"talf/infer/lookup/suffixtree"
	"talf/tree"
)

func config() Config {
	return Config{MaxTreeDepth: 8, MaxSpecTokens: 8, MaxSpecFactor: 2, MinTokenProb: 0.1}
}

// grow returns what d drafts after token last at position pos.
func grow(t *testing.T, d *Drafter, last int32, pos int) []int32 {
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
func say(t *testing.T, d *Drafter, prompt []int32, answer ...int32) {
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
	cache := NewCache(config(), 2)
	first := New(config(), cache)
	say(t, first, []int32{40, 41, 42, 43}, 1, 2, 3, 4, 5)
	first.Traits().End()

	second := New(config(), cache)
	say(t, second, []int32{9}, 1, 2)
	if got, want := grow(t, second, 2, 2), []int32{3, 4, 5}; !slices.Equal(got, want) {
		t.Errorf("after an earlier output's tokens: %v, want %v", got, want)
	}
	alone := New(config(), nil)
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

// little is room for a few hundred tokens.
const little = 1 << 17

// little8 returns a tree for config in little memory.
func little8() *suffixtree.Tree { return suffixtree.New(8, little) }

// random returns n tokens that hardly repeat.
func random(seed uint64, n int) []int32 {
	r, out := rand.New(rand.NewPCG(seed, 1)), make([]int32, n)
	for i := range out {
		out[i] = 100 + r.Int32N(1<<20)
	}
	return out
}

// A request that outgrows its tree goes on drafting from what was said last, and forgets what was
// said first. No token is lost, wherever it outgrows it: in the prompt or in the answer.
func TestALongRequestKeepsItsNewerHalf(t *testing.T) {
	prompt := append([]int32{1, 2, 3, 4, 5}, random(1, 700)...)
	answer := append(append(random(2, 2500), 11, 12, 13, 14, 15), random(3, 20)...)
	for _, n := range []int{0, 600, 2500} { // of the answer that is the prompt's
		d := New(config(), nil)
		d.own = little8()
		all := slices.Concat(prompt, answer)
		say(t, d, all[:len(prompt)+n], all[len(prompt)+n:]...)
		text := d.own.Text(d.text)
		if len(text) >= len(all) || len(text) < 200 || !slices.Equal(text, all[len(all)-len(text):]) {
			t.Fatalf("prompt of %d: the tree has %d of %d tokens, want the newest", len(prompt)+n, len(text), len(all))
		}
		if d.own.Bytes() > little {
			t.Errorf("prompt of %d: %d bytes, want at most %d", len(prompt)+n, d.own.Bytes(), little)
		}
		d.follow([]int32{11, 12})
		if got, want := grow(t, d, 12, len(all)), append([]int32{13, 14, 15}, answer[2505]); !slices.Equal(got, want) {
			t.Errorf("prompt of %d: after newer tokens %v, want %v", len(prompt)+n, got, want)
		}
		d.follow([]int32{1, 2})
		if got := grow(t, d, 2, len(all)); len(got) != 0 {
			t.Errorf("prompt of %d: after the first tokens %v, which are long gone", len(prompt)+n, got)
		}
	}
}

// Outputs that take too much memory make the oldest ones go, however few they are: also one that is
// still being written, which then is not continued.
func TestTheOldestOutputsMakeRoom(t *testing.T) {
	cache := NewCache(config(), 1000)
	cache.tree = little8()
	first, last := New(config(), cache), New(config(), cache)
	ask := func(d *Drafter, tokens ...int32) []int32 {
		t.Helper()
		say(t, d, []int32{9}, tokens...)
		return grow(t, d, tokens[len(tokens)-1], len(tokens))
	}
	say(t, first, []int32{9}, 1, 2, 3, 4, 5)
	if got, want := ask(last, 1, 2), []int32{3, 4, 5}; !slices.Equal(got, want) {
		t.Fatalf("after an output: %v, want %v", got, want)
	}
	for i := range uint64(20) {
		say(t, last, []int32{9}, random(i, 100)...)
		if got := cache.tree.Bytes(); got > little {
			t.Fatalf("%d bytes of outputs, want at most %d", got, little)
		}
	}
	newest := random(19, 100)
	if n := cache.tree.Len(); n < 3 || n > 20 || cache.tree.Has(first.output) {
		t.Errorf("%d outputs are kept; the first one: %v", n, cache.tree.Has(first.output))
	}
	if got := ask(last, 1, 2); len(got) != 0 {
		t.Errorf("after an output that was let go: %v", got)
	}
	if got, want := ask(last, newest[50:52]...), newest[52:56]; !slices.Equal(got, want) {
		t.Errorf("after a newer output: %v, want %v", got, want)
	}
	// The request whose output is gone ends as any other.
	cache.append(first.output, []int32{1, 2, 3})
	first.end()
	if got := ask(last, 1, 2); len(got) != 0 {
		t.Errorf("after what followed an output that was let go: %v", got)
	}
	// An output too long for the cache alone goes, too, and leaves room for the next ones.
	say(t, last, []int32{9}, random(30, 3000)...)
	if got, want := cache.tree.Len(), 0; got != want {
		t.Errorf("%d outputs besides one that is too long, want %d", got, want)
	}
	say(t, first, []int32{9}, 21, 22, 23)
	if got, want := ask(last, 21), []int32{22, 23}; !slices.Equal(got, want) {
		t.Errorf("after an output that followed: %v, want %v", got, want)
	}
}
