package source_test

import (
	"context"
	"math/rand/v2"
	"slices"
	"testing"

	"talf/infer"
	"talf/infer/draft"
	"talf/infer/draft/auto"
	"talf/infer/draft/drafttest"
	"talf/infer/source"
	"talf/infer/verify"
	"talf/model/modeltest"
)

// mute asks nothing, and leaves it to controllers what is read.
type mute struct{}

func (mute) Start([]int32) error { return nil }
func (mute) Grow(*infer.Proposal, []infer.Row, infer.Chance) ([]int, error) {
	return nil, nil
}
func (mute) Observe(infer.Proposal, infer.Verdict, infer.Scores) error { return nil }
func (mute) Traits() infer.Traits                                      { return infer.Traits{Control: infer.Always} }

// What a head leaves unread of a sequence that asks nothing is kept with it: a later prompt that
// begins alike finds all of it, and its first ask reads it, with the bits of a head that has read it as it
// came, which the mirror checks. After that it need not be read again.
func TestWhatWasLeftUnreadIsKept(t *testing.T) {
	conf := modeltest.Default()
	conf.EOS, conf.MaxPos = -1, 600
	target, h := random(t, conf)
	rng := rand.New(rand.NewPCG(4, 3))
	prompt := make([]int32, 200)
	for i := range prompt {
		prompt[i] = rng.Int32N(int32(conf.Vocab))
	}
	inner := source.NewHead(h, 4)
	m := &mirror{t: t, inner: inner, target: target, head: h, tokens: map[infer.SeqID][]int32{}, fresh: map[infer.SeqID]*source.Head{}}
	e := &infer.Engine{Target: infer.NewTarget(target, 4), Config: infer.Config{PrefillChunk: 70, MaxNodes: 16}, Control: auto.New()}
	answer := func(prompt []int32, d infer.Drafter) *infer.Sequence {
		t.Helper()
		s, err := e.Open(infer.Request{
			Prompt: prompt, MaxTokens: 30, NoEOS: true, Source: m, Drafter: d, Verifier: new(verify.Greedy), Processor: drafttest.Plain{},
		})
		if err != nil {
			t.Fatal(err)
		}
		for done := false; !done; _, done = s.Done() {
			if err := e.Step(context.Background(), []*infer.Sequence{s}); err != nil {
				t.Fatal(err)
			}
		}
		if s.Err() != nil {
			t.Fatal(s.Err())
		}
		e.Close(s)
		return s
	}
	first := answer(prompt, mute{})
	if m.read != 0 {
		t.Errorf("%d tokens were read for nobody", m.read)
	}
	known := slices.Concat(prompt, first.Tokens())
	for _, x := range []struct {
		name         string
		shared, read int // of these tokens those that have run
	}{{"a part", 150, 0}, {"all", len(known) - 1, 0}, {"a part again", 150, 148}, {"all again", len(known) - 1, len(known) - 2}} {
		beam, _, err := draft.New("beam:N=6,k=2,depth=2")
		if err != nil {
			t.Fatal(err)
		}
		m.read, m.rows = 0, 0
		next := slices.Clone(known[:x.shared])
		next = append(next, (known[x.shared]+1)%int32(conf.Vocab), 7)
		s := answer(next, beam)
		if got := s.Stats().Cached; got < x.shared-1 || got > x.shared {
			t.Errorf("%s: %d tokens are from the cache, want %d", x.name, got, x.shared)
		}
		want := len(next) + 30 - x.read
		if m.read < want-6 || m.read > want {
			t.Errorf("%s: %d tokens were read, want %d less those after the last ask", x.name, m.read, want)
		}
		if m.rows == 0 {
			t.Errorf("%s: no rows were compared", x.name)
		}
		x := answer(next, mute{}) // which leaves what is kept as it is
		if x.Stats().Cached < len(next)-2 {
			t.Errorf("%d of %d tokens are from the cache", x.Stats().Cached, len(next))
		}
	}
}
