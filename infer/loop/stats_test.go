package loop_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"talf/infer"
	"talf/infer/draft/drafttest"
	"talf/infer/loop"
)

// The loop's counts by method are the sums over its requests, and accepted tokens are those of
// the drafts that the text followed.
func TestDraftingIsCountedByMethod(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 5))
	w := newWorld(0)
	l := start(t, w, loop.Offline())
	var reqs []infer.Request
	want := map[string]*loop.Drafting{"": {}, "oracle": {}, "other": {}}
	for i := range 12 {
		req := request(t, 1+rng.IntN(40), 1, int32(i%9), 3)
		if i%3 > 0 {
			req.Method = []string{"oracle", "other"}[i%3-1]
			req.Drafter = &drafttest.Oracle{Truth: slices.Concat(req.Prompt, plain(t, req)), Vocab: 9, Depth: 5, Nodes: 12, Rand: rand.New(rand.NewPCG(uint64(i), 1))}
		}
		if i%4 == 0 {
			req.Prompt = slices.Repeat(req.Prompt, 166) // 498 tokens: the answer passes a bound
			req.Drafter, req.Method = nil, ""
			req.MaxTokens = 2
		}
		m := want[req.Method]
		req.Trace = func(r infer.Round) error {
			n := loop.Counts{Rounds: 1, Tokens: r.Kept, Drafted: r.Proposal.Tree.Len() - 1, Accepted: min(r.Kept, len(r.Verdict.Path)-1)}
			if n.Drafted > 0 {
				n.Drafts = 1
			}
			at := 0
			if r.Proposal.Pos+1 >= loop.ContextBounds[0] {
				at = 1
			}
			for _, c := range []*loop.Counts{&m.Counts, &m.Context[at]} {
				c.Rounds, c.Drafts, c.Tokens, c.Drafted, c.Accepted = c.Rounds+1, c.Drafts+n.Drafts, c.Tokens+n.Tokens, c.Drafted+n.Drafted, c.Accepted+n.Accepted
			}
			for i := range n.Accepted {
				for len(m.Position) <= i {
					m.Position = append(m.Position, 0)
				}
				m.Position[i]++
			}
			return nil
		}
		reqs = append(reqs, req)
	}
	if _, err := l.All(t.Context(), reqs); err != nil {
		t.Fatal(err)
	}
	s := l.Stats()
	if d := cmp.Diff(want, s.Methods); d != "" {
		t.Errorf("counts (-traces +stats):\n%s", d)
	}
	if want["oracle"].Accepted == 0 || want["oracle"].Accepted == want["oracle"].Drafted || want["oracle"].Tau() <= 1 {
		t.Errorf("the oracle drafts %+v: nothing is tested", want["oracle"].Counts)
	}
	s.Methods["oracle"].Position[0] = -1
	if l.Stats().Methods["oracle"].Position[0] == -1 {
		t.Error("a copy of the statistics shares the loop's memory")
	}
}

// Rounds that lose their drafts are counted by the reason.
func TestFallbacksAreCountedByReason(t *testing.T) {
	w := newWorld(8)
	l := start(t, w, loop.Offline())
	req := request(t, 29, 1, 2, 3)
	req.Method = "oracle"
	req.Drafter = &drafttest.Oracle{Truth: slices.Concat(req.Prompt, plain(t, req)), Vocab: 9, Depth: 5, Nodes: 30, Rand: rand.New(rand.NewPCG(1, 1))}
	s, err := l.Answer(t.Context(), req, nil)
	if err != nil {
		t.Fatal(err)
	}
	d := l.Stats().Methods["oracle"]
	want := [infer.NumFallbacks]int{infer.FallbackMemory: s.Stats().Undrafted}
	if s.Stats().Undrafted == 0 || d.Fallbacks != want {
		t.Errorf("%d rounds had no room for drafts because of %v; counted are %v, want %v", s.Stats().Undrafted, s.Undrafted(), d.Fallbacks, want)
	}
}
